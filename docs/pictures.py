"""Draw the pictures and the moving pages of the gallery: ``python docs/pictures.py [NAME ...]``.

The still pictures ``docs/gallery/pictures/NAME.png`` and the moving pictures ``NAME.svg`` are kept in the repository.
The pages of ``uk.view``, ``docs/_extra/gallery/views/NAME.html``, are not: without them the gallery shows the moving
pictures.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import ukjax as uk
from ukjax._view import drawing, moving_picture
from ukjax.plot.drawing import draw

DOCS = Path(__file__).parent
PICTURES, VIEWS = DOCS / "gallery" / "pictures", DOCS / "_extra" / "gallery" / "views"
SAMPLES = 301


def motion_of(name: str) -> uk.Trajectory:
    """The motion of a system of the gallery over the time span of its source."""
    system = uk.systems.named(name)
    ts = np.linspace(0.0, system.end, SAMPLES)
    return uk.simulate(system, *uk.project(system, 0.0, *system.start()), ts, dt=system.step)


def picture(motion: uk.Trajectory, path: Path) -> None:
    """Draw the poses and the traces, without axes."""
    lines, bodies = drawing(motion)
    figure = Figure(figsize=(3.2, 3.2), layout="constrained")
    is_spatial = lines[0].shape[-1] == 3
    ax: Any = figure.add_subplot(projection="3d" if is_spatial else None)
    draw(ax, lines, bodies)
    if is_spatial:
        ax.set_box_aspect((1, 1, 1), zoom=1.4)  # no room for labels is needed
    ax.set_axis_off()
    figure.savefig(path, dpi=100, pil_kwargs={"optimize": True})


def main(names: list[str]) -> None:
    uk.enable_float64()
    uk.enable_compilation_cache()
    VIEWS.mkdir(parents=True, exist_ok=True)
    for name in names or list(uk.systems.CATALOGUE):
        motion = motion_of(name)
        picture(motion, PICTURES / f"{name}.png")
        (PICTURES / f"{name}.svg").write_text(moving_picture(motion))
        page = uk.view(motion).save(VIEWS / f"{name}.html")
        print(f"{name:28} {page.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The figure of the saved results of ``verify``: error against CPU time."""

from typing import Any

import matplotlib
import numpy as np

from .record import RESULTS, read

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"ukjax": "#1f5f8b", "SciPy": "#c2571a", "MuJoCo": "0.5", "Exudyn": "#3a8a4d", "Drake": "#8b3f8b"}


def run() -> list[dict[str, Any]]:
    return [{"figure": name, "file": draw()} for name, draw in _FIGURES.items()]


def _rows(name: str) -> tuple[list[dict[str, Any]], str]:
    record = read(name)
    return record["rows"], f"{record['machine']['processor']}, {record['machine']['cores']} cores, {record['date']}"


def _save(figure, name, where) -> str:
    figure.supxlabel(where, fontsize=7, color="0.4")
    figure.savefig(RESULTS / f"{name}.png", dpi=150)
    plt.close(figure)
    return f"benchmarks/results/{name}.png"


def _verify() -> str:
    """Error against CPU time, with a panel per problem that another method also solves."""
    rows, where = _rows("verify")
    names = list(dict.fromkeys(row["problem"] for row in rows if row["method"] in COLOURS and row["method"] != "ukjax"))
    figure, panels = plt.subplots(-(-len(names) // 4), 4, figsize=(10, 12), layout="constrained", sharey=True)
    for panel, name in zip(panels.flat, names, strict=False):
        for method, colour in COLOURS.items():
            points = [row for row in rows if row["problem"] == name and row["method"] == method]
            seconds, errors = [1e3 * row["CPU s"] for row in points], [max(row["error"], 1e-16) for row in points]
            if points:
                panel.loglog(seconds, errors, "o-", color=colour, label=method, markersize=3)
        panel.set_title(name.replace("_", " "), fontsize=9)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=7)
        times = [1e3 * row["CPU s"] for row in rows if row["problem"] == name and "CPU s" in row]
        panel.set_xlim(10 ** np.floor(np.log10(min(times))), 10 ** np.ceil(np.log10(max(times))))  # whole decades
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    handles = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=len(COLOURS), frameon=False)
    figure.supylabel("relative error")
    figure.suptitle("CPU time [ms]", fontsize=9, x=0.1)
    return _save(figure, "verify", where)


_FIGURES = {"verify": _verify}

"""Figures of the kept results: accelerations and rollouts against others, and how both scale with the batch."""

from typing import Any

import matplotlib

from .record import RESULTS, read

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OURS, OTHERS = "#1f5f8b", "#b9bec4"


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


def _bars(name: str, unit: str, value) -> str:
    """A panel per mechanism, a bar per candidate."""
    rows, where = _rows(name)
    mechanisms = [m for m in dict.fromkeys(row["mechanism"] for row in rows) if m in ("P1", "P2")]
    figure, panels = plt.subplots(1, len(mechanisms), figsize=(9, 3.4), layout="constrained")
    for panel, mechanism in zip(panels, mechanisms, strict=True):
        group = [row for row in rows if row["mechanism"] == mechanism and value(row)][::-1]
        labels = [row["candidate"] for row in group]
        colours = [OURS if "ukjax" in label else OTHERS for label in labels]
        bars = panel.barh(labels, [value(row) for row in group], color=colours)
        panel.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        panel.set_xscale("log")
        panel.margins(x=0.25)
        panel.set(title=mechanism, xlabel=unit)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    return _save(figure, name, where)


def _accelerations() -> str:
    return _bars(
        "acceleration", "constrained accelerations per µs", lambda row: 1 / row["µs each"] if row.get("µs each") else 0
    )


def _rollouts() -> str:
    return _bars("rollouts", "steps per second", lambda row: row["steps/s"])


def _batch_size() -> str:
    rows, where = _rows("batch_size")
    figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
    panel.loglog(
        [row["batch"] for row in rows], [row["ns each"] for row in rows], "o-", color=OURS, label="acceleration"
    )
    steps = [row for row in rows if row.get("ns per step")]
    label = "Runge–Kutta step with projection"
    panel.loglog([r["batch"] for r in steps], [r["ns per step"] for r in steps], "s--", color="#c2571a", label=label)
    panel.set(xlabel="members of the batch", ylabel="ns per member", title="P1, float64")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)
    panel.legend(frameon=False)
    return _save(figure, "batch_size", where)


def _verify() -> str:
    """Error against CPU time, a panel per problem that another method solves, too."""
    rows, where = _rows("verify")
    names = list(dict.fromkeys(row["problem"] for row in rows if row["method"] in ("SciPy", "MuJoCo")))
    figure, panels = plt.subplots(-(-len(names) // 4), 4, figsize=(10, 11), layout="constrained", sharey=True)
    colours = {"ukjax": OURS, "SciPy": "#c2571a", "MuJoCo": "0.5"}
    for panel, name in zip(panels.flat, names, strict=False):
        for method, colour in colours.items():
            points = [row for row in rows if row["problem"] == name and row["method"] == method]
            seconds, errors = [1e3 * row["CPU s"] for row in points], [max(row["error"], 1e-16) for row in points]
            if points:
                panel.loglog(seconds, errors, "o-", color=colour, label=method, markersize=3)
        panel.set_title(name.replace("_", " "), fontsize=9)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    handles = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="lower right", frameon=False)
    figure.supylabel("relative error")
    figure.suptitle("CPU time [ms]", fontsize=9)
    return _save(figure, "verify", where)


_FIGURES = {"accelerations": _accelerations, "rollouts": _rollouts, "batch size": _batch_size, "verify": _verify}

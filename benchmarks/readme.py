"""The numbers of README.md, made from the saved results, so that the two cannot differ.

A block of the README between ``<!-- NAME: from benchmarks/results -->`` and ``<!-- end -->`` is the text that
``BLOCKS[NAME]`` returns. ``python -m benchmarks readme`` writes the blocks; a test compares them.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from .kernels import MEMBERS
from .record import ROOT, read

README = ROOT / "README.md"
BLOCK = re.compile(r"<!-- (\w+): from benchmarks/results -->\n(.*?)<!-- end -->", re.DOTALL)


def write() -> str:
    """Renew the blocks of README.md."""
    README.write_text(renewed(README.read_text()))
    return README.name


def renewed(text: str) -> str:
    """``text`` with its blocks made anew."""
    block = lambda found: f"<!-- {found[1]}: from benchmarks/results -->\n{BLOCKS[found[1]]()}\n<!-- end -->"
    return BLOCK.sub(block, text)


def rows(name: str, **match: Any) -> list[dict[str, Any]]:
    """Rows of benchmark ``name`` whose columns have these values."""
    return [row for row in read(name)["rows"] if all(row.get(key.replace("_", " ")) == x for key, x in match.items())]


def row(name: str, **match: Any) -> dict[str, Any]:
    """The one such row."""
    (found,) = rows(name, **match)
    return found


def number(x: float, digits: int = 2) -> str:
    """To so many significant digits: 0.26, 18, 1200, 3e-16."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    if abs(x) < 1e-3 or abs(x) >= 1e6:
        mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}"
    places = max(digits - 1 - math.floor(math.log10(abs(x))), 0)
    return f"{x:.{places}f}"


def below(x: float) -> str:
    """A bound: one digit, rounded up."""
    exponent = math.floor(math.log10(x))
    return number(math.ceil(x / 10.0**exponent * (1 - 1e-12)) * 10.0**exponent, 1)


def times(ratio: float) -> str:
    """How a candidate's time compares with ours: "4.9 times as long", "0.6 of the time"."""
    return f"{number(ratio)} times as long" if ratio >= 1 else f"{number(ratio)} of the time"


def machine(*names: str) -> str:
    """Processor, commit and date of results, each once."""
    records = [read(name) for name in names]
    each = lambda value: ", ".join(dict.fromkeys(value(record) for record in records))
    processor = each(lambda r: f"{r['machine']['processor']}, {r['machine']['cores']} cores")
    return f"{processor}; commit {each(lambda r: r.get('commit', 'unknown'))}; {each(lambda r: r['date'])}"


# --- accuracy ---------------------------------------------------------------------------------------------------------


def _accuracy() -> str:
    found = row("accuracy", method="orthogonal")
    share = 100 * found["largest share of the bound"]
    return (
        f"relative error {number(found['median error'])} in the median, at most {number(share)} % of the bound "
        f"50 cond(M) cond(A)² 2.2e-16; {found['wrong ranks'] or 'no'} wrong rank"
    )


def _gallery() -> str:
    everything = read("gallery")["rows"]
    worst = lambda column: max((r for r in everything if column in r), key=lambda r: r[column])
    residual, error = worst("residual"), worst("error")
    return (
        f"residuals at most {below(residual['residual'])} (`{residual['system']}`); distance at most "
        f"{below(error['error'])} (`{error['system']}`)"
    )


def _robots() -> str:
    found = [r for r in read("robots")["rows"] if r.get("mass matrix") is not None]
    worst = lambda column: max(r[column] for r in found if r.get(column) is not None)
    return (
        f"{len(found)} files: mass matrix and bias agree to {below(max(worst('mass matrix'), worst('bias')))}, "
        f"accelerations to {below(worst('acceleration'))}"
    )


# --- waiting ----------------------------------------------------------------------------------------------------------


def _first_pendulum() -> str:
    share = lambda what: number(row("first_result", what=what)["times plain"])
    plain = row("first_result", what="plain diffrax: motion")["first s"]
    return (
        f"{share('pendulum: simulate')} of the script's {number(plain)} s; "
        f"{share('pendulum: the same model defined anew')} when the model is defined anew; the gradient "
        f"{share('pendulum: jax.grad through simulate')} of the script's gradient"
    )


LOOPS = (
    "parallel robot, n = 12",
    "three rockers, n = 12, rank 11 of 12",
    "governor, n = 28, stiff",
    "Bricard's loop, n = 35, rank 34 of 35",
    "ten windows, n = 63",
)


def _first_loops() -> str:
    shares = [row("first_result", what=what)["times plain"] for what in LOOPS]
    return f"{number(min(shares))} to {number(max(shares))} times the pendulum's script"


def _first_robots() -> str:
    compiling = {r["mechanism"]: r["compile s"] for r in rows("bodies", candidate="ukjax")}
    return "; ".join(f"{_words(name)} {number(seconds)} s" for name, seconds in compiling.items())


def _process() -> str:
    share = lambda what: number(row("first_result", what=what)["times plain"])
    first, again = "ukjax run scara --json: process", "ukjax run scara --json: process, compiled before"
    return f"{share(first)} and {share(again)} times the script's whole process"


# --- speed ------------------------------------------------------------------------------------------------------------


def _acceleration() -> str:
    of = lambda candidate: row("acceleration", mechanism="P1", candidate=candidate, cores=1)
    own, ratio = of("ukjax")["µs each"], lambda candidate: of(candidate)["times ukjax"]
    beside = lambda candidate: _bold(times(ratio(candidate)), ratio(candidate) < 1)
    return (
        f"{number(own)} µs in one call, {number(of('ukjax in a loop')['µs each'])} µs in a loop. In one call "
        f"`vmap(cholesky)` takes {beside('vmap(cholesky)')}, `vmap(pinv)` {beside('vmap(pinv)')}, MuJoCo's "
        f"`mj_forward` {beside('mj_forward')}, a C loop written for this mechanism {beside('C loop')}"
    )


def _larger() -> str:
    found = {}
    for name, count in (("P3_16", 16), ("P3_40", 40)):
        naive, own = (row("acceleration", mechanism=name, candidate=c) for c in ("vmap(cholesky)", "ukjax"))
        if "µs each" in naive:
            found[count] = own["µs each"], naive["µs each"]
    return "; ".join(
        f"{count} four-bars: {number(own)} µs, `vmap(cholesky)` {_bold(f'{number(naive)} µs', naive < own)}"
        for count, (own, naive) in found.items()
    )


def _rollouts() -> str:
    of = lambda candidate: row("rollouts", mechanism="P1", candidate=candidate, batch=4096)
    own, rk4, euler = of("ukjax, float64"), of("MuJoCo rollout, RK4"), of("MuJoCo rollout, Euler")
    million = lambda found: f"{number(found['steps/s'] / 1e6)} million per second, residual {below(found['residual'])}"
    return f"{million(own)}; MuJoCo's rollout: {million(rk4)} (RK4), {million(euler)} (Euler)"


def _one_motion() -> str:
    of = lambda candidate: 1e6 / row("rollouts", mechanism="P1", candidate=candidate, batch=1)["steps/s"]
    own, rk4, by_hand = of("ukjax, one motion"), of("MuJoCo rollout, RK4"), of("lax.scan by hand")
    beside = lambda other: _bold(f"{number(other)} µs", other < own)
    return f"{number(own)} µs; MuJoCo {beside(rk4)}; a `lax.scan` written by hand {beside(by_hand)}"


def _bodies() -> str:
    found = []
    for name in dict.fromkeys(r["mechanism"] for r in rows("bodies", candidate="ukjax")):
        of = lambda candidate, name=name: row("bodies", mechanism=name, candidate=candidate, cores=1)
        peers = [f"{number(of('mj_forward')['times ukjax'])}"]
        if "µs each" in of("Pinocchio"):
            peers.append(number(of("Pinocchio")["times ukjax"]))
        found.append(f"{_words(name)} {number(of('ukjax in a loop')['µs each'])} µs ({' and '.join(peers)})")
    return "; ".join(found)


ROBOTS = ("seven_axis_arm", "leg", "humanoid", "stewart_platform")


def _by_kernels(column: str, unit: str, beside: str = "") -> str:
    """A column of the benchmark of kernels, robot by robot, and in brackets another one."""
    parts = []
    for name in ROBOTS:
        found = row("kernels", system=name)
        other = f" ({number(found[beside])})" if beside in found else ""
        parts.append(f"{_words(name)} {number(found[column])} {unit}{other}")
    return "; ".join(parts)


def _robot_motion() -> str:
    return _by_kernels("µs a step, 1", "µs", "mj_step µs")


def _robot_batch() -> str:
    return _by_kernels(f"µs a step, {MEMBERS}", "µs")


def _robot_first() -> str:
    return _by_kernels("first s, 1", "s", "first s again, 1")


def _robot_batch_first() -> str:
    return _by_kernels(f"first s, {MEMBERS}", "s", f"first s again, {MEMBERS}")


def _adaptive() -> str:
    share = lambda what: number(row("adaptive", what=what)["share of the sum"])
    return (
        f"{share('all at once')} times the sum of what each needs alone; {share('by vmap')} times by `jit(vmap(...))`"
    )


def _gradient() -> str:
    return "; ".join(f"{number(r['times forward'])} for {r['batch']}" for r in read("gradient")["rows"])


def _scaling() -> str:
    parts = []
    for count in (16, 40, 1000):
        found = row("scaling", four_bars=count, by="ukjax.acceleration")
        parts.append((count, number(found["µs each"]), found["members"], number(found["compile s"], 1)))
    return "; ".join(f"{n}: {each} µs ({members} at once, first call {first} s)" for n, each, members, first in parts)


# --- estimation -------------------------------------------------------------------------------------------------------


def _identification() -> str:
    fits = read("identification")["rows"]
    again = sorted(r["seconds"] for r in fits[1:])[len(fits[1:]) // 2]
    worst = 100 * max(r["largest error"] for r in fits)
    return (
        f"in each, the {min(r['rank'] for r in fits)} combinations that the data determine, to {number(worst, 1)} %; "
        f"{number(fits[0]['seconds'])} s with compilation, {number(again)} s again"
    )


def _tuning() -> str:
    return ", ".join(f"{r['system']} {100 * r['held out']:.0f} %" for r in read("tuning")["rows"])


def _notebook(pattern: str) -> list[Any]:
    """What the printed lines of the notebook on measured pendulums say."""
    cells = json.loads((ROOT / "notebooks" / "measured_pendulums.ipynb").read_text())["cells"]
    text = "\n".join("".join(out.get("text", [])) for cell in cells for out in cell.get("outputs", []))
    return re.findall(pattern, text)


def _measured_motion() -> str:
    last = lambda fit: [line.split()[-1] for line in _notebook(rf"{fit} +start estimated +([\d. ]+?) mrad RMS")]
    ours, theirs = " and ".join(last("this fit")), " and ".join(last("published"))
    return f"{ours} mrad RMS; {theirs} with the parameters of their authors"


def _measured_torque() -> str:
    def missing(record: str) -> str:
        fit, published = (
            " and ".join(_notebook(rf"{record} +{kind} +([\d.]+) ([\d.]+) N m RMS missing")[0])
            for kind in ("regression", "published")
        )
        return f"{fit} N m, {published} with the parameters of its laboratory"

    return f"held out: {missing('held out')}; another, faster record: {missing('another, faster')}"


# --- the blocks -------------------------------------------------------------------------------------------------------


def _words(name: str) -> str:
    return name.replace("_", " ")


def _bold(text: str, peer_wins: bool) -> str:
    return f"**{text}**" if peer_wins else text


NUMBERS: tuple[tuple[str, Callable[[], str], str], ...] = (
    (
        "`constrained_motion` against 50 digits, 200 hard systems (rank-deficient, badly scaled, cond(M) to 1e8, "
        "singular M)",
        _accuracy,
        "accuracy",
    ),
    (
        "every system of the gallery over its source's time span: residuals; distance from the exact motion, if known",
        _gallery,
        "gallery",
    ),
    ("robots' files beside Pinocchio", _robots, "robots"),
    ("first motion of the pendulum above, beside a plain diffrax script", _first_pendulum, "first_result"),
    ("the same for closed loops of 12 to 63 coordinates, stiff or with redundant rows", _first_loops, "first_result"),
    ("compilation of an acceleration for a batch of a robot's file", _first_robots, "bodies"),
    ("`ukjax run scara --json`, the whole process; again", _process, "first_result"),
    (
        "three chains joined at a point (n = 6, m = 4), one acceleration of 4096 at once, one core",
        _acceleration,
        "acceleration",
    ),
    ("rows of four-bars, all rows written out, two cores, per member", _larger, "acceleration"),
    ("rows of four-bars by `uk.acceleration`, two cores, per member", _scaling, "scaling"),
    ("three chains, 4096 at once, Runge–Kutta steps with projection, all cores", _rollouts, "rollouts"),
    ("three chains, one motion, a Runge–Kutta step, one core", _one_motion, "rollouts"),
    (
        "one acceleration of a robot's file in a loop, one core (times as long: `mj_forward`, Pinocchio's `aba`)",
        _bodies,
        "bodies",
    ),
    (
        "a Runge–Kutta step with projection of one motion of a robot's file, one core (MuJoCo's `mj_step`, RK4)",
        _robot_motion,
        "kernels",
    ),
    ("the same of each of 4096, one core", _robot_batch, "kernels"),
    ("first result of one such motion, CPU time of one core (again in a new process)", _robot_first, "kernels"),
    ("the same of 4096 motions of 20 steps", _robot_batch_first, "kernels"),
    ("4096 adaptive motions that need 32 to 967 steps", _adaptive, "adaptive"),
    ("reverse gradient by six masses, in runs of the motion alone, by members", _gradient, "gradient"),
    (
        "nine inertial parameters of the parallel manipulator, 20 motions with 1 % noise, ten starts up to 50 % off",
        _identification,
        "identification",
    ),
    ("gains of two papers, tuned; cost on starts held out, beside the papers'", _tuning, "tuning"),
    (
        "measured double and triple pendulums, pieces held out, starts estimated",
        _measured_motion,
        "`notebooks/measured_pendulums.ipynb`",
    ),
    (
        "measured torques of a driven double pendulum, RMS that the model misses, joint 1 and 2",
        _measured_torque,
        "the same",
    ),
)
"""Claim, what was measured, benchmark."""

SOURCES = tuple(dict.fromkeys(name for _, _, name in NUMBERS if name.isidentifier())) + ("adjoints",)
"""The benchmarks that the README quotes."""


def numbers() -> str:
    """The table of results. Bold: a peer is faster."""
    lines = ["| claim | measured | by |", "|---|---|---|"]
    for claim, measured, source in NUMBERS:
        if source in SOURCES and not _is_dated(source):
            continue
        name = source if source.startswith("`") or source == "the same" else f"`{source}`"
        lines.append(f"| {claim} | {measured()} | {name} |")
    return "\n".join([*lines, "", f"Measured on {machine(*filter(_is_dated, SOURCES))}. Bold: a peer is faster."])


def _is_dated(name: str) -> bool:
    """Whether the results of a benchmark name the commit that was measured: older ones are left out until they are
    measured again."""
    return "commit" in read(name)


WAYS = (
    ("`jax.grad`, steps `dt`", "nothing else", "fixed steps of 5 ms, reverse"),
    ("`jax.jacfwd`, steps `dt`", "nothing else", "fixed steps of 5 ms, forward"),
    ("`jax.grad`, adaptive steps", "nothing else", "RecursiveCheckpointAdjoint"),
    ("`jax.jacfwd`, adaptive, six parameters", "`adjoint=diffrax.ForwardMode()`", "ForwardMode"),
    (
        "second derivatives, adaptive",
        "`adjoint=diffrax.DirectAdjoint()`, `max_steps=256`",
        "DirectAdjoint, 256 steps",
    ),
    (
        "long motions in little memory",
        '`adjoint=diffrax.BacksolveAdjoint()`, `drift="none"`',
        "BacksolveAdjoint",
    ),
)


def derivatives() -> str:
    """What each way of taking a derivative costs."""
    lines = [
        "| take | with | cost, in runs of the motion | memory | distance from the exact motion's derivative |",
        "|---|---|---|---|---|",
    ]
    for take, using, way in WAYS:
        found = row("adjoints", way=way)
        memory, error = f"{1e3 * found['memory MB']:.0f} kB", number(found["relative error"], 1)
        lines.append(f"| {take} | {using} | {number(found['times'])} | {memory} | {error} |")
    return "\n".join(lines)


BLOCKS = {"numbers": numbers, "derivatives": derivatives}

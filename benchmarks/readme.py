"""The numbers of README.md and of the documentation, taken from the saved results.

A block of a page between ``<!-- NAME: from benchmarks/results -->`` and ``<!-- end -->`` is the text that
``BLOCKS[NAME]`` returns. ``python -m benchmarks readme`` writes the blocks; a test compares them.
"""

import itertools
import json
import math
import re
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from .kernels import MEMBERS
from .record import RESULTS as RESULTS
from .record import ROOT, read

PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "howto" / "derivatives.md",
    ROOT / "docs" / "howto" / "gpu.md",
    ROOT / "docs" / "howto" / "stiff.md",
    ROOT / "docs" / "verification.md",
)
BLOCK = re.compile(r"<!-- (\w+): from benchmarks/results -->\n(.*?)<!-- end -->", re.DOTALL)


def write() -> str:
    """Write the blocks of all pages again."""
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
    return ", ".join(page.name for page in PAGES)


def renewed(text: str) -> str:
    """``text`` with new blocks."""
    block = lambda found: f"<!-- {found[1]}: from benchmarks/results -->\n{BLOCKS[found[1]]()}\n<!-- end -->"
    return BLOCK.sub(block, text)


def rows(name: str, **match: Any) -> list[dict[str, Any]]:
    """Rows of benchmark ``name`` whose columns have these values."""
    return [row for row in read(name)["rows"] if all(row.get(key.replace("_", " ")) == x for key, x in match.items())]


def row(name: str, **match: Any) -> dict[str, Any]:
    """The only row of benchmark ``name`` whose columns have these values."""
    (found,) = rows(name, **match)
    return found


def number(x: float, digits: int = 2) -> str:
    """Text with ``digits`` significant digits: 0.26, 18, 1200, 3e-16."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    if abs(x) < 1e-3 or abs(x) >= 1e6:
        mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}"
    places = max(digits - 1 - math.floor(math.log10(abs(x))), 0)
    return f"{x:.{places}f}"


def below(x: float) -> str:
    """Text of an upper bound: one digit, rounded up."""
    exponent = math.floor(math.log10(x))
    return number(math.ceil(x / 10.0**exponent * (1 - 1e-12)) * 10.0**exponent, 1)


def times(ratio: float) -> str:
    """The ratio of a candidate's time to that of ukjax in words: "4.9 times as long", "0.6 of the time"."""
    return f"{number(ratio)} times as long" if ratio >= 1 else f"{number(ratio)} of the time"


QUIET = 1.0
"""Load average above which the pages say that the machine was busy."""


def machine(*names: str) -> str:
    """Processor, commit and date of results, each once, and the results that were measured on a busy machine."""
    groups: dict[str, list[str]] = {}
    for name in names:
        record = read(name)
        processor = f"{record['machine']['processor']}, {record['machine']['cores']} cores"
        load = record["machine"]["load before"]
        busy = f" (load {load:.1f})" if load > QUIET else ""
        groups.setdefault(f"{processor}; commit {record['commit']}; {record['date']}", []).append(f"`{name}`{busy}")
    text = "; ".join(f"{', '.join(group)} on {where}" for where, group in groups.items())
    return text + (". Load: average of other processes before the benchmark" if "(load" in text else "")


# --- accuracy ---------------------------------------------------------------------------------------------------------


def _accuracy() -> str:
    found = row("accuracy", method="orthogonal")
    share = 100 * found["largest share of the bound"]
    return (
        f"median relative error {number(found['median error'])}; largest error {number(share)} % of the bound "
        f"50 cond(M) cond(A)² 2.2e-16; {found['wrong ranks'] or 'no'} wrong rank"
    )


def _gallery() -> str:
    everything = read("gallery")["rows"]
    worst = lambda column: max((r for r in everything if column in r), key=lambda r: r[column])
    residual, error = worst("residual"), worst("error")
    return (
        f"{len(everything)} systems: residuals at most {below(residual['residual'])} (`{residual['system']}`); "
        f"error at most {below(error['error'])} (`{error['system']}`)"
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
        f"{share('pendulum: simulate')} (script: {number(plain)} s); "
        f"{share('pendulum: the same model defined anew')} if the model is defined again; gradient "
        f"{share('pendulum: jax.grad through simulate')} (relative to the script's gradient)"
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
    return f"{number(min(shares))} to {number(max(shares))}"


def _process() -> str:
    share = lambda what: number(row("first_result", what=what)["times plain"])
    first, again = "ukjax run scara --json: process", "ukjax run scara --json: process, compiled before"
    return f"{share(first)}; second run {share(again)}"


# --- speed ------------------------------------------------------------------------------------------------------------


def _acceleration() -> str:
    of = lambda candidate: row("acceleration", mechanism="P1", candidate=candidate)
    beside = lambda candidate: _bold(times(of(candidate)["times ukjax"]), of(candidate)["times ukjax"] < 1)
    return (
        f"{number(of('ukjax')['µs each'])} µs in one call; `vmap(cholesky)` takes {beside('vmap(cholesky)')}, "
        f"`vmap(pinv)` {beside('vmap(pinv)')}, MuJoCo's `mj_forward` {beside('mj_forward')}, Pinocchio "
        f"{beside('Pinocchio')}, a C loop written for this mechanism {beside('C loop')}. In a loop: "
        f"{number(of('ukjax in a loop')['µs each'])} µs; `vmap(cholesky)` {beside('vmap(cholesky) in a loop')}"
    )


def _rollouts() -> str:
    return _steps(4096, ("MuJoCo rollout, RK4", "MuJoCo rollout, Euler"))


def _one_motion() -> str:
    return _steps(1, ("MuJoCo rollout, RK4", "MuJoCo rollout, Euler", "lax.scan by hand"))


def _steps(batch: int, peers: tuple[str, ...]) -> str:
    of = lambda candidate: row("rollouts", mechanism="P1", candidate=candidate, batch=batch)
    shown = lambda found: f"{number(found['µs a step'])} µs, residual {below(found['residual'])}"
    others = [f"{name}: {_bold(shown(of(name)), of(name)['times ukjax'] < 1)}" for name in peers]
    return "; ".join([shown(of("ukjax")), *others])


def _bodies() -> str:
    found = []
    for name in dict.fromkeys(r["mechanism"] for r in rows("bodies", candidate="ukjax")):
        peers = [number(r["times ukjax"]) for r in rows("bodies", mechanism=name) if r["candidate"] != "ukjax"]
        own = row("bodies", mechanism=name, candidate="ukjax")["µs each"]
        found.append(f"{_words(name)} {number(own)} µs ({' and '.join(peers)})")
    return "; ".join(found)


ROBOTS = ("seven_axis_arm", "leg", "humanoid", "stewart_platform")


def _by_kernels(column: str, unit: str, beside: str = "") -> str:
    """A column of the benchmark ``kernels`` for each robot, and another column in brackets."""
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
    return f"{share('all at once')}; {share('by vmap')} by `jit(vmap(...))`"


def _gradient() -> str:
    return "; ".join(f"{number(r['times forward'])} for batch size {r['batch']}" for r in read("gradient")["rows"])


STANDING = "humanoid on eight corners of its feet, 200 steps"
"""A row of the benchmark ``nonsmooth``."""


def _stops() -> str:
    found = row("nonsmooth", what="4096 pendulums on a stop")
    return f"{number(found['ratio'])} times as long, with {found['impacts']} impacts"


def _standing() -> str:
    found, parts = row("nonsmooth", what=STANDING), []
    for name, words in (("one", "single motion"), ("batch", f"batch of {found['members']}")):
        own, other = found[f"{name}: ukjax [µs]"], found[f"{name}: MuJoCo [µs]"]
        parts.append(f"{words} {number(own)} µs ({_bold(f'{number(other)} µs', other < own)})")
    return "; ".join(parts)


def _scaling() -> str:
    parts = []
    for own in rows("scaling", by="ukjax.acceleration"):
        dense = [r["µs each"] for r in read("scaling")["rows"] if _is_beside(r, own)]
        beside = "".join(f" ({_bold(f'{number(each)} µs', each < own['µs each'])})" for each in dense)
        parts.append(f"{own['four-bars']}: {number(own['µs each'])} µs{beside}")
    return "; ".join(parts)


def _is_beside(other: dict[str, Any], own: dict[str, Any]) -> bool:
    return other["by"] != own["by"] and other["four-bars"] == own["four-bars"]


# --- estimation -------------------------------------------------------------------------------------------------------


def _identification() -> str:
    fits = read("identification")["rows"]
    again = sorted(r["seconds"] for r in fits[1:])[len(fits[1:]) // 2]
    worst = 100 * max(r["largest error"] for r in fits)
    return (
        f"the {min(r['rank'] for r in fits)} combinations that the data determine: errors at most "
        f"{number(worst, 1)} %; first fit {number(fits[0]['seconds'])} s with compilation, "
        f"later fits {number(again)} s (median)"
    )


def _tuning() -> str:
    return ", ".join(f"{r['system']} {100 * r['held out']:.0f} %" for r in read("tuning")["rows"])


def _notebook(pattern: str) -> list[Any]:
    """Values from the printed lines of the notebook on measured pendulums."""
    cells = json.loads((ROOT / "notebooks" / "measured_pendulums.ipynb").read_text())["cells"]
    text = "\n".join("".join(out.get("text", [])) for cell in cells for out in cell.get("outputs", []))
    return re.findall(pattern, text)


def _measured_motion() -> str:
    def all_pieces(fit: str) -> str:
        found = _notebook(rf"{fit} +start estimated +([\d. ]+?) mrad RMS")
        pieces = [[float(error) for error in line.split()] for line in found]
        return " and ".join(number(math.sqrt(statistics.mean(x**2 for x in errors))) for errors in pieces)

    ours, theirs = all_pieces("this fit"), all_pieces("published")
    return f"{ours} mrad; {theirs} mrad with the published parameters"


def _measured_torque() -> str:
    def missing(record: str) -> str:
        fit, published = (
            " and ".join(_notebook(rf"{record} +{kind} +([\d.]+) ([\d.]+) N m RMS missing")[0])
            for kind in ("regression", "published")
        )
        return f"{fit} N m ({published} N m with the published parameters)"

    return f"held-out record: {missing('held out')}; faster record: {missing('another, faster')}"


# --- the blocks -------------------------------------------------------------------------------------------------------


def _words(name: str) -> str:
    return name.replace("_", " ")


def _bold(text: str, peer_wins: bool) -> str:
    return f"**{text}**" if peer_wins else text


NUMBERS: tuple[tuple[str, Callable[[], str], str], ...] = (
    (
        "error of `constrained_motion` against 50-digit arithmetic, 200 difficult systems (rank-deficient, badly "
        "scaled, cond(M) up to 1e8, singular M)",
        _accuracy,
        "accuracy",
    ),
    (
        "systems of the gallery over the time span of their source: constraint residuals; error of the motion where "
        "the exact solution is known",
        _gallery,
        "gallery",
    ),
    ("robot files: difference from Pinocchio", _robots, "robots"),
    (
        "first motion of a pendulum with a rod as a constraint: time relative to a plain diffrax script for this "
        "pendulum",
        _first_pendulum,
        "first_result",
    ),
    (
        "first motion of closed loops with 12 to 63 coordinates, stiff or with redundant rows: time relative to the "
        "script for the pendulum",
        _first_loops,
        "first_result",
    ),
    (
        "`ukjax run scara --json`: time of the whole process relative to that of the same script",
        _process,
        "first_result",
    ),
    (
        "three chains joined at a point (n = 6, m = 4): accelerations of a batch of 4096, time per member, one core",
        _acceleration,
        "acceleration",
    ),
    (
        "row of four-bars, by their number: acceleration by `uk.acceleration`, time per member, one core (in brackets: "
        "`vmap(cholesky)`)",
        _scaling,
        "scaling",
    ),
    (
        "three chains, batch of 4096: Runge–Kutta step with projection, CPU time per member, all cores; MuJoCo's "
        "rollout on as many threads",
        _rollouts,
        "rollouts",
    ),
    ("three chains, single motion: the same, one core", _one_motion, "rollouts"),
    (
        "robot files: acceleration inside a loop, time per member, one core (in brackets: time of MuJoCo's "
        "`mj_forward` and Pinocchio's `aba` relative to it)",
        _bodies,
        "bodies",
    ),
    (
        "robot files, single motion: time of a Runge–Kutta step with projection, one core (in brackets: MuJoCo's "
        "`mj_step` with RK4)",
        _robot_motion,
        "kernels",
    ),
    (f"robot files, batch of {MEMBERS}: time of such a step per member, one core", _robot_batch, "kernels"),
    (
        "robot files, single motion: CPU time to the first result with compilation (in brackets: in a new process, "
        "with the cache on disk)",
        _robot_first,
        "kernels",
    ),
    (f"robot files, batch of {MEMBERS}, 20 steps: the same CPU time", _robot_batch_first, "kernels"),
    (
        "batch of 4096 adaptive motions with 32 to 967 steps: time relative to the sum of the times of single motions",
        _adaptive,
        "adaptive",
    ),
    (
        "4096 pendulums that bounce on a stop of their hinge: time of a step relative to that of pendulums without a "
        "stop",
        _stops,
        "nonsmooth",
    ),
    (
        "humanoid on eight corners of its feet, with friction: step of 1 ms by `MoreauJean`, one core (in brackets: "
        "MuJoCo's `mj_step`, with soft contacts)",
        _standing,
        "nonsmooth",
    ),
    ("reverse gradient with respect to six masses: time relative to that of the motion", _gradient, "gradient"),
    (
        "fits of nine inertial parameters of the parallel manipulator to 20 motions with 1 % noise, from ten guesses "
        "with errors up to 50 %",
        _identification,
        "identification",
    ),
    ("tuned gains of two papers: cost for held-out starts relative to that of the papers' gains", _tuning, "tuning"),
    (
        "measured double and triple pendulums: RMS error of the fitted motion for held-out pieces, starts estimated",
        _measured_motion,
        "`notebooks/measured_pendulums.ipynb`",
    ),
    (
        "measured driven double pendulum: RMS torque that the model does not explain, joints 1 and 2",
        _measured_torque,
        "the same",
    ),
)
"""Measured quantity, function that returns the result, benchmark."""

SOURCES = tuple(dict.fromkeys(name for _, _, name in NUMBERS if name.isidentifier())) + ("adjoints",)
"""The benchmarks that the pages quote."""


def numbers() -> str:
    """The table of results. Bold: the other program is faster."""
    lines = ["| quantity | result | benchmark |", "|---|---|---|"]
    for claim, measured, source in NUMBERS:
        name = source if source.startswith("`") or source == "the same" else f"`{source}`"
        lines.append(f"| {claim} | {measured()} | {name} |")
    return "\n".join([*lines, "", f"Measured: {machine(*SOURCES)}. Bold: the other program is faster."])


class Comparison(NamedTuple):
    """A quantity for which smaller is better, by ukjax and by another program, in ``unit``."""

    quantity: str
    own: float
    other: float
    unit: str
    program: str
    benchmark: str


def comparisons() -> list[Comparison]:
    """All comparisons of times with other programs in the results."""
    found = []

    def add(benchmark, column, unit, quantity, own, others, program):
        found.extend(
            Comparison(quantity, own[column], other[column], unit, other[program], benchmark)
            for other in others
            if column in other and other is not own
        )

    for mechanism, loop in itertools.product(MECHANISMS, (False, True)):
        group = [r for r in rows("acceleration", mechanism=mechanism) if ("in a loop" in r["candidate"]) == loop]
        how = "in a loop" if loop else "in one call"
        quantity = f"{MECHANISMS[mechanism]}: acceleration {how}"
        add("acceleration", "µs each", "µs", quantity, group[0], group[1:], "candidate")
    for mechanism, batch in itertools.product(MECHANISMS, (1, 4096)):
        group = rows("rollouts", mechanism=mechanism, batch=batch)
        what = "step of one motion" if batch == 1 else f"step per member, batch of {batch}"
        add("rollouts", "µs a step", "µs", f"{MECHANISMS[mechanism]}: {what}", group[0], group[1:], "candidate")
    for own in rows("bodies", candidate="ukjax"):
        group = [r for r in rows("bodies", mechanism=own["mechanism"]) if r is not own]
        add("bodies", "µs each", "µs", f"{_words(own['mechanism'])}: acceleration", own, group, "candidate")
    for own in rows("scaling", by="ukjax.acceleration"):
        group = [r for r in read("scaling")["rows"] if _is_beside(r, own)]
        quantity = f"{own['four-bars']} four-bars: acceleration, "
        add("scaling", "µs each", "µs", quantity + "time per member", own, group, "by")
        add("scaling", "first s", "s", quantity + "CPU time of the first call", own, group, "by")
    for own in read("kernels")["rows"]:
        if "mj_step µs" in own:
            quantity = f"{_words(own['system'])}: step of one motion"
            found.append(Comparison(quantity, own["µs a step, 1"], own["mj_step µs"], "µs", "mj_step", "kernels"))
    found_standing = row("nonsmooth", what=STANDING)
    for name, words in (("one", "single motion"), ("batch", "batch")):
        own, other = (found_standing[f"{name}: {program} [µs]"] for program in ("ukjax", "MuJoCo"))
        quantity = f"humanoid on its feet, {words}: step with contacts and friction"
        found.append(Comparison(quantity, own, other, "µs", "mj_step", "nonsmooth"))
    for what in ("pendulum: simulate", "ukjax run scara --json: process, compiled before"):
        own, plain = row("first_result", what=what), "plain diffrax: " + ("process" if "process" in what else "motion")
        other = row("first_result", what=plain)["first s"]
        quantity = f"{what}: CPU time of the first result"
        found.append(Comparison(quantity, own["first s"], other, "s", "script for the pendulum", "first_result"))
    return found


MECHANISMS = {"P1": "three chains joined at a point", "P2": "closed chain of five links"}
"""The mechanisms of the benchmarks ``acceleration`` and ``rollouts`` in words."""


def others_win() -> str:
    """The comparisons in which another program takes less time."""
    everything = comparisons()
    behind = [each for each in everything if each.other < each.own]
    lines = ["| quantity | ukjax | the other program | benchmark |", "|---|---|---|---|"]
    for each in behind:
        own, other = (f"{number(x)} {each.unit}" for x in (each.own, each.other))
        lines.append(f"| {each.quantity} | {own} | {each.program}: {other} | `{each.benchmark}` |")
    names = dict.fromkeys(each.benchmark for each in everything)
    summary = f"{len(behind)} of {len(everything)} comparisons of times. Measured: {machine(*names)}."
    return "\n".join([*lines, "", summary])


WAYS = (
    ("`jax.grad`, steps `dt`", "none", "fixed steps of 5 ms, reverse"),
    ("`jax.jacfwd`, steps `dt`", "none", "fixed steps of 5 ms, forward"),
    ("`jax.grad`, adaptive steps", "none", "RecursiveCheckpointAdjoint"),
    ("`jax.jacfwd`, adaptive, six parameters", "`adjoint=diffrax.ForwardMode()`", "ForwardMode"),
    (
        "second derivatives, adaptive",
        "`adjoint=diffrax.DirectAdjoint()`, `max_steps=256`",
        "DirectAdjoint, 256 steps",
    ),
    (
        "`jax.grad`, adaptive, long motions in little memory",
        '`adjoint=diffrax.BacksolveAdjoint()`, `drift="none"`',
        "BacksolveAdjoint",
    ),
)


def derivatives() -> str:
    """The cost of each way of computing a derivative."""
    lines = [
        "| derivative | arguments | time relative to the motion | memory | relative error |",
        "|---|---|---|---|---|",
    ]
    for take, using, way in WAYS:
        found = row("adjoints", way=way)
        memory, error = f"{1e3 * found['memory MB']:.0f} kB", number(found["relative error"], 1)
        lines.append(f"| {take} | {using} | {number(found['times'])} | {memory} | {error} |")
    return "\n".join(lines)


FIVE = (_accuracy, _robot_motion, _adaptive, _identification, _robot_first)
"""The results that the README shows: in the last, another program is faster."""


def five() -> str:
    """The rows of ``numbers`` for ``FIVE``, without the benchmarks."""
    claims = {measured: claim for claim, measured, _ in NUMBERS}
    sources = {measured: source for _, measured, source in NUMBERS}
    lines = ["| quantity | result |", "|---|---|"]
    for measured in FIVE:
        slower = "; **MuJoCo compiles nothing: its first result comes sooner**" if measured is _robot_first else ""
        lines.append(f"| {claims[measured]} | {measured()}{slower} |")
    names = dict.fromkeys(sources[measured] for measured in FIVE)
    return "\n".join([*lines, "", f"Measured: {machine(*names)}. Bold: the other program is faster."])


OTHERS = "SciPy", "MuJoCo", "Exudyn", "Drake"


def verification() -> str:
    """Each problem of ``ukjax verify``: errors and times with the finest setting, compared with other programs."""
    heads = ["problem", "known digits", "ukjax: error", "ms", "derivative"]
    heads += [head for other in OTHERS for head in (f"{other}: error", "ms")]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    best = {}
    for each in read("verify")["rows"]:
        best.setdefault(each["problem"], {})[each["method"]] = each  # settings are in order: the last is the finest
    for name, found in best.items():
        reference, derivative = found["reference"], found["reference"].get("derivative error")
        cells = [f"`{name}`", str(reference["digits"]), *_error_and_time(found["ukjax"])]
        cells.append("" if derivative is None else number(derivative, 1))
        for other in OTHERS:
            cells += _error_and_time(found[other]) if other in found else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{_ahead(best)} Measured: {machine('verify')}."])


def _error_and_time(found):
    return [number(found["error"], 1) if math.isfinite(found["error"]) else "fails", number(1e3 * found["CPU s"])]


def _ahead(best):
    """Number of problems in which ukjax has the smaller error in at most the CPU time of the other's finest setting."""
    sentences = []
    for other in OTHERS:
        peers = {name: found[other] for name, found in best.items() if other in found}
        ours = {name: [r for r in rows("verify", problem=name, method="ukjax")] for name in peers}
        behind = [
            name
            for name, peer in peers.items()
            if not any(r["CPU s"] <= peer["CPU s"] and r["error"] <= peer["error"] for r in ours[name])
        ]
        more = f": not with {', '.join(f'`{name}`' for name in behind)}" if behind else ""
        sentences.append(
            f"With {len(peers) - len(behind)} of {len(peers)} problems the error of ukjax is at most that of {other} "
            f"with its finest setting in at most the same CPU time{more}."
        )
    return " ".join(sentences)


def stiff() -> str:
    """Steps, error and time of the stiff governor with both solvers."""
    lines = ["| solver | tolerance | steps per second of motion | error of q | CPU time |", "|---|---|---|---|---|"]
    for found in rows("stiff", system="governor"):
        steps, error = number(found["steps per second of motion"], 3), number(found["error of q"], 1)
        cells = found["solver"], f"{found['tolerance']:.0e}", steps, error, f"{number(found['CPU ms'])} ms"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Measured: {machine('stiff')}."])


COMPILED = (
    ("P1", "float64"),
    ("P1", "float32"),
    ("pendulum", "float64"),
    ("andrews_squeezer", "float64"),
    ("parallel_robot_tracking", "float64"),
    ("seven_axis_arm", "float64"),
    ("leg", "float64"),
    ("humanoid", "float64"),
)


def gpu() -> str:
    """The report of ``ptxas`` on kernels of the gallery; P1 are the three chains."""
    lines = [
        "| | launches | registers | memory of a thread [B] | spills: stores, loads [B] | ptxas [s] |",
        "|---|---|---|---|---|---|",
    ]
    for system, dtype in COMPILED:
        found = row("gpu_compiled", system=system, dtype=dtype)
        name = "three chains (n 6, m 4)" if system == "P1" else _words(system)
        spills = f"{found['spill stores B']}, {found['spill loads B']}"
        cells = f"{name}, {dtype}", found["launches"], found["registers"], found["stack B"], spills
        lines.append(f"| {' | '.join(map(str, cells))} | {number(found['ptxas s'])} |")
    return "\n".join([*lines, "", f"Compiled: {machine('gpu_compiled')}."])


BLOCKS = {
    "numbers": numbers,
    "others_win": others_win,
    "five": five,
    "derivatives": derivatives,
    "stiff": stiff,
    "gpu": gpu,
    "verification": verification,
}

"""Write a compiled simulator to a file, and read it; running it does not need the source of the model."""

import json
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jaxtyping import Float

from .._check import as_array, as_path, check_finite, repr_of
from .._contact.moreau_jean import MoreauJean
from .._errors import InputError
from .._files import check_writable, write_whole
from .._fingerprint import with_digest
from .._kernel import without_kernels
from .._labels import Labels, state_names
from .._motion.diagnose.servo import results_with_task
from .._motion.fallback.policy import initial_method_at
from .._motion.integrate.named import batch_program
from .._motion.result import NEEDS_FALLBACK, NO_FALLBACK
from .._motion.simulate.arguments import DEFAULT_MAX_STEPS
from .._motion.trajectory.trajectory import Trajectory
from .._names import did_you_mean_one_of
from .._parameters import value_at
from .._precision import Numbers, is_double_allowed
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod
from .._system import AbstractSystem
from .._version import NUMERICS, __version__
from .._with_states import with_initial_states
from .block import starts
from .plan import fingerprint_of, plan_of

BLOCK_SIZE = 136
"""Members per block on a CPU. A block with a single member takes as long as a full one."""

PLATFORMS = "cpu", "cuda", "tpu"

FORMAT = 2
"""Version of the file format. To be raised if the meaning of its arrays or of the result codes changes."""


def export(
    system: Any,
    ts: Numbers,
    path: str | os.PathLike,
    *,
    over: Iterable[str] = (),
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    derivatives: bool = False,
    drift: str | None = None,
    dt: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    method: str | AbstractMethod = "orthogonal",
    solver: Any = None,
    max_steps: int = DEFAULT_MAX_STEPS,
) -> Path:
    """Write a compiled simulator of a system to a file.

    The simulator runs for any number of starts, on CPU, CUDA and TPU. ``load_simulator`` reads it. That needs ukjax,
    but not the source of the system.

    Parameters
    ----------
    system : AbstractSystem or callable
        The model, as in ``simulate``.
    ts : array_like, shape (samples,)
        Times of the samples [s].
    path : path
        The file.
    over : iterable of str, optional
        Names of parameters that can be given with each start, such as ``["m1", "ma[0]"]``. All other parameters are
        fixed. Default: none.
    q0, v0 : array_like, shape (n,), optional
        Example of a start. Default: that of the mechanism. The program is made for the redundant constraints at this
        start; a motion that reaches a configuration where other constraints are redundant ends there, with its own
        result code.
    derivatives : bool, optional
        Whether reverse-mode differentiation through the simulator is possible. This needs ``dt``. Default: False.
    drift, dt, rtol, atol, method, max_steps : optional
        As in ``simulate``.
    solver : optional
        As in ``simulate``; an explicit Runge–Kutta method.

    Returns
    -------
    pathlib.Path
        The file that was written.

    Raises
    ------
    InputError
        For bad input, or if the file cannot be written.

    Notes
    -----
    Starts must satisfy the constraints, as those of ``simulate``. The file contains its provenance: the versions of
    ukjax and JAX, the options, and a fingerprint of the system and of all these (``Simulator.provenance``).

    Examples
    --------
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> path = uk.export(uk.systems.Pendulum(), [0.0, 0.5, 1.0], "pendulum.bin", over=["m"], dt=0.01)
    >>> simulator = uk.load_simulator(path)
    >>> motion = simulator([[0.6, -0.8], [0.0, -1.0]], [0.0, 0.0], {"m": [1.0, 2.0]})
    >>> motion.q.shape
    (2, 3, 2)
    """
    path = as_path(path)
    try:
        check_writable(path)
    except OSError as error:
        raise InputError(f"path {str(path)!r} cannot be written: {error.strerror}") from None
    names = tuple(over) if isinstance(over, Iterable) and not isinstance(over, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InputError(f"over must name numbers of the model, such as ('m1', 'ma[0]'), got {repr_of(over)}")
    if derivatives and dt is None:
        raise InputError("derivatives need fixed steps: give dt, the length of one [s]")
    has_contacts = isinstance(system, AbstractSystem) and bool(system.nonsmooth)
    if derivatives and has_contacts and not isinstance(solver, MoreauJean):
        raise InputError(
            "derivatives of an exported system with contacts or dry friction need solver=ukjax.MoreauJean(): only its "
            "number of steps is known in advance"
        )

    plan = plan_of(
        system, {name: [1.0] for name in names} or {"q1": [0.0]}, 1, ts, q0, v0, None, 0, None, False, "samples", None,
        drift, dt, rtol, atol, method, solver, None, max_steps,
    )  # fmt: skip
    if len(plan.task.parameter_columns) < len(names):
        raise InputError(f"over must name numbers of the model, got {repr_of(names)}: q0 and v0 are always inputs")
    task = replace(plan.task, q_entries=(), v_entries=(), own_start=False)
    program, dtype = batch_program(task.problem), task.problem.ts.dtype
    first = [np.atleast_2d(x)[0] for x in (plan.q0, plan.v0)]
    first[1] = np.asarray(with_initial_states(system, *first)[1])
    initial, first = first[1][plan.v0.shape[-1] :], [x[None] for x in first]
    example = (jnp.asarray(x, dtype) for x in (np.array([_exported_values(task)]), *first))
    problem = replace(task.problem, attempt=initial_method_at(task.problem, jit_unoptimised(starts)(task, *example)))

    def simulated(q0, v0, numbers):
        run_block = lambda x: every(*x)
        return jax.lax.platform_dependent(
            q0, v0, numbers, cpu=partial(_in_blocks, run_block), default=without_kernels(every)
        )

    def every(q0, v0, numbers):
        start = starts(task, numbers, q0, v0)
        samples = program(start, problem)
        result = results_with_task(problem, start, samples)
        result = jnp.where(result == NEEDS_FALLBACK, NO_FALLBACK, result)
        return samples.t, samples.q, samples.v, result, samples.steps, samples.last

    (members,) = jax_export.symbolic_shape("members")
    shape = lambda size: jax.ShapeDtypeStruct((members, size), dtype)
    exported = jax_export.export(jax.jit(simulated), platforms=PLATFORMS)(
        *(shape(x.shape[1]) for x in first), shape(len(names))
    )
    text = lambda named: np.array(named, dtype=str).reshape(-1, 2)
    arrays = {
        "program": np.frombuffer(exported.serialize(vjp_order=int(derivatives)), np.uint8),
        "t": plan.ts,
        "names": np.array(names, dtype=str),
        "coordinates": text(plan.coordinates),
        **({} if plan.directions is None else {"directions": text(plan.directions)}),
        "states": text(state_names(task.problem.model)),
        "initial states": initial,
        "title": np.array(plan.title),
        "own": np.array(_exported_values(task), float),
        "format": np.array(FORMAT),
        "provenance": np.array(json.dumps(_provenance(plan, names, derivatives))),
    }

    def write(part):
        with open(part, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)
    return path


def _provenance(plan, names, derivatives) -> dict[str, Any]:
    """Everything that determines the simulator: versions, model, parameters and options, with a fingerprint of them."""
    fingerprint = fingerprint_of(plan, "export")
    unused = ("over", "members", "combine", "seed", "keep", "fix_swept", "event", "block")
    used = {name: value for name, value in fingerprint.items() if name not in unused}
    return with_digest(used | {"over": list(names), "derivatives": derivatives})


def _exported_values(task) -> list[float]:
    """Values in the exported model of the parameters that can be given with a start."""
    return [float(value_at(task.problem.model, place)) for place in task.problem.places]


def _in_blocks(run_block, *arrays):
    """Simulate in blocks of ``BLOCK_SIZE`` members, one after the other: the data of a block stay in the caches."""
    members = arrays[0].shape[0]
    blocks = (members + BLOCK_SIZE - 1) // BLOCK_SIZE
    rows = jnp.minimum(jnp.arange(blocks * BLOCK_SIZE), members - 1)
    blocked = tuple(x[rows].reshape(blocks, BLOCK_SIZE, x.shape[1]) for x in arrays)
    results = jax.lax.map(run_block, blocked)
    return jax.tree.map(lambda x: x.reshape(blocks * BLOCK_SIZE, *x.shape[2:])[:members], results)


class Simulator(eqx.Module):
    """A simulator that ``export`` wrote: ``simulator(q0, v0, numbers) -> Trajectory``.

    Attributes
    ----------
    t : array, shape (samples,)
        Times of the samples [s].
    names : tuple of str
        Parameters that can be given with a start.
    own : array, shape (parameters,)
        Their values in the exported system, which are the defaults.
    """

    t: np.ndarray
    names: tuple[str, ...] = eqx.field(static=True)
    own: np.ndarray
    labels: Labels
    program: Any = eqx.field(static=True, repr=False)
    about: str = eqx.field(static=True, repr=False)
    initial: Float[np.ndarray, " k"] = eqx.field(repr=False)

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions of ukjax and JAX, model, parameters, options, and a fingerprint of them."""
        return json.loads(self.about)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate."""
        return self.labels.coordinates

    def __call__(self, q0: Numbers, v0: Numbers, numbers: Mapping[str, Numbers] | None = None) -> Trajectory:
        """Simulate the motions from q0, v0.

        Parameters
        ----------
        q0, v0 : array_like, shape (n,) or (members, n)
            Initial coordinates and velocities, on the constraints. The initial values of first-order states may follow
            the velocities; without them they are those of the exported system.
        numbers : dict, optional
            Parameters by name: one value, or an array of shape (members,). Default: those of the exported system.

        Returns
        -------
        Trajectory
            As from ``simulate(..., throw=False)``, without a model.

        Raises
        ------
        InputError
            For bad input.
        """
        q, v = as_array("q0", q0), as_array("v0", v0)
        sizes = tuple(aval.shape[1] for aval in self.program.in_avals[:2])
        if v.ndim and v.shape[-1] == sizes[1] - self.initial.size:
            v = jnp.concatenate([v, jnp.broadcast_to(self.initial, (*v.shape[:-1], self.initial.size))], axis=-1)
        right = q.ndim in (1, 2) and q.size and v.shape[:-1] in (q.shape[:-1], ())
        if not right or (q.shape[-1], v.shape[-1]) != sizes:
            wanted = " and ".join(dict.fromkeys(f"({n},) or (members, {n})" for n in sizes))
            raise InputError(f"q0 and v0 must have shape {wanted}, got shapes {q.shape} and {v.shape}")
        for name, value in (("q0", q), ("v0", v)):
            check_finite(name, value)
        values = dict(numbers or {})
        for name in values:
            if name not in self.names:
                raise InputError(f"numbers names no parameter {name!r}{did_you_mean_one_of(name, self.names)}")
        starts_q = jnp.atleast_2d(q)
        dtype = self.program.in_avals[0].dtype
        columns = []
        for name, own in zip(self.names, self.own, strict=True):
            value = as_array(f"numbers[{name!r}]", values.get(name, own))
            if value.shape not in ((), (len(starts_q),)):
                raise InputError(
                    f"numbers[{name!r}] must be a number, or have shape ({len(starts_q)},), got {value.shape}"
                )
            columns.append(jnp.broadcast_to(value, len(starts_q)))
        parameters = jnp.stack(columns, axis=1) if columns else jnp.zeros((len(starts_q), 0))
        v = jnp.broadcast_to(v, (len(starts_q), v.shape[-1]))
        results = self.program.call(*(x.astype(dtype) for x in (starts_q, v, parameters)))
        if q.ndim == 1:
            results = jax.tree.map(lambda x: x[0], results)
        t, q, v, result, steps, last = results
        return Trajectory(t, q, v, result, steps, last, None, None, None, self.labels)


def load_simulator(path: str | os.PathLike) -> Simulator:
    """Read a simulator that ``export`` wrote.

    The program in the file does not change with the version of ukjax that reads it.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Simulator
        A function ``simulator(q0, v0, numbers) -> Trajectory``.

    Raises
    ------
    InputError
        If the file contains no simulator, or has a format that this version does not read.

    Warns
    -----
    UserWarning
        If this version of ukjax computes other numbers than the version that wrote the file, or if the file was written
        by a newer version of JAX. JAX supports the latter for a few weeks only. Newer versions of JAX read a file for
        at least half a year.

    Examples
    --------
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> path = uk.export(uk.systems.Pendulum(), [0.0, 0.5, 1.0], "pendulum.bin", dt=0.01)
    >>> simulator = uk.load_simulator("pendulum.bin")
    >>> simulator.coordinates
    (('x', 'm'), ('y', 'm'))
    >>> simulator([0.6, -0.8], [0.0, 0.0]).q.shape
    (3, 2)
    """
    path = as_path(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
        provenance, file_format = json.loads(str(arrays["provenance"])), int(arrays["format"])
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{str(path)!r} is not a simulator that ukjax.export wrote: {error}") from None
    written = f"ukjax {provenance.get('ukjax')} and JAX {provenance.get('jax')}"
    if file_format != FORMAT:
        raise InputError(
            f"{str(path)!r} was written by {written} in format {file_format}, and this ukjax, {__version__}, reads "
            f"format {FORMAT}: export it again, or load it with that version"
        )
    try:
        program = jax_export.deserialize(bytearray(arrays["program"].tobytes()))
        pairs = lambda name: tuple((str(a), str(b)) for a, b in arrays[name]) if name in arrays else None
        named = pairs("coordinates") or (), (), (), pairs("directions"), pairs("states") or ()
        labels, names = Labels(str(arrays["title"]), *named), tuple(map(str, arrays["names"]))
        others = arrays["own"], labels, program, json.dumps(provenance), arrays["initial states"]
        simulator = Simulator(arrays["t"], names, *others)
    except ImportError:
        raise
    except Exception as error:  # JAX raises different exceptions, depending on where deserialising fails
        raise InputError(
            f"{str(path)!r}, written by {written}, cannot be read by JAX {jax.__version__}: {error}"
        ) from None
    if program.in_avals[0].dtype == np.float64 and not is_double_allowed():
        raise InputError(f"{str(path)!r} computes in float64: call ukjax.enable_float64() before it is loaded")
    for reason in _disagreements(provenance):
        warnings.warn(f"{str(path)!r} was written by {written}: {reason}", stacklevel=2)
    return simulator


def _disagreements(provenance: dict[str, Any]) -> Iterator[str]:
    """Warnings about the versions of ukjax and JAX that wrote the file, if they matter here."""
    if provenance.get("numerics") != NUMERICS:
        yield (
            f"ukjax {__version__} computes other numbers than that version did, so that this simulator and "
            "ukjax.simulate may differ; export it again if they are to agree"
        )
    number = lambda version: [int(part) for part in re.findall(r"\d+", str(version))[:3]]
    if number(provenance.get("jax")) > number(jax.__version__):
        yield (
            f"JAX {jax.__version__}, which is older, runs files of newer versions only for some weeks after their "
            "release; export it again here, or update JAX"
        )

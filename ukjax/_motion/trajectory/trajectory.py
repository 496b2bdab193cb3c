"""``Trajectory``, the result of a simulation: the motion, forces and residuals, as arrays, tables and files."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check import as_path
from ..._contact.history import ContactHistory, mode_of
from ..._errors import InputError
from ..._extras import extra_package
from ..._files import write_whole
from ..._integration import Integration
from ..._jaxpr.tracing import is_concrete
from ..._labels import (
    Labels,
    named_coordinates,
    named_directions,
    named_inputs,
    named_rows,
    state_names,
    title_of,
)
from ..._outside import external_values_in
from ..._precision import Numbers
from ..._run.compile import cached_unless_tracing
from ..._solve import AbstractMethod
from ..._system import AbstractSystem
from ..._with_states import equations_of
from ..event import EventHistory
from ..inputs import hint_if_batched_model
from ..plan import Plan
from ..result import EVENT, FINISHED, in_words
from .continuation import Provenance, check_times_within
from .files import SavedMotion, as_dataset, read_netcdf, read_npz, write_csv, write_netcdf, write_npz
from .forces import ForceBalance, force_balance
from .motors import MotorHistory, motors_of
from .observation import Observation, observe

if TYPE_CHECKING:
    import xarray

OBSERVED = {each.name: each.metadata for each in fields(Observation)}
"""Metadata of each evaluated quantity, for files."""

WITH_ROWS = (
    "residual",
    "position_residual",
    "velocity_residual",
    "acceleration_residual",
    "task_residual",
    "unreachable",
    "contact_force",
)
"""Quantities with one entry per constraint row."""


class Trajectory(eqx.Module):
    """A motion sampled at times t, time first: (samples, ...), or (batch, samples, ...) for a batch.

    | field | per sample | meaning |
    |---|---|---|
    | ``t``, ``q``, ``v`` | (), (nq,), (n,) | time [s], coordinates and velocities |
    | ``acceleration`` | (n,) | q̈ |
    | ``constraint_force`` | (n,) | Qᶜ = ``ideal_force`` + ``nonideal_force`` |
    | ``residual`` | (m,) | each constraint as written: φ, or ψ, or A q̈ − b |
    | ``position_residual``, ``velocity_residual`` | (k,) | φ; φ̇ and ψ |
    | ``acceleration_residual`` | (m,) | A q̈ − b |
    | ``rank``, ``inconsistency`` | () | as in ``ConstrainedMotion`` |
    | ``energy`` | () | T + V [J], None where the model has none |
    | ``control`` | (p,) | u, one column per actuator; this and the next three are None without control |
    | ``task_residual`` | (k,) | each servo constraint as written |
    | ``unreachable`` | (k,) | accelerations of the task that the actuators cannot give |
    | ``control_rank`` | () | independent task rows that the actuators can move |
    | ``contact_force`` | (rows,) | forces of contacts and dry friction; None without |

    Everything except ``t``, ``q`` and ``v`` is evaluated lazily, on first access. Samples that were not reached are
    NaN. A model that is a bare function has residuals of accelerations only. A trajectory that was read from a file has
    no ``model``; its names are in ``labels``.

    ``motion(t)`` is the motion at other times. ``motion[i]`` is member i of a batch, ``len(motion)`` the number of
    members.

    Parameters
    ----------
    t, q, v
        Samples, as in the table.
    result
        How the motion ended, as an integer per member; ``reason`` in words. ``finished`` is whether it reached its last
        time, ``met_event`` whether it ended at its event.
    steps
        Number of steps per member.
    last
        t, q, v that the motion reached, per member.
    model
        The model that ``simulate`` was given; None if the trajectory was read from a file.
    method
        The solver for accelerations; None if the trajectory was read from a file.
    observation
        Forces, residuals, rank and energy, None if they are evaluated lazily.
    labels
        Names and units, None if they are those of the model.
    contacts
        Contacts, dry friction and impacts; None for a system without.
    held
        Held inputs of sampled control (samples, p), None without.
    events
        Instants and numbers of events; None without, or for one event that ends the motion, whose instant is in
        ``last``.
    provenance
        How ``simulate`` computed the motion. ``integration`` returns its options.
    """

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples nq"]
    v: Float[Array, "*batch samples n"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch nq"], Float[Array, "*batch n"]]
    model: AbstractSystem | Callable | None
    method: AbstractMethod | None
    observation: Observation | None = None
    labels: Labels | None = None
    provenance: Provenance | None = None
    contacts: ContactHistory | None = None
    held: Float[Array, "*batch samples p"] | None = None
    events: EventHistory | None = None

    @property
    def states(self) -> dict[str, Array]:
        """First-order states of the control by name, each (samples,) with a batch axis in front for a batch.

        They are the last entries of ``v``. Empty for a system without states.
        """
        names = [name for name, _ in self.named_states]
        return {name: self.v[..., i - len(names)] for i, name in enumerate(names)}

    @property
    def named_states(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each first-order state; empty for a system without states."""
        return state_names(self.equations) if self.labels is None else self.labels.states

    @cached_unless_tracing
    def equations(self) -> Any:
        """The model as a function of the t, q and v of this motion: ``with_states(model)`` for a system with states,
        else ``model``."""
        return equations_of(self.model)

    def observed(self) -> Observation:
        """Forces, residuals, rank and energy at all samples, compiled and evaluated on first access.

        Returns
        -------
        Observation
            The quantities of the table of ``Trajectory``, with the axes of the trajectory.

        Raises
        ------
        InputError
            If the trajectory has no model, or a number that the model reads from outside has changed.
        """
        if self.observation is not None:
            return self.observation
        observation = self.__dict__.get("_seen")
        if observation is None:
            self._check_numbers()
            if self.model is None or self.method is None:
                raise InputError(
                    "this trajectory has no model, so that only t, q and v are known: call with_observation() before "
                    "without_model()"
                )
            with hint_if_batched_model(self.model, self.q[..., 0, :]):
                mode = mode_of(self.contacts)
                observation = observe(self.equations, self.t, self.q, self.v, self.method, mode, self.held)
            if is_concrete(observation):
                object.__setattr__(self, "_seen", observation)  # a cache, not a field: it follows from the fields
        return observation

    @property
    def plan(self) -> Plan | None:
        """How ``simulate`` integrated the motion: ``print(motion.plan)``. None for a motion that was returned by
        ``jit``, ``grad`` or ``vmap``, or read from a file."""
        return self.__dict__.get("_plan")

    @property
    def singular_poses(self) -> Float[np.ndarray, "*batch k"] | None:
        """Times of the singular poses, where constraints are dependent, that were passed by a special step [s].

        Shape (k,), or (batch, k) with NaN after the last one of a member; k = 0 if there was no such step. The notes of
        ``plan`` name the constraints. None where there is no ``plan``.

        A pose is detected if a stage of a step lies so close to it that rows are dependent within 6e-6 (5e-3 in
        float32), or if the step fails there. Other steps pass a pose as they pass any pose: the motion is within its
        tolerance, but the pose is not listed. So k = 0 does not mean that there was no singular pose. To look for all,
        find the minima of the smallest singular value of the constraint rows at the samples.
        """
        if self.plan is None:
            return None
        passed = self.plan.singular_poses
        most = max(Counter(member for member, _ in passed).values(), default=0)
        times = np.full((self.t.size // self.t.shape[-1], most), np.nan)
        for member, t in passed:
            times[member, np.count_nonzero(np.isfinite(times[member]))] = t
        return times if self.t.ndim > 1 else times[0]

    def with_plan(self, plan: Plan) -> "Trajectory":
        """This trajectory with its plan, which is neither a leaf nor part of the tree structure."""
        return Trajectory._remembering(self, plan=plan)  # a bound method would flatten the model

    @property
    def integration(self) -> Integration | None:
        """How ``simulate`` integrated the motion: ``simulate(..., **motion.integration)`` does the same again.

        None if they are not known: for a motion from a file, for one that ``jax.lax.cond`` or ``jax.tree.map`` made of
        motions with different options, and if ``jit`` or ``vmap`` traced a number among them.
        """
        options = None if self.provenance is None else self.provenance.options
        return None if options is None else options.integration

    def _check_numbers(self):
        computed_with = None if self.provenance is None else self.provenance.outside
        if computed_with is not None and computed_with != external_values_in(self.model):
            raise InputError(
                "a number that the model reads from outside, such as a global, has changed since this motion was "
                "computed, so that forces and energies would be those of another model: make it a field of the model, "
                "or call with_observation() before it changes"
            )

    def with_observation(self) -> "Trajectory":
        """This trajectory with all evaluated quantities stored as leaves, for use before the model is changed.

        Returns
        -------
        Trajectory
            A copy whose ``observation`` is set.
        """
        return replace(self, observation=self.observed())

    def without_model(self) -> "Trajectory":
        """This trajectory without model, method and options, which may contain more than arrays: for results of ``jit``
        and ``vmap``.

        Returns
        -------
        Trajectory
            A copy without them.
        """
        return replace(self, model=None, method=None, provenance=None)

    def __bool__(self) -> bool:
        return True  # independent of the number of members

    def __len__(self) -> int:
        """The number of members of a batch.

        Raises
        ------
        TypeError
            If this is a single trajectory.
        """
        self._check_batch()
        return len(self.t)

    def __iter__(self) -> "Iterator[Trajectory]":
        """Iterate over the members of a batch, in order.

        Raises
        ------
        TypeError
            If this is a single trajectory.
        """
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: Any) -> "Trajectory":
        """Member ``index`` of a batch, or the batch of several members.

        Parameters
        ----------
        index
            An integer selects one member. A slice, an array of integers (k,) or a boolean array (members,) selects
            several.

        Returns
        -------
        Trajectory
            All arrays of these members: samples, ``last``, ``result``, ``steps`` and ``observation``; and the models,
            if each member has its own.

        Raises
        ------
        TypeError
            If this is a single trajectory, or the index is of another type.
        IndexError
            If there is no such member.
        """
        at = checked_index(index, len(self))
        select = lambda tree: jax.tree.map(lambda x: x[at] if eqx.is_array(x) else x, tree)
        provenance, model, method = self.provenance, self.model, self.method
        if provenance is not None:
            if self.t.ndim - 1 > provenance.batch_axes:
                model, method = select((model, method))  # mapped over models: see ``Provenance``
            provenance = provenance.of_members(at)
        names = "t", "q", "v", "result", "steps", "last", "observation", "contacts", "held", "events"
        parts = {name: select(getattr(self, name)) for name in names}
        member = replace(self, **parts, model=model, method=method, provenance=provenance)
        plan = None if self.plan is None else self.plan.of_members(at, len(self))
        return member._remembering(select(self.__dict__.get("_seen")), plan)

    def __call__(self, t: Numbers) -> "Trajectory":
        """The motion at other times, to the accuracy of the solver.

        Each time is integrated from the last sample before it, with the options of ``simulate``. At a sample the result
        is that sample. It has derivatives with respect to the start and the model.

        Parameters
        ----------
        t
            One time [s], or times of shape (k,) in any order, between the first sample and the last time that the
            motion reached.

        Returns
        -------
        Trajectory
            The same motion sampled at ``t``: k samples, or one sample for one number.

        Raises
        ------
        InputError
            If a time is NaN or outside the motion, if the system has contacts, dry friction or sampled control, if the
            trajectory has no model, if the members of a batch have different times or models, or if times are traced:
            under ``jit``, or by a derivative with respect to them.
        """
        if self.model is None or self.method is None or self.provenance is None:
            raise InputError(
                "motion(t) needs the model and the options of ukjax.simulate, which this trajectory does not have: it "
                "was read from a file, or made by without_model()"
            )
        self._check_numbers()
        if self.contacts is not None:
            raise InputError(
                "motion(t) is not available for systems with contacts or dry friction: give the times to "
                "ukjax.simulate, as ts"
            )
        if self.events is not None:
            raise InputError(
                "motion(t) is not available for motions with several events, or one that does not end them: give the "
                "times to ukjax.simulate, as ts"
            )
        if self.held is not None:
            raise InputError("motion(t) is not available with sampled control: give the times to ukjax.simulate, as ts")
        samples, q, v = self._distinct_samples()
        times = check_times_within(t, float(samples[0]), float(samples[-1]), samples.dtype)
        options = self.provenance.options
        if options is None:
            raise InputError(
                "motion(t) needs the options of ukjax.simulate, which are not known of this trajectory: jit or vmap "
                "traced a number among them, or jax.lax.cond or jax.tree.map made it of motions with different "
                "options. Give the times t to ukjax.simulate, as ts"
            )
        q, v = options.states(self.equations, self.method, samples, q, v, times)
        at = jnp.broadcast_to(jnp.asarray(times), q.shape[:-1])
        return replace(self, t=at, q=q, v=v, observation=None)

    def _distinct_samples(self):
        """Distinct finite times in order, with q and v there: the samples and the last state."""
        t, last = self.t, self.last[0]
        if not is_concrete(t, last):
            raise InputError(
                "motion(t) needs known sample times. Under jit, and for derivatives with respect to sample times or "
                "switches or through an event, give the times t to ukjax.simulate, as ts"
            )
        t = np.append(np.asarray(t), np.asarray(last)[..., None], axis=-1)
        q, v = (
            jnp.concatenate([x, x_last[..., None, :]], axis=-2)
            for x, x_last in zip((self.q, self.v), self.last[1:], strict=True)
        )
        if t.ndim > 1:
            if not len(t):
                raise InputError("motion(t) needs a motion, this is a batch without members")
            is_shared = self.provenance is not None and self.provenance.batch_axes == t.ndim - 1
            if not is_shared or not np.array_equal(t, np.broadcast_to(t[0], t.shape), equal_nan=True):
                raise InputError(
                    "motion(t) of a batch needs the same model and the same times for all members: "
                    "use motion[i](t) for each member i"
                )
            t = t[0]
        distinct, indices = np.unique(t, return_index=True)
        indices = indices[np.isfinite(distinct)]
        return t[indices], q[..., indices, :], v[..., indices, :]

    def _check_batch(self):
        if self.t.ndim < 2:
            raise TypeError("this is one trajectory, not a batch of them: use motion.q[k] for its sample k")

    def _remembering(self, seen=None, plan=None):
        """This trajectory with cached observations and its plan."""
        for name, value in (("_seen", seen), ("_plan", plan)):
            if value is not None:
                object.__setattr__(self, name, value)
        return self

    def __repr__(self) -> str:
        if not all(map(eqx.is_array, (self.t, self.q, self.result))):
            return object.__repr__(self)  # the fields are not arrays, for example while JAX rebuilds the tree
        *batch, samples = self.t.shape
        members = "".join(f"{size} x " for size in batch)
        text = f"{self.title!r}, {members}{samples} samples of {self.q.shape[-1]} coordinates"
        if is_concrete(self.t, self.result) and self.t.size:
            reasons = Counter(np.atleast_1d(in_words(np.ravel(self.result))).tolist())
            endings = ", ".join(f"{count} {reason}" if batch else reason for reason, count in reasons.items())
            text += f", t = {np.min(self.t):g} to {np.max(self.t):g} s, {endings}"
        return f"Trajectory({text})"

    @property
    def acceleration(self) -> Float[Array, "*batch samples n"]:
        """Generalised accelerations q̈, shape (samples, n) [unit of v per s]."""
        return self.observed().acceleration

    @property
    def constraint_force(self) -> Float[Array, "*batch samples n"]:
        """Force Qᶜ of all constraints, shape (samples, n) [N for a length, N m for an angle]."""
        return self.observed().constraint_force

    @property
    def ideal_force(self) -> Float[Array, "*batch samples n"]:
        """Ideal part of the constraint force, which does no virtual work, shape (samples, n) [N or N m]."""
        return self.observed().ideal_force

    @property
    def nonideal_force(self) -> Float[Array, "*batch samples n"]:
        """Non-ideal part of the constraint force, shape (samples, n) [N or N m]."""
        return self.observed().nonideal_force

    @property
    def residual(self) -> Float[Array, "*batch samples m"]:
        """Residual of each constraint as written, shape (samples, m): φ, or ψ, or A q̈ − b [unit of the constraint]."""
        return self.observed().residual

    @property
    def position_residual(self) -> Float[Array, "*batch samples k"]:
        """Residual φ of the constraints on positions, shape (samples, k) [unit of the constraint]."""
        return self.observed().position_residual

    @property
    def velocity_residual(self) -> Float[Array, "*batch samples l"]:
        """Residuals φ̇ and ψ of the constraints on velocities, shape (samples, l) [unit of the constraint]."""
        return self.observed().velocity_residual

    @property
    def acceleration_residual(self) -> Float[Array, "*batch samples m"]:
        """Residual A q̈ − b of all rows, shape (samples, m) [unit of b]."""
        return self.observed().acceleration_residual

    @property
    def rank(self) -> Int[Array, "*batch samples"]:
        """Number of independent rows of A, shape (samples,)."""
        return self.observed().rank

    @property
    def inconsistency(self) -> Float[Array, "*batch samples"]:
        """Norm of the part of b that no acceleration can satisfy, shape (samples,) [unit of b]."""
        return self.observed().inconsistency

    @property
    def energy(self) -> Float[Array, "*batch samples"] | None:
        """Total energy T + V, shape (samples,) [J]; None where the model has none.

        If T has terms that are linear in v (a charge in a magnetic field) or do not depend on v (rotating axes), T + V
        is not conserved; v·∂T/∂v − T + V is.
        """
        return self.observed().energy

    @property
    def control(self) -> Float[Array, "*batch samples p"] | None:
        """Actuator inputs u, shape (samples, p); None without control. They are forces [N or N m], except of motors."""
        return self.observed().control

    @property
    def motors(self) -> MotorHistory | None:
        """Forces of the motors of ``Mechanism.motors``, and where their limits act; None without such motors.

        Raises ``InputError`` if the trajectory has no model.
        """
        if self.model is None:
            raise InputError(
                "motors needs the model of the motion, and this trajectory was read from a file, or has lost it"
            )
        self._check_numbers()
        return motors_of(self.equations, self.t, self.q, self.v, self.held, tuple(name for name, _ in self.inputs))

    @property
    def task_residual(self) -> Float[Array, "*batch samples k"] | None:
        """Residual of each servo constraint as written, shape (samples, k); None without control."""
        return self.observed().task_residual

    @property
    def unreachable(self) -> Float[Array, "*batch samples k"] | None:
        """Task accelerations that the actuators cannot give, shape (samples, k); None without control."""
        return self.observed().unreachable

    @property
    def control_rank(self) -> Int[Array, "*batch samples"] | None:
        """Number of independent task rows that the actuators can move, shape (samples,); None without control."""
        return self.observed().control_rank

    @property
    def contact_force(self) -> Float[Array, "*batch samples rows"] | None:
        """Forces of contacts, then of dry friction, shape (samples, rows) [N or N m]; None for a system without."""
        return self.observed().contact_force

    def forces(self) -> ForceBalance:
        """The balance of forces: the force, multipliers and power of each constraint, actuator and contact by name.

        Returns
        -------
        ForceBalance
            ``motion.forces()["loop"].force`` (samples, n), ``.multiplier``, ``.power``; ``print(motion.forces())``.

        Raises
        ------
        InputError
            If the trajectory has no model, or a number that the model reads from outside has changed.
        """
        self._check_numbers()
        if self.model is None or self.method is None:
            raise InputError(
                "forces() needs the model, which a motion from a file or from without_model() does not have"
            )
        with hint_if_batched_model(self.model, self.q[..., 0, :]):
            return force_balance(
                self.equations, self.t, self.q, self.v, self.method, mode_of(self.contacts), self.held,
                self.directions[: self.v.shape[-1] - len(self.named_states)],
            )  # fmt: skip

    @property
    def finished(self) -> Bool[Array, "*batch"]:
        """Whether the motion reached its last time."""
        return self.result == FINISHED

    @property
    def met_event(self) -> Bool[Array, "*batch"]:
        """Whether the motion ended before its last time, at its event."""
        return self.result == EVENT

    @property
    def reason(self) -> "str | np.ndarray":
        """The reason why the motion ended, in words; an array of texts for a batch."""
        return in_words(self.result)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate: those of the model, or q1, q2, ... without units."""
        return named_coordinates(self.model, self.q.shape[-1]) if self.labels is None else self.labels.coordinates

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Name and unit for each entry of v, of accelerations and of forces.

        These are the coordinates, unless the model has a ``kinematic_map``, and the first-order states. The unit is
        that of the quantity whose rate v is.
        """
        if self.labels is not None:
            return self.labels.along
        return named_directions(self.equations, self.v.shape[-1]) or self.coordinates

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each actuator: those of the model, or u1, u2, ... without units; empty without control."""
        if self.control is None:
            return ()
        return named_inputs(self.model, self.control.shape[-1]) if self.labels is None else self.labels.inputs

    @property
    def title(self) -> str:
        """The title of the model, or the name of its class."""
        return title_of(self.model) if self.labels is None else self.labels.title

    @property
    def rows(self) -> dict[str, tuple[str, ...]]:
        """Names of the rows of each residual, by the name of the residual: those of the constraints, or 1, 2, ..."""
        if self.labels is not None:
            return dict(self.labels.rows)
        if not self.t.size:
            raise InputError("a batch without members has no names of rows, and cannot be saved")
        sizes = {name: getattr(self, name).shape[-1] for name in WITH_ROWS if getattr(self, name) is not None}
        first = lambda x, of_sample: x[(0,) * (x.ndim - of_sample)]
        return dict(named_rows(self.equations, first(self.t, 0), first(self.q, 1), first(self.v, 1), sizes))

    @property
    def differentiable(self) -> Bool[Array, "*batch"]:
        """Whether the motion has a derivative, as far as two checks show.

        Where the rank of the rows changes, at a singular pose, the motion has no derivative; automatic differentiation
        then returns that of the motion at constant rank. The rank is compared at all samples that were reached.

        Where a contact is grazed, that is, touched without speed, a small change decides whether there is an impact;
        automatic differentiation then returns the derivative with the impacts of this motion. A contact is grazed if a
        gap has a minimum that is zero within 1e-8 of its size (√eps), before it opens again. Grazing between the
        samples is detected too, but with ``MoreauJean`` none is detected.
        """
        reached = jnp.isfinite(self.t)
        first = self.rank[..., :1]
        same_rank = jnp.all((self.rank == first) | ~reached, axis=-1)
        return same_rank if self.contacts is None else same_rank & ~self.contacts.grazing

    def reached(self) -> "Trajectory":
        """A single trajectory without the samples after its end, at an event or a failure, and without repeated times.

        Returns
        -------
        Trajectory
            The samples that were reached.
        """
        t = np.asarray(self.t)
        is_new = np.concatenate([[True], np.diff(t) != 0])  # an event at a sample repeats its time
        indices = np.flatnonzero(np.isfinite(t) & is_new)
        if indices.size == t.size:
            return self
        select = lambda tree: jax.tree.map(lambda x: x[indices], tree)
        t, q, v, observation, held = select((self.t, self.q, self.v, self.observation, self.held))
        contacts = None if self.contacts is None else self.contacts.at_samples(indices)
        return replace(self, t=t, q=q, v=v, observation=observation, contacts=contacts, held=held)._remembering(
            plan=self.plan
        )

    def to_xarray(self) -> "xarray.Dataset":
        """Convert to an ``xarray.Dataset`` with named coordinates, units and rows, by the CF conventions.

        Returns
        -------
        xarray.Dataset
            All quantities. Requires the package xarray.
        """
        extra_package("xarray", "data", "to_xarray")
        return as_dataset(self._saved())

    def save(self, path: str | os.PathLike) -> Path:
        """Write the trajectory to a file, which appears completely or not at all.

        Parameters
        ----------
        path
            File name. The suffix selects the format: .npz for plain arrays by name, .nc for netCDF (requires
            xarray), .csv for a table. An .npz file contains everything except the model. A .nc file contains the same
            without ``contacts`` and ``events``. ``load_trajectory`` reads both. A warning names the fields that are not
            written.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InputError
            For another suffix, or a batch as .csv.
        OSError
            If the file cannot be written.
        """
        path = as_path(path)
        writers = {".npz": write_npz, ".nc": write_netcdf, ".csv": write_csv}
        if path.suffix not in writers:
            raise InputError(f"path must end in {', '.join(writers)}, got {str(path)!r}")
        if path.suffix == ".csv" and self.t.ndim == 2:
            raise InputError("a table (.csv) holds one trajectory, this is a batch: use .npz or .nc")
        if self.contacts is not None and path.suffix != ".npz":
            warnings.warn(
                f"the impacts and modes of motion.contacts are not written to {path.suffix}: use .npz", stacklevel=2
            )
        if self.events is not None and path.suffix != ".npz":
            warnings.warn(f"the instants of motion.events are not written to {path.suffix}: use .npz", stacklevel=2)
        saved = self._saved()
        write_whole(path, lambda part: writers[path.suffix](saved, part))
        return path

    def _saved(self) -> SavedMotion:
        observed = self.observed()
        arrays = {"t": self.t, "q": self.q, "v": self.v, "result": self.result, "steps": self.steps}
        arrays |= dict(zip(("last_t", "last_q", "last_v"), self.last, strict=True))
        arrays |= {name: getattr(observed, name) for name in OBSERVED}
        states = self.named_states
        moving = self.directions[: len(self.directions) - len(states)]
        directions = None if moving == self.coordinates else moving
        labels = Labels(self.title, self.coordinates, self.inputs, tuple(self.rows.items()), directions, states)
        as_numpy = lambda named: {name: np.asarray(x) for name, x in named.items() if x is not None}
        contacts, events = ({} if x is None else as_numpy(vars(x)) for x in (self.contacts, self.events))
        return SavedMotion(as_numpy(arrays), OBSERVED, labels, contacts, events)


def checked_index(index: Any, members: int) -> Any:
    """``index`` as an integer, a slice or an array of integers (k,), or raise ``TypeError`` or ``IndexError``."""
    if isinstance(index, slice):
        return index
    if not is_concrete(index):
        return index
    try:
        at = np.asarray(None if isinstance(index, tuple) else index)
    except ValueError:  # a list of lists of different lengths
        at = np.asarray(None)
    if at.dtype == bool and at.shape == (members,):
        return np.flatnonzero(at)
    if at.ndim > 1 or at.size and at.dtype.kind not in "iu":
        wanted = f"an integer, a slice, or an array of integers (k,) or of booleans ({members},)"
        raise TypeError(f"motion[i] needs {wanted}, got {index!r}")
    outside = at[(at < -members) | (at >= members)] if at.size else at
    if outside.size:
        raise IndexError(f"there is no member {outside.flat[0]} in a batch of {members}")
    return int(at) if at.ndim == 0 else at.astype(int)


def load_trajectory(path: str | os.PathLike) -> Trajectory:
    """Read a trajectory that ``Trajectory.save`` wrote.

    Warns if numbers in double precision are rounded, because JAX computes in single precision.

    Parameters
    ----------
    path
        File with suffix .npz, or .nc (requires the package xarray).

    Returns
    -------
    Trajectory
        Everything that was saved: the motion, how it ended, forces, residuals, energy, control, names and units, and
        from .npz files the contacts and events. The model is not saved: ``model`` is None.

    Raises
    ------
    InputError
        If the file contains no trajectory, or is incomplete.
    OSError
        If there is no such file.
    """
    path = as_path(path)
    readers = {".npz": read_npz, ".nc": read_netcdf}
    if path.suffix not in readers:
        raise InputError(
            f"path must end in {' or '.join(readers)}, got {str(path)!r}: a table (.csv) does not contain "
            "the whole motion"
        )
    saved = readers[path.suffix](path, OBSERVED)
    arrays = {name: jnp.asarray(x) for name, x in saved.arrays.items()}
    if arrays["q"].dtype.itemsize < saved.arrays["q"].dtype.itemsize:
        warnings.warn(
            f"{str(path)!r} is in {saved.arrays['q'].dtype} and was rounded to {arrays['q'].dtype}, in which JAX "
            "computes: call ukjax.enable_float64() before",
            stacklevel=2,
        )
    observed: dict[str, Any] = {name: arrays.get(name) for name in OBSERVED}
    return Trajectory(
        t=arrays["t"],
        q=arrays["q"],
        v=arrays["v"],
        result=arrays["result"],
        steps=arrays["steps"],
        last=(arrays["last_t"], arrays["last_q"], arrays["last_v"]),
        model=None,
        method=None,
        observation=Observation(**observed),
        labels=saved.labels,
        contacts=_contacts_of(path, saved.contacts),
        events=_events_of(path, saved.events),
    )


def _contacts_of(path, saved) -> ContactHistory | None:
    """The contacts in a file, None if it has none. Raises ``InputError`` if some of their fields are missing."""
    if not saved:
        return None
    fields_of = _whole(path, saved, ContactHistory, "contacts")
    return ContactHistory(**{name: jnp.asarray(x) for name, x in fields_of.items()})


def _events_of(path, saved) -> EventHistory | None:
    """The events in a file, as ``_contacts_of``."""
    if not saved:
        return None
    fields_of = _whole(path, saved, EventHistory, "events")
    names = tuple(str(name) for name in fields_of.pop("names"))
    return EventHistory(**{name: jnp.asarray(x) for name, x in fields_of.items()}, names=names)


def _whole(path, saved, record, what) -> dict[str, np.ndarray]:
    names = [each.name for each in fields(record)]
    if missing := [name for name in names if name not in saved]:
        raise InputError(
            f"{str(path)!r} must be a file that Trajectory.save wrote, got one without {what}_{missing[0]}"
        )
    return {name: saved[name] for name in names}

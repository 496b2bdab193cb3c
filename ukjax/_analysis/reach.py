"""``reach``: inverse kinematics of mechanisms with loops and joint limits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, as_number, as_numbers, check_finite, check_flag, kind_of, repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_concrete, is_eager, without_derivatives
from .._kernel import arithmetic_or_library, per_member
from .._mechanism import Mechanism, Pose
from .._mechanism.limits import JointLimits
from .._motion.consistent.local_chart import LocalChart
from .._motion.consistent.optimality import fixed
from .._motion.inputs import canonicalise
from .._names import did_you_mean
from .._precision import Numbers, in_precision
from .._rotation import quaternion_of, rotation_vector
from .._run.compile import jit_fast_compile, jit_unoptimised
from .._solve.kernels import orthonormal_rows
from .._system import refuse_contacts, shifted
from .sizes import characteristic_length, refuse_flexible, units_of_velocities

MAX_ITERATIONS = 500
MOST_RESTORING = 30
"""Steps of Newton's method from ``near`` onto the loops."""

LONGEST_STEP = 0.5
"""Largest change of an angle [rad], or of a length relative to the characteristic length, in one iteration."""

WEIGHT = 1e3
"""Weight of loops and limits relative to the targets in a step. They are satisfied exactly after each step."""

MAX_SIZE_OF_KERNEL = 16
"""Largest number of coordinates for which a search is one kernel. The code grows with the cube of this number."""

DAMPING = 1e-8
"""Smallest relative damping, for motions that no target and no loop determines."""


class Reach(eqx.Module):
    """Coordinates at which bodies have given positions or poses, as ``reach`` returns them.

    For a batch all arrays have a leading axis.

    Attributes
    ----------
    q
        Coordinates (nq,), on the constraints and within the limits of the joints.
    reached
        Whether all targets are reached.
    distance
        Distance of each target from its point [m], by name of the body.
    angle
        Angle between each body and its target attitude [rad], by name of the body; for poses only.
    """

    q: Float[Array, "*batch nq"]
    reached: Bool[Array, "*batch"]
    distance: dict[str, Float[Array, "*batch"]]
    angle: dict[str, Float[Array, "*batch"]]


def reach(
    mechanism: Mechanism,
    targets: Mapping[str, Any],
    near: Numbers,
    *,
    at: Mapping[str, Numbers] | None = None,
    t: Numbers = 0.0,
    path: bool = False,
    throw: bool = True,
) -> Reach:
    """Find coordinates at which bodies of a mechanism have given positions or poses: inverse kinematics.

        p(q) + R(q) a = target,      R(q) = target attitude,      φ(t, q) = 0,      limits of the joints

    All loops are closed, and joints stay within their limits. Loops may be redundant. If there are several solutions,
    the result is one that is connected with ``near``: the search moves along the constraints, by damped steps.

    Parameters
    ----------
    mechanism
        The mechanism. Its constraints on positions are satisfied; those on velocities are ignored.
    targets
        For each body that has a target, by name: a position (3,) [m], or a ``Pose`` of the frame of the body, whose
        ``R`` (3, 3) and ``p`` (3,) ``Mechanism.pose`` returns. For many targets (batch, 3) and (batch, 3, 3).
    near
        Coordinates from which the search starts, (nq,) or (batch, nq). Loops may be open there.
    at
        For a body, the point a (3,) in its frame [m] that should reach the position. Default: the origin of the frame.
    t
        Time [s], for mechanisms with prescribed motions.
    path
        Whether the targets of a batch are points of a path. Then each search starts at the previous solution, so that
        the solutions stay on one branch. Otherwise each search starts at ``near``.
    throw
        Whether to raise an error if a target is not reached. If False, see ``reached``; q is then the closest pose that
        was found.

    Returns
    -------
    Reach
        q, whether the targets are reached, and the distances that remain.

    Raises
    ------
    InputError
        If a target is not reached from ``near``; the message has the remaining distance. Under ``jit`` q is NaN
        instead. Also for an invalid argument, and for a mechanism with contacts.

    Notes
    -----
    The steps are those of Levenberg and Marquardt, in a metric where a turn by one radian counts as the characteristic
    length of the mechanism: the root mean square distance of its joints and centres of mass from their centroid. The
    search is local. If it ends at a local minimum of the distance that is not 0, the target may be out of reach, or may
    be reached from another ``near``.

    q has exact first and second derivatives with respect to the targets and the parameters of the mechanism, by the
    implicit function theorem. Where the targets do not determine all coordinates, the derivatives are those of the
    smallest change in the same metric. The derivative with respect to ``near`` is 0, and so are all derivatives where a
    target is not reached. In a singular pose, such as a stretched arm, no derivative exists for a motion of the target
    in a direction in which the body cannot move. That part of the derivative is 0. ``singularity`` finds these poses.

    Examples
    --------
    >>> import numpy as np
    >>> import ukjax as uk
    >>> from ukjax.joints import Revolute
    >>> uk.enable_float64()
    >>> rod = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 0.1, 0.1))
    >>> elbow = Revolute("upper", "lower", at=(1, 0, 0))
    >>> arm = uk.Mechanism({"upper": rod, "lower": rod}, {"shoulder": Revolute("ground", "upper"), "elbow": elbow})
    >>> found = uk.reach(arm, {"lower": (1.0, 1.0, 0.0)}, near=[0.1, 1.0], at={"lower": (1, 0, 0)})
    >>> np.round(found.q, 6) + 0.0
    array([0.      , 1.570796])
    """
    if not isinstance(mechanism, Mechanism):
        raise InputError(f"mechanism must be a ukjax.Mechanism, got {kind_of(mechanism)}")
    if mechanism.contacts or mechanism.further_nonsmooth:
        refuse_contacts("reach", mechanism)
    refuse_flexible("reach", mechanism)
    check_flag("path", path)
    check_flag("throw", throw)
    t, near = as_number("t", t, "s"), as_array("near", near)
    nq = mechanism.tree.nq
    if near.ndim not in (1, 2) or near.shape[-1] != nq:
        raise InputError(f"near must have shape ({nq},), or (batch, {nq}) for a batch, got shape {near.shape}")
    check_finite("near", near)
    goal = _goal(mechanism, targets, {} if at is None else at, near.shape[:-1])
    is_batch = goal.p.ndim == 3
    if path and (not is_batch or near.ndim == 2):
        raise InputError("path must be False, unless targets are a batch and near is one start (nq,)")
    if mechanism.control is not None:
        mechanism = mechanism.driven(None)  # pyright: ignore  # the task of a control is not a constraint here
    mechanism, near, _, t = canonicalise(mechanism, near, jnp.zeros((*near.shape[:-1], mechanism.tree.n)), t)
    goal = in_precision(goal, near.dtype)
    arguments: Any = mechanism, goal, near, t
    constants = without_derivatives(arguments)
    search = _search_batch if is_batch else _search_once
    q, reached, distance, angle = search(*constants, path, is_batch)
    if throw:
        if is_eager(reached):
            _check_reached(goal.names, reached, distance, angle, goal.turned)
        else:
            q = jnp.where(reached[..., None], q, jnp.nan)
    if not is_concrete(arguments):
        q = _differentiable(mechanism, goal, t, q, reached, is_batch)
    by_name = lambda names, values: {name: values[..., i] for i, name in enumerate(names)}
    turned = tuple(name for name, turns in zip(goal.names, goal.turned, strict=True) if turns)
    return Reach(q, reached, by_name(goal.names, distance), by_name(turned, angle))


class Goal(eqx.Module):
    """Targets of k bodies, of which j have an attitude."""

    names: tuple[str, ...] = eqx.field(static=True)
    turned: tuple[bool, ...] = eqx.field(static=True)
    points: Float[Array, "*batch k 3"]
    p: Float[Array, "*batch k 3"]
    R: Float[Array, "*batch j 3 3"]

    def errors(self, mechanism: Mechanism, t: Array, q: Float[Array, " nq"]) -> tuple[Array, Array]:
        """Deviations of the points (k, 3) [m], and rotation vectors from the attitudes (j, 3) [rad]."""
        poses = mechanism.pose(q, t)
        pairs = list(zip(self.names, self.points, self.p, strict=True))
        points = [poses[name].p + poses[name].R @ point - p for name, point, p in pairs]
        turned = [name for name, turns in zip(self.names, self.turned, strict=True) if turns]
        turns = [rotation_vector(quaternion_of(poses[name].R @ R.T)) for name, R in zip(turned, self.R, strict=True)]
        return jnp.stack(points), jnp.stack(turns) if turns else jnp.zeros((0, 3), q.dtype)


def _goal(mechanism, targets, at, batch):
    """The checked ``targets`` and ``at``, for the ``batch`` shape of near or that of the targets."""
    if not isinstance(targets, Mapping) or not targets:
        raise InputError(
            f"targets must be positions or poses by name of the body, {{'tool': p}}, got {kind_of(targets)}"
        )
    if not isinstance(at, Mapping):
        raise InputError(f"at must be points by name of the body, {{'tool': (0.1, 0, 0)}}, got {kind_of(at)}")
    bodies = tuple(mechanism.bodies)
    for argument, names, known in (("targets", targets, bodies), ("at", at, tuple(targets))):
        for name in names:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise InputError(f"{argument} names no {'body' if known is bodies else 'target'} {name!r}{hint}")
    positions, attitudes, points = [], [], []
    for name, target in targets.items():
        p = as_numbers(f"targets[{name!r}]", target.p if isinstance(target, Pose) else target)
        if p.ndim not in (1, 2) or p.shape[-1] != 3 or not p.size:
            raise InputError(
                f"targets[{name!r}] must be a position (3,), a ukjax.Pose, or a batch of these, got {_shape(target, p)}"
            )
        check_finite(f"targets[{name!r}]", p)
        positions.append(p)
        point = as_numbers(f"at[{name!r}]", at.get(name, (0.0, 0.0, 0.0)))
        if point.shape != (3,):
            raise InputError(f"at[{name!r}] must be three numbers, a point in the frame of the body, got {point.shape}")
        points.append(point)
        if isinstance(target, Pose):
            R = as_numbers(f"targets[{name!r}].R", target.R)
            if R.shape[-2:] != (3, 3) or R.ndim not in (2, 3):
                raise InputError(f"targets[{name!r}].R must have shape (3, 3), got shape {R.shape}")
            off = np.abs(np.asarray(R) @ np.swapaxes(np.asarray(R), -1, -2) - np.eye(3)) if is_concrete(R) else 0.0
            if not np.all(off <= 1e-6):
                raise InputError(f"targets[{name!r}].R must be a rotation matrix, got one that is not orthogonal")
            if is_concrete(R) and np.any(np.linalg.det(np.asarray(R)) < 0):
                raise InputError(f"targets[{name!r}].R must be a rotation matrix, got a reflection, det R = -1")
            attitudes.append(R)
    names, turned = tuple(targets), tuple(isinstance(target, Pose) for target in targets.values())
    sizes = {x.shape[0] for x in (*(p for p in positions if p.ndim > 1), *(R for R in attitudes if R.ndim > 2))}
    sizes |= set(batch)
    if len(sizes) > 1:
        raise InputError(f"targets and near must have batches of the same size, got {sorted(sizes)}")
    batch = tuple(sizes)
    stacked = lambda arrays, ndim: jnp.stack(
        [jnp.broadcast_to(x, (*batch, *x.shape[-ndim:])) for x in arrays], axis=-ndim - 1
    )
    R = stacked(attitudes, 2) if attitudes else jnp.zeros((*batch, 0, 3, 3))
    return Goal(names, turned, stacked(points, 1), stacked(positions, 1), R)


def _shape(target, p):
    return f"shape {p.shape}" if p.size else repr_of(target)


def _check_reached(names, reached, distance, angle, turned):
    """Raise ``InputError`` unless all targets are reached."""
    if np.all(reached):
        return
    flat = np.atleast_1d(np.asarray(reached))
    first = int(np.argmin(flat))
    distance, angle = (np.asarray(x).reshape(flat.size, -1)[first] for x in (distance, angle))
    angles = iter(angle)
    missing = []
    for name, length, turns in zip(names, distance, turned, strict=True):
        missing.append(f"{name!r} {length:.3g} m" + (f" and {next(angles):.3g} rad" if turns else ""))
    which = f"{np.sum(~flat)} of {flat.size} members do not reach them; of member {first} " if flat.size > 1 else ""
    raise InputError(
        f"targets must be within reach from near: {which}the closest pose found misses {', '.join(missing)}. They may "
        "be out of reach, or behind a limit or a singular pose: try another near. throw=False returns the closest pose"
    )


class Found(NamedTuple):
    """Result of a search: q (nq,), whether the targets are reached, distances (k,) [m] and angles (j,) [rad]."""

    q: Float[Array, " nq"]
    reached: Bool[Array, ""]
    distance: Float[Array, " k"]
    angle: Float[Array, " j"]


def _search(mechanism, goal, near, t, path, batch):
    run = lambda search, near, goal: search.run(near, goal)
    if near.shape[-1] <= MAX_SIZE_OF_KERNEL:
        run = per_member(run)
    if not batch:
        return run(Search.at(mechanism, t, near, goal), near, goal)
    if path:
        search = Search.at(mechanism, t, near, goal)

        def follow(q, goal):
            found = run(search, q, goal)
            return jnp.where(found.reached, found.q, q), found

        return jax.lax.scan(follow, near, goal)[1]
    one = lambda near, goal: run(Search.at(mechanism, t, near, goal), near, goal)
    return jax.vmap(one)(jnp.broadcast_to(near, (len(goal.p), near.shape[-1])), goal)


_search_once, _search_batch = jit_unoptimised(_search), jit_fast_compile(_search)


class Search(eqx.Module):
    """Search for the coordinates of targets, in dimensionless variables y: x = unit y, N(q) x a displacement of q.

    Attributes
    ----------
    length
        Characteristic length L [m].
    unit
        Units of displacements (n,): 1 rad, and L for lengths.
    row_unit
        Factors (m,) that make a unit of each row of φ a displacement of one unit.
    limits
        Coordinates with limits, and the limits.
    points
        Number of targets.
    """

    mechanism: Mechanism
    t: Array
    length: Float[Array, ""]
    unit: Float[Array, " n"]
    row_unit: Float[Array, " m"]
    limits: JointLimits
    points: int = eqx.field(static=True)

    @classmethod
    def at(cls, mechanism: Mechanism, t: Array, q: Float[Array, " nq"], goal: Goal) -> "Search":
        """A search whose units are those at q."""
        length = characteristic_length(mechanism, t, q)
        unit = units_of_velocities(mechanism, length)
        size = jnp.linalg.norm(mechanism.position_slope(t, q, jnp.zeros_like(unit)) * unit, axis=1)
        row_unit = 1 / jnp.where(size > 0, size, 1)
        limits = JointLimits.of(mechanism.joints, mechanism.tree)
        return cls(mechanism, t, length, unit, row_unit, limits, len(goal.names))

    def run(self, near: Float[Array, " nq"], goal: Goal) -> Found:
        """The coordinates nearest to the targets, from ``near``.

        Each iteration evaluates one point. This point is either moved back onto the loops and into the limits, or
        compared with the best point so far. So the mechanism is compiled once.
        """
        tolerance, closed = jnp.finfo(near.dtype).eps ** 0.6, jnp.finfo(near.dtype).eps ** 0.8

        def iterate(state):
            here = self.evaluate(state.q, goal)
            most = jnp.where(jnp.isinf(state.best.missing), MOST_RESTORING, 6)
            restoring = (here.off > closed) & (state.restored < most)
            better = ~restoring & (here.off <= tolerance) & (here.missing < state.best.missing)
            worse = ~restoring & ~better
            best = jax.tree.map(lambda x, y: jnp.where(better, x, y), here, state.best)
            damping = jnp.where(better, jnp.maximum(state.damping / 8, 1e-8), state.damping)
            damping = jnp.where(worse, 8 * damping, damping)
            stuck = worse & ((best.missing <= tolerance) | jnp.isinf(best.missing) | (damping > 1e12))
            done = stuck | (better & (state.size <= tolerance)) | (best.missing == 0)
            rows = jax.tree.map(lambda x, y: jnp.where(restoring, x, y), here, best)
            y = self.step(rows, ~restoring, jnp.where(restoring, 0, damping * best.missing) + DAMPING)
            size = jnp.where(restoring, state.size, jnp.max(jnp.abs(y)))
            restored = jnp.where(restoring, state.restored + 1, 0)
            return Progress(self.moved(rows.q, y), best, damping, size, restored, state.k + 1, done)

        first = self.evaluate(near, goal)._replace(missing=jnp.asarray(jnp.inf, near.dtype))
        number = lambda x: jnp.asarray(x, near.dtype)
        start = Progress(near, first, number(0.1), number(1.0), jnp.asarray(0), jnp.asarray(0), jnp.asarray(False))
        best = jax.lax.while_loop(lambda state: ~state.done & (state.k < MAX_ITERATIONS), iterate, start).best
        points, turns = self.split(best)
        distance, angle = self.length * jnp.linalg.norm(points, axis=1), jnp.linalg.norm(turns, axis=1)
        size = self.length + jnp.max(jnp.abs(goal.p), initial=0)
        reached = jnp.all(distance <= tolerance * size) & jnp.all(angle <= tolerance) & jnp.isfinite(best.missing)
        return Found(best.q, reached, distance, angle)

    def evaluate(self, q: Float[Array, " nq"], goal: Goal) -> "Rows":
        """All equations at q, with their derivatives."""

        def rows(y):
            q_y = shifted(self.mechanism.kinematic_map, q, self.unit * y)
            points, turns = goal.errors(self.mechanism, self.t, q_y)
            loops = self.row_unit * self.mechanism.position_residual(self.t, q_y)
            values = self.limits(self.t, q_y) / self._units()
            parts = loops, jnp.concatenate([jnp.ravel(points) / self.length, jnp.ravel(turns)]), values
            return parts, parts

        (A, J, E), (loops, task, values) = jax.jacfwd(rows, has_aux=True)(jnp.zeros_like(self.unit))
        outside = values - jnp.clip(values, *self._bounds())
        off = jnp.max(jnp.abs(jnp.concatenate([loops, outside])), initial=0)
        return Rows(q, A, J, E, loops, task, values, off, jnp.linalg.norm(task))

    def step(self, rows: "Rows", to_targets: Array, damping: Array) -> Float[Array, " n"]:
        """The damped step onto the loops, and towards the targets. It stops at limits, one after the other."""
        low, high = self._bounds()
        b = jnp.concatenate([-WEIGHT * rows.loops, jnp.where(to_targets, -rows.task, 0)])
        A = jnp.concatenate([WEIGHT * rows.A, jnp.where(to_targets, rows.J, 0)])
        n = self.unit.size

        predicted = lambda y: rows.values + rows.E @ y
        beyond = lambda y: (predicted(y) < low) | (predicted(y) > high)

        def solve(state):
            stopped, y, k = state
            stopped = stopped | beyond(y)
            aim = WEIGHT * stopped * (jnp.clip(predicted(y), low, high) - rows.values)
            equations = jnp.concatenate([A, WEIGHT * stopped[:, None] * rows.E, damping * jnp.eye(n, dtype=A.dtype)])
            return stopped, least_squares(equations, jnp.concatenate([b, aim, jnp.zeros(n, A.dtype)])), k + 1

        def is_unfinished(state):
            stopped, y, k = state
            return (k == 0) | (k <= min(rows.values.size, 4)) & jnp.any(beyond(y) & ~stopped)

        start = jnp.zeros(rows.values.size, bool), jnp.zeros_like(self.unit), jnp.asarray(0)
        return jax.lax.while_loop(is_unfinished, solve, start)[1]

    def split(self, rows: "Rows") -> tuple[Float[Array, "k 3"], Float[Array, "j 3"]]:
        """The deviations of points, relative to the length, and of attitudes."""
        k = self.points
        return rows.task[: 3 * k].reshape(k, 3), rows.task[3 * k :].reshape(-1, 3)

    def moved(self, q: Float[Array, " nq"], y: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q after the displacement y, which is shortened to the longest step."""
        y = y * jnp.minimum(1, LONGEST_STEP / jnp.maximum(jnp.max(jnp.abs(y)), LONGEST_STEP))
        return displaced(self.mechanism, q, self.unit * y)

    def _bounds(self):
        return self.limits.low_and_high / self._units()

    def _units(self):
        return jnp.where(self.limits.is_angle, 1.0, self.length).astype(self.unit.dtype)


class Rows(NamedTuple):
    """The equations at a point q, in dimensionless variables: loops (m,), task (r,) and limited coordinates (k,) with
    their derivatives A, J and E; how far the point is ``off`` the loops and limits, and from the targets.
    """

    q: Float[Array, " nq"]
    A: Float[Array, "m n"]
    J: Float[Array, "r n"]
    E: Float[Array, "k n"]
    loops: Float[Array, " m"]
    task: Float[Array, " r"]
    values: Float[Array, " k"]
    off: Float[Array, ""]
    missing: Float[Array, ""]


class Progress(NamedTuple):
    """Progress of a search.

    Attributes
    ----------
    q
        The point to evaluate next.
    best
        The best point on the loops and within the limits. Its ``missing`` is infinite as long as there is none.
    damping
        Factor of the damping.
    size
        Length of the last step towards the targets.
    restored
        Number of steps back onto the loops since then.
    k, done
        Number of iterations, and whether the search has ended.
    """

    q: Float[Array, " nq"]
    best: Rows
    damping: Float[Array, ""]
    size: Float[Array, ""]
    restored: Array
    k: Array
    done: Bool[Array, ""]


def least_squares(A: Float[Array, "m n"], b: Float[Array, " m"]) -> Float[Array, " n"]:
    """The x with the least ‖A x − b‖, for A of full column rank."""

    def by_basis(A, b):
        V, triangle = orthonormal_rows(A.T, 0.0)
        return triangle.solve_transposed(V @ b)

    def by_lapack(A, b):
        Q, R = jnp.linalg.qr(A)
        return jax.scipy.linalg.solve_triangular(R, Q.T @ b)

    return arithmetic_or_library(by_basis, by_lapack, A, b)


def displaced(mechanism: Mechanism, q: Float[Array, " nq"], x: Float[Array, " n"]) -> Float[Array, " nq"]:
    """The solution of q̇ = N(q) x after unit time, with the start q."""
    return q + x if mechanism.kinematic_map is None else LocalChart(mechanism, q).point(x)


@jit_unoptimised
def _differentiable(mechanism, goal, t, q, reached, batch):
    """q as a function of the mechanism and the targets, by two steps of Newton's method from its value.

    The matrix of the steps is constant. The first step gives the first derivative, and the second the second one.
    """

    residual = per_member(_residual) if q.shape[-1] <= MAX_SIZE_OF_KERNEL else _residual

    def one(goal, q, reached):
        start = without_derivatives(q)
        search = without_derivatives(Search.at(mechanism, t, start, goal))
        rows = lambda x: residual(x, mechanism, goal, t, start, search, reached)
        x = jnp.zeros_like(search.unit)
        J = jax.jacfwd(fixed(rows, x))(x)
        inverse = jnp.linalg.pinv(J, rtol=float(jnp.finfo(q.dtype).eps) ** 0.5)
        x = jax.lax.fori_loop(0, 2, lambda _, x: x - inverse @ rows(x), x)
        return displaced(mechanism, start, search.unit * x)

    return jax.vmap(one)(goal, q, reached) if batch else one(goal, q, reached)


def _residual(x, mechanism, goal, t, start, search, reached):
    """The residual of the search at the displacement x from the result, with the derivatives of the limits reached."""
    low, high = search.limits.low_and_high
    q = displaced(mechanism, start, search.unit * x)
    points, turns = goal.errors(mechanism, t, q)
    values = search.limits(t, q)
    held = jax.lax.stop_gradient((values <= low) | (values >= high))
    at_limits = jnp.where(held, values - jax.lax.stop_gradient(values), 0)
    loops = search.row_unit * mechanism.position_residual(t, q)
    rows = jnp.concatenate([loops, jnp.ravel(points) / search.length, jnp.ravel(turns), at_limits])
    return jnp.where(reached, rows, 0)

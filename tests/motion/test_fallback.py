"""The fast method, and its fallback for redundant rows, singular M and changes of rank."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from benchmarks.mechanisms import governor, rockers
from ukjax._motion.fallback import policy
from ukjax._motion.integrate import single
from ukjax._motion.stepper.drift_correction import MethodPerLevel

from ..mechanisms import GRAVITY, Pendulum, four_bar, pendulum_exact

LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
TS = np.array([0.0, 0.4, 1.0])
J1, J3 = 2.0, 0.7  # of a symmetric top [kg m²]


def top(copies=1):
    """A free symmetric top as a unit quaternion (w, x, y, z): M is singular along the quaternion itself."""
    inertia = np.array([J1, J1, J3])

    def kinetic(t, p, v):
        omega = 2 * (p[0] * v[1:] - v[0] * p[1:] - jnp.cross(p[1:], v[1:]))
        return (inertia * omega) @ omega / 2

    length = lambda t, p: p @ p - 1
    return uk.System(
        uk.Lagrangian(kinetic, lambda t, p: 0.0 * p[0]), [uk.Holonomic(length, name="unit") for _ in range(copies)]
    )


def top_start(omega):
    return np.array([1.0, 0, 0, 0]), np.append(0.0, omega) / 2


def top_exact(omega, t):
    """Rotation about the axis of symmetry and precession about the angular momentum, each at a constant rate."""
    momentum = np.array([J1, J1, J3]) * omega

    def quaternion(rate):
        angle = np.linalg.norm(rate) * t / 2
        return np.append(np.cos(angle), np.sin(angle) * rate / np.linalg.norm(rate))

    def product(a, b):
        return np.append(a[0] * b[0] - a[1:] @ b[1:], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))

    spin = np.array([0, 0, omega[2] * (1 - J3 / J1)])
    return product(quaternion(momentum / J1), quaternion(spin))


OMEGA = np.array([0.5, -1.0, 3.0])
EVEN: Any = {"dt": 0.005}
STEPS = pytest.mark.parametrize("how", (TIGHT, EVEN), ids=("adaptive", "even"))


@STEPS
def test_symmetric_top_matches_closed_form(how):
    motion = uk.simulate(top(), *top_start(OMEGA), TS, **how)
    np.testing.assert_allclose(motion.q, [top_exact(OMEGA, t) for t in TS], rtol=0, atol=1e-9)
    assert (np.asarray(motion.rank) == 1).all() and np.abs(motion.residual).max() < 1e-12


@STEPS
def test_three_equal_rods_act_as_one(how):
    motion = uk.simulate(Pendulum(copies=3), LEVEL, REST, TS, **how)
    np.testing.assert_allclose(motion.q, pendulum_exact(TS), rtol=0, atol=1e-9)
    assert (np.asarray(motion.rank) == 1).all()


def tied():
    """A pendulum (x, y), and the constraint c w = 0, whose row vanishes where the coordinate c is 0."""
    rod = uk.Holonomic(lambda t, q: q[:2] @ q[:2] - 1, name="rod")
    tie = uk.Holonomic(lambda t, q: q[3] * q[2], name="tie")
    return uk.System(uk.MassForce(np.eye(4), np.array([0, -GRAVITY, 0, 0])), [rod, tie])


def tied_starts(c):
    c = np.asarray(c, float)
    return np.stack([-np.ones_like(c), 0 * c, 0 * c, c], axis=-1), np.zeros((len(c), 4))


@pytest.mark.slow
def test_member_with_redundant_row_changes_no_bit_of_others():
    usual = uk.simulate(tied(), *tied_starts([1.0, 2.0, 1.0, 0.5]), TS, **TIGHT)
    mixed = uk.simulate(tied(), *tied_starts([1.0, 2.0, 0.0, 0.5]), TS, **TIGHT)
    others = np.array([0, 1, 3])
    np.testing.assert_array_equal(mixed.q[others], usual.q[others])
    np.testing.assert_array_equal(mixed.v[others], usual.v[others])
    np.testing.assert_array_equal(mixed.steps[others], usual.steps[others])
    np.testing.assert_allclose(mixed.q[:, :, :2], np.tile(pendulum_exact(TS), (4, 1, 1)), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(mixed.rank, np.array([2, 2, 1, 2])[:, None] * np.ones((1, 3)))


@STEPS
def test_redundant_rows_are_selected_once_per_motion(how, monkeypatch):
    asked, decide = [], policy.next_method
    tell = lambda *given, **how: asked.append(decide(*given, **how)) or asked[-1]
    for module in (single, policy):
        monkeypatch.setattr(module, "next_method", tell)
    uk.simulate(Pendulum(copies=3), LEVEL, REST, [0.0, 10.0], **how)
    (levels,) = asked
    assert levels.acceleration.kept == (0,)


@pytest.fixture
def pieces(monkeypatch):
    """The arguments of each call of the compiled program."""
    asked, run = [], single._piece
    monkeypatch.setattr(single, "_piece", lambda *given: asked.append(given) or run(*given))
    return asked


@pytest.mark.parametrize("copies", (3, 4), ids=("fewer rows than coordinates", "as many rows as coordinates"))
def test_rank_is_checked_before_first_step(pieces, copies):
    """Whether M is singular is checked at the same time."""
    motion = uk.simulate(top(copies), *top_start(OMEGA), TS, **TIGHT)
    np.testing.assert_allclose(motion.q, [top_exact(OMEGA, t) for t in TS], rtol=0, atol=1e-9)
    assert len(pieces) == 1


def test_fully_constrained_system_with_independent_rows_uses_fast_method(pieces):
    path = lambda t: jnp.stack([jnp.sin(t), jnp.cos(2 * t)])
    system = uk.System(
        uk.MassForce(lambda t, q: jnp.eye(2), lambda t, q, v: -q), uk.Holonomic(lambda t, q: q - path(t))
    )
    motion = uk.simulate(system, [0.0, 1.0], [1.0, 0.0], TS)
    np.testing.assert_allclose(motion.q, np.stack([np.sin(TS), np.cos(2 * TS)], axis=-1), rtol=0, atol=1e-9)
    ((task, *_),) = pieces
    assert any(isinstance(each, MethodPerLevel) for each in task)


@pytest.mark.parametrize("how", ({}, {"dt": 0.01}), ids=("adaptive", "even"))
def test_motion_through_change_of_rank_matches_closed_form(how):
    """A four-bar passes its flat pose, alone and in a batch."""
    model, q0, v0, exact = four_bar()
    ts = np.linspace(0, 5, 11)
    expected = np.stack([exact(ts), np.full(11, np.pi / 2), exact(ts)], axis=-1)
    assert expected[-1, 0] > np.pi
    np.testing.assert_allclose(uk.simulate(model, q0, v0, ts, **how).q, expected, rtol=0, atol=1e-6)
    together = uk.simulate(model, np.stack([q0, q0]), v0, ts, **how)
    np.testing.assert_allclose(together.q, [expected, expected], rtol=0, atol=1e-6)


def heavy_then(spoiled):
    """A pendulum (x, y), and a coordinate z. Where z > 0.5, ``spoiled`` is added to the mass matrix."""
    rod = uk.Holonomic(lambda t, q: q[:2] @ q[:2] - 1, name="rod")
    above = lambda q: jnp.where(q[2] > 0.5, 1.0, 0.0)
    mass = lambda t, q: jnp.eye(3) + above(q) * jnp.asarray(spoiled)
    coordinates = ("x", "m"), ("y", "m"), ("z", "m")
    return uk.System(uk.MassForce(mass, np.array([0, -GRAVITY, 0])), rod, coordinates=coordinates)


LOPSIDED = np.array([[0, 0, 0.3], [0, 0, 0], [0, 0, 0.0]])
NEGATIVE = np.diag([0, 0, -2.0])
INDEFINITE = np.array([[0, 0, 2.0], [0, 0, 0], [2.0, 0, 0]])
NO_MASS = r"M must be positive semidefinite at t = 0\.5.* s: "
SPOILED = (
    (LOPSIDED, TIGHT, r"M must be symmetric at t = 0\.5.* s: M\[0, 2\] = 0\.3 but M\[2, 0\] = 0"),
    (NEGATIVE, EVEN, rf"{NO_MASS}M\[2, 2\] = -1, the mass of coordinate 'z', is"),
    (INDEFINITE, TIGHT, rf"{NO_MASS}its smallest eigenvalue is -1, most of it along"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("spoiled", "how", "message"), SPOILED[:2], ids=("lopsided", "negative"))
def test_mass_matrix_that_becomes_invalid_ends_motion(how, spoiled, message):
    model, q0, v0 = heavy_then(spoiled), np.array([-1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    with pytest.raises(uk.SimulationError, match=rf"the motion ended at t = (0\.5|0\.4).* s: {message}"):
        uk.simulate(model, q0, v0, TS, **how)


@pytest.mark.slow
def test_mass_matrix_that_becomes_invalid_ends_motion_of_member():
    """The error names the member, and the other members do not change."""
    spoiled, how, message = SPOILED[2]
    model, q0, v0 = heavy_then(spoiled), np.array([-1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    speeds = np.array([0.0, 1.0, 0.25, 0.125])
    starts = np.tile(q0, (4, 1)), speeds[:, None] * v0
    with pytest.raises(uk.SimulationError, match=rf"trajectory 1 \(1 of 4 failed\) ended at t = .* s: {message}"):
        uk.simulate(model, *starts, TS, **how)
    together = uk.simulate(model, *starts, TS, throw=False, **how)
    np.testing.assert_array_equal(together.finished, [True, False, True, True])
    assert np.isfinite(together.q[1, 1]).all() and not np.isfinite(together.q[1, 2]).any()
    assert all(isinstance(reason, str) for reason in together.reason)
    starts[1][1] = v0 / 8
    sound = uk.simulate(model, *starts, TS, **how)
    others = np.array([0, 2, 3])
    np.testing.assert_array_equal(together.q[others], sound.q[others])


def test_mass_matrix_that_becomes_invalid_ends_traced_motion():
    model, v0 = heavy_then(LOPSIDED), np.array([0.0, 0.0, 1.0])
    motion = jax.jit(lambda q: uk.simulate(model, q, v0, TS, dt=0.05).without_model())(jnp.array([-1.0, 0.0, 0.0]))
    assert not motion.finished and np.isfinite(motion.q[1]).all() and not np.isfinite(motion.q[2]).any()


@STEPS
def test_invalid_mass_matrix_at_start_is_error(how):
    rod = uk.Holonomic(lambda t, q: q @ q - 1)
    lopsided = uk.System(uk.MassForce(np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([0, -GRAVITY])), rod)
    with pytest.raises(ValueError, match=r"M must be symmetric at t = 0 s"):
        uk.simulate(lopsided, LEVEL, REST, TS, **how)
    negative = uk.System(uk.MassForce(np.diag([1.0, -1.0]), np.array([0, -GRAVITY])), rod)
    with pytest.raises(ValueError, match=r"M must be positive semidefinite at t = 0 s"):
        uk.simulate(negative, LEVEL, REST, TS, **how)


@pytest.mark.slow
def test_rockers_pass_flat_pose_or_stop_there():
    """Three rockers and their coupler lie in one line at t = 0.4957 s, where branches meet. The rockers stay parallel,
    with one angle. Its rate follows from the energy of three rods of 1 kg and a coupler of 2 kg, 3 θ̇²/2 + 3.5 g sin θ.
    A motion with a step that ends near the pose stops there. No motion changes to another branch."""
    case, ts = rockers(), np.array([0.0, 0.4, 1.0])
    energy = lambda angle, rate: 1.5 * rate**2 + 3.5 * GRAVITY * np.sin(angle)
    stopped = 0
    for rtol in np.geomspace(1e-5, 1e-10, 6):
        motion = uk.simulate(case.system, case.q0, case.v0, ts, rtol=rtol, throw=False)
        if bool(motion.finished):
            q, v = np.asarray(motion.q), np.asarray(motion.v)
            np.testing.assert_allclose(q[:, 2:9:3], q[:, [2]] * np.ones(3), rtol=0, atol=10 * rtol + 1e-9)
            np.testing.assert_allclose(q[:, 11], 0, rtol=0, atol=10 * rtol + 1e-9)
            np.testing.assert_allclose(energy(q[:, 2], v[:, 2]), energy(0.8, 0.5), rtol=0, atol=1000 * rtol)
        else:
            stopped += 1
            assert motion.reason == "found no step small enough to continue"
            np.testing.assert_allclose(motion.last[0], 0.4957, atol=1e-4)
    assert stopped <= 1


def led(row, force):
    """A unit mass with x = sin(3t)/10, which falls along y, with ``force(t)`` along z. The second row is 0.3 times the
    first plus ``row(t)`` times z."""
    along = lambda t, q: q[0] - jnp.sin(3 * t) / 10
    forces = uk.MassForce(np.eye(3), lambda t, q, v: jnp.stack([1 + 0 * t, -GRAVITY + 0 * t, force(t)]))
    second = lambda t, q: 0.3 * q[0] - 0.03 * jnp.sin(3 * t) + row(t) * q[2]
    return uk.System(forces, [uk.Holonomic(along), uk.Holonomic(second)])


def led_exact(t):
    return np.stack([np.sin(3 * t) / 10, -GRAVITY * t**2 / 2, 0 * t], axis=-1)


def ends_being_redundant():
    cube = lambda t, begin: jnp.where(t > begin, (t - begin) ** 3, 0.0)
    return led(lambda t: cube(t, 0.3), lambda t: 50 * cube(t, 0.5))


LED = np.zeros(3), np.array([0.3, 0.0, 0.0])


@pytest.mark.parametrize(
    "motion",
    (
        pytest.param(lambda q: uk.simulate(ends_being_redundant(), q, LED[1], TS).q, id="alone"),
        pytest.param(
            lambda q: jax.jit(lambda q: uk.simulate(ends_being_redundant(), q, LED[1], TS).q)(q), id="within jit"
        ),
        pytest.param(
            lambda q: uk.simulate(ends_being_redundant(), q, LED[1], TS, solver=dfx.Dopri5()).q,
            id="by diffrax",
        ),
    ),
)
def test_adaptive_steps_continue_where_redundant_row_becomes_independent(motion):
    np.testing.assert_allclose(motion(LED[0]), led_exact(TS), rtol=0, atol=1e-9)


def test_rounding_amplified_by_small_row_does_not_shorten_steps():
    """The rounding error of the second row, 1e-17, moves z by 1e-10, more than the tolerance."""
    motion = uk.simulate(led(lambda t: 1e-7, lambda t: 5 * jnp.sin(t)), *LED, TS)
    np.testing.assert_allclose(motion.q, led_exact(TS), rtol=0, atol=1e-9)
    assert int(motion.steps) < 60


@pytest.mark.slow
def test_governor_in_absolute_coordinates_needs_no_slower_method():
    """M is singular, and the scales of its coordinates differ by a factor of 500."""
    case = governor()
    motion = uk.simulate(case.system, case.q0, case.v0, [0.0, 0.01])
    assert motion.finished and motion.plan is not None and not motion.plan.notes

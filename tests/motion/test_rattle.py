"""The symplectic solver for long motions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj, ellipk

import ukjax as uk

GRAVITY, END = 9.81, 2.0


def pendulum(*constraints, gravity=GRAVITY):
    energies = uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: gravity * q[1])
    return uk.System(energies, [uk.Holonomic(lambda t, q: q @ q - 1, name="rod"), *constraints])


PENDULUM = pendulum()


def pendulum_by_elliptic_functions(t):
    """q of the pendulum that starts level at rest, from (−1, 0)."""
    k = np.sin(np.pi / 4)
    theta = -2 * np.arcsin(k * ellipj(ellipk(k**2) - np.sqrt(GRAVITY) * t, k**2)[0])
    return np.array([np.sin(theta), -np.cos(theta)])


def run(model, q0, v0, ts, dt, order=2, **how):
    return uk.simulate(model, q0, v0, ts, dt=dt, solver=uk.Rattle(order), **how)


@pytest.mark.parametrize("order", (2, 4))
def test_order(order):
    errors = []
    for dt in (0.04, 0.02):
        motion = run(PENDULUM, [-1.0, 0.0], [0.0, 0.0], [0.0, END], dt, order)
        errors.append(np.max(np.abs(motion.q[-1] - pendulum_by_elliptic_functions(END))))
        assert np.max(motion.residual) < 1e-14 and "Rattle" in str(motion.plan)
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.1
    assert errors[1] < (1e-2 if order == 2 else 2e-6)


A, C, WEIGHT = 1.0, 0.4, 3.0


def top():
    """A symmetric heavy top in quaternions, by Euler's equations about its fixed point, in the axes of the body."""
    inertia = jnp.array([A, A, C])

    def rates(q, omega):
        w, u = q[0], q[1:]
        return jnp.concatenate([-(u @ omega)[None], w * omega + jnp.cross(u, omega)]) / 2

    def torque(t, q, omega):
        return jnp.cross(inertia * omega, omega) + WEIGHT * jnp.cross(vertical(q), jnp.array([0.0, 0.0, 1.0]))

    return uk.System(uk.MassForce(jnp.diag(inertia), torque), kinematic_map=rates)


def vertical(q):
    """The vertical in the axes of the body; its third component is the height of the centre."""
    w, x, y, z = q
    return jnp.array([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z])


TOP_STEP = 0.02


@pytest.fixture(scope="module")
def turning_top():
    tilted = np.array([np.cos(0.4), np.sin(0.4), 0.0, 0.0])
    return run(top(), tilted, [0.3, -0.5, 8.0], TOP_STEP * np.arange(0, 20001, 100), TOP_STEP)


def test_heavy_top_keeps_its_momenta_and_its_norm(turning_top):
    q, v = np.asarray(turning_top.q), np.asarray(turning_top.v)
    axes = np.asarray(jax.vmap(vertical)(q))
    about_vertical = np.sum(axes * v * [A, A, C], axis=1)
    for kept in (about_vertical, C * v[:, 2], np.linalg.norm(q, axis=1)):
        np.testing.assert_allclose(kept, kept[0], rtol=1e-11)
    assert np.ptp(axes[:, 2]) > 0.05  # it nutates


def without_trend(energy):
    """Whether a line through the means of blocks has a slope within three standard errors."""
    means = np.mean(np.asarray(energy[1:]).reshape(20, -1), axis=1)
    x = np.linspace(-0.5, 0.5, 20)
    slope = x @ means / (x @ x)
    error = np.sqrt(np.sum((means - means.mean() - slope * x) ** 2) / 18 / (x @ x))
    return abs(slope) < 3 * error


def test_energy_has_no_trend(turning_top):
    q, v = turning_top.q, turning_top.v
    energy = np.sum(np.array([A, A, C]) * v**2, axis=1) / 2 + WEIGHT * jax.vmap(vertical)(q)[:, 2]
    assert 1e-8 < np.ptp(energy) < 1e-2 * np.max(np.abs(energy))
    assert without_trend(energy)


def test_explicit_solver_agrees_on_the_top(turning_top):
    exact = uk.simulate(top(), turning_top.q[0], turning_top.v[0], [0.0, 2.0])
    np.testing.assert_allclose(turning_top.q[1], exact.q[1], atol=2e-2)


def lift(system, q, v):
    """The momenta p of q: those of least norm with N(q)ᵀ p = M v."""
    momentum = system(0.0, q, v).M @ v
    if system.kinematic_map is None:
        return momentum
    N = jax.jacfwd(lambda v: system.kinematic_map(q, v))(v)
    return N @ jnp.linalg.solve(N.T @ N, momentum)


@pytest.mark.parametrize(
    ("system", "q0", "v0", "invariant"),
    (
        pytest.param(
            *(uk.systems.FourBar(), [0.3, 1.7, 0.2], [1.0, 0.0, 1.0], lambda s, q: s.position_residual(0.0, q)),
            marks=pytest.mark.slow,
            id="a loop, M(q)",
        ),
        pytest.param(top(), [0.8, 0.6, 0.0, 0.0], [0.3, -0.5, 1.0], lambda s, q: (q @ q - 1)[None], id="quaternion"),
    ),
)
def test_step_is_symplectic_and_reversible(system, q0, v0, invariant):
    """The Jacobian of two steps preserves dp ∧ dq on the tangent space of the constraints."""
    q0, v0 = uk.project(system, 0.0, jnp.array(q0), jnp.array(v0))
    nq, z0 = q0.size, np.concatenate([q0, v0])
    rate = lambda q, v: v if system.kinematic_map is None else system.kinematic_map(q, v)

    def levels(z):
        of_q, of_v = jax.jvp(lambda q: invariant(system, q), (z[:nq],), (rate(z[:nq], z[nq:]),))
        return jnp.concatenate([of_q, of_v])

    _, sizes, rows = np.linalg.svd(np.asarray(jax.jacfwd(levels)(z0)))
    tangents = rows[np.sum(sizes > 1e-9) :]
    eps, ends = 1e-4, []
    offsets = np.concatenate([k * eps * tangents for k in (-2, -1, 1, 2)])
    starts = np.concatenate([z0[None], z0 + offsets])
    motions = run(system, starts[:, :nq], starts[:, nq:], [0.0, 0.2], 0.1, throw=False)
    ends = np.concatenate([motions.q[:, -1], motions.v[:, -1]], axis=1)
    weights = np.array([1, -8, 8, -1]) / (12 * eps)
    moved = np.einsum("k,kij->ij", weights, ends[1:].reshape(4, len(tangents), -1))

    def form(z, vectors):
        dp = vectors @ np.asarray(jax.jacfwd(lambda z: lift(system, z[:nq], z[nq:]))(z)).T
        return dp @ vectors[:, :nq].T - vectors[:, :nq] @ dp.T

    before, after = form(z0, tangents), form(ends[0], moved)
    assert np.max(np.abs(before)) > 0.1
    np.testing.assert_allclose(after, before, atol=1e-8)
    assert np.max(np.abs(moved - tangents)) > 0.05  # the steps do something

    back = run(system, np.stack([ends[0, :nq]] * len(ends)), np.stack([-ends[0, nq:]] * len(ends)), [0.0, 0.2], 0.1)
    np.testing.assert_allclose(back.q[0, -1], q0, atol=1e-13)
    np.testing.assert_allclose(back.v[0, -1], -v0, atol=1e-13)


@pytest.mark.slow
def test_redundant_rows_change_nothing():
    again = uk.Holonomic(lambda t, q: 3 * (q @ q - 1), name="again")
    how = [-1.0, 0.0], [0.0, 0.0], [0.0, END], 0.04
    twice = run(pendulum(again), *how)
    np.testing.assert_allclose(twice.q, run(PENDULUM, *how).q, atol=1e-12)
    assert np.max(twice.residual) < 1e-13


@pytest.mark.slow
def test_singular_mass_matrix():
    body = uk.systems.RigidBody()
    q0, v0 = body.start()
    motion = run(body, q0, v0, np.linspace(0, 20, 201), 0.02)
    assert np.max(motion.residual) < 1e-13
    energy = np.asarray(motion.energy)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-11)  # quadratic in v, M depends on |u| alone


@pytest.mark.slow
def test_derivative_and_traced_value():
    def height(gravity):
        return run(pendulum(gravity=gravity), jnp.array([-1.0, 0.0]), jnp.array([0.0, 0.5]), [0.0, 0.5], 0.05).q[-1, 1]

    value, slope = jax.jit(jax.value_and_grad(height))(GRAVITY)
    eps = 1e-4
    low, mid, high = jax.jit(jax.vmap(height))(GRAVITY + eps * jnp.arange(-1, 2))
    np.testing.assert_allclose(value, mid, rtol=1e-13)
    np.testing.assert_allclose(slope, (high - low) / (2 * eps), rtol=1e-7)


@pytest.mark.slow
def test_event_is_met_exactly():
    bottom = run(pendulum(), [-1.0, 0.0], [0.0, 0.0], [0.0, END], 0.01, order=4, event=lambda t, q, v: q[0])
    quarter = ellipk(np.sin(np.pi / 4) ** 2) / np.sqrt(GRAVITY)
    assert bottom.met_event and "Rattle" in str(bottom.plan)
    np.testing.assert_allclose(bottom.t[-1], quarter, atol=1e-8)


@pytest.mark.parametrize(
    ("model", "how", "message"),
    (
        (pendulum(), {"rtol": 1e-6}, "needs dt"),
        (pendulum(), {"dt": 0.1, "drift": "none"}, "use drift='projection'"),
        (
            lambda t, q, v: uk.Terms(jnp.eye(2), -q, jnp.zeros((0, 2)), jnp.zeros(0)),
            {"dt": 0.1},
            "needs a ukjax.System",
        ),
        (pendulum(uk.Nonholonomic(lambda t, q, v: v[0], name="blade")), {"dt": 0.1}, "'blade' is on velocities"),
    ),
)
def test_unsupported_models_and_options_are_errors(model, how, message):
    with pytest.raises(uk.InputError, match=message):
        uk.simulate(model, [-1.0, 0.0], [0.0, 0.0], [0.0, 1.0], solver=uk.Rattle(), **how)


def test_order_other_than_two_or_four_is_error():
    with pytest.raises(uk.InputError, match="order must be 2 or 4, got 3"):
        uk.Rattle(3)


def test_too_long_step_ends_motion():
    motion = run(PENDULUM, [-1.0, 0.0], [0.0, 0.0], [0.0, 50.0], 1.0, throw=False)
    assert not motion.finished and np.all(np.isnan(motion.q[-1]))

"""Velocities that are not rates of coordinates, q̇ = N(q) v: an attitude as a unit quaternion with three rates."""

from typing import Any, ClassVar, cast

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import ukjax as uk
from ukjax.systems import Parameter, parameter

INERTIA = np.array([1.0, 2.0, 3.0])
OMEGA = np.array([0.3, 2.0, 0.4])
TS = np.linspace(0.0, 3.0, 31)
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])


def kinematic_map(u, omega):
    """u̇ = u ω/2, ω about the body's axes."""
    w, x, y, z = u
    return jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]) @ omega / 2


def rotation(u):
    w, x, y, z = u / jnp.sqrt(u @ u)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def spin(u, rate):
    """ω = 2 ū u̇, of a unit quaternion."""
    w, x, y, z = u
    return 2 * jnp.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]]) @ rate


class Top(uk.systems.AbstractMechanism):
    """A body that turns about a fixed point, with its centre of mass at ``height`` on the body's z axis."""

    inertia: Parameter = parameter(INERTIA)
    height: Parameter = parameter(0.0)
    end: ClassVar[float] = 3.0
    coordinates: ClassVar[Any] = (("w", ""), ("x", ""), ("y", ""), ("z", ""))
    velocities: ClassVar[Any] = (("wx", "rad/s"), ("wy", "rad/s"), ("wz", "rad/s"))

    @property
    def kinematic_map(self):
        return kinematic_map

    @property
    def dynamics(self):
        return uk.MassForce(lambda t, u: jnp.diag(self.inertia), self.torque)

    def torque(self, t, u, omega):
        weight = -9.81 * jnp.cross(jnp.array([0.0, 0.0, 1.0]), rotation(u)[2]) * self.height
        return weight - jnp.cross(omega, self.inertia * omega)

    @property
    def constraints(self):
        return ()

    def start(self):
        return jnp.asarray(LEVEL), jnp.asarray(OMEGA)

    def outline(self, t, q):
        return (jnp.stack([jnp.zeros(3), rotation(q)[:, 2]]),)


TOP = Top()


def axes_of_ground(u):
    """The rows of the rotation matrix, in NumPy."""
    w, x, y, z = u / np.linalg.norm(u)
    r, p = np.array([x, y, z]), np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return (w * w - r @ r) * np.eye(3) + 2 * np.outer(r, r) + 2 * w * p


def by_scipy(ts=TS, omega=OMEGA, row=None):
    """The same motion by SciPy. A row (a, b), a function of t, u and ω, gives a · ω̇ = b by a multiplier."""

    def slope(t, y):
        (w, *r), omega = y[:4], y[4:]
        turning = np.concatenate([[-np.dot(r, omega)], w * omega + np.cross(r, omega)]) / 2
        rate = -np.cross(omega, INERTIA * omega) / INERTIA
        if row is not None:
            a, b = row(t, y[:4], omega)
            rate = rate + a / INERTIA * (b - a @ rate) / (a @ (a / INERTIA))
        return np.concatenate([turning, rate])

    y = solve_ivp(slope, (0, ts[-1]), np.r_[LEVEL, omega], "DOP853", ts, rtol=1e-12, atol=1e-13).y.T
    return y[:, :4], y[:, 4:]


def in_all_coordinates(constraints=()):
    """The same body by energies of the quaternion and its rates, with the length of the quaternion as a constraint."""
    kinetic = lambda t, u, rate: spin(u, rate) @ (INERTIA * spin(u, rate)) / 2
    return uk.System(uk.Lagrangian(kinetic), [*constraints, uk.Holonomic(lambda t, u: u @ u - 1, name="unit")])


def random_state(rng):
    u = rng.normal(size=4)
    return jnp.asarray(u / np.linalg.norm(u)), jnp.asarray(rng.normal(size=3))


AXIS = uk.Holonomic(lambda t, u: rotation(u)[2, 0] - 0.1 * jnp.sin(t), name="axis")
"""The inclination of the body's x axis is prescribed."""

EDGE = uk.Pfaffian(lambda t, u: jnp.stack([u[1], 1 + u[2], u[3]]), name="edge")
BENT = uk.Nonholonomic(lambda t, u, omega: omega[0] * omega[1] + u[1] * omega[2] - 0.2 * t, alpha=0.5, name="bent")
"""Constraints on rates about the body's axes, and below the same ones on u̇."""
EDGE_OF_U = uk.Nonholonomic(lambda t, u, rate: jnp.stack([u[1], 1 + u[2], u[3]]) @ spin(u, rate), name="edge")
BENT_OF_U = uk.Nonholonomic(lambda t, u, rate: BENT.psi(t, u, spin(u, rate)), alpha=0.5, name="bent")


# --- at an instant -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "other"), ((AXIS, AXIS), (EDGE, EDGE_OF_U), (BENT, BENT_OF_U)), ids=("position", "linear", "bent")
)
def test_acceleration_matches_system_in_all_coordinates(constraint, other, rng):
    """q̈ = N v̇ + Ṅ v, from masses and from energies."""
    q, v = random_state(rng)
    by_masses = uk.System(TOP.dynamics, constraint, kinematic_map=kinematic_map)
    by_energies = uk.System(
        uk.Lagrangian(lambda t, u, rate: spin(u, rate) @ (INERTIA * spin(u, rate)) / 2),
        constraint,
        kinematic_map=kinematic_map,
    )
    expected = uk.constrained_motion(in_all_coordinates([other])(0.3, q, kinematic_map(q, v)), "udwadia_phohomsiri")
    for system in (by_masses, by_energies):
        found = uk.constrained_motion(system(0.3, q, v)).acceleration
        turning = jax.jvp(lambda q: kinematic_map(q, v), (q,), (kinematic_map(q, v),))[1]
        np.testing.assert_allclose(kinematic_map(q, found) + turning, expected.acceleration, rtol=0, atol=1e-12)
    energy = by_energies.energy(0.3, q, v)
    assert energy is not None
    np.testing.assert_allclose(energy, v @ (INERTIA * v) / 2, rtol=1e-14)


def test_square_kinematic_map(rng):
    """Angles of a gimbal with rates about the body's axes: N is square, and not orthogonal."""

    def turn(q):
        (a, b, c), (x, y, z) = jnp.cos(q), jnp.sin(q)
        about_x = jnp.array([[1, 0, 0], [0, a, -x], [0, x, a]])
        about_y = jnp.array([[b, 0, y], [0, 1, 0], [-y, 0, b]])
        return about_x @ about_y @ jnp.array([[c, -z, 0], [z, c, 0], [0, 0, 1]])

    def omega(q, rate):
        W = turn(q).T @ jax.jvp(turn, (q,), (rate,))[1]
        return jnp.stack([W[2, 1], W[0, 2], W[1, 0]])

    gimbal = lambda q, v: jnp.linalg.solve(jax.jacfwd(omega, argnums=1)(q, jnp.zeros(3)), v)
    q, v = jnp.asarray(0.3 * rng.normal(size=3)), jnp.asarray(rng.normal(size=3))
    energies = uk.Lagrangian(lambda t, q, rate: omega(q, rate) @ (INERTIA * omega(q, rate)) / 2)
    expected = uk.constrained_motion(TOP(0.0, LEVEL, v)).acceleration  # independent of the attitude
    found = uk.constrained_motion(uk.System(energies, kinematic_map=gimbal)(0.0, q, v)).acceleration
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


# --- over time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "members", "close"),
    (
        ({}, 3, 1e-9),
        ({"dt": 2e-3}, None, 1e-9),
        pytest.param({"solver": dfx.Kvaerno5(), "dt": 0.02}, None, 1e-5, marks=pytest.mark.slow),
    ),
    ids=("adaptive batch", "even", "diffrax"),
)
def test_motion_matches_scipy(way: dict[str, Any], members, close):
    expected_q, expected_v = by_scipy()
    q0 = LEVEL if members is None else np.tile(LEVEL, (members, 1))
    motion = uk.simulate(TOP, q0, OMEGA, TS, **way)
    assert np.all(motion.finished) and motion.v.shape == (*q0.shape[:-1], 31, 3)
    np.testing.assert_allclose(motion.q, np.broadcast_to(expected_q, motion.q.shape), rtol=0, atol=close)
    np.testing.assert_allclose(motion.v, np.broadcast_to(expected_v, motion.v.shape), rtol=0, atol=close)
    if close < 1e-5:
        np.testing.assert_allclose(np.linalg.norm(motion.q, axis=-1), 1, rtol=0, atol=1e-11)


def test_constrained_motion_matches_scipy():
    """With k = Rᵀ e₃, which turns as k × ω, the height of the x axis changes by (e₁ × k) · ω."""

    def row(t, u, omega):
        k, x = axes_of_ground(u)[2], np.array([1.0, 0.0, 0.0])
        return np.cross(x, k), -0.1 * np.sin(t) - np.cross(x, np.cross(k, omega)) @ omega

    omega = np.array([0.3, -0.1, 0.4])  # consistent with the row at t = 0
    system = uk.System(TOP.dynamics, AXIS, kinematic_map=kinematic_map)
    expected, _ = by_scipy(TS, omega, row)
    for how in cast(list[dict[str, Any]], [{}, {"dt": 5e-3}]):
        motion = uk.simulate(system, LEVEL, omega, TS, **how)
        np.testing.assert_allclose(motion.q, expected, rtol=0, atol=1e-8)
        assert np.max(np.abs(motion.position_residual)) < 1e-14 and np.all(motion.rank == 1)


def test_heavy_top_conserves_energy_and_vertical_angular_momentum():
    """Single steps give the same motion."""
    top = Top(height=0.3)
    motion = uk.simulate(top, LEVEL, OMEGA, TS)
    R = np.asarray(jax.vmap(rotation)(motion.q))
    energy = np.sum(INERTIA * np.asarray(motion.v) ** 2, axis=1) / 2 + 9.81 * 0.3 * R[:, 2, 2]
    upright = np.einsum("tj,tj->t", R[:, 2], INERTIA * np.asarray(motion.v))
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)
    np.testing.assert_allclose(upright, upright[0], rtol=1e-9)
    state = uk.initial_state(top, LEVEL, OMEGA)
    for _ in range(10):
        state = uk.step(top, state, 0.1, steps=50)
    np.testing.assert_allclose(state.q, motion.q[10], rtol=0, atol=1e-9)


def test_a_motion_ends_at_its_event():
    event = uk.Event(lambda t, u, omega: rotation(u)[2, 2] + 0.2, direction="falling")
    motion = uk.simulate(TOP, LEVEL, OMEGA, TS, event=event)
    assert motion.met_event
    found = by_scipy(np.asarray(motion.t[-1:]))[0][-1]
    np.testing.assert_allclose(motion.q[-1], found, rtol=0, atol=1e-8)
    np.testing.assert_allclose(axes_of_ground(np.asarray(motion.q[-1]))[2, 2], -0.2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", ({}, {"dt": 1e-2}), ids=("adaptive", "even"))
def test_derivatives_match_finite_differences(how):
    def leaning(height, speed):
        motion = uk.simulate(Top(height=height), LEVEL, speed * OMEGA, [0.0, 0.7], **how)
        return rotation(motion.q[-1])[2, 2]

    at, h = (0.2, 1.1), 1e-5
    found = jax.grad(leaning, argnums=(0, 1))(*at)
    for i, slope in enumerate(found):
        up, down = (leaning(*(x + s * h * (i == k) for k, x in enumerate(at))) for s in (1, -1))
        np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-6)


# --- starts --------------------------------------------------------------------------------------------------------


def turned(u, x):
    """The attitude after a unit of time from u, at constant rates x about the body's axes: a product with exp(x/2)."""
    size = np.sqrt(x @ x)
    a, (b, c, d) = np.cos(size / 2), np.sinc(size / 2 / np.pi) * x / 2
    w, x, y, z = u
    return np.stack(
        [w * a - x * b - y * c - z * d, w * b + x * a + y * d - z * c, w * c - x * d + y * a + z * b,
         w * d + x * c - y * b + z * a]
    )  # fmt: skip


def test_nearest_start_is_a_unit_quaternion_and_matches_scipy(rng):
    """By SciPy: the rotation of least xᵀ M x that satisfies the constraint; then the nearest rates."""
    system = uk.System(TOP.dynamics, AXIS, kinematic_map=kinematic_map)
    u, omega = map(np.asarray, random_state(rng))
    q, v = uk.project(system, 0.5, u, omega)
    nearest = minimize(
        lambda x: x @ (INERTIA * x),
        0.1 * np.ones(3),
        constraints={"type": "eq", "fun": lambda x: axes_of_ground(turned(u, x))[2, 0] - 0.1 * np.sin(0.5)},
        tol=1e-14,
    ).x
    np.testing.assert_allclose(q, turned(u, nearest), rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(q), 1, rtol=0, atol=4e-16)
    assert np.abs(system.position_residual(0.5, q)) < 1e-15
    A = np.asarray(system(0.5, q, v).A)
    missed = np.asarray(system.velocity_residual(0.5, q, jnp.asarray(omega)))
    expected = omega - (A / INERTIA).T @ np.linalg.solve(A / INERTIA @ A.T, missed)
    np.testing.assert_allclose(v, expected, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_nearest_start_has_derivatives(rng):
    """Against differences."""
    system = uk.System(TOP.dynamics, AXIS, kinematic_map=kinematic_map)
    u, omega = random_state(rng)
    along, weights, h = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=7)), 1e-5
    weighed = lambda u: weights @ jnp.concatenate(uk.project(system, 0.5, u, omega))
    difference = (weighed(u + h * along) - weighed(u - h * along)) / (2 * h)
    np.testing.assert_allclose(jax.grad(weighed)(u) @ along, difference, rtol=1e-7)


def test_projection_from_distant_start_with_a_fixed_rate():
    """The search program is needed here."""
    pointing = uk.Holonomic(lambda t, u: rotation(u)[:2, 0] - jnp.array([0.0, 1.0]), name=("east", "north"))
    system = uk.System(
        TOP.dynamics, pointing, kinematic_map=kinematic_map, coordinates=TOP.coordinates, velocities=TOP.velocities
    )
    q, v = uk.project(system, 0.0, LEVEL, OMEGA, fixed=("wx",))
    np.testing.assert_allclose(rotation(q)[:, 0], [0, 1, 0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(v[0], OMEGA[0], rtol=1e-14)
    np.testing.assert_allclose(jnp.linalg.norm(q), 1, rtol=0, atol=1e-12)


# --- names, files, ensembles, control -------------------------------------------------------------------------------


@pytest.mark.slow
def test_saved_quantities_have_names_and_units(tmp_path):
    motion = uk.simulate(uk.System(TOP.dynamics, AXIS, kinematic_map=kinematic_map), *_consistent(), TS[:3])
    assert motion.directions == (("v1", ""), ("v2", ""), ("v3", ""))
    motion = uk.simulate(TOP, LEVEL, OMEGA, TS)
    assert motion.directions == (("wx", "rad"), ("wy", "rad"), ("wz", "rad"))
    for name in ("motion.npz", "motion.nc"):
        again = uk.load_trajectory(motion.save(tmp_path / name))
        np.testing.assert_array_equal(again.v, motion.v)
        np.testing.assert_array_equal(again.constraint_force, motion.constraint_force)
        assert again.directions == motion.directions and again.coordinates == motion.coordinates
    data = motion.to_xarray()
    assert data.v.dims == ("time", "direction") and data.q.dims == ("time", "coordinate")
    assert data.v.attrs["units"] == "rad s-1" and data.constraint_force.attrs["units"] == "N m"
    first = motion.save(tmp_path / "motion.csv").read_text().splitlines()[0].split(",")
    assert first[4:7] == ["z [-]", "wx [rad/s]", "wy [rad/s]"] and "dwx [rad/s^2]" in first
    uk.plot.save(uk.plot.histories(motion), tmp_path / "motion.png")
    assert "force on wx [N m]" in first


def _consistent():
    return uk.project(uk.System(TOP.dynamics, AXIS, kinematic_map=kinematic_map), 0.0, LEVEL, OMEGA)


@pytest.mark.slow
def test_an_ensemble_and_an_exported_simulator(tmp_path):
    speeds = np.linspace(0.1, 0.4, 5)
    found = uk.ensemble(TOP, over={"wx": speeds}, ts=TS[:4], store=tmp_path / "store", dt=0.01)
    each = np.stack([uk.simulate(TOP, LEVEL, [x, *OMEGA[1:]], TS[:4], dt=0.01).v for x in speeds])
    np.testing.assert_allclose(found.v, each, rtol=0, atol=1e-13)
    assert found.q.shape == (5, 4, 4) and found.dataset.v.dims == ("member", "time", "direction")
    uk.export(TOP, TS[:4], tmp_path / "top.ukx", dt=0.01)
    simulator = uk.load_simulator(tmp_path / "top.ukx")
    motion = simulator(np.tile(LEVEL, (5, 1)), np.stack([[x, *OMEGA[1:]] for x in speeds]))
    np.testing.assert_allclose(motion.v, each, rtol=0, atol=1e-12)
    assert motion.directions[0] == ("wx", "rad")


@pytest.mark.slow
def test_servo_follows_prescribed_attitude():
    """Three motors about the body's axes follow a prescribed rotation. Their torques are those of inverse dynamics."""
    angle = lambda t: 0.3 * t**2
    wanted = lambda t: jnp.stack([jnp.cos(angle(t) / 2), 0 * t, jnp.sin(angle(t) / 2), 0 * t])
    task = uk.Holonomic(lambda t, u: (rotation(wanted(t)).T @ rotation(u))[jnp.array([2, 0, 1]), jnp.array([1, 2, 0])])
    system = uk.System(TOP.dynamics, control=uk.control.Servo(jnp.eye(3), task), kinematic_map=kinematic_map)
    motion = uk.simulate(system, LEVEL, np.zeros(3), TS)
    np.testing.assert_allclose(motion.q, jax.vmap(wanted)(jnp.asarray(TS)), rtol=0, atol=1e-8)
    np.testing.assert_allclose(np.asarray(motion.control), np.tile([0, 2.0 * 0.6, 0], (31, 1)), rtol=0, atol=1e-8)


def test_inverse_dynamics_matches_eulers_equations(rng):
    u, omega = random_state(rng)
    wanted = np.array([1.0, 2.0, 3.0])
    found = uk.control.inverse_dynamics(TOP, np.eye(3), 0.0, u, omega, wanted).u
    np.testing.assert_allclose(found, INERTIA * wanted + np.cross(omega, INERTIA * omega), rtol=0, atol=1e-12)


def test_fit_recovers_inertias():
    """From a record of the attitude alone."""
    true = Top(inertia=jnp.array([1.2, 2.0, 3.3]))
    record = uk.simulate(true, LEVEL, OMEGA, TS, dt=0.02)
    experiment = uk.Experiment(TS, record.q, np.r_[LEVEL, OMEGA])
    found = uk.fit(TOP, experiment, ("inertia[0]", "inertia[2]"), dt=0.02, fit_starts=False)
    np.testing.assert_allclose(found.values, [1.2, 3.3], rtol=1e-7)


# --- mistakes ------------------------------------------------------------------------------------------------------

FREE = uk.MassForce(np.eye(3), np.zeros(3))
SAME = uk.System(FREE, kinematic_map=lambda q, v: v)
BENDING = uk.System(FREE, kinematic_map=lambda q, v: kinematic_map(q, v * jnp.abs(v)))
DRIFTING = uk.System(FREE, kinematic_map=lambda q, v: kinematic_map(q, v) + 0.1)


@pytest.mark.parametrize(
    ("mistake", "message"),
    (
        (lambda: uk.System(FREE, velocities=[("wx", "rad/s")]), "velocities must be None without a kinematic_map"),
        (
            lambda: uk.simulate(SAME, LEVEL, OMEGA, TS),
            "kinematic_map must return q̇ of shape .4,. like q",
        ),
        (lambda: uk.simulate(BENDING, LEVEL, OMEGA, TS), "kinematic_map must be linear in v, q̇ = N.q. v"),
        (lambda: uk.project(DRIFTING, 0.0, LEVEL, OMEGA), "kinematic_map must be linear in v, q̇ = N.q. v"),
        (
            lambda: uk.initial_state(DRIFTING, np.tile(LEVEL, (2, 1)), OMEGA),
            "If a coordinate has a rate of its own, add this rate to v",
        ),
        (lambda: uk.simulate(TOP, LEVEL, np.ones(4), TS), "mass_matrix must return shape .4, 4. for v of shape .4,"),
        (lambda: uk.simulate(TOP, np.tile(LEVEL, (3, 1)), np.ones((2, 3)), TS), "v0 must have shape .n,., or"),
        (
            lambda: uk.simulate(TOP, LEVEL, OMEGA, TS, atol=np.ones(4)),
            "atol must be one number for a model with a kinematic_map",
        ),
        (
            lambda: uk.project(TOP, 0.0, LEVEL, OMEGA, fixed=("wz", "wu")),
            "fixed names no coordinate 'wu'; did you mean",
        ),
        (
            lambda: uk.System(FREE, AXIS, kinematic_map=kinematic_map)(0.0, LEVEL, np.ones(4)),
            "M must have shape|for v of shape",
        ),
        (
            lambda: uk.control.Adaptive(TOP, uk.control.Robust(jnp.eye(3), EDGE, TOP, 1.0), k1=1.0, k2=1.0),
            "plant must have the rates of its coordinates as velocities",
        ),
    ),
)
def test_invalid_kinematic_maps_and_arguments_are_errors(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()

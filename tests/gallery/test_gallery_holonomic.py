"""Pendulums, the four-bar linkage and the rough plane, against closed forms and SymPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp, trapezoid
from scipy.special import ellipj, ellipk

import ukjax as uk

from ..mechanisms import pendulum_exact

GRAVITY = 9.81
GLOBAL = 1e-8  # of a motion, at rtol = 1e-11
ROUNDING = 1e-12


def simulate(mechanism, ts, **steps):
    q0, v0 = uk.project(mechanism, 0.0, *mechanism.start())
    return uk.simulate(mechanism, q0, v0, ts, **steps)


def check_constraints(motion):
    assert np.abs(motion.residual).max() <= 1e-10
    assert np.abs(motion.velocity_residual).max() <= 1e-10


# --- pendulum ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pendulum():
    return simulate(uk.systems.Pendulum(), jnp.linspace(0, 10, 101), rtol=1e-11, atol=1e-11)


def test_pendulum_matches_jacobi_functions(pendulum):
    np.testing.assert_allclose(pendulum.q, pendulum_exact(pendulum.t), rtol=0, atol=GLOBAL)
    np.testing.assert_allclose(pendulum.energy, 0, rtol=0, atol=GLOBAL)
    check_constraints(pendulum)


def test_rod_force_of_the_pendulum_with_repeated_rows_matches_closed_form(pendulum):
    """The tension is m v²/l − m g y/l = −3 m g y/l, by conservation of energy."""
    assert (np.asarray(pendulum.rank) == 1).all()
    exact = pendulum_exact(pendulum.t)
    np.testing.assert_allclose(
        pendulum.constraint_force, 3 * GRAVITY * exact[:, 1:] * exact, rtol=0, atol=1e-7 * 3 * GRAVITY
    )


# --- double pendulum -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def double_pendulum():
    return simulate(uk.systems.DoublePendulum(), jnp.linspace(0, 5, 51), rtol=1e-11, atol=1e-11)


@pytest.fixture(scope="module")
def two_angles(double_pendulum):
    """Return q, v and accelerations of the rods, by Lagrange's equations in the two angles."""
    import sympy as sp
    from sympy.physics import mechanics

    model, t = double_pendulum.model, sp.Symbol("t")
    m1, m2, l1, l2 = (float(x) for x in (model.m1, model.m2, model.l1, model.l2))
    a, b = mechanics.dynamicsymbols("a b")
    elbow = sp.Matrix([l1 * sp.sin(a), -l1 * sp.cos(a)])
    tip = sp.Matrix([l2 * sp.sin(b), -l2 * sp.cos(b)])
    c1, c2 = elbow / 2, elbow + tip / 2
    rates = c1.diff(t), c2.diff(t)
    rods = zip((m1, m2), rates, (l1, l2), (a, b), strict=True)
    T = sum(m * (c.dot(c) + l**2 * w.diff(t) ** 2 / 12) / 2 for m, c, l, w in rods)
    V = GRAVITY * (m1 * c1[1] + m2 * c2[1])
    method = mechanics.LagrangesMethod(T - V, [a, b])
    method.form_lagranges_equations()
    state = [a, b, a.diff(t), b.diff(t)]
    M, Q = sp.lambdify(state, method.mass_matrix), sp.lambdify(state, method.forcing)

    def derivative(_, y):
        return np.concatenate([y[2:], np.linalg.solve(M(*y), Q(*y)).ravel()])

    start = [np.pi / 2, np.pi / 2, 0, 0]
    found = solve_ivp(derivative, (0, 5), start, "DOP853", np.asarray(double_pendulum.t), rtol=1e-13, atol=1e-13).y.T
    bodies = sp.Matrix([*c1, a, *c2, b])
    second = sp.Matrix(mechanics.dynamicsymbols("a b", 2))
    symbols = [*state, *second]
    q, v, acceleration = (sp.lambdify(symbols, bodies.diff(t, k)) for k in range(3))
    values = [np.concatenate([y, derivative(0, y)[2:]]) for y in found]
    return tuple(np.array([function(*value).ravel() for value in values]) for function in (q, v, acceleration))


def test_double_pendulum_matches_equations_in_two_angles(double_pendulum, two_angles):
    q, v, acceleration = two_angles
    np.testing.assert_allclose(double_pendulum.q, q, rtol=0, atol=GLOBAL)
    np.testing.assert_allclose(double_pendulum.v, v, rtol=0, atol=10 * GLOBAL)
    np.testing.assert_allclose(double_pendulum.acceleration, acceleration, rtol=0, atol=100 * GLOBAL)
    check_constraints(double_pendulum)
    assert (np.asarray(double_pendulum.rank) == 4).all()


def test_pin_forces_of_the_double_pendulum_match_newton_euler(double_pendulum, two_angles):
    """Pin forces from accelerations of the centres, and their moments about each centre."""
    model = double_pendulum.model
    q, _, acceleration = two_angles
    weight = np.array([0, GRAVITY])
    elbow = float(model.m2) * (acceleration[:, 3:5] + weight)
    pivot = float(model.m1) * (acceleration[:, :2] + weight) + elbow

    def moment(angle, length, force):
        half = float(length) / 2 * np.stack([np.sin(angle), -np.cos(angle)])
        return half[0] * force[:, 1] - half[1] * force[:, 0]

    moments = -moment(q[:, 2], model.l1, pivot + elbow), -moment(q[:, 5], model.l2, elbow)
    exact = np.column_stack([pivot - elbow, moments[0], elbow, moments[1]])
    np.testing.assert_allclose(double_pendulum.constraint_force, exact, rtol=0, atol=1e-7 * np.abs(exact).max())


def test_energy_of_the_double_pendulum_is_conserved(double_pendulum):
    np.testing.assert_allclose(double_pendulum.energy, 0, rtol=0, atol=GLOBAL)  # both rods level, at rest


# --- four-bar linkage ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four_bar():
    """In fixed steps: adaptive steps shrink at flat poses, where they lose three digits or stop."""
    return simulate(uk.systems.FourBar(), jnp.linspace(0, 10, 101), dt=0.01)


@pytest.fixture(scope="module")
def parallelogram(four_bar):
    """Return θ and its rates on the exact motion, θ̈ = k sin θ, by Jacobi's amplitude of a rotating pendulum."""
    k = 6 * GRAVITY / 5
    rate = np.sqrt(1 / 4 + k)
    amplitude = ellipj(rate * np.asarray(four_bar.t) - ellipk(k / rate**2), k / rate**2)[3]
    theta = np.pi + 2 * amplitude
    return theta, np.sqrt(1 + 2 * k * (1 - np.cos(theta))), k * np.sin(theta)


def test_four_bar_passes_flat_poses_as_a_parallelogram(four_bar, parallelogram):
    theta, rate, _ = parallelogram
    flat = np.abs(np.diff(np.sign(np.cos(theta)))).sum() / 2
    assert flat > 5
    np.testing.assert_allclose(four_bar.q, np.stack([theta, 0 * theta + np.pi / 2, theta], axis=1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(four_bar.v, np.stack([rate, 0 * rate, rate], axis=1), rtol=0, atol=1e-9)
    check_constraints(four_bar)


def test_four_bar_matches_published_positions(four_bar):
    published = [(-0.260712675, -0.965416439), (-0.944908186, -0.327335485), (0.478385058, 0.878150179)]
    theta = np.asarray(four_bar.q[np.array([10, 50, 100]), 0])
    np.testing.assert_allclose(np.stack([np.sin(theta), np.cos(theta)], axis=1), published, rtol=0, atol=1e-9)


def test_energy_of_the_four_bar_is_conserved(four_bar):
    np.testing.assert_allclose(four_bar.energy, 2 * GRAVITY + (2 / 3 + 1) / 2, rtol=0, atol=1e-10)


def test_constraint_forces_of_the_four_bar_match_the_exact_motion(four_bar, parallelogram):
    """They are the residual of the equations of the opened linkage, derived by hand for constant θ2 = π/2."""
    theta, rate, acceleration = parallelogram
    s, c = np.sin(theta), np.cos(theta)
    rocker = 4 / 3 * acceleration - 3 / 2 * GRAVITY * s
    coupler = (s * acceleration + c * rate**2) / 2 - GRAVITY / 2
    other = acceleration / 3 - GRAVITY / 2 * s
    exact = np.stack([rocker, coupler, other], axis=1)
    np.testing.assert_allclose(four_bar.constraint_force, exact, rtol=0, atol=1e-7 * np.abs(exact).max())


def kane():
    """Return the function (θ, θ̇) -> θ̈ by SymPy's KanesMethod; the loop makes θ2 and θ3 dependent on θ1."""
    import sympy as sp
    from sympy.physics import mechanics

    q, u = mechanics.dynamicsymbols("q1:4"), mechanics.dynamicsymbols("u1:4")
    t = sp.Symbol("t")
    N = mechanics.ReferenceFrame("N")
    O = mechanics.Point("O")
    O.set_vel(N, 0)
    P = O.locatenew("P", N.x)
    P.set_vel(N, 0)
    bodies, loads, ends = [], [], []
    for i, start in enumerate((O, None, P)):
        frame = N.orientnew(f"R{i}", "Axis", (-q[i], N.z))  # clockwise from the upright position
        frame.set_ang_vel(N, -u[i] * N.z)
        start = start or ends[0]
        centre, end = start.locatenew(f"C{i}", frame.y / 2), start.locatenew(f"E{i}", frame.y)
        for point in (centre, end):
            point.v2pt_theory(start, N, frame)
        ends.append(end)
        bodies.append(
            mechanics.RigidBody(f"B{i}", centre, frame, 1, (mechanics.inertia(frame, 0, 0, sp.S(1) / 12), centre))
        )
        loads.append((centre, -GRAVITY * N.y))
    gap = ends[1].pos_from(O) - ends[2].pos_from(O)
    loop = [gap.dot(axis) for axis in (N.x, N.y)]
    rates = [x.diff(t).subs(dict(zip([y.diff(t) for y in q], u, strict=True))) for x in loop]
    kinematics = [y.diff(t) - w for y, w in zip(q, u, strict=True)]
    method = mechanics.KanesMethod(
        N,
        q_ind=q[:1],
        u_ind=u[:1],
        kd_eqs=kinematics,
        q_dependent=q[1:],
        configuration_constraints=loop,
        u_dependent=u[1:],
        velocity_constraints=rates,
    )
    method.kanes_equations(bodies, loads)
    M, Q = (sp.lambdify([*q, *u], x) for x in (method.mass_matrix, method.forcing))
    return lambda theta, rate: np.linalg.solve(M(*theta, *rate), Q(*theta, *rate)).ravel()


def test_four_bar_accelerations_match_kane(rng):
    """At random poses of both assemblies: as a parallelogram, and with the coupler folded on the rocker."""
    mechanism = uk.systems.FourBar()
    accelerations, motion = kane(), jax.jit(lambda q, v: uk.constrained_motion(mechanism(0.0, q, v)).acceleration)
    for angle, rate in zip(rng.uniform(-1.2, 1.2, 5), rng.normal(size=5), strict=True):
        parallel = jnp.array([angle, np.pi / 2, angle]), jnp.array([rate, 0, rate])
        folded = jnp.array([angle, angle + np.pi, -np.pi / 2]), jnp.array([rate, rate, 0])
        for q, v in (parallel, folded):
            assert np.abs(mechanism.position_residual(0.0, q)).max() < ROUNDING
            assert np.abs(mechanism.velocity_residual(0.0, q, v)).max() < ROUNDING
            np.testing.assert_allclose(motion(q, v), accelerations(q, v), atol=1e-10, rtol=1e-10)


# --- rough plane ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def incline():
    return simulate(uk.systems.RoughIncline(), jnp.linspace(0, 2, 41))


def test_block_slides_with_constant_acceleration(incline):
    slope, friction = np.pi / 6, 0.2
    a = GRAVITY * (np.sin(slope) - friction * np.cos(slope))
    t = np.asarray(incline.t)
    downhill = np.array([np.cos(slope), -np.sin(slope)])
    np.testing.assert_allclose(incline.q, np.outer(0.1 * t + a * t**2 / 2, downhill), rtol=0, atol=1e-10)
    np.testing.assert_allclose(incline.v, np.outer(0.1 + a * t, downhill), rtol=0, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(incline.model.reference)(incline.t), incline.q, rtol=0, atol=1e-10)
    check_constraints(incline)


def test_force_of_the_plane_is_normal_force_and_friction(incline):
    slope, friction = np.pi / 6, 0.2
    N = GRAVITY * np.cos(slope)
    normal, uphill = np.array([np.sin(slope), np.cos(slope)]), np.array([-np.cos(slope), np.sin(slope)])
    ones = np.ones((41, 1))
    np.testing.assert_allclose(incline.ideal_force, ones * N * normal, rtol=0, atol=1e-10)
    np.testing.assert_allclose(incline.nonideal_force, ones * friction * N * uphill, rtol=0, atol=1e-10)


def test_energy_loss_of_the_block_is_the_work_of_friction(incline):
    distance = np.linalg.norm(np.asarray(incline.q), axis=1)
    loss = np.asarray(incline.energy) - 0.1**2 / 2
    np.testing.assert_allclose(loss, -0.2 * GRAVITY * np.cos(np.pi / 6) * distance, rtol=0, atol=1e-10)
    power = np.sum(np.asarray(incline.constraint_force * incline.v), axis=1)  # linear in time
    assert loss[-1] == pytest.approx(trapezoid(power, incline.t), rel=1e-10)


def test_block_at_rest_has_finite_derivatives():
    model = uk.systems.RoughIncline()

    @jax.jit
    def accelerations(friction, v):
        changed = eqx.tree_at(lambda m: m.mu, model, friction)
        return uk.constrained_motion(changed(0.0, jnp.zeros(2), v)).acceleration

    for derivative in jax.jacrev(accelerations, argnums=(0, 1))(model.mu, jnp.zeros(2)):
        np.testing.assert_array_equal(derivative, 0)
    moving = jnp.array([np.sqrt(3.0), -1.0])
    by_friction = jax.jacrev(accelerations)(model.mu, moving)
    np.testing.assert_allclose(by_friction, -GRAVITY * np.cos(np.pi / 6) * moving / 2, rtol=ROUNDING)


@pytest.mark.parametrize(("name", "samples"), (("pendulum", 101), ("double_pendulum", 51), ("rough_incline", 41)))
def test_run_command(name, samples, check_run):
    check_run(name, samples)

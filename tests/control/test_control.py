"""Servo control against the same laws in NumPy, closed forms and proven bounds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import ukjax as uk
from ukjax._control import allocate
from ukjax._motion.result import OUT_OF_REACH

from ..helpers import central_difference, mass_matrix, printed_formula, rows_of_rank

AGREE = 1e-10  # two methods for systems with condition numbers up to about 1e4


def printed_law(M, Q, A_h, b_h, A, b, B, N, s):
    """Return u = N^(-1/2) (G N^(-1/2))⁺ (b̄ − G s) + s, with pseudoinverses.

    G = A M⁻¹ N_h B, where N_h is the projector of the constraint forces of A_h.
    """
    Mi = np.linalg.inv(M)
    S = np.linalg.pinv(A_h @ Mi @ A_h.T, rcond=1e-10)
    N_h = np.eye(len(Q)) - A_h.T @ S @ A_h @ Mi
    Qc = A_h.T @ S @ (b_h - A_h @ Mi @ Q)
    G = A @ Mi @ N_h @ B
    root = np.linalg.inv(np.real(scipy.linalg.sqrtm(N)))
    return s + root @ np.linalg.pinv(G @ root, rcond=1e-10) @ (b - A @ Mi @ (Q + Qc) - G @ s)


def random_case(rng, n, m_h, rank, m, p):
    M, A_h = mass_matrix(rng, n), rows_of_rank(rng, m_h, n, rank)
    b_h = A_h @ rng.normal(size=n)
    return M, rng.normal(size=n), A_h, b_h, rng.normal(size=(m, n)), rng.normal(size=m), rng.normal(size=(n, p))


@jax.jit
def commanded(passive, A, b, B, N, s):
    """Return the command, and the acceleration that it causes."""
    command = allocate(uk.mobility(passive), A, b, B, N, s)
    moved = uk.Terms(passive.M, passive.Q + B @ command.u, passive.A, passive.b)
    return command, uk.constrained_motion(moved).acceleration


@pytest.mark.parametrize(
    ("n", "m_h", "rank", "m", "p"),
    [
        pytest.param(6, 4, 2, 2, 3, id="redundant"),
        pytest.param(8, 3, 3, 3, 2, id="too few", marks=pytest.mark.slow),
    ],
)
def test_command_is_the_corrected_law_of_liu_2015(rng, n, m_h, rank, m, p):
    M, Q, A_h, b_h, A, b, B = random_case(rng, n, m_h, rank, m, p)
    N, s = mass_matrix(rng, p), rng.normal(size=p)

    command, after = commanded(uk.Terms(*map(jnp.asarray, (M, Q, A_h, b_h))), A, b, B, N, s)
    np.testing.assert_allclose(command.u, printed_law(M, Q, A_h, b_h, A, b, B, N, s), rtol=0, atol=AGREE)
    assert int(command.rank) == min(m, p, n - rank)
    np.testing.assert_allclose(A_h @ after, b_h, rtol=0, atol=AGREE)
    np.testing.assert_allclose(A @ after, b - command.unreachable, rtol=0, atol=AGREE)
    if p >= m:
        np.testing.assert_allclose(command.unreachable, 0, rtol=0, atol=AGREE)
    else:
        assert np.abs(command.unreachable).max() > 0.01


def test_task_along_a_constrained_direction_is_unreachable():
    """The task is parallel to a constraint row, so that G contains only rounding errors."""
    M, row = np.diag([1.0, 2.0, 3.0]), np.array([[1.0, 0.3, 0.1]])
    passive = uk.Terms(*map(jnp.asarray, (M, np.zeros(3), row, np.zeros(1))))
    command, _ = commanded(passive, row / 3, np.ones(1), np.eye(3), np.eye(3), np.zeros(3))
    assert int(command.rank) == 0
    np.testing.assert_allclose(command.unreachable, 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(command.u, 0, rtol=0, atol=1e-14)


def test_servo_force_with_weight_inverse_mass_is_the_constraint_force(rng):
    """All coordinates have actuators and N = M⁻¹ (Udwadia 2003)."""
    M, Q, _, _, A, b, _ = random_case(rng, 5, 0, 0, 2, 5)
    passive = uk.Terms(*map(jnp.asarray, (M, Q, np.zeros((0, 5)), np.zeros(0))))
    command, _ = commanded(passive, A, b, np.eye(5), np.linalg.inv(M), np.zeros(5))
    np.testing.assert_allclose(command.u, printed_formula(M, Q, A, b)[1], rtol=0, atol=AGREE)


def arm(m1=1.0, m2=2.0, **control):
    """Two masses on a line with a spring between them: Liu et al. 2015, section IV."""
    energies = uk.Lagrangian(
        lambda t, q, v: (m1 * v[0] ** 2 + m2 * v[1] ** 2) / 2, lambda t, q: 5.0 * (q[1] - q[0] - 1) ** 2 / 2
    )
    task = control.pop("task", uk.Holonomic(lambda t, q: q[1] - q[0] - 2, name="distance"))
    return uk.System(energies, control=uk.control.Servo([[1.0], [0.0]], task, **control))


def test_underactuated_masses_follow_the_closed_form():
    ts = jnp.linspace(0, 2, 21)
    motion = uk.simulate(arm(inputs=[("F", "N")]), [0.0, 2.0], [0.0, 0.0], ts)
    np.testing.assert_allclose(np.asarray(motion.control), -7.5, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.q[:, 0], -1.25 * ts**2, rtol=0, atol=1e-9)
    np.testing.assert_allclose(motion.residual, 0, rtol=0, atol=1e-12)
    assert motion.inputs == (("F", "N"),)


def test_partly_unreachable_task_error_gives_the_direction():
    both = [
        uk.Holonomic(lambda t, q: q[1] - q[0] - 2, name="distance"),
        uk.Holonomic(lambda t, q: q[0], name="first at rest"),
    ]
    with pytest.raises(ValueError, match=r"out of their reach, along \+0.707 'distance' \+0.707 'first at rest'") as e:
        uk.simulate(arm(task=both), [0.0, 2.0], [0.0, 0.0], [0.0, 1.0])
    assert "they move 1 of its 2 rows" in str(e.value)


def lost_actuator():
    """A free particle whose task is to move along x. Its only actuator turns from x to y at t = 1 s."""
    B = lambda t, q: jnp.where(t < 1, jnp.array([[1.0], [0.0]]), jnp.array([[0.0], [1.0]]))
    task = uk.Holonomic(lambda t, q: q[0] - jnp.sin(t), name="path")
    return uk.System(uk.MassForce(np.eye(2), np.zeros(2)), control=uk.control.Servo(B, task))


def test_unreachable_task_error_gives_time_and_direction():
    particle = lost_actuator()
    with pytest.raises(uk.SimulationError, match=r"at t = 1 s: of the 0.841 .* along -1 'path'; they move 0 of its 1"):
        uk.simulate(particle, [0.0, 0.0], [1.0, 0.0], jnp.linspace(0, 2, 21))
    seen = uk.simulate(particle, [0.0, 0.0], [1.0, 0.0], jnp.linspace(0, 2, 21), throw=False)
    np.testing.assert_array_equal(seen.control_rank, np.asarray(seen.t) < 1)
    np.testing.assert_allclose(np.asarray(seen.unreachable)[10:, 0], -np.sin(seen.t[10:]), rtol=0, atol=1e-9)
    assert not seen.finished and seen.reason == "came to a task that its actuators cannot perform"


def test_result_of_an_unreachable_task_under_jit_and_of_steps():
    """The result is that of the motion until 0.9 s, or 1.1 s."""
    particle, start = lost_actuator(), (jnp.zeros(2), jnp.array([1.0, 0.0]))
    result = jax.jit(lambda q, v, ts: uk.simulate(particle, q, v, ts, dt=0.1).result)
    assert [int(result(*start, jnp.array([0.0, end]))) for end in (0.9, 1.1)] == [0, OUT_OF_REACH]
    state, reasons = uk.initial_state(particle, *start), []
    for _ in range(11):
        state = uk.step(particle, state, 0.1)
        reasons.append(int(state.result))
    assert reasons[:9] == [0] * 9 and reasons[-1] == OUT_OF_REACH


def test_result_of_an_unreachable_task_after_a_step_with_contacts():
    """The actuator is lost at 1 s. The contact, 5 m away, stays open."""
    particle = lost_actuator()
    floor = uk.Unilateral(lambda t, q: q[1] + 5)
    beside = uk.System(particle.dynamics, floor, control=particle.control)
    for end, result in ((0.9, 0), (1.1, OUT_OF_REACH)):
        state = uk.initial_state(beside, [0.0, 0.0], [1.0, 0.0])
        assert int(uk.step(beside, state, end, steps=11, solver=uk.MoreauJean()).result) == result


@pytest.mark.parametrize("unit", (1e-9, 1e9))
def test_unreachable_task_is_detected_in_any_unit_of_length(unit):
    """The task of the particle is to rise by ``unit``; its actuator pushes sideways only."""
    task = uk.Holonomic(lambda t, q: q[1] - unit * t**2 / 2, name="height")
    system = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), control=uk.control.Servo([[1.0], [0.0]], task))
    with pytest.raises(ValueError, match=r"along [+-]1 'height'"):
        uk.simulate(system, [unit, 0.0], [0.0, 0.0], [0.0, 1.0])


@pytest.mark.slow
def test_task_met_by_constraints_is_reachable_despite_rounding():
    slope = np.array([np.cos(1.0), np.sin(1.0)])
    wall = uk.Holonomic(lambda t, q: slope @ q, name="wall")
    task = uk.Holonomic(lambda t, q: slope @ q, name="on the wall")
    control, along = uk.control.Servo([[1.0], [0.0]], task, secondary=0), np.array([-slope[1], slope[0]])
    for unit in (1e-9, 1e9):
        system = uk.System(uk.MassForce(np.eye(2), [0.0, -9.81 * unit]), wall, control=control)
        motion = uk.simulate(system, 0.1 * unit * along, 0 * along, [0.0, 0.2])
        assert motion.finished and np.all(motion.control_rank == 0)
        fallen = 0.1 * unit - 9.81 * unit * along[1] * 0.2**2 / 2
        np.testing.assert_allclose(motion.q[-1], fallen * along, rtol=1e-9, atol=1e-9 * unit)


def test_error_of_a_batch_names_the_member():
    with pytest.raises(ValueError, match="the task of trajectory 1 cannot be performed from the start"):
        task = uk.Holonomic(lambda t, q: q[0] - 2 * q[1] ** 2, name="path")
        B = lambda t, q: jnp.array([[1.0], [0.0]]) * jnp.where(q[1] > 1, 0.0, 1.0)
        system = uk.System(uk.MassForce(np.eye(2), [0.0, -1.0]), control=uk.control.Servo(B, task))
        uk.simulate(system, [[0.0, 0.0], [8.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.5])


def test_task_error_decays_by_the_matrix_of_equation_72():
    P = np.array([[0.5, 0.2], [0.2, 0.4]])
    task = uk.Nonholonomic(lambda t, q, v: jnp.stack([v[0] + q[1], v[1] - jnp.sin(q[0])]), name=("first", "second"))
    control = uk.control.Servo(np.eye(3)[:, :2], task, P=P, projected=False)
    system = uk.System(uk.MassForce(np.diag([1.0, 2.0, 3.0]), lambda t, q, v: -q), control=control)
    ts = jnp.linspace(0, 2, 11)
    motion = uk.simulate(system, [0.3, -0.2, 1.0], [1.0, 0.5, 0.0], ts, rtol=1e-11, atol=1e-11)
    start = np.asarray(motion.task_residual)[0]
    decay = np.stack([scipy.linalg.expm(-np.linalg.inv(P) * float(t)) @ start for t in ts])
    np.testing.assert_allclose(np.asarray(motion.task_residual), decay, rtol=0, atol=1e-9)
    assert np.abs(start).min() > 0.1


def test_secondary_objective_acts_in_the_null_space_of_the_task(rng):
    """Three actuators and one task row. The command is nearest to s, compared with NumPy."""
    B = rng.normal(size=(2, 3))
    s = rng.normal(size=3)
    task = uk.Holonomic(lambda t, q: q[0] * q[1] - 0.5, name="path")
    dynamics = uk.MassForce(np.diag([1.0, 2.0]), [0.0, -1.0])
    system = uk.System(dynamics, control=uk.control.Servo(B, task, secondary=lambda t, q, v: s))
    q, v = np.array([0.5, 1.0]), np.array([1.0, -2.0])
    u = np.asarray(jax.jit(lambda q, v: system.command(0.0, q, v).u)(q, v))  # one program, not one of each operation
    A, b = np.array([[1.0, 0.5]]), np.array([-2 * v[0] * v[1]])
    G = A @ np.diag([1, 0.5]) @ B
    np.testing.assert_allclose(G @ u, b - A @ np.array([0, -0.5]), rtol=0, atol=1e-12)
    null = scipy.linalg.null_space(G)
    np.testing.assert_allclose(null.T @ u, null.T @ s, rtol=0, atol=1e-12)


def test_task_with_free_directions_gives_a_warning():
    """Two motors move a point in the plane. The task is y = 0; x is free."""
    free, task = uk.MassForce(np.diag([2.0, 3.0]), np.zeros(2)), uk.Holonomic(lambda t, q: q[1], name="line")
    run = lambda B, **how: uk.simulate(
        uk.System(free, control=uk.control.Servo(B, task, **how)), [0.0, 0.0], [1.0, 0.0], [0.0, 0.1], dt=0.05
    )
    with pytest.warns(UserWarning, match="the task leaves 1 of the 2 directions .* most of all along 'q1'"):
        run(np.eye(2))
    run(np.eye(2), secondary=0)
    run([[0.0, 0.0], [1.0, 2.0]])  # two motors that share a load


def test_reverse_derivative_of_the_command_matches_differences():
    """The command of the cart-pole, differentiated by both masses."""
    cart = uk.systems.CartPole()
    q, v = jnp.array([0.2, 0.3]), jnp.array([1.0, -0.5])

    @jax.jit
    def u(m):
        return eqx.tree_at(lambda c: (c.M, c.m), cart, tuple(m)).command(0.3, q, v).u

    m = np.array([1.1, 0.3])
    np.testing.assert_allclose(jax.jacrev(u)(jnp.asarray(m)), central_difference(u, m), rtol=1e-7, atol=1e-8)


def test_inverse_dynamics_of_a_closed_loop_returns_the_inputs(rng):
    """Six motors and five coordinates, with two constraint rows."""
    loop = uk.Holonomic(lambda t, q: jnp.stack([q[:3] @ q[2:], q[0] * q[1] - q[3]]), name=("first", "second"))
    passive = uk.System(uk.MassForce(mass_matrix(rng, 5), rng.normal(size=5)), loop)
    B = rng.normal(size=(5, 6))
    q, v = rng.normal(size=5), rng.normal(size=5)  # the equations are valid at any state
    u = rng.normal(size=6)
    terms = passive(0.0, q, v)
    acceleration = uk.constrained_motion(uk.Terms(terms.M, terms.Q + B @ u, terms.A, terms.b)).acceleration
    found = uk.control.inverse_dynamics(passive, B, 0.0, q, v, acceleration)
    M, A = np.asarray(terms.M), np.asarray(terms.A)
    Mi = np.linalg.inv(M)
    G = (Mi - Mi @ A.T @ np.linalg.solve(A @ Mi @ A.T, A @ Mi)) @ B
    np.testing.assert_allclose(
        found.u, np.linalg.pinv(G, rcond=1e-10) @ G @ u, rtol=0, atol=1e-10
    )  # u without its part that has no effect
    assert int(found.rank) == 3
    with pytest.raises(ValueError, match="acceleration cannot be reached"):
        uk.control.inverse_dynamics(passive, B, 0.0, q, v, acceleration + np.array([1.0, 0, 0, 0, 0]))


# --- under uncertainty ---------------------------------------------------------------------------------------------


def uncertain_plant():
    """A mass of 1.3 kg, 1 kg in the law, with a friction and a disturbance that the law does not know; task v = sin
    q."""
    plant = uk.System(uk.MassForce([[1.3]], lambda t, q, v: 0.5 * jnp.sin(3 * t) - 0.4 * v))
    nominal = uk.System(uk.MassForce([[1.0]], lambda t, q, v: jnp.zeros(1)))
    task = uk.Nonholonomic(lambda t, q, v: v - jnp.sin(q) - 1.5, name="speed")
    return plant, nominal, task


RHO_E = 1 / 1.3 - 1  # G_actual G⁺ − I
RHO = 1.9  # |δ| ≤ (0.5 + 0.4 |v|)/1.3 + |1/1.3 − 1| |b̄| with |v| ≤ 2.6, |b̄| = |cos(q) v| ≤ 2.6


def end_error(system, v0, T=20.0):
    n = len(v0)
    motion = uk.simulate(system, [0.0] * n, v0, jnp.linspace(0, T, 401), rtol=1e-8, atol=1e-8)
    return np.abs(np.asarray(motion.task_residual))[200:].max(), motion


def test_error_of_the_robust_law_is_within_its_bound_and_proportional_to_epsilon():
    plant, nominal, task = uncertain_plant()
    ends = []
    for epsilon in (0.1, 0.01):
        law = uk.control.Robust([[1.0]], task, nominal, RHO, epsilon=epsilon, kappa=2.0, rho_E=RHO_E)
        error, _ = end_error(uk.System(plant.dynamics, control=law), [3.0])
        assert error <= float(law.ultimate_bound())
        ends.append(error)
    assert ends[0] / ends[1] == pytest.approx(10, rel=0.1)
    unaided = uk.control.Robust([[1.0]], task, nominal, 0.0, kappa=2.0)
    error, motion = end_error(uk.System(plant.dynamics, control=unaided), [3.0])
    assert error > 10 * ends[0]
    # Assumptions of the bound, along the motion: |v| and |b̄| are within the values that RHO is computed from.
    assert np.abs(motion.v).max() < 4


def test_error_of_the_adaptive_law_is_within_its_bound():
    plant, nominal, task = uncertain_plant()
    ends = []
    for k1 in (20.0, 100.0):
        law = uk.control.Robust([[1.0]], task, nominal, 1.0, epsilon=0.01, kappa=2.0, rho_E=RHO_E)
        system = uk.control.Adaptive(plant, law, k1=k1, k2=0.5)
        error, motion = end_error(system, [3.0, 0.0])
        assert error <= float(system.ultimate_bound(RHO))
        assert (np.asarray(motion.v[:, 1]) >= 0).all()
        ends.append(error)
    assert ends[1] < 0.6 * ends[0]


def test_sliding_mode_error_is_within_its_bound():
    """A Duffing oscillator follows sin t. Its mass differs by 35 %, its stiffness by 20 %."""
    duffing = lambda m, k: uk.MassForce([[m]], lambda t, q, v: -k * q - q**3 - 0.2 * v)
    path = uk.Holonomic(lambda t, q: q - jnp.sin(t), name="path")
    nominal, actual = uk.System(duffing(1.0, 1.0), path), uk.System(duffing(1.35, 1.2))
    L, kappa = 2.0, 5.0
    ends = []
    for epsilon in (0.1, 0.01):
        system = uk.control.SlidingMode(nominal, actual, L=L, kappa=kappa, epsilon=epsilon)
        motion = uk.simulate(system, [0.0, 0.05], [1.0, 1.0], jnp.linspace(0, 20, 401), rtol=1e-8, atol=1e-8)
        e = np.asarray(motion.q[:, 1] - motion.q[:, 0])
        s = np.asarray(motion.v[:, 1] - motion.v[:, 0]) + L * e
        # Assumption of the bound: κ α₀ is larger than the uncertainty.
        t, q, v = (np.asarray(x) for x in (motion.t, motion.q[:, 1], motion.v[:, 1]))
        force = np.asarray(motion.constraint_force[:, 0])
        uncertainty = (-1.2 * q - q**3 - 0.2 * v + force) / 1.35 + np.sin(t) + (1 - 1 / 1.35) * L * (v - np.cos(t))
        assert np.abs(uncertainty).max() < kappa * (1 - (1 - 1 / 1.35))
        assert np.abs(s[200:]).max() <= epsilon
        assert np.abs(e[200:]).max() <= epsilon / L
        ends.append(np.abs(e[200:]).max())
    assert ends[0] / ends[1] == pytest.approx(10, rel=0.2)


# --- bad input -----------------------------------------------------------------------------------------------------

FREE = uk.MassForce(np.eye(2), np.zeros(2))
TASK = uk.Holonomic(lambda t, q: q[0], name="x")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uk.control.Servo(np.eye(2), []), "task must be at least one constraint"),
        (lambda: uk.control.Servo(np.eye(2), lambda t, q: q), "task must be a constraint or several"),
        (lambda: uk.control.Servo(np.eye(2), [3]), r"task\[0\] must be ukjax.Holonomic"),
        (lambda: uk.control.Servo("motor", TASK), "actuators must be a function"),
        (lambda: command(np.eye(3), TASK), r"actuators must be B of shape \(2, p\)"),
        (lambda: command(np.eye(2), TASK, weight=[1.0, 2.0, 3.0]), r"weight must be a number or have shape \(2,\)"),
        (lambda: command(np.eye(2), TASK, secondary=[1.0, 2.0, 3.0]), r"secondary must have shape \(2,\)"),
        (lambda: command(np.eye(2), TASK, P=np.eye(2)), r"P must be a number or have shape \(1,\)"),
        (lambda: command(np.eye(2), uk.AccelerationConstraint([[1.0, 0.0]], [0.0]), P=1.0), "no error in velocities"),
        (lambda: uk.System(FREE).command(0.0, np.zeros(2), np.zeros(2)), "this system has no control"),
        (lambda: feedback([1.0, 2.0]), r"law must have shape \(1,\)"),
    ],
)
def test_bad_input_raises(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def command(B, task, **options):
    system = uk.System(FREE, control=uk.control.Servo(B, task, **options))
    return system.command(0.0, np.zeros(2), np.zeros(2))


def feedback(law):
    system = uk.System(FREE, control=uk.control.Feedback([[1.0], [0.0]], law))
    return system.command(0.0, np.zeros(2), np.zeros(2))


def test_exceeded_actuator_limit_gives_a_warning_with_its_time():
    swing = uk.System(
        uk.MassForce([[2.0]], [0.0]),
        control=uk.control.Servo(
            [[1.0]], uk.Holonomic(lambda t, q: q - t**3, name="path"), limits=[7.0], inputs=[("motor", "N")]
        ),
    )
    with pytest.warns(
        UserWarning, match=r"actuator 'motor' .* limit of 7 N, first at t = 0.75 s; its largest value is 12 N"
    ):
        uk.simulate(swing, [0.0], [0.0], [0.0, 0.25, 0.5, 0.75, 1.0])

"""Sampled control against the exact discretisation of a linear system, by matrix exponentials."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import ukjax as uk

M, K = np.diag([1.0, 2.0]), np.array([[3.0, -1.0], [-1.0, 1.5]])
D, B, GAINS = 0.1 * K, np.array([[1.0], [0.0]]), np.array([2.0, -0.5, 1.0, 0.3])
START = np.array([0.3, -0.2, 0.1, 0.5])
PERIOD, END = 0.1, 2.05
TS = np.array([0.0, 0.55, END])


def discrete(T):
    """x(t + T) = Φ x(t) + Γ u for a constant u."""
    zero = np.zeros((2, 2))
    A = np.block([[zero, np.eye(2)], [-np.linalg.solve(M, K), -np.linalg.solve(M, D)]])
    matrix = np.block([[A, np.vstack([np.zeros((2, 1)), np.linalg.solve(M, B)])], [np.zeros((1, 5))]])
    both = scipy.linalg.expm(matrix * T)
    return both[:4, :4], both[:4, 4]


def exact(x, delay, gain=1.0, begin=0.0, end=END):
    """Return x and u at the end, by matrix exponentials between samples and changes of the input."""
    instants = [begin, *np.arange(np.floor(begin / PERIOD) + 1, end / PERIOD + 1e-9) * PERIOD]
    events = sorted([(s, "sample") for s in instants] + [(s + delay, "act") for s in instants] + [(end, "end")])
    t, u, pending = begin, 0.0, []
    for event, kind in sorted(events, key=lambda each: (round(each[0], 9), each[1] != "sample")):
        if event > end + 1e-9:
            break
        phi, gamma = discrete(event - t)
        x, t = phi @ x + gamma * u, event
        if kind == "sample":
            pending.append(-gain * GAINS @ x)
        if kind == "act":
            u = pending.pop(0)
    return x, u


def system(delay, gain: Any = 1.0, period=PERIOD):
    dynamics = uk.MassForce(lambda t, q: jnp.array(M), lambda t, q, v: -jnp.array(K) @ q - jnp.array(D) @ v)
    law = uk.control.Feedback(B, lambda t, q, v: -gain * jnp.array(GAINS[None]) @ jnp.concatenate([q, v]))
    return uk.System(dynamics, (), control=uk.control.Sampled(law, period, delay))


@pytest.mark.parametrize(
    ("delay", "options"),
    ((0.0, {"dt": 0.01}), (0.03, {"rtol": 1e-12}), (0.25, {"dt": 0.01})),
    ids=("none", "short", "long"),
)
def test_sampled_motion_matches_the_exact_discretisation(delay, options):
    motion: Any = uk.simulate(system(delay), START[:2], START[2:], TS, **options)
    x, u = exact(START, delay)
    np.testing.assert_allclose(np.concatenate([motion.q[-1], motion.v[-1]]), x, atol=1e-12)
    np.testing.assert_allclose(motion.control[-1], [u], atol=1e-12)
    x, u = exact(START, delay, end=0.55)
    np.testing.assert_allclose(np.concatenate([motion.q[1], motion.v[1]]), x, atol=1e-12)
    np.testing.assert_allclose(motion.control[1], [u], atol=1e-12)
    assert motion.plan.integrator == "sampled" and motion.finished


class Sampled(uk.AbstractSystem):
    """The system with its gain as a parameter."""

    gain: jax.Array
    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self):
        return system(0.0).dynamics

    @property
    def control(self):
        return system(0.03, self.gain).control


@pytest.mark.slow
def test_gain_of_sampled_control_is_fitted():
    """The records are those of the exact discretisation."""
    times = np.array([0.04, 0.3, 0.62, 1.0, 1.37, 1.9])
    y = np.array([exact(START, 0.03, 1.3, begin=times[0], end=t)[0][:2] for t in times])
    record = uk.Experiment(times, y, (START[:2], START[2:]))
    found = uk.fit(Sampled(jnp.array(1.0)), [record, record], "gain", fit_starts=False)
    np.testing.assert_allclose(found.values, [1.3], rtol=1e-8)
    assert found.integration.rtol == 1e-9 and found.integration.negligible


def test_start_between_two_samples():
    motion = uk.simulate(system(0.03), START[:2], START[2:], [0.04, END], dt=0.01)
    np.testing.assert_allclose(motion.q[-1], exact(START, 0.03, begin=0.04)[0][:2], atol=1e-12)


def test_times_of_1e8_give_the_same_motion_as_near_zero():
    """Rounding of the times is larger than a billionth of the period. The law is time-invariant."""
    late = 1e8 + np.arange(0.0, 2.0, 0.1)  # differs from multiples of the period by rounding
    motion: Any = uk.simulate(system(0.2), START[:2], START[2:], late, dt=0.02)
    near: Any = uk.simulate(system(0.2), START[:2], START[2:], np.arange(20) * PERIOD, dt=0.02)
    np.testing.assert_allclose(motion.q, near.q, atol=1e-6)
    np.testing.assert_allclose(motion.control, near.control, atol=1e-6)


@pytest.mark.slow
def test_runge_kutta_has_order_four_across_samples():
    """The error falls by 2⁴ where the step is halved."""
    errors = []
    for dt in (0.05, 0.025):
        motion = uk.simulate(system(0.05), START[:2], START[2:], [0.0, END], dt=dt, solver=uk.RungeKutta4())
        errors.append(np.linalg.norm(motion.q[-1] - exact(START, 0.05)[0][:2]))
    assert 14 < errors[0] / errors[1] < 18


@pytest.mark.parametrize("options", (pytest.param({"rtol": 1e-11}, marks=pytest.mark.slow), {"dt": 0.01}))
def test_derivatives_by_start_and_gain_match_differences_of_closed_form(options):

    def end(x, gain):
        return uk.simulate(system(0.03, gain), x[:2], x[2:], TS, **options).q[-1, 0]

    h = 1e-6
    of_start = [(exact(START + d, 0.03)[0][0] - exact(START - d, 0.03)[0][0]) / (2 * h) for d in h * np.eye(4)]
    of_gain = (exact(START, 0.03, 1 + h)[0][0] - exact(START, 0.03, 1 - h)[0][0]) / (2 * h)
    reverse = jax.grad(end, argnums=(0, 1))(jnp.array(START), 1.0)
    np.testing.assert_allclose(reverse[0], of_start, rtol=1e-7)
    np.testing.assert_allclose(reverse[1], of_gain, rtol=1e-7)
    if "rtol" in options:
        np.testing.assert_allclose(jax.jacfwd(lambda gain: end(jnp.array(START), gain))(1.0), of_gain, rtol=1e-7)


def test_batch_matches_the_exact_discretisation():
    starts = np.random.default_rng(0).normal(size=(5, 4))
    batch: Any = uk.simulate(system(0.25), starts[:, :2], starts[:, 2:], TS, dt=0.01)
    np.testing.assert_allclose(batch.q[:, -1], [exact(x, 0.25)[0][:2] for x in starts], atol=1e-12)
    np.testing.assert_allclose(batch.control[:, -1, 0], [exact(x, 0.25)[1] for x in starts], atol=1e-12)
    assert batch[1].control.shape == (3, 1)


@pytest.mark.parametrize("delay", (0.25, pytest.param(0.0, marks=pytest.mark.slow)))
def test_repeated_steps_match_the_exact_discretisation(delay):
    starts = np.stack([START, 2 * START])
    model = system(delay)
    state = uk.initial_state(model, starts[:, :2], starts[:, 2:])
    for _ in range(41):
        state = uk.step(model, state, 0.05, steps=5)
    reached = np.concatenate([state.q, state.v], axis=1)
    np.testing.assert_allclose(reached, [exact(x, delay)[0] for x in starts], atol=5e-9)


def test_sampled_control_begins_anew_after_steps_with_inputs():
    """q̈ = u with u = 1 + t, one period late: 0 at first, and then 1 + t of the last instant."""
    law = uk.control.Feedback([[1.0]], lambda t, q, v: 1 + t[None])
    cart = uk.System(uk.MassForce(jnp.eye(1), jnp.zeros(1)), control=uk.control.Sampled(law, PERIOD, PERIOD))
    state, speeds = uk.initial_state(cart, [0.0], [0.0]), []
    for u in (None, None, [0.0], [0.0], [0.0], None, None, None):
        state = uk.step(cart, state, PERIOD, u=u)
        speeds.append(float(state.v[0]))
    inputs = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.5, 1.6])
    np.testing.assert_allclose(speeds, np.cumsum(inputs) * PERIOD, atol=1e-14)


def test_position_servo_with_a_sampled_target_acts_continuously():
    """Between samples of the target, the cart oscillates about it with ω² = kp/m = 9."""
    cart = {"cart": uk.Body(2.0, (0, 0, 0), (1, 1, 1))}
    rail = {"rail": uk.joints.Prismatic("ground", "cart", axis="x")}
    robot = uk.Mechanism(cart, rail, actuators=[uk.Actuator.position("servo", "rail", kp=18.0)])
    target = uk.control.Sampled(robot.motors(lambda t, q, v: jnp.where(t < 0.5, 0.1, 0.2)[None]), 1.0)
    motion: Any = uk.simulate(robot.driven(target), [0.0], [0.0], [0.0, 0.9, 1.9], rtol=1e-11)
    before, speed = 0.1 * (1 - np.cos(3.0)), 0.3 * np.sin(3.0)
    after = 0.2 + (before - 0.2) * np.cos(2.7) + speed / 3 * np.sin(2.7)
    np.testing.assert_allclose(motion.q[1:, 0], [0.1 * (1 - np.cos(2.7)), after], atol=1e-9)
    np.testing.assert_allclose(motion.motors.force[:, 0], 18 * (motion.control[:, 0] - motion.q[:, 0]), atol=1e-12)


FRICTION, GRAVITY = 0.3, 9.81


def block(lift=12.0):
    """A block of 1 kg on a rough table, under a sampled force: it sticks, slips from 0.2 s, and lifts off at 0.4 s."""
    dynamics = uk.MassForce(jnp.eye(2), jnp.array([0.0, -GRAVITY]))
    law = lambda t, q, v: jnp.array([jnp.where(t < 0.15, 1.0, 4.0) - 0.5 * v[0], jnp.where(t < 0.35, 5.0, lift)])
    table = uk.Unilateral(lambda t, q: q[1], friction=FRICTION, slip=lambda t, q, v: v[0])
    return uk.System(dynamics, table, control=uk.control.Sampled(uk.control.Feedback(jnp.eye(2), law), 0.1))


def block_in_closed_form(end, lift=12.0):
    """(x, z), (dx, dz) and u at the end: accelerations are constant between instants."""
    x, dx, t, u = 0.0, 0.0, 0.0, 0.0
    while t < end - 1e-9:
        u = np.array([(1.0 if t < 0.15 else 4.0) - 0.5 * dx, 5.0 if t < 0.35 else lift])
        normal, h = max(GRAVITY - u[1], 0.0), min(0.1, end - t)
        a = 0.0 if dx == 0 and abs(u[0]) <= FRICTION * normal else u[0] - FRICTION * normal
        x, dx, t = x + dx * h + a * h**2 / 2, dx + a * h, round((t + h) * 1e9) / 1e9
    flight = max(end - 0.4, 0.0)
    return np.array([x, (lift - GRAVITY) * flight**2 / 2]), np.array([dx, (lift - GRAVITY) * flight]), u


@pytest.mark.parametrize(
    "options",
    ({"dt": 0.05}, {"dt": 0.05, "solver": uk.MoreauJean()}, pytest.param({}, marks=pytest.mark.slow)),
    ids=("fixed", "MoreauJean", "adaptive"),
)
def test_sampled_force_moves_and_lifts_a_block(options):
    """Contact and friction change their mode at the instants."""
    motion: Any = uk.simulate(block(), [0.0, 0.0], [0.0, 0.0], [0.0, 0.25, 0.75], **options)
    for i, t in enumerate((0.25, 0.75)):
        q, v, u = block_in_closed_form(t)
        np.testing.assert_allclose([motion.q[i + 1], motion.v[i + 1]], [q, v], atol=1e-11)
        np.testing.assert_allclose(motion.control[i + 1], u, atol=1e-11)
    np.testing.assert_array_equal(motion.contacts.closed[:, 0], [True, True, False])
    np.testing.assert_allclose(motion.contact_force[1], [4.81, -FRICTION * 4.81], atol=1e-11)


def test_derivative_by_a_sampled_force_that_lifts_a_block():
    options: Any = {"dt": 0.05, "solver": uk.MoreauJean()}
    end = lambda lift: uk.simulate(block(lift), [0.0, 0.0], [0.0, 0.0], [0.0, 0.75], **options).q[-1, 1]
    np.testing.assert_allclose(jax.grad(end)(12.0), 0.35**2 / 2, rtol=1e-12)


@pytest.mark.slow
def test_derivative_of_steps_that_end_at_instants_and_changes_of_contact():
    end = lambda lift: uk.simulate(block(lift), [0.0, 0.0], [0.0, 0.0], [0.0, 0.75], dt=0.05).q[-1, 1]
    np.testing.assert_allclose(jax.grad(end)(12.0), 0.35**2 / 2, rtol=1e-12)


def test_step_with_contact_samples_the_law():
    model = block()
    state = uk.initial_state(model, [[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2)
    for _ in range(15):
        state = uk.step(model, state, 0.05, solver=uk.MoreauJean())
    np.testing.assert_allclose(state.q, [block_in_closed_form(0.75)[0]] * 2, atol=1e-11)


def test_instants_of_a_system_with_contacts_use_its_kinematic_map():
    """q̇ = 2 w and ẇ = u, with u = −q − q̇ held for 0.1 s. The friction force, which has no size, changes nothing."""
    law = uk.control.PID([[1.0]], lambda t, q: q, kp=1.0, kd=1.0)
    cart = uk.System(
        uk.MassForce(jnp.eye(1), jnp.zeros(1)),
        uk.Coulomb(lambda t, q, v: v, 0.0),
        control=uk.control.Sampled(law, PERIOD),
        kinematic_map=lambda q, v: 2 * v,
        velocities=[("w", "1/s")],
    )
    q, w = 1.0, 0.3
    for _ in range(4):
        u = -q - 2 * w
        q, w = q + 2 * (w * PERIOD + u * PERIOD**2 / 2), w + u * PERIOD
    motion = uk.simulate(cart, [1.0], [0.3], [0.0, 4 * PERIOD], dt=0.05)
    np.testing.assert_allclose([motion.q[-1, 0], motion.v[-1, 0]], [q, w], atol=1e-12)


@pytest.mark.parametrize("switch", (0.5, 0.53))
def test_steps_of_a_sampled_motion_end_at_switching_times(switch):
    """A force of 1 N begins at an instant, or between two. Steps of order 4 are exact for a constant force."""
    force = lambda t, q, v: jnp.where(t < switch, 0.0, 1.0)[None]
    idle = uk.control.Sampled(uk.control.Feedback([[1.0]], jnp.zeros(1)), PERIOD)
    cart = uk.System(uk.MassForce(jnp.eye(1), force), control=idle)
    motion = uk.simulate(cart, [0.0], [0.0], [0.0, switch, 1.0], dt=PERIOD, solver=uk.RungeKutta4(), switches=[switch])
    np.testing.assert_allclose(motion.q[:, 0], [0, 0, (1 - switch) ** 2 / 2], rtol=0, atol=1e-14)


def test_steps_in_float32_sample_at_each_instant():
    """The sum of many steps of 0.01 s has rounding errors that are larger than a millionth of the period."""
    law = uk.control.Feedback(np.ones((1, 1), np.float32), lambda t, q, v: -v)
    cart = uk.System(
        uk.MassForce(np.eye(1, dtype=np.float32), np.zeros(1, np.float32)), control=uk.control.Sampled(law, 0.01)
    )
    advance = jax.jit(lambda state: uk.step(cart, state, 0.01))
    state = uk.initial_state(cart, np.zeros(1, np.float32), np.ones(1, np.float32))
    for _ in range(500):
        state = advance(state)
    assert state.v.dtype == np.float32
    np.testing.assert_allclose(state.v, 0.99**500, rtol=1e-4)


def test_event_of_a_sampled_motion():
    """The motion ends where q1 falls to 0.05, and an event that does not end it is recorded."""
    below = uk.Event(lambda t, q, v: q[0] - 0.05, name="below")
    fast = uk.Event(lambda t, q, v: v[0] + 0.2, name="fast", ends=False)
    motion: Any = uk.simulate(system(0.25), START[:2], START[2:], TS, dt=0.01, event=[below, fast])
    state = lambda t: exact(START, 0.25, end=t)
    at: Any = scipy.optimize.brentq(lambda t: state(t)[0][0] - 0.05, 0.5, 1.5, xtol=1e-14)
    np.testing.assert_allclose(motion.last[0], at, atol=1e-12)
    np.testing.assert_allclose(np.append(motion.q[-1], motion.v[-1]), state(at)[0], atol=1e-11)
    np.testing.assert_allclose(motion.control[-1], [state(at)[1]], atol=1e-11)
    at = scipy.optimize.brentq(lambda t: state(t)[0][2] + 0.2, 0.1, at, xtol=1e-14)
    np.testing.assert_allclose(motion.events.times("fast")[0], at, atol=1e-11)


def test_current_of_a_motor_is_integrated_between_instants():
    """L di/dt = u − R i − K v, with a sampled voltage u."""
    dynamics = uk.MassForce(2 * jnp.eye(1), lambda t, q, v: -3 * q - 0.2 * v)
    law = uk.control.Feedback(jnp.eye(1), lambda t, q, v: -2 * q - v)
    motor = uk.control.DCMotor(law, resistance=1.3, inductance=0.2, constant=0.7)
    robot = uk.System(dynamics, control=uk.control.Sampled(motor, PERIOD))
    A = np.array([[0, 1, 0, 0], [-1.5, -0.1, 0.35, 0], [0, -3.5, -6.5, 5], [0, 0, 0, 0]])
    x = np.array([0.4, 0.0, 0.0, 0.0])
    for _ in range(10):
        x[3] = -2 * x[0] - x[1]
        x = scipy.linalg.expm(A * PERIOD) @ x
    motion: Any = uk.simulate(robot, [0.4], [0.0], [0.0, 1.0], dt=0.01)
    np.testing.assert_allclose([*motion.q[-1], *motion.v[-1]], x[:3], atol=1e-12)
    np.testing.assert_array_equal(motion.states["current u1"], motion.v[:, 1])


sampled_control: Any = system(0.0).control


def fit_sampled(**options):
    record = uk.Experiment(TS, np.zeros((3, 2)), np.tile(START, (3, 1)))
    return uk.fit(Sampled(jnp.array(1.0)), record, "gain", **options)


@pytest.mark.parametrize(
    ("wrong", "message"),
    (
        (lambda: uk.control.Sampled(lambda t, q, v: 0, 0.1), "law must be a control of ukjax.control.* got function"),
        (lambda: uk.control.Sampled(sampled_control, 0.1), "got a sampled one"),
        (lambda: system(0.0, period=0.0), r"period must be one number \[s\] above 0"),
        (lambda: system(-0.1), r"delay must be one number \[s\] not below 0"),
        (
            lambda: jax.jit(lambda ts: uk.simulate(system(0.0), START[:2], START[2:], ts).q)(TS),
            "ts and dt must be numbers",
        ),
        (
            lambda: uk.simulate(system(0.0), START[:2], START[2:], TS, progress=True),
            "sampled control, ukjax.control.Sampled, is not available with progress",
        ),
        (lambda: fit_sampled(segments=2), "segments must be 1 for a system with sampled control"),
        (lambda: fit_sampled(dt=0.01), "dt is not available for a system with sampled control"),
        (lambda: uk.linearize(system(0.0), START[:2]), "linearize is not available for systems with sampled control"),
        (lambda: uk.equilibrium(system(0.0), near=START[:2]), "equilibrium is not available"),
        (lambda: uk.monodromy(system(0.0), START[:2], START[2:], 1.0), "monodromy is not available"),
        (
            lambda: uk.simulate(system(0.0), START[:2], START[2:], [1e15, 1e15 + 1], dt=0.1),
            "ts are so large that float64 does not resolve the period, 0.1 s",
        ),
        (
            lambda: uk.step(system(0.0), uk.initial_state(system(0.0), START[:2], START[2:]), 0.03),
            r"dt / steps = 0.03 s does not divide the period, 0.1 s",
        ),
        (
            lambda: jax.jit(lambda state: uk.step(system(0.0), state, 0.03))(
                uk.initial_state(system(0.0), START[:2], START[2:])
            ),
            r"dt / steps = 0.03 s does not divide the period, 0.1 s",
        ),
        (
            lambda: uk.step(system(0.0), uk.initial_state(system(0.0), START[:2], START[2:], 0.05), 0.1),
            r"dt / steps = 0.1 s does not divide the first time of the state, 0.05 s",
        ),
        (
            lambda: uk.step(
                system(0.0),
                uk.step(system(0.0), uk.initial_state(system(0.0), START[:2], START[2:]), PERIOD / 4),
                PERIOD,
            ),
            r"dt / steps = 0.1 s does not divide the time of the state, 0.025 s",
        ),
        (
            lambda: uk.simulate(system(0.0), START[:2], START[2:], TS, dt=0.1)(0.3),
            "is not available with sampled control",
        ),
    ),
)
def test_bad_input_raises(wrong, message):
    with pytest.raises(uk.InputError, match=message):
        wrong()

"""Sampled control against the exact discretisation of a linear system, by matrix exponentials."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

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


def system(delay, gain=1.0, period=PERIOD):
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


sampled_control: Any = system(0.0).control


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
            lambda: uk.simulate(system(0.0), START[:2], START[2:], TS, event=lambda t, q, v: q[0]),
            "sampled control, ukjax.control.Sampled, is not available with event",
        ),
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
            lambda: uk.simulate(system(0.0), START[:2], START[2:], TS, dt=0.1)(0.3),
            "is not available with sampled control",
        ),
    ),
)
def test_bad_input_raises(wrong, message):
    with pytest.raises(uk.InputError, match=message):
        wrong()

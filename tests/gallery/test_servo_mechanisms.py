"""Cart-pole and mobile robot against separate equations of motion in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

TIGHT: Any = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(scope="module")
def cart():
    mechanism = uk.systems.CartPole()
    q0, v0 = uk.project(mechanism, 0.0, *mechanism.start())
    return mechanism, uk.simulate(mechanism, q0, v0, jnp.linspace(0, 4, 41), **TIGHT)


def test_pole_follows_its_task_and_cart_matches_its_equations(cart):
    """The equation of the pole, m l (ẍ cos θ + l θ̈ − g sin θ) = 0, gives ẍ. Both equations give F."""
    _, motion = cart
    M, m, l, g = 1.0, 0.1, 0.5, 9.81
    theta = lambda t: (0.2 * np.sin(3 * t), 0.6 * np.cos(3 * t), -1.8 * np.sin(3 * t))

    def cart_acceleration(t):
        angle, _, turning = theta(t)
        return (g * np.sin(angle) - l * turning) / np.cos(angle)

    t = np.asarray(motion.t)
    start = [0.0, float(motion.v[0, 0])]
    path = solve_ivp(lambda t, y: [y[1], cart_acceleration(t)], (0, 4), start, "DOP853", t, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(motion.q, np.stack([path.y[0], theta(t)[0]], axis=1), rtol=0, atol=1e-8)
    angle, rate, turning = theta(t)
    F = (M + m) * cart_acceleration(t) + m * l * (turning * np.cos(angle) - rate**2 * np.sin(angle))
    np.testing.assert_allclose(motion.control[:, 0], F, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(motion.residual, 0, rtol=0, atol=1e-12)
    assert np.ptp(path.y[0]) < 2  # with this start it oscillates and does not drift away


def test_run_command_cart_pole(check_run):
    check_run("cart_pole", 41)


def test_task_of_a_level_pole_is_unreachable():
    mechanism = uk.systems.CartPole()
    command = jax.jit(lambda *state: mechanism.command(*state))(0.0, jnp.array([0.0, np.pi / 2]), jnp.zeros(2))
    assert int(command.rank) == 0
    np.testing.assert_allclose(command.unreachable, command.wanted)


@pytest.fixture(scope="module")
def robot():
    mechanism = uk.systems.MobileRobot()
    q0, v0 = uk.project(mechanism, 0.0, *mechanism.start())
    return mechanism, uk.simulate(mechanism, q0, v0, jnp.linspace(0, 12, 61), **TIGHT)


@pytest.mark.slow
def test_robot_follows_a_figure_of_eight(robot):
    """The heading satisfies θ̇ = (ẏ_p cos θ − ẋ_p sin θ)/d; wheel angles and torques follow from it."""
    _, motion = robot
    m, J, Jw, r, b, d = 10.0, 0.4, 0.005, 0.05, 0.15, 0.1
    t = np.asarray(motion.t)
    velocity = lambda t: (0.5 * np.cos(0.5 * t), 0.5 * np.cos(t))
    acceleration = lambda t: (-0.25 * np.sin(0.5 * t), -0.5 * np.sin(t))

    def rates(t, y):
        (vx, vy), s, c = velocity(t), np.sin(y[0]), np.cos(y[0])
        forward, turning = vx * c + vy * s, (vy * c - vx * s) / d
        return [turning, (forward + b * turning) / r, (forward - b * turning) / r]

    y = solve_ivp(rates, (0, 12), [np.pi / 4, 0, 0], "DOP853", t, rtol=1e-13, atol=1e-13).y
    theta = y[0]
    middle = np.stack([np.sin(0.5 * t) - d * np.cos(theta), 0.5 * np.sin(t) - d * np.sin(theta)])
    np.testing.assert_allclose(motion.q, np.vstack([middle, y]).T, rtol=0, atol=1e-8)

    (vx, vy), (ax, ay), s, c = velocity(t), acceleration(t), np.sin(theta), np.cos(theta)
    turning = (vy * c - vx * s) / d
    speeding = ax * c + ay * s + turning * (vy * c - vx * s)
    twisting = (ay * c - ax * s - turning * (vx * c + vy * s)) / d
    # Newton and Euler for the robot: wheel forces give m·speeding and J·twisting; torques also accelerate the wheels.
    push, twist = m * speeding / 2, J * twisting / (2 * b)
    right = r * (push + twist) + Jw * (speeding + b * twisting) / r
    left = r * (push - twist) + Jw * (speeding - b * twisting) / r
    np.testing.assert_allclose(motion.control, np.stack([right, left], axis=1), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(motion.residual, 0, rtol=0, atol=1e-12)
    assert motion.residual.shape[1] == 5


@pytest.mark.slow
def test_run_command_mobile_robot(check_run):
    check_run("mobile_robot", 61)


@pytest.mark.slow
def test_sideways_task_at_the_axle_centre_is_unreachable(robot):
    mechanism, _ = robot
    at_the_axle = uk.systems.MobileRobot(d=0.0)
    q, v = mechanism.start()
    command = jax.jit(lambda t: at_the_axle.command(t, q, v))
    assert int(command(0.0).rank) == 1
    sideways = np.array([-np.sin(float(q[2])), np.cos(float(q[2]))])
    missed = np.asarray(command(1.0).unreachable)
    assert np.abs(missed @ sideways) == pytest.approx(np.linalg.norm(missed), abs=1e-12)

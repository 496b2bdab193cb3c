"""Joints that dry friction holds, and that creep."""

import warnings

import numpy as np
import pytest

import ukjax as uk

MASS, ARM, FRICTION = 0.02, 0.03, 0.01
LOAD = MASS * 9.81 * ARM


def finger(**how):
    """Level, on a knuckle whose friction is larger than the torque of its weight."""
    body = uk.Body(MASS, inertia=[1e-6] * 3)
    joint = uk.joints.Revolute("ground", "tip", axis=[0, 1, 0], to=[-ARM, 0, 0], friction=FRICTION, **how)
    return uk.Mechanism({"tip": body}, {"knuckle": joint})


def test_a_joint_that_friction_should_hold_says_how_far_it_crept():
    """At the rate at which the friction is as large as the load: creep · artanh(load / friction)."""
    width = 0.05
    exact = width * np.arctanh(LOAD / FRICTION) * 0.2
    with pytest.warns(
        UserWarning, match=r"'knuckle' is held by dry friction and creeps, by .*smooth below its creep"
    ) as told:
        found = uk.simulate(finger(creep=width), [0.0], [0.0], np.linspace(0, 0.2, 11), dt=5e-5)
    assert float(found.q[-1, 0]) == pytest.approx(exact, rel=0.1)
    said = float(str(told[0].message).split("creeps, by ")[1].split(":")[0])
    assert said == pytest.approx(exact, rel=0.1)


def test_steps_that_are_too_long_for_friction_are_told():
    with pytest.warns(UserWarning, match=r"'knuckle' is held .* steps of dt = 0\.001 s are too long for its friction"):
        uk.simulate(finger(), [0.0], [0.0], np.linspace(0, 0.5, 11), dt=1e-3)


def test_a_joint_that_slides_or_is_not_loaded_is_not_told():
    level = uk.Mechanism(
        {"cart": uk.Body(1.0, inertia=[1.0] * 3)},
        {"rail": uk.joints.Prismatic("ground", "cart", axis=[1, 0, 0], friction=0.5, creep=0.01)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uk.simulate(level, [0.0], [1.0], np.linspace(0, 1.0, 11), dt=1e-3)
        uk.simulate(level, [0.0], [0.0], np.linspace(0, 1.0, 11), dt=1e-3)

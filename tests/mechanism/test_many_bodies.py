"""What is alike in a mechanism is computed together: programs that do not grow, slopes that nobody has to search."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Gear, Revolute, Rolling, Spherical

LINES = 1200
"""Of the humanoid's equations of motion, 1099 when this was written, and more than ten times that link by link."""


def lines(mechanism):
    """How long the program of its matrices is, but for the arguments that bring its numbers."""
    q, v = mechanism.reference_pose()
    function = eqx.filter_jit(lambda mechanism, q, v: vars(mechanism(0.0, q, v)))
    text = function.lower(mechanism, q, v).as_text().split("\n")
    return sum("stablehlo." in line and "reshape" not in line and "broadcast_in_dim" not in line for line in text)


def chain(links, absolute=False):
    """Links with balls between them, the last one hinged to the ground."""
    bodies = {f"link{i}": uk.Body(1.0, (0, 0, -0.5), (0.1, 0.1, 0.01)) for i in range(links)}
    ends = ["ground", *bodies]
    joints: dict[str, Any] = {
        f"ball{i}": Spherical(ends[i], ends[i + 1], at=(0, 0, -1.0) if i else None) for i in range(links)
    }
    joints["far"] = Revolute("ground", ends[-1], axis="x", at=(0, 0, 0.5 - links), to=(0, 0, -0.5))
    return uk.Mechanism(bodies, joints, formulation="absolute" if absolute else "joint")


@pytest.mark.parametrize("absolute", (False, True))
def test_programs_do_not_grow_with_bodies(absolute):
    assert lines(chain(12, absolute)) == lines(chain(5, absolute))


@pytest.mark.filterwarnings("ignore:.*not modelled")
def test_thirty_joints_are_one_short_program():
    assert lines(uk.load(uk.robots.path("humanoid"))) < LINES


def carried_loop():
    """A four-bar whose frame hangs on a ball, a wheel that is geared to it and rolls: all at once."""
    rod = uk.Body(1.0, (0.5, 0, 0), (0.01, 0.1, 0.1))
    bodies = {"frame": uk.Body(2.0, (0.3, 0.1, 0.2), (0.3, 0.2, 0.4, 0.01, 0.02, 0.03))}
    bodies |= {"crank": rod, "coupler": rod, "rocker": rod, "wheel": uk.Body(1.0, inertia=(0.1, 0.2, 0.1))}
    joints = {
        "ball": Spherical("ground", "frame", at=(0.3, 0.2, 0.4), turn=(0.3, 0.2, 0.1)),
        "motor": Revolute("frame", "crank", axis="y"),
        "pin": Revolute("crank", "coupler", axis="y", at=(1.0, 0, 0), reference=-0.9),
        "pivot": Revolute("frame", "rocker", axis="y", at=(0.9, 0, 0.2), reference=-0.8),
        "axle": Revolute("frame", "wheel", axis="y", at=(0, -0.5, 0)),
        "closing": Revolute("rocker", "coupler", axis="y", at=(1.0, 0, 0), to=(1.0, 0, 0)),
        "tooth": Gear("axle", "motor", ratio=-2.0),
        "rim": Rolling("ground", "wheel", radius=0.3),
    }
    return uk.Mechanism(bodies, joints)


@pytest.mark.slow
def test_slopes_are_those_of_what_is_written(rng):
    mechanism, kinematic_map = carried_loop(), cast(Callable, carried_loop().kinematic_map)
    q = mechanism.reference_pose()[0] + 0.3 * rng.normal(size=mechanism.tree.nq)
    v, w = jnp.asarray(0.3 * rng.normal(size=(2, mechanism.tree.n)))
    t = jnp.zeros(())
    close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    @jax.jit
    def found_and_expected(q, v, w):
        along = lambda q: mechanism.velocity_residual(t, q, v)
        slope, terms = mechanism.velocity_slope(t, q, v), mechanism(t, q, v)
        position = jax.jvp(lambda q: mechanism.position_residual(t, q), (q,), (kinematic_map(q, w),))[1]
        return (
            (mechanism.position_slope(t, q, v) @ w, position),
            (slope @ w, jax.jvp(lambda v: mechanism.velocity_residual(t, q, v), (v,), (w,))[1]),
            (terms.b, -jax.jvp(along, (q,), (kinematic_map(q, v),))[1]),
            (terms.A, slope),
        )

    for found, expected in found_and_expected(q, v, w):
        close(found, expected)


def test_what_carries_a_loop_has_no_part_in_it(rng):
    """Not by rounding either: what is redundant in the plane of a loop stays exactly that, wherever it is carried."""
    mechanism = carried_loop()
    q = mechanism.reference_pose()[0] + 0.3 * rng.normal(size=mechanism.tree.nq)
    slope = jax.jit(lambda q, v: mechanism.velocity_slope(jnp.zeros(()), q, v))
    A = np.asarray(slope(q, jnp.zeros(mechanism.tree.n)))
    names = [name for constraint in mechanism.constraints for name in constraint.name]
    assert np.all(A[[names.index(f"closing {row}") for row in ("y", "tilt 1", "tilt 2")]] == 0)
    assert np.all(A[names.index("closing x"), :3] == 0) and np.all(A[names.index("closing x"), 3:6] != 0)


@pytest.mark.slow
def test_a_start_in_single_precision():
    """Where rounding once left a row of nothing, that counted for positions and not for velocities, and no end."""
    script = """
import warnings, numpy as np, ukjax as uk
warnings.simplefilter("ignore")
leg = uk.load(uk.robots.path("leg"))
q, v = leg.start()
print(q.dtype, np.max(np.abs(leg.position_residual(0.0, q))) < 1e-6)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["float32", "True"]


@pytest.mark.slow
def test_a_start_is_the_nearest_to_the_rates_that_are_given():
    """Weighted least squares with the masses, subject to A v = 0 and the rate of the motor."""
    mechanism = carried_loop()
    q, v = mechanism.start(velocities={"motor": 2.0})
    motor = list(dict(mechanism.velocities)).index("dmotor")
    assert v[motor] == pytest.approx(2.0, abs=1e-12)
    terms = mechanism(0.0, q, np.zeros(v.size))
    given = 2.0 * np.eye(v.size)[motor]
    rows, root = np.vstack([terms.A, np.eye(v.size)[motor]]), np.linalg.inv(np.linalg.cholesky(terms.M)).T
    missing = np.append(np.zeros(len(terms.A)), 2.0) - rows @ given
    expected = given + root @ np.linalg.lstsq(rows @ root, missing, rcond=1e-10)[0]
    np.testing.assert_allclose(v, expected, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_rates_that_nothing_allows_are_told():
    """A wheel that is geared to a crank stands on the ground, and its axle stays: it would have to slip."""
    joints = {
        "motor": Revolute("ground", "crank", axis="y"),
        "axle": Revolute("ground", "wheel", axis="y", at=(0, 0, 0.3)),
        "tooth": Gear("axle", "motor", ratio=-2.0),
        "rim": Rolling("ground", "wheel", radius=0.3),
    }
    wheel = uk.Body(1.0, inertia=(0.1, 0.2, 0.1))
    with pytest.raises(ValueError, match="'(rim.*|tooth|motor as given)' .velocity."):  # any of which would have to go
        uk.Mechanism({"crank": wheel, "wheel": wheel}, joints).start(velocities={"motor": 2.0})

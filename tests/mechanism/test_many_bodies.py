"""Bodies and joints of the same kind are computed in one batch: program size does not grow, and Jacobians are exact."""

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
"""Limit for the humanoid's equations of motion. They had 1099 lines when this was written, and more than ten times as
many with a separate program for each link."""


def lines(mechanism):
    """Return the number of lines of the program for the mechanism's matrices, without its constant arguments."""
    q, v = mechanism.reference_pose()
    function = eqx.filter_jit(lambda mechanism, q, v: vars(mechanism(0.0, q, v)))
    text = function.lower(mechanism, q, v).as_text().split("\n")
    return sum("stablehlo." in line and "reshape" not in line and "broadcast_in_dim" not in line for line in text)


def chain(links, absolute=False):
    """A chain of links with ball joints; the last one has a hinge to the ground."""
    bodies = {f"link{i}": uk.Body(1.0, (0, 0, -0.5), (0.1, 0.1, 0.01)) for i in range(links)}
    ends = ["ground", *bodies]
    joints: dict[str, Any] = {
        f"ball{i}": Spherical(ends[i], ends[i + 1], at=(0, 0, -1.0) if i else None) for i in range(links)
    }
    joints["far"] = Revolute("ground", ends[-1], axis="x", at=(0, 0, 0.5 - links), to=(0, 0, -0.5))
    return uk.Mechanism(bodies, joints, formulation="absolute" if absolute else "joint")


@pytest.mark.parametrize("absolute", (False, True))
def test_program_size_is_independent_of_the_number_of_bodies(absolute):
    assert lines(chain(12, absolute)) == lines(chain(5, absolute))


@pytest.mark.filterwarnings("ignore:.*not modelled")
def test_program_of_the_humanoid_is_short():
    assert lines(uk.load(uk.robots.path("humanoid"))) < LINES


def carried_loop():
    """A four-bar linkage whose frame hangs on a ball joint, and a wheel geared to it that rolls."""
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
def test_constraint_jacobians_and_b_match_automatic_differentiation(rng):
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


def test_rows_of_a_loop_do_not_depend_on_the_body_that_carries_it(rng):
    """The entries are exactly zero, without rounding error: redundant rows of a plane loop remain exactly redundant."""
    mechanism = carried_loop()
    q = mechanism.reference_pose()[0] + 0.3 * rng.normal(size=mechanism.tree.nq)
    slope = jax.jit(lambda q, v: mechanism.velocity_slope(jnp.zeros(()), q, v))
    A = np.asarray(slope(q, jnp.zeros(mechanism.tree.n)))
    names = [name for constraint in mechanism.constraints for name in constraint.name]
    assert np.all(A[[names.index(f"closing {row}") for row in ("y", "tilt 1", "tilt 2")]] == 0)
    assert np.all(A[names.index("closing x"), :3] == 0) and np.all(A[names.index("closing x"), 3:6] != 0)


@pytest.mark.slow
def test_start_in_single_precision_satisfies_the_constraints():
    """In float32, rounding once left a row of almost zeros, of full rank for positions only, and no start was found."""
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
def test_start_velocities_are_the_mass_weighted_nearest_to_the_requested_ones():
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
def test_start_with_impossible_velocities_raises_and_names_a_constraint():
    """A wheel geared to a crank stands on the ground and its axle is fixed: it would have to slip."""
    joints = {
        "motor": Revolute("ground", "crank", axis="y"),
        "axle": Revolute("ground", "wheel", axis="y", at=(0, 0, 0.3)),
        "tooth": Gear("axle", "motor", ratio=-2.0),
        "rim": Rolling("ground", "wheel", radius=0.3),
    }
    wheel = uk.Body(1.0, inertia=(0.1, 0.2, 0.1))
    with pytest.raises(ValueError, match="'(rim.*|tooth|motor as given)' .velocity."):  # any of which would have to go
        uk.Mechanism({"crank": wheel, "wheel": wheel}, joints).start(velocities={"motor": 2.0})

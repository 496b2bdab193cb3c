"""Jacobians of points, the centre of mass and momentum, against MuJoCo and against derivatives of positions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax import robots

EXACT: Any = dict(rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_jacobian_centre_of_mass_and_momentum_match_mujoco():
    mujoco = pytest.importorskip("mujoco")
    from ..against_mujoco import Compiled, loaded

    path = robots.path("leg")
    leg = loaded(path)
    there = Compiled(path, leg)
    q, v, point = there.q, np.asarray(there.v), np.array([0.03, -0.2, 0.11])
    body = leg.bodies.names[-1]
    i = there.model.body(body).id
    linear, angular = np.zeros((3, there.model.nv)), np.zeros((3, there.model.nv))
    in_space = there.data.xpos[i] + there.data.xmat[i].reshape(3, 3) @ point
    mujoco.mj_jac(there.model, there.data, linear, angular, in_space, i)
    J = leg.jacobian(q, body, point)
    np.testing.assert_allclose(J @ there.N, np.concatenate([linear, angular]), atol=1e-12, rtol=0)
    mujoco.mj_subtreeVel(there.model, there.data)
    mass = there.model.body_subtreemass[0]
    momentum = leg.momentum(q, v)
    np.testing.assert_allclose(leg.centre_of_mass(q), there.data.subtree_com[0], atol=1e-12, rtol=0)
    np.testing.assert_allclose(momentum.linear, mass * there.data.subtree_linvel[0], atol=1e-11, rtol=0)
    np.testing.assert_allclose(momentum.angular, there.data.subtree_angmom[0], atol=1e-11, rtol=0)


def arm():
    """Two links that turn about different axes; the second is not centred on its joint."""
    bodies = {
        "upper": uk.Body(2.0, (0.1, 0, 0.2), (0.1, 0.2, 0.3)),
        "lower": uk.Body(1.0, (0, 0.3, 0), (0.2, 0.1, 0.2)),
    }
    joints = {
        "shoulder": uk.joints.Revolute("ground", "upper", axis="z"),
        "elbow": uk.joints.Revolute("upper", "lower", at=(0.4, 0.1, 0), axis="x"),
    }
    return uk.Mechanism(bodies, joints)


@pytest.mark.slow
def test_jacobian_is_the_derivative_of_position():
    mechanism, q, point = arm(), jnp.array([0.7, -0.4]), jnp.array([0.1, 0.2, 0.3])
    pose = lambda q: mechanism.pose(q)["lower"]
    position = lambda q: pose(q).p + pose(q).R @ point
    J = mechanism.jacobian(q, "lower", point)
    np.testing.assert_allclose(J[:3], jax.jacfwd(position)(q), **EXACT)
    v = jnp.array([0.3, -1.1])
    R, R_dot = jax.jvp(lambda q: pose(q).R, (q,), (v,))
    spin = R_dot @ R.T
    np.testing.assert_allclose(J[3:] @ v, [spin[2, 1], spin[0, 2], spin[1, 0]], **EXACT)
    centre, rate = jax.jvp(mechanism.centre_of_mass, (q,), (v,))
    total = sum(body.mass for _, body in mechanism.bodies.items())
    np.testing.assert_allclose(mechanism.momentum(q, v).linear, total * rate, **EXACT)
    assert centre.shape == (3,)


def test_momentum_of_a_free_body_matches_closed_form():
    """L = R I Rᵀ ω about the centre of mass; it does not depend on the origin of the body's frame."""
    body = uk.Body(2.0, (0.3, -0.1, 0.2), (1.0, 2.0, 3.0))
    mechanism = uk.Mechanism({"stone": body})
    q, _ = mechanism.start()
    v = jnp.array([1.0, 2.0, 3.0, 0.4, 0.5, 0.6])
    momentum = mechanism.momentum(q, v)
    np.testing.assert_allclose(momentum.angular, [0.4, 1.0, 1.8], **EXACT)
    np.testing.assert_allclose(momentum.linear, 2 * (v[:3] + jnp.cross(v[3:], body.centre)), **EXACT)


def test_names_and_shapes_are_checked():
    with pytest.raises(uk.InputError, match="body must be the name of a body, got 'loner'; did you mean 'lower'"):
        arm().jacobian([0.0, 0.0], "loner")
    with pytest.raises(uk.InputError, match="q must have shape"):
        arm().centre_of_mass([0.0])
    with pytest.raises(uk.InputError, match="point must"):
        arm().jacobian([0.0, 0.0], "lower", 1.0)

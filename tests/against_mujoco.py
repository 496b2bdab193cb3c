"""MJCF files: models of ukjax against MuJoCo."""

import re
import warnings
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._rotation import of_quaternion

mujoco = pytest.importorskip("mujoco")

ROUNDING = 1e-12
"""Relative to the largest entry: rounding of two recursions in double precision, for up to thirty bodies."""


def loaded(path, **how) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return uk.load(path, **how)


def word(name):
    return re.sub(r"\W", "_", name).replace("lambda", "lambda_")


class Compiled:
    """The same file in MuJoCo: a state, and the map of velocities, v = N v_mujoco.

    MuJoCo's angular velocities are about body axes, those of ukjax about axes of the joint in the parent. The term Ṅ
    v_mujoco = R (ω × ω) is 0.
    """

    def __init__(self, path, mechanism, qpos=None):
        self.model = mujoco.MjModel.from_xml_path(str(path))
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        self.data = mujoco.MjData(self.model)
        random, tree = np.random.default_rng(3), mechanism.tree
        self.q, self.N = np.zeros(tree.nq), np.zeros((tree.n, self.model.nv))
        self.data.qvel[:] = random.normal(size=self.model.nv)
        links = {link.joint: link for link in mechanism.tree.links}
        for i in range(self.model.njnt):
            joint, body = self.model.joint(i), self.model.body(self.model.jnt_bodyid[i])
            link = links[word(joint.name or body.name)]
            places, turns = {0: (3, True), 1: (0, True)}.get(int(joint.type[0]), (1, False))
            dofs = slice(joint.dofadr[0], joint.dofadr[0] + places + 3 * turns)
            value = self.model.qpos0[joint.qposadr[0] :][:places] + random.normal(size=places) / 2
            block = np.eye(link.size)
            if turns:
                u = random.normal(size=4)
                value = np.concatenate([value, u / np.linalg.norm(u)])
            if qpos is not None:
                value = qpos[joint.qposadr[0] :][: len(value)]
            if turns:
                block[-3:, -3:] = of_quaternion(jnp.asarray(value[-4:]))
            self.data.qpos[joint.qposadr[0] : joint.qposadr[0] + len(value)] = value
            self.q[link.coordinates], self.N[link.velocities, dofs] = value, block
        mujoco.mj_forward(self.model, self.data)
        self.v = self.N @ self.data.qvel

    def mass_matrix(self):
        M = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.data, M)
        return M

    def bias(self):
        return self.data.qfrc_bias - self.data.qfrc_passive


@eqx.filter_jit
def terms(dynamics, q, v):
    return dynamics.terms(jnp.zeros(()), q, v)


def check_against_mujoco(path):
    mechanism = loaded(path)
    there = Compiled(path, mechanism)
    q, v = jnp.asarray(there.q), jnp.asarray(there.v)
    M, Q = terms(mechanism.dynamics, q, v)
    wanted, bias = there.mass_matrix(), there.bias()
    np.testing.assert_allclose(there.N.T @ M @ there.N, wanted, atol=ROUNDING * np.abs(wanted).max(), rtol=0)
    theirs = there.data.qfrc_passive - there.data.qfrc_bias
    acceleration = np.linalg.solve(there.N.T @ M @ there.N, there.N.T @ Q)
    np.testing.assert_allclose(acceleration, np.linalg.solve(wanted, theirs), rtol=1e-9, atol=1e-9)
    ours = -there.N.T @ Q
    np.testing.assert_allclose(ours, bias, atol=ROUNDING * np.abs(bias).max(), rtol=0)
    poses = mechanism.pose(q)
    for i in range(1, there.model.nbody):
        pose = poses.get(word(there.model.body(i).name))
        if pose is not None:
            np.testing.assert_allclose(pose.p, there.data.xpos[i], atol=ROUNDING)
            np.testing.assert_allclose(pose.R.ravel(), there.data.xmat[i], atol=ROUNDING)
    assert len(mechanism.bodies) >= there.model.nbody - 1
    return mechanism

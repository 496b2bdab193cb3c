"""Robots' files: M, bias and accelerations as Pinocchio and MuJoCo have them; worst of three poses, relative.

The mechanisms in ``ukjax/robots``, and every URDF of the package ``example-robot-data`` where that is installed.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.metadata
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin

import ukjax as uk
from ukjax.joints import AbstractCoupling, AbstractJoint

POSES = 3


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rows = []
    for path in corpus():
        try:
            model = pin.buildModelFromUrdf(str(path))
        except ValueError as error:
            rows.append({"file": path.name, "note": f"Pinocchio: {str(error).strip()[:60]}"})
            continue
        rows.append({"file": path.name} | against(path, model))
    return rows


def corpus() -> list[Path]:
    """The URDFs of ``example-robot-data``."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return sorted(Path(str(file.locate())) for file in files if file.suffix == ".urdf")


def against(path: Path, model: Any) -> dict[str, Any]:
    """How far a tree is from Pinocchio's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mechanism = uk.load(path)
    except ValueError as error:
        return {"note": f"refused: {str(error).partition('line ')[2][:100]}"}
    free = without_damping(mechanism)
    data, peer = model.createData(), Peer(model, free)
    worst = {"mass matrix": 0.0, "bias": 0.0, "acceleration": 0.0}
    for q, v in states(model):
        ours = peer.values(q, v)
        M = pin.crba(model, data, q)
        M = np.triu(M) + np.triu(M, 1).T
        bias = np.array(pin.nonLinearEffects(model, data, q, v))
        theirs = {"mass matrix": M, "bias": bias, "acceleration": pin.aba(model, data, q, v, 0 * v)}
        for name, value in theirs.items():
            worst[name] = max(worst[name], relative(getattr(ours, name.replace(" ", "_")), value))
    return {"n": mechanism.tree.n, "bodies": len(mechanism.bodies)} | worst


def without_damping(mechanism: uk.Mechanism) -> uk.Mechanism:
    """The tree alone: what acts along joints, and what couples them, is no part of the others' bias."""
    joints = {name: joint for name, joint in mechanism.joints.items() if not isinstance(joint, AbstractCoupling)}
    plain = {"damping": None, "friction": None, "armature": None, "stiffness": None}
    for joint in joints.values():
        if isinstance(joint, AbstractJoint):
            for field in plain:
                object.__setattr__(joint, field, None)
    return uk.Mechanism(mechanism.bodies, joints, mechanism.gravity)


class Values(NamedTuple):
    mass_matrix: np.ndarray
    bias: np.ndarray
    acceleration: np.ndarray


class Peer:
    """From Pinocchio's q and v to ours: q = ``positions``(q_pin), q̇ = N(q) v_pin."""

    def __init__(self, model: Any, mechanism: uk.Mechanism):
        self.model, self.mechanism = model, mechanism
        names = {re.sub(r"\W", "_", name): i for i, name in enumerate(model.names)}
        self.pairs = [(link, names[link.joint]) for link in mechanism.tree.links if link.size]

    def positions(self, q: np.ndarray) -> np.ndarray:
        found = np.zeros(self.mechanism.tree.n)
        for link, i in self.pairs:
            theirs = q[self.model.idx_qs[i] : self.model.idx_qs[i] + self.model.nqs[i]]
            if link.size == 7:
                theirs = np.array([*theirs[:3], theirs[6], *theirs[3:6]])
            elif theirs.size == 2:
                theirs = [np.arctan2(theirs[1], theirs[0])]
            found[link.coordinates] = theirs
        return found

    def N(self, q: Any) -> Any:
        rows = []
        for link, i in self.pairs:
            first = self.model.idx_vs[i]
            block = jnp.eye(1)
            if link.size == 7:
                w, x, y, z = q[link.first + 3 : link.first + 7]
                block = jax.scipy.linalg.block_diag(
                    jnp.array(
                        [
                            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
                        ]
                    ),
                    jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]) / 2,
                )
            rows.append(jnp.zeros((link.size, self.model.nv)).at[:, first : first + block.shape[1]].set(block))
        return jnp.concatenate(rows)

    def values(self, q: np.ndarray, v: np.ndarray) -> Values:
        """Ours, as Pinocchio has them."""
        ours = jnp.asarray(self.positions(q))
        N = self.N(ours)
        rates = N @ v
        turning = jax.jvp(lambda q: self.N(q) @ v, (ours,), (rates,))[1]
        M, Q = self.mechanism.dynamics.terms(jnp.zeros(()), ours, rates)
        acceleration = uk.constrained_motion(self.mechanism(0.0, ours, rates)).acceleration
        back = np.linalg.lstsq(N, acceleration - turning, rcond=None)[0]
        return Values(np.asarray(N.T @ M @ N), np.asarray(N.T @ (M @ turning - Q)), back)


def states(model: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some q and v."""
    pin.seed(1)
    random = np.random.default_rng(1)
    low, high = np.full(model.nq, -1.0), np.full(model.nq, 1.0)
    for _ in range(POSES):
        yield pin.randomConfiguration(model, low, high), random.normal(size=model.nv)


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference beside the largest entry."""
    return float(np.max(np.abs(ours - theirs), initial=0) / max(np.max(np.abs(theirs), initial=0), 1e-300))

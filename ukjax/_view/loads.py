"""Forces and moments of a motion as arrows: points of action and vectors."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._mechanism import Mechanism
from .._mechanism.contacts import BodyContacts
from .._mechanism.kinematics import poses
from .._mechanism.modal import rigid_parts
from .._mechanism.tree import connections
from .._motion.trajectory.trajectory import Trajectory
from .._run.compile import jit_unoptimised
from .lines import is_rim, outlines

NEGLIGIBLE = 1e-9
"""Loads smaller than this share of the largest are rounding errors and are not drawn."""


class Load(NamedTuple):
    """Forces or moments of one name at the samples.

    Attributes
    ----------
    name
        Name in the list of switches.
    unit
        "N" or "N m".
    at
        Points of action (samples, k, d) [m].
    vector
        Forces [N] or moments [N m] (samples, k, d); NaN where there is none.
    """

    name: str
    unit: str
    at: Float[np.ndarray, "samples k d"]
    vector: Float[np.ndarray, "samples k d"]


def loads(trajectory: Trajectory) -> list[Load]:
    """The forces and moments of a motion that have a point of action.

    Those of a ``Mechanism`` are the weights of its bodies, the forces and moments of its joints on their child bodies
    (``Mechanism.reactions``, without contacts), and the contact forces.

    Any other system gives generalised forces Q (``Trajectory.forces``). The force F on the moving points p(t, q) of its
    outline satisfies Jᵀ F = Q with J = ∂p/∂q. It is drawn if the solution is unique.
    """
    model = trajectory.model
    found = _of_mechanism(trajectory) if isinstance(model, Mechanism) else _of_points(trajectory)
    force, moment = (max((_size(each) for each in found if each.unit == unit), default=0.0) for unit in ("N", "N m"))
    length = max((float(np.nanmax(np.ptp(each.at, axis=1), initial=0.0)) for each in found), default=0.0)
    negligible = {"N": NEGLIGIBLE * force, "N m": NEGLIGIBLE * max(moment, force * length)}
    return [each for each in found if _size(each) > negligible[each.unit]]


def _size(load):
    return float(np.max(np.linalg.norm(np.nan_to_num(load.vector), axis=-1), initial=0.0))


def _of_mechanism(trajectory):
    model = trajectory.model
    t, q, v = trajectory.t, trajectory.q, trajectory.v
    found = [Load("weight", "N", *map(np.asarray, _weights(model, t, q)))]
    if not model.nonsmooth:
        points, force, moment = map(np.asarray, _reactions(model, t, q, v))
        found += [Load("forces of joints", "N", points, force), Load("moments of joints", "N m", points, moment)]
    elif trajectory.contact_force is not None:
        contacts = contact_arrows(model, t, q, trajectory.contact_force)
        if contacts is not None:
            found.append(Load("contact forces", "N", *map(np.asarray, contacts)))
    return found


@jit_unoptimised
def _weights(model, t, q):
    def at(t, q):
        pose = poses(model.all_joints, model.tree, t, q)
        parts = zip(model.tree.links, rigid_parts(model.bodies, model.tree, q), strict=True)
        centre_of = {link.body: centre for link, (_, centre, _) in parts}
        centres = [pose[name].p + pose[name].R @ centre_of[name] for name in model.bodies]
        shares = [1.0 if body.buoyancy is None else 1.0 - body.buoyancy for _, body in model.bodies.items()]
        weights = [
            body.mass * share * model.dynamics.gravity
            for (_, body), share in zip(model.bodies.items(), shares, strict=True)
        ]
        return jnp.stack(centres), jnp.stack(weights)

    return jax.vmap(at)(t, q)


@jit_unoptimised
def _reactions(model, t, q, v):
    def at(sample):
        t, q, v = sample
        pose, by_name = poses(model.all_joints, model.tree, t, q), model.reactions(t, q, v)
        joints = connections(dict(model.joints.items()))
        points = [pose[joint.child].frame(joint.in_child()).p for name, joint in joints if name in by_name]
        return jnp.stack(points), *(
            jnp.stack([getattr(each, part) for each in by_name.values()]) for part in ("force", "moment")
        )

    return jax.lax.map(at, (t, q, v))


def contact_arrows(model, t, q, forces: Float[Array, "samples rows"]):
    """Points and forces on the first body of each contact; None without contacts of bodies."""
    groups = [each for each in model.nonsmooth if isinstance(each, BodyContacts)]
    if not groups:
        return None
    gaps = [jax.eval_shape(each.gaps, t[0], q[0]).shape[0] for each in model.nonsmooth]
    slips = [jax.eval_shape(each.slips, t[0], q[0], jnp.zeros(model.tree.n)).shape[0] for each in model.nonsmooth]
    dims = 2 if any(slips[i] for i, each in enumerate(model.nonsmooth) if isinstance(each, BodyContacts)) else 1
    points, vectors = [], []
    for i, each in enumerate(model.nonsmooth):
        if not isinstance(each, BodyContacts):
            continue
        first, group = sum(gaps[:i]), sum(gaps) + dims * sum(slips[:i])
        place, axes = _places(each, t, q)
        vector = forces[:, first : first + gaps[i], None] * axes[:, :, 0]
        if slips[i]:
            along = forces[:, group : group + dims * slips[i]].reshape(len(t), -1, dims)
            vector = vector + jnp.einsum("skd,skdi->ski", along, axes[:, :, 1:])
        points.append(place)
        vectors.append(vector)
    return jnp.concatenate(points, axis=1), jnp.concatenate(vectors, axis=1)


_places = jit_unoptimised(
    lambda contacts, t, q: jax.vmap(lambda t, q: (contacts.points(t, q), contacts.directions(t, q)))(t, q)
)


def _of_points(trajectory):
    model: Any = trajectory.model
    if trajectory.q.shape[-1] != trajectory.v.shape[-1] - len(trajectory.states) or not callable(
        getattr(model, "outline", None)
    ):
        return []
    points, J = _moving_points(trajectory)
    if points is None or J is None:
        return []
    samples, k, d = points.shape
    flat = J.reshape(samples, k * d, -1)
    singular = np.linalg.svd(flat, compute_uv=False)
    if flat.shape[1] > flat.shape[2] or np.any(singular[:, -1] <= 1e-9 * singular[:, 0]):
        return []
    inverse = np.linalg.pinv(flat)
    found = []
    for name, force in trajectory.forces().items():
        Q = np.asarray(force.force)[:, : trajectory.q.shape[-1]]
        F = np.einsum("snk,sn->sk", inverse, Q)
        rest = Q - np.einsum("skn,sk->sn", flat, F)
        if np.all(np.abs(rest) <= 1e-9 * max(float(np.abs(Q).max()), 1e-300)):
            found.append(Load(name, "N", points, F.reshape(points.shape)))
    return found


def _moving_points(trajectory):
    """The moving points of the outline, without repetitions (samples, k, d), and ∂p/∂q (samples, k, d, n)."""
    model: Any = trajectory.model
    lines = outlines(trajectory)
    every = np.concatenate(lines, axis=1)
    is_joint = np.concatenate([np.full(line.shape[1], not is_rim(line)) for line in lines])
    J = np.asarray(_jacobians(model, trajectory.t, trajectory.q))
    keep: list[int] = []
    for i in np.flatnonzero(is_joint & np.any(J != 0, axis=(0, 2, 3))):
        if not any(np.allclose(every[:, i], every[:, j], rtol=0, atol=1e-9) for j in keep):
            keep.append(int(i))
    return (every[:, keep], J[:, keep]) if keep else (None, None)


@jit_unoptimised
def _jacobians(model, t, q):
    points = lambda t, q: jnp.concatenate([jnp.asarray(line) for line in model.outline(t, q)])
    return jax.vmap(jax.jacfwd(points, argnums=1))(t, q)

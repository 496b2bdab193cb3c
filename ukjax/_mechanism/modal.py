"""Terms that the deformation of flexible bodies adds to the dynamics of a tree of rigid bodies.

With its present deformation, a flexible body counts as a rigid body: mass, centre and inertia are those of
``FlexibleBody.rigid``. This file has the rest: the inertial forces of the motion relative to the frame, and the forces
along the modal coordinates. With r = Σ_a C_a s_a in the axes of the frame, all of them are sums of the integrals
∫ s_a dm and ∫ s_a s_bᵀ dm. (A. A. Shabana, Dynamics of Multibody Systems, 2013, section 5.4, has the same for shapes
without products of coordinates.)
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._rotation import cross, skew
from .body import Body
from .flexible import FlexibleBody
from .kinematics import Moving
from .named import Named
from .recursion import order
from .tree import Modal, Tree


def rigid_parts(bodies: Named, tree: Tree, q: Float[Array, " nq"]) -> list[tuple[Array, Array, Array]]:
    """Mass, centre of mass and entries of the inertia of each link. A node of a flexible body has no mass."""
    coordinates = {modal.body: np.array(modal.coordinates) for modal in tree.modal}
    parts = []
    for link in tree.links:
        body = bodies[link.body] if link.body in bodies else Body(0.0)  # a node: it is part of its body
        flexible = isinstance(body, FlexibleBody)
        parts.append(body.rigid(q[coordinates[link.body]]) if flexible else (body.mass, body.centre, body.inertia))
    return parts


class Deforming(NamedTuple):
    """The motion of a flexible body. Vectors are along the axes of its frame, unless noted.

    Attributes
    ----------
    body : FlexibleBody
        The body.
    modal : Modal
        Its modal coordinates.
    link : int
        Its link.
    R : (3, 3)
        Axes of its frame in space, as columns.
    d : (3,)
        Origin of its frame relative to the reference point of its tree, along the axes of space [m].
    omega, alpha : (3,)
        Angular velocity and acceleration of the frame.
    velocity, acceleration : (3,)
        Velocity and acceleration of the origin of the frame.
    eta, rate : (m,)
        Modal coordinates and their rates.
    C, C_dot, C_ddot : (N,)
        Coefficients of the shapes and their derivatives.
    slope : (N, m)
        Derivative of C by the modal coordinates.
    """

    body: FlexibleBody
    modal: Modal
    link: int
    R: Float[Array, "3 3"]
    d: Float[Array, " 3"]
    omega: Float[Array, " 3"]
    alpha: Float[Array, " 3"]
    velocity: Float[Array, " 3"]
    acceleration: Float[Array, " 3"]
    eta: Float[Array, " m"]
    rate: Float[Array, " m"]
    C: Float[Array, " N"]
    C_dot: Float[Array, " N"]
    C_ddot: Float[Array, " N"]
    slope: Float[Array, "N m"]

    @classmethod
    def of(
        cls,
        body: FlexibleBody,
        modal: Modal,
        link: int,
        motion: Moving,
        q: Float[Array, " nq"],
        v: Float[Array, " n"],
        accelerations: Float[Array, " n"] | None,
    ) -> "Deforming":
        eta, rate = q[np.array(modal.coordinates)], v[np.array(modal.velocities)]
        slope = jax.jacfwd(body.coefficients)(eta)
        C_dot, C_ddot = jax.jvp(lambda eta: jax.jvp(body.coefficients, (eta,), (rate,))[1], (eta,), (rate,))
        if accelerations is not None:
            C_ddot = C_ddot + slope @ accelerations[np.array(modal.velocities)]
        R, d = motion.placed.R[link], motion.placed.d[link]
        omega, alpha = motion.omega[link], motion.alpha[link]
        of_origin = motion.velocity[link] + cross(omega, d)
        acceleration = motion.acceleration[link] + cross(alpha, d) + cross(omega, of_origin)
        velocity, C = motion.drift[link] + of_origin, body.coefficients(eta)
        omega, alpha, velocity, acceleration = (R.T @ x for x in (omega, alpha, velocity, acceleration))
        return cls(body, modal, link, R, d, omega, alpha, velocity, acceleration, eta, rate, C, C_dot, C_ddot, slope)

    def linear(self, coefficients: Float[Array, " N"]) -> Float[Array, " 3"]:
        """∫ Σ_b x_b s_b dm for coefficients x."""
        return coefficients @ self.body.moments

    def angular(self, coefficients: Float[Array, " N"]) -> Float[Array, " 3"]:
        """∫ r × Σ_b x_b s_b dm for coefficients x."""
        return _axial(jnp.einsum("a,b,abij->ij", self.C, coefficients, self.body.products))

    def wrench(self) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        """Force, and moment about the reference point, in space, that the motion relative to the frame requires.

        ∫ (2 ω × ṙ + r̈) dm and ∫ r × (2 ω × ṙ + r̈) dm.
        """
        B = jnp.einsum("a,b,abij->ij", self.C, self.C_dot, self.body.products)  # ∫ r ṙᵀ dm
        force = 2 * cross(self.omega, self.linear(self.C_dot)) + self.linear(self.C_ddot)
        moment = 2 * (jnp.trace(B) * self.omega - B.T @ self.omega) + self.angular(self.C_ddot)
        force = self.R @ force
        return force, self.R @ moment + cross(self.d, force)

    def force(self, gravity: Float[Array, " 3"]) -> Float[Array, " m"]:
        """Generalised force along the modal coordinates: −∫ (∂r/∂η)·(r̈ in space − gravity) dm − K η − D η̇."""
        body, turn = self.body, skew(self.omega)
        relative = self.acceleration - self.R.T @ gravity
        r_s, rate_s = (jnp.einsum("c,caij->aij", x, body.products) for x in (self.C, self.C_dot))
        required = body.moments @ relative + jax.vmap(_axial)(r_s) @ self.alpha
        required = required + jnp.einsum("ji,aij->a", turn @ turn, r_s) + 2 * jnp.einsum("ji,aij->a", turn, rate_s)
        required = required + body.modal_mass @ self.C_ddot
        damping = 0.0 if body.damping is None else body.damping @ self.rate
        return -(self.slope.T @ required) - body.stiffness @ self.eta - damping

    def momenta(self) -> Float[Array, "m 6"]:
        """Angular momentum about the reference point and momentum, in space, for a unit of each modal rate."""
        linear = self.slope.T @ self.body.moments @ self.R.T
        angular = jax.vmap(self.angular)(self.slope.T) @ self.R.T
        return jnp.concatenate([angular + cross(self.d, linear), linear], axis=1)

    def modal_mass(self) -> Float[Array, "m m"]:
        """Mass matrix of the modal coordinates."""
        return self.slope.T @ self.body.modal_mass @ self.slope

    def energy(self) -> Float[Array, ""]:
        """Kinetic energy beyond that of the rigid body, and strain energy [J]."""
        kinetic = self.velocity @ self.linear(self.C_dot) + self.omega @ self.angular(self.C_dot)
        relative = self.C_dot @ self.body.modal_mass @ self.C_dot + self.eta @ self.body.stiffness @ self.eta
        return kinetic + relative / 2


def deforming(
    bodies: Named,
    tree: Tree,
    motion: Moving,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    accelerations: Float[Array, " n"] | None = None,
) -> tuple[Deforming, ...]:
    """The motion of each flexible body. ``accelerations`` are v̇; None stands for 0."""
    number = {link.body: i for i, link in enumerate(tree.links)}
    return tuple(
        Deforming.of(bodies[modal.body], modal, number[modal.body], motion, q, v, accelerations) for modal in tree.modal
    )


def with_wrenches(
    force: Float[Array, "links 3"], moment: Float[Array, "links 3"], deforming: tuple[Deforming, ...]
) -> tuple[Array, Array]:
    """The required forces and moments of all links, with those of the deformation."""
    for each in deforming:
        f, m = each.wrench()
        force, moment = force.at[each.link].add(f), moment.at[each.link].add(m)
    return force, moment


def terms_of(
    tree: Tree,
    M_columns: Float[Array, "k k"],
    Q_columns: Float[Array, " k"],
    columns: Float[Array, "k 6"],
    deforming: tuple[Deforming, ...],
    gravity: Float[Array, " 3"],
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """M and Q, from those of the columns of the links (``Order.columns``) as rigid bodies and from the deformation.

    ``columns`` are angular velocity and velocity for a unit of each column.
    """
    S = jnp.asarray(_selection(tree), M_columns.dtype)
    M, Q = S.T @ M_columns @ S, S.T @ Q_columns
    for each in deforming:
        path = np.array(order(tree).paths[each.link], int)
        own = jnp.eye(tree.n, dtype=M_columns.dtype)[np.array(each.modal.velocities)]
        mixed = S[path].T @ (columns[path] @ each.momenta().T) @ own
        M = M + mixed + mixed.T + own.T @ each.modal_mass() @ own
        Q = Q + own.T @ each.force(gravity)
    return M, Q


@functools.lru_cache(maxsize=128)
def _selection(tree: Tree) -> np.ndarray:
    """The matrix (k, n) of ones where a column is a velocity."""
    return np.eye(tree.n)[order(tree).columns]


def _axial(products: Float[Array, "3 3"]) -> Float[Array, " 3"]:
    """∫ a × b dm from ∫ a bᵀ dm."""
    return jnp.stack(
        [products[1, 2] - products[2, 1], products[2, 0] - products[0, 2], products[0, 1] - products[1, 0]]
    )

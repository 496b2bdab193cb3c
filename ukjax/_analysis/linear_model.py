"""A linearised system: state space, eigenvalues, frequency response and regulators."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._check import as_array, as_numbers, check_definite
from .._control import square_matrix
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._kinematic_map import columns
from .._labels import Named
from .._precision import Numbers
from .._run.compile import jit
from .._solve import AbstractMethod
from .._system import AbstractSystem, kinematic_map_of
from .modes import Mode, modes_of
from .states import States


class Regulator(NamedTuple):
    """A linear quadratic regulator u = −K x.

    Attributes
    ----------
    K
        Gains (inputs, states).
    S
        Solution of the Riccati equation (states, states): xᵀ S x is the cost of a motion that starts at x.
    eigenvalues
        Eigenvalues of A − B K (states,) [1/s].
    """

    K: Float[Array, "p k"]
    S: Float[Array, "k k"]
    eigenvalues: Complex[Array, " k"]


class LinearModel(eqx.Module):
    """A system linearised at a state, ẋ = A x + B u, y = C x + D u, as ``linearize`` returns it.

    It unpacks into its matrices, as ``scipy.signal.StateSpace(*linear)`` and ``control.ss(*linear)`` take them. In the
    shapes, k is the number of states, p that of inputs, and o that of outputs.

    Attributes
    ----------
    A, B, C, D
        Matrices (k, k), (k, p), (o, k), (o, p).
    states, inputs, outputs
        Names and units. States are deviations of these coordinates, and then of these velocities.
    t, q, v
        The state at which the system is linearised: time [s], coordinates (nq,) and velocities (n,).
    mass, force, acceleration
        M (n, n), Q (n,) and v̇ (n,) at that state.
    displacement, velocity
        Deviations of all coordinates and of all velocities for a unit of each state, (n, k) each. Deviations of
        coordinates are those in the directions of velocities: δq = N(q) ``displacement`` x.
    """

    A: Float[Array, "k k"]
    B: Float[Array, "k p"]
    C: Float[Array, "o k"]
    D: Float[Array, "o p"]
    system: AbstractSystem = eqx.field(repr=False)
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mass: Float[Array, "n n"]
    force: Float[Array, " n"]
    acceleration: Float[Array, " n"]
    displacement: Float[Array, "n k"]
    velocity: Float[Array, "n k"]
    states: Named = eqx.field(static=True)
    inputs: Named = eqx.field(static=True)
    outputs: Named = eqx.field(static=True)
    chosen: States = eqx.field(static=True, repr=False)
    method: AbstractMethod = eqx.field(repr=False)
    input_forces: Callable = eqx.field(repr=False)
    output: Callable = eqx.field(repr=False)

    def __iter__(self) -> Iterator[Array]:
        return iter((self.A, self.B, self.C, self.D))

    @property
    def eigenvalues(self) -> Complex[Array, "*batch k"]:
        """Eigenvalues of A (k,) [1/s], in no particular order.

        A simple eigenvalue has a derivative, yᴴ dA x / (yᴴ x) with its eigenvectors x and y. A multiple eigenvalue has
        no derivative in general, and the computed value is meaningless.
        """
        return jnp.linalg.eigvals(self.A)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes, in the order of their natural frequencies: one for each pair of complex eigenvalues, and one for
        each real eigenvalue.

        Raises
        ------
        InputError
            If the state is neither an equilibrium nor a steady motion, or if values are traced.
        """
        return modes_of(self)

    def frequency_response(self, w: Numbers) -> Complex[Array, "*w o p"]:
        """Return H(iω) = C (iω I − A)⁻¹ B + D, the amplitudes of the outputs for unit amplitudes of the inputs.

        Parameters
        ----------
        w
            Angular frequencies ω [rad/s], a number or an array of any shape.

        Returns
        -------
        Array
            Complex amplitudes, of the shape of ``w`` followed by (o, p). At an undamped natural frequency it is
            infinite.
        """
        return _frequency_response(self.A, self.B, self.C, self.D, as_numbers("w", w))

    def lqr(self, Q: Numbers, R: Numbers) -> Regulator:
        """Return the linear quadratic regulator u = −K x, which minimises ∫ (xᵀ Q x + uᵀ R u) dt.

        The Riccati equation is solved by ``scipy.linalg.solve_continuous_are``. As a control of the system itself::

            control = uk.control.Feedback(B, lambda t, q, v: -regulator.K @ linear.deviation(q, v))

        Parameters
        ----------
        Q
            Weights of the states: a matrix (k, k), its diagonal (k,), or a number.
        R
            Weights of the inputs: a matrix (p, p), its diagonal (p,), or a number. Positive definite.

        Returns
        -------
        Regulator
            K, S and the eigenvalues of the closed loop.

        Raises
        ------
        InputError
            If there are no inputs, no regulator stabilises the system, a weight is invalid, or values are traced.
        """
        import scipy.linalg

        k, p = self.B.shape
        Q, R = square_matrix("Q", as_array("Q", Q), k), square_matrix("R", as_array("R", R), p)
        if not is_concrete(self.A, self.B, Q, R):
            raise InputError("lqr must have concrete values: call it outside of jax.jit, jax.vmap and derivatives")
        if not p:
            raise InputError("lqr needs inputs, and the linear model has none: linearize(..., inputs=('name',))")
        check_definite("R", R)
        A, B, Q, R = np.asarray(self.A), np.asarray(self.B), np.asarray(Q), np.asarray(R)
        if not np.allclose(Q, Q.T) or np.linalg.eigvalsh(Q).min() < -1e-9 * max(np.abs(Q).max(), 1e-300):
            raise InputError("Q must be symmetric and positive semidefinite")
        try:
            S = scipy.linalg.solve_continuous_are(A, B, Q, R)
        except (np.linalg.LinAlgError, ValueError):
            raise InputError(
                "lqr finds no regulator: some motion that does not decay is not controllable by the inputs, or has "
                "no weight in Q. Give more inputs, or weights to all states"
            ) from None
        K = np.linalg.solve(R, B.T @ S)
        return Regulator(jnp.asarray(K), jnp.asarray(S), jnp.asarray(np.linalg.eigvals(A - B @ K) + 0j))

    def deviation(self, q: Numbers, v: Numbers) -> Float[Array, " k"]:
        """Return the states x of a state (q, v) of the system, to first order.

        Parameters
        ----------
        q, v
            Coordinates (nq,) and velocities (n,).

        Returns
        -------
        Array
            x (k,): differences of the coordinates and velocities that are states. With a kinematic map, the
            displacement ξ with N(q) ξ nearest to the difference of the coordinates.
        """
        of_q, of_v = as_array("q", q) - self.q, as_array("v", v) - self.v
        kinematic_map = kinematic_map_of(self.system)
        if kinematic_map is not None:
            N = columns(kinematic_map, self.q, self.v)
            of_q = jnp.linalg.solve(N.T @ N, N.T @ of_q)
        return jnp.concatenate([of_q[jnp.array(self.chosen.of_q, int)], of_v[jnp.array(self.chosen.of_v, int)]])


@jit
def _frequency_response(A, B, C, D, w):
    identity = jnp.eye(A.shape[0], dtype=A.dtype)
    at = lambda w: C @ jnp.linalg.solve(1j * w * identity - A, B + 0j) + D
    return jnp.vectorize(at, signature="()->(o,p)")(w)

"""A flexible body: a floating frame, and displacements that are sums of mode shapes."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_number, as_numbers, as_path, check_definite, check_finite, kind_of, repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from . import beam as of_beam
from .body import inertia_entries, inertia_matrix, six_or_three
from .deflection import Deflection, coefficients
from .shape import Shape

ARRAYS = ("positions", "masses", "shapes", "stiffness", "rotations", "damping", "modal_mass", "inertia", "names")
"""The arrays of a file; the first four are required."""


class FlexibleBody(eqx.Module):
    """A flexible body of a mechanism, by the floating frame of reference with assumed modes.

    A point of the body has the position

        r = p + R Σ_a C_a(η) s_a,    C = (1, η_1, ..., η_m, products of two η),

    where R, p is the frame of the body, η are its modal coordinates, s_0 is the undeformed position and the other s_a
    are shapes. M and Q follow exactly from the kinetic energy of all points, by integrals of the shapes that do not
    depend on the motion. The strain energy is ηᵀ K η/2. The modal coordinates are coordinates of the mechanism, named
    after the body: ``"rod_mode1"``, ...

    ``FlexibleBody.beam`` makes a beam, ``FlexibleBody.from_matrices`` and ``FlexibleBody.load`` a body from modes and
    matrices of a finite-element program. Joints connect the frame of the body, ``"rod"``, or a node that moves with
    the deformation: ``"rod.end"``.

    Attributes
    ----------
    mass : ()
        Mass [kg].
    moments : (N, 3)
        ∫ s_a dm.
    products : (N, N, 3, 3)
        ∫ s_a s_bᵀ dm.
    modal_mass : (N, N)
        ∫ s_a · s_b dm.
    inertia : (k,)
        Inertia of the cross sections [kg m²], which turns with the frame: three or six entries, as in ``Body``.
    stiffness : (m, m)
        K, for the modal coordinates.
    damping : (m, m) or None
        Matrix of viscous damping, for the modal coordinates.
    positions : (nodes, N, 3)
        The shapes at the nodes.
    rotations : (nodes, m, 3)
        Small rotation of the body at the nodes for a unit of each modal coordinate.
    line : (points, N, 3)
        The shapes at the points of the line that is drawn.
    names : tuple of str
        Names of the nodes.
    modes : tuple of str
        Names of the modal coordinates.
    pairs : tuple of (int, int)
        Pairs of modal coordinates whose products are coefficients.

    References
    ----------
    A. A. Shabana, Dynamics of Multibody Systems, 4th ed. (2013), chapter 5; R. Schwertassek, O. Wallrapp, Dynamik
    flexibler Mehrkörpersysteme (1999), chapter 6.
    """

    mass: Float[Array, ""]
    moments: Float[Array, "N 3"]
    products: Float[Array, "N N 3 3"]
    modal_mass: Float[Array, "N N"]
    inertia: Float[Array, " k"]
    stiffness: Float[Array, "m m"]
    damping: Float[Array, "m m"] | None
    positions: Float[Array, "nodes N 3"]
    rotations: Float[Array, "nodes m 3"]
    line: Float[Array, "points N 3"]
    names: tuple[str, ...] = eqx.field(static=True)
    modes: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    shapes: ClassVar[tuple[Shape, ...]] = ()
    buoyancy: ClassVar[None] = None

    @classmethod
    def beam(
        cls,
        length: Any,
        mass_per_length: Any,
        EI: Any,
        *,
        bending: str,
        modes: int = 2,
        ends: str = "pinned",
        axial: int = 0,
        EA: Any = None,
        damping: Any = None,
        section_inertia: Any = (0.0, 0.0, 0.0),
        nodes: Mapping[str, float] | None = None,
        stretching: bool = True,
    ) -> "FlexibleBody":
        """A straight, uniform Euler–Bernoulli beam from the origin along the x axis of its frame.

        Its modal coordinates are ``mode1``, ``mode2``, ... for one direction of bending, ``y1``, ..., ``z1``, ... for
        two, and ``axial1``, ... All are lengths [m].

        Parameters
        ----------
        length : float
            Length L [m].
        mass_per_length : float
            Density times area of the cross section [kg/m].
        EI : float or (2,)
            Bending stiffness [N m²]. Two numbers with ``bending="yz"`` are those for deflections along y and along z.
        bending : {"y", "z", "yz"}
            Axes of the frame along which the beam deflects.
        modes : int
            Number of bending modes in each of these directions, at most 20.
        ends : {"pinned", "cantilever", "free"}
            Mode shapes, which also define the frame. "pinned": sin(kπx/L); the x axis of the frame passes through both
            ends. "cantilever": the modes of a clamped beam; the frame moves with the start. "free": the modes of a free
            beam; the x axis is the mean line of the beam, which is not a line of its material. Connect the joints of a
            free beam to nodes such as ``"rod.start"``, since forces on the frame do not bend it. A coordinate is the
            amplitude of the sine, the deflection of the end, or that of the start.
        axial : int
            Number m of axial coordinates, at most 8: displacements at x = L/m, 2L/m, ..., L, with a polynomial of
            degree m between them that is 0 at the start.
        EA : float, optional
            Axial stiffness [N], needed if ``axial`` is not 0.
        damping : float, optional
            Time constant τ [s] of a Kelvin–Voigt material, stress E (ε + τ dε/dt). The damping ratio of a mode with
            angular frequency ω is τ ω/2. Default: no damping.
        section_inertia : (3,)
            Moments of inertia of the cross sections per length, about x, y and z [kg m]. They act on the rotation of
            the frame alone. A beam that may turn about its own axis needs the first.
        nodes : dict of str to float, optional
            Nodes in addition to ``start`` and ``end``: name and fraction x/L, from 0 to 1.
        stretching : bool
            Whether a deflection w moves points towards the start by ∫ w'²/2 dx, which is of second order. This makes a
            spinning beam stiffer. Without it the beam becomes softer, which is wrong at fast rotation.

        Returns
        -------
        FlexibleBody
            The beam.

        Raises
        ------
        InputError
            If a number is not positive and finite, a word is unknown, or ``EA`` does not agree with ``axial``.

        Notes
        -----
        Shear and torsion are not included. Slopes must be small: the strain energy is that of small deflections.

        The stiffening of a spinning beam by ``stretching`` is that of T. R. Kane, R. R. Ryan, A. K. Banerjee, J.
        Guidance 10 (1987) 139.
        """
        made = of_beam.integrals(
            length, mass_per_length, EI, bending, modes, ends, axial, EA, section_inertia, nodes, stretching
        )
        tau = None if damping is None else as_number("damping", damping, "s", least=0, below=np.inf)
        return cls(damping=None if tau is None else tau * made["stiffness"], **made)

    @classmethod
    def from_matrices(
        cls,
        positions: Any,
        masses: Any,
        shapes: Any,
        stiffness: Any,
        *,
        names: Any,
        rotations: Any = None,
        damping: Any = None,
        modal_mass: Any = None,
        inertia: Any = (0.0, 0.0, 0.0),
    ) -> "FlexibleBody":
        """A flexible body from the nodes of a finite-element model and its reduced matrices (Craig–Bampton or others).

        Parameters
        ----------
        positions : (k, 3)
            Undeformed positions of the k nodes of the model, in the frame of the body [m].
        masses : (k,)
            Masses of the nodes [kg].
        shapes : (m, k, 3)
            Displacements of the nodes for a unit of each of the m modal coordinates. With dimensionless shapes, the
            modal coordinates are lengths [m].
        stiffness : (m, m)
            Reduced stiffness matrix Φᵀ K Φ.
        names : dict of str to int, or sequence of str
            Nodes to which joints may connect: name and index, or one name for each node, "" for none.
        rotations : (m, k, 3), optional
            Small rotations of the nodes for a unit of each modal coordinate [1/m]. Default: nodes do not turn
            relative to the frame.
        damping : (m, m), optional
            Reduced damping matrix.
        modal_mass : (m, m), optional
            Reduced mass matrix Φᵀ M Φ. Default: that of the masses of the nodes.
        inertia : (3,), (6,) or (3, 3)
            Additional inertia that turns with the frame [kg m²], as in ``Body``.

        Returns
        -------
        FlexibleBody
            The body. Its modal coordinates are ``mode1``, ``mode2``, ...

        Raises
        ------
        InputError
            If a shape is wrong, a matrix is not symmetric, or masses or stiffness are not positive definite.
        """
        x, dm = as_numbers("positions", positions), as_numbers("masses", masses)
        phi, K = as_numbers("shapes", shapes), as_numbers("stiffness", stiffness)
        for name, value, axes in (("positions", x, 2), ("shapes", phi, 3)):
            if value.ndim != axes or not value.size:
                raise InputError(
                    f"{name} must have shape {'(k, 3)' if axes == 2 else '(m, k, 3)'}, for at least one node and one "
                    f"mode shape, got {value.shape}"
                )
        k, m = len(x), len(phi)
        theta = jnp.zeros((m, k, 3)) if rotations is None else as_numbers("rotations", rotations)
        expected = (
            ("positions", x, (k, 3)),
            ("masses", dm, (k,)),
            ("shapes", phi, (m, k, 3)),
            ("rotations", theta, (m, k, 3)),
        )
        for name, value, shape in expected:
            if value.shape != shape:
                raise InputError(
                    f"{name} must have shape {shape}, for {k} positions and {m} mode shapes, got {value.shape}"
                )
            check_finite(name, value)
        if is_concrete(dm) and (np.min(dm) < 0 or np.sum(dm) <= 0):
            at = int(np.argmin(dm))
            raise InputError(f"masses must not be negative, and not all 0, got masses[{at}] = {float(dm[at]):g}")
        _check_matrix("stiffness", K, m)
        basis = jnp.concatenate([x[None], phi])
        products = jnp.einsum("aki,k,bkj->abij", basis, dm, basis)
        W = jnp.trace(products, axis1=2, axis2=3)
        if modal_mass is not None:
            reduced = as_numbers("modal_mass", modal_mass)
            _check_matrix("modal_mass", reduced, m)
            W = W.at[1:, 1:].set(reduced)
        C = None if damping is None else as_numbers("damping", damping)
        if C is not None:
            _check_matrix("damping", C, m, definite=False)
        chosen = _chosen_nodes(names, k)
        at = np.array(list(chosen.values()), int)
        body = cls(
            mass=jnp.sum(dm),
            moments=jnp.einsum("aki,k->ai", basis, dm),
            products=products,
            modal_mass=W,
            inertia=six_or_three(inertia),
            stiffness=K,
            damping=C,
            positions=basis[:, at].transpose(1, 0, 2),
            rotations=theta[:, at].transpose(1, 0, 2),
            line=basis.transpose(1, 0, 2),
            names=tuple(chosen),
            modes=tuple(f"mode{i + 1}" for i in range(m)),
            pairs=(),
        )
        body._check_masses()
        return body

    @classmethod
    def load(cls, path: Any) -> "FlexibleBody":
        """A flexible body from the arrays of an ``.npz`` file.

        Parameters
        ----------
        path : str or path
            File with the arrays ``positions``, ``masses``, ``shapes`` and ``stiffness``, and, optionally,
            ``rotations``, ``damping``, ``modal_mass``, ``inertia`` and ``names``. They are the arguments of
            ``from_matrices``; ``names`` has one text for each node, "" for a node without a name. Without ``names``
            the nodes are ``node1``, ``node2``, ...

        Returns
        -------
        FlexibleBody
            The body.

        Raises
        ------
        InputError
            If the file is not an ``.npz`` file, or an array is missing, unknown or wrong.
        """
        path = as_path(path)
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"path must be an .npz file of arrays, and {str(path)!r} is not: {error}") from None
        missing = [name for name in ARRAYS[:4] if name not in arrays]
        unknown = [name for name in arrays if name not in ARRAYS]
        if missing or unknown:
            what = f"has no array {missing[0]!r}" if missing else f"has an unknown array {unknown[0]!r}"
            raise InputError(f"{str(path)!r} {what}. Its arrays must be {', '.join(ARRAYS[:4])}, and may be "
                             f"{', '.join(ARRAYS[4:])}")  # fmt: skip
        count = len(arrays["positions"]) if arrays["positions"].ndim else 0
        names = [str(name) for name in np.ravel(arrays.pop("names", [f"node{i + 1}" for i in range(count)]))]
        return cls.from_matrices(**arrays, names=names)

    @property
    def centre(self) -> Float[Array, " 3"]:
        """Centre of mass of the undeformed body, in its frame [m]."""
        return self.moments[0] / self.mass

    def rigid(self, eta: Float[Array, " m"]) -> tuple[Array, Array, Array]:
        """Mass [kg], centre of mass [m] and six entries of the inertia about it [kg m²], with the deformation eta."""
        C = self.coefficients(eta)
        centre = C @ self.moments / self.mass
        P = jnp.einsum("a,b,abij->ij", C, C, self.products) - self.mass * jnp.outer(centre, centre)
        inertia = jnp.trace(P) * jnp.eye(3, dtype=P.dtype) - P + inertia_matrix(self.inertia)
        return self.mass, centre, inertia_entries(inertia)

    def coefficients(self, eta: Float[Array, " m"]) -> Float[Array, " N"]:
        """The coefficients C(η) of the shapes, for the modal coordinates ``eta``."""
        return coefficients(eta, self.pairs)

    def deformed(self, eta: Float[Array, " m"]) -> Float[Array, "points 3"]:
        """The line that is drawn, in the frame of the body [m], for the modal coordinates ``eta``."""
        return jnp.einsum("a,pai->pi", self.coefficients(eta), self.line)

    def deflections(self, name: str) -> dict[str, Deflection]:
        """The joints between the frame of this body, which has this name in the mechanism, and its nodes."""
        return {
            f"{name}.{node}": Deflection(
                name, f"{name}.{node}", self.positions[i], self.rotations[i], pairs=self.pairs, modes=self.modes
            )
            for i, node in enumerate(self.names)
        }

    def _check_masses(self):
        """Raise ``InputError`` if the kinetic energy is not positive for every motion of frame and modes.

        Rotations of the frame need not have kinetic energy: it is 0 for a rotation about the line of a thin body.
        """
        if not is_concrete(self.mass, self.moments, self.modal_mass):
            return
        G, W = np.asarray(self.moments)[1:], np.asarray(self.modal_mass)[1:, 1:]
        reduced = W - G @ G.T / float(self.mass)
        scale = 1 / np.sqrt(np.maximum(np.diagonal(W), np.finfo(float).tiny))
        least = float(np.linalg.eigvalsh(scale[:, None] * reduced * scale).min())
        if least <= 1e-12:
            raise InputError(
                "shapes must be independent of each other and of translations of the body, and have mass, got shapes "
                f"whose mass matrix has the eigenvalue {least:.3g} relative to its diagonal: leave out rigid modes"
            )


def _check_matrix(name, value, m, definite=True):
    if value.shape != (m, m):
        raise InputError(f"{name} must have shape {(m, m)}, a row for each of the {m} mode shapes, got {value.shape}")
    check_finite(name, value)
    if definite:
        check_definite(name, value)
    elif is_concrete(value):
        matrix = np.asarray(value)
        size = np.max(np.abs(matrix), initial=0)
        if np.max(np.abs(matrix - matrix.T), initial=0) > 1e-9 * size:
            raise InputError(f"{name} must be symmetric, got {repr_of(matrix)}")
        least = np.linalg.eigvalsh(matrix).min(initial=0)
        if least < -1e-9 * size:
            raise InputError(f"{name} must have no negative eigenvalue, got {least:.6g}")


def _chosen_nodes(names, count):
    """Name -> index of the nodes that have names."""
    if not isinstance(names, Mapping):
        if not isinstance(names, Sequence | np.ndarray):
            raise InputError(
                f"names must be a dictionary, name -> index of a node, or a name for each node, got {kind_of(names)}"
            )
        names = list(names) if not isinstance(names, str) else [names]
        if len(names) != count:
            raise InputError(f"names must be a name for each of {count} nodes, got {len(names)}")
        repeated = [name for name in names if name and names.count(name) > 1]
        if repeated:
            raise InputError(f"names must differ from each other, got {repeated[0]!r} more than once")
        names = {name: i for i, name in enumerate(names) if name}
    for name, i in names.items():
        of_beam.check_node_name("names", name)
        if not isinstance(i, int | np.integer) or isinstance(i, bool) or not 0 <= i < count:
            raise InputError(f"names[{name!r}] must be the index of a node, from 0 to {count - 1}, got {repr_of(i)}")
    if not names:
        raise InputError("names must have a name for at least one node, got none")
    return dict(names)

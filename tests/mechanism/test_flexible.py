"""Flexible bodies: statics and vibrations in closed form, dynamics by Lagrange's equations of points, files."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.chebyshev import Chebyshev
from scipy.optimize import brentq

import ukjax as uk
from ukjax._rotation import quaternion_of
from ukjax.joints import Fixed, PointOnLine, Revolute

from ..mechanisms import in_velocities

L, MU, EI, EA = 0.7, 0.3, 2.5, 500.0
UNIT = np.sqrt(EI / MU) / L**2
CLAMPED: Any = [brentq(lambda b: np.cos(b) + 1 / np.cosh(b), b - 0.4, b + 0.4) for b in (np.arange(1, 9) - 0.5) * np.pi]
FREE: Any = [brentq(lambda b: np.cos(b) * np.cosh(b) - 1, low, low + 1) for low in (4.2, 7.2)]


def beam(**options: Any) -> Any:
    return uk.FlexibleBody.beam(L, MU, EI, bending="y", **options)


def test_cantilever_frequencies_match_closed_form():
    mechanism = uk.Mechanism({"rod": beam(ends="cantilever")}, {"clamp": Fixed("ground", "rod")}, gravity=(0, 0, 0))
    assert mechanism.coordinates == (("rod_mode1", "m"), ("rod_mode2", "m"))
    at_rest, *columns = (mechanism(0.0, q, np.zeros(2)) for q in (np.zeros(2), *np.eye(2)))
    stiffness = -np.stack([terms.Q for terms in columns], axis=1)
    squares = np.linalg.eigvals(np.linalg.solve(at_rest.M, stiffness))
    np.testing.assert_allclose(np.sort(np.sqrt(squares)) / UNIT, np.square(CLAMPED[:2]), rtol=1e-11)
    np.testing.assert_array_equal(at_rest.Q, 0)


def test_cantilever_deflection_under_end_loads_matches_closed_form():
    """Deflection by a load at the end: L³/3EI minus the share of the modes that are left out, 4 L³/(EI β⁴) each."""
    modes = 12
    rod = beam(ends="cantilever", modes=modes, axial=1, EA=EA)
    end, slope = rod.positions[1, 1 : modes + 2], rod.rotations[1, :, 2]
    eta = np.linalg.solve(rod.stiffness, end[:, 1])
    deflection, turn = end[:, 1] @ eta, slope @ eta
    beta = np.r_[CLAMPED, (np.arange(9, 4000) - 0.5) * np.pi]
    np.testing.assert_allclose(sum(4 / beta**4), 1 / 3, rtol=1e-9)
    np.testing.assert_allclose(deflection / (L**3 / EI), 1 / 3 - sum(4 / beta[modes:] ** 4), rtol=1e-9)
    np.testing.assert_allclose(turn, L**2 / (2 * EI), rtol=0.01)
    np.testing.assert_allclose(np.linalg.solve(rod.stiffness, end[:, 0])[-1], L / EA, rtol=1e-13)


def test_free_and_pinned_beam_frequencies_match_closed_form():
    """Free modes are not coupled with the motion of the frame."""
    for ends, exact in (("free", np.square(FREE)), ("pinned", np.square([np.pi, 2 * np.pi]))):
        rod = beam(ends=ends)
        squares = np.linalg.eigvals(np.linalg.solve(rod.modal_mass[1:3, 1:3], rod.stiffness))
        np.testing.assert_allclose(np.sort(np.sqrt(squares)) / UNIT, exact, rtol=1e-11)
        if ends == "free":
            np.testing.assert_allclose(rod.moments[1:3], 0, atol=1e-14)
            np.testing.assert_allclose(rod.products[0, 1:3], 0, atol=1e-14)


SECTION = np.array([1e-3, 2e-3, 3e-3])
TIP = 0.2, np.array([0.05, 0.0, 0.01]), np.array([1e-3, 2e-3, 1.5e-3])


@pytest.fixture(scope="module")
def chain():
    """A beam hinged to the ground at its end, with a body at its start."""
    rod = uk.FlexibleBody.beam(
        L, MU, (EI, 2 * EI), bending="yz", modes=1, ends="cantilever", axial=1, EA=EA, section_inertia=SECTION
    )
    joints = {
        "axle": Revolute("ground", "rod.end", axis=(1, 2, 3), at=(0.2, 0, 0)),
        "hinge": Revolute("rod.start", "tip", axis="y", at=(0.01, 0.02, 0)),
    }
    return uk.Mechanism({"rod": rod, "tip": uk.Body(*TIP)}, joints)


Q0 = jnp.array([0.4, -0.7, 0.05, -0.03, 0.02])
V0 = jnp.array([1.3, -0.9, 0.7, 0.4, -0.5])
X, W = (np.polynomial.legendre.leggauss(40)[i] / 2 + (0.5 if i == 0 else 0.0) for i in range(2))
"""Points and weights of Gauss quadrature on (0, 1)."""
S1 = (np.cosh(CLAMPED[0]) + np.cos(CLAMPED[0])) / (np.sinh(CLAMPED[0]) + np.sin(CLAMPED[0]))
MODE = Chebyshev.interpolate(
    lambda x, b=CLAMPED[0]: np.cosh(b * x) - np.cos(b * x) - S1 * (np.sinh(b * x) - np.sin(b * x)), 40, domain=[0, 1]
)
MODE /= MODE(1.0)


def deflected(eta):
    """Return points of the chain's beam in its frame, from mode shapes that this file computes."""
    drawn = (MODE.deriv() ** 2).integ(lbnd=0)(X) / (2 * L)
    u = eta[2] * X - drawn * (eta[0] ** 2 + eta[1] ** 2)
    return jnp.stack([L * X + u, eta[0] * MODE(X), eta[1] * MODE(X)], axis=1)


BENDING = EI / L**3 * np.sum(W * MODE.deriv(2)(X) ** 2)
STIFFNESS = np.array([BENDING, 2 * BENDING, EA / L])


def as_points(mass, centre, inertia):
    """Return seven points with the same mass, centre and moments of inertia; one may have negative mass."""
    squares = (np.sum(inertia) / 2 - inertia) / 2
    points = np.concatenate([np.sqrt(squares)[:, None] * np.eye(3), -np.sqrt(squares)[:, None] * np.eye(3)])
    return np.concatenate([centre + points, centre[None]]), np.r_[np.ones(6), mass - 6]


def test_M_and_Q_match_a_system_of_point_masses(chain):
    """M = Σ m JᵀJ and Q = Σ m Jᵀ(g − J̇ v) − ∂V/∂q, with derivatives of the positions of points by JAX."""
    section, section_masses = as_points(0.0, np.zeros(3), L * SECTION)
    tip, tip_masses = as_points(*TIP)

    def points(q):
        pose = chain.pose(q)
        of_rod = jnp.concatenate([deflected(q[2:]), section])
        parts = [pose[name].p + x @ pose[name].R.T for name, x in (("rod", of_rod), ("tip", tip))]
        return jnp.concatenate(parts).ravel()

    @jax.jit
    def kinematics(q, v):
        rate = lambda q: jax.jvp(points, (q,), (v,))[1]
        return points(q), jax.jacfwd(points)(q), jax.jvp(rate, (q,), (v,))

    place, J, (rate, bias) = (jax.tree.map(np.asarray, x) for x in kinematics(Q0, V0))
    m = np.repeat(np.concatenate([MU * L * W, section_masses, tip_masses]), 3)
    g = np.tile([0.0, 0.0, -9.81], m.size // 3)
    slope = STIFFNESS * np.asarray(Q0[2:])
    strain = slope @ np.asarray(Q0[2:]) / 2
    terms = chain(0.0, Q0, V0)
    np.testing.assert_allclose(terms.M, J.T @ (m[:, None] * J), rtol=0, atol=1e-12)
    np.testing.assert_allclose(terms.Q, J.T @ (m * (g - bias)) - np.r_[0, 0, slope], rtol=0, atol=1e-10)
    energy = float(eqx.filter_jit(chain.energy)(jnp.zeros(()), Q0, V0))
    np.testing.assert_allclose(energy, m @ (rate**2 / 2 - g * place) + strain, rtol=1e-12)
    momentum = (m * rate).reshape(-1, 3)
    found = chain.momentum(Q0, V0)
    middle = (m * place).reshape(-1, 3).sum(axis=0) / (m.sum() / 3)
    np.testing.assert_allclose(found.linear, momentum.sum(axis=0), rtol=0, atol=1e-12)
    about = np.cross(place.reshape(-1, 3) - middle, momentum).sum(axis=0)
    np.testing.assert_allclose(found.angular, about, rtol=0, atol=1e-12)
    acceleration = np.linalg.solve(terms.M, terms.Q)
    force = (m * (J @ acceleration + bias - g)).reshape(-1, 3).sum(axis=0)
    np.testing.assert_allclose(chain.reactions(0.0, Q0, V0)["axle"].force, force, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_absolute_coordinates_give_the_same_acceleration(chain):
    rod = uk.Mechanism({"rod": chain.bodies["rod"]}, {"axle": chain.joints["axle"]})
    q0, v0 = Q0[jnp.array([0, 2, 3, 4])], V0[jnp.array([0, 2, 3, 4])]
    absolute = rod.in_absolute()
    assert [name for name, _ in absolute.coordinates[7:]] == [name for name, _ in rod.coordinates[1:]]

    @jax.jit
    def state(q, v):
        place = lambda q: jnp.concatenate([rod.pose(q)["rod"].p, quaternion_of(rod.pose(q)["rod"].R), q[1:]])
        q, rate = jax.jvp(place, (q,), (v,))
        return q, in_velocities(absolute, q, rate)

    q, v = state(q0, v0)
    found = uk.constrained_motion(absolute(0.0, q, v)).acceleration
    terms = rod(0.0, q0, v0)
    np.testing.assert_allclose(found[-3:], np.linalg.solve(terms.M, terms.Q)[1:], rtol=1e-8)


@pytest.mark.slow
def test_energy_of_a_spinning_beam_is_conserved():
    rod = beam(ends="free", modes=1, section_inertia=(1e-3, 0, 0))
    free = uk.Mechanism({"rod": rod}, gravity=(0, 0, 0))
    q0, v0 = free.start({"rod_mode1": 0.02}, {"rod_wz": 9.0, "rod_wx": 2.0})
    motion = uk.simulate(free, q0, v0, np.linspace(0, 1, 6), rtol=1e-11, atol=1e-12)
    assert np.ptp(motion.q[:, -1]) > 0.02
    energy = np.asarray(motion.energy)
    np.testing.assert_allclose(energy, energy[:1] * np.ones(6), rtol=1e-9)


def test_undeformed_beam_is_a_rigid_body_and_rotation_stiffens_it():
    """Where its modes are zero, M and Q of the beam's joint are those of a rigid body.

    In the plane of rotation, the square of the first frequency grows by 0.193 Ω² (Southwell: 1.193 − 1).
    """
    rigid = uk.Body(MU * L, (L / 2, 0, 0), (0, MU * L**3 / 12, MU * L**3 / 12))
    joint, q, v = {"axle": Revolute("ground", "rod")}, jnp.zeros(2), jnp.array([2.0 * UNIT, 0.0])
    body = uk.Mechanism({"rod": rigid}, joint, gravity=(0, -9.81, 0))(0.0, q[:1], v[:1])
    blade = uk.Mechanism({"rod": beam(ends="cantilever", modes=1)}, joint, gravity=(0, -9.81, 0))
    terms = blade(0.0, q, v)
    np.testing.assert_allclose(terms.M[:1, :1], body.M, rtol=1e-13)
    np.testing.assert_allclose(terms.Q[:1], body.Q, rtol=1e-12)
    high, low = (blade(0.0, q.at[1].set(eta), v).Q[1] for eta in (1e-4, -1e-4))
    square = (low - high) / 2e-4 / terms.M[1, 1]
    np.testing.assert_allclose((square - (CLAMPED[0] ** 2 * UNIT) ** 2) / v[0] ** 2, 0.193, atol=1e-3)


def test_body_loaded_from_sampled_shapes_matches_the_beam(tmp_path):
    """The nodes are points of Gauss quadrature, so that sums over nodes are the integrals."""
    rod = beam(ends="cantilever", modes=1, axial=1, EA=EA, stretching=False)
    along, zero = np.stack([X, 0 * X, 0 * X], axis=1), 0 * X
    shapes = np.stack([np.stack([zero, MODE(X), zero], axis=1), along])
    arrays: Any = dict(positions=L * along, masses=MU * L * W, shapes=shapes, stiffness=rod.stiffness)
    path = tmp_path / "rod.npz"
    np.savez(path, **arrays, names=[""] * 39 + ["last"])
    loaded = uk.FlexibleBody.load(path)
    assert loaded.names == ("last",) and loaded.modes == ("mode1", "mode2")
    for field in ("mass", "moments", "products", "modal_mass"):
        np.testing.assert_allclose(getattr(loaded, field), getattr(rod, field), rtol=1e-12, atol=1e-14)
    np.savez(path, **dict(arrays, stiffness=-rod.stiffness))
    with pytest.raises(uk.InputError, match="stiffness must be positive.*got -"):
        uk.FlexibleBody.load(path)
    np.savez(path, **dict(arrays, masses=np.ones(3)))
    with pytest.raises(uk.InputError, match=r"masses must have shape \(40,\), for 40 positions and 2 mode shapes"):
        uk.FlexibleBody.load(path)
    np.savez(path, **dict(arrays, shapes=np.ones((2, 40, 3))))
    with pytest.raises(uk.InputError, match="shapes must be independent of each other and of translations"):
        uk.FlexibleBody.load(path)
    np.savez(path, positions=L * along, weights=W)
    with pytest.raises(uk.InputError, match="has no array 'masses'. Its arrays must be positions, masses"):
        uk.FlexibleBody.load(path)


@pytest.mark.slow
def test_a_loop_is_closed_with_undeformed_bodies(monkeypatch):
    """A slider-crank: sin(rod) L = −sin(crank) r. A warning is given where a start would need a bent rod."""
    crank = uk.Body(1.0, inertia=(0.1, 0.1, 0.1))
    joints = {
        "crank": Revolute("ground", "crank"),
        "pin": Revolute("crank", "rod", at=(L / 4, 0, 0)),
        "slide": PointOnLine("ground", "rod.end", axis="x"),
    }
    slider = uk.Mechanism({"crank": crank, "rod": beam()}, joints, gravity=(0, 0, 0))
    q, v = slider.start({"crank": 1.0}, {"crank": 2.0})
    np.testing.assert_allclose(q[:2], [1.0, -1.0 - np.arcsin(np.sin(1.0) / 4)], rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([q[2:], v[2:]]), 0.0, rtol=0, atol=1e-12)
    guide = {"pin": Revolute("ground", "rod"), "guide": PointOnLine("ground", "rod.middle", axis="x")}
    guided = uk.Mechanism({"rod": beam(nodes={"middle": 0.5})}, guide, gravity=(0, 0, 0))
    monkeypatch.setattr("ukjax._mechanism.mechanism.project", None)  # it compiles for long, and finds no start
    with pytest.warns(UserWarning, match="is not possible with undeformed flexible bodies, .*: rod_mode1"):
        guided.start({"pin": 0.01})


def test_bad_input_raises():
    with pytest.raises(uk.InputError, match="bending must be 'y', 'z' or 'yz', got 'x'"):
        uk.FlexibleBody.beam(L, MU, EI, bending="x")
    with pytest.raises(uk.InputError, match=r"EA, the axial stiffness \[N\], is needed with axial=2"):
        beam(axial=2)
    right = {"length": L, "mass_per_length": MU, "EI": EI, "EA": 1e4, "axial": 1, "bending": "y"}
    for name in ("length", "mass_per_length", "EI", "EA"):
        for value in (np.inf, np.nan, 0.0, -1.0):
            wrong: dict[str, Any] = {**right, name: value}
            with pytest.raises(uk.InputError, match=f"^{name} must be .* above 0 and finite, got {value:g}"):
                uk.FlexibleBody.beam(**wrong)
    with pytest.raises(uk.InputError, match="modes must be at most 20, got 30"):
        beam(modes=30)
    with pytest.raises(uk.InputError, match=r"must join existing bodies, got 'rod.ende'; did you mean 'rod.end'"):
        uk.Mechanism({"rod": beam()}, {"pin": Revolute("ground", "rod.ende")})
    with pytest.raises(uk.InputError, match="two coordinates are named 'rod_mode1'"):
        uk.Mechanism({"rod": beam()}, {"rod_mode1": Revolute("ground", "rod")})
    with pytest.raises(uk.InputError, match=r"damping must be one number \[s\].*got shape \(2,\)"):
        beam(damping=[0.1, 0.2])
    with pytest.raises(uk.InputError, match="section_inertia must be numbers not below 0 and finite"):
        beam(section_inertia=(-1.0, 0.0, 0.0))
    line, shape = np.zeros((2, 3)), np.array([[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for names, message in ((None, "names must be a dictionary, .*got NoneType"), ({}, "at least one node, got none")):
        with pytest.raises(uk.InputError, match=message):
            uk.FlexibleBody.from_matrices(line, [1.0, 1.0], shape, [[1.0]], names=names)
    arm = uk.Mechanism({"rod": beam()}, {"pin": Revolute("ground", "rod")})
    with pytest.raises(uk.InputError, match="reach is for rigid bodies, and 'rod' is flexible"):
        uk.reach(arm, {"rod": (0.7, 0, 0)}, [0.0, 0.0, 0.0])

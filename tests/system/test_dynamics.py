"""M and Q from energies, against Lagrange's equations by SymPy, other coordinates, and the power of the forces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

import ukjax as uk

from ..helpers import printed_formula

CLOSE = 1e-12  # float64 rounding of expressions of order 1 to 10
G = 9.81
N_STATES = 3


def by_sympy(lagrangian, kinetic, t, q, v, state):
    """M and Q = ∂L/∂q − (∂p/∂t + ∂p/∂q v), p = ∂T/∂v, at a state (t, q, v)."""
    p = [sp.diff(kinetic, x) for x in v]
    M = sp.hessian(kinetic, v)
    Q = [
        sp.diff(lagrangian, x) - sp.diff(y, t) - sum(sp.diff(y, z) * w for z, w in zip(q, v, strict=True))
        for x, y in zip(q, p, strict=True)
    ]
    at = dict(zip((t, *q, *v), np.concatenate([np.atleast_1d(x) for x in state]), strict=True))
    return np.array(M.subs(at), float), np.array(sp.Matrix(Q).subs(at), float)[:, 0]


def states(rng, n=2):
    return [tuple(map(jnp.asarray, (rng.normal(), rng.normal(size=n), rng.normal(size=n)))) for _ in range(N_STATES)]


# --- systems, once for SymPy and once for JAX ----------------------------------------------------------------------

M1, M2, L1, L2 = 1.3, 0.7, 0.9, 1.1


def double_pendulum(xp, q, v):
    """T and V of two point masses, angles from the vertical."""
    kinetic = (M1 + M2) / 2 * L1**2 * v[0] ** 2 + M2 / 2 * L2**2 * v[1] ** 2
    kinetic += M2 * L1 * L2 * v[0] * v[1] * xp.cos(q[0] - q[1])
    return kinetic, -(M1 + M2) * G * L1 * xp.cos(q[0]) - M2 * G * L2 * xp.cos(q[1])


def bead_on_a_hoop(xp, t, q, v):
    """A bead at angle q[0] on a hoop of radius q[1] whose plane turns at Ω = t² and whose centre rises as sin 2t.

    T = T2 + T1 + T0: position (r sin θ cos ψ, r sin θ sin ψ, h − r cos θ), ψ̇ = t², h = sin 2t.
    """
    (theta, r), (theta_dot, r_dot), h_dot = q, v, 2 * xp.cos(2 * t)
    radial = r_dot * xp.sin(theta) + r * xp.cos(theta) * theta_dot
    vertical = h_dot - r_dot * xp.cos(theta) + r * xp.sin(theta) * theta_dot
    kinetic = (radial**2 + (r * xp.sin(theta) * t**2) ** 2 + vertical**2) / 2
    return kinetic, G * (xp.sin(2 * t) - r * xp.cos(theta))


def test_double_pendulum_matches_sympy(rng):
    t, q, v = sp.Symbol("t"), sp.symbols("q0 q1"), sp.symbols("v0 v1")
    T, V = double_pendulum(sp, q, v)
    model = uk.Lagrangian(lambda t, q, v: double_pendulum(jnp, q, v)[0], lambda t, q: double_pendulum(jnp, q, q)[1])
    for state in states(rng):
        for found, expected in zip(model.terms(*state), by_sympy(T - V, T, t, q, v, state), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


def test_moving_frame_with_explicit_time_matches_sympy(rng):
    t, q, v = sp.Symbol("t"), sp.symbols("theta r"), sp.symbols("theta_dot r_dot")
    T, V = bead_on_a_hoop(sp, t, q, v)
    model = uk.Lagrangian(lambda t, q, v: bead_on_a_hoop(jnp, t, q, v)[0], lambda t, q: bead_on_a_hoop(jnp, t, q, q)[1])
    for state in states(rng):
        for found, expected in zip(model.terms(*state), by_sympy(T - V, T, t, q, v, state), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_bead_on_accelerating_hoop_has_larger_effective_gravity():
    """On a fixed hoop whose centre accelerates upwards by a: r θ̈ = −(g + a) sin θ."""
    r, a = 0.5, 3.0

    def kinetic(t, q, v):
        return ((r * jnp.cos(q[0]) * v[0]) ** 2 + (a * t + r * jnp.sin(q[0]) * v[0]) ** 2) / 2

    model = uk.Lagrangian(kinetic, lambda t, q: -G * r * jnp.cos(q[0]))
    M, Q = model.terms(*map(jnp.asarray, (0.7, np.array([0.4]), np.array([1.3]))))
    np.testing.assert_allclose(Q / M[0, 0], [-(G + a) / r * np.sin(0.4)], rtol=0, atol=CLOSE)


# --- the same motion in other coordinates --------------------------------------------------------------------------


POLAR = uk.Lagrangian(
    lambda t, q, v: 0.3 * (v[0] ** 2 + q[0] ** 2 * v[1] ** 2) / 2, lambda t, q: 0.3 * G * q[0] * jnp.sin(q[1])
)
CARTESIAN = uk.Lagrangian(lambda t, q, v: 0.3 * v @ v / 2, lambda t, q: 0.3 * G * q[1])


def cartesian(t, q):
    return q[0] * jnp.stack([jnp.cos(q[1]), jnp.sin(q[1])])


def mapped(t, q, v, acceleration):
    """Cartesian position, velocity and acceleration of a polar motion."""
    along = lambda q, v: jax.jvp(lambda q: cartesian(t, q), (q,), (v,))
    (x, x_dot), (_, bend) = jax.jvp(lambda q: along(q, v), (q,), (v,))
    return x, x_dot, jax.jacfwd(lambda q: cartesian(t, q))(q) @ acceleration + bend


def test_a_projectile_in_polar_coordinates_falls_freely():
    """M = diag(m, m r²), Q with m r θ̇² and −2 m r ṙ θ̇ (Zhao et al. 2018, eq. 9, has M = m I)."""
    t, q, v = map(jnp.asarray, (0.0, np.array([1.4, 0.3]), np.array([0.2, -1.0])))
    terms = uk.System(POLAR)(t, q, v)
    np.testing.assert_allclose(terms.M, 0.3 * np.diag([1.0, 1.4**2]), rtol=0, atol=CLOSE)
    expected = [1.4 * 1.0 - G * np.sin(0.3), -2 * 1.4 * 0.2 * -1.0 - G * 1.4 * np.cos(0.3)]
    np.testing.assert_allclose(terms.Q, 0.3 * np.array(expected), rtol=0, atol=CLOSE)
    *_, acceleration = mapped(t, q, v, uk.constrained_motion(terms).acceleration)
    np.testing.assert_allclose(acceleration, [0.0, -G], rtol=0, atol=CLOSE)


def test_motion_on_spiral_is_the_same_in_polar_and_cartesian_coordinates():
    """r = e^(0.1 θ), θ = 0.3, θ̇ = −1: q̈ = (−0.956610, −9.383374), where M = m I gives (−0.957168, −9.388790)."""
    theta, theta_dot = 0.3, -1.0
    r = np.exp(0.1 * theta)
    t, q, v = map(jnp.asarray, (0.0, np.array([r, theta]), np.array([0.1 * r * theta_dot, theta_dot])))
    spiral = lambda t, q: q[0] - jnp.exp(0.1 * q[1])
    polar = uk.constrained_motion(uk.System(POLAR, uk.Holonomic(spiral))(t, q, v))
    np.testing.assert_allclose(polar.acceleration, [-0.956610, -9.383374], rtol=0, atol=5e-7)

    x, x_dot, expected = mapped(t, q, v, polar.acceleration)
    phi = lambda t, x: jnp.sqrt(x @ x) - jnp.exp(0.1 * jnp.arctan2(x[1], x[0]))
    straight = uk.constrained_motion(uk.System(CARTESIAN, uk.Holonomic(phi))(t, x, x_dot))
    np.testing.assert_allclose(straight.acceleration, expected, rtol=0, atol=CLOSE)

    terms = uk.System(POLAR, uk.Holonomic(spiral))(t, q, v)
    Q = np.array([terms.Q[0], terms.Q[1] / r]) / 0.3
    wrong, *_ = printed_formula(np.eye(2), Q, np.asarray(terms.A), np.asarray(terms.b))
    assert np.linalg.norm(wrong - polar.acceleration) > 1e-3  # the paper's M would fail


# --- laws ----------------------------------------------------------------------------------------------------------


def test_mass_matrix_is_symmetric_and_gives_the_kinetic_energy(rng):
    """½ vᵀ M v = T for a scleronomic system."""
    model = uk.Lagrangian(lambda t, q, v: double_pendulum(jnp, q, v)[0])
    for t, q, v in states(rng):
        M, _ = model.terms(t, q, v)
        np.testing.assert_allclose(M, M.T, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(v @ M @ v / 2, model.energy(t, q, v), rtol=0, atol=CLOSE)


def test_power_of_the_applied_force_is_the_change_of_energy(rng):
    """dE/dt = vᵀF, along any motion that obeys M q̈ = Q."""
    force = lambda t, q, v: jnp.stack([jnp.sin(t) - 0.3 * v[0], v[0] * q[1]])
    model = uk.Lagrangian(
        lambda t, q, v: double_pendulum(jnp, q, v)[0], lambda t, q: double_pendulum(jnp, q, q)[1], force
    )
    for t, q, v in states(rng):
        M, Q = model.terms(t, q, v)
        acceleration = np.linalg.solve(M, Q)
        _, rate = jax.jvp(model.energy, (t, q, v), (jnp.ones(()), v, jnp.asarray(acceleration)))
        np.testing.assert_allclose(rate, v @ force(t, q, v), rtol=0, atol=1e-10)
        assert abs(rate) > 1e-3


def test_energy_without_potential_is_kinetic(rng):
    model = uk.Lagrangian(lambda t, q, v: v @ v)
    for t, q, v in states(rng):
        np.testing.assert_allclose(model.energy(t, q, v), v @ v, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(model.terms(t, q, v)[1], 0, rtol=0, atol=CLOSE)


# --- M and Q by hand -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M", (np.diag([2.0, 3.0]), lambda t, q: np.diag([2.0, 3.0])))
@pytest.mark.parametrize("Q", (np.array([4.0, 5.0]), lambda t, q, v: [4.0, 5.0], [4.0, 5.0]))
def test_terms_of_mass_force_are_its_arguments(rng, M, Q):
    state = states(rng)[0]
    model = uk.MassForce(M, Q)
    np.testing.assert_array_equal(model.terms(*state)[0], np.diag([2.0, 3.0]))
    np.testing.assert_array_equal(model.terms(*state)[1], [4.0, 5.0])
    assert model.energy(*state) is None


def test_terms_by_hand_match_terms_by_energies(rng):
    def mass(t, q):
        off = M2 * L1 * L2 * jnp.cos(q[0] - q[1])
        return jnp.array([[(M1 + M2) * L1**2, off], [off, M2 * L2**2]])

    def force(t, q, v):
        turn = M2 * L1 * L2 * jnp.sin(q[0] - q[1])
        gravity = G * jnp.stack([(M1 + M2) * L1 * jnp.sin(q[0]), M2 * L2 * jnp.sin(q[1])])
        return turn * jnp.stack([-(v[1] ** 2), v[0] ** 2]) - gravity

    by_hand = uk.MassForce(mass, force)
    by_energies = uk.Lagrangian(
        lambda t, q, v: double_pendulum(jnp, q, v)[0], lambda t, q: double_pendulum(jnp, q, q)[1]
    )
    for state in states(rng):
        for one, other in zip(by_hand.terms(*state), by_energies.terms(*state), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=CLOSE)


def test_single_precision_stays_single():
    t, q, v = (jnp.asarray(x, jnp.float32) for x in (0.0, np.ones(2), np.ones(2)))
    assert [x.dtype for x in POLAR.terms(t, q, v)] == [jnp.float32] * 2

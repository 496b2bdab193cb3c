"""The complementarity problem of contact forces: its conditions are checked in NumPy."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ukjax._contact.complementarity import Cone, solve_complementarity, with_derivatives
from ukjax._contact.rows import Layout

CORNERS, MEMBERS = 8, 40
LAYOUT = Layout(gaps=CORNERS, groups=CORNERS, dim=2, normal_of=tuple(range(CORNERS)), has_static=False)


def corners_of_two_feet(seed):
    """A rigid body on two feet of four corners hits the ground with a slip: W (24, 24) has rank 6."""
    random = np.random.default_rng(seed)
    corners = np.array([(x, y + foot, -0.5) for foot in (-0.2, 0.2) for x in (-0.1, 0.15) for y in (-0.05, 0.05)])
    rates = np.array([np.hstack([np.eye(3), np.cross(np.eye(3), p)]) for p in corners])  # of v and ω
    J = np.concatenate([rates[:, 2], rates[:, :2].reshape(-1, 6)])
    root = random.normal(size=(6, 6))
    W = J @ (root @ root.T + 0.3 * np.eye(6)) @ J.T
    v = random.normal(size=6) * random.choice([1, 0.1, 0.01]) - np.eye(6)[2]
    size = np.diagonal(W)
    size = np.concatenate([size[:CORNERS], np.repeat(size[CORNERS:].reshape(-1, 2).max(axis=1), 2)])
    s = 1 / np.sqrt(size)
    return s[:, None] * W * s, s * (J @ v), random.choice([0.1, 0.5, 0.8]) * s[:CORNERS] / s[CORNERS::2]


def solve(W, c, friction, guess=None):
    cone = Cone(jnp.ones(CORNERS, bool), friction, jnp.zeros(CORNERS), jnp.zeros((CORNERS, 2)))
    return solve_complementarity(W, c, cone, LAYOUT, guess)


def check_conditions(x, W, c, friction):
    """Conditions of contact and friction for members (m, rows). Returns where contacts slip, and where they stick."""
    u = np.einsum("mij,mj->mi", W, x) + c
    size = np.abs(c).max(axis=1, keepdims=True)
    normal, gap_rate = x[:, :CORNERS], u[:, :CORNERS]
    assert np.min(normal / size) > -1e-9
    assert np.min(gap_rate / size) > -1e-9
    assert np.max(np.minimum(normal, gap_rate) / size) < 1e-9
    force, slip = (y[:, CORNERS:].reshape(-1, CORNERS, 2) for y in (x, u))
    allowed, length = friction * normal, np.linalg.norm(force, axis=-1)
    assert np.max((length - allowed) / size) < 1e-9
    speed = np.linalg.norm(slip, axis=-1)
    slips = (speed > 1e-7 * size) & (allowed > 1e-7 * size)
    np.testing.assert_allclose((force * speed[..., None])[slips], (-slip * allowed[..., None])[slips], atol=1e-8)
    return slips, ~slips & (normal > 1e-3 * size)


def test_forces_of_redundant_corners_satisfy_contact_and_friction_conditions():
    W, c, friction = (np.array(x) for x in zip(*map(corners_of_two_feet, range(MEMBERS)), strict=True))
    x, error = (np.asarray(y) for y in jax.jit(jax.vmap(solve))(W, c, friction))
    assert np.all(error < 1e-10)
    slips, sticks = check_conditions(x, W, c, friction)
    assert np.sum(slips) > 10 and np.sum(sticks) > 10


def test_guess_that_is_worse_than_zero_is_not_used():
    """A humanoid in the step after its feet hit the ground: the impulses of the step before are 600 times larger."""
    with np.load(Path(__file__).parent / "data" / "after_an_impact.npz") as data:
        W, c, friction, guess = (data[name] for name in ("W", "c", "friction", "guess"))
    x, error = (np.asarray(y) for y in jax.jit(solve)(W, c, friction, guess))
    assert error < 1e-10
    check_conditions(x[None], W[None], c[None], friction[None])


def test_second_derivatives_of_a_sliding_contact_are_those_of_the_closed_form():
    """x_n (1 − μ w) = −c_n, where the slip is positive."""
    w, c, layout = 0.4, jnp.array([-1.0, 3.0]), Layout(gaps=1, groups=1, dim=1, normal_of=(0,), has_static=False)

    def normal_force(friction):
        W, cone = (
            jnp.array([[1.0, w], [w, 1.0]]),
            Cone(jnp.ones(1, bool), friction[None], jnp.zeros(1), jnp.zeros((1, 1))),
        )
        x, _ = solve_complementarity(W, c, cone, layout)
        return with_derivatives(x, W, c, cone, layout)[0]

    friction = jnp.asarray(0.5)
    slope, curvature = w / (1 - 0.5 * w) ** 2, 2 * w**2 / (1 - 0.5 * w) ** 3
    np.testing.assert_allclose(jax.grad(normal_force)(friction), slope, rtol=1e-9)
    for derivative in (jax.jacfwd(jax.grad(normal_force)), jax.jacfwd(jax.jacfwd(normal_force))):
        np.testing.assert_allclose(derivative(friction), curvature, rtol=1e-8)

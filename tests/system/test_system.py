"""``System``: its terms, residuals and energy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

CLOSE = 1e-12  # float64 rounding of expressions of order 1 to 10

T, Q, V = map(jnp.asarray, (0.4, np.array([0.3, -0.8, 1.2]), np.array([0.7, 0.5, -1.1])))

SPHERE = uk.Holonomic(lambda t, q: q @ q - 2 - t, name="sphere")
SPEED = uk.Nonholonomic(lambda t, q, v: [v @ v - 1, v[0] * q[1]], name="speed")
EDGE = uk.Pfaffian(lambda t, q: [q[1], 0.0, t], 0.5, name="edge")
SERVO = uk.AccelerationConstraint(np.array([[1.0, 2.0, 3.0]]), [4.0], name="servo")
MASS = uk.MassForce(np.diag([1.0, 2.0, 3.0]), lambda t, q, v: -v)


def mixed(**more):
    return uk.System(MASS, [SPHERE, SPEED, EDGE, SERVO], **more)


def test_rows_of_all_kinds_are_stacked_in_order():
    terms = mixed()(T, Q, V)
    parts = [constraint.rows(T, Q, V) for constraint in (SPHERE, SPEED, EDGE, SERVO)]
    assert terms.A.shape == (5, 3)
    np.testing.assert_array_equal(terms.A, np.vstack([A for A, _ in parts]))
    np.testing.assert_array_equal(terms.b, np.concatenate([b for _, b in parts]))
    np.testing.assert_array_equal(terms.M, np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(terms.Q, -V)
    assert terms.c is None


def test_residual_of_each_kind_of_constraint():
    """φ of a holonomic constraint, ψ of a velocity constraint, A q̈ − b of an acceleration constraint: one entry per
    row of A."""
    acceleration = jnp.array([1.0, -1.0, 0.5])
    x, v = np.asarray(Q), np.asarray(V)
    phi, psi = x @ x - 2.4, [v @ v - 1, v[0] * x[1]]
    edge, servo = x[1] * v[0] + 0.4 * v[2] - 0.5, 1.0 - 2.0 + 1.5 - 4.0
    np.testing.assert_allclose(
        mixed().residual(T, Q, V, acceleration), np.hstack([phi, psi, edge, servo]), rtol=0, atol=CLOSE
    )
    np.testing.assert_allclose(mixed().position_residual(T, Q), [phi], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(mixed().velocity_residual(T, Q, V), [2 * x @ v - 1, *psi, edge], rtol=0, atol=CLOSE)


def test_motion_satisfies_mixed_constraints():
    """Differences along the motion: φ̈ = 0, ψ̇ = 0 and A q̈ = b."""
    model = uk.System(MASS, [SPHERE, EDGE])
    a = uk.constrained_motion(model(T, Q, V)).acceleration
    state = lambda s: (T + s, Q + V * s + a * s**2 / 2, V + a * s)
    h = 1e-4
    phi = [model.position_residual(*state(s)[:2])[0] for s in (h, 0.0, -h)]
    np.testing.assert_allclose((phi[0] - 2 * phi[1] + phi[2]) / h**2, 0, rtol=0, atol=1e-6)
    psi = [model.velocity_residual(*state(s))[1] for s in (h, -h)]
    np.testing.assert_allclose((psi[0] - psi[1]) / (2 * h), 0, rtol=0, atol=1e-6)


def test_pendulum_in_cartesian_coordinates():
    """Tangential acceleration −g sin θ, tension m (v²/l + g cos θ)."""
    m, length, g, theta, speed = 0.5, 2.0, 9.81, 0.7, 1.3
    model = uk.System(
        uk.Lagrangian(lambda t, q, v: m * v @ v / 2, lambda t, q: m * g * q[1]),
        uk.Holonomic(lambda t, q: (q @ q - length**2) / 2),
    )
    outward, along = np.array([np.sin(theta), -np.cos(theta)]), np.array([np.cos(theta), np.sin(theta)])
    motion = uk.constrained_motion(model(0.0, length * outward, speed * along))
    np.testing.assert_allclose(motion.acceleration @ along, -g * np.sin(theta), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.acceleration @ outward, -(speed**2) / length, rtol=0, atol=CLOSE)
    tension = m * (speed**2 / length + g * np.cos(theta))
    np.testing.assert_allclose(motion.constraint_force, -tension * outward, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("constraints", (SPHERE, [SPHERE], (SPHERE,), iter([SPHERE])))
def test_single_constraint_needs_no_list(constraints):
    model = uk.System(MASS, constraints)
    assert model.constraints == (SPHERE,)


def test_system_without_constraints_has_no_rows():
    model = uk.System(MASS)
    terms = model(T, Q, V)
    assert terms.A.shape == (0, 3) and terms.b.shape == (0,)
    assert model.position_residual(T, Q).shape == model.velocity_residual(T, Q, V).shape == (0,)
    assert model.residual(T, Q, V, V).shape == (0,)
    np.testing.assert_allclose(
        uk.constrained_motion(terms).acceleration, -V / np.array([1.0, 2.0, 3.0]), rtol=0, atol=CLOSE
    )


def test_nonideal_force_is_c():
    c = mixed(nonideal=lambda t, q, v: -t * v)(T, Q, V).c
    assert c is not None
    np.testing.assert_allclose(c, -0.4 * V, rtol=0, atol=CLOSE)


def test_energy_is_that_of_the_dynamics():
    assert mixed().energy(T, Q, V) is None
    model = uk.System(uk.Lagrangian(lambda t, q, v: v @ v, lambda t, q: q[0]), SPHERE)
    energy = model.energy(T, Q, V)
    assert energy is not None
    np.testing.assert_allclose(energy, V @ V + Q[0], rtol=0, atol=CLOSE)


def test_integers_are_converted_to_floats():
    terms = mixed()(0, np.array([1, 2, 3]), np.array([0, 1, 0]))
    assert {x.dtype for x in jax.tree.leaves(terms)} == {np.dtype("float64")}
    np.testing.assert_array_equal(terms.b[0], -2.0)


def test_coordinates_are_names_not_leaves():
    named = mixed(coordinates=(("x", "m"), ("y", "m"), ("z", "m")))
    assert named.coordinates == (("x", "m"), ("y", "m"), ("z", "m"))
    assert len(jax.tree.leaves(named)) == len(jax.tree.leaves(mixed()))


class Pendulum(uk.AbstractSystem):
    """A mechanism with parameters. Each is one leaf, though it is used several times."""

    mass: jax.Array
    length: jax.Array
    nonideal: None = None
    coordinates: None = None

    @property
    def dynamics(self):
        return uk.Lagrangian(lambda t, q, v: self.mass * v @ v / 2, lambda t, q: 9.81 * self.mass * q[1])

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: (q @ q - self.length**2) / 2, *uk.critically_damped(2.0)),)


def test_parameters_of_a_mechanism_have_gradients():
    """∂b/∂l = β l; the acceleration does not depend on the mass, the force is proportional to it."""
    model = Pendulum(jnp.asarray(0.5), jnp.asarray(2.0))
    q, v = np.array([1.9, 0.1]), np.array([0.2, 0.4])
    motion = lambda m: uk.constrained_motion(m(T, q, v))
    slope = eqx.filter_grad(lambda m: m(T, q, v).b[0])(model)
    np.testing.assert_allclose([slope.mass, slope.length], [0.0, 4.0 * 2.0], rtol=0, atol=CLOSE)
    slope = eqx.filter_grad(lambda m: motion(m).acceleration[0])(model)
    np.testing.assert_allclose(slope.mass, 0, rtol=0, atol=CLOSE)
    slope = eqx.filter_grad(lambda m: motion(m).constraint_force[0])(model)
    np.testing.assert_allclose(slope.mass, motion(model).constraint_force[0] / 0.5, rtol=0, atol=CLOSE)


def test_batch_of_states_matches_single_states(rng):
    q, v = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    terms = jax.jit(jax.vmap(mixed(), in_axes=(None, 0, 0)))(T, q, v)
    for i in range(4):
        one = mixed()(T, q[i], v[i])
        for name in "MQAb":
            np.testing.assert_allclose(getattr(terms, name)[i], getattr(one, name), rtol=0, atol=CLOSE)

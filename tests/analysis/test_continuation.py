"""Branches of equilibria and periodic motions: special points against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import ukjax as uk

G, RADIUS = 9.81, 0.5


def hoop(rate):
    """A bead on a rotating hoop, in the plane of the hoop; the row is written twice."""
    force = lambda t, q, v: jnp.stack([rate**2 * q[0], -G + 0 * q[0]])
    rows = lambda t, q: jnp.stack([q @ q - RADIUS**2, 2 * (q @ q - RADIUS**2)])
    return uk.System(uk.MassForce(jnp.eye(2), force), uk.Holonomic(rows, name="hoop"))


STIFFNESS, HALF, HEIGHT = 1000.0, 1.0, 0.3


def truss(load):
    """Von Mises truss: a point on two springs between supports 2 m apart, in the plane of symmetry, with a load.

    The load is a third coordinate, whose row depends on the parameter.
    """
    rest = np.hypot(HALF, HEIGHT)
    energy = lambda t, q: STIFFNESS * (jnp.sqrt(HALF**2 + q[1] ** 2) - rest) ** 2
    push = lambda t, q, v: jnp.stack([0.0, -1.0, 0.0]) * q[2]
    rows = uk.Holonomic(lambda t, q: jnp.stack([q[0], q[2] - load]), name=("middle", "load"))
    return uk.System(uk.Lagrangian(lambda t, q, v: v @ v / 2, energy, push), rows)


def ziegler(damping):
    """Ziegler's column: two rods with springs and dampers in both joints, masses 2 and 1 at their ends, and a follower
    force along the second rod."""

    def kinetic(t, q, v):
        return 1.5 * v[0] ** 2 + v[1] ** 2 / 2 + jnp.cos(q[0] - q[1]) * v[0] * v[1]

    def family(load):
        follow = lambda q: jnp.stack([load * jnp.sin(q[0] - q[1]), 0.0])
        damped = lambda v: -damping * jnp.stack([2 * v[0] - v[1], v[1] - v[0]])
        energy = lambda t, q: (q[0] ** 2 + (q[1] - q[0]) ** 2) / 2
        return uk.System(uk.Lagrangian(kinetic, energy, lambda t, q, v: follow(q) + damped(v)))

    return family


def test_fold_of_a_von_mises_truss():
    """The load (1 − L0/L) y 2k has an extremum where L³ = L0 HALF²."""
    branch = uk.continuation(truss, [0.0, HEIGHT, 0.0], 0.0, until=40.0)
    rest = np.hypot(HALF, HEIGHT)
    length = (rest * HALF**2) ** (1 / 3)
    y = np.sqrt(length**2 - HALF**2)
    (fold,) = branch.special
    assert fold.kind == "fold" and fold.period is None
    np.testing.assert_allclose([fold.parameter, fold.q[1]], [2 * STIFFNESS * (rest / length - 1) * y, y], rtol=1e-12)
    assert branch.reason == "came back to its start"
    np.testing.assert_allclose(branch.q[-1, :2], 0, atol=1e-12)  # the flat truss without load
    heights = np.asarray(branch.q[:, 1])
    loads = 2 * STIFFNESS * (rest / np.hypot(HALF, heights) - 1) * heights
    np.testing.assert_allclose(branch.parameter, loads, rtol=0, atol=1e-9)
    assert np.array_equal(branch.stable, heights > y) and np.all(np.diff(heights) < 0)


def test_flutter_of_zieglers_column_with_dampers():
    """The load 41/28 + c²/2 (H. Ziegler, Ingenieur-Archiv 20 (1952) 49) is smaller than without dampers."""
    c = 0.1
    (hopf,) = uk.continuation(ziegler(c), [0.0, 0.0], 0.5, until=3.0).special
    assert hopf.kind == "Hopf"
    np.testing.assert_allclose(hopf.parameter, 41 / 28 + c**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(hopf.period), 2 * np.pi * np.sqrt(7 / 2), rtol=1e-12)  # Routh: ω² = 2c/(7c)
    np.testing.assert_allclose(np.sort(np.real(hopf.eigenvalues))[2:], 0, atol=1e-10)


@pytest.mark.slow
def test_flutter_of_zieglers_column_without_dampers():
    """Two pairs of imaginary eigenvalues become equal at 7/2 − √2."""
    (hopf,) = uk.continuation(ziegler(0.0), [0.0, 0.0], 0.5, until=3.0).special
    assert hopf.kind == "Hopf"
    np.testing.assert_allclose(hopf.parameter, 3.5 - np.sqrt(2), rtol=1e-10)


@pytest.mark.slow
def test_pitchfork_of_a_bead_on_a_hoop():
    """At ω² = g/R. The second branch has cos θ = g/(ω² R), and passes through the same point again."""
    branch = uk.continuation(hoop, [0.0, -RADIUS], 3.0, until=6.0)
    (point,) = branch.special
    assert point.kind == "branch point" and branch.reason == "reached the end of the interval"
    np.testing.assert_allclose(point.parameter**2, G / RADIUS, rtol=1e-13)
    np.testing.assert_allclose(np.abs(point.displacement), [1, 0], atol=1e-12)
    assert np.array_equal(branch.stable, np.asarray(branch.parameter) < np.sqrt(G / RADIUS))
    beside, _ = point.start(0.1)
    other = uk.continuation(hoop, beside, float(point.parameter) + 0.05, until=4.0)
    np.testing.assert_allclose(other.q[:, 1], -G / np.asarray(other.parameter) ** 2, rtol=1e-10)
    (again,) = other.special
    assert again.kind == "branch point" and np.all(other.stable)
    np.testing.assert_allclose(again.parameter**2, G / RADIUS, rtol=1e-8)
    assert other.q[0, 0] * other.q[-1, 0] < 0  # it continues with the bead on the other side


@pytest.mark.slow
def test_period_doubling_of_a_pendulum_with_a_vibrating_pivot():
    """A multiplier of the hanging pendulum crosses −1 at the Mathieu characteristic values b₁ and a₁."""
    q = 0.5

    def shaken(a):
        force = lambda t, x, v: -(a - 2 * q * jnp.cos(2 * t)) * jnp.sin(x)
        return uk.System(uk.MassForce(jnp.eye(1), force))

    orbit = uk.periodic(shaken(0.1), [0.0], [0.0], np.pi, steps=48)
    branch = uk.continuation(shaken, orbit, 0.1, until=2.0)
    exact = [scipy.special.mathieu_b(1, q), scipy.special.mathieu_a(1, q)]
    assert [point.kind for point in branch.special] == ["period doubling"] * 2
    np.testing.assert_allclose([point.parameter for point in branch.special], exact, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(branch.period), np.pi, rtol=0)
    inside = (np.asarray(branch.parameter) > exact[0]) & (np.asarray(branch.parameter) < exact[1])
    assert np.array_equal(branch.stable, ~inside)


@pytest.mark.slow
def test_too_few_steps_at_the_end_of_a_branch_give_a_warning():
    """16 steps suffice for the matrix [[cos ωT, ·], [·, cos ωT]] at ωT = 1, not at 9. The motion is at rest."""
    spring = lambda k: uk.System(uk.MassForce(jnp.eye(1), lambda t, x, v: -(k + 0 * t) * x))
    orbit = uk.periodic(spring(1.0), [0.0], [0.0], 1.0, steps=16, fixed_period=True)
    with pytest.warns(UserWarning, match="too few for this branch: at the parameter 900 the end"):
        uk.continuation(spring, orbit, 1.0, until=900.0, fixed_period=True, step=0.5, longest=0.5)


@pytest.mark.slow
def test_periods_of_a_pendulum_as_a_function_of_gravity():
    """With fixed amplitude, T = 4 √(l/g) K(sin(θ/2)) on the whole branch, which has no special points."""
    swinging = lambda g: uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -g * jnp.sin(q)))
    orbit = uk.periodic(swinging(9.81), [0.9], [0.0], 2.0, hold=("q1", "dq1"), steps=64)
    branch = uk.continuation(swinging, orbit, 9.81, until=20.0, hold=("q1", "dq1"), longest=0.3)
    exact = 4 / np.sqrt(np.asarray(branch.parameter)) * scipy.special.ellipk(np.sin(0.45) ** 2)
    np.testing.assert_allclose(np.asarray(branch.period), exact, rtol=1e-10)
    np.testing.assert_allclose(branch.q, np.full((len(exact), 1), 0.9), atol=1e-10)
    assert branch.special == () and float(branch.parameter[-1]) == 20.0


def test_branch_with_a_stiff_and_a_soft_spring():
    both = lambda p: uk.System(uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.stack([p - q[0], -2e7 * q[1]])))
    branch = uk.continuation(both, [0.0, 0.0], 0.0, until=1.0)
    np.testing.assert_allclose(branch.q[:, 0], branch.parameter, atol=1e-12)


def test_bad_input_raises():
    with pytest.raises(uk.InputError, match="until must differ from parameter"):
        uk.continuation(hoop, [0.0, -0.5], 3.0, until=3.0)
    with pytest.raises(uk.InputError, match=r"family must return a ukjax.System, got"):
        uk.continuation(lambda p: p, [0.0, -0.5], 3.0, until=4.0)
    with pytest.raises(uk.InputError, match="fixed_period must be None unless start is an Orbit"):
        uk.continuation(hoop, [0.0, -0.5], 3.0, until=4.0, fixed_period=True)

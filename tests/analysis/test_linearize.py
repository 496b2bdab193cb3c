"""Linearised systems against closed forms, published eigenvalues, SciPy and finite differences."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import ukjax as uk

from .models import GRAVITY, cart_pole, four_bars, hanging, hanging_chain, pendulum

EXACT: Any = dict(rtol=1e-10, atol=1e-10)


def squares(linear):
    """Return ω² of the modes, in increasing order."""
    return np.array([mode.frequency**2 for mode in linear.modes])


# --- number and values of the eigenvalues ---------------------------------------------------------------------------


def test_modes_of_a_hanging_chain_are_the_zeros_of_a_laguerre_polynomial():
    """Daniel Bernoulli's chain of N points. The rows are written twice, scaled and in another order."""
    N = 3
    linear = uk.linearize(hanging_chain(N, doubled=True), hanging(N))
    zeros = np.polynomial.laguerre.lagroots([0] * N + [1])
    assert linear.A.shape == (2 * N, 2 * N)
    np.testing.assert_allclose(squares(linear), GRAVITY * np.sort(zeros), **EXACT)
    assert all(abs(mode.damping) < 1e-12 for mode in linear.modes)
    across, along = linear.modes[0].shape.reshape(N, 2).T
    assert np.all(np.real(across) > 0.1) and np.all(along == 0)  # all to the same side, none up or down


@pytest.mark.parametrize("N", (2, pytest.param(40, marks=pytest.mark.slow)))
def test_four_bar_windows_with_redundant_rows_have_one_mode(N):
    system, q = four_bars(N)
    q = q.ravel()
    linear = uk.linearize(system, q)
    A = np.asarray(system(0.0, q, 0 * q).A)
    assert linear.A.shape == (2, 2) and len(A) > np.linalg.matrix_rank(A) == q.size - 1
    expected = {2: 11.445, 40: 11.059099378882}[N]
    np.testing.assert_allclose(squares(linear), [expected], **EXACT)


@pytest.mark.slow
def test_eigenvalues_of_a_steadily_spinning_body():
    """A free body spins about its axis of symmetry: in the body, the axis nutates at the rate (C/A − 1) ω₃.

    Six states: three displacements and three angular velocities, in body axes.
    """
    A, C, spin = 2.0, 3.0, 1.5
    inertia = jnp.diag(jnp.array([A, A, C]))
    system = spinning(inertia)
    q, v = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, spin])
    linear = uk.linearize(system, q, v)
    assert len(linear.states) == 6
    # Displacements ξ̇ = δω − ω × ξ have ± i ω₃ and 0; angular velocities have ± i (C/A − 1) ω₃ and 0.
    expected = np.array([0, 0, 0.5 * spin, 0.5 * spin, spin, spin])
    np.testing.assert_allclose(np.sort(np.abs(linear.eigenvalues)), expected, atol=1e-7)
    assert [mode.frequency for mode in linear.modes][-2:] == pytest.approx([0.5 * spin, spin], rel=1e-12)


def spinning(inertia, stiffness=0.0):
    """A body with a unit quaternion and the angular velocity in body axes, and a spring that makes its axis upright."""

    def quaternion_rate(q, w):
        x = jnp.concatenate([jnp.zeros(1), w])
        return jnp.concatenate([-(q[1:] @ x[1:])[None], q[0] * x[1:] + jnp.cross(q[1:], x[1:])]) / 2

    def moment(t, q, w):
        erecting = -stiffness * 2 * q[0] * q[1:]
        return erecting - jnp.cross(w, inertia @ w)

    names = tuple((f"q{i}", "") for i in range(4))
    rates = tuple((f"w{axis}", "rad/s") for axis in "xyz")
    return uk.System(uk.MassForce(inertia, moment), kinematic_map=quaternion_rate, coordinates=names, velocities=rates)


@pytest.mark.slow
def test_body_with_a_quaternion_has_modes_about_its_principal_axes():
    """Three springs of stiffness k for small angles: ω² = k / I."""
    inertia = jnp.diag(jnp.array([1.0, 2.0, 5.0]))
    linear = uk.linearize(spinning(inertia, stiffness=3.0), [1.0, 0.0, 0.0, 0.0])
    assert [name for name, _ in linear.states] == ["wx", "wy", "wz", "wx", "wy", "wz"]
    np.testing.assert_allclose(squares(linear), [0.6, 1.5, 3.0], **EXACT)
    assert all(mode.shape.shape == (4,) and abs(mode.shape[0]) < 1e-15 for mode in linear.modes)


@pytest.mark.slow
def test_linearised_pendulum_with_a_prescribed_pivot():
    """A pendulum in (x, y), whose pivot has the upward acceleration a(t): θ̈ = −(g + a) θ / l at the lowest point.

    The state moves with the pivot, and the constraint depends on time.
    """
    size, rate, length = 0.1, 3.0, 0.5
    pivot = lambda t: size * jnp.cos(rate * t)
    rod = uk.Holonomic(lambda t, q: q[0] ** 2 + (q[1] - pivot(t)) ** 2 - length**2)
    system = uk.System(uk.MassForce(np.eye(2), [0.0, -GRAVITY]), rod)
    t = 0.4
    q, v = [0.0, pivot(t) - length], [0.0, jax.grad(pivot)(t)]
    linear = uk.linearize(system, q, v, t)
    acceleration = jax.grad(jax.grad(pivot))(t)
    np.testing.assert_allclose(linear.A, [[0, 1], [-(GRAVITY + acceleration) / length, 0]], **EXACT)
    with pytest.raises(uk.InputError, match="steady motion"):
        _ = linear.modes


@pytest.mark.slow
def test_modes_with_a_singular_mass_matrix():
    """A coordinate without mass, coupled to one with mass."""
    bound = uk.Holonomic(lambda t, q: q[1] - 2 * q[0])
    system = uk.System(uk.MassForce(np.diag([2.0, 0.0]), lambda t, q, v: jnp.stack([0 * q[0], -q[1]])), bound)
    np.testing.assert_allclose(squares(uk.linearize(system, [0.0, 0.0])), [2.0], **EXACT)


def test_sleigh_has_fewer_velocity_states_than_coordinates():
    """Chaplygin's sleigh moves straight at V: ω̇ = −m a V ω / (J + m a²); other eigenvalues are 0."""
    sleigh: Any = uk.systems.named("chaplygin_sleigh")
    q = jnp.zeros(3)
    v = jnp.zeros(3).at[0].set(2.0)
    linear = uk.linearize(sleigh, q, v)
    assert linear.A.shape == (5, 5)
    expected = -sleigh.m * sleigh.a * 2.0 / (sleigh.J + sleigh.m * sleigh.a**2)
    np.testing.assert_allclose(min(linear.eigenvalues.real), expected, **EXACT)
    assert np.sum(np.abs(linear.eigenvalues) > 1e-6) == 1


@pytest.mark.slow
def test_prescribed_acceleration_removes_no_states():
    """q̈₁ = −4 q₁ is a constraint on accelerations, and a spring connects q₂ to q₁: ω = 2 and 3, with four states."""
    imposed = uk.AccelerationConstraint([[1.0, 0.0]], lambda t, q, v: -4 * q[:1])
    force = lambda t, q, v: jnp.stack([0 * q[0], -9 * (q[1] - q[0])])
    linear = uk.linearize(uk.System(uk.MassForce(np.eye(2), force), imposed), [0.0, 0.0])
    np.testing.assert_allclose(squares(linear), [4.0, 9.0], **EXACT)
    assert [name for name, _ in linear.states] == ["q1", "q2", "dq1", "dq2"]


# --- the matrices ----------------------------------------------------------------------------------------------------


MASSES, LENGTHS = (1.0, 0.7), (0.9, 1.3)


def two_rods():
    rod = lambda m, l: uk.Body(m, (0, 0, -l / 2), (m * l**2 / 12, m * l**2 / 12, 0))
    bodies = {name: rod(m, l) for name, m, l in zip(("upper", "lower"), MASSES, LENGTHS, strict=True)}
    joints = {
        "shoulder": uk.joints.Revolute("ground", "upper", axis="y"),
        "elbow": uk.joints.Revolute("upper", "lower", at=(0, 0, -LENGTHS[0]), axis="y"),
    }
    return uk.Mechanism(bodies, joints)


@pytest.mark.slow
def test_double_pendulum_of_bodies_matches_the_one_by_lagrange():
    m, l, g = MASSES, LENGTHS, GRAVITY

    def kinetic(t, q, v):
        x = lambda q: jnp.stack([jnp.sin(q[0]), jnp.cos(q[0])])
        first = lambda q: l[0] / 2 * x(q)
        second = lambda q: l[0] * x(q) + l[1] / 2 * jnp.stack([jnp.sin(q[0] + q[1]), jnp.cos(q[0] + q[1])])
        rates = [jax.jvp(f, (q,), (v,))[1] for f in (first, second)]
        spins = v[0], v[0] + v[1]
        return sum(m[i] * (rates[i] @ rates[i] + l[i] ** 2 / 12 * spins[i] ** 2) for i in range(2)) / 2

    def potential(t, q):
        return -g * ((m[0] / 2 + m[1]) * l[0] * jnp.cos(q[0]) + m[1] * l[1] / 2 * jnp.cos(q[0] + q[1]))

    by_energies = uk.linearize(uk.System(uk.Lagrangian(kinetic, potential)), [0.0, 0.0])
    of_joints = uk.linearize(two_rods(), [0.0, 0.0])
    assert [name for name, _ in of_joints.states] == ["shoulder", "elbow", "dshoulder", "delbow"]
    np.testing.assert_allclose(of_joints.A, by_energies.A, atol=1e-12)


@pytest.mark.slow
def test_modes_of_a_rod_in_absolute_coordinates():
    """A quaternion and five rows that constrain its velocities: ω² = 3 g / (2 l)."""
    rod = uk.Body(1.0, (0, 0, -0.5), (1 / 12, 1 / 12, 0.01))
    hung = uk.Mechanism({"rod": rod}, {"hinge": uk.joints.Revolute("ground", "rod", axis="y")}).in_absolute()
    linear = uk.linearize(hung, hung.start()[0])
    assert linear.A.shape == (2, 2)
    np.testing.assert_allclose(squares(linear), [1.5 * GRAVITY], **EXACT)


@pytest.mark.slow
def test_matrix_along_a_motion_matches_derivatives_of_the_closed_form():
    """A swinging pendulum, not at equilibrium: A maps small deviations x to ẋ at one time."""
    system = pendulum(damping=0.3)
    q, v = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])
    linear = uk.linearize(system, q, v)
    entries = np.array([0, 2])  # the states are y and dy or x and dx
    at = [["x", "y", "dx", "dy"].index(name) for name, _ in linear.states]
    assert len(at) == len(entries) == 2

    def rate(angle, spin):
        """Return (q, v) and its rate on the circle, for a given angle."""
        position = jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
        tangent = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        spin_rate = -GRAVITY * jnp.sin(angle) - 0.3 * spin
        velocity = spin * tangent
        acceleration = spin_rate * tangent - spin**2 * position
        return jnp.concatenate([position, velocity])[jnp.array(at)], jnp.concatenate([velocity, acceleration])[
            jnp.array(at)
        ]

    of_state, of_rate = jax.jacfwd(rate, argnums=0), jax.jacfwd(rate, argnums=1)
    angle, spin = jnp.arcsin(0.6), jnp.array(1.0)
    x, x_dot = (jnp.stack(pair, axis=1) for pair in zip(of_state(angle, spin), of_rate(angle, spin), strict=True))
    np.testing.assert_allclose(linear.A @ x, x_dot, **EXACT)


def test_inputs_outputs_and_frequency_response_of_an_oscillator():
    """H = 1 / (k − m ω² + i ω d), with named inputs and outputs; SciPy accepts the matrices."""
    from scipy import signal

    m, k, d = 1.6, 4000.0, 8.0
    system = uk.System(uk.MassForce(np.eye(1) * m, lambda t, q, v: -k * q - d * v), coordinates=(("x", "m"),))
    linear = uk.linearize(system, [0.0], inputs="x", outputs=("x", "dx"))
    assert linear.states == (("x", "m"), ("dx", "m/s")) and linear.inputs == (("x", "N"),)
    expected = -2.5 + 49.937460888595446j
    assert min(abs(linear.eigenvalues - expected)) < 1e-12
    w = np.array([0.0, 30.0, 50.0])
    H = 1 / (k - m * w**2 + 1j * w * d)
    np.testing.assert_allclose(linear.frequency_response(w)[:, :, 0], np.stack([H, 1j * w * H], axis=1), rtol=1e-12)
    assert linear.frequency_response(50.0).shape == (2, 1)
    A, B, C, D = map(np.asarray, linear)
    numerators, denominator = signal.ss2tf(A, B, C, D)
    np.testing.assert_allclose(denominator, [1, d / m, k / m], rtol=1e-12)
    np.testing.assert_allclose(numerators, [[0, 0, 1 / m], [0, 1 / m, 0]], atol=1e-10)
    (mode,) = linear.modes
    assert mode.frequency == pytest.approx(50.0) and mode.damping == pytest.approx(0.05)
    outputs = uk.linearize(system, [0.0], outputs=lambda t, q, v: [3 * q[0] + v[0] ** 2, v[0]])
    np.testing.assert_allclose(outputs.C, [[3.0, 0.0], [0.0, 1.0]])
    assert outputs.B.shape == (2, 0) and outputs.D.shape == (2, 0)


def test_regulator_of_a_double_integrator():
    """Q = I and R = 1: K = (1, √3), S = ((√3, 1), (1, √3))."""
    system = uk.System(uk.MassForce(np.eye(1), [0.0]))
    K, S, eigenvalues = uk.linearize(system, [0.0], inputs="q1").lqr(1.0, 1.0)
    np.testing.assert_allclose(K, [[1, 3**0.5]], **EXACT)
    np.testing.assert_allclose(S, [[3**0.5, 1], [1, 3**0.5]], **EXACT)
    np.testing.assert_allclose(np.sort(eigenvalues.imag), [-0.5, 0.5], **EXACT)


@pytest.mark.slow
def test_closed_loop_with_a_regulator_is_A_minus_B_K():
    """The pole is a constraint. The system with the linear law, linearised, is the linear model with a closed loop."""
    system = cart_pole()
    upright = jnp.array([0.0, 0.0, 0.5])
    linear = uk.linearize(system, upright, inputs="cart")
    assert max(linear.eigenvalues.real) > 1
    regulator = linear.lqr(1.0, 0.1)
    law = lambda t, q, v: -regulator.K @ linear.deviation(q, v)
    held = uk.System(system.dynamics, system.constraints, control=uk.control.Feedback([[1.0], [0.0], [0.0]], law))
    closed = uk.linearize(held, upright)
    np.testing.assert_allclose(closed.A, linear.A - linear.B @ regulator.K, atol=1e-9)
    assert closed.B.shape == (4, 1)  # the actuators of the control are inputs


@pytest.mark.slow
def test_regulated_pole_returns_to_upright():
    system, upright = cart_pole(), jnp.array([0.0, 0.0, 0.5])
    linear = uk.linearize(system, upright, inputs="cart")
    K = linear.lqr(1.0, 0.1).K
    control = uk.control.Feedback([[1.0], [0.0], [0.0]], lambda t, q, v: -K @ linear.deviation(q, v))
    held = uk.System(system.dynamics, system.constraints, control=control)
    q, v = uk.project(held, 0.0, upright + jnp.array([0.1, 0.15, 0.0]), jnp.zeros(3))
    end = uk.simulate(held, q, v, jnp.linspace(0.0, 15.0, 3)).q[-1]
    np.testing.assert_allclose(end, upright, atol=1e-3)


# --- derivatives and batches -----------------------------------------------------------------------------------------


def frequencies_by_mpmath(length):
    """Return ω of a chain of two points of unit mass, on rods of this length and of unit length."""
    l, g = mpmath.mpf(length), mpmath.mpf("9.81")
    # Small angles: M = ((2 l², l), (l, 1)), K = g diag(2 l, 1).
    a, b, c = 2 * l**2 - l**2, -(2 * l**2 + 2 * l) * g, 2 * l * g**2
    root = mpmath.sqrt(b**2 - 4 * a * c)
    return [mpmath.sqrt((-b - root) / (2 * a)), mpmath.sqrt((-b + root) / (2 * a))]


def test_reverse_derivatives_of_eigenvalues_match_50_digits():
    """The coordinates are Cartesian, so that the equilibrium moves with the length."""

    def chain(length):
        def rods(t, q):
            return jnp.stack([q[:2] @ q[:2] - length**2, jnp.sum((q[2:] - q[:2]) ** 2) - 1])

        weight = jnp.array([0.0, -GRAVITY, 0.0, -GRAVITY])
        return uk.System(uk.MassForce(np.eye(4), weight), uk.Holonomic(rods))

    def frequencies(length):
        q = jnp.stack([0.0 * length, -length, 0.0 * length, -length - 1])
        return jnp.sort(jnp.abs(uk.linearize(chain(length), q).eigenvalues))[::2]

    with mpmath.workdps(50):
        values = [float(value) for value in frequencies_by_mpmath("0.8")]
        by_length = lambda i: mpmath.diff(lambda length: frequencies_by_mpmath(length)[i], mpmath.mpf("0.8"))
        slopes = [float(by_length(i)) for i in range(2)]
    length = jnp.array(0.8)
    found, pull = jax.vjp(frequencies, length)
    np.testing.assert_allclose(found, values, rtol=1e-13)
    np.testing.assert_allclose([pull(row)[0] for row in jnp.eye(2)], slopes, rtol=1e-12)


@pytest.mark.slow
def test_stability_chart_of_64_by_64_in_one_call():
    """An inverted pendulum with a spring and a damper: stable where k > m g l and d > 0."""
    x, y = jnp.linspace(5.0, 15.0, 64), jnp.linspace(-0.5, 0.5, 64)
    stiffness, damping = jnp.meshgrid(x, y)

    def upside_down(k, d):
        force = lambda t, q, v: jnp.stack([-k * q[0], -GRAVITY + 0 * q[0]]) - d * v
        system = uk.System(uk.MassForce(np.eye(2), force), uk.Holonomic(lambda t, q: q @ q - 1))
        return uk.linearize(system, jnp.array([0.0, 1.0]), states=("q1", "dq1"), method="cholesky")

    chart = uk.stability_chart(upside_down, x, y)
    assert chart.eigenvalues.shape == (64, 64, 2)
    root = np.emath.sqrt(np.asarray(damping) ** 2 / 4 - (np.asarray(stiffness) - GRAVITY))
    np.testing.assert_allclose(
        chart.growth, np.max([(-damping / 2 + s * root).real for s in (1, -1)], axis=0), atol=1e-9
    )
    np.testing.assert_array_equal(chart.stable, (stiffness > GRAVITY) & (damping > 0))
    drawn = uk.plot.stability(chart, "k [N/m]", "d [N s/m]").axes[0]
    np.testing.assert_array_equal(drawn.collections[0].get_array(), chart.growth)
    with pytest.raises(uk.InputError, match="function must return a square matrix"):
        uk.stability_chart(lambda a, b: jnp.stack([a, b]), x, y)
    with pytest.raises(uk.InputError, match="x must have shape"):
        uk.stability_chart(upside_down, 1.0, y)


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_chosen_states_must_be_independent():
    system, q = cart_pole(), [0.0, 0.0, 0.5]
    default = uk.linearize(system, q)
    names = [name for name, _ in default.states[::-1]]
    linear = uk.linearize(system, q, states=("x", "cart", "dx", "dcart"))
    assert names == ["dx", "dcart", "x", "cart"]
    assert linear.states == (("x", "m"), ("cart", "m"), ("dx", "m/s"), ("dcart", "m/s"))
    order = np.array([1, 0, 3, 2])
    np.testing.assert_allclose(linear.A, default.A[order][:, order], atol=1e-12)
    with pytest.raises(uk.InputError, match="states must be independent"):
        uk.linearize(system, q, states=("cart", "y", "dcart", "dx"))


def test_bad_states_raise():
    system, q = cart_pole(), [0.0, 0.0, 0.5]
    with pytest.raises(uk.InputError, match="states must determine all"):
        uk.linearize(system, q, states=("cart", "dcart"))
    with pytest.raises(uk.InputError, match="'cat'; did you mean 'cart'"):
        uk.linearize(system, q, states=("cat", "x", "dcart", "dx"))
    with pytest.raises(uk.InputError, match="twice"):
        uk.linearize(system, q, states=("cart", "cart"))
    with pytest.raises(uk.InputError, match="named inside jax.jit"):
        jax.jit(lambda q: uk.linearize(system, q).A)(jnp.array(q))


def test_bad_input_raises():
    system = pendulum()
    hanging = [0.0, -1.0]
    with pytest.raises(uk.InputError, match="on the constraints.*'rod' is 0.21"):
        uk.linearize(system, [0.0, -1.1])
    with pytest.raises(uk.InputError, match=r"'rod' \(velocity\)"):
        uk.linearize(system, hanging, [0.0, 1.0])
    with pytest.raises(uk.InputError, match="q must have shape"):
        uk.linearize(system, [hanging])
    with pytest.raises(uk.InputError, match="outputs names no 'z'"):
        uk.linearize(system, hanging, outputs="z")
    with pytest.raises(uk.InputError, match="inputs names no 'z'"):
        uk.linearize(system, hanging, inputs=("z",))
    with pytest.raises(uk.InputError, match="lqr needs inputs"):
        uk.linearize(system, hanging).lqr(1.0, 1.0)
    with pytest.raises(uk.InputError, match="the rate of d[xy] is"):
        _ = uk.linearize(system, [0.6, -0.8]).modes
    with pytest.raises(uk.InputError, match="s later the rate of dq1 is"):
        _ = uk.linearize(uk.System(uk.Lagrangian(swing, height)), [0.0], [1.0]).modes


def swing(t, q, v):
    return v @ v / 2


def height(t, q):
    return -GRAVITY * jnp.cos(q[0])


@pytest.mark.slow
def test_kinematic_map_with_a_nonholonomic_constraint_raises():
    """Three coordinates and two velocities, forward and turning: some displacements cannot be reached."""
    drive = lambda q, v: jnp.stack([v[0] * jnp.cos(q[2]), v[0] * jnp.sin(q[2]), v[1]])
    system = uk.System(
        uk.MassForce(np.eye(2), [0.0, 0.0]), kinematic_map=drive, velocities=(("speed", "m/s"), ("turn", "rad/s"))
    )
    with pytest.raises(uk.InputError, match="nonholonomic constraint"):
        uk.linearize(system, [0.0, 0.0, 0.0])

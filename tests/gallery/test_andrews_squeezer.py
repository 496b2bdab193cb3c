"""Andrews' squeezing mechanism, against published numbers of the test set and complex numbers in NumPy."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

from ..helpers import multiplier_motion

# From the test set: q'' and multipliers at the start, q and v at 0.03 s (PSIDE).
ACCELERATION = [14222.4439199541138705911625887, -10666.8329399655854029433719415, 0, 0, 0, 0, 0]
MULTIPLIERS = [98.5668703962410896057654982170, -6.12268834425566265503114393122, 0, 0, 0, 0]
END = [
    15.81077119629904,
    -15.75637105984298,
    0.04082224013073101,
    -0.5347301163226948,
    0.5244099658805304,
    0.5347301163226948,
    1.048080741042263,
]
END_RATE = [
    1139.920302151208,
    -1424.379294994111,
    11.03291221937134,
    19.29337464421385,
    0.5735699284790808,
    -19.29337464421385,
    0.3231791658026955,
]


@pytest.fixture(scope="module")
def squeezer():
    return uk.systems.AndrewsSqueezer()


@pytest.fixture(scope="module")
def motion(squeezer):
    q0, v0 = uk.project(squeezer, 0.0, *squeezer.start())
    return uk.simulate(squeezer, q0, v0, jnp.linspace(0, 0.03, 31), rtol=1e-12, atol=1e-12)


# --- the mechanism in the complex plane: a point is a sum of p exp(i S q), where S sums the angles of a body --------

MASS = np.array([0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498])
INERTIA = np.array([2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5])
ANGLES = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 1],
    ]
)
A, B, C = -0.06934 - 0.00227j, -0.03635 + 0.03273j, 0.014 + 0.072j
RR, D, SS, E, ZT, ZF, U = 0.007, 0.028, 0.035, 0.02, 0.04, 0.02, 0.04


def weights(*entries):
    row = np.zeros(7, complex)
    for body, p in entries:
        row[body - 1] = p
    return row


CENTRES = np.array(
    [
        weights((1, 0.00092)),
        weights((1, RR), (2, -0.0115)),
        weights((3, 0.01043 - 0.01874j)),
        weights((5, ZT), (4, -1j * (E - 0.01421))),
        weights((5, 0.02308 + 0.00916j)),
        weights((7, -1j * U), (6, ZF - 0.01421)),
        weights((7, -0.00449 - 0.01228j)),
    ]
)
FIRST = weights((1, RR), (2, -D))
LOOPS = np.array(
    [
        FIRST - weights((3, -1j * SS)),
        FIRST - weights((5, ZT), (4, -1j * E)),
        FIRST - weights((7, -1j * U), (6, ZF)),
    ]
)
SPRING = weights((3, 0.02 - 0.018j))
ORDER = [0, 3, 1, 4, 2, 5]  # x and y of each loop, from all x and then all y


def derivatives(points, q, v):
    """Jacobians of points of the form Σ p exp(i S q), and their accelerations at q̈ = 0."""
    turns = np.exp(1j * ANGLES @ q)
    return (1j * points * turns) @ ANGLES, -(points * turns) @ (ANGLES @ v) ** 2


def as_real(z):
    return np.concatenate([z.real, z.imag])


def newton_euler(q, v):
    """Return M, Q, A and b, by d'Alembert's principle."""
    J, a = derivatives(CENTRES, q, v)
    M = (J.conj().T * MASS @ J).real + ANGLES.T * INERTIA @ ANGLES
    Q = -(J.conj().T @ (MASS * a)).real
    (Jd,), _ = derivatives(SPRING[None], q, v)
    stretched = B + SPRING @ np.exp(1j * ANGLES @ q) - C
    pull = -4530 * (abs(stretched) - 0.07785) * stretched / abs(stretched)
    Q += (Jd.conj() * pull).real
    Q[0] += 0.033
    rows, bias = derivatives(LOOPS, q, v)
    return M, Q, as_real(rows), -as_real(bias)


@pytest.fixture(scope="module")
def second(motion):
    """Return the states (samples, 14) by SciPy."""

    def derivative(_, y):
        return np.concatenate([y[7:], multiplier_motion(*newton_euler(y[:7], y[7:]))])

    start = np.concatenate([motion.q[0], motion.v[0]])
    return solve_ivp(derivative, (0, 0.03), start, "DOP853", np.asarray(motion.t), rtol=1e-13, atol=1e-13).y.T


def test_terms_match_d_alembert(squeezer, rng):
    model = eqx.filter_jit(squeezer)
    for _ in range(5):
        q, v = rng.normal(size=7), 100 * rng.normal(size=7)
        terms = model(0.0, q, v)
        M, Q, rows, b = newton_euler(q, v)
        for name, exact in {"M": M, "Q": Q, "A": rows[ORDER], "b": b[ORDER]}.items():
            np.testing.assert_allclose(
                getattr(terms, name), exact, rtol=0, atol=1e-12 * np.abs(exact).max(), err_msg=name
            )


def test_start_is_consistent_and_its_acceleration_matches_published_values(squeezer, motion):
    q0, v0 = squeezer.start()
    np.testing.assert_allclose(squeezer.position_residual(0.0, q0), 0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(motion.acceleration[0], ACCELERATION, rtol=1e-12, atol=1e-8)
    rows = newton_euler(np.asarray(q0), np.asarray(v0))[2][ORDER]
    force = -rows.T @ MULTIPLIERS  # the test set has M q'' = f − Gᵀ λ
    np.testing.assert_allclose(motion.constraint_force[0], force, rtol=0, atol=1e-12 * np.abs(force).max())


def test_end_state_matches_published_digits(motion):
    """The published state has errors of 3e-10 in q and 5e-8 in v: its energy differs by 2e-10."""
    np.testing.assert_allclose(motion.q[-1], END, rtol=1e-9)
    np.testing.assert_allclose(motion.v[-1], END_RATE, rtol=1e-7)


def test_motion_matches_the_second_derivation(motion, second):
    q, v = second[:, :7], second[:, 7:]
    np.testing.assert_allclose(motion.q, q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(motion.v, v, rtol=0, atol=1e-10 * np.abs(v).max())
    assert np.abs(motion.residual).max() <= 1e-10
    assert np.abs(motion.velocity_residual).max() <= 1e-10
    assert (np.asarray(motion.rank) == 6).all()


def test_constraint_force_matches_the_second_derivation(motion, second):
    forces = []
    for y in second:
        M, Q, rows, b = newton_euler(y[:7], y[7:])
        forces.append(M @ multiplier_motion(M, Q, rows, b) - Q)
    np.testing.assert_allclose(motion.constraint_force, forces, rtol=0, atol=1e-8 * np.abs(forces).max())


def test_energy_minus_work_of_the_motor_is_constant(motion):
    np.testing.assert_allclose(motion.energy - 0.033 * motion.q[:, 0], 1.4378329575321414, rtol=1e-10)


def test_outline_has_the_link_lengths(squeezer, motion):
    for t, q in zip(motion.t[::10], motion.q[::10], strict=True):
        crank, triangle, dyads, spring = squeezer.outline(t, q)
        sides = [np.linalg.norm(np.diff(line, axis=0), axis=1) for line in (crank, triangle, dyads)]
        np.testing.assert_allclose(sides[0], [RR, D], rtol=1e-12)
        np.testing.assert_allclose(sides[1][[0, 2]], [SS, abs(0.02 - 0.018j)], rtol=1e-12)
        np.testing.assert_allclose(sides[2], [E, ZT, U, ZF], rtol=1e-9)
        np.testing.assert_allclose(spring[0], [C.real, C.imag], rtol=1e-15)
        np.testing.assert_allclose(spring[1], triangle[2], rtol=1e-15)


def test_run_command(check_run):
    check_run("andrews_squeezer", 31)

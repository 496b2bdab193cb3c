"""The measured pendulums: against equations of motion in joint angles, and against records."""

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.io

import ukjax as uk

RECORDS = Path(os.environ.get("UKJAX_DATA", str(Path(__file__).parents[3] / "shared" / "data")))


def in_angles(arms, angle, rate, torque=None):
    """Return M and the right side of M(θ) θ̈ = ..., for arms in series with absolute angles.

    The kinetic energy is Σ_i m_i |Σ_{j<i} L_j e'_j θ̇_j|²/2 + h_i θ̇_i e'_i · Σ_{j<i} L_j e'_j θ̇_j + I_i θ̇_i²/2.
    """
    m, h, I, L, k, c = (np.asarray(getattr(arms, name)) for name in "mhILkc")
    g, n = float(arms.g), len(angle)
    beyond = [m[i + 1 :].sum() for i in range(n)]
    weight = h + np.array(beyond) * L  # moment of the masses that the angle of an arm moves
    M, load = np.zeros((n, n)), np.zeros(n)
    for i in range(n):
        M[i, i] = I[i] + beyond[i] * L[i] ** 2
        for j in range(i):
            M[i, j] = M[j, i] = L[j] * weight[i] * np.cos(angle[i] - angle[j])
    for i in range(n):
        for j in range(n):
            if i != j:
                high, low = max(i, j), min(i, j)
                load[i] += L[low] * weight[high] * np.sin(angle[i] - angle[j]) * rate[j] ** 2
    relative = np.diff(rate, prepend=0.0)
    joint = -k * relative - c * 2 / np.pi * np.arctan(100 * relative) + (0 if torque is None else torque)
    return M, -load - g * weight * np.sin(angle) + joint - np.append(joint[1:], 0.0)


def test_motion_matches_equations_in_joint_angles():
    arms = uk.systems.TripleArmPendulum()
    q, v = arms.start()
    n = q.size // 3
    ts = np.linspace(0.0, 1.0, 21)
    motion = uk.simulate(arms, q, v, ts, rtol=1e-10, atol=1e-11)

    def rate(t, y):
        M, right = in_angles(arms, y[:n], y[n:])
        return np.concatenate([y[n:], np.linalg.solve(M, right)])

    start = np.concatenate([q[2::3], v[2::3]])
    exact = scipy.integrate.solve_ivp(rate, (0, 1), start, t_eval=ts, rtol=1e-10, atol=1e-11).y
    np.testing.assert_allclose(motion.q[:, 2::3].T, exact[:n], atol=1e-8)


@pytest.mark.parametrize("name", ("double_arm_pendulum", "triple_arm_pendulum"))
def test_run_command(name, check_run):
    check_run(name, 21)


def test_acrobot_acceleration_with_rotors_friction_and_torques():
    """In relative angles, rotors add gear² J + J to M11, −gear J to M12 and gear² J to M22, as in the source."""
    arms = uk.systems.Acrobot()
    angle, rate, t = np.array([0.4, -0.9]), np.array([1.3, -2.2]), 0.35
    spread = lambda x: jnp.zeros(6).at[2::3].set(x)
    q, v = arms.placed(spread(angle), spread(rate))
    motion = uk.constrained_motion(arms(t, q, v))
    torque = [np.interp(t, arms.times, column) for column in np.asarray(arms.torque).T]
    M, right = in_angles(arms, angle, rate, np.array(torque))
    J, gear = float(arms.J), float(arms.gear)
    relative = np.array([[1.0, 0.0], [-1.0, 1.0]])  # relative from absolute angles
    rotors = J * np.array([[gear**2 + 1, -gear], [-gear, gear**2]])
    expected = np.linalg.solve(M + relative.T @ rotors @ relative, right)
    np.testing.assert_allclose(motion.acceleration[2::3], expected, rtol=1e-11)
    named = arms.recorded(jnp.zeros(3), jnp.ones((3, 2)))
    assert set(named) == {"times", "torque"} and len(arms.record) == 2


def test_start_satisfies_the_constraints():
    for name in ("double_arm_pendulum", "triple_arm_pendulum", "acrobot"):
        arms = uk.systems.named(name)
        q, v = arms.start()
        assert np.abs(arms.position_residual(0.0, q)).max() < 1e-15
        assert np.abs(arms.velocity_residual(0.0, q, v)).max() < 1e-15


@pytest.mark.skipif(not RECORDS.is_dir(), reason=f"no measured records in {RECORDS}: UKJAX_DATA names their folder")
def test_motion_with_published_parameters_matches_measurements():
    """From the first sample of each validation record: errors up to 15 and 7 mrad in 1.5 s."""
    for kind, arms, most in (
        ("Double", uk.systems.DoubleArmPendulum(), 15),
        ("Triple", uk.systems.TripleArmPendulum(), 7),
    ):
        records = scipy.io.loadmat(RECORDS / "multiarm_pendulum" / f"{kind}PendulumDataForParameterEstimation.mat")
        n = arms.m.size
        for y in records["Y_vad"].ravel():
            spread = lambda x, n=n: jnp.zeros(3 * n).at[2::3].set(x)
            start = arms.placed(spread(y[:n, 0] - np.pi), spread(y[n:, 0]))
            ts = 0.001 * np.arange(1500)
            motion = uk.simulate(arms, *start, ts, dt=0.002, drift="none")
            error = 1e3 * np.sqrt(np.mean((np.asarray(motion.q)[:, 2::3].T + np.pi - y[:n, :1500]) ** 2))
            assert error < most

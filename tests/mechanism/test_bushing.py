"""``joints.Bushing``: six springs and dampers between two bodies, and ``preload`` of other joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import ukjax as uk
from ukjax.joints import Bushing, Prismatic, Revolute, Spherical, Strut

K = np.array([300.0, 500.0, 700.0, 11.0, 13.0, 17.0])
REST = np.array([0.02, -0.01, 0.03, 0.2, -0.1, 0.3])
PRELOAD = np.array([1.0, -2.0, 3.0, 0.4, -0.5, 0.6])
ENDS: dict = dict(at=(0.1, 0.2, -0.1), turn=(0.3, 0.1, -0.2), to=(-0.2, 0.1, 0.05), to_turn=(0.1, 0.5, 0.2))


def pair(**forces):
    """Return two floating bodies without gravity."""
    bodies = {"a": uk.Body(1.3, (0.02, 0, 0.01), (0.02, 0.03, 0.04)), "b": uk.Body(0.8, inertia=(0.05, 0.01, 0.03))}
    return uk.Mechanism(bodies, {"mount": Bushing("a", "b", **ENDS, **forces)}, gravity=(0, 0, 0))


def pose(position, vector):
    return np.r_[position, Rotation.from_rotvec(vector).as_quat()[[3, 0, 1, 2]]]


Q = jnp.asarray(np.r_[pose([0.1, -0.3, 0.2], [0.4, -0.2, 0.1]), pose([0.5, 0.0, 0.1], [1.0, 0.9, -1.4])])
V = jnp.asarray([0.3, -0.1, 0.2, 0.5, -0.4, 0.8, -0.2, 0.6, 0.1, -0.9, 0.3, 0.7])


def deflection(q):
    """Return the deflection and the position of the child's joint point, computed with rotations of SciPy."""
    frame = lambda at, turn: (np.asarray(at), Rotation.from_euler("xyz", turn))
    bodies = [(q[i : i + 3], Rotation.from_quat(np.roll(q[i + 3 : i + 7], -1))) for i in (0, 7)]
    ends = []
    for (p, R), (at, turn) in zip(
        bodies, (frame(ENDS["at"], ENDS["turn"]), frame(ENDS["to"], ENDS["to_turn"])), strict=True
    ):
        ends.append((p + R.apply(at), R * turn))
    (p, R), (p2, R2) = ends
    return np.r_[R.inv().apply(p2 - p), (R.inv() * R2).as_rotvec()], p2


@pytest.fixture(scope="module")
def mechanism():
    return pair(stiffness=K, rest=REST, preload=PRELOAD)


def test_wrench_is_the_energy_gradient_and_is_opposite_on_the_two_bodies(mechanism):
    """Compare with central differences of the energy (rotation vectors of SciPy), for displacements of each body."""
    q = np.asarray(Q)
    assert np.linalg.norm(deflection(q)[0][3:]) > 1
    energy = lambda q: np.sum(K * (deflection(q)[0] - REST) ** 2 / 2 - PRELOAD * (deflection(q)[0] - REST))
    np.testing.assert_allclose(mechanism.energy(jnp.zeros(()), Q, 0 * V), energy(q), rtol=1e-13)
    Q_of = mechanism(0.0, Q, 0 * V).Q

    def displaced(j, h):
        moved, i = q.copy(), 7 * (j // 6)
        if j % 6 < 3:
            moved[i + j % 3] += h
        else:
            turn = Rotation.from_rotvec(h * np.eye(3)[j % 3]) * Rotation.from_quat(np.roll(q[i + 3 : i + 7], -1))
            moved[i + 3 : i + 7] = np.roll(turn.as_quat(), 1)
        return moved

    h = 1e-5
    slope = [(energy(displaced(j, h)) - energy(displaced(j, -h))) / (2 * h) for j in range(12)]
    np.testing.assert_allclose(Q_of, -np.array(slope), rtol=0, atol=1e-7)
    force, moment = np.asarray(Q_of).reshape(2, 2, 3).transpose(1, 0, 2)  # on a and b, about their origins
    np.testing.assert_allclose(force[0], -force[1], rtol=0, atol=1e-12)
    about_zero = moment + np.cross(q.reshape(2, 7)[:, :3], force)
    np.testing.assert_allclose(about_zero[0], -about_zero[1], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_energy_is_conserved_and_damper_power_and_reactions_are_exact(mechanism):
    motion = uk.simulate(mechanism, Q, V, np.linspace(0, 1, 5), rtol=1e-11, atol=1e-11)
    energy = np.asarray(motion.energy)
    np.testing.assert_allclose(energy, energy[0] * np.ones(5), rtol=1e-9)
    d = np.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.3])
    damped = pair(stiffness=K, rest=REST, preload=PRELOAD, damping=d)
    q_dot = mechanism.kinematic_map(Q, V)
    h = 1e-6
    rate = (deflection(np.asarray(Q + h * q_dot))[0] - deflection(np.asarray(Q - h * q_dot))[0]) / (2 * h)
    force, moment = np.split(mechanism(0.0, Q, 0 * V).Q[6:], 2)
    reaction = mechanism.reactions(0.0, Q, 0 * V)["mount"]
    np.testing.assert_allclose(reaction.force, force, rtol=0, atol=1e-12)
    arm = deflection(np.asarray(Q))[1] - np.asarray(Q[7:10])
    np.testing.assert_allclose(reaction.moment, moment - np.cross(arm, force), rtol=0, atol=1e-11)
    power = (damped(0.0, Q, V).Q - mechanism(0.0, Q, V).Q) @ V
    np.testing.assert_allclose(power, -np.sum(d * rate**2), rtol=1e-8)


@pytest.mark.slow
def test_frequencies_with_nonzero_rest_deflection_and_their_derivatives():
    """A body on one bushing at its centre: six uncoupled oscillators, ω² = k/m and k/J, although θ = 0 at rest."""
    moments = np.array([0.02, 0.03, 0.04])

    def squares(stiffness):
        body = {"box": uk.Body(1.5, inertia=moments)}
        mount = uk.Mechanism(body, {"mount": Bushing("ground", "box", stiffness=stiffness)}, gravity=(0, 0, 0))
        force = lambda x: mount(0.0, jnp.concatenate([x[:3], jnp.ones(1), x[3:] / 2]), jnp.zeros(6)).Q
        found = -jnp.diagonal(jax.jacfwd(force)(jnp.zeros(6))) / jnp.concatenate([jnp.full(3, 1.5), moments])
        return found, found

    exact = 1 / np.r_[[1.5] * 3, moments]
    slope, found = jax.jit(jax.jacfwd(squares, has_aux=True))(jnp.asarray(K))
    np.testing.assert_allclose(found, K * exact, rtol=1e-12)
    np.testing.assert_allclose(slope, np.diag(exact), atol=1e-10)


@pytest.mark.slow
def test_preload_of_a_strut_and_of_a_spring_without_stiffness():
    joints = {
        "slide": Prismatic("ground", "box", axis="x", preload=0.7),
        "strut": Strut("ground", "box", at=(0, 0.3, 0), stiffness=50.0, rest=0.2, preload=-3.0),
    }
    mechanism = uk.Mechanism({"box": uk.Body(1.5)}, joints)
    x, d = 0.4, 0.5
    force = 0.7 + (-3.0 - 50 * (d - 0.2)) * x / d
    np.testing.assert_allclose(
        uk.constrained_motion(mechanism(0.0, [x], [0.0])).acceleration, [force / 1.5], rtol=1e-13
    )
    energy = -0.7 * x + 50 * (d - 0.2) ** 2 / 2 + 3.0 * (d - 0.2)
    seen = mechanism.energy(jnp.zeros(()), jnp.array([x]), jnp.zeros(1))
    np.testing.assert_allclose(np.asarray(seen), energy, rtol=1e-13)


def test_bad_input_raises():
    with pytest.raises(uk.InputError, match=r"stiffness must be six numbers.*got shape \(\)"):
        Bushing("a", "b", stiffness=3.0)
    with pytest.raises(uk.InputError, match="preload of joints.* must be left out: the joint has a quaternion"):
        uk.Mechanism({"a": uk.Body(1.0)}, {"ball": Spherical("ground", "a", preload=1.0)})
    with pytest.raises(uk.InputError, match=r"preload of joints\['pin'\] must be a number, or 1"):
        uk.Mechanism({"a": uk.Body(1.0)}, {"pin": Revolute("ground", "a", preload=(1.0, 2.0))})

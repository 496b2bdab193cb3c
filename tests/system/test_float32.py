"""float32 gives results in float32, and a warning if it was not chosen."""

import subprocess
import sys

SCRIPT = """
import warnings
import jax.numpy as jnp, numpy as np, ukjax as uk

pendulum = uk.System(
    uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[1]), uk.Holonomic(lambda t, q: q @ q - 1)
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    motion = uk.simulate(pendulum, [-1.0, 0.0], [0.0, 0.0], jnp.linspace(0, 1, 6))
mine = [str(w.message) for w in caught if "float32" in str(w.message)]
assert len(mine) == 1 and "ukjax.enable_float64()" in mine[0], caught
for name in ("t", "q", "v", "acceleration", "constraint_force", "residual", "energy"):
    assert getattr(motion, name).dtype == jnp.float32, name
assert np.abs(motion.residual).max() < 1e-6
exact = (0.986291751131875, -0.165010853125541)  # Jacobi's functions, t = 1 s
np.testing.assert_allclose(motion.q[-1], exact, atol=3e-4)
warnings.simplefilter("error")
uk.simulate(pendulum, [-1.0, 0.0], [0.0, 0.0], jnp.linspace(0, 1, 6), rtol=1e-4)  # chosen: no warning
"""


def test_float32_gives_float32_results_and_a_warning_if_not_chosen():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_float32_terms_give_float32_motion_with_float64_enabled():
    import jax.numpy as jnp

    import ukjax as uk

    M, A = jnp.eye(3, dtype=jnp.float32), jnp.ones((1, 3), jnp.float32)
    motion = uk.constrained_motion(uk.Terms(M, M[0], A, A[:, 0]))
    assert motion.acceleration.dtype == motion.inconsistency.dtype == jnp.float32


def test_mechanism_of_float32_arrays_moves_in_float32():
    """Constants of joints, contacts and flexible bodies do not widen the motion."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import ukjax as uk
    from ukjax import contacts, joints
    from ukjax._precision import in_precision

    tree = {
        "revolute": joints.Revolute("ground", "b1", axis="y", stiffness=1.0, damping=1.0, armature=1.0, friction=0.1),
        "screw": joints.Screw("b1", "b2", axis=(0.0, 0.6, 0.8), lead=0.1),
        "spherical": joints.Spherical("b2", "b3", stiffness=1.0, friction=0.1),
        "free": joints.Free("ground", "b4"),
        "beam": joints.Revolute("b4", "beam"),
        "surface": joints.PointOnSurface("ground", "b3", surface=lambda t, p: p[2]),
        "strut": joints.Strut("b4", "b3", stiffness=1.0, at=(1.0, 0.0, 0.0)),
        "blade": joints.KnifeEdge("ground", "b4"),
        "closed": joints.Universal("ground", "b2"),
    }
    body = uk.Body(1.0, centre=(0.5, 0.0, 0.0), inertia=(0.1, 0.2, 0.2), buoyancy=0.5)
    bodies = {f"b{i}": body for i in range(1, 5)} | {"beam": uk.FlexibleBody.beam(1.0, 1.0, 10.0, bending="y")}
    touching = contacts.Contact(contacts.Sphere("b4", radius=0.1), contacts.Plane(), friction=0.5)
    single = np.dtype(np.float32)
    model = in_precision(uk.Mechanism(bodies, tree, contacts=[touching]), single)
    q, v = jnp.ones(model.tree.nq, single), jnp.ones(model.tree.n, single)
    t = jnp.zeros((), single)
    rows = lambda t, q, v: model.nonsmooth[0].rows(t, q, v, model.kinematic_map)
    for function in (model, rows):
        assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(function, t, q, v))} == {single}

    arm = uk.Mechanism({"arm": body}, {"pivot": joints.Revolute("ground", "arm", axis="y")})
    exact = uk.simulate(arm, [0.3], [0.0], [0.0, 0.5], dt=0.01)
    found = uk.simulate(*in_precision((arm, jnp.array([0.3]), jnp.zeros(1)), single), [0.0, 0.5], dt=0.01)
    assert found.q.dtype == single
    np.testing.assert_allclose(found.q[-1], exact.q[-1], atol=1e-6)

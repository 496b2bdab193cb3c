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

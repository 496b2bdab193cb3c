"""Models of the problems of ``ukjax.verify`` for other programs."""

from . import with_drake, with_exudyn, with_mujoco

PEERS = {
    "MuJoCo": ("mujoco", with_mujoco.PEERS),
    "Exudyn": ("exudyn", with_exudyn.PEERS),
    "Drake": ("pydrake", with_drake.PEERS),
}
"""Name of each program -> the package that must be installed, and its problems by name."""

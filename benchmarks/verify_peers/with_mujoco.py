"""Problems of ``ukjax.verify`` in MuJoCo (``pip install mujoco``).

Trees of bodies, and the slider-crank with a soft constraint; ``RK4`` with several step sizes.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

STEPS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


class Peer(NamedTuple):
    """A problem for MuJoCo.

    Attributes
    ----------
    bodies
        MJCF of the bodies.
    start
        Function (data) that sets qpos and qvel.
    values
        Function (data) that returns the values that are compared.
    gravity
        Vector of gravity.
    after
        MJCF after the world body; SOLREF is twice the step.
    """

    bodies: str
    start: Callable
    values: Callable
    gravity: str = "0 0 -9.81"
    after: str = ""

    def solvers(self, end: float) -> Iterator[tuple[str, Callable]]:
        """Yield the words of a setting, and a function without arguments that returns values and CPU time."""
        for dt in STEPS:
            yield f"dt = {dt:g}", lambda dt=dt: self._solve(dt, end)

    def _solve(self, dt, end):
        import mujoco

        model = mujoco.MjModel.from_xml_string(
            f'<mujoco><compiler angle="radian" boundmass="0"/><option timestep="{end / round(end / dt)!r}" '
            f'integrator="RK4" gravity="{self.gravity}" tolerance="1e-12"><flag contact="disable"/></option>'
            f"<worldbody>{self.bodies}</worldbody>{self.after.replace('SOLREF', repr(2 * dt))}</mujoco>"
        )
        data = mujoco.MjData(model)

        self.start(data)
        began = time.process_time()
        mujoco.mj_step(model, data, nstep=round(end / dt))
        seconds = time.process_time() - began
        mujoco.mj_forward(model, data)
        return np.array(self.values(data), float), seconds


POINT = '<inertial pos="{at}" mass="{mass}" diaginertia="1e-15 1e-15 1e-15"/>'
ROD = '<inertial pos="{half} 0 0" mass="{mass}" diaginertia="1e-15 {I} {I}"/>'


def _rod(mass: float, length: float) -> str:
    return ROD.format(half=length / 2, mass=mass, I=mass * length**2 / 12)


def _set(q=None, v=None):
    def start(data):
        if q is not None:
            data.qpos[:] = q
        if v is not None:
            data.qvel[:] = v

    return start


def _double_pendulum() -> Peer:
    """Angles from the x axis, turning about −y is downwards."""
    inner = f'<body pos="1 0 0"><joint type="hinge" axis="0 1 0"/>{_rod(0.5, 0.7)}</body>'
    bodies = f'<body><joint type="hinge" axis="0 1 0"/>{_rod(1.0, 1.0)}{inner}</body>'
    return Peer(bodies, _set(), lambda data: [np.pi / 2 - data.qpos[0], np.pi / 2 - data.qpos[0] - data.qpos[1]])


def _slider_crank() -> Peer:
    bodies = (
        f'<body><joint name="crank" type="hinge" axis="0 0 1"/>{_rod(0.2, 0.1)}<body pos="0.1 0 0">'
        f'<joint type="hinge" axis="0 0 1"/>{_rod(0.2, 0.3)}<site name="end" pos="0.3 0 0"/></body></body>'
        f'<body pos="0.4 0 0"><joint type="slide" axis="1 0 0"/>{POINT.format(at="0 0 0", mass=0.4)}'
        '<site name="slider"/></body>'
    )
    loop = (
        '<equality><connect site1="end" site2="slider" solref="SOLREF 1" solimp="0.9999 0.9999 0.001"/></equality>'
        '<actuator><motor joint="crank"/></actuator>'
    )

    def start(data):
        data.ctrl[:] = 0.1

    return Peer(bodies, start, lambda data: [data.qpos[0], 0.4 + data.qpos[2]], "0 0 0", loop)


def _heavy_top() -> Peer:
    bodies = (
        '<body name="top"><joint type="ball"/>'
        '<inertial pos="0 1 0" mass="15" diaginertia="0.234375 0.46875 0.234375"/></body>'
    )
    return Peer(bodies, _set(v=[0, 150.0, -4.61538]), lambda data: data.xipos[1])


def _free_body() -> Peer:
    bodies = '<body><joint type="ball"/><inertial pos="0 0 0" mass="1" diaginertia="1 2 3"/></body>'
    return Peer(bodies, _set(v=[0.05, 2.0, 0.0]), lambda data: data.qpos, "0 0 0")


def _spherical_pendulum() -> Peer:
    """Two hinges: with a ball joint, the rotation about the rod would have no inertia."""
    point = POINT.format(at="0 0 -1", mass=1)
    bodies = '<body><joint type="hinge" axis="1 0 0"/><joint type="hinge" axis="0 1 0"/>' + point + "</body>"
    return Peer(bodies, _set([0, -np.pi / 3], [4.0, 0]), lambda data: data.xipos[1])


PEERS = {
    "pendulum": Peer(
        f'<body><joint type="hinge" axis="0 1 0"/>{POINT.format(at="-1 0 0", mass=1)}</body>',
        _set(),
        lambda data: data.xipos[1][[0, 2]],
    ),
    "double_pendulum": _double_pendulum(),
    "spherical_pendulum": _spherical_pendulum(),
    "slider_crank": _slider_crank(),
    "heavy_top": _heavy_top(),
    "free_body": _free_body(),
}
"""Problems that MuJoCo can solve, by name."""

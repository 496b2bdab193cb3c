"""Problems of ``ukjax.verify`` in Drake (``pip install drake``).

Trees of bodies are continuous in time: ``runge_kutta5``, or ``radau3`` where the problem is stiff. A loop is closed by
a ball constraint, which Drake has in discrete time only: its solver SAP, of first order. The four-bar linkage is left
out: it passes singular poses, and the error of SAP with a step of 1e-4 s is larger than with 1e-3 s.
"""

# pyright: reportMissingImports=false, reportArgumentType=false

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

SETTINGS = {
    "runge_kutta5": (1e-6, 1e-9, 1e-12, 1e-15),
    "radau3": (1e-4, 1e-6, 1e-8, 1e-10),
    "discrete": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
}
"""Accuracies of the integrators, and steps of the discrete solver [s]."""
NONE = np.zeros(3)
X, Y, Z = np.eye(3)


class Peer(NamedTuple):
    """A problem for Drake.

    Attributes
    ----------
    build
        Function (plant) that adds bodies, joints and forces to an empty ``MultibodyPlant``.
    start
        Function (plant, context) that sets positions and velocities.
    values
        Function (plant, context) that returns the values that are compared.
    method
        Integrator, or "discrete".
    gravity
        Vector of gravity.
    """

    build: Callable
    start: Callable
    values: Callable
    method: str = "runge_kutta5"
    gravity: Any = -9.81 * Z

    def solvers(self, end: float) -> Iterator[tuple[str, Callable]]:
        """Yield the words of a setting, and a function without arguments that returns values and CPU time."""
        name = "dt" if self.method == "discrete" else "accuracy"
        for setting in SETTINGS[self.method]:
            yield f"{self.method}, {name} = {setting:g}", lambda setting=setting: self._solve(setting, end)

    def _solve(self, setting, end):
        from pydrake.multibody.plant import MultibodyPlant
        from pydrake.systems.analysis import ResetIntegratorFromFlags, Simulator

        plant = MultibodyPlant(time_step=end / round(end / setting) if self.method == "discrete" else 0.0)
        plant.mutable_gravity_field().set_gravity_vector(self.gravity)
        self.build(plant)
        plant.Finalize()
        simulator = Simulator(plant)
        context = simulator.get_mutable_context()
        self.start(plant, context)
        if self.method != "discrete":
            integrator = ResetIntegratorFromFlags(simulator, self.method, 0.1)
            integrator.set_target_accuracy(setting)
        simulator.Initialize()
        began = time.process_time()
        simulator.AdvanceTo(end)
        seconds = time.process_time() - began
        return np.array(self.values(plant, context), float), seconds


def _inertia(mass, centre, about_centre):
    """Spatial inertia about the origin of the body."""
    from pydrake.multibody.tree import RotationalInertia, SpatialInertia

    return SpatialInertia.MakeFromCentralInertia(mass, centre, RotationalInertia(*about_centre))


def _thin(mass, length):
    return _inertia(mass, length / 2 * X, mass * length**2 / 12 * (1 - X))


def _hinged(plant, name, parent, inertia, at, axis):
    """Add a body on a hinge at a place of its parent, where its own origin is."""
    from pydrake.math import RigidTransform
    from pydrake.multibody.tree import FixedOffsetFrame, RevoluteJoint

    body = plant.AddRigidBody(name, inertia)
    place = plant.AddFrame(FixedOffsetFrame(f"{name}_at", parent.body_frame(), RigidTransform(at)))
    plant.AddJoint(RevoluteJoint(name, place, body.body_frame(), axis))
    return body


def _place(plant, context, body, at):
    return plant.GetBodyByName(body).EvalPoseInWorld(context).multiply(at)


def _state(q=None, v=None):
    def start(plant, context):
        if q is not None:
            plant.SetPositions(context, q)
        if v is not None:
            plant.SetVelocities(context, v)

    return start


def _pendulum() -> Peer:
    def build(plant):
        _hinged(plant, "rod", plant.world_body(), _inertia(1.0, -X, NONE), NONE, Y)

    return Peer(build, _state(), lambda plant, context: _place(plant, context, "rod", -X)[[0, 2]])


def _double_pendulum() -> Peer:
    """Angles from the x axis, turning about y is downwards."""

    def build(plant):
        first = _hinged(plant, "first", plant.world_body(), _thin(1.0, 1.0), NONE, Y)
        _hinged(plant, "second", first, _thin(0.5, 0.7), X, Y)

    def values(plant, context):
        a, b = plant.GetPositions(context)
        return [np.pi / 2 - a, np.pi / 2 - a - b]

    return Peer(build, _state(), values)


def _spherical_pendulum() -> Peer:
    """A universal joint about x and y: with a ball joint, the rotation about the rod would have no inertia."""

    def build(plant):
        from pydrake.multibody.tree import UniversalJoint

        rod = plant.AddRigidBody("rod", _inertia(1.0, -Z, NONE))
        plant.AddJoint(UniversalJoint("point", plant.world_body().body_frame(), rod.body_frame()))

    return Peer(build, _state([0, -np.pi / 3], [4.0, 0]), lambda plant, context: _place(plant, context, "rod", -Z))


def _heavy_top() -> Peer:
    """The first axis of the joint, about which its last angle turns, is the axis of the top.

    The joint is singular where it is along z of its base, which is tilted: the axis stays 43 degrees away.
    """
    tilt = np.pi / 4

    def build(plant):
        from pydrake.math import RigidTransform, RotationMatrix
        from pydrake.multibody.tree import BallRpyJoint, FixedOffsetFrame

        top = plant.AddRigidBody("top", _inertia(15.0, X, (0.46875, 0.234375, 0.234375)))
        base = RigidTransform(RotationMatrix.MakeXRotation(-tilt))
        base = plant.AddFrame(FixedOffsetFrame("base", plant.world_body().body_frame(), base))
        plant.AddJoint(BallRpyJoint("point", base, top.body_frame()))

    def start(plant, context):
        """Body axes x, y, z here are y, −x, z of the problem."""
        joint = plant.GetJointByName("point")
        joint.set_angles(context, [0.0, -tilt, np.pi / 2])
        y, z = 150.0, -4.61538
        turned = [0.0, np.cos(tilt) * y - np.sin(tilt) * z, np.sin(tilt) * y + np.cos(tilt) * z]
        joint.set_angular_velocity(context, turned)

    return Peer(build, start, lambda plant, context: _place(plant, context, "top", X))


def _free_body() -> Peer:
    def build(plant):
        plant.AddRigidBody("body", _inertia(1.0, NONE, (1.0, 2.0, 3.0)))

    start = _state([1.0, 0, 0, 0, 0, 0, 0], [0.05, 2.0, 0, 0, 0, 0])
    return Peer(build, start, lambda plant, context: plant.GetPositions(context)[:4], gravity=NONE)


def _governor() -> Peer:
    rod, ball, slider, width, side, offset = 0.3, 5.0, 3.0, 0.01, 0.1, 0.05
    thick, reach = rod * width**2 / 12, (rod / 2 + ball) / (rod + ball)
    across = rod / 12 + thick + rod * (reach - 0.5) ** 2 + ball * (1 - reach) ** 2

    def build(plant):
        from pydrake.multibody.tree import LinearSpringDamper, PrismaticJoint

        upright = _inertia(rod, Z / 2, (rod / 12 + thick, rod / 12 + thick, 2 * thick))
        spindle = _hinged(plant, "spindle", plant.world_body(), upright, NONE, Z)
        sliding = plant.AddRigidBody("slider", _inertia(slider, NONE, np.full(3, slider * side**2 / 6)))
        plant.AddJoint(PrismaticJoint("guide", spindle.body_frame(), sliding.body_frame(), Z))
        for name, sign in (("right", 1.0), ("left", -1.0)):
            inertia = _inertia(rod + ball, sign * reach * X, (2 * thick, across, across))
            arm = _hinged(plant, name, spindle, inertia, Z + sign * offset * X, Y)
            ends = arm, sign * X / 2, sliding, sign * offset * X
            plant.AddForceElement(LinearSpringDamper(*ends, 0.5, 8e5, 4e4))

    def start(plant, context):
        plant.GetJointByName("spindle").set_angular_rate(context, 2 * np.pi)
        plant.GetJointByName("guide").set_translation(context, 0.5)
        for name, sign in (("right", 1.0), ("left", -1.0)):
            plant.GetJointByName(name).set_angle(context, sign * np.pi / 6)

    values = lambda plant, context: [plant.GetJointByName("guide").get_translation(context)]
    return Peer(build, start, values, "radau3")


def _slider_crank() -> Peer:
    def build(plant):
        from pydrake.multibody.tree import PrismaticJoint

        crank = _hinged(plant, "crank", plant.world_body(), _thin(0.2, 0.1), NONE, Z)
        rod = _hinged(plant, "rod", crank, _thin(0.2, 0.3), 0.1 * X, Z)
        slider = plant.AddRigidBody("slider", _inertia(0.4, NONE, np.full(3, 1e-6)))
        plant.AddJoint(PrismaticJoint("guide", plant.world_body().body_frame(), slider.body_frame(), X))
        plant.AddBallConstraint(rod, 0.3 * X, slider, NONE)
        plant.AddJointActuator("drive", plant.GetJointByName("crank"))

    def start(plant, context):
        plant.GetJointByName("guide").set_translation(context, 0.4)
        plant.get_actuation_input_port().FixValue(context, [0.1])

    def values(plant, context):
        return [
            plant.GetJointByName("crank").get_angle(context),
            plant.GetJointByName("guide").get_translation(context),
        ]

    return Peer(build, start, values, "discrete", NONE)


PEERS = {
    "pendulum": _pendulum(),
    "double_pendulum": _double_pendulum(),
    "spherical_pendulum": _spherical_pendulum(),
    "heavy_top": _heavy_top(),
    "free_body": _free_body(),
    "governor": _governor(),
    "slider_crank": _slider_crank(),
}
"""Problems that Drake can solve, by name."""

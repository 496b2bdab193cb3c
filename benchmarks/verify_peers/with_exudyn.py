"""Problems of ``ukjax.verify`` in Exudyn (``pip install exudyn``).

Trees of bodies, in coordinates of their joints, and a free body have no constraints: ``RK67``, an explicit method of
order 6. Loops and rolling are constraints: ``TrapezoidalIndex2``, the implicit trapezoidal rule with constraints of
velocities. Both have fixed steps. The four-bar linkage is left out: that method does not pass its singular poses.
"""

# pyright: reportMissingImports=false, reportCallIssue=false

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

import ukjax as uk

EXPLICIT, IMPLICIT = "RK67", "TrapezoidalIndex2"
NUMBERS = {EXPLICIT: (100, 300, 1000, 3000), IMPLICIT: (300, 1000, 3000, 10000)}
"""Number of steps."""
NONE = np.zeros(3)
X, Y, Z = np.eye(3)


class Peer(NamedTuple):
    """A problem for Exudyn.

    Attributes
    ----------
    build
        Function (mbs) that adds nodes, bodies, joints and forces to a ``MainSystem``, and returns the function without
        arguments that reads the values that are compared.
    method
        EXPLICIT or IMPLICIT.
    """

    build: Callable
    method: str = EXPLICIT

    def solvers(self, end: float) -> Iterator[tuple[str, Callable]]:
        """Yield the words of a setting, and a function without arguments that returns values and CPU time."""
        for number in NUMBERS[self.method]:
            yield f"{self.method}, dt = {end / number:g}", lambda number=number: self._solve(number, end)

    def _solve(self, number, end):
        import exudyn

        mbs = exudyn.SystemContainer().AddSystem()
        values = self.build(mbs)
        mbs.Assemble()
        settings = exudyn.SimulationSettings()
        settings.solution.file.write = False
        steps = settings.timeIntegration
        steps.endTime, steps.numberOfSteps, steps.automaticStepSize = end, number, False
        steps.newton.relativeTolerance, steps.newton.absoluteTolerance = 1e-10, 1e-12
        began = time.process_time()
        mbs.SolveDynamic(settings, solverType=getattr(exudyn.DynamicSolverType, self.method))
        seconds = time.process_time() - began
        return np.array(values(), float), seconds


# --- trees in coordinates of joints -----------------------------------------------------------------------------------


def _tree(mbs, links, gravity, start=None, rates=None, turned=None, parents=None):
    """Add links, each (joint, place in its parent, mass, centre, inertia about it), by default a chain.

    ``turned`` are the rotations from the axes of each link to those of its parent. Returns the number of the object,
    and the function without arguments that reads the coordinates.
    """
    import exudyn
    from exudyn.itemInterface import NodeGenericODE2, ObjectKinematicTree

    n = len(links)
    joints, places, masses, centres, inertias = zip(*links, strict=True)
    node = mbs.AddNode(
        NodeGenericODE2(
            referenceCoordinates=[0.0] * n,
            initialCoordinates=[0.0] * n if start is None else start,
            initialCoordinates_t=[0.0] * n if rates is None else rates,
            numberOfODE2Coordinates=n,
        )
    )
    tree = mbs.AddObject(
        ObjectKinematicTree(
            nodeNumber=node,
            gravity=gravity,
            jointTypes=[getattr(exudyn.JointType, each) for each in joints],
            linkParents=list(range(-1, n - 1)) if parents is None else parents,
            jointTransformations=exudyn.Matrix3DList([np.eye(3)] * n if turned is None else turned),
            jointOffsets=exudyn.Vector3DList([*map(np.array, places)]),
            linkInertiasCOM=exudyn.Matrix3DList([np.diag(x) for x in inertias]),
            linkCOMs=exudyn.Vector3DList([*map(np.array, centres)]),
            linkMasses=list(masses),
        )
    )
    return tree, lambda: np.atleast_1d(mbs.GetNodeOutput(node, exudyn.OutputVariableType.Coordinates))


def _pendulum(mbs):
    _, q = _tree(mbs, [("RevoluteZ", NONE, 1.0, -X, NONE)], -9.81 * Y)
    return lambda: [-np.cos(q()[0]), -np.sin(q()[0])]


def _double_pendulum(mbs):
    """Angles from the x axis."""
    rod = lambda mass, length: (mass, length / 2 * X, mass * length**2 / 12 * (1 - X))
    _, q = _tree(mbs, [("RevoluteZ", NONE, *rod(1.0, 1.0)), ("RevoluteZ", X, *rod(0.5, 0.7))], -9.81 * Y)
    return lambda: np.pi / 2 + np.cumsum(q())


def _spherical_pendulum(mbs):
    links = [("RevoluteX", NONE, 0.0, NONE, NONE), ("RevoluteY", NONE, 1.0, -Z, NONE)]
    _, q = _tree(mbs, links, -9.81 * Z, [0.0, -np.pi / 3], [4.0, 0.0])
    return lambda: Rotation.from_euler("XY", q()).apply(-Z)


def _heavy_top(mbs):
    """Hinges about a tilted axis, about x and about the axis of the top, which stays 43 degrees away from the first.

    They are singular where both are parallel. Explicit methods of Exudyn 1.13 on a body with a fixed point converge to
    another motion.
    """
    spin, precession, tilt = 150.0, -4.61538, Rotation.from_euler("x", -45, degrees=True)
    links = [
        ("RevoluteZ", NONE, 0.0, NONE, NONE),
        ("RevoluteX", NONE, 0.0, NONE, NONE),
        ("RevoluteY", NONE, 15.0, Y, (0.234375, 0.46875, 0.234375)),
    ]
    turned = [tilt.as_matrix(), np.eye(3), tilt.inv().as_matrix()]
    rates = [precession * np.sqrt(2), 0.0, spin - precession]
    _, q = _tree(mbs, links, -9.81 * Z, rates=rates, turned=turned)
    return lambda: (tilt * Rotation.from_euler("ZX", q()[:2]) * tilt.inv()).apply(Y)


def _governor(mbs):
    """Spindle, slider and arms; the springs connect points of the links."""
    from exudyn.itemInterface import MarkerKinematicTreeRigid, ObjectConnectorSpringDamper

    rod, ball, slider, width, side, offset = 0.3, 5.0, 3.0, 0.01, 0.1, 0.05
    thick, reach = rod * width**2 / 12, (rod / 2 + ball) / (rod + ball)
    across = rod / 12 + thick + rod * (reach - 0.5) ** 2 + ball * (1 - reach) ** 2
    links = [
        ("RevoluteZ", NONE, rod, Z / 2, (rod / 12 + thick, rod / 12 + thick, 2 * thick)),
        ("PrismaticZ", NONE, slider, NONE, np.full(3, slider * side**2 / 6)),
        *(("RevoluteY", Z + s * offset * X, rod + ball, s * reach * X, (2 * thick, across, across)) for s in (1, -1)),
    ]
    start, rates = [0.0, 0.5, np.pi / 6, -np.pi / 6], [2 * np.pi, 0.0, 0.0, 0.0]
    tree, q = _tree(mbs, links, -9.81 * Z, start, rates, parents=[-1, 0, 0, 0])
    marker = lambda link, at: mbs.AddMarker(
        MarkerKinematicTreeRigid(objectNumber=tree, linkNumber=link, localPosition=at)
    )
    for link, s in ((2, 1), (3, -1)):
        ends = [marker(link, s * X / 2), marker(1, s * offset * X)]
        mbs.AddObject(ObjectConnectorSpringDamper(markerNumbers=ends, referenceLength=0.5, stiffness=8e5, damping=4e4))
    return lambda: q()[1:2]


# --- other bodies -----------------------------------------------------------------------------------------------------


def _free_body(mbs):
    import exudyn
    from exudyn.itemInterface import NodeRigidBodyRotVecLG, ObjectRigidBody

    node = mbs.AddNode(NodeRigidBodyRotVecLG(initialVelocities=[0.0, 0.0, 0.0, 0.05, 2.0, 0.0]))
    mbs.AddObject(ObjectRigidBody(mass=1.0, inertia=[1.0, 2.0, 3.0, 0.0, 0.0, 0.0], nodeNumber=node))

    def values():
        R = mbs.GetNodeOutput(node, exudyn.OutputVariableType.RotationMatrix).reshape(3, 3)
        return Rotation.from_matrix(R).as_quat(canonical=True, scalar_first=True)  # w > 0, as the reference

    return values


def _disk(mbs, r, lean, omega):
    """Add a disk on the plane, its centre above the origin. ``lean`` from the vertical; ω in the axes of the disk:

    the axle, the level direction, upwards. Returns the function without arguments that reads centre and axle.
    """
    import exudyn
    from exudyn.itemInterface import (
        LoadMassProportional,
        MarkerBodyMass,
        MarkerBodyRigid,
        NodeRigidBodyRotVecLG,
        ObjectGround,
        ObjectJointRollingDisc,
        ObjectRigidBody,
    )

    up = np.array([0.0, np.sin(lean), np.cos(lean)])
    axes = np.stack([np.cross(X, up), X, up], axis=1)
    velocity = r * np.cross(axes @ omega, up)
    place = [0.0, 0.0, r * np.cos(lean)]
    turned = Rotation.from_matrix(axes).as_rotvec()
    node = mbs.AddNode(
        NodeRigidBodyRotVecLG(referenceCoordinates=[*place, *turned], initialVelocities=[*velocity, *omega])
    )
    inertia = [r**2 / 2, r**2 / 4, r**2 / 4, 0.0, 0.0, 0.0]
    disk = mbs.AddObject(ObjectRigidBody(mass=1.0, inertia=inertia, nodeNumber=node))
    mass = mbs.AddMarker(MarkerBodyMass(bodyNumber=disk))
    mbs.AddLoad(LoadMassProportional(markerNumber=mass, loadVector=-9.81 * Z))
    ends = [mbs.AddMarker(MarkerBodyRigid(bodyNumber=each)) for each in (mbs.AddObject(ObjectGround()), disk)]
    mbs.AddObject(ObjectJointRollingDisc(markerNumbers=ends, discRadius=r, discAxis=X, planeNormal=Z))

    def read():
        kinds = exudyn.OutputVariableType.Position, exudyn.OutputVariableType.RotationMatrix
        centre, R = (mbs.GetNodeOutput(node, kind) for kind in kinds)
        return centre, R.reshape(3, 3)[:, 0]

    return read


def _rolling_disk(mbs):
    m, r, g, tilt, W, wobble = 1.0, 0.2, 9.81, 1.2, 1.5, 0.5
    A, C, s, c = m * r**2 / 4, m * r**2 / 2, np.sin(tilt), np.cos(tilt)
    axial = (A * W**2 * s * c - m * g * r * c) / ((C + m * r**2) * W * s)
    read = _disk(mbs, r, np.pi / 2 - tilt, np.array([axial, wobble, W * s]))

    def values():
        centre, axle = read()
        yaw = np.arctan2(axle[0], -axle[1]) + 2 * np.pi  # after one turn
        return [*centre[:2], yaw, np.arccos(axle[2])]

    return values


def _rolling_coin(mbs):
    r, lean, turn = 0.01, np.pi / 180, 10 * np.pi
    read = _disk(mbs, r, lean, turn * np.array([np.sin(lean), 0.0, np.cos(lean)]))

    def values():
        centre, axle = read()
        up = np.cross(axle, np.cross(Z, axle))
        contact = centre - r * up / np.linalg.norm(up)
        return [contact[0], contact[1] + r * np.sin(lean)]

    return values


# --- loops in the plane -----------------------------------------------------------------------------------------------


class Planar(NamedTuple):
    """A body in the plane: its numbers in Exudyn, its centre of mass and its angle at the start."""

    node: int | None
    number: int
    centre: np.ndarray
    angle: float

    def marker(self, mbs, point):
        """Return the number of a marker at a point of the body, in the axes of the ground at the start."""
        from exudyn.itemInterface import MarkerBodyPosition

        local = Rotation.from_euler("z", -self.angle).apply([*(point - self.centre), 0.0])
        return mbs.AddMarker(MarkerBodyPosition(bodyNumber=self.number, localPosition=local))


def _ground(mbs):
    from exudyn.itemInterface import ObjectGround

    return Planar(None, mbs.AddObject(ObjectGround()), np.zeros(2), 0.0)


def _planar(mbs, mass, inertia, centre, angle=0.0):
    from exudyn.itemInterface import NodeRigidBody2D, ObjectRigidBody2D

    node = mbs.AddNode(NodeRigidBody2D(referenceCoordinates=[*centre, angle]))
    body = mbs.AddObject(ObjectRigidBody2D(mass=mass, inertia=inertia, nodeNumber=node))
    return Planar(node, body, np.asarray(centre, float), angle)


def _pin(mbs, point, *bodies):
    """Join two bodies at a point, in the axes of the ground at the start."""
    from exudyn.itemInterface import ObjectJointRevolute2D

    mbs.AddObject(ObjectJointRevolute2D(markerNumbers=[body.marker(mbs, np.asarray(point)) for body in bodies]))


def _torque(mbs, body, torque):
    from exudyn.itemInterface import LoadTorqueVector, MarkerBodyRigid

    mbs.AddLoad(
        LoadTorqueVector(markerNumber=mbs.AddMarker(MarkerBodyRigid(bodyNumber=body.number)), loadVector=torque * Z)
    )


def _moved(mbs, body):
    """Return the displacement (x, y, angle) of a body from its start."""
    import exudyn

    return mbs.GetNodeOutput(body.node, exudyn.OutputVariableType.Coordinates)


def _slider_crank(mbs):
    from exudyn.itemInterface import CoordinateConstraint, MarkerNodeCoordinate, NodePointGround

    ground = _ground(mbs)
    crank = _planar(mbs, 0.2, 0.2 * 0.1**2 / 12, (0.05, 0))
    rod = _planar(mbs, 0.2, 0.2 * 0.3**2 / 12, (0.25, 0))
    slider = _planar(mbs, 0.4, 1.0, (0.4, 0))
    _pin(mbs, (0, 0), ground, crank)
    _pin(mbs, (0.1, 0), crank, rod)
    _pin(mbs, (0.4, 0), rod, slider)
    marker = lambda node, i: mbs.AddMarker(MarkerNodeCoordinate(nodeNumber=node, coordinate=i))
    fixed = marker(mbs.AddNode(NodePointGround()), 0)
    for i in (1, 2):  # y and the angle of the slider
        mbs.AddObject(CoordinateConstraint(markerNumbers=[fixed, marker(slider.node, i)]))
    _torque(mbs, crank, 0.1)
    return lambda: [_moved(mbs, crank)[2], 0.4 + _moved(mbs, slider)[0]]


def _andrews(mbs):
    from exudyn.itemInterface import ObjectConnectorSpringDamper

    squeezer = uk.systems.AndrewsSqueezer()
    q = squeezer.start()[0]
    centres, angles, ends = (np.asarray(f(q)) for f in (squeezer.centres, squeezer.angles, squeezer.joints))
    F, E, _, _, G, _, H = ends
    O, A, B, C = np.zeros(2), *np.array([(squeezer.xa, squeezer.ya), (squeezer.xb, squeezer.yb), (0.014, 0.072)])
    D = np.asarray(squeezer.spring_end(q))
    each = zip(np.asarray(squeezer.m), np.asarray(squeezer.I), centres, angles, strict=True)
    ground, bodies = _ground(mbs), [_planar(mbs, *one) for one in each]
    one, two, three, four, five, six, seven = bodies
    joints = [(O, ground, one), (F, one, two), (B, ground, three), (A, ground, five), (G, five, four)]
    joints += [(A, ground, seven), (H, seven, six), *((E, two, other) for other in (three, four, six))]
    for joint in joints:
        _pin(mbs, *joint)
    spring = [ground.marker(mbs, C), three.marker(mbs, D)]
    mbs.AddObject(
        ObjectConnectorSpringDamper(markerNumbers=spring, referenceLength=float(squeezer.l0), stiffness=4530.0)
    )
    _torque(mbs, one, float(squeezer.mom))

    def values():
        beta, gamma = (body.angle + _moved(mbs, body)[2] for body in (one, three))
        return [beta, -3.635 + 3.5 * np.sin(gamma), 3.273 - 3.5 * np.cos(gamma)]

    return values


PEERS = {
    "pendulum": Peer(_pendulum),
    "double_pendulum": Peer(_double_pendulum),
    "spherical_pendulum": Peer(_spherical_pendulum),
    "heavy_top": Peer(_heavy_top),
    "free_body": Peer(_free_body),
    "governor": Peer(_governor, IMPLICIT),
    "slider_crank": Peer(_slider_crank, IMPLICIT),
    "andrews": Peer(_andrews, IMPLICIT),
    "rolling_disk": Peer(_rolling_disk, IMPLICIT),
    "rolling_coin": Peer(_rolling_coin, IMPLICIT),
}
"""Problems that Exudyn can solve, by name."""

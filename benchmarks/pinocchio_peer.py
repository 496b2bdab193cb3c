"""The same mechanisms in Pinocchio (``pip install '.[peers]'``): loops as point contacts, its proximal solver."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from collections.abc import Callable

import numpy as np
import pinocchio as pin

import ukjax as uk

from .mechanisms import Case


class Peer:
    """A model with its loops, and the matrix from coordinates q of ukjax to its own: relative angles = ``relative``
    q."""

    def __init__(self, gravity: float, relative: np.ndarray):
        self.model = pin.Model()
        self.model.gravity.linear = np.array([0.0, -gravity, 0.0])
        self.relative = relative
        self._loops = []

    def link(self, parent: int, x: float, y: float, m: float, centre: float, I: float) -> int:
        """A link on a hinge at (x, y) of its parent; 0 is the ground."""
        place = pin.SE3(np.eye(3), np.array([x, y, 0.0]))
        name = f"link{self.model.njoints}"
        joint = self.model.addJoint(parent, pin.JointModelRZ(), place, name)
        body = pin.Inertia(float(m), np.array([centre, 0.0, 0.0]), float(I) * np.eye(3))
        self.model.appendBodyToJoint(joint, body, pin.SE3.Identity())
        return joint

    def join(self, link: int, at: float, other: int, there: float) -> None:
        """Join two links at one point, at the distances ``at`` and ``there`` along them."""
        place = lambda x: pin.SE3(np.eye(3), np.array([x, 0.0, 0.0]))
        self._loops.append((link, place(at), other, place(there)))

    def ready(self) -> "Peer":
        kind = pin.ContactType.CONTACT_3D, self.model
        self._contacts = pin.StdVec_RigidConstraintModel()
        self._contacts.extend(pin.RigidConstraintModel(*kind, *loop, pin.ReferenceFrame.LOCAL) for loop in self._loops)
        self._found = pin.StdVec_RigidConstraintData()
        self._found.extend(contact.createData() for contact in self._contacts)
        self._data = self.model.createData()
        pin.initConstraintDynamics(self.model, self._data, self._contacts, self._found)
        self._settings = pin.ProximalSettings(1e-12, 1e-8, 3)
        self._none = np.zeros(self.model.nv)
        return self

    def acceleration(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """q̈ of the model at its q and v."""
        return pin.constraintDynamics(
            self.model, self._data, q, v, self._none, self._contacts, self._found, self._settings
        )


def _peer(case: Case) -> Peer:
    return {"P1": _three_chains, "P2": _five_links}[case.name]()


def _three_chains():
    robot = uk.systems.ParallelManipulator()
    peer, ends = Peer(0.0, np.eye(6)), []
    for i in range(3):
        a = peer.link(0, robot.xA[i], robot.yA[i], robot.ma[i], robot.ra[i], robot.Ia[i])
        ends.append(peer.link(a, robot.L, 0.0, robot.mb[i], robot.rb[i], robot.Ib[i]))
    for end in ends[1:]:
        peer.join(ends[0], float(robot.L), end, float(robot.L))
    return peer.ready()


def _five_links():
    robot = uk.systems.CoordinatedRobots()
    peer, last = Peer(float(robot.g), np.eye(5) - np.eye(5, k=-1)), 0
    for i in range(5):
        x = 0.0 if i == 0 else robot.l[i - 1]
        last = peer.link(last, x, 0.0, robot.m[i], robot.l[i] / 2, robot.I[i])
    peer.join(last, float(robot.l[4]), 0, float(robot.L))
    return peer.ready()


def acceleration(case: Case, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """q̈ in the coordinates of ukjax."""
    peer = _peer(case)
    return np.linalg.solve(peer.relative, peer.acceleration(peer.relative @ q, peer.relative @ v))


def forward(case: Case, q: np.ndarray, v: np.ndarray) -> Callable[[], None]:
    """A call that computes q̈ of all states, one after the other."""
    peer = _peer(case)
    states = list(zip(q @ peer.relative.T, v @ peer.relative.T, strict=True))

    def call():
        for position, velocity in states:
            peer.acceleration(position, velocity)

    return call

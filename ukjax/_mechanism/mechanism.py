"""A mechanism of bodies and joints: a system that is put together from its parts instead of from matrices."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._check import as_numbers, check_word, is_eager, kind_of
from .._constraint import AbstractConstraint
from .._control import AbstractControl
from .._control import constraints_of as as_constraints
from .._equation import constrained_motion
from .._friction import DryFriction
from .._motion.consistent.assemble import assembled, consistent
from .._motion.consistent.locked import locked
from .._motion.consistent.project import project
from .._motion.labels import named_directions
from .._names import did_you_mean
from .._precision import Numbers, as_float
from .._rotation import as_vector, quaternion_of
from .._run.compile import jit_unoptimised, kept
from .._system import Limited, System, state_of
from ..joints import AbstractActing, AbstractConnection, AbstractCoupling, AbstractJoint
from ..systems.base import AbstractMechanism
from .actuator import Actuator, actuators_of
from .alike import ACTING
from .body import Body
from .closing import target_rows, closing_coordinates, absolute_state, with_nearest_turns
from .closure import constraints_of
from .dynamics import TreeDynamics
from .elements import Elements, JointCoordinates
from .kinematics import FLOATING, Pose, joint_of, poses
from .named import Named, numbers_by_name
from .reactions import Reaction, Rows, reactions
from .shape import edges_of, warn_of_undrawn
from .tree import Tree, check_names, connections, spanning_tree
from .turning import kinematic_map_of


class Mechanism(AbstractMechanism):
    """``Mechanism(bodies, joints, gravity=(0, 0, -9.81))``: bodies by name, and joints between them by name.

        bodies = {"crank": Body(1.0, (0.05, 0, 0), (0, 1e-3, 1e-3)), ...}
        joints = {"motor": Revolute("ground", "crank", axis="y"), "pin": Revolute("crank", "rod", at=(0.1, 0, 0)), ...}

    Joints are taken in their order: one that leads to a body which nothing carries yet carries it, and its coordinates
    are coordinates of the mechanism; one between bodies that are carried already closes a loop, and is rows of A. A
    body that no joint leads to floats. With ``formulation="absolute"`` all bodies float, each with a place and a
    quaternion, and all joints are rows of A: the same motion, from larger and sparser matrices.

    Attitudes are unit quaternions, and velocities then the rates about fixed axes, q̇ = N(q) v, one fewer than there are
    coordinates: ``coordinates`` and ``velocities`` name both.

    M and Q are exact, by recursion along the tree; loops, contacts and couplings are constraints like any other,
    redundant ones included. Every number has a name: ``bodies.crank.mass``, ``joints.pin.at``. A dry friction f of a
    joint is the non-ideal force −f tanh(q̇/``creep``) of its coordinate. ``constraints`` are one or several further
    ones, of any kind, functions of its coordinates. ``end`` [s] is how long the command line simulates it,
    ``actuators`` a record of the motors it has, which move nothing by themselves, ``title`` what figures call it.

    Raises ``ValueError`` for names that are not there, and for things that are no bodies or joints.
    """

    bodies: Named[Body]
    joints: Named[AbstractConnection | AbstractCoupling]
    gravity: Float[Array, " 3"]
    control: AbstractControl | None  # pyright: ignore
    further: tuple[AbstractConstraint, ...]
    actuators: tuple[Actuator, ...] = eqx.field(static=True)
    tree: Tree = eqx.field(static=True, init=False)
    absolute: bool = eqx.field(static=True, init=False)
    title: str = eqx.field(static=True)

    end: ClassVar[float] = 5.0

    def __init__(
        self,
        bodies: Any,
        joints: Any = MappingProxyType({}),
        gravity: Numbers = (0.0, 0.0, -9.81),
        *,
        formulation: str = "joint",
        control: Any = None,
        constraints: Any = (),
        actuators: Iterable[Actuator] = (),
        title: str = "Mechanism",
    ):
        check_word("formulation", formulation, ("joint", "absolute"))
        self.bodies = Named.of("bodies", bodies, Body, "a ukjax.Body")
        kinds = (AbstractConnection, AbstractCoupling)
        self.joints = Named.of("joints", joints, kinds, "one of ukjax.joints")
        if not len(self.bodies):
            raise ValueError("bodies must name at least one body, got none")
        self.gravity = as_vector("gravity", gravity)
        if control is not None and not isinstance(control, AbstractControl):
            raise ValueError(f"control must be one of ukjax.control (Servo, Robust, Feedback), got {kind_of(control)}")
        self.control = control
        self.further = as_constraints("constraints", constraints)
        self.title = title
        given = dict(self.joints.items())
        check_names(self.bodies.names, given)
        self.actuators = actuators_of(actuators, given)
        self.absolute = formulation == "absolute"
        self.tree = spanning_tree(self.bodies.names, given, FLOATING, self.absolute)
        _check_element_shapes(self.joints, self.tree)
        _check_closing(self.joints, self.tree)

    @kept
    def dynamics(self) -> TreeDynamics:
        return TreeDynamics(self.bodies, self.joints, self.gravity, self.elements, self.tree)

    @kept
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """The rows of joints, and after them those that were given as ``constraints``."""
        return (*constraints_of(self.joints, self.tree), *self.further)

    @property
    def nonideal(self) -> Callable | None:
        return self.elements.friction()

    @property
    def dry_friction(self) -> DryFriction | None:
        return self.elements.dry_friction()

    @kept
    def elements(self) -> Elements:
        """What acts along the coordinates of joints."""
        return Elements(self.joints, self.tree)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each: the joint's name, with its own behind it where it has several. Those of joints that
        close loops, and whose turns are counted, are the last."""
        joints = [(link.joint or link.body, joint_of(self.joints, link)) for link in self.tree.links]
        named: dict[str, Any] = dict(self.joints.items())
        joints += [(counted.joint, named[counted.joint]) for counted in self.tree.counted]
        return tuple((_joined_name(name, own), unit) for name, joint in joints for own, unit in joint.coordinates)

    @property
    def velocities(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each: that of a coordinate with a d before it, or that of a rate of turning."""
        found = []
        for link in self.tree.links:
            name = link.joint or link.body
            for own, unit in joint_of(self.joints, link).velocities:
                is_rate = own.startswith("d")
                found.append((f"d{_joined_name(name, own[1:])}" if is_rate else _joined_name(name, own), unit))
        return tuple(found)

    @property
    def kinematic_map(self) -> Callable | None:
        """q̇ = N(q) v, where there are quaternions."""
        return kinematic_map_of(self.joints, self.tree)

    def in_absolute(self) -> "Mechanism":
        """The same in absolute coordinates, without its control. Raises ``ValueError`` where it has ``constraints`` of
        its own, which are functions of these coordinates."""
        if self.further:
            name = self.further[0].name
            raise ValueError(
                f"constraint {name!r} is a function of coordinates of joints: make the mechanism without constraints, "
                "take that in_absolute(), and add them as functions of its coordinates by constrained(...)"
            )
        return Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            formulation="absolute",
            actuators=self.actuators,
            title=self.title,
        )

    def driven(self, control: AbstractControl) -> "Mechanism":
        """The same under ``control``, whose actuators may be ``along`` joints."""
        return Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            formulation="absolute" if self.absolute else "joint",
            control=control,
            constraints=self.further,
            actuators=self.actuators,
            title=self.title,
        )

    def constrained(self, constraints: AbstractConstraint | Iterable[AbstractConstraint]) -> "Mechanism":
        """The same with further ``constraints``, one or several, of its coordinates: with ``pose``, for example

        mechanism.constrained(Holonomic(lambda t, q: mechanism.pose(q, t)["tip"].p[2] - 0.3, name="height"))
        """
        return Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            formulation="absolute" if self.absolute else "joint",
            control=self.control,
            constraints=(*self.further, *as_constraints("constraints", constraints)),
            actuators=self.actuators,
            title=self.title,
        )

    def along(self, *names: str) -> Callable:
        """The actuators (t, q) -> B (n, p) of a motor on each of the joints of these names: a force or a torque along
        its coordinate."""
        for name in names:
            joint = self.joints.things[self.joints.names.index(name)] if name in self.joints else None
            if not isinstance(joint, AbstractActing) or joint.quaternion is not None:
                raise ValueError(f"no joint with plain coordinates is named {name!r}{did_you_mean(name, self.joints)}")
        return JointCoordinates(self.joints, self.tree, names).columns

    def pose(self, q: Numbers, t: ScalarLike = 0.0) -> dict[str, Pose]:
        """Of each body by its name: the axes of its frame as columns, ``.R`` (3, 3), and its origin ``.p`` (3,) [m]."""
        q = self._as_q(q)
        found = _poses(self.joints, self.tree, as_float(t), q)
        return {name: found[name] for name in self.bodies}

    def reactions(self, t: Numbers, q: Numbers, v: Numbers) -> dict[str, Reaction]:
        """The forces and moments in the joints, in the constrained motion from q (nq,), v (n,) at time t [s].

        What acts along a joint, a spring for example, is part of its reaction. So is the motor of a control, and what
        further ``constraints`` put on its coordinates, but not in absolute coordinates.

        A mechanism with redundant constraints, such as a door on two hinges, does not determine all reactions: what
        each of its joints carries depends on how stiff the parts are. Unique are the sum of the forces, and that of the
        moments, that all joints put on a body, and single components where ``Reaction`` says so. For the others those
        reactions are returned for which Σ |force|² + |moment|²/L² is least, over all joints, where L² is the mean
        square distance of the joints and centres of mass from their centroid: the same ones in joint and in absolute
        coordinates.

        Returns
        -------
        dict[str, Reaction]
            For each joint by its name the ``force`` (3,) [N] and the ``moment`` (3,) [N m] that it puts on its child,
            about the child's joint point, along the axes of space; and whether each component is unique,
            ``force_is_unique`` (3,) and ``moment_is_unique`` (3,).

        Raises
        ------
        ValueError
            For a state of another shape, or one in which the acceleration is not unique.
        """
        t, q, v = state_of(t, q, v, self.kinematic_map)
        terms = self(t, q, v)
        motion = constrained_motion(terms)
        names = tuple(row for constraint in constraints_of(self.joints, self.tree) for row in constraint.name)
        turning = tuple(unit == "rad/s" for _, unit in self.velocities)
        found = _reactions(self.dynamics, names, turning, terms, t, q, v, motion)
        return {name: found[name] for name in self.joints if name in found}  # a program sorts names

    def joint_coordinates(self, q: Numbers, t: ScalarLike = 0.0) -> dict[str, Float[Array, " k"]]:
        """Of each joint by its name its own coordinates (k,), angles and lengths, also where it closes a loop or the
        mechanism is in absolute coordinates. There, angles are counted over turns if a spring or a coupling is on them,
        and otherwise within half a turn. Joints without such coordinates, such as balls, are left out."""
        q = self._as_q(q)
        closing = {at.joint for at in closing_coordinates(self.joints, self.tree).values()}
        plain = {name: joint for name, joint in self.joints.items() if isinstance(joint, AbstractActing)}
        plain = {k: x for k, x in plain.items() if k in closing or self.tree.link_of_joint(k) and x.quaternion is None}
        found = _joint_coordinates(JointCoordinates(self.joints, self.tree, tuple(plain)), as_float(t), q)
        ends = np.cumsum([len(joint.coordinates) for joint in plain.values()])
        return dict(zip(plain, jnp.split(found, ends[:-1]), strict=True)) if plain else {}

    def limited(self, t: Array, q: Float[Array, "*samples nq"]) -> tuple[Limited, ...]:
        """The coordinates of joints with ``limits``. An angle that is known up to whole turns is the one that is
        nearest to the middle of them."""
        joints = [(name, joint) for name, joint in self.joints.items() if isinstance(joint, AbstractJoint)]
        joints = [(name, joint) for name, joint in joints if joint.limits is not None]
        if not joints:
            return ()
        places = {link.joint: link.first_of_q for link in self.tree.links}
        places |= {counted.joint: counted.first_of_q for counted in self.tree.counted}
        others = tuple(name for name, _ in joints if name not in places)
        states, found = np.asarray(q), []
        of_others = _at_samples(JointCoordinates(self.joints, self.tree, others), t, q) if others else q
        for name, joint in joints:
            low, high = joint.limits
            if name in places:
                values = states[..., places[name]]
            else:
                values, middle = np.asarray(of_others)[..., others.index(name)], (low + high) / 2
                if joint.within_half_a_turn:
                    values = middle + np.remainder(values - middle + np.pi, 2 * np.pi) - np.pi
            found.append(Limited(name, joint.coordinates[0][1], low, high, values))
        return tuple(found)

    def start(
        self, positions: Mapping[str, Any] | None = None, velocities: Mapping[str, Any] | None = None
    ) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """A pose in which the mechanism fits together, and velocities it can have: (q0, v0), near the reference pose,
        which is 0 for angles and lengths or what the joints call their ``reference``, and at rest.

        ``positions`` gives values of some coordinates by name, ``velocities`` their time derivatives, by the same
        names, or rates of turning by their names in ``Mechanism.velocities``; the rest follows them. The coordinates of
        joints that close loops, or that are rows in absolute coordinates, are named as if they were the mechanism's.
        Raises ``ValueError`` for what are no dictionaries of numbers, and where nothing fits.
        """
        example = self.coordinates[0][0] if self.tree.nq else "crank"
        positions = numbers_by_name("positions", positions, example)
        velocities = numbers_by_name("velocities", velocities, example)
        coordinates = [name for name, _ in self.coordinates]
        along = [name for name, _ in named_directions(self, self.tree.n) or self.coordinates]
        closing = closing_coordinates(self.joints, self.tree)
        of_closing = {name: jnp.asarray(value) for name, value in positions.items() if name in closing}
        velocities_of_closing = {name: jnp.asarray(value) for name, value in velocities.items() if name in closing}
        q, v = self._initial_guess(of_closing, velocities_of_closing)
        held = []
        for name, value in positions.items():
            if name in closing:
                continue
            if name not in coordinates:
                hint = did_you_mean(name, (*coordinates, *closing))
                raise ValueError(f"positions names no coordinate {name!r}{hint}")
            q = q.at[coordinates.index(name)].set(value)
            held.append(name)
        for name, value in velocities.items():
            if name in closing:
                continue
            if name not in along:
                raise ValueError(f"velocities names no coordinate {name!r}{did_you_mean(name, (*along, *closing))}")
            v = v.at[along.index(name)].set(value)
            held.append(name)
        fixed, t, model = tuple(dict.fromkeys(held)), jnp.zeros(()), self
        if of_closing or velocities_of_closing:
            rows = target_rows(self.joints, self.tree, of_closing, velocities_of_closing)
            names: dict = dict(coordinates=self.coordinates, kinematic_map=self.kinematic_map)
            names |= {} if self.kinematic_map is None else dict(velocities=self.velocities)
            model = System(self.dynamics, (*self.constraints, *rows), control=self.control, **names)
        if is_eager(model, q, v):
            whole = locked(model, fixed, t, q, v)
            found = consistent(whole, t, q, v)
            if found is not None:
                return self._settled(found[0]), found[1]
            near = assembled(whole, t, q, v)
            q = q if near is None else near
        q, v = project(model, t, q, v, fixed=fixed)
        return self._settled(q), v

    def _initial_guess(self, positions, velocities) -> tuple[Array, Array]:
        """Where ``start`` looks from, with these values of joints that close loops: from the same in the coordinates of
        joints, where the mechanism is in absolute ones and they matter."""
        coupled = self.tree.counted and any(isinstance(joint, AbstractCoupling) for _, joint in self.joints.items())
        if self.absolute and (positions or velocities or coupled):
            plain = Mechanism(self.bodies, self.joints, self.gravity)
            return absolute_state(plain.joints, plain.tree, self.tree, *plain.start(positions, velocities))
        q, v = self.reference_pose()
        return with_nearest_turns(self.joints, self.tree, q, positions) if self.tree.counted else q, v

    def _settled(self, q):
        """q whose counted coordinates agree with the bodies."""
        kinematic_map = self.kinematic_map
        return q if kinematic_map is None or not self.tree.counted else _settled(kinematic_map, q)

    def reference_pose(self) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """Where ``start`` looks from: not always a pose in which loops are closed."""
        tree = spanning_tree(self.bodies.names, dict(self.joints.items()), FLOATING, absolute=False)
        own = lambda joint: jnp.asarray(joint.neutral) if joint.reference is None else jnp.ravel(joint.reference)
        parts = {link.body: own(joint_of(self.joints, link)) for link in tree.links}
        q = jnp.concatenate([jnp.zeros(0), *parts.values()])
        if self.absolute:
            there = _poses(self.joints, tree, jnp.zeros(()), q)
            q = jnp.concatenate(
                [x for link in self.tree.links for x in (there[link.body].p, quaternion_of(there[link.body].R))]
            )
        for name, *_ in self.tree.counted:
            link = tree.link_of_joint(name)
            q = jnp.concatenate([q, own(self.joints[name]) if link is None else parts[link.body]])
        return self._settled(q), jnp.zeros(self.tree.n)

    def _as_q(self, q: Numbers) -> Array:
        q = as_numbers("q", q)
        if q.shape != (self.tree.nq,):
            raise ValueError(f"q must have shape ({self.tree.nq},), one entry per coordinate, got shape {q.shape}")
        return q

    def outline(self, t: ScalarLike, q: Float[Array, " nq"]) -> tuple[Float[Array, "points 3"], ...]:
        """For each body a line through its joints and its centre of mass [m]."""
        there = poses(self.joints, self.tree, as_float(t), q)
        lines = []
        for name, body in self.bodies.items():
            points = [
                there[name].frame(joint.in_parent() if joint.parent == name else joint.in_child()).p
                for _, joint in connections(dict(self.joints.items()))
                if name in (joint.parent, joint.child)
            ]
            centre = there[name].p + there[name].R @ body.centre
            points = points if len(points) > 1 else [*points, centre]
            lines.append(jnp.stack(points if len(points) > 1 else [*points, there[name].p]))
        return tuple(lines)

    def edges(self) -> dict[str, Float[np.ndarray, "points 3"]]:
        """Those of the shapes of each body that has some, in its frame."""
        warn_of_undrawn(shape for _, body in self.bodies.items() for shape in body.shapes)
        found = {name: edges_of(body.shapes) for name, body in self.bodies.items()}
        return {name: points for name, points in found.items() if len(points)}


_poses = jit_unoptimised(poses)


@jit_unoptimised
def _at_samples(coordinates, t, q):
    each = jax.vmap(coordinates)
    return (jax.vmap(each) if q.ndim == 3 else each)(t, q)


@jit_unoptimised
def _joint_coordinates(coordinates, t, q):
    return coordinates(t, q)


@jit_unoptimised
def _settled(kinematic_map, q):
    return kinematic_map.settled(q)


@jit_unoptimised
def _reactions(dynamics, names, turning, terms, t, q, v, motion):
    # Aᵀλ: the rows' answer to a non-ideal force c is among what that makes of the constraint force.
    by_rows = motion.constraint_force - (0.0 if terms.c is None else terms.c)
    rows = Rows(terms.A, by_rows, names, np.array(turning, bool))
    return reactions(dynamics, t, q, v, motion.acceleration, rows)


def _joined_name(name, own):
    return f"{name}_{own}" if own else name


def _check_closing(joints, tree):
    """What acts along a joint that closes a loop is along coordinates that can be read off the bodies, and turns are
    counted only where nothing moves by itself."""
    coupled = {name for _, joint in joints.items() if isinstance(joint, AbstractCoupling) for name in joint.joints}
    for name in tree.closures:
        joint = joints[name]
        if not isinstance(joint, AbstractActing) or type(joint).coordinates_of is not AbstractActing.coordinates_of:
            continue
        acting = [field for field in (*ACTING, "limits") if getattr(joint, field, None) is not None]
        if acting or name in coupled:
            what = f"has {acting[0]}" if acting else "is coupled"
            raise ValueError(
                f"joints[{name!r}] closes a loop and {what}, but {type(joint).__name__} has no coordinates_of(R, p), "
                "which returns its coordinates there: define it, or put the joint before those that close its loop"
            )
    ways = tree.ancestors() if tree.counted else {}
    for counted in tree.counted:
        ends = joints[counted.joint].parent, joints[counted.joint].child
        for i in {i for end in ends for i in ways[end]}:
            link = tree.links[i]
            if _depends_on_time(joint_of(joints, link)):
                raise ValueError(
                    f"joints[{link.joint!r}] moves by itself with time, which transform(t, q) of a "
                    f"{type(joint_of(joints, link)).__name__} says, in a loop that joints[{counted.joint!r}] closes, "
                    "whose turns are counted for its spring or coupling. Move it by ukjax.joints.Drive instead"
                )


def _depends_on_time(joint):
    """Whether its place is a function of t."""
    program = jax.make_jaxpr(joint.transform)(0.0, jnp.zeros(len(joint.coordinates))).jaxpr
    t = program.invars[0]
    used = [x for equation in program.eqns for x in equation.invars] + list(program.outvars)
    return any(x is t for x in used)


def _check_element_shapes(joints, tree):
    """Springs, dampers, armatures and friction have one number, or one for each velocity of their joint; along a
    quaternion they act only where the joint carries a body."""
    for name, joint in joints.items():
        if not isinstance(joint, AbstractActing):
            continue
        k, turns = len(joint.coordinates), joint.quaternion is not None
        if hasattr(joint, "kinematic_map"):
            raise ValueError(
                f"joints[{name!r}] has a kinematic_map, which is not used: the velocities of a joint are the rates of "
                f"its coordinates, or those of turning of its quaternion. Choose coordinates of {type(joint).__name__} "
                "of which that is true"
            )
        for field in ACTING:
            value = getattr(joint, field)
            if value is None:
                continue
            if turns and tree.link_of_joint(name) is None:
                raise ValueError(
                    f"joints[{name!r}] has a quaternion, and no body hangs on it here, so that no {field} can act "
                    'along it: use formulation="joint", and put the joint before those that close its loop'
                )
            m = len(joint.velocities)
            shapes, wanted = ((), (m,)), f"a number, or {m}"
            if turns and field == "rest":
                shapes, wanted = ((k,),), f"its {k} coordinates"
            elif turns and field in ("stiffness", "friction", "creep"):
                shapes, wanted = ((),), "one number"
            if value.shape not in shapes:
                raise ValueError(f"{field} of joints[{name!r}] must be {wanted}, got shape {value.shape}")
        if isinstance(joint, AbstractJoint) and joint.limits is not None and k != 1:
            raise ValueError(
                f"limits of joints[{name!r}] are for joints with one coordinate, and it has {k}: leave them"
            )
        if isinstance(joint, AbstractJoint) and joint.reference is not None and joint.reference.size != k:
            raise ValueError(f"reference of joints[{name!r}] must be {k} numbers, got shape {joint.reference.shape}")

"""Mechanisms: systems that are assembled from bodies and joints."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._check import as_numbers, check_word, kind_of
from .._constraint import AbstractConstraint, AbstractNonsmooth
from .._control import AbstractControl
from .._equation import constrained_motion
from .._errors import InputError
from .._friction import DryFriction
from .._jaxpr.tracing import is_eager
from .._labels import named_directions
from .._motion.consistent.assemble import assembled, consistent
from .._motion.consistent.locked import locked
from .._motion.consistent.project import project
from .._motion.inputs import canonicalise
from .._names import check_different, did_you_mean
from .._precision import Numbers, as_float, in_precision
from .._rotation import as_vector, quaternion_of
from .._run.compile import cached_unless_tracing, jit_unoptimised
from .._system import AnyConstraint, Limited, System, refuse_contacts, split_constraints, state_of
from .._with_states import with_initial_states, without_states
from ..contacts import Contact
from ..joints import AbstractActing, AbstractConnection, AbstractCoupling, AbstractJoint
from ..systems.base import AbstractMechanism
from .actuator import Actuator, actuators_of
from .alike import ACTING
from .body import Body
from .closing import absolute_state, closing_coordinates, target_rows, with_nearest_turns
from .closure import constraints_of
from .contacts import BodyContacts, as_contacts, contacts_of
from .deflection import Deflection
from .dynamics import TreeDynamics
from .elements import Elements, JointCoordinates
from .flexible import FlexibleBody
from .kinematics import FLOATING, Pose, joint_of, poses
from .motors import Motors
from .named import Named, numbers_by_name
from .reactions import Reaction, Rows, reactions
from .shape import Surface, edges_of, surface_of, warn_of_undrawn
from .stops import has_stop, stops_and_friction
from .tree import Tree, check_names, connections, spanning_tree
from .turning import kinematic_map_of
from .whole_body import Momentum, centre_of_mass, jacobian, momentum


class Mechanism(AbstractMechanism):
    """A mechanism of rigid bodies and joints, both identified by name::

        bodies = {"crank": Body(1.0, (0.05, 0, 0), (0, 1e-3, 1e-3)), ...}
        joints = {"motor": Revolute("ground", "crank", axis="y"), "pin": Revolute("crank", "rod", at=(0.1, 0, 0)), ...}

    The joints are processed in order. The first joint that reaches a body attaches it to the tree, and the
    coordinates of this joint become coordinates of the mechanism. A joint between two bodies that are already attached
    closes a loop and contributes rows of A. A body without a joint floats.

    Attitudes are unit quaternions. Their velocities are angular velocities about fixed axes, q̇ = N(q) v, so that
    each quaternion has one velocity fewer than coordinates. ``coordinates`` and ``velocities`` list both.

    M and Q are computed exactly, by recursion over the tree. Loops, rolling contacts and couplings are constraints and
    may be redundant. Each number is a named leaf: ``bodies.crank.mass``, ``joints.pin.at``. Dry friction of size f in a
    joint is the non-ideal force −f tanh(q̇/``creep``) along its coordinate.

    Parameters
    ----------
    bodies : dict of str to Body or FlexibleBody
        Bodies by name. Joints may connect nodes of a flexible body, such as ``"rod.end"``. Its modal coordinates follow
        the coordinates of all joints.
    joints : dict of str to joint
        Joints, connections and couplings of ``ukjax.joints`` by name.
    gravity : (3,)
        Acceleration of gravity [m/s²].
    formulation : {"joint", "absolute"}
        "joint": coordinates of joints. "absolute": all bodies float, each with a position and a quaternion, and all
        joints are rows of A; the motion is the same, with larger and sparser matrices.
    control : optional
        A control law of ``ukjax.control``.
    constraints : constraint or iterable of constraints
        Additional constraints of any kind, contacts among them, functions of the coordinates of the mechanism.
    contacts : iterable of Contact
        Contacts of the bodies, of ``ukjax.contacts``.
    actuators : iterable of Actuator
        Records of the motors. Alone they exert no force; see ``motors``.
    title : str
        Title of figures.

    Attributes
    ----------
    end : float
        Duration of a simulation from the command line [s].

    Raises
    ------
    InputError
        If a joint or a contact refers to a name that does not exist, or an argument is not of the documented type.
    """

    bodies: Named[Body | FlexibleBody]
    joints: Named[AbstractConnection | AbstractCoupling]
    gravity: Float[Array, " 3"]
    control: AbstractControl | None  # pyright: ignore
    further: tuple[AbstractConstraint, ...]
    further_nonsmooth: tuple[AbstractNonsmooth, ...]
    contacts: tuple[Contact, ...]
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
        contacts: Any = (),
        actuators: Iterable[Actuator] = (),
        title: str = "Mechanism",
    ):
        check_word("formulation", formulation, ("joint", "absolute"))
        self.bodies = Named.of("bodies", bodies, (Body, FlexibleBody), "a ukjax.Body or a ukjax.FlexibleBody")
        joint_types = (AbstractConnection, AbstractCoupling)
        self.joints = Named.of("joints", joints, joint_types, "one of ukjax.joints")
        if not len(self.bodies):
            raise InputError("bodies must name at least one body, got none")
        self.gravity = as_vector("gravity", gravity)
        if control is not None and not isinstance(control, AbstractControl):
            raise InputError(f"control must be one of ukjax.control (Servo, Robust, Feedback), got {kind_of(control)}")
        self.control = control
        self.further, self.further_nonsmooth = split_constraints(constraints)
        self.contacts = as_contacts(contacts, self.frames)
        self.title = title
        joints_by_name = dict(self.joints.items())
        check_names(self.frames, joints_by_name)
        self.actuators = actuators_of(actuators, joints_by_name)
        self.absolute = formulation == "absolute"
        self.tree = self._spanning_tree(self.absolute)
        _check_coordinate_names(self.coordinates)
        check_different(*([name for name, _ in names] for names in (self.coordinates, self.velocities)))
        _check_element_shapes(self.joints, self.tree)
        _check_closing(self.all_joints, self.tree)

    @property
    def frames(self) -> tuple[str, ...]:
        """The names of all bodies, and of the nodes of flexible bodies: ``"rod.end"``."""
        return (*self.bodies.names, *(node for nodes in self._deflections().values() for node in nodes))

    def _deflections(self) -> dict[str, dict[str, Deflection]]:
        """For each flexible body the joints that carry its nodes."""
        flexible = ((name, body) for name, body in self.bodies.items() if isinstance(body, FlexibleBody))
        return {name: body.deflections(name) for name, body in flexible}

    def _spanning_tree(self, absolute: bool) -> Tree:
        servos = {actuator.joint for actuator in self.actuators if actuator.is_servo}
        joints = dict(self.joints.items())
        return spanning_tree(self.bodies.names, joints, FLOATING, absolute, self._deflections(), servos)

    @cached_unless_tracing
    def all_joints(self) -> Named[AbstractConnection | AbstractCoupling]:
        """The joints, and those that carry the nodes of flexible bodies."""
        deflections = {name: joint for nodes in self._deflections().values() for name, joint in nodes.items()}
        if not deflections:
            return self.joints
        return Named((*self.joints.names, *deflections), (*self.joints.things, *deflections.values()))

    @cached_unless_tracing
    def dynamics(self) -> TreeDynamics:
        """M and Q."""
        return TreeDynamics(self.bodies, self.all_joints, self.gravity, self.elements, self.tree)

    @cached_unless_tracing
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """The constraints of the joints, followed by the additional ``constraints`` of the mechanism."""
        return (*constraints_of(self.all_joints, self.tree), *self.further)

    @cached_unless_tracing
    def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]:
        """Stops and sticking friction of the joints, contacts of the bodies, and contacts of additional constraints."""
        contacts = contacts_of(self.contacts, self.all_joints, self.tree)
        return (*stops_and_friction(self.all_joints, self.tree), *contacts, *self.further_nonsmooth)

    @cached_unless_tracing
    def nonideal(self) -> Callable | None:
        """The function c(t, q, v) of the generalised dry friction force, or None without dry friction."""
        return self.elements.friction()

    @cached_unless_tracing
    def dry_friction(self) -> DryFriction | None:
        """Limits, rates and smoothing widths of dry friction, or None without dry friction."""
        return self.elements.dry_friction()

    @cached_unless_tracing
    def elements(self) -> Elements:
        """Springs, dampers, armatures and dry friction of the joints."""
        return Elements(self.all_joints, self.tree)

    @cached_unless_tracing
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate.

        The name is that of the joint, followed by the joint's own name of the coordinate if it has several. Coordinates
        of joints that close loops and whose turns are counted come last.
        """
        joints: list[tuple[str, Any]] = self._joints_of_coordinates()
        joints_by_name: dict[str, Any] = dict(self.joints.items())
        joints += [(counted.joint, joints_by_name[counted.joint]) for counted in self.tree.counted]
        return tuple(
            (_joined_name(name, own_name), unit) for name, joint in joints for own_name, unit in joint.coordinates
        )

    @cached_unless_tracing
    def velocities(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each velocity: the coordinate's name prefixed with d, or that of an angular velocity."""
        velocities = []
        for name, joint in self._joints_of_coordinates():
            for own_name, unit in joint.velocities:
                is_rate = own_name.startswith("d")
                velocities.append(
                    (f"d{_joined_name(name, own_name[1:])}" if is_rate else _joined_name(name, own_name), unit)
                )
        return tuple(velocities)

    def _joints_of_coordinates(self) -> list[tuple[str, AbstractJoint]]:
        """The joints that carry bodies, and one for the modal coordinates of each flexible body, with their names."""
        joints = [(x.joint or x.body, joint_of(self.all_joints, x)) for x in self.tree.links if not x.modal]
        return joints + [(name, next(iter(nodes.values()))) for name, nodes in self._deflections().items()]

    @cached_unless_tracing
    def kinematic_map(self) -> Callable | None:
        """The map q̇ = N(q) v, or None if v is q̇."""
        return kinematic_map_of(self.all_joints, self.tree)

    def in_absolute(self) -> "Mechanism":
        """The same mechanism in absolute coordinates, without its control.

        Raises ``InputError`` for a mechanism with additional ``constraints``, since these are functions of the joint
        coordinates.
        """
        if further := (*self.further, *self.further_nonsmooth):
            name = further[0].name
            raise InputError(
                f"constraint {name!r} is a function of joint coordinates, which in_absolute() does not have: call "
                "in_absolute() of the mechanism without this constraint, and add the constraint by constrained(...) as "
                "a function of absolute coordinates"
            )
        return self._with(formulation="absolute", control=None)

    def driven(self, control: AbstractControl) -> "Mechanism":
        """The same mechanism with the control law ``control``, whose actuators may be those of ``along``."""
        return self._with(control=control)

    def with_stops(self, restitution: Numbers = 0.0) -> "Mechanism":
        """The same mechanism with a stop at each limit of a joint that has none yet.

        Parameters
        ----------
        restitution : float
            Coefficient of restitution of these stops, from 0 to 1.

        Returns
        -------
        Mechanism
            The mechanism with stops.
        """
        stopped = lambda joint: (
            replace(joint, restitution=restitution)
            if isinstance(joint, AbstractJoint) and joint.limits is not None and not has_stop(joint)
            else joint
        )
        return self._with(joints={name: stopped(joint) for name, joint in self.joints.items()})

    def with_contacts(self, contacts: Contact | Iterable[Contact]) -> "Mechanism":
        """The same mechanism with additional contacts of its bodies.

        Parameters
        ----------
        contacts : Contact or iterable of Contact
            Contacts of ``ukjax.contacts``.

        Returns
        -------
        Mechanism
            The mechanism with these contacts after those that it has.

        Raises
        ------
        InputError
            If a contact refers to a body that does not exist.
        """
        return self._with(contacts=(*self.contacts, *as_contacts(contacts, self.frames)))

    def constrained(self, constraints: AnyConstraint | Iterable[AnyConstraint]) -> "Mechanism":
        """The same mechanism with additional ``constraints`` (one or several), functions of its coordinates.

        A function of the pose of a body can use ``pose``::

            mechanism.constrained(Holonomic(lambda t, q: mechanism.pose(q, t)["tip"].p[2] - 0.3, name="height"))
        """
        smooth, nonsmooth = split_constraints(constraints)
        return self._with(constraints=(*self.further, *self.further_nonsmooth, *smooth, *nonsmooth))

    def _with(self, **changes: Any) -> "Mechanism":
        """The same mechanism with other arguments."""
        arguments: dict[str, Any] = dict(
            bodies=self.bodies,
            joints=self.joints,
            gravity=self.gravity,
            formulation="absolute" if self.absolute else "joint",
            control=self.control,
            constraints=(*self.further, *self.further_nonsmooth),
            contacts=self.contacts,
            actuators=self.actuators,
            title=self.title,
        )
        return Mechanism(**(arguments | changes))

    def along(self, *names: str) -> Callable:
        """The actuator matrix of motors that act along the coordinates of these joints.

        Parameters
        ----------
        *names : str
            Names of joints whose coordinates are angles or lengths.

        Returns
        -------
        callable
            B(t, q) (n, p): generalised forces for a unit of force or torque along each of the p coordinates.

        Raises
        ------
        InputError
            If no joint has this name, or its coordinates contain a quaternion.
        """
        for name in names:
            joint = self.joints.things[self.joints.names.index(name)] if name in self.joints else None
            if not isinstance(joint, AbstractActing) or joint.quaternion is not None:
                raise InputError(f"no joint with plain coordinates is named {name!r}{did_you_mean(name, self.joints)}")
        return JointCoordinates(self.all_joints, self.tree, names).columns

    def motors(self, law: Any = 0) -> Motors:
        """The motors of the mechanism as a control, with their gears, servo laws and limits::

            moving = robot.driven(robot.motors({"shoulder": 0.3}))

        Parameters
        ----------
        law : dict of str to float, (p,), or callable
            Inputs u of the ``actuators``, each in the unit of its motor: the angle that a position servo should reach,
            the torque of a plain motor. A dictionary has inputs by name, 0 for the others; an array has one entry per
            actuator; a function ``law(t, q, v)`` returns such an array. ``ukjax.step`` may replace the law.

        Returns
        -------
        Motors
            The control, for ``driven`` and ``ukjax.control.Sampled``.

        Raises
        ------
        InputError
            If the mechanism has no actuators, an actuator is on a joint with several coordinates, or a name is unknown.
        """
        return Motors.of(self.actuators, self.all_joints, self.tree, law)

    def pose(self, q: Numbers, t: ScalarLike = 0.0) -> dict[str, Pose]:
        """The pose of each body, and of each node of a flexible body.

        Parameters
        ----------
        q : (nq,)
            Coordinates.
        t : float
            Time [s].

        Returns
        -------
        dict of str to Pose
            For each body the axes of its frame as columns, ``.R`` (3, 3), and its origin, ``.p`` (3,) [m]. Nodes of
            flexible bodies have names such as ``"rod.end"``.
        """
        q = self._as_q(q)
        poses_by_name = _poses(self.all_joints, self.tree, as_float(t), q)
        return {name: poses_by_name[name] for name in self.frames}

    def jacobian(
        self, q: Numbers, body: str, point: Numbers = (0.0, 0.0, 0.0), t: ScalarLike = 0.0
    ) -> Float[Array, "6 n"]:
        """The Jacobian J of a point of a body: its velocity and the angular velocity of the body are J v.

        Where the motion of a joint is prescribed as a function of time, that motion is added.

        Parameters
        ----------
        q : (nq,)
            Coordinates.
        body : str
            Name of the body, or of a node of a flexible body such as ``"rod.end"``.
        point : (3,)
            Point in the frame of the body [m]. Default: the origin of the frame.
        t : float
            Time [s].

        Returns
        -------
        (6, n)
            Rows 0 to 2: velocity of the point [m/s]; rows 3 to 5: angular velocity of the body [rad/s], along the axes
            of space, for a unit of each velocity. Pinocchio calls it the frame Jacobian in ``LOCAL_WORLD_ALIGNED``
            axes.

        Raises
        ------
        InputError
            If there is no body of this name, or a shape is wrong.

        Notes
        -----
        v need not satisfy the constraints of closed loops. Velocities that satisfy them are null vectors of A.
        """
        names = [link.body for link in self.tree.links]
        if body not in names:
            raise InputError(f"body must be the name of a body, got {body!r}{did_you_mean(str(body), names)}")
        q, point = self._as_q(q), as_vector("point", point)
        return _jacobian(self.dynamics, names.index(body), point, as_float(t), q)

    def centre_of_mass(self, q: Numbers, t: ScalarLike = 0.0) -> Float[Array, " 3"]:
        """The centre of mass of all bodies in space [m].

        Parameters
        ----------
        q : (nq,)
            Coordinates.
        t : float
            Time [s].

        Returns
        -------
        (3,)
            Σ m c / Σ m, with the masses m and centres c of the bodies.
        """
        return _centre_of_mass(self.dynamics, as_float(t), self._as_q(q))

    def momentum(self, q: Numbers, v: Numbers, t: ScalarLike = 0.0) -> Momentum:
        """The momentum of all bodies.

        Parameters
        ----------
        q : (nq,)
            Coordinates.
        v : (n,)
            Velocities.
        t : float
            Time [s].

        Returns
        -------
        Momentum
            ``linear`` (3,) [kg m/s], and ``angular`` (3,) [kg m²/s] about the centre of mass, along the axes of space.
            Pinocchio calls them the centroidal momentum.
        """
        t, q, v = state_of(as_float(t), self._as_q(q), v, self.kinematic_map)
        return _momentum(self.dynamics, t, q, v)

    def reactions(self, t: Numbers, q: Numbers, v: Numbers) -> dict[str, Reaction]:
        """The forces and moments in the joints during the constrained motion.

        The reaction of a joint includes the forces along its coordinates, such as that of a spring. It includes the
        motor of a control and the forces of additional ``constraints`` on its coordinates, except in absolute
        coordinates.

        A mechanism with redundant constraints, such as a door on two hinges, does not determine all reactions: the load
        of each joint depends on the stiffness of the parts. The sums of the forces and of the moments of all joints on
        a body are unique, and so are the components that ``Reaction`` marks as unique. The other components are those
        of the reactions that minimise Σ |force|² + |moment|²/L² over all joints, where L² is the mean square distance
        of the joints and centres of mass from their centroid. All are the same in joint and in absolute coordinates.

        Parameters
        ----------
        t : float
            Time [s].
        q : (nq,)
            Coordinates.
        v : (n,)
            Velocities. For a control with states, (v, s) of shape (n + k,) is allowed; without s, the states have the
            initial values of the control.

        Returns
        -------
        dict of str to Reaction
            For each joint the ``force`` (3,) [N] and the ``moment`` (3,) [N m] on its child, about the child's joint
            point, along the axes of space, and whether each component is unique, ``force_is_unique`` (3,) and
            ``moment_is_unique`` (3,).

        Raises
        ------
        InputError
            If the state has another shape, the acceleration at this state is not unique, or the mechanism has stops,
            contacts or sticking friction.
        """
        refuse_contacts("Mechanism.reactions", self)
        system, v = with_initial_states(self, q, v, "v")
        t, q, v = state_of(t, q, v, system.kinematic_map)
        terms = system(t, q, v)
        if system is not self:
            terms, v = without_states(terms, self.tree.n), v[: self.tree.n]
        motion = constrained_motion(terms)
        names = tuple(row for constraint in constraints_of(self.all_joints, self.tree) for row in constraint.name)
        is_angular = tuple(unit == "rad/s" for _, unit in self.velocities)
        reactions_by_name = _reactions(self.dynamics, names, is_angular, terms, t, q, v, motion)
        return {name: reactions_by_name[name] for name in self.joints if name in reactions_by_name}  # jit sorts names

    def joint_coordinates(self, q: Numbers, t: ScalarLike = 0.0) -> dict[str, Float[Array, " k"]]:
        """The coordinates of each joint, also if it closes a loop or the mechanism is in absolute coordinates.

        Angles of a joint that carries no body are counted over turns if the joint has a spring, a coupling, a stop at
        half a turn or beyond, or a motor whose force depends on them; otherwise they lie in (−π, π]. Joints whose
        coordinates cannot be computed as angles and lengths, such as balls, are omitted.

        Parameters
        ----------
        q : (nq,)
            Coordinates of the mechanism.
        t : float
            Time [s].

        Returns
        -------
        dict of str to array (k,)
            Angles [rad] and lengths [m] by name of the joint.
        """
        q = self._as_q(q)
        closing = {coordinate.joint for coordinate in closing_coordinates(self.all_joints, self.tree).values()}
        plain = {name: joint for name, joint in self.joints.items() if isinstance(joint, AbstractActing)}
        plain = {k: x for k, x in plain.items() if k in closing or self.tree.link_of_joint(k) and x.quaternion is None}
        coordinates = _joint_coordinates(JointCoordinates(self.all_joints, self.tree, tuple(plain)), as_float(t), q)
        ends = np.cumsum([len(joint.coordinates) for joint in plain.values()])
        return dict(zip(plain, jnp.split(coordinates, ends[:-1]), strict=True)) if plain else {}

    def limited(self, t: Array, q: Float[Array, "*samples nq"]) -> tuple[Limited, ...]:
        """The values of the coordinates of joints with ``limits`` that are not stops.

        An angle that is known modulo 2π is moved to the turn nearest to the middle of its limits.
        """
        joints = self._joints_with_limits
        if not joints:
            return ()
        places: dict[Any, int] = {link.joint: link.first_of_q for link in self.tree.links}
        places |= {counted.joint: counted.first_of_q for counted in self.tree.counted}
        others = tuple(name for name, _ in joints if name not in places)
        states, limited = np.asarray(q), []
        values_of_others = _at_samples(JointCoordinates(self.all_joints, self.tree, others), t, q) if others else q
        for name, joint in joints:
            low, high = joint.limits
            if name in places:
                values = states[..., places[name]]
            else:
                values, middle = np.asarray(values_of_others)[..., others.index(name)], (low + high) / 2
                if joint.within_half_a_turn:
                    values = middle + np.remainder(values - middle + np.pi, 2 * np.pi) - np.pi
            limited.append(Limited(name, joint.coordinates[0][1], low, high, values))
        return tuple(limited)

    @cached_unless_tracing
    def _joints_with_limits(self) -> list[tuple[str, AbstractJoint]]:
        joints = [(name, joint) for name, joint in self.joints.items() if isinstance(joint, AbstractJoint)]
        return [(name, joint) for name, joint in joints if joint.limits is not None and not has_stop(joint)]

    def start(
        self, positions: Mapping[str, Any] | None = None, velocities: Mapping[str, Any] | None = None
    ) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """Consistent initial coordinates and velocities: all loops are closed and the velocities are admissible.

        The search begins at rest in the reference pose: 0 for angles and lengths, or the ``reference`` of a joint.
        Flexible bodies are undeformed, unless ``positions`` or ``velocities`` name their modal coordinates. If no such
        state exists, all modal coordinates are adapted, with a warning.

        Parameters
        ----------
        positions : dict of str to float, optional
            Prescribed values of coordinates by name; the other coordinates are adapted to them. Coordinates of joints
            that close loops, or that are constraints in absolute coordinates, have the names that they would have in
            the mechanism.
        velocities : dict of str to float, optional
            Prescribed time derivatives by the same names, or angular velocities by their names in
            ``Mechanism.velocities``.

        Returns
        -------
        q0 : (nq,)
            Coordinates.
        v0 : (n,)
            Velocities.

        Raises
        ------
        InputError
            If an argument is not a dictionary of numbers, a name does not exist, or no consistent state is found.
        """
        example = self.coordinates[0][0] if self.tree.nq else "crank"
        positions = numbers_by_name("positions", positions, example)
        velocities = numbers_by_name("velocities", velocities, example)
        coordinates = [name for name, _ in self.coordinates]
        velocity_names = [name for name, _ in named_directions(self, self.tree.n) or self.coordinates]
        closing = closing_coordinates(self.all_joints, self.tree)
        closing_positions = {name: jnp.asarray(value) for name, value in positions.items() if name in closing}
        closing_velocities = {name: jnp.asarray(value) for name, value in velocities.items() if name in closing}
        q, v = self._initial_guess(closing_positions, closing_velocities)
        prescribed = []
        for name, value in positions.items():
            if name in closing:
                continue
            if name not in coordinates:
                hint = did_you_mean(name, (*coordinates, *closing))
                raise InputError(f"positions names no coordinate {name!r}{hint}")
            q = _replaced(q, coordinates.index(name), value)
            prescribed.append(name)
        for name, value in velocities.items():
            if name in closing:
                continue
            if name not in velocity_names:
                raise InputError(
                    f"velocities names no coordinate {name!r}{did_you_mean(name, (*velocity_names, *closing))}"
                )
            v = _replaced(v, velocity_names.index(name), value)
            prescribed.append(name)
        fixed, t, model = tuple(dict.fromkeys(prescribed)), jnp.zeros(()), self
        if closing_positions or closing_velocities:
            rows = target_rows(self.all_joints, self.tree, closing_positions, closing_velocities)
            names: dict = dict(coordinates=self.coordinates, kinematic_map=self.kinematic_map)
            names |= {} if self.kinematic_map is None else dict(velocities=self.velocities)
            model = System(self.dynamics, (*self.constraints, *rows), control=self.control, **names)
        undeformed = [coordinates[i] for modal in self.tree.modal for i in modal.coordinates]
        undeformed += [velocity_names[i] for modal in self.tree.modal for i in modal.velocities]
        if set(undeformed) <= set(fixed):
            return self._closed(model, t, q, v, fixed)
        try:
            state = self._closed(model, t, q, v, tuple(dict.fromkeys((*fixed, *undeformed))), may_fail=True)
        except InputError:
            state = None
        if state is not None:
            return state
        q, v = self._closed(model, t, q, v, fixed)
        warnings.warn(
            "this start is not possible with undeformed flexible bodies, so that their modal coordinates and rates "
            f"are not 0: {', '.join(dict.fromkeys(undeformed))}. Prescribe fewer coordinates, or these",
            stacklevel=2,
        )
        return q, v

    def _closed(self, model, t, q, v, fixed, may_fail=False) -> Any:
        """The nearest consistent state with these ``fixed`` coordinates and velocities.

        If there is no pose with these coordinates and ``may_fail``, the result is None, after a search without the
        programs that ``project`` compiles.
        """
        if is_eager(model, q, v):
            model, q, v, t = canonicalise(model, q, v, t)
            locked_model = locked(model, fixed, t, q, v)
            state = consistent(locked_model, t, q, v)
            if state is not None:
                return self._settled(state[0]), state[1]
            closest = assembled(locked_model, t, q, v)
            if closest is None and may_fail:
                return None
            q = q if closest is None else closest
        q, v = project(model, t, q, v, fixed=fixed)
        return self._settled(q), v

    def _initial_guess(self, positions, velocities) -> tuple[Array, Array]:
        """The state at which the search of ``start`` begins, with these values of joints that close loops.

        In absolute coordinates, if such values or turn-counted coordinates matter, it is the start in joint
        coordinates.
        """
        coupled = self.tree.counted and any(isinstance(joint, AbstractCoupling) for _, joint in self.joints.items())
        if self.absolute and (positions or velocities or coupled):
            in_joint_coordinates = Mechanism(self.bodies, self.joints, self.gravity, actuators=self.actuators)
            return absolute_state(
                in_joint_coordinates.all_joints,
                in_joint_coordinates.tree,
                self.tree,
                *in_joint_coordinates.start(positions, velocities),
            )
        q, v = self.reference_pose()
        return with_nearest_turns(self.all_joints, self.tree, q, positions) if self.tree.counted else q, v

    def _settled(self, q):
        """Return q with turn-counted coordinates that agree with the poses of the bodies."""
        kinematic_map = self.kinematic_map
        return q if kinematic_map is None or not self.tree.counted else _settled(kinematic_map, q)

    def reference_pose(self) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """The pose, with zero velocities, at which ``start`` begins its search; loops are not always closed in it."""
        tree = self._spanning_tree(absolute=False)
        reference_of = lambda joint: joint.neutral if joint.reference is None else joint.reference
        parts = {link.body: reference_of(joint_of(self.all_joints, link)) for link in tree.links if not link.modal}
        eta = [np.zeros(modal.size) for modal in tree.modal]
        q = _joined([*parts.values(), *eta])
        if self.absolute:
            poses_by_name = _poses(self.all_joints, tree, jnp.zeros(()), q)
            q = _joined(
                [
                    x
                    for link in self.tree.links
                    if not link.modal
                    for x in (poses_by_name[link.body].p, quaternion_of(poses_by_name[link.body].R))
                ]
                + eta
            )
        for name, *_ in self.tree.counted:
            link = tree.link_of_joint(name)
            q = _joined([q, reference_of(self.joints[name]) if link is None else parts[link.body]])
        return self._settled(q), jnp.zeros(self.tree.n)

    def _as_q(self, q: Numbers) -> Array:
        q = as_numbers("q", q)
        if q.shape != (self.tree.nq,):
            raise InputError(f"q must have shape ({self.tree.nq},), one entry per coordinate, got shape {q.shape}")
        return q

    def constraint_of_row(self, row: str) -> str:
        """Return the name of the joint that a row belongs to, or of another constraint."""
        joints = (name for name, _ in self.joints.items() if row == name or row.startswith(f"{name} "))
        return max(joints, key=len, default=super().constraint_of_row(row))

    def outline(self, t: ScalarLike, q: Float[Array, " nq"]) -> tuple[Float[Array, "points 3"], ...]:
        """A line (points, 3) [m] for each body: through its joints and its centre of mass, or deformed if flexible."""
        poses_by_name = _poses(self.all_joints, self.tree, as_float(t), q)
        in_space = lambda pose, points: pose.p + in_precision(points, q.dtype) @ pose.R.T
        coordinates = {modal.body: np.array(modal.coordinates) for modal in self.tree.modal}
        lines, origin = [], jnp.zeros(3)
        for name, body in self.bodies.items():
            if isinstance(body, FlexibleBody):
                lines.append(in_space(poses_by_name[name], body.deformed(q[coordinates[name]])))
                continue
            at = (
                joint.at if joint.parent == name else joint.to
                for _, joint in connections(dict(self.joints.items()))
                if name in (joint.parent, joint.child)
            )
            points = [origin if point is None else point for point in at]
            points = points if len(points) > 1 else [*points, body.centre]
            points = jnp.stack(points if len(points) > 1 else [*points, origin])
            lines.append(in_space(poses_by_name[name], points))
        return tuple(lines)

    def contact_points(self, t: ScalarLike, q: Float[Array, " nq"]) -> Float[Array, "gaps 3"]:
        """The point at which each gap closes, in space [m]; NaN for stops and other gaps without a point."""
        time, points = as_float(t), []
        for each in self.nonsmooth:
            count = jax.eval_shape(each.gaps, time, q).shape[0]
            points.append(each.points(time, q) if isinstance(each, BodyContacts) else jnp.full((count, 3), jnp.nan))
        return jnp.concatenate([jnp.zeros((0, 3), q.dtype), *points])

    def edges(self) -> dict[str, Float[np.ndarray, "points 3"]]:
        """The edges of the shapes of each body that has shapes, in the body's frame [m]."""
        warn_of_undrawn(shape for _, body in self.bodies.items() for shape in body.shapes)
        edges_by_name = {name: edges_of(body.shapes) for name, body in self.bodies.items()}
        return {name: points for name, points in edges_by_name.items() if len(points)}

    def surfaces(self) -> dict[str, Surface]:
        """The surfaces of the shapes of each body that has shapes, in the body's frame [m]."""
        surfaces_by_name = {name: surface_of(body.shapes) for name, body in self.bodies.items()}
        return {name: surface for name, surface in surfaces_by_name.items() if len(surface.faces)}


_poses = jit_unoptimised(poses)
_jacobian, _centre_of_mass, _momentum = map(jit_unoptimised, (jacobian, centre_of_mass, momentum))


@jit_unoptimised
def _at_samples(coordinates, t, q):
    function = jax.vmap(coordinates)
    return (jax.vmap(function) if q.ndim == 3 else function)(t, q)


@jit_unoptimised
def _joint_coordinates(coordinates, t, q):
    return coordinates(t, q)


@jit_unoptimised
def _settled(kinematic_map, q):
    return kinematic_map.settled(q)


@jit_unoptimised
def _reactions(dynamics, names, is_angular, terms, t, q, v, motion):
    # Aᵀλ: the constraint force without the non-ideal force c; the reaction of the rows to c remains.
    row_force = motion.constraint_force - (0.0 if terms.c is None else terms.c)
    rows = Rows(terms.A, row_force, names, np.array(is_angular, bool))
    return reactions(dynamics, t, q, v, motion.acceleration, rows)


def _joined_name(name, own_name):
    return f"{name}_{own_name}" if own_name else name


def _check_closing(joints, tree):
    """Raise ``InputError`` for joints that close loops in an unsupported way.

    Forces along such a joint need ``coordinates_of``. Turns can be counted only if no joint in the loop depends on
    time.
    """
    coupled = {name for _, joint in joints.items() if isinstance(joint, AbstractCoupling) for name in joint.joints}
    for name in tree.closures:
        joint = joints[name]
        if not isinstance(joint, AbstractActing) or type(joint).coordinates_of is not AbstractActing.coordinates_of:
            continue
        fields_set = [field for field in (*ACTING, "limits") if getattr(joint, field, None) is not None]
        if fields_set or name in coupled:
            reason = f"has {fields_set[0]}" if fields_set else "is coupled"
            raise InputError(
                f"joints[{name!r}] closes a loop and {reason}, but {type(joint).__name__} has no coordinates_of(R, p), "
                "which returns its coordinates there: define it, or put the joint before those that close its loop"
            )
    paths = tree.ancestors() if tree.counted else {}
    for counted in tree.counted:
        ends = joints[counted.joint].parent, joints[counted.joint].child
        for i in {i for end in ends for i in paths[end]}:
            link = tree.links[i]
            if _depends_on_time(joint_of(joints, link)):
                raise InputError(
                    f"joints[{link.joint!r}] must not depend on time, as transform(t, q) of "
                    f"{type(joint_of(joints, link)).__name__} does: it is part of a loop that "
                    f"joints[{counted.joint!r}] closes, and the turns of that joint are counted for a spring or a "
                    "coupling. Prescribe the motion by ukjax.joints.Drive"
                )


def _depends_on_time(joint):
    """Whether the ``transform`` of the joint is a function of t."""
    program = jax.make_jaxpr(joint.transform)(0.0, jnp.zeros(len(joint.coordinates))).jaxpr
    t = program.invars[0]
    used = [x for equation in program.eqns for x in equation.invars] + list(program.outvars)
    return any(x is t for x in used)


def _joined(parts):
    """The parts as one vector. Known numbers are joined by NumPy: JAX would compile a program for each shape."""
    if is_eager(parts):
        return jax.device_put(np.concatenate([np.zeros(0), *(np.ravel(np.asarray(x)) for x in parts)]))
    return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(jnp.asarray(x)) for x in parts)])


def _replaced(x, i, value):
    """x with ``value`` as entry i."""
    if not is_eager(x, value):
        return x.at[i].set(value)
    x = np.array(x)
    x[i] = value
    return jax.device_put(x)


def _check_coordinate_names(coordinates):
    """Raise ``InputError`` if two coordinates have one name, as those of joints "base" and "base_x" may."""
    names = [name for name, _ in coordinates]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(
            f"two coordinates are named {repeated[0]!r}, of two joints, or of a joint and a flexible body: give one of "
            "them another name"
        )


def _check_element_shapes(joints, tree):
    """Raise ``InputError`` for forces along joints that have a wrong shape.

    Springs, dampers, armatures and friction have one number, or one for each velocity of the joint. They act along a
    quaternion only if the joint carries a body.
    """
    for name, joint in joints.items():
        if not isinstance(joint, AbstractActing):
            continue
        k, turns = len(joint.coordinates), joint.quaternion is not None
        if hasattr(joint, "kinematic_map"):
            raise InputError(
                f"joints[{name!r}] must have no kinematic_map: the velocities of a joint are the rates of its "
                "coordinates, or the angular velocities of its quaternion. Choose such coordinates for "
                f"{type(joint).__name__}"
            )
        for field in ACTING:
            value = getattr(joint, field)
            if value is None:
                continue
            if turns and tree.link_of_joint(name) is None:
                raise InputError(
                    f"{field} of joints[{name!r}] must be left out: the joint has a quaternion, and is a constraint "
                    'here. Or use formulation="joint", and put the joint before those that close its loop'
                )
            if turns and field == "preload":
                raise InputError(f"preload of joints[{name!r}] must be left out: the joint has a quaternion")
            m = len(joint.velocities)
            shapes, expected = ((), (m,)), f"a number, or {m}"
            if turns and field == "rest":
                shapes, expected = ((k,),), f"its {k} coordinates"
            elif turns and field in ("stiffness", "friction", "creep", "static_friction"):
                shapes, expected = ((),), "one number"
            if value.shape not in shapes:
                raise InputError(f"{field} of joints[{name!r}] must be {expected}, got shape {value.shape}")
        if isinstance(joint, AbstractJoint) and joint.limits is not None and k != 1:
            raise InputError(
                f"limits of joints[{name!r}] must be left out: only a joint with one coordinate has limits, it has {k}"
            )
        if isinstance(joint, AbstractJoint) and joint.reference is not None and joint.reference.size != k:
            raise InputError(f"reference of joints[{name!r}] must be {k} numbers, got shape {joint.reference.shape}")

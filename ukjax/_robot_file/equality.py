"""Loops and couplings of MJCF: the <equality> constraints."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import joints as kinds
from .._check import as_array
from .compiled import place_in
from .frame import Frame, unit
from .reading import Reading


class Polynomial(eqx.Module):
    """The polynomial c₀ + c₁ (x − x₀) + c₂ (x − x₀)² + ... with ``coefficients`` (k,) and ``around`` x₀."""

    coefficients: Float[Array, " k"] = eqx.field(converter=lambda value: as_array("coefficients", value))
    around: Float[Array, ""] = eqx.field(default=0.0, converter=lambda value: as_array("around", value))

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.polyval(self.coefficients[::-1], x - self.around)


class Constant(eqx.Module):
    """A constant function of time."""

    value: Float[Array, ""] = eqx.field(converter=lambda value: as_array("value", value))

    def __call__(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return self.value


def equalities(reading: Reading) -> Iterator[tuple[str, Any]]:
    """Names and joints of all active equality constraints."""
    makers = {"CONNECT": (_connect, "connect"), "WELD": (_weld, "weld"), "JOINT": (_coupling, "joint")}
    for element in reading.spec.equalities:
        kind = str(element.type).rpartition("_")[2]
        maker, tag = makers.get(kind, (None, kind.lower()))
        place = place_in(reading.path, element, tag)
        if not element.active:
            continue
        if maker is None:
            raise place.error("is not modelled: only <connect>, <weld> and <joint> are")
        joint = maker(reading, element.id, place)
        name = reading.names.new(element.name or f"{tag} {element.name1} {element.name2}".strip())
        reading.places[name] = place
        yield name, joint


def _connect(reading, number, place) -> Any:
    """A ball joint. Of the data, entries 0 to 2 are the point in the first body, and 3 to 5 that in the second body."""
    first, second, frames = _ends(reading, number)
    data = reading.model.eq_data[number]
    points = (data[:3], data[3:6]) if frames is None else (frame.p for frame in frames)
    return _ball(first, second, *(Frame(p=np.array(point)) for point in points))


def _weld(reading, number, place) -> Any:
    """A fixed joint.

    Of the data, entries 0 to 2 are the point in the second body, 3 to 5 that in the first body, 6 to 9 the attitude of
    the second body in the first, and entry 10 is the weight of the rotation; with weight 0 only the points coincide.
    """
    first, second, frames = _ends(reading, number)
    data = np.array(reading.model.eq_data[number])
    first_frame, second_frame = frames or (Frame(unit(data[6:10]), data[3:6]), Frame(p=data[:3]))
    if not data[10]:
        return _ball(first, second, Frame(p=first_frame.p), Frame(p=second_frame.p))
    return kinds.Fixed(first, second, **first_frame.arguments(), **second_frame.arguments("to", "to_turn"))


def _ball(first, second, first_frame, second_frame) -> Any:
    return kinds.Spherical(first, second, **first_frame.arguments(), **second_frame.arguments("to", "to_turn"))


def _coupling(reading, number, place) -> Any:
    """The coupling y − y₀ = c₀ + c₁ (x − x₀) + ..., where y₀ and x₀ are the coordinates in the file's pose."""
    model = reading.model
    coefficients, other = np.array(model.eq_data[number][:5]), model.eq_obj2id[number]
    joint, y0 = _coordinate(reading, model.eq_obj1id[number], place)
    coefficients[0] += y0
    if other < 0:
        return kinds.Drive(joint, motion=Constant(coefficients[0]))
    other, x0 = _coordinate(reading, other, place)
    if np.any(coefficients[2:]):
        return kinds.Cam(joint, other, profile=Polynomial(np.trim_zeros(coefficients, "b"), x0))
    return kinds.Gear(joint, other, ratio=coefficients[1], offset=coefficients[0] - coefficients[1] * x0)


def _ends(reading, number) -> tuple[str, str, tuple[Frame, ...] | None]:
    """The names of both bodies, and the frames of the sites in them if the constraint connects sites."""
    model = reading.model
    ends = int(model.eq_obj1id[number]), int(model.eq_obj2id[number])
    if model.eq_objtype[number] == reading.mujoco.mjtObj.mjOBJ_SITE:
        first, second = (reading.body_names[model.site_bodyid[site]] for site in ends)
        return first, second, tuple(reading.frame("site", site) for site in ends)
    first, second = (reading.body_names[body] for body in ends)
    return first, second, None


def _coordinate(reading, number, place) -> tuple[str, float]:
    """Name of a joint with one coordinate, and its coordinate in the file's pose."""
    name, size = reading.joint_sizes[number]
    if size != 1:
        raise place.error(f"needs joints with one coordinate, which {name!r} has not")
    return name, float(reading.model.qpos0[reading.model.jnt_qposadr[number]])

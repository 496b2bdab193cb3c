"""Loops and couplings of MJCF: its <equality>."""

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
    """c₀ + c₁ (x − x₀) + c₂ (x − x₀)² + ... from ``coefficients`` (k,) and ``around`` x₀."""

    coefficients: Float[Array, " k"] = eqx.field(converter=lambda value: as_array("coefficients", value))
    around: Float[Array, ""] = eqx.field(default=0.0, converter=lambda value: as_array("around", value))

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.polyval(self.coefficients[::-1], x - self.around)


class Constant(eqx.Module):
    """``value``, at all times."""

    value: Float[Array, ""] = eqx.field(converter=lambda value: as_array("value", value))

    def __call__(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return self.value


def equalities(it: Reading) -> Iterator[tuple[str, Any]]:
    """Names and joints, after those of the tree."""
    makers = {"CONNECT": (_connect, "connect"), "WELD": (_weld, "weld"), "JOINT": (_coupling, "joint")}
    for element in it.spec.equalities:
        kind = str(element.type).rpartition("_")[2]
        maker, tag = makers.get(kind, (None, kind.lower()))
        place = place_in(it.path, element, tag)
        if not element.active:
            continue
        if maker is None:
            raise place.error("is not modelled: only <connect>, <weld> and <joint> are")
        made = maker(it, element.id, place)
        name = it.names.new(element.name or f"{tag} {element.name1} {element.name2}".strip())
        it.places[name] = place
        yield name, made


def _connect(it, number, place) -> Any:
    """Two points coincide: of the data the first three numbers are the first body's, the next three the second's."""
    first, second, frames = _ends(it, number)
    data = it.model.eq_data[number]
    points = (data[:3], data[3:6]) if frames is None else (frame.p for frame in frames)
    return _ball(first, second, *(Frame(p=np.array(point)) for point in points))


def _weld(it, number, place) -> Any:
    """Two frames coincide. Of the data the first three numbers are the second body's point, the next three the first's,
    the next four the second body's attitude in the first, the next one how much the attitude counts."""
    first, second, frames = _ends(it, number)
    data = np.array(it.model.eq_data[number])
    one, other = frames or (Frame(unit(data[6:10]), data[3:6]), Frame(p=data[:3]))
    if not data[10]:
        return _ball(first, second, Frame(p=one.p), Frame(p=other.p))
    return kinds.Fixed(first, second, **one.arguments(), **other.arguments("to", "to_turn"))


def _ball(first, second, one, other) -> Any:
    return kinds.Spherical(first, second, **one.arguments(), **other.arguments("to", "to_turn"))


def _coupling(it, number, place) -> Any:
    """y − y₀ = c₀ + c₁ (x − x₀) + ..., with y₀ and x₀ where the file has them."""
    model = it.model
    coefficients, other = np.array(model.eq_data[number][:5]), model.eq_obj2id[number]
    joint, y0 = _coordinate(it, model.eq_obj1id[number], place)
    coefficients[0] += y0
    if other < 0:
        return kinds.Drive(joint, motion=Constant(coefficients[0]))
    other, x0 = _coordinate(it, other, place)
    if np.any(coefficients[2:]):
        return kinds.Cam(joint, other, profile=Polynomial(np.trim_zeros(coefficients, "b"), x0))
    return kinds.Gear(joint, other, ratio=coefficients[1], offset=coefficients[0] - coefficients[1] * x0)


def _ends(it, number) -> tuple[str, str, tuple[Frame, ...] | None]:
    """The names of the bodies, and, where they are joined by sites, the sites' frames in them."""
    model = it.model
    ends = int(model.eq_obj1id[number]), int(model.eq_obj2id[number])
    if model.eq_objtype[number] == it.mujoco.mjtObj.mjOBJ_SITE:
        first, second = (it.body_names[model.site_bodyid[site]] for site in ends)
        return first, second, tuple(it.frame("site", site) for site in ends)
    first, second = (it.body_names[body] for body in ends)
    return first, second, None


def _coordinate(it, number, place) -> tuple[str, float]:
    """The joint of this number, which must have one coordinate, and its coordinate in the pose of the file."""
    name, size = it.joint_sizes[number]
    if size != 1:
        raise place.error(f"needs joints with one coordinate, which {name!r} has not")
    return name, float(it.model.qpos0[it.model.jnt_qposadr[number]])

"""Loops and couplings of MJCF: its <equality>."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import joints as kinds
from .._check import as_array
from .frame import NO_TURN, Frame, unit
from .geoms import frames_of, own_frame
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
        place = it.place(element, tag)
        if not element.active:
            continue
        if maker is None:
            raise place.error("is not modelled: only <connect>, <weld> and <joint> are")
        made = maker(it, element, place)
        name = it.names.new(element.name or f"{tag} {element.name1} {element.name2}".strip())
        it.places[name] = place
        yield name, made


def _connect(it, element, place) -> Any:
    first, second, frames = _ends(it, element, place)
    if frames is not None:
        one, other = (Frame(p=frame.p) for frame in frames)
    else:
        anchor = Frame(p=np.array(element.data[:3]))
        one, other = anchor, _reference(it, second).inverse().then(_reference(it, first)).then(anchor)
        other = Frame(p=other.p)
    return kinds.Spherical(it.word(first), it.word(second), **one.arguments(), **other.arguments("to", "to_turn"))


def _weld(it, element, place) -> Any:
    """The second body in the first as ``relpose`` says, or, where its quaternion is 0, as the file has them."""
    first, second, frames = _ends(it, element, place)
    if frames is not None:
        one, other = frames
    else:
        data = np.array(element.data)
        relative = Frame(unit(data[6:10]), data[3:6])
        if not np.any(data[6:10]):
            relative = _reference(it, first).inverse().then(_reference(it, second))
        one, other = relative, Frame()
    return kinds.Fixed(it.word(first), it.word(second), **one.arguments(), **other.arguments("to", "to_turn"))


def _coupling(it, element, place) -> Any:
    """y − y₀ = c₀ + c₁ (x − x₀) + ..., with y₀ and x₀ where the file has them."""
    coefficients = np.array(element.data[:5])
    joint, y0 = _coordinate(it, element.name1, place)
    coefficients[0] += y0
    if not element.name2:
        return kinds.Drive(joint, motion=Constant(coefficients[0]))
    other, x0 = _coordinate(it, element.name2, place)
    if np.any(coefficients[2:]):
        return kinds.Cam(joint, other, profile=Polynomial(np.trim_zeros(coefficients, "b"), x0))
    return kinds.Gear(joint, other, ratio=coefficients[1], offset=coefficients[0] - coefficients[1] * x0)


def _ends(it, element, place) -> tuple[Any, Any, tuple[Frame, Frame] | None]:
    """The bodies, and, where they are joined by sites, the sites' frames in them."""
    names = (element.name1, element.name2)
    if str(element.objtype).endswith("SITE"):
        there = {site.name: site for site in it.spec.sites}
        for name in names:
            if name not in there:
                raise place.error(f"names a site {name!r} that is not there")
        first, second = (there[name] for name in names)
        one, other = (frames_of(it.spec, site).then(own_frame(it.spec, site)) for site in (first, second))
        return first.parent, second.parent, (one, other)
    bodies = [it.spec.body(name or "world") for name in names]
    for name, body in zip(names, bodies, strict=True):
        if body is None:
            raise place.error(f"names a body {name!r} that is not there")
    return bodies[0], bodies[1], None


def _coordinate(it, name, place) -> tuple[str, float]:
    """The joint of one coordinate that is called so, and where the coordinate is as the file has it."""
    if name not in it.names:
        raise place.error(f"names a joint {name!r} that is not there")
    joint = it.joints.get(it.names[name])
    if joint is None or len(joint.coordinates) != 1:
        raise place.error(f"needs joints with one coordinate, which {name!r} has not")
    element = it.spec.joint(name)
    hinge = isinstance(joint, kinds.Revolute) and element.compiler.degree
    return it.names[name], float(element.ref) * (np.pi / 180 if hinge else 1.0)


def _reference(it, body) -> Frame:
    """A body in space, as the file has it."""
    if body.name == "world":
        return Frame(NO_TURN)
    return _reference(it, body.parent).then(frames_of(it.spec, body)).then(own_frame(it.spec, body))

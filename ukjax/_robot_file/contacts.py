"""Contacts of the geoms of an MJCF file: the pairs that MuJoCo would check, and their friction."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import contacts as kinds
from .._mechanism import Shape
from ..contacts.contact import are_supported
from .compiled import place_in
from .frame import Frame, rotated
from .geoms import shape_of
from .reading import Reading

Z = np.array([0.0, 0.0, 1.0])


def solid_of(body: str, shape: Shape) -> kinds.AbstractShape | None:
    """The contact shape for a drawn shape, or None if there is no contact shape of this kind."""
    frame, size = Frame(np.array(shape.turn), np.array(shape.at)), shape.size
    axis = rotated(frame.u, Z)
    if shape.kind == "sphere":
        return kinds.Sphere(body, centre=frame.p, radius=size[0])
    if shape.kind == "capsule":
        half = size[1] / 2 * axis
        return kinds.Capsule(body, ends=[frame.p - half, frame.p + half], radius=size[0])
    if shape.kind == "cylinder":
        return kinds.Cylinder(body, centre=frame.p, axis=axis, radius=size[0], length=size[1])
    if shape.kind == "box":
        turn = {"turn": frame.u} if np.any(frame.u[1:]) else {}
        return kinds.Box(body, centre=frame.p, size=size, **turn)
    return None


class GeomPair(NamedTuple):
    """Two geoms that may touch.

    Attributes
    ----------
    first, second : int
        Their ids.
    element : MjsElement
        The element of the file that makes them a pair.
    dim : int
        1 without friction, 3 with friction, more with torsional and rolling friction.
    friction : (2,)
        Coefficients of friction along the two tangents.
    """

    first: int
    second: int
    element: Any
    dim: int
    friction: tuple[float, float]


def contacts_in(reading: Reading, restitution: Any) -> tuple[list[kinds.Contact], list[tuple[str, int | None]]]:
    """The contacts of a file, and descriptions of contacts that are not modelled, with their lines."""
    contacts, ignored, shapes = [], [], {}
    if reading.is_off("contact"):
        return [], []
    geoms = {geom.id: geom for geom in reading.spec.geoms}
    for pair in _pairs(reading, geoms):
        for geom in (pair.first, pair.second):
            if geom not in shapes:
                shapes[geom] = _shape(reading, geom)
        tag = "pair" if pair.element in reading.spec.pairs else "geom"
        line = place_in(reading.path, pair.element, tag).line
        a, b = shapes[pair.first], shapes[pair.second]
        if a is not None and b is not None and isinstance(a, kinds.Plane):
            a, b = b, a
        if a is None or b is None or not are_supported(a, b):
            words = sorted(reading.geom_kinds[geom] for geom in (pair.first, pair.second))
            ignored.append((f"contact of {words[0]} with {words[1]}", line))
            continue
        if pair.dim > 3:
            ignored.append(("torsional and rolling friction", line))
        if pair.friction[0] != pair.friction[1]:
            ignored.append(("the second coefficient of friction of <pair>", line))
        names = [geoms[i].name or reading.body_names[reading.model.geom_bodyid[i]] for i in (pair.first, pair.second)]
        names = names if shapes[pair.first] is a else names[::-1]
        friction = None if pair.dim == 1 else pair.friction[0]
        contacts.append(kinds.Contact(a, b, friction, restitution, name=f"{names[0]} on {names[1]}"))
    margins = {i for i in shapes if reading.model.geom_margin[i]}
    ignored += [("<geom margin>", place_in(reading.path, geoms[i], "geom").line) for i in sorted(margins)]
    return contacts, list(dict.fromkeys(ignored))


def _shape(reading, geom) -> kinds.AbstractShape | None:
    body, kind = reading.body_names[reading.model.geom_bodyid[geom]], reading.geom_kinds[geom]
    if kind == "plane":
        frame = reading.frame("geom", geom)
        return kinds.Plane(body, at=frame.p, normal=rotated(frame.u, Z))
    shape = shape_of(reading, geom) if kind not in ("mesh", "hfield", "sdf") else None
    return None if shape is None else solid_of(body, shape)


def _pairs(reading: Reading, geoms) -> Iterator[GeomPair]:
    """The pairs of the <pair> elements, then those that contype and conaffinity allow."""
    model, listed = reading.model, set()
    for element in reading.spec.pairs:
        first, second = int(model.pair_geom1[element.id]), int(model.pair_geom2[element.id])
        listed.add(frozenset((first, second)))
        friction = float(model.pair_friction[element.id][0]), float(model.pair_friction[element.id][1])
        yield GeomPair(first, second, element, int(model.pair_dim[element.id]), friction)
    for first in range(model.ngeom):
        for second in range(first + 1, model.ngeom):
            if _may_touch(reading, first, second) and frozenset((first, second)) not in listed:
                dim, friction = _mixed(model, first, second)
                yield GeomPair(first, second, geoms[first], dim, (friction, friction))


def _may_touch(reading, first, second) -> bool:
    """Whether MuJoCo checks these geoms, by contype and conaffinity, their bodies, and <exclude>."""
    model = reading.model
    bits = (model.geom_contype[first] & model.geom_conaffinity[second]) | (
        model.geom_contype[second] & model.geom_conaffinity[first]
    )
    bodies = [int(model.geom_bodyid[geom]) for geom in (first, second)]
    signatures = {(bodies[0] << 16) + bodies[1], (bodies[1] << 16) + bodies[0]}
    if not bits or signatures & set(model.exclude_signature.tolist()):
        return False
    # Bodies that are welded together count as one. Children do not touch their parent, unless it is the world.
    welded = [int(model.body_weldid[body]) for body in bodies]
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in welded]
    if welded[0] == welded[1]:
        return False
    filters = not reading.is_off("filterparent") and welded[0] and welded[1]
    return not (filters and (welded[0] == parents[1] or welded[1] == parents[0]))


def _mixed(model, first, second) -> tuple[int, float]:
    """The dimension and the friction of two geoms: those of the geom with the higher priority.

    If the priorities are equal, they are the larger dimension and the larger friction.
    """
    priority = max(model.geom_priority[first], model.geom_priority[second])
    rules = [geom for geom in (first, second) if model.geom_priority[geom] == priority]
    return int(max(model.geom_condim[rules])), float(max(model.geom_friction[rules, 0]))

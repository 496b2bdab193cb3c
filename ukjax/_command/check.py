"""``ukjax check``: describe a mechanism and list what looks wrong in it."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from .mechanism import (
    add_contact,
    add_system,
    as_option,
    check_contact,
    check_system,
    is_robot,
    load_options,
    mechanism_of,
    robot_file,
    title_and_source,
)
from .status import status_line
from .usage import library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "check",
        help="describe a mechanism: tree, loops, degrees of freedom, and what looks wrong",
        description="Describe a mechanism: bodies and joints as a tree, loops, masses, degrees of freedom at the "
        "start, redundant constraint rows, stops, contacts, elements of the file that are not modelled, and what looks "
        "wrong. The exit code is 1 if something looks wrong.",
        allow_abbrev=False,
    )
    add_system(parser)
    add_contact(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=check_mechanism)


def check_mechanism(options: argparse.Namespace) -> int:
    """Print the description of a mechanism. Returns exit code 1 if something looks wrong, else 0."""
    check_system(options.system, options.floating)
    check_contact(options)

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._mechanism import Mechanism

    _precision.enable_float64()
    enable_compilation_cache()
    with library_errors_as_usage_errors(), status_line("checking"):
        mechanism, ignored, doubtful = _read_mechanism(options)
        title, source = title_and_source(options.system, mechanism)
        report: dict[str, Any] = {"system": title, "source": source}
        report |= _parts(mechanism) if isinstance(mechanism, Mechanism) else {}
        report |= {"not_modelled": ignored, "looks_wrong": doubtful + report.pop("looks_wrong", [])}
        report |= _degrees_of_freedom(mechanism, report["looks_wrong"])
    print(json.dumps(report, indent=1) if options.json else "\n".join(_lines(report)))
    return 1 if report["looks_wrong"] else 0


def _read_mechanism(options):
    """Return the mechanism, the elements of its file that are not modelled, and the doubtful ones."""
    name, floating = options.system, options.floating
    if not is_robot(name):
        return mechanism_of(name, floating), {}, []
    from .._robot_file import read

    try:
        parts = read(robot_file(name), floating=floating, **load_options(options))
    except ImportError as error:
        from .usage import UsageError

        raise UsageError(str(error)) from None
    from .._robot_file import where

    doubtful = [f"{element}: {where(lines)}" if lines else element for element, lines in parts.suspicious.items()]
    return parts.mechanism(), dict(parts.ignored), doubtful


def _parts(mechanism) -> dict[str, Any]:
    """Return bodies, joints, loops, couplings, actuators and doubts of a mechanism, for the report."""
    from .._mechanism import Mechanism
    from .._robot_file import doubts
    from ..joints import AbstractConnection, AbstractCoupling

    assert isinstance(mechanism, Mechanism)
    kind = lambda joint: type(joint).__name__
    tree = [
        {
            "body": link.body,
            "mass": float(mechanism.bodies[link.body].mass),
            "parent": link.parent,
            "joint": link.joint,
            "kind": "Free" if link.joint is None else kind(mechanism.joints[link.joint]),
        }
        for link in mechanism.tree.links
    ]
    between = {name: joint for name, joint in mechanism.joints.items() if isinstance(joint, AbstractConnection)}
    loops = [
        {"joint": name, "kind": kind(between[name]), "between": [between[name].parent, between[name].child]}
        for name in mechanism.tree.closures
    ]
    couplings = [
        {"joint": name, "kind": kind(joint), "of": list(joint.joints)}
        for name, joint in mechanism.joints.items()
        if isinstance(joint, AbstractCoupling)
    ]
    motors = [motor._asdict() for motor in mechanism.actuators]
    mass = sum(body["mass"] for body in tree)
    parts = {"tree": tree, "mass": mass, "loops": loops, "couplings": couplings, "actuators": motors}
    parts |= {"stops": _stops(mechanism), "contacts": _contacts(mechanism)}
    return parts | {"looks_wrong": doubts(mechanism)}


def _stops(mechanism) -> list[dict[str, Any]]:
    """Return the joints whose limits are stops."""
    from .._mechanism.stops import has_stop

    return [
        {
            "joint": name,
            "kind": type(joint).__name__,
            "limits": [float(limit) for limit in joint.limits],
            "restitution": float(joint.restitution),
        }
        for name, joint in mechanism.joints.items()
        if has_stop(joint)
    ]


def _contacts(mechanism) -> list[dict[str, Any]]:
    """Return the pairs of shapes that may touch."""
    return [
        {
            "contact": contact.name,
            "shapes": [type(contact.a).__name__, type(contact.b).__name__],
            "bodies": [contact.a.body, contact.b.body],
            "points": contact.points,
            "friction": None if contact.friction is None else float(contact.friction),
            "restitution": float(contact.restitution),
        }
        for contact in mechanism.contacts
    ]


def _penetrations(mechanism, t, q, v) -> Iterator[str]:
    """Yield a line for each stop or contact that the start penetrates."""
    import numpy as np

    from .._constraint import nonsmooth_names
    from .._contact.rows import gaps

    if not mechanism.nonsmooth:
        return
    names = nonsmooth_names(mechanism.nonsmooth, t, q, v)
    for name, gap in zip(names, np.asarray(gaps(mechanism.nonsmooth, t, q)), strict=False):
        if not gap >= -1e-9:
            yield f"the gap of {name} is {gap:.4g} at the start, and must be at least 0"


def _degrees_of_freedom(mechanism, wrong: list[str]) -> dict[str, Any]:
    """Return coordinates, rank, degrees of freedom and redundant rows at the start. Appends problems to ``wrong``."""
    import jax.numpy as jnp
    import numpy as np

    from .._labels import named_rows
    from .._mechanism import Mechanism
    from .._motion.consistent.project import project
    from .._solve import independent_rows, rounding
    from .mechanism import named_coordinates, named_velocities

    q, v = mechanism.start()
    t = jnp.zeros(())
    if not isinstance(mechanism, Mechanism):  # the start of a Mechanism satisfies its constraints
        try:
            q, v = project(mechanism, t, q, v)
        except ValueError as error:
            wrong.append(str(error))
    terms = mechanism(t, q, v)
    A = np.asarray(terms.A)
    (_, names), *_ = named_rows(mechanism, t, q, v, {"residual": len(A)})
    rtol = 10 * float(np.finfo(A.dtype).eps) ** 0.5
    independent = independent_rows(np.asarray(terms.M), A, rtol, rounding(A.dtype)) if len(A) else ()
    if independent is None:
        wrong.append("its mass matrix and its rows leave some acceleration undetermined")
        independent = ()
    rank = len(independent)
    for name, _, low, high, (value,) in mechanism.limited(t[None], q[None]):
        if not low - 1e-9 <= value <= high + 1e-9:
            wrong.append(f"{name} starts at {value:.4g}, outside of its limits {low:.4g} and {high:.4g}")
    wrong.extend(_penetrations(mechanism, t, q, v))
    return {
        "coordinates": [name for name, _ in named_coordinates(mechanism)],
        "rows": list(names),
        "rank": rank,
        "redundant": [name for i, name in enumerate(names) if i not in independent],
        "velocities": [name for name, _ in named_velocities(mechanism)],
        "degrees_of_freedom": len(v) - rank,
    }


def _lines(report) -> Iterator[str]:
    from .._robot_file import HINTS, where

    yield f"{report['system']}\n{report['source']}\n"
    if "tree" in report:
        yield "ground"
        yield from _branches(report["tree"], "ground", "")
        yield ""
    for name in ("loops", "couplings"):
        for element in report.get(name, []):
            endpoints = element.get("between") or element["of"]
            yield f"  {name[:-1]:18} {element['joint']}: {element['kind']} of {' and '.join(endpoints)}"
    for motor in report.get("actuators", []):
        limits = "" if motor["limits"] is None else ", {:.4g} to {:.4g}".format(*motor["limits"])
        yield f"  {'actuator':18} {motor['name']}: on {motor['joint']}, gear {motor['gear']:.4g}{limits}"
    for stop in report.get("stops", []):
        low, high = stop["limits"]
        yield f"  {'stop':18} {stop['joint']}: {low:.4g} to {high:.4g}, restitution {stop['restitution']:.4g}"
    for contact in report.get("contacts", []):
        friction = "no friction" if contact["friction"] is None else f"friction {contact['friction']:.4g}"
        shapes = f"{' on '.join(contact['shapes'])}, {contact['points']} point{'s' if contact['points'] > 1 else ''}"
        yield f"  {'contact':18} {contact['contact']}: {shapes}, {friction}, restitution {contact['restitution']:.4g}"
    if "mass" in report:
        yield f"  {'bodies':18} {len(report['tree'])}, {report['mass']:.6g} kg"
    nq, n, rank = len(report["coordinates"]), len(report["velocities"]), report["rank"]
    suffix = "" if n == nq else f" that {n} velocities move"
    yield f"  {'degrees of freedom':18} {n - rank}: {nq} coordinates{suffix}, {len(report['rows'])} rows of rank {rank}"
    if report["redundant"]:
        yield f"  {'redundant rows':18} {', '.join(report['redundant'])}"
    for description, lines in report["not_modelled"].items():
        option = f" (with {as_option(HINTS[description])})" if description in HINTS else ""
        yield f"  {'not modelled':18} {description}{option}: {where(lines)}"
    for line in report["looks_wrong"]:
        yield f"  {'looks wrong':18} {line}"


def _branches(tree, parent, prefix) -> Iterator[str]:
    children = [link for link in tree if link["parent"] == parent]
    for i, link in enumerate(children):
        last = i == len(children) - 1
        joint = "floating" if link["joint"] is None else f"{link['kind']} {link['joint']}"
        mass = f"{link['mass']:.4g} kg" if link["mass"] else "no mass"
        yield f"{prefix}{'└' if last else '├'} {link['body']}, {mass}, {joint}"
        yield from _branches(tree, link["body"], prefix + ("  " if last else "│ "))

"""The balance of forces of a motion: each force by name, its multipliers, its power, and the imbalance."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._check import as_path
from ..._constraint import names_of
from ..._constraint.several import nonsmooth_names
from ..._contact.mode import ContactMode, InContact, unknowns_in
from ..._contact.rows import layout_of
from ..._equation import motion_by
from ..._errors import InputError
from ..._files import write_whole
from ..._labels import Named, force_unit
from ..._names import did_you_mean
from ..._run.compile import jit_unoptimised
from ..._solve import AbstractMethod, coordinate_scale, row_scale
from ..._system import AbstractSystem, Driven, structure_of
from .files import write_table


class Force(eqx.Module):
    """One force of a motion, at all samples (see ``ForceBalance``).

    Attributes
    ----------
    kind
        "applied", "control", "constraint", "nonideal", "contact" or "friction".
    rows
        Names of its constraint rows or contact rows; empty for other forces.
    force
        Generalised force, shape (samples, n) [N for a length, N m for an angle].
    power
        Power force · v, shape (samples,) [W]; it is meaningful where v are rates of coordinates or of rotations.
    multiplier
        Multiplier of each row, shape (samples, rows): λ of force = Aᵀ λ for a constraint, the contact force or friction
        force for a contact. Without columns for other forces.
    is_unique
        Whether the equations of motion determine this force, shape (samples,). The forces of redundant constraints and
        contacts are determined only in sum.
    multiplier_is_unique
        Whether they determine each multiplier, shape (samples, rows).
    """

    kind: str = eqx.field(static=True)
    rows: tuple[str, ...] = eqx.field(static=True)
    force: Float[Array, "*at n"]
    power: Float[Array, "*at"]
    multiplier: Float[Array, "*at rows"]
    is_unique: Bool[Array, "*at"]
    multiplier_is_unique: Bool[Array, "*at rows"]


class ForceBalance(Mapping):
    """All forces of a motion by name: ``motion.forces()["loop"].multiplier``.

        M q̈ = Q + B u + Σ Aᵢᵀ λᵢ + c + Σ Jᵢᵀ λᵢ

    The names are "applied" for Q, "control" for the actuators B u, the name of each constraint, "nonideal" for c, and
    the name of each contact and of its friction. ``print`` shows a table.

    Attributes
    ----------
    t
        Time of each sample, shape (samples,) [s], with a leading batch axis for a batch.
    inertia
        M q̈, shape (samples, n).
    imbalance
        M q̈ minus the sum of all forces, shape (samples, n). It contains the part of the constraint forces that does
        virtual work, which is rounding error.
    directions
        Name and unit for each entry of a generalised force.

    Notes
    -----
    Redundant constraints have multipliers that the equations of motion do not determine. Those with the smallest Σ
    (λᵢ ℓᵢ)² are returned, where ℓᵢ is the length of row i in coordinates of unit mass. They are marked in
    ``is_unique``, and so are the forces of redundant contacts, such as those of a box on four corners.
    """

    def __init__(
        self,
        t: Float[Array, "*at"],
        inertia: Float[Array, "*at n"],
        imbalance: Float[Array, "*at n"],
        directions: Named,
        forces: dict[str, Force],
    ):
        self.t, self.inertia, self.imbalance, self.directions = t, inertia, imbalance, directions
        self._forces = forces

    def __getitem__(self, name: str) -> Force:
        if name not in self._forces:
            raise InputError(f"there is no force {name!r} in this motion{did_you_mean(name, tuple(self._forces))}")
        return self._forces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._forces)

    def __len__(self) -> int:
        return len(self._forces)

    def __contains__(self, name: object) -> bool:
        return name in self._forces

    def save(self, path: str | os.PathLike) -> Path:
        """Write the forces of a single motion as a table (.csv): t, then each force, its multipliers and its power.

        Parameters
        ----------
        path
            File name with the suffix .csv. The file appears completely or not at all.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InputError
            For another suffix, or a batch.
        OSError
            If the file cannot be written.
        """
        path = as_path(path)
        if path.suffix != ".csv":
            raise InputError(f"path must end in .csv, got {str(path)!r}")
        if self.t.ndim != 1:
            raise InputError("a table (.csv) holds the forces of one motion, this is a batch: use motion[i].forces()")
        columns = {"t [s]": self.t}
        for name, each in self.items():
            for i, (direction, unit) in enumerate(self.directions):
                columns[f"{name} on {direction} [{force_unit(unit)}]"] = each.force[:, i]
            for i, row in enumerate(each.rows):
                columns[f"multiplier of {row}"] = each.multiplier[:, i]
            columns[f"power of {name} [W]"] = each.power
        write_whole(path, lambda part: write_table(columns, part))
        return path

    def __repr__(self) -> str:
        largest = lambda x: np.nanmax(np.abs(np.asarray(x)), initial=0.0)
        header = ("force", "kind", "largest component", "largest power [W]", "unique")
        lines: list[tuple[str, ...]] = [header]
        for name, each in self.items():
            unique = "yes" if np.all(each.is_unique) else "in sum"
            lines.append((name, each.kind, f"{largest(each.force):.4g}", f"{largest(each.power):.4g}", unique))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        rows.append(f"imbalance {largest(self.imbalance):.1g} of M q̈ {largest(self.inertia):.4g}")
        return "\n".join(row.rstrip() for row in rows)


def force_balance(
    model: Any,
    t: Float[Array, "*at"],
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
    method: AbstractMethod,
    mode: ContactMode | None,
    held: Float[Array, "*at p"] | None,
    directions: Named,
) -> ForceBalance:
    """The balance of forces at the samples of a motion, in the contact ``mode`` of each sample, and with the ``held``
    inputs of sampled control.

    ``directions`` are those of forces. First-order states, the last entries of v, have none.
    """
    row_names, contact_names = _names(model, *(x[(0,) * (t.ndim)] for x in (t, q, v)))
    constraint_of = model.constraint_of_row if isinstance(model, AbstractSystem) else str
    row_groups, contact_groups = _grouped(row_names, constraint_of), _grouped(contact_names, _contact_of_row)
    parts = _at_samples(model, t, q, v, mode, held, method, tuple(row_groups.values()), tuple(contact_groups.values()))
    everywhere, n = jnp.ones(t.shape, bool), len(directions)
    moving = lambda x: x if x.shape[-1] == n else x[..., :n]
    velocities = moving(v)
    forces: dict[str, Force] = {}

    def add(name, kind, rows, force, multiplier=t[..., None][..., :0], unique=everywhere, multiplier_unique=None):
        if multiplier_unique is None:
            multiplier_unique = jnp.ones(multiplier.shape, bool)
        while name in forces:  # a constraint that is called "applied", or two constraints of one name
            name = f"{name} ({kind})"
        force = moving(force)
        power = jnp.sum(force * velocities, axis=-1)
        forces[name] = Force(kind, rows, force, power, multiplier, unique, multiplier_unique)

    add("applied", "applied", (), parts["applied"])
    if parts["control"] is not None:
        add("control", "control", (), parts["control"])
    for (name, rows), constraint in zip(row_groups.items(), parts["constraints"], strict=True):
        add(name, "constraint", tuple(row_names[i] for i in rows), *constraint)
    if parts["nonideal"] is not None:
        add("nonideal", "nonideal", (), parts["nonideal"])
    for (name, rows), contact in zip(contact_groups.items(), parts["contacts"], strict=True):
        names = tuple(contact_names[i] for i in rows)
        kind = "friction" if name.endswith(" friction") else "contact"
        add(name, kind, names, *contact)
    return ForceBalance(t, moving(parts["inertia"]), moving(parts["imbalance"]), directions, forces)


def _names(model, t, q, v):
    """A name for each row of A, and for each contact row."""
    if not isinstance(model, AbstractSystem):
        return [str(i + 1) for i in range(jax.eval_shape(model, t, q, v).b.size)], []
    rows = names_of(structure_of(model), lambda constraint: constraint.rows(t, q, v)[1])
    return rows, nonsmooth_names(model.nonsmooth, t, q, v)


def _grouped(names, group_of):
    """Indices of rows by the name of their group, in order."""
    groups: dict[str, tuple[int, ...]] = {}
    for i, name in enumerate(names):
        groups[group_of(name)] = (*groups.get(group_of(name), ()), i)
    return groups


def _contact_of_row(row):
    """``floor friction`` for ``floor friction 1``."""
    return re.sub(r"(?<= friction) \d+$", "", row)


@jit_unoptimised
def _at_samples(model, t, q, v, mode, held, method, row_groups, contact_groups):
    def at(sample):
        t, q, v, mode, held = sample
        driven = model if held is None else Driven(model, held)
        return _at_one(driven, t, q, v, mode, method, row_groups, contact_groups)

    for _ in range(t.ndim - 1):
        at = jax.vmap(at)
    if t.ndim == 1:
        return jax.lax.map(at, (t, q, v, mode, held))
    moved = jax.tree.map(lambda x: jnp.moveaxis(x, t.ndim - 1, 0), (t, q, v, mode, held))
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, t.ndim - 1), jax.lax.map(at, moved))


def _at_one(model, t, q, v, mode, method, row_groups, contact_groups):
    """All forces at one state."""
    given, in_contact = model(t, q, v), model
    J, force, transmission = (jnp.zeros((0, *rest), given.A.dtype) for rest in ((v.size,), (), (0,)))
    if mode is not None:
        layout = layout_of(model.nonsmooth, t, q, v)
        in_contact = InContact(model, mode, layout, method)
        acting = in_contact.forces(t, q, v)
        J, force, transmission = acting.contacts.J, acting.force, _transmission(mode, acting, layout)
    is_controlled = isinstance(model, AbstractSystem) and model.control is not None
    applied = model.passive(t, q, v).Q if is_controlled else given.Q
    control = given.Q - applied if is_controlled else None
    motion, _ = motion_by(method, in_contact(t, q, v))
    inertia = given.M @ motion.acceleration
    others = given.Q + (0.0 if given.c is None else given.c) + force @ J
    multiplier = jnp.concatenate([_multipliers(given.M, given.A, inertia - others), force])
    of_contacts = (tuple(len(given.A) + i for i in rows) for rows in contact_groups)
    parts = _split(given.M, given.A, J, transmission, multiplier, (*row_groups, *of_contacts))
    constraints, by_contact = parts[: len(row_groups)], parts[len(row_groups) :]
    total = others + sum(force for force, *_ in constraints)
    return {
        "inertia": inertia,
        "imbalance": inertia - total,
        "applied": applied,
        "control": control,
        "constraints": constraints,
        "nonideal": given.c,
        "contacts": by_contact,
    }


def _transmission(mode, acting, layout):
    """The contact forces (rows, rows) for a unit of each unknown force, including forces that can move nothing."""
    response = acting.response._replace(movable=jnp.ones_like(acting.response.movable))
    return response.scale[:, None] * unknowns_in(mode, acting.contacts, response, layout).T


def _unit(rows, scale):
    """Rows of unit length in coordinates of unit mass, and their factors."""
    factor = row_scale(rows, scale)
    return rows * scale * factor[:, None], factor


def _share(dtype):
    """Singular values and errors below this share of the largest count as zero."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def _multipliers(M, A, force):
    """The solution of Aᵀ λ = ``force`` that is the smallest for rows of unit length in coordinates of unit mass."""
    scale = coordinate_scale(M)
    unit, factor = _unit(A, scale)
    return (jnp.linalg.pinv(unit, rtol=_share(A.dtype)).T @ (scale * force)) * factor


def _split(M, A, J, transmission, multiplier, groups):
    """The force of each group of rows of A and J, its part of ``multiplier``, and whether both are unique."""
    if not groups:
        return []
    rows, share = jnp.concatenate([A, J]), _share(A.dtype)
    unit, undetermined = _undetermined(*jax.lax.stop_gradient((M, A, J, transmission)))
    multiplier_is_unique = jnp.sum(undetermined**2, axis=1) <= share
    parts = []
    for group in groups:
        index = np.asarray(group)
        change = jnp.linalg.norm(unit[index].T @ undetermined[index])
        force = rows[index].T @ multiplier[index]
        parts.append((force, multiplier[index], change <= share, multiplier_is_unique[index]))
    return parts


def _undetermined(M, A, J, transmission):
    """All rows with unit length, and changes of their multipliers that do not affect the motion, as columns.

    The unknowns are the multipliers of A and the z of the contact forces ``transmission`` z. With their rows U of unit
    length, the changes of them are the range of N = I − U U⁺.
    """
    scale = coordinate_scale(M)
    of_A, of_J, of_z = (_unit(rows, scale) for rows in (A, J, transmission.T @ J))
    U = jnp.concatenate([of_A[0], of_z[0]])
    N = jnp.eye(len(U), dtype=U.dtype) - U @ jnp.linalg.pinv(U, rtol=_share(U.dtype))
    lengths = jnp.where(of_J[1] > 0, 1 / jnp.where(of_J[1] > 0, of_J[1], 1), 0)
    in_contacts = lengths[:, None] * transmission * of_z[1]
    return jnp.concatenate([of_A[0], of_J[0]]), jnp.concatenate([N[: len(A)], in_contacts @ N[len(A) :]])

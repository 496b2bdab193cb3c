"""What is to be seen of a system at one state: M, Q and the rows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..._check_terms import symmetric
from ..._compressed import Compressed
from ..._constraint import AbstractConstraint, Rows, all_at
from ..._dynamics import AbstractDynamics
from ..._functions import vector_of
from ..._solve import AbstractMethod, Band, Sparse
from ..._system import AbstractSystem, dynamics_of, structure_of


class Evaluator(eqx.Module):
    """A system as a step looks at it. M and A are compressed where the method knows the places of their entries."""

    dynamics: AbstractDynamics
    structure: tuple[AbstractConstraint, ...]
    nonideal: Callable | None
    method: AbstractMethod | None

    @classmethod
    def at(cls, system: AbstractSystem, method: Any) -> "Evaluator":
        """For a method, or for none in particular."""
        method = method if isinstance(method, Sparse) else None
        return cls(dynamics_of(system), structure_of(system), system.nonideal, method)

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Any, Float[Array, " n"], Rows]:
        """M, an array or a ``Compressed``; all forces but the actuators'; and the rows."""
        M, Q = self.masses(t, q, v)
        # What the constraints do with it besides is linear in it: see ``constrained_motion``.
        Q = Q if self.nonideal is None else Q + vector_of(v.size, "velocity", "nonideal", self.nonideal, t, q, v)
        return M if isinstance(M, Compressed) else symmetric(M), Q, self.rows(t, q, v)

    def masses(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
    ) -> tuple[Float[Array, "n n"] | Compressed, Float[Array, " n"]]:
        """M, as the dynamics give it, and Q."""
        band = self._band(t, q, v)
        if band is None:
            return self.dynamics.terms(t, q, v)
        M, Q = self.dynamics.by_seeds(t, q, v, band.M.seeds)
        return band.M.of_products(M), Q

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        """Residuals, A and b; A is a ``Compressed`` where M is."""
        band = self._band(t, q, v)
        if band is None:
            return all_at(self.structure, t, q, v)
        rows = all_at(self.structure, t, q, v, band.A.seeds)
        return rows._replace(A=band.A.of_products(rows.A))

    def _band(self, t, q, v) -> Band | None:
        if not isinstance(self.method, Sparse):
            return None
        b = jax.eval_shape(lambda t, q, v: all_at(self.structure, t, q, v).b, t, q, v)
        return self.method.band_of((b.size, v.size))

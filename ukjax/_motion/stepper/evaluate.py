"""Evaluation of a system at one state: M, Q and the constraint rows."""

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
    """Evaluates M, Q and the rows of a system. M and A are compressed if the method has their sparsity patterns."""

    dynamics: AbstractDynamics
    structure: tuple[AbstractConstraint, ...]
    nonideal: Callable | None
    method: AbstractMethod | None

    @classmethod
    def at(cls, system: AbstractSystem, method: Any) -> "Evaluator":
        """Evaluator of ``system`` for ``method``, which may be None."""
        method = method if isinstance(method, Sparse) else None
        return cls(dynamics_of(system), structure_of(system), system.nonideal, method)

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Any, Float[Array, " n"], Rows]:
        """M, an array or a ``Compressed``; all forces except those of actuators; and the rows."""
        M, Q = self.masses(t, q, v)
        # The non-ideal force enters linearly, so it is added to Q: see ``constrained_motion``.
        Q = Q if self.nonideal is None else Q + vector_of(v.size, "velocity", "nonideal", self.nonideal, t, q, v)
        return M if isinstance(M, Compressed) else symmetric(M), Q, self.rows(t, q, v)

    def masses(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
    ) -> tuple[Float[Array, "n n"] | Compressed, Float[Array, " n"]]:
        """M, possibly not symmetric, and Q."""
        band = self._band(t, q, v)
        if band is None:
            return self.dynamics.terms(t, q, v)
        M, Q = self.dynamics.by_seeds(t, q, v, band.M.seeds)
        return band.M.of_products(M), Q

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        """Residuals, A and b; A is a ``Compressed`` if M is."""
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

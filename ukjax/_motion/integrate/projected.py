"""diffrax solver whose steps end on the constraints."""

from collections.abc import Callable

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp

from ..._kinematic_map import rate
from ..._run.compile import jit
from ..._system import kinematic_map_of
from ..stepper.drift_correction import correct_drift, methods_at
from ..stepper.error_control import error_of_correction
from ..stepper.singular_turn import turned


def batch_of_one(function: Callable) -> Callable:
    """``function(t, q, v)``, evaluated as for a batch of one member.

    ``per_member`` then compiles kernels for larger systems than it does for one member. They compile several times
    faster than XLA compiles the same functions.
    """
    at = lambda index, tree: jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, tree)
    return lambda *state: at(0, eqx.filter_vmap(function)(*at(None, tuple(map(jnp.asarray, state)))))


# Compiled as functions, so that they occur once in the program, however often a solver traces them.
@jit
def keep_rows(model, t, q, v, method):
    """``methods_at``."""
    return batch_of_one(lambda t, q, v: methods_at(model, t, q, v, method))(t, q, v)


@jit
def correct_step(model, t, q, v, levels, scale):
    """``correct_drift``."""
    return batch_of_one(lambda t, q, v: correct_drift(model, t, q, v, levels, scale))(t, q, v)


LEFT_CONSTRAINTS = dfx.RESULTS.internal_error
"""Result of a step that ends off the constraints. No solver of diffrax has this result."""

AT_SINGULAR_POSE = dfx.RESULTS.conlim
"""Result of a step that turns onto another branch at a singular pose. No solver of diffrax has this result."""


class Projected(dfx.AbstractWrappedSolver):
    """Project the end of each step of another solver onto the constraints.

    The rank of the rows is determined at the start of the step, on the constraints, and holds for all stages: off the
    constraints, redundant rows appear independent. The first stage is always evaluated again, since the last stage of
    the previous step belongs to the state before its correction. The correction contributes to the error of the step
    (see ``error_of_correction``). Fixed steps cannot be repeated with a shorter length, so one that jumps results in
    NaN. A step that ends off the constraints ends the motion, and so does a short one that turns at a singular pose.

    Attributes
    ----------
    solver
        The wrapped solver.
    even
        Whether steps are fixed.
    """

    solver: dfx.AbstractSolver
    even: bool

    @property
    def term_structure(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_structure

    @property
    def interpolation_cls(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        return self.solver.term_compatible_contr_kwargs

    # diffrax sets these on the wrapped solver: the root finder of an implicit solver for its tolerances, and the kind
    # of loop over stages for the adjoint.
    @property
    def root_finder(self):
        return self.solver.root_finder  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def scan_kind(self):
        return self.solver.scan_kind  # pyright: ignore[reportAttributeAccessIssue]

    def order(self, terms):
        return self.solver.order(terms)

    def strong_order(self, terms):
        return self.solver.strong_order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        model, method, scale, begin = args
        split = lambda y: jnp.split(y, [scale.q.size])
        (q0, v0), kinematic_map = split(y0), kinematic_map_of(model)
        levels = keep_rows(model, begin + t0, q0, v0, method)
        y1, error, dense, solver_state, result = self.solver.step(
            terms, t0, t1, y0, (model, levels.acceleration, scale, begin), solver_state, made_jump=True
        )
        q1, v1 = split(y1)
        corrected = correct_step(model, begin + t1, q1, v1, levels, scale)
        speeds = jnp.stack([rate(kinematic_map, q0, v0), rate(kinematic_map, q1, v1), (q1 - q0) / (t1 - t0)])
        jumped = scale.is_jump(corrected.moved, t1 - t0, jnp.max(jnp.abs(speeds), axis=0))
        result = dfx.RESULTS.where(corrected.off, LEFT_CONSTRAINTS, result)
        if not self.even:
            has_turned = turned(corrected.independence, jnp.asarray(t1 - t0), v0, corrected.v, scale)
            result = dfx.RESULTS.where(has_turned, AT_SINGULAR_POSE, result)  # pyright: ignore[reportArgumentType]
        q1, v1 = corrected.q, corrected.v
        if self.even:
            q1, v1 = (jnp.where(jumped, jnp.nan, x) for x in (q1, v1))
        elif error is not None:
            error_q, error_v = split(error)
            correction_error = error_of_correction(corrected.moved, jumped, jnp.asarray(t1 - t0), scale)
            error = jnp.concatenate([jnp.maximum(jnp.abs(error_q), correction_error), error_v])
        return jnp.concatenate([q1, v1]), error, dense, solver_state, result

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

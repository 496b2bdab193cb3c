"""Projection as part of a solver: each of its steps ends on the constraints."""

import diffrax as dfx
import equinox as eqx

from .correct import levels_at, onto_constraints

# Once in the program, however many times a solver traces them.
keep_rows = eqx.filter_jit(levels_at)
correct_step = eqx.filter_jit(onto_constraints)


class Projected(dfx.AbstractWrappedSolver):
    """A solver whose every step ends on the constraints.

    The rank of the rows is found where the step starts, on the constraints, and holds for its stages: off them,
    redundant rows look independent. The first stage is always evaluated anew, since the solver's own last stage
    belongs to the point before the correction.
    """

    solver: dfx.AbstractSolver

    @property
    def term_structure(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_structure

    @property
    def interpolation_cls(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        return self.solver.term_compatible_contr_kwargs

    # What diffrax sets on a solver of the kind that ours wraps: tolerances if it is implicit, and the kind of loop over
    # stages that an adjoint needs.
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
        model, method, start = args
        levels = keep_rows(model, start + t0, *y0, method)
        y1, error, dense, solver_state, result = self.solver.step(
            terms, t0, t1, y0, (model, levels.acceleration, start), solver_state, made_jump=True
        )
        q1, v1 = y1
        return correct_step(model, start + t1, q1, v1, levels), error, dense, solver_state, result

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

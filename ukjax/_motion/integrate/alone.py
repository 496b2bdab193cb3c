"""Members of a batch that ended at a singular pose, integrated again one by one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ..fallback.singular_pose import has_understood_rows
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import SINGULAR_POSE
from .single import integrate_alone


def past_singular_poses(solution: Solution, problem: Problem, start: InitialState, plan: Plan) -> Solution:
    """The solution of a batch, in which the members that ended at a singular pose are integrated one by one.

    A single motion crosses such poses, see ``cross_singular_pose``. ``plan`` receives a note and
    the poses.
    """
    members = np.flatnonzero(np.asarray(solution.result) == SINGULAR_POSE)
    if not members.size or not has_understood_rows(problem):
        return solution
    which = "member" if members.size == 1 else f"{members.size} members, first"
    plan.note(f"{which} {members[0]}: integrated alone, since singular poses are passed by single motions only")
    alone = []
    for member in members:
        of_member = jax.device_put(jax.tree.map(lambda x, at=member: np.asarray(x)[at], start))
        of_problem = replace(problem, model=problem.model_of(of_member.numbers))
        solution_alone, passed = integrate_alone(of_problem, of_member)
        alone.append(solution_alone)
        plan.singular_poses += [(int(member), t) for t in passed]
    put = lambda x, *parts: x.at[members].set(jnp.stack(parts))
    return jax.tree.map(put, solution, *alone)

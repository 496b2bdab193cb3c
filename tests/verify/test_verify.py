"""Problems with known answers: ukjax solves them, and wrong references are detected."""

import json
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import main
from ukjax.verify.measure import verify

QUICK = "bead_on_hoop", "bouncing_ball"
"""Problems with a constraint and with impacts. The knife edge below has a velocity constraint and a derivative."""


@pytest.mark.parametrize("name", QUICK)
def test_quick_problem_matches_its_reference(name):
    (found,) = uk.verify.run(name, finest=True, derivatives=False)
    assert found.passed, found


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.timeout(600)
def test_all_problems_match_their_references():
    found = uk.verify.run(finest=True, derivatives=False)
    assert len(found) == len(uk.verify.names()) >= 24
    assert not [each for each in found if not each.passed]
    assert np.mean([each.digits >= 12 for each in found]) > 0.9


def test_a_wrong_reference_fails():
    problem = uk.verify.problem("knife_edge")
    shifted = replace(problem, reference=(problem.reference[0], problem.reference[1] * (1 + 1e-9)))
    assert verify(problem, finest=True, derivatives=False).passed
    assert not verify(shifted, finest=True, derivatives=False).passed


def test_equations_of_a_problem_can_be_solved_by_another_program():
    """Terms of the system from ``model`` are integrated by a Runge–Kutta method of order 4 in NumPy."""
    problem: Any = uk.verify.problem("knife_edge")
    system, q0, v0 = problem.model()
    y, h = np.concatenate([q0, v0]), (problem.ts[-1] - problem.ts[0]) / 100

    def rate(y):
        M, Q, A, b = (np.asarray(x) for x in _terms(system, y))
        KKT = np.block([[M, A.T], [A, np.zeros((len(A), len(A)))]])
        return np.concatenate([y[3:], np.linalg.solve(KKT, np.concatenate([Q, b]))[:3]])

    for _ in range(100):
        k1 = rate(y)
        k2 = rate(y + h / 2 * k1)
        k3 = rate(y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(y + h * k3))
    assert 1e-12 < problem.error(y[:2]) < 1e-6


def _terms(system, y):
    terms = system(0.0, jnp.asarray(y[:3]), jnp.asarray(y[3:]))
    return terms.M, terms.Q, terms.A, terms.b


def test_problems_are_complete():
    for name in uk.verify.names():
        problem = uk.verify.problem(name)
        assert problem.name == name and problem.title and len(problem.statement or "") > 200 and problem.evidence
        assert len(problem.reference) == len(problem.compared) and 0 < problem.doubt < 1e-8
        assert len(problem.settings) >= 3 or problem.settings == ({},)
        assert all(parameter in (problem.statement or "") for parameter in problem.parameters)
        if problem.derivative is not None:
            assert problem.derivative.parameter in problem.parameters
            assert len(problem.derivative.values) == len(problem.reference)
    with_derivative = [name for name in uk.verify.names() if uk.verify.problem(name).derivative]
    assert len(with_derivative) >= 20


def test_verify_command_prints_statement_and_errors(capsys):
    assert main(["verify", "knife_edge"]) == 0
    text = capsys.readouterr().out
    assert "It starts at the origin" in text and "spin = 2" in text and "passes" in text
    assert main(["verify", "knife_edge", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["problems"]
    assert report["passed"] and len(report["measured"]) == 3 and report["derivative_error"] < 1e-8
    assert main(["verify", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(uk.verify.names())


def test_bad_input_raises(capsys):
    with pytest.raises(uk.InputError, match="no problem is named 'pendlum'; did you mean 'pendulum'"):
        uk.verify.problem("pendlum")
    pendulum = uk.verify.problem("pendulum")
    with pytest.raises(uk.InputError, match="pendulum has no parameter 'lenght'; did you mean 'length'"):
        pendulum.model(lenght=2.0)
    with pytest.raises(uk.InputError, match=r"values must have shape \(2,\), got \(3,\)"):
        pendulum.error([0.0, 1.0, 2.0])
    with pytest.raises(uk.InputError, match="mathieu has no reference derivative"):
        uk.verify.problem("mathieu").slope()
    assert main(["verify", "pendlum"]) == 2
    assert "did you mean 'pendulum'" in capsys.readouterr().err

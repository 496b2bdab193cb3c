"""Without llvmlite: the same results, and one warning."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

from ..mechanisms import Pendulum

TS = np.linspace(0, 1, 3)
MANY = np.tile([-1.0, 0.0], (20, 1)), np.linspace(0, 1, 20)[:, None] * [0.0, 1.0]
TOLERANCE = 1e-9  # of adaptive steps, whose lengths change with rounding
CLOSE = 1e-12  # of everything else: motions of order 1, and rounding
SCRIPT = """
import sys

sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None  # to import it is an error
import json, warnings
from tests.kernel import test_without_llvmlite as here

here.uk.enable_float64()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = here.results()
print(json.dumps([{name: x.tolist() for name, x in found.items()}, [str(x.message) for x in said]]))
"""


def results():
    """A motion, a batch, a derivative, and a function of the user."""
    first = MANY[0][0], MANY[1][-1]
    end = lambda speed: uk.simulate(Pendulum(), first[0], speed * first[1], TS, dt=0.05, solver=uk.RungeKutta4()).q[-1]
    found = {
        "adaptive": uk.simulate(Pendulum(), *first, TS, rtol=TOLERANCE, atol=TOLERANCE).q,
        "even batch": uk.simulate(Pendulum(), *MANY, TS, dt=0.05).q,
        "derivative": jax.jacrev(end)(0.7),
        "function": jax.vmap(uk.per_member(lambda x: jnp.sin(x) @ x))(MANY[0]),
    }
    return {name: np.asarray(x) for name, x in found.items()}


def test_without_llvmlite_results_agree_and_one_warning_is_given():
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[2], env=os.environ)
    assert done.returncode == 0, done.stderr
    found, said = json.loads(done.stdout.splitlines()[-1])
    for name, expected in results().items():
        close = TOLERANCE if "adaptive" in name else CLOSE
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=close, err_msg=name)
    (message,) = said
    assert "without llvmlite" in message and "pip install llvmlite" in message

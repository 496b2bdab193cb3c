"""The fixture that runs ``ukjax run`` for a system of the gallery and checks the result."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import main

from ..helpers import multiplier_motion, null_space_motion


@pytest.fixture
def check_run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a system over the time span of its source by ``ukjax run NAME --json``.

    Modules that simulate a system call it with their number of samples, so that the compiled program is shared;
    ``test_gallery`` runs the other systems.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("EQX_ON_ERROR", "raise")

    def run(name, samples=101):
        file = tmp_path / "motion.npz"
        assert main(["run", name, "--json", "--samples", str(samples), "--out", str(file)]) == 0
        with np.load(file) as arrays:
            check(name, json.loads(capsys.readouterr().out), dict(arrays))

    return run


def check(name, report, motion):
    """Check the stated limits of errors, the start, the outline, and the acceleration at the start.

    The acceleration is compared with that of the null-space equations, and of the multiplier equations [M −Aᵀ; A 0] if
    the rows are independent, both by NumPy. Systems with contacts or dry friction are checked in
    ``test_gallery_nonsmooth``.
    """
    mechanism: Any = uk.systems.named(name)
    assert report["max_residual"] <= 1e-10
    assert report.get("max_reference_error", 0.0) <= 1e-8
    assert report.get("control", {}).get("max_unreachable", 0.0) <= 1e-8

    q, v = motion["q"][0], motion["v"][0]
    assert len(mechanism.coordinates) == q.size == v.size
    assert np.abs(motion["residual"][0]).max(initial=0) < 1e-13
    for projected, printed in zip((q, v), mechanism.start(), strict=True):
        assert np.abs(projected - printed).max() < 0.02

    at = eqx.filter_jit(lambda t, q, v: (mechanism(t, q, v), mechanism.outline(t, q)))
    terms, lines = at(0.0, q, v)
    assert lines and all(line.ndim == 2 and line.shape[1] in (2, 3) for line in lines)
    assert all(np.isfinite(line).all() for line in lines)
    if mechanism.control is not None:
        matrix = mechanism.control.matrix(jnp.array(0.0), *map(jnp.asarray, (q, v)))
        assert len(mechanism.control.inputs) == matrix.shape[1]

    if not mechanism.nonsmooth:
        M, Q, A, b = (np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b))
        Q = Q if terms.c is None else Q + np.asarray(terms.c)
        found = motion["acceleration"][0]
        close: Any = dict(rtol=0, atol=1e-10 * (1 + np.abs(found).max()))
        np.testing.assert_allclose(found, null_space_motion(M, Q, A, b), **close)
        if b.size and np.linalg.matrix_rank(A) == b.size:
            np.testing.assert_allclose(found, multiplier_motion(M, Q, A, b), **close)

    if mechanism.reference(jnp.array(0.0)) is not None:
        position, speed = jax.jvp(mechanism.reference, (jnp.array(0.0),), (jnp.array(1.0),))
        np.testing.assert_allclose(position, q, rtol=0, atol=1e-10)
        np.testing.assert_allclose(speed, v, rtol=0, atol=1e-9)

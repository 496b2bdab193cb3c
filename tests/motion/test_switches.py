"""Times at which forces jump: no step crosses one."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import ukjax as uk

FORCE, LENGTH, END = 100.0, 0.01, 2.0
ADAPTIVE: dict[str, Any] = {}
FIXED: dict[str, Any] = {"dt": 0.3, "solver": uk.RungeKutta4()}  # exact for constant forces


class Pulse(eqx.Module):
    """A force of 100 N for 10 ms."""

    begin: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, t, q, v):
        return jnp.where((t >= self.begin) & (t < self.begin + LENGTH), FORCE, 0.0)[None]


def pushed(begin):
    return uk.System(uk.MassForce(np.eye(1), Pulse(begin)), ())


def way(begin, t):
    """The distance of a mass of 1 kg: with the mean speed during the pulse, then with 1 m/s."""
    return FORCE * LENGTH**2 / 2 + FORCE * LENGTH * (t - begin - LENGTH)


def end(begin, **how):
    switches = jnp.stack([begin, begin + LENGTH])
    return uk.simulate(pushed(begin), jnp.zeros(1), jnp.zeros(1), [0.0, END], switches=switches, **how).q[-1, 0]


@pytest.mark.parametrize("how", [ADAPTIVE, FIXED], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("starts", [(1,), (3, 1)], ids=["one", "batch"])
def test_a_pulse_shorter_than_a_step_acts(how, starts):
    """Samples are at the requested times. Switches at the ends and beyond them are accepted."""
    ts = np.array([0.0, 0.7, 1.0, 1.3, END])
    switches = [-1.0, 0.0, 1.0, 1.0 + LENGTH, END, 5.0]
    found = uk.simulate(pushed(1.0), np.zeros(starts), np.zeros(starts), ts, switches=switches, **how)
    assert np.all(found.finished)
    np.testing.assert_array_equal(found.t, np.broadcast_to(ts, found.t.shape))
    exact = np.broadcast_to([0, 0, 0, way(1.0, 1.3), way(1.0, END)], found.t.shape)
    np.testing.assert_allclose(found.q[..., 0], exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("how", "wrap"), [(ADAPTIVE, lambda f: f), (FIXED, jax.jit)], ids=["adaptive", "fixed, jit"])
def test_derivative_of_end_by_time_of_pulse(how, wrap):
    value, slope = wrap(jax.value_and_grad(lambda begin: end(begin, **how)))(1.0)
    assert float(value) == pytest.approx(way(1.0, END), abs=1e-11)
    assert float(slope) == pytest.approx(-FORCE * LENGTH, abs=1e-9)


def test_motion_with_switches_meets_event():
    found = uk.simulate(
        pushed(1.0), [0.0], [0.0], [0.0, 3.0], switches=[1.0, 1.0 + LENGTH], event=lambda t, q, v: q[0] - 0.5
    )
    assert found.met_event
    assert float(found.last[0]) == pytest.approx(1.0 + LENGTH + 0.5 - FORCE * LENGTH**2 / 2, abs=1e-11)


def test_invalid_switches_are_errors():
    run = lambda **how: uk.simulate(pushed(1.0), [0.0], [0.0], [0.0, END], **how)
    with pytest.raises(ValueError, match=r"switches must be times in one row, shape \(switches,\), got shape \(\)"):
        run(switches=1.0)
    with pytest.raises(ValueError, match="switches"):
        run(switches=[np.nan])
    with pytest.raises(ValueError, match=r"Kvaerno5 evaluates them up to 1\.23 step lengths after its start.*Radau"):
        run(switches=[1.0], solver=dfx.Kvaerno5())


def test_radau_stops_at_switches():  # the message above recommends it
    assert float(end(jnp.asarray(1.0), solver=uk.Radau())) == pytest.approx(way(1.0, END), abs=1e-11)

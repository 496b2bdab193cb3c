"""Compute the references again, by two methods each, and compare them with the numbers in the files of the problems."""

import argparse
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import scipy.integrate
import sympy
from mpmath import mp

import ukjax as uk

from .closed_forms import CLOSED_FORMS
from .extrapolation import integrate
from .lagrange import DIGITS, Points, by_differences, by_jets, by_symbols
from .models import MODELS

mp.dps = 34
TOLERANCE = mp.mpf(10) ** -21
PARAMETERS = {
    "pendulum": "g",
    "double_pendulum": "l2",
    "spherical_pendulum": "speed",
    "bead_on_hoop": "turn",
    "kepler": "mu",
    "four_bar": "speed",
    "car_axis": "r",
    "free_body": "first",
    "heavy_top": "m",
    "knife_edge": "spin",
    "chaplygin_sleigh": "a",
    "snakeboard": "speed",
    "rolling_disk": "wobble",
    "steady_disk": "precession",
    "rolling_coin": "turn",
    "bouncing_ball": "e",
    "friction_oscillator": "friction",
    "hanging_chain": "l",
    "four_bar_modes": "g",
    "whipple": "speed",
}
"""The parameter of the reference derivative."""


BY_SCIPY = {"governor": "Radau", "crank": "Radau", "fekete": "DOP853", "wheelset": "DOP853"}
"""Problems whose extrapolation takes too long, and the method for each."""


def parameters(name: str, number: Any, **changed: Any) -> SimpleNamespace:
    """Return the parameters of a problem as numbers of a library, made from their decimals."""
    fields = {}
    if name == "andrews":
        squeezer = uk.systems.AndrewsSqueezer()
        names = [each for each in squeezer.__dataclass_fields__ if np.shape(getattr(squeezer, each)) == ()]
        names = [each for each in names if getattr(squeezer, each) is not None]
        fields = {each: number(repr(float(getattr(squeezer, each)))) for each in names}
        fields |= {each: [number(repr(float(x))) for x in getattr(squeezer, each)] for each in ("m", "I")}
    own = uk.verify.problem(name).parameters
    return SimpleNamespace(**(fields | {key: number(repr(float(x))) for key, x in own.items()} | changed))


def equations(name: str, module: Any, number: Any, **changed: Any):
    """Return y' as a function of (t, y), and the start, for mpmath or NumPy."""
    model: Any = MODELS[name]
    p = parameters(name, number, **changed)
    start = [number(x) if module is mp else float(x) for x in model.start(module, p)]
    if not isinstance(model.equations, Points):
        return (lambda t, y: model.equations(module, p, t, y)), start, p
    if len(start) == 2 and name != "bead_on_hoop":
        return by_jets(model.equations, p, module), start, p
    exact = parameters(name, sympy.Rational, **{k: sympy.Rational(mp.nstr(x, 34)) for k, x in changed.items()})
    return by_symbols(model.equations, exact, len(start) // 2, "mpmath" if module is mp else "numpy"), start, p


def equations_apart(name: str) -> float:
    """Return the largest difference of the equations from those by differences, near the start and in motion."""
    with mp.workdps(DIGITS):
        rhs, start, p = equations(name, mp, mp.mpf)
        y = [x + mp.mpf(i + 1) / 100 for i, x in enumerate(start)]
        other = by_differences(cast(Points, MODELS[name].equations), p)
        return float(max(abs(a - b) for a, b in zip(rhs(mp.mpf(0), y), other(mp.mpf(0), y), strict=True)))


def to_twenty_digits(name: str, **changed: Any) -> list:
    """Return the values by extrapolation in mpmath."""
    rhs, start, p = equations(name, mp, mp.mpf, **changed)
    times = [mp.mpf(t) for t in MODELS[name].times]
    return MODELS[name].compared(mp, p, times[-1], integrate(rhs, times, start, TOLERANCE)[-1])


def scipy_solver(name: str) -> Callable:
    """Return the function (rtol, method) -> values by SciPy, its equations derived beforehand."""
    module = SimpleNamespace(sin=np.sin, cos=np.cos, sqrt=np.sqrt, pi=np.pi)
    rhs, start, p = equations(name, module, float)
    times = [float(t) for t in MODELS[name].times]
    rate = lambda t, y: np.array(rhs(t, y), float)

    def solve(rtol: float, method: str = "DOP853") -> np.ndarray:
        found = scipy.integrate.solve_ivp(rate, times, start, method, rtol=rtol, atol=rtol)
        return np.array(MODELS[name].compared(module, p, times[-1], found.y[:, -1]), float)

    return solve


def values(name: str, **changed: Any) -> list:
    """Return the values in closed form, or else by extrapolation or by SciPy."""
    if name in CLOSED_FORMS:
        return CLOSED_FORMS[name](parameters(name, mp.mpf, **changed))
    if name in BY_SCIPY:
        return [mp.mpf(float(x)) for x in scipy_solver(name)(1e-13, BY_SCIPY[name])]
    return to_twenty_digits(name, **changed)


def slope(name: str, parameter: str) -> list:
    """Return the derivative by central differences of order 4 in 34 digits."""
    at = getattr(parameters(name, mp.mpf), parameter)
    step = abs(at) * mp.mpf(10) ** -5
    near = {k: values(name, **{parameter: at + k * step}) for k in (-2, -1, 1, 2)}
    return [(8 * (c - b) - (d - a)) / (12 * step) for a, b, c, d in zip(*near.values(), strict=True)]


def main() -> None:
    uk.enable_float64()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify_references", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    for name in parser.parse_args().names or list(dict.fromkeys([*MODELS, *CLOSED_FORMS])):
        problem, first = uk.verify.problem(name), values(name)
        apart = lambda x, y=first: float(max(abs(a - b) for a, b in zip(x, y, strict=True)) / max(map(abs, y)))
        row: dict[str, Any] = {"name": name, "values": [mp.nstr(x, 20) for x in first]}
        if name in MODELS:
            if isinstance(MODELS[name].equations, Points):
                row["equations"] = equations_apart(name)
            row["scipy"] = apart(map(mp.mpf, map(float, scipy_solver(name)(1e-13))))
            if name in CLOSED_FORMS:
                row["extrapolation"] = apart(to_twenty_digits(name))
        row["stored"] = apart([mp.mpf(repr(x)) for x in problem.reference])
        if name in PARAMETERS:
            rates = slope(name, PARAMETERS[name])
            row |= {"parameter": PARAMETERS[name], "derivative": [mp.nstr(x, 20) for x in rates]}
            if problem.derivative is not None:
                row["stored derivative"] = apart([mp.mpf(repr(x)) for x in problem.derivative.values], rates)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

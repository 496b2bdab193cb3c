"""Butcher tableaux of explicit Runge–Kutta methods."""

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, get_origin

import numpy as np

from ..._check import repr_of
from ..._errors import InputError
from ..._run.compile import LRUCache


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of an explicit Runge–Kutta method. It is one constant of a program, not a pytree of numbers.

    ``c``: times of the stages; ``a``: rows of weights of earlier stages; ``b``: weights of the result; ``b_error``:
    ``b`` minus the weights of an embedded method of lower order, an error that decreases as h to the ``order``.
    """

    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    b_error: tuple[float, ...]
    order: int

    @classmethod
    def of(cls, solver: Any) -> "Tableau":
        """The tableau of an explicit Runge–Kutta solver of diffrax."""
        key = type(solver), *(getattr(solver, field.name) for field in fields(solver))
        try:
            return _tableaux.of(key, lambda: cls._read(solver))
        except TypeError:  # a field that cannot be hashed
            return cls._read(solver)

    @classmethod
    def _read(cls, solver):
        tableau = solver.tableau
        numbers = lambda x: tuple(float(value) for value in x)
        order = solver.error_order(None) or solver.order(None)
        rows = ((), *map(numbers, tableau.a_lower))
        return cls((0.0, *numbers(tableau.c)), rows, numbers(tableau.b_sol), numbers(tableau.b_error), int(order))

    @property
    def stages(self) -> int:
        return len(self.c)

    def weights(self) -> np.ndarray:
        """The rows ``a``, padded with zeros, shape (stages, stages)."""
        padded = np.zeros((self.stages, self.stages))
        for i, row in enumerate(self.a):
            padded[i, : len(row)] = row
        return padded


_tableaux = LRUCache(64)


def tableau_of(solver: Any) -> Tableau | None:
    """The tableau of a solver, the default for None; None if it is not an explicit Runge–Kutta method of diffrax."""
    if solver is None:
        return DOPRI8
    import diffrax as dfx  # slow import; a user with such a solver has imported it already

    return Tableau.of(solver) if isinstance(solver, dfx.AbstractERK) else None


def order_of(solver: Any) -> int:
    """The order of a solver of diffrax, or of an ``AbstractStepper``."""
    return solver.order if isinstance(solver.order, int) else solver.order(None)


def check_solver(solver: Any, explicit: bool = False) -> None:
    """Raise ``InputError`` unless ``solver`` is None or a diffrax solver of one vector field, an ``explicit``
    Runge–Kutta method if that is set.
    """
    if solver is None:
        return
    if isinstance(solver, str) and solver == "auto":
        raise InputError(
            "solver='auto' is for ukjax.simulate, which chooses by the values of one motion or batch: give a solver "
            "here, or leave it out for the default"
        )
    import diffrax as dfx  # slow import; a user with such a solver has imported it already

    if not isinstance(solver, dfx.AbstractERK if explicit else dfx.AbstractSolver):
        kind = "an explicit Runge–Kutta method" if explicit else "a solver"
        raise InputError(f"solver must be {kind} of diffrax, such as diffrax.Dopri5(), got {repr_of(solver)}")
    if isinstance(solver, dfx.AbstractERK) and isinstance(solver, dfx.AbstractWrappedSolver):
        raise InputError(
            f"solver must be the Runge–Kutta method itself, without {type(solver).__name__} around it: "
            f"{repr_of(solver.solver)}"
        )
    terms = solver.term_structure
    terms = get_origin(terms) or terms
    if not (isinstance(terms, type) and issubclass(dfx.ODETerm, terms)):
        raise InputError(
            f"solver must integrate one vector field, but {type(solver).__name__} integrates a sum or a set of "
            "several: use ukjax.Radau() or diffrax.Kvaerno5() for stiff systems, and the default for others"
        )


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(Fraction(number)) for number in text.split())


_EIGHTH = _numbers(
    "14005451/335480064 0 0 0 0 -59238493/1068277825 181606767/758867731 561292985/797845732 -1041891430/1371343529 "
    "760417239/1151165299 118820643/751138087 -528747749/2220607170 1/4"
)
_SEVENTH = _numbers(
    "13451932/455176623 0 0 0 0 -808719846/976000145 1757004468/5645159321 656045339/265891186 -3867574721/1518517206 "
    "465885868/322736535 53011238/667516719 2/45 0"
)
DOPRI8 = Tableau(
    c=_numbers("0 1/18 1/12 1/8 5/16 3/8 59/400 93/200 5490023248/9719169821 13/20 1201146811/1299019798 1 1"),
    a=tuple(
        map(
            _numbers,
            (
                "",
                "1/18",
                "1/48 1/16",
                "1/32 0 3/32",
                "5/16 0 -75/64 75/64",
                "3/80 0 0 3/16 3/20",
                "29443841/614563906 0 0 77736538/692538347 -28693883/1125000000 23124283/1800000000",
                "16016141/946692911 0 0 61564180/158732637 22789713/633445777 545815736/2771057229 "
                "-180193667/1043307555",
                "39632708/573591083 0 0 -433636366/683701615 -421739975/2616292301 100302831/723423059 "
                "790204164/839813087 800635310/3783071287",
                "246121993/1340847787 0 0 -37695042795/15268766246 -309121744/1061227803 -12992083/490766935 "
                "6005943493/2108947869 393006217/1396673457 123872331/1001029789",
                "-1028468189/846180014 0 0 8478235783/508512852 1311729495/1432422823 -10304129995/1701304382 "
                "-48777925059/3047939560 15336726248/1032824649 -45442868181/3398467696 3065993473/597172653",
                "185892177/718116043 0 0 -3185094517/667107341 -477755414/1098053517 -703635378/230739211 "
                "5731566787/1027545527 5232866602/850066563 -4093664535/808688257 3962137247/1805957418 "
                "65686358/487910083",
                "403863854/491063109 0 0 -5068492393/434740067 -411421997/543043805 652783627/914296604 "
                "11173962825/925320556 -13158990841/6184727034 3936647629/1978049680 -160528059/685178525 "
                "248638103/1413531060 0",
            ),
        )
    ),
    b=_EIGHTH,
    b_error=tuple(eighth - seventh for eighth, seventh in zip(_EIGHTH, _SEVENTH, strict=True)),
    order=8,
)
"""P. J. Prince & J. R. Dormand, J. Comput. Appl. Math. 7 (1981) 67: RK8(7)13M, the default method for adaptive steps.
"""

RUNGE_KUTTA4 = Tableau(
    c=(0.0, 0.5, 0.5, 1.0),
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    b=_numbers("1/6 1/3 1/3 1/6"),
    b_error=(0.0,) * 4,
    order=4,
)
"""W. Kutta, Z. Math. Phys. 46 (1901) 435."""

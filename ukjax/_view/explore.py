"""Sliders for parameters and starts of a system, which simulate it again."""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._check import as_array, as_number, kind_of, repr_of
from .._errors import InputError
from .._extras import extra_package
from .._labels import named_coordinates, named_directions, state_names, title_of
from .._mechanism import Mechanism
from .._motion.consistent.project import project
from .._motion.simulate.simulate import simulate
from .._motion.trajectory.trajectory import Trajectory
from .._names import did_you_mean
from .._parameters import Place, find, put, value_at
from .._precision import Numbers
from .._system import AbstractSystem
from .._with_states import with_given_states, with_initial_states
from .moving import moving_picture
from .page import View, page_of
from .scene import scene
from .server import serve

MAX_PARAMETERS, MAX_STARTS = 8, 3
"""Largest numbers of sliders for parameters and for coordinates of the start, if no names are given."""

TOLERANCE = 1e-7
"""Relative and absolute tolerance of the steps: a picture needs no more."""


class Slider(NamedTuple):
    """A number that a slider changes.

    Attributes
    ----------
    name
        Name of a parameter (``m1``, ``ma[2]``, ``bodies.rod.mass``), of a coordinate of the start (``q1``), or of its
        rate (``dq1``).
    value
        Its first value.
    low, high
        The ends of the slider.
    """

    name: str
    value: float
    low: float
    high: float


class Exploration:
    """A system whose parameters and start can be changed by sliders. Notebooks display it; see ``explore``.

    Attributes
    ----------
    sliders
        The numbers that can be changed.
    """

    def __init__(
        self,
        system: Any,
        names: Iterable[str] | None,
        ranges: Mapping[str, Any],
        start: tuple[Any, Any],
        t1: float,
        samples: int,
        outline: Callable | None,
    ):
        q0, v0 = start
        self._system, self._q0, self._v0, self._outline = system, q0, v0, outline
        starts = [name for name, _ in named_coordinates(system, q0.size)]
        extended = with_given_states(system, q0, v0)
        directions = [name for name, _ in named_directions(extended, v0.size) or named_coordinates(system, v0.size)]
        states = [name for name, _ in state_names(extended)]
        rates = [*(f"d{name}" for name in directions[: len(directions) - len(states)]), *states]
        self._state = {name: (0, i) for i, name in enumerate(starts)} | {name: (1, i) for i, name in enumerate(rates)}
        chosen = _usual(system, q0, v0, starts, rates) if names is None else list(names)
        self._places = {name: self._place(name) for name in chosen if name not in self._state}
        self.sliders = tuple(self._slider(name, ranges) for name in chosen)
        if unknown := [name for name in ranges if name not in chosen]:
            raise InputError(f"ranges names {unknown[0]!r}, which has no slider{did_you_mean(unknown[0], chosen)}")
        self._lock = threading.Lock()
        ts, step = np.linspace(0.0, t1, samples), getattr(system, "step", None)
        steps: dict[str, Any] = {"rtol": TOLERANCE, "atol": TOLERANCE} if step is None else {"dt": step}
        fixed = tuple(name for name in chosen if name in starts)

        @eqx.filter_jit
        def program(model, q0, v0):
            return simulate(model, *project(model, 0.0, q0, v0, fixed=fixed), ts, **steps).without_model()

        self._program = program

    def motion(self, values: Mapping[str, float] | None = None, **others: float) -> Trajectory:
        """Simulate with some values changed.

        Parameters
        ----------
        values
            Values by the names of the sliders. The others have their first values.
        **others
            The same as keywords, for names that are valid keywords.

        Returns
        -------
        Trajectory
            The motion. ``finished`` is False if it did not reach its end.

        Raises
        ------
        InputError
            If a name has no slider, a value is not a finite number, or no start on the constraints is found.
        """
        model, start = self._system, [self._q0, self._v0]
        known = [slider.name for slider in self.sliders]
        for name, value in (dict(values or {}) | others).items():
            if name not in known:
                raise InputError(f"there is no slider {name!r}{did_you_mean(name, known)}")
            number = as_number(name, value)
            if not np.isfinite(number):
                raise InputError(f"{name} must be a finite number, got {float(number)}")
            if name in self._places:
                model = put(model, [self._places[name]], [number])
            else:
                level, i = self._state[name]
                start[level] = start[level].at[i].set(number)
        with self._lock:
            motion = self._program(model, *start)
        if not np.all(np.isfinite(np.asarray(motion.q[0]))):
            raise InputError("no start on the constraints was found near these values")
        return replace(motion, model=model)

    def view(self, values: Mapping[str, float] | None = None) -> View:
        """The animation of ``ukjax.view`` with some values changed.

        Parameters
        ----------
        values
            Values by the names of the sliders.

        Returns
        -------
        View
            The page.
        """
        written = scene(self.motion(values), self._outline)
        return View(written["title"], page_of(written))

    def serve(self, port: int = 0, show: bool = True) -> None:
        """Serve a page with the sliders on this machine alone, until Ctrl-C.

        Parameters
        ----------
        port
            Port at the address 127.0.0.1; 0 chooses a free one.
        show
            Whether the page is opened in the browser, if this machine has a screen.

        Raises
        ------
        InputError
            If the port cannot be used.
        """
        serve(self, port, show)

    def page(self) -> str:
        """The page with the sliders, for ``serve``."""
        written = scene(self.motion(), self._outline) | {"sliders": [slider._asdict() for slider in self.sliders]}
        controls = '<section><h2>Parameters and start</h2><div id="sliders"></div><p id="problem"></p></section>'
        return page_of(written, controls, ("explore",))

    def scene(self, values: Mapping[str, float]) -> dict[str, Any]:
        """The data that the page shows after a slider has moved, without the shapes of bodies, which the page already
        has."""
        written = scene(self.motion(values), self._outline)
        shapes = "edges", "vertices", "faces"
        bodies = [{key: x for key, x in body.items() if key not in shapes} for body in written["bodies"]]
        return written | {"bodies": bodies}

    def __repr__(self) -> str:
        names = ", ".join(slider.name for slider in self.sliders)
        return f"Exploration of {title_of(self._system)}, sliders: {names}; .serve() opens a browser"

    def widget(self) -> Any:
        """The sliders and the animation as a widget, which notebooks display.

        Returns
        -------
        ipywidgets.Widget
            The widget.

        Raises
        ------
        MissingPackageError
            If ipywidgets is not installed.
        """
        widgets: Any = extra_package("ipywidgets", "explore", "the display of uk.explore in a notebook")
        picture, problem = widgets.HTML(), widgets.Label()
        style = {"description_width": "10em"}
        sliders = [
            widgets.FloatSlider(
                value=each.value,
                min=each.low,
                max=each.high,
                step=(each.high - each.low) / 200,
                description=each.name,
                readout_format=".4g",
                style=style,
            )
            for each in self.sliders
        ]

        def renew(_=None):
            try:
                values = {slider.name: each.value for slider, each in zip(self.sliders, sliders, strict=True)}
                picture.value, problem.value = moving_picture(self.motion(values), self._outline), ""
            except InputError as error:
                problem.value = str(error)

        for each in sliders:
            each.observe(renew, "value")
        renew()
        return widgets.HBox([picture, widgets.VBox([*sliders, problem])])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.widget())

    def _place(self, name: str) -> Place:
        if not isinstance(name, str):
            raise InputError(f"names must be several names, such as 'm1' or 'dq1', got {name!r}")
        try:
            place, array = find(self._system, name, "slider")
        except InputError as error:
            raise InputError(f"{error} Coordinates of the start: {', '.join(self._state)}") from None
        if place.index is None and array.shape != ():
            raise InputError(f"slider {name!r} has {array.size} entries: name one of them, such as {name}[0]")
        return place if place.index is not None else place._replace(index=())

    def _slider(self, name: str, ranges: Mapping[str, Any]) -> Slider:
        if name in self._places:
            value = float(value_at(self._system, self._places[name]))
            low, high = (0.2 * value, 3.0 * value) if value else (-1.0, 1.0)
        else:
            level, i = self._state[name]
            value = float((self._q0, self._v0)[level][i])
            reach = (np.pi, 1.0)[level] if abs(value) < 0.5 else 2 * abs(value)
            low, high = value - reach, value + reach
        if name in ranges:
            low, high = _range(name, ranges[name])
        low, high = min(low, high), max(low, high)
        if not low <= value <= high:
            raise InputError(f"ranges[{name!r}] must contain the first value {value:g}, got ({low:g}, {high:g})")
        return Slider(name, value, low, high)


def explore(
    system: Any,
    names: Any = None,
    *,
    ranges: Any = None,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t1: Any = None,
    samples: Any = 201,
    outline: Callable | None = None,
) -> Exploration:
    """Change parameters and the start of a system by sliders, and see the new motion.

    In a notebook the result displays sliders and an animation (``pip install 'ukjax[explore]'``).
    ``explore(system).serve()`` opens a page in the browser, as ``ukjax explore NAME`` does.

    The simulation is compiled once, with the parameters and the start as its arguments. Starts are projected onto the
    constraints; the coordinates that have sliders keep their values. Tolerances are 1e-7, or the step is that of the
    system.

    Parameters
    ----------
    system : System
        A system of the gallery, a ``Mechanism``, or a ``System`` with ``outline``.
    names : iterable of str
        Names of the sliders: parameters as in ``fit`` (``m1``, ``ma[2]``, ``bodies.rod.mass``), coordinates of the
        start (``q1``) and their rates (``dq1``). By default up to eight numbers among the fields of the system, and
        up to three independent coordinates with their rates.
    ranges : dict
        Ends of sliders by name: ``{"m1": (0.5, 2.0)}``.
    q0, v0
        Start (nq,) and (n,). By default that of the system.
    t1 : float
        End time [s]. By default that of the system.
    samples : int
        Number of samples of each motion.
    outline
        As for ``view``.

    Returns
    -------
    Exploration
        The sliders and the simulation.

    Raises
    ------
    InputError
        If the system has no start or outline and none is given, or a name or range is wrong.
    """
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System or a mechanism, got {kind_of(system)}")
    if outline is None and not callable(getattr(system, "outline", None)):
        raise InputError(f"explore needs outline(t, q), the lines of a picture, and {title_of(system)} has none")
    start: Any = getattr(system, "start", None)
    if (q0 is None or v0 is None) and start is None:
        raise InputError(f"explore needs q0 and v0: {title_of(system)} has no start of its own")
    usual = start() if q0 is None or v0 is None else (q0, v0)
    state = as_array("q0", usual[0] if q0 is None else q0), as_array("v0", usual[1] if v0 is None else v0)
    end = as_number("t1", getattr(system, "end", 10.0) if t1 is None else t1, "s", above=0)
    if not isinstance(samples, int) or samples < 2:
        raise InputError(f"samples must be a whole number, at least 2, got {repr_of(samples)}")
    if not isinstance(ranges, Mapping | None):
        raise InputError(f"ranges must be a dictionary, name -> (low, high), got {kind_of(ranges)}")
    names = [names] if isinstance(names, str) else names
    return Exploration(system, names, dict(ranges or {}), state, float(end), samples, outline)


def _range(name, given):
    try:
        low, high = (float(x) for x in given)
    except (TypeError, ValueError):
        raise InputError(f"ranges[{name!r}] must be two numbers, (low, high), got {given!r}") from None
    if not -math.inf < low < high < math.inf:
        raise InputError(f"ranges[{name!r}] must be two finite numbers, low < high, got ({low:g}, {high:g})")
    return low, high


def _usual(system: Any, q0, v0, starts, rates):
    """Names of the scalar fields of a system, and of independent coordinates with their rates."""
    is_scalar = lambda x: eqx.is_inexact_array(x) and x.shape == ()
    fields_of = () if isinstance(system, Mechanism) else fields(system)  # every eqx.Module is a dataclass
    parameters = [field.name for field in fields_of if is_scalar(getattr(system, field.name, None))]
    names = parameters[:MAX_PARAMETERS]
    if q0.shape != v0.shape:
        return names
    import scipy.linalg  # slow import, not needed for other pages

    equations, v0 = with_initial_states(system, q0, v0)
    A = np.asarray(equations(jnp.zeros(()), q0, v0).A)[:, : q0.size]
    free = np.eye(q0.size) if not A.size else scipy.linalg.null_space(A, rcond=1e-9)
    pivots: Any = scipy.linalg.qr(free.T, pivoting=True)[-1]  # the coordinates that determine the others
    chosen = sorted(pivots[: min(free.shape[1], MAX_STARTS)].tolist())
    return [*names, *(starts[i] for i in chosen), *(rates[i] for i in chosen)]

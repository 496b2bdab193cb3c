"""The fingerprint of a computation changes with each of its inputs, and with nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ukjax as uk
from ukjax import _fingerprint as fingerprint_module
from ukjax._ensemble.plan import fingerprint_of, plan_of
from ukjax._estimate import checkpoint as checkpoint_module
from ukjax._fingerprint import Digest, describe, first_difference, with_digest

TABLE, SCALE = np.array([1.0, 2.0, 3.0]), 2.0


def weights(size=1.0):
    network = eqx.nn.MLP(1, 1, 3, 1, key=jax.random.key(0), dtype=float)
    return eqx.tree_at(lambda n: n.layers[0].weight, network, size * network.layers[0].weight)


def host_force(size, power):
    """The function of a callback: NumPy, with values of a closure, of a module and of a default argument."""

    def force(q, factor=power):
        return np.asarray(SCALE * size * q * factor)

    return force


@jax.custom_vjp
def stiff(q):
    return 3.0 * q


stiff.defvjp(lambda q: (stiff(q), None), lambda _, g: (g,))


class Spring(uk.AbstractSystem):
    """A mass on a spring, with forces of all kinds that a user may write."""

    mass: Any = eqx.field(default=1.0, converter=jnp.asarray)
    stiffness: Any = eqx.field(default=4.0, converter=jnp.asarray)
    table: Any = eqx.field(default=(1.0, 2.0, 3.0), static=True)
    size: float = eqx.field(default=1.0, static=True)
    callback: Any = eqx.field(default=None, static=True)
    branch: float = eqx.field(default=1.0, static=True)
    loop: float = eqx.field(default=1.0, static=True)
    coordinates: ClassVar[Any] = (("x", "m"),)

    @property
    def dynamics(self):
        network, table = weights(self.size), np.array(self.table)
        read = jax.jit(lambda q: jnp.interp(q[0], np.arange(3.0), table)[None])
        learnt = eqx.filter_jit(lambda q: network(q))
        steps = np.array([self.loop, 2.0])

        def force(t, q, v):
            total = read(q) + learnt(q) + stiff(q) - self.stiffness * q
            total += jax.lax.cond(q[0] > 0, lambda q: q * np.array([self.branch]), lambda q: q, q)
            total += jax.lax.scan(lambda s, step: (s + step * q, None), jnp.zeros_like(q), steps)[0]
            if self.callback is not None:
                total += jax.pure_callback(self.callback, jax.ShapeDtypeStruct(q.shape, q.dtype), q)
            return total

        return uk.MassForce(lambda t, q: self.mass * jnp.eye(1), force)

    @property
    def constraints(self):
        return ()


def largest(factor):
    return lambda motion: {"largest": factor * jnp.max(motion.q)}


class Kept(eqx.Module):
    """A function of a trajectory with an array as a field."""

    weight: Any = eqx.field(converter=jnp.asarray)

    def __call__(self, motion):
        return self.weight * motion.q[-1, 0]


def pushed(by):
    return lambda model, q0, v0: (q0 + by, v0)


def of(**changes: Any) -> dict[str, Any]:
    """The fingerprint of an ensemble of springs."""
    given: dict[str, Any] = dict(
        system=Spring(), over={"mass": scipy.stats.norm(1.0, 0.1), "x": uk.Uniform(0.1, 0.2)}, members=16,
        ts=[0.0, 0.1, 0.2], q0=[0.1], v0=[0.0], combine=None, seed=0, start_of=None, fix_swept=False, keep="samples",
        chunk=None, drift=None, dt=0.05, rtol=None, atol=None, method="orthogonal", solver=None, event=None,
        max_steps=1000,
    )  # fmt: skip
    return fingerprint_of(plan_of(**given | changes), "store")


NORMAL = {"x": uk.Uniform(0.1, 0.2)}
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "a number of the model": {"system": Spring(mass=1.1)},
    "another number": {"system": Spring(stiffness=4.1)},
    "a table inside jit": {"system": Spring(table=(1.0, 2.0, 3.1))},
    "weights inside jit": {"system": Spring(size=1.0 + 1e-12)},
    "a number inside a branch": {"system": Spring(branch=1.5)},
    "an array that a loop goes through": {"system": Spring(loop=1.5)},
    "a callback": {"system": Spring(callback=host_force(1.0, 2.0))},
    "what a callback holds": {"system": Spring(callback=host_force(1.5, 2.0))},
    "a default argument of a callback": {"system": Spring(callback=host_force(1.0, 2.5))},
    "rtol of the method": {"method": uk.Orthogonal(rtol=1e-3)},
    "another rtol of the method": {"method": uk.Orthogonal(rtol=1e-4)},
    "the method": {"method": "kkt"},
    "the solver": {"solver": diffrax.Tsit5(), "drift": "none"},
    "an implicit solver": {"solver": diffrax.Kvaerno3(), "drift": "none"},
    "a number of a solver": {
        "solver": diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-3, atol=1e-3)),
        "drift": "none",
    },
    "dt": {"dt": 0.025},
    "rtol": {"dt": None, "rtol": 1e-6},
    "another rtol": {"dt": None, "rtol": 1e-7},
    "atol": {"dt": None, "rtol": 1e-6, "atol": 1e-8},
    "ts": {"ts": [0.0, 0.1, 0.3]},
    "q0": {"q0": [0.11]},
    "v0": {"v0": [0.01]},
    "drift": {"drift": "none"},
    "max_steps": {"max_steps": 1001},
    "members": {"members": 17},
    "seed": {"seed": 1},
    "combine": {"combine": "sobol"},
    "loc": {"over": NORMAL | {"mass": scipy.stats.norm(1.1, 0.1)}},
    "scale": {"over": NORMAL | {"mass": scipy.stats.norm(1.0, 0.2)}},
    "loc and scale by name": {"over": NORMAL | {"mass": scipy.stats.norm(loc=1.0, scale=0.3)}},
    "shape": {"over": NORMAL | {"mass": scipy.stats.gamma(2.0, 1.0, 0.1)}},
    "another shape": {"over": NORMAL | {"mass": scipy.stats.gamma(3.0, 1.0, 0.1)}},
    "scale behind a shape": {"over": NORMAL | {"mass": scipy.stats.gamma(2.0, 1.0, 0.2)}},
    "far tails": {"over": NORMAL | {"mass": scipy.stats.truncnorm(-4, 4, 1.0, 0.1)}},
    "farther tails": {"over": NORMAL | {"mass": scipy.stats.truncnorm(-5, 5, 1.0, 0.1)}},
    "a uniform distribution": {"over": NORMAL | {"mass": uk.Uniform(0.9, 1.1)}},
    "bounds of it": {"over": NORMAL | {"mass": uk.Uniform(0.9, 1.1 + 1e-15)}},
    "a grid": {"over": {"mass": uk.Grid(0.9, 1.1, 16)}},
    "bounds of a grid": {"over": {"mass": uk.Grid(0.9, 1.1 + 1e-15, 16)}},
    "combined grids": {"over": {"mass": uk.Grid(0.9, 1.1, 8), "x": uk.Grid(0.1, 0.2, 2)}},
    "values": {"over": {"mass": [1.0, 2.0] * 8}},
    "other values": {"over": {"mass": [1.0, 2.5] * 8}},
    "keep": {"keep": "end"},
    "a function to keep": {"keep": largest(1.0)},
    "a number in a function to keep": {"keep": largest(1.5)},
    "an array of a module to keep": {"keep": Kept(1.0)},
    "another array of it": {"keep": Kept(1.5)},
    "start_of": {"start_of": pushed(0.1)},
    "a number in start_of": {"start_of": pushed(0.2)},
    "fix_swept": {"fix_swept": True},
    "event": {"event": lambda t, q, v: q[0] - 0.5},
    "a number in an event": {"event": lambda t, q, v: q[0] - 0.6},
    "direction of an event": {"event": uk.Event(lambda t, q, v: q[0] - 0.5, "falling")},
    "a version of the numbers": {"NUMERICS": 99},
    "the version": {"__version__": "9.9"},
    "the version of JAX": {"jax": "9.9"},
}


CENTRAL = (
    "as it is",
    "a number of the model",
    "a table inside jit",
    "weights inside jit",
    "what a callback holds",
    "rtol of the method",
    "another rtol of the method",
    "a number of a solver",
    "scale",
    "far tails",
    "a number in a function to keep",
    "an array of a module to keep",
    "a version of the numbers",
)
"""The changes that take little time."""


def fingerprints(names) -> dict[str, str]:
    found = {}
    for name in names:
        change = dict(CHANGES[name])
        with pytest.MonkeyPatch.context() as patch:
            for version in {"NUMERICS", "__version__"} & set(change):
                patch.setattr(fingerprint_module, version, change.pop(version))
            if "jax" in change:
                patch.setattr(jax, "__version__", change.pop("jax"))
            found[name] = of(**change)["fingerprint"]
    return found


def all_differ(found):
    names = list(found)
    return not [(a, b) for i, a in enumerate(names) for b in names[:i] if found[a] == found[b]]


def test_main_inputs_of_ensemble_change_its_fingerprint():
    assert all_differ(fingerprints(CENTRAL))


@pytest.mark.slow
def test_fingerprint_of_ensemble_changes_with_inputs_and_not_with_process():
    """The other process has another seed for the hashes of strings, by which Python orders sets."""
    here = fingerprints(CHANGES)
    assert all_differ(here)
    script = (
        "import json, ukjax as uk; uk.enable_float64()\n"
        "from tests.system.test_fingerprint import CHANGES, fingerprints\nprint(json.dumps(fingerprints(CHANGES)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == here


def touching(gap=0.0, slip=1.0, limit=1.0, restitution=0.5, period=0.1, delay=0.0):
    """A mass with a contact, dry friction and sampled control, which its terms do not show."""
    contacts = uk.Unilateral(lambda t, q: q + gap, restitution), uk.Coulomb(lambda t, q, v: slip * v[0], limit)
    law = uk.control.Feedback(jnp.eye(1), lambda t, q, v: -v)
    control = uk.control.Sampled(law, period, delay)
    return uk.System(uk.MassForce(jnp.eye(1), jnp.zeros(1)), contacts, control=control)


def test_contacts_and_sampling_change_the_fingerprint():
    changes = {"gap": 0.1, "slip": 2.0, "limit": 2.0, "restitution": 0.6, "period": 0.2, "delay": 0.05}
    systems = {"none": touching(), **{name: touching(**{name: value}) for name, value in changes.items()}}
    found = {name: of(system=each, over={"q1": [0.1, 0.2]}, members=2) for name, each in systems.items()}
    assert all_differ(found)
    assert found["none"] == of(system=touching(), over={"q1": [0.1, 0.2]}, members=2)


def test_equal_inputs_have_equal_fingerprints():
    for name in ("as it is", "a callback"):
        assert of(**CHANGES[name]) == of(**CHANGES[name])
    assert of(system=Spring(callback=host_force(1.0, 2.0))) == of(**CHANGES["a callback"])


class Recorder:
    """A callback with a field that may exist only in this process."""

    def __init__(self, file):
        self.file = file

    def __call__(self, q):
        return np.asarray(q)


def test_callback_without_a_digest_is_an_error(tmp_path):
    with open(tmp_path / "log", "w") as file:
        model = Spring(callback=Recorder(file))
        with pytest.raises(
            ValueError, match="store cannot be used here: the function 'Recorder', called by jax.pure_"
        ) as e:
            of(system=model)
        assert "holds a TextIOWrapper" in str(e.value) and "leave store out" in str(e.value)
    assert of(system=Spring(callback=Recorder("log")))["fingerprint"] != of(system=Spring())["fingerprint"]


def test_module_value_that_a_callback_reads_changes_fingerprint(monkeypatch):
    model = Spring(callback=host_force(1.0, 2.0))
    before = of(system=model)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert first_difference(before, of(system=model)).startswith("'functions of the model' is")


def test_ensemble_in_memory_computes_no_digest(monkeypatch):
    monkeypatch.setattr(fingerprint_module, "digest_of_functions", None)
    model = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -q))
    assert uk.ensemble(model, {"q1": [0.1, 0.2]}, ts=[0.0, 0.1], q0=[0.1], v0=[0.0], dt=0.1).complete


# --- checkpoints ------------------------------------------------------------------------------------------------------

T = np.linspace(0.0, 0.4, 5)
Y = np.cos(2 * T)[:, None]


class Damped(uk.AbstractSystem):
    m: Any = eqx.field(default=1.0, converter=jnp.asarray)
    k: Any = eqx.field(default=4.0, converter=jnp.asarray)
    load: Any = eqx.field(default=0.0, converter=jnp.asarray)
    size: float = eqx.field(default=1.0, static=True)

    @property
    def dynamics(self):
        factor = jax.jit(lambda q: np.array([self.size]) * q)
        return uk.MassForce(lambda t, q: self.m * jnp.eye(1), lambda t, q, v: self.load - self.k * factor(q))

    @property
    def constraints(self):
        return ()


class Stop(Exception):
    pass


def fit_of(monkeypatch, model=None, t=T, y=Y, start=((1.0,), (0.0,)), free="k", **how: Any) -> str:
    """The fingerprint of a fit, which then stops."""
    record = {name: how.pop(name) for name in ("sigma", "measured", "setting") if name in how}
    experiments = [uk.Experiment(t, y, start, **record)] * how.pop("records", 1)
    found = []

    def noted(self, path, parameters, fingerprint):
        found.append(fingerprint["fingerprint"])
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module.Checkpoint, "__init__", noted)
        with pytest.raises(Stop):
            uk.fit(Damped() if model is None else model, experiments, free, checkpoint="state.json", **how)
    return found[0]


@pytest.mark.slow
def test_all_inputs_of_a_fit_change_its_fingerprint(monkeypatch):
    changes: dict[str, dict[str, Any]] = {
        "as it is": {},
        "a number of the model": {"model": Damped(m=1.1)},
        "the first guess": {"model": Damped(k=4.1)},
        "an array inside jit": {"model": Damped(size=1.5)},
        "t": {"t": T + np.array([0, 0, 1e-6, 0, 0])},
        "y": {"y": Y + 1e-12},
        "sigma": {"sigma": 0.1},
        "another sigma": {"sigma": 0.2},
        "measured": {"measured": np.arange(5)[:, None] != 2},
        "start": {"start": ((1.1,), (0.0,))},
        "setting": {"setting": {"load": 0.5}},
        "another setting": {"setting": {"load": 0.6}},
        "another record": {"records": 2},
        "free": {"free": ["k", "m"]},
        "observe": {"observe": lambda t, q, v: 2 * q},
        "a number in observe": {"observe": lambda t, q, v: 3 * q},
        "state": {"state": lambda model, z, t: (z[:1], z[1:])},
        "a number in state": {"state": lambda model, z, t: (2 * z[:1], z[1:])},
        "bounds": {"bounds": {"k": (1.0, 9.0)}},
        "dt": {"dt": 0.05},
        "drift": {"drift": "projection"},
        "segments": {"segments": 2, "start": (np.ones((5, 1)), np.zeros((5, 1)))},
        "continuity": {"continuity": 0.2},
        "loss": {"loss": "huber"},
        "fit_starts": {"fit_starts": False},
        "method": {"method": uk.Orthogonal(rtol=1e-3)},
    }
    found = {name: fit_of(monkeypatch, **change) for name, change in changes.items()}
    assert all_differ(found)
    assert fit_of(monkeypatch) == found["as it is"]
    assert fit_of(monkeypatch, most_evaluations=7, batch=3) == found["as it is"]


def test_rule_for_a_derivative_changes_digest():
    """It changes no value, but the path of the search."""

    def with_rule(factor):
        @jax.custom_jvp
        def pulled(q):
            return 4.0 * q

        pulled.defjvp(lambda primals, tangents: (pulled(*primals), factor * tangents[0]))
        return uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -pulled(q)))

    digest = lambda factor: fingerprint_module.digest_of_functions(
        lambda q: jax.jvp(lambda q: with_rule(factor)(0.0, q, q).Q, (q,), (q,)),
        [jax.ShapeDtypeStruct((1,), float)],
        "x",
    )
    assert digest(4.0) == digest(4.0) != digest(5.0)


# --- digests --------------------------------------------------------------------------------------------------------


def test_digest_depends_only_on_contents():
    def counted(n):
        return 1 if n == 0 else n * counted(n - 1)

    same = (
        ({"a": 1, "b": 2.0}, {"b": 2.0, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        (np.arange(3.0), jnp.arange(3.0)),
        (uk.Orthogonal(rtol=0.5), uk.Orthogonal(rtol=0.5)),
        (counted, counted),
    )
    for a, b in same:
        assert Digest().of(a) == Digest().of(b)
    different = (
        (1, 1.0), (1, True), ("1", 1), ((1, 2), [1, 2]), ((1, (2, 3)), ((1, 2), 3)), (np.zeros(2), np.zeros((1, 2))),
        (np.zeros(2), np.zeros(2, np.float32)), (0.0, -0.0), (b"a", "a"), (np.sin, np.cos), (None, "None"),
        (jax.random.key(0), jax.random.key(1)), (Recorder("a"), Recorder("b")), (np.array([1, "a"], object), [1, "a"]),
    )  # fmt: skip
    for a, b in different:
        assert Digest().of(a) != Digest().of(b), (a, b)


def test_descriptions_are_not_changed_by_json():
    about = {"a": np.arange(20.0), "b": [np.float64(0.1), np.inf, np.nan, (1, 2)], "c": None, "d": uk.RungeKutta4()}
    told = with_digest({name: describe(x) for name, x in about.items()})
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again == told and with_digest(again) == told and not first_difference(again, told)
    assert first_difference(told, told | {"b": 1}).startswith("'b' is [0.1, ")

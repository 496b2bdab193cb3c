"""Loops, branches and arrays in machine code: the same results unrolled and as loops, alone and in a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ukjax as uk
from ukjax._kernel import rare_cond
from ukjax._kernel.llvm import machine
from ukjax._kernel.lowering import MAX_OPERATIONS, MAX_UNPACKED_SIZE, _graph_of
from ukjax._kernel.unroll import loops

from ..random_functions import random_function

FORMS = {"written out": (10**9, 10**9), "loops": (1, 1), "large loops": (40, 10**9)}
CLOSE = 1e-12


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """The sizes from which loops and branches are not unrolled. LLVM verifies each text before it is compiled."""
    worth = FORMS[request.param]
    monkeypatch.setattr(loops, "MIN_LOOP_OPERATIONS", worth[0])
    monkeypatch.setattr(loops, "MIN_CHOICE_OPERATIONS", worth[1])
    compiled = machine._compiled

    def checked(text, target):
        machine.llvm.parse_assembly(text).verify()
        return compiled(text, target)

    monkeypatch.setenv("UKJAX_CACHE", "")
    monkeypatch.setattr(machine, "_compiled", checked)


def check(function, *arguments, close=CLOSE, sizes=(0, 5)):
    """Members of a batch equal the same members alone: bitwise by a kernel, and within rounding by JAX."""
    one = uk.per_member(lambda *x: function(*x), strict=True)
    batch, alone, plain = jax.jit(jax.vmap(one)), jax.jit(one), jax.jit(function)
    member = lambda i: [x[i] for x in arguments]
    found = batch(*arguments)
    for i in range(len(arguments[0])):
        expected = plain(*member(i))
        mine = jax.tree.map(lambda x, i=i: x[i], found)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=close, atol=close), mine, expected)
        if i % 5 == 0:
            jax.tree.map(np.testing.assert_array_equal, alone(*member(i)), mine)
    for size in sizes:
        part = batch(*(x[:size] for x in arguments))
        jax.tree.map(lambda x, y, n=size: np.testing.assert_array_equal(x, y[:n]), part, found)
    last = len(arguments) - 1
    if last and sizes:  # all members share the last argument
        shared = jax.jit(jax.vmap(one, (*(0,) * last, None)))(*arguments[:-1], arguments[-1][0])
        first = lambda x: np.asarray(x)[:1]
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(first(x), first(y)), shared, found)


@pytest.fixture
def x(rng):
    return rng.normal(size=(13, 3))


@pytest.fixture
def k(rng):
    return rng.integers(0, 3, 13)


@pytest.mark.parametrize("seed", range(4))
def test_random_functions(form, seed):
    """In a batch of one size and alone. The tests below change the size."""
    rng = np.random.default_rng(seed)
    check(random_function(seed), rng.normal(size=(13, 3)), rng.integers(0, 3, 13), close=1e-9, sizes=())


def test_entry_read_before_loop_is_read_again_in_each_iteration(form, x, k):
    def function(x, k):
        a = lax.dynamic_update_slice(x, x[:1], (k,))
        turn = lambda _, a: lax.dynamic_update_slice(a, a[k][None] + 1, (k,))
        return a[k], lax.fori_loop(0, 7, turn, a)[k]

    check(function, x, k)


def test_loop_that_swaps_arrays(form, x, k):
    def function(x, k):
        state = lax.dynamic_update_slice(x, x[:1], (k,)), lax.dynamic_update_slice(x, x[1:2], (k,))
        turn = lambda i, s: (lax.dynamic_update_slice(s[1], s[0][k][None] + 1, (i % 3,)), s[0])
        return lax.fori_loop(0, 7, turn, state)

    check(function, x, k)


def test_loop_ignores_members_that_do_not_take_part(form, x, k):
    """Members that take the other branch, or that have finished an outer loop. For these the loop would never end."""

    def chosen(x, k):
        double = lambda x: lax.while_loop(lambda x: x[0] < 10, lambda x: 2 * x, x)
        return lax.cond(x[0] > 0, double, lambda x: x, x)

    def nested(x, k):
        def turn(state):
            i, x = state
            goes_on = lambda y: (y[0] != 8.0) & (i < 3)
            y = lax.while_loop(goes_on, lambda y: jnp.where(y == 8, y, y + 1), jnp.where(i < 3, 0 * x, x))
            return i + 1, y + x

        return lax.while_loop(lambda s: s[0] < k, turn, (0, x))

    check(chosen, x, k)
    check(nested, x, k)


def test_constant_indices_of_the_first_of_two_iterations_stay_constant_in_a_gradient(monkeypatch, x):
    """They are not read from memory. A scatter with indices from memory compares each with all positions."""
    monkeypatch.setattr(loops, "MIN_LOOP_OPERATIONS", 1)
    x = x[:, 0]
    order = jnp.argsort(jnp.sin(jnp.arange(x.size)))

    def iterate(state, first):
        x, last = state
        last = rare_cond(first | (x[0] > 100), lambda: jnp.sin(x)[order], lambda: last)
        return (x - last**2, last), None

    gradient = jax.grad(lambda x: jnp.sum(lax.scan(iterate, (x, 0 * x), jnp.array([True, False]))[0][0]))
    graph, *_ = _graph_of(jax.make_jaxpr(gradient)(x), MAX_OPERATIONS, True, "cpu")
    names = [operation.name for operation in graph.operations]
    assert "load" not in names and names.count("cos") <= 2 * x.size


def test_two_iterations_with_same_constants_remain_a_loop(monkeypatch, x):
    """For example those of a motion with two samples, whose steps are compiled once."""
    monkeypatch.setattr(loops, "MIN_LOOP_OPERATIONS", 1)
    twice = lambda x: lax.scan(lambda y, row: (row / y, y), x[0], x[1:3])
    graph, *_ = _graph_of(jax.make_jaxpr(twice)(x[:, 0]), MAX_OPERATIONS, True, "cpu")
    assert [operation.name for operation in graph.operations].count("div") == 1


def test_indices_outside_of_an_array(form, x, k):
    place = lambda x: jnp.floor(4 * x[0]).astype(int)  # from −12 to 12 or so

    def function(x, k):
        table, p = jnp.arange(20.0).reshape(4, 5) * x[0], place(x)
        wild = jnp.where(k == 0, jnp.nan, 1e300 * x[1]).astype(int)  # 0, or the smallest or largest integer
        return {
            "taken": [jnp.arange(5.0).at[i].get(mode=m) for m in ("clip", "fill") for i in (p, wild)],
            "filled": [x.at[i].get(mode="fill", fill_value=7.0) for i in (p, wild)],
            "set": [x.at[i].set(k * 1.0, mode=m) for m in ("clip", "drop") for i in (p, wild)],
            "added": x.at[jnp.stack([p, k, k])].add(x),
            "window": lax.dynamic_slice(table, (p, wild), (2, 3)),
            "updated": lax.dynamic_update_slice(table, table[:2, :2] + 1, (wild, p)),
            "rows": table[jnp.stack([k, k + 1]), 1:3],
            "along": jnp.take_along_axis(table, jnp.stack([k, k + 1, k, k])[:, None], axis=1),
            "small": jnp.arange(5.0)[k.astype("uint8")] + jnp.arange(5.0)[(k - 3).astype("int8")],
            "far": lax.dynamic_slice(x, (jnp.uint64(2**63) + k.astype("uint64"),), (1,)),
        }

    check(function, x, k)


def test_empty_arrays(form, x, k):
    def function(x, k):
        nothing = x[:0]
        turn = lambda c, row: (c + 1, (c, row, nothing))
        return {
            "itself": nothing,
            "sum": jnp.sum(nothing) + x[0],
            "no turns": lax.scan(turn, x, jnp.zeros((0, 2))),
            "no columns": lax.scan(turn, x, jnp.zeros((60, 0))),
            "never": lax.while_loop(lambda s: s[0] < -99, lambda s: s + 1, x),
            "stored": lax.fori_loop(0, 0, lambda i, s: s.at[i].set(0.0), x),
            "joined": jnp.concatenate([nothing, x]),
            "sorted": jnp.sort(nothing),
        }

    check(function, x, k)


def test_large_arguments_and_results_that_are_arguments(form, rng, k):
    many = rng.normal(size=(13, MAX_UNPACKED_SIZE + 1))

    def function(many, k):
        turn = lambda i, s: s + many[(i * 7 + k) % many.size]
        changed = lax.dynamic_update_slice(many, jnp.ones(2), (k,))
        return many, lax.fori_loop(0, 40, turn, 0.0), many[k], changed, many.reshape(-1, 27)[:2], k, jnp.arange(3)

    assert (MAX_UNPACKED_SIZE + 1) % 27 == 0
    check(function, many, k)


def test_constant_results(x):
    function = lambda x: (jnp.arange(3.0), x.shape[0], x * 0)
    found = jax.jit(jax.vmap(uk.per_member(function, strict=True)))(x)
    np.testing.assert_array_equal(found[0], np.tile(np.arange(3.0), (13, 1)))
    np.testing.assert_array_equal(found[2], 0 * x)


def test_same_array_twice_among_arguments_and_results(form, x, k):
    """The array is also updated while its earlier values are still needed."""

    def function(x, k):
        a = lax.dynamic_update_slice(x, x[1:2], (k,))
        b = lax.dynamic_update_slice(a, x[2:], (k + 1,))

        def turn(s, row):
            a, b, c = s
            return (a.at[k].add(row), b, a), (a, b, a)

        state, rows = lax.scan(turn, (a, a, b), jnp.arange(30.0))
        return a, b, a, state, rows

    check(function, x, k)


@pytest.mark.parametrize("reverse", (False, True))
def test_scan_over_rows_of_arguments_and_constants(form, x, k, reverse):
    table = np.arange(60.0).reshape(20, 3)

    def function(x, k):
        def turn(c, rows):
            mine, same, count = rows
            c = jnp.tanh(0.5 * c + mine * 0.01 + same[k])
            return c, (c, jnp.stack([c[0], mine[1]]), count + k, c > 0, count)

        return lax.scan(turn, x, (table, jnp.outer(jnp.arange(20.0), x), jnp.arange(20)), reverse=reverse)

    check(function, x, k)

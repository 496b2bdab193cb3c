"""The order of the operations of a kernel: it changes no result, and few values are alive at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel.graph.graph import Graph, Number
from ukjax._kernel.llvm import program
from ukjax._kernel.llvm.schedule import alive, scheduled


def scattered(rng, count):
    """Chains of operations, with the links of all chains in turn, and the sum of their ends."""
    graph = Graph(10**6, True)
    one = graph.input(np.dtype(float))
    ends = [graph.apply("mul", (one, np.float64(k + 2))) for k in range(count)]
    for _ in range(6):
        ends = [graph.apply("sin", (end,)) for end in ends]
    total = ends[0]
    for k in rng.permutation(np.arange(1, count)):
        total = graph.apply("add", (total, ends[k]))
    return graph, [total]


def noted(graph):
    """All operations in the order of the graph, with their operands."""
    return {i: operation.operands for i, operation in enumerate(graph.operations)}


def test_schedule_has_few_values_alive(rng):
    graph, results = scattered(rng, 40)
    needed = noted(graph)
    order = scheduled(needed, results)
    assert order == needed and list(order) != list(needed)  # the same operations
    assert np.max(alive(needed, results)) >= 40 and np.max(alive(order, results)) <= 4
    done = set()
    for i, operands in order.items():
        assert all(x.index in done for x in operands if isinstance(x, Number))
        done.add(i)


def test_alive_counts_values_that_are_still_needed():
    graph = Graph(100, True)
    a, b = (graph.input(np.dtype(float)) for _ in range(2))
    c = graph.apply("mul", (a, b))
    d = graph.apply("add", (c, b))
    assert alive(noted(graph), [c, d]).tolist() == [1, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not modelled")
def test_the_order_changes_no_result(rng, monkeypatch):
    arm = uk.load(uk.robots.path("seven_axis_arm"))
    q, v = (jnp.asarray(x) for x in rng.normal(size=(2, 200, 7)))
    acceleration = lambda q, v: uk.constrained_motion(arm(0.0, q, v)).acceleration
    expected = jax.jit(jax.vmap(acceleration))(q, v)
    found = jax.jit(jax.vmap(uk.per_member(acceleration)))(q, v)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    monkeypatch.setattr(program, "scheduled", lambda needed, results: needed)
    as_noted = jax.jit(jax.vmap(uk.per_member(lambda q, v: acceleration(q, v))))(q, v)
    np.testing.assert_allclose(found, as_noted, rtol=1e-13, atol=1e-13)

"""Functions of one member compiled as kernels have the values and derivatives of JAX."""

import gc
import weakref

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import assumption_failed, lowering, per_member_forward, rare_cond
from ukjax._kernel.graph.graph import Choice, Graph
from ukjax._kernel.unroll.interpreter import unroll

pytestmark = pytest.mark.optimised

BATCH = 135
CLOSE = 1e-13  # a few dozen roundings of numbers of order 1


def system(q, k):
    """Sines, products, a loop, an index and a selection, as in models. q (3,), k ()."""
    angle = jnp.cumsum(q)
    J = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    M = J.T @ J + jnp.eye(3, dtype=q.dtype) * (2 + k)

    def eliminate(i, x):
        return x.at[i].set((x[i] - M[i] @ x) / M[i, i])

    x = jax.lax.fori_loop(0, 3, eliminate, q)
    x = jnp.where(x > 0, x, jnp.tanh(x)) + jax.scipy.linalg.block_diag(M[:1, :1], M[1:, 1:]) @ x
    return {"x": x, "size": jnp.sqrt(jnp.sum(x**2)), "which": jnp.argmax(x), "positive": x > 0}


def by_numpy(q, k):
    angle = np.cumsum(q)
    J = np.stack([np.cos(angle), np.sin(angle)])
    M = J.T @ J + np.eye(3) * (2 + k)
    x = q.copy()
    for i in range(3):
        x[i] = (x[i] - M[i] @ x) / M[i, i]
    blocks = M.copy()
    blocks[0, 1:] = blocks[1:, 0] = 0
    x = np.where(x > 0, x, np.tanh(x)) + blocks @ x
    return {"x": x, "size": np.linalg.norm(x), "which": x.argmax(), "positive": x > 0}


def agree(found, expected, close=CLOSE):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=close), found, expected)


def test_batch_matches_numpy(rng):
    q, k = rng.normal(size=(BATCH, 3)), rng.uniform(size=BATCH)
    found = jax.jit(jax.vmap(uk.per_member(system)))(q, k)
    for i in range(BATCH):
        agree(jax.tree.map(lambda x, i=i: x[i], found), by_numpy(q[i], k[i]))


def test_batch_with_shared_argument_matches_numpy(rng):
    q = rng.normal(size=(3, BATCH))
    found = jax.jit(jax.vmap(uk.per_member(system), in_axes=(1, None), out_axes=-1))(q, 0.3)
    agree(found["x"][:, 5], by_numpy(q[:, 5], 0.3)["x"])


def test_nested_batches_match_numpy(rng):
    q, k = rng.normal(size=(20, 3)), rng.uniform(size=11)
    one = uk.per_member(system)
    found = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))(q, k)
    assert found["x"].shape == (20, 11, 3)
    agree(jax.tree.map(lambda x: x[7, 4], found), by_numpy(q[7], k[4]))
    agree(jax.vmap(jax.jit(jax.vmap(one, in_axes=(None, 0))), in_axes=(0, None))(q, k), found)


def test_single_member_without_jit_matches_numpy(rng):
    q = rng.normal(size=3)
    agree(uk.per_member(system)(jnp.asarray(q), jnp.asarray(0.2)), by_numpy(q, 0.2))


def test_derivatives_of_kernels_match_jax(rng):
    q, k = rng.normal(size=(BATCH, 3)), rng.uniform(size=BATCH)
    weights = rng.normal(size=3)

    def loss(one, q, k):
        return jnp.sum(jax.vmap(lambda q, k: weights @ one(q, k)["x"] + one(q, k)["size"])(q, k))

    derivatives = {
        "reverse": lambda one: jax.grad(lambda q, k: loss(one, q, k), argnums=(0, 1)),
        "shared": lambda one: lambda q, k: jax.grad(lambda k: loss(one, q, jnp.full(BATCH, k)))(k[0]),
        "forward": lambda one: lambda q, k: jax.jvp(lambda k: loss(one, q, k), (k,), (k**2,)),
        "second": lambda one: lambda q, k: jax.jvp(jax.grad(lambda k: loss(one, q, k)), (k,), (jnp.ones(BATCH),))[1],
        "each": lambda one: jax.vmap(jax.jacfwd(lambda q, k: one(q, k)["x"])),
    }
    for name, derivative in derivatives.items():
        written, plain = (jax.jit(derivative(one))(q, k) for one in (uk.per_member(system), system))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(written)), name
        agree(written, plain, close=100 * CLOSE)


def test_kernel_for_forward_mode_has_one_operation_for_results_and_tangents(rng):
    """Also of a batch and of several tangents. In reverse mode, and for second derivatives, it is like any other."""
    q, k = rng.normal(size=(5, 3)), rng.uniform(size=5)
    members = lambda one: jax.vmap(lambda q, k: one(q, k)["x"])
    forward = {
        "one tangent": lambda one: lambda q, k: jax.jvp(lambda k: members(one)(q, k), (k,), (k**2,)),
        "several": lambda one: jax.jacfwd(members(one)),
        "with results": lambda one: jax.jacfwd(lambda q, k: (members(one)(q, k),) * 2, has_aux=True),
        "each": lambda one: jax.vmap(jax.jacfwd(lambda q, k: (one(q, k)["x"],) * 2, has_aux=True)),
    }
    other = {
        "reverse": lambda one: jax.jacrev(members(one)),
        "in a loop": lambda one: jax.grad(
            lambda q, k: jax.lax.scan(lambda q, _: (members(one)(q, k), q), q, None, 3)[0].sum()
        ),
        "reverse of forward": lambda one: jax.grad(
            lambda q, k: jax.jvp(lambda k: members(one)(q, k), (k,), (k**2,))[1].sum()
        ),
        "forward of reverse": lambda one: jax.jacfwd(jax.grad(lambda q, k: members(one)(q, k).sum())),
        "forward of forward": lambda one: jax.jacfwd(jax.jacfwd(members(one), argnums=1), argnums=1),
    }
    for name, derivative in (forward | other).items():
        found = jax.jit(derivative(per_member_forward(system)))(q, k)
        agree(found, jax.jit(derivative(system))(q, k), close=100 * CLOSE)
        count = str(jax.make_jaxpr(derivative(per_member_forward(system)))(q, k)).count("per_member[")
        assert count == 1 if name in forward else count > 0, (name, count)


def laborious(x):
    for _ in range(40):
        x = jnp.sin(x) + x / 2
    return x


def rare(x):
    """A function whose rare branch is long enough to be compiled as a branch."""
    return rare_cond(x[0] > 3, laborious, jnp.square, x)


def choices(function, *shapes):
    """The number of branches in a kernel."""
    graph, _ = graph_of(function, *shapes)
    return sum(isinstance(x, Choice) for x in graph.blocks[0].statements)


@pytest.mark.parametrize("size", (None, 5, BATCH))
def test_branch_that_no_member_takes_is_not_executed(size):
    """One execution would take longer than a test may."""
    endless = lambda x: jax.lax.fori_loop(0, 10**12, lambda _, x: laborious(x), x)
    chosen = uk.per_member(lambda x: jax.lax.cond(x[0] > 3, endless, jnp.square, x), strict=True)
    x = np.full((2,) if size is None else (size, 2), 0.5)
    np.testing.assert_array_equal(chosen(x) if size is None else jax.jit(jax.vmap(chosen))(x), 0.25)


def test_only_a_long_branch_is_compiled_as_a_branch():
    assert choices(rare, (2,)) == 1
    assert choices(lambda x: rare_cond(x[0] > 3, jnp.exp, jnp.square, x), (2,)) == 0


@pytest.mark.parametrize("needs_fallback", ((), (5,), (0, BATCH - 1)))
def test_rare_branch_of_one_member_does_not_change_others(rng, needs_fallback):
    x = rng.uniform(size=(BATCH, 2))
    x[list(needs_fallback)] += 4
    found = np.asarray(jax.jit(jax.vmap(uk.per_member(rare, strict=True)))(x))
    expected = np.where(x[:, :1] > 3, laborious(x), x**2)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    others = np.setdiff1d(np.arange(BATCH), needs_fallback)
    np.testing.assert_array_equal(found[others], x[others] ** 2)


def test_assumption_failed_marks_members_and_skips_rare_branch(rng):
    x = rng.uniform(size=(BATCH, 2))
    x[[3, 70]] += 4
    asking = jax.jit(jax.vmap(uk.per_member(lambda x: (rare(x), assumption_failed()))))
    found, wrong = asking(x)
    assert np.flatnonzero(wrong).tolist() == [3, 70]
    np.testing.assert_array_equal(found, x**2)


def test_rare_branches_have_derivatives(rng):
    x = rng.uniform(size=(BATCH, 2))
    x[9] += 4
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(uk.per_member(rare))(x))))(x)
    of_rare = jax.vmap(jax.grad(lambda x: jnp.sum(laborious(x))))(x)
    np.testing.assert_allclose(gradient, np.where(x[:, :1] > 3, of_rare, 2 * x), rtol=1e-11)


def doubled(x):
    return jax.lax.while_loop(lambda x: jnp.sum(x) < 10, lambda x: 2 * x + 1, x)


def entries_found(x):
    """Entries at computed indices, some of them out of bounds."""
    i, j = jnp.argmax(x), jnp.argmin(x) - 2
    return [
        jax.lax.dynamic_slice(x, (i,), (2,)),
        jax.lax.dynamic_update_slice(x, x[:2] + 1, (i,)),
        x[i],
        x[i + jnp.arange(2)],
        x.at[i + 2].get(mode="fill"),
        x.at[i + jnp.arange(3)].get(mode="fill", fill_value=3.0),
        x.at[i].set(7.0),
        x.at[jnp.stack([i, i, j])].add(x[:3]),
        x.at[i + 2].set(7.0, mode="drop"),
        x.reshape(2, 2)[i // 2, j % 2],
        x.reshape(2, 2).at[:, i % 2].set(x[:2]),
        jnp.arange(4)[i],
        jnp.searchsorted(jnp.linspace(0.0, 1.0, 9), x[0]),
        jnp.interp(x[0], jnp.linspace(0.0, 1.0, 9), jnp.linspace(0.0, 1.0, 9) ** 2),
    ]


def summed_until(x):
    """A sum whose number of terms depends on the values, of arrays that the loop updates, and the stacked results of a
    scan."""

    def term(state):
        k, total, seen = state
        return k + 1, total + x / (k + 1) ** 2, seen.at[k % 3].add(total[0])

    state = 0, jnp.zeros_like(x), jnp.zeros(3)
    k, total, seen = jax.lax.while_loop(lambda s: (s[0] < 1000) & (s[1][0] < 1.5 * x[0]), term, state)
    return k, total, seen, jax.lax.scan(lambda c, y: (c * 0.9 + y, c), x[0], jnp.linspace(0, 1, 3000))


def switched(x):
    cases = [jnp.sin, laborious, lambda x: x[::-1], doubled]
    return jax.lax.switch(jnp.argmax(x) + (x[0] > 0.5), cases, x)


@pytest.mark.parametrize(
    "function",
    (doubled, entries_found, summed_until, switched, lambda x: x.at[np.array([1, 6])].get(mode="fill", fill_value=3.0)),
    ids=("while", "indices", "loops", "switch", "outside"),
)
def test_computed_loop_counts_indices_and_branches_match_jax(rng, function):
    x = rng.uniform(size=(BATCH, 4))
    strict, of_all = uk.per_member(function, strict=True), jax.vmap(function)(x)
    agree(jax.jit(jax.vmap(strict))(x), of_all, close=20 * CLOSE)
    agree(strict(x[9]), jax.tree.map(lambda x: x[9], of_all), close=20 * CLOSE)


def test_derivatives_with_computed_indices_and_branches_match_jax(rng):
    def function(x):
        total = jax.lax.fori_loop(0, 500, lambda k, y: y.at[k % 4].add(0.01 * jnp.sin(y[(k + 1) % 4])), x)
        return jnp.sum(total) * x[jnp.argmax(x)] + jnp.sum(switched_smoothly(x))

    def switched_smoothly(x):
        return jax.lax.switch(jnp.argmax(x), [jnp.sin, laborious, lambda x: x[::-1] ** 3, jnp.cosh], x)

    x = rng.uniform(size=(BATCH, 4))
    expected = jax.jit(jax.vmap(jax.grad(function)))(x)
    found = jax.jit(jax.vmap(jax.grad(uk.per_member(function, strict=True))))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("primitive", "function"),
    (
        ("svd", lambda x: jnp.linalg.svd(x.reshape(2, 2), compute_uv=False)),
        ("eigh", lambda x: jnp.linalg.eigvalsh(x.reshape(2, 2))),
        ("lu", lambda x: jnp.linalg.solve(x.reshape(2, 2) + 2 * jnp.eye(2), x[:2])),
        ("random_seed", lambda x: jax.random.normal(jax.random.key(0), (4,)) + x),
    ),
)
def test_unsupported_operation_uses_vmap_and_one_warning_is_given(rng, primitive, function):
    x = rng.uniform(size=(BATCH, 4))
    with pytest.warns(UserWarning, match=f"`{primitive}` in <lambda> cannot be compiled as one kernel") as said:
        found = jax.jit(jax.vmap(uk.per_member(function)))(x)
    assert [(w.filename, w.lineno) for w in said] == [(__file__, function.__code__.co_firstlineno)]
    np.testing.assert_allclose(found, jax.jit(jax.vmap(function))(x), rtol=1e-13)
    with pytest.raises(ValueError, match=f"`{primitive}` in <lambda> .* See {__file__}"):
        jax.jit(jax.vmap(uk.per_member(function, strict=True))).lower(x)
    jax.jit(jax.vmap(uk.per_member(function))).lower(x)


def test_function_of_random_keys_uses_vmap_and_a_warning_is_given(rng):
    keys, x = jax.random.split(jax.random.key(0), BATCH), rng.uniform(size=(BATCH, 4))
    noisy = lambda key, x: x + jax.random.normal(key)
    with pytest.warns(UserWarning, match="an argument in <lambda> cannot be compiled as one kernel"):
        found = jax.vmap(uk.per_member(noisy))(keys, x)
    np.testing.assert_allclose(found, jax.vmap(noisy)(keys, x), rtol=1e-13)


def damped(t, q, v):
    drag = jnp.linalg.solve(jnp.eye(2) * (2 + q[0]), v)
    return uk.Terms(jnp.eye(2), -drag, q[None], -(v @ v)[None])


def test_warning_names_unsupported_operation_and_line_of_model(rng):
    """One warning, though the step, the corrections and the samples are separate functions."""
    angle = rng.uniform(size=BATCH)
    q = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    with pytest.warns(UserWarning, match="`lu` in damped cannot be compiled as one kernel") as said:
        motion = uk.simulate(damped, q, np.zeros_like(q), ts=[0.0, 0.02], dt=0.01)
    assert np.isfinite(motion.q).all()
    assert [(w.filename, w.lineno) for w in said] == [(__file__, damped.__code__.co_firstlineno + 1)]


def test_method_without_kernels_gives_no_warning(rng):
    Q, A, b = (rng.normal(size=(BATCH, *shape)) for shape in ((3,), (1, 3), (1,)))
    moved = lambda method: lambda Q, A, b: uk.constrained_motion(uk.Terms(jnp.eye(3), Q, A, b), method).acceleration
    by_svd, default = (jax.jit(jax.vmap(moved(method)))(Q, A, b) for method in ("svd", "orthogonal"))
    np.testing.assert_allclose(by_svd, default, rtol=0, atol=100 * CLOSE)


def test_operations_that_jax_expands_are_compiled(rng):
    """A search among constants, and derivatives that have separate primitives in newer versions of JAX."""
    knots = jnp.linspace(-1.0, 1.0, 9)
    place = jnp.asarray(0.3)

    def function(x):
        i = jnp.searchsorted(knots, place, side="right")
        return jnp.sum(jnp.tanh(x) * knots[i] + jnp.arcsin(x) + jnp.arccos(x / 2) + jnp.arctanh(x / 3))

    x = rng.uniform(-0.9, 0.9, size=(BATCH, 3))
    strict = uk.per_member(function, strict=True)
    agree(jax.jit(jax.vmap(strict))(x), jax.jit(jax.vmap(function))(x))
    agree(jax.jit(jax.vmap(strict))(x[:3]), jax.vmap(function)(x[:3]))
    agree(jax.jit(jax.vmap(jax.grad(strict)))(x), jax.jit(jax.vmap(jax.grad(function)))(x), close=100 * CLOSE)


def moved_about(x):
    """Entries read and written at constant indices, in each form of NumPy's notation. x (4, 5)."""
    rows, columns = np.array([2, 0, -1]), np.array([[1], [4]])
    taken = [
        x[rows],
        x[:, columns],
        x[rows[:, None], columns.ravel()],
        x[rows, :, None][..., ::2],
        x.at[7, 1].get(mode="clip"),
        jnp.take_along_axis(x, np.argsort(np.sin(np.arange(20.0)).reshape(4, 5), axis=1), axis=1),
        jax.vmap(lambda row, i: row[i])(x, np.array([3, 0, 0, 2])),
        jax.vmap(lambda row, i: jax.lax.dynamic_slice(row, (i,), (2,)))(x, np.array([3, 0, 9, 2])),
    ]
    put = [
        x.at[rows].set(x[:3]),
        x.at[rows, 1].add(x[0, :3]),
        x.at[:, np.array([0, 0, 3])].add(x[:, :3]),
        x.at[np.array([0, 9])].set(x[:2], mode="drop"),
        x.at[np.array([0, 9])].add(x[:2], mode="clip"),
        x.at[1:3, ::2].set(7.0),
        jax.vmap(lambda row, i: row.at[i].set(0.5))(x, np.array([3, 0, 0, 2])),
        jax.vmap(lambda row, i: row.at[i].add(row[:2]))(x, np.array([[3, 3], [0, 1], [0, 4], [2, 2]])),
    ]
    return taken, put


def test_constant_indices_match_jax(rng):
    x = rng.normal(size=(BATCH, 4, 5))
    found = jax.jit(jax.vmap(uk.per_member(moved_about)))
    assert "gather" not in found.lower(x).as_text() and "scatter" not in found.lower(x).as_text()
    jax.tree.map(np.testing.assert_array_equal, found(x), jax.vmap(moved_about)(x))


def test_function_with_too_many_operations_uses_vmap(rng, monkeypatch):
    monkeypatch.setattr(lowering, "CPU", lowering.CPU._replace(max_operations=50))
    q, k = rng.normal(size=(BATCH, 3)), rng.uniform(size=BATCH)
    agree(jax.jit(jax.vmap(uk.per_member(system)))(q, k)["x"][3], by_numpy(q[3], k[3])["x"])
    with pytest.raises(ValueError, match="system needs more than 50 operations, too many for one kernel"):
        jax.jit(jax.vmap(uk.per_member(system, strict=True)))(q, k)


def test_single_member_with_large_matrices_uses_lapack(rng):
    """LLVM would take minutes for the redundant rows."""
    A = rng.normal(size=(30, 20)) @ rng.normal(size=(20, 36))
    terms = uk.Terms(np.eye(36), rng.normal(size=36), A, A @ rng.normal(size=36))
    motion = jax.jit(uk.constrained_motion).lower(terms)
    assert "ukjax_" not in motion.as_text()
    expected = terms.Q + np.linalg.pinv(A) @ (terms.b - A @ terms.Q)
    np.testing.assert_allclose(motion.compile()(terms).acceleration, expected, rtol=0, atol=1e-11)


def test_too_large_rare_branch_is_compiled_by_xla(rng, monkeypatch):
    def function(x):
        return rare_cond(x[0] > 2, lambda x: sum(jnp.sin(k * x) for k in range(200)), lambda x: x, x)

    monkeypatch.setattr(lowering, "MAX_OPERATIONS_ALL_BRANCHES", 100)
    x = rng.normal(size=(BATCH, 2))
    x[7, 0] = 3.0
    found = jax.jit(jax.vmap(uk.per_member(function)))
    assert "_rare_" not in found.lower(x).as_text()
    expected = np.where(x[:, :1] > 2, sum(np.sin(k * x) for k in range(200)), x)
    np.testing.assert_allclose(found(x), expected, rtol=0, atol=1e-11)


def test_values_in_a_closure_are_used_as_arguments(rng):
    q, k = rng.normal(size=(BATCH, 3)), rng.uniform(size=BATCH)

    def total(k):
        return jax.vmap(lambda q, k: jnp.sum(uk.per_member(lambda q: system(q, k)["x"])(q)))(q, k)

    np.testing.assert_allclose(jax.jit(total)(k), [by_numpy(*x)["x"].sum() for x in zip(q, k, strict=True)], atol=CLOSE)
    gradient = jax.grad(lambda k: jnp.sum(total(k)))(k)
    plain = jax.grad(lambda k: jnp.sum(jax.vmap(lambda q, k: jnp.sum(system(q, k)["x"]))(q, k)))(k)
    np.testing.assert_allclose(gradient, plain, rtol=0, atol=100 * CLOSE)


def test_empty_arguments_are_accepted(rng):
    def function(x, none):
        return jnp.concatenate([x, jnp.sin(none) * 2, none.reshape(1, 0)[0]]) + jnp.sum(none)

    x, none = rng.normal(size=(BATCH, 2)), np.zeros((BATCH, 0))
    np.testing.assert_array_equal(jax.jit(jax.vmap(uk.per_member(function, strict=True)))(x, none), x)


def test_single_precision_stays_single(rng):
    q, k = rng.normal(size=(BATCH, 3)).astype("float32"), rng.uniform(size=BATCH).astype("float32")
    found = jax.jit(jax.vmap(uk.per_member(system)))(q, k)
    assert found["x"].dtype == jnp.float32
    np.testing.assert_allclose(found["x"][8], by_numpy(q[8], k[8])["x"], rtol=0, atol=1e-5)


# --- the gallery ---------------------------------------------------------------------------------------------------

LONG = {
    "andrews_squeezer",
    "flexible_joint_manipulator",
    "parallel_manipulator",
    "parallel_robot_tracking",
}  # seconds to compile


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in uk.systems.CATALOGUE]
)
def test_every_mechanism_is_compiled(name):
    """A primitive without a rule, for example of a new version of JAX, makes a batch twenty times slower.

    The largest mechanisms, whose programs have the most operations, are compiled with their accelerations; of the
    others only the terms.
    """
    mechanism = uk.systems.named(name)
    accelerate = (lambda terms: uk.constrained_motion(terms).acceleration) if name in LONG else lambda terms: terms
    moved = uk.per_member(lambda q, v: accelerate(mechanism(0.0, q, v)), strict=True)
    jax.jit(jax.vmap(moved)).lower(*starts(mechanism))


@pytest.mark.slow
@pytest.mark.parametrize("name", ("rigid_body", "rolling_disk", "mobile_robot", "double_pendulum", "bouncing_ball"))
def test_a_simulated_motion_is_compiled(monkeypatch, name):
    """Steps, corrections and samples are kernels without a report. One mechanism each with a quaternion, velocity
    constraints, a control law, a chain, and contacts; the test above compiles the terms of all others."""
    refused = []
    monkeypatch.setattr(lowering, "report", lambda error, options: refused.append((error.primitive, options.origin)))
    mechanism = uk.systems.named(name)
    for how in ({"dt": 0.01}, {}):
        run = lambda q, v, how=how: uk.simulate(mechanism, q, v, ts=[0.0, 0.01], **how).q
        jax.jit(run).lower(*starts(mechanism))
    assert refused == []


def starts(mechanism):
    """The shapes of q and v of 300 members."""
    return [jax.ShapeDtypeStruct((300, x.size), x.dtype) for x in map(jnp.asarray, mechanism.start())]


# --- called outside of jit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transformed",
    (jax.vmap, lambda f: jax.vmap(jax.grad(f)), lambda f: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))),
    ids=("vmap", "vmap of grad", "grad of vmap"),
)
def test_second_call_outside_of_jit_traces_and_compiles_nothing(rng, monkeypatch, transformed):
    traced, written = [], []

    def function(x):
        traced.append(x.shape)
        return jnp.sum(jnp.sin(x) * x)

    def counted(*arguments, unroll=lowering.unroll):
        written.append(arguments)
        return unroll(*arguments)

    monkeypatch.setattr(lowering, "unroll", counted)
    batch = transformed(uk.per_member(function))
    batch(rng.normal(size=(BATCH, 3)))
    first = len(traced), len(written)
    x = rng.normal(size=(BATCH, 3))
    agree(batch(x), transformed(lambda x: jnp.sum(jnp.sin(x) * x))(x))
    assert (len(traced), len(written)) == first and min(first) > 0
    batch(rng.normal(size=(BATCH, 4)))
    assert len(traced) > first[0] and len(written) > first[1]


def test_equal_scalar_arguments_of_different_type_are_distinguished():
    x = jnp.arange(3)
    times = uk.per_member(lambda x, k: (x * k, type(k)))
    for k in (1, 1.0, True, 2, 1):
        found, kind = times(x, k)
        assert found.dtype == (x * k).dtype and kind is type(k)
        np.testing.assert_array_equal(found, x * k)
    signs = [np.signbit(uk.per_member(lambda x, k: jnp.copysign(x, k))(jnp.ones(()), k)) for k in (0.0, -0.0)]
    assert signs == [False, True]


def test_arguments_and_results_without_hash_are_accepted():
    found = uk.per_member(lambda x, names: (x[: len(names)], names, {"first": min(names)}))(jnp.ones(5), {"a", "b"})
    np.testing.assert_array_equal(found[0], jnp.ones(2))
    assert found[1:] == ({"a", "b"}, {"first": "a"})


def test_each_call_uses_its_closure_values_and_not_those_of_an_earlier_call(rng):
    """Each call has a different k, known only to ``vmap`` or ``grad``."""

    def total(q, k):
        return jax.vmap(lambda q, k: jnp.sum(uk.per_member(lambda q: jnp.sin(q) * k)(q)))(q, k)

    for _ in range(2):
        q, k = rng.normal(size=(BATCH, 3)), rng.normal(size=BATCH)
        np.testing.assert_allclose(total(q, k), np.sin(q).sum(1) * k, rtol=0, atol=CLOSE)
        slope = jax.grad(lambda k, q=q: jnp.sum(total(q, k)))(k)
        np.testing.assert_allclose(slope, np.sin(q).sum(1), rtol=0, atol=CLOSE)


def test_compiled_program_is_freed_with_its_function():
    def use():
        held = jnp.arange(3.0) + 1
        jax.vmap(uk.per_member(lambda x: jnp.sin(x * held)))(jnp.ones((BATCH, 3)))
        return weakref.ref(held)

    held = [use() for _ in range(2)]
    gc.collect()
    assert [x() for x in held] == [None, None]


def test_function_with_disable_jit_matches_numpy(rng):
    x = rng.normal(size=(BATCH, 3))
    with jax.disable_jit():
        found = jax.vmap(uk.per_member(jnp.sin))(x)
    np.testing.assert_allclose(found, np.sin(x), rtol=1e-15)


def test_bitwise_operations_on_integers_are_exact():
    """1 is not the neutral element of "and" as True is: k & 1 is the parity of k."""
    k = np.arange(BATCH)
    found = jax.jit(jax.vmap(uk.per_member(lambda k: (k & 1, 1 & k, k | 1, k & 0, k | 0))))(k)
    for x, expected in zip(found, (k & 1, k & 1, k | 1, 0 * k, k), strict=True):
        np.testing.assert_array_equal(x, expected)


def test_constant_expressions_match_jax():
    """Reductions of empty arrays, integer division, selections and scattered entries of constants."""

    def constants(x):
        none, k = jnp.zeros((2, 0)), jnp.array([7, -7, 6])
        found = [
            jnp.max(none, axis=1, initial=-jnp.inf),
            jnp.all(none > 0, axis=1),
            jnp.any(none > 0),
            jnp.prod(none, axis=1),
            jax.lax.div(k, jnp.array([2, 2, -4])),
            k**3,
            jnp.where(k > 0, k, -k),
            jnp.zeros(4).at[jnp.array([3, 0, 7])].set(jnp.array([1.0, 2.0, 3.0]), mode="drop"),
            jnp.zeros(4).at[jnp.array([3, 3])].add(jnp.array([1.0, 2.0])),
            jnp.arange(12.0).reshape(3, 4)[jnp.array([2, 0]), jnp.array([1, 3])],
        ]
        return [y.astype(x.dtype) * x for y in found]

    x = np.linspace(1, 2, BATCH)
    agree(jax.jit(jax.vmap(uk.per_member(constants, strict=True)))(x), jax.vmap(constants)(x))


# --- simplification of the graph -----------------------------------------------------------------------------------


def graph_of(function, *shapes):
    """The graph of a function for one member, and its results."""
    graph = Graph(10_000, usual_only=False)
    jaxpr = jax.make_jaxpr(function)(*map(jnp.zeros, shapes))
    numbers = [graph.inputs(shape, np.dtype(float)) for shape in shapes]
    return graph, unroll(graph, jaxpr, numbers, "cpu")


def operations(function, *shapes):
    """The operations for one member, by name."""
    graph, _ = graph_of(function, *shapes)
    return [operation.name for operation in graph.operations if operation.name != "input"]


def test_structural_zeros_need_no_operations():
    def blocks(x, y):
        M = jax.scipy.linalg.block_diag(x, y)
        return M @ M

    assert operations(blocks, (2, 2), (2, 2)).count("mul") == 2 * 7  # M01 M10 is in two entries


@pytest.mark.parametrize(
    "function",
    (
        lambda x, y: x - x,
        lambda x, y: (x + y) - (y + x),
        lambda x, y: 0 / x,
        lambda x, y: jnp.argmax(jnp.stack([jnp.ones_like(x), x, y])),
        lambda x, y: jnp.argmin(jnp.stack([x, y, jnp.ones_like(x)])),
        lambda x, y: jnp.stack([x > x, x < x, x >= x, x == x, x != x]),
    ),
    ids=("x - x", "sums", "0 / x", "argmax", "argmin", "comparisons"),
)
def test_non_finite_results_are_same_in_small_and_large_batches(function):
    values = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    small, large = np.meshgrid(values, values), np.meshgrid(values, np.resize(values, BATCH))
    together = jax.jit(jax.vmap(uk.per_member(function)))
    small, large = (np.asarray(together(x.ravel(), y.ravel())) for x, y in (small, large))
    np.testing.assert_array_equal(large[: len(small)], small)


def test_sine_and_cosine_of_zero_angle_need_no_operations():
    """Such angles are on the diagonal of a matrix of the angles between links."""
    assert operations(lambda q: jnp.cos(q - q) + jnp.sin(q - q), (2,)) == ["sub", "sub"]


def test_repeated_expression_is_computed_once():
    twice = operations(lambda x: x[0] * x[1] + jnp.exp(x[1] * x[0]) + jnp.exp(x[0] * x[1]), (2,))
    assert twice.count("mul") == twice.count("exp") == 1


def test_sine_and_cosine_of_one_angle_share_operations():
    one = operations(lambda x: jnp.sin(x[0]) + jnp.cos(x[0]), (1,))
    many = operations(lambda x: jnp.sin(x[0]) + jnp.cos(x[0]) + jnp.cos(-x[0]) - jnp.sin(x[0]) * jnp.sin(-x[0]), (1,))
    assert len(many) <= len(one) + 6


# --- sines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "roundings"), (("float64", 1.0), ("float32", 1.5)))
def test_sine_and_cosine_are_accurate_to_rounding(rng, dtype, roundings):
    """Near their zeros to a thousandth of the rounding error of the angle. A simple reduction would lose all digits
    there."""
    quarters = np.arange(-64, 64) * np.pi / 2
    x = np.concatenate([rng.uniform(-8, 8, 500), rng.uniform(-500, 500, 500), quarters, [0.0, -0.0, 1e-300, 1e-9]])
    x = x.astype(dtype)
    sine, cosine = jax.jit(jax.vmap(uk.per_member(lambda x: (jnp.sin(x), jnp.cos(x)))))(x)
    with mpmath.workdps(40):
        for found, exact in ((sine, mpmath.sin), (cosine, mpmath.cos)):
            expected = [exact(mpmath.mpf(float(value))) for value in x]
            nearest = np.array([float(value) for value in expected]).astype(dtype)
            error = np.array([abs(float(mpmath.mpf(float(a)) - b)) for a, b in zip(found, expected, strict=True)])
            assert np.max(error / (np.spacing(np.abs(nearest)) + 1e-3 * np.spacing(np.abs(x)))) < roundings


def test_sine_and_cosine_of_huge_and_non_finite_angles_match_jax():
    x = np.array([1e9, -3e12, np.inf, -np.inf, np.nan] * 30)
    found = jax.jit(jax.vmap(uk.per_member(lambda x: (jnp.sin(x), jnp.cos(x)))))(x)
    np.testing.assert_allclose(found, (jnp.sin(x), jnp.cos(x)), rtol=1e-15)


def test_power_has_type_of_its_base():
    """Not that of its exponent, an integer array."""
    powers = lambda x, n: (x**n, 2 * (x**n).astype(int))
    x, n = jnp.linspace(1, 2, 300), jnp.asarray(3)
    value, whole = jax.jit(jax.vmap(uk.per_member(powers, strict=True), in_axes=(0, None)))(x, n)
    np.testing.assert_allclose(value, np.asarray(x) ** 3, rtol=1e-14)
    np.testing.assert_array_equal(whole, 2 * np.floor(np.asarray(x) ** 3 + 1e-13))


def test_scatter_operations_match_jax(rng):
    """At constant and at computed indices, also repeated ones."""

    def scattered(x):
        known, found = np.array([0, 2, 2]), jnp.floor(3 * x[:2]).astype(int)
        at = lambda y, places: [y.at[places].add(0.5), y.at[places].multiply(3.0), y.at[places].min(0.4)]
        return jnp.stack([*at(x, known), *at(x, found), x.at[known].max(0.6), x.at[found].set(7.0)])

    x = rng.uniform(size=(5, 4))
    kernel = jax.jit(jax.vmap(uk.per_member(scattered, strict=True)))
    np.testing.assert_allclose(kernel(x), jax.vmap(scattered)(x), rtol=1e-14)

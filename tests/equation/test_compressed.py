"""Compressed sparse matrices against dense matrices in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukjax._compressed import Compressed, SparsityPattern

SHAPES = ((7, 5, 0.3), (40, 30, 0.05), (6, 40, 0.5), (0, 4, 0.5))
"""Rows, columns, and the share of nonzero entries. The third has more entries in a row than are unrolled."""


def some(m, n, share, rng):
    return np.where(rng.uniform(size=(m, n)) < share, rng.normal(size=(m, n)), 0.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_and_scales(shape, rng):
    m, n, share = shape
    matrix = some(m, n, share, rng)
    compressed = SparsityPattern(matrix != 0).of(jnp.asarray(matrix))
    x, y, each = rng.normal(size=n), rng.normal(size=m), np.eye(n)
    np.testing.assert_allclose(compressed @ jnp.asarray(x), matrix @ x, atol=1e-14)
    np.testing.assert_allclose(jnp.asarray(y) @ compressed, y @ matrix, atol=1e-14)
    scaled = compressed.scaled(jnp.asarray(y), jnp.asarray(x))
    found = np.array([scaled @ jnp.asarray(row) for row in each]).T
    np.testing.assert_allclose(found, y[:, None] * matrix * x, atol=1e-14)


def test_columns_of_one_colour_share_no_row(rng):
    there = some(40, 30, 0.05, rng) != 0
    places = SparsityPattern(there)
    for colour in range(places.seeds.colours):
        assert np.max(np.sum(there[:, places.seeds.colour == colour], axis=1)) <= 1
    # A band of any length needs few derivatives.
    band = np.abs(np.subtract.outer(np.arange(500), np.arange(500))) <= 1
    assert SparsityPattern(band).seeds.colours == 3


def test_the_diagonal(rng):
    square = some(9, 9, 0.4, rng)
    np.fill_diagonal(square[:5], 0.0)
    compressed = SparsityPattern(square != 0).of(jnp.asarray(square))
    np.testing.assert_array_equal(compressed.diagonal(), np.diagonal(square))


def test_the_transpose(rng):
    square = some(9, 9, 0.4, rng)
    places = SparsityPattern((square != 0) | (square.T != 0))
    turned = places.of(jnp.asarray(square)).transposed()
    np.testing.assert_array_equal(np.array([turned @ row for row in jnp.eye(9)]).T, square.T)


def test_further_axes_are_batch_axes(rng):
    places = SparsityPattern(some(7, 5, 0.4, rng) != 0)
    entries, x = rng.normal(size=(*places.column.shape, 3)), rng.normal(size=(5, 3))
    entries[places.column == 5] = 0
    found = Compressed(jnp.asarray(entries), places) @ jnp.asarray(x)
    for i in range(3):
        alone = Compressed(jnp.asarray(entries[..., i]), places) @ jnp.asarray(x[:, i])
        np.testing.assert_allclose(found[:, i], alone, atol=1e-14)


def test_entry_outside_pattern_makes_its_row_nan(rng):
    matrix = some(7, 5, 0.5, rng)
    i, j = np.argwhere(matrix != 0)[3]
    there = matrix != 0
    there[i, j] = False
    entries = SparsityPattern(there).of(jnp.asarray(matrix)).entries
    assert np.all(np.isnan(entries[i]))
    assert np.all(np.isfinite(np.delete(entries, i, axis=0)))


def test_seed_products_of_single_entries_match_derivatives(rng):
    """Single entries of a matrix, some of them the sum of two, against products with all seeds."""
    rows, columns = np.array([0, 0, 1, 3, 3, 0]), np.array([1, 2, 0, 2, 4, 1])
    values = rng.normal(size=6)
    matrix = np.zeros((4, 5))
    np.add.at(matrix, (rows, columns), values)
    seeds = SparsityPattern(matrix != 0).seeds
    found = seeds.of_entries(jnp.asarray(values), rows, columns, 4)
    np.testing.assert_allclose(found, matrix @ seeds.matrix, atol=1e-14)
    along = seeds.along(lambda x: jnp.asarray(matrix) @ x, jnp.zeros(5))
    np.testing.assert_allclose(along, matrix @ seeds.matrix, atol=1e-14)


def test_equal_patterns_use_one_program(rng):
    there = some(7, 5, 0.5, rng) != 0
    traced = []

    @jax.jit
    def doubled(compressed):
        traced.append(compressed.shape)
        return compressed.entries * 2

    for _ in range(2):
        doubled(SparsityPattern(there).of(jnp.where(there, 1.0, 0.0)))
    assert traced == [(7, 5)]

"""Random functions with nested loops, conditionals, and arrays that are read and changed at an index."""

import jax.numpy as jnp
import numpy as np
from jax import lax

SIMPLE = "numbers window entry dropped look flag count corner row turned merged".split()
WITH_BLOCKS = "for while scan rows if switch".split()
DEEPEST = 3


class Maker:
    """Makes functions of a state: x (3,), t (5,) and u (2, 3), whole numbers i and k, a truth value f."""

    def __init__(self, seed: int, statements: int = 14):
        self.rng, self.left = np.random.default_rng(seed), statements

    def index(self, length):
        """Return an index of an axis, or one out of range."""
        c = int(self.rng.integers(0, length + 2))
        ways = (
            lambda s: jnp.asarray(c),
            lambda s: s["i"] % length,
            lambda s: s["i"] + c - 2,
            lambda s: jnp.floor(3 * s["x"][c % 3]).astype(int),
            lambda s: s["k"] + c - 1,
        )
        return ways[self.rng.integers(len(ways))]

    def test(self):
        """Return a condition, with a value for all members or for each."""
        c = float(self.rng.normal())
        ways = (
            lambda s: s["x"][0] > c,
            lambda s: s["i"] % 3 == 1,
            lambda s: s["t"][2] > s["x"][1],
            lambda s: s["k"] > 1,
            lambda s: s["f"],
            lambda s: jnp.sum(s["t"]) > c,
        )
        return ways[self.rng.integers(len(ways))]

    def block(self, depth=0):
        """Return a block of a few statements."""
        parts = [self.statement(depth) for _ in range(int(self.rng.integers(1, 4)))]

        def run(s):
            for part in parts:
                s = part(s)
            return s

        return run

    def statement(self, depth):
        self.left -= 1
        ways = [*SIMPLE, "numbers", "window"] + (2 * WITH_BLOCKS if depth < DEEPEST and self.left > 0 else [])
        way = ways[self.rng.integers(len(ways))]
        return self.with_blocks(way, depth) if way in WITH_BLOCKS else self.simple(way)

    def simple(self, way):
        a, b, c = map(float, self.rng.normal(size=3))
        m, n = int(self.rng.integers(0, 3)), int(self.rng.integers(1, 4))
        j, p, q, test = self.index(5), self.index(2), self.index(3), self.test()
        change = {
            "numbers": lambda s: {"x": jnp.tanh(a * s["x"] + b * jnp.roll(s["x"], 1) + 0.1 * c * s["t"][:3])},
            "window": lambda s: {"t": lax.dynamic_update_slice(s["t"], s["x"][:n] * a, (j(s),))},
            "entry": lambda s: {"t": s["t"].at[jnp.clip(j(s), 0, 4)].add(0.1 * a * s["x"][m])},
            "dropped": lambda s: {"t": s["t"].at[j(s)].set(s["x"][m], mode="drop")},
            "look": lambda s: {"x": 0.5 * s["x"] + 0.5 * s["t"].at[j(s)].get(mode="clip")},
            "flag": lambda s: {"f": test(s)},
            "count": lambda s: {"i": (s["i"] * 3 + m + 1) % 11},
            "corner": lambda s: {"u": lax.dynamic_update_slice(s["u"], s["x"][None, :2] * b, (p(s), q(s)))},
            "row": lambda s: {"x": jnp.tanh(s["x"] + lax.dynamic_index_in_dim(s["u"], p(s), 0, False))},
            "turned": lambda s: {"u": s["u"][::-1], "t": jnp.roll(s["t"], m)},
            "merged": lambda s: {"t": jnp.where(s["f"], s["t"], jnp.concatenate([s["x"][:2], s["t"][2:]]))},
        }[way]
        return lambda s: s | change(s)

    def with_blocks(self, way, depth):
        body, test = self.block(depth + 1), self.test()
        length, most, m = int(self.rng.integers(0, 6)), int(self.rng.integers(1, 7)), int(self.rng.integers(0, 3))
        if way in ("if", "switch"):
            others = [self.block(depth + 1) for _ in range(1 if way == "if" else 2)]
            if way == "if":
                return lambda s: lax.cond(test(s), body, *others, s)
            return lambda s: lax.switch(s["i"] % 4 - 1, [body, *others], s)
        if way == "for":
            return lambda s: lax.fori_loop(0, length, lambda turn, s: body(s | {"i": s["i"] + turn}), s)
        if way == "while":
            return _counted(body, test, most)
        if way == "rows":
            return _over_rows(body)
        j, table = self.index(5), self.rng.normal(size=(length, 3))
        return _stacking(body, j, table, m, bool(self.rng.integers(2)))


def _near(s, row):
    return s | {"x": 0.7 * s["x"] + 0.3 * row}


def _counted(body, test, most):
    """Return a loop of at most ``most + k`` iterations, which ends where ``test`` is false."""

    def run(s):
        goes_on = lambda s: (s["turns"] < most + s["k"]) & test(s)
        turn = lambda s: body(s) | {"turns": s["turns"] + 1}
        return lax.while_loop(goes_on, turn, s | {"turns": jnp.asarray(0)}) | {"turns": s["turns"]}

    return run


def _over_rows(body):
    """Return a loop over the entries of an array that it changes and that is used again afterwards."""

    def turn(s, row):
        s = body(_near(s, row))
        return s, s["x"][0]

    def run(s):
        after, found = lax.scan(turn, s, s["t"])
        return after | {"t": jnp.where(after["i"] > 3, found, s["t"])}

    return run


def _stacking(body, index, table, m, reverse):
    """Return a loop that stores the state before and after each iteration."""

    def turn(s, row):
        after = body(_near(s, row))
        return after, (after["x"], s["t"], after["i"])

    def run(s):
        s, (x, t, i) = lax.scan(turn, s, table, reverse=reverse)
        if not len(table):
            return s
        chosen = t[index(s) % len(table)]
        return s | {"x": (s["x"] + x[m % len(table)]) / 2, "t": (s["t"] + chosen) / 2, "i": (s["i"] + i.sum()) % 7}

    return run


def random_function(seed: int):
    """Return a function of x (3,) and a whole number k."""
    maker = Maker(seed)
    blocks = [maker.block() for _ in range(3)]

    def function(x, k):
        s = {"x": x, "t": jnp.concatenate([x, x[:2] * 0.3]), "u": jnp.stack([x, -x]), "i": jnp.asarray(2), "k": k}
        s |= {"f": x[0] > 0, "turns": jnp.asarray(0)}
        for block in blocks:
            s = block(s)
        return {name: s[name] for name in ("x", "t", "u", "i", "f")}

    return function

"""Order operations so that few values are live at a time, and most of them stay in registers."""

import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from ..graph.number import Number, Operand

Needed = dict[int, tuple[Operand, ...]]
"""Operations in an executable order, each with its operands."""


def scheduled(needed: Needed, results: Sequence[Operand]) -> Needed:
    """Return the operations in the order with the fewest live values on average: the given order or one of two
    others."""
    orders = needed, _backwards(needed, results, recent=False), _backwards(needed, results, recent=True)
    return min(orders, key=lambda order: float(np.mean(alive(order, results))))


def alive(needed: Needed, results: Sequence[Operand]) -> Int[np.ndarray, " operations"]:
    """Return the number of live values (computed and still needed) after each operation."""
    place = {i: k for k, i in enumerate(needed)}
    last = {x.index: k for k, operands in enumerate(needed.values()) for x in operands if isinstance(x, Number)}
    last |= {x.index: len(place) for x in results if isinstance(x, Number)}
    change = np.zeros(len(place) + 1, int)
    change[: len(place)] += 1
    np.add.at(change, list(last.values()), -1)
    return np.cumsum(change)[: max(1, len(place))]


def _backwards(needed, results, recent):
    """Schedule from the last operation to the first.

    An operation is a candidate once all its users are scheduled. The next one is the candidate with the fewest operands
    that are not live yet. Ties are broken by the most recently added candidate (``recent``) or the latest in the given
    order.
    """
    operands = {i: list(dict.fromkeys(x.index for x in used if isinstance(x, Number))) for i, used in needed.items()}
    users = dict.fromkeys(needed, 0)
    for used in operands.values():
        for j in used:
            users[j] += 1
    live = {x.index for x in results if isinstance(x, Number)} & {i for i, count in users.items() if not count}
    place = {i: k for k, i in enumerate(needed)}
    heap: list[tuple[int, int, int]] = []
    order: list[int] = []

    def push(i):
        new_operands = sum(j not in live for j in operands[i])
        heapq.heappush(heap, (new_operands, -(len(order) if recent else place[i]), i))

    for i in live:
        push(i)
    while heap:
        _, _, i = heapq.heappop(heap)
        order.append(i)
        for j in operands[i]:
            live.add(j)
            users[j] -= 1
            if not users[j]:
                push(j)
    return {i: needed[i] for i in reversed(order)}

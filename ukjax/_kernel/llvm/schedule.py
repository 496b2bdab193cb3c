"""In what order to do operations: one in which few values wait for their use at a time, so that they stay near."""

import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from ..graph.number import Number, Operand

Needed = dict[int, tuple[Operand, ...]]
"""Operations, in an order in which they can be done, and their operands."""


def scheduled(needed: Needed, results: Sequence[Operand]) -> Needed:
    """The same in the order, of the given one and two others, in which the fewest values wait on average."""
    orders = needed, _backwards(needed, results, recent=False), _backwards(needed, results, recent=True)
    return min(orders, key=lambda order: float(np.mean(alive(order, results))))


def alive(needed: Needed, results: Sequence[Operand]) -> Int[np.ndarray, " operations"]:
    """How many values are known and still needed, after each operation."""
    place = {i: k for k, i in enumerate(needed)}
    last = {x.index: k for k, operands in enumerate(needed.values()) for x in operands if isinstance(x, Number)}
    last |= {x.index: len(place) for x in results if isinstance(x, Number)}
    change = np.zeros(len(place) + 1, int)
    change[: len(place)] += 1
    np.add.at(change, list(last.values()), -1)
    return np.cumsum(change)[: max(1, len(place))]


def _backwards(needed, results, recent):
    """From the last operation to the first, each of those whose value all users have by then: next what asks for the
    fewest values that nobody else has asked for; of equals, what was asked for most recently, or what came last."""
    operands = {i: list(dict.fromkeys(x.index for x in given if isinstance(x, Number))) for i, given in needed.items()}
    users = dict.fromkeys(needed, 0)
    for given in operands.values():
        for j in given:
            users[j] += 1
    asked = {x.index for x in results if isinstance(x, Number)} & {i for i, count in users.items() if not count}
    place = {i: k for k, i in enumerate(needed)}
    heap: list[tuple[int, int, int]] = []
    order: list[int] = []

    def offer(i):
        new = sum(j not in asked for j in operands[i])
        heapq.heappush(heap, (new, -(len(order) if recent else place[i]), i))

    for i in asked:
        offer(i)
    while heap:
        _, _, i = heapq.heappop(heap)
        order.append(i)
        for j in operands[i]:
            asked.add(j)
            users[j] -= 1
            if not users[j]:
                offer(j)
    return {i: needed[i] for i in reversed(order)}

"""Gragg's method with extrapolation (Bulirsch and Stoer) in mpmath: ordinary differential equations to 20 digits."""

from collections.abc import Callable

from mpmath import mp

COLUMNS = 12
"""Number of extrapolated results; the order is twice this."""


def integrate(rhs: Callable, times: list, start: list, tolerance) -> list[list]:
    """Return the solution of y' = rhs(t, y) at ``times``. ``tolerance`` bounds the error of a step in each entry."""
    t, y, results = times[0], list(start), [list(start)]
    step = (times[-1] - times[0]) / 64
    for end in times[1:]:
        while t < end:
            length = min(step, end - t)
            value, error = _extrapolated(rhs, t, y, length)
            factor = min(max(mp.mpf("0.8") * (tolerance / (error + mp.mpf(10) ** -60)) ** (mp.mpf(1) / 21), 0.2), 2)
            if error <= tolerance:
                last = length == end - t
                t, y = (end if last else t + length), value
                step = step if last and factor > 1 and length < step else length * factor
            else:
                step = length * factor
        results.append(list(y))
    return results


def _extrapolated(rhs, t, y, length):
    slope = rhs(t, y)
    previous = []
    for j in range(1, COLUMNS + 1):
        row = [_midpoint(rhs, t, y, slope, length, 2 * j)]
        for k in range(1, j):
            ratio = 1 / (mp.mpf(j) / (j - k)) ** 2
            weight = ratio / (1 - ratio)
            row.append([a + (a - b) * weight for a, b in zip(row[-1], previous[k - 1], strict=True)])
        before, previous = previous, row
    error = max(abs(a - b) for a, b in zip(previous[-1], before[-1], strict=True))
    return previous[-1], error


def _midpoint(rhs, t, y, slope, length, count):
    h = length / count
    old, new = y, [a + h * b for a, b in zip(y, slope, strict=True)]
    for i in range(1, count):
        rate = rhs(t + i * h, new)
        old, new = new, [a + 2 * h * b for a, b in zip(old, rate, strict=True)]
    rate = rhs(t + length, new)
    return [(a + b + h * c) / 2 for a, b, c in zip(old, new, rate, strict=True)]

"""Second-order Taylor coefficients of functions of one variable, over floats or mpmath's numbers."""

from typing import Any


class Jet:
    """A value with its first and second derivative."""

    __slots__ = ("x", "d", "dd")

    def __init__(self, x: Any, d: Any = 0, dd: Any = 0):
        self.x, self.d, self.dd = x, d, dd

    def __add__(self, other):
        other = jet(other)
        return Jet(self.x + other.x, self.d + other.d, self.dd + other.dd)

    def __mul__(self, other):
        if not isinstance(other, Jet):
            return Jet(self.x * other, self.d * other, self.dd * other)
        return Jet(
            self.x * other.x,
            self.d * other.x + self.x * other.d,
            self.dd * other.x + 2 * self.d * other.d + self.x * other.dd,
        )

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return Jet(-self.x, -self.d, -self.dd)

    def __sub__(self, other):
        return self + (-jet(other))

    def __rsub__(self, other):
        return jet(other) - self

    def __truediv__(self, other):
        if not isinstance(other, Jet):
            return Jet(self.x / other, self.d / other, self.dd / other)
        inverse = 1 / other.x
        return self * other.function(inverse, -(inverse**2), 2 * inverse**3)

    def __rtruediv__(self, other):
        return jet(other) / self

    def __pow__(self, n):
        return self.function(self.x**n, n * self.x ** (n - 1), n * (n - 1) * self.x ** (n - 2) if n > 1 else 0)

    def function(self, f: Any, slope: Any, curvature: Any) -> "Jet":
        """Return f of this, from f, f' and f'' at the value."""
        return Jet(f, slope * self.d, slope * self.dd + curvature * self.d**2)


def jet(x: Any) -> Jet:
    """Return ``x`` as a Jet."""
    return x if isinstance(x, Jet) else Jet(x)


class Functions:
    """sin, cos and sqrt of Jets, by those of a module."""

    def __init__(self, module: Any):
        self.module, self.pi = module, module.pi

    def sin(self, a):
        if not isinstance(a, Jet):
            return self.module.sin(a)
        s, c = self.module.sin(a.x), self.module.cos(a.x)
        return a.function(s, c, -s)

    def cos(self, a):
        if not isinstance(a, Jet):
            return self.module.cos(a)
        s, c = self.module.sin(a.x), self.module.cos(a.x)
        return a.function(c, -s, -c)

    def sqrt(self, a):
        if not isinstance(a, Jet):
            return self.module.sqrt(a)
        root = self.module.sqrt(a.x)
        return a.function(root, 1 / (2 * root), -1 / (4 * root * a.x))

"""References in closed form, in mpmath. ``p`` has the parameters as attributes."""

from collections.abc import Callable

from mpmath import mp


def _pendulum(p):
    """sin(θ/2) = −k sn(K − w t), k = sin 45°, released from the horizontal."""
    m, w = mp.mpf(1) / 2, mp.sqrt(p.g / p.length)
    half = -mp.sqrt(m) * mp.ellipfun("sn", mp.ellipk(m) - w * 10, m=m)
    return [p.length * 2 * half * mp.sqrt(1 - half**2), p.length * (2 * half**2 - 1)]


def _four_bar(p):
    """θ/2 = am(speed t/(2 l) | m), m = −4 k l²/speed², k = 6 g/(5 l): a pendulum that turns over."""
    m = -4 * (6 * p.g / (5 * p.l)) * p.l**2 / p.speed**2
    sine, cosine = (mp.ellipfun(kind, p.speed / p.l * 5, m=m) for kind in ("sn", "cn"))
    return [mp.re(2 * sine * cosine) * p.l, mp.re(1 - 2 * sine**2) * p.l]


def _kepler(p):
    mean = 20 * mp.sqrt(p.mu)
    E = mp.findroot(lambda E: E - p.e * mp.sin(E) - mean, mean + p.e * mp.sin(mean))
    y = mp.sqrt(1 - p.e**2) * mp.sin(E)
    return [mp.cos(E) - p.e, y * mp.cos(p.incline), y * mp.sin(p.incline)]


def _knife_edge(p):
    size, turn = p.g * mp.sin(p.slope) / (2 * p.spin**2), 3 * p.spin
    return [size * mp.sin(turn) ** 2, size * (turn - mp.sin(2 * turn) / 2)]


def _steady_disk(p):
    """The centre turns with the precession about a fixed vertical axis."""
    A, C, W = p.m * p.r**2 / 4, p.m * p.r**2 / 2, p.precession
    s, c = mp.sin(p.tilt), mp.cos(p.tilt)
    axial = (A * W**2 * s * c - p.m * p.g * p.r * c) / ((C + p.m * p.r**2) * W * s)
    speed, turn = -p.r * axial, 5 * W
    return [speed / W * mp.sin(turn), speed / W * (1 - mp.cos(turn)), turn, p.tilt]


def _bouncing_ball(p):
    first = mp.sqrt(2 * (p.h0 - p.R) / p.g)

    def height(t):
        at, speed = first, p.g * first * p.e
        while at + 2 * speed / p.g < t:
            at, speed = at + 2 * speed / p.g, speed * p.e
        return p.R + speed * (t - at) - p.g * (t - at) ** 2 / 2

    return [first, height(1), height(mp.mpf("2.5")), first * (1 + p.e) / (1 - p.e)]


def _friction_oscillator(p):
    """First x' > 0 about −friction, then half periods about ± friction alternately."""
    f = p.friction
    radius, t = mp.sqrt((12 + f) ** 2 + p.speed**2), mp.atan2(p.speed, 12 + f)
    x, side, at_ten = radius - f, 1, None
    while abs(x) > f:
        if t + mp.pi > 10 >= t:
            at_ten = side * f + (x - side * f) * mp.cos(10 - t)
        x, t, side = 2 * side * f - x, t + mp.pi, -side
    return [at_ten, x]


def _rimless_wheel(p):
    """ω⁺ = r ω⁻ in an impact, and ω⁻² − ω⁺² from the height lost in a step."""
    half = mp.pi / 8
    r = (p.inertia + mp.cos(2 * half)) / (p.inertia + 1)
    gain = 2 * (mp.cos(p.slope - half) - mp.cos(p.slope + half)) / (1 + p.inertia)
    return [mp.sqrt(r**2 * gain / (1 - r**2)), r**2]


def _hanging_chain(p):
    """Zeros of L5(x) = Σ (−1)^k C(5, k) x^k/k!."""
    coefficients = [(-1) ** k * mp.binomial(5, k) / mp.factorial(k) for k in range(5, -1, -1)]
    return [p.g / p.l * mp.re(x) for x in sorted(mp.polyroots(coefficients, maxsteps=200, extraprec=200), key=mp.re)]


def _four_bar_modes(p):
    N = mp.mpf(40)
    return [p.g * ((N + 1) / 2 + N) / ((N + 1) / 3 + N)]


def _whipple(p):
    """Roots of det(M s² + v C1 s + g K0 + v² K2), with the published matrices of 15 digits."""
    M = ["80.81722", "2.31941332208709", "2.31941332208709", "0.29784188199686"]
    C1 = ["0", "33.86641391492494", "-0.85035641456978", "1.6854039739756"]
    K0 = ["-80.95", "-2.59951685249872", "-2.59951685249872", "-0.80329488458618"]
    K2 = ["0", "76.59734589573222", "0", "2.65431523794604"]
    v, numbers = p.speed, lambda row: [mp.mpf(x) for x in row]
    entries = [
        [a, v * b, p.gravity * c + v**2 * d]
        for a, b, c, d in zip(numbers(M), numbers(C1), numbers(K0), numbers(K2), strict=True)
    ]
    times = lambda f, h: [sum(f[i] * h[k - i] for i in range(3) if 0 <= k - i < 3) for k in range(5)]
    det = [a - b for a, b in zip(times(entries[0], entries[3]), times(entries[1], entries[2]), strict=True)]
    roots = mp.polyroots(det, maxsteps=200, extraprec=200)
    weave = next(z for z in roots if mp.im(z) > mp.mpf(10) ** -10)
    caster, capsize = sorted(mp.re(z) for z in roots if abs(mp.im(z)) < mp.mpf(10) ** -10)
    return [caster, capsize, mp.re(weave), mp.im(weave)]


CLOSED_FORMS: dict[str, Callable] = {
    "pendulum": _pendulum,
    "four_bar": _four_bar,
    "kepler": _kepler,
    "knife_edge": _knife_edge,
    "steady_disk": _steady_disk,
    "bouncing_ball": _bouncing_ball,
    "friction_oscillator": _friction_oscillator,
    "rimless_wheel": _rimless_wheel,
    "hanging_chain": _hanging_chain,
    "four_bar_modes": _four_bar_modes,
    "whipple": _whipple,
}
"""Function of the parameters for each problem that has one."""

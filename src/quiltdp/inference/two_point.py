"""The two-point maximum: two laws that a bounded tilt separates, and two functions that bound each other.

Let f and g be laws on a finite set, G ≥ 0 on the support of f and G' > 0 on that of g, with

    G(u) ≤ e^{μ(u,u')} G'(u')    and    f(u) g(u') ≤ e^{C(u,u')} f(u') g(u).

**Claim.**  E_f G / E_g G' is at most the largest value over single points, e^{μ(u,u)}, and pairs {1, 2}
of points.  If C(1,2) or C(2,1) is infinite a pair is worth max μ over its four corners.  Otherwise put
ln ρ at either end of [−C(2,1), C(1,2)] and t at either break point μ(1,2) − μ(1,1), μ(2,2) − μ(2,1), cut
to any range that ln G'(1)/G'(2) is known to keep:

    a = e^{min(μ(1,1), μ(1,2) − t)},  b = e^{min(μ(2,2), μ(2,1) + t)},  L = (ln ρ + t)/2,  M = (ln ρ − t)/2,

and the pair is worth the least λ ≥ max(a, b) with  a e^L + b e^{−L} ≤ 2 λ cosh M + 2 √((λ−a)(λ−b)).

*Proof.*  Write f = ν·φ and g = ν·γ.  Over the measures ν ≥ 0 with E_ν φ = E_ν γ = 1 the quotient is
linear-fractional in ν, so it is largest at a vertex, and a vertex has at most two points.  A single point
gives G(u)/G'(u).  For two points with weights w, 1 − w under g, and ρ = (f/g)(1) : (f/g)(2),

    [w ρ G(1) + (1−w) G(2)] / ([w ρ + 1 − w] [w G'(1) + (1−w) G'(2)]).

In ρ it is a Möbius function, so largest at an end.  With G as large as allowed and τ = e^t = G'(1)/G'(2)
the numerator is a minimum of lines in τ and the denominator a line: largest at a break point (below both
it increases, above both it decreases), or at the end of the range beyond which the break point lies.  At
weights x = w/(1−w) it is at most λ if and only if ρτ(λ−a)x² + (λ(ρ+τ) − ρτa − b)x + (λ−b) ≥ 0; for all
x > 0 that is the inequality above.  The right side grows with λ, and where max(a, b) does not do,

    √λ = |aρτ − b| / ( √(ρ(τ−1)(aτ−b)) + √(τ(ρ−1)(aρ−b)) ).

(a = b = 1 gives Φ(ln ρ, t), the contraction of Birkhoff and Hopf.)  The number returned has been moved up
and put into the inequality again, with the rounding of every term against it; where it did not pass, the
pair is worth max μ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.numbers import EPS

__all__ = ["least_rate", "two_point"]

Array = NDArray[np.float64]


def two_point(
    straight: tuple[Array, Array],
    crossed: tuple[Array, Array],
    tilt: tuple[Array, Array],
    span: tuple[Array, Array] | None = None,
) -> Array:
    """Return what pairs of points are worth, as logarithms, verified and rounded up.

    Parameters
    ----------
    straight
        μ(1,1) and μ(2,2); −∞ where G must vanish.
    crossed
        μ(1,2) and μ(2,1).
    tilt
        C(1,2) and C(2,1); ∞ allowed.
    span
        Upper bounds on ln G'(1)/G'(2) and on ln G'(2)/G'(1); ∞ allowed.  ``None``: nothing is known.

    Examples
    --------
    >>> one, none = np.ones(1), np.zeros(1)
    >>> float(two_point((none, none), (2 * one, 2 * one), (one, one))[0].round(12))  # Φ(1, 2)
    0.454672587605
    """
    one, two = straight
    there, back = crossed
    through = np.maximum(np.maximum(one, two), np.maximum(there, back))
    fine = np.isfinite(one) & np.isfinite(two) & np.isfinite(there) & np.isfinite(back)
    fine &= np.isfinite(tilt[0]) & np.isfinite(tilt[1])
    result = through.copy()
    if not fine.any():
        return result
    one, two, there, back = one[fine], two[fine], there[fine], back[fine]
    cuts = [there - one, two - back]
    if span is not None:
        cuts = [np.minimum(np.maximum(t, -span[1][fine]), span[0][fine]) for t in cuts]
    value = np.maximum(one, two)
    for log_rho in (tilt[0][fine], -tilt[1][fine]):
        for t in cuts:
            a, b = np.minimum(one, there - t), np.minimum(two, back + t)
            np.maximum(value, least_rate(a, b, log_rho, t), out=value)
    result[fine] = np.minimum(value, through[fine])
    return result


def least_rate(a: Array, b: Array, log_rho: Array, t: Array) -> Array:
    """Return the least ln λ of one pair of points (ln a, ln b, ln ρ and t given), verified; ∞ if it is not.

    Examples
    --------
    >>> zero = np.zeros(1)
    >>> float(least_rate(zero, zero, zero + 1.0, zero + 2.0)[0].round(12))  # Φ(1, 2)
    0.454672587605
    """
    base = np.maximum(a, b)
    size = 4.0 + np.abs(a) + np.abs(b) + np.abs(log_rho) + np.abs(t)
    slack = 96.0 * EPS * size
    value = base + slack
    same_way = log_rho * t > 0
    if same_way.any():
        root = _root(a[same_way], b[same_way], log_rho[same_way], t[same_way])
        value[same_way] = np.maximum(base[same_way], root) + slack[same_way]
    # λ moves with a, b, ρ and t at most as they do: their own rounding is added to a λ that passed
    holds = _holds(value, a, b, log_rho, t, 8.0 * EPS * size)
    return np.where(holds, value + 8.0 * EPS * size, np.inf)


def _root(a: Array, b: Array, r: Array, t: Array) -> Array:
    """Return ln of the closed form, −∞ where max(a, b) satisfies the inequality."""
    apart = a - b
    with np.errstate(divide="ignore", invalid="ignore"):
        # max(a, b) does not do: a ≥ b and (ρ−1)(τ−1) > 1 − b/a, or b ≥ a and (1/ρ−1)(1/τ−1) > 1 − a/b
        product = np.where(apart >= 0, _gap(r) + _gap(t), _gap(-r) + _gap(-t))
        needed = product > np.log(-np.expm1(-np.abs(apart)))
        first = 0.5 * (r + _gap(t) + b + _gap(apart + t))
        second = 0.5 * (t + _gap(r) + b + _gap(apart + r))
        root = 2.0 * (b + _gap(apart + r + t) - np.logaddexp(first, second))
    return np.where(needed & ~np.isnan(root), root, -np.inf)


def _gap(x: Array) -> Array:
    """Return ln |e^x − 1|."""
    return np.asarray(np.maximum(x, 0.0) + np.log(-np.expm1(-np.abs(x))))


def _holds(value: Array, a: Array, b: Array, r: Array, t: Array, error: Array) -> NDArray[np.bool_]:
    """Return where a e^L + b e^{−L} ≤ 2 λ cosh M + 2 √((λ−a)(λ−b)) surely.

    Both sides are divided by λ e^{max(|L|, |M|)}; ``error`` bounds the relative rounding of a term.
    """
    half, other = 0.5 * (r + t), 0.5 * np.abs(r - t)
    scale = np.maximum(np.abs(half), other)
    left = np.exp(a - value + half - scale) + np.exp(b - value - half - scale)
    right = np.exp(other - scale) + np.exp(-other - scale)
    root = np.sqrt(np.maximum(np.expm1(a - value) * np.expm1(b - value), 0.0))
    right = right + 2.0 * np.exp(-scale) * root
    return np.asarray(left * (1.0 + error) <= right * (1.0 - error))

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

With m = max(a, b) for both the pair is worth m e^Φ or, where ln ρ and t have different signs, m: never less
than with a and b.  And Φ = 4 artanh(tanh(|ln ρ|/4) tanh(|t|/4)) is concave in either argument, so that

    λ ≤ m e^{min(|ln ρ| tanh(|t|/4), |t| tanh(|ln ρ|/4))},

the *ceiling* by which pairs are passed over.

*Assumes*: nothing.  *Cost*: a closed form for each of four cases of a pair.  *Reference*: docs/theory.md,
section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.compiled import kernel
from quiltdp.inference.plan import OTHER_PAIRS, PAIRS_AT_ONCE
from quiltdp.numbers import EPS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    some = np.flatnonzero(fine)
    if not len(some):
        return through
    given = [one, two, there, back, tilt[0], -tilt[1]]
    if span is not None:
        given += [-span[1], span[0]]
    given = [a.take(some) if len(some) < fine.size else a.ravel() for a in given]
    parts = [slice(k, k + PAIRS_AT_ONCE) for k in range(0, len(some), PAIRS_AT_ONCE)]
    value = np.concatenate([_largest_values(*(a[part] for a in given)) for part in parts])
    through.put(some, np.minimum(value, through.take(some)))
    return through


def _largest_values(
    one: Array, two: Array, there: Array, back: Array, most: Array, least: Array, *limits: Array
) -> Array:
    """Return the largest value of every pair over both ends of ln ρ and both break points t, side by side."""
    t = np.stack([there - one, two - back])
    if limits:
        t = np.minimum(np.maximum(t, limits[0]), limits[1])
    a, b = np.minimum(one, there - t), np.minimum(two, back + t)
    rates = least_rate(
        np.concatenate([a, a]),
        np.concatenate([b, b]),
        np.stack([most, most, least, least]),
        np.concatenate([t, t]),
    )
    return np.asarray(np.maximum(np.maximum(one, two), rates.max(axis=0)))


@dataclass(frozen=True, eq=False)
class PointPairs:
    """All pairs of the points u of each row k; μ, C and the ranges of t are read from square blocks.

    Block ``mu_at[k]`` of ``mu``, which has axes (…, u, u'), and so on; what the row is worth is wanted in
    ``cell[k]``.
    """

    mu: Array
    mu_at: Ints
    tilt: Array
    tilt_at: Ints
    span: Array
    span_at: Ints
    cell: Ints

    def in_c(self) -> tuple[Array | Ints | int, ...]:
        """Return the rows as kernels take them."""
        blocks = (self.mu, self.mu_at, self.tilt, self.tilt_at, self.span, self.span_at)
        return *map(np.ascontiguousarray, blocks), self.cell, len(self.cell), self.mu.shape[-1]

    def listed(self) -> list[Array | Ints]:
        """Return the cells of all pairs, and the arguments of :func:`two_point` one by one."""
        width = self.mu.shape[-1]
        u, w = np.triu_indices(width, 1)
        blocks = ((self.mu, self.mu_at), (self.tilt, self.tilt_at), (self.span, self.span_at))
        mu, tilt, span = (a.reshape(-1, width, width)[at] for a, at in blocks)
        crossed = [a[:, i, j] for a in (mu, tilt, span) for i, j in ((u, w), (w, u))]
        return [np.repeat(self.cell, len(u)), *(a.ravel() for a in (mu[:, u, u], mu[:, w, w], *crossed))]


def raise_to_pairs(worth: Array, rows: Sequence[PointPairs]) -> None:
    """Raise ``worth[cell]`` to what the pairs of all rows are worth; single points are in already.

    Compiled loops find the pair of every cell with the largest ceiling.  Once it is known what that one is
    worth, few others have ceilings above; the answer is that of all pairs.
    """
    first, more = kernel("qd_first_pairs"), kernel("qd_other_pairs")
    if first is None or more is None:
        cell, *given = map(np.concatenate, zip(*[some.listed() for some in rows], strict=True))
        above = np.flatnonzero(np.maximum(given[2], given[3]) > worth[cell])  # none exceeds its corners
        given = [a.take(above) for a in given]
        np.maximum.at(worth, cell.take(above), two_point(*((given[k], given[k + 1]) for k in (0, 2, 4, 6))))
        return
    in_c = [some.in_c() for some in rows]
    best = np.full((len(worth), 6), -np.inf)  # by cell, as :func:`_worth_of_cases` reads them
    for some in in_c:
        first(*some, worth, best)
    cell = np.flatnonzero(best[:, 0] > worth)
    worth[cell] = np.maximum(worth[cell], _worth_of_cases(best[cell]))
    end, others, at = 0, np.empty((OTHER_PAIRS, 6)), np.empty(OTHER_PAIRS, dtype=np.int64)
    for some in in_c:
        while (found := more(*some, worth, best, end, len(at), others, at)) > len(at):
            others = np.concatenate([others[:end], np.empty((2 * found, 6))])
            at = np.concatenate([at[:end], np.empty(2 * found, dtype=np.int64)])
        end = found
    np.maximum.at(worth, at[:end], _worth_of_cases(others[:end]))


def _worth_of_cases(cases: Array) -> Array:
    """Return what cases are worth, as kernels return them: ceiling, a, b, ln ρ, t and the largest corner."""
    _, a, b, log_rho, t, through = np.ascontiguousarray(cases.T)
    return np.asarray(np.minimum(least_rate(a, b, log_rho, t), through))


def least_rate(a: Array, b: Array, log_rho: Array, t: Array) -> Array:
    """Return the least ln λ of a pair (ln a, ln b, ln ρ and t given), verified; the ceiling where it is not.

    Examples
    --------
    >>> zero = np.zeros(1)
    >>> float(least_rate(zero, zero, zero + 1.0, zero + 2.0)[0].round(12))  # Φ(1, 2)
    0.454672587605
    """
    size = 4.0 + np.abs(a) + np.abs(b) + np.abs(log_rho) + np.abs(t)
    slack = 96.0 * EPS * size
    # λ moves with a, b, ρ and t at most as they do: their own rounding is added to a λ that passed
    rate = np.maximum(a, b) + slack + 8.0 * EPS * size
    same_way = log_rho * t > 0  # elsewhere cosh L ≤ cosh M: max(a, b) does, and passes by 96 to 16 roundings
    some = np.flatnonzero(same_way)
    if len(some):
        a, b, log_rho, t, size, slack = (x.take(some) for x in (a, b, log_rho, t, size, slack))
        value = np.maximum(np.maximum(a, b), _log_closed_form(a, b, log_rho, t)) + slack
        holds = _surely_holds(value, a, b, log_rho, t, 8.0 * EPS * size)
        value = np.where(holds, value + 8.0 * EPS * size, np.inf)
        rate.put(some, np.minimum(value, _rate_ceiling(a, b, log_rho, t, size)))
    return rate


def _rate_ceiling(a: Array, b: Array, r: Array, t: Array, size: Array) -> Array:
    """Return the ceiling where ln ρ and t have one sign, in the order of ``compiled/point_pairs.c``."""
    r, t = np.abs(r), np.abs(t)
    phi = np.minimum(r * _tanh_above(0.25 * t), t * _tanh_above(0.25 * r))
    return np.asarray(np.maximum(a, b) + phi + 128.0 * EPS * size)


def _tanh_above(x: Array) -> Array:
    """Return the convergent of the continued fraction of tanh x, x ≥ 0, that is above it."""
    square = x * x
    return np.asarray(x * (15.0 + square) / (15.0 + 6.0 * square))


def _log_closed_form(a: Array, b: Array, r: Array, t: Array) -> Array:
    """Return ln of the closed form, −∞ where max(a, b) satisfies the inequality."""
    apart = a - b
    with np.errstate(divide="ignore", invalid="ignore"):
        of_r, of_t = _log_one_minus_exp(r), _log_one_minus_exp(t)
        up_r, up_t = np.maximum(r, 0.0) + of_r, np.maximum(t, 0.0) + of_t  # ln |e^r − 1| and ln |e^t − 1|
        down_r, down_t = np.maximum(-r, 0.0) + of_r, np.maximum(-t, 0.0) + of_t
        # max(a, b) does not do: a ≥ b and (ρ−1)(τ−1) > 1 − b/a, or b ≥ a and (1/ρ−1)(1/τ−1) > 1 − a/b
        product = np.where(apart >= 0, up_r + up_t, down_r + down_t)
        needed = product > _log_one_minus_exp(apart)
        first = 0.5 * (r + up_t + b + _log_expm1(apart + t))
        second = 0.5 * (t + up_r + b + _log_expm1(apart + r))
        root = 2.0 * (b + _log_expm1(apart + r + t) - np.logaddexp(first, second))
    return np.where(needed & ~np.isnan(root), root, -np.inf)


def _log_expm1(x: Array) -> Array:
    """Return ln |e^x − 1|."""
    return np.asarray(np.maximum(x, 0.0) + _log_one_minus_exp(x))


def _log_one_minus_exp(x: Array) -> Array:
    """Return ln (1 − e^{−|x|})."""
    return np.asarray(np.log(-np.expm1(-np.abs(x))))


def _surely_holds(value: Array, a: Array, b: Array, r: Array, t: Array, error: Array) -> NDArray[np.bool_]:
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

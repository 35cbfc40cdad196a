"""Φ: how far a bounded correlation lets a bounded likelihood ratio travel.

If two distributions p, p' on one set have ln(p/p') of spread at most c, and ln A has spread at most
o, then ln(E_p A / E_p' A) ≤ Φ(c, o), and two points attain it (Birkhoff–Hopf).

*Assumes*: c and o are numbers ≥ 0 or ∞.  *Cost*: a few elementary functions.  *Reference*: docs/theory.md,
section 5 (Birkhoff 1957, Hopf 1963).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.numbers import up_array

_LARGE = 1000.0  # beyond it exp(m/2) nears overflow, and the logarithmic form is exact to rounding


def phi(c: ArrayLike, o: ArrayLike) -> NDArray[np.float64]:
    """Return Φ(c, o) = 4 artanh(tanh(c/4) tanh(o/4)), rounded up.

    Φ is symmetric, increasing and concave in each argument, Φ ≤ min(c, o), Φ(∞, o) = o.

    Parameters
    ----------
    c, o
        Non-negative, ∞ allowed; broadcast against each other.

    Notes
    -----
    With m = min and M = max the stable form is
    2·log1p( expm1(m/2) · (−expm1(−M/2)) / (1 + e^{−(M−m)/2}) ).  Its relative error is that of a
    dozen elementary operations; the result is rounded up by 64 units and cut at m.

    Examples
    --------
    >>> round(float(phi(1.0, 2.0)), 12), float(phi(float("inf"), 2.0)), float(phi(0.0, 5.0))
    (0.454672587605, 2.0, 0.0)
    """
    a, b = np.asarray(c, dtype=np.float64), np.asarray(o, dtype=np.float64)
    small, large = np.asarray(np.minimum(a, b)), np.maximum(a, b)
    if small.max(initial=0.0) <= _LARGE:  # as nearly always: m is what it is
        ratio = np.exp(-0.5 * (large - small))
        value = 2.0 * np.log1p(np.expm1(0.5 * small) * -np.expm1(-0.5 * large) / (1.0 + ratio))
        return np.asarray(np.minimum(up_array(value), small))
    infinite = np.isinf(small)
    m = np.where(infinite, 0.0, small)
    with np.errstate(invalid="ignore"):
        gap = np.where(infinite, 0.0, large - m)
    ratio = np.exp(-0.5 * gap)
    safe = np.minimum(m, _LARGE)
    stable = 2.0 * np.log1p(np.expm1(0.5 * safe) * -np.expm1(-0.5 * large) / (1.0 + ratio))
    value = np.where(m > _LARGE, m - 2.0 * np.log1p(ratio), stable)
    rounded: NDArray[np.float64] = np.minimum(up_array(value), m)
    return np.where(infinite, np.inf, rounded)

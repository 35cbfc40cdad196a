r"""Discrete noise wider than 64 bits: the exact samplers of Canonne, Kamath and Steinke, in whole numbers.

OpenDP's samplers are faster but give 64-bit numbers, too few when the noise is billions of times the
sensitivity.  These give whole numbers of any size, from the operating system's entropy, with no
floating-point number anywhere.

Reference
---------
Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy, 2020: Algorithms 1, 2 and 3.
"""

from __future__ import annotations

import secrets
from fractions import Fraction
from math import isqrt

__all__ = ["wide_gaussian", "wide_laplace"]


def _happens(probability: Fraction) -> bool:
    """Return True with exactly this probability."""
    return secrets.randbelow(probability.denominator) < probability.numerator


def _happens_exp(gamma: Fraction) -> bool:
    """Return True with probability exp(−γ), γ ≥ 0 (Algorithm 1)."""
    while gamma > 1:
        if not _happens_exp(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while _happens(gamma / k):
        k += 1
    return k % 2 == 1


def wide_laplace(scale: Fraction) -> int:
    """Return z with probability ∝ exp(−|z| / scale) (Algorithm 2).

    Examples
    --------
    >>> abs(wide_laplace(Fraction(2**80))) < 2**90
    True
    """
    t, s = scale.numerator, scale.denominator
    while True:
        u = secrets.randbelow(t)
        if not _happens_exp(Fraction(u, t)):
            continue
        v = 0
        while _happens_exp(Fraction(1)):
            v += 1
        magnitude = (u + t * v) // s
        negative = secrets.randbelow(2) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def wide_gaussian(std: Fraction) -> int:
    """Return z with probability ∝ exp(−z² / 2 std²) (Algorithm 3)."""
    variance = std * std
    t = Fraction(isqrt(variance.numerator // variance.denominator) + 1)
    while True:
        z = wide_laplace(t)
        if _happens_exp((abs(z) - variance / t) ** 2 / (2 * variance)):
            return z

"""Seven definitions of privacy computed side by side for one finite mechanism."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, distribution, probability, rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PrivacyDefinitions:
    """What each definition says about one mechanism (nats, except total variation).

    Attributes
    ----------
    pure
        Pure DP: the largest ln P(y|Z)/P(y|Z') over neighbours and outputs.
    approximate
        The smallest ε of (ε, δ)-DP at the given δ.
    personal
        One ε per record value z: the largest log-ratio when a record of value z is replaced.
    kl, total_variation
        The largest divergence over neighbours.
    personal_approximate
        The same as ``personal`` with δ of the output left out.
    random
        The smallest ε of (ε, δ₂)-indistinguishability that holds with probability 1 − δ₁ (the
        ``confidence``) over Z and one new draw.
    on_average_kl
        The expected KL divergence over Z and one new draw (average over positions).
    """

    pure: float
    approximate: float
    personal: tuple[float, ...]
    kl: float
    total_variation: float
    random: float
    on_average_kl: float
    delta: float
    confidence: float
    personal_approximate: tuple[float, ...] = ()
    random_delta: float = 0.0

    def _random_name(self) -> str:
        return f"random privacy ({self.confidence:g}, δ₂ = {self.random_delta:g})"

    def table(self) -> tuple[tuple[str, float, str], ...]:
        """Return (definition, value, what is averaged and what is worst case), strongest first."""
        return (
            ("pure DP", self.pure, "worst data, worst neighbour, worst output"),
            (f"approximate DP (δ = {self.delta:g})", self.approximate, "worst data, all but δ of the output"),
            ("personal DP (worst record value)", max(self.personal), "worst data, one record value"),
            ("KL-privacy", self.kl, "worst data, average output"),
            ("TV-privacy", self.total_variation, "worst data, one output event"),
            (self._random_name(), self.random, "typical data, worst output (but for δ₂)"),
            ("on-average KL-privacy", self.on_average_kl, "average data, average output"),
        )


def compare_privacy_definitions(
    mechanism: ArrayLike,
    law: ArrayLike,
    n: int,
    *,
    delta: float = 1e-3,
    confidence: float = 0.95,
    random_delta: float = 0.0,
) -> PrivacyDefinitions:
    """Compute seven privacy definitions of one finite mechanism.

    Parameters
    ----------
    mechanism
        P(y | Z): one row per dataset in lexicographic order (last record fastest), one column per
        output; ``len(law) ** n`` rows.
    law
        The law of one record; records are independent for the two averaged definitions.
    n
        The number of records.
    delta
        δ of approximate and personal DP.
    confidence, random_delta
        1 − δ₁ and δ₂ of random privacy.

    Examples
    --------
    >>> flip = [[0.75, 0.25], [0.25, 0.75]]                      # randomized response, one record
    >>> found = compare_privacy_definitions(flip, [0.5, 0.5], 1)
    >>> for name, value, _ in found.table():
    ...     print(f"{name:34} {value:.4f}")
    pure DP                            1.0986
    approximate DP (δ = 0.001)         1.0973
    personal DP (worst record value)   1.0986
    KL-privacy                         0.5493
    TV-privacy                         0.5000
    random privacy (0.95, δ₂ = 0)      1.0986
    on-average KL-privacy              0.2747

    References
    ----------
    Wang, Lei and Fienberg (2016), Table 1 (lines 187-194); Ebadi et al. (2015) for personal,
    Hall et al. (2012) for random privacy.
    """
    table, weights, n = _checked_inputs(mechanism, law, n)
    delta = probability("delta", delta, zero=True)
    left_out = probability("random_delta", random_delta, zero=True)
    confidence = probability("confidence", confidence)
    size = len(weights)
    personal, spared = [0.0] * size, [0.0] * size
    pure = approximate = kl = variation = average = 0.0
    ratios: list[tuple[float, float]] = []
    chances = _dataset_probabilities(weights, n)
    for first, second, old, new in _neighbours(size, n):
        p, q = table[first], table[second]
        ratio = _largest_ratio(p, q)
        personal[old] = max(personal[old], ratio, _largest_ratio(q, p))
        either = max(_smallest_epsilon(p, q, delta), _smallest_epsilon(q, p, delta))
        spared[old] = max(spared[old], either)
        weight = float(chances[first] * weights[new]) / n
        divergence = _kl_divergence(p, q)
        if weight > 0:
            average += weight * divergence
            ratios.append((max(_smallest_epsilon(p, q, left_out), _smallest_epsilon(q, p, left_out)), weight))
        if old != new:
            pure = max(pure, ratio)
            approximate = max(approximate, _smallest_epsilon(p, q, delta))
            kl = max(kl, divergence)
            variation = max(variation, 0.5 * float(np.abs(p - q).sum()))
    return PrivacyDefinitions(
        pure,
        approximate,
        tuple(personal),
        kl,
        variation,
        _quantile(ratios, confidence),
        average,
        delta,
        confidence,
        tuple(spared),
        left_out,
    )


def adaptive_on_average_kl(
    first: ArrayLike, second: Sequence[ArrayLike], law: ArrayLike, n: int
) -> tuple[float, float, float]:
    """Compute what two mechanisms leak when the first answer chooses the second mechanism.

    Claim (chain rule): E D_KL of the pair is ε₁ + E_Z E_{h∼A(Z)} D_KL(B(Z, h) ‖ B(Z', h)).
    The published ε₁ + ε₂ with ε₂ = max_h E D_KL(B(Z, h) ‖ B(Z', h)) can be smaller than the truth.

    Parameters
    ----------
    first
        A: P(h | Z), rows as in :func:`compare_privacy_definitions`.
    second
        B(·, h): one matrix P(y | Z) for every h.

    Returns
    -------
    tuple of float
        ε₁, the second term of the chain rule (add them), and the published ε₂.

    Examples
    --------
    >>> first = 0.5 * np.eye(4) + 0.125
    >>> second = [np.where(np.arange(4)[:, None] == h, [[0.9, 0.1]], [[0.1, 0.9]]) for h in range(4)]
    >>> [round(v, 3) for v in adaptive_on_average_kl(first, second, [0.25] * 4, 1)]
    [0.604, 0.989, 0.659]

    References
    ----------
    Wang, Lei and Fienberg (2016), Lemma 7 (false as stated for adaptive choice).
    """
    a, weights, n = _checked_inputs(first, law, n)
    later = [_checked_inputs(b, law, n)[0] for b in second]
    if len(later) != a.shape[1]:
        raise InvalidArgument(
            f"second must hold one matrix for each of {a.shape[1]} first answers, not {len(later)}"
        )
    chances = _dataset_probabilities(weights, n)
    one = two = 0.0
    fixed = np.zeros(len(later))
    for z, other, _, new in _neighbours(len(weights), n):
        weight = float(chances[z] * weights[new]) / n
        if weight > 0:
            divergences = np.array([_kl_divergence(b[z], b[other]) for b in later])
            one += weight * _kl_divergence(a[z], a[other])
            two += weight * float(np.sum(np.where(a[z] > 0, a[z] * divergences, 0.0)))
            fixed += weight * divergences
    return one, two, float(fixed.max())


def _checked_inputs(mechanism: ArrayLike, law: ArrayLike, n: int) -> tuple[Array, Array, int]:
    table = rows("mechanism", mechanism)
    weights = distribution("law", law)
    size = count("n", n)
    if weights.ndim != 1 or table.shape[0] != len(weights) ** size:
        raise InvalidArgument(
            f"mechanism has {table.shape[0]} rows, {size} records with {weights.size} values need"
            f" {weights.size**size}"
        )
    return table, weights, size


def _dataset_probabilities(weights: Array, n: int) -> Array:
    chances = np.ones(1)
    for _ in range(n):
        chances = np.outer(chances, weights).ravel()
    return chances


def _neighbours(size: int, n: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (Z, Z', old value, new value) for every dataset, position and new value."""
    for z, values in enumerate(itertools.product(range(size), repeat=n)):
        for i, old in enumerate(values):
            step = size ** (n - 1 - i)
            for new in range(size):
                yield z, z + (new - old) * step, old, new


def _largest_ratio(p: Array, q: Array) -> float:
    mask = p > 0
    if np.any(q[mask] == 0):
        return math.inf
    return max(float(np.max(np.log(p[mask]) - np.log(q[mask]))), 0.0)


def _kl_divergence(p: Array, q: Array) -> float:
    mask = p > 0
    if np.any(q[mask] == 0):
        return math.inf
    return max(float(np.sum(p[mask] * (np.log(p[mask]) - np.log(q[mask])))), 0.0)


def _smallest_epsilon(p: Array, q: Array, delta: float) -> float:
    """Return the smallest ε ≥ 0 with Σ (p − e^ε q)₊ ≤ δ, exactly: piecewise linear in e^ε."""
    with np.errstate(divide="ignore"):
        ratio = np.where(p > 0, p / np.where(q > 0, q, 1.0), 0.0)
    ratio = np.where((p > 0) & (q == 0), np.inf, ratio)
    order = np.argsort(-ratio)
    above_p, above_q = np.cumsum(p[order]), np.cumsum(q[order])
    if float(p[q == 0].sum()) > delta:
        return math.inf
    best = 0.0  # max over prefixes of (p(prefix) − δ)/q(prefix), as for max-information
    for a, b in zip(above_p, above_q, strict=True):
        if a > delta and b > 0:
            best = max(best, (a - delta) / b)
    return max(math.log(best), 0.0) if best > 0 else 0.0


def _quantile(ratios: list[tuple[float, float]], confidence: float) -> float:
    """Return the smallest value that holds with probability at least ``confidence``."""
    reached = 0.0
    for value, weight in sorted(ratios):
        reached += weight
        if reached >= confidence - 1e-12:
            return value
    return math.inf

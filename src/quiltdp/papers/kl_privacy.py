"""On-average KL-privacy: how far one replaced record moves the output, on average over the data.

    ε = E D_KL( A(Z) ‖ A([Z_{−1}, z]) ),   Z an i.i.d. sample, z one more draw.

For samplers p(h|Z) ∝ exp(−γ Σ ℓ(z_i, h) − r(h)) it equals γ times the generalization gap of the
mean loss, so privacy and generalization are the same number; and among all mechanisms these samplers trade
entropy against loss best.  All in nats.  Wang, Lei and Fienberg (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.generalization._checks import (
    count,
    distribution,
    non_negative,
    positive,
    round_down,
    round_up,
    rows,
)
from quiltdp.generalization.max_information import MaxInformation

Array = NDArray[np.float64]
TYPE_LIMIT = 2_000_000


@dataclass(frozen=True, eq=False)
class GibbsSampler:
    """The mechanism p(h | Z) ∝ exp(−γ Σ_i ℓ(z_i, h) − r(h)) on finite sets.

    Parameters
    ----------
    loss
        ℓ(z, h), one row per record value and one column per output.
    gamma
        The inverse temperature γ > 0.
    regulariser
        r(h), default 0.

    Examples
    --------
    >>> sampler = GibbsSampler([[0.0, 1.0], [1.0, 0.0]], gamma=0.5)     # a private majority vote
    >>> sampler.output_law([3, 1]).round(4).tolist()                     # three 0s, one 1
    [0.7311, 0.2689]
    """

    loss: Array
    gamma: float
    regulariser: Array

    def __init__(self, loss: ArrayLike, gamma: float, regulariser: ArrayLike | None = None) -> None:
        table = np.array(loss, dtype=np.float64)
        if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
            raise InvalidArgument("loss must be a finite matrix: rows are record values, columns outputs")
        weight = np.zeros(table.shape[1]) if regulariser is None else np.array(regulariser, dtype=np.float64)
        if weight.shape != (table.shape[1],) or not np.isfinite(weight).all():
            raise InvalidArgument(
                f"regulariser must hold one finite number for each of the {table.shape[1]} outputs"
            )
        table.flags.writeable = weight.flags.writeable = False
        object.__setattr__(self, "loss", table)
        object.__setattr__(self, "gamma", positive("gamma", gamma))
        object.__setattr__(self, "regulariser", weight)

    def log_output_law(self, counts: ArrayLike) -> Array:
        """Return ln p(h | Z) for datasets given as counts of each record value (last axis)."""
        score = -self.gamma * (np.asarray(counts, dtype=np.float64) @ self.loss) - self.regulariser
        top = score.max(axis=-1, keepdims=True)
        result: Array = score - top - np.log(np.exp(score - top).sum(axis=-1, keepdims=True))
        return result

    def output_law(self, counts: ArrayLike) -> Array:
        """Return p(h | Z)."""
        result: Array = np.exp(self.log_output_law(counts))
        return result

    def dp_epsilon(self) -> float:
        """Return a pure-DP ε: γ max_{z,z'} (max_h − min_h) of ℓ(z,h) − ℓ(z',h), rounded up.

        One replaced record moves the score by a function of h with that spread, and
        ln p(h|Z)/p(h|Z') is at most the spread.
        """
        change = self.loss[:, None, :] - self.loss[None, :, :]
        return round_up(self.gamma * float((change.max(axis=2) - change.min(axis=2)).max()))


def dataset_types(law: Array, n: int) -> tuple[NDArray[np.int64], Array]:
    """Return every dataset of n i.i.d. records up to order, as counts, with its probability."""
    size = len(law)
    total = math.comb(n + size - 1, size - 1)
    if total > TYPE_LIMIT:
        raise ModelTooWide(
            f"{n} records with {size} values have {total} datasets up to order, the limit is {TYPE_LIMIT}:"
            " use estimate_on_average_kl, a Monte Carlo estimate with an error bar"
        )
    counts = np.array(list(_compositions(n, size)), dtype=np.int64).reshape(total, size)
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    terms = np.where(counts > 0, counts * logs, 0.0).sum(axis=1)
    from scipy.special import gammaln

    weight = np.exp(terms + gammaln(n + 1) - gammaln(counts + 1).sum(axis=1))
    return counts, weight / weight.sum()


def _compositions(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (n,)
        return
    for first in range(n, -1, -1):
        for rest in _compositions(n - first, parts - 1):
            yield (first, *rest)


def check_law(sampler: GibbsSampler, law: ArrayLike) -> Array:
    """Return the law of one record as an array, or refuse one that does not fit the sampler."""
    weights = distribution("law", law)
    if weights.shape != (sampler.loss.shape[0],):
        raise InvalidArgument(
            f"law must hold one probability for each of {sampler.loss.shape[0]} record values"
        )
    return weights


def on_average_kl(sampler: GibbsSampler, law: ArrayLike, n: int, *, group: int = 1) -> float:
    """Compute E D_KL(A(Z) ‖ A(Z')), Z' = Z with ``group`` records drawn anew, exactly.

    Claim (Theorem 4): with ``group`` = 1 it equals γ × E[ℓ(z, h) − (1/n) Σ ℓ(z_i, h)], h ∼ A(Z),
    γ times the generalization gap of the mean loss.
    Claim (small-group privacy): with ``group`` = k it is k times that, for k ≤ n.

    Parameters
    ----------
    sampler
        A finite Gibbs sampler.
    law
        The law of one record.
    n
        The number of records; they are independent.

    Examples
    --------
    >>> sampler = GibbsSampler([[0.0, 1.0], [1.0, 0.0]], gamma=0.5)
    >>> one, three = (on_average_kl(sampler, [0.5, 0.5], 10, group=k) for k in (1, 3))
    >>> gap = gibbs_generalization_gap(sampler, [0.5, 0.5], 10)
    >>> round(one, 6), round(three / one, 9), round(0.5 * gap, 6)
    (0.043507, 3.0, 0.043507)

    References
    ----------
    Wang, Lei and Fienberg, "On-average KL-privacy and its equivalence to generalization for
    max-entropy mechanisms" (2016), Definition 2, Theorem 4, Lemma 6.
    """
    weights = check_law(sampler, law)
    n, k = count("n", n), count("group", group)
    if k > n:
        raise InvalidArgument(f"group = {k} must not be above n = {n}")
    kept, kept_weight = dataset_types(weights, n - k)
    moved, moved_weight = dataset_types(weights, k)
    total = 0.0
    for counts, chance in zip(kept, kept_weight, strict=True):
        logs = sampler.log_output_law(counts + moved)
        # Σ_{w,w'} P(w) P(w') D(w‖w') = Σ_w P(w) Σ_h p_w (ln p_w − mean over w' of ln p_w')
        inner = np.sum(np.exp(logs) * (logs - moved_weight @ logs), axis=1)
        total += float(chance) * float(moved_weight @ inner)
    return max(total, 0.0)


def gibbs_generalization_gap(sampler: GibbsSampler, law: ArrayLike, n: int) -> float:
    """Compute E[ℓ(z, h) − (1/n) Σ ℓ(z_i, h)], h ∼ A(Z), exactly: risk minus training risk.

    References
    ----------
    Wang, Lei and Fienberg (2016), Definition 3 (without the absolute value).
    """
    weights = check_law(sampler, law)
    n = count("n", n)
    counts, chance = dataset_types(weights, n)
    outputs = sampler.output_law(counts)
    risk = weights @ sampler.loss
    training = counts @ sampler.loss / n
    return float(chance @ np.sum(outputs * (risk - training), axis=1))


def gibbs_mutual_information(sampler: GibbsSampler, law: ArrayLike, n: int) -> float:
    """Compute I(A(Z); Z) of a finite Gibbs sampler on i.i.d. data exactly, in nats.

    References
    ----------
    Wang, Lei and Fienberg (2016), Definition 13.
    """
    weights = check_law(sampler, law)
    counts, chance = dataset_types(weights, count("n", n))
    logs = sampler.log_output_law(counts)
    overall = np.log(chance @ np.exp(logs))
    return max(float(chance @ np.sum(np.exp(logs) * (logs - overall), axis=1)), 0.0)


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean with its standard error."""

    value: float
    standard_error: float
    samples: int

    def interval(self, sigmas: float = 3.0) -> tuple[float, float]:
        """Return value ± ``sigmas`` standard errors (an estimate, not a certificate)."""
        half = sigmas * self.standard_error
        return self.value - half, self.value + half


def estimate_on_average_kl(
    divergence: Callable[[Any, Any], float],
    draw: Callable[[np.random.Generator, int], NDArray[Any]],
    n: int,
    *,
    samples: int,
    rng: np.random.Generator,
) -> Estimate:
    """Estimate E D_KL(A(Z) ‖ A([Z_{−1}, z])) by Monte Carlo, with an error bar.

    Parameters
    ----------
    divergence
        D_KL(A(Z) ‖ A(Z')) of two datasets, or an unbiased estimate of it.
    draw
        ``draw(rng, size)`` returns that many independent records (first axis).
    n
        Records in a dataset.
    samples
        Independent repetitions, at least 2.
    rng
        The random source.

    Returns
    -------
    Estimate
        It has no certificate: D_KL is unbounded, so the error bar is the normal one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = estimate_on_average_kl(
    ...     lambda z, w: kl_laplace(float(z.mean() - w.mean()), 0.1),
    ...     lambda rng, size: rng.random(size), 20, samples=4000, rng=rng)
    >>> low, high = found.interval()
    >>> low < 0.01891 < high      # the exact value, by quadrature
    True
    """
    n = count("n", n)
    repeats = count("samples", samples, least=2)
    values = np.empty(repeats)
    for r in range(repeats):
        data = draw(rng, n + 1)
        other = data[:n].copy()
        other[0] = data[n]
        values[r] = divergence(data[:n], other)
    if np.isnan(values).any():
        raise InvalidArgument("divergence returned NaN")
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(repeats)), repeats)


def kl_laplace(shift: float, scale: float) -> float:
    """Return D_KL of two Laplace laws of one ``scale`` whose centres are ``shift`` apart.

    Examples
    --------
    >>> round(kl_laplace(1.0, 1.0), 6)      # 1/e
    0.367879
    """
    x = abs(shift) / positive("scale", scale)
    return x + math.expm1(-x)


def kl_gaussian(shift: float, gaussian_std: float) -> float:
    """Return D_KL of two normal laws of one standard deviation: shift²/2σ²."""
    return (shift / positive("gaussian_std", gaussian_std)) ** 2 / 2


def compose_on_average_kl(epsilons: Sequence[float]) -> float:
    """Add on-average KL-privacy of mechanisms run side by side, chosen **before** any answer.

    Claim: D_KL of independent outputs is the sum, so its average is.  It does *not* hold for
    mechanisms chosen by earlier answers: the average of the second must be taken over the
    answers as they depend on the data, see
    :func:`~quiltdp.papers.privacy_definitions.adaptive_on_average_kl`.

    References
    ----------
    Wang, Lei and Fienberg (2016), Lemma 7, whose adaptive form is false.
    """
    if not epsilons:
        raise InvalidArgument("a composition needs at least one mechanism")
    return round_up(math.fsum(non_negative("epsilon", e) for e in epsilons))


def kl_privacy_from_max_information(bound: MaxInformation, n: int) -> float:
    """Bound on-average KL-privacy of a Gibbs sampler: I_∞ ≤ k nats for every law gives k/n.

    Claim: a law that is almost surely Z' and rarely Z shows p(h|Z) ≤ e^k p(h|Z'); so
    E D_KL(A(Z) ‖ A(Z')) ≤ k for independent datasets, which is n ε by small-group privacy.

    Raises
    ------
    InvalidArgument
        If the bound has β > 0 or does not hold for every law.

    References
    ----------
    Wang, Lei and Fienberg (2016), Lemma 11 and Corollary 12.
    """
    if bound.beta > 0 or bound.laws != "every law":
        raise InvalidArgument(
            f"this needs max-information with β = 0 for every law, not β = {bound.beta:g} for {bound.laws}:"
            " use pure_dp_max_information"
        )
    return round_up(max(bound.nats, 0.0) / count("n", n))


def gap_bounds_from_mutual_information(
    mutual_nats: float,
    *,
    gamma: float,
    n: int,
    subgaussian_mean: float,
    subexponential_scale: float | None = None,
) -> tuple[float, float]:
    """Bound the generalization gap of a Gibbs sampler by mutual information, from both sides.

    Claim: I/(γn) ≤ gap ≤ σ √(2I), where (1/n) Σ ℓ(z_i, h) − R(h) is σ-subgaussian for each h
    (σ = range/(2√n) for a loss in an interval of that range).  If it is only (σ, b)-subexponential, i.e.
    E e^{tx} ≤ e^{t²σ²/2} for |t| ≤ 1/b, the upper bound is b I + σ²/(2b).

    Parameters
    ----------
    subgaussian_mean
        σ, of the mean loss.
    subexponential_scale
        b; ``None`` for subgaussian losses.

    Returns
    -------
    tuple of float
        Lower and upper bound on the gap of the mean loss.

    Examples
    --------
    >>> low, high = gap_bounds_from_mutual_information(0.02, gamma=1, n=4, subgaussian_mean=0.25)
    >>> round(low, 6), round(high, 6)
    (0.005, 0.05)
    >>> options = dict(gamma=1, n=4, subgaussian_mean=0.25, subexponential_scale=0.5)
    >>> round(gap_bounds_from_mutual_information(0.02, **options)[1], 6)
    0.0725

    References
    ----------
    Wang, Lei and Fienberg (2016), Corollary 15 (lines 183-201), for the mean loss and γn in the place
    of γ; the upper bounds are Russo and Zou's.
    """
    mutual = non_negative("mutual_nats", mutual_nats)
    low = mutual / (positive("gamma", gamma) * count("n", n))
    sigma = non_negative("subgaussian_mean", subgaussian_mean)
    high = sigma * math.sqrt(2 * mutual)
    if subexponential_scale is not None:
        b = positive("subexponential_scale", subexponential_scale)
        high = b * mutual + sigma**2 / (2 * b)
    return round_down(low), round_up(high)


def conditional_entropy(sampler: GibbsSampler, law: ArrayLike, n: int) -> float:
    """Compute H(A(Z) | Z) = −E_Z E_{h∼A(Z)} ln p(h | Z) of a finite sampler on i.i.d. data exactly, in nats.

    Examples
    --------
    >>> coin = GibbsSampler([[0.0, 1.0], [1.0, 0.0]], gamma=1e-9)          # hardly looks at the data
    >>> round(conditional_entropy(coin, [0.5, 0.5], 3), 6)                  # ln 2
    0.693147

    References
    ----------
    Wang, Lei and Fienberg (2016), Definition 8 (line 131).
    """
    counts, chance = dataset_types(check_law(sampler, law), n)
    logs = sampler.log_output_law(counts)
    return float(-(chance @ np.sum(np.exp(logs) * logs, axis=1)))


def max_entropy_objective(sampler: GibbsSampler, law: ArrayLike, n: int, outputs: ArrayLike) -> float:
    """Return −(1/γ) H(A(Z)|Z) + E Σ ℓ(z_i, h) + E r(h)/γ of any mechanism P(h | Z).

    Claim: the sampler itself, ``sampler.output_law`` of the same datasets, minimises it for every law.

    Parameters
    ----------
    outputs
        P(h | Z), one row per dataset up to order (as :func:`~.kl_privacy.dataset_types` lists them).

    Examples
    --------
    >>> from quiltdp.papers.kl_privacy import dataset_types
    >>> vote = GibbsSampler([[0.0, 1.0], [1.0, 0.0]], gamma=0.5)
    >>> best = vote.output_law(dataset_types(np.array([0.5, 0.5]), 3)[0])
    >>> other = np.full_like(best, 0.5)
    >>> [round(max_entropy_objective(vote, [0.5, 0.5], 3, o), 4) for o in (best, other)]
    [-0.0618, 0.1137]

    References
    ----------
    Wang, Lei and Fienberg (2016), Theorem 9, (2) (line 137).
    """
    counts, chance = dataset_types(check_law(sampler, law), n)
    table: NDArray[np.float64] = rows("outputs", outputs)
    if table.shape != (len(counts), sampler.loss.shape[1]):
        raise InvalidArgument(
            f"outputs must have {len(counts)} rows and {sampler.loss.shape[1]} columns, not {table.shape}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(table > 0, table * np.log(table), 0.0).sum(axis=1)
    score = counts @ sampler.loss + sampler.regulariser / sampler.gamma
    return float(chance @ (np.sum(table * score, axis=1) - entropy / sampler.gamma))

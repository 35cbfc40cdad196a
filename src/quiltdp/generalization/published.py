"""The published sample-size theorems for the reusable holdout, for comparison only.

They apply McDiarmid's inequality to dependent records, so **they are not valid** unless the records
are independent: see ``docs/errata``.  They are offered because people will want to compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up

__all__ = [
    "NOT_VALID",
    "PublishedPlan",
    "published_chain_distance",
    "published_chain_records",
    "published_plan",
    "published_records",
]

NOT_VALID = (
    "not valid for dependent records: the published proof uses McDiarmid's inequality without independence"
)


@dataclass(frozen=True)
class PublishedPlan:
    """What the published Theorem 2 prescribes, with the warning that belongs to it.

    Attributes
    ----------
    sigma, threshold
        σ = (1−c)τ/(12 ln(4m/β)) and T = (1+c)τ/2.
    records_needed
        n_*: 144 ln(8m/β)/((1−c)²τ²).
    leakage_allowed
        (1−c)τ/12: n_# is the smallest n whose published Bayesian-DP bound is at most this.
    """

    sigma: float
    threshold: float
    records_needed: float
    leakage_allowed: float
    warning: str = NOT_VALID


def published_records(accuracy: float, failure: float) -> float:
    """Return n_* = 9 ln(4/β)/τ² of the published Theorem 1 (not valid for dependent records).

    Examples
    --------
    >>> round(published_records(0.1, 0.05))
    3944

    References
    ----------
    Zhao (2017), Theorem 1.
    """
    tau = probability("accuracy", accuracy)
    return round_up(9 * math.log(4 / probability("failure", failure)) / tau**2)


def published_plan(*, queries: int, accuracy: float, failure: float, slack: float = 0.0) -> PublishedPlan:
    """Return σ, T, n_* and the leakage target of the published Theorem 2.

    Theorem 1 with τ → (1−c)τ/4 and β → β/2m, a substitution the paper's (31) forgets.

    Examples
    --------
    >>> p = published_plan(queries=100, accuracy=0.1, failure=0.05)
    >>> round(p.sigma, 6), p.threshold, round(p.records_needed)
    (0.000927, 0.05, 139397)

    References
    ----------
    Zhao (2017), Theorem 2.
    """
    m = count("queries", queries)
    tau, beta = probability("accuracy", accuracy), probability("failure", failure)
    c = probability("slack", slack, zero=True)
    return PublishedPlan(
        (1 - c) * tau / (12 * math.log(4 * m / beta)),
        (1 + c) * tau / 2,
        published_records((1 - c) * tau / 4, beta / (2 * m)),
        (1 - c) * tau / 12,
    )


def published_chain_distance(model: ChainModel, epsilon: float) -> int:
    """Return s = ⌈(1/g) ln((e^{ε/6}+1)/(ρ(e^{ε/6}−1)))⌉, the half-width of the published chain quilt.

    g = 1 − |λ₂| and ρ the smallest stationary probability; the lemma uses s without defining it,
    the definition stands in the proof of Theorem 2.  At that distance the quilt's influence is at most ε/2.

    Raises
    ------
    InvalidArgument
        Unless the model is one homogeneous reversible chain.

    References
    ----------
    Zhao (2017), Lemma 4.
    """
    eps = positive("epsilon", epsilon)
    if len(model.segments) != 1 or not model.segments[0].homogeneous:
        raise InvalidArgument("the published chain form needs one homogeneous chain")
    from quiltdp.chain import stationary_distribution

    matrix = np.asarray(model.segments[0].transition(0))
    law = stationary_distribution(matrix)
    flow = law[:, None] * matrix
    if law.min() <= 0 or not np.allclose(flow, flow.T, atol=1e-9):
        raise InvalidArgument("the published chain form needs a reversible chain, every state possible")
    root = np.sqrt(law)
    moduli = np.sort(np.abs(np.linalg.eigvalsh(root[:, None] * matrix / root[None, :])))
    gap = 1 - (float(moduli[-2]) if len(moduli) > 1 else 0.0)
    if gap <= 1e-12:
        raise InvalidArgument("the chain does not mix: the published chain form says nothing")
    grow = math.exp(eps / 6)
    return max(1, math.ceil(math.log((grow + 1) / (float(law.min()) * (grow - 1))) / gap))


def published_chain_records(model: ChainModel, *, budget: int, sigma: float, leakage_allowed: float) -> float:
    """Return n_# of the Markov-chain form: (2s − 1)·9B/(4σ) ≤ n ε/2, ε the leakage allowed.

    The quilt of half-width s has influence at most ε/2, so its 2s − 1 nearby records may cost the
    other half.  Not valid for dependent records (see the module).

    References
    ----------
    Zhao (2017), Lemma 4 and Theorem 2.
    """
    s = published_chain_distance(model, leakage_allowed)
    return round_up(
        (2 * s - 1) * 9 * count("budget", budget) / (2 * positive("sigma", sigma) * leakage_allowed)
    )

"""Why Gibbs samplers: among all mechanisms they trade entropy against loss best."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import rows
from quiltdp.generalization.kl_privacy import GibbsSampler, dataset_types, law_for

__all__ = ["conditional_entropy", "max_entropy_objective"]


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
    counts, chance = dataset_types(law_for(sampler, law), n)
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
    >>> from quiltdp.generalization.kl_privacy import dataset_types
    >>> vote = GibbsSampler([[0.0, 1.0], [1.0, 0.0]], gamma=0.5)
    >>> best = vote.output_law(dataset_types(np.array([0.5, 0.5]), 3)[0])
    >>> other = np.full_like(best, 0.5)
    >>> [round(max_entropy_objective(vote, [0.5, 0.5], 3, o), 4) for o in (best, other)]
    [-0.0618, 0.1137]

    References
    ----------
    Wang, Lei and Fienberg (2016), Theorem 9, (2) (line 137).
    """
    counts, chance = dataset_types(law_for(sampler, law), n)
    table: NDArray[np.float64] = rows("outputs", outputs)
    if table.shape != (len(counts), sampler.loss.shape[1]):
        raise InvalidArgument(
            f"outputs must have {len(counts)} rows and {sampler.loss.shape[1]} columns, not {table.shape}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(table > 0, table * np.log(table), 0.0).sum(axis=1)
    score = counts @ sampler.loss + sampler.regulariser / sampler.gamma
    return float(chance @ (np.sum(table * score, axis=1) - entropy / sampler.gamma))

"""MQM-approx: the Markov Quilt Mechanism on reversible chains, its influence from the spectral gap.

Δ_t = e^{−g t} / π_min, g = 1 − |λ₂|, I({i−a, i+b}) ≤ 2 ln (1+Δ_a)/(1−Δ_a) + ln (1+Δ_b)/(1−Δ_b);
distances with Δ ≥ 1 are not usable.

*Assumes*: every chain is homogeneous, reversible and in its stationary law, as printed.  *Cost*: one
eigenvalue problem.  *Reference*: S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for
Correlated Data, SIGMOD 2017.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import Problem, register
from quiltdp.accountant.bounds.mqm_chain import ChainInfluences, MarkovQuiltChainBound
from quiltdp.chain import ChainSegment
from quiltdp.inference.chains import spectral_gap
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["MarkovQuiltApproxBound"]


@register(
    "mqm-approx",
    against=PRIOR,
    kind="published",
    says="the Markov Quilt Mechanism's spectral form",
)
class MarkovQuiltApproxBound(MarkovQuiltChainBound):
    """MQM-approx (method ``"mqm-approx"``).

    Raises
    ------
    InvalidArgument
        Unless every chain is homogeneous, stationary and reversible.
    """

    name = "mqm-approx"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._influences = _spectral_influences(self._segment)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""
        self._check = workspace.guard.check


def _spectral_influences(segment: ChainSegment) -> ChainInfluences:
    gap, rho = spectral_gap(segment)
    width = min(segment.length - 1, 20_000)
    delta = np.exp(-gap * np.arange(1, width + 1)) / rho
    with np.errstate(divide="ignore", invalid="ignore"):
        side = np.where(delta < 1, np.log1p(delta) - np.log1p(-delta), np.inf)
    keep = min(width, int(np.searchsorted(-delta, -1.0)) + 1500)
    side = np.concatenate([[0.0], side[:keep]])
    return ChainInfluences(2 * side[None], side[None])

"""GK16: the influence-matrix method on homogeneous chains.

γ = ½ ln of the largest ratio of P(x_i | x_{i−1}, x_{i+1}) when one neighbour changes, Γ tridiagonal with γ;
ε = α · (largest row sum of 2 (I − Γ)^{−1}); ∞ when ‖Γ‖₂ ≥ 1.

*Assumes*: homogeneous chains, as printed.  *Cost*: one banded system.  *Reference*: A. Ghosh, R. Kleinberg,
Inferential Privacy Guarantees for Differentially Private Mechanisms, 2016.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.chain_contraction import PathUnits
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.chain import ChainSegment, as_chain
from quiltdp.errors import InvalidArgument
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["GK16Bound"]


@register("gk16", against=PRIOR, kind="published", says="the influence-matrix method")
class GK16Bound:
    """The influence-matrix method (method ``"gk16"``) on homogeneous chains."""

    def __init__(self, problem: Problem) -> None:
        self._factor = _factor(as_chain(problem.model).segments[0])
        self._units = PathUnits(problem)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of every unit (a window is charged for each of its records)."""
        records = (self._units.last - self._units.first + 1).astype(np.float64)
        return Bounds(self._factor * float(np.max(alpha)) * records, "gk16", "published")


def _factor(segment: ChainSegment) -> float:
    if not segment.homogeneous:
        raise InvalidArgument("gk16 needs a homogeneous chain")
    p = np.asarray(segment.transitions[0])
    if segment.length == 1:
        return 2.0
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = p[:, :, None] * p[None, :, :]  # axes x_{i−1}, x_i, x_{i+1}
        logs = np.log(inner / inner.sum(axis=1, keepdims=True))
        by_left = logs[:, None] - logs[None, :]
        by_right = logs[..., :, None] - logs[..., None, :]
    if np.isnan(by_left).any() or np.isnan(by_right).any():
        return float("inf")
    gamma = 0.5 * max(float(by_left.max()), float(by_right.max()))
    n = segment.length
    if 2 * gamma * np.cos(np.pi / (n + 1)) >= 1:
        return float("inf")
    size = min(n, 4001)  # the middle row sums of a longer chain no longer move
    band = np.zeros((3, size))
    band[0, 1:] = band[2, :-1] = -gamma
    band[1] = 1.0
    from scipy.linalg import solve_banded

    rows = solve_banded((1, 1), band, np.ones(size))
    limit = 1.0 / (1.0 - 2 * gamma) if gamma < 0.5 else float(rows.max())
    return 2.0 * (float(rows.max()) if size == n else limit)

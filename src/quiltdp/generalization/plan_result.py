"""What the planner returns: numbers, two separate promises, and the theorems that were beaten."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from quiltdp.errors import InvalidArgument

__all__ = ["AccuracyPromise", "Alternative", "BudgetPromise", "Plan"]


@dataclass(frozen=True)
class AccuracyPromise:
    """Every answer is within ``error`` of the population value, except with probability ``failure``."""

    error: float
    failure: float
    theorem: str

    def __str__(self) -> str:
        """Read as a sentence."""
        return (
            f"every answer is within {self.error:.4g} of the population value,"
            f" with probability at least {1 - self.failure:.4g}"
        )


@dataclass(frozen=True)
class BudgetPromise:
    """A query whose training value is within ``overfit`` of the population value spends no budget.

    ``overfit`` is ``None`` when nothing can be promised; ``reason`` says why.
    """

    overfit: float | None
    failure: float
    theorem: str
    reason: str = ""

    def __str__(self) -> str:
        """Read as a sentence."""
        if self.overfit is None:
            return f"nothing is promised about how long the budget lasts: {self.reason}"
        return (
            f"a query spends budget only if its training value is off by more than {self.overfit:.4g},"
            f" with probability at least {1 - self.failure:.4g}"
        )


@dataclass(frozen=True)
class Alternative:
    """Another theorem: the best accuracy it could promise for the same task, or why it does not apply."""

    name: str
    theorem: str
    accuracy: float | None
    valid: bool
    note: str = ""

    def __str__(self) -> str:
        """Read as a line."""
        value = f"accuracy {self.accuracy:.4g}" if self.accuracy is not None else "no promise"
        return f"{self.name}: {value}{'; ' + self.note if self.note else ''}"


@dataclass(frozen=True)
class Plan:
    """A reusable holdout that keeps its promise: how to set it, what it guarantees, and why.

    Attributes
    ----------
    records, queries, budget
        n records, m queries, B answers from the holdout.
    accuracy, confidence
        τ and 1 − β.
    sigma, threshold
        Thresholdout's noise scale σ and threshold T, for queries of sensitivity 1/n.
    dp_epsilon
        α = 9B/(4σn), what the whole run costs.
    leakage
        The largest leakage about a record to the prior adversary, at α.
    effective_sample_size
        n_eff under the model; ``None`` for a Markov network.
    answers, budget_lasts
        The two promises, apart: they hold for different reasons.
    alternatives
        The other theorems, best first; the published ones carry their warning.
    """

    records: int
    queries: int
    budget: int
    accuracy: float
    confidence: float
    sigma: float
    threshold: float
    dp_epsilon: float
    leakage: float
    effective_sample_size: float | None
    route: str
    answers: AccuracyPromise
    budget_lasts: BudgetPromise
    alternatives: tuple[Alternative, ...]
    fingerprint: str

    def __post_init__(self) -> None:
        """Refuse numbers that no plan has."""
        for name in ("sigma", "threshold", "accuracy", "dp_epsilon", "leakage"):
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise InvalidArgument(f"a plan's {name} cannot be {value!r}")

    def __str__(self) -> str:
        """Read as a short paragraph."""
        shown = [a for a in self.alternatives if a.valid and a.accuracy is not None][:3]
        size = (
            f", worth {self.effective_sample_size:,.0f} independent ones"
            if self.effective_sample_size
            else ""
        )
        return "\n".join(
            [
                f"{self.queries:,} queries on {self.records:,} records{size}",
                f"  set        σ = {self.sigma:.4g}, T = {self.threshold:.4g}, budget {self.budget}"
                f" (costs α = {self.dp_epsilon:.4g}, leaks {self.leakage:.4g})",
                f"  accuracy   {self.answers}",
                f"  budget     {self.budget_lasts}",
                f"  by         {self.answers.theorem}",
                *(f"  instead    {a}" for a in shown),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with stable keys."""
        return asdict(self)

"""What the planner returns: numbers, two separate promises, and every theorem that competed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from quiltdp.errors import InvalidArgument
from quiltdp.numbers import shown_up

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
            f"every answer is within {shown_up(self.error, 4)} of the population value,"
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
        off = f" by more than {shown_up(self.overfit, 4)}" if self.overfit > 1e-9 else ""
        return (
            f"a query spends budget only if its training value is off{off},"
            f" with probability at least {1 - self.failure:.4g}"
        )


@dataclass(frozen=True)
class Alternative:
    """Another theorem: the best accuracy it could promise for the same task, or why it does not apply."""

    name: str
    theorem: str
    accuracy: float | None
    valid: bool = True
    note: str = ""
    covers: str = ""
    leakage: float | None = None

    def __str__(self) -> str:
        """Read as a line."""
        if not self.valid:
            return f"{self.name}: {self.note}"
        value = f"accuracy {shown_up(self.accuracy, 4)}" if self.accuracy is not None else "no promise"
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
    resolution
        Answers from the holdout are rounded to multiples of this.
    dp_epsilon
        α = 9B/(4σn), what the whole run costs.
    leakage
        The largest leakage about a record to the prior adversary, at α.
    epsilon
        The privacy that was asked for and is kept, against the informed adversary; else ``None``.
    effective_sample_size
        n_eff under the model; ``None`` for a Markov network.
    route, covers
        The theorem that won, and which queries it is about.
    answers, budget_lasts
        The two promises, apart: they hold for different reasons.
    alternatives
        The other theorems, best first; the published ones carry their warning.
    work, stage, notes
        The work budget of the leakages behind it (empty for an accountant of one's own); where a limit was
        reached, the stage that they are of, and how to get the same plan again.
    """

    records: int
    queries: int
    budget: int
    accuracy: float
    confidence: float
    sigma: float
    threshold: float
    resolution: float
    dp_epsilon: float
    leakage: float
    epsilon: float | None
    effective_sample_size: float | None
    route: str
    covers: str
    answers: AccuracyPromise
    budget_lasts: BudgetPromise
    alternatives: tuple[Alternative, ...]
    fingerprint: str
    work: Mapping[str, Any] = field(default_factory=dict)
    stage: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that no plan has, and a promise no better than answering ½."""
        for name in ("sigma", "threshold", "accuracy", "dp_epsilon", "leakage"):
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise InvalidArgument(f"a plan's {name} cannot be {value!r}")
        if self.accuracy >= 0.5:
            raise InvalidArgument(f"a plan's accuracy cannot be {self.accuracy!r}: answering ½ is as good")

    @property
    def privacy(self) -> str:
        """Read as a sentence: what the answers say about a record."""
        if self.epsilon is not None:
            most = shown_up(self.epsilon, 4)
            return f"the answers say at most {most} about any record, whatever else is known"
        return (
            f"none asked for; the answers together may leak {_shown(self.leakage)} about a record"
            " to those who know the model"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promises rest on: a list to be checked by who knows the data."""
        return (
            "the records of the holdout follow the model, and the model was not fitted on them",
            "the training data say nothing about the holdout beyond the model",
            f"every query is about the rows: {self.covers}, values in [0, 1], one row moves it by 1/n",
            "queries may depend on earlier answers and on the training data, on the holdout in no other way",
            f"at most {self.queries:,} queries are asked and {self.budget} answered from the holdout, all"
            " through one ledger",
        )

    def __str__(self) -> str:
        """Read as a short paragraph with a table of the routes."""
        warned = [a for a in self.alternatives if not a.valid]
        size = (
            f", worth {self.effective_sample_size:,.0f} independent ones"
            if self.effective_sample_size
            else ""
        )
        return "\n".join(
            [
                f"{self.queries:,} queries on {self.records:,} records{size}",
                f"  set        {self._settings()}",
                f"  accuracy   {self.answers}",
                f"  budget     {self.budget_lasts}",
                f"  privacy    {self.privacy}",
                f"  by         {self.answers.theorem}, {self.covers}",
                *(f"  note       {note}" for note in self.notes),
                "",
                *self.table(),
                *(["", *(f"  {a}" for a in warned)] if warned else []),
            ]
        )

    def _settings(self) -> str:
        return (
            f"σ = {shown_up(self.sigma, 4)}, T = {self.threshold:.4g}, budget {self.budget},"
            f" answers rounded to {self.resolution:g} (costs α = {shown_up(self.dp_epsilon, 4)})"
        )

    def table(self) -> list[str]:
        """Return the lines of a table: every route, the accuracy it promises, what it would leak."""
        rows: list[tuple[str, float | None, float | None, str]] = []
        rows.append((self.route, self.accuracy, self.leakage, "this plan"))
        rows += [(a.name, a.accuracy, a.leakage, a.note) for a in self.alternatives if a.valid]
        width = max(len(r[0]) for r in rows)
        lines = [f"  {'route':{width}}  accuracy   leaks"]
        for name, accuracy, leakage, note in rows:
            value = shown_up(accuracy, 4) if accuracy is not None else "–"
            leaks = _shown(leakage) if leakage is not None else "–"
            lines.append(f"  {name:{width}}  {value:>8}  {leaks:>6}  {note}".rstrip())
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with stable keys."""
        return {**asdict(self), "privacy": self.privacy, "assumptions": list(self.assumptions)}


def _shown(leakage: float) -> str:
    return shown_up(leakage, 3) if leakage < 1e4 else "all" if math.isinf(leakage) else f"{leakage:.0e}"

"""What a reusable holdout is bound to, and what it answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quiltdp.errors import BudgetSpent, InvalidArgument, option
from quiltdp.mechanisms.thresholdout import Source

__all__ = ["Answer", "checked_settings", "setting"]


@dataclass(frozen=True)
class Answer:
    """The answer to one query.

    Attributes
    ----------
    value
        A number, or None (⊥) when the budget is spent.
    source
        ``"train"``, ``"holdout"`` (with noise; this costs one unit of the budget) or ``"spent"``.
    remaining
        How many answers may still come from the holdout.
    error_bound
        |value − holdout value| is at most this for all answers together, with probability
        1 − failure; ∞ for ⊥.
    repeated
        Whether this is a recorded answer, returned again for the same idempotency key.
    population_bound
        |value − population value| is at most this for all planned answers together, with the same
        probability; None without a plan.
    failure
        How likely any promise up to this answer may fail: β of the plan, β/2 of its first extension, β/4, ….
    """

    value: float | None
    source: Source
    remaining: int
    error_bound: float
    repeated: bool = False
    population_bound: float | None = None
    failure: float | None = None

    def __float__(self) -> float:
        """Return the value, or refuse when the budget is spent."""
        if self.value is None:
            raise BudgetSpent("the holdout's budget is spent: no further answers")
        return self.value


def checked_settings(
    threshold: float,
    failure: float,
    queries: int | None,
    *,
    resolution: float | None = None,
    accuracy: float | None = None,
    columns: Sequence[str] | None = None,
    secure: bool = True,
) -> dict[str, Any]:
    """Return what a reusable holdout binds its ledger to, besides the calibration, or refuse it."""
    if not 0.0 <= threshold <= 1.0:
        raise InvalidArgument(f"{option('threshold')} must lie in [0, 1], not {threshold!r}")
    if not 0.0 < failure < 1.0:
        raise InvalidArgument(f"{option('failure')} must lie strictly between 0 and 1, not {failure!r}")
    if queries is not None and (isinstance(queries, bool) or not isinstance(queries, int) or queries < 1):
        raise InvalidArgument(f"{option('queries')} must be a whole number ≥ 1, not {queries!r}")
    planned = {"resolution": resolution, "accuracy": accuracy}
    for name, value in planned.items():
        if value is not None and not 0.0 < value < 0.5:
            raise InvalidArgument(f"{option(name)} must lie strictly between 0 and ½, not {value!r}")
    return {
        "kind": "thresholdout",
        "threshold": float(threshold).hex(),
        "failure": float(failure).hex(),
        "queries": queries,
        "noise": "secure" if secure else "insecure, for tests",
        **{name: float(value).hex() for name, value in planned.items() if value is not None},
        **({} if columns is None else {"columns": list(columns)}),
    }


def setting(settings: Mapping[str, Any], name: str) -> float | None:
    """Return a number that a ledger's settings may hold."""
    return float.fromhex(settings[name]) if name in settings else None

"""What may be asked: an expression over the columns, or predictions; no code of theirs is ever run."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.graph.components import dependent_records
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.predictions import ByRow, Metric, Predictions
from quiltdp.mechanisms.queries import Query

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["ExpressionQuestion", "NotScored", "PredictionQuestion", "Question", "independence"]


class NotScored(Refused):
    """Predictions for a study whose rows depend on each other: features would be evidence about others."""


class Question(Protocol):
    """A question: its query in [0, 1], and how an answer is read."""

    @property
    def text(self) -> str:
        """What is asked, in one line."""

    def query(
        self,
        facts: Mapping[str, Any],
        train: Mapping[str, Sequence[str]],
        holdout: Mapping[str, Sequence[str]],
    ) -> Query:
        """Return what is asked of the holdout, or refuse it; nothing is charged yet."""

    def scaled(self, value: float) -> float:
        """Return a value of the query as one of the question."""

    def stretched(self, width: float) -> float:
        """Return a width on the query's scale as one on the question's."""


@dataclass(frozen=True)
class ExpressionQuestion:
    """The mean of an expression over the rows, clipped to a declared range.

    ``otherwise`` is what a row counts where the expression has no value: a missing cell, log 0, an
    overflow.  Without it such a row is refused on the training data.
    """

    text: str
    low: float = 0.0
    high: float = 1.0
    otherwise: float | None = None

    def query(
        self,
        facts: Mapping[str, Any],
        train: Mapping[str, Sequence[str]],
        holdout: Mapping[str, Sequence[str]],
    ) -> Query:
        """Return the expression on the scale of [0, 1]."""
        low, high = float(self.low), float(self.high)
        if not (low < high and math.isfinite(high - low)):
            raise InvalidArgument(f"range: {low:g} to {high:g} is none; give two numbers low < high")
        written = Expression(self.text)  # a mistake is told of what was written
        if self.otherwise is not None and not math.isfinite(self.otherwise):
            raise InvalidArgument(f"otherwise must be a number, not {self.otherwise:g}")
        if (low, high) == (0.0, 1.0) and self.otherwise is None:
            return written
        inner = f"({self.text}\n)"  # on a line of its own: what was written may end in a comment
        if self.otherwise is not None:
            inner = f"default({inner}, {float(self.otherwise)!r})"
        return Expression(f"clip(({inner} - {low!r}) / {high - low!r}, 0, 1)")

    def scaled(self, value: float) -> float:
        """Return a mean on the declared range."""
        return self.low + (self.high - self.low) * value

    def stretched(self, width: float) -> float:
        """Return a width on the declared range."""
        return (self.high - self.low) * width


@dataclass(frozen=True)
class PredictionQuestion:
    """How good predictions are: their accuracy, or their mean loss, against the study's target.

    ``train`` and ``holdout`` hold a prediction per row id (see
    :class:`~quiltdp.mechanisms.predictions.Predictions`).
    """

    train: ByRow
    holdout: ByRow
    metric: Metric = "accuracy"

    @property
    def text(self) -> str:
        """What is asked, in one line."""
        return f"{self.metric} of predictions"

    def query(
        self,
        facts: Mapping[str, Any],
        train: Mapping[str, Sequence[str]],
        holdout: Mapping[str, Sequence[str]],
    ) -> Query:
        """Return the predictions in the order of the rows.

        Raises
        ------
        NotScored
            If features may be evidence about other rows than their own.
        InvalidArgument
            If the study has no target, and for predictions that do not fit the rows.
        """
        if not facts["predictions"]:
            raise NotScored(f"predictions are not scored here: {facts.get('predictions_refused')}")
        target, row_id = facts["target"], facts["row_id"]
        if target is None:
            raise InvalidArgument("this study has no target column that predictions could be compared with")
        ids = [
            data[row_id] if row_id is not None else [*map(str, range(1, len(data[target]) + 1))]
            for data in (train, holdout)
        ]
        return Predictions(target, self.train, self.holdout, ids[0], ids[1], self.metric)

    def scaled(self, value: float) -> float:
        """Return the value itself: a score has no other range."""
        return value

    def stretched(self, width: float) -> float:
        """Return the width itself."""
        return width


def independence(
    model: Model | None, protected: str, protect: Mapping[str, Collection[str]] | None = None
) -> tuple[str | None, str | None]:
    """Return why features are evidence about their own protected unit alone, or None and why not.

    Predictions carry features that the analyst knows, and so soft evidence about every record: something that
    neither adversary of a calibration is given.  Where each unit is independent of all others it is evidence
    about that unit's own rows, and what an α-DP answer adds to it is at most α all the same.

    Examples
    --------
    >>> import quiltdp as qd
    >>> independence(qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], length=9), "single records")[0]
    'records are independent of each other'
    >>> reason, refusal = independence(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9), "single records")
    >>> reason is None, refusal
    (True, "records 'X0' and 'X1' depend on each other and are not protected together, ...
    """
    if model is None:
        return None, f"without the {option('model')} of the plan nobody can tell whether rows are independent"
    run = re.fullmatch(r"runs of (\d{1,9}) steps", protected)
    sets = [frozenset(chosen) for chosen in (protect or {}).values()]
    together = False
    for records in dependent_records(model):
        together = True
        inside = run is not None and len(records) <= int(run[1])
        if not inside and not any(unit.issuperset(records) for unit in sets):
            return None, (
                f"records {records[0]!r} and {records[1]!r} depend on each other and are not protected"
                " together, so the features of one row would be evidence about another row; protect what"
                " belongs together as a group, or plan for labels given features and say so"
            )
    return (
        "what depends on each other is protected together"
        if together
        else "records are independent of each other"
    ), None

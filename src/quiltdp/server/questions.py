"""What may be asked: an expression over the columns, or predictions; no code of theirs is ever run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.queries import Query

__all__ = ["ExpressionQuestion", "Question"]


class Question(Protocol):
    """A question: its query in [0, 1], and how an answer is read."""

    text: str

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
        if not self.low < self.high:
            raise InvalidArgument(f"range: {self.low:g} to {self.high:g} is none; give low < high")
        Expression(self.text)  # a mistake is told of what was written
        inner = self.text if self.otherwise is None else f"default({self.text}, {self.otherwise!r})"
        if (self.low, self.high) == (0.0, 1.0) and self.otherwise is None:
            return Expression(self.text)
        return Expression(f"clip((({inner}) - {self.low!r}) / {self.high - self.low!r}, 0, 1)")

    def scaled(self, value: float) -> float:
        """Return a mean on the declared range."""
        return self.low + (self.high - self.low) * value

    def stretched(self, width: float) -> float:
        """Return a width on the declared range."""
        return (self.high - self.low) * width

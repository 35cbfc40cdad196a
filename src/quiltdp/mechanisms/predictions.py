"""Predictions as a query: a number or a class label for every row, compared with a hidden column.

A row's score depends on that row's target and on what was predicted for it, and lies in [0, 1]; so one record
moves the mean by 1/n, exactly, as in :mod:`.queries`.  What was predicted is bound to rows by their ids:
ids that do not match are refused from the ids alone, whatever else the holdout says.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.cells import Table, number_of, text_of

__all__ = ["ByRow", "Metric", "Predictions"]

Metric = Literal["accuracy", "absolute", "squared"]
Part = Literal["train", "holdout"]
ByRow: TypeAlias = "Mapping[Any, Any] | Iterable[tuple[Any, Any]]"

_LONGEST_LABEL = 200
_TOLD = 3

_SCORES: Mapping[str, Callable[[Any, Any], Any]] = {
    "accuracy": lambda predicted, target: (predicted >= 0.5) == target,
    "absolute": lambda predicted, target: np.abs(predicted - target),
    "squared": lambda predicted, target: (predicted - target) ** 2,
}


class Predictions:
    """What somebody predicts for every row of the training data and of the holdout.

    Numbers lie in [0, 1]; a text is a class label.  ``accuracy`` counts the rows whose label is the target's,
    or whose number, rounded (½ up), is; ``absolute`` and ``squared`` are the mean loss against a target in
    [0, 1].  A row without a target that can be compared counts 0 on the holdout and is refused on the
    training data.

    Parameters
    ----------
    target
        The column that is predicted.
    train, holdout
        A mapping of row ids to predictions, or pairs.
    train_ids, holdout_ids
        The ids of the rows, in their order.
    metric
        ``"accuracy"``, ``"absolute"`` or ``"squared"``.

    Raises
    ------
    InvalidArgument
        If a row has no prediction or two, for a prediction of no row, and for one that is no number in
        [0, 1] and no label.

    Examples
    --------
    >>> from quiltdp.mechanisms.cells import Table, WrittenColumns
    >>> data = Table.from_training(WrittenColumns({"ill": ["1", "0", "1"]}))
    >>> guess = {"a": 0.9, "b": 0.2, "c": 0.4}
    >>> Predictions("ill", guess, guess, "abc", "abc").scores(data, "train").tolist()
    [1.0, 1.0, 0.0]
    >>> Predictions("ill", guess, guess, "abc", "abc", "absolute").scores(data, "train").round(3).tolist()
    [0.1, 0.2, 0.6]
    """

    def __init__(
        self,
        target: str,
        train: ByRow,
        holdout: ByRow,
        train_ids: Sequence[Any],
        holdout_ids: Sequence[Any],
        metric: Metric = "accuracy",
    ) -> None:
        if metric not in get_args(Metric):
            known = ", ".join(get_args(Metric))
            raise InvalidArgument(f"{option('metric')}: there is no {metric!r}; there are {known}")
        self.columns = frozenset({target})
        self.text = f"{metric} of predictions of {target}"
        self._target, self._metric = target, metric
        rows = {
            "train": _in_order(train, train_ids, "train"),
            "holdout": _in_order(holdout, holdout_ids, "holdout"),
        }
        kinds = {isinstance(p, str) for part in rows.values() for p in part}
        if len(kinds) > 1:
            raise InvalidArgument("predictions: give numbers for all rows, or labels for all rows")
        self._labels = kinds == {True}
        if self._labels and metric != "accuracy":
            raise InvalidArgument(f"{metric} loss needs numbers in [0, 1], not labels")
        kind: Any = object if self._labels else np.float64
        self._rows = {part: np.array(values, dtype=kind) for part, values in rows.items()}
        written = [
            metric,
            target,
            *([p if isinstance(p, str) else p.hex() for p in r] for r in rows.values()),
        ]
        self.digest = hashlib.sha256(json.dumps(written).encode()).hexdigest()

    def scores(self, table: Table, part: Part) -> NDArray[np.float64]:
        """Return one number in [0, 1] per row; NaN where the target cannot be compared."""
        if self._target not in table.kinds:
            raise InvalidArgument(f"predictions: there is no column {self._target!r}")
        target, predicted = table.values[self._target], self._rows[part]
        if self._labels:
            there: Any = target != ""
            if table.kinds[self._target] != "text":  # where "true" and 1 are the same cell
                predicted, there = np.array([*map(number_of, predicted)]), np.isfinite(target)
            return np.where(there, (predicted == target).astype(np.float64), np.nan)
        if table.kinds[self._target] == "text":
            raise InvalidArgument(f"predictions: the column {self._target!r} holds labels: predict labels")
        with np.errstate(all="ignore"):  # a target of 1e308 warns nobody
            score = np.asarray(_SCORES[self._metric](predicted, target), dtype=np.float64)
        comparable = np.isfinite(target) if self._metric == "accuracy" else (target >= 0) & (target <= 1)
        return np.where(comparable, score, np.nan)


def _in_order(predicted: ByRow, ids: Sequence[Any], part: Part) -> list[float | str]:
    """Return the predictions in the order of the rows, or say which ids do not match."""
    pairs = [*predicted.items()] if isinstance(predicted, Mapping) else [*predicted]
    names = [text_of(i) for i, _ in pairs]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    rows = [*map(text_of, ids)]
    missing, unknown = dict.fromkeys(rows).keys() - {*names}, {*names}.difference(rows)
    for what, odd in (("two predictions for", doubled), ("none for", missing), ("some for unknown", unknown)):
        if odd:
            told = ", ".join(repr(name[:40]) for name in sorted(odd)[:_TOLD])
            more = "" if len(odd) <= _TOLD else f" and {len(odd) - _TOLD} more"
            raise InvalidArgument(f"predictions of {part} rows: there are {what} {told}{more}")
    found = dict(zip(names, (value for _, value in pairs), strict=True))
    return [_prediction(found[row], row, part) for row in rows]


def _prediction(value: Any, row: str, part: Part) -> float | str:
    if isinstance(value, str):
        label = text_of(value)
        if 0 < len(label) <= _LONGEST_LABEL:
            return label
    elif isinstance(value, (bool, int, float, np.number, np.bool_)) and 0 <= value <= 1:
        return float(value) + 0.0  # no −0
    raise InvalidArgument(
        f"predictions of {part} rows: {row[:40]!r} has {str(value)[:40]!r}; it must be a number in [0, 1] or"
        f" a label of at most {_LONGEST_LABEL} characters"
    )

"""Predictions as a query: row by row, bound to ids, bounded by one row in n."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.cells import Table, WrittenColumns
from quiltdp.mechanisms.predictions import Predictions
from quiltdp.mechanisms.queries import TablePair, describe

TRAIN = {"ill": ["1", "0", "1", "0"], "kind": ["cat", "dog", "cat", "owl"], "dose": ["0.5", "0", "1", "0.25"]}
IDS = ["a", "b", "c", "d"]
HALF = dict.fromkeys(IDS, 0.5)


def pair(holdout: dict[str, list[str]]) -> TablePair:
    return TablePair(WrittenColumns(TRAIN), WrittenColumns(holdout))


def value(holdout: dict[str, list[str]], target: str, train: Any, fresh: Any, metric: Any) -> Fraction:
    tables = pair(holdout)
    ids = [f"r{k}" for k in range(tables.rows)]
    query = Predictions(target, train, dict(zip(ids, fresh, strict=True)), IDS, ids, metric)
    return tables.on_holdout(query, tables.on_training(query))


def plainly(metric: str, predicted: float, target: str) -> float:
    """Return the score of one row, in plain Python."""
    try:
        truth = float(target)
    except ValueError:
        return 0.0
    if metric == "accuracy":
        return float((1.0 if predicted >= 0.5 else 0.0) == truth)
    if not 0 <= truth <= 1:
        return 0.0
    return abs(predicted - truth) if metric == "absolute" else (predicted - truth) ** 2


numbers = st.floats(0, 1)
targets = st.sampled_from(["0", "1", "0.25", "", "7", "1e308", "nan", "inf", "x"])


@given(
    st.sampled_from(["accuracy", "absolute", "squared"]), st.lists(st.tuples(numbers, targets), min_size=1)
)
def test_scores_are_those_of_row_after_row(metric: str, rows: list[tuple[float, str]]) -> None:
    predicted, truth = zip(*rows, strict=True)
    holdout = {"ill": [*truth], "kind": ["cat"] * len(rows), "dose": [*truth]}
    found = value(holdout, "dose", HALF, predicted, metric)
    wanted = sum(Fraction(round(plainly(metric, p, t) * 2**30), 2**30) for p, t in rows) / len(rows)
    assert abs(found - wanted) <= Fraction(1, 2**30)
    changed = {**holdout, "dose": ["0.9", *truth[1:]]}
    assert abs(value(changed, "dose", HALF, predicted, metric) - found) <= Fraction(1, len(rows))


@given(st.lists(st.tuples(*[st.sampled_from(["cat", "dog", "", " dog ", "1", "1.0"])] * 2), min_size=1))
def test_labels_are_compared_as_cells_are_read(rows: list[tuple[str, str]]) -> None:
    predicted, truth = zip(*[(p or "none", t) for p, t in rows], strict=True)
    holdout = {"ill": ["1"] * len(rows), "kind": [*truth], "dose": ["0"] * len(rows)}
    found = value(holdout, "kind", dict.fromkeys(IDS, "cat"), predicted, "accuracy")

    def plain(text: str) -> str:
        return text.strip().removesuffix(".0")

    assert found == Fraction(
        sum(plain(p) == plain(t) != "" for p, t in zip(predicted, truth, strict=True)), len(rows)
    )


def test_a_label_of_a_number_is_a_number() -> None:
    fresh = {"ill": ["1", "true", "0", ""], "kind": ["cat"] * 4, "dose": ["0"] * 4}
    assert value(fresh, "ill", dict.fromkeys(IDS, "1"), ["1", "1.0", "true", "1"], "accuracy") == Fraction(
        1, 2
    )
    assert value(fresh, "ill", HALF, [True, 1, np.float64(1), 0], "accuracy") == Fraction(1, 2)


WRONG: list[tuple[Any, str]] = [
    ({"a": 1, "b": 1, "c": 1}, "none for 'd'"),
    ({**HALF, "e": 1}, "unknown 'e'"),
    ([*HALF.items(), ("a", 1)], "two predictions for 'a'"),
    ({f"{k}": 1 for k in range(9)}, "'a', 'b', 'c' and 1 more"),
    ({**HALF, "a": 1.5}, "'a' has '1.5'"),
    ({**HALF, "a": float("nan")}, "'a' has 'nan'"),
    ({**HALF, "a": None}, "'a' has 'None'"),
    (dict.fromkeys(IDS, ""), "a label"),
    (dict.fromkeys(IDS, "x" * 201), "a label"),
    ({**HALF, "a": "1"}, "numbers for all rows, or labels for all rows"),
    ({**HALF, "a": [1]}, "a label"),
]


@pytest.mark.parametrize(("predicted", "said"), WRONG)
@pytest.mark.parametrize("part", ["train", "holdout"])
def test_what_does_not_fit_the_rows_is_refused(predicted: Any, said: str, part: str) -> None:
    rows: dict[str, Any] = {"train": HALF, "holdout": HALF, part: predicted}
    with pytest.raises(InvalidArgument, match=said):
        Predictions("ill", rows["train"], rows["holdout"], IDS, IDS)


def test_what_does_not_fit_the_target_is_refused_on_the_training_data() -> None:
    tables = pair({"ill": ["1"], "kind": ["cat"], "dose": ["0"]})
    for target, predicted, metric, said in (
        ("kind", 0.5, "accuracy", "predict labels"),
        ("none", 0.5, "accuracy", "no column 'none'"),
        ("ill", "1", "absolute", "needs numbers"),
        ("ill", 1, "log", "there is no 'log'"),
    ):
        rows: Any = dict.fromkeys(IDS, predicted), {"a": predicted}
        with pytest.raises(InvalidArgument, match=said):
            tables.on_training(Predictions(target, *rows, IDS, ["a"], metric))  # type: ignore[arg-type]
    strange = TablePair(WrittenColumns({"y": ["1", "3"]}), WrittenColumns({"y": ["1"]}))
    with pytest.raises(InvalidArgument, match="outside"):
        strange.on_training(Predictions("y", {"a": 1, "b": 1}, {"a": 1}, ["a", "b"], ["a"], "absolute"))


def test_predictions_are_told_apart_by_everything_they_are() -> None:
    def made(target: str = "ill", train: Any = HALF, fresh: Any = HALF, metric: Any = "accuracy") -> str:
        return describe(Predictions(target, train, fresh, IDS, IDS, metric), keyed=True)

    other = {**HALF, "d": 0.25}
    every = [made(), made("dose"), made(train=other), made(fresh=other), made(metric="squared")]
    assert len({*every}) == len(every)
    assert made(fresh=dict(reversed(HALF.items()))) == made(fresh=[*HALF.items()]) == made()
    table = Table.from_training(WrittenColumns(TRAIN))
    assert table is not None
    assert Predictions("ill", HALF, HALF, IDS, IDS).scores(table, "train").tolist() == [1, 0, 1, 0]

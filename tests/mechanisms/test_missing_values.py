"""A missing value is never released as a number: not what lies under a mask, not a time's smallest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import (
    ExponentialMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    ThresholdoutMechanism,
)
from quiltdp.mechanisms.additive import AdditiveMechanism
from quiltdp.mechanisms.cells import Table
from quiltdp.mechanisms.queries import TablePair

HIDDEN = np.ma.array([4.0, 0.0, 6.0], mask=[False, True, False])


class Variable:
    """A variable of a file of measurements: to numpy it is a masked array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return HIDDEN


def pandas_values() -> list[Any]:
    pd = pytest.importorskip("pandas")
    return [
        pd.Series([4, pd.NA, 6], dtype="Int64"),
        pd.array([4.0, None, 6.0], dtype="Float64"),
        pd.Series([True, pd.NA, False], dtype="boolean"),
        [4.0, pd.NA, 6.0],
        pd.DataFrame({"n": pd.array([4, None, 6], dtype="Int64")}),
        pd.to_datetime(pd.Series(["2020-01-01", None, "2020-01-03"])),
    ]


def missing_values() -> list[Any]:
    return [
        HIDDEN,
        HIDDEN.astype(int),
        HIDDEN.reshape(3, 1),
        [4.0, np.ma.masked, 6.0],
        (4.0, HIDDEN[1], 6.0),
        [[4.0], [HIDDEN[1]], [6.0]],
        Variable(),
        ["4", "5", "6"],
        np.array([(4.0,), (5.0,), (6.0,)], dtype=[("n", float)]),
        [4.0, None, 6.0],
        [4.0, float("nan"), 6.0],
        np.array(["2020-01-01", "NaT", "2020-01-03"], dtype="datetime64[D]"),
        np.array([1, "NaT", 3], dtype="timedelta64[s]"),
        np.array([4.0, 5.0j, 6.0]),
        *pandas_values(),
    ]


def mechanisms(dimension: int) -> list[AdditiveMechanism]:
    return [
        LaplaceMechanism(qd.Laplace(sensitivity=1.0), 2.0, dimension=dimension),
        GaussianMechanism(qd.Gaussian(sensitivity=1.0, delta=1e-6), 2.0, dimension=dimension),
    ]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", missing_values(), ids=lambda v: type(v).__name__)
def test_a_missing_value_is_refused(values: Any) -> None:
    for mechanism in mechanisms(
        4 if isinstance(values, list) and np.ndim(values[0]) and len(values) == 2 else 3
    ):
        with pytest.raises(InvalidArgument, match=r"value \(?[01].* to release is missing|must be numbers"):
            mechanism.release(values)


def test_one_masked_number_and_none_masked() -> None:
    for mechanism in mechanisms(1):
        with pytest.raises(InvalidArgument, match="value 0 to release is missing"):
            mechanism.release(np.ma.masked)
        assert isinstance(mechanism.release(np.ma.array(5.0)), float)
    for mechanism in mechanisms(3):
        assert mechanism.release(np.ma.array([4.0, 5.0, 6.0])).shape == (3,)  # type: ignore[union-attr]
    table = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [False, True]])
    with pytest.raises(InvalidArgument, match=r"value \(1, 1\) to release is missing"):
        mechanisms(4)[0].release(table)
    with pytest.raises(InvalidArgument, match=r"value \(0, 1\) to release is missing"):
        mechanisms(4)[0].release([HIDDEN[:2], HIDDEN[1:]])


def test_scores_and_answers() -> None:
    with pytest.raises(InvalidArgument, match="score 1 is missing"):
        ExponentialMechanism(sensitivity=1.0, dp_epsilon=1.0).index(HIDDEN)
    mechanism = ThresholdoutMechanism(qd.Thresholdout(budget=2, sensitivity=0.01), 0.1, 0.1)
    for pair in ((np.ma.masked, 0.5), (0.5, np.ma.masked)):
        with pytest.raises(InvalidArgument):
            mechanism.answer(*pair)


def test_masked_cells_of_a_holdout_are_empty() -> None:
    """They count as any other empty cell, not as what lies under the mask."""
    for column in (HIDDEN, [4.0, np.ma.masked, 6.0]):
        table = Table.from_training({"n": column})
        assert table is not None
        assert np.isnan(table.values["n"][1])


def test_masked_rows_of_an_answer_are_refused() -> None:
    pair = TablePair(np.zeros((3, 1)), np.ones((3, 1)))
    with pytest.raises(InvalidArgument, match="NaN"):
        pair.on_training(lambda d: np.ma.array(d[:, 0], mask=[False, True, False]))

"""Copies of rows: the same cells in the order asked for, sharing nothing with the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.rows import copy_rows, describe_rows, features_and_target, row_count

ARRAY = np.arange(12.0).reshape(4, 3)
FRAME = pd.DataFrame({"a": ARRAY[:, 0], "town": ["Oslo", "Rome", "Bern", "Graz"]}, index=[5, 6, 7, 8])
ROWS = np.array([2, 0, 2])
DATA: list[Any] = [
    ARRAY,
    np.asfortranarray(ARRAY),
    ARRAY.astype(object),
    np.array([(1, 2.0), (3, 4.0), (5, 6.0), (7, 8.0)], dtype=[("i", int), ("x", float)]),
    FRAME,
    FRAME["a"],
    FRAME.astype({"town": "category"}),
    {"x": ARRAY[:, 0], "y": [1, 2, 3, 4], "z": ("a", "b", "c", "d")},
    (ARRAY, FRAME["town"], None),
    [[1, [2]], [3, [4]], [5, [6]], [7, [8]]],
    range(4),
    sparse.csr_matrix(ARRAY),
]


def cells(data: Any) -> Any:
    """Return data in any form as nested lists."""
    if isinstance(data, dict):
        return {name: cells(column) for name, column in data.items()}
    if isinstance(data, tuple):
        return [cells(part) for part in data]
    if data is None or isinstance(data, (list, range)):
        return data if data is None else list(data)
    return (data.toarray() if sparse.issparse(data) else np.asarray(data)).tolist()


def arrays(data: Any) -> list[np.ndarray]:
    if isinstance(data, (dict, tuple)):
        return [a for part in (data.values() if isinstance(data, dict) else data) for a in arrays(part)]
    if isinstance(data, np.ndarray):
        return [data]
    if isinstance(data, pd.DataFrame):
        return [np.asarray(data[name]) for name in data if data[name].dtype.kind == "f"]
    return [data.to_numpy()] if isinstance(data, pd.Series) else []


@pytest.mark.parametrize("data", DATA, ids=lambda d: type(d).__name__)
def test_copies_have_the_cells_and_share_nothing(data: Any) -> None:
    assert row_count(data, "train") == 4
    everything = copy_rows(data, np.arange(4))
    assert cells(everything) == cells(data if not isinstance(data, dict) else {**data, "z": list(data["z"])})
    assert describe_rows(everything) == describe_rows(data)
    assert row_count(copy_rows(data, ROWS), "train") == 3
    assert cells(copy_rows(copy_rows(data, ROWS), np.array([1]))) == cells(copy_rows(data, np.array([0])))
    for copied in arrays(everything):
        assert not any(np.shares_memory(copied, original) for original in arrays(data))
        if isinstance(data, (np.ndarray, dict)):
            assert not copied.flags.writeable
            assert copied.base is None


def test_mutable_cells_are_copied() -> None:
    for data in ([[[1]], [[2]]], pd.DataFrame({"x": [[1], [2]]}), pd.Series([[1], [2]], name="x")):
        kept = repr(cells(data))
        copied = copy_rows(data, np.arange(2))
        (copied["x"] if isinstance(data, pd.DataFrame) else copied)[0].append(3)
        assert repr(cells(data)) == kept


def test_a_frame_is_numbered_from_0() -> None:
    assert copy_rows(FRAME, ROWS).index.tolist() == [0, 1, 2]
    assert copy_rows(FRAME["town"], ROWS).tolist() == ["Bern", "Oslo", "Bern"]
    assert copy_rows(FRAME["town"], ROWS).name == "town"


def test_what_cannot_be_copied_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="cannot be copied"):
        copy_rows({1, 2}, ROWS)
    with pytest.raises(InvalidArgument, match="target"):
        features_and_target(ARRAY, "a")
    X, y = features_and_target(ARRAY, 1)
    assert X.tolist() == ARRAY[:, [0, 2]].tolist()
    assert y.tolist() == ARRAY[:, 1].tolist()

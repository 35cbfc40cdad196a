from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.queries import TablePair

COLUMNS = {
    "a": np.array([1.0, 2.0, np.nan, 4.0]),
    "b": np.array([0, 1, 1, 0]),
    "flag": np.array([True, False, True, True]),
    "town": np.array(["Oslo", "Rome", "Oslo", "Bern"]),
    "odd name": np.array([0.1, 0.2, 0.3, 0.4]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flag", [1, 0, 1, 1]),
        ("a > 1", [0, 1, 0, 1]),
        ("1 < a <= 2", [0, 1, 0, 0]),
        ("a > 1 and b == 1 or town == 'Oslo'", [1, 1, 1, 0]),
        ("not flag", [0, 1, 0, 0]),
        ("not a", [0, 0, 1, 0]),
        ("town in ('Oslo', 'Bern')", [1, 0, 1, 1]),
        ("b not in [1]", [1, 0, 0, 1]),
        ("col('odd name') * 2", [0.2, 0.4, 0.6, 0.8]),
        ("clip(a / 4, 0, 1)", [0.25, 0.5, np.nan, 1]),
        ("where(b, 0.5, -b + 1)", [1, 0.5, 0.5, 1]),
        ("abs(b - 1)", [1, 0, 0, 1]),
        ("minimum(b, 0.5) + maximum(b, 0.5) - 0.5", [0, 1, 1, 0]),
        ("0.25", [0.25] * 4),
        ("a % 2 == 0", [0, 1, 0, 1]),
        ("a // 4", [0, 0, np.nan, 1]),
        ("b / 0", [np.nan, np.inf, np.inf, np.nan]),
        ("sign(b) == floor(b)", [1, 1, 1, 1]),
    ],
)
def test_values(text: str, expected: list[float]) -> None:
    np.testing.assert_allclose(Expression(text).rows(COLUMNS, 4), expected)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__",
        "a.__class__",
        "a[0]",
        "[x for x in a]",
        "lambda: 1",
        "(a := 3)",
        "f'{a}'",
        "exec('1')",
        "open('x')",
        "a ** 99999",
        "a @ b",
        "a << 3",
        "b ^ 1",
        "b && 1",
        "b &= 1",
        "a if b else a",
        "None",
        "...",
        "1j",
        "b'x'",
        "a is b",
        "abs(*a)",
        "abs(x=a)",
        "abs(a, b)",
        "col(a)",
        "a in b",
        "99999999999999999999999999",
        "await a",
        "",
        "a >",
        "(" * 250 + ")" * 250,
        "-" * 1990 + "1",
        "+".join(["a"] * 400),
        "a" * 3000,
        "a\n b",
        "1or 2",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Expression(text)


@pytest.mark.parametrize(
    "text", ["nowhere", "town > 3", "town", "town + 1", "a == 'x'", "not town", "a in ('x',)"]
)
def test_what_does_not_fit_the_columns_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Expression(text).rows(COLUMNS, 4)


def test_refusals_say_what_to_write() -> None:
    with pytest.raises(InvalidArgument, match=r"no column 'tonw'; the columns are .*town"):
        Expression("tonw == 'Oslo'").rows(COLUMNS, 4)
    with pytest.raises(InvalidArgument, match="to compare, write =="):
        Expression("a = 1")


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="ab01 .()+-*/<>=!'\"[],_&|:{}@%\\\nandornit", max_size=40))
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    with suppress(InvalidArgument):
        assert Expression(text).rows({"a": np.ones(2), "b": np.zeros(2)}, 2).shape == (2,)


TIMES = [pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timedelta(1, "ns")]
ODD_CELLS = [None, math.nan, 1 + 2j, "x", 10**400, 2.5, Decimal("sNaN"), True, [1], *TIMES]
FORMED: dict[str, tuple[list[Any], list[Any], list[str]]] = {
    "numbers": ([1, 2, 3.5], [1, 2, 3, 4], ["v > 1", "v == 2", "clip(v, 0, 1)", "not v"]),
    "codes": (
        ["A1", "12"],
        [12, 13, 14.0, 2**60, 0],
        ["v == '12'", "v == '1152921504606846976'", "v != '13'"],
    ),
    "days": (
        ["never", "x"],
        [datetime(2020, 1, 1), datetime(2021, 5, 6, 7, 8), datetime(1999, 1, 1)],
        ["v == '2020-01-01'", "v < '2020'", "v == '2021-05-06T07:08'"],
    ),
    "spans": (["never", "x"], [timedelta(days=1), timedelta(seconds=5)], ["v == '5 s'", "v != '86400 s'"]),
}


@pytest.mark.parametrize("form", ["frame", "array", "cells"])
@pytest.mark.parametrize("name", FORMED)
def test_one_odd_cell_changes_what_no_other_cell_says(name: str, form: str) -> None:
    """numpy and pandas write a whole column in another way for it: as doubles, complex numbers, texts."""
    train, usual, expressions = FORMED[name]

    def made(cells: list[Any]) -> Any:
        if form == "frame":
            return pd.DataFrame({"v": pd.Series(cells)})
        return {"v": np.array(cells) if form == "array" else cells}

    cells = (usual * 4)[:12]
    for odd in ODD_CELLS:
        if form == "array" and (isinstance(odd, list) or (name == "codes" and odd is True)):
            continue  # no array of one dimension; numpy itself makes a number of True
        pairs = [TablePair(made(train * 6), made(fresh)) for fresh in (cells, [odd, *cells[1:]])]
        for text in expressions:
            like = pairs[0].on_training(text)
            without, with_odd = (pair.on_holdout(text, like) for pair in pairs)
            assert without is not None
            assert with_odd is not None
            assert abs(without - with_odd) <= Fraction(1, len(cells)), (odd, text)

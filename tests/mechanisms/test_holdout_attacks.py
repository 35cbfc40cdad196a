"""Attempts to learn something from the holdout without paying for it; each one worked once."""

from __future__ import annotations

import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from holdout_fakes import terms

from quiltdp import Gaussian, Laplace, Ledger, ReusableHoldout
from quiltdp.accountant.ledger import Terms
from quiltdp.accountant.ledger.sqlite import SQLiteRows
from quiltdp.errors import InvalidArgument, QuiltdpError, Refused
from quiltdp.mechanisms import GaussianMechanism, LaplaceMechanism
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.noise import SecureNoise
from quiltdp.mechanisms.queries import TablePair

N = 500
CAL = terms(budget=3, sensitivity=1 / N, dp_epsilon=5.0)
TRAIN = {"x": np.random.default_rng(0).random(N), "fresh": np.zeros(N)}
FRESH = {"x": np.random.default_rng(1).random(N), "fresh": np.ones(N)}
Columns = dict[str, np.ndarray]


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


def holdout(path: object, **options: Any) -> ReusableHoldout:
    return ReusableHoldout(TRAIN, FRESH, CAL, 0.2, path, **options)  # type: ignore[arg-type]


def rows(level: float, gap: float = 0.0) -> str:
    """Return a query that is ``level`` in training and ``level + gap`` on the holdout."""
    return f"{level} + {gap} * fresh"


OVERFITTED = rows(0.0, 1.0)


def state(path: Path) -> tuple[Any, ...]:
    head = Ledger.open(path).head
    return head.seq, head.spent, head.commitment


# -- a refusal after the noise is drawn is a free comparison ------------------------------------


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (["a", "a"], None),
        (None, ["x" * 501, None]),
        (None, ["fine", "x" * 501]),
        (None, [7, None]),
        (["\udcff", None], None),
        (["a", "\udcff"], None),
        (None, ["\udcff", None]),
        (["a\0b", None], None),
        (["", None], None),
        ([3, None], None),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_drawn(
    path: Path, keys: Any, labels: Any
) -> None:
    class NoNoise:
        secure = False

        def laplace(self, values: object, scale: float) -> list[int]:
            raise AssertionError("noise was drawn")

    h = holdout(path, noise=NoNoise())
    before = state(path)
    messages = set()
    for gap in (0.0, 0.25, 0.9):  # below, near and above the threshold
        with pytest.raises(QuiltdpError) as caught:
            h.ask_many([rows(0.1), rows(0.05, gap)], keys=keys, labels=labels)
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert state(path) == before


def test_no_message_tells_how_many_entries_there_are(path: Path) -> None:
    h = holdout(path)
    h.ask(rows(0.5), key="a")
    with pytest.raises(Refused) as caught:
        h.ask(rows(0.25), key="a")
    assert not any(character.isdigit() for character in str(caught.value))


def test_a_failure_after_the_draw_is_charged_and_says_nothing(path: Path, monkeypatch: Any) -> None:
    """Whatever breaks between the noise and the commit, the budget stays charged, the message the same."""
    messages = set()
    for k, gap in enumerate((0.0, 0.9)):
        place = path.with_name(f"{k}.db")
        h = holdout(place, second=True)
        write = SQLiteRows.write

        def broken(self: Any, entries: Any, *rest: Any, write: Any = write) -> None:
            entries = list(entries)
            if entries[0].kind != "reserve":
                import sqlite3

                raise sqlite3.OperationalError(f"{entries[0].kind} {entries[0].value}")
            write(self, entries, *rest)

        monkeypatch.setattr(SQLiteRows, "write", broken)
        with pytest.raises(Refused) as caught:
            h.ask(rows(0.05, gap))
        monkeypatch.undo()
        messages.add(str(caught.value))
        head = Ledger.open(place).head
        assert (head.spent, head.answers) == (Fraction(1, 3), 1)
        assert Ledger.open(place).odometer().lost == 1
    assert len(messages) == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_while_the_holdout_is_read_is_charged(path: Path, stop: type[BaseException]) -> None:
    def query(table: Columns) -> np.ndarray:
        if table["fresh"].any():
            raise stop
        return 0.5 + table["fresh"]

    h = holdout(path)
    if stop is KeyboardInterrupt:
        with pytest.raises(stop):
            h.ask(query)
    else:  # not told apart from any other failure
        assert h.ask(query).source == "holdout"
    assert Ledger.open(path).head.answers == 1


def test_a_query_that_never_ends_can_be_interrupted(path: Path) -> None:
    """While a ledger is held signals wait, but not for its user's code."""

    def query(table: Columns) -> np.ndarray:
        while table["fresh"].any():
            signal.raise_signal(signal.SIGINT)
        return 0.5 + table["fresh"]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            holdout(path).ask(query)
    finally:
        signal.signal(signal.SIGINT, before)
    assert Ledger.open(path).head.answers == 1


class Unbuildable(SecureNoise):
    """A sampler that cannot be loaded: no memory, no library, an interrupt."""

    def laplace(self, values: Any, scale: float) -> list[int]:
        raise MemoryError

    gaussian = laplace


def test_samplers_are_built_before_anything_is_charged(path: Path) -> None:
    """Loading them takes a second: a process that was killed in it had lost an answer."""
    with pytest.raises(MemoryError):
        holdout(path, noise=Unbuildable()).ask(rows(0.0, 1.0))
    assert Ledger.open(path).head.spent == 0
    for spec, mechanism in ((Laplace(1.0), LaplaceMechanism), (Gaussian(1.0, 1e-6), GaussianMechanism)):
        cost = 0.1 if spec.pure else None
        own = Terms(spec, 10.0, 1.0, cost, 0.0 if spec.pure else 1e-6, "informed", "test", "f" * 64)
        account = Ledger.create(":memory:", own)
        with pytest.raises(MemoryError):
            mechanism(spec, 10.0, noise=Unbuildable()).release(1.0, ledger=account)
        assert account.head.spent == 0


# -- callables that break on the holdout --------------------------------------------------------


def breaking(how: str) -> Callable[[Columns], Any]:
    """Return a query that is ½ on every training row and breaks on every holdout row."""

    def query(table: Columns) -> Any:
        good = np.full(len(table["x"]), 0.5)
        if not table["fresh"].any():
            return good
        broken: dict[str, Any] = {
            "shape": good[:-1],
            "matrix": np.zeros((len(good), 2)),
            "scalar": 0.5,
            "text": "x",
            "nothing": None,
            "complex": good + 0j,
        }
        if how in broken:
            return broken[how]
        raise {"exception": ZeroDivisionError, "invalid": InvalidArgument, "exit": SystemExit}[how](
            f"record {table['x'][0]}"
        )

    return query


HOWS = ["shape", "matrix", "scalar", "text", "nothing", "complex", "exception", "invalid", "exit"]


@pytest.mark.parametrize("how", HOWS)
def test_a_query_that_fails_on_the_holdout_is_an_answer_like_any_other(path: Path, how: str) -> None:
    """Whether it failed is told to nobody: it counts 0, and noise is drawn and booked as for any value."""
    h = holdout(path, failure=1e-9)
    answer = h.ask(breaking(how))
    assert (answer.source, h.remaining, h.odometer().failed) == ("holdout", 2, 0)
    assert answer.value is not None
    assert abs(answer.value) <= answer.error_bound < 0.3
    alike = h.ask("0.5 - 0.5 * fresh")  # 0 on the holdout, without a failure
    assert (alike.source, alike.error_bound) == (answer.source, answer.error_bound)


@pytest.mark.parametrize("value", [math.nan, 1.5, -0.1, np.zeros(N)])
def test_a_number_that_fails_on_the_holdout_counts_0(path: Path, value: object) -> None:
    h = holdout(path, failure=1e-9)
    answer = h.ask(lambda t: value if t["fresh"].any() else 0.5, sensitivity=1 / N)
    assert (answer.source, h.remaining) == ("holdout", 2)
    assert answer.value is not None
    assert abs(answer.value) <= answer.error_bound < 0.3


def test_failures_in_a_batch_tell_nothing_about_the_others(path: Path) -> None:
    """One entry that failed used to undo the batch: that the others had not failed was told for nothing."""
    h = holdout(path)
    queries = [rows(0.5), breaking("text"), rows(0.25), breaking("shape")]
    found = h.ask_many(queries, keys=["a", None, "b", None])  # type: ignore[list-item]
    assert [a.source for a in found] == ["train", "holdout", "train", "holdout"]
    assert (h.remaining, h.odometer().queries) == (1, 4)
    kinds = [e.kind for e in h.ledger.entries()]
    assert kinds == ["data", "reserve", "train", "holdout", "train", "holdout"]


@pytest.mark.filterwarnings("error")
def test_a_warning_about_the_holdout_is_not_shown(path: Path) -> None:
    def query(table: Columns) -> np.ndarray:
        if table["fresh"].any():
            warnings.warn("a record of the holdout", stacklevel=1)
        return table["x"] < 0.5

    assert holdout(path).ask(query).source == "train"


def careless(how: str, data: Any) -> Any:
    """A query of rows that stumbles over negative values in its own way."""
    x = np.asarray(data["x"] if isinstance(data, Mapping) or hasattr(data, "iloc") else data)
    if how == "raises" and (x < 0).any():
        raise ValueError(f"negative: {x[x < 0]}")
    if how == "drops":
        return (x[x >= 0] > 0.5).astype(float)
    if how == "odd cells":
        return np.array(["n/a" if v < 0 else bool(v > 0.5) for v in x], dtype=object)
    return float("nan") if (x < 0).any() else x > 0.5  # one number instead of rows


@pytest.mark.parametrize("form", ["array", "columns", "frame", "list"])
@pytest.mark.parametrize("how", ["raises", "drops", "odd cells", "switches"])
def test_a_record_on_which_a_callable_fails_counts_nothing_and_is_not_told(
    path: Path, how: str, form: str
) -> None:
    """An exception would be an exact bit about that record; a row that counts 0 moves the mean by 1/n."""
    rng = np.random.default_rng(4)
    train, good = rng.uniform(0.01, 1.0, 300), rng.uniform(0.01, 1.0, 300)
    bad = good.copy()
    bad[[17, 18, 200]] = -1.0

    def data(x: np.ndarray) -> Any:
        if form == "array":
            return x
        return pd.DataFrame({"x": x}) if form == "frame" else {"x": list(x) if form == "list" else x}

    query = partial(careless, how)
    found = []
    for fresh in (good, bad):
        pair = TablePair(data(train), data(fresh))
        found.append(pair.on_holdout(query, pair.on_training(query)))
    lost = sum(good[k] > 0.5 for k in (17, 18, 200))
    assert found == [Fraction(int((good > 0.5).sum()), 300), Fraction(int((good > 0.5).sum() - lost), 300)]
    h = ReusableHoldout(
        data(train), data(bad), terms(budget=3, sensitivity=1 / 300, dp_epsilon=50.0), 0.5, path
    )
    assert h.ask(query).source == "train"
    assert h.odometer().failed == 0


def test_a_spent_holdout_is_not_even_read(path: Path) -> None:
    h = holdout(path)
    h.ask_many([OVERFITTED] * 3)
    seen = set()

    def spy(table: Columns) -> np.ndarray:
        seen.update(table["fresh"])
        return table["x"]

    assert h.ask(spy).source == "spent"
    assert h.ask(breaking("exception")).source == "spent"
    assert seen == {0.0}
    assert h.odometer().failed == 0


def test_a_single_number_needs_somebody_who_vouches(path: Path) -> None:
    h = holdout(path)
    with pytest.raises(InvalidArgument, match="sensitivity"):
        h.ask(lambda t: 0.5)
    for bad in (2 / N, math.nan, -1.0, "x", True):
        with pytest.raises(InvalidArgument, match="sensitivity"):
            h.ask(lambda t: 0.5, sensitivity=bad)  # type: ignore[arg-type]
    assert h.ledger.head.spent == 0
    assert h.ask(lambda t: 0.5, sensitivity=1 / N).value == 0.5


# -- callables are handed copies ----------------------------------------------------------------

FORMS = ["array", "columns", "lists", "frame", "pair", "frames", "rows", "objects"]


def formed(form: str, table: Columns) -> Any:
    """Return two columns in one of the forms that data may have."""
    table = {name: column.copy() for name, column in table.items()}
    array, frame = np.column_stack([table["x"], table["fresh"]]), pd.DataFrame(table)
    return {
        "array": array,
        "columns": table,
        "lists": {name: list(column) for name, column in table.items()},
        "frame": frame,
        "pair": (array[:, :1], table["fresh"]),
        "frames": (frame[["x"]], frame["fresh"]),
        "rows": array.tolist(),
        "objects": pd.DataFrame({"x": [[v] for v in table["x"]], "fresh": table["fresh"]}),
    }[form]


def fresh_column(data: Any) -> Any:
    """Return the second column of data in any form."""
    if isinstance(data, tuple):
        return np.asarray(data[1])
    if isinstance(data, dict) or hasattr(data, "iloc"):
        return np.asarray(data["fresh"])
    return np.array(data)[:, 1]


def spoil(data: Any) -> None:
    """Change whatever can be changed of data in any form."""
    if isinstance(data, (dict, tuple)):
        for part in data.values() if isinstance(data, dict) else data:
            spoil(part)
        if isinstance(data, dict):
            data.clear()
    elif isinstance(data, np.ndarray):
        data.setflags(write=True)
        data[:] = 0
    elif isinstance(data, list):
        if isinstance(data[0], list):
            data[0][:] = [0.0, 0.0]
        data[:] = data[:1] * len(data)
    elif data.ndim == 2 and isinstance(data["x"].iloc[0], list):
        data["x"].iloc[0].append("spoilt")
    else:
        data.iloc[:] = 0


@pytest.mark.parametrize("form", FORMS)
def test_a_callable_is_handed_copies(path: Path, form: str) -> None:
    """It used to get the live holdout, and could set it to 0 for every later question."""

    def query(data: Any) -> Any:
        answers = 0.05 + 0.9 * fresh_column(data)
        spoil(data)
        return answers

    train, fresh = formed(form, TRAIN), formed(form, FRESH)
    h = ReusableHoldout(train, fresh, terms(budget=9, sensitivity=1 / N, dp_epsilon=500.0), 0.2, path)
    for answer in (h.ask(query), *h.ask_many([query, query])):
        assert answer.source == "holdout"
        assert answer.value == pytest.approx(0.95, abs=0.05)
    ReusableHoldout(train, formed(form, FRESH), h.ledger.terms, 0.2, path)  # still the same data


def test_an_array_is_read_only(path: Path) -> None:
    def query(data: Columns) -> Any:
        data["x"][:] = 0
        return data["fresh"]

    with pytest.raises(ValueError, match="read-only"):
        holdout(path).ask(query)


@pytest.mark.parametrize("form", FORMS)
def test_a_holdout_that_was_changed_is_refused_before_anything_is_charged(path: Path, form: str) -> None:
    fresh = formed(form, FRESH)
    h = ReusableHoldout(formed(form, TRAIN), fresh, CAL, 0.2, path)
    query = lambda data: 0.5 * fresh_column(data)  # noqa: E731
    h.ask(query)
    before = state(path)
    if form == "frames":
        fresh[0].iloc[3] = 0.25
    else:
        spoil(fresh)
    with pytest.raises(Refused, match="changed"):
        h.ask(query)
    assert state(path) == before


def test_a_query_that_changes_the_holdout_behind_our_back_harms_nobody_after_it(path: Path) -> None:
    fresh = {name: column.copy() for name, column in FRESH.items()}
    h = ReusableHoldout(TRAIN, fresh, terms(budget=9, sensitivity=1 / N, dp_epsilon=500.0), 0.2, path)

    def query(data: Columns) -> Any:
        if data["fresh"].any():
            fresh["fresh"][:] = 0.0
        return data["fresh"]

    assert [a.source for a in h.ask_many([query, lambda data: data["fresh"]])] == ["holdout", "holdout"]
    with pytest.raises(Refused, match="changed"):
        h.ask(query)


# -- a row's value depends on the row alone -----------------------------------------------------

PREDICTED = np.random.default_rng(2).random(N) < 0.5


def one_after_another(data: Columns, state: dict[str, int]) -> Any:
    state["calls"] = state.get("calls", 0) + 1
    return data["x"] < state["calls"] % 7 / 7


NOT_BY_ROW: dict[str, Callable[[Any], Any]] = {
    "predictions of other rows": lambda d: (d["x"] < 0.5) == PREDICTED,
    "predictions cut to fit": lambda d: np.resize(PREDICTED, len(d["x"])) == (d["x"] < 0.5),
    "predictions where they fit": lambda d: PREDICTED if len(d["x"]) == N else d["x"] < 0.5,
    "by position": lambda d: np.arange(len(d["x"])) % 2,
    "mean": lambda d: d["x"] > d["x"].mean(),
    "median": lambda d: d["x"] > np.median(d["x"]),
    "maximum": lambda d: d["x"] == d["x"].max(),
    "scaled": lambda d: d["x"] / d["x"].max(),
    "outliers": lambda d: np.abs(d["x"] - d["x"].mean()) > 3 * d["x"].std(),  # of which there are none
    "rank": lambda d: d["x"].argsort().argsort() / len(d["x"]),
    "sorted": lambda d: np.sort(d["x"]),
    "before": lambda d: np.roll(d["x"], 1),
    "running": lambda d: np.maximum.accumulate(d["x"]),
    "duplicates": lambda d: ~pd.Series(d["x"]).duplicated(),
    "mode": lambda d: (d["x"] < 0.3) == (np.mean(d["x"] < 0.3) > 0.5),
    "random": lambda d: np.random.default_rng().random(len(d["x"])),
    "stateful": partial(one_after_another, state={}),
    "length": lambda d: d["x"] < 0.5 if len(d["x"]) > 1 else d["x"] >= 0.5,
    "first row": lambda d: d["x"] > d["x"][0],
    "one value of all": lambda d: np.full(len(d["x"]), d["x"].mean()),
    "no single rows": lambda d: np.squeeze(d["x"]),
}


@pytest.mark.parametrize("rows", [N, 313, 2 * N])
@pytest.mark.parametrize("name", NOT_BY_ROW)
def test_answers_must_follow_the_rows(path: Path, name: str, rows: int) -> None:
    """Seen on the training data alone, before anything is charged; of the holdout only the size is used."""
    fresh = {column: np.resize(values, rows) for column, values in FRESH.items()}
    h = ReusableHoldout(TRAIN, fresh, terms(sensitivity=1 / rows), 0.2, path)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="rows one by one") as caught:
            h.ask(NOT_BY_ROW[name])
        assert "\n" not in str(caught.value)
    assert [e.kind for e in h.ledger.entries()] == ["data"]


@pytest.mark.parametrize("rows", [N, 313, 2 * N])
def test_a_query_may_not_know_how_many_rows_the_holdout_has(path: Path, rows: int) -> None:
    fresh = {column: np.resize(values, rows) for column, values in FRESH.items()}
    h = ReusableHoldout(TRAIN, fresh, terms(sensitivity=1 / rows), 0.2, path)
    with pytest.raises(InvalidArgument, match="rows one by one"):
        h.ask(lambda d: d["x"] < (0.5 if len(d["x"]) != rows else 0.6))


def test_what_many_rows_say_together_is_seen_where_few_are_treated_one_by_one(path: Path) -> None:
    rows = 4000
    train, fresh = ({"x": np.random.default_rng(k).random(rows)} for k in range(2))
    h = ReusableHoldout(train, fresh, terms(sensitivity=1 / rows), 0.2, path)

    def usual(d: Columns) -> Any:
        low = d["x"] < 0.3
        return low == (len(low) > 1500 and low.mean() > 0.5)

    with pytest.raises(InvalidArgument, match="rows one by one"):
        h.ask(usual)


def test_the_index_of_a_frame_is_no_part_of_a_row(path: Path) -> None:
    """Training and holdout are both numbered from 0: predictions found by number belong to other rows."""
    train, fresh = pd.DataFrame(TRAIN), pd.DataFrame(FRESH)
    h = ReusableHoldout(train, fresh, CAL, 0.2, path)
    with pytest.raises(InvalidArgument, match="rows one by one"):
        h.ask(lambda d: PREDICTED[d.index])


def test_a_number_is_the_same_when_asked_again(path: Path) -> None:
    h = holdout(path)
    with pytest.raises(InvalidArgument, match="another number"):
        h.ask(lambda d: np.random.default_rng().random(), sensitivity=1 / N)
    assert h.ask(lambda d: float(np.mean(d["x"])), sensitivity=1 / N).source == "train"


BY_ROW: dict[str, Callable[[Any], Any]] = {
    "column": lambda d: d["x"],
    "constant": lambda d: np.zeros(len(d["x"])),
    "by heart": lambda d: np.isin(d["x"], TRAIN["x"]),
    "list": lambda d: [bool(v < 0.5) for v in d["x"]],
    "series": lambda d: pd.Series(d["x"]) < 0.5,
    "product": lambda d: 1 / (1 + np.exp(-np.column_stack([d["x"], d["fresh"]]) @ [2.0, -1.0])),
    "single precision": lambda d: np.tanh(d["x"].astype(np.float32)),
}


@pytest.mark.parametrize("name", BY_ROW)
def test_rows_one_by_one_are_accepted(path: Path, name: str) -> None:
    assert holdout(path).ask(BY_ROW[name]).source in ("train", "holdout")


@pytest.mark.parametrize(
    "pair",
    [
        (np.zeros((4, 2)), np.ones((4, 3))),
        ((np.zeros((4, 2)), np.zeros(4)), (np.ones((4, 2)), None)),
        ({"x": np.zeros(4)}, {"x": [1.0] * 4}),
        (pd.DataFrame({"x": [0.0]}), {"x": [1.0]}),
        ((pd.DataFrame({"x": [0.0]}), None), (pd.DataFrame({"y": [1.0]}), None)),
    ],
)
def test_a_callable_needs_two_tables_of_one_form(pair: tuple[Any, Any]) -> None:
    """Otherwise it would fail on every row of the holdout, and nobody would be told."""
    h = ReusableHoldout(*pair, terms(sensitivity=1.0, dp_epsilon=10.0), 0.2, ":memory:")
    with pytest.raises(InvalidArgument, match="alike"):
        h.ask(lambda d: 0.5, sensitivity=1.0)


# -- keys ---------------------------------------------------------------------------------------

LEVEL = 0.5


class Threshold:
    def __init__(self, level: float) -> None:
        self.level = level

    def __call__(self, table: Columns) -> np.ndarray:
        return table["x"] < self.level


def by_global(table: Columns) -> np.ndarray:
    return table["x"] < LEVEL


CALLABLES: list[Callable[[Any], Any]] = [
    Threshold(0.5),
    Threshold(0.5).__call__,
    lambda t: t["x"] < 0.5,
    partial(by_global),
    by_global,
    lambda t: pd.DataFrame(t).eval("x < @LEVEL"),
    lambda t: t["x"] < globals()["LEVEL"],
    lambda t: t["x"] < getattr(sys.modules[__name__], "LEVEL"),  # noqa: B009
    np.vectorize(lambda t: t),
    np.mean,
]


@pytest.mark.parametrize("query", CALLABLES)
def test_a_callable_gets_no_key(path: Path, query: Callable[[Any], Any]) -> None:
    """What it computes depends on more than can be compared: one key could return the answer of another."""
    h = holdout(path)
    before = state(path)
    with pytest.raises(InvalidArgument, match="key"):
        h.ask(query, key="k")
    with pytest.raises(InvalidArgument, match="key"):
        h.ask_many(["x < 0.5", query], keys=["a", "k"])
    assert state(path) == before


def test_two_expressions_are_two_queries(path: Path) -> None:
    h = holdout(path)
    assert not h.ask("x < 0.5", key="k").repeated
    assert h.ask(" x < 0.5 ", key="k").repeated
    assert h.ask(Expression("x < 0.5"), key="k").repeated
    with pytest.raises(Refused, match="another request"):
        h.ask("x < 0.6", key="k")


# -- types --------------------------------------------------------------------------------------


def written(cells: list[str]) -> Any:
    from quiltdp.mechanisms.cells import WrittenColumns

    return WrittenColumns({"code": cells})


def test_one_record_does_not_change_the_type_of_a_column(path: Path) -> None:
    """A single text, or a single missing cell, in the holdout moves a mean by 1/n and no more."""
    pandas = pytest.importorskip("pandas")
    codes = ["1"] * (N - 20) + ["2"] * 20
    flags = [True] * (N - 20) + [False] * 20
    cases = [
        (written([*codes]), written([*codes[:-1], "3"]), written([*codes[:-1], "unknown"]), "code == 1"),
        (written(["x", *codes[1:]]), written(["y", *codes[1:]]), written(["", *codes[1:]]), "code == '1'"),
        *(
            (
                pandas.DataFrame({"flag": flags}),
                pandas.DataFrame({"flag": [*flags[:-1], True]}),
                pandas.DataFrame({"flag": [*flags[:-1], None]}, dtype=kind),
                "flag == True",
            )
            for kind in (object, "boolean", None)
        ),
        ({"n": np.arange(N)}, {"n": [*range(N - 1), 0]}, {"n": [*range(N - 1), "none"]}, "n < 400"),
    ]
    for k, (train, fresh, one_record, query) in enumerate(cases):
        values = []
        for j, table in enumerate((fresh, one_record)):
            h = ReusableHoldout(train, table, CAL, 0.2, path.with_name(f"{k}{j}.db"), second=True)
            like = h._tables.on_training(query)
            values.append(h._tables.on_holdout(query, like))
        assert abs(values[0] - values[1]) <= Fraction(1, N)
        assert min(values) > Fraction(3, 4)


@pytest.mark.parametrize("query", ["flag == True", "flag == 1", "flag", "~flag == False", "flag & x > 0"])
def test_truth_values_mean_the_same_everywhere(query: str) -> None:
    pandas = pytest.importorskip("pandas")
    flags = [True, False, True, True]
    from quiltdp.mechanisms.cells import Table, WrittenColumns
    from quiltdp.mechanisms.expressions import Expression

    x = [1, 2, 3, 4]
    learned = Table.from_training({"flag": np.array(flags), "x": np.array(x)})
    assert learned is not None
    others: list[Any] = [
        WrittenColumns({"flag": ["True", "false", "TRUE", "1"], "x": ["1", "2", "3", "4"]}),
        pandas.DataFrame({"flag": flags, "x": x}),
        pandas.DataFrame({"flag": pandas.array(flags, dtype="boolean"), "x": x}),
        pandas.DataFrame({"flag": pandas.Categorical(flags), "x": x}),
        {"flag": [1, 0, 1.0, "1"], "x": x},
        {"flag": np.array(["True", "False", "True", "True"]), "x": x},
    ]
    expected = Expression(query).rows(learned, 4).tolist()
    assert expected == [1.0, 0.0, 1.0, 1.0]
    for other in others:
        assert Expression(query).rows(learned.read_like(other), 4).tolist() == expected


def test_types_are_declared_or_learned_and_never_guessed_from_the_holdout(path: Path) -> None:
    train, fresh = written(["1", "2"] * 250), written(["01", "1"] * 250)
    h = ReusableHoldout(train, fresh, CAL, 0.2, path)
    with pytest.raises(InvalidArgument, match="text with a number"):
        h.ask("code == '1'")
    declared = ReusableHoldout(train, fresh, CAL, 0.2, path, types={"code": "text"})
    like = declared._tables.on_training("code == '1'")
    assert declared._tables.on_holdout("code == '1'", like) == Fraction(1, 2)
    for bad in ({"code": "date"}, {"nowhere": "text"}):
        with pytest.raises(InvalidArgument, match="types"):
            ReusableHoldout(train, fresh, CAL, 0.2, path, types=bad)


# -- one budget, one data set -------------------------------------------------------------------


def test_other_data_are_noticed(path: Path) -> None:
    holdout(path).ask(rows(0.5))
    changed = {**FRESH, "x": FRESH["x"].copy()}
    changed["x"][3] = 0.5
    with pytest.raises(Refused, match="other holdout data"):
        ReusableHoldout(TRAIN, changed, CAL, 0.2, path)
    holdout(path).ask(rows(0.5))  # the same data in another process, or another copy
    ReusableHoldout(TRAIN, FRESH.copy(), CAL, 0.2, path)


def test_a_second_ledger_on_the_same_data_is_noticed(path: Path) -> None:
    holdout(path).ask(rows(0.5))
    other = path.with_name("fresh start.db")
    with pytest.raises(Refused, match=r"study\.db keeps the account"):
        holdout(other)
    assert not other.exists()
    assert holdout(other, second=True).remaining == 3


@pytest.mark.parametrize(
    "pair",
    [
        (TRAIN, TRAIN),
        (TRAIN, TRAIN.copy()),
        ({"x": [1, 2.5]}, {"x": ["1", "2.5"]}),
        ((np.ones((3, 2)), np.ones(3)),) * 2,
    ],
)
def test_training_data_are_no_holdout(path: Path, pair: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidArgument, match="same data"):
        ReusableHoldout(*pair, CAL, 0.2, path)
    assert not path.exists()


# -- what is written does not depend on what came out -------------------------------------------


def sizes(path: Path, gaps: list[float], batch: int) -> list[int]:
    calibration = terms(budget=1000, sensitivity=1 / N, dp_epsilon=4000.0)
    h = ReusableHoldout(TRAIN, FRESH, calibration, 0.2, path, second=True)
    found = []
    for k, gap in enumerate(gaps):
        h.ask_many(
            [rows(0.05, gap)] * batch, labels=["label"] * batch, keys=[f"{k}-{j}" for j in range(batch)]
        )
        found.append(path.stat().st_size)
    return found


@pytest.mark.parametrize("batch", [1, 7])
def test_the_file_grows_alike_whatever_comes_out(quick_path: Path, batch: int) -> None:
    count = 21 // batch
    low = sizes(quick_path / "low.db", [0.0] * count, batch)
    high = sizes(quick_path / "high.db", [0.9] * count, batch)
    assert low == high
    kinds = [{e.kind for e in Ledger.open(quick_path / f"{name}.db").entries()} for name in ("low", "high")]
    assert kinds == [{"data", "reserve", "train"}, {"data", "reserve", "holdout"}]


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
def test_a_file_size_limit_is_no_oracle(quick_path: Path) -> None:
    """With every limit, an answer from training and one from the holdout succeed or fail together."""
    import resource

    def asked(path: Path, gap: float, limit: int) -> tuple[str, Fraction]:
        h = holdout(path, second=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            h.ask(rows(0.05, gap), label="x" * 400)
            told = "told"
        except QuiltdpError as error:
            told = str(error).replace(str(path), "")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return told, Ledger.open(path).head.spent

    outcomes = set()
    for limit in (512, 4_000, 16_000, 40_000, 100_000, 160_000, 180_000, 260_000):
        (low, a), (high, b) = (asked(quick_path / f"{limit}-{gap}.db", gap, limit) for gap in (0.0, 0.9))
        assert low == high
        if low != "told":
            assert a == b  # nothing was drawn, or everything is charged
        outcomes.add(low)
    assert "told" in outcomes
    assert len(outcomes) > 1


def test_an_answer_fits_into_the_room_that_was_reserved_for_it(path: Path, monkeypatch: Any) -> None:
    """Between reservation and outcome the disk fills up: the outcome still has its pages."""
    calibration = terms(budget=100, sensitivity=1 / N, dp_epsilon=400.0)
    h = ReusableHoldout(TRAIN, FRESH, calibration, 0.2, path)
    write = SQLiteRows.write

    def full(self: Any, entries: Any, *rest: Any) -> None:
        entries = list(entries)
        if entries[0].kind != "reserve":
            pages = self.connection.execute("PRAGMA page_count").fetchone()[0]
            self.connection.execute(f"PRAGMA max_page_count = {pages}")
        write(self, entries, *rest)
        self.connection.execute("PRAGMA max_page_count = 1000000")

    monkeypatch.setattr(SQLiteRows, "write", full)
    for batch in (1, 1, 40, 3, 20):
        answers = h.ask_many([OVERFITTED] * batch, labels=["y" * 500] * batch)
        assert {a.source for a in answers} == {"holdout"}


# -- forks --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_query_that_forks_gets_one_answer(path: Path) -> None:
    """The child returns from the same query, into the same visit, with the same reservation."""
    h = holdout(path)
    parent = os.getpid()
    read, write = os.pipe()

    def query(table: Columns) -> np.ndarray:
        if table["fresh"].any():
            os.fork()
        return 0.05 + 0.9 * table["fresh"]

    try:
        told = h.ask(query).source
    except QuiltdpError:
        told = "refused"
    if os.getpid() != parent:
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    assert (told, os.read(read, 100)) == ("holdout", b"refused")
    assert h.ledger.verify().answers == 1

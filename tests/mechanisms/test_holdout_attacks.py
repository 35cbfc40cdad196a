"""Attempts to learn something from the holdout without paying for it; each one worked once."""

from __future__ import annotations

import math
import os
import pickle
import sys
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
from quiltdp.errors import InvalidArgument, QuiltdpError, Refused
from quiltdp.mechanisms import GaussianMechanism, LaplaceMechanism
from quiltdp.mechanisms.holdout import FAILED
from quiltdp.mechanisms.noise import SecureNoise
from quiltdp.mechanisms.queries import TablePair

N = 500
CAL = terms(budget=3, sensitivity=1 / N, dp_epsilon=5.0)
TRAIN = np.random.default_rng(0).random((N, 2))
FRESH = np.random.default_rng(1).random((N, 2))


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


def holdout(path: object, **options: Any) -> ReusableHoldout:
    return ReusableHoldout(TRAIN, FRESH, CAL, 0.2, path, **options)  # type: ignore[arg-type]


def rows(level: float, gap: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """Return a query that is ``level`` in training and ``level + gap`` on the holdout."""
    return lambda table: np.full(N, level if table is TRAIN else level + gap)


def overfitted(table: np.ndarray) -> np.ndarray:
    return rows(0.0, 1.0)(table)


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
        write = type(h.ledger.store).write

        def broken(self: Any, connection: Any, entries: Any, *rest: Any, write: Any = write) -> None:
            entries = list(entries)
            if entries[0].kind != "reserve":
                import sqlite3

                raise sqlite3.OperationalError(f"{entries[0].kind} {entries[0].value}")
            write(self, connection, entries, *rest)

        monkeypatch.setattr(type(h.ledger.store), "write", broken)
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
    def query(table: np.ndarray) -> np.ndarray:
        if table is FRESH:
            raise stop
        return np.zeros(N)

    with pytest.raises((stop, Refused)):
        holdout(path).ask(query)
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


def breaking(how: str) -> Callable[[np.ndarray], Any]:
    def query(table: np.ndarray) -> Any:
        good = np.full(N, 0.5)
        if table is TRAIN:
            return good
        broken: dict[str, Any] = {
            "shape": good[:-1],
            "matrix": np.zeros((N, 2)),
            "scalar": 0.5,
            "text": "x",
            "nothing": None,
            "complex": good + 0j,
        }
        if how in broken:
            return broken[how]
        raise {"exception": ZeroDivisionError, "invalid": InvalidArgument}[how](f"record {table[0, 0]}")

    return query


HOWS = ["shape", "matrix", "scalar", "text", "nothing", "complex", "exception", "invalid"]


@pytest.mark.parametrize("how", HOWS)
def test_a_query_that_fails_on_the_holdout_is_charged_like_an_answer(path: Path, how: str) -> None:
    h = holdout(path)
    with pytest.raises(Refused) as caught:
        h.ask(breaking(how), key="k")
    assert str(caught.value) == FAILED
    reading = h.odometer()
    assert (reading.share, reading.answers, reading.remaining, reading.failed) == (Fraction(1, 3), 1, 2, 1)
    with pytest.raises(Refused, match="failed on the holdout"):
        h.ask(breaking(how), key="k")  # recorded: told again, charged once
    assert h.remaining == 2


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


@pytest.mark.parametrize("value", [math.nan, 1.5, -0.1, np.zeros(N)])
def test_a_number_that_fails_on_the_holdout_is_charged_too(path: Path, value: object) -> None:
    h = holdout(path)
    with pytest.raises(Refused, match="failed on the holdout"):
        h.ask(lambda t: 0.5 if t is TRAIN else value, sensitivity=1 / N)
    assert h.remaining == 2


def test_failures_in_a_batch_are_charged_one_by_one_and_never_more_than_is_left(path: Path) -> None:
    h = holdout(path)
    with pytest.raises(Refused):
        h.ask_many([rows(0.5), breaking("text"), breaking("shape")], keys=["a", "b", "c"])
    assert (h.remaining, h.odometer().queries) == (1, 0)
    assert h.ask(rows(0.5), key="a").source == "train"  # was not asked, is not recorded
    with pytest.raises(Refused):
        h.ask_many([breaking("text")] * 5)
    assert h.ledger.verify().spent == 1


def test_a_spent_holdout_is_not_even_read(path: Path) -> None:
    h = holdout(path)
    h.ask_many([overfitted] * 3)
    seen = []

    def spy(table: np.ndarray) -> np.ndarray:
        seen.append(table is FRESH)
        return np.zeros(N)

    assert h.ask(spy).source == "spent"
    assert h.ask(breaking("exception")).source == "spent"
    assert seen == [False]
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


class Threshold:
    def __init__(self, level: float) -> None:
        self.level = level

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return table[:, 0] < self.level


def below(table: np.ndarray, level: float = 0.5) -> np.ndarray:
    return table[:, 0] < level


def made(level: float) -> Callable[[np.ndarray], np.ndarray]:
    def query(table: np.ndarray) -> np.ndarray:
        return table[:, 0] < level

    return query


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Threshold(0.5), Threshold(0.6)),
        (made(0.5), made(0.6)),
        (lambda t: t[:, 0] < 0.5, lambda t: t[:, 0] < 0.6),
        (partial(below, level=0.5), partial(below, level=0.6)),
        (Threshold(0.5).__call__, Threshold(0.6).__call__),
        ("x < 0.5", "x < 0.6"),
    ],
)
def test_two_queries_of_one_name_are_two_queries(path: Path, one: Any, other: Any) -> None:
    h = ReusableHoldout(
        {"x": TRAIN[:, 0]} if isinstance(one, str) else TRAIN,
        {"x": FRESH[:, 0]} if isinstance(one, str) else FRESH,
        CAL,
        0.2,
        path,
    )
    first = h.ask(one, key="k")
    assert h.ask(one, key="k").repeated
    if not callable(one) or not hasattr(one, "__closure__"):
        assert h.ask(pickle.loads(pickle.dumps(one)), key="k").value == first.value
    with pytest.raises(Refused, match="another request"):
        h.ask(other, key="k")


def test_a_callable_that_cannot_be_identified_gets_no_key(path: Path) -> None:
    stream = (x for x in range(3))
    h = holdout(path)
    query = lambda t: t[:, 0] < 0.5 + 0 * len(str(stream))  # noqa: E731
    with pytest.raises(InvalidArgument, match="key"):
        h.ask(query, key="k")
    assert h.ask(query).source == "train"


# -- types --------------------------------------------------------------------------------------


def written(cells: list[str]) -> Any:
    from quiltdp.mechanisms.cells import Written

    return Written({"code": cells})


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
    from quiltdp.mechanisms.cells import Table, Written
    from quiltdp.mechanisms.expressions import Expression

    x = [1, 2, 3, 4]
    learned = Table.learned({"flag": np.array(flags), "x": np.array(x)})
    assert learned is not None
    others: list[Any] = [
        Written({"flag": ["True", "false", "TRUE", "1"], "x": ["1", "2", "3", "4"]}),
        pandas.DataFrame({"flag": flags, "x": x}),
        pandas.DataFrame({"flag": pandas.array(flags, dtype="boolean"), "x": x}),
        pandas.DataFrame({"flag": pandas.Categorical(flags), "x": x}),
        {"flag": [1, 0, 1.0, "1"], "x": x},
        {"flag": np.array(["True", "False", "True", "True"]), "x": x},
    ]
    expected = Expression(query).rows(learned, 4).tolist()
    assert expected == [1.0, 0.0, 1.0, 1.0]
    for other in others:
        assert Expression(query).rows(learned.like(other), 4).tolist() == expected


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
    changed = FRESH.copy()
    changed[3, 0] = 0.5
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
        ((TRAIN, TRAIN[:, 0]),) * 2,
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
    write = type(h.ledger.store).write

    def full(self: Any, connection: Any, entries: Any, *rest: Any) -> None:
        entries = list(entries)
        if entries[0].kind != "reserve":
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
        write(self, connection, entries, *rest)
        connection.execute("PRAGMA max_page_count = 1000000")

    monkeypatch.setattr(type(h.ledger.store), "write", full)
    for batch in (1, 1, 40, 3, 20):
        answers = h.ask_many([overfitted] * batch, labels=["y" * 500] * batch)
        assert {a.source for a in answers} == {"holdout"}


# -- forks --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_query_that_forks_gets_one_answer(path: Path) -> None:
    """The child returns from the same query, into the same visit, with the same reservation."""
    h = holdout(path)
    parent = os.getpid()
    read, write = os.pipe()

    def query(table: np.ndarray) -> np.ndarray:
        if table is FRESH:
            os.fork()
        return rows(0.05, 0.9)(table)

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

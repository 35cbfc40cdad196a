from __future__ import annotations

import json
import math
import pickle
import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holdout_fakes import terms

from quiltdp import Ledger, ReusableHoldout
from quiltdp.accountant.ledger import Terms
from quiltdp.accountant.ledger.requests import keyed
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, Refused
from quiltdp.mechanisms import InsecureDeterministicNoise, Laplace, Thresholdout
from quiltdp.mechanisms.holdout import Answer, checked_settings
from quiltdp.mechanisms.rows import data_identity

N = 1000
CAL = terms(budget=3, sensitivity=1 / N, dp_epsilon=5.0)


OVERFITTED = "seen"
"""A query that is 1 on the training data and 0 elsewhere: the holdout must answer."""


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((N, 3))


def columns(seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": data(seed)[:, 0], "seen": np.full(N, float(seed == 0))}


def agree(table: dict[str, np.ndarray]) -> np.ndarray:
    return table["x"] < 0.5


class SilentNoise:
    """No noise, except that thresholds take given values (in units of T): T, then …"""

    secure = False

    def __init__(self, thresholds: Sequence[float] = ()) -> None:
        self.factors = list(thresholds)
        self.drawn = 0

    def laplace(self, values: Sequence[int], scale: float) -> list[int]:
        base = [int(v) for v in values]
        if base and len(set(base)) == 1 and self.factors and self.is_threshold(scale):
            self.drawn += len(base)
            return [int(v * self.factors.pop(0)) for v in base]
        return base

    def is_threshold(self, scale: float) -> bool:
        self.smallest = min(scale, getattr(self, "smallest", math.inf))
        return scale == self.smallest


def holdout(path: object, *, seed: int = 1, **options: object) -> ReusableHoldout:
    options.setdefault("noise", InsecureDeterministicNoise(seed))
    return ReusableHoldout(columns(), columns(1), CAL, 0.2, path, **options)  # type: ignore[arg-type]


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


def test_an_answer_from_training_costs_no_answer(path: Path) -> None:
    h = holdout(path)
    answer = h.ask(agree)
    assert answer == Answer(float(np.mean(agree(columns()))), "train", 3, answer.error_bound, failure=0.05)
    assert 0.2 < answer.error_bound < 1
    assert [e.kind for e in h.ledger.entries()] == ["data", "reserve", "train"]
    assert h.odometer().spent_dp_epsilon == pytest.approx(5.0 * 4 / 27)


def test_an_answer_from_the_holdout_spends(path: Path) -> None:
    h = holdout(path)
    answers = [h.ask(OVERFITTED) for _ in range(5)]
    assert [a.source for a in answers] == ["holdout"] * 3 + ["spent"] * 2
    assert [a.remaining for a in answers] == [2, 1, 0, 0, 0]
    assert all(abs(a.value) <= a.error_bound for a in answers[:3] if a.value is not None)
    assert answers[3] == Answer(None, "spent", 0, math.inf)
    assert h.ledger.verify().spent == 1
    assert h.odometer().spent_dp_epsilon == 5.0
    with pytest.raises(BudgetSpent):
        float(answers[4])
    assert h.ask(agree).source == "spent"
    assert repr(h) == "<ReusableHoldout: 0 of 3 answers left>"


def test_the_entry_is_durable_before_the_answer_is_returned(path: Path) -> None:
    h = holdout(path)
    for k in range(1, 4):
        answer = h.ask(OVERFITTED)
        stored = Ledger.open(path).entries()
        assert stored[-1].value == answer.value
        assert sum(e.kind == "holdout" for e in stored) == k


def test_answers_are_on_the_grid(path: Path) -> None:
    h = holdout(path, noise=None)
    values = [h.ask(OVERFITTED).value for _ in range(3)]
    assert all(v is not None and (Fraction(v) / Fraction(h.grid_step)).denominator == 1 for v in values)


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        lambda d: math.nan,
        lambda d: 1.5,
        lambda d: -0.1,
        lambda d: d["x"] * 3,
        lambda d: np.full(N, np.nan),
        lambda d: np.zeros((N, 2)),
        lambda d: np.zeros(7),
        lambda d: "x",
        lambda d: None,
        lambda d: 0.5 + 0.5j,
        "a > 1",
        7,
    ],
)
def test_nonsense_is_refused_before_anything_is_spent(path: Path, query: object) -> None:
    h = holdout(path)
    with pytest.raises(InvalidArgument):
        h.ask(query)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        h.ask_many([agree, query])  # type: ignore[list-item]
    assert [e.kind for e in h.ledger.entries()] == ["data"]


def test_rows_that_are_nonsense_on_the_holdout_only_are_clipped(path: Path) -> None:
    """An error would tell something about the holdout that nobody paid for."""
    h = holdout(path)
    answer = h.ask(lambda table: np.where(table["seen"] == 1.0, agree(table), np.nan))
    assert answer.source == "holdout"


def test_statistical_queries_need_the_sensitivity(path: Path) -> None:
    h = ReusableHoldout(data(), data(1)[: N // 2], CAL, 0.2, path)
    with pytest.raises(InvalidArgument, match="1/500"):
        h.ask(lambda d: d[:, 0])
    assert h.ask(lambda d: 0.5, sensitivity=1 / N).value == 0.5  # the caller vouches


@pytest.mark.parametrize("n", [3, 49, 1000, 12345])
def test_a_sensitivity_of_one_over_n_is_accepted(n: int) -> None:
    table = np.zeros((n, 1))
    h = ReusableHoldout(table, table + 1e-9, terms(sensitivity=1 / n, dp_epsilon=1e4), 0.2, ":memory:")
    assert h.ask(lambda d: d[:, 0]).value == 0.0


def test_constructor_checks(path: Path) -> None:
    spec = Laplace(1.0)
    wrong = Terms(spec, 1.0, 1.0, 1.0, 0.0, "informed", "test", "f" * 64)
    with pytest.raises(InvalidArgument, match="Thresholdout"):
        ReusableHoldout(data(), data(1), wrong, 0.2, path)
    for options in ({"failure": 0.0}, {"queries": 0}, {"queries": 1.5}):
        with pytest.raises(InvalidArgument):
            ReusableHoldout(data(), data(1), CAL, 0.2, path, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="rows"):
        ReusableHoldout(data(), np.zeros((0, 3)), CAL, 0.2, path)
    with pytest.raises(InvalidArgument):
        ReusableHoldout(3, data(), CAL, 0.2, path)
    assert not path.exists()


# -- belonging --------------------------------------------------------------------------------


def test_the_ledger_is_bound_to_calibration_threshold_and_noise(path: Path) -> None:
    holdout(path, noise=None)
    for other in (terms(budget=4), terms(fingerprint="e" * 64)):
        with pytest.raises(LedgerCorrupt, match="another calibration"):
            ReusableHoldout(columns(), columns(1), other, 0.2, path)
    with pytest.raises(LedgerCorrupt, match="threshold"):
        ReusableHoldout(columns(), columns(1), CAL, 0.3, path)
    with pytest.raises(LedgerCorrupt, match="noise"):
        holdout(path)  # predictable noise on a real ledger
    with pytest.raises(LedgerCorrupt):
        ReusableHoldout(columns(), columns(1), terms(budget=9), 0.2, Ledger.open(path))


def test_a_holdout_ledger_is_not_charged_otherwise(path: Path) -> None:
    h = holdout(path)
    with pytest.raises(InvalidArgument, match="reusable holdout"):
        h.ledger.charge(0.01)


# -- restarts ---------------------------------------------------------------------------------


def test_restarts_buy_no_new_threshold(path: Path) -> None:
    """First threshold 1.0·T, every later draw 0: with a free redraw a restart would flip the answer."""
    query = lambda t: 0.65 - 0.15 * t["seen"].max()  # noqa: E731 - the gap is below T = 0.2, above 0
    sources = []
    for _ in range(30):
        noise = SilentNoise([1.0] if not sources else [0.0] * 10)
        h = ReusableHoldout(columns(), columns(1), CAL, 0.2, path, noise=noise)
        sources.append(h.ask(query, sensitivity=1 / N).source)
        h.ledger.close()
    assert sources == ["train"] * 30
    assert Ledger.open(path).head.spent == Fraction(4, 27)  # one epoch, opened once


def test_an_epoch_after_a_spend_is_paid_for(path: Path) -> None:
    for _ in range(3):
        h = holdout(path)
        assert h.ask(OVERFITTED).source == "holdout"
    assert Ledger.open(path).head.spent == 1
    h = holdout(path)
    assert h.ask(agree).source == "spent"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE secret SET threshold = ''",
        "UPDATE secret SET threshold = '0'",
        "UPDATE secret SET nonce = x'00'",
        'UPDATE head SET document = replace(document, \'"commitment":"\', \'"commitment":"0\')',
    ],
)
def test_a_changed_or_lost_threshold_is_refused(path: Path, statement: str) -> None:
    h = holdout(path)
    h.ask(agree)
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(LedgerCorrupt):
        holdout(path).ask(agree)


def test_the_threshold_is_neither_shown_nor_exported(path: Path) -> None:
    h = holdout(path)
    h.ask(agree)
    with sqlite3.connect(path) as connection:
        (secret,) = connection.execute("SELECT threshold FROM secret").fetchone()
    connection.close()
    shown = json.dumps(h.ledger.export()) + repr(h.ledger.entries()) + repr(h.ledger.odometer()) + repr(h)
    assert int(secret) > 1000
    assert secret not in shown
    salt_free = json.loads(json.dumps(h.ledger.export()))
    assert "salt" not in salt_free["genesis"]


def test_an_old_threshold_is_erased_from_the_file(path: Path) -> None:
    h = holdout(path)
    h.ask(agree)
    with sqlite3.connect(path) as connection:
        threshold, nonce = connection.execute("SELECT threshold, nonce FROM secret").fetchone()
    connection.close()
    assert threshold.encode() in path.read_bytes()
    assert h.ask(OVERFITTED).source == "holdout"
    assert threshold.encode() not in path.read_bytes()
    assert nonce not in path.read_bytes()


def test_a_stolen_file_shows_the_threshold_and_confirms_guesses(path: Path) -> None:
    """What the threat model says about a stolen file, so that nobody thinks better of it."""
    h = holdout(path)
    h.ask("x < 0.5", key="patient 4711")
    with sqlite3.connect(path) as connection:
        salt, threshold = connection.execute("SELECT salt, threshold FROM secret").fetchone()
    connection.close()
    assert int(threshold) == h._mechanism.grid.units(int(threshold) * h.grid_step)
    keys = [e.key for e in h.ledger.entries()]
    assert keyed(salt, "key", "patient 4711") in keys
    assert keyed(salt, "key", "patient 4712") not in keys
    identity = data_identity(columns(1))
    assert identity is not None
    assert keyed(salt, "data", identity) == h.ledger.head.data


def test_the_ledger_holds_no_data(path: Path) -> None:
    """The same questions on two different holdouts leave ledgers that differ only by noise and salt."""
    h = holdout(path)
    h.ask("x < 0.123456", key="k")
    entries = [e.public() for e in h.ledger.entries()]
    assert [e["value"] for e in entries if e["kind"] in ("data", "reserve")] == [None, None]
    document = json.dumps(h.ledger.export())
    assert repr(float(np.mean(data(1)[:, 0] < 0.123456))) not in document


# -- idempotency ------------------------------------------------------------------------------


def test_the_same_key_returns_the_recorded_answer(path: Path) -> None:
    h = holdout(path)
    first = h.ask(OVERFITTED, key="a")
    again = h.ask(OVERFITTED, key="a")
    assert again.repeated
    assert (again.value, again.source, again.remaining) == (first.value, "holdout", 2)
    assert again.error_bound == first.error_bound
    reopened = holdout(path)
    assert reopened.ask(OVERFITTED, key="a").value == first.value
    with pytest.raises(Refused, match="'a'"):
        h.ask("x < 0.5", key="a")
    h.ask("x < 0.5", key="b")
    assert h.remaining == 2


def test_repeats_work_when_the_budget_is_spent(path: Path) -> None:
    h = holdout(path)
    answers = h.ask_many([OVERFITTED] * 4, keys=["1", "2", "3", "4"])
    assert [a.source for a in answers] == ["holdout"] * 3 + ["spent"]
    again = h.ask_many([OVERFITTED] * 4, keys=["1", "2", "3", "4"])
    assert [a.value for a in again] == [a.value for a in answers]
    assert h.ask(OVERFITTED, key="2").value == answers[1].value


def test_a_key_twice_in_one_batch_is_one_request(path: Path) -> None:
    h = holdout(path)
    one, other, plain = h.ask_many([OVERFITTED] * 3, keys=["a", "a", None])
    assert one.value == other.value != plain.value
    assert other.repeated
    assert h.remaining == 1
    with pytest.raises(InvalidArgument, match="keys"):
        h.ask_many([agree], keys=["a", "b"])
    with pytest.raises(InvalidArgument, match="labels"):
        h.ask_many([agree], labels="x")


# -- kinds of data ----------------------------------------------------------------------------


def test_columns_and_expressions(path: Path) -> None:
    tables = [{"x": t[:, 0], "town": np.where(t[:, 1] < 0.5, "Oslo", "Rome")} for t in (data(), data(1))]
    h = ReusableHoldout(*tables, CAL, 0.2, path)
    answer = h.ask("x < 0.5 and town == 'Oslo'")
    assert answer.value == np.mean((data()[:, 0] < 0.5) & (data()[:, 1] < 0.5))
    assert h.ask(lambda t: t["x"]).value == pytest.approx(data()[:, 0].mean(), abs=1e-8)
    with pytest.raises(InvalidArgument, match="nowhere"):
        h.ask("nowhere")
    with pytest.raises(InvalidArgument, match="'town'"):
        ReusableHoldout(tables[0], {"x": tables[1]["x"]}, CAL, 0.2, ":memory:")
    with pytest.raises(InvalidArgument, match="different lengths"):
        ReusableHoldout({"x": [1], "y": [1, 2]}, tables[1], CAL, 0.2, ":memory:")


def test_a_text_among_the_numbers_of_the_holdout_is_no_error(path: Path) -> None:
    text = np.array([str(v) for v in data(1)[:, 0]], dtype=object)
    text[3] = "unknown"
    h = ReusableHoldout({"x": data()[:, 0]}, {"x": text}, CAL, 0.2, path)
    assert h.ask("x < 0.5").source == "train"


def test_data_frames(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(t, columns=["a", "b", "c"]) for t in (data(), data(1))]
    h = ReusableHoldout(*frames, CAL, 0.2, path)
    assert h.ask("a < 0.5").value == h.ask(lambda f: f["a"] < 0.5).value == np.mean(data()[:, 0] < 0.5)


def test_scikit_learn(path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    selection = pytest.importorskip("sklearn.model_selection")
    pairs = [(t, (t[:, 0] > 0.5).astype(int)) for t in (data(), data(1))]
    calibration = terms(budget=50, sensitivity=1 / N, dp_epsilon=20.0)
    h = ReusableHoldout(*pairs, calibration, 0.2, path)
    everything = np.arange(N)
    search = selection.GridSearchCV(
        linear.LogisticRegression(),
        {"C": [0.01, 1.0, 100.0]},
        scoring=h.scorer(),
        cv=[(everything, everything)],
    )
    search.fit(*pairs[0])
    assert search.best_score_ > 0.9
    assert h.odometer().queries == 3
    wrong = h.scorer(lambda model, X, y: model.predict(X) != y)
    assert wrong(search.best_estimator_) < 0.1
    copy = pickle.loads(pickle.dumps(h.ledger))
    assert copy.head.queries == 4


class Stump:
    """An estimator as scikit-learn has them, of one feature."""

    def fit(self, X: Any, y: Any) -> Stump:
        self.level = float(np.asarray(self.feature(X))[np.asarray(y) == 1].min())
        return self

    def predict(self, X: Any) -> np.ndarray:
        return (np.asarray(self.feature(X)) >= self.level).astype(int)

    @staticmethod
    def feature(X: Any) -> Any:
        return X["a"] if isinstance(X, dict) or hasattr(X, "columns") else np.asarray(X)[:, 0]


def labelled(form: str, seed: int) -> tuple[Any, Any, Any]:
    """Return data with a label, and the X and y that an estimator is fitted on."""
    pandas = pytest.importorskip("pandas")
    X, y = data(seed)[:, :2], (data(seed)[:, 0] > 0.5).astype(int)
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": y}, index=np.arange(N) + 7 * seed)
    names = {"a": X[:, 0], "b": X[:, 1]}
    return {
        "pair": ((X, y), X, y),
        "frame": (frame, frame[["a", "b"]], frame["label"]),
        "frames": ((frame[["a", "b"]], frame["label"]), frame[["a", "b"]], frame["label"]),
        "columns": ({**names, "label": y}, names, y),
        "array": (np.column_stack([X, y]), X, y),
    }[form]


@pytest.mark.parametrize(
    ("form", "target"),
    [
        ("pair", None),
        ("frame", None),
        ("frame", "label"),
        ("frames", None),
        ("columns", "label"),
        ("array", -1),
    ],
)
def test_a_scorer_reads_pairs_and_tables(path: Path, form: str, target: Any) -> None:
    train, X, y = labelled(form, 0)
    h = ReusableHoldout(train, labelled(form, 1)[0], CAL, 0.2, path)
    score = h.scorer(target=target)
    estimator = Stump().fit(X, y)
    assert score(estimator, X, y) == 1.0
    wrong = h.scorer(lambda model, X, y: model.predict(X) != np.asarray(y), target=target)
    assert wrong(estimator, X, y) == 0.0
    if target is not None:
        assert score(estimator) == 1.0
        with pytest.raises(InvalidArgument, match="no column"):
            h.scorer(target="nowhere")(estimator, X, y)
    estimator.level = 0.0
    assert score(estimator, X, y) == pytest.approx(0.5, abs=0.1)
    assert h.odometer().queries == 3 + (target is not None)


@pytest.mark.parametrize("form", ["columns", "array"])
def test_a_scorer_of_a_table_needs_a_target(path: Path, form: str) -> None:
    train, X, y = labelled(form, 0)
    h = ReusableHoldout(train, labelled(form, 1)[0], CAL, 0.2, path)
    with pytest.raises(InvalidArgument, match=r"target=…|pairs \(X, y\)"):
        h.scorer()(Stump().fit(X, y), X, y)
    assert h.ledger.head.spent == 0


# -- bounds -----------------------------------------------------------------------------------


def test_error_bounds_follow_the_formula(path: Path) -> None:
    h = holdout(path, queries=2)
    sigma, beta = CAL.sigma, 0.05
    first, second = h.ask(agree), h.ask(OVERFITTED)
    expected = 0.2 + sigma * math.log(3 * 2 / (2 * beta)) + 2 * sigma * math.log(3 * 2 / (2 * beta))
    assert first.error_bound == pytest.approx(expected, rel=1e-4)
    assert first.error_bound >= expected
    assert second.error_bound == pytest.approx(4 * sigma * math.log(3 * 2 / beta), rel=1e-4)


def test_settings_name_everything_the_answers_depend_on() -> None:
    assert checked_settings(0.2, 0.05, None)["noise"] == "secure"
    assert Thresholdout(3, 1 / N) == CAL.mechanism

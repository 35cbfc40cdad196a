"""What may be asked: expressions with a value for every row, and predictions where they may be scored."""

from __future__ import annotations

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_fakes import TRAIN, ready
from server_fakes import ask as asked

import quiltdp as qd
from quiltdp.errors import InvalidArgument, Refused
from quiltdp.graph.components import dependent_records
from quiltdp.mechanisms.cells import Table, WrittenColumns
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.queries import TablePair
from quiltdp.server.asking import Conflict
from quiltdp.server.questions import ExpressionQuestion, PredictionQuestion, independence

# -- expressions -----------------------------------------------------------------------------------

LEARNED = Table.from_training(
    WrittenColumns({"x": ["1", "2"], "y": ["0.5", ""], "b": ["true", "false"], "s": ["a", "b"]})
)
assert LEARNED is not None

cells = st.sampled_from(["", "0", "1", "-1", "0.5", "1e308", "-1e308", "1e-320", "nan", "inf", "710", "x"])
rows_of_cells = st.lists(
    st.fixed_dictionaries(
        {
            "x": cells,
            "y": cells,
            "b": st.sampled_from(["true", "0", ""]),
            "s": st.sampled_from(["a", "b", ""]),
        }
    ),
    min_size=1,
    max_size=9,
)
_leaves = st.sampled_from(["x", "y", "b", "0", "1.5", "-2", "1e300", "True"])


def _grown(inner: Any) -> Any:
    two = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda a: f"exp({a})"),
        inner.map(lambda a: f"log({a})"),
        inner.map(lambda a: f"abs({a})"),
        inner.map(lambda a: f"-({a})"),
        inner.map(lambda a: f"(not ({a}))"),
        two.map(lambda p: f"min({p[0]}, {p[1]})"),
        two.map(lambda p: f"max({p[0]}, {p[1]})"),
        two.map(lambda p: f"default({p[0]}, {p[1]})"),
        two.map(lambda p: f"clip({p[0]}, 0, {p[1]})"),
        two.map(lambda p: f"where({p[0]} < {p[1]}, {p[0]}, s < 'b')"),
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "==", "!=", "and"]), inner).map(
            lambda p: f"(({p[0]}) {p[1]} ({p[2]}))"
        ),
    )


expressions = st.recursive(_leaves, _grown, max_leaves=8)


@given(expressions, rows_of_cells)
def test_a_row_has_the_value_that_it_has_alone(text: str, rows: list[dict[str, str]]) -> None:
    """No expression looks at another row."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    together = Expression(text).rows(LEARNED.read_like(WrittenColumns(columns)), len(rows))
    alone = [
        Expression(text).rows(LEARNED.read_like(WrittenColumns({n: [c] for n, c in row.items()})), 1)[0]
        for row in rows
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-15)


@given(expressions, rows_of_cells, st.sampled_from([0.0, -3.0, 2.5]))
def test_every_row_has_a_value_where_a_constant_is_declared(
    text: str, rows: list[dict[str, str]], otherwise: float
) -> None:
    question = ExpressionQuestion(text, -2.0, 2.0, otherwise)
    query = question.query({}, {}, {})
    columns = WrittenColumns({name: [row[name] for row in rows] for name in rows[0]})
    found = query.rows(LEARNED.read_like(columns), len(rows))  # type: ignore[union-attr]
    assert ((found >= 0) & (found <= 1)).all()
    plain = Expression(text).rows(LEARNED.read_like(columns), len(rows))
    wanted = [min(2.0, max(-2.0, v if math.isfinite(v) else otherwise)) for v in plain]
    np.testing.assert_allclose([question.scaled(v) for v in found], wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "cell", "value"),
    [
        ("log(x)", "0", 0.125),
        ("log(x)", "-1", 0.125),
        ("exp(x)", "710", 0.125),
        ("1 / x", "0", 0.125),
        ("x", "", 0.125),
        ("exp(x) - exp(x)", "1000", 0.125),
        ("x # as written", "0.25", 0.25),
        ("default(log(x), 0.5)", "0", 0.5),
        ("s >= 'b'", "1", 1.0),
        ("clip(x, 0.25, 0.75)", "9", 0.75),
        ("min(x, 0.5) + max(x, 0.25)", "0.5", 1.0),
        ("abs(x)", "-0.5", 0.5),
    ],
)
def test_functions_are_total(text: str, cell: str, value: float) -> None:
    query: Any = ExpressionQuestion(text, otherwise=0.125).query({}, {}, {})
    table = LEARNED.read_like(WrittenColumns({"x": [cell], "y": ["1"], "b": ["1"], "s": ["b"]}))
    assert query.rows(table, 1).tolist() == [value]


@pytest.mark.parametrize(
    "text",
    [
        *("x.mean()", "sum(x)", "mean(x)", "x[0]", "[x for x in y]", "lambda: x", "max(x)", "min(x, y, b)"),
        *("x)+(y", "__import__('os')", "x := 1", "x if b else y", "f'{x}'", "x, y", "{x}", "x @ y", "x ** 2"),
        *("exp(*x)", ""),
    ],
)
def test_nothing_else_is_an_expression(text: str) -> None:
    for otherwise in (None, 0.5):
        with pytest.raises(InvalidArgument):
            ExpressionQuestion(text, otherwise=otherwise).query({}, {}, {})


def test_many_threads_parse_and_leave_the_filters_of_warnings_alone() -> None:
    before = [*warnings.filters]

    def work(number: int) -> None:
        for k in range(200):
            Expression(f"x < {number * k}")
            with pytest.raises(InvalidArgument):
                Expression("1or 2")

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(work, range(8))]
    assert [*warnings.filters] == before


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (-math.inf, 1), (0, math.nan), (-1e308, 1e308)])
def test_a_range_is_two_numbers(low: float, high: float) -> None:
    with pytest.raises(InvalidArgument, match="range"):
        ExpressionQuestion("x", low, high).query({}, {}, {})
    with pytest.raises(InvalidArgument, match="otherwise"):
        ExpressionQuestion("x", otherwise=math.inf).query({}, {}, {})


def test_a_range_stretches_values_and_bounds(database: str) -> None:
    study, member = ready(database)
    plain = asked(study, member, "a", ExpressionQuestion("luck"))
    wide = asked(study, member, "b", ExpressionQuestion("10 * luck", 0, 20))
    assert wide.error_bound == 20 * plain.error_bound
    assert abs(wide.value - 4.0) <= wide.error_bound
    with pytest.raises(Conflict):
        asked(study, member, "b", ExpressionQuestion("10 * luck", 0, 30))


# -- predictions -----------------------------------------------------------------------------------

ONES = PredictionQuestion({"a": 1, "b": 0}, {"c": 1, "d": 1})
DECLARED = {"predictions": "the plan was made for labels given features", "target": "ill", "row_id": "id"}


def test_predictions_are_scored_and_charged_once(database: str) -> None:
    study, member = ready(database, **DECLARED)
    assert study.dry_run(ONES)["training_value"] == 1.0
    answer = asked(study, member, "k", ONES)
    assert answer.source == "holdout"
    assert abs(answer.value) <= answer.error_bound
    again = asked(study, member, "k", PredictionQuestion([("b", 0.0), ("a", True)], {"d": 1, "c": 1}))
    assert again.repeated
    assert again.value == answer.value
    with pytest.raises(Conflict):
        asked(study, member, "k", PredictionQuestion({"a": 1, "b": 0}, {"c": 1, "d": 0}))
    loss = asked(
        study, member, "loss", PredictionQuestion({"a": 0.5, "b": 0.5}, {"c": 1, "d": 0.5}, "squared")
    )
    assert abs(loss.value - 0.625) <= loss.error_bound
    assert study.ledger.head.answers == 2


def test_ids_that_do_not_fit_are_refused_before_any_charge(database: str) -> None:
    study, member = ready(database, **DECLARED)
    before = study.ledger.head
    for holdout in ({"c": 1}, {"c": 1, "d": 1, "e": 1}, [("c", 1), ("d", 1), ("d", 1)], {"c": 1, "d": 2}):
        with pytest.raises(InvalidArgument, match="predictions of holdout rows"):
            asked(study, member, "k", PredictionQuestion({"a": 1, "b": 0}, holdout))
    with pytest.raises(InvalidArgument, match="predictions of train rows"):
        study.dry_run(PredictionQuestion({"a": 1}, {"c": 1, "d": 1}))
    assert study.ledger.head == before


def test_rows_without_ids_are_numbered(database: str) -> None:
    study, member = ready(database, **{**DECLARED, "row_id": None})
    question = PredictionQuestion({"1": 1, "2": 0}, {1: 0, 2: 0})
    assert asked(study, member, "k", question).source == "train"


def test_without_a_target_or_a_reason_nothing_is_scored(database: str) -> None:
    study, member = ready(database, **{**DECLARED, "target": None})
    with pytest.raises(InvalidArgument, match="no target"):
        asked(study, member, "k", ONES)


def test_without_a_reason_nothing_is_scored(database: str) -> None:
    study, member = ready(database, target="ill", row_id="id")
    with pytest.raises(Refused, match="nobody can tell whether rows are independent"):
        asked(study, member, "k", ONES)
    assert study.ledger.head.answers == 0


COIN, STICKY = [[0.5, 0.5]] * 2, [[0.9, 0.1], [0.1, 0.9]]


def test_predictions_need_units_that_are_independent() -> None:
    chain, coins = qd.markov_chain(STICKY, length=4), qd.markov_chain(COIN, length=4)
    homes = qd.Model.from_tables(
        {
            "h0": ([], [0.5, 0.5]),
            **{r: (["h0"], STICKY) for r in ("h0/0", "h0/1")},
            "solo": ([], [0.5, 0.5]),
        },
        ["h0/0", "h0/1", "solo"],
    )
    assert independence(coins, "single records") == ("records are independent of each other", None)
    for model, protected, sets in (
        (None, "single records", None),
        (chain, "single records", None),
        (chain, "runs of 3 steps", None),
        (homes, "single records", None),
        (homes, "sets of records", {"one": ["h0/0"], "other": ["h0/1", "solo"]}),
        (homes, "sets of records", None),
    ):
        reason, refused = independence(model, protected, sets)
        assert reason is None
        assert refused
    assert independence(chain, "runs of 4 steps")[0]
    assert independence(homes, "sets of records", {"home": ["h0/0", "h0/1"]})[0]
    assert independence(qd.markov_chain(COIN, length=1), "single records")[0]


def test_a_chain_is_cut_where_nothing_is_handed_on() -> None:
    from quiltdp.chain import ChainModel, ChainSegment

    half, coin, sticky = np.array([0.5, 0.5]), np.array(COIN), np.array(STICKY)
    segment = ChainSegment("X", 6, half, (sticky, coin, coin, sticky, sticky))
    assert [*dependent_records(ChainModel([segment]))] == [["X0", "X1"], ["X3", "X4", "X5"]]


def test_the_mean_moves_by_one_row_in_n(database: str) -> None:
    study, _ = ready(database, **DECLARED)
    query = ONES.query(study.facts.facts, study.train, study._holdout_rows)
    tables = TablePair(study.train, WrittenColumns({**TRAIN, "ill": ["1", "0"], "luck": ["0.4", "0.4"]}))
    assert tables.on_holdout(query, tables.on_training(query)) == Fraction(1, 2)

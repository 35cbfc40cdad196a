"""A plan is for so many queries: not one more is answered, and an extension is a plan of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holdout_fakes import terms

import quiltdp as qd
from quiltdp import Ledger, ReusableHoldout
from quiltdp.chain import ChainModel
from quiltdp.errors import BudgetSpent, InvalidArgument, Refused
from quiltdp.generalization import extend_plan, holdout_arguments, plan_result
from quiltdp.generalization.concentration import additive_concentration
from quiltdp.generalization.routes import DescriptionRoute, Task, default_resolution
from quiltdp.mechanisms import InsecureDeterministicNoise
from quiltdp.mechanisms.thresholdout import sample_error

N = 1000
CAL = terms(budget=3, sensitivity=1 / N, dp_epsilon=5.0)


AGREE = "x < 0.5"


def study(path: object, **options: Any) -> ReusableHoldout:
    train, fresh = (
        {"x": np.random.default_rng(k).random(N), "fresh": np.full(N, float(k))} for k in range(2)
    )
    options.setdefault("noise", InsecureDeterministicNoise(1))
    return ReusableHoldout(train, fresh, CAL, 0.2, path, **options)  # type: ignore[arg-type]


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


def test_one_more_than_planned_is_refused_and_nothing_is_charged(path: Path) -> None:
    h = study(path, queries=3)
    h.ask(AGREE, key="first")
    h.ask_many([AGREE, AGREE])
    before = h.ledger.head
    with pytest.raises(
        BudgetSpent, match="3 of the 3 planned queries were asked, one more is too many"
    ) as why:
        h.ask(AGREE)
    assert why.value.exit_code == 1
    assert h.ledger.head == before
    assert h.ask(AGREE, key="first").repeated  # what is recorded is told again
    assert (h.odometer().asked, h.odometer().query_limit) == (3, 3)


def test_a_batch_beyond_the_plan_is_refused_as_a_whole(path: Path) -> None:
    h = study(path, queries=3)
    h.ask_many([AGREE, AGREE], keys=["a", "b"])
    before = h.ledger.head
    with pytest.raises(BudgetSpent, match="2 more are too many"):
        h.ask_many([AGREE, AGREE])
    assert h.ledger.head == before
    told = h.ask_many([AGREE] * 4, keys=["a", "b", "c", "c"])  # one new question among recorded ones
    assert [a.repeated for a in told] == [True, True, False, True]


def test_a_query_that_failed_counts(path: Path) -> None:
    h = study(path, queries=2)
    assert h.ask(lambda table: "failed" if table["fresh"].any() else table["x"]).source == "holdout"
    h.ask(AGREE)
    with pytest.raises(BudgetSpent, match="2 of the 2 planned"):
        h.ask(AGREE)


def test_a_query_that_was_interrupted_counts(path: Path) -> None:
    """While its reservation waits, and after another entry has closed it."""

    def interrupt(table: Any) -> Any:
        if table["fresh"].any():
            raise KeyboardInterrupt
        return table["x"]

    h = study(path, queries=2)
    with pytest.raises(KeyboardInterrupt):
        h.ask(interrupt)
    assert (h.odometer().asked, h.odometer().lost) == (1, 1)
    with pytest.raises(BudgetSpent, match="1 of the 2 planned queries were asked, 2 more are too many"):
        h.ask_many([AGREE, AGREE])
    h.ask(AGREE)
    with pytest.raises(BudgetSpent, match="2 of the 2 planned"):
        h.ask(AGREE)


WORKER = """
import sys
sys.path.insert(0, {folder!r})
from test_query_limit import AGREE, BudgetSpent, study
h, told = study(sys.argv[1], queries=12), 0
try:
    while True:
        h.ask(AGREE)
        told += 1
except BudgetSpent:
    print(told)
"""


def test_processes_share_the_limit(path: Path) -> None:
    study(path, queries=12)
    script = WORKER.format(folder=str(Path(__file__).parent))
    asking = [
        subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [int(one.communicate(timeout=600)[0]) for one in asking]
    assert sum(told) == 12 == Ledger.open(path).head.queries


# -- extensions ---------------------------------------------------------------------------------


def test_an_extension_halves_its_share_of_the_failure_probability(path: Path) -> None:
    h = study(path, queries=2, failure=0.04)
    first = h.ask(AGREE, key="first")
    h.ask(AGREE)
    for times in (1, 2):
        made = extend_plan(h.ledger)
        share = 0.04 / 2**times
        assert (made.queries, made.failure, made.accuracy) == (2 * (times + 1), share, None)
        answers = h.ask_many([AGREE, AGREE])
        total = pytest.approx(0.04 * (2 - 0.5**times))
        assert made.total_failure == total == answers[0].failure
        bound = sample_error(CAL.sigma, 0.2, 3, share, "train", queries=2 * (times + 1))
        assert all(bound <= a.error_bound <= bound * (1 + 1e-4) for a in answers)
        with pytest.raises(BudgetSpent, match=f"all|{made.queries} of the {made.queries}"):
            h.ask(AGREE)
    again = h.ask(AGREE, key="first")
    assert (again.error_bound, again.failure) == (first.error_bound, 0.04)  # promised by the first plan alone
    reopened = Ledger.open(path)
    reopened.verify()
    assert (reopened.odometer().asked, reopened.odometer().query_limit) == (6, 6)
    assert qd.accountant.ledger.verify_export(reopened.export()) == reopened.head


def test_of_two_extensions_at_once_one_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was certified for the queries that were allowed when it began."""
    h = study(path, queries=2)

    def meanwhile(*terms: Any) -> plan_result.Extension:
        monkeypatch.undo()
        extend_plan(Ledger.open(path))
        return plan_result.Extension(*terms)

    monkeypatch.setattr(plan_result, "Extension", meanwhile)
    with pytest.raises(Refused, match="another process"):
        extend_plan(h.ledger)
    assert h.odometer().query_limit == 4


def test_an_extension_needs_a_plan_and_answers_that_are_left(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no number of queries was planned"):
        extend_plan(study(":memory:").ledger)
    h = study(path, queries=6)
    for _ in range(3):
        assert h.ask("fresh").source == "holdout"
    with pytest.raises(BudgetSpent, match="all 3 answers"):
        extend_plan(h.ledger)
    assert not h.ledger.head.extensions


@pytest.fixture(scope="module")
def chain() -> ChainModel:
    return qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], 3000)


def test_what_is_promised_of_the_population_is_certified_for_all_queries(chain: ChainModel) -> None:
    """The theorem at (j + 1) m queries and β/2^j, with the plan's σ, T and rounding, allows the plan's T."""
    plan = qd.plan(chain, queries=20, budget=2, epsilon=1.0)
    data = [{"x": np.random.default_rng(k).random(3000)} for k in range(2)]
    h = ReusableHoldout(*data, ledger=":memory:", **holdout_arguments(chain, plan))  # type: ignore[misc]
    with pytest.raises(InvalidArgument, match="give the model"):
        extend_plan(h.ledger)
    with pytest.raises(InvalidArgument, match="give the model"):
        extend_plan(h.ledger, qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], 3000))
    accuracies = [plan.accuracy]
    for times in (1, 2, 3):
        made = extend_plan(h.ledger, chain)
        assert made.accuracy is not None
        accuracies.append(made.accuracy)
        task = Task(3000, 20 * (times + 1), 2, plan.answers.failure / 2**times, plan.resolution)
        route = DescriptionRoute(additive_concentration(chain))
        assert route.threshold(task, plan.sigma, made.accuracy) >= plan.threshold
        assert route.threshold(task, plan.sigma, made.accuracy * 0.999) < plan.threshold
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] < 1.3 * plan.accuracy
    assert h.ask("x < 0.5").population_bound == accuracies[-1]


def test_an_extension_counts_answers_as_they_are_rounded() -> None:
    """A worse accuracy does not make the grid of the ledger coarser, nor its answers fewer."""
    route = DescriptionRoute(additive_concentration(qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], 3000)))
    fine, own = (Task(3000, 40, 5, 0.05, r) for r in (0.001, default_resolution(0.4)))
    assert route.threshold(fine, 1e-3, 0.4) < route.threshold(own, 1e-3, 0.4)
    assert route.threshold(own, 1e-3, 0.4) == route.threshold(Task(3000, 40, 5, 0.05), 1e-3, 0.4)
    assert route.threshold(Task(3000, 40, 5, 0.05, 0.0), 1e-3, 0.4) == -np.inf


def test_from_the_shell(cli: Any, chain: ChainModel, tmp_path: Path) -> None:
    model, ledger = tmp_path / "chain.json", tmp_path / "study.db"
    qd.save_model(chain, model)
    rng = np.random.default_rng(0)
    for name in ("train", "holdout"):
        (tmp_path / f"{name}.csv").write_text("x\n" + "\n".join(map(str, rng.integers(0, 2, 3000))) + "\n")
    planned = cli("plan", model, "--budget", 2, "--queries", 4, "--epsilon", 1, "--apply", ledger)
    assert planned.code == 0, planned.err
    options = ("--train", tmp_path / "train.csv", "--holdout", tmp_path / "holdout.csv")
    assert cli("holdout", "ask", ledger, *["x == 1"] * 4, *options).code == 0
    before = Ledger.open(ledger).head
    refused = cli("holdout", "ask", ledger, "x == 1", *options)
    assert (refused.code, refused.out) == (1, "")
    assert "4 of the 4 planned queries were asked" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert Ledger.open(ledger).head == before
    assert "4 of 4" in cli("holdout", "status", ledger).out
    assert cli("holdout", "extend", ledger).code == 2
    extended = cli("holdout", "extend", ledger, "--model", model)
    assert extended.code == 0, extended.err
    assert "8 queries may be asked in all" in extended.out
    assert "at least 0.925" in extended.out
    facts = json.loads(cli("holdout", "status", ledger, "--json").out)
    assert (facts["asked"], facts["query_limit"]) == (4, 8)
    answer = json.loads(cli("holdout", "ask", ledger, "x == 1", *options, "--json").out)["answers"][0]
    assert answer["confidence"] == pytest.approx(0.925)
    assert "5 of 8" in cli("holdout", "status", ledger).out

"""The exact limit: transports, linear programs and their certificates, adversary by adversary."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import highspy
import loopy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import models, reference_networks

import quiltdp as qd
from quiltdp.accountant.bounds.adversaries import list_pairs
from quiltdp.accountant.bounds.contract import Need, Problem, ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.worst_mechanism import gain_by_program, gain_by_transport, staged_ceiling
from quiltdp.errors import LimitReached, ModelTooWide
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


def alpha_of(model: qd.Model, alpha: float) -> np.ndarray:
    return np.array([alpha if model.is_record(n) else 0.0 for n in model.nodes])


def flat(sizes: tuple[int, ...], alphas: np.ndarray) -> list[np.ndarray]:
    """Return α·1[x ≠ x'] of every record."""
    return [a * (1.0 - np.eye(k)) for k, a in zip(sizes, alphas, strict=True)]


def by_scipy(p: np.ndarray, q: np.ndarray, costs: list[np.ndarray]) -> float:
    """Return max ln E_p H / E_q H as one dense program over all pairs of neighbours."""
    points = list(np.ndindex(*(len(c) for c in costs)))
    rows = []
    for u, v in itertools.permutations(range(len(points)), 2):
        moved = [j for j in range(len(costs)) if points[u][j] != points[v][j]]
        if len(moved) == 1:
            row = np.zeros(len(points))
            row[u], row[v] = 1.0, -np.exp(costs[moved[0]][points[u][moved[0]], points[v][moved[0]]])
            rows.append(row)
    answer = linprog(-p, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=q[None], b_eq=[1.0])
    return float(np.log(-answer.fun))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([(2,), (2, 2), (2, 2, 2), (3, 3), (2, 3), (2, 2, 2, 2)]),
    st.sampled_from([0.05, 0.3, 1.0, 3.0]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
)
def test_transport_and_program_meet_just_above_the_limit(
    sizes: tuple[int, ...], alpha: float, seed: int, zeros: bool, priced: bool
) -> None:
    rng = np.random.default_rng(seed)
    n = math.prod(sizes)
    p, q = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5))
    if zeros:
        p[rng.integers(n)] = 0.0
        q[rng.integers(n)] = 0.0
        p, q = p / p.sum(), q / q.sum()
    costs = flat(sizes, alpha * rng.uniform(0.2, 1.0, len(sizes)))
    if priced:  # values on a line
        costs = [alpha * np.abs(np.subtract.outer(v, v)) for v in (rng.random(k) for k in sizes)]
    above, below = gain_by_transport(p[None], q[None], [c[None] for c in costs])
    program, attained = gain_by_program(p, q, costs)
    truth = by_scipy(p, q, costs)
    assert truth - 1e-8 <= above[0] <= truth + 1e-6
    assert above[0] - 1e-9 <= program <= above[0] + 1e-5
    assert above[0] - 1e-5 <= max(attained, below[0]) <= above[0]
    assert staged_ceiling(p[None], q[None], [c[None] for c in costs])[0] >= max(
        attained, below[0], truth - 1e-9
    )


def test_every_adversary_is_listed_once_in_each_direction() -> None:
    joint = np.random.default_rng(0).random((2, 3, 2))
    groups = list_pairs(np.log(joint), [(0,)], [1.0 - np.eye(k) for k in joint.shape])
    rows = sum(len(g.p) for g in groups)
    assert rows == 2 * (1 + 3) * (1 + 2)  # two ordered pairs × (unknown or one of the values) of others


def test_impossible_evidence_is_never_conditioned_on() -> None:
    joint = np.array([[0.5, 0.0], [0.25, 0.25]])
    with np.errstate(divide="ignore"):
        groups = list_pairs(np.log(joint), [(0,)], [1.0 - np.eye(2)] * 2)
    known = next(g for g in groups if g.known.tolist() == [[1], [1]])
    assert known.evidence.tolist() == [0, 0]  # x1 = 1 leaves only one value of x0


def every_adversary(model: qd.Model, alpha: np.ndarray) -> list[float]:
    """Return the leakage of every record, no adversary left out."""
    shape = [model.cardinality(r) for r in model.records]
    prices = [1.0 - np.eye(k) for k in shape]
    log_joint = junction_tree(model).log_marginal(tuple(model.records))
    found = np.zeros(len(shape))
    for group in list_pairs(log_joint, [(k,) for k in range(len(shape))], prices):
        costs = [
            np.array([a * prices[u] for u, a in zip(us, alpha[us], strict=True)]) for us in group.unknown.T
        ]
        np.maximum.at(
            found, group.unit, group.own_prices(alpha) + gain_by_transport(group.p, group.q, costs)[0]
        )
    return found.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_search_agrees_with_settling_everybody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"A": 2, "B": 3, "C": 2, "D": 2, "E": 2}
    tables: dict[str, tuple[list[str], np.ndarray]] = {"A": ([], rng.dirichlet(np.ones(2)))}
    for n, parents in (("B", ["A"]), ("C", ["A", "B"]), ("D", ["B"]), ("E", ["C"])):
        tables[n] = (parents, rng.dirichlet(np.full(sizes[n], 0.5), size=[sizes[m] for m in parents]))
    model = qd.Model.from_tables(tables)
    alpha = rng.uniform(0.1, 0.6, 5)
    found = ready(ExactBound, model).evaluate(alpha)
    assert found.kind == "exact"
    assert found.values.tolist() == pytest.approx(every_adversary(model, alpha), rel=1e-9)


def test_prices_are_distances_that_may_be_walked_in_steps() -> None:
    """Three levels on a line: the exact limit with prices is the one of the cheapest ways."""
    line = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) / 2.0
    dear = np.where(line == 1.0, 1.0, line) + 0.3 * (line == 1.0)  # 0 → 2 costs more than 0 → 1 → 2
    stay = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
    model = qd.Model.from_tables({"A": ([], [0.3, 0.4, 0.3]), "B": (["A"], stay), "C": (["B"], stay)})
    answers = []
    for price in (line, dear, 1.0 - np.eye(3)):
        bound = ExactBound(Problem(model, prices=dict.fromkeys("ABC", price)))
        bound.prepare(Workspace(model), WorkBudget())
        answers.append(bound.evaluate(np.full(3, 0.5)).values)
    assert answers[0] == pytest.approx(answers[1], rel=1e-12)
    assert np.all(answers[0] < answers[2])


@pytest.mark.parametrize("k", range(60))
def test_reference_limits(k: int) -> None:
    case = reference_networks()[k]
    found = ready(ExactBound, case.model).evaluate(alpha_of(case.model, case.dp_epsilon))
    assert found.values.max() == pytest.approx(case.limit, abs=2e-7)
    assert not found.notes


@settings(deadline=None, max_examples=30)
@given(models(max_nodes=4), st.sampled_from([0.1, 1.0]))
def test_nearly_equal_alphas_give_nearly_equal_limits(model: qd.Model, alpha: float) -> None:
    if len(model.records) > 4:
        return
    bound = ready(ExactBound, model)
    equal = alpha_of(model, alpha)
    nearly = equal * (1 + 1e-9 * np.arange(len(equal)))
    a, b = bound.evaluate(equal).values, bound.evaluate(nearly).values
    assert np.all(np.abs(a - b) <= 1e-5 * (1 + a))


def test_floor_and_ceiling_only_skip_what_cannot_matter() -> None:
    m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    bound, alpha = ready(ExactBound, m), np.full(5, 0.1)
    plain = bound.evaluate(alpha).values
    known = np.full(5, 0.5)
    floored = bound.evaluate(alpha, Need(known, 0.36, np.inf)).values
    assert np.all(np.where(plain > 0.36, np.abs(floored - plain) < 1e-12, floored <= 0.36 + 1e-9))
    stopped = bound.evaluate(alpha, Need(known, 0.0, 0.2)).values
    assert np.all((plain - 1e-12 <= stopped) & (stopped <= known))
    assert stopped.max() > 0.2


def test_too_many_records_are_refused_before_any_work() -> None:
    with pytest.raises(ModelTooWide, match="has 1,000"):
        ready(
            ExactBound,
            qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1000).with_records(
                [f"X{k}" for k in range(1000)]
            ),
        )


def test_the_limit_on_programs_is_told() -> None:
    rng = np.random.default_rng(3)
    tables: dict[str, tuple[list[str], np.ndarray]] = {"A": ([], rng.dirichlet(np.ones(3)))}
    for n, parents in (("B", ["A"]), ("C", ["A"]), ("D", ["B"])):
        tables[n] = (parents, rng.dirichlet(np.ones(3), size=3))
    m = qd.Model.from_tables(tables)
    few = ready(ExactBound, m, max_programs=0).evaluate(np.full(4, 0.5))
    many = ready(ExactBound, m).evaluate(np.full(4, 0.5))
    assert few.notes
    assert not many.notes
    assert np.all(few.values >= many.values - 1e-9)


def test_certificates_stay_tight_where_alpha_is_large() -> None:
    """A far, improbable value must not blow up the price of the solver's last digits."""
    rng = np.random.default_rng(5)
    for sizes in ((2, 2, 2, 2), (2, 2, 2), (3, 3)):
        n = math.prod(sizes)
        for _ in range(4):
            p, q = rng.dirichlet(np.full(n, 0.4)), rng.dirichlet(np.full(n, 0.4))
            costs = flat(sizes, np.full(len(sizes), 5.0))
            exact = float(gain_by_transport(p[None], q[None], [c[None] for c in costs])[0][0])
            assert gain_by_program(p, q, costs)[0] <= exact + 1e-8


def copies(flip: float) -> qd.Model:
    """A and B are fair coins; C and D copy them with errors; E depends on both."""
    noisy = [[1 - flip, flip], [flip, 1 - flip]]
    gate = [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]
    coin: tuple[list[str], list[float]] = ([], [0.5, 0.5])
    return qd.Model.from_tables(
        {"A": coin, "B": coin, "C": (["A"], noisy), "D": (["B"], noisy), "E": (["A", "B"], gate)}
    )


def test_a_set_is_exact_because_a_pair_that_differs_in_part_costs_that_part() -> None:
    """α_A = 5 is not paid by the pairs of {A, B} that agree on A; enumeration agrees to nine digits."""
    model = copies(0.3)
    alpha = {"A": 5.0, "B": 0.01, "C": 0.01, "D": 2.0, "E": 0.01}
    for unit in (("A", "B"), ("C", "D", "E")):
        found = qd.leakage(model, alpha, protect=[unit])
        assert found.certificate.kind == "exact"
        assert found.epsilon == pytest.approx(loopy.attained(model, alpha, unit), rel=1e-8)
    frozen = qd.Model.from_tables({"A": ([], [1.0, 0.0]), "B": (["A"], [[0.5, 0.5], [0.5, 0.5]])})
    assert qd.leakage(frozen, {"A": 3.0, "B": 0.5}, protect=[("A", "B")]).epsilon == pytest.approx(0.5)


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_a_record_with_one_possible_value_leaks_nothing(adversary: str) -> None:
    tables: dict[str, tuple[list[str], list[object]]] = {
        "A": ([], [1.0, 0.0]),
        "B": (["A"], [[0.5, 0.5], [0.5, 0.5]]),
        "C": (["B"], [[0.9, 0.1], [0.1, 0.9]]),
    }
    for method in ("auto", "exact"):
        found = qd.leakage(qd.Model.from_tables(tables), 1.0, method=method, adversary=adversary)
        assert found.per_record["A"] == 0.0
        assert found.per_record["B"] > 1.0
    for k in range(7):
        tables[f"D{k}"] = (["C"], [[0.9, 0.1], [0.1, 0.9]])
    assert qd.leakage(qd.Model.from_tables(tables), 1.0, adversary=adversary).per_record["A"] == 0.0
    start = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=50, initial=[0.0, 1.0])
    assert qd.leakage(start, 1.0, adversary=adversary).per_record["X0"] == 0.0


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_far_beyond_the_range_of_doubles_it_is_a_bound_and_says_so(adversary: str) -> None:
    """Σα = 1,600 is group privacy; revealing the records one by one proves less."""
    found = qd.leakage(qd.example("asia"), 200.0, adversary=adversary)
    assert found.certificate.kind == "certified bound"
    assert found.method == "limit-bound"
    assert "above the limit" in found.certificate.statement
    assert any("do not meet" in note for note in found.notes)
    assert 3 * 200.0 < found.epsilon < 610.0
    small = qd.leakage(qd.example("asia"), 0.2, adversary=adversary)
    assert (small.method, small.certificate.kind) == ("exact", "exact")


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_a_limit_of_time_is_kept(adversary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear program gets no more than what is left; when its time is over no other begins."""
    rng = np.random.default_rng(0)
    nodes = 9 if adversary == "informed" else 13
    tables: dict[str, tuple[list[str], np.ndarray]] = {"N0": ([], rng.dirichlet(np.ones(2)))}
    for k in range(1, nodes):
        parents = [f"N{j}" for j in rng.choice(k, size=min(k, 2), replace=False)]
        tables[f"N{k}"] = (parents, rng.dirichlet(np.ones(2), size=[2] * len(parents)))
    limits: list[float] = []

    class Solver(highspy.Highs):  # type: ignore[misc]
        def run(self) -> Any:
            limits.append(self.getOptions().time_limit)
            return super().run()

    clock = SimpleNamespace(monotonic=lambda: 9.0 if limits else 0.0)
    monkeypatch.setattr("quiltdp.work.time", clock)
    monkeypatch.setattr("highspy.Highs", Solver)
    with pytest.raises(LimitReached):
        qd.calibrate(
            qd.Model.from_tables(tables),
            epsilon=1.0,
            mechanism=qd.Laplace(1.0),
            method="exact",
            adversary=adversary,
            time_limit=0.5,
        )
    assert limits == [0.5]

"""The exact limit: height functions, linear programs and their certificates, adversary by adversary."""

from __future__ import annotations

import itertools
import math

import loopy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, reference_networks

import quiltdp as qd
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage.adversaries import pair_tables
from quiltdp.accountant.leakage.limit import ExactBound
from quiltdp.accountant.leakage.worst_gains import worst_gains
from quiltdp.accountant.leakage.worst_mechanism import by_linear_program, height_functions
from quiltdp.errors import ModelTooWide


def alpha_of(model: qd.Model, alpha: float) -> np.ndarray:
    return np.array([alpha if model.is_record(n) else 0.0 for n in model.nodes])


@pytest.mark.parametrize(("others", "count"), [(1, 2), (2, 6), (3, 38), (4, 990)])
def test_binary_height_functions_are_counted_as_published(others: int, count: int) -> None:
    found = height_functions((2,) * others)
    assert found is not None
    assert len(found) == count


@pytest.mark.parametrize("sizes", [(2,) * 5, (2,) * 9, (3, 3, 2), (17, 1), (40, 40)])
def test_heights_that_are_too_many_are_not_listed_at_all(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiltdp.accountant.leakage.worst_mechanism._earlier_neighbours", None)
    assert height_functions.__wrapped__(sizes) is None


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (3, 3)])
def test_height_functions_are_all_of_them(sizes: tuple[int, ...]) -> None:
    points = list(np.ndindex(*sizes))
    near = [
        (u, v)
        for u, v in itertools.combinations(range(len(points)), 2)
        if sum(a != b for a, b in zip(points[u], points[v], strict=True)) == 1
    ]
    reach = range(-len(sizes), len(sizes) + 1)
    slow = (
        {
            h
            for h in itertools.product(reach, repeat=len(points) - 1)
            if all(abs((0, *h)[u] - (0, *h)[v]) <= 1 for u, v in near)
        }
        if len(points) <= 6
        else None
    )
    found = height_functions(sizes)
    assert found is not None
    assert (found[:, 0] == 0).all()
    if slow is not None:
        assert {tuple(int(x) for x in row[1:]) for row in found} == slow


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([(2, 2), (2, 2, 2), (3, 3), (2, 3)]),
    st.sampled_from([0.05, 0.3, 1.0, 3.0]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_the_certified_program_lies_just_above_the_heights(
    sizes: tuple[int, ...], alpha: float, seed: int, zeros: bool
) -> None:
    rng = np.random.default_rng(seed)
    n = math.prod(sizes)
    p, q = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5))
    if zeros:
        p[rng.integers(n)] = 0.0
        q[rng.integers(n)] = 0.0
        p, q = p / p.sum(), q / q.sum()
    exact = float(worst_gains(p[None], q[None], sizes, np.full(len(sizes), alpha))[0][0])
    program = by_linear_program(p, q, sizes, np.full(len(sizes), alpha))
    assert exact - 1e-12 <= program <= exact + 1e-5


def test_every_adversary_is_listed_once_in_each_direction() -> None:
    joint = np.random.default_rng(0).random((2, 3, 2))
    rows = sum(len(t.p) for t in pair_tables(np.log(joint), (0,)))
    assert rows == 2 * (1 + 3) * (1 + 2)  # two ordered pairs × (unknown or one of the values) of others


def test_impossible_evidence_is_never_conditioned_on() -> None:
    joint = np.array([[0.5, 0.0], [0.25, 0.25]])
    with np.errstate(divide="ignore"):
        tables = list(pair_tables(np.log(joint), (0,)))
    known = next(t for t in tables if t.known_sets == (1,))
    assert known.known.tolist() == [0, 0]  # x1 = 1 leaves only one value of x0


@pytest.mark.parametrize("k", range(60))
def test_reference_limits(k: int) -> None:
    case = reference_networks()[k]
    found = ready(ExactBound, case.model).evaluate(alpha_of(case.model, case.dp_epsilon))
    assert found.values.max() == pytest.approx(case.limit, abs=2e-7)
    assert not found.notes


@settings(deadline=None, max_examples=30)
@given(models(max_nodes=4), st.sampled_from([0.1, 1.0]))
def test_unequal_programs_agree_with_heights_when_alphas_meet(model: qd.Model, alpha: float) -> None:
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
    floored = bound.refine(alpha, known, 0.36, np.inf).values
    assert np.all(np.where(plain > 0.36, np.abs(floored - plain) < 1e-12, floored <= 0.36 + 1e-9))
    stopped = bound.refine(alpha, known, 0.0, 0.2).values
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
            exact = float(worst_gains(p[None], q[None], sizes, np.full(len(sizes), 5.0))[0][0])
            assert by_linear_program(p, q, sizes, np.full(len(sizes), 5.0)) <= exact + 1e-8


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
    """Σα = 1,600 is group privacy; the clique tree knows less, and less is what is returned."""
    found = qd.leakage(qd.example("asia"), 200.0, adversary=adversary)
    assert found.certificate.kind == "certified bound"
    assert found.method == "limit-bound"
    assert "above the limit" in found.certificate.statement
    assert any("do not meet" in note for note in found.notes)
    assert 3 * 200.0 < found.epsilon < 610.0
    small = qd.leakage(qd.example("asia"), 0.2, adversary=adversary)
    assert (small.method, small.certificate.kind) == ("exact", "exact")

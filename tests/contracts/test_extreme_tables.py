"""Tables with entries down to the smallest doubles: nothing possible may be lost to underflow.

The yardsticks are explicit mechanisms, evaluated in exact rational arithmetic: a likelihood h(x) that
an α-DP mechanism may have proves that the leakage is at least ln E_p h / E_p' h.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds.threshold import ThresholdCurve
from quiltdp.accountant.methods import available_methods
from quiltdp.errors import QuiltdpError

Point = dict[str, int]


def log_ratio(
    model: qd.Model,
    event: Callable[[Point], Fraction],
    one: Callable[[Point], bool],
    two: Callable[[Point], bool],
) -> float:
    """ln E[h | one] / E[h | two], every table entry taken exactly."""
    sums = [Fraction(0)] * 4
    for x in itertools.product(*(range(model.cardinality(n)) for n in model.nodes)):
        point = dict(zip(model.nodes, x, strict=True))
        weight = Fraction(1)
        for f in model.factors:
            weight *= Fraction(float(f.table[tuple(point[n] for n in f.scope)]))
        for k, side in enumerate((one, two)):
            if side(point):
                sums[k] += weight * event(point)
                sums[2 + k] += weight
    ratio = sums[0] / sums[2] / (sums[1] / sums[3])
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def raised(alpha: dict[str, float], **wanted: int) -> Callable[[Point], Fraction]:
    """h(x) = exp Σ α_j·1[x_j as wanted], a product of randomised responses, rounded down."""
    return lambda x: math.prod(
        (Fraction(math.exp(alpha[n]) * (1 - 1e-13)) for n, v in wanted.items() if x[n] == v),
        start=Fraction(1),
    )


def state(node: str, value: int) -> Callable[[Point], bool]:
    return lambda x: x[node] == value


def every_bound(model: qd.Model, alpha: dict[str, float], adversary: str, unit: str) -> dict[str, float]:
    found = {}
    for method in ("auto", *available_methods(adversary)):
        try:
            found[method] = qd.leakage(model, alpha, method, adversary).per_record[unit]
        except QuiltdpError:
            continue
    assert "auto" in found
    return found


CASES = {
    "ratios beyond 1e16 are told apart": (
        qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.3, 0.3, 0.4], [1e-17, 1e-30, 1.0]])}),
        {"A": 1.0, "B": 50.0},
        {"A": 0, "B": 1},
        ("A", 0, 1),
    ),
    "a joint state of 1e-400": (
        qd.Model.from_tables(
            {
                "A": ([], [1.0, 1e-200]),
                "B": ([], [1.0, 1e-200]),
                "C": (["A", "B"], [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]),
            }
        ),
        {"A": 1.0, "B": 2.0, "C": 0.5},
        {"A": 1, "B": 1, "C": 1},
        ("C", 1, 0),
    ),
    "potentials whose product underflows": (
        qd.Model.from_potentials({"A": 2, "B": 2}, [(["A", "B"], [[1.0, 1.0], [1e-200, 1e-201]])] * 2),
        {"A": 0.0, "B": 1.0},
        {"B": 0},
        ("A", 1, 0),
    ),
    "a chain that reaches a state with 1e-400": (
        qd.markov_chain([[1.0, 0.0], [1.0, 1e-200]], 3, [1.0, 1e-200]),
        {"X0": 1.0, "X1": 0.5, "X2": 0.0},
        {"X0": 1, "X1": 1},
        ("X1", 1, 0),
    ),
    "the same, one matrix per step": (
        qd.markov_chain([[[1.0, 0.0], [1.0, 1e-200]], [[0.5, 0.5], [0.3, 0.7]]], 3, [1.0, 1e-200]),
        {"X0": 1.0, "X1": 0.5, "X2": 0.0},
        {"X0": 1, "X1": 1},
        ("X1", 1, 0),
    ),
    "weights beyond the range of doubles": (
        qd.Model.from_tables(
            {
                "A": ([], [0.5, 0.5]),
                "B": (["A"], [[1.0, 1e-310], [1e-310, 1.0]]),
                "C": (["A"], [[1.0, 1e-310], [2e-310, 1.0]]),
            }
        ),
        {"A": 1.0, "B": 5.0, "C": 2.0},
        {"A": 0, "B": 0, "C": 0},
        ("A", 0, 1),
    ),
}


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_no_method_loses_an_improbable_state(case: str, adversary: str) -> None:
    model, alpha, wanted, (unit, one, two) = CASES[case]
    truth = log_ratio(model, raised(alpha, **wanted), state(unit, one), state(unit, two))
    assert truth > 0.1
    for method, value in every_bound(model, alpha, adversary, unit).items():
        assert value >= truth, method


def subnormal(seed: int) -> qd.Model:
    """Two nodes with a potential or two that have only a few bits left."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.1, 9.0, (2, 3))
    for _ in range(2):
        table[tuple(rng.integers((2, 3)))] = 10.0 ** rng.uniform(-323, -305)
    pairs = [(["A", "B"], table), (["A"], rng.uniform(0.1, 9.0, 2)), (["B"], rng.uniform(0.1, 9.0, 3))]
    return qd.Model.from_potentials({"A": 2, "B": 3}, pairs)


CERTAIN = {
    **{f"subnormal potentials {k}": (subnormal(k), {"B": b}) for k in range(6) for b in range(3)},
    "a marginal that no double holds": (
        qd.markov_chain(
            [[[1.0, 1e-323], [1.0, 0.0]], [[1.0, 0.0], [1e-3, 0.999]], [[0.99, 0.01], [0.3, 0.7]]],
            initial=[0.1, 0.9],
        ),
        {"X0": 0, "X1": 1, "X2": 1},
    ),
    "two ways of 1e-190 and 1e-505": (
        qd.markov_chain(
            [[[1.0, 5e-156], [7e-116, 1.0]], [[1.0, 5e-190], [1.0, 0.0]]], initial=[1.0, 1.2e-199]
        ),
        {"X0": 1},
    ),
}


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("case", sorted(CERTAIN))
def test_no_method_trusts_the_last_bits_of_what_nearly_vanished(case: str, adversary: str) -> None:
    """At α = 2000 a mechanism may be nearly certain, so ratios of probabilities near 1e-320 count."""
    model, wanted = CERTAIN[case]
    nearly = Fraction(1, 10**800)  # above e^-2000

    def seen(x: Point) -> Fraction:
        return nearly ** sum(x[n] != v for n, v in wanted.items())

    unit = next(n for n in reversed(model.nodes) if n not in wanted)
    values = range(model.cardinality(unit))
    truth = 2000.0 + max(
        log_ratio(model, seen, state(unit, a), state(unit, b)) for a, b in itertools.permutations(values, 2)
    )
    for method, value in every_bound(model, dict.fromkeys(model.records, 2000.0), adversary, unit).items():
        assert value >= truth * (1 - 1e-14), method


def test_a_stationary_law_beyond_doubles_is_refused() -> None:
    slow = [[1.0, 1e-320, 0.0], [1e-320, 0.5, 0.5], [0.0, 1e-320, 1.0]]
    with pytest.raises(qd.errors.InvalidModel, match="doubles cannot hold"):
        qd.markov_chain(slow, length=4)
    assert (
        qd.leakage(qd.markov_chain(slow, length=4, initial="uniform"), 0.1, adversary="prior").epsilon > 0.1
    )


def test_rows_that_agree_to_rounding_are_not_called_equal() -> None:
    """Rows known up to e^{±slack} may differ by that much although they look the same."""
    curve = ThresholdCurve(np.array([[0.5, 0.5], [0.5, 0.5]]), slack=1e-12)
    truth = math.log(0.5 * (1 + 1e-12) * math.expm1(9.0) + 1) - math.log(
        0.5 * (1 - 1e-12) * math.expm1(9.0) + 1
    )
    assert curve(9.0) >= truth > 0


@pytest.mark.parametrize("alpha", [350.0, 800.0, 1e6])
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_enormous_alphas_cost_at_least_what_certainty_costs(alpha: float, adversary: str) -> None:
    """Copies of one bit: every record leaks the α of all three, however large."""
    same = [[1.0, 0.0], [0.0, 1.0]]
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], same), "C": (["A"], same)})
    for costs in (alpha, {"A": alpha, "B": 0.5 * alpha, "C": alpha}):
        total = 3 * alpha if isinstance(costs, float) else 2.5 * alpha
        for method in ("auto", *available_methods(adversary)):
            try:
                found = qd.leakage(model, costs, method, adversary)
            except QuiltdpError:
                continue
            assert found.epsilon >= total, method


def test_copies_that_are_not_read_may_have_different_protected_parts() -> None:
    table = [[0.9, 0.1], [0.2, 0.8]]
    tables = {}
    for k in range(3):
        tables[f"A{k}"] = ([], [0.5, 0.5])
        tables[f"B{k}"] = ([f"A{k}"], table)
    model = qd.Model.from_tables(tables)
    alpha = {n: float(n.endswith("2")) for n in model.nodes}
    found = qd.leakage(model, alpha, protect={"p": ["A0"], "q": ["B1"], "r": ["A2", "B2"]})
    assert found.per_record["p"] == found.per_record["q"] == 0.0
    assert found.per_record["r"] >= 2.0
    assert qd.leakage(model, 0.0, protect={"p": ["A0"], "q": ["B1"]}).epsilon == 0.0


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_a_set_over_several_components_pays_for_each(adversary: str) -> None:
    """Three coins, two of them copies of one another in kind: what they leak adds up."""
    coin = ([], [0.5, 0.5])
    model = qd.Model.from_tables({"A": coin, "B": coin, "C": ([], [0.25, 0.75])})
    found = qd.leakage(model, 0.5, adversary=adversary, protect={"two": ["A", "B"], "all": ["A", "B", "C"]})
    assert 1.0 <= found.per_record["two"] <= 1.0 + 1e-9
    assert 1.5 <= found.per_record["all"] <= 1.5 + 1e-9

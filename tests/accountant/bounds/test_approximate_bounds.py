"""(ε, δ) from the transport behind pure leakages: against integration, linear programs and known figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from gaussian_oracle import aligned_query, hockey_stick, hypotheses, joint, random_query
from limited import partial_answer
from scipy.optimize import linprog

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.bounds import approximate
from quiltdp.accountant.bounds.approximate import largest_mean, sensitivities_in_units
from quiltdp.accountant.bounds.contract import Problem
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import GaussianProfile
from quiltdp.mechanisms.profiles import ScalarProfile

SPEC = qd.Gaussian(sensitivity=1.0, delta=1e-6)

# -- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_the_dual_is_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    exponents = np.sort(rng.random(count)) * 10 ** rng.uniform(-1, 1)
    exponents -= exponents[0] * (seed % 2)
    values = rng.random(count) * 10 ** rng.uniform(-6, 0)
    most = float(exponents[0] + rng.random() * (exponents[-1] - exponents[0]))
    grown = np.exp(exponents - exponents[-1])
    best = linprog(
        -values / values.max(),
        A_ub=[grown],
        b_ub=[math.exp(most - exponents[-1])],
        A_eq=[np.ones(count)],
        b_eq=[1.0],
    )
    exact = -best.fun * values.max()
    found, deciding = largest_mean(values, exponents, most)
    assert 1 <= len(deciding) <= 2
    assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-5)


@pytest.mark.parametrize(
    "weights", [[1.0, 1.0], [0.5, 1.0, 0.0], [0.1, 0.3], [1.0, math.pi], [1e-9, 2.0], [0.0]]
)
def test_units_never_understate_a_sensitivity(weights: list[float]) -> None:
    unit, counts = sensitivities_in_units(np.array(weights))
    assert (counts * unit >= np.array(weights) * (1 - 1e-16)).all()
    assert (counts * unit <= np.array(weights) + max(weights) / 64 + 1e-15).all()


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 3), (1, 2), (5, 5000), (300, 301), (1, 10**7)])
def test_bins_hold_every_weight_once_and_are_narrow(first: int, end: int) -> None:
    edges = approximate._weight_bins(first, end)
    assert (edges[0], edges[-1]) == (first, end)
    assert (np.diff(edges) >= 1).all()
    assert (edges[1:] - 1 <= np.maximum(edges[:-1], edges[:-1] * (1 + 1 / 250) + 1)).all()
    assert len(edges) < 4000


def test_coarse_bins_and_classes_only_raise_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=12)
    weights = np.array([0.37, 1.0, 0.61] * 4)
    fine = DeltaProfile(chain).deltas(GaussianProfile(4.0), 1.0, weights)
    monkeypatch.setattr(approximate, "WEIGHTS_EXACT", 16)
    coarse = DeltaProfile(chain).deltas(GaussianProfile(4.0), 1.0, weights)
    monkeypatch.setattr(approximate, "LEAKAGES_APART", 2)
    few = DeltaProfile(chain).deltas(GaussianProfile(4.0), 1.0, weights)
    monkeypatch.setattr(approximate, "UNITS_APART", 3)
    shared = DeltaProfile(chain).deltas(GaussianProfile(4.0), 1.0, weights)
    assert (fine <= coarse * (1 + 1e-9)).all()
    assert (coarse <= few * (1 + 1e-9)).all()
    assert (few <= shared * (1 + 1e-9)).all()
    assert len(set(shared.tolist())) == 3
    assert shared.max() <= 2.0 * fine.max()


@pytest.mark.slow
def test_joined_bins_taken_apart_where_they_decide_are_all_bins() -> None:
    """Privacy-loss distributions are few: the same number as with every weight by itself."""

    class Slow(ScalarProfile):
        asked = 0

        def delta(self, epsilon: float, weight: float) -> float:
            Slow.asked += 1
            return GaussianProfile(9.8).delta(epsilon, weight)

    bounds = DeltaProfile(qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=200))
    for epsilon in (0.4, 1.0, 3.0):
        assert bounds.delta(Slow(), epsilon) == pytest.approx(
            bounds.delta(GaussianProfile(9.8), epsilon), rel=1e-6
        )
    assert Slow.asked < 3 * 1500


# -- integration ---------------------------------------------------------------------------------


def random_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return conditional laws, sharp or flat, with zeros now and then."""
    rows = rng.dirichlet(np.full(shape[-1], 10 ** rng.uniform(-1.0, 1.0)), size=shape[:-1])
    if rng.random() < 0.3:
        rows = np.where(rng.random(rows.shape) < 0.3, 0.0, rows)
        rows = np.where(rows.sum(axis=-1, keepdims=True) > 0, rows, 1.0)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def random_network(rng: np.random.Generator) -> qd.Model:
    """Return a small network, loops and latents included."""
    names = [f"N{k}" for k in range(int(rng.integers(3, 5)))]
    tables = {}
    for k, name in enumerate(names):
        parents = [p for p in names[:k] if rng.random() < 0.7]
        tables[name] = (parents, random_rows(rng, (2,) * (len(parents) + 1)).tolist())
    return qd.Model.from_tables(tables, records=names if rng.random() < 0.6 else names[1:])


def random_chain(rng: np.random.Generator) -> qd.Model:
    """Return a short chain of two or three states, homogeneous or not, in any law at first."""
    states = int(rng.integers(2, 4))
    steps = int(rng.integers(2, 6 if states == 2 else 5))
    start = rng.dirichlet(np.ones(states))
    if rng.random() < 0.5:
        return qd.markov_chain(random_rows(rng, (states, states)), length=steps, initial=start)
    return qd.markov_chain([random_rows(rng, (states, states)) for _ in range(steps - 1)], initial=start)


def attained(
    rng: np.random.Generator,
    model: qd.Model,
    unit: list[int],
    deltas: np.ndarray,
    std: float,
    epsilon: float,
    most_known: int,
) -> float:
    """Return the largest δ found over queries, pairs of values and evidence of so many records at most."""
    table, nodes = joint(model), list(model.nodes)
    others = [nodes.index(r) for r in model.records if nodes.index(r) not in unit]
    worst = 0.0
    for known in itertools.chain(*(itertools.combinations(others, r) for r in range(most_known + 1))):
        values = list(itertools.product(*(range(table.shape[j]) for j in known)))
        for chosen in [values[k] for k in rng.permutation(len(values))[:2]]:
            free = np.array([0.0 if j in known else d for j, d in enumerate(deltas)])
            for states, p, q in hypotheses(table, unit, dict(zip(known, chosen, strict=True))):
                for query in (aligned_query(states, p, q, free), random_query(rng, states, free)):
                    worst = max(worst, hockey_stick(p, q, query, std, epsilon))
    return worst


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize(("adversary", "known"), [("prior", 0), ("knows:1", 1), ("informed", 3)])
def test_no_query_and_no_evidence_beats_the_bound(seed: int, adversary: str, known: int) -> None:
    rng = np.random.default_rng(700 + seed)
    model = random_network(rng) if seed % 2 else random_chain(rng)
    kind = seed % 4 > 1
    deltas = np.array([(rng.choice([0.0, 0.25, 0.37, 1.0]) if kind else 1.0) for _ in model.nodes])
    deltas = np.where([model.is_record(n) for n in model.nodes], deltas, 0.0)
    deltas[model.index[model.records[-1]]] = 1.0
    std, epsilon = 10 ** rng.uniform(-0.2, 0.8), 10 ** rng.uniform(-0.8, 0.6)
    certified = DeltaProfile(model, adversary=adversary, method="transport").deltas(
        GaussianProfile(std), epsilon, deltas
    )
    for k, record in enumerate(model.records):
        found = attained(rng, model, [model.index[record]], deltas, std, epsilon, known)
        assert found <= certified[k] * (1 + 1e-9) + 1e-13


def test_windows_sets_and_negative_epsilon_against_integration() -> None:
    rng = np.random.default_rng(5)
    model = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=4, initial=[0.1, 0.9])
    for adversary, known in (("prior", 0), ("informed", 2)):
        windows = DeltaProfile(model, adversary=adversary, window=2)
        sets = DeltaProfile(model, adversary=adversary, protect={"ends": ["X0", "X3"]})
        for epsilon in (-0.7, 0.4):
            certified = windows.deltas(GaussianProfile(2.0), epsilon)
            for i in range(3):
                found = attained(rng, model, [i, i + 1], np.ones(4), 2.0, epsilon, known)
                assert found <= certified[i] <= 1.0
            ends = attained(rng, model, [0, 3], np.ones(4), 2.0, epsilon, known)
            assert ends <= sets.deltas(GaussianProfile(2.0), epsilon)[0] <= 1.0


def test_a_hub_with_many_near_copies_of_unequal_sensitivities() -> None:
    names = [f"x{k:02d}" for k in range(40)]
    copies = {n: (["hub"], [[0.99, 0.01], [0.01, 0.99]]) for n in names}
    model = qd.Model.from_tables({"hub": ([], [0.5, 0.5]), **copies})
    units = {n: 61 + k % 4 for k, n in enumerate(model.nodes)}
    deltas = np.array([units[n] / 64 for n in model.nodes])
    certified = DeltaProfile(model, adversary="prior").deltas(GaussianProfile(12.0), 1.0, deltas)
    up, down = np.ones(1), np.ones(1)
    for n in names:  # the law of the sum of all copies, given the hub
        up = np.convolve(up, np.concatenate([[0.01], np.zeros(units[n] - 1), [0.99]]))
        down = np.convolve(down, np.concatenate([[0.99], np.zeros(units[n] - 1), [0.01]]))
    own = units["hub"]
    at = np.arange(-60.0, 100.0, 0.5)
    noise = np.exp(-0.5 * ((at[:, None] - np.arange(len(up)) / 64) / 12.0) ** 2)
    shifted = np.exp(-0.5 * ((at[:, None] - np.arange(own, own + len(up)) / 64) / 12.0) ** 2)
    found = 0.5 * np.maximum(shifted @ up - np.e * (noise @ down), 0.0).sum() / (12.0 * np.sqrt(2 * np.pi))
    assert 0.5 < found <= certified[model.index["hub"]]


# -- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adversary", "flip", "least", "most"),
    [("informed", 0.45, 5.00, 5.10), ("prior", 0.3, 9.26, 9.56), ("informed", 0.1, 35.5, 36.7)],
)
def test_long_binary_chains(adversary: str, flip: float, least: float, most: float) -> None:
    """ε = 1, δ = 1e-6; plain sums of a few steps alone need the least."""
    chain = qd.markov_chain([[1 - flip, flip], [flip, 1 - flip]], length=1000)
    cal = qd.calibrate(chain, 1.0, SPEC, adversary=adversary)
    assert least < cal.sigma < most
    assert cal.method == "transport"


def test_the_length_of_a_long_chain_does_not_matter() -> None:
    rows = [[0.6, 0.4], [0.3, 0.7]]
    short, long = (qd.calibrate(qd.markov_chain(rows, n), 1.0, SPEC).sigma for n in (2000, 10**5))
    assert short == pytest.approx(long, rel=1e-9)


def test_a_short_chain_needs_no_more_than_a_long_one_and_less_than_its_group() -> None:
    rows = [[0.7, 0.3], [0.3, 0.7]]
    short, long = (qd.calibrate(qd.markov_chain(rows, n), 1.0, SPEC) for n in (6, 1000))
    assert short.sigma < long.sigma
    assert short.sigma < short.compared["group"]


def test_more_states_and_zeros() -> None:
    """A lazy walk on three cells, where rows of far cells do not overlap (sums attain 30.5 and more)."""
    walk = qd.markov_chain([[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]], 2000)
    assert 30.5 < qd.calibrate(walk, 1.0, SPEC, adversary="prior").sigma < 32.0


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_networks_are_not_one_group(adversary: str) -> None:
    model = qd.example("cancer")
    cal = qd.calibrate(model, 1.0, SPEC, adversary=adversary)
    assert cal.method == "transport"
    assert cal.sigma < 0.56 * cal.compared["group"]
    assert leakage_of(model, SPEC, cal.sigma, adversary=adversary).epsilon <= 1.0


# -- edges ---------------------------------------------------------------------------------------


def test_delta_falls_as_epsilon_grows() -> None:
    profile = DeltaProfile(qd.example("cancer"), work="quick")
    found = [profile.delta(GaussianProfile(9.0), float(e)) for e in np.geomspace(0.3, 3.0, 25)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1e-9 < found[0]


def test_correlation_costs_and_less_sensitivity_costs_less() -> None:
    chain, noise = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=40), GaussianProfile(12.0)
    own = DeltaProfile(chain).deltas(noise, 1.0)
    assert (own >= noise.delta(1.0, 1.0)).all()
    assert own[0] < own[20] < noise.delta(1.0, 40.0)
    assert (DeltaProfile(chain).deltas(noise, 1.0, np.full(40, 0.5)) <= own).all()


def test_sets_and_records_that_are_not_read() -> None:
    model = qd.example("cancer")
    weights = np.array([0.0 if n == "Xray" else 1.0 for n in model.nodes])
    two = {"two": ["Xray", "Smoker"]}
    some = DeltaProfile(model, protect=two, work="quick").deltas(GaussianProfile(6.0), 1.0, weights)
    group = DeltaProfile(model, protect=two, method="group").deltas(GaussianProfile(6.0), 1.0, weights)
    assert 0.0 < some[0] <= group[0]
    nothing = DeltaProfile(model, method="transport", work="quick")
    assert nothing.deltas(GaussianProfile(6.0), 1.0, np.zeros(5)).max() == 0.0
    assert nothing.deltas(GaussianProfile(6.0), 0.0).min() > 0.0


def test_a_record_that_is_not_read_can_be_protected() -> None:
    chain = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], 4)
    spec = qd.Gaussian({"X0": 0.0, "X1": 1.0, "X2": 0.0, "X3": 0.0}, 1e-5)
    alone = qd.calibrate(chain, 1.0, spec, protect={"first": ["X0"]})
    assert 0.0 < alone.sigma < qd.calibrate(chain, 1.0, spec).sigma
    assert "independent" not in alone.compared


def test_one_record_alone_is_a_group() -> None:
    with pytest.raises(InvalidArgument, match="group"):
        approximate.TransportDelta(Problem(qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], 1)))


@pytest.mark.parametrize("old", ["paired", "carried"])
def test_names_of_the_version_before_are_understood_with_a_warning(old: str) -> None:
    chain = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], 6)
    with pytest.warns(FutureWarning, match="is now called 'transport'"):
        found = qd.calibrate(chain, 1.0, SPEC, method=old)
    assert found.sigma == qd.calibrate(chain, 1.0, SPEC, method="transport").sigma


def test_a_time_limit_leaves_the_quick_answer() -> None:
    cal = partial_answer(
        lambda: qd.calibrate(qd.example("asia"), 1.0, SPEC, adversary="prior", time_limit=1e-3)
    )
    assert cal.sigma <= cal.compared["group"] * (1 + 1e-8)
    assert any("time limit" in n for n in cal.notes)

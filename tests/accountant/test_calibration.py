"""Calibration in both directions, against what one can integrate, and what it exports."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from strategies import models

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.calibration import calibrate_profile
from quiltdp.accountant.leakage import analyze
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument, NoCertificate, QuiltdpError
from quiltdp.inference import brute_force
from quiltdp.mechanisms import gaussian_delta
from quiltdp.mechanisms.gaussian import GaussianProfile

PAIR = qd.Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
CHAIN = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=30)
FORK = qd.Model.from_tables(
    {"H": ([], [0.6, 0.4]), "A": (["H"], [[0.9, 0.1], [0.3, 0.7]]), "B": (["H"], [[0.8, 0.2], [0.1, 0.9]])},
    records=["A", "B"],
)
TRIPLE = qd.Model.from_tables(
    {
        "A": ([], [0.5, 0.5]),
        "B": (["A"], [[0.7, 0.3], [0.4, 0.6]]),
        "C": (["A", "B"], [[[0.9, 0.1], [0.6, 0.4]], [[0.5, 0.5], [0.0, 1.0]]]),
    }
)
# Weak dependencies: here quilts, not the trivial one, decide.
WEAK_PATH = qd.markov_chain([[0.55, 0.45], [0.45, 0.55]], length=3)
WEAK_LOOP = qd.Model.from_tables(
    {
        "A": ([], [0.5, 0.5]),
        "B": (["A"], [[0.55, 0.45], [0.45, 0.55]]),
        "C": (["A", "B"], [[[0.55, 0.45], [0.5, 0.5]], [[0.5, 0.5], [0.45, 0.55]]]),
    }
)
SPECS = {
    "laplace": qd.Laplace(sensitivity=0.5),
    "thresholdout": qd.Thresholdout(budget=4, sensitivity=0.01),
    "unequal": qd.Laplace(sensitivity={f"X{k}": 0.0 if k % 2 else 1.0 for k in range(30)}),
}


# -- from ε to σ and back ------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_the_scale_passes_its_own_certificate_and_hardly_a_smaller_one_does(name: str) -> None:
    spec = SPECS[name]
    cal = qd.calibrate(CHAIN, 1.0, spec)
    assert cal.leakage <= 1.0
    assert leakage_of(CHAIN, spec, cal.sigma).epsilon == cal.leakage
    assert leakage_of(CHAIN, spec, cal.sigma * (1 - 1e-6)).epsilon > 1.0
    stated, cost = (
        a if isinstance(a, dict) else {"": a} for a in (cal.dp_epsilon, spec.dp_epsilon(cal.sigma))
    )
    assert stated == pytest.approx(cost, rel=1e-11)
    assert all(stated[n] >= a for n, a in cost.items())  # rounded up to twelve digits


@settings(max_examples=15)
@given(st.floats(0.05, 20.0), st.sampled_from(["informed", "prior"]))
def test_sigma_to_epsilon_to_sigma(sigma: float, adversary: str) -> None:
    spec = qd.Laplace(sensitivity=1.0)
    epsilon = leakage_of(TRIPLE, spec, sigma, adversary=adversary).epsilon
    cal = qd.calibrate(TRIPLE, epsilon, spec, adversary=adversary, compare=False)
    assert cal.sigma == pytest.approx(sigma, rel=1e-5)


def test_thresholdout_scale_is_nine_quarters_of_budget_times_sensitivity_over_alpha() -> None:
    alpha = qd.dp_epsilon(CHAIN, 1.0)
    cal = qd.calibrate(CHAIN, 1.0, qd.Thresholdout(budget=4, sensitivity=0.01))
    assert cal.sigma == pytest.approx(9 * 4 * 0.01 / (4 * alpha), rel=1e-7)
    assert cal.sigma >= 9 * 4 * 0.01 / (4 * alpha) * (1 - 1e-7)
    assert cal.sigma == pytest.approx(9 * qd.calibrate(CHAIN, 1.0, qd.Laplace(0.01)).sigma, rel=1e-7)


@settings(max_examples=15)
@given(models(max_nodes=4), st.sampled_from([0.1, 1.0, 5.0]))
def test_between_independent_records_and_one_group(model: qd.Model, epsilon: float) -> None:
    cal = qd.calibrate(model, epsilon, qd.Laplace(sensitivity=1.0))
    assert cal.leakage <= epsilon
    assert cal.compared["independent"] <= cal.sigma * (1 + 1e-9)
    assert cal.sigma <= cal.compared["group"] * (1 + 1e-6)


def test_one_profile_serves_several_targets_and_mechanisms() -> None:
    profile = analyze(CHAIN)
    for epsilon in (0.1, 1.0):
        spec = qd.Laplace(sensitivity=1.0)
        assert calibrate_profile(profile, epsilon, spec).sigma == qd.calibrate(CHAIN, epsilon, spec).sigma


def test_unequal_sensitivities_cost_less_than_the_largest_everywhere() -> None:
    half = qd.calibrate(CHAIN, 1.0, SPECS["unequal"])
    full = qd.calibrate(CHAIN, 1.0, qd.Laplace(sensitivity=1.0))
    assert full.compared["independent"] < half.sigma < full.sigma
    assert isinstance(half.dp_epsilon, dict)
    assert half.dp_epsilon["X1"] == 0.0
    assert dict(leakage_of(CHAIN, SPECS["unequal"], half.sigma).per_record)["X1"] > 0  # still attacked


def test_an_independent_record_costs_plain_dp() -> None:
    alone = qd.Model.from_tables({"A": ([], [0.3, 0.7]), "B": ([], [0.5, 0.5])})
    assert qd.calibrate(alone, 1.0, qd.Laplace(2.0)).sigma == pytest.approx(2.0, rel=1e-9)


# -- Gaussian noise, against numerical integration --------------------------------------------


def exact_deltas(model: qd.Model, std: float, epsilon: float, weights: dict[str, float]) -> dict[str, float]:
    """δ_BDP(ε) of Σ w_j x_j + N(0, std²), integrated for every adversary and pair of values."""
    records = list(model.records)
    joint = brute_force.marginal(model, records)
    reach = sum(weights.values()) * max(joint.shape)
    edges = np.linspace(-9 * std, reach + 9 * std, 3001)
    mass = {  # of every cell of the grid: δ on cells is at most δ, and very close
        x: np.diff(ndtr((edges - sum(weights[r] * v for r, v in zip(records, x, strict=True))) / std))
        for x in np.ndindex(*joint.shape)
    }
    found = {}
    for i, record in enumerate(records):
        others = [k for k in range(len(records)) if k != i]
        worst = 0.0
        for size in range(len(others) + 1):
            for known in itertools.combinations(others, size):
                for values in itertools.product(*(range(joint.shape[k]) for k in known)):
                    laws = []
                    for v in range(joint.shape[i]):
                        fits = [
                            x
                            for x in mass
                            if x[i] == v and all(x[k] == w for k, w in zip(known, values, strict=True))
                        ]
                        total = sum(joint[x] for x in fits)
                        if total > 0:
                            laws.append(sum(joint[x] / total * mass[x] for x in fits))
                    for p, q in itertools.permutations(laws, 2):
                        excess = np.maximum(p - math.exp(epsilon) * q, 0.0)
                        worst = max(worst, float(excess.sum()))
        found[record] = worst
    return found


@pytest.mark.parametrize(
    "model",
    [PAIR, FORK, TRIPLE, WEAK_PATH, WEAK_LOOP],
    ids=["pair", "latent", "zeros", "weak path", "weak loop"],
)
@pytest.mark.parametrize("std", [0.7, 2.0, 6.0])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_gaussian_delta_is_never_below_the_integral(model: qd.Model, std: float, epsilon: float) -> None:
    weights = dict.fromkeys(model.records, 1.0)
    certified = DeltaProfile(model).deltas(GaussianProfile(std), epsilon)
    for record, exact in exact_deltas(model, std, epsilon, weights).items():
        assert certified[model.records.index(record)] >= exact * (1 - 1e-9) - 1e-13


@pytest.mark.parametrize("model", [WEAK_PATH, WEAK_LOOP], ids=["path", "loop"])
def test_gaussian_quilts_beat_one_group_where_dependence_is_weak(model: qd.Model) -> None:
    certified = DeltaProfile(model).delta(GaussianProfile(0.7), 1.0)
    exact = max(exact_deltas(model, 0.7, 1.0, dict.fromkeys(model.records, 1.0)).values())
    assert exact <= certified < 0.9 * gaussian_delta(1.0, 3 / 0.7)


@settings(max_examples=12)
@given(
    models(max_nodes=3, max_states=2),
    st.sampled_from([0.5, 1.5, 5.0]),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=3),
)
def test_gaussian_delta_of_random_models_and_sensitivities(
    model: qd.Model, std: float, epsilon: float, chosen: list[float]
) -> None:
    assume(len(model.records) <= 3)
    weights = dict(zip(model.records, chosen, strict=False))
    vector = np.array([weights.get(n, 0.0) for n in model.nodes])
    certified = DeltaProfile(model).deltas(GaussianProfile(std), epsilon, vector)
    for record, exact in exact_deltas(model, std, epsilon, weights).items():
        assert certified[model.records.index(record)] >= exact * (1 - 1e-9) - 1e-13


def test_gaussian_both_directions() -> None:
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-5)
    weak = qd.markov_chain([[0.55, 0.45], [0.45, 0.55]], length=50)
    cal = qd.calibrate(weak, 1.0, spec)
    assert cal.gaussian_std == cal.sigma
    assert DeltaProfile(weak).delta(GaussianProfile(cal.sigma), 1.0) <= 1e-5
    assert DeltaProfile(weak).delta(GaussianProfile(cal.sigma * (1 - 1e-6)), 1.0) > 1e-5
    assert leakage_of(weak, spec, cal.sigma).epsilon == pytest.approx(1.0, rel=1e-6)
    assert cal.compared["independent"] < cal.sigma < cal.compared["group"]
    assert (cal.delta, cal.dp_epsilon) == (1e-5, None)


def test_gaussian_with_unequal_sensitivities() -> None:
    some = qd.Gaussian(sensitivity={"A": 1.0, "B": 0.0, "C": 0.0}, delta=1e-5)
    every = qd.Gaussian(sensitivity=1.0, delta=1e-5)
    assert qd.calibrate(TRIPLE, 1.0, some).sigma < qd.calibrate(TRIPLE, 1.0, every).sigma


# -- JSON --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cal",
    [
        qd.calibrate(PAIR, 1.0, qd.Laplace(sensitivity=0.5)),
        qd.calibrate(PAIR, 1.0, qd.Laplace(sensitivity={"A": 1.0, "B": 0.0}), adversary="prior"),
        qd.calibrate(PAIR, 1.0, qd.Gaussian(sensitivity=0.5, delta=1e-6)),
        qd.calibrate(CHAIN, 1.0, qd.Thresholdout(budget=3, sensitivity=0.1), window=3),
    ],
    ids=["laplace", "unequal", "gaussian", "thresholdout"],
)
def test_json_round_trip(cal: qd.Calibration) -> None:
    text = cal.to_json()
    back = qd.Calibration.from_json(text)
    assert back.to_json() == text
    assert (back.sigma, back.mechanism, back.protected) == (cal.sigma, cal.mechanism, cal.protected)
    document = json.loads(text)
    assert (document["schema"], document["version"]) == ("quiltdp/calibration", 2)
    assert document["mechanism"]["sensitivity"] is not None
    assert str(back) == str(cal)


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": "x"},
        {"sigma": None},
        {"sigma": -1},
        {"sigma": math.nan},
        {"sigma": 0.001},  # less noise than was certified
        {"dp_epsilon": 1e-6},
        {"dp_epsilon": None},
        {"leakage": 2.0},
        {"epsilon": 0},
        {"delta": 1.0},
        {"delta": 0.5},  # of noise that needs none
        {"sigma": "4.0"},
        {"epsilon": True},
        {"dp_epsilon": True},
        {"adversary": "nobody"},
        {"adversary": None},
        {"protected": 3},
        {"method": None},
        {"fingerprint": 3},
        {"mechanism": {"mechanism": "staircase"}},
        {"mechanism": 3},
        {"mechanism": {"mechanism": "laplace", "sensitivity": 100.0}},
        {"per_record": [[1]]},
        {"compared": {"group": "much"}},
        {"binding": {}},
        {"version": 99},
        {"schema": "quiltdp/network"},
    ],
    ids=str,
)
def test_a_changed_document_is_refused_in_one_line(change: dict[str, Any]) -> None:
    document = json.loads(qd.calibrate(PAIR, 1.0, qd.Laplace(sensitivity=0.5)).to_json())
    with pytest.raises(QuiltdpError) as refused:
        qd.Calibration.from_json(json.dumps({**document, **change}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "{", None])
def test_what_is_no_calibration_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgument, match="calibration"):
        qd.Calibration.from_json(text)


def test_less_noise_for_one_record_than_certified_is_refused() -> None:
    document = json.loads(qd.calibrate(PAIR, 1.0, qd.Laplace(sensitivity={"A": 1.0, "B": 0.5})).to_json())
    document["mechanism"]["sensitivity"]["B"] = 0.75
    with pytest.raises(NoCertificate, match="'B'"):
        qd.Calibration.from_json(json.dumps(document))


# -- exports -----------------------------------------------------------------------------


def test_opendp_laplace_costs_alpha() -> None:
    pytest.importorskip("opendp")
    cal = qd.calibrate(CHAIN, 1.0, qd.Laplace(sensitivity=0.5))
    measurement = cal.to_opendp()
    assert measurement.map(0.5) == pytest.approx(cal.dp_epsilon, rel=1e-9)
    assert isinstance(measurement(3.0), float)


def test_opendp_gaussian_has_the_scale() -> None:
    pytest.importorskip("opendp")
    cal = qd.calibrate(PAIR, 1.0, qd.Gaussian(sensitivity=1.0, delta=1e-6))
    rho = cal.to_opendp().map(1.0)  # zero-concentrated DP: Δ² / (2 std²)
    assert rho == pytest.approx(1 / (2 * cal.sigma**2), rel=1e-9)


def test_thresholdout_is_no_opendp_measurement() -> None:
    cal = qd.calibrate(PAIR, 1.0, qd.Thresholdout(budget=1, sensitivity=0.5))
    with pytest.raises(InvalidArgument, match="ReusableHoldout"):
        cal.to_opendp()


def test_events_of_laplace_and_gaussian() -> None:
    pytest.importorskip("dp_accounting")
    laplace = qd.calibrate(CHAIN, 1.0, qd.Laplace(sensitivity=0.5))
    assert laplace.to_dp_event().noise_multiplier == pytest.approx(laplace.sigma / 0.5, rel=1e-12)
    assert laplace.to_dp_event().noise_multiplier <= laplace.sigma / 0.5
    unequal = qd.calibrate(PAIR, 1.0, qd.Laplace(sensitivity={"A": 0.25, "B": 2.0}))
    assert unequal.to_dp_event().noise_multiplier == pytest.approx(unequal.sigma / 2.0, rel=1e-12)
    gaussian = qd.calibrate(PAIR, 1.0, qd.Gaussian(sensitivity=2.0, delta=1e-6))
    assert gaussian.to_dp_event().noise_multiplier == pytest.approx(gaussian.sigma / 2.0, rel=1e-12)


def random_pair(rng: np.random.Generator, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on six outputs whose ratio stays within e^±α: an α-DP mechanism on two neighbours."""
    while True:
        q = rng.dirichlet(np.ones(6))
        p = q * np.exp(rng.uniform(-alpha, alpha, 6))
        p /= p.sum()
        if np.abs(np.log(p / q)).max() <= alpha:
            return p, q


@pytest.mark.parametrize("uses", [1, 3])
def test_the_thresholdout_event_dominates_every_algorithm_of_its_alpha(uses: int) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    cal = qd.calibrate(PAIR, 1.0, qd.Thresholdout(budget=2, sensitivity=0.5))
    alpha = cal.dp_epsilon
    assert isinstance(alpha, float)
    accountant = dp_accounting.pld.PLDAccountant().compose(cal.to_dp_event(), uses)
    rng = np.random.default_rng(7)
    for _ in range(40):
        p, q = random_pair(rng, alpha)
        for _ in range(uses - 1):
            more_p, more_q = random_pair(rng, alpha)
            p, q = np.outer(p, more_p).ravel(), np.outer(q, more_q).ravel()
        for epsilon in (0.0, 0.5 * alpha, alpha, 1.7 * alpha):
            delta = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
            assert accountant.get_delta(epsilon) >= delta - 1e-12
    if uses == 3:  # the longest loss is three α's, with its exact probability
        top = (math.exp(alpha) / (1 + math.exp(alpha))) ** 3
        assert accountant.get_delta(2.5 * alpha) >= top * -math.expm1(-0.5 * alpha) - 1e-12
    response = (math.exp(alpha) - math.exp(alpha / 2)) / (1 + math.exp(alpha))
    once = dp_accounting.pld.PLDAccountant().compose(cal.to_dp_event())
    assert once.get_delta(alpha / 2) >= response - 1e-12
    laplace = dp_accounting.pld.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(1 / alpha))
    assert laplace.get_delta(alpha / 2) < response  # why the event is not a Laplace event


def test_a_hopeless_thresholdout_still_has_an_event() -> None:
    pytest.importorskip("dp_accounting")
    cal = qd.calibrate(PAIR, 3000.0, qd.Thresholdout(budget=1, sensitivity=1.0))
    assert cal.dp_epsilon * (1 - 1e-11) <= cal.to_dp_event().noise_parameter <= cal.dp_epsilon


# -- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 10**400}, "epsilon"),
        ({"epsilon": "one"}, "'one'"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"mechanism": qd.Laplace}, "mechanism"),
        ({"mechanism": qd.Laplace({"A": 1.0})}, "'B'"),
        ({"mechanism": qd.Laplace({"A": 1.0, "B": 1.0, "Z": 1.0})}, "'Z'"),
        ({"method": "best"}, "'best'"),
        ({"adversary": "nobody"}, "'nobody'"),
        ({"adversary": ["prior"]}, "adversary"),
        ({"time_limit": 0}, "time_limit"),
        ({"window": 2}, "window"),
        ({"mechanism": qd.Gaussian(1.0, 1e-6), "adversary": "nobody"}, "'nobody'"),
        ({"mechanism": qd.Gaussian(1.0, 1e-6), "method": "exact"}, "'exact'"),
        ({"mechanism": qd.Gaussian(1.0, 1e-6), "time_limit": -1}, "time_limit"),
        ({"model": 5}, "load_model"),
    ],
    ids=str,
)
def test_nonsense_is_refused_in_one_line(options: dict[str, Any], culprit: str) -> None:
    arguments = {"model": PAIR, "epsilon": 1.0, "mechanism": qd.Laplace(1.0), **options}
    with pytest.raises(InvalidArgument) as refused:
        qd.calibrate(**arguments)
    assert culprit in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_set_over_several_components_has_no_gaussian_calibration() -> None:
    alone = qd.Model.from_tables({"A": ([], [0.3, 0.7]), "B": ([], [0.5, 0.5])})
    with pytest.raises(InvalidArgument, match="'both'"):
        qd.calibrate(alone, 1.0, qd.Gaussian(1.0, 1e-6), protect={"both": ["A", "B"]})


def test_laplace_has_no_standard_deviation() -> None:
    with pytest.raises(InvalidArgument, match="sigma"):
        _ = qd.calibrate(PAIR, 1.0, qd.Laplace(1.0)).gaussian_std


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, "wide"])
def test_leakage_of_refuses_a_bad_scale(bad: Any) -> None:
    for spec in (qd.Laplace(1.0), qd.Gaussian(1.0, 1e-6)):
        with pytest.raises(InvalidArgument, match="scale"):
            leakage_of(PAIR, spec, bad)


def test_pictures_show_every_answer() -> None:
    pytest.importorskip("matplotlib").use("agg")
    cal = qd.calibrate(PAIR, 1.0, qd.Laplace(1.0))
    ax = cal.plot()
    assert len(ax.patches) == 1 + len(cal.compared)
    lines = analyze(PAIR).plot([0.1, 1.0]).get_lines()
    assert {"certified", "independent records"} <= {line.get_label() for line in lines}


@pytest.mark.parametrize("method", ["exact", "published", "nonsense"])
def test_gaussian_noise_names_the_method_that_accounts_for_it(method: str) -> None:
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 5)
    with pytest.raises(InvalidArgument, match="transport"):
        qd.calibrate(chain, 1.0, qd.Gaussian(1.0, 1e-6), method=method)
    with pytest.raises(InvalidArgument, match="transport"):
        leakage_of(chain, qd.Gaussian(1.0, 1e-6), 10.0, method=method)


@pytest.mark.parametrize("mechanism", [qd.Laplace(sensitivity=2.0), qd.Gaussian(sensitivity=2.0, delta=1e-6)])
def test_independent_records_are_compared_for_the_same_unit(mechanism):
    """Six independent steps protected together are six records: that is the answer, and the comparison."""
    steps = qd.markov_chain([[0.3, 0.7], [0.3, 0.7]], length=40)
    run = qd.calibrate(steps, epsilon=1.0, mechanism=mechanism, window=6)
    named = qd.calibrate(steps, epsilon=1.0, mechanism=mechanism, protect=[[f"X{k}" for k in range(6)]])
    one = qd.calibrate(steps, epsilon=1.0, mechanism=mechanism)
    assert run.compared["independent"] == pytest.approx(run.sigma, rel=1e-6)
    assert named.compared["independent"] == pytest.approx(run.compared["independent"], rel=1e-12)
    assert run.compared["independent"] == pytest.approx(6 * one.compared["independent"], rel=1e-6)


@pytest.mark.parametrize("value", [0.1, math.nan, {}, "x"])
def test_gaussian_noise_has_no_dp_epsilon(value: Any) -> None:
    """One was believed, and the ledger made from it met the nonsense later."""
    document = json.loads(qd.calibrate(PAIR, 1.0, qd.Gaussian(0.5, delta=1e-6)).to_json())
    with pytest.raises(InvalidArgument, match=r"no dp_epsilon|no number"):
        qd.Calibration.from_json(json.dumps({**document, "dp_epsilon": value}))


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake"])
def test_a_calibration_tells_every_record_as_the_leakage_does(name: str, adversary: str) -> None:
    """The search for σ places most records only below the target; what is printed is their leakage."""
    model = qd.load_model(Path(__file__).parents[2] / "models" / f"{name}.bif")
    found = qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0), adversary=adversary, compare=False)
    told = qd.leakage(model, found.dp_epsilon, adversary=adversary)
    assert found.per_record == tuple(told.per_record.top(10))
    assert (found.leakage, found.binding.unit) == (told.epsilon, told.binding.unit)


def test_a_calibration_that_names_its_last_stage_needs_no_more_than_the_search() -> None:
    """So does one that a limit stopped: both are the same answer, and no leakage is below the full one."""
    model = qd.load_model(Path(__file__).parents[2] / "models" / "asia.bif")
    rough = qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0), work="normal:exact", compare=False)
    full = qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0), compare=False)
    least = dict(full.per_record)
    assert rough.sigma == full.sigma
    assert all(value >= least[name] for name, value in rough.per_record)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("binding", "epsilon"), math.nan),
        (("binding", "witness"), None),
        (("binding", "witness"), {"known": 7}),
        (("binding", "witness"), {"separator": "A"}),
        (("binding", "unit"), 3),
        (("compared",), {"group": math.nan}),
        (("per_record",), [["A", math.nan]]),
        (("notes",), [1]),
        (("notes",), None),
        (("leakage",), -1.0),
        (("certificate", "kind"), None),
        (("certificate", "work"), 3),
    ],
)
def test_a_file_with_one_garbled_field_is_refused_in_one_line(place: tuple[str, ...], value: Any) -> None:
    document = json.loads(qd.calibrate(PAIR, 1.0, qd.Laplace(1.0), compare=False).to_json())
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(InvalidArgument) as caught:
        qd.Calibration.from_json(json.dumps(document))
    assert "\n" not in str(caught.value)

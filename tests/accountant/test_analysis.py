"""Units, copies, unequal α, the inverse, and one clear line for every mistake."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from limited import partial_answer
from strategies import models

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.accountant import analysis
from quiltdp.accountant.leakage import analyze
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument

FAMILY = {
    "mother": ([], [0.8, 0.2]),
    "father": ([], [0.8, 0.2]),
    "child": (["mother", "father"], [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]),
}
TRIPLE = qd.Model.from_tables(FAMILY)
CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=12)


def families(count: int) -> qd.Model:
    return qd.Model.from_tables(
        {f"{n}{k}": ([f"{p}{k}" for p in ps], t) for k in range(count) for n, (ps, t) in FAMILY.items()}
    )


# -- identical components ------------------------------------------------------------------


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_many_equal_families_leak_like_one(adversary: str) -> None:
    many, one = (qd.leakage(m, 0.3, adversary=adversary) for m in (families(50), TRIPLE))
    assert many.epsilon == pytest.approx(one.epsilon, rel=1e-9)  # other names, other order of sums
    for k in (0, 17, 49):
        assert many.per_record[f"child{k}"] == many.per_record["child3"]
        assert many.per_record[f"child{k}"] == pytest.approx(one.per_record["child"], rel=1e-9)


def test_equal_components_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    real = analysis.Component
    monkeypatch.setattr(analysis, "Component", lambda p, *a, **k: built.append(p.model) or real(p, *a, **k))
    found = analyze(families(200))
    assert len(built) == 1
    assert len(built[0].nodes) == 3
    assert found.leakage(0.1).binding.unit.startswith(("mother", "father", "child"))


def test_equal_components_with_unequal_alpha_differ() -> None:
    model = families(3)
    alpha = {r: 0.5 if r.endswith("1") else 0.1 for r in model.records}
    found = qd.leakage(model, alpha)
    assert found.per_record["child1"] > found.per_record["child0"] == found.per_record["child2"]
    assert found.binding.unit.endswith("1")
    own = qd.leakage(TRIPLE, 0.5)
    assert found.epsilon == pytest.approx(own.epsilon, rel=1e-9)


# -- units -------------------------------------------------------------------------------


def test_a_set_of_one_is_a_record() -> None:
    alone = qd.leakage(TRIPLE, 0.3)
    named = qd.leakage(TRIPLE, 0.3, protect={"kid": ["child"], "ma": ["mother"]})
    assert dict(named.per_record) == pytest.approx(
        {"kid": alone.per_record["child"], "ma": alone.per_record["mother"]}, rel=1e-9
    )
    assert named.protected == "sets of records"


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_larger_sets_leak_more_and_a_whole_component_leaks_its_records(adversary: str) -> None:
    sets = {"one": ["child"], "two": ["child", "mother"], "all": ["child", "mother", "father"]}
    found = qd.leakage(TRIPLE, 0.3, adversary=adversary, protect=sets).per_record
    assert found["one"] <= found["two"] <= found["all"] * (1 + 1e-9)
    assert found["all"] == pytest.approx(0.9, rel=1e-9)


def test_a_set_across_components_adds_its_parts() -> None:
    model = families(2)
    across = qd.leakage(model, 0.3, protect={"person": ["child0", "mother1"]})
    parts = qd.leakage(TRIPLE, 0.3).per_record
    expected = parts["child"] + parts["mother"]
    assert across.epsilon == pytest.approx(expected, rel=1e-9)
    assert across.epsilon >= expected
    assert across.binding.unit == "person"


def test_a_set_across_equal_components_is_counted_in_each() -> None:
    across = qd.leakage(families(3), 0.3, protect={"p": ["child0", "child1", "child2"]})
    assert across.epsilon == pytest.approx(3 * qd.leakage(TRIPLE, 0.3).per_record["child"], rel=1e-9)


def test_sets_without_names_are_named_by_their_records() -> None:
    found = qd.leakage(TRIPLE, 0.3, protect=[["mother", "father"], ["child"]])
    assert set(found.per_record) == {"father+mother", "child"}


def test_windows_are_sets_of_consecutive_steps() -> None:
    found = qd.leakage(CHAIN, 0.2, window=3, method="chain")
    assert len(found.per_record) == 10
    assert found.protected == "runs of 3 steps"
    assert next(iter(found.per_record)) == "X0…X2"
    sets = {f"X{k}…X{k + 2}": [f"X{k + j}" for j in range(3)] for k in range(10)}
    named = qd.leakage(CHAIN, 0.2, protect=sets, method="chain")
    for name in sets:
        assert found.per_record[name] == pytest.approx(named.per_record[name], rel=1e-9)


def test_windows_grow_to_the_whole_chain() -> None:
    values = [qd.leakage(CHAIN, 0.2, window=w).epsilon for w in (1, 2, 4, 12, 40)]
    assert values == sorted(values)
    assert values[-1] == values[-2] == pytest.approx(12 * 0.2, rel=1e-9)


# -- α per record ----------------------------------------------------------------------------


@settings(max_examples=20)
@given(models(max_nodes=4), st.sampled_from([0.1, 1.0]), st.sampled_from(["informed", "prior"]))
def test_a_mapping_of_equal_alphas_is_one_alpha(model: qd.Model, alpha: float, adversary: str) -> None:
    assume(len(model.records) <= 4)
    profile = analyze(model, adversary=adversary)
    one = profile.leakage(alpha)
    mapped = profile.leakage(dict.fromkeys(model.records, alpha))
    assert dict(mapped.per_record) == pytest.approx(dict(one.per_record), rel=1e-6)
    assert mapped.dp_epsilon == dict.fromkeys(model.records, alpha)


def test_what_is_not_read_leaks_through_what_is() -> None:
    found = qd.leakage(TRIPLE, {"mother": 0.0, "father": 0.0, "child": 0.5})
    assert found.per_record["child"] == pytest.approx(0.5, rel=1e-9)
    assert 0.0 < found.per_record["mother"] < 0.5
    nothing = qd.leakage(TRIPLE, 0.0)
    assert nothing.epsilon == 0.0


# -- the inverse -----------------------------------------------------------------------------


@settings(max_examples=8)
@given(models(max_nodes=3), st.sampled_from([0.05, 1.0, 10.0]))
def test_the_inverse_passes_and_is_the_largest(model: qd.Model, epsilon: float) -> None:
    profile = analyze(model)
    alpha = profile.dp_epsilon(epsilon)
    assert profile.epsilon(alpha) <= epsilon
    assert alpha <= epsilon
    if alpha < epsilon and profile.epsilon(epsilon) > 1e-300:  # a record of one value leaks nothing at any α
        assert profile.epsilon(alpha * (1 + 1e-6)) > epsilon * (1 - 1e-9)


def test_a_curve_is_the_leakage_at_every_alpha() -> None:
    profile = analyze(TRIPLE)
    assert [p.epsilon for p in profile.curve([0.1, 0.2])] == [profile.epsilon(0.1), profile.epsilon(0.2)]


# -- results ---------------------------------------------------------------------------------


def test_a_leakage_explains_itself() -> None:
    found = qd.leakage(TRIPLE, 0.3)
    assert found.by_method[found.method] == min(found.by_method.values()) == found.epsilon
    assert found.epsilon == max(found.per_record.values()) == found.per_record[found.binding.unit]
    document = json.loads(found.to_json())
    assert document["per_record"].keys() == set(TRIPLE.records)
    assert document["fingerprint"] == TRIPLE.fingerprint
    assert len(found.to_dict(top=1)["per_record"]) == 1
    assert str(found).startswith("leakage ≤ ")


def test_infinite_influence_is_no_infinite_leakage() -> None:
    copy = qd.Model.from_tables({"a": ([], [0.5, 0.5]), "b": (["a"], [[1.0, 0.0], [0.0, 1.0]])})
    gaussian = leakage_of(copy, qd.Gaussian(1.0, 1e-6), 10.0)
    assert math.isinf(gaussian.dp_epsilon)  # type: ignore[arg-type]  # no pure guarantee
    assert json.loads(gaussian.to_json())["dp_epsilon"] == "inf"
    assert math.isinf(qd.leakage(copy, 0.1, method="published-blanket").epsilon)  # Lemma 3 has nothing else
    for method in ("auto", "swing", "published", "propagation"):
        assert qd.leakage(copy, 0.1, method=method).epsilon == pytest.approx(0.2, rel=1e-9)
    assert qd.dp_epsilon(copy, 1.0) == pytest.approx(0.5, rel=1e-7)


def test_progress_ends_at_one() -> None:
    seen: list[float] = []
    analyze(families(2), progress=lambda _, share: seen.append(share))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"dp_epsilon": -0.1}, "dp_epsilon"),
        ({"dp_epsilon": math.nan}, "dp_epsilon"),
        ({"dp_epsilon": math.inf}, "dp_epsilon"),
        ({"dp_epsilon": 10**400}, "dp_epsilon"),
        ({"dp_epsilon": None}, "dp_epsilon"),
        ({"dp_epsilon": True}, "dp_epsilon"),
        ({"dp_epsilon": [0.1, 0.1, 0.1]}, "dp_epsilon"),
        ({"dp_epsilon": {"child": 0.1}}, "'mother'"),
        ({"dp_epsilon": {"mother": 0.1, "father": 0.1, "child": 0.1, "aunt": 0.1}}, "'aunt'"),
        ({"dp_epsilon": {"mother": -0.1, "father": 0.1, "child": 0.1}}, "'mother'"),
        ({"method": "best"}, "auto, group"),
        ({"method": "coupling"}, "informed"),
        ({"method": None}, "method"),
        ({"method": "lemma4"}, "chain"),
        ({"adversary": "nobody"}, "'nobody'"),
        ({"adversary": ["prior"]}, "adversary"),
        ({"adversary": "prior", "method": "gk16"}, "chain"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"window": 0}, "window"),
        ({"window": 2}, "chain"),
        ({"window": 1.5}, "window"),
        ({"protect": "child"}, "'child'"),
        ({"protect": 5}, "protect"),
        ({"protect": [5]}, "protect"),
        ({"protect": ["child"]}, "['child']"),
        ({"protect": []}, "empty"),
        ({"protect": {"kids": []}}, "'kids'"),
        ({"protect": {"kids": "child"}}, "['child']"),
        ({"protect": {"kids": 5}}, "'kids'"),
        ({"protect": {"kids": [5]}}, "'kids'"),
        ({"protect": {"kids": [["child"]]}}, "'kids'"),
        ({"protect": {"kids": ["aunt"]}}, "'aunt'"),
        ({"protect": {"both": ["child", "mother"]}, "method": "published"}, "single records"),
        ({"model": 5}, "load_model"),
    ],
    ids=str,
)
def test_one_clear_line(options: dict[str, Any], culprit: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        qd.leakage(**{"model": TRIPLE, "dp_epsilon": 0.1, **options})
    assert culprit in str(refused.value)
    assert "\n" not in str(refused.value)


def test_latents_are_not_protected_and_pay_nothing() -> None:
    hidden = TRIPLE.with_records(["mother", "child"])
    with pytest.raises(InvalidArgument, match="latent"):
        qd.leakage(hidden, 0.1, protect={"pa": ["father"]})
    with pytest.raises(InvalidArgument, match="latent"):
        qd.leakage(hidden, {"mother": 0.1, "father": 0.1, "child": 0.1})
    assert set(qd.leakage(hidden, 0.1).per_record) == {"mother", "child"}


def test_windows_and_sets_exclude_each_other() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        qd.leakage(CHAIN, 0.1, window=2, protect={"a": ["X0"]})


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, "x"])
def test_the_inverse_refuses_a_bad_target(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="epsilon"):
        qd.dp_epsilon(TRIPLE, bad)


def test_the_largest_alpha_does_not_depend_on_how_it_was_looked_for() -> None:
    """Leakages of larger α shorten the search; the answer passes a fresh look, and hardly more does."""
    noisy = [[0.8, 0.2], [0.3, 0.7]]
    tables = {"A": ([], [0.4, 0.6]), "B": (["A"], noisy), "C": (["B"], noisy), "D": (["B"], noisy)}
    model = qd.Model.from_tables(tables)
    for adversary, method in itertools.product(("informed", "prior"), ("auto", "published")):
        for weights in ({}, {"A": 0.25, "C": 0.5}):
            mechanism = qd.Laplace(sensitivity={n: weights.get(n, 1.0) for n in model.records})
            options: Any = {"adversary": adversary, "method": method}
            cal = qd.calibrate(model, 0.7, mechanism, compare=False, **options)
            sigmas = (cal.sigma, cal.sigma * (1 - 1e-6))
            fresh = [leakage_of(model, mechanism, scale=s, **options).epsilon for s in sigmas]
            assert fresh[0] <= 0.7 < fresh[1]
            assert fresh[0] == pytest.approx(0.7, rel=1e-8)


def test_an_alpha_of_a_stage_that_a_limit_ended_is_no_answer() -> None:
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    found = partial_answer(
        lambda: qd.dp_epsilon(chain, 1.0, time_limit=1e-9), r"limit was reached after stage"
    )
    assert 0.0 < found <= qd.dp_epsilon(chain, 1.0)


@pytest.mark.parametrize("method", ["auto", "swing"])
def test_units_with_too_many_values_fall_back(method: str) -> None:
    """5^17 values of a window: their pairs cannot be listed, and other bounds answer."""
    cycle = 0.999 * np.roll(np.eye(5), 1, axis=1) + 0.001 / 5
    found = qd.leakage(qd.markov_chain(cycle, 23, initial=[1, 0, 0, 0, 0]), 3.0, method, window=17)
    assert 17 * 3.0 <= found.epsilon <= 23 * 3.0 * (1 + 1e-9)

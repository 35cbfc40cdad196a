"""One contract for every method of both adversaries: sound, monotone, rounded up, on every shape.

The yardstick is computed here, independently of the library: a linear program over all α-DP
likelihoods h(x) on the full joint, for every adversary, written straight from the definition.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import example_models, models

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.accountant.leakage import LeakageProfile, analyze
from quiltdp.accountant.methods import available_methods
from quiltdp.errors import QuiltdpError
from quiltdp.inference import brute_force

ALPHA = 0.4
SHAPES = sorted(example_models())
EVERY = [
    (adversary, name)
    for adversary in ("informed", "prior")
    for name in ("auto", *available_methods(adversary))
]


def slow_limit(model: qd.Model, alpha: dict[str, float], adversary: str) -> dict[str, float]:
    """The worst mechanism by brute force: max P(y|x_i,x_S) / P(y|x_i',x_S) over h = P(y|x)."""
    records = list(model.records)
    joint = brute_force.marginal(model, records)
    states = list(np.ndindex(*joint.shape))
    rows = []
    for a, b in itertools.permutations(range(len(states)), 2):
        differ = [k for k in range(len(records)) if states[a][k] != states[b][k]]
        if len(differ) == 1:
            row = np.zeros(len(states))
            row[a], row[b] = 1.0, -np.exp(alpha[records[differ[0]]])
            rows.append(row)
    limits = {}
    for i, record in enumerate(records):
        others = [k for k in range(len(records)) if k != i]
        sizes = range(len(others) + 1) if adversary == "informed" else [0]
        best = 0.0
        for known in itertools.chain(*(itertools.combinations(others, s) for s in sizes)):
            for values in itertools.product(*(range(joint.shape[k]) for k in known)):
                fits = [all(x[k] == v for k, v in zip(known, values, strict=True)) for x in states]
                laws = []
                for v in range(joint.shape[i]):
                    law = np.array(
                        [joint[x] if f and x[i] == v else 0.0 for x, f in zip(states, fits, strict=True)]
                    )
                    laws.append(law / law.sum() if law.sum() > 0 else None)
                for p, q in itertools.permutations([law for law in laws if law is not None], 2):
                    found = linprog(
                        -p,
                        A_ub=np.array(rows) if rows else None,
                        b_ub=np.zeros(len(rows)) if rows else None,
                        A_eq=q[None],
                        b_eq=[1.0],
                    )
                    best = max(best, float(np.log(max(-found.fun, 1.0))))
        limits[record] = best
    return limits


@cache
def profile_of(shape: str, adversary: str, method: str) -> LeakageProfile | None:
    """The method on one shape, or ``None`` where it does not apply."""
    try:
        return analyze(example_models()[shape], method=method, adversary=adversary)
    except QuiltdpError:
        return None


@cache
def limit_of(shape: str, adversary: str) -> dict[str, float]:
    """The limit at ALPHA, by brute force where that takes moments."""
    model = example_models()[shape]
    if len(model.records) <= 3:
        return slow_limit(model, dict.fromkeys(model.records, ALPHA), adversary)
    return dict(qd.leakage(model, ALPHA, "exact", adversary).per_record)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("adversary", "method"), EVERY)
def test_no_method_is_below_the_limit(shape: str, adversary: str, method: str) -> None:
    model = example_models()[shape]
    profile = profile_of(shape, adversary, method)
    if profile is None:
        return
    found = profile.leakage(ALPHA)
    yardstick = limit_of(shape, adversary)
    for record in model.records:
        assert found.per_record[record] >= yardstick[record] - 1e-7
    assert found.epsilon == max(found.per_record.values())
    assert found.epsilon == found.per_record[found.binding.unit]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("adversary", "method"), EVERY)
def test_every_method_is_monotone_and_vanishes(shape: str, adversary: str, method: str) -> None:
    model = example_models()[shape]
    profile = profile_of(shape, adversary, method)
    if profile is None:
        return
    values = [profile.epsilon(a) for a in (0.0, 0.01, ALPHA, 2.0)]
    assert values[0] == 0.0
    assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(values))
    if method in ("auto", "group", "exact", "chain"):
        largest = max(len(c) for c in qd.moralize(model).components())
        assert values[1] <= 0.01 * largest * (1 + 1e-9)


@settings(max_examples=25)
@given(models(max_nodes=4), st.sampled_from([0.05, 0.7, 3.0]), st.sampled_from(["informed", "prior"]))
def test_auto_is_sound_and_no_worse_than_any_method(model: qd.Model, alpha: float, adversary: str) -> None:
    if len(model.records) > 3:
        return
    yardstick = slow_limit(model, dict.fromkeys(model.records, alpha), adversary)
    best = qd.leakage(model, alpha, adversary=adversary)
    for record in model.records:
        assert best.per_record[record] >= yardstick[record] - 1e-7
    for method in available_methods(adversary):
        try:
            other = qd.leakage(model, alpha, method, adversary)
        except QuiltdpError:
            continue
        assert best.epsilon <= other.epsilon * (1 + 1e-9) + 1e-12, method
        for record in model.records:
            assert other.per_record[record] >= yardstick[record] - 1e-7, method


@settings(max_examples=25)
@given(models(max_nodes=4), st.integers(0, 2**32 - 1), st.sampled_from(["informed", "prior"]))
def test_unequal_alphas_are_sound(model: qd.Model, seed: int, adversary: str) -> None:
    if len(model.records) > 3:
        return
    rng = np.random.default_rng(seed)
    alpha = {r: float(rng.choice([0.0, 0.1, 0.5, 2.0])) for r in model.records}
    yardstick = slow_limit(model, alpha, adversary)
    for method in ("auto", *available_methods(adversary)):
        if (
            available_methods(adversary).get(method) is not None
            and available_methods(adversary)[method].kind == "published"
        ):
            continue
        try:
            found = qd.leakage(model, alpha, method, adversary)
        except QuiltdpError:
            continue
        for record in model.records:
            assert found.per_record[record] >= yardstick[record] - 1e-7, (method, record)


def test_a_prior_adversary_never_learns_more_than_an_informed_one() -> None:
    for shape, model in example_models().items():
        informed, prior = (profile_of(shape, a, "auto") for a in ("informed", "prior"))
        assert informed is not None
        assert prior is not None
        informed, prior = informed.leakage(ALPHA), prior.leakage(ALPHA)
        for record in model.records:
            assert prior.per_record[record] <= informed.per_record[record] * (1 + 1e-9) + 1e-12

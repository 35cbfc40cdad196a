"""Bounds against the prior adversary with prices, each by itself against the exact limit with prices."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from prior_oracle import random_dag, random_pedigree

from quiltdp import Model
from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary
from quiltdp.accountant.bounds.contract import Problem
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.accountant.bounds.forward_backward import ForwardBackwardBound
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.propagation import PropagationBound
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

BOUNDS = {
    "coupling": (CouplingBound, PRIOR),
    "sparse coupling": (partial(CouplingBound, sparse=1.0), PRIOR),
    "forward-backward": (ForwardBackwardBound, PRIOR),
    "forward-backward, small groups": (partial(ForwardBackwardBound, max_group=2), PRIOR),
    "forward-backward, no laws": (partial(ForwardBackwardBound, max_entries=1), PRIOR),
    "propagation": (PropagationBound, INFORMED),
}


def random_prices(rng: np.random.Generator, model: Model) -> dict[str, np.ndarray]:
    """Differences of random values, the largest 1, or steps of a random metric; some records stay flat."""
    found = {}
    for n in model.records:
        size = model.cardinality(n)
        if size > 2 and rng.random() < 0.8:
            v = rng.random((size, int(rng.integers(1, 3)))).cumsum(axis=0)
            table = np.abs(v[:, None] - v[None]).sum(axis=2)
            found[n] = table / table.max()
    return found


def compared(seed: int, who: Adversary) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A random network or inbred family with prices, its α, and its exact limit."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        model, alpha = random_dag(seed, max_nodes=6, max_joint=80 if who is PRIOR else 30)
    else:
        model = random_pedigree(rng, int(rng.integers(4, 8)), inbred=bool(seed % 4))
        count = 4 if who is PRIOR else 3
        model = model.with_records(
            sorted(rng.choice(model.nodes, min(count, len(model.nodes)), replace=False))
        )
        alpha = np.where([model.is_record(n) for n in model.nodes], rng.choice([0.05, 0.3, 1.0, 2.0]), 0.0)
    problem = Problem(model, adversary=who, prices=random_prices(rng, model))
    return problem, alpha, evaluated(ExactBound, problem, alpha)


def evaluated(kind: object, problem: Problem, alpha: np.ndarray) -> np.ndarray:
    bound = kind(problem)
    bound.prepare(Workspace(problem.model), WorkBudget())
    return bound.evaluate(alpha).values


def telling_records(name: str, seeds: range) -> int:
    """Compare a bound with the limit; return how many records it says more about than group privacy."""
    kind, who = BOUNDS[name]
    telling = 0
    for seed in seeds:
        problem, alpha, limit = compared(seed, who)
        found = evaluated(kind, problem, alpha)
        assert np.all(found >= limit * (1 - 1e-7) - 1e-9), f"{name}, seed {seed}"  # its own accuracy
        telling += int((found < 0.95 * alpha.sum()).sum())
    return telling


@pytest.mark.parametrize("name", BOUNDS)
def test_no_bound_with_prices_is_below_the_limit(name: str) -> None:
    assert telling_records(name, range(24)) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_many_bounds_with_prices(name: str) -> None:
    assert telling_records(name, range(1000, 1600)) >= 300


def test_prices_pay() -> None:
    problem, alpha, _ = compared(4, PRIOR)
    flat = Problem(problem.model, adversary=PRIOR)
    for name in ("coupling", "sparse coupling", "forward-backward"):
        kind, _ = BOUNDS[name]
        assert evaluated(kind, problem, alpha).sum() < evaluated(kind, flat, alpha).sum()

"""(ε, δ) by pairings on a path: refusals, what is free, and long chains against position by position."""

from __future__ import annotations

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds import Problem, Vector
from quiltdp.accountant.leakage import paired_bound
from quiltdp.accountant.leakage.paired_bound import PairedChainBound, PairedPriorChainBound
from quiltdp.errors import InvalidArgument
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms.gaussian import GaussianProfile
from quiltdp.work import WorkBudget

BOUNDS = [PairedChainBound, PairedPriorChainBound]
LENGTH, EPSILON, NOISE = 40, 1.0, GaussianProfile(12.0)


def deltas(kind: type[PairedChainBound], weights: Vector) -> Vector:
    """Return δ of every step of a chain of ``LENGTH``."""
    model = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=LENGTH)
    bound = kind(Problem(model))
    bound.prepare(Workspace(model), WorkBudget())
    weighed = bound.weigh(weights)
    return weighed.evaluate(NOISE, EPSILON).values[weighed.where]


@pytest.mark.parametrize("kind", BOUNDS)
def test_one_pairing_for_every_position_is_never_below_its_own(
    kind: type[PairedChainBound], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = deltas(kind, np.ones(LENGTH))
    monkeypatch.setattr(paired_bound, "STEP_BY_STEP", 2)
    shared = deltas(kind, np.ones(LENGTH))
    assert len(set(shared.tolist())) == 1
    assert np.all(own <= shared * (1 + 1e-6))
    assert shared.max() <= 1.2 * own.max()
    # the ends have one side only
    assert own[0] < own[LENGTH // 2]


@pytest.mark.parametrize("kind", BOUNDS)
def test_correlation_costs_and_less_sensitivity_costs_less(kind: type[PairedChainBound]) -> None:
    own = deltas(kind, np.ones(LENGTH))
    assert np.all(own >= NOISE.delta(EPSILON, 1.0))  # as if the other steps were independent
    assert own.max() < NOISE.delta(EPSILON, float(LENGTH))  # group privacy
    assert np.all(deltas(kind, np.full(LENGTH, 0.5)) <= own)


def test_what_is_not_read_leaks_nothing_and_no_epsilon_promises_nothing() -> None:
    assert deltas(PairedChainBound, np.zeros(LENGTH)).tolist() == [NOISE.delta(EPSILON, 0.0)] * LENGTH
    model = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=4)
    bound = PairedChainBound(Problem(model))
    bound.prepare(Workspace(model), WorkBudget())
    assert bound.weigh(np.ones(4)).evaluate(NOISE, 0.0).values.tolist() == [1.0] * 4


@pytest.mark.parametrize("kind", BOUNDS)
def test_a_model_that_is_no_path_is_refused(kind: type[PairedChainBound]) -> None:
    with pytest.raises(InvalidArgument, match="one connected path"):
        kind(Problem(qd.example("asia")))

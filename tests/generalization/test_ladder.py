"""The Ladder, a baseline: its transcripts are counted by playing it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.generalization.concentration import concentration
from quiltdp.generalization.routes import ladder_accuracy, log_transcripts


def transcripts(queries, step):
    """Play every sequence of scores; return the distinct histories before each query."""
    scores = np.linspace(0.0, 1.0, 41)
    found, now = set(), {()}
    for _ in range(queries):
        found |= now
        later = set()
        for history in now:
            best = next((h for h in reversed(history) if h is not None), math.inf)
            for score in scores:
                falls = score < best - step
                told = round(math.floor(score / step + 0.5) * step, 12)
                later.add((*history, told if falls else None))
        now = later
    return found


@pytest.mark.parametrize("step", [0.5, 0.3, 0.2])
@pytest.mark.parametrize("queries", [1, 2, 4])
def test_no_ladder_has_more_transcripts_than_counted(step, queries):
    assert math.log(len(transcripts(queries, step))) <= log_transcripts(queries, step) + 1e-9


def test_the_ladder_keeps_its_promise_where_an_analyst_overfits():
    rng = np.random.default_rng(3)
    n, queries, step = 400, 200, 0.05
    promise = ladder_accuracy(concentration(qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], n)), queries, 0.05)
    for _ in range(5):
        labels = rng.integers(0, 2, n)
        best, told, kept = math.inf, 1.0, rng.integers(0, 2, n)
        for _ in range(queries):
            trial = np.where(rng.random(n) < 0.1, 1 - kept, kept)
            loss = float((trial != labels).mean())
            if loss < best - step:
                best, kept = math.floor(loss / step + 0.5) * step, trial
                told = best
        assert abs(told - 0.5) <= promise  # every classifier has the population loss one half


def test_more_records_are_better_and_nonsense_is_refused():
    small, large = (concentration(qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], n)) for n in (1000, 8000))
    assert ladder_accuracy(large, 100, 0.05) < ladder_accuracy(small, 100, 0.05)
    with pytest.raises(InvalidArgument, match="step from 0 to 1"):
        log_transcripts(10, 0.0)

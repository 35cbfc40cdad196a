"""Quilts must look at every set L of known nearby records: the empty one alone is unsound.

The model is an exclusive or: q₁ and q₂ are noisy copies of I ⊕ N.  Without N they say nothing about
I, so the quilt C = {I, N} has no swing at L = ∅; an adversary who knows N reads I off them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.mechanisms.gaussian import GaussianProfile
from quiltdp.mechanisms.group_profiles import EventProfile

RIGHT = 0.99
XOR = [[[RIGHT, 1 - RIGHT], [1 - RIGHT, RIGHT]], [[1 - RIGHT, RIGHT], [RIGHT, 1 - RIGHT]]]
COIN = ([], [0.5, 0.5])
MODEL = qd.Model.from_tables({"I": COIN, "N": COIN, "q1": (["I", "N"], XOR), "q2": (["I", "N"], XOR)})


@pytest.mark.parametrize("method", ["auto", "exact", "swing", "propagation", "published", "group"])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_randomised_response_seen_by_one_who_knows_the_other_coin(method: str, alpha: float) -> None:
    answer = math.exp(alpha)
    copy = math.log(RIGHT * answer + 1 - RIGHT) - math.log((1 - RIGHT) * answer + RIGHT)
    truth = alpha + 2 * copy
    assert truth > 2.5 * alpha or alpha > 1
    assert qd.leakage(MODEL, alpha, method).per_record["I"] >= truth


@pytest.mark.parametrize("method", ["auto", "exact", "swing", "propagation", "published", "group"])
def test_a_coin_that_is_not_read_can_still_be_known(method: str) -> None:
    alpha = {"I": 0.5, "N": 0.0, "q1": 1.0, "q2": 0.0}
    truth = 0.5 + math.log(RIGHT * math.e + 1 - RIGHT) - math.log((1 - RIGHT) * math.e + RIGHT)
    assert qd.leakage(MODEL, alpha, method).per_record["I"] >= truth


@pytest.mark.parametrize("std", [1.0, 3.0, 10.0])
def test_gaussian_sum_seen_by_one_who_knows_the_other_coin(std: float) -> None:
    """The hockey-stick divergence of two mixtures of I + q₁ + q₂ + noise, by the trapezoid rule."""
    epsilon = 0.5
    y = np.linspace(-10 * std, 3 + 10 * std, 20_001)

    def density(one: float, shift: int) -> np.ndarray:
        law = {0: (1 - one) ** 2, 1: 2 * one * (1 - one), 2: one**2}
        bells = [w * np.exp(-0.5 * ((y - k - shift) / std) ** 2) for k, w in law.items()]
        return np.sum(bells, axis=0) / (std * math.sqrt(2 * math.pi))

    excess = np.maximum(density(RIGHT, 1) - math.exp(epsilon) * density(1 - RIGHT, 0), 0.0)
    truth = float(np.sum(0.5 * (excess[1:] + excess[:-1]) * np.diff(y)))
    deltas = DeltaProfile(MODEL).deltas(GaussianProfile(std), epsilon)
    assert deltas[0] >= truth * (1 - 1e-6)


def test_k_records_count_as_k_in_an_event() -> None:
    """Independent records: nothing is rounded up to a group of two."""
    dp_accounting = pytest.importorskip("dp_accounting")
    event = EventProfile(dp_accounting.LaplaceDpEvent(noise_multiplier=2.0))
    model = qd.Model.from_tables({"A": COIN, "B": COIN})
    assert DeltaProfile(model).delta(event, 0.4) == event.delta(0.4, 1)
    chain = qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], length=50)
    assert DeltaProfile(chain).delta(event, 0.4) <= event.delta(0.4 - 1e-6, 1)  # far below that of two


# -- paths: both sides, every position, every step of a window ---------------------------------


def test_both_sides_of_a_path_count() -> None:
    """A rare state that lasts: 17 steps, the middle one attacked, the noisy sum of all published."""
    p = np.array([[0.999, 0.001], [0.05, 0.95]])
    half, epsilon = 8, 13.0
    sums = {}
    for x in (0, 1):  # reversible, so each side runs like the chain: law[state, sum of one side]
        law = np.zeros((2, half + 1))
        law[x, 0] = 1.0
        for _ in range(half):
            moved = p.T @ law
            law = np.stack([moved[0], np.roll(moved[1], 1)])
        side = law.sum(axis=0)
        sums[x] = np.convolve(side, side)
    y = np.linspace(-12, 30, 20_001)
    bell = np.exp(-0.5 * (y[None, :] - np.arange(2 * half + 2)[:, None]) ** 2) / math.sqrt(2 * math.pi)
    excess = np.maximum(sums[1] @ bell[1:] - math.exp(epsilon) * (sums[0] @ bell[:-1]), 0.0)
    truth = float(np.sum(0.5 * (excess[1:] + excess[:-1]) * np.diff(y)))
    deltas = DeltaProfile(qd.markov_chain(p, 2 * half + 1)).deltas(GaussianProfile(1.0), epsilon)
    assert deltas[half] >= truth * (1 - 1e-6) > 0.05


def test_the_strongest_step_of_a_path_counts() -> None:
    forgets, copies = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
    chain = qd.markov_chain([forgets, forgets, copies, forgets, forgets], 6, [0.5, 0.5])
    for epsilon, std in [(0.2, 4.0), (1.0, 1.0)]:
        deltas = DeltaProfile(chain).deltas(GaussianProfile(std), epsilon)
        assert deltas[2] >= GaussianProfile(std).delta(epsilon, 2.0) * (1 - 1e-9)


def test_every_step_of_a_window_counts() -> None:
    chain = qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], length=20)
    found = DeltaProfile(chain, window=3).delta(GaussianProfile(4.0), 0.5)
    three = GaussianProfile(4.0).delta(0.5, 3.0)
    assert three * (1 - 1e-9) <= found <= three * (1 + 1e-6)

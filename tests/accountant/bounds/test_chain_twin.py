"""Chains against a twin in 50 digits: every nearest known record listed, nothing merged, no tail."""

from __future__ import annotations

from collections.abc import Sequence

import fifty_digits
import numpy as np
import pytest
from mpmath import mp, mpf

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, parse_adversary
from quiltdp.accountant.bounds import chain as chains
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.contract import Problem, ready
from quiltdp.inference import plan
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

Pairs = np.ndarray  # of mpf, by two states


def coupled(laws: Pairs, message: Pairs, price: mpf) -> Pairs:
    """T of the laws of every two states, of what lies beyond a step and its price."""
    found = np.full((len(laws),) * 2, mpf(0))
    for x, y in np.ndindex(found.shape):
        p, q = np.flatnonzero(laws[x]), np.flatnonzero(laws[y])
        if x != y and len(p) and len(q):
            cost = [[message[i, k] + (price if i != k else 0) for k in q] for i in p]
            found[x, y] = fifty_digits.transport(list(laws[x][p]), list(laws[y][q]), cost)
    return found


def column(
    tables: Sequence[Pairs], tilt: Pairs, first: int, alpha: Sequence[mpf], free: bool, skips: bool
) -> dict[int, Pairs]:
    """Messages at all positions inwards of ``first``, where the evidence has that tilt.

    ``tables[j]`` leads from position j to j − 1.  A record that is known is no step; where nothing is known,
    the end of the path is one.  With ``skips`` any step outwards may be the next, all between being paid.
    """
    lowest = first if free else first + 1
    laws: dict[int, Pairs] = {}
    found = {lowest: np.full((len(tilt),) * 2, mpf(0))}
    for j in range(first + 1, len(alpha)):
        weighed = tables[j] * tilt
        tilt = weighed.sum(axis=1)
        laws[j] = weighed / np.where(tilt == 0, mpf(1), tilt)[:, None]
        if j <= lowest:
            continue
        law, passed, best = laws[j], mpf(0), np.full((len(tilt),) * 2, sum(alpha[lowest:j], mpf(0)))
        for u in range(j - 1, lowest - 1, -1):
            if skips or u == j - 1:
                best = np.minimum(best, passed + coupled(law, found[u], alpha[u]))
            passed += alpha[u]
            law = law @ laws[u] if u > lowest else law
        np.fill_diagonal(best, mpf(0))
        found[j] = np.where((tilt == 0)[:, None] | (tilt == 0), mpf(0), best)
    return found


def side(
    tables: Sequence[Pairs], end: Pairs, alpha: Sequence[mpf], known: bool, skips: bool, alike: bool
) -> list[Pairs]:
    """What one side says at worst of every pair, from its end; ``alike``: all tables and α are one."""
    worst = list(column(tables, end, 0, alpha, True, skips).values())
    possible = end
    for first in range(len(alpha) - 1 if known else 0):
        for v in np.flatnonzero(possible) if not (alike and first) else ():
            tilt = np.where(np.arange(len(end)) == v, mpf(1), mpf(0))
            for j, message in column(tables, tilt, first, alpha, False, skips).items():
                for k in range(j, len(alpha)) if alike else (j,):
                    worst[k] = np.maximum(worst[k], message)
        possible = tables[first + 1] @ possible
    return worst


def twin(
    tables: Sequence[np.ndarray],
    start: np.ndarray,
    alpha: Sequence[float],
    known: bool,
    skips: bool,
    alike: bool,
) -> list[mpf]:
    """The leakage of every step; ``tables[t]`` leads from step t to step t + 1."""
    exact = np.vectorize(lambda v: mpf(float(v)), otypes=[object])
    with mp.workdps(50):
        count, cost = len(alpha), [mpf(float(a)) for a in alpha]
        forth = [exact(t) for t in tables]
        ones = np.full(len(start), mpf(1))
        after = side([ones, *forth[::-1]], ones, cost[::-1], known, skips, alike)[::-1]
        before = side([ones, *(t.T for t in forth)], exact(start), cost, known, skips, alike)
        found, law = [], exact(start)
        for t in range(count):
            both = np.flatnonzero(law)
            said = [after[t][x, y] + before[t][x, y] for x in both for y in both if x != y]
            found.append(cost[t] + max(said) if said else mpf(0))
            law = law if t == count - 1 else law @ forth[t]
        return found


def drawn(
    seed: int, states: int, length: int, alike: bool
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Tables, a start and α; not ``alike``: zeros, tiny masses, unequal α, some of them 0."""
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.full(states, 1.5), size=(1 if alike else length - 1, states)) + 1e-3
    start, alpha = rng.dirichlet(np.ones(states)), np.full(length, rng.choice([0.05, 0.6, 3.0]))
    if not alike:
        tables[rng.random(tables.shape) < 0.15] = rng.choice([0.0, 1e-30])
        tables[:, np.arange(states), np.arange(states)] += 0.1
        alpha = rng.choice([0.0, 0.2, 1.0, 2.5], size=length)
        alpha[length // 2] = 0.7
    tables /= tables.sum(axis=-1, keepdims=True)
    return list(tables) * (length - 1 if alike else 1), start, alpha


def check(seed: int, states: int, length: int, who: Adversary, *, alike: bool = False) -> None:
    """The bound is above its twin, and near it where nothing is merged."""
    tables, start, alpha = drawn(seed, states, length, alike)
    chain = qd.markov_chain(tables[0] if alike else tables, length if alike else None, initial=start)
    found = ready(ChainBound, chain, adversary=who).evaluate(alpha).values
    skips = length <= 64
    for value, true in zip(found, twin(tables, start, alpha, who is INFORMED, skips, alike), strict=True):
        assert mpf(float(value)) >= true
        assert value <= float(true) * (2.0 if skips else 1.002) + 1e-9


@pytest.mark.parametrize("who", [INFORMED, PRIOR], ids=["informed", "prior"])
@pytest.mark.parametrize(("seed", "states", "length"), [(0, 2, 6), (1, 3, 5), (2, 2, 5)])
def test_short_chains(seed: int, states: int, length: int, who: Adversary) -> None:
    check(seed, states, length, who)


@pytest.mark.slow
@pytest.mark.parametrize("who", [INFORMED, PRIOR], ids=["informed", "prior"])
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_short_chains(seed: int, who: Adversary) -> None:
    check(seed, 2 + seed % 3, 8 - seed % 3, who)


@pytest.mark.parametrize("merged", [0.3, 3.0])
@pytest.mark.parametrize("alike", [True, False])
def test_evidence_that_is_merged_at_once(alike: bool, merged: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever joins the tail is below it: the certificate, not the listed columns, speaks."""
    monkeypatch.setattr(chains, "CHAIN_MERGED", ((merged, 1.0),))
    monkeypatch.setattr(plan, "EVIDENCE_LISTED", 0)
    monkeypatch.setattr(chains, "_SHORT", 0)  # no skips
    for seed in range(3):
        tables, start, alpha = drawn(seed, 2, 6 if not alike else 12, True)
        if not alike:
            alpha = alpha * np.linspace(0.5, 1.5, len(alpha))
        chain = qd.markov_chain(tables[0], len(alpha), initial=start)
        found = ready(ChainBound, chain).evaluate(alpha).values
        for value, true in zip(found, twin(tables, start, alpha, True, not alike, alike), strict=True):
            assert mpf(float(value)) >= true


@pytest.mark.parametrize(
    ("states", "length"),
    [(2, 66), pytest.param(3, 120, marks=pytest.mark.slow), pytest.param(2, 600, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("who", [INFORMED, PRIOR], ids=["informed", "prior"])
def test_long_chains_and_their_tail(states: int, length: int, who: Adversary) -> None:
    check(states + length, states, length, who, alike=True)


def test_a_fixed_point_that_is_not_reached_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut short, the search stops below what the chain says: only the certificate notices."""
    slow = qd.markov_chain([[0.99, 0.01], [0.02, 0.98]], 100_000)
    alpha = np.full(100_000, 0.3)
    true = ready(ChainBound, slow, adversary=PRIOR).evaluate(alpha).values.max()
    monkeypatch.setattr(chains, "_ROUNDS", 2)
    assert ready(ChainBound, slow, adversary=PRIOR).evaluate(alpha).values.max() >= true * (1 - 1e-9)


def test_evidence_in_the_tail_moves_both_laws_of_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing known, X0 cannot be told; known, X2 raises ln E h of one law as much as it lowers the other."""
    monkeypatch.setattr(chains, "CHAIN_MERGED", ((3.0, 1.0),))
    monkeypatch.setattr(plan, "EVIDENCE_LISTED", 0)
    first = np.kron(np.eye(2), np.full((2, 2), 0.5))
    second = np.zeros((4, 4))
    second[:, 0], second[:, 1] = [0.8, 0.2, 0.8, 0.2], [0.2, 0.8, 0.2, 0.8]
    chain = qd.markov_chain([first, second], initial=np.full(4, 0.25))
    level = np.array([0.0, 1.0, 1.0, 0.0])
    bound = ChainBound(Problem(chain, None, INFORMED, 1, {"X1": np.abs(level[:, None] - level)}))
    bound.prepare(Workspace(chain), WorkBudget())
    attained = 0.5 + np.log((0.8 + 0.2 * np.exp(-1.0)) / (0.8 * np.exp(-1.0) + 0.2))
    assert bound.evaluate(np.array([0.5, 1.0, 0.5])).values[0] >= attained


def test_evidence_that_rules_states_out_does_not_stay_in_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """X3 tells which half X1 is in: within it X0 is told better, and no tilt makes that of the free laws."""
    monkeypatch.setattr(chains, "CHAIN_MERGED", ((3.0, 1.0),))
    monkeypatch.setattr(plan, "EVIDENCE_LISTED", 0)
    first = np.array([[0.4, 0.1, 0.1, 0.4], [0.1, 0.4, 0.1, 0.4]] * 2)
    halves = np.kron(np.eye(2), np.full((2, 2), 0.5))
    which = np.kron(np.eye(2), [[1.0, 0.0], [1.0, 0.0]])
    chain = qd.markov_chain([first, halves, which], initial=np.full(4, 0.25))
    attained = 0.5 + np.log((0.8 * np.e + 0.2) / (0.2 * np.e + 0.8))
    bound = ready(ChainBound, chain, adversary=parse_adversary("knows=X3"))
    assert bound.evaluate(np.array([0.5, 1.0, 0.01, 0.01])).values[0] >= attained


@pytest.mark.parametrize("matrix", [[[0.9, 0.1], [0.02, 0.98]], [[0.9, 0.1], [0.3, 0.7]]])
def test_an_endless_tail_is_above_every_column(matrix: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged at once, beside the same chain with every known record listed."""
    chain, alpha = qd.markov_chain(matrix, 121, "stationary"), np.full(121, 0.1)  # type: ignore[arg-type]
    found = []
    for near, listed in ((1e-13, 1000), (1e-3, 0), (1.0, 0), (3.0, 0)):
        monkeypatch.setattr(chains, "CHAIN_MERGED", ((near, 1.0),))
        monkeypatch.setattr(plan, "EVIDENCE_LISTED", listed)
        monkeypatch.setattr(chains, "_SHORT", 0)
        found.append(ready(ChainBound, chain).evaluate(alpha).values)
    assert all((merged >= found[0]).all() for merged in found[1:])


def test_an_endless_tail_of_two_phases_moves_both_laws_of_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records two steps before and after tell X200 as much as in the short chain above; unknown, nothing."""
    monkeypatch.setattr(chains, "CHAIN_MERGED", ((3.0, 1.0),))
    monkeypatch.setattr(plan, "EVIDENCE_LISTED", 0)
    halves, told = np.kron(np.eye(2), np.full((2, 2), 0.5)), np.zeros((4, 4))
    told[:, 0], told[:, 2] = [0.8, 0.2, 0.8, 0.2], [0.2, 0.8, 0.2, 0.8]
    chain = qd.markov_chain([halves, told] * 200, initial=[0.5, 0.0, 0.5, 0.0])
    level = np.array([0.0, 1.0, 1.0, 0.0])
    prices = {f"X{k}": np.abs(level[:, None] - level) for k in range(1, 401, 2)}
    bound = ChainBound(Problem(chain, None, INFORMED, 1, prices))
    bound.prepare(Workspace(chain), WorkBudget())
    attained = 0.01 + 2.0 * np.log((0.8 * np.e + 0.2) / (0.2 * np.e + 0.8))
    assert bound.evaluate(np.where(np.arange(401) % 2, 1.0, 0.01)).values[200] >= attained

"""Pairings: (ε, δ) with contraction, against integration, 50 digits, and the figures they are known for."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from gaussian_oracle import aligned_query, hockey_stick, hypotheses, joint, random_query

import quiltdp as qd
from quiltdp.accountant.delta import DeltaProfile
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.flows import transport_flows
from quiltdp.accountant.leakage.paired import Pairing, WeightLaw, coarsened, joined, mixed, moved, units_of
from quiltdp.accountant.leakage.paired_chain import endless_side, side_laws
from quiltdp.accountant.leakage.paired_states import state_side
from quiltdp.accountant.leakage.transport import transport
from quiltdp.mechanisms.gaussian import GaussianProfile

# -- flows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_flows_are_pairings_and_near_the_best(size: int) -> None:
    rng = np.random.default_rng(size)
    p, q = (rng.dirichlet(np.full(size, 0.4), size=200) for _ in range(2))
    p[::3] = np.where(rng.random(p[::3].shape) < 0.3, 0.0, p[::3])
    p[p.sum(axis=1) == 0.0] = np.eye(size)[0]
    p /= p.sum(axis=1, keepdims=True)
    d = rng.exponential(size=(200, size, size))
    d[:, np.arange(size), np.arange(size)] = 0.0
    value, f = transport_flows(p, q, d)
    assert (f >= 0).all()
    assert np.allclose(f.sum(axis=2), p, rtol=1e-14, atol=0)
    assert (np.einsum("bij,bij->bj", f, np.exp(d)) <= np.exp(value)[:, None] * q * (1 + 1e-14)).all()
    assert np.allclose(value, transport(p, q, d), atol=1e-9)


def test_laws_that_agree_stay_where_they_are() -> None:
    p = np.array([[0.2, 0.0, 0.8]])
    value, f = transport_flows(p, p, np.array([[[0.0, 1, 1], [1, 0, 1], [1, 1, 0]]]))
    assert value[0] < 1e-13
    assert np.allclose(f[0], np.diag(p[0]))


# -- laws ----------------------------------------------------------------------------------------


def test_laws_join_move_and_keep_their_mass() -> None:
    a, b = WeightLaw(np.array([0.5, 0.25]), 0.25), WeightLaw(np.array([0.75, 0.0, 0.25]))
    both = joined(a, b)
    assert both.masses.sum() + both.tail == pytest.approx(1.0)
    assert moved(a, 2).masses.tolist() == [0.0, 0.0, 0.5, 0.25]
    long = WeightLaw(np.full(10, 1e-40))
    assert joined(long, WeightLaw(np.ones(1))).tail >= 9e-40


@pytest.mark.parametrize(
    "weights", [[1.0, 1.0], [0.5, 1.0, 0.0], [0.1, 0.3], [1.0, math.pi], [1e-9, 2.0], [0.0]]
)
def test_units_never_understate_a_sensitivity(weights: list[float]) -> None:
    unit, counts = units_of(np.array(weights))
    assert (counts * unit >= np.array(weights) * (1 - 1e-16)).all()
    assert (counts * unit <= np.array(weights) + max(weights) / 4 + 1e-15).all()


def test_blocks_and_steps_agree_far_from_the_end() -> None:
    """The endless side is the limit of the side that is walked step by step."""
    c, rate = np.array([1.7, 0.9, 0.5]), 0.2
    walked = side_laws(lambda k, d, o: phi(c[: len(d)], o), [1, 2, 3], [1] * 60, rate)
    endless = endless_side(lambda o: phi(c, o), [1, 2, 3], rate, 50.0)
    assert endless is not None
    assert walked.tolls[-1] == pytest.approx(endless.toll, rel=1e-6)
    assert (np.diff(walked.tolls) >= -1e-12).all()
    far = walked.laws[-1].masses[:20]
    assert np.allclose(far, endless.law(1).masses[:20], rtol=1e-6, atol=1e-12)
    twice = joined(endless.law(1), endless.law(1)).masses[:30]
    assert np.allclose(endless.twice(1).masses[:30], twice, rtol=1e-9)


def test_a_law_that_cannot_forget_has_no_endless_side() -> None:
    assert endless_side(lambda o: o, [1], 0.1, 50.0) is None
    identity = state_side(np.eye(2), 0.1, 50.0)
    assert identity is None


def test_coarse_laws_overstate_weights_and_understate_gains() -> None:
    rng = np.random.default_rng(3)
    law = WeightLaw(rng.dirichlet(np.full(50, 0.3)))
    profile = GaussianProfile(9.0)
    fine = Pairing(0.3, law, 1.0).delta(profile, 1.0, 0.05, 1.0)
    for step in (2, 3, 7):  # weights rounded up
        coarse = coarsened(law, step)
        assert coarse.masses.sum() == pytest.approx(1.0)
        found = Pairing(0.3, coarse, 1.0).delta(profile, 1.0, 0.05, 1.0)
        assert fine <= found
        both, twice = joined(law, law), joined(coarse, coarse)
        assert Pairing(0.3, both, 1.0).delta(profile, 1.0, 0.05, 1.0) <= Pairing(0.3, twice, 1.0).delta(
            profile, 1.0, 0.05, 1.0
        )
    shifted = moved(coarsened(law, 4), 5)
    assert Pairing(0.3, moved(law, 5), 1.0).delta(profile, 1.0, 0.05, 1.0) <= Pairing(
        0.3, shifted, 1.0
    ).delta(profile, 1.0, 0.05, 1.0)


def test_laws_of_different_steps_add_up_in_units() -> None:
    """Steps of 2 and of 3 units share steps of 6: every weight is counted for at least what it is."""
    two, three = WeightLaw(np.eye(5)[4], 0.0, 2, 1), WeightLaw(np.eye(4)[3], 0.0, 3, 2)  # 8 and 9 units
    both = joined(two, three)
    assert np.flatnonzero(both.masses)[0] * both.step >= 17
    assert np.flatnonzero(both.masses)[0] * both.step - both.excess <= 7 + 7
    either = mixed([(0.25, two), (0.75, three)], tail=0.5)
    heavy = np.flatnonzero(either.masses) * either.step
    assert heavy.min() >= 9
    assert heavy.max() - either.excess <= 7
    assert either.tail >= 0.5
    assert either.masses.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="do not make"):
        coarsened(two, 3)


# -- fifty digits --------------------------------------------------------------------------------


def _mp_delta(epsilon: mpmath.mpf, shift: mpmath.mpf) -> mpmath.mpf:
    a, b = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    return mpmath.ncdf(a) - mpmath.exp(epsilon) * mpmath.ncdf(b)


@pytest.mark.parametrize(("flip", "rate", "std", "epsilon"), [(0.3, 0.4, 9.7, 1.0), (0.45, 1.3, 3.0, 0.5)])
def test_blocks_are_above_the_same_theorem_in_fifty_digits(
    flip: float, rate: float, std: float, epsilon: float
) -> None:
    """The informed theorem from its own formulas: toll ln 1/ρ, φ̄ = (√(aρ)−1)²/(ρ(a−1)), geometric law."""
    with mpmath.workdps(50):
        odds = (mpmath.mpf(1 - flip) / mpmath.mpf(flip)) ** 2

        def phi_bar(rho: mpmath.mpf) -> mpmath.mpf:
            return (mpmath.sqrt(odds * rho) - 1) ** 2 / (rho * (odds - 1))

        rho = mpmath.findroot(
            lambda r: r + (1 - r) / phi_bar(r) - mpmath.exp(mpmath.mpf(rate)),
            (1 / odds * 1.01, 0.9999),
            solver="anderson",
        )
        phi_true = phi_bar(rho)
        exact = mpmath.nsum(
            lambda j: (
                (j + 1)
                * phi_true**j
                * (1 - phi_true) ** 2
                * _mp_delta(epsilon + 2 * mpmath.log(rho) + rate * j, (1 + j) / mpmath.mpf(std))
            ),
            [0, 150],
        )
        side = endless_side(lambda o: phi(np.array([float(mpmath.log(odds))]), o), [1], rate, 50.0)
        assert side is not None
        assert side.toll >= -mpmath.log(rho)
        assert side.phi >= phi_bar(mpmath.exp(-mpmath.mpf(side.toll)))  # what must be called different
        mass = mpmath.mpf(side.phi)
        assert (1 - mass) * mpmath.exp(-mpmath.mpf(side.toll)) + mass * mpmath.exp(mpmath.mpf(rate)) <= 1
        found = Pairing(2 * side.toll, side.twice(1), 1.0).delta(GaussianProfile(std), epsilon, rate, 1.0)
        assert exact <= found <= exact * (1 + mpmath.mpf(10) ** -7)


def test_tolls_and_flows_of_states_hold_in_fifty_digits() -> None:
    rows = np.array([[0.6, 0.4, 0.0], [0.2, 0.5, 0.3], [0.0, 0.3, 0.7]])
    cost = 0.15
    side = state_side(rows, cost, 50.0)
    assert side is not None
    with mpmath.workdps(50):
        for x, y in itertools.permutations(range(3), 2):
            d = np.where(np.eye(3) > 0, 0.0, cost + side.tolls)
            _, f = transport_flows(rows[[x]], rows[[y]], d[None])
            for j in range(3):
                load = sum(
                    mpmath.mpf(float(f[0, i, j])) * mpmath.exp(mpmath.mpf(float(d[i, j]))) for i in range(3)
                )
                assert load <= mpmath.exp(mpmath.mpf(float(side.tolls[x, y]))) * mpmath.mpf(float(rows[y, j]))
            law = side.law(x, y, 1)
            total = sum(mpmath.mpf(float(v)) for v in law.masses) + mpmath.mpf(law.tail)
            assert 1 <= total <= 1 + mpmath.mpf(10) ** -9


# -- integration ---------------------------------------------------------------------------------


def random_chain(rng: np.random.Generator) -> qd.Model:
    states = int(rng.integers(2, 4))
    steps = int(rng.integers(2, 6 if states == 2 else 5))
    spread = 10 ** rng.uniform(-1.0, 1.0)

    def matrix() -> np.ndarray:
        p = rng.dirichlet(np.full(states, spread), size=states)
        if rng.random() < 0.3:
            p = 0.8 * np.eye(states) + 0.2 * p
        if rng.random() < 0.25:
            p = p * (rng.random(p.shape) < 0.7)
            p[p.sum(axis=1) == 0] = np.eye(states)[0]
        return p / p.sum(axis=1, keepdims=True)

    start = rng.dirichlet(np.full(states, spread))
    if rng.random() < 0.5:
        return qd.markov_chain(matrix(), length=steps, initial=start)
    return qd.markov_chain([matrix() for _ in range(steps - 1)], initial=start)


def worst_delta(
    rng: np.random.Generator,
    model: qd.Model,
    unit: list[int],
    deltas: np.ndarray,
    std: float,
    epsilon: float,
    adversary: str,
) -> float:
    """Return the largest δ found over queries, pairs of values and, for the informed one, evidence."""
    table = joint(model)
    others = [j for j in range(table.ndim) if j not in unit]
    sets = [()] if adversary == "prior" else [s for r in range(3) for s in itertools.combinations(others, r)]
    worst = 0.0
    for known in sets:
        values = list(itertools.product(*(range(table.shape[j]) for j in known)))
        for chosen in [values[k] for k in rng.permutation(len(values))[:2]]:
            for states, p, q in hypotheses(table, unit, dict(zip(known, chosen, strict=True))):
                for query in (aligned_query(states, p, q, deltas), random_query(rng, states, deltas)):
                    worst = max(worst, hockey_stick(p, q, query, std, epsilon))
    return worst


@pytest.mark.parametrize("seed", range(8))
def test_no_query_and_no_evidence_beats_the_bound(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    model = random_chain(rng)
    n = len(model.nodes)
    deltas = np.ones(n) if seed % 2 else rng.choice([0.0, 0.25, 0.37, 1.0], size=n)
    deltas[0] = max(deltas[0], 0.25)
    std, epsilon = 10 ** rng.uniform(-0.2, 0.9), 10 ** rng.uniform(-0.8, 0.6)
    for adversary in ("prior", "informed"):
        profile = DeltaProfile(model, adversary=adversary, method="paired")
        certified = profile.deltas(GaussianProfile(std), epsilon, deltas)
        for i in range(n):
            attained = worst_delta(rng, model, [i], deltas, std, epsilon, adversary)
            assert attained <= certified[i] * (1 + 1e-9) + 1e-13


def test_windows_and_negative_epsilon_against_integration() -> None:
    rng = np.random.default_rng(5)
    model = qd.markov_chain([[0.7, 0.3], [0.4, 0.6]], length=4, initial=[0.1, 0.9])
    for adversary in ("prior", "informed"):
        profile = DeltaProfile(model, adversary=adversary, window=2)
        for epsilon in (-0.7, 0.4):
            certified = profile.deltas(GaussianProfile(2.0), epsilon)
            for i in range(3):
                attained = worst_delta(rng, model, [i, i + 1], np.ones(4), 2.0, epsilon, adversary)
                assert attained <= certified[i] <= 1.0


def test_without_the_tilt_the_informed_adversary_would_be_missed() -> None:
    """The prior's pairing is no bound for the informed adversary: why the tilt is in the theorem."""
    model = qd.markov_chain([[0.98, 0.02], [0.5, 0.5]], length=5)
    std, epsilon = 2.2, 0.3
    prior, informed = (
        DeltaProfile(model, adversary=a, method="paired").deltas(GaussianProfile(std), epsilon)
        for a in ("prior", "informed")
    )
    attained = worst_delta(np.random.default_rng(0), model, [1], np.ones(5), std, epsilon, "informed")
    assert prior[1] < attained <= informed[1]


def test_backward_conditionals_belong_to_their_position() -> None:
    """A chain far from its stationary law: the reversal of that law is the wrong table."""
    model = qd.markov_chain([[0.9, 0.1], [0.001, 0.999]], length=3, initial=[0.999, 0.001])
    rng = np.random.default_rng(1)
    certified = DeltaProfile(model, adversary="prior", method="paired").deltas(GaussianProfile(1.5), 0.5)
    for i in range(3):
        assert worst_delta(rng, model, [i], np.ones(3), 1.5, 0.5, "prior") <= certified[i]


# -- figures -------------------------------------------------------------------------------------

GOALS = {0.45: (5.14, 5.10), 0.3: (9.75, 9.51), 0.1: (37.6, 36.4)}


@pytest.mark.parametrize(
    "flip", [0.45, pytest.param(0.3, marks=pytest.mark.slow), pytest.param(0.1, marks=pytest.mark.slow)]
)
def test_long_binary_chains(flip: float) -> None:
    """ε = 1, δ = 1e-6; plain sums of a few steps alone need 5.00, 9.26, 35.5."""
    chain = qd.markov_chain([[1 - flip, flip], [flip, 1 - flip]], length=10_000)
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    least = {0.45: 5.00, 0.3: 9.26, 0.1: 35.5}[flip]
    found = {a: qd.calibrate(chain, 1.0, spec, adversary=a) for a in ("informed", "prior")}
    for cal, goal in zip(found.values(), GOALS[flip], strict=True):
        assert least < cal.sigma < goal
        assert cal.method.startswith("paired")
        assert qd.leakage_of(chain, spec, cal.sigma, adversary=cal.adversary).epsilon <= 1.0
    assert found["prior"].sigma < found["informed"].sigma


def test_the_length_of_a_long_chain_does_not_matter() -> None:
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    sigma = [
        qd.calibrate(qd.markov_chain([[0.6, 0.4], [0.3, 0.7]], n), 1.0, spec).sigma for n in (2000, 10**6)
    ]
    assert sigma[0] == sigma[1]


def test_a_short_chain_needs_no_more_than_a_long_one_and_less_than_its_group() -> None:
    spec, rows = qd.Gaussian(sensitivity=1.0, delta=1e-6), [[0.7, 0.3], [0.3, 0.7]]
    short, long = (qd.calibrate(qd.markov_chain(rows, n), 1.0, spec) for n in (6, 3000))
    assert short.sigma < long.sigma
    assert short.sigma < short.compared["group"]


def test_more_states_and_zeros() -> None:
    """A lazy walk on three cells, where rows of far cells do not overlap (sums attain 30.5 and more)."""
    walk = qd.markov_chain([[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]], 5000)
    cal = qd.calibrate(walk, 1.0, qd.Gaussian(1.0, 1e-6), adversary="prior")
    assert 30.5 < cal.sigma < 32.0


def test_a_record_that_is_not_read_can_be_protected() -> None:
    chain = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], 4)
    spec = qd.Gaussian({"X0": 0.0, "X1": 1.0, "X2": 0.0, "X3": 0.0}, 1e-5)
    alone = qd.calibrate(chain, 1.0, spec, protect={"first": ["X0"]})
    assert 0.0 < alone.sigma < qd.calibrate(chain, 1.0, spec).sigma
    assert "independent" not in alone.compared

"""Profiles of groups: events of dp-accounting, steps from one record, discrete Gaussian noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianProfile
from quiltdp.mechanisms.gaussian import gaussian_delta
from quiltdp.mechanisms.group_profiles import EventProfile, SteppedProfile
from quiltdp.mechanisms.laplace import LaplaceProfile
from quiltdp.mechanisms.profiles import PrivacyLossProfile
from quiltdp.mechanisms.repeated import Repeated

dpa = pytest.importorskip("dp_accounting")


def _exact_discrete(sigma: float, k: int, epsilon: float) -> mpmath.mpf:
    """Σ (p(x) − e^ε p(x + k))₊ by fifty-digit sums."""
    with mpmath.workdps(50):
        reach = int(40 * sigma) + 20 + 2 * k
        scale = 2 * mpmath.mpf(sigma) ** 2
        law = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / scale) for x in range(-reach, reach + k + 1)}
        grown = mpmath.exp(mpmath.mpf(epsilon))
        total = mpmath.fsum(max(law[x] - grown * law[x + k], 0) for x in range(-reach, reach + 1))
        return total / mpmath.fsum(law.values())


@pytest.mark.parametrize("seed", range(12))
def test_discrete_gaussian_against_fifty_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sigma, k = float(10 ** rng.uniform(-1.0, 0.9)), int(rng.integers(1, 9))
    epsilon = float(rng.choice([-1, 1], p=[0.2, 0.8]) * 10 ** rng.uniform(-2, 1))
    exact, found = _exact_discrete(sigma, k, epsilon), DiscreteGaussianProfile(sigma).delta(epsilon, k)
    assert found >= exact * (1 - mpmath.mpf(10) ** -30)
    assert found <= float(exact) * (1 + 1e-9) + 1e-20


def test_discrete_gaussian_beside_dp_accounting() -> None:
    peer = dpa.pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(3.0, sensitivity=2)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        assert DiscreteGaussianProfile(3.0).delta(epsilon, 2) == pytest.approx(
            peer.get_delta_for_epsilon(epsilon), rel=2e-3
        )
    weights = np.arange(6.0)
    together = DiscreteGaussianProfile(3.0).deltas(np.full(6, 0.7), weights)
    assert together.tolist() == [DiscreteGaussianProfile(3.0).delta(0.7, w) for w in weights]


@pytest.mark.parametrize("bad", [0.5, {"a": 1.0, "b": 1.5}])
def test_discrete_noise_is_for_whole_numbers(bad: float | dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="whole number"):
        DiscreteGaussian(bad, 1e-6)
    with pytest.raises(InvalidArgument, match="scale"):
        DiscreteGaussianProfile(1e9)


def test_discrete_gaussian_releases_are_counted_together() -> None:
    spec = DiscreteGaussian(1, 1e-6)
    with pytest.raises(InvalidArgument, match="together"):
        spec.scale_for_uses(5.0, 12)
    many = Repeated(spec, 4, 1e-6)
    scale = many.scale(1.0)
    assert scale == pytest.approx(2 * qd.Gaussian(1, 1e-6).scale(1.0), rel=0.01)
    assert many.spent_share_of(spec, scale, scale) * 4 == 1
    with pytest.raises(InvalidArgument, match="calibrated"):
        many.spent_share_of(DiscreteGaussian(2, 1e-6), scale, scale)


def test_groups_of_shifted_noise_are_exact() -> None:
    """One Gaussian, several, one Laplace: the closed forms, for whole and other weights, any sign of ε."""
    one, four = dpa.GaussianDpEvent(5.0), dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(10.0), 4)
    laplace = EventProfile(dpa.LaplaceDpEvent(5.0))
    for epsilon in (-1.0, -0.2, 0.0, 0.4, 1.5):
        for weight in (0.5, 1.0, 3.0, 7.3):
            exact = gaussian_delta(epsilon, weight / 5.0)
            assert exact <= EventProfile(one).delta(epsilon, weight) <= exact * (1 + 1e-9)
            assert exact * (1 - 1e-12) <= EventProfile(four).delta(epsilon, weight) <= exact * (1 + 1e-9)
            shifted = LaplaceProfile(0.2).delta(epsilon, weight)
            assert shifted <= laplace.delta(epsilon, weight) <= shifted + 5e-3
    assert EventProfile(dpa.NonPrivateDpEvent()).delta(9.0, 1.0) == 1.0
    assert EventProfile(dpa.NoOpDpEvent()).delta(0.0, 3.0) == 0.0


def test_an_event_of_pure_steps_covers_every_pure_mechanism() -> None:
    """Thresholdout's event, discrete Laplace of sensitivity 1: k steps of randomized response."""
    event = EventProfile(dpa.dp_event.DiscreteLaplaceDpEvent(0.3, 1))
    alone = SteppedProfile(lambda e: max(0.0, (math.exp(0.3) - math.exp(e)) / (math.exp(0.3) + 1)))
    for k in (1, 2, 5):
        for epsilon in (0.0, 0.2, 0.5, 1.0):
            found, stepped = event.delta(epsilon, k), alone.delta(epsilon, k)
            assert found <= stepped * (1 + 1e-6) + 1e-9
            assert stepped <= found * 1.1 + 5e-3


@pytest.mark.parametrize("shift", [0.1, 0.5])
@pytest.mark.parametrize(
    "exact",
    [gaussian_delta, lambda e, w: LaplaceProfile(1.0).delta(e, w)],
    ids=["gaussian", "laplace"],
)
def test_steps_are_group_privacy_and_sharp(exact: Callable[[float, float], float], shift: float) -> None:
    """k steps of one record: never below a shift by k, and near it."""
    stepped = SteppedProfile(lambda e: exact(e, shift))
    for k in (1, 2, 7, 30):
        for epsilon in (-0.7, 0.0, 0.13, 0.6, 1.5):
            value = exact(epsilon, k * shift)
            assert value * (1 - 1e-12) <= stepped.delta(epsilon, k) <= 1.1 * value + 2e-3
    assert stepped.delta(1.0, 0) == 0.0


def test_a_slow_profile_is_read_once() -> None:
    """A value may take a pass over millions of losses: none is asked for later, however much is computed."""
    asked: list[float] = []

    def one(epsilon: float) -> float:
        asked.append(epsilon)
        return gaussian_delta(epsilon, 0.3) + 1e-13  # with the floor that convolutions have

    stepped = SteppedProfile(one, steps=2)
    before = len(asked)
    assert before < 300
    copies = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[1.0, 0.0], [0.0, 1.0]])})
    for adversary in ("prior", "informed"):
        for epsilon in (0.05, 1.0, 8.0):
            found = DeltaProfile(copies, adversary=adversary).delta(stepped, epsilon)
            true = gaussian_delta(epsilon, 4 * 0.3)
            assert true <= found <= 1.05 * true + 1e-9
    assert len(asked) == before
    for level in (0.0, 0.25, 1.0):  # what never falls, too
        assert SteppedProfile(lambda e, level=level: level).delta(2.0, 1) == pytest.approx(level, rel=1e-12)


def test_any_epsilon_has_an_answer() -> None:
    """Quilts of nearly impossible states ask at an ε below −700, and beyond all exponentials."""
    profile = EventProfile(dpa.PoissonSampledDpEvent(0.3, dpa.GaussianDpEvent(2.0)))
    far = [profile.delta(epsilon, 2.0) for epsilon in (-math.inf, -1e4, -800.0, 0.0, 700.0, 1e4, math.inf)]
    assert far[:3] == [1.0, 1.0, 1.0]
    assert all(0.0 <= b <= a <= 1.0 for a, b in itertools.pairwise(far))
    rare = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[1e-300, 1.0], [0.5, 0.5]])})
    for method in ("auto", "transport"):
        found = DeltaProfile(rare, adversary="prior", method=method).delta(profile, 1.0)
        assert 0.0 < found <= profile.delta(1.0, 2.0)


@pytest.mark.slow
def test_sampled_and_repeated_events_are_answered_soundly() -> None:
    """Ten sampled sums of two copies of one bit: the sum of the answers, thresholded, attains less."""
    rate, noise, times, epsilon = 0.5, 3.0, 10, 0.5
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)), times)
    copies = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[1.0, 0.0], [0.0, 1.0]])})
    found = DeltaProfile(copies, adversary="prior").delta(EventProfile(event), epsilon)
    drawn = np.arange(2 * times + 1)
    mass = np.array([math.comb(2 * times, int(k)) for k in drawn]) * 0.5 ** (2 * times)
    beyond, spread = np.linspace(-60.0, 60.0, 241)[:, None], noise * math.sqrt(times)
    above = [(mass * ndtr((sign * drawn - beyond) / spread)).sum(axis=1) for sign in (1.0, -1.0)]
    attained = float((above[0] - math.exp(epsilon) * above[1]).max())
    assert 0.1 < attained <= found < 1.0


def test_sampled_events_count_a_replaced_record_twice() -> None:
    """Removed and added: against a brute-force mixture of two outputs of a sampled Gaussian."""
    rate, noise = 0.2, 1.5
    profile = EventProfile(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)))
    y = np.linspace(-20, 20, 200_001)

    def density(value: float) -> np.ndarray:
        bell = [
            np.exp(-0.5 * ((y - m) / noise) ** 2) / (noise * math.sqrt(2 * math.pi)) for m in (0.0, value)
        ]
        return np.asarray((1 - rate) * bell[0] + rate * bell[1])

    for epsilon in (0.05, 0.2, 0.5):
        replaced = np.maximum(density(1.0) - math.exp(epsilon) * density(-1.0), 0.0).sum() * (y[1] - y[0])
        assert replaced <= profile.delta(epsilon, 1)
    once = dpa.pld.PLDAccountant().compose(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)))
    assert profile.delta(0.2, 1) > once.get_delta(0.2)


@pytest.mark.slow
def test_events_contract_on_chains_like_the_gaussian() -> None:
    """The same path for every profile: a Gaussian event is the Gaussian, others contract as well."""
    weak = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=400)
    bounds = DeltaProfile(weak)
    same = bounds.delta(EventProfile(dpa.GaussianDpEvent(9.8)), 1.0)
    assert same == pytest.approx(bounds.delta(qd.Gaussian(1, 1e-6).group_profile(9.8), 1.0), rel=1e-9)
    year = dpa.ComposedDpEvent([dpa.GaussianDpEvent(15.0), dpa.LaplaceDpEvent(40.0)])
    assert bounds.delta(EventProfile(year), 1.0) < 1e-3
    found = qd.calibrate(weak, 1.0, DiscreteGaussian(1, 1e-6), compare=False)
    assert found.sigma == pytest.approx(qd.calibrate(weak, 1.0, qd.Gaussian(1, 1e-6)).sigma, rel=2e-3)


def test_losses_raise_weights_never_lower_them() -> None:
    asked: list[float] = []

    class Nothing:
        def get_delta_for_epsilon(self, epsilon: float) -> float:
            return 0.0

    def loss(weight: float, interval: float) -> Nothing:
        asked.append(weight)
        return Nothing()

    for weight in (0.3, 1.0, 1 + 5e-10, 2.5, 249.999, 3e4):
        PrivacyLossProfile(loss, lambda w: w, {}).delta(0.5, weight)
        assert weight <= asked[-1] <= weight * 1.005
    PrivacyLossProfile(loss, lambda w: w, {}, whole=True).delta(0.5, 300.2)
    assert asked[-1] == math.ceil(asked[-1]) >= 301


@pytest.mark.slow
def test_parts_of_several_records_are_not_one_record_where_records_are_drawn() -> None:
    """Four copies of one bit, each drawn with probability 0.3 and moving the sum by 1/4: none is free."""
    profile = EventProfile(dpa.PoissonSampledDpEvent(0.3, dpa.GaussianDpEvent(0.1)))
    model = qd.markov_chain([[1.0, 0.0], [0.0, 1.0]], length=4, initial=[0.5, 0.5])
    bounds = DeltaProfile(model, adversary="prior", method="group")
    with pytest.raises(InvalidArgument, match="whole records"):
        bounds.delta(profile, 1.0, np.full(4, 0.25))
    assert bounds.delta(profile, 1.0) >= 0.6727  # what a threshold on that sum attains
    with pytest.raises(InvalidArgument, match="whole records"):
        bounds.delta(SteppedProfile(lambda e: 0.1), 1.0, np.full(4, 0.5))
    shifted = EventProfile(dpa.LaplaceDpEvent(2.0))
    assert bounds.delta(shifted, 1.0, np.full(4, 0.25)) <= bounds.delta(shifted, 1.0)

"""A calibration in other libraries' words, what a query is, and what an answer is bound to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.mechanisms import DiscreteGaussian
from quiltdp.mechanisms.additive import AdditiveNoise
from quiltdp.mechanisms.holdout import checked_settings, setting
from quiltdp.mechanisms.queries import TablePair, describe
from quiltdp.report.plots import leakage_table

CHAIN = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 4)
LAPLACE = qd.calibrate(CHAIN, 1.0, qd.Laplace(sensitivity=1.0), compare=False)
GAUSSIAN = qd.calibrate(CHAIN, 1.0, qd.Gaussian(sensitivity=1.0, delta=1e-6), compare=False)


def test_opendp_charges_what_was_calibrated() -> None:
    assert LAPLACE.to_opendp().map(1.0) == pytest.approx(LAPLACE.dp_epsilon, rel=1e-9)
    assert GAUSSIAN.to_opendp().map(1.0) == pytest.approx(0.5 / GAUSSIAN.sigma**2, rel=1e-9)  # ρ of zCDP


def test_dp_accounting_events_carry_the_noise_per_sensitivity() -> None:
    events = pytest.importorskip("dp_accounting")
    laplace, gaussian = LAPLACE.to_dp_event(), GAUSSIAN.to_dp_event()
    assert isinstance(laplace, events.LaplaceDpEvent)
    assert laplace.noise_multiplier == pytest.approx(LAPLACE.sigma)
    assert isinstance(gaussian, events.GaussianDpEvent)
    assert gaussian.noise_multiplier == pytest.approx(GAUSSIAN.sigma)


@pytest.mark.parametrize(
    "mechanism", [qd.Laplace(2.0), qd.Gaussian(2.0, 1e-6), DiscreteGaussian(2, 1e-6)], ids=lambda m: m.kind
)
def test_losses_of_the_peer_are_those_of_the_profile(mechanism: AdditiveNoise) -> None:
    pytest.importorskip("dp_accounting")
    losses = mechanism.privacy_loss(3.0, 2.0, 1e-4)
    for epsilon in (0.1, 0.5):
        exact = mechanism.group_profile(3.0).delta(epsilon, 2.0)
        assert losses.get_delta_for_epsilon(epsilon) == pytest.approx(exact, rel=1e-3)
    assert type(mechanism.to_opendp(3.0)(mechanism.number_type(5))) is mechanism.number_type


def test_noise_on_whole_numbers_is_no_event() -> None:
    with pytest.raises(InvalidArgument, match="no dp_accounting event"):
        DiscreteGaussian(1, 1e-6).to_dp_event(3.0)


def test_a_query_has_an_exact_value_on_both_tables() -> None:
    train, holdout = np.array([[0.0], [1.0], [1.0]]), np.array([[1.0], [0.0], [0.0], [0.0]])
    pair = TablePair(train, holdout)

    def ones(table: np.ndarray) -> np.ndarray:
        return table[:, 0]

    value = pair.on_training(ones)
    assert value.exact == Fraction(2, 3)
    assert pair.on_holdout(ones, value) == Fraction(1, 4)
    assert describe(ones, keyed=False)
    with pytest.raises(QuiltdpError):
        pair.on_training(lambda table: table[:, 0] * 5)


def test_settings_are_checked_before_anything_is_drawn() -> None:
    found = checked_settings(0.04, 0.05, 100)
    assert setting(found, "threshold") == 0.04
    for bad in ((-1.0, 0.05, 100), (0.04, 2.0, 100), (0.04, 0.05, 0)):
        with pytest.raises(InvalidArgument):
            checked_settings(*bad)


def test_names_in_a_table_are_only_names() -> None:
    html = leakage_table("t", [("k", "<script>")], [("a&b", 0.25)])
    assert "<script>" not in html
    assert "a&amp;b</td><td>0.25" in html

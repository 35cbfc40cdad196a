"""Several releases: shares of a budget, repeated uses under (ε, δ), zCDP and Rényi, and the ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.composition import split
from quiltdp.accountant.delta import DeltaProfile
from quiltdp.accountant.mechanisms import Gaussian, GaussianProfile, Laplace, Repeated, Thresholdout
from quiltdp.accountant.mechanisms.losses import LossProfile
from quiltdp.errors import InvalidArgument, QuiltdpError

CHAIN = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=6)
SPECS = [Laplace(1.0), Gaussian(1.0, 1e-6), Thresholdout(3, 0.5)]


@pytest.fixture(params=SPECS, ids=lambda s: s.kind)
def calibration(request: pytest.FixtureRequest) -> qd.Calibration:
    return qd.calibrate(CHAIN, 1.0, request.param, compare=False)


@pytest.mark.parametrize("count", [1, 2, 7, 12, 365])
def test_equal_shares_fill_the_budget(calibration: qd.Calibration, count: int) -> None:
    parts = calibration.split(count)
    assert parts.releases == count
    assert sum(parts.shares()) <= 1
    assert sum(parts.shares()) > 1 - Fraction(1, 2**40)
    power = 1.0 if calibration.mechanism.pure else 0.5
    assert parts.sigma == pytest.approx(calibration.sigma * count**power, rel=1e-12)
    assert json.loads(json.dumps(parts.to_dict()))["count"] == count


def test_unequal_shares_fit_too(calibration: qd.Calibration) -> None:
    parts = calibration.split([1.0, 2.0, 0.5])
    assert 1 - Fraction(1, 2**40) < sum(parts.shares()) <= 1
    assert parts.scales[1] < parts.scales[0] < parts.scales[2]
    with pytest.raises(InvalidArgument, match="different shares"):
        _ = parts.sigma
    assert "3 releases" in str(parts)


def test_twelve_shares_together_leak_what_was_calibrated() -> None:
    """The composition of the twelve, converted once, is at most ε; a thirteenth would be more."""
    pure = qd.calibrate(CHAIN, 1.0, Laplace(1.0))
    each = pure.split(12).dp_epsilon()
    assert qd.leakage(CHAIN, qd.compose([each] * 12)).epsilon <= 1.0
    assert qd.leakage(CHAIN, qd.compose([each] * 13)).epsilon > 1.0
    noisy = qd.calibrate(CHAIN, 1.0, Gaussian(1.0, 1e-6))
    together = noisy.split(12).sigma / math.sqrt(12) * (1 - 1e-12)
    assert DeltaProfile(CHAIN).delta(GaussianProfile(together), 1.0) <= 1e-6 * (1 + 1e-6)


def test_disjoint_records_cost_one_vector() -> None:
    """Six numbers, one per step: every record is read once, so each number has the calibrated scale."""
    cal = qd.calibrate(CHAIN, 1.0, Laplace(1.0))
    parts = cal.split(6, disjoint=True)
    assert parts.scales == (cal.sigma,) * 6
    # the vector as one mechanism, attacked exactly: the exact limit over all α-DP mechanisms covers it
    assert qd.leakage(CHAIN, cal.dp_epsilon).epsilon <= 1.0


def test_disjoint_gaussian_vector_against_integration() -> None:
    """Two noisy numbers, one for each of two dependent records: no more than one sum of both."""
    pair = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], length=2)
    std, epsilon = 1.3, 0.6
    rows = np.array([[0.8, 0.2], [0.3, 0.7]])
    grid = np.linspace(-9, 10, 700)
    density = np.array(
        [np.exp(-0.5 * ((grid - m) / std) ** 2) / (std * math.sqrt(2 * math.pi)) for m in (0, 1)]
    )

    def law(x: int) -> np.ndarray:
        return np.outer(density[x], rows[x] @ density)

    step = grid[1] - grid[0]
    attained = float(np.maximum(law(0) - math.exp(epsilon) * law(1), 0.0).sum() * step**2)
    assert 0 < attained <= DeltaProfile(pair, adversary="prior").deltas(GaussianProfile(std), epsilon)[0]


@pytest.mark.parametrize("bad", [0, -3, 1.5, "12", True, [], [1.0, 0.0], 10**7])
def test_what_is_no_number_of_releases_is_refused(bad: object) -> None:
    cal = qd.calibrate(CHAIN, 1.0, Laplace(1.0), compare=False)
    with pytest.raises(QuiltdpError):
        split(cal, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", [Laplace(1.0), Gaussian(1.0, 1e-6)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("count", [2, 12])
def test_a_ledger_accepts_exactly_that_many(tmp_path: Path, spec: qd.Laplace, count: int) -> None:
    cal = qd.calibrate(CHAIN, 1.0, spec, compare=False)
    each = cal.split(count).sigma
    ledger = qd.Ledger.create(tmp_path / "l.db", cal)
    for _ in range(count):
        ledger.charge_mechanism(spec, each)
    with pytest.raises(QuiltdpError):
        ledger.charge_mechanism(spec, each)


# -- zCDP and Rényi --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 8.0, 64.0])
def test_renyi_and_zcdp_against_their_definitions(order: float) -> None:
    from scipy.integrate import quad

    for scale in (0.7, 2.0, 9.0):
        value, _ = quad(
            lambda y, scale=scale: (
                (0.5 / scale) * math.exp((-order * abs(y - 1) + (order - 1) * abs(y)) / scale)
            ),
            -60 * scale,
            60 * scale,
            points=[0.0, 1.0],
            limit=500,
        )
        exact = math.log(value) / (order - 1)
        found = Laplace(1.0).rdp(scale, order)
        assert exact - 1e-9 <= found <= 1 / scale + 1e-12
        assert found <= order * Laplace(1.0).zcdp(scale) * (1 + 1e-12)
        assert Gaussian(1.0, 1e-6).rdp(scale, order) == pytest.approx(order / (2 * scale**2))
    assert Gaussian(3.0, 1e-6).zcdp(2.0) == pytest.approx(9 / 8)
    assert Thresholdout(2, 1.0).rdp(9.0, 2.0) == pytest.approx(0.25)
    with pytest.raises(InvalidArgument, match="order"):
        Laplace(1.0).rdp(1.0, 1.0)


@pytest.mark.parametrize("spec", [Laplace(1.0), Gaussian(1.0, 1e-6)], ids=["laplace", "gaussian"])
def test_twelve_releases_cost_what_a_renyi_accountant_says(spec: qd.Laplace) -> None:
    """ρ and the Rényi curve of twelve releases beside dp-accounting's own accountant."""
    from dp_accounting import rdp

    parts = qd.calibrate(CHAIN, 1.0, spec, compare=False).split(12)
    told = parts.concentrated()
    orders = [a for a, _, _ in told.curve]
    event = dp_accounting.SelfComposedDpEvent(spec.to_dp_event(parts.sigma), 12)
    peer = rdp.RdpAccountant(orders).compose(event)
    for (order, each, together), theirs in zip(told.curve, peer._rdp, strict=True):
        assert theirs * (1 - 1e-9) <= together <= theirs * (1 + 1e-6), order
        assert each == pytest.approx(together / 12, rel=1e-9)
        assert together <= order * told.together * (1 + 1e-12)
    assert told.together == pytest.approx(12 * parts.zcdp(), rel=1e-12)
    assert told.to_dict()["zcdp"] == {"each": told.each, "together": told.together}
    assert "together" in str(told)


def test_disjoint_and_unequal_releases_concentrate_as_they_are() -> None:
    cal = qd.calibrate(CHAIN, 1.0, Gaussian(1.0, 1e-6), compare=False)
    apart = cal.split(6, disjoint=True).concentrated((2.0,))
    assert apart.together == apart.each == cal.split(1).zcdp()
    two = cal.split([1.0, 3.0])
    assert two.concentrated(()).together == pytest.approx(cal.split(1).zcdp(), rel=1e-9)
    assert two.concentrated(()).each == max(two.zcdp(0), two.zcdp(1))
    many = qd.calibrate(CHAIN, 1.0, Repeated(Laplace(1.0), 4, 1e-6), compare=False).split(4)
    assert many.concentrated(()).together == pytest.approx(4 * Laplace(1.0).zcdp(many.sigma), rel=1e-9)


def test_the_command_line_tells_zcdp_and_renyi(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Twelve Gaussian releases: ρ and the curve in text and JSON, and a ledger that takes exactly twelve."""
    model = tmp_path / "chain.json"
    qd.save_model(CHAIN, model)
    call = (
        "calibrate",
        model,
        "--epsilon",
        1,
        "--mechanism",
        "gaussian",
        "--delta",
        "1e-6",
        "--releases",
        12,
    )
    found = cli(*call, "--json")
    told = json.loads(found.out)
    cost = told["concentrated"]
    rho = 1 / (2 * told["releases"]["sigma"] ** 2)
    assert cost["zcdp"]["each"] == pytest.approx(rho, rel=1e-9)
    assert cost["zcdp"]["together"] == pytest.approx(12 * rho, rel=1e-9)
    assert cost["rdp"][2] == {
        "order": 2.0,
        "each": pytest.approx(2 * rho, rel=1e-9),
        "together": pytest.approx(24 * rho, rel=1e-9),
    }
    shown = cli(*call, "--renyi").out
    assert "zCDP" in shown
    assert "Rényi DP" in shown
    (tmp_path / "cal.json").write_text(found.out)
    made = cli("ledger", "init", tmp_path / "l.db", "--calibration", tmp_path / "cal.json", "--model", model)
    assert made.code == 0, made.err
    for _ in range(12):
        assert cli("ledger", "charge", tmp_path / "l.db", "--parts", 12).code == 0
    assert cli("ledger", "charge", tmp_path / "l.db", "--parts", 12).code == 1


# -- repeated uses ---------------------------------------------------------------------------------


def test_one_use_by_its_privacy_loss_is_the_closed_form() -> None:
    laplace, gaussian = LossProfile(Laplace(1.0), 2.0), LossProfile(Gaussian(1.0, 1e-6), 3.0)
    for epsilon in (-0.7, 0.0, 0.2, 0.8):
        for weight in (0.5, 1.0, 4.0):
            one = Laplace(1.0).group_profile(2.0).delta(epsilon, weight)
            assert one - 1e-12 <= laplace.delta(epsilon, weight) <= one * 1.02 + 1e-4
            two = GaussianProfile(3.0).delta(epsilon, weight)
            assert two - 1e-12 <= gaussian.delta(epsilon, weight) <= two * 1.02 + 1e-4
    assert laplace.delta(0.1, 0.0) == 0.0


def test_repeated_gaussian_is_one_gaussian_and_laplace_is_below_pure() -> None:
    spec = Repeated(Gaussian(1.0, 1e-6), 4, 1e-6)
    assert spec.group_profile(2.0).delta(1.0, 1.0) == pytest.approx(GaussianProfile(1.0).delta(1.0, 1.0))
    many = Repeated(Laplace(1.0), 40, 1e-6)
    assert many.scale(1.0) < 0.8 * 40
    reference = dp_accounting.pld.PLDAccountant().compose(
        dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(30.0), 40)
    )
    found = many.group_profile(30.0).delta(1.0, 1.0)
    assert reference.get_delta(1.0) * (1 - 1e-6) <= found <= 1.2 * reference.get_delta(1.0)


def test_repeated_uses_are_calibrated_stored_and_charged(tmp_path: Path) -> None:
    spec = Repeated(Laplace(1.0), 30, 1e-6)
    short = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=2)
    cal = qd.calibrate(short, 1.0, spec)
    assert cal.sigma < 30 * qd.calibrate(short, 1.0, Laplace(1.0)).sigma
    assert qd.Calibration.from_json(cal.to_json()).mechanism == spec
    assert cal.split(30).sigma == cal.sigma
    with pytest.raises(InvalidArgument, match="30 uses"):
        cal.split(12)
    ledger = qd.Ledger.create(tmp_path / "l.db", cal)
    for _ in range(30):
        ledger.charge_mechanism(Laplace(1.0), cal.sigma)
    with pytest.raises(QuiltdpError):
        ledger.charge_mechanism(Laplace(1.0), cal.sigma)


def test_repeated_refuses_other_uses() -> None:
    spec = Repeated(Laplace(1.0), 3, 1e-6)
    assert spec.share_of(Laplace(1.0), 5.0, 4.0) == Fraction(1, 3)
    for use, scale in ((Laplace(1.0), 3.9), (Laplace(2.0), 4.0), (Gaussian(1.0, 1e-6), 40.0)):
        with pytest.raises(InvalidArgument, match="3 uses"):
            spec.share_of(use, scale, 4.0)
    with pytest.raises(InvalidArgument, match="used once"):
        Repeated(spec, 2, 1e-6)

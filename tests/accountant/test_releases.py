"""Several releases: σ is that of each; zCDP and Rényi, documents of version 1, and the ledger."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.composition import compose, concentrated
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.generalization.plan_result import read_holdout_arguments
from quiltdp.mechanisms import (
    DiscreteGaussian,
    Gaussian,
    GaussianMechanism,
    GaussianProfile,
    Laplace,
    LaplaceMechanism,
    Mechanism,
    PureRepeated,
    Repeated,
    Thresholdout,
    repeat_mechanism,
)
from quiltdp.mechanisms.profiles import PrivacyLossProfile

PAIR = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=2)
CHAIN = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=6)
SPECS = [Laplace(1.0), Gaussian(1.0, 1e-6), Thresholdout(3, 0.5)]
OLD = Path("tests/data/version1")


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.kind)
@pytest.mark.parametrize("count", [2, 12, 365])
def test_sigma_is_the_scale_of_each_release(spec: qd.Laplace, count: int) -> None:
    """As many uses at σ cost what was certified, and σ is no larger than that asks for."""
    one = qd.calibrate(CHAIN, 1.0, spec)
    cal = qd.calibrate(CHAIN, 1.0, spec, releases=count)
    assert cal.releases == count
    assert cal.mechanism.single() == spec
    power = 1.0 if spec.pure else 0.5
    assert cal.sigma == pytest.approx(one.sigma * count**power, rel=1e-8)
    assert cal.compared["group"] == pytest.approx(one.compared["group"] * count**power, rel=1e-5)
    uses = [cal.mechanism.spent_share_of(spec, cal.sigma, cal.sigma)] * count
    assert 1 - Fraction(1, 2**30) < sum(uses) <= 1
    assert f"for each of {count} releases" in str(cal)
    assert leakage_of(CHAIN, cal).epsilon <= 1.0


def test_twelve_releases_together_leak_what_was_calibrated() -> None:
    """The composition of the twelve, converted once, is at most ε; a thirteenth would be more."""
    each = Laplace(1.0).dp_epsilon(qd.calibrate(CHAIN, 1.0, Laplace(1.0), releases=12).sigma)
    assert qd.leakage(CHAIN, compose([each] * 12)).epsilon <= 1.0
    assert qd.leakage(CHAIN, compose([each] * 13)).epsilon > 1.0
    noisy = qd.calibrate(CHAIN, 1.0, Gaussian(1.0, 1e-6), releases=12)
    together = noisy.gaussian_std / math.sqrt(12) * (1 - 1e-12)
    assert DeltaProfile(CHAIN).delta(GaussianProfile(together), 1.0) <= 1e-6 * (1 + 1e-6)


def test_python_text_and_json_say_the_same_sigma(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = tmp_path / "chain.json"
    qd.save_model(PAIR, model)
    for spec, words in (
        (Laplace(1.0), ()),
        (Gaussian(1.0, 1e-6), ("--mechanism", "gaussian", "--delta", "1e-6")),
        (Repeated(Laplace(1.0), 12, 1e-6), ("--delta", "1e-6")),
        (DiscreteGaussian(1, 1e-6), ("--mechanism", "discrete-gaussian", "--delta", "1e-6")),
    ):
        call = ("calibrate", model, "--epsilon", 1, *words, "--releases", 12)
        cal = qd.calibrate(PAIR, 1.0, spec, releases=12)
        told = json.loads(cli(*call, "--json").out)
        assert told["version"] == json.loads(cal.to_json())["version"] == 2
        assert told["sigma"] == cal.sigma == told["releases"]["sigma"]
        assert (told["releases"]["count"], told["releases"]["disjoint"]) == (12, False)
        assert told["releases"] == json.loads(cal.to_json())["releases"]
        first = cli(*call).out.splitlines()[0]
        assert float(first.split()[2]) == pytest.approx(cal.sigma, rel=1e-5)
        assert "for each of 12 releases" in first
        back = qd.Calibration.from_json(json.dumps(told))
        assert (back.sigma, back.releases, back.mechanism) == (cal.sigma, 12, cal.mechanism)


def test_other_libraries_get_each_release() -> None:
    """OpenDP's measurement and the event are of one release at σ; twelve events are what was calibrated."""
    cal = qd.calibrate(CHAIN, 1.0, Laplace(1.0), releases=12)
    assert cal.to_opendp().map(1.0) == pytest.approx(1.0 / cal.sigma)
    assert cal.to_dp_event().noise_multiplier == pytest.approx(cal.sigma)
    many = qd.calibrate(PAIR, 1.0, Repeated(Laplace(1.0), 12, 1e-6), compare=False)
    assert many.releases == 12
    assert many.to_dp_event().noise_multiplier == pytest.approx(many.sigma)
    assert LaplaceMechanism(cal.mechanism, cal.sigma).dp_epsilon == Laplace(1.0).dp_epsilon(cal.sigma)
    noisy = qd.calibrate(CHAIN, 1.0, Gaussian(1.0, 1e-6), releases=12)
    assert GaussianMechanism(noisy.mechanism, noisy.sigma).scale == noisy.sigma


def test_disjoint_records_cost_one_vector() -> None:
    """Six numbers, one per step: every record is read once, so each number has the scale of one."""
    cal = qd.calibrate(CHAIN, 1.0, Laplace(1.0), releases=6, disjoint=True)
    assert (cal.releases, cal.sigma) == (6, qd.calibrate(CHAIN, 1.0, Laplace(1.0)).sigma)
    assert qd.Calibration.from_json(cal.to_json()).releases == 6
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


@pytest.mark.parametrize("bad", [0, -3, 1.5, "12", True, [], 10**7])
def test_what_is_no_number_of_releases_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="releases"):
        qd.calibrate(CHAIN, 1.0, Laplace(1.0), releases=bad)


@pytest.mark.parametrize("spec", [Laplace(1.0), Gaussian(1.0, 1e-6)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("asked", [1, 12])
def test_a_ledger_accepts_exactly_twelve(tmp_path: Path, spec: qd.Laplace, asked: int) -> None:
    """Whether the budget was calibrated for one release or for twelve: it is the same budget."""
    cal = qd.calibrate(CHAIN, 1.0, spec, releases=asked, compare=False)
    each = cal.mechanism.scale_for_uses(cal.sigma, 12)
    assert asked == 1 or each == cal.sigma
    ledger = qd.Ledger.create(tmp_path / "l.db", cal, model=CHAIN)
    for _ in range(12):
        ledger.charge_mechanism(spec, each)
    with pytest.raises(QuiltdpError):
        ledger.charge_mechanism(spec, each)


# -- documents of version 1 ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["calibration.json", "gaussian.json"])
def test_version_1_is_read_as_one_release(cli: Callable[..., Any], tmp_path: Path, name: str) -> None:
    """Its σ was one release's, also where twelve were asked for: it stays that, and twelve fit a ledger."""
    old = json.loads((OLD / name).read_text())
    assert (old["version"], old["releases"]["count"]) == (1, 12)
    read = qd.Calibration.from_json((OLD / name).read_text())
    assert (read.sigma, read.releases) == (old["sigma"], 1)
    assert any("one release" in note and "12" in note for note in read.notes)
    again = qd.calibrate(qd.load_model(OLD / "chain.json"), 1.0, read.mechanism, releases=12)
    assert 0.97 * old["releases"]["sigma"] < again.sigma < old["releases"]["sigma"] * (1 + 1e-6)
    assert cli("leakage", OLD / "chain.json", "--calibration", OLD / name).code == 0
    made = ("ledger", "init", tmp_path / "l.db", "--calibration", OLD / name, "--model", OLD / "chain.json")
    assert cli(*made).code == 0
    told = json.loads(cli("ledger", "charge", tmp_path / "l.db", "--parts", 12, "--json").out)
    assert told["scale"] == pytest.approx(old["releases"]["sigma"], rel=1e-6)
    assert Fraction(1, 12) * (1 - Fraction(1, 10**9)) < Fraction(told["share"]) <= Fraction(1, 12)


def test_a_ledger_and_a_plan_of_version_1_go_on(cli: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copy(OLD / "study.db", tmp_path / "study.db")
    read = qd.Calibration.from_json((OLD / "calibration.json").read_text())
    ledger = qd.Ledger.open(tmp_path / "study.db", calibration=read)  # one of twelve was charged
    ledger.close()
    for _ in range(11):
        assert cli("ledger", "charge", tmp_path / "study.db", "--parts", 12).code == 0
    assert cli("ledger", "charge", tmp_path / "study.db", "--parts", 12).code == 1
    plan = json.loads((OLD / "plan.json").read_text())
    assert plan["calibration"]["version"] == 1
    assert read_holdout_arguments(plan)["calibration"].sigma == plan["sigma"]


@pytest.mark.parametrize("spec", [Laplace(1.0), Gaussian(1.0, 1e-6)], ids=["laplace", "gaussian"])
def test_a_document_that_contradicts_itself_is_refused(spec: qd.Laplace) -> None:
    good = json.loads(qd.calibrate(CHAIN, 1.0, spec, releases=12, compare=False).to_json())
    for wrong in (
        {"version": 3},
        {"version": True},
        {"releases": {**good["releases"], "count": 1}},
        {"releases": {**good["releases"], "count": "12"}},
        {"releases": {**good["releases"], "disjoint": True}},
        {"releases": {**good["releases"], "sigma": 1.0}},
        {"sigma": good["releases"]["sigma_of_one_alone"]},  # too little noise
        {"mechanism": good["mechanism"]["base"]},
    ):
        with pytest.raises(QuiltdpError):
            qd.Calibration.from_json(json.dumps(good | wrong))


def test_releases_that_a_command_cannot_keep_are_told_what_to_do(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    """Disjoint releases are one charge; answers of a holdout are counted by its own budget."""
    made = tmp_path / "cal.json"
    made.write_text(qd.calibrate(CHAIN, 1.0, Laplace(1.0), releases=12, disjoint=True).to_json())
    assert "charge them once" in cli("ledger", "init", tmp_path / "a.db", "--calibration", made).out
    several = qd.calibrate(CHAIN, 1.0, qd.Thresholdout(2, 0.1), releases=12, compare=False)
    made.write_text(several.to_json())
    told = cli("holdout", "init", tmp_path / "b.db", "--calibration", made, "--threshold", "0.1")
    assert told.code == 2
    assert "without --releases" in told.err


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

    cal = qd.calibrate(CHAIN, 1.0, spec, releases=12, compare=False)
    told = cal.concentrated()
    orders = [a for a, _, _ in told.curve]
    event = dp_accounting.SelfComposedDpEvent(cal.to_dp_event(), 12)
    peer = rdp.RdpAccountant(orders).compose(event)
    for (order, each, together), theirs in zip(told.curve, peer._rdp, strict=True):
        assert theirs * (1 - 1e-9) <= together <= theirs * (1 + 1e-6), order
        assert each == pytest.approx(together / 12, rel=1e-9)
        assert together <= order * told.together * (1 + 1e-12)
    assert told.together == pytest.approx(12 * spec.zcdp(cal.sigma), rel=1e-12)
    assert told.to_dict()["zcdp"] == {"each": told.each, "together": told.together}
    assert "together" in str(told)


@pytest.mark.slow
def test_disjoint_and_composed_releases_concentrate_as_they_are() -> None:
    cal = qd.calibrate(CHAIN, 1.0, Gaussian(1.0, 1e-6), releases=6, disjoint=True, compare=False)
    apart = concentrated(cal, (2.0,))
    assert apart.together == apart.each == Gaussian(1.0, 1e-6).zcdp(cal.sigma)
    many = qd.calibrate(PAIR, 1.0, Repeated(Laplace(1.0), 4, 1e-6), compare=False)
    assert many.concentrated().together == pytest.approx(4 * Laplace(1.0).zcdp(many.sigma), rel=1e-9)


@pytest.mark.slow
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
    rho = 1 / (2 * told["sigma"] ** 2)
    assert cost["zcdp"]["each"] == pytest.approx(rho, rel=1e-9)
    assert cost["zcdp"]["together"] == pytest.approx(12 * rho, rel=1e-9)
    assert cost["rdp"][2] == {
        "order": 2.0,
        "each": pytest.approx(2 * rho, rel=1e-9),
        "together": pytest.approx(24 * rho, rel=1e-9),
    }
    assert "zCDP" in cli(*call).out
    (tmp_path / "cal.json").write_text(found.out)
    made = cli("ledger", "init", tmp_path / "l.db", "--calibration", tmp_path / "cal.json", "--model", model)
    assert made.code == 0, made.err
    for _ in range(12):
        assert cli("ledger", "charge", tmp_path / "l.db", "--parts", 12).code == 0
    assert cli("ledger", "charge", tmp_path / "l.db", "--parts", 12).code == 1


# -- repeated uses ---------------------------------------------------------------------------------


def test_one_use_by_its_privacy_loss_is_the_closed_form() -> None:
    laplace = Laplace(1.0).repeated_profile(2.0, 1, {})
    normal = Gaussian(1.0, 1e-6)
    gaussian = PrivacyLossProfile(lambda w, i: normal.privacy_loss(3.0, w, i), float, {})
    for epsilon in (-0.7, 0.0, 0.2, 0.8):
        for weight in (0.5, 1.0, 4.0):
            one = Laplace(1.0).group_profile(2.0).delta(epsilon, weight)
            assert one - 1e-12 <= laplace.delta(epsilon, weight) <= one * 1.02 + 1e-4
            two = GaussianProfile(3.0).delta(epsilon, weight)
            assert two - 1e-12 <= gaussian.delta(epsilon, weight) <= two * 1.02 + 1e-4
    assert laplace.delta(0.1, 0.0) == 0.0


@pytest.mark.parametrize("base", [Laplace(1.0), Thresholdout(2, 0.5)], ids=lambda m: m.kind)
@pytest.mark.parametrize("times", [1, 2, 6, 12])
def test_repeated_uses_are_never_above_pure_composition(base: Mechanism, times: int) -> None:
    for delta in (1e-12, 1e-6):
        for epsilon in (0.1, 1.0):
            pure = PureRepeated(base, times).scale(epsilon)
            assert Repeated(base, times, delta).scale(epsilon) <= pure
            assert (
                Repeated(base, times, delta).group_profile(pure).delta(epsilon, base.max_sensitivity) < 1e-12
            )


def test_a_calibration_with_delta_is_never_above_pure_composition() -> None:
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 3)
    pure = qd.calibrate(model, 1.0, PureRepeated(Laplace(1.0), 2), compare=False)
    found = qd.calibrate(model, 1.0, Repeated(Laplace(1.0), 2, 1e-6), compare=False)
    assert found.sigma <= pure.sigma
    assert found.delta <= 1e-6


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


@pytest.mark.slow
def test_repeated_uses_are_calibrated_stored_and_charged(tmp_path: Path) -> None:
    spec = Repeated(Laplace(1.0), 30, 1e-6)
    cal = qd.calibrate(PAIR, 1.0, spec)
    assert cal.sigma < 30 * qd.calibrate(PAIR, 1.0, Laplace(1.0)).sigma
    assert qd.Calibration.from_json(cal.to_json()).mechanism == spec
    assert cal.releases == 30
    assert qd.calibrate(PAIR, 1.0, spec, releases=30).sigma == cal.sigma
    with pytest.raises(InvalidArgument, match="used once"):
        repeat_mechanism(spec, 12)
    with pytest.raises(InvalidArgument, match="30 uses"):
        cal.mechanism.scale_for_uses(cal.sigma, 12)
    ledger = qd.Ledger.create(tmp_path / "l.db", cal)
    for _ in range(30):
        ledger.charge_mechanism(Laplace(1.0), cal.sigma)
    with pytest.raises(QuiltdpError):
        ledger.charge_mechanism(Laplace(1.0), cal.sigma)


def test_repeated_refuses_other_uses() -> None:
    spec = Repeated(Laplace(1.0), 3, 1e-6)
    assert spec.spent_share_of(Laplace(1.0), 5.0, 4.0) == Fraction(1, 3)
    for use, scale in ((Laplace(1.0), 3.9), (Laplace(2.0), 4.0), (Gaussian(1.0, 1e-6), 40.0)):
        with pytest.raises(InvalidArgument, match="3 uses"):
            spec.spent_share_of(use, scale, 4.0)
    with pytest.raises(InvalidArgument, match="used once"):
        Repeated(spec, 2, 1e-6)
    with pytest.raises(InvalidArgument, match="pure cost"):
        PureRepeated(Gaussian(1.0, 1e-6), 2)

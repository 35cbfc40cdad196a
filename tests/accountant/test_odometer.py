from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.accountant.ledger import Ledger, Outcome, Request, Terms
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import Gaussian, Laplace, Thresholdout

CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=6)


def ledger(path: Path, sensitivity: object = 1.0) -> Ledger:
    spec = Laplace(sensitivity)  # type: ignore[arg-type]
    return Ledger.create(path, Terms(spec, 1.0, 3.0, 1.0, 0.0, "informed", "test", CHAIN.fingerprint))


def test_nothing_spent_tells_nothing(tmp_path: Path) -> None:
    reading = ledger(tmp_path / "a.db").odometer(CHAIN)
    assert reading.informed is not None
    assert reading.prior is not None
    assert reading.spent_dp_epsilon == reading.informed.epsilon == reading.prior.epsilon == 0.0
    assert dict(reading.informed.per_record) == dict.fromkeys(CHAIN.records, 0.0)
    assert reading.remaining_dp_epsilon == 1.0


def test_the_total_is_converted_once(tmp_path: Path) -> None:
    """Converting each release and adding would be another, unsound, number."""
    account = ledger(tmp_path / "a.db")
    for _ in range(4):
        account.charge(0.125)
    reading = account.odometer(CHAIN)
    assert (reading.spent_dp_epsilon, reading.remaining_dp_epsilon) == (0.5, 0.5)
    for found, adversary in ((reading.informed, "informed"), (reading.prior, "prior")):
        expected = qd.leakage(CHAIN, dp_epsilon=0.5, adversary=adversary)
        assert found is not None
        assert found.epsilon == expected.epsilon > 0.5
        assert dict(found.per_record) == dict(expected.per_record)
        assert max(found.per_record.values()) == found.epsilon
    assert reading.prior is not None
    assert reading.informed is not None
    assert reading.prior.epsilon <= reading.informed.epsilon


def test_unequal_records_are_converted_with_their_own_cost(tmp_path: Path) -> None:
    account = ledger(tmp_path / "a.db", {name: 1.0 if name == "X0" else 0.0 for name in CHAIN.records})
    account.charge_mechanism(account.terms.mechanism, 2.0)
    reading = account.odometer(CHAIN)
    assert reading.spent_dp_epsilon == {**dict.fromkeys(CHAIN.records, 0.0), "X0": 0.5}
    assert reading.informed is not None
    expected = qd.leakage(CHAIN, dp_epsilon=dict(reading.spent_dp_epsilon), adversary="informed")  # type: ignore[arg-type]
    assert dict(reading.informed.per_record) == dict(expected.per_record)
    assert reading.informed.per_record["X5"] < 0.5


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not the one"):
        ledger(tmp_path / "a.db").odometer(qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=7))


def test_an_open_epoch_counts_four_ninths(tmp_path: Path) -> None:
    spec = Thresholdout(3, 1.0)
    terms = Terms(spec, spec.scale(0.9), 3.0, 0.9, 0.0, "informed", "test", CHAIN.fingerprint)
    account = Ledger.create(tmp_path / "a.db", terms)
    with account.visit() as visit:
        reserved = visit.reserve([Request("q")], Fraction(1, 3), 1)
        reserved.settle([Outcome("train", Fraction(4, 27), 0, 0.5)], threshold=5)
    reading = account.odometer(CHAIN)
    assert reading.spent_dp_epsilon == pytest.approx(0.9 * 4 / 27)
    assert (reading.answers, reading.remaining, reading.lost) == (0, 3, 0)
    with account.visit() as visit:
        assert visit.threshold == 5
        visit.reserve([Request("q")], Fraction(5, 27), 1)  # and nothing comes of it
    reading = account.odometer()
    assert reading.spent_dp_epsilon == pytest.approx(0.3)
    assert (reading.answers, reading.remaining, reading.lost) == (1, 2, 1)


def test_what_is_protected_must_be_the_same(tmp_path: Path) -> None:
    cal = qd.calibrate(CHAIN, epsilon=2.0, mechanism=Laplace(1.0), window=2)
    account = Ledger.create(tmp_path / "a.db", cal)
    account.charge_mechanism(cal.mechanism, cal.sigma)
    with pytest.raises(InvalidArgument, match="protects"):
        account.odometer(CHAIN)
    reading = account.odometer(CHAIN, window=2)
    assert reading.informed is not None
    assert reading.informed.epsilon <= 2.0


@pytest.mark.parametrize("sensitivity", [0.5, dict.fromkeys(CHAIN.records, 0.5)])
def test_a_whole_calibration_is_a_whole_ledger(tmp_path: Path, sensitivity: object) -> None:
    cal = qd.calibrate(CHAIN, epsilon=2.0, mechanism=Laplace(sensitivity))  # type: ignore[arg-type]
    account = Ledger.create(tmp_path / "a.db", cal)
    account.charge_mechanism(cal.mechanism, 4 * cal.sigma, count=4)
    assert Ledger.open(tmp_path / "a.db", calibration=cal).head.spent <= 1
    reading = account.odometer(CHAIN)
    assert reading.informed is not None
    assert 1.99 < reading.informed.epsilon <= 2.0


@pytest.mark.slow
def test_gaussian_releases_are_read_as_the_one_they_amount_to(tmp_path: Path) -> None:
    """Three of four equal releases: the noise of one is σ/√¾, and its ε stands at the calibration's δ."""
    spec = Gaussian(1.0, 1e-6)
    terms = Terms(spec, 12.0, 1.0, None, 1e-6, "informed", "test", CHAIN.fingerprint)
    account = Ledger.create(tmp_path / "a.db", terms)
    for _ in range(3):
        account.charge_mechanism(spec, 24.0)
    reading = account.odometer(CHAIN)
    assert (reading.share, reading.spent_dp_epsilon) == (Fraction(3, 4), None)
    for found, adversary in ((reading.informed, "informed"), (reading.prior, "prior")):
        assert found is not None
        at, below = (
            leakage_of(CHAIN, spec, 12.0 / 0.75**0.5 * off, adversary=adversary).epsilon
            for off in (1.0, 1.0 - 1e-9)
        )
        assert at <= found.epsilon <= below
    whole = account.odometer(CHAIN).informed
    assert whole is not None
    account.charge_mechanism(spec, 24.0)
    spent = account.odometer(CHAIN).informed
    assert spent is not None
    assert whole.epsilon < spent.epsilon

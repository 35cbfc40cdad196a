"""A request: every option checked once, and the bounds that it means."""

from __future__ import annotations

import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.request import Request
from quiltdp.errors import InvalidArgument
from quiltdp.work import Guard, WorkBudget

CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 3)


def test_a_method_by_name_is_asked_beside_group_privacy_unless_its_numbers_are_its_own() -> None:
    assert Request(CHAIN, "swing").stages(INFORMED) == ("group", "swing")
    assert Request(CHAIN, "group").stages(INFORMED) == ("group",)
    assert Request(CHAIN, "exact").stages(INFORMED) == ("exact",)
    assert Request(CHAIN, "published").stages(INFORMED) == ("published",)
    transport = Request(CHAIN, "transport", adversary="prior", approximate=True)
    assert transport.stages(PRIOR) == ("group", "transport")


def test_what_group_privacy_says_is_not_claimed_by_another_method() -> None:
    """On copies every record counts, whatever is asked for."""
    copies = qd.markov_chain([[1.0, 0.0], [0.0, 1.0]], length=4, initial=[0.5, 0.5])
    for method in ("propagation", "swing"):
        found = qd.leakage(copies, 0.1, method)
        assert found.epsilon == pytest.approx(0.4)
        assert (found.method, found.certificate.asked) == ("group", method)
        assert "group privacy" in found.certificate.statement


def test_a_stage_ends_the_table_for_every_adversary() -> None:
    assert Request(CHAIN, work="quick:coupling").stages(PRIOR)[-1] == "coupling"
    assert Request(CHAIN, work="quick:coupling").stages(INFORMED)[-1] == "exact"
    with pytest.raises(InvalidArgument, match="'nowhere' is not a stage"):
        Request(CHAIN, work="quick:nowhere")


def test_a_guard_is_shared_and_a_number_of_seconds_is_not() -> None:
    guard = Guard(5.0)
    assert Request(CHAIN, time_limit=guard).shares_guard
    assert not Request(CHAIN, time_limit=5.0).shares_guard
    other = Request(CHAIN, time_limit=5.0).with_method("group", "quick")
    assert (other.method, other.budget.level, other.shares_guard) == ("group", "quick", True)


def test_a_certificate_of_the_version_before_is_read() -> None:
    """It marked rough halves of stages, and namesakes."""
    budget = qd.calibrate(CHAIN, 1.0, qd.Laplace(1.0)).certificate.work
    for stage, now in (("exact~", "exact"), ("exact@informed", "exact"), ("group", "group")):
        assert WorkBudget.from_dict(budget, stage).until == now

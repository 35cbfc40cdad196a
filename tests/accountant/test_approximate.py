"""The stages of (ε, δ): asked for by name, left by a limit, one limit for a whole call."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from limited import partial_answer

import quiltdp as qd
from quiltdp import work
from quiltdp.accountant.approximate import DeltaProfile, approximate_leakage
from quiltdp.accountant.bounds.approximate import GroupDelta, TransportDelta
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import GaussianProfile
from quiltdp.work import GuardReached, WorkBudget

NOISE = qd.Gaussian(1.0, 1e-6)
CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=4)
TREE = qd.Model.from_tables(
    {
        "A": ([], [0.3, 0.7]),
        "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
        "C": (["A"], [[0.6, 0.4], [0.1, 0.9]]),
    }
)


def calibrated(model: qd.Model, level: str, **options: object) -> qd.Calibration:
    return qd.calibrate(model, 1.0, NOISE, work=level, **options)


def test_every_stage_can_be_asked_for_and_none_is_worse_than_the_one_before() -> None:
    stages = ["group", "transport"]
    found = [calibrated(CHAIN, f"quick:{stage}", adversary="prior") for stage in stages]
    sigmas = [c.sigma for c in found]
    assert [c.certificate.stage for c in found] == stages
    assert all(later <= before for before, later in itertools.pairwise(sigmas))
    assert sigmas[0] == pytest.approx(found[0].compared["group"], rel=1e-8)
    assert found[0].method == "group"
    assert sigmas[-1] == calibrated(CHAIN, "quick", adversary="prior").sigma


@pytest.mark.parametrize("stage", ["nonsense", "propagation", "Group", "group,transport"])
def test_a_stage_that_does_not_exist_is_refused(stage: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not a stage; stages are group, transport"):
        calibrated(TREE, f"normal:{stage}")
    with pytest.raises(InvalidArgument, match="is not a stage"):
        leakage_of(TREE, NOISE, 10.0, work=f"quick:{stage}")


def test_a_stage_that_says_nothing_here_is_the_one_before() -> None:
    alone = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=1)
    assert calibrated(alone, "quick:transport").certificate.stage == "group"


def test_a_limit_in_the_middle_of_a_search_leaves_the_stage_before(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = calibrated(TREE, "quick:group")
    real, left = TransportDelta.evaluate, [1]

    def struck(self: TransportDelta, *rest: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise GuardReached("the time limit was reached")
        return real(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TransportDelta, "evaluate", struck)
    found = partial_answer(lambda: calibrated(TREE, "quick"))
    assert left[0] < 0
    assert (found.sigma, found.method) == (expected.sigma, expected.method)
    assert found.certificate.stage == expected.certificate.stage == "group"
    assert "the time limit was reached after stage 'group'" in str(found)
    assert "bounds that had finished: group" in str(found)
    assert "--work quick:group" in found.to_json()
    partial = partial_answer(lambda: approximate_leakage(TREE, NOISE, found.sigma, work="quick"))
    assert partial.certificate.stage == "group"
    monkeypatch.undo()
    assert leakage_of(TREE, qd.Calibration.from_json(found.to_json())).epsilon <= 1.0


def test_a_limit_while_bounds_are_prepared_leaves_the_stage_before(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = calibrated(TREE, "quick:group", adversary="prior")

    def struck(self: TransportDelta, *rest: object) -> None:
        raise GuardReached("the memory limit was reached")

    monkeypatch.setattr(TransportDelta, "prepare", struck)
    found = partial_answer(lambda: calibrated(TREE, "quick", adversary="prior"))
    assert (found.sigma, found.certificate.stage) == (expected.sigma, "group")
    delta = DeltaProfile(TREE, adversary="prior", work="quick")
    alone = DeltaProfile(TREE, adversary="prior", work="quick:group")
    short = partial_answer(lambda: delta.delta(GaussianProfile(9.0), 1.0), "--work quick:group")
    assert short == alone.delta(GaussianProfile(9.0), 1.0)
    assert delta.stages[-1].name == "group"


def test_one_limit_for_preparing_and_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(real: object) -> object:
        def later(self: object, *rest: object) -> object:
            now[0] += 20.0
            return real(self, *rest)  # type: ignore[operator]

        return later

    monkeypatch.setattr(GroupDelta, "prepare", slow(GroupDelta.prepare))
    monkeypatch.setattr(TransportDelta, "prepare", slow(TransportDelta.prepare))
    found = partial_answer(lambda: calibrated(TREE, "quick", time_limit=30.0))
    assert found.certificate.stage == "group"
    assert calibrated(TREE, "quick", time_limit=50.0).certificate.stage == "transport"


def test_a_budget_of_ones_own_is_told_as_such() -> None:
    told = WorkBudget(level="custom", quilts=3).describe_stop(
        GuardReached("the time limit was reached"), ["swing"]
    )
    assert "the same work budget with until='swing' gives this partial answer again" in told


def test_known_records_are_checked_and_found_in_every_copy_of_a_component() -> None:
    """Two components alike: who knows a record of the second knows one of their class."""
    xor = [[[0.95, 0.05], [0.1, 0.9]], [[0.3, 0.7], [0.98, 0.02]]]

    def family(*names: str) -> qd.Model:
        tables: dict[str, object] = {}
        for k in names:
            tables |= {
                f"A{k}": ([], [0.5, 0.5]),
                f"B{k}": ([], [0.2, 0.8]),
                f"C{k}": ([f"A{k}", f"B{k}"], xor),
            }
        return qd.Model.from_tables(tables)

    noise = GaussianProfile(4.0)
    alone = DeltaProfile(family("2"), adversary="knows=C2", work="quick").delta(noise, 1.0)
    prior = DeltaProfile(family("2"), adversary="prior", work="quick").delta(noise, 1.0)
    both = DeltaProfile(family("1", "2"), adversary="knows=C2", work="quick")
    assert prior < alone == both.delta(noise, 1.0)
    with pytest.raises(InvalidArgument, match="'Zed' is not a node"):
        calibrated(TREE, "quick", adversary="knows=Zed")

"""One budget and one limit for panels, genome runs and plans: a limit raises, and carries group privacy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limited import partial_answer

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR, knows
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.shared_work import STAGES, SharedWork
from quiltdp.domains.pedigree import Pedigree, Person
from quiltdp.domains.pedigree.genome import account_families
from quiltdp.domains.pedigree.panel import Panel, analyze_panel
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
from quiltdp.errors import InvalidArgument, LimitReached, Refused, WorkerLost
from quiltdp.generalization.plan_result import plan_calibration
from quiltdp.generalization.plan_search import ProfileAccountant
from quiltdp.journal import Journal
from quiltdp.parallel import Workers
from quiltdp.work import NO_GUARD, GuardReached, WorkBudget

TRIO = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
PAIR = Pedigree((Person("ann"), Person("bob")))
LOCI = {"rs1": 0.1, "rs2": 0.3}
FAM = "A a1 0 0 1 -9\nA a2 0 0 2 -9\nA a3 a1 a2 1 -9\nB b1 0 0 1 -9\nB b2 0 0 2 -9\nB b3 b1 b2 2 -9\n"
AFREQ = "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.1\t100\n1\trs2\tA\tG\t0.3\t100\n"
STAGE = "group"  # what every partial answer is of
SAID = f"the time limit was reached after stage '{STAGE}'; work='normal:{STAGE}'"


def strike(self: Any, *rest: Any) -> None:
    raise GuardReached("the time limit was reached")


def partial(question: Callable[[], Any]) -> Any:
    return partial_answer(question, match=r"^the time limit was reached after stage 'group'")


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock runs out when the exact limit, or what follows it, is prepared."""
    monkeypatch.setattr(ExactBound, "prepare", strike)


def test_one_list_of_stages_ends_both_adversaries() -> None:
    assert STAGES[0] == STAGE
    shared = SharedWork("quick:coupling")
    assert shared.budget_up_to("forward-backward").until == "coupling"
    assert SharedWork("quick").budget_up_to("forward-backward").until == "forward-backward"
    assert shared.budget_up_to() == WorkBudget.named("quick:coupling")
    asia = qd.example("asia")
    ends = [qd.leakage(asia, 0.1, adversary=a, work="quick:coupling") for a in (INFORMED, PRIOR)]
    assert [found.certificate.stage for found in ends] == ["exact", "exact"]
    with pytest.raises(InvalidArgument, match="'nothing' is not a stage"):
        SharedWork("normal:nothing")
    with pytest.raises(InvalidArgument, match="time_limit"):
        SharedWork("normal", 0.0)


def test_every_part_of_a_partial_answer_is_of_one_stage() -> None:
    """Two analyses, of which one is cut short: both are asked again for group privacy, without a limit."""
    shared, asked = SharedWork("normal", 1000.0), []

    def question() -> list[str]:
        until = shared.budget.until
        asked.append((until, shared.guard is NO_GUARD))
        if until != STAGE:
            raise GuardReached("the time limit was reached")
        return [shared.answer(lambda: until), until]  # a question inside belongs to this one

    assert partial(lambda: shared.answer(question)) == [STAGE, STAGE]
    assert asked == [("", False), (STAGE, True)]
    assert (shared.done.stage, shared.budget.until, shared.guard) == (STAGE, "", NO_GUARD)
    assert shared.answer(lambda: 1) == 1
    assert shared.done.notes == ()

    def hopeless() -> int:
        if not shared.budget.until:
            raise GuardReached("the time limit was reached")
        raise Refused("too little")

    with pytest.raises(LimitReached, match=r"reached; by group privacy.*too little") as told:
        shared.answer(hopeless)
    assert told.value.partial is None


def test_panels_raise_and_carry_group_privacy(struck: None) -> None:
    for adversary in (INFORMED, "prior"):
        profile = analyze_panel(TRIO, LOCI)
        found = partial(lambda: calibrate_panel(profile, 1.0, adversary=adversary))  # noqa: B023
        document = json.loads(found.to_json())
        assert (document["stage"], document["work"]["level"]) == (STAGE, "normal")
        assert document["notes"][0].startswith(SAID)
        assert profile.notes[-1] == found.notes[0] == document["notes"][0]
        again = calibrate_panel(analyze_panel(TRIO, LOCI, work=f"normal:{STAGE}"), 1.0, adversary=adversary)
        assert (again.sigma, again.leakage, again.notes) == (found.sigma, found.leakage, ())
        assert again.to_dict()["work"]["until"] == STAGE
        values = partial(lambda: profile.leakage(20.0, adversary))  # noqa: B023
        assert profile.done.stage == STAGE
        assert np.array_equal(values, again.profile.leakage(20.0, adversary))
        assert not again.profile.done.stage
    with pytest.raises(InvalidArgument, match="among informed, prior"):
        list(account_families([TRIO], Panel.of(LOCI), epsilon=1.0, adversaries=[knows(1)]))


def test_a_limit_that_strikes_in_a_worker_is_told_here() -> None:
    """The partial answer is the same with workers."""
    asked: dict[str, Any] = {"work": "normal", "time_limit": 1e-9}
    with Workers(2) as pool:
        found = [analyze_panel(TRIO, LOCI, executor=where, **asked) for where in (None, pool)]
        here, there = (partial(lambda: p.leakage(20.0, "prior")) for p in found)  # noqa: B023
        assert np.array_equal(here, there)
        assert [p.done.stage for p in found] == ["group", "group"]
        families = {"epsilon": 1.0, "executor": pool, **asked}
        noise = partial(lambda: list(account_families([TRIO, PAIR], Panel.of(LOCI), **families)))
    assert [f.done.stage for f in noise] == ["group", "group"]


def test_a_stage_of_one_adversary_is_understood_against_both(cli: Any, tmp_path: Path) -> None:
    fam = tmp_path / "a.fam"
    fam.write_text(FAM)
    words = ("pedigree", fam, "--family", "A", "--allele-frequency", 0.1, "--epsilon", 1, "--json")
    assert cli(*words, "--work", "normal:coupling").code == 0
    assert cli(*words, "--work", "normal:nowhere").code == 2
    page = tmp_path / "page.html"
    words = (
        "calibrate",
        "models/cancer.bif",
        "--epsilon",
        1,
        "--adversary",
        "prior",
        "--report",
        page,
        "--json",
    )
    done = cli(*words, "--report", page, "--work", "quick:coupling")
    assert (done.code, json.loads(done.out)["certificate"]["work"]["until"]) == (0, "coupling")


def test_nothing_cut_short_is_kept_in_a_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = analyze_panel(TRIO, LOCI).leakage(20.0, "prior")
    study = list(account_families([TRIO, PAIR], Panel.of(LOCI), epsilon=1.0))
    asked: dict[str, Any] = {"epsilon": 1.0, "time_limit": 1000.0}
    with Journal(tmp_path / "run") as journal:
        with monkeypatch.context() as late:
            late.setattr(ExactBound, "prepare", strike)
            short = analyze_panel(TRIO, LOCI, journal=journal)
            values = partial(lambda: short.leakage(20.0, "prior"))
            assert values.max() > whole.max()
            assert short.done.stage == STAGE
            kept = len(journal)
            repeated = analyze_panel(TRIO, LOCI, journal=journal, work=f"normal:{STAGE}")
            assert np.array_equal(repeated.leakage(20.0, "prior"), values)
            assert len(journal) == kept  # what is there is of finished stages, under their own budget
            found = partial(
                lambda: list(account_families([TRIO, PAIR], Panel.of(LOCI), journal=journal, **asked))
            )
            assert [f.done.stage for f in found] == [STAGE, STAGE]
            assert found[0].sigma["prior"] > study[0].sigma["prior"]
        after = analyze_panel(TRIO, LOCI, journal=journal)
        assert np.array_equal(after.leakage(20.0, "prior"), whole)
        assert list(account_families([TRIO, PAIR], Panel.of(LOCI), journal=journal, **asked)) == study
        before = len(journal)
        quick = analyze_panel(TRIO, LOCI, journal=journal, work="quick")
        quick.leakage(20.0, "prior")
        assert len(journal) == before + 2  # another budget is another answer


def test_the_commands_mark_it_and_write_nothing(cli: Any, struck: None, tmp_path: Path) -> None:
    fam, afreq = tmp_path / "a.fam", tmp_path / "a.afreq"
    fam.write_text(FAM)
    afreq.write_text(AFREQ)
    for command in (
        ("pedigree", fam, "--allele-frequency", afreq, "--epsilon", 1, "--family", "A"),
        (
            "pedigree",
            fam,
            "--journal",
            "none",
            "--allele-frequency",
            afreq,
            "--epsilon",
            1,
            "--time-limit",
            1000,
        ),
    ):
        table = tmp_path / f"{command[0]}.tsv"
        shown, said, twice = (cli(*command, "-o", table, *more) for more in ((), ("--json",), ("--json",)))
        assert (shown.code, said.code, said.out) == (3, 3, twice.out)
        assert f"{table} was not written" in said.err
        assert not table.exists()
        assert shown.out.startswith(f"PARTIAL ANSWER: {SAID}")
        assert said.out.startswith(f'{{"partial": "{SAID}')
        document = json.loads(said.out)
        told = document.get("panel", document)
        assert (told["stage"], told["work"]["until"]) == (STAGE, "")
        again = json.loads(cli(*command, "--json", "--work", f"normal:{STAGE}").out)
        same = again.get("panel", again)
        assert same["stage"] is None
        assert [same[a]["sigma"] for a in ("informed", "prior")] == [
            told[a]["sigma"] for a in ("informed", "prior")
        ]
        assert again.get("people") == document.get("people")
        assert cli(*command, "--work", "normal:nowhere").code == 2


def test_plans_raise_and_carry_group_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many copies of a small network: enough records for a promise."""
    tables: dict[str, Any] = {}
    both = [[[0.6, 0.4], [0.5, 0.5]], [[0.5, 0.5], [0.4, 0.6]]]
    for k in range(250):
        tables |= {f"A{k}": ([], [0.3, 0.7]), f"B{k}": ([], [0.3, 0.7]), f"C{k}": ([f"A{k}", f"B{k}"], both)}
    model = qd.Model.from_tables(tables)
    asked: dict[str, Any] = {"queries": 5, "budget": 1}
    whole = qd.plan(model, **asked)
    assert (whole.stage, whole.notes, whole.work["level"]) == (None, (), "normal")
    monkeypatch.setattr(ExactBound, "prepare", strike)
    found = partial(lambda: qd.plan(model, **asked))
    assert found.stage == STAGE
    assert found.notes[0].startswith(SAID)
    assert found.notes[0] in str(found)
    assert found.to_dict()["work"]["until"] == ""
    again = qd.plan(model, work=f"normal:{STAGE}", **asked)
    assert (again.sigma, again.accuracy, again.leakage, again.table()) == (
        found.sigma,
        found.accuracy,
        found.leakage,
        found.table(),
    )
    assert found.leakage >= whole.leakage or found.sigma != whole.sigma
    assert plan_calibration(model, found).certificate.stage == STAGE


def test_an_accountant_alone_raises_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = qd.example("asia")
    monkeypatch.setattr(ExactBound, "prepare", strike)
    accountant = ProfileAccountant(model)
    value = partial(lambda: accountant.prior(0.1)).max()
    assert accountant.shared.done.stage == STAGE
    assert value == qd.leakage(model, 0.1, adversary="prior", work=f"normal:{STAGE}").epsilon
    assert 0 < partial(lambda: accountant.dp_epsilon(1.0)) < 1


def test_a_worker_that_is_lost_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no refusal that a later stage may lift, and no reason to take another adversary's bound."""
    asked: list[str] = []

    def question() -> int:
        asked.append("")
        raise GuardReached("the time limit was reached") if len(asked) == 1 else WorkerLost("lost")

    with pytest.raises(WorkerLost, match=r"^lost$"):
        SharedWork("normal", 30.0).answer(question)
    assert len(asked) == 2

    def lost(self: ProfileAccountant, adversary: Any) -> Any:
        asked.append(adversary.name)
        raise WorkerLost("lost")

    monkeypatch.setattr(ProfileAccountant, "_prepare_profile", lost)
    with pytest.raises(WorkerLost):
        ProfileAccountant(qd.example("cancer")).prior(0.1)
    assert asked[2:] == ["prior"]

"""``quiltdp calibrate``, ``leakage`` and ``audit``: for people, for programs, one line for a mistake."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.errors import WorkerLost

SMALL = "models/earthquake.bif"
CHAIN = "models/location_chain.json"


def test_calibrate_as_json_is_what_python_says(cli) -> None:
    result = cli("calibrate", SMALL, "--epsilon", 1, "--budget", 10, "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert (document["schema"], document["version"]) == ("quiltdp/calibration", 2)
    model = qd.load_model(SMALL)
    cal = qd.calibrate(model, 1.0, qd.Thresholdout(10, 1 / len(model.records)))
    assert document["sigma"] == cal.sigma
    assert document["binding"]["unit"] == cal.binding.unit
    assert document["compared"].keys() == {"independent", "group", "published"}
    assert qd.Calibration.from_json(result.out).sigma == cal.sigma  # and it can be read back


def test_calibrate_for_people(cli) -> None:
    result = cli("calibrate", SMALL, "--epsilon", 1, "--sensitivity", 0.5)
    assert result.code == 0
    assert result.out.startswith("σ = ")
    for word in ("Laplace scale", "forced by", "certificate", "group privacy", "Largest leakages"):
        assert word in result.out


def test_calibrate_gaussian(cli) -> None:
    result = cli("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 1e-6, "--json")
    document = json.loads(result.out)
    assert document["delta"] == 1e-6
    assert document["dp_epsilon"] is None
    shown = cli("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 1e-6)
    assert "standard deviation, for ε = 1, δ = 1e-06" in shown.out


@pytest.mark.parametrize(
    "command",
    [
        ("calibrate", "--epsilon", 1),
        ("leakage", "--dp-epsilon", 0.1),
        ("leakage", "--dp-epsilon", 0.1, "--audit"),
    ],
    ids=["calibrate", "leakage", "audit"],
)
def test_workers_change_nothing_but_the_time(cli, command: tuple[Any, ...]) -> None:
    name, *options = command
    file = SMALL if "--audit" in options else "models/two_families.json"
    extra = () if "--audit" in options else ("--method", "propagation")
    here = cli(name, file, *options, *extra, "--json")
    there = cli(name, file, *options, *extra, "--workers", 2, "--json")
    assert (there.code, there.err, there.out) == (0, "", here.out)


def test_a_page_and_a_plan_with_workers_are_those_without(cli, tmp_path) -> None:
    pages = [tmp_path / f"{k}.html" for k in (1, 2)]
    for k, page in enumerate(pages, 1):
        told = cli("calibrate", SMALL, "--epsilon", 1, "--report", page, "--workers", k)
        assert (told.code, told.err) == (0, "")
    first, second = (page.read_text().replace(str(page), "").replace(f"--workers {k}", "")
                     for k, page in enumerate(pages, 1))  # fmt: skip
    assert first == second
    families = tmp_path / "many.fam"
    trio = ("a{0} 0 0", "b{0} 0 0", "c{0} a{0} b{0}")
    quad = (*trio, "d{0} a{0} b{0}")
    rows = [f"{k} {row.format(k)} 0 -9" for k in range(400) for row in (trio, quad)[k % 2]]
    families.write_text("\n".join(rows) + "\n")
    asked = ("plan", families, "--allele-frequency", 0.1, "--budget", 1, "--queries", 2, "--json")
    here = cli(*asked)
    assert here.code == 0, here.err
    assert cli(*asked, "--workers", 2) == here


def test_a_worker_that_is_lost_is_no_note_beside_the_answer(cli, monkeypatch) -> None:
    """An answer that stands beside another may be missing for its own reasons, not because somebody died."""
    usual = qd.calibrate

    def lose(*args: Any, **options: Any) -> Any:
        if options.get("adversary") == "prior":
            raise WorkerLost("a worker did not finish its part")
        return usual(*args, **options)

    monkeypatch.setattr("quiltdp.accountant.alternatives.calibrate", lose)
    found = cli("calibrate", SMALL, "--epsilon", 1, "--method", "group")
    assert (found.code, found.out) == (1, "")
    assert found.err == "quiltdp: a worker did not finish its part\n"


def test_windows_sets_and_adversaries(cli) -> None:
    window = json.loads(cli("leakage", CHAIN, "--dp-epsilon", 0.01, "--window", 3, "--json").out)
    single = json.loads(cli("leakage", CHAIN, "--dp-epsilon", 0.01, "--json").out)
    assert window["protected"] == "runs of 3 steps"
    assert window["epsilon"] > single["epsilon"]
    chosen = ("--protect", "home=Burglary,Alarm", "--protect", "calls=John*", "--json")
    sets = json.loads(cli("leakage", SMALL, "--dp-epsilon", 0.1, *chosen).out)
    assert sets["per_record"].keys() == {"home", "calls"}
    prior = json.loads(cli("leakage", SMALL, "--dp-epsilon", 0.1, "--adversary", "prior", "--json").out)
    informed = json.loads(cli("leakage", SMALL, "--dp-epsilon", 0.1, "--json").out)
    assert prior["epsilon"] <= informed["epsilon"] * (1 + 1e-9)


def test_leakage_as_json_and_for_people(cli) -> None:
    document = json.loads(cli("leakage", SMALL, "--dp-epsilon", 0.1, "--json").out)
    assert document["schema"] == "quiltdp/leakage"
    assert document["epsilon"] == qd.leakage(qd.load_model(SMALL), 0.1).epsilon
    assert len(document["per_record"]) == 5
    shown = cli("leakage", SMALL, "--dp-epsilon", 0.1, "--top", 2)
    assert shown.code == 0
    assert shown.out.startswith("leakage ≤ ")
    assert "in α" in shown.out
    assert "in α" not in cli("leakage", SMALL, "--dp-epsilon", 0.1, "--top", 0).out


def test_a_mechanism_that_reads_nothing(cli) -> None:
    result = cli("leakage", SMALL, "--dp-epsilon", 0)
    assert result.code == 0
    assert "leakage ≤ 0 at α = 0" in result.out


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_audit(cli, adversary: str) -> None:
    result = cli("leakage", "--audit", SMALL, "--dp-epsilon", 0.5, "--adversary", adversary, "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["schema"] == "quiltdp/audit"
    assert document["sound"] is True
    assert document["laplace_sum"] <= document["limit"] * (1 + 1e-9)
    for row in document["methods"]:
        assert row["epsilon"] is None or row["epsilon"] >= document["limit"] * (1 - 1e-9)
    shown = cli("leakage", "--audit", SMALL, "--dp-epsilon", 0.5, "--adversary", adversary)
    assert "Mark\n" not in shown.out  # a remark is folded between words, and no letter is cut off
    assert "no bound is below the limit" in shown.out


def test_records_are_chosen(cli) -> None:
    only = ("--records", "JohnCalls,MaryCalls", "--json")
    document = json.loads(cli("leakage", SMALL, "--dp-epsilon", 0.1, *only).out)
    assert document["per_record"].keys() == {"JohnCalls", "MaryCalls"}


BAD = [
    (("calibrate", SMALL), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", 0), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", -1), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", "nan"), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", "inf"), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", "one"), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", 1, "--budget", 0), "--budget"),
    (("calibrate", SMALL, "--epsilon", 1, "--budget", 2.5), "--budget"),
    (("calibrate", SMALL, "--epsilon", 1, "--sensitivity", 0), "--sensitivity"),
    (("calibrate", SMALL, "--epsilon", 1, "--sensitivity", "inf"), "--sensitivity"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "staircase"), "staircase"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "laplace", "--budget", 3), "--budget"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "thresholdout"), "--budget"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian"), "--delta"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 0), "--delta"),
    (("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 1), "--delta"),
    (
        ("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 0.1, "--method", "exact"),
        "exact",
    ),
    (
        ("calibrate", SMALL, "--epsilon", 1, "--mechanism", "gaussian", "--delta", 0.1, "--adversary", "me"),
        "'me'",
    ),
    (("calibrate", SMALL, "--epsilon", 1, "--delta", 0.1), "--delta"),
    (("calibrate", SMALL, "--epsilon", 1, "--method", "best"), "'best'"),
    (("calibrate", SMALL, "--epsilon", 1, "--adversary", "nobody"), "'nobody'"),
    (("calibrate", SMALL, "--epsilon", 1, "--window", 0), "--window"),
    (("calibrate", SMALL, "--epsilon", 1, "--window", 2), "chain"),
    (("calibrate", SMALL, "--epsilon", 1, "--time-limit", 0), "--time-limit"),
    (("calibrate", SMALL, "--epsilon", 1, "--records", "Nobody"), "Nobody"),
    (("calibrate", SMALL, "--epsilon", 1, "--allele-frequency", 0.1), "--allele-frequency"),
    (("calibrate", SMALL, "--epsilon", 1, "--wrong"), "--wrong"),
    (("calibrate", "models/nothing.bif", "--epsilon", 1), "nothing.bif"),
    (("leakage", SMALL), "--dp-epsilon"),
    (("leakage", SMALL, "--dp-epsilon", -0.1), "--dp-epsilon"),
    (("leakage", SMALL, "--dp-epsilon", "inf"), "--dp-epsilon"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--top", -1), "--top"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--method", "lemma4"), "chain"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--method", "gk16"), "'gk16'"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "Alarm"), "NAME="),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "a="), "NAME="),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "a=,"), "'a'"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "a=Nobody"), "Nobody"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "a=No*"), "'No'"),
    (("leakage", SMALL, "--dp-epsilon", 0.1, "--protect", "a=Alarm", "--protect", "a=Alarm"), "twice"),
    (("leakage", CHAIN, "--dp-epsilon", 0.1, "--protect", "a=hour_0", "--window", 2), "not both"),
    (("leakage", "models/SOURCES.md", "--dp-epsilon", 0.1), "SOURCES.md"),
    (("leakage", "--audit", SMALL, "--dp-epsilon", 0), "--dp-epsilon"),
    (("leakage", "--audit", SMALL, "--adversary", "nobody"), "'nobody'"),
]


@pytest.mark.parametrize("json_too", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(("arguments", "culprit"), BAD, ids=lambda v: " ".join(map(str, v)) if v else "")
def test_a_mistake_is_one_line_and_exit_code_2(cli, arguments, culprit: str, json_too: bool) -> None:
    result = cli(*arguments, *(["--json"] if json_too else []))
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("quiltdp: ")
    assert result.err.count("\n") == 1
    assert culprit in result.err


def test_infinity_is_written_as_a_word(cli) -> None:
    document = json.loads(cli("leakage", SMALL, "--dp-epsilon", 700, "--json").out)
    assert all(not math.isnan(float(v)) for v in document["per_record"].values())


@pytest.mark.parametrize(
    "call",
    [
        ("calibrate", "models/asia.bif", "--epsilon", "1e200"),
        ("leakage", "models/asia.bif", "--dp-epsilon", "1e308"),
        ("pedigree", "models/pedigree/ceph1463.fam", "-o", "family.foo"),
    ],
)
def test_absurd_numbers_and_pictures_are_refused_in_one_line(
    cli: Callable[..., Any], call: tuple[str, ...]
) -> None:
    found = cli(*call)
    assert found.code == 2
    assert len(found.err.splitlines()) == 1
    assert not found.out


def test_an_answer_no_better_than_group_privacy_says_what_else_could_be_chosen(cli):
    asked = ("calibrate", "tests/data/pedigree/trio.ped", "--allele-frequency", 0.1, "--sensitivity", 1)
    asked = (*asked, "--epsilon", 0.01, "--method", "group")
    first = " ".join(cli(*asked).out.split()[:80])
    assert "this is no better than group privacy; against the prior adversary" in first
    assert "to improve it: --method auto takes the best bound that applies; --work thorough" in first
    told = json.loads(cli(*asked, "--json").out)
    assert told["prior_adversary_sigma"] < told["sigma"]
    assert told["notes"][0].startswith("this is no better than group privacy")
    assert told["notes"][1].startswith("to improve it")
    thorough = cli(*asked, "--work", "thorough").out
    assert "to improve it" in thorough
    assert "--work thorough" not in thorough
    assert "no better" not in cli("calibrate", "models/asia.bif", "--epsilon", 1).out


def test_gaussian_noise_at_group_privacy_names_laplace_noise_by_its_standard_deviation(cli):
    asked = ("calibrate", "models/cancer.bif", "--epsilon", 1, "--releases", 3)
    noise = ("--mechanism", "gaussian", "--delta", "1e-6", "--method", "group")
    told = json.loads(cli(*asked, *noise, "--json").out)
    laplace = json.loads(cli(*asked, "--work", "quick", "--json").out)["sigma"]
    assert told["laplace_sigma"] == laplace
    assert told["laplace_standard_deviation"] == pytest.approx(math.sqrt(2) * laplace)
    shown = " ".join(cli(*asked, *noise).out.split()[:90])
    assert f"Laplace noise of standard deviation {math.sqrt(2) * laplace:.3f}"[:-2] in shown
    prior = json.loads(cli(*asked, *noise[:4], "--work", "quick", "--adversary", "prior", "--json").out)
    assert told["prior_adversary_sigma"] == prior["sigma"]


def test_runs_of_a_holdout_are_not_exchanged_for_one_number(cli):
    asked = ("calibrate", "models/cancer.bif", "--epsilon", 1, "--releases", 2, "--budget", 3)
    told = json.loads(cli(*asked, "--delta", "1e-6", "--method", "group", "--json").out)
    assert told["prior_adversary_sigma"] is not None
    assert told["laplace_sigma"] is None


def test_what_stands_beside_an_answer_protects_what_the_answer_protects(cli):
    asked = ("calibrate", "models/cancer.bif", "--epsilon", 1, "--protect", "home=Cancer,Smoker")
    told = json.loads(cli(*asked, "--method", "group", "--json").out)
    prior = json.loads(cli(*asked, "--adversary", "prior", "--work", "quick", "--json").out)
    assert told["prior_adversary_sigma"] == prior["sigma"]


def test_a_stage_that_is_none_is_refused_in_one_line_for_gaussian_noise_too(cli) -> None:
    for noise in ((), ("--mechanism", "gaussian", "--delta", 1e-6)):
        found = cli("calibrate", "models/cancer.bif", "--epsilon", 1, *noise, "--work", "normal:nonsense")
        assert found.code == 2
        assert len(found.err.splitlines()) == 1
        assert "--work: 'nonsense' is not a stage" in found.err


def test_a_calibration_is_certified_anew_by_its_own_search(cli, tmp_path) -> None:
    for extra in (
        ("--work", "quick:propagation"),
        ("--mechanism", "gaussian", "--delta", 1e-6, "--adversary", "prior"),
    ):
        made = cli("calibrate", SMALL, "--epsilon", 1, "--sensitivity", 1, *extra, "--json")
        file = tmp_path / "calibration.json"
        file.write_text(made.out)
        result = cli("leakage", SMALL, "--calibration", file)
        assert (result.code, result.err) == (0, "")
        assert "holds" in result.out
        document = json.loads(cli("leakage", SMALL, "--calibration", file, "--json").out)
        assert document["epsilon"] <= document["promised"] == 1.0
    edited = json.loads(made.out)
    edited["sigma"] = edited["releases"]["sigma"] = 0.9 * edited["sigma"]
    file.write_text(json.dumps(edited))
    result = cli("leakage", SMALL, "--calibration", file)
    assert (result.code, result.out) == (2, "")
    assert "more than its" in result.err


def test_a_calibration_and_other_options_are_refused_in_one_line(cli, tmp_path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(cli("calibrate", SMALL, "--epsilon", 1, "--sensitivity", 1, "--json").out)
    for options, said in (
        ((), "either --dp-epsilon or --calibration"),
        (("--dp-epsilon", 1, "--calibration", file), "either --dp-epsilon or --calibration"),
        (("--calibration", file, "--work", "quick"), "says its own"),
        (("--calibration", file, "--protect", "a=Burglary,Alarm"), "protects single records"),
        (("--calibration", tmp_path / "none.json"), "none.json"),
    ):
        result = cli("leakage", SMALL, *options)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert said in result.err

"""quiltdp pedigree: summary, kin table, leakage per person, drawing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

TRIO = "F kid dad mum 1 1\nF dad 0 0 1 1\nF mum 0 0 2 1\nF sis dad mum 2 1\n"


@pytest.fixture
def trio(tmp_path: Path) -> Path:
    path = tmp_path / "trio.fam"
    path.write_text(TRIO)
    return path


def test_summary(cli):
    found = cli("pedigree", "models/pedigree/redsquirrels.csv")
    assert found.code == 0
    assert "12,218 (7,799 rows, 4,419 added as latents)" in found.out
    assert "613" in found.out
    assert "4,419 people with one known parent" in found.out


def test_summary_as_json(cli):
    found = json.loads(cli("pedigree", "models/pedigree/ceph1463.fam", "--json").out)
    assert found["schema"] == "quiltdp/pedigree"
    assert found["pedigree"]["people"] == 17
    assert found["pedigree"]["founders"] == 4
    assert "leakage" not in found


def test_genetics_are_printed(cli, trio):
    out = cli("pedigree", trio, "--allele-frequency", 0.1, "--mutation-rate", 1e-8).out
    assert "mutation rate 1e-08, genotyping error 0" in " ".join(out.split())


def test_kin_table(cli):
    arguments = ("pedigree", "models/pedigree/ceph1463.fam", "--allele-frequency", 0.1, "--kin", "NA12879")
    found = json.loads(cli(*arguments, "--json").out)
    relatives = found["kin"]["relatives"]
    assert relatives[0]["relation"] == "parent"
    assert relatives[0]["influence"] == "inf"
    assert len(relatives) == 16
    assert "grandparent" in cli(*arguments).out


def test_leakage_of_both_adversaries_side_by_side(cli, trio, tmp_path):
    out = tmp_path / "leakage.tsv"
    found = cli("pedigree", trio, "--allele-frequency", 0.1, "--dp-epsilon", 0.5, "-o", out, "--json")
    assert found.code == 0, found.err
    payload = json.loads(found.out)
    leakage = payload["leakage"]
    assert 0.5 < leakage["prior"]["epsilon"] <= leakage["informed"]["epsilon"] <= 4 * 0.5 + 1e-9
    with out.open(encoding="utf-8") as stream:
        rows = {r["IID"]: r for r in csv.DictReader(stream, delimiter="\t")}
    assert set(rows) == {"kid", "dad", "mum", "sis"}
    assert rows["kid"]["NEAREST_QUILT"] == "dad,mum"
    assert max(float(r["LEAKAGE_INFORMED"]) for r in rows.values()) >= leakage["informed"]["epsilon"]


def test_alpha_for_a_target_and_the_tables_for_people(cli, trio):
    found = cli("pedigree", trio, "--allele-frequency", 0.1, "--dp-epsilon", 0.5)
    assert found.code == 0, found.err
    text = " ".join(found.out.split())
    assert "What an α = 0.5 DP release leaks" in text
    assert "2 parents, 1 full sib" in text
    trio.write_text("F kid dad mum 1 1\nF dad 0 0 1 1\nF mum 0 0 2 1\n")
    text = " ".join(cli("pedigree", trio, "--allele-frequency", 0.1, "--epsilon", 1).out.split())
    assert "to leak at most ε = 1" in text
    assert "chi-square" not in text
    payload = json.loads(cli("pedigree", trio, "--allele-frequency", 0.1, "--epsilon", 1, "--json").out)
    assert payload["leakage"]["informed"]["epsilon"] <= 1
    noise = {q["query"]: q for q in payload["noise"]}
    assert noise["allele-count"]["sensitivity"] == 2
    assert noise["carrier-count"]["sigma_informed"] * payload["dp_epsilon_for"]["informed"] >= 1
    prior, informed = (payload["dp_epsilon_for"][a] for a in ("prior", "informed"))
    assert prior >= informed * (1 - 1e-8)  # the inverse is searched to this tolerance


def test_twins_are_charged_twice(cli, trio):
    arguments = ("pedigree", trio, "--allele-frequency", 0.1, "--json", "--male", 1, "--female", 2)
    trio.write_text(TRIO.replace("F sis dad mum 2 1", "F bro dad mum 1 1"))
    alone = json.loads(cli(*arguments, "--dp-epsilon", 0.5).out)
    twins = json.loads(cli(*arguments, "--dp-epsilon", 0.5, "--twins", "kid,bro").out)
    values = {p["person"]: p["prior"] for p in twins["people"]}
    assert set(values) == {"kid", "dad", "mum"}
    assert values["kid"] >= 1.0  # two people of 0.5 each
    assert alone["pedigree"]["twins"] == 0
    target = json.loads(cli(*arguments, "--epsilon", 1, "--twins", "kid,bro").out)
    assert target["leakage"]["informed"]["epsilon"] <= 1


def test_several_loci_of_a_person_are_protected_together(cli, trio):
    loci = ("--allele-frequency", "rs1=0.1", "--allele-frequency", "rs2=0.3")
    found = json.loads(cli("pedigree", trio, *loci, "--epsilon", 1, "--json").out)
    assert found["unit"] == "one person, all 2 loci together"
    assert {q["unit"] for q in found["noise"]} == {found["unit"]}
    assert {q["query"]: q["sensitivity"] for q in found["noise"]}["allele-count"] == 4
    assert {p["locus"] for p in found["people"]} == {"all 2 loci"}
    alpha = found["leakage"]["dp_epsilon"] / 2
    single = [
        json.loads(cli("pedigree", trio, "--allele-frequency", f, "--dp-epsilon", alpha, "--json").out)
        for f in (0.1, 0.3)
    ]
    for k, person in enumerate(found["people"]):  # leakages of independent loci add
        for who in ("informed", "prior"):
            assert person[who] == pytest.approx(sum(s["people"][k][who] for s in single), rel=1e-9)
    said = cli("pedigree", trio, *loci, "--epsilon", 1).out
    assert "one person, all 2 loci together" in said


def test_calibrate_protects_the_loci_of_a_person_together(cli, trio):
    loci = ("--allele-frequency", "rs1=0.1", "--allele-frequency", "rs2=0.3")
    two = json.loads(cli("calibrate", trio, *loci, "--query", "allele-count", "--epsilon", 1, "--json").out)
    one = json.loads(cli("pedigree", trio, *loci, "--epsilon", 1, "--json").out)
    sigma = {q["query"]: q["sigma_informed"] for q in one["noise"]}["allele-count"]
    assert two["sigma"] == pytest.approx(sigma, rel=1e-6)
    assert two["protected"] == "sets of records"


def test_drawing(cli, trio, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "family.png"
    assert cli("pedigree", trio, "-o", picture).code == 0
    assert picture.stat().st_size > 2000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--dp-epsilon", 1, "--epsilon", 1), "not both"),
        (("-o", "out.tsv"), "needs --dp-epsilon or --epsilon"),
        (("--kin", "kid"), "needs the frequency"),
        (("--kin", "nobody", "--allele-frequency", 0.1), "'nobody' is not in the pedigree"),
    ],
)
def test_refusals_are_one_line(cli, trio, words, complaint):
    found = cli("pedigree", trio, *words)
    assert found.code == 2
    assert complaint in found.err
    assert found.err.count("\n") == 1
    assert not found.out


def test_other_commands_take_pedigrees(cli, trio):
    found = cli("info", trio, "--allele-frequency", 0.1, "--json")
    assert json.loads(found.out)["nodes"] == 4


def test_linked_loci_say_what_independence_would_have_missed(cli, tmp_path):
    family, study = tmp_path / "pair.fam", tmp_path / "study.txt"
    family.write_text("F kid dad mum 1 1\nF dad 0 0 1 1\nF mum 0 0 2 1\n")
    study.write_text("kid\ndad\n")
    loci = ("--allele-frequency", "rs1=0.1", "--allele-frequency", "rs2=0.1", "--study", study)
    asked = ("pedigree", family, *loci, "--recombination", 0.01, "--ld", 1, "--epsilon", 1)
    found = json.loads(cli(*asked, "--json").out)
    for cost in found["linkage"]:
        assert cost["exact"]
        assert cost["sigma"] > cost["sigma_if_unlinked"]
        assert cost["leakage_if_unlinked"] > 1 >= found["leakage"][cost["adversary"]]["epsilon"]
        assert cost["one_locus"] > 1.9 * cost["one_locus_if_unlinked"]
    assert {p["locus"] for p in found["people"]} == {"all 2 loci"}
    assert "if unlinked" in cli(*asked).out
    rows = ("--ld", "00=0.9", "--ld", "11=0.1", "--recombination", 0.01)
    model = tmp_path / "model.json"
    same = json.loads(cli("pedigree", family, *loci, *rows, "--epsilon", 1, "-o", model, "--json").out)
    assert same["linkage"] == found["linkage"]
    call = ("calibrate", model, "--query", "allele-count", "--epsilon", 1, "--json")
    sigma = json.loads(cli(*call).out)["sigma"]
    assert sigma == pytest.approx(found["linkage"][0]["sigma"], rel=1e-9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--recombination", 0.1), "needs two loci"),
        (("--allele-frequency", 0.1, "--ld", 0.5), "--ld is about linked loci: give --recombination 0.01"),
        (("--allele-frequency", "models/pedigree/panel.afreq", "--recombination", 0.1), "taken as unlinked"),
        (("--ld", "0=", "--recombination", 0.1), "--ld: expected NAME=VALUE"),
    ],
)
def test_linkage_that_makes_no_sense_is_refused(cli, trio, given, words):
    found = cli("pedigree", trio, *given, "--epsilon", 1)
    assert found.code == 2
    assert words in found.err


def test_relatives_who_may_be_known(cli, trio):
    """Both parents known: between the prior and the informed adversary, in text, JSON, order and table."""
    call = ("pedigree", trio, "--allele-frequency", 0.1, "--epsilon", 1)
    told = json.loads(cli(*call, "--adversary", "knows=mum,dad", "--json").out)
    alpha = told["dp_epsilon_for"]
    assert alpha["prior"] >= alpha["knows=mum,dad"] >= alpha["informed"]
    assert told["leakage"]["knows=mum,dad"]["epsilon"] <= 1.0
    for person in told["people"]:
        assert person["prior"] * (1 - 1e-9) <= person["asked"] <= person["informed"] * (1 + 1e-9)
    shown = cli(*call, "--adversary", "knows:1").out
    assert "σ asked" in shown
    assert "to the knows:1 adversary" in " ".join(shown.split())
    refused = cli(*call, "--adversary", "knows=nobody")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "nobody" in refused.err


def test_people_are_known_at_all_their_loci(cli, trio):
    loci = ("--allele-frequency", "a=0.1", "--allele-frequency", "b=0.3")
    found = cli("pedigree", trio, *loci, "--dp-epsilon", 0.1, "--adversary", "knows=mum", "--json")
    told = json.loads(found.out)["leakage"]
    assert told["prior"]["epsilon"] <= told["knows=mum"]["epsilon"] <= told["informed"]["epsilon"]

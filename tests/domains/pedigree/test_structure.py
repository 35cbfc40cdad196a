"""Families of every shape become the right network."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from quiltdp import load_model, pedigree
from quiltdp.domains.pedigree import Locus, Pedigree, Person, read_pedigree
from quiltdp.errors import InvalidArgument, InvalidModel, UnknownNode
from quiltdp.inference.trees import junction_tree

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "pedigree"


def fam(tmp_path, *rows, name="family.fam", **options):
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n")
    return read_pedigree(path, **options)


def parents(model):
    return {f.scope[-1]: f.parents for f in model.factors}


def test_unknown_parents_make_founders(tmp_path):
    family = fam(tmp_path, "F a 0 0 1", "F b 0 0 2")
    model = pedigree(family, 0.1)
    assert parents(model) == {"a": (), "b": ()}
    assert len(family.components) == 2


def test_one_known_parent_adds_a_latent_founder(tmp_path):
    family = fam(tmp_path, "F mum 0 0 2", "F kid 0 mum 1")
    model = pedigree(family, 0.1)
    assert parents(model)["kid"] == ("father of kid", "mum")
    assert model.records == ("mum", "kid")
    assert "1 person with one known parent" in " ".join(model.notes)


def test_unknown_fathers_of_one_mothers_children(tmp_path):
    rows = ["F mum 0 0 2", "F a 0 mum 1", "F b 0 mum 1"]
    separate = pedigree(fam(tmp_path, *rows), 0.1)
    shared = pedigree(fam(tmp_path, *rows, unknown_parents="shared"), 0.1)
    assert len(separate.latents) == 2
    assert shared.latents == ("father of the children of mum",)
    with pytest.raises(InvalidArgument, match="'separate' or 'shared'"):
        fam(tmp_path, *rows, unknown_parents="maybe")


def test_parents_without_a_row_are_latent(tmp_path):
    model = pedigree(fam(tmp_path, "F kid dad mum 1"), 0.1)
    assert model.records == ("kid",)
    assert set(model.latents) == {"dad", "mum"}
    assert "2 people mentioned as parents without a row" in " ".join(model.notes)


def test_half_sibs(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F m1 0 0 2", "F m2 0 0 2", "F a dad m1 1", "F b dad m2 2")
    assert parents(pedigree(family, 0.1)) == {
        "dad": (), "m1": (), "m2": (), "a": ("dad", "m1"), "b": ("dad", "m2"),
    }  # fmt: skip
    assert family.loops == 0


def test_consanguinity_is_a_loop_and_raises_homozygosity(tmp_path):
    family = fam(tmp_path, "F f 0 0 1", "F m 0 0 2", "F s f m 1", "F d f m 2", "F c s d 1")
    assert family.loops == 1
    law = junction_tree(pedigree(family, 0.1)).marginal(["c"])
    assert law == pytest.approx([0.81 + 0.09 / 4, 0.18 * 3 / 4, 0.01 + 0.09 / 4], abs=1e-14)


def test_monozygotic_twins_are_one_node(tmp_path):
    text = "ID,dadID,momID,sex,twinID,zygosity\nf,,,1,,\nm,,,2,,\n"
    text += "a,f,m,1,b,mz\nb,f,m,1,a,mz\nw,,,2,,\nc,b,w,1,,\n"
    family = fam(tmp_path, *text.splitlines(), name="twins.csv")
    model = pedigree(family, 0.1)
    assert model.nodes == ("f", "m", "a", "w", "c")
    assert parents(model)["c"] == ("a", "w")
    assert family["b"].name == "a"
    assert "one node" in " ".join(model.notes)


@pytest.mark.parametrize(
    "rows",
    [
        "a,f,m,1,b,mz\nb,f,m,1,,\n",  # one of the two names the other
        "a,f,m,1,,\nb,f,m,1,a,mz\n",
        "a,f,m,1,T1,mz\nb,f,m,1,T1,mz\n",  # a label in common
        "a,f,m,1,T1,mz\nb,f,m,1,T1,\n",
        "a,f,m,1,b,mz\nb,f,m,1,c,mz\nc,f,m,1,,mz\n",  # triplets
        "a,f,m,1,T1,mz\nb,f,m,1,T1,mz\nc,f,m,1,T1,mz\n",
    ],
)
def test_monozygotic_twins_however_they_are_marked(tmp_path, rows):
    text = f"ID,dadID,momID,sex,twinID,zygosity\nf,,,1,,\nm,,,2,,\n{rows}"
    family = fam(tmp_path, *text.splitlines(), name="twins.csv")
    assert [p.name for p in family.people] == ["f", "m", "a"]
    assert family["a"].also == tuple("bc"[: rows.count("\n") - 1])


def test_a_twin_label_that_is_an_id_of_somebody_else_is_refused(tmp_path):
    text = "ID,dadID,momID,sex,twinID,zygosity\n1,,,1,,\n2,,,2,,\n3,1,2,1,1,mz\n4,1,2,1,1,mz\n"
    with pytest.raises(InvalidModel, match="different parents"):
        fam(tmp_path, *text.splitlines(), name="twins.csv")


def test_twins_with_genotyping_error_share_the_true_genotype(tmp_path):
    rows = ["F f 0 0 1", "F m 0 0 2", "F a f m 1", "F b f m 1"]
    model = pedigree(fam(tmp_path, *rows, twins=[("a", "b")]), 0.1, error_rate=0.01)
    assert parents(model)["a"] == parents(model)["b"] == ("a:true",)
    assert set(model.records) == {"f", "m", "a", "b"}
    assert not model.people
    assert model.headcount == 4
    one = pedigree(fam(tmp_path, *rows, twins=[("a", "b")]), 0.1, error_rate=0.01, study=["b"])
    assert one.records == ("b",)


def test_twins_declared_by_the_caller(tmp_path):
    rows = ["F f 0 0 1", "F m 0 0 2", "F a f m 1", "F b f m 1"]
    assert len(fam(tmp_path, *rows, twins=[("a", "b")])) == 3
    assert pedigree(fam(tmp_path, *rows, twins=[("a", "b")]), 0.1, study=["b"]).records == ("a",)
    with pytest.raises(InvalidArgument, match="not in the pedigree"):
        fam(tmp_path, *rows, twins=[("a", "z")])
    with pytest.raises(InvalidModel, match="different parents"):
        fam(tmp_path, *rows, twins=[("a", "f")])
    with pytest.raises(InvalidModel, match="different sexes"):
        fam(tmp_path, *rows[:3], "F b f m 2", twins=[("a", "b")])


def test_dizygotic_twins_stay_siblings_and_unstated_ones_are_told(tmp_path):
    head = "ID,dadID,momID,sex,twinID,zygosity\nf,,,1,,\nm,,,2,,\n"
    dz = fam(tmp_path, *(head + "a,f,m,1,b,dz\nb,f,m,1,a,dz").splitlines(), name="a.csv")
    assert len(dz) == 4
    assert not dz.warnings
    unstated = fam(tmp_path, *(head + "a,f,m,1,b,\nb,f,m,1,a,").splitlines(), name="b.csv")
    assert len(unstated) == 4
    assert "unstated zygosity" in unstated.warnings[0]


def test_several_families_and_reused_ids(tmp_path):
    rows = [
        f"{f} {i} {p} {m} {s}"
        for f in ("A", "B")
        for i, p, m, s in ((1, 0, 0, 1), (2, 0, 0, 2), (3, 1, 2, 1))
    ]
    family = fam(tmp_path, *rows)
    assert [p.name for p in family] == ["A/1", "A/2", "A/3", "B/1", "B/2", "B/3"]
    assert parents(pedigree(family, 0.1))["B/3"] == ("B/1", "B/2")
    assert (
        "ids are unique only within families ('1' is in 'A', line 1, and in 'B', line 4)"
        in family.warnings[0]
    )


def test_ids_reused_in_a_csv_with_families(tmp_path):
    rows = [
        "famid,id,dadid,momid",
        *(f"{f},{i},{p},{m}" for f in "AB" for i, p, m in ((1, "", ""), (2, "", ""), (3, 1, 2))),
    ]
    assert [p.name for p in fam(tmp_path, *rows, name="a.csv")][:2] == ["A/1", "A/2"]


def test_a_parent_in_another_family_is_told_and_joined_on_demand(tmp_path):
    rows = ["A dad 0 0 1", "A mum 0 0 2", "B kid dad mum 1"]
    apart = fam(tmp_path, *rows)
    assert len(apart) == 5
    assert apart["kid"].parents == ("B/dad", "B/mum")
    assert "line 3: the father 'dad' of 'kid' is in family 'A', not 'B'" in apart.warnings[0]
    joined = fam(tmp_path, *rows, join_families=True)
    assert len(joined) == 3
    assert joined["kid"].parents == ("dad", "mum")


def test_study(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F mum 0 0 2", "F kid dad mum 1")
    ids = tmp_path / "ids.txt"
    ids.write_text("# the study\nkid\nF mum\n")
    for study in (ids, str(ids), ["mum", "kid"]):
        model = pedigree(family, 0.1, study=study)
        assert model.records == ("mum", "kid")
        assert model.latents == ("dad",)
    ids.write_text("kid\nnobody\n")
    with pytest.raises(InvalidArgument, match=r"ids.txt:2: 'nobody' is not in the pedigree"):
        pedigree(family, 0.1, study=ids)


def test_study_ids_in_several_families(tmp_path):
    family = fam(tmp_path, "A 1 0 0 1", "B 1 0 0 1")
    assert pedigree(family, 0.1, study=["A/1"]).records == ("A/1",)
    ids = tmp_path / "ids.txt"
    ids.write_text("B 1\n")
    assert pedigree(family, 0.1, study=ids).records == ("B/1",)
    with pytest.raises(InvalidArgument, match=r"'1' could be 'A/1' \(line 1\), 'B/1' \(line 2\)"):
        pedigree(family, 0.1, study=["1"])


def test_error_layer_makes_the_true_genotype_latent(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F mum 0 0 2", "F kid dad mum 1")
    model = pedigree(family, 0.1, error_rate=0.02, study=["kid", "mum"])
    assert model.records == ("mum", "kid")
    assert parents(model)["kid"] == ("kid:true",)
    assert parents(model)["kid:true"] == ("dad", "mum:true")
    called = junction_tree(model).marginal(["kid:true", "kid"])
    assert called[0, 0] / called[0].sum() == pytest.approx(0.98)


def test_x_linked(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F mum 0 0 2", "F son dad mum 1", "F girl dad mum 2")
    model = pedigree(family, 0.1, x_linked=True)
    assert {n: len(s) for n, s in model.states.items()} == {"dad": 2, "mum": 3, "son": 2, "girl": 3}
    assert parents(model)["son"] == ("mum",)
    tree = junction_tree(model)
    assert tree.marginal(["son"]) == pytest.approx([0.9, 0.1])
    assert tree.marginal(["dad", "girl"])[1, 0] == 0.0  # an affected father has no unaffected daughter
    assert tree.marginal(["dad", "son"]) == pytest.approx(np.outer([0.9, 0.1], [0.9, 0.1]))


def test_x_linked_needs_every_sex(tmp_path):
    with pytest.raises(InvalidModel, match="line 1: the sex of 'a' is unknown"):
        pedigree(fam(tmp_path, "F a 0 0 0", "F b 0 0 2"), 0.1, x_linked=True)
    with pytest.raises(InvalidModel, match="line 1: 'dad' is female and the father of 'kid'"):
        pedigree(fam(tmp_path, "F dad 0 0 2", "F mum 0 0 2", "F kid dad mum 1"), 0.1, x_linked=True)


def test_several_loci_are_independent_components_with_shared_tables(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F mum 0 0 2", "F kid dad mum 1")
    model = pedigree(family, {"rs1": 0.1, "rs2": 0.3, "rs3": 0.1})
    assert len(model.nodes) == 9
    assert parents(model)["kid@rs2"] == ("dad@rs2", "mum@rs2")
    tables = {f.scope[-1]: f.table for f in model.factors}
    assert tables["kid@rs1"] is tables["kid@rs3"]
    assert tables["dad@rs1"] is tables["mum@rs3"]


def test_inbred_founders(tmp_path):
    model = pedigree(fam(tmp_path, "F a 0 0 1"), 0.1, inbreeding=0.25)
    assert model.factors[0].table == pytest.approx([0.8325, 0.135, 0.0325])


def test_notes_and_provenance_say_what_was_assumed(tmp_path):
    family = fam(tmp_path, "F dad 0 0 1", "F mum 0 0 2", "F kid dad mum 1")
    exact = pedigree(family, 0.1)
    assert "exact Mendel" in " ".join(exact.notes)
    assert "mutation rate 0, genotyping error 0" in exact.notes[0]
    mutated = pedigree(family, 0.1, mutation_rate=1e-8)
    assert "exact Mendel" not in " ".join(mutated.notes)
    assert mutated.provenance["mutation_rate"] == "1e-08"
    assert mutated.provenance["format"] == "PLINK pedigree"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"allele_frequency": 0.0}, "nobody varies"),
        ({"allele_frequency": 1.2}, "allele_frequency must lie between"),
        ({"allele_frequency": float("nan")}, "allele_frequency must lie between"),
        ({"allele_frequency": None}, "needs the frequency"),
        ({"allele_frequency": {}}, "empty"),
        ({"mutation_rate": 0.6}, "mutation_rate must lie between 0 and 0.5"),
        ({"error_rate": -0.1}, "error_rate must lie between"),
        ({"inbreeding": 2}, "inbreeding must lie between"),
        ({"study": []}, "nobody in it"),
        ({"columns": {"id": "x"}}, "how to read a file"),
    ],
)
def test_refused_numbers(change, complaint):
    family = Pedigree((Person("a"), Person("b")))
    with pytest.raises(InvalidArgument, match=complaint):
        pedigree(family, **{"allele_frequency": 0.1, **change})


@pytest.mark.parametrize(
    ("people", "complaint"),
    [
        ((), "nobody"),
        ((Person("a"), Person("a")), "two people"),
        ((Person("a", "x", "y"),), "who is missing"),
        ((Person("a", "b", "c"), Person("b", "a", "c"), Person("c")), "own ancestors"),
    ],
)
def test_a_pedigree_is_checked_at_birth(people, complaint):
    with pytest.raises(InvalidModel, match=complaint):
        Pedigree(people)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("",), "name"),
        (("a", "b"), "both parents"),
        (("a", "b", "b"), "both"),
        (("a", "a", "b"), "own parent"),
    ],
)
def test_a_person_is_checked_at_birth(arguments, complaint):
    with pytest.raises(InvalidModel, match=complaint):
        Person(*arguments)


def test_unknown_person():
    with pytest.raises(UnknownNode, match="'z' is not in the pedigree"):
        Pedigree((Person("a"),))["z"]


def test_locus_is_frozen():
    with pytest.raises(AttributeError):
        Locus(0.1).allele_frequency = 0.2


# -- real files -----------------------------------------------------------------------------

with (DATA / "pedigree_stats.csv").open(encoding="utf-8") as stream:
    STATS = {row["file"]: row for row in csv.DictReader(stream)}
SHIPPED = {
    **{p.name: p for p in sorted(DATA.iterdir()) if p.name in STATS and p.name != "peddy_a.ped"},
    "bgmisc_royal92.csv": ROOT / "models" / "pedigree" / "royal92.csv",
    "ggped_Pedigree_dryadcopy.csv": ROOT / "models" / "pedigree" / "redsquirrels.csv",
    "djeffrey_House_of_Habsburg.ged": ROOT / "models" / "pedigree" / "habsburg.ged",
}
UNSHIPPED = [
    "tests-only/akt_20130606_g1k.fam", "tests-only/akt_pedphase_pedigree.fam",
    "tests-only/bgmisc_inbreeding.csv",
    "tests-only/bgmisc_potter.csv", "tests-only/fastlink_pedfile.dat", "tests-only/genlib_geneaJi.csv",
    "tests-only/kinship2_sample.ped.tab", "tests-only/nadiv_Mrode2.csv", "tests-only/quickped_habsburg.ped",
    "tests-only/quickped_haemophilia.ped", "gedcom/bgmisc_royal92.ged", "gedcom/djeffrey_ivar.ged",
    "pedigree/ggped_redsquirrels.csv",
]  # fmt: skip


def assert_counts(path, row):
    family = read_pedigree(path)
    stated = {p.name for p in family if p.stated}
    absent = {p.name for p in family if not p.stated and p.id}
    known = stated | absent
    largest = max(sum(1 for n in c if n in known) for c in family.components)
    twins = sum(len(p.also) for p in family)
    found = {
        "rows": family.facts["rows"], "founders": family.facts["founders"],
        "one_parent": family.facts["one_parent"], "missing_parent_rows": family.facts["missing_parent_rows"],
        "sex_unknown": family.facts["sex_unknown"], "loops": family.loops, "comps": len(family.components),
        "gens": max(family.generation.values()) + 1, "largest": largest + twins,
    }  # fmt: skip
    assert found == {name: int(float(row[name])) for name in found}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_files_read_to_their_counts(name):
    assert_counts(SHIPPED[name], STATS[name])


@pytest.mark.parametrize("name", UNSHIPPED)
def test_other_files_read_to_their_counts(name, shared_data):
    assert_counts(shared_data / name, STATS[Path(name).name])


def test_quebec_genealogy(shared_data):
    family = read_pedigree(shared_data / "tests-only" / "genlib_genea140.csv")
    assert (len(family), len(family.founders)) == (41523, 7399)


def test_ceph_kindreds_all_load():
    files = sorted((ROOT / "models" / "pedigree" / "ceph").glob("*.ped"))
    assert len(files) == 27
    for path in files:
        model = load_model(path, allele_frequency=0.1)
        assert not model.latents


def test_twins_named_by_family_and_id_are_two_people_of_the_study(tmp_path):
    rows = ("F dad 0 0 1", "F mum 0 0 2", "F ann dad mum 2", "F bea dad mum 2")
    family = fam(tmp_path, *rows, twins=[("ann", "bea")])
    by_id, by_both = (pedigree(family, 0.1, study=s) for s in (["ann", "bea"], ["F ann", "F bea"]))
    assert dict(by_both.people) == dict(by_id.people) == {"ann": 2}

"""The tables the field expects."""

from __future__ import annotations

import csv
import io

from quiltdp import pedigree
from quiltdp.domains.pedigree import Pedigree, Person
from quiltdp.domains.pedigree.output import leakage_tsv, person_table, summary

FAMILY = Pedigree(
    (
        Person("dad", sex="male", family="F", id="dad"),
        Person("mum", sex="female", family="F", id="mum"),
        Person("a", "dad", "mum", "male", "F", "a"),
        Person("b", "dad", "mum", "female", "F", "b"),
        Person("alone", family="G", id="alone"),
    )
)


def read(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def test_table_per_person():
    model = pedigree(FAMILY, 0.1)
    informed = dict.fromkeys(model.records, 1.23456789)
    prior = {**dict.fromkeys(model.records, 0.5), "a": float("inf")}
    rows = {r["IID"]: r for r in read(leakage_tsv(person_table(model, FAMILY, informed, prior)))}
    assert rows["a"] == {
        "FID": "F", "IID": "a", "LOCUS": "", "LEAKAGE_INFORMED": "1.23457", "LEAKAGE_PRIOR": "inf",
        "NEAREST_QUILT": "dad,mum", "DRIVEN_BY": "2 parents, 1 full sib",
    }  # fmt: skip
    assert rows["dad"]["DRIVEN_BY"] == "2 children"
    assert rows["dad"]["NEAREST_QUILT"] == "mum,a,b"
    assert rows["alone"]["NEAREST_QUILT"] == ""
    assert rows["alone"]["DRIVEN_BY"] == "no near relative in the study"
    assert all(float(r["LEAKAGE_INFORMED"]) >= 1.23456789 for r in rows.values())  # rounded up


def test_table_per_person_with_errors_loci_and_twins():
    people = (*FAMILY.people[:2], Person("a", "dad", "mum", "male", "F", "a", also=("twin",)))
    family = Pedigree(people)
    model = pedigree(family, {"rs1": 0.1, "rs2": 0.2}, error_rate=0.01)
    values = dict.fromkeys(model.records, 1.0)
    rows = person_table(model, family, values, values)
    assert [(r.person, r.locus) for r in rows] == [
        (n, s) for s in ("rs1", "rs2") for n in ("dad", "mum", "a", "twin")
    ]
    assert rows[2].quilt == ("dad", "mum")
    assert rows[2].driver == "2 parents, 1 monozygotic twin"


def test_grandparent_drives_when_nobody_nearer_is_in_the_study():
    family = Pedigree(
        (Person("g"), Person("h"), Person("p", "g", "h"), Person("q"), Person("kid", "p", "q"), Person("r"))
    )
    model = pedigree(family, 0.1, study=["g", "kid", "r"])
    values = dict.fromkeys(model.records, 1.0)
    drivers = {r.person: r.driver for r in person_table(model, family, values, values)}
    assert drivers == {"g": "1 grandchild", "kid": "1 grandparent", "r": "no near relative in the study"}


def test_summary():
    found = summary(FAMILY)
    assert (found["people"], found["components"], found["loops"], found["generations"]) == (5, 2, 0, 2)

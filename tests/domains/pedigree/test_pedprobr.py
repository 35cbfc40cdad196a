"""Our networks against pedprobr, an independent Elston–Stewart program, to 1e-12."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from quiltdp.domains.pedigree.network import pedigree
from quiltdp.domains.pedigree.people import Pedigree, Person
from quiltdp.domains.pedigree.read import read_pedigree
from quiltdp.inference.trees import junction_tree

DATA = Path(__file__).parents[2] / "data"
TOLERANCE = 1e-12


def tutankhamun() -> Pedigree:
    return Pedigree(
        (
            Person("Thuya", sex="female"),
            Person("Yuya", sex="male"),
            Person("Tiye (EL)", "Yuya", "Thuya", "female"),
            Person("Amenhotep III", sex="male"),
            Person("Akhenaten", "Amenhotep III", "Tiye (EL)", "male"),
            Person("YL", "Amenhotep III", "Tiye (EL)", "female"),
            Person("Tutankhamun", "Akhenaten", "YL", "male"),
        )
    )


@pytest.fixture(scope="module")
def printed():
    """(pedigree, frequency, mutation) -> [(ids, genotypes, probability)]."""
    found = defaultdict(list)
    with gzip.open(DATA / "oracle" / "pedprobr_distributions.csv.gz", "rt", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            ids = tuple(i for i in (row["id1"], row["id2"]) if i)
            genotypes = tuple(int(g) for g in (row["g1"], row["g2"]) if g)
            key = row["pedigree"], float(row["alt_freq"]), row["mutation"]
            found[key].append((ids, genotypes, float(row["prob"])))
    return found


SETTINGS = [(0.1, "none"), (0.3, "none"), (0.1, "equal_0.001")]


def check(family: Pedigree, rows, frequency: float, mutation: str, prefix: str = "") -> None:
    rate = 0.0 if mutation == "none" else float(mutation.split("_")[1])
    tree = junction_tree(pedigree(family, allele_frequency=frequency, mutation_rate=rate))
    assert len(rows) > 100
    tables = {}
    for ids, genotypes, probability in rows:
        if ids not in tables:
            tables[ids] = tree.marginal([prefix + i for i in ids])
        assert abs(tables[ids][genotypes] - probability) < TOLERANCE, (ids, genotypes)


@pytest.mark.parametrize(("frequency", "mutation"), SETTINGS)
def test_ceph1463(printed, frequency, mutation):
    family = read_pedigree(DATA / "pedigree" / "peddy_ceph1463.ped")
    check(family, printed["ceph1463", frequency, mutation], frequency, mutation)


@pytest.mark.parametrize(("frequency", "mutation"), SETTINGS)
def test_tutankhamun(printed, frequency, mutation):
    check(tutankhamun(), printed["tutankhamun", frequency, mutation], frequency, mutation)


@pytest.mark.parametrize(("frequency", "mutation"), SETTINGS)
@pytest.mark.parametrize("family", [1, 3, 5, 7])
def test_inbreeding_families(printed, shared_data, family, frequency, mutation):
    everybody = read_pedigree(shared_data / "tests-only" / "bgmisc_inbreeding.csv")
    people = tuple(p for p in everybody if p.family == str(family))
    rows = printed[f"bgmisc_inbreeding_fam{family}", frequency, mutation]
    check(Pedigree(people), rows, frequency, mutation)


@pytest.mark.parametrize(("frequency", "mutation"), SETTINGS)
@pytest.mark.parametrize(
    ("name", "file"),
    [("haemophilia", "quickped_haemophilia.ped"), ("kinship2_fam1", "kinship2_sample.ped.tab")],
)
def test_field_files(printed, shared_data, name, file, *, frequency, mutation):
    family = read_pedigree(shared_data / "tests-only" / file)
    check(family, printed[name, frequency, mutation], frequency, mutation)


CASES = json.loads((DATA / "oracle" / "pedprobr_closed_form_cases.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_closed_form_likelihood(case):
    people = tuple(
        Person(
            str(p["id"]), str(p["father"]) if p["father"] else None, str(p["mother"]) if p["mother"] else None
        )
        for p in case["pedigree"]
    )
    typed = {str(i): g for i, g in case["genotypes"].items()}
    tree = junction_tree(pedigree(Pedigree(people), allele_frequency=case["alt_allele_freq"]))
    likelihood = tree.marginal(list(typed))[tuple(typed.values())]
    assert np.isclose(likelihood, case["likelihood"], rtol=0, atol=TOLERANCE)

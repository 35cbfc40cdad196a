"""Every named query against its definition: change one unit in every world, and look how far it moves.

A unit is one person (all loci), one step or everything a user did, one row.  The largest movement found
must be the declared sensitivity: never above it (that would be too little noise), and equal to it (or
noise is wasted).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.pedigree import Pedigree, Person, read_pedigree
from quiltdp.domains.pedigree.frequencies import read_frequencies
from quiltdp.domains.pedigree.genotypes import count_genotypes
from quiltdp.domains.pedigree.panel import analyze_panel
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel, to_calibration
from quiltdp.domains.pedigree.queries import GenotypeQuery, query_by_name
from quiltdp.domains.trace import Points, location_study, over_area, time_per_cell, visits_per_cell
from quiltdp.domains.trace.build import whole_traces
from quiltdp.mechanisms.queries import TablePair

TRIO = Pedigree((Person("dad", sex="male"), Person("mum", sex="female"), Person("kid", "dad", "mum", "male")))
NAMES = ("allele-count", "carrier-count", "genotype-histogram")


def largest(worlds: Iterable[Sequence[np.ndarray]], norm: float = 1) -> float:
    """Return the largest distance between two answers of one group; a group differs in one unit only."""
    return max(
        float(np.linalg.norm(np.ravel(a) - np.ravel(b), norm))
        for group in worlds
        for a, b in itertools.combinations(group, 2)
    )


# -- pedigrees: a person, all loci ---------------------------------------------------------------------


def by_person(model: qd.Model, query: GenotypeQuery) -> Iterable[list[np.ndarray]]:
    """Yield, for every person and every genotype of the others, the answers for all of the person's own."""
    sizes = {r: range(model.cardinality(r)) for r in model.records}
    for own in query.protect.values():
        rest = [r for r in model.records if r not in own]
        for others in itertools.product(*(sizes[r] for r in rest)):
            fixed = dict(zip(rest, others, strict=True))
            yield [
                query({**fixed, **dict(zip(own, mine, strict=True))})
                for mine in itertools.product(*(sizes[r] for r in own))
            ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "how",
    [
        {"allele_frequency": 0.1},
        {"allele_frequency": 0.1, "x_linked": True},
        {"allele_frequency": 0.1, "error_rate": 0.01},
        {"allele_frequency": {"rs1": 0.1, "rs2": 0.3}},
        {"allele_frequency": {"rs1": 0.1, "rs2": 0.3}, "recombination": 0.01},
    ],
    ids=["one locus", "on the X", "with errors", "two loci", "two linked loci"],
)
def test_genotype_queries(name: str, how: dict[str, Any]) -> None:
    model = qd.pedigree(TRIO, **how)
    query = query_by_name(model, name)
    assert largest(by_person(model, query)) == query.sensitivity
    for record, declared in query.sensitivities.items():
        rows = [query.terms[record][g] for g in range(model.cardinality(record))]
        assert largest([rows]) == declared


@pytest.mark.parametrize("name", NAMES)
def test_twins_are_two_people_behind_one_record(name: str) -> None:
    twins = Pedigree((Person("dad"), Person("mum"), Person("a", "dad", "mum", also=("b",))))
    model = qd.pedigree(twins, 0.1)
    query = query_by_name(model, name)
    alone = query_by_name(qd.pedigree(TRIO, 0.1), name)
    together = largest(g for g in by_person(model, query))
    assert together == max(query.sensitivities.values()) == 2 * alone.sensitivity
    assert query.sensitivity == alone.sensitivity  # of one person: the model knows that they are two


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["raw", "table"])
def test_a_release_from_files(name: str, file: str, tmp_path: Path) -> None:
    """Missing calls, a column that counts the other allele, a man's X: all calls of a person change."""
    fam, panel = tmp_path / "t.fam", tmp_path / "p.afreq"
    fam.write_text("F dad 0 0 1 -9\nF mum 0 0 2 -9\nF kid dad mum 1 2\n")
    panel.write_text("#CHROM\tID\tREF\tALT\tALT_FREQS\n1\trs1\tA\tG\t0.2\nX\trs2\tC\tT\t0.4\n")
    family, loci = read_pedigree(fam), read_frequencies(panel)
    people = ("dad", "mum", "kid")

    def answer(calls: dict[str, tuple[str, str]]) -> np.ndarray:
        path = tmp_path / f"calls.{file}"
        if file == "raw":
            head = "FID IID PAT MAT SEX PHENOTYPE rs1_A rs2_T\n"  # rs1 counts the reference
            path.write_text(head + "".join(f"F {p} 0 0 0 0 {a} {b}\n" for p, (a, b) in calls.items()))
        else:
            lines = [[locus, *(calls[p][k] for p in people)] for k, locus in enumerate(("rs1", "rs2"))]
            path.write_text("\n".join(",".join(row) for row in [["snp", *people], *lines]) + "\n")
        return count_genotypes(path, loci, family, people).answer(name)

    rest = {"dad": ("1", "2"), "mum": ("NA", "1"), "kid": ("2", "0")}
    worlds = [
        [answer({**rest, who: mine}) for mine in itertools.product(("0", "1", "2", "NA"), repeat=2)]
        for who in people
    ]
    profile = analyze_panel(family, loci, name)
    assert largest(worlds) == profile.sensitivity
    for split in ("equal", "least-error"):
        cal = calibrate_panel(profile, 1.0, adversary="prior", split=split)
        scaled = [[w / cal.weights[:, None] for w in group] for group in worlds]
        released = to_calibration(cal).mechanism.sensitivity
        assert largest(scaled) <= released
        if split == "equal":
            assert largest(scaled) == pytest.approx(released, rel=1e-11)


# -- traces: a step, and everything a user did -----------------------------------------------------------

PLACES = ((47.370, 8.540), (47.380, 8.540), (47.370, 8.560), (47.500, 8.540))
"""The last one lies outside the public area."""
AREA = (47.36, 8.53, 47.39, 8.57)
STEPS = 2


def histogram(ann: Sequence[int], ask: Callable[..., Any]) -> tuple[np.ndarray, Any]:
    """Return the query over the public area for what ann did, while bob stayed and moved once."""
    where = [*ann, 0, 1]
    points = Points(
        ("ann", "bob"),
        [0] * STEPS + [1, 1],
        [300.0 * k for k in (*range(STEPS), 0, 1)],
        [PLACES[p][0] for p in where],
        [PLACES[p][1] for p in where],
    )
    study = location_study(points, "500m", "5min", "additive:1", max_speed=None)
    wide = over_area(ask(study.steps), study.steps.cells, AREA)
    return wide.query.values, (study, wide.query)


@pytest.mark.parametrize("ask", [visits_per_cell, lambda steps: time_per_cell(steps, "min")])
def test_cell_queries(ask: Callable[..., Any]) -> None:
    worlds = {w: histogram(w, ask) for w in itertools.product(range(len(PLACES)), repeat=STEPS)}
    study, declared = worlds[0, 1][1]
    one_step = [
        [worlds[(*rest[:k], cell, *rest[k:])][0] for cell in range(len(PLACES))]
        for k in range(STEPS)
        for rest in itertools.product(range(len(PLACES)), repeat=STEPS - 1)
    ]
    assert largest(one_step) == declared.sensitivity
    assert largest(one_step, 2) <= declared.sensitivity_l2 <= largest(one_step, 2) * (1 + 1e-12)
    assert largest(one_step, math.inf) == declared.sensitivity_one
    everything = [values for values, _ in worlds.values()]
    assert largest([everything]) == STEPS * declared.sensitivity
    cal = qd.calibrate(
        study.model, 1.0, qd.Laplace(declared.sensitivity), protect={"ann": whole_traces(study.model)["ann"]}
    )
    assert cal.sigma == pytest.approx(largest([everything]))  # ann is on her own: nothing else tells


# -- holdouts: a row -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "guess == label",
        "guess",
        "guess != label and label == 1",
        lambda d: np.asarray(d["guess"], dtype=float) == np.asarray(d["label"], dtype=float),
        lambda d: 1 - np.asarray(d["guess"], dtype=float),
    ],
)
def test_a_row_moves_a_mean_by_one_over_n(query: Any) -> None:
    """Rows with odd numbers and missing ones too: every table has an answer, and a row moves it by 1/n."""
    rows = 3
    cells = [(g, y) for g in (0.0, 1.0, 2.0, math.nan) for y in (0.0, 1.0)]
    train = {"guess": np.array([0.0, 1.0, 1.0, 0.0]), "label": np.array([1.0, 1.0, 0.0, 0.0])}
    values: dict[tuple[int, ...], Fraction] = {}
    for world in itertools.product(range(len(cells)), repeat=rows):
        table = {name: np.array([cells[w][k] for w in world]) for k, name in enumerate(("guess", "label"))}
        pair = TablePair(train, table)
        found = pair.on_holdout(query, pair.on_training(query))
        assert found is not None
        values[world] = found
    moved = max(
        abs(values[(*rest[:k], a, *rest[k:])] - values[(*rest[:k], b, *rest[k:])])
        for k in range(rows)
        for rest in itertools.product(range(len(cells)), repeat=rows - 1)
        for a, b in itertools.combinations(range(len(cells)), 2)
    )
    assert moved <= Fraction(1, rows)
    assert moved == Fraction(1, rows)

"""The influence table: against every quilt by brute force, and against method="published"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.influence_table import InfluenceTable
from quiltdp.accountant.leakage import analyze
from quiltdp.errors import QuiltdpError, UnknownNode
from quiltdp.inference import brute_force

DATA = Path(__file__).parents[1] / "data" / "reference"


def weak(seed: int, nodes: int) -> qd.Model:
    """Return a random binary network of weak dependence, so that quilts beat the whole component."""
    rng = np.random.default_rng(seed)
    tables = {}
    for k in range(nodes):
        parents = [f"V{j}" for j in sorted(rng.choice(k, size=min(k, rng.integers(0, 3)), replace=False))]
        p = 0.5 + rng.uniform(-0.04, 0.04, size=(2,) * len(parents))
        tables[f"V{k}"] = (parents, np.stack((p, 1 - p), axis=-1))
    return qd.Model.from_tables(tables)


@pytest.mark.parametrize("seed", range(6))
def test_every_row_is_the_best_quilt_by_brute_force(seed: int) -> None:
    model = weak(seed, 6)
    table = qd.influence_table(model)
    graph, alpha = qd.moralize(model), table.dp_epsilon
    for record, row in table.items():
        every = {
            q: (q.closed_records * alpha + 4 * brute_force.quilt_influence(model, q).b)
            for q in qd.quilts(graph, record, max_nearby=4)
        }
        assert row.leakage == pytest.approx(min(every.values()), abs=1e-9)
        assert every[row.quilt] == pytest.approx(row.leakage, abs=1e-9)
        assert row.b == pytest.approx(brute_force.quilt_influence(model, row.quilt).b, abs=1e-9)
        blanket = qd.markov_blanket(graph, record)
        assert row.a == pytest.approx(brute_force.max_influence(model, of=record, on=blanket), abs=1e-9)
        assert row.b_exact
        assert row.a_exact
    assert max(row.leakage for row in table.values()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        weak(1, 7),
        qd.example("asia"),
        qd.markov_chain([[0.7, 0.3], [0.2, 0.8]], length=40),
        qd.markov_chain([[0.7, 0.3], [0.2, 0.8]], length=9, initial=[0.9, 0.1]),
        qd.Model.from_potentials({"A": 2, "B": 2, "C": 2}, [("AB", [[3, 2], [2, 3]]), ("C", [1, 1])]),
    ],
    ids=["weak", "asia", "chain", "not stationary", "Markov network"],
)
def test_the_leakages_are_those_of_the_published_method(model: qd.Model) -> None:
    table = qd.influence_table(model, epsilon=2.0)
    profile = analyze(model, method="published")
    assert table.dp_epsilon == profile.dp_epsilon(2.0)
    assert {r: row.leakage for r, row in table.items()} == dict(profile.per_unit(table.dp_epsilon))
    for row in table.values():  # and every row says why
        said = row.quilt.closed_records * table.dp_epsilon + 4 * row.b
        assert row.leakage == pytest.approx(said, abs=1e-8)
        assert row.nearby_records == row.quilt.closed_records - 1


def test_a_chain_and_the_same_law_as_a_network_have_the_same_quilts() -> None:
    chain = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=9)
    network = qd.Model(chain.states, chain.factors)
    one, two = (qd.influence_table(m, dp_epsilon=0.2) for m in (chain, network))
    for record in one:
        assert one[record].leakage == pytest.approx(two[record].leakage, abs=1e-9)
        assert one[record].a == pytest.approx(two[record].a, abs=1e-9)


def test_copies_of_a_component_keep_their_names() -> None:
    table = [[0.52, 0.48], [0.48, 0.52]]
    chains = {
        f"{n}{k}": ([f"{n}{k - 1}"] if k else [], table if k else [0.5, 0.5]) for n in "ab" for k in range(6)
    }
    found = qd.influence_table(qd.Model.from_tables(chains))
    assert all(n[0] == row.record[0] for row in found.values() for n in row.quilt.separator)
    assert any(row.quilt.separator for row in found.values())


def test_a_hub_too_wide_to_sum_out_gives_no_better_quilt() -> None:
    """Beyond the hub there are only upper bounds, none below the exact b of the hub itself."""
    leaf = np.array([[0.26, 0.24, 0.25, 0.25], [0.24, 0.26, 0.25, 0.25]])
    tables: dict[str, Any] = {"hub": ([], [0.5, 0.5])}
    tables |= {f"L{k:02}": (["hub"], leaf) for k in range(20)}
    star = qd.Model.from_tables(tables, records=[n for n in tables if n != "hub"])
    row = qd.influence_table(star, dp_epsilon=0.3, records=["L00"])["L00"]
    assert row.quilt.separator == {"hub"}
    assert row.b_exact
    assert [row.b, row.a] == pytest.approx([np.log(26 / 24)] * 2, abs=1e-12)
    beyond = next(q for q in qd.quilts(star, "L00") if "hub" in q.nearby)
    bound = qd.quilt_influence(star, beyond)
    assert not bound.exact
    assert bound.b >= row.b - 1e-12


def test_an_upper_bound_is_said_to_be_one() -> None:
    row = replace(qd.influence_table("models/cancer.bif")["Cancer"], b=0.5, b_exact=False)
    assert "≤ 0.5" in str(InfluenceTable({"Cancer": row}, 0.1))


def test_against_the_reference_networks() -> None:
    cases = json.loads((DATA / "networks.json").read_text(encoding="utf-8"))
    for case in cases:
        tables = {n: (t["parents"], t["table"]) for n, t in case["tables"].items()}
        model = qd.Model.from_tables(tables, records=case["records"])
        table = qd.influence_table(model, dp_epsilon=case["dp_epsilon"])
        assert table.binding.leakage == pytest.approx(case["bounds"]["published"], abs=1e-9)
        said = {(q["target"], *sorted(q["quilt"])): (float(q["b"]), q["nearby"]) for q in case["quilts"]}
        for record, row in table.items():
            b, nearby = said[(record, *sorted(row.quilt.separator))]
            assert row.b == pytest.approx(b, abs=1e-9)
            assert row.quilt.nearby == set(nearby)


def test_one_row_words_and_json() -> None:
    table = qd.influence_table("models/asia.bif", records=["smoke", "xray"])
    assert list(table) == ["smoke", "xray"]
    assert table.binding.quilt.is_trivial
    assert table.binding.nearby_records == 7
    assert "published leakage" in str(table)
    assert str(table).count("\n") == 3
    assert json.loads(json.dumps(table["smoke"].to_dict()))["separator"] == []
    with pytest.raises(UnknownNode):
        table["lung"]
    with pytest.raises(QuiltdpError, match="dp_epsilon"):
        qd.influence_table("models/asia.bif", dp_epsilon=-1.0)

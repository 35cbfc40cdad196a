"""``quiltdp quilts`` and ``quiltdp info`` for people and for programs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.chain import markov_chains
from quiltdp.cli.info import describe_model
from quiltdp.cli.show import listed, number


def test_quilts_as_json(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--max-nearby", 1, "--json")
    assert result.code == 0
    assert result.err == ""
    document = json.loads(result.out)
    assert document["schema"] == "quiltdp/quilts"
    assert document["target"] == "smoke"
    assert document["more"] is False
    graph = qd.moralize(qd.load_model("models/asia.bif"))
    expected = [
        (sorted(q.separator), sorted(q.nearby), sorted(q.remote))
        for q in qd.quilts(graph, "smoke", max_nearby=1)
    ]
    assert [(q["separator"], q["nearby"], q["remote"]) for q in document["quilts"]] == expected
    assert document["quilts"][-1]["trivial"] is True


def test_quilts_for_people(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--limit", 2)
    assert result.code == 0
    assert "bronc, lung" in result.out
    assert "--limit" in result.out
    assert "\x1b[" not in result.out
    assert all(line == line.rstrip() for line in result.out.splitlines())


def test_limit_and_separator(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--max-separator", 2, "--json")
    document = json.loads(result.out)
    assert all(len(q["separator"]) <= 2 for q in document["quilts"])
    result = cli("quilts", "models/asia.bif", "smoke", "--limit", 3, "--json")
    document = json.loads(result.out)
    assert len(document["quilts"]) == 3
    assert document["more"] is True


def test_info_as_json(cli) -> None:
    document = json.loads(cli("info", "models/alarm.bif", "--json").out)
    assert document["nodes"] == 37
    assert document["records"] == 37
    assert document["latents"] == 0
    assert document["edges"] == 65
    assert document["components"] == 1
    assert document["treewidth_estimate"] == 4
    assert document["largest_table"]["entries"] == 108
    assert document["entries"] == 752
    assert document["states"] == {"smallest": 2, "largest": 4, "total": 105}
    assert document["fingerprint"] == qd.load_model("models/alarm.bif").fingerprint


def test_records_can_be_named(cli) -> None:
    document = json.loads(cli("info", "models/asia.bif", "--records", "smoke,lung", "--json").out)
    assert (document["records"], document["latents"]) == (2, 6)
    result = cli("quilts", "models/asia.bif", "smoke", "--records", "smoke,lung", "--max-nearby", 0, "--json")
    assert [q["nearby_records"] for q in json.loads(result.out)["quilts"]].count(0) > 1


def test_pedigree_files(cli) -> None:
    call = ["info", "models/pedigree/ceph1463.fam", "--allele-frequency", "0.1", "--json"]
    assert json.loads(cli(*call).out)["nodes"] == 17
    assert "--allele-frequency" in cli("info", "models/pedigree/ceph1463.fam").err


def test_info_for_people(cli) -> None:
    out = cli("info", "models/asia.bif").out
    assert "8, with 2 states" in out
    assert "treewidth at most 2" in out


@pytest.mark.parametrize("lengths", [{"X": 1}, {"X": 2}, {"X": 5}, {"a/": 3, "b/": 1, "c/": 4}])
def test_chain_facts_equal_those_of_the_unrolled_network(lengths: dict[str, int]) -> None:
    chain = markov_chains([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]], lengths)
    same = qd.Model(dict(chain.states), tuple(chain.factors))
    fast, slow = describe_model(chain), describe_model(same)
    for key in ("kind", "fingerprint"):
        del fast[key], slow[key]
    assert fast["largest_table"].pop("factor") == slow["largest_table"].pop("factor")
    assert fast == slow


def test_varying_chain_facts() -> None:
    chain = qd.markov_chain([np.full((2, 3), 1 / 3), np.full((3, 2), 1 / 2)], initial=[0.5, 0.5])
    facts = describe_model(chain)
    assert facts["states"] == {"smallest": 2, "largest": 3, "total": 7}
    assert facts["entries"] == 14
    assert facts["factors"] == 3


def test_words() -> None:
    assert listed(["X10", "X2", "X1"]) == "X1, X2, X10"
    assert listed([]) == "–"
    assert listed([f"X{k}" for k in range(11)], most=2) == "X0, X1, … 9 more"
    assert listed(["", "²x", "1"]) != ""
    assert number(float("inf")) == "∞"
    assert number(0.123456) == "0.1235"

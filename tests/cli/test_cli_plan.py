"""``quiltdp plan``: for people, for programs, and one line for a mistake."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def chain_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "chain.json"
    document = {
        "schema": "quiltdp/chain",
        "version": 1,
        "states": ["a", "b"],
        "prefix": "t",
        "length": 20_000,
        "initial": "stationary",
        "transition": [[0.6, 0.4], [0.4, 0.6]],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_plan_as_json(cli, chain_file) -> None:
    result = cli("plan", chain_file, "--budget", 2, "--queries", 20, "--json")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["schema"] == "quiltdp/plan"
    assert document["records"] == 20_000
    assert 0 < document["accuracy"] < 0.5
    assert document["answers"]["failure"] <= 0.05 + 1e-12
    assert [a["name"] for a in document["alternatives"]][-1] == "published"
    assert document["alternatives"][-1]["valid"] is False


def test_plan_for_people(cli, chain_file) -> None:
    result = cli("plan", chain_file, "--budget", 2, "--queries", 50, "--accuracy", 0.3)
    assert result.code == 0
    assert "50 queries on 20,000 records" in result.out
    assert "every answer is within 0.3" in result.out
    for words in ("description length", "any joint law", "the Ladder", "n_# = "):
        assert words in result.out


def test_plan_with_privacy(cli, chain_file) -> None:
    result = cli("plan", chain_file, "--budget", 2, "--queries", 50, "--epsilon", 1, "--json")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["epsilon"] == 1
    assert document["leakage"] <= 1
    assert "at most 1 about any record" in document["privacy"]


@pytest.mark.slow
def test_shortest_chain(cli, chain_file) -> None:
    result = cli(
        "plan", chain_file, "--budget", 2, "--queries", 20, "--accuracy", 0.3, "--shortest", "--json"
    )
    assert result.code == 0
    assert json.loads(result.out)["records"] < 20_000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--budget", 2), 2, "--queries or --accuracy"),
        (("--budget", 9, "--queries", 3), 2, "below --budget"),
        (("--budget", 9, "--queries", 30, "--confidence", 1), 2, "confidence"),
        (("--budget", 9, "--queries", 30, "--accuracy", 0.001), 1, "the best is"),
        (("--budget", 9, "--queries", 30, "--accuracy", 0.5), 1, "--accuracy 0.5 is no promise"),
        (("--budget", 9, "--queries", 30, "--epsilon", 0), 2, "--epsilon"),
        (("--budget", 9, "--queries", 30, "--shortest"), 2, "both --queries and --accuracy"),
    ],
)
def test_mistakes_are_one_line(cli, chain_file, arguments, code, words) -> None:
    result = cli("plan", chain_file, *arguments)
    assert result.code == code
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_shortest_needs_a_chain(cli) -> None:
    result = cli("plan", "models/asia.bif", "--budget", 1, "--queries", 3, "--accuracy", 0.5, "--shortest")
    assert result.code == 2
    assert "Markov chain" in result.err

"""``quiltdp influence`` and ``quiltdp quilts --influence``."""

from __future__ import annotations

import json

import pytest

import quiltdp as qd


def test_influence_as_json(cli) -> None:
    result = cli("influence", "models/asia.bif", "--of", "smoke", "--on", "bronc,lung", "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["schema"] == "quiltdp/influence"
    assert document["on"] == ["bronc", "lung"]
    wanted = qd.max_influence(qd.load_model("models/asia.bif"), of="smoke", on=["bronc", "lung"])
    assert document["influence"] == pytest.approx(wanted)


def test_influence_can_be_infinite(cli) -> None:
    result = cli("influence", "models/asia.bif", "--of", "lung", "--on", "either", "--given", "tub", "--json")
    assert json.loads(result.out)["influence"] == "inf"


def test_influence_of_the_blanket_for_people(cli) -> None:
    result = cli("influence", "models/asia.bif", "--of", "smoke")
    assert result.code == 0
    assert "bronc, lung" in result.out
    a = qd.blanket_influence(qd.load_model("models/asia.bif"), "smoke")
    assert f"{a:.3f}"[:4] in result.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--of", "nobody"), "nobody"),
        (("--of", "smoke", "--on", "smoke"), "both"),
        (("--of", "smoke", "--on", "lung", "--given", "lung"), "both"),
        (("--of", "smoke", "--on", "lung,nobody"), "nobody"),
    ],
)
def test_mistakes_are_one_line(cli, args, words) -> None:
    result = cli("influence", "models/asia.bif", *args)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_quilts_with_influence(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--max-nearby", 2, "--influence", "--json")
    assert result.code == 0
    document = json.loads(result.out)
    leakages = [float(q["leakage"]) for q in document["quilts"]]
    assert leakages == sorted(leakages)
    model = qd.load_model("models/asia.bif")
    for q in qd.quilts(qd.moralize(model), "smoke", max_nearby=2):
        told = qd.quilt_influence(model, q)
        row = next(r for r in document["quilts"] if r["separator"] == sorted(q.separator))
        assert float(row["swing"]) == pytest.approx(told.swing)
        assert float(row["b"]) == pytest.approx(told.b)
        assert row["exact"] is True


def test_quilts_with_influence_for_people(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--influence", "--limit", 3)
    assert result.code == 0
    assert "swing" in result.out
    assert "bronc" in result.out

"""``quiltdp quilts``: the table of all records, b of the quilts of one, the moral graph, one influence."""

from __future__ import annotations

import json

import pytest

import quiltdp as qd


def test_influence_as_json(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--on", "bronc,lung", "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["schema"] == "quiltdp/influence"
    assert document["on"] == ["bronc", "lung"]
    wanted = qd.max_influence(qd.load_model("models/asia.bif"), of="smoke", on=["bronc", "lung"])
    assert document["influence"] == pytest.approx(wanted)


def test_influence_can_be_infinite(cli) -> None:
    result = cli("quilts", "models/asia.bif", "lung", "--on", "either", "--given", "tub", "--json")
    assert json.loads(result.out)["influence"] == "inf"


def test_influence_of_the_blanket_for_people(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--given", "bronc")
    assert result.code == 0
    rest = qd.max_influence("models/asia.bif", of="smoke", on=["lung"], given=["bronc"])
    assert f"{rest:.3f}"[:4] in result.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nobody",), "nobody"),
        (("smoke", "--on", "smoke"), "both"),
        (("smoke", "--on", "lung", "--given", "lung"), "both"),
        (("smoke", "--on", "lung,nobody"), "nobody"),
    ],
)
def test_mistakes_are_one_line(cli, args, words) -> None:
    result = cli("quilts", "models/asia.bif", *args)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_quilts_of_one_record(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--max-nearby", 2, "--dp-epsilon", 0.1, "--json")
    assert result.code == 0
    document = json.loads(result.out)
    model = qd.load_model("models/asia.bif")
    for q in qd.quilts(model, "smoke", max_nearby=2):
        influence = qd.quilt_influence(model, q)
        row = next(r for r in document["quilts"] if r["separator"] == sorted(q.separator))
        assert float(row["swing"]) == pytest.approx(influence.swing)
        assert float(row["b"]) == pytest.approx(influence.b)
        assert float(row["leakage"]) == pytest.approx(q.closed_records * 0.1 + 4 * influence.b)
        assert row["exact"] is True


def test_quilts_of_one_record_for_people(cli) -> None:
    result = cli("quilts", "models/asia.bif", "smoke", "--limit", 3)
    assert result.code == 0
    assert "|C| α + 4 b" in result.out
    assert "The best of them is 3: |N| = 1, b = 2.379" in result.out


def test_the_table_of_all_records(cli) -> None:
    result = cli("quilts", "models/location_chain.json", "--limit", 30)
    assert result.code == 0
    assert "… and 138 more" in result.out
    assert "forced by hour_22: its quilt {hour_4, hour_41}, |N| = 35, b = 0.04558." in result.out
    document = json.loads(cli("quilts", "models/asia.bif", "--json").out)
    assert [row["nearby_records"] for row in document["records"]] == [7] * 8
    assert document["records"][0]["leakage"] == pytest.approx(1.0)


def test_the_moral_graph(cli) -> None:
    assert "10 edges, 2 of them joined" in cli("quilts", "models/asia.bif", "--moral").out
    document = json.loads(cli("quilts", "models/asia.bif", "--moral", "--json").out)
    assert document["joined"] == [["tub", "lung"], ["bronc", "either"]]
    assert len(document["edges"]) == 10


def test_calibrate_names_the_quilt_of_the_published_lemma(cli) -> None:
    asked = ("calibrate", "models/location_chain.json", "--epsilon", 1)
    said = " ".join(cli(*asked).out.split())
    assert "hour_22, {hour_4, hour_41}, |N| = 35, b = 0.04558" in said
    forced = json.loads(cli(*asked, "--json").out)["published"]
    assert forced["unit"] == "hour_22"
    assert forced["witness"]["separator"] == ["hour_4", "hour_41"]

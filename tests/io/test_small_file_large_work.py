"""A small file cannot ask for large work: sizes are checked before allocation, scanning is linear.

Every file here took minutes, gigabytes or the whole stack once.  The limit on the address space turns a
relapse into a failure; a quadratic scan would stop the suite.
"""

from __future__ import annotations

import gzip
import json
import resource
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.domains.pedigree import read_pedigree
from quiltdp.domains.pedigree.kin import kin_table, relation
from quiltdp.domains.pedigree.output import summary
from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, QuiltdpError
from quiltdp.io.columns import Role, recognise

BOMB = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 12))
LAUGHS = f'<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x [<!ENTITY a0 "ha">{BOMB}]>'


def bif(count: int, *blocks: str) -> str:
    variables = "".join(f"variable V{k} {{ type discrete [ 2 ] {{ x, y }}; }}\n" for k in range(count))
    return variables + "\n".join(blocks)


def chain(**fields: object) -> str:
    return json.dumps({"transition": [[0.9, 0.1], [0.1, 0.9]], **fields})


def many_parents(count: int = 20_000) -> str:
    return bif(
        count, f"probability ( V0 | {', '.join(f'V{k}' for k in range(1, count))} ) {{ default 0.5, 0.5; }}"
    )


FILES: dict[str, tuple[str | bytes, str]] = {
    "states.uai": ("MARKOV\n1\n1000000000\n0\n", "states of variable 0, at most 4,096"),
    "states2.uai": (
        "MARKOV\n2\n1000000000 1000000000\n1\n2 0 1\n1000000000000000000\n1",
        "states of variable 0",
    ),
    "axes.uai": (
        "MARKOV\n50000\n" + "2 " * 50_000 + "1\n50000 " + " ".join(map(str, range(50_000))) + " 1 1",
        "at most 32 variables in table 0",
    ),
    "wide.uai": ("BAYES\n1\n2\n99999999999999999\n1 0", "the number of variables of table 1"),
    "steps.json": (chain(length=10**15), "must be at most 50,000,000, not 1,000,000,000,000,000"),
    "more_steps.json": (chain(length=10**300), "a number of more than thirty digits"),
    "sum_of_steps.json": (
        chain(lengths={f"c{k}/": 40_000_000 for k in range(9)}),
        "360,000,000 steps together",
    ),
    "unrolled.json": (chain(length=40_000_000, records=["X0"]), "can only have all of them as records"),
    "digits.json": (chain(length=1).replace("1}", "1" * 5_000 + "}"), "5,000 digits, too many"),
    "nest.json": ('{"nodes":' * 100_000, "nested too deeply"),
    "lists.json": ('{"transition":' + "[" * 200_000, "nested too deeply"),
    "comments.bif": ("/*" * 200_000, "{file}:1: this comment is never closed"),
    "slashes.bif": ("//" * 200_000 + "\n//" * 200_000, "there is no variable"),
    "openers.bif": ("/* */ " * 100_000 + "/*/" * 100_001, "this comment is never closed"),
    "quotes.bif": ('"/*' * 200_001, "{file}:1:"),
    "parents.bif": (many_parents(), "has 19999 parents, at most 31 fit"),
    "digits.bif": ("variable A { type discrete [ " + "9" * 5_000 + " ] { x }; }", "expected 'type discrete"),
    "heads.bif": ("variable " * 100_000, "{file}:1: expected 'network'"),
    "braces.net": ("net {\n" + "{" * 100_000, "this block is never closed"),
    "nodes.net": ("net { }\n" + "node x {\n" * 100_000, "this block is never closed"),
    "open.net": ('net { }\nnode x { states = ("a" "b"); }\n' + "potential (" * 100_000, "expected 'net'"),
    "bomb.xmlbif": (f"{LAUGHS}<BIF>&a11;</BIF>".encode("utf-16"), "XML entities are not allowed"),
    "bomb.xdsl": (f"{LAUGHS}<smile>&a11;</smile>".encode("utf-16"), "XML entities are not allowed"),
    "deep.xdsl": ("<smile>" + "<a>" * 50_000 + "</a>" * 50_000 + "</smile>", "deep in each other"),
    "zeros.bif.gz": (gzip.compress(bytes(100_000_000)), "the file holds more than 67,108,864 bytes"),
}


@pytest.fixture(autouse=True)
def little_memory():
    """Allow three more gigabytes of address space than are in use, on systems that count it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", FILES)
def test_a_small_file_is_refused_in_one_line_and_at_once(name: str, tmp_path: Path) -> None:
    content, said = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(QuiltdpError) as caught:
        qd.load_model(path)
    message = str(caught.value)
    assert said.replace("{file}", str(path)) in message
    assert len(message) < 400
    assert "\n" not in message


def test_a_chain_in_python_is_as_careful() -> None:
    with pytest.raises(InvalidModel, match="at most 50,000,000"):
        qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=10**15)
    long = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=2_000_000)
    with pytest.raises(InvalidModel, match="of at most 1,000,000 steps"):
        long.with_records(["X0"])


@pytest.mark.parametrize("count", [3, 4])
def test_a_chain_of_two_steps_may_have_different_states(count: int) -> None:
    matrix = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.3, 0.7]][:count]
    start = [1 / count] * count
    model = qd.markov_chain(matrix, length=2, initial=start)
    tables = {"X0": ([], start), "X1": (["X0"], matrix)}
    same = qd.Model.from_tables(tables)
    for adversary in ("informed", "prior"):
        for method in ("auto", "group", "exact", "quilts", "published", "chain"):
            found = qd.leakage(model, 0.3, method=method, adversary=adversary)
            limit = qd.leakage(same, 0.3, method="exact", adversary=adversary)
            for step in model.nodes:
                assert found.per_record[step] >= limit.per_record[step] * (1 - 1e-9)
    with pytest.raises(InvalidModel, match="not square"):
        qd.markov_chain(matrix, length=3, initial=start)
    with pytest.raises(InvalidModel, match="not square"):
        qd.markov_chain(matrix, length=1, initial=start)
    with pytest.raises(InvalidModel, match="must be square"):
        qd.markov_chain(matrix, length=2)


def test_states_that_a_file_spells_out_are_read(tmp_path: Path) -> None:
    wide = tmp_path / "wide.uai"
    wide.write_text("MARKOV\n1\n5000\n1\n1 0\n5000\n" + "1 " * 5000)
    assert qd.load_model(wide).cardinality("X0") == 5000


def generations(count: int) -> str:
    rows = ["F p0 0 0 1 -9", "F q0 0 0 2 -9"]
    for k in range(1, count):
        rows += [f"F p{k} p{k - 1} q{k - 1} 1 -9", f"F q{k} 0 0 2 -9"]
    return "\n".join(rows)


def test_a_family_of_very_many_generations(tmp_path: Path) -> None:
    path = tmp_path / "old.fam"
    path.write_text(generations(6_000))
    model = qd.load_model(path, allele_frequency=0.1)
    assert len(model.nodes) == 12_000
    family = read_pedigree(path)
    assert summary(family)["generations"] == 6_000
    assert relation(family, "p5999", "p0") == "5997 times great-grandparent"
    with pytest.raises(InvalidArgument, match="relatives in 6,000 generations, too many for a kin table"):
        kin_table(model, family, "p3000")


def test_what_cannot_be_drawn_is_refused_before_the_work(cli, tmp_path: Path) -> None:
    path = tmp_path / "old.fam"
    path.write_text(generations(300))
    picture = tmp_path / "family.svg"
    result = cli("pedigree", path, "-o", picture, "--allele-frequency", 0.1, "--epsilon", 1)
    assert result.code == 2
    assert "the largest family has 599 people, at most 400 fit a drawing" in result.err


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    inner = tmp_path / "family.fam"
    inner.mkdir()
    for path in (inner, inner / "x.bif", tmp_path / ("n" * 300 + ".bif"), tmp_path / "a\0b.bif"):
        with pytest.raises(FileFormatError):
            qd.load_model(path)


def test_a_header_of_very_many_columns_is_looked_at_once() -> None:
    header = ["AF"] * 100_000
    with pytest.raises(FileFormatError, match="columns 'AF' and 'AF' and 'AF' could each be the x"):
        recognise(header, {"x": Role("x", "af")}, {}, source="f", line=1, say=str)

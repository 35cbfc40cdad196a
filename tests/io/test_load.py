"""One door for every format: which reader, which options."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from quiltdp import Model, load_model, markov_chain, save_model
from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.io import load as door

ROOT = Path(__file__).parents[2]
ASIA = ROOT / "models/asia.bif"
UAI = "BAYES 1 2 1 1 0 2 0.5 0.5"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.bif", None, "BIF"),
        ("a.BIF", None, "BIF"),
        ("a.txt", None, "BIF"),
        ("a", None, "BIF"),
        ("a.uai", None, "BIF"),  # the words win over the suffix
        ("a.bif", UAI, "UAI BAYES"),
        ("a.dat", "\n\n markov 1 2 1 1 0 2 0.5 0.5", "UAI MARKOV"),
        ("a.bif", '{"transition": [[1]], "length": 2}', "JSON"),
        (
            "a.bif",
            "// made by hand\n/* in\ntwo lines */\nvariable A { type discrete [1] { x }; } "
            "probability ( A ) { table 1; }",
            "BIF",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_content_and_suffix_choose_the_reader(name, text, kind, packed, tmp_path):
    data = ASIA.read_bytes() if text is None else text.encode()
    file = tmp_path / (name + ".gz" * packed)
    file.write_bytes(gzip.compress(data) if packed else data)
    assert load_model(file).provenance["format"] == kind
    assert load_model(str(file)).provenance["file"] == str(file)


def test_a_compressed_file_without_its_suffix(tmp_path):
    file = tmp_path / "asia.bif"
    file.write_bytes(gzip.compress(ASIA.read_bytes()))
    assert load_model(file).fingerprint == load_model(ASIA).fingerprint


def test_unknown_options_are_refused_by_name(tmp_path):
    with pytest.raises(
        InvalidArgument, match=r"the \.bif reader has no option 'recods'; it knows records, encoding"
    ):
        load_model(ASIA, recods=["lung"])
    file = tmp_path / "chain.json"
    save_model(markov_chain([[1.0]], 2), file)
    with pytest.raises(InvalidArgument, match="'allele_frequency'"):
        load_model(file, allele_frequency=0.3)
    with pytest.raises(InvalidArgument, match="no encoding 'utf-99'"):
        load_model(ASIA, encoding="utf-99")


def test_pedigrees_go_to_their_own_reader(tmp_path):
    file = ROOT / "models/pedigree/ceph1463.fam"
    m = load_model(file, allele_frequency=0.1)
    assert len(m.nodes) == 17
    packed = tmp_path / "ceph.fam.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert load_model(packed, allele_frequency=0.1).fingerprint == m.fingerprint
    with pytest.raises(InvalidArgument, match="not_an_option"):
        load_model(file, not_an_option=1)


def test_a_reader_can_be_registered(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "_DOMAINS", dict(door._DOMAINS))
    door.register_reader(".Walk", "test_load:read_walk")
    monkeypatch.setitem(sys.modules, "test_load", sys.modules[__name__])
    file = tmp_path / "a.walk"
    file.write_text("3")
    assert len(load_model(file).nodes) == 3
    assert len(load_model(file, twice=True).nodes) == 6
    with pytest.raises(InvalidArgument, match=r"the \.walk reader has no option 'thrice'"):
        load_model(file, thrice=True)
    assert ".walk" in door.known_suffixes()
    for suffix, target in (("walk", "a:b"), (".w/k", "a:b"), (".walk", "a.b"), (".walk", "a:b:c")):
        with pytest.raises(InvalidArgument, match="'module:function'"):
            door.register_reader(suffix, target)


def read_walk(path, *, twice: bool = False) -> Model:
    return markov_chain([[1.0]], int(Path(path).read_text()) * (1 + twice))


def test_a_type_error_of_a_reader_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "_DOMAINS", {".walk": "test_load:read_badly"})
    monkeypatch.setitem(sys.modules, "test_load", sys.modules[__name__])
    file = tmp_path / "a.walk"
    file.write_text("3")
    with pytest.raises(TypeError):
        load_model(file)
    with pytest.raises(InvalidArgument, match="'extra'"):
        load_model(file, extra=1)


def read_badly(path, **options) -> Model:
    return read_walk(path, **options) if options else len(3)


def test_unknown_formats(tmp_path):
    file = tmp_path / "a.xyz"
    file.write_text("hello")
    with pytest.raises(FileFormatError, match=r"neither the suffix '\.xyz' nor the beginning .*\.bif"):
        load_model(file)


def test_reading_bif_loads_nothing_heavy():
    code = (
        "import sys, quiltdp; quiltdp.load_model('models/asia.bif');"
        "print([m for m in ('pgmpy', 'scipy', 'pandas', 'networkx', 'jsonschema') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )
    assert done.stdout.strip() == "[]"

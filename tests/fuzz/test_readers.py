"""Every reader against broken files, in short; ``make fuzz`` runs the long form (docs/benchmarks/fuzz.md)."""

from __future__ import annotations

import importlib.util
import resource
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
INPUTS = 40
NAMES = [
    "bif", "bif.gz", "json", "uai", "net", "xmlbif", "xdsl", "fam", "ped", "psam", "linkage", "family table",
    "gedcom", "study ids", "frequencies", "points", "plt", "gpx", "geojson", "parquet", "genotypes",
    "holdout table", "series", "calibration", "plan", "ledger", "exported ledger", "anchor",
]  # fmt: skip


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks/fuzz.py")
    assert spec is not None
    sys.path.append(str(ROOT / "benchmarks"))  # it imports its neighbours
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def little_memory(fuzz: ModuleType):
    before = resource.getrlimit(resource.RLIMIT_AS)
    fuzz.little_memory()
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_every_reader_is_known(fuzz: ModuleType) -> None:
    assert list(fuzz.readers()) == NAMES
    for reader in fuzz.readers().values():
        assert all(reader.seeds)


@pytest.mark.parametrize("name", NAMES)
def test_broken_files_are_read_or_refused(fuzz: ModuleType, little_memory, name: str, tmp_path: Path) -> None:
    reader = fuzz.readers()[name]
    for example in reader.seeds:  # what is whole is read
        path = tmp_path / f"whole{reader.suffix}"
        path.write_bytes(example)
        assert fuzz.judge(reader, path) == "read"
    tally = fuzz.run(reader, 11, iter(range(INPUTS)), tmp_path)
    assert tally.failures == []


def test_the_judge_notices(fuzz: ModuleType, tmp_path: Path) -> None:
    """A traceback, a message of two lines and a raw escape are failures, so that green means something."""
    path = tmp_path / "x"
    path.write_text("")

    def wrong(make):
        return fuzz.judge(fuzz.Reader("wrong", "", (b"x",), make), path)

    def crash(_: Path) -> None:
        raise IndexError("oops")

    class TwoLinesError(fuzz.QuiltdpError):
        def __str__(self) -> str:
            return "a\nb"

    def two_lines(_: Path) -> None:
        raise TwoLinesError

    assert wrong(crash).startswith("traceback: IndexError: oops")
    assert wrong(two_lines).startswith("message")
    assert wrong(lambda _: bytearray(1 << 62)) == "memory"
    assert wrong(lambda _: 1) == "read"


def test_inputs_depend_on_their_number_alone(fuzz: ModuleType) -> None:
    reader = fuzz.readers()["net"]
    again = [fuzz.make_input(reader, 3, k) for k in range(20)]
    assert again == [fuzz.make_input(reader, 3, k) for k in range(20)]
    assert len(set(again)) > 15


FOUND = {  # what a long run with this seed found once
    "bif": [1287, 3822], "net": [5727], "gedcom": [5024, 7271], "parquet": [3954], "series": [244, 1006],
    "plan": [1651, 6594], "ledger": [43, 581, 1324, 1925], "anchor": [3170],
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_is_read_or_refused(
    fuzz: ModuleType, little_memory, name: str, tmp_path: Path
) -> None:
    assert fuzz.run(fuzz.readers()[name], 20261117, iter(FOUND[name]), tmp_path).failures == []

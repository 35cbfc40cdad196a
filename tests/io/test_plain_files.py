"""Readers refuse what is no plain file: a pipe is not waited for, a device is not read."""

from __future__ import annotations

import ast
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quiltdp as qd
from quiltdp.accountant.ledger import Ledger
from quiltdp.cli.holdout import read_columns
from quiltdp.domains.pedigree import read_pedigree
from quiltdp.domains.pedigree.frequencies import read_frequencies
from quiltdp.domains.pedigree.genome import _iterate_lines
from quiltdp.errors import FileFormatError, QuiltdpError
from quiltdp.io.text import MAX_BYTES, read_bytes, read_source, read_text
from quiltdp.user_files import open_plain, opened

PACKAGE = Path(qd.__file__).parent
ZERO = Path("/dev/zero")
READERS: dict[str, Callable[[Path], Any]] = {
    "bytes": read_bytes,
    "text": read_text,
    "source": read_source,
    "columns": read_columns,
    **dict.fromkeys((".ped", ".psam", ".ged", ".pre"), read_pedigree),
    "frequencies": read_frequencies,
    "genome": lambda path: list(_iterate_lines(path)),
    **dict.fromkeys((".bif", ".xmlbif", ".net", ".xdsl", ".uai", ".json", ".fam", ""), qd.load_model),
    **{
        suffix: lambda path: qd.location_chain(path, cell="1km")
        for suffix in (".csv", ".gpx", ".plt", ".geojson", ".parquet")
    },
}

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the files of a Unix")


def kinds(folder: Path, suffix: str) -> Iterator[tuple[Path, str]]:
    """Yield a pipe without a writer, endless and empty devices, a socket, a directory, and links to them."""
    pipe, made, unix = (folder / f"{name}{suffix}" for name in ("pipe", "folder", "socket"))
    os.mkfifo(pipe)
    yield pipe, "this is a pipe, a file is expected: write what it carries into a file first"
    made.mkdir()
    yield made, "this is a directory|has no file ending in"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(unix))
        yield unix, "this is a socket, a file is expected"
    for device in (ZERO, Path("/dev/null")):
        link = folder / f"{device.name}{suffix}"
        link.symlink_to(device)
        yield link, "this is a device, a file is expected"


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_plain_file_is_refused(name: str, tmp_path: Path) -> None:
    for path, words in kinds(tmp_path, name if name.startswith(".") else ""):
        with pytest.raises(FileFormatError, match=words) as caught:
            READERS[name](path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("info",),
        ("calibrate", "--epsilon", "1"),
        ("plan", "--queries", "10", "--budget", "2"),
        ("pedigree",),
        ("trace", "-o", "chain.json"),
        ("fit", "-o", "chain.json"),
        ("ledger", "verify"),
        ("ledger", "show"),
        ("leakage", "--dp-epsilon", "1", "--audit"),
    ],
)
def test_commands_end_at_once(words: tuple[str, ...], tmp_path: Path, cli: Any) -> None:
    for path, _ in kinds(tmp_path, ".json" if words[:2] == ("ledger", "verify") else ""):
        told = cli(*words[:1], path, *words[1:]) if words[0] != "ledger" else cli(*words, path)
        assert told.code == 2, told
        assert told.out == ""
        assert told.err.count("\n") == 1
        assert str(path) in told.err


def test_options_that_name_files(tmp_path: Path, cli: Any) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    family = "models/pedigree/ceph1463.fam"
    for words in (
        ("calibrate", "models/asia.bif", "--epsilon", "1", "--records", f"@{pipe}"),
        ("pedigree", family, "--allele-frequency", pipe, "--epsilon", "1"),
        ("holdout", "init", tmp_path / "study.db", "--plan", pipe),
        ("holdout", "init", tmp_path / "study.db", "--calibration", pipe, "--threshold", "0.1"),
    ):
        told = cli(*words)
        assert told.code == 2
        assert "this is a pipe" in told.err
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_an_anchor_that_is_a_pipe(tmp_path: Path) -> None:
    calibration = qd.calibrate(qd.example("two_families"), 1.0, qd.Laplace(sensitivity=1.0), compare=False)
    Ledger.create(tmp_path / "study.db", calibration, anchor=tmp_path / "anchor.json").close()
    (tmp_path / "anchor.json").unlink()
    os.mkfifo(tmp_path / "anchor.json")
    with pytest.raises(QuiltdpError, match="this anchor cannot be read"):
        Ledger.open(tmp_path / "study.db", anchor=tmp_path / "anchor.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.bif"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # sparse: it takes no room
    qd.load_model("models/asia.bif")  # what is imported for a first file is not counted
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="holds more than 1,073,741,824 bytes"):
            qd.load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_exchanged_for_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, plain = tmp_path / "pipe", os.stat(__file__)
    os.mkfifo(pipe)
    monkeypatch.setattr(os, "stat", lambda path: plain)
    with pytest.raises(FileFormatError, match="this is a pipe"):
        open_plain(pipe)


def test_what_goes_wrong_names_the_file(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none", "there is no such file"),
        (tmp_path / "a\0b", "cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(FileFormatError, match=words), opened(path):
            pass


# modules whose `read_text` opens through quiltdp.user_files
OPENERS = ("text", "table_cells")


def test_one_function_opens_what_people_name() -> None:
    """No reader of the edges opens a file by itself; what is left opens files of the program's own."""
    own = {"io/replace.py", "domains/accounts.py", "cli/app.py", "cli/__init__.py"}
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.split("/")[0] not in ("io", "domains", "cli") or place in own:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of = getattr(node.func, "value", None)
            if called in ("open", "fromfile", "genfromtxt", "loadtxt") and getattr(of, "id", "") != "Ledger":
                found.add(place)
            if (
                called in ("read_text", "read_bytes")
                and of is not None
                and getattr(of, "id", "") not in OPENERS
            ):
                found.add(place)
    assert not found

"""quiltdp.compiled and quiltdp.compiled.build: the library, when it is used, and what happens without it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quiltdp.compiled
from quiltdp.compiled import build, kernel, kernels

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc")
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no C compiler")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources alone, in a place of their own."""
    for path in (*build.sources(), *build.HERE.glob("*.h")):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "LIBRARY", tmp_path / build.LIBRARY.name)
    monkeypatch.delenv("QUILTDP_PURE", raising=False)
    return tmp_path


@needs_compiler
def test_the_library_here_is_of_the_sources_here() -> None:
    if os.environ.get("QUILTDP_PURE"):
        pytest.skip("the twins are asked for")
    assert kernels() is not None, "run `make compiled`"


@needs_compiler
def test_built_used_and_left_when_the_sources_change(copy: Path) -> None:
    assert kernels.__wrapped__() is None  # nothing is built yet
    assert build.build() == copy / build.LIBRARY.name
    assert kernels.__wrapped__() is not None
    assert sorted(p.suffix for p in copy.iterdir() if p.suffix not in (".c", ".h")) == [".so"]
    source = copy / "sources.c"
    source.write_text(source.read_text() + "\n/* changed */\n")
    assert kernels.__wrapped__() is None  # not of these sources


@needs_compiler
def test_not_used_when_the_twins_are_wanted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.build()
    monkeypatch.setenv("QUILTDP_PURE", "1")
    assert kernels.__wrapped__() is None
    monkeypatch.setenv("QUILTDP_PURE", "0")
    assert kernels.__wrapped__() is not None


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_one_line_and_no_library(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], compiler: str
) -> None:
    (copy / build.LIBRARY.name).write_bytes(b"an old one")
    monkeypatch.setenv("CC", compiler)
    assert build.build() is None
    said = capsys.readouterr().err
    assert said.startswith("quiltdp without compiled kernels: ")
    assert compiler in said
    assert not (copy / build.LIBRARY.name).exists()


def test_a_broken_library_is_not_used(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / build.LIBRARY.name).write_bytes(b"this is no library")
    assert kernels.__wrapped__() is None
    assert _one_line(capsys)


@needs_compiler
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_library_that_was_cut_short_is_told_and_not_loaded(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Loading it would end the process (SIGBUS) as soon as a missing page is touched."""
    build.build()
    library = copy / build.LIBRARY.name
    content = library.read_bytes()
    library.write_bytes(content[: int(share * (len(content) - 1))])
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert kernels.__wrapped__() is None
    assert _one_line(capsys)


@needs_compiler
def test_a_library_with_a_changed_byte_is_not_loaded(copy: Path) -> None:
    build.build()
    library = copy / build.LIBRARY.name
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    assert kernels.__wrapped__() is None


def _one_line(capsys: pytest.CaptureFixture[str]) -> bool:
    said = capsys.readouterr().err
    return said.count("\n") == 1 and "without compiled kernels" in said and build.LIBRARY.name in said


@needs_compiler
def test_an_answer_does_not_depend_on_a_library_that_was_cut_short(tmp_path: Path) -> None:
    there = tmp_path / "src"
    shutil.copytree(ROOT / "src", there, ignore=shutil.ignore_patterns("__pycache__"))
    library = there / "quiltdp" / "compiled" / build.LIBRARY.name
    library.write_bytes(library.read_bytes()[:20_000])
    command = [sys.executable, "-m", "quiltdp", "calibrate", "models/asia.bif", "--epsilon", "1", "--json"]
    answers = []
    for place in (there, ROOT / "src"):
        environment = {**os.environ, "PYTHONPATH": str(place), "QUILTDP_PURE": "0"}
        answers.append(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True))
    assert answers[0].stdout == answers[1].stdout
    assert answers[0].stderr.count(b"\n") == 1
    assert not answers[1].stderr


def test_a_kernel_takes_only_what_c_reads_right() -> None:
    for wrong in (np.zeros((3, 4)).T, np.zeros(3, dtype=np.float32), np.zeros(6)[::2]):
        with pytest.raises(TypeError, match="contiguous"):
            quiltdp.compiled._in_c(wrong)
    assert quiltdp.compiled._kind(2**40)(2**40).value == 2**40


def test_an_array_that_is_given_again_is_kept() -> None:
    kept = np.arange(4.0)
    kept.flags.writeable = False
    for array in (kept, np.arange(8.0)[::2]):
        at = ctypes.cast(quiltdp.compiled.fixed(array), ctypes.POINTER(ctypes.c_double))
        assert at[:4] == array.tolist()


def test_without_the_library_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiltdp.compiled, "kernels", lambda: None)
    assert kernel.__wrapped__("qd_sources") is None


@pytest.mark.parametrize(
    "words",
    [
        ["models/asia.bif", "--adversary", "prior"],
        ["models/asia.bif"],
        ["models/cancer.bif", "--adversary", "knows:1"],
        ["models/two_families.json", "--sensitivity", "1"],
    ],
)
def test_a_calibration_gives_the_same_bytes_with_the_twins(words: list[str]) -> None:
    def said(pure: str) -> bytes:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "QUILTDP_PURE": pure}
        command = [sys.executable, "-m", "quiltdp", "calibrate", *words, "--epsilon", "1", "--json"]
        command += ["--time-limit", "3600"]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout

    assert said("0") == said("1")

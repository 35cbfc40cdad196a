"""``quiltdp.io.replace``: a file appears complete and durable, and nothing else is touched on the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from quiltdp.errors import FileFormatError
from quiltdp.io.replace import check_writable, write_whole


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("write", [check_writable, lambda path: write_whole(path, "new")])
def test_a_link_laid_where_a_draft_goes_is_not_followed(write, tmp_path: Path, monkeypatch) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out.txt"
    victim.write_text("precious")
    (tmp_path / f".out.txt.{os.getpid()}.part").symlink_to(victim)
    write(out)
    assert victim.read_text() == "precious"
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")  # and not if the name were known
    for name in (".out.txt.guessed.part", ".guessed.part"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileFormatError, match="cannot be written"):
        write(out)
    assert victim.read_text() == "precious"


def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("old")
    old.chmod(0o600)
    before = os.umask(0o027)
    try:
        write_whole(new, "text")
        write_whole(old, "text")
    finally:
        os.umask(before)
    assert (mode(new), mode(old)) == (0o640, 0o600)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]


def test_file_and_folder_are_synced_before_it_is_told(tmp_path: Path, monkeypatch) -> None:
    synced, real = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "a", "text")
    assert synced == [False, True]


def test_the_longest_names_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("σ" * 126 + ".md")  # 255 bytes
    check_writable(path)
    write_whole(path, "text")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]

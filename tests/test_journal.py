"""What a long run has found survives a kill; damage is told by line; answers are not sought twice."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.journal import Journal, hash_key, map_journaled

CALLS: list[int] = []


def square(_: None, k: int) -> int:
    CALLS.append(k)
    return k * k


def squares(journal: Journal | None, items: list[int]) -> list[tuple[int, int]]:
    CALLS.clear()
    return list(map_journaled(square, items, key=lambda k: hash_key("square", k), journal=journal))


def test_numbers_come_back_to_the_last_bit(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1e-308, math.inf, -0.0, 5e-324]
    with Journal(tmp_path / "j") as journal:
        journal["a"] = values
        assert [v.hex() for v in journal["a"]] == [v.hex() for v in values]
    with Journal(tmp_path / "j") as journal:
        assert [v.hex() for v in journal["a"]] == [v.hex() for v in values]
        assert "b" not in journal


def test_a_torn_last_line_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal["a"], journal["b"] = 1, 2
    whole = path.read_bytes()
    for cut in range(len(whole) - 20, len(whole)):
        path.write_bytes(whole[:cut])
        with Journal(path) as journal:
            assert (len(journal), "b" in journal) == (1, False)
            journal["b"] = 2
        assert path.read_bytes() == whole
    path.write_bytes(whole[:10])  # killed while the first line was written
    with Journal(path) as journal:
        assert len(journal) == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [("hello\n", 1), ("no end", 1), ("", None), ('{"key": "a", "value": 1, "check": "no"}\n', 2), ("x\n", 2)],
)
def test_damage_is_told_by_line(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "j"
    if line == 2:
        Journal(path).close()
        text = path.read_text() + text
    path.write_text(text)
    if line is None:
        Journal(path).close()
        return
    with pytest.raises(FileFormatError, match=f"j:{line}: "):
        Journal(path)
    assert path.read_text() == text


def test_other_versions_other_writers_and_other_places_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path):
        other = f"from quiltdp.journal import Journal\nJournal({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
        assert "another run is writing" in done.stderr
    path.write_text(path.read_text().replace('"quiltdp": "', '"quiltdp": "9.'))
    with pytest.raises(InvalidArgument, match="begin a new one"):
        Journal(path)
    with pytest.raises(FileFormatError, match="cannot be opened"):
        Journal(tmp_path / "no" / "folder")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no such device")
@pytest.mark.parametrize("path", ["/dev/full", "/dev/null", "/dev/zero"])
def test_devices_are_refused_at_once(path: str) -> None:
    with pytest.raises(FileFormatError, match="plain file"):
        Journal(path)


def test_a_line_without_end_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiltdp.journal._LONGEST", 1_000)
    path = tmp_path / "run.jsonl"
    with Journal(path) as first:
        first["a"] = 1
        with pytest.raises(InvalidArgument, match="too long"):
            first["b"] = "x" * 1_000
    path.write_bytes(path.read_bytes() + b"x" * 5_000)
    with pytest.raises(FileFormatError, match=":3: "):
        Journal(path)
    assert path.stat().st_size > 5_000


def test_what_is_known_is_not_done_again(tmp_path: Path) -> None:
    items = [3, 1, 3, 2, 1]
    for journal in (None, Journal(tmp_path / "j")):
        assert squares(journal, items) == [(k, k * k) for k in items]
        assert CALLS == [3, 1, 2]
    assert journal is not None
    assert squares(journal, [2, 4]) == [(2, 4), (4, 16)]
    assert CALLS == [4]
    many = list(range(1500))  # more than are looked up at a time
    assert squares(journal, many) == [(k, k * k) for k in many]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "j"
    script = (
        "import os, signal\n"
        "from quiltdp.journal import Journal, map_journaled, hash_key\n"
        "def work(_, k):\n"
        "    if k == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return k\n"
        f"with Journal({str(path)!r}) as j:\n"
        "    list(map_journaled(work, range(9), key=lambda k: hash_key('square', k), journal=j))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        assert len(journal) == 5
        squares(journal, list(range(9)))
        assert CALLS == [5, 6, 7, 8]

"""Answers that survive: what a long run has found is appended to a file, and a run begun again goes on.

One JSON object a line, ``{"key", "value", "check"}``.  A line that was cut off by a kill or a crash is
taken away when the file is opened; any other damage is refused by line.  Numbers are read back to the
last bit.  Only one process writes to a journal at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from quiltdp import __version__
from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.parallel import Progress, each, worker_count

Item = TypeVar("Item")
SCHEMA = "quiltdp/journal"
VERSION = 1
_HEAD = json.dumps({"schema": SCHEMA, "version": VERSION, "quiltdp": __version__}).encode() + b"\n"
_LONGEST = 1 << 26  # bytes of a line: an answer takes a few thousand
_BLOCK = 512  # items looked up before the missing ones are worked on
_SHARE = 64  # of them for every worker, where there are many: all wait for the last of a block


def hash_key(*parts: object) -> str:
    """Return the key of what ``parts`` (numbers, strings, tuples of them) describe.

    Examples
    --------
    >>> hash_key("trio", 0.25)[:12], hash_key("trio", 0.25) == hash_key("trio", 0.5)
    ('ce7bcd9fc32b', False)
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class Journal:
    """Keys and JSON values in a file that grows at its end.

    Parameters
    ----------
    path
        The file; made if it is not there.

    Raises
    ------
    FileFormatError
        If it is something else than a journal, or damaged, by line.
    InvalidArgument
        If another process has it open, or another version of the library wrote it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with Journal(f"{folder}/run.jsonl") as first:
    ...         first["a"] = [0.1, float("inf")]
    ...     with Journal(f"{folder}/run.jsonl") as again:
    ...         "a" in again, again["a"], len(again)
    (True, [0.1, inf], 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._places: dict[str, tuple[int, int]] = {}
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise FileFormatError(
                path, None, f"the journal cannot be opened ({error.strerror or error})"
            ) from None
        self._file = os.fdopen(handle, "r+b", buffering=0)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise FileFormatError(path, None, "the journal is kept in a plain file, which this is not")
            self._lock()
            self._index_lines()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on this system
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidArgument(f"{self.path}: another run is writing to this journal") from None

    def _index_lines(self) -> None:
        """Find every line; take a torn last one away."""
        end = number = 0
        with open(self.path, "rb") as reading:  # buffered, and nothing is kept but places
            for number, line in enumerate(iter(lambda: reading.readline(_LONGEST), b""), 1):
                if not line.endswith(b"\n"):  # never finished
                    number -= 1  # noqa: PLW2901
                    if number == 0 and not _HEAD.startswith(line):
                        raise self._not_a_journal()  # somebody's one-line file: leave it alone
                    if len(line) == _LONGEST:
                        self._parse_line(line, number + 1)  # not of a journal: refused, not taken away
                    break
                if number == 1:
                    self._check_head(line)
                else:
                    self._places[self._parse_line(line, number)["key"]] = (end, len(line))
                end += len(line)
        self._file.truncate(end)
        self._file.seek(end)
        self._end = end
        if number == 0:
            self._append_line(_HEAD)

    def _check_head(self, line: bytes) -> None:
        try:
            head = json.loads(line)
        except ValueError:
            head = None
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise self._not_a_journal()
        if (head.get("version"), head.get("quiltdp")) != (VERSION, __version__):
            raise InvalidArgument(
                f"{self.path}: quiltdp {head.get('quiltdp')} wrote this journal, this is {__version__}:"
                " begin a new one"
            )

    def _not_a_journal(self) -> FileFormatError:
        return FileFormatError(self.path, 1, f"this is no journal: its first line has no schema {SCHEMA!r}")

    def _parse_line(self, line: bytes, number: int | None) -> dict[str, Any]:
        try:
            entry = json.loads(line)
            good = entry["check"] == _checksum(entry["key"], entry["value"])
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise FileFormatError(self.path, number, "this line of the journal is damaged: begin a new one")
        return entry  # type: ignore[no-any-return]  # a dictionary, or it was refused

    def _append_line(self, line: bytes) -> None:
        self._file.seek(self._end)
        view = memoryview(line)
        while view:
            view = view[self._file.write(view) :]
        self._end += len(line)

    def __setitem__(self, key: str, value: Any) -> None:
        """Append an answer; it is in the file when this returns."""
        line = json.dumps({"key": key, "value": value, "check": _checksum(key, value)}).encode() + b"\n"
        if len(line) >= _LONGEST:
            raise InvalidArgument(f"{self.path}: an answer of {len(line):,} bytes is too long for a journal")
        place = (self._end, len(line))
        self._append_line(line)
        self._places[key] = place

    def __getitem__(self, key: str) -> Any:
        """Read an answer back."""
        start, length = self._places[key]
        self._file.seek(start)
        return self._parse_line(self._file.read(length), None)["value"]

    def __contains__(self, key: object) -> bool:
        """Return whether there is an answer."""
        return key in self._places

    def __len__(self) -> int:
        """Return how many answers there are."""
        return len(self._places)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def __enter__(self) -> Journal:
        """Use it in a ``with`` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the file go."""
        self.close()


def _checksum(key: str, value: Any) -> str:
    return hashlib.sha256(json.dumps([key, value]).encode()).hexdigest()[:16]


def map_journaled(
    work: Callable[[Any, Item], Any],
    items: Iterable[Item],
    *,
    key: Callable[[Item], str],
    journal: Journal | None,
    shared: Any = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    label: str = "",
    total: int | None = None,
) -> Iterator[tuple[Item, Any]]:
    """Yield every item with ``work(shared, item)``, in order; what is in the journal is not done again.

    Items with equal keys have equal answers, and one of them is asked.  Answers are JSON values.
    """
    todo, done = iter(items), 0
    found: dict[str, Any] = {}  # of this block, where there is no journal
    size = max(_BLOCK, _SHARE * (worker_count(executor) or 1)) if executor is not None else _BLOCK
    while block := list(islice(todo, size)):
        keys = [key(item) for item in block]
        missing: dict[str, Item] = {}
        for k, item in zip(keys, block, strict=True):
            if k not in found and (journal is None or k not in journal):
                missing.setdefault(k, item)
        answers = each(work, list(missing.values()), shared=shared, executor=executor)
        for fresh, (k, answer) in enumerate(zip(missing, answers, strict=True), 1):
            if journal is None:
                found[k] = answer
            else:
                journal[k] = answer
            if progress is not None:
                ahead = done + fresh * len(block) / len(missing)
                progress(label, min(1.0, ahead / total) if total else 0.0)
        for k, item in zip(keys, block, strict=True):
            yield item, (found if journal is None else journal)[k]
        done += len(block)
        found = dict(list(found.items())[-size:])

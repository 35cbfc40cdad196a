"""A genome of loci, counted by frequency while its file is read, and families one after another.

Neither the loci nor the families of a large study are held in memory: what is kept of the loci is how
many there are of each frequency (p and 1 − p are alike), and of the families one at a time.
"""

from __future__ import annotations

import codecs
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.pedigree.assemble import assemble
from quiltdp.domains.pedigree.codes import MissingCodes, read_sex
from quiltdp.domains.pedigree.frequencies import Panel, loci_in
from quiltdp.domains.pedigree.types import Pedigree, Row, RowFile
from quiltdp.errors import FileFormatError
from quiltdp.user_files import opened

__all__ = ["count_frequencies", "read_families"]

_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 16  # loci that are counted together
_LONGEST = 1 << 24  # bytes of one line: no text has longer ones


def count_frequencies(path: str | os.PathLike[str]) -> Panel:
    """Read a panel of any length, in the formats of :func:`read_frequencies`, and count it by frequency.

    Every line of the result stands for all loci of one frequency.  Names are not kept, so a locus that
    the file has twice counts twice: more leakage, never less.

    Raises
    ------
    FileFormatError
        With the line, as :func:`read_frequencies`.
    """
    name = Path(path)
    tallies = {False: _Tally(), True: _Tally()}
    left_out: dict[str, int] = {}
    for value, on_x, why in loci_in(name, _lines(name)):
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            tallies[on_x].add(min(value, 1.0 - value))
    notes = tuple(f"{count:,} loci {why} were left out" for why, count in left_out.items())
    found = [(x, *tally.counted()) for x, tally in tallies.items()]
    values = np.concatenate([v for _, v, _ in found])
    if not len(values):
        raise FileFormatError(path, None, "; ".join(("there are no loci in this file", *notes)))
    linked = np.concatenate([np.full(len(v), x) for x, v, _ in found])
    counts = np.concatenate([c for _, _, c in found])
    names = tuple(f"{'X ' * x}{p!r}" for x, p in zip(linked.tolist(), values.tolist(), strict=True))
    blank = (".",) * len(values)
    return Panel(names, values, linked, blank, blank, blank, str(path), notes, counts)


class _Tally:
    """How often each number was added; unknown ones (NaN) are one number."""

    def __init__(self) -> None:
        self._values = np.zeros(0)
        self._counts = np.zeros(0, dtype=np.int64)
        self._new: list[float] = []

    def add(self, value: float) -> None:
        self._new.append(value)
        if len(self._new) >= _BUFFER:
            self._merge()

    def _merge(self) -> None:
        values = np.concatenate([self._values, np.array(self._new)])
        counts = np.concatenate([self._counts, np.ones(len(self._new), dtype=np.int64)])
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.bincount(place, counts, minlength=len(self._values)).astype(np.int64)
        self._new.clear()

    def counted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the numbers in order, and how often each was added."""
        self._merge()
        return self._values, self._counts


def read_families(path: str | os.PathLike[str]) -> Iterator[Pedigree]:
    """Yield the families of a PLINK file (.fam .ped: family, id, father, mother, sex, …) one by one.

    The lines of a family stand together.

    Raises
    ------
    FileFormatError
        By line: too few columns, or a family that comes again after another one.
    """
    name = Path(path)
    finished: set[str] = set()
    rows: list[tuple[int, list[str]]] = []
    for line, text in _lines(name):
        cells = text.split()
        if not cells or cells[0].startswith("#"):
            continue
        if len(cells) < 4:
            raise FileFormatError(
                name, line, f"{len(cells)} columns, a family file has family, id, father, mother, sex"
            )
        if rows and rows[0][1][0] != cells[0]:
            yield _family(name, rows)
            finished.add(rows[0][1][0])
            rows = []
        if cells[0] in finished:
            raise FileFormatError(
                name, line, f"family {cells[0]!r} comes again after others: sort the file by family"
            )
        rows.append((line, cells[:5]))
    if not rows:
        raise FileFormatError(name, None, "the file has no lines with people in them")
    yield _family(name, rows)


def _family(path: Path, rows: list[tuple[int, list[str]]]) -> Pedigree:
    codes = MissingCodes(frozenset({"0"}), frozenset(cells[1] for _, cells in rows))
    people = tuple(
        Row(
            id=cells[1],
            father=codes.parent(cells[2], line, cells[1]),
            mother=codes.parent(cells[3], line, cells[1]),
            sex=read_sex(cells[4]) if len(cells) > 4 else "unknown",
            family=cells[0],
            line=line,
        )
        for line, cells in rows
    )
    return assemble(RowFile(people, str(path), "PLINK", codes.warnings()))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, plain or gzip, without holding it."""
    with opened(path) as plain:
        packed = plain.read(2) == _GZIP
        plain.seek(0)
        stream = gzip.GzipFile(fileobj=plain) if packed else plain
        number = 0
        while line := stream.readline(_LONGEST + 1):
            number += 1
            if len(line) > _LONGEST or b"\0" in line:
                raise FileFormatError(path, number, "this is binary data, expected a text file")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                raise FileFormatError(
                    path, number, "this line is not UTF-8: convert the file to UTF-8"
                ) from None
            yield number, text.rstrip("\r\n")

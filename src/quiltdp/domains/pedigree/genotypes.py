"""Genotypes of a study at the loci of a panel, counted while they are read.

========================== ================================================================================
file                       what it is
========================== ================================================================================
PLINK ``.raw``             one line per person; columns ``rs1_G`` count the allele G: 0, 1, 2 or NA
PLINK ``.ped`` + ``.map``  one line per person; two allele letters per locus, 0 where there is none
VCF ``.vcf``               one line per locus; ``GT`` of every sample
a table                    a line per locus: its name, then 0, 1, 2 or NA for every person of the header
========================== ================================================================================

Loci are found by name, or by ``chromosome:position`` where the panel calls them so (vcftools, a VCF without
ids); ``chr1`` and ``1`` are one chromosome.  Only how many people have 0, 1 or 2 alternative alleles at each
locus is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.pedigree.frequencies import Panel
from quiltdp.domains.pedigree.people import Pedigree
from quiltdp.domains.pedigree.queries import QUERIES
from quiltdp.errors import FileFormatError
from quiltdp.io.text import read_text

Ints = NDArray[np.int64]
Body = Sequence[tuple[int, str]]

_MISSING = frozenset({"0", "N", "n", ".", "-", "-9"})
_NONE = 3  # the code of a call that is missing
_CALLS = {"0": 0, "1": 1, "2": 2, **dict.fromkeys(("NA", ".", "-9", "NAN", ""), _NONE)}
_RAW = ("fid", "iid", "pat", "mat", "sex", "phenotype")
_VCF = ("chrom", "pos", "id", "ref", "alt", "qual", "filter", "info", "format")


@dataclass(frozen=True, eq=False)
class GenotypeCounts:
    """How many people of the study have each genotype, at every locus of a panel.

    ``counts[l, g]`` for g = 0, 1, 2 alternative alleles; a missing call is in none of them.
    """

    counts: Ints
    people: int
    missing: int
    notes: tuple[str, ...] = ()

    def answer(self, query: str) -> NDArray[np.float64]:
        """Return the true numbers of a query, loci × cells."""
        return self.counts.astype(np.float64) @ np.array(QUERIES[query].table, dtype=np.float64)


def count_genotypes(
    path: str | os.PathLike[str], panel: Panel, family: Pedigree, people: Sequence[str]
) -> GenotypeCounts:
    """Count the genotypes of the study's people at the loci of a panel.

    Parameters
    ----------
    path
        The genotypes.
    panel
        The loci; where it names the alleles, they must be those of the file, in either order.
    family
        Whose ids the file has.
    people
        The members of the study, each by their own name (twins too).

    Raises
    ------
    FileFormatError
        With the line: a locus that is missing, an allele or a call that cannot be, a person twice.
    """
    file = Path(path)
    reading = _Reading(file, panel, family, people)
    lines = enumerate(read_text(file).split("\n"), start=1)
    body = [(k, t) for k, t in lines if t.strip() and not t.startswith("##")]
    if not body:
        raise FileFormatError(file, None, "there are no genotypes in this file")
    names = [cell.lstrip("#").lower() for cell in body[0][1].split()]
    if tuple(names[:6]) == _RAW:
        reading.raw(body)
    elif names[:2] == ["chrom", "pos"] and "format" in names:
        reading.vcf(body)
    elif file.name.lower().removesuffix(".gz").endswith(".ped"):
        reading.ped(body)
    else:
        reading.table(body)
    return reading.result()


class _Reading:
    """One file being read: which column is which locus, who was seen, what was counted."""

    def __init__(self, path: Path, panel: Panel, family: Pedigree, people: Sequence[str]) -> None:
        self.path, self.panel, self.family = path, panel, family
        self.members = frozenset(people)
        self.place = {name: k for k, name in enumerate(panel.names)}
        self.at_position = {
            _position(*name.split(":")): k for name, k in self.place.items() if _is_position(name)
        }
        self.counts = np.zeros((len(panel), 4), dtype=np.int64)
        self.loci_seen = np.zeros(len(panel), dtype=bool)
        self.seen: dict[str, int] = {}
        self.strangers: dict[str, None] = {}
        self.extra_loci = 0

    # -- who and where ---------------------------------------------------------------------

    def member(self, family: str, person: str, line: int) -> str | None:
        """Return whose line or column this is; ``None`` for somebody outside the study."""
        name = self.family.named(family, person)
        if name is None:
            alike = [p.name for p in self.family.by_id.get(person, ()) if family in ("", p.family)]
            name = alike[0] if len(alike) == 1 else None
        if name is None or name not in self.members:
            self.strangers[name or person] = None
            return None
        if name in self.seen:
            reason = f"{name!r} has genotypes on line {self.seen[name]} already"
            raise FileFormatError(self.path, line, reason)
        self.seen[name] = line
        return name

    def locus(self, name: str, line: int, position: tuple[str, str] | None = None) -> int | None:
        """Return where a locus stands in the panel, by its name or position; ``None`` if it is not in it."""
        k = self.place.get(name)
        if k is None and position is not None:
            k = self.at_position.get(_position(*position))
        if k is None:
            self.extra_loci += 1
        elif self.loci_seen[k]:
            raise FileFormatError(self.path, line, f"the locus {name!r} is in the file twice")
        else:
            self.loci_seen[k] = True
        return k

    def flipped(self, k: int, counted: str, other: str, line: int) -> bool:
        """Return whether a file counts the panel's reference allele; refuse other alleles."""
        alt, ref = self.panel.alternative[k], self.panel.reference[k]
        if alt == "." or counted in (".", alt):
            return False
        if counted == ref and other in (".", alt):
            return True
        raise self._wrong(k, line, f"the file counts {counted!r}, the panel has {ref!r} and {alt!r}")

    def _wrong(self, k: int, line: int, reason: str) -> FileFormatError:
        return FileFormatError(self.path, line, f"locus {self.panel.names[k]!r}: {reason}")

    def _rows(self, body: Body, header: Sequence[str], mark: str | None) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines below a header, with as many cells as it has."""
        for number, text in body[1:]:
            cells = [cell.strip() for cell in text.split(mark)]
            if len(cells) != len(header):
                reason = f"{len(cells)} columns, the header has {len(header)}"
                raise FileFormatError(self.path, number, reason)
            yield number, cells

    # -- layouts ---------------------------------------------------------------------------

    def raw(self, body: Body) -> None:
        """Read PLINK's additive recoding."""
        line, header = body[0][0], body[0][1].split()
        columns, places, flips = [], [], []
        for j, cell in enumerate(header[6:], start=6):
            name, _, alleles = cell.rpartition("_")
            counted, _, other = alleles.partition("(/")
            k = self.locus(name or cell, line)
            if k is not None:
                columns.append(j)
                places.append(k)
                flips.append(self.flipped(k, counted if name else ".", other.rstrip(")") or ".", line))
        for number, cells in self._rows(body, header, None):
            who = self.member(cells[0], cells[1], number)
            if who is not None:
                calls = self._calls([cells[j] for j in columns], number)
                self._add(
                    np.array(places, dtype=np.intp), calls, np.array(flips, dtype=bool), self._male(who)
                )

    def ped(self, body: Body) -> None:
        """Read pairs of allele letters, the loci named in the .map file beside it."""
        beside = Path(str(self.path).removesuffix(".gz")).with_suffix(".map")
        names = [t.split() for t in read_text(beside).split("\n") if len(t.split()) > 1]
        at = [self.locus(m[1], k, (m[0], m[-1])) for k, m in enumerate(names, start=1)]
        known = [(j, k) for j, k in enumerate(at) if k is not None]
        for number, text in body:
            cells = text.split()
            if len(cells) != 6 + 2 * len(names):
                reason = f"{len(cells)} columns, {len(names)} loci ask for {6 + 2 * len(names)}"
                raise FileFormatError(self.path, number, reason)
            who = self.member(cells[0], cells[1], number)
            if who is not None:
                calls = [self._letters(k, cells[6 + 2 * j], cells[7 + 2 * j], number) for j, k in known]
                places = np.array([k for _, k in known], dtype=np.intp)
                self._add(places, np.array(calls, dtype=np.int64), False, self._male(who))

    def vcf(self, body: Body) -> None:
        """Read GT of every sample, a line per locus."""
        mark = "\t" if "\t" in body[0][1] else None
        header = body[0][1].lstrip("#").split(mark)
        if tuple(name.lower() for name in header[:9]) != _VCF:
            reason = f"the columns of a VCF are #{' '.join(_VCF).upper()}, then the samples"
            raise FileFormatError(self.path, body[0][0], reason)
        inside, males = self._samples(header[9:], body[0][0])
        for number, cells in self._rows(body, header, mark):
            name = cells[2] if cells[2] != "." else f"{cells[0]}:{cells[1]}"
            k = self.locus(name, number, (cells[0], cells[1]))
            if k is not None:
                flip = self.flipped(k, cells[4], cells[3], number)
                calls = np.array([self._gt(cell, name, number) for cell in cells[9:]], dtype=np.int64)
                self._add(k, calls[inside], flip, males)

    def table(self, body: Body) -> None:
        """Read a line per locus: its name, then a call for every person of the header."""
        mark = "\t" if "\t" in body[0][1] else "," if "," in body[0][1] else None
        header = [c.strip() for c in body[0][1].split(mark)]
        if len(header) < 2:
            reason = "expected PLINK's .raw or .ped, a VCF, or a table of loci × people"
            raise FileFormatError(self.path, body[0][0], reason)
        inside, males = self._samples(header[1:], body[0][0])
        if not self.seen:
            reason = f"nobody of the study is among the columns ({', '.join(header[1:4])}, …)"
            raise FileFormatError(self.path, body[0][0], reason)
        for number, cells in self._rows(body, header, mark):
            k = self.locus(cells[0], number)
            if k is not None:
                self._add(k, self._calls(cells[1:], number)[inside], False, males)

    # -- calls -----------------------------------------------------------------------------

    def _samples(self, names: Sequence[str], line: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the columns of members of the study, and which of these are men."""
        samples = [self.member("", name, line) for name in names]
        inside = [k for k, name in enumerate(samples) if name is not None]
        males = [self._male(name) for name in samples if name is not None]
        return np.array(inside, dtype=np.intp), np.array(males, dtype=bool)

    def _male(self, name: str) -> bool:
        return self.family[name].sex == "male"

    def _calls(self, cells: Sequence[str], line: int) -> Ints:
        calls = [_CALLS.get(c.upper(), -1) for c in cells]
        if -1 in calls:
            cell = cells[calls.index(-1)]
            raise FileFormatError(self.path, line, f"{cell[:40]!r} is not a genotype: expected 0, 1, 2 or NA")
        return np.array(calls, dtype=np.int64)

    def _gt(self, cell: str, name: str, line: int) -> int:
        alleles = cell.partition(":")[0].replace("|", "/").split("/")
        if "." in alleles:
            return _NONE
        if not 1 <= len(alleles) <= 2 or any(a not in ("0", "1") for a in alleles):
            reason = f"locus {name!r}: {cell[:40]!r} is not a genotype of two alleles"
            raise FileFormatError(self.path, line, reason)
        return alleles.count("1") * (2 if len(alleles) == 1 else 1)  # one allele: as PLINK, 0 or 2

    def _letters(self, k: int, first: str, second: str, line: int) -> int:
        if first in _MISSING or second in _MISSING:
            return _NONE
        alt, ref = self.panel.alternative[k], self.panel.reference[k]
        if alt == ".":
            raise self._wrong(k, line, "the panel does not say which allele is counted")
        for allele in (first, second):
            if allele not in (alt, ref):
                raise self._wrong(k, line, f"{allele[:20]!r} is neither {ref!r} nor {alt!r}")
        return (first == alt) + (second == alt)

    def _add(
        self,
        at: int | NDArray[np.intp],
        calls: Ints,
        flip: bool | NDArray[np.bool_],
        male: bool | NDArray[np.bool_],
    ) -> None:
        """Count one person at many loci, or many people at one."""
        calls = np.where(flip & (calls < _NONE), 2 - calls, calls)
        # a man has one allele on the X, whether it is written 1 or 2
        calls = np.where(male & self.panel.x_linked[at] & (calls == 2), 1, calls)
        np.add.at(self.counts, (np.broadcast_to(at, calls.shape), calls), 1)

    # -- the end ---------------------------------------------------------------------------

    def result(self) -> GenotypeCounts:
        """Refuse loci that are missing; say who and what is missing."""
        absent = np.flatnonzero(~self.loci_seen)
        if len(absent):
            more = f" (and {len(absent) - 1:,} more)" if len(absent) > 1 else ""
            reason = f"the locus {self.panel.names[absent[0]]!r} of the panel is not here{more}"
            how = "loci are found by name, or by chromosome:position where the panel calls them so"
            raise FileFormatError(self.path, None, f"{reason}; {how}")
        if not self.seen:
            reason = "nobody of the study is in this file: are the ids the same?"
            raise FileFormatError(self.path, None, reason)
        missing = int(self.counts[:, _NONE].sum())
        return GenotypeCounts(self.counts[:, :3], len(self.members), missing, tuple(self._notes(missing)))

    def _notes(self, missing: int) -> Iterator[str]:
        if missing:
            share = missing / (len(self.seen) * len(self.panel))
            yield (
                f"{missing:,} calls ({share:.2%}) are missing and count as no alternative allele, while"
                " OBS_CT counts everybody; that a call is missing must not depend on the genotype"
            )
        absent = self.members - self.seen.keys()
        if absent:
            yield f"{len(absent)} people of the study have no genotypes here (first: {min(absent)!r})"
        if self.strangers:
            first = next(iter(self.strangers))
            yield f"{len(self.strangers):,} people of the file are not in the study (first: {first!r})"
        if self.extra_loci:
            yield f"{self.extra_loci:,} loci of the file are not in the panel: left out"


def _is_position(name: str) -> bool:
    return name.count(":") == 1 and name.rpartition(":")[2].isdigit()


def _position(chromosome: str, position: str) -> tuple[str, str]:
    """Return a place on the genome as all files agree on it: chr1 and 1, chrX and 23 are one chromosome."""
    plain = chromosome.lower().removeprefix("chr")
    return {"23": "x"}.get(plain, plain), position

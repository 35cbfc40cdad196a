"""Panels of loci: one allele frequency each, from the tables that PLINK, vcftools and VCF files have.

========================= ===================================================== =========================
file                      columns                                               frequency of
========================= ===================================================== =========================
PLINK 2 ``.afreq``        #CHROM ID REF ALT ALT_FREQS OBS_CT                    ALT
PLINK 1 ``.frq``          CHR SNP A1 A2 MAF NCHROBS                             A1
vcftools ``.frq``         CHROM POS N_ALLELES N_CHR {ALLELE:FREQ}               the second allele
VCF ``.vcf``              #CHROM POS ID REF ALT … INFO with AF=                 ALT
``.bim`` and a frequency  chromosome, id, cM, position, A1, A2, frequency       A1
any table with a header   a locus, a frequency, perhaps chromosome and alleles  the alternative allele
========================= ===================================================== =========================
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.io.columns import Role, listed, plain, recognise
from quiltdp.io.text import read_text

__all__ = ["Panel", "loci_in", "read_frequencies"]

_ROLES = {
    "locus": Role(
        "locus", "id snp rsid snpid marker markername locus variant variantid", "name pos position"
    ),
    "frequency": Role(
        "frequency",
        "altfreqs altfreq af freq frequency allelefrequency altaf altfrequency eaf effectallelefrequency",
        "maf minorallelefrequency",
    ),
    "chromosome": Role("chromosome", "chrom chr chromosome"),
    "reference": Role("reference allele", "ref a2 otherallele reference referenceallele noneffectallele"),
    "alternative": Role("alternative allele", "alt a1 effectallele alternative alternate minorallele"),
}
_UNKNOWN = frozenset({"", ".", "na", "nan", "-9", "-"})
_X = frozenset({"x", "23", "chrx", "chr23"})
_NOT_DIPLOID = frozenset({"y", "24", "chry", "chr24", "m", "mt", "26", "chrm", "chrmt", "chr26"})
_AF = re.compile(r"(?:^|;)AF=([^;]*)")


@dataclass(frozen=True, eq=False)
class Panel:
    """Loci in file order: names, frequencies of the alternative allele, and what is known of them.

    Attributes
    ----------
    names
        What the loci are called, each once.
    frequency
        Of the alternative allele; NaN where the file has none.
    x_linked
        Which loci are on the X chromosome.
    chromosome, reference, alternative
        As the file has them, ``"."`` where it does not.
    source, notes
        The file, and what was noticed while reading it.
    counts
        How many loci each line stands for: 1, unless loci were counted by frequency.
    """

    names: tuple[str, ...]
    frequency: NDArray[np.float64]
    x_linked: NDArray[np.bool_]
    chromosome: tuple[str, ...]
    reference: tuple[str, ...]
    alternative: tuple[str, ...]
    source: str = "panel"
    notes: tuple[str, ...] = ()
    counts: NDArray[np.int64] = field(default_factory=lambda: np.ones(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Copy, freeze and check the columns."""
        if not self.names:
            raise InvalidArgument(f"{self.source}: the panel has no loci")
        if not len(self.counts):
            object.__setattr__(self, "counts", np.ones(len(self.names), dtype=np.int64))
        for name, kind in (("frequency", np.float64), ("x_linked", np.bool_), ("counts", np.int64)):
            array = np.array(getattr(self, name), dtype=kind)
            if array.shape != (len(self.names),):
                raise InvalidArgument(
                    f"{self.source}: {name} has shape {array.shape} for {len(self.names)} loci"
                )
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if (self.counts < 1).any():
            raise InvalidArgument(f"{self.source}: every line of a panel stands for at least one locus")
        with np.errstate(invalid="ignore"):
            odd = np.flatnonzero((self.frequency < 0) | (self.frequency > 1))
        if len(odd):
            k = int(odd[0])
            raise InvalidArgument(
                f"{self.source}: locus {self.names[k]!r} has the frequency {self.frequency[k]:g},"
                " not a number from 0 to 1"
            )
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise InvalidArgument(f"{self.source}: two loci are called {name!r}")
            seen.add(name)

    def __len__(self) -> int:
        """Return the number of lines, each a locus unless loci were counted by frequency."""
        return len(self.names)

    @property
    def loci(self) -> int:
        """How many loci there are."""
        return int(self.counts.sum())

    def __repr__(self) -> str:
        """Say how many loci."""
        return f"<Panel: {self.loci} loci>"

    @classmethod
    def of(cls, frequencies: dict[str, float], *, x_linked: bool = False) -> Panel:
        """Return the panel of a mapping locus → frequency.

        Examples
        --------
        >>> Panel.of({"rs1": 0.1, "rs2": 0.3})
        <Panel: 2 loci>
        """
        blank = (".",) * len(frequencies)
        values = np.array(list(frequencies.values()), dtype=np.float64)
        return cls(tuple(map(str, frequencies)), values, np.full(len(blank), x_linked), blank, blank, blank)


def read_frequencies(path: str | os.PathLike[str]) -> Panel:
    """Read a panel of loci with one allele frequency each.

    Loci on the Y chromosome and in mitochondria are left out and counted, as are loci with more than
    two alleles: no Mendelian table here describes them.

    Raises
    ------
    FileFormatError
        With the line: no frequency column, not a number from 0 to 1, a locus named twice.
    """
    name = Path(path)
    found = _Columns()
    for line, cells in _rows(name, enumerate(read_text(name).split("\n"), start=1)):
        found.add(name, line, cells)
    return found.panel(name)


def loci_in(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[float, bool, str]]:
    """Yield frequency, whether on the X chromosome, and why it is left out (``""``: it is not), per locus.

    ``lines`` are numbered and may be read while they are walked.
    """
    for line, (locus, text, chromosome, _, alternative) in _rows(path, lines):
        why = _why_left_out(chromosome, text, alternative)
        value = math.nan if why else _frequency(path, line, locus, text)
        yield value, chromosome.lower() in _X, why


_Cells = tuple[str, str, str, str, str]  # locus, frequency, chromosome, reference, alternative


class _Columns:
    """The loci read so far."""

    def __init__(self) -> None:
        self.cells: list[_Cells] = []
        self.values: list[float] = []
        self.first: dict[str, int] = {}
        self.left_out: dict[str, int] = {}

    def add(self, path: Path, line: int, cells: _Cells) -> None:
        locus, text, chromosome, _, alternative = cells
        if locus in ("", "."):
            locus = f"line {line}"
            cells = (locus, *cells[1:])
        why = _why_left_out(chromosome, text, alternative)
        if why:
            self.left_out[why] = self.left_out.get(why, 0) + 1
            return
        if locus in self.first:
            raise FileFormatError(
                path, line, f"the locus {locus!r} is on line {self.first[locus]} already: keep one of them"
            )
        self.first[locus] = line
        self.cells.append(cells)
        self.values.append(_frequency(path, line, locus, text))

    def panel(self, path: Path) -> Panel:
        notes = tuple(f"{count:,} loci {why} were left out" for why, count in self.left_out.items())
        if not self.cells:
            raise FileFormatError(
                path, None, f"there are no loci in this file{'; ' * bool(notes)}{'; '.join(notes)}"
            )
        names, _, chromosomes, references, alternatives = zip(*self.cells, strict=True)
        on_x = np.array([c.lower() in _X for c in chromosomes])
        return Panel(
            names, np.array(self.values), on_x, chromosomes, references, alternatives, str(path), notes
        )


def _why_left_out(chromosome: str, frequency: str, alternative: str) -> str:
    if chromosome.lower() in _NOT_DIPLOID:
        return "on Y or mitochondrial"
    return "with more than two alleles" if "," in frequency or "," in alternative else ""


def _frequency(path: Path, line: int, locus: str, text: str) -> float:
    if text.strip().lower() in _UNKNOWN:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise FileFormatError(
            path, line, f"locus {locus!r}: the frequency {text[:40]!r} is not a number from 0 to 1"
        )
    return value


# -- the layouts -------------------------------------------------------------------------------------


def _rows(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, _Cells]]:
    """Return line and cells of every locus, whatever the layout."""
    body = ((k, t) for k, t in lines if t.strip() and not t.startswith("##"))
    top = next(body, None)
    if top is None:
        raise FileFormatError(path, None, "there are no loci in this file")
    mark = _mark(top[1])
    first = _split(top[1].lstrip("#"), mark)
    kind = [plain(cell) for cell in first]
    if kind[:5] == ["chrom", "pos", "id", "ref", "alt"] and "info" in kind:
        return _from_vcf(path, body, kind, mark)
    if kind[:4] == ["chrom", "pos", "nalleles", "nchr"]:
        return _from_vcftools(path, body, mark)
    if any(_ROLES["frequency"].rank(cell) is not None for cell in first):
        return _from_table(path, first, top[0], body, mark)
    if len(first) == 6 and _is_number(first[3]) and _is_number(first[2]):
        raise FileFormatError(
            path,
            top[0],
            "a .bim has no frequencies: give the .afreq or .frq that PLINK writes with --freq, or a seventh"
            " column with the frequency of A1",
        )
    if len(first) in (2, 7) and _is_number(first[-1]):
        return _headless(path, chain([top], body), len(first), mark)
    raise FileFormatError(
        path,
        top[0],
        f"no frequency column among {listed(first)}: expected .afreq or .frq of PLINK, a VCF with AF,"
        " or a header that names a locus and a frequency",
    )


def _split(text: str, mark: str | None) -> list[str]:
    return [cell.strip() for cell in text.split(mark)]


def _mark(header: str) -> str | None:
    """Return what separates the columns: tabs, commas or any blanks, as the first line has them."""
    return next((mark for mark in "\t,;" if mark in header), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Lines = Iterable[tuple[int, str]]


def _table_cells(path: Path, lines: Lines, width: int, mark: str | None) -> Iterator[tuple[int, list[str]]]:
    for line, text in lines:
        cells = _split(text, mark)
        if len(cells) != width:
            raise FileFormatError(path, line, f"{len(cells)} columns, the lines above have {width}")
        yield line, cells


def _from_table(
    path: Path, header: list[str], top: int, body: Lines, mark: str | None
) -> Iterator[tuple[int, _Cells]]:
    where = recognise(header, _ROLES, {}, source=path, line=top, say=_said)
    for role in ("locus", "frequency"):
        if role not in where:
            raise FileFormatError(path, top, f"no {role} column among {listed(header)}")

    def cell(cells: list[str], role: str) -> str:
        return cells[where[role]] if role in where else "."

    for line, cells in _table_cells(path, body, len(header), mark):
        yield line, (
            cells[where["locus"]], cells[where["frequency"]],
            cell(cells, "chromosome"), cell(cells, "reference"), cell(cells, "alternative"),
        )  # fmt: skip


def _said(role: str, column: str | int = "") -> str:
    return f"another header for the {role}" if column == "" else option(role)


def _headless(path: Path, body: Lines, width: int, mark: str | None) -> Iterator[tuple[int, _Cells]]:
    """Read two columns, locus and frequency, or a .bim with the frequency of A1 as its seventh column."""
    for line, cells in _table_cells(path, body, width, mark):
        if width == 2:
            yield line, (cells[0], cells[1], ".", ".", ".")
        else:
            yield line, (cells[1], cells[6], cells[0], cells[5], cells[4])


def _from_vcftools(path: Path, body: Lines, mark: str | None) -> Iterator[tuple[int, _Cells]]:
    for line, text in body:
        cells = _split(text, mark)
        if len(cells) < 5:
            raise FileFormatError(path, line, f"{len(cells)} columns, at least 5 are expected")
        alleles = [cell.rpartition(":") for cell in cells[4:]]
        if len(alleles) == 1:
            alleles.append((".", ":", "0"))
        several = "," if len(alleles) > 2 else ""
        locus = f"{cells[0]}:{cells[1]}"
        yield line, (locus, alleles[1][2] + several, cells[0], alleles[0][0], alleles[1][0] + several)


def _from_vcf(path: Path, body: Lines, header: list[str], mark: str | None) -> Iterator[tuple[int, _Cells]]:
    info = header.index("info")  # the first: a sample may be called so
    for line, text in body:
        cells = text.split(mark)
        if len(cells) <= info:
            raise FileFormatError(path, line, f"{len(cells)} columns, a VCF line has at least 8")
        found = _AF.search(cells[info])
        chromosome, position, name, reference, alternative = cells[:5]
        locus = name if name != "." else f"{chromosome}:{position}"
        yield line, (locus, found[1] if found else ".", chromosome, reference, alternative)

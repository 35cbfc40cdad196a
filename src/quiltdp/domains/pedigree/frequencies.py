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
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.io.columns import Role, listed, plain, recognise
from quiltdp.io.text import read_text

Lines = Iterable[tuple[int, str]]
_Cells = tuple[str, str, str, str, str]  # locus, frequency, chromosome, reference, alternative

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
                shapes = f"{name} has shape {array.shape} for {len(self.names)} loci"
                raise InvalidArgument(f"{self.source}: {shapes}")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if (self.counts < 1).any():
            raise InvalidArgument(f"{self.source}: every line of a panel stands for at least one locus")
        seen: set[str] = set()
        for name, p in zip(self.names, self.frequency.tolist(), strict=True):
            if p < 0 or p > 1:
                reason = f"locus {name!r} has the frequency {p:g}, not a number from 0 to 1"
                raise InvalidArgument(f"{self.source}: {reason}")
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
    file = Path(path)
    lines: dict[str, int] = {}
    loci: list[_PanelLocus] = []
    left_out: Counter[str] = Counter()
    for locus in loci_in(file, enumerate(read_text(file).split("\n"), start=1)):
        if locus.left_out:
            left_out[locus.left_out] += 1
            continue
        if locus.name in lines:
            reason = f"the locus {locus.name!r} is on line {lines[locus.name]} already: keep one of them"
            raise FileFormatError(file, locus.line, reason)
        lines[locus.name] = locus.line
        loci.append(locus)
    notes = notes_on(left_out)
    if not loci:
        raise FileFormatError(file, None, "; ".join(("there are no loci in this file", *notes)))
    _, names, values, on_x, _, chromosomes, references, alternatives = zip(*loci, strict=True)
    alleles = (references, alternatives)
    return Panel(names, np.array(values), np.array(on_x), chromosomes, *alleles, str(file), notes)


class _PanelLocus(NamedTuple):
    """A locus of a file; ``left_out`` says why it is, ``""`` if it is not."""

    line: int
    name: str
    frequency: float
    on_x: bool
    left_out: str
    chromosome: str
    reference: str
    alternative: str


def loci_in(path: Path, lines: Lines) -> Iterator[_PanelLocus]:
    """Yield the loci of a file; ``lines`` are numbered and may be read while they are walked."""
    for line, (name, text, chromosome, reference, alternative) in _read_locus_rows(path, lines):
        locus = name if name not in ("", ".") else f"line {line}"
        several = "with more than two alleles" if "," in text + alternative else ""
        why = "on Y or mitochondrial" if chromosome.lower() in _NOT_DIPLOID else several
        value = math.nan if why else _parse_frequency(path, line, locus, text)
        yield _PanelLocus(
            line, locus, value, chromosome.lower() in _X, why, chromosome, reference, alternative
        )


def notes_on(left_out: Counter[str]) -> tuple[str, ...]:
    """Say how many loci were left out, by reason."""
    return tuple(f"{count:,} loci {why} were left out" for why, count in left_out.items())


def _parse_frequency(path: Path, line: int, locus: str, text: str) -> float:
    if text.strip().lower() in _UNKNOWN:
        return math.nan
    value = _float_or_none(text)
    if value is None or not 0.0 <= value <= 1.0:
        reason = f"locus {locus!r}: the frequency {text[:40]!r} is not a number from 0 to 1"
        raise FileFormatError(path, line, reason)
    return value


# -- the layouts -------------------------------------------------------------------------------------


def _read_locus_rows(path: Path, lines: Lines) -> Iterator[tuple[int, _Cells]]:
    """Return line and cells of every locus, whatever the layout."""
    body = ((k, t) for k, t in lines if t.strip() and not t.startswith("##"))
    top = next(body, None)
    if top is None:
        raise FileFormatError(path, None, "there are no loci in this file")
    mark = next((mark for mark in "\t,;" if mark in top[1]), None)  # None: any blanks
    first = _split_cells(top[1].lstrip("#"), mark)
    header = [plain(cell) for cell in first]
    if header[:5] == ["chrom", "pos", "id", "ref", "alt"] and "info" in header:
        return _rows_of_vcf(path, body, header.index("info"), mark)  # the first: a sample may be called so
    if header[:4] == ["chrom", "pos", "nalleles", "nchr"]:
        return _rows_of_vcftools(path, body, mark)
    if any(_ROLES["frequency"].rank(cell) is not None for cell in first):
        return _rows_of_table(path, first, top[0], body, mark)
    if len(first) in (2, 7) and _float_or_none(first[-1]) is not None:
        return _rows_without_header(path, chain([top], body), len(first), mark)
    reason = (
        f"no frequency column among {listed(first)}: expected .afreq or .frq of PLINK, a VCF with AF,"
        " or a header that names a locus and a frequency"
    )
    if len(first) == 6 and None not in (_float_or_none(first[2]), _float_or_none(first[3])):
        reason = (
            "a .bim has no frequencies: give the .afreq or .frq that PLINK writes with --freq, or a seventh"
            " column with the frequency of A1"
        )
    raise FileFormatError(path, top[0], reason)


def _split_cells(text: str, mark: str | None) -> list[str]:
    return [cell.strip() for cell in text.split(mark)]


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _check_row_widths(
    path: Path, lines: Lines, width: int, mark: str | None
) -> Iterator[tuple[int, list[str]]]:
    for line, text in lines:
        cells = _split_cells(text, mark)
        if len(cells) != width:
            raise FileFormatError(path, line, f"{len(cells)} columns, the lines above have {width}")
        yield line, cells


def _rows_of_table(
    path: Path, header: list[str], top: int, body: Lines, mark: str | None
) -> Iterator[tuple[int, _Cells]]:
    def describe_column(role: str, column: str | int = "") -> str:
        return f"another header for the {role}" if column == "" else option(role)

    where = recognise(header, _ROLES, {}, source=path, line=top, say=describe_column)
    for role in ("locus", "frequency"):
        if role not in where:
            raise FileFormatError(path, top, f"no {role} column among {listed(header)}")
    for line, cells in _check_row_widths(path, body, len(header), mark):
        locus, frequency, *others = (cells[where[role]] if role in where else "." for role in _ROLES)
        yield line, (locus, frequency, others[0], others[1], others[2])


def _rows_without_header(
    path: Path, body: Lines, width: int, mark: str | None
) -> Iterator[tuple[int, _Cells]]:
    """Read two columns, locus and frequency, or a .bim with the frequency of A1 as its seventh column."""
    for line, cells in _check_row_widths(path, body, width, mark):
        if width == 2:
            yield line, (cells[0], cells[1], ".", ".", ".")
        else:
            yield line, (cells[1], cells[6], cells[0], cells[5], cells[4])


def _rows_of_vcftools(path: Path, body: Lines, mark: str | None) -> Iterator[tuple[int, _Cells]]:
    for line, text in body:
        cells = _split_cells(text, mark)
        if len(cells) < 5:
            raise FileFormatError(path, line, f"{len(cells)} columns, at least 5 are expected")
        alleles = [cell.rpartition(":") for cell in cells[4:]]
        if len(alleles) == 1:
            alleles.append((".", ":", "0"))
        several = "," if len(alleles) > 2 else ""
        locus = f"{cells[0]}:{cells[1]}"
        yield line, (locus, alleles[1][2] + several, cells[0], alleles[0][0], alleles[1][0] + several)


def _rows_of_vcf(path: Path, body: Lines, info: int, mark: str | None) -> Iterator[tuple[int, _Cells]]:
    for line, text in body:
        cells = text.split(mark)
        if len(cells) <= info:
            raise FileFormatError(path, line, f"{len(cells)} columns, a VCF line has at least 8")
        frequency = _AF.search(cells[info])
        chromosome, position, name, reference, alternative = cells[:5]
        locus = name if name != "." else f"{chromosome}:{position}"
        yield line, (locus, frequency[1] if frequency else ".", chromosome, reference, alternative)

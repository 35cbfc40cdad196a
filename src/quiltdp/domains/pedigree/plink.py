"""PLINK and its relatives: .fam, .ped, .psam, and headed or headless files of 4 to 7 columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from quiltdp.domains.pedigree.codes import MissingCodes, read_sex, sex_codes
from quiltdp.domains.pedigree.columns import is_header
from quiltdp.domains.pedigree.text import Cells, read_cells
from quiltdp.domains.pedigree.types import Alleles, Row, RowFile
from quiltdp.errors import FileFormatError, option

__all__ = ["read_plink"]

_MISSING = frozenset({"0"})
_ALLELES = frozenset("01234ACGTacgtNn-.ID") | {"-9"}
_LAYOUT = "family, id, father, mother, sex, phenotype"


def read_plink(
    path: str | Path,
    *,
    columns: Mapping[str, str | int] | None = None,
    missing: Collection[str] = (),
    male: str | None = None,
    female: str | None = None,
) -> RowFile:
    """Read family, id, father, mother[, sex[, phenotype[, anything]]] with or without a header.

    Sex is 1 (male) or 2 (female); ``0`` is the missing parent.  Beyond seven columns, pairs of
    allele columns are genotypes, their locus names taken from a .map file beside it if there is one.
    Ids are unique within families, as PLINK has it.
    """
    path = Path(path)
    cells = read_cells(path)
    if columns or is_header(cells.cells[0]):
        from quiltdp.domains.pedigree.tables import rows_of_table

        given: dict[str, Any] = {"columns": columns, "missing": missing, "male": male, "female": female}
        return rows_of_table(cells, "PLINK", default_missing=_MISSING, global_ids=False, **given)
    body, lines = cells.cells, cells.lines
    if cells.first_is_comment:
        body, lines = body[1:], lines[1:]
    if not body:
        raise FileFormatError(path, cells.lines[0], "there is a header and nobody below it")
    width = len(body[0])
    if width < 4:
        commas = f"; if commas separate them: {option('format', 'table')}" if "," in body[0][0] else ""
        raise FileFormatError(
            path,
            lines[0],
            f"{width} column{'s' if width > 1 else ''}, a pedigree needs at least 4: {_LAYOUT}{commas}",
        )
    _refuse_without_family(path, lines, body)
    codes = MissingCodes(frozenset({*_MISSING, *missing}), frozenset(row[1] for row in body))
    coding = sex_codes(male, female)
    loci, warnings = _loci(path, lines, body)
    rows = tuple(
        Row(
            id=row[1],
            father=codes.parent(row[2], line, row[1]),
            mother=codes.parent(row[3], line, row[1]),
            sex=read_sex(row[4], coding) if width > 4 else "unknown",
            family=row[0],
            line=line,
            alleles=_genotypes(row, len(loci)),
        )
        for line, row in zip(lines, body, strict=True)
    )
    return RowFile(rows, str(path), "PLINK", (*warnings, *codes.warnings()), loci=loci)


def _refuse_without_family(path: Path, lines: Sequence[int], body: Sequence[tuple[str, ...]]) -> None:
    """Refuse four or five columns that only make sense as id, father, mother, sex."""
    width = len(body[0])
    if width > 5:
        return
    last = {row[3] for row in body}
    without, with_family = {row[0] for row in body}, {row[1] for row in body}
    parents = {cell for row in body for cell in row[1:3]} - {"0"}
    if (
        last <= {"0", "1", "2"}
        and last & {"1", "2"}
        and parents
        and parents <= without
        and not parents <= with_family
    ):
        raise FileFormatError(
            path,
            lines[0],
            f"{width} columns that read like id, father, mother, sex, without a family column;"
            " put one first, or a header line on top: id father mother sex",
        )


def _loci(
    path: Path, lines: Sequence[int], body: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return locus names of a .ped with genotypes, and a warning if the extra columns are not alleles."""
    extra = len(body[0]) - 6
    if extra < 2:
        return (), ()
    odd = next(
        ((n, c) for n, row in zip(lines, body, strict=True) for c in row[6:] if c not in _ALLELES), None
    )
    if extra % 2 or odd:
        what = f"{odd[1]!r} on line {odd[0]} is not an allele" if odd else "they do not come in pairs"
        return (), (f"{extra} columns after the phenotype are not read as genotypes ({what})",)
    names = _map_names(path.with_suffix(".map"))
    count = extra // 2
    return (names if len(names) == count else tuple(f"locus {k + 1}" for k in range(count))), ()


def _map_names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    table: Cells = read_cells(path)
    return tuple(row[1] for row in table.cells if len(row) > 1)


def _genotypes(row: tuple[str, ...], loci: int) -> tuple[Alleles, ...]:
    return tuple((row[6 + 2 * k], row[7 + 2 * k]) for k in range(loci))

"""Pedigree files: the format follows from suffix and content; PLINK, tables with a header, LINKAGE.

LINKAGE (post-MAKEPED) files have nine structural columns: pedigree, id, father, mother, first offspring,
next paternal sib, next maternal sib, sex, proband; then phenotypes and genotypes.  A proband code of 2 or
more marks copies of one person that MAKEPED made to break a loop: they are merged again here, because a cut
loop hides correlation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quiltdp.domains.pedigree import cells as table_cells
from quiltdp.domains.pedigree.assemble import assemble
from quiltdp.domains.pedigree.cells import Cells, MissingCodes, is_header, read_cells, read_sex
from quiltdp.domains.pedigree.people import Pedigree, Row, RowFile, Sex, grouped, reachable
from quiltdp.errors import FileFormatError, InvalidArgument, option

FORMATS = ("plink", "linkage", "table", "gedcom")
_BY_SUFFIX = {
    **dict.fromkeys((".fam", ".psam"), "plink"),
    **dict.fromkeys((".ged", ".gedcom"), "gedcom"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "table"),
    **dict.fromkeys((".ped", ".pre", ".dat", ".txt"), ""),  # PLINK or LINKAGE: the content tells
}
SUFFIXES = tuple(_BY_SUFFIX)
_NOBODY = "there is a header and nobody below it"


def read_pedigree(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    columns: Mapping[str, str | int] | None = None,
    missing: str | Collection[str] = (),
    male: str | None = None,
    female: str | None = None,
    twins: Collection[Collection[str]] = (),
    unknown_parents: str = "separate",
    join_families: bool = False,
) -> Pedigree:
    r"""Read a pedigree file: PLINK, .psam, LINKAGE, CSV or GEDCOM.

    Parameters
    ----------
    path
        The file; its suffix tells the format unless ``format`` does.
    format
        ``"plink"`` (.fam .ped .psam .pre, 4 to 7 columns), ``"linkage"`` (post-MAKEPED), ``"table"``
        (a header names the columns) or ``"gedcom"``.
    columns
        Role → column name, for tables with unusual or ambiguous headers.
    missing
        Further codes that mean "no parent".
    male, female
        The codes of the sex column, where they are not 1/2 or M/F.
    twins, unknown_parents, join_families
        As in :func:`~quiltdp.domains.pedigree.assemble.assemble`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     fam = Path(folder, "trio.fam")
    ...     _ = fam.write_text("F1 kid dad mum 1 -9\nF1 dad 0 0 1 -9\nF1 mum 0 0 2 -9\n")
    ...     read_pedigree(fam)
    <Pedigree: 3 people, 2 founders, 1 family, 0 loops>
    """
    path = Path(path)
    kind = format or _detect_format(path)
    if kind not in FORMATS:
        raise InvalidArgument(f"{option('format')} must be one of {', '.join(FORMATS)}, not {kind!r}")
    codes = (missing,) if isinstance(missing, str) else tuple(missing)
    reading = Reading(columns, codes, male, female)
    if kind in ("gedcom", "linkage"):
        unused = next((name for name, value in vars(reading).items() if value), None)
        if unused is not None:
            raise InvalidArgument(
                f"{path}: {option(unused)} does not apply to {kind} files, their layout is fixed"
            )
    if kind == "gedcom":
        from quiltdp.domains.pedigree.gedcom import read_gedcom

        rows = read_gedcom(path)
    elif kind == "linkage":
        rows = read_linkage(path)
    else:
        rows = (read_plink if kind == "plink" else read_table)(path, reading)
    return assemble(rows, twins=twins, unknown_parents=unknown_parents, join_families=join_families)


def _detect_format(path: Path) -> str:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _BY_SUFFIX:
        raise InvalidArgument(
            f"{path}: the suffix {suffix!r} does not tell the format; say {option('format', '…')},"
            f" one of {', '.join(FORMATS)}"
        )
    return _BY_SUFFIX[suffix] or ("linkage" if looks_like_linkage(path) else "plink")


@dataclass(frozen=True)
class Reading:
    """What the caller says about a table: its columns, codes for "no parent", codes for the sexes."""

    columns: Mapping[str, str | int] | None = None
    missing: tuple[str, ...] = ()
    male: str | None = None
    female: str | None = None


# -- tables with a header: kinship2 and BGmisc style CSV, pedtools and R tables, .psam, headed .ped ----


def read_table(path: str | Path, reading: Reading = Reading()) -> RowFile:  # noqa: B008 - frozen
    """Read a table whose first line names its columns, separated by commas, semicolons, tabs or spaces."""
    path = Path(path)
    delimiter = None
    if ".csv" in [s.lower() for s in path.suffixes[-2:]]:
        delimiter = max((",", ";", "\t"), key=table_cells.read_text(path).split("\n", 1)[0].count)
    table = read_cells(path, delimiter)
    if not reading.columns and not is_header(table.cells[0]):
        which = f"say which column is which with {option('columns', '…', key='id')} and so on"
        reason = (
            f"the first line {list(table.cells[0][:6])} does not name an id column; add a header, or {which}"
        )
        raise FileFormatError(path, table.lines[0], reason)
    return _table_to_rows(table, "table", reading, frozenset({"", "0", "NA", "NaN"}), global_ids=True)


def _table_to_rows(
    table: Cells, kind: str, reading: Reading, no_parent: frozenset[str], *, global_ids: bool
) -> RowFile:
    """Turn a table with a header into rows."""
    where = table_cells.recognise(table.source, table.lines[0], table.cells[0], reading.columns)
    body, lines = table.cells[1:], table.lines[1:]
    if not body:
        raise FileFormatError(table.source, table.lines[0], _NOBODY)
    warnings: list[str] = []
    if "father" not in where and "mother" not in where:
        warnings.append(
            f"line {table.lines[0]}: no column names a parent, so everybody is read as unrelated; if the"
            " file has parents under other names, say which (columns={'father': …}, --column father=…)"
        )

    def column_cells(role: str) -> list[str]:
        return [row[where[role]] if role in where else "" for row in body]

    ids, families = column_cells("id"), [cell.strip() for cell in column_cells("family")]
    codes = MissingCodes(no_parent.union(reading.missing), frozenset(ids))
    fathers, mothers = (
        [codes.parent(cell, n, i) for cell, n, i in zip(column_cells(role), lines, ids, strict=True)]
        for role in ("father", "mother")
    )
    coding = table_cells.sex_codes(reading.male, reading.female)
    if coding is None and "sex" in where:
        position = {i: k for k, i in enumerate(ids)}
        parents = ({position[p] for p in role if p in position} for role in (fathers, mothers))
        coding = table_cells.zero_one_coding(column_cells("sex"), *parents)
        if coding is not None:
            meaning = ", ".join(f"{code} = {sex}" for code, sex in sorted(coding.items()))
            warnings.append(f"the sex column holds 0 and 1; every parent agrees that {meaning}")
    twins = _twin_labels(ids, families, [codes.parent(cell, None, "") for cell in column_cells("twin")])
    sexes = [read_sex(cell, coding) for cell in column_cells("sex")]
    zygosity = [cell.strip().lower() for cell in column_cells("zygosity")]
    rows = tuple(
        Row(i, father, mother, sex, family, line, twins=twin, zygosity=kind_of_twin)
        for i, father, mother, sex, family, line, twin, kind_of_twin in zip(
            ids, fathers, mothers, sexes, families, lines, twins, zygosity, strict=True
        )
    )
    return RowFile(rows, table.source, kind, (*warnings, *codes.warnings()), global_ids=global_ids)


def _twin_labels(ids: list[str], families: list[str], twins: list[str | None]) -> list[str]:
    """Return one label for all twins of each other, "" for others.

    The twin cell is the id of a twin (of one of two is enough), or a label that twins have in common.
    """
    pairs = [
        (f"{family}|{person}", f"{family}|{twin}")
        for person, family, twin in zip(ids, families, twins, strict=True)
        if twin is not None
    ]
    linked = grouped([*pairs, *((twin, person) for person, twin in pairs)])
    label: dict[str, str] = {}
    for person in linked:
        if person not in label:
            label |= dict.fromkeys(reachable([person], linked.__getitem__), person)
    return [label.get(f"{family}|{person}", "") for person, family in zip(ids, families, strict=True)]


# -- PLINK and its relatives: .fam, .ped, .psam, and headed or headless files of 4 to 7 columns -------

_ALLELES = frozenset("01234ACGTacgtNn-.ID") | {"-9"}
_LAYOUT = "family, id, father, mother, sex, phenotype"


def read_plink(path: str | Path, reading: Reading = Reading()) -> RowFile:  # noqa: B008 - frozen
    """Read family, id, father, mother[, sex[, phenotype[, anything]]] with or without a header.

    Sex is 1 (male) or 2 (female); ``0`` is the missing parent.  Beyond seven columns, pairs of
    allele columns are genotypes, their locus names taken from a .map file beside it if there is one.
    Ids are unique within families, as PLINK has it.
    """
    path = Path(path)
    table = read_cells(path)
    if reading.columns or is_header(table.cells[0]):
        return _table_to_rows(table, "PLINK", reading, frozenset({"0"}), global_ids=False)
    start = int(table.first_is_comment)
    body, lines = table.cells[start:], table.lines[start:]
    if not body:
        raise FileFormatError(path, table.lines[0], _NOBODY)
    width = len(body[0])
    if width < 4:
        commas = f"; if commas separate them: {option('format', 'table')}" if "," in body[0][0] else ""
        columns = f"{width} column{'s' if width > 1 else ''}"
        reason = f"{columns}, a pedigree needs at least 4: {_LAYOUT}{commas}"
        raise FileFormatError(path, lines[0], reason)
    if width < 6 and _lacks_family_column(body):
        reason = f"{width} columns that read like id, father, mother, sex, without a family column"
        advice = "put one first, or a header line on top: id father mother sex"
        raise FileFormatError(path, lines[0], f"{reason}; {advice}")
    loci, warnings = _locus_names(path, lines, body)
    coding = table_cells.sex_codes(reading.male, reading.female)
    rows, codes = plink_rows(zip(lines, body, strict=True), reading.missing, coding)
    if loci:
        alleles = [tuple(zip(row[6::2], row[7::2], strict=True)) for row in body]
        rows = tuple(replace(r, alleles=pairs) for r, pairs in zip(rows, alleles, strict=True))
    return RowFile(rows, str(path), "PLINK", (*warnings, *codes), loci=loci)


def plink_rows(
    body: Iterable[tuple[int, Sequence[str]]],
    missing: Collection[str] = (),
    coding: Mapping[str, Sex] | None = None,
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of numbered lines (family, id, father, mother[, sex, …]), and warnings about codes."""
    lines = list(body)
    codes = MissingCodes(frozenset({"0", *missing}), frozenset(row[1] for _, row in lines))
    rows = tuple(
        Row(
            id=row[1],
            father=codes.parent(row[2], line, row[1]),
            mother=codes.parent(row[3], line, row[1]),
            sex=read_sex(row[4], coding) if len(row) > 4 else "unknown",
            family=row[0],
            line=line,
        )
        for line, row in lines
    )
    return rows, codes.warnings()


def _lacks_family_column(body: Sequence[tuple[str, ...]]) -> bool:
    """Return whether four or five columns only make sense as id, father, mother, sex."""
    last = {row[3] for row in body}
    parents = {cell for row in body for cell in row[1:3]} - {"0"}
    first, second = ({row[k] for row in body} for k in (0, 1))
    sexes = last <= {"0", "1", "2"} and bool(last & {"1", "2"})
    return sexes and bool(parents) and parents <= first and not parents <= second


def _locus_names(
    path: Path, lines: Sequence[int], body: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return locus names of a .ped with genotypes, and a warning if the extra columns are not alleles."""
    extra = len(body[0]) - 6
    if extra < 2:
        return (), ()
    others = ((n, c) for n, row in zip(lines, body, strict=True) for c in row[6:] if c not in _ALLELES)
    line, cell = next(others, (0, ""))
    if extra % 2 or line:
        what = f"{cell!r} on line {line} is not an allele" if line else "they do not come in pairs"
        return (), (f"{extra} columns after the phenotype are not read as genotypes ({what})",)
    beside = path.with_suffix(".map")
    names = tuple(row[1] for row in read_cells(beside).cells if len(row) > 1) if beside.is_file() else ()
    count = extra // 2
    return (names if len(names) == count else tuple(f"locus {k + 1}" for k in range(count))), ()


# -- LINKAGE -----------------------------------------------------------------------------------------

_LINKAGE_COLUMNS = 9


def looks_like_linkage(path: str | Path) -> bool:
    """Return whether a headless file has LINKAGE's offspring pointers: each points to an own child."""
    rows = [[_normalise_missing_parent(c) for c in row] for _, row in _split_lines(Path(path))]
    structure = [row[2:_LINKAGE_COLUMNS] for row in rows]
    if any(len(s) < _LINKAGE_COLUMNS - 2 or not all(c.lstrip("-").isdigit() for c in s) for s in structure):
        return False
    parents = {(r[0], r[1]): (r[2], r[3]) for r in rows}
    pointers = [(r[1], (r[0], r[4])) for r in rows if r[4] != "0"]
    return bool(pointers) and all(person in parents.get(child, ()) for person, child in pointers)


def read_linkage(path: str | Path) -> RowFile:
    """Read a post-MAKEPED file and merge the copies of people doubled to break loops.

    Raises
    ------
    FileFormatError
        If a line has fewer than nine columns, or two copies of one person disagree.
    """
    path = Path(path)
    rows: list[Row] = []
    codes: list[str] = []
    seen: dict[tuple[str, str], int] = {}
    stars = 0
    for line, words in _split_lines(path):
        if len(words) < _LINKAGE_COLUMNS:
            reason = f"{len(words)} columns; a post-MAKEPED file has at least {_LINKAGE_COLUMNS}"
            raise FileFormatError(path, line, reason)
        family, person = words[:2]
        father, mother = (None if _normalise_missing_parent(cell) == "0" else cell for cell in words[2:4])
        stars += any(_normalise_missing_parent(cell) != cell for cell in words[2:4])
        if (family, person) in seen:
            reason = f"{person!r} of family {family!r} is on line {seen[family, person]} already"
            copies = "copies that break a loop have ids of their own and a code above 1 in column 9"
            raise FileFormatError(path, line, f"{reason}; in a LINKAGE file {copies}")
        seen[family, person] = line
        rows.append(Row(person, father, mother, read_sex(words[7]), family, line))
        codes.append(words[8])
    merged, warnings = _merge_copies(path, rows, codes)
    if stars:
        warnings += (f"{stars} people have parents written '*', '.' or '?': read as unknown, like 0",)
    return RowFile(merged, str(path), "LINKAGE", warnings)


def _normalise_missing_parent(cell: str) -> str:
    """Return 0 for what some programs write where nobody is known."""
    return "0" if cell in ("*", ".", "?") else cell


def _merge_copies(
    path: Path, rows: Sequence[Row], codes: Sequence[str]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Put the copies of one person back together, under the copy that has parents."""
    copies = grouped(
        ((row.family, code), row)
        for row, code in zip(rows, codes, strict=True)
        if code.isascii() and code.isdigit() and code.lstrip("0") not in ("", "1")
    )
    original: dict[tuple[str, str | None], str] = {}
    warnings = []
    for (family, code), group in copies.items():
        kept = next((r for r in group if r.father or r.mother), group[0])
        for other in group:
            if other is kept:
                continue
            if (other.father or other.mother) and (other.father, other.mother) != (kept.father, kept.mother):
                both = f"{other.id!r} and {kept.id!r} of family {family} are marked as copies of one person"
                reason = f"{both} (loop code {code}) but have different parents"
                raise FileFormatError(path, other.line, reason)
            if other.sex != kept.sex and "unknown" not in (other.sex, kept.sex):
                reason = f"{other.id!r} is marked as a copy of {kept.id!r} but has another sex"
                raise FileFormatError(path, other.line, reason)
            original[family, other.id] = kept.id
            copy = f"{other.id!r} of family {family} is a loop copy of {kept.id!r}"
            warnings.append(f"line {other.line}: {copy}: merged")

    def original_parent(row: Row, parent: str | None) -> str | None:
        return original.get((row.family, parent), parent)

    merged = tuple(
        replace(r, father=original_parent(r, r.father), mother=original_parent(r, r.mother))
        for r in rows
        if (r.family, r.id) not in original
    )
    return merged, tuple(warnings)


def _split_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Split every line at white space; trailing remarks may differ in length."""
    lines = table_cells.numbered_lines(path, comments=False)
    if not lines:
        raise FileFormatError(path, None, table_cells.EMPTY)
    return [(k, line.split()) for k, line in lines]

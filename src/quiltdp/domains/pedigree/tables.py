"""Tables with a header: kinship2 and BGmisc style CSV, pedtools and R tables, .psam, headed .ped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from quiltdp.domains.pedigree.codes import MissingCodes, read_sex, sex_codes, zero_one_coding
from quiltdp.domains.pedigree.columns import is_header, recognise
from quiltdp.domains.pedigree.text import Cells, read_cells, read_text
from quiltdp.domains.pedigree.types import Row, RowFile, Sex
from quiltdp.errors import FileFormatError, option

__all__ = ["read_table", "rows_of_table"]

_CSV_MISSING = frozenset({"", "0", "NA", "NaN"})


def read_table(
    path: str | Path,
    *,
    columns: Mapping[str, str | int] | None = None,
    missing: Collection[str] = (),
    male: str | None = None,
    female: str | None = None,
) -> RowFile:
    """Read a table whose first line names its columns, separated by commas, semicolons, tabs or spaces.

    ``columns`` maps the roles family, id, father, mother, sex, twin, zygosity to column names where
    the names in the file are not the usual ones or could be read in two ways.
    """
    path = Path(path)
    cells = read_cells(path, _delimiter(path))
    if not columns and not is_header(cells.cells[0]):
        raise FileFormatError(
            path,
            cells.lines[0],
            f"the first line {list(cells.cells[0][:6])} does not name an id column;"
            f" add a header, or say which column is which with {option('columns', '…', key='id')} and so on",
        )
    return rows_of_table(cells, "table", columns=columns, missing=missing, male=male, female=female)


def _delimiter(path: Path) -> str | None:
    if ".csv" not in [s.lower() for s in path.suffixes[-2:]]:
        return None
    first = read_text(path).split("\n", 1)[0]
    return max((",", ";", "\t"), key=first.count)


def rows_of_table(
    table: Cells,
    kind: str,
    *,
    columns: Mapping[str, str | int] | None = None,
    missing: Collection[str] = (),
    male: str | None = None,
    female: str | None = None,
    default_missing: frozenset[str] = _CSV_MISSING,
    global_ids: bool = True,
) -> RowFile:
    """Turn a table with a header into rows."""
    where = recognise(table.source, table.lines[0], table.cells[0], columns)
    body, lines = table.cells[1:], table.lines[1:]
    if not body:
        raise FileFormatError(table.source, table.lines[0], "there is a header and nobody below it")
    warnings: list[str] = []
    if "father" not in where and "mother" not in where:
        warnings.append(
            f"line {table.lines[0]}: no column names a parent, so everybody is read as unrelated; if the"
            " file has parents under other names, say which (columns={'father': …}, --column father=…)"
        )
    ids = [row[where["id"]] for row in body]
    codes = MissingCodes(frozenset({*default_missing, *missing}), frozenset(ids))

    def parents(role: str) -> list[str | None]:
        if role not in where:
            return [None] * len(body)
        k = where[role]
        return [codes.parent(row[k], n, i) for row, n, i in zip(body, lines, ids, strict=True)]

    fathers, mothers = parents("father"), parents("mother")
    codings = sex_codes(male, female) or _zero_one(table, where, ids, fathers=fathers, mothers=mothers)
    if codings is not None and male is None:
        meaning = ", ".join(f"{code} = {sex}" for code, sex in sorted(codings.items()))
        warnings.append(f"the sex column holds 0 and 1; every parent agrees that {meaning}")
    families = [_cell(row, where, "family") for row in body]
    twins = [codes.parent(_cell(row, where, "twin"), None, "") for row in body]
    labels = _twin_labels(ids, families, twins)
    rows = tuple(
        Row(
            id=ids[k],
            father=fathers[k],
            mother=mothers[k],
            sex=read_sex(_cell(body[k], where, "sex"), codings),
            family=families[k],
            line=lines[k],
            twins=labels[k],
            zygosity=_cell(body[k], where, "zygosity").lower(),
        )
        for k in range(len(body))
    )
    return RowFile(rows, table.source, kind, (*warnings, *codes.warnings()), global_ids=global_ids)


def _cell(row: tuple[str, ...], where: Mapping[str, int], role: str) -> str:
    """Return what a row says for a role, nothing if the table has no such column."""
    return row[where[role]].strip() if role in where else ""


def _twin_labels(ids: list[str], families: list[str], twins: list[str | None]) -> list[str]:
    """Return one label for all twins of each other, "" for others.

    The twin cell is the id of a twin (of one of two is enough), or a label that twins have in common.
    """
    leader: dict[tuple[str, str], tuple[str, str]] = {}

    def find(key: tuple[str, str]) -> tuple[str, str]:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for person, family, twin in zip(ids, families, twins, strict=True):
        if twin is not None:
            leader[find((family, person))] = find((family, twin))
    return [
        "|".join(find((family, person))) if (family, person) in leader else ""
        for person, family in zip(ids, families, strict=True)
    ]


def _zero_one(
    table: Cells,
    where: Mapping[str, int],
    ids: list[str],
    *,
    fathers: list[str | None],
    mothers: list[str | None],
) -> Mapping[str, Sex] | None:
    """Return what 0 and 1 mean in the sex column, if it holds nothing else and the parents agree."""
    if "sex" not in where:
        return None
    values = [row[where["sex"]] for row in table.cells[1:]]
    position = {i: k for k, i in enumerate(ids)}
    dads = {position[f] for f in fathers if f in position}
    mums = {position[m] for m in mothers if m in position}
    return zero_one_coding(values, dads, mums)

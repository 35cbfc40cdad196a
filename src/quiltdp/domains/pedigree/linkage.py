"""Post-MAKEPED LINKAGE files: nine structural columns, loops broken by doubled people.

Columns: pedigree, id, father, mother, first offspring, next paternal sib, next maternal sib, sex,
proband; then phenotypes and genotypes.  A proband code of 2 or more marks copies of one person that
MAKEPED made to break a loop: they are merged again here, because a cut loop hides correlation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from quiltdp.domains.pedigree.codes import read_sex
from quiltdp.domains.pedigree.text import Cells, read_text, without_star_comments
from quiltdp.domains.pedigree.types import Row, RowFile
from quiltdp.errors import FileFormatError

__all__ = ["looks_like_linkage", "read_linkage"]

_COLUMNS = 9


def looks_like_linkage(path: str | Path) -> bool:
    """Return whether a headless file has LINKAGE's offspring pointers: each points to an own child."""
    rows = [tuple(_zero(c) for c in r) for r in _loose(Path(path)).cells]
    if any(len(r) < _COLUMNS or not all(c.lstrip("-").isdigit() for c in r[2:_COLUMNS]) for r in rows):
        return False
    parents = {(r[0], r[1]): (r[2], r[3]) for r in rows}
    pointers = [(r, (r[0], r[4])) for r in rows if r[4] != "0"]
    return bool(pointers) and all(key in parents and r[1] in parents[key] for r, key in pointers)


def read_linkage(path: str | Path) -> RowFile:
    """Read a post-MAKEPED file and merge the copies of people doubled to break loops.

    Raises
    ------
    FileFormatError
        If a line has fewer than nine columns, or two copies of one person disagree.
    """
    path = Path(path)
    table = _loose(path)
    rows: list[Row] = []
    copies: dict[tuple[str, str], list[Row]] = {}
    seen: dict[tuple[str, str], int] = {}
    stars = 0
    for line, cells in zip(table.lines, table.cells, strict=True):
        if len(cells) < _COLUMNS:
            raise FileFormatError(
                path, line, f"{len(cells)} columns; a post-MAKEPED file has at least {_COLUMNS}"
            )
        family, person, father, mother = cells[0], cells[1], _zero(cells[2]), _zero(cells[3])
        stars += father != cells[2] or mother != cells[3]
        if (family, person) in seen:
            raise FileFormatError(
                path,
                line,
                f"{person!r} of family {family!r} is on line {seen[family, person]} already; in a LINKAGE"
                " file copies that break a loop have ids of their own and a code above 1 in column 9",
            )
        seen[family, person] = line
        row = Row(
            id=person,
            father=None if father == "0" else father,
            mother=None if mother == "0" else mother,
            sex=read_sex(cells[7]),
            family=family,
            line=line,
        )
        rows.append(row)
        code = cells[8]
        if code.isascii() and code.isdigit() and code.lstrip("0") not in ("", "1"):
            copies.setdefault((family, code), []).append(row)
    merged, warnings = _merge(path, rows, copies)
    if stars:
        warnings += (f"{stars} people have parents written '*', '.' or '?': read as unknown, like 0",)
    return RowFile(merged, str(path), "LINKAGE", warnings)


def _zero(cell: str) -> str:
    """Return 0 for what some programs write where nobody is known."""
    return "0" if cell in ("*", ".", "?") else cell


def _merge(
    path: Path, rows: Sequence[Row], copies: Mapping[tuple[str, str], Sequence[Row]]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Put the copies of one person back together, under the copy that has parents."""
    renamed: dict[tuple[str, str], str] = {}
    warnings = []
    for (family, code), group in copies.items():
        if len(group) < 2:
            continue
        kept = next((r for r in group if r.father or r.mother), group[0])
        for other in group:
            if other is kept:
                continue
            if (other.father or other.mother) and (other.father, other.mother) != (kept.father, kept.mother):
                raise FileFormatError(
                    path,
                    other.line,
                    f"{other.id!r} and {kept.id!r} of family {family} are marked as copies of one person"
                    f" (loop code {code}) but have different parents",
                )
            if other.sex != kept.sex and "unknown" not in (other.sex, kept.sex):
                raise FileFormatError(
                    path, other.line, f"{other.id!r} is marked as a copy of {kept.id!r} but has another sex"
                )
            renamed[family, other.id] = kept.id
            warnings.append(
                f"line {other.line}: {other.id!r} of family {family} is a loop copy of {kept.id!r}: merged"
            )
    if not renamed:
        return tuple(rows), ()
    kept_rows = tuple(
        Row(
            id=r.id,
            father=renamed.get((r.family, r.father or ""), r.father),
            mother=renamed.get((r.family, r.mother or ""), r.mother),
            sex=r.sex,
            family=r.family,
            line=r.line,
        )
        for r in rows
        if (r.family, r.id) not in renamed
    )
    return kept_rows, tuple(warnings)


def _loose(path: Path) -> Cells:
    """Split every line at white space; trailing remarks may differ in length."""
    lines = [
        (k, line)
        for k, line in enumerate(read_text(path).split("\n"), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    numbered = [(k, tuple(line.split())) for k, line in without_star_comments(path, lines)]
    if not numbered:
        raise FileFormatError(path, None, "the file has no lines with people in them")
    return Cells(
        str(path), tuple(k for k, _ in numbered), tuple(c for _, c in numbered), first_is_comment=False
    )

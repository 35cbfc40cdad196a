"""The cells of a family table: how lines are split, which column is which, what the codes mean."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quiltdp.domains.pedigree.people import Sex
from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.io import columns as shared
from quiltdp.io import text
from quiltdp.io.columns import Role, plain

_TOKEN = re.compile(r'"([^"]*)"|(\S+)')
_MIN_COLUMNS = 3
EMPTY = "the file has no lines with people in them"

Lines = list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Cells:
    """The lines of a table: ``lines[k]`` is the 1-based line number of ``cells[k]``."""

    source: str
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]
    first_is_comment: bool = False
    """Whether the first line began with ``#`` (the mark was removed)."""


def read_text(path: Path) -> str:
    """Return the text: UTF-8 or UTF-16 with their marks, else Latin-1; every line end is a newline."""
    return text.read_text(path, otherwise="latin-1")


def numbered_lines(path: Path, *, comments: bool = True, stars: bool = False) -> Lines:
    """Return the lines that are not empty, by number, with or without comments (``#``).

    Without ``stars`` the remarks of LINKAGE text go too, which begin with a star of their own.  A
    star may also be somebody's family: a line that begins so and has as many columns as lines that do not
    could be either, and is refused.  Nobody is dropped silently.
    """
    lines = [(k, t) for k, t in enumerate(read_text(path).split("\n"), start=1) if t.strip()]
    lines = [(k, t) for k, t in lines if comments or t.lstrip()[0] != "#"]
    starred = {k: t.split() for k, t in lines if not stars and t.split()[0].strip("*") == ""}
    widths = {len(t.split()) for k, t in lines if k not in starred}
    if not widths:  # everybody's family is a star
        return lines
    for number, words in starred.items():
        if len(words) in widths:
            reason = f"this line begins with {words[0]!r} and has as many columns as the others"
            advice = "begin a remark with #, or give the family another name than a star"
            raise FileFormatError(path, number, f"{reason}: {advice}")
    return [(k, t) for k, t in lines if k not in starred]


def read_cells(path: Path, delimiter: str | None = None) -> Cells:
    """Split a file into cells: tabs where every line agrees on them, else any white space.

    Ids may contain spaces only in files separated by tabs or by ``delimiter``.  Lines that start with
    ``#`` are comments, except the last one above the people where it can be the header; so are lines
    that start with a star of their own, as in LINKAGE text.

    Raises
    ------
    FileFormatError
        If the file is empty, or a line has another number of columns than the first, by number.
    """
    lines = numbered_lines(path, stars=delimiter is not None)
    numbered = [(k, t) for k, t in lines if t.lstrip()[0] != "#"]
    people_start = numbered[0][0] if numbered else math.inf
    above = [(k, t.lstrip()[1:]) for k, t in lines if t.lstrip()[0] == "#" and k < people_start]
    commented = bool(above) and _comment_may_be_header(
        above[-1][1], numbered[0][1] if numbered else "", delimiter
    )
    if commented:
        numbered.insert(0, above[-1])
    try:
        rows = _split_lines([t for _, t in numbered], delimiter)
    except csv.Error as error:
        raise FileFormatError(path, None, f"this is not a table of cells: {error}") from None
    if len(rows) != len(numbered):
        raise FileFormatError(path, None, "a quotation mark is left open, or a quoted cell has several lines")
    filled = [(n, row) for (n, _), row in zip(numbered, rows, strict=True) if any(row)]
    if not filled:
        raise FileFormatError(path, None, EMPTY)
    return _check_equal_widths(
        Cells(str(path), tuple(n for n, _ in filled), tuple(r for _, r in filled), commented)
    )


def _comment_may_be_header(comment: str, first: str, delimiter: str | None) -> bool:
    """Return whether a comment names columns, or has as many words as the first line has columns."""
    words, columns = (t.split(delimiter or ("\t" if "\t" in t else None)) for t in (comment, first))
    return is_header(words) or len(words) == len(columns) >= _MIN_COLUMNS


def _split_lines(texts: list[str], delimiter: str | None) -> tuple[tuple[str, ...], ...]:
    if delimiter is not None:
        return _split_at_delimiter(texts, delimiter)
    if texts and all("\t" in t for t in texts):
        by_tab = _split_at_delimiter(texts, "\t")
        widths = {len(row) for row in by_tab[1:]} or {len(by_tab[0])}
        if len(widths) == 1 and min(widths) >= _MIN_COLUMNS and len(by_tab[0]) in (*widths, min(widths) - 1):
            return by_tab
    return tuple(tuple(a or b for a, b in _TOKEN.findall(t)) for t in texts)


def _split_at_delimiter(texts: list[str], delimiter: str) -> tuple[tuple[str, ...], ...]:
    rows = csv.reader(io.StringIO("\n".join(texts)), delimiter=delimiter, skipinitialspace=True)
    return tuple(tuple(cell.strip() for cell in row) for row in rows)


def _check_equal_widths(table: Cells) -> Cells:
    """Check that every line has the same number of columns; drop R's unnamed column of row names."""
    first, *body = table.cells
    width = len(body[0]) if body else len(first)
    for number, row in zip(table.lines[1:], body, strict=True):
        if len(row) != width:
            reason = f"{len(row)} columns where the lines before have {width}"
            advice = "separate columns by one kind of white space, and ids that contain spaces by tabs"
            raise FileFormatError(table.source, number, f"{reason}; {advice}")
    if len(first) == width:
        return table
    if len(first) == width - 1 and is_header(first):  # write.table(): row names without a header
        return Cells(table.source, table.lines, (first, *(row[1:] for row in body)), table.first_is_comment)
    reason = f"{len(first)} columns where the lines below have {width}"
    raise FileFormatError(table.source, table.lines[0], reason)


# -- columns -----------------------------------------------------------------------------------------

_FAMILY = "fid famid familyid family fam ped pedid pedigree pedigreeid kindred kindredid"
_FATHER = "father fatherid fa pat patid paternal paternalid dad dadid sire sireid"
_MOTHER = "mother motherid mo mat matid maternal maternalid mom momid mum mumid dam damid"
_ID = (
    "id iid ind indid indiv individ individual individualid person personid sample sampleid"
    " subject subjectid animal animalid ego egoid"
)
_NAMES = {
    "family": _FAMILY, "id": _ID, "father": _FATHER, "mother": _MOTHER, "sex": "sex gender",
    "twin": "twin twinid", "zygosity": "zygosity zyg",
}  # fmt: skip
ROLES = {role: Role(role, names) for role, names in _NAMES.items()}
_PEDTOOLS = {
    **ROLES,
    "family": Role("family", _FAMILY.replace("fid ", "")),
    "father": Role("father", f"fid {_FATHER}"),
    "mother": Role("mother", f"mid {_MOTHER}"),
}


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a line reads like a header: it names an id, and a parent, a family or a sex."""
    roles = {role for role, kind in ROLES.items() if any(kind.rank(c) is not None for c in cells)}
    return "id" in roles and len(roles) >= 2


def recognise(
    source: str, line: int, header: Sequence[str], columns: Mapping[str, str | int] | None = None
) -> dict[str, int]:
    """Return role → column position, from ``columns`` first and then from the names in the header.

    ``columns`` maps a role (family, id, father, mother, sex, twin, zygosity) to a column name or a
    position counted from 0.  ``fid`` and ``mid`` together are father and mother, as pedtools
    writes them; ``fid`` alone is the family, as PLINK writes it.

    Raises
    ------
    FileFormatError
        If two columns could have one role, or there is no id.
    InvalidArgument
        If ``columns`` names a role or a column that does not exist.
    """

    def describe_column(role: str, column: str | int = "…") -> str:
        return option("columns", column, key=role)

    for role in columns or {}:
        if role not in ROLES:
            choices = ", ".join(ROLES)
            raise InvalidArgument(f"{option('columns')}: {role!r} is not a role; choose from {choices}")
    roles = _PEDTOOLS if "mid" in [plain(c) for c in header] else ROLES
    places = shared.recognise(header, roles, columns or {}, source=source, line=line, say=describe_column)
    if "id" not in places:
        reason = f"no column for the id among {shared.listed(header)}; say which with {describe_column('id')}"
        raise FileFormatError(source, line, reason)
    return places


# -- codes -------------------------------------------------------------------------------------------

_NO_PARENT = ("0", "-9", "-99", "-999", "-1", ".", "?", "-", "*", "na", "n/a", "nan", "none", "null")
_UNDECLARED = frozenset({*_NO_PARENT, "unknown", "unk", "missing"})
_STANDARD: Mapping[str, Sex] = {
    **dict.fromkeys(("1", "m", "male", "man", "xy"), "male"),
    **dict.fromkeys(("2", "f", "female", "woman", "xx"), "female"),
}


def sex_codes(male: str | None, female: str | None) -> Mapping[str, Sex] | None:
    """Return the coding the caller declared, or ``None`` for the standard one."""
    if male is None and female is None:
        return None
    if male is None or female is None or male == female:
        both = f"one with {option('male')} and one with {option('female')}"
        raise InvalidArgument(f"give two different codes, {both}")
    return {male.lower(): "male", female.lower(): "female"}


def read_sex(value: str, codes: Mapping[str, Sex] | None = None) -> Sex:
    """Return the sex a cell says: 1/M/male, 2/F/female, anything else is unknown."""
    return (_STANDARD if codes is None else codes).get(value.strip().lower(), "unknown")


def zero_one_coding(
    values: Sequence[str], fathers: Collection[int], mothers: Collection[int]
) -> Mapping[str, Sex] | None:
    """Return what 0 and 1 mean in a sex column that holds only those, judged by the parents' roles.

    ``fathers`` and ``mothers`` are positions of rows.  ``None`` if the column is not of that kind, or
    the roles do not all agree: then the standard coding stands and 0 is unknown.
    """
    if not {"0", "1"} <= set(values) <= {"0", "1", "", "NA", "na"}:
        return None
    dads, mums = ({values[k] for k in rows} & {"0", "1"} for rows in (fathers, mothers))
    if len(dads) != 1 or len(mums) != 1 or dads == mums:
        return None
    return {dads.pop(): "male", mums.pop(): "female"}


@dataclass
class MissingCodes:
    """Decides whether a parent cell means "no parent", and remembers codes nobody declared.

    A declared code (the format's own, or the caller's) is silent.  A code in general use such as
    ``-9`` or ``NA`` counts too unless it is somebody's id, and is reported with its first line.
    """

    declared: frozenset[str]
    ids: frozenset[str]
    noticed: dict[str, tuple[int | None, str, int]] = field(default_factory=dict)
    decimals: str = ""

    def parent(self, cell: str, line: int | None, person: str) -> str | None:
        """Return the parent's id, or ``None`` if the cell says there is none."""
        value = cell.strip()
        if value == "" or value in self.declared:
            return None
        if value.lower() in _UNDECLARED and value not in self.ids:
            where, who, count = self.noticed.get(value, (line, person, 0))
            self.noticed[value] = (where, who, count + 1)
            return None
        if value not in self.ids and value.endswith(".0") and value[:-2] in self.ids:
            self.decimals = self.decimals or f"line {line}: the parent {value!r} of {person!r}"
            return value[:-2]  # a spreadsheet made a number of the id
        return value

    def warnings(self) -> tuple[str, ...]:
        """Say which undeclared codes were read as missing, where first and how often."""
        spelled = f"{self.decimals} is read as the id without '.0' (so are others like it)"
        codes = [
            f"line {line}: {person!r} has the parent {code!r}, which nobody is called: read as missing"
            f" ({count} times; declare it: missing={code!r}, --missing {code})"
            for code, (line, person, count) in self.noticed.items()
        ]
        return (*([spelled] if self.decimals else []), *codes)

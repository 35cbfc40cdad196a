"""GEDCOM 5.5 families, through the ged4py parser (extra ``gedcom``).

Only birth links carry genes.  A link marked adopted, foster, step or sealing is ignored with a
warning.  Children of one family record share both its parents, also the one nobody recorded.
"""

from __future__ import annotations

import io
import logging
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quiltdp.domains.pedigree.cells import read_sex
from quiltdp.domains.pedigree.people import Row, RowFile, grouped
from quiltdp.errors import DependencyMissing, FileFormatError, QuiltdpError
from quiltdp.io.text import read_bytes

_LEVEL = re.compile(rb"(?m)^[ \t]{0,20}\d{10}")
_NOT_BY_BIRTH = frozenset({"adopted", "foster", "sealing", "step", "guardian", "adoptive", "surrogate"})


def read_gedcom(path: str | Path) -> RowFile:
    """Read the people and families of a GEDCOM file.

    Raises
    ------
    DependencyMissing
        If ged4py is not installed.
    FileFormatError
        If the file is not GEDCOM, or a record id is used twice.
    """
    path = Path(path)
    people, families = _parse_records(path)
    try:
        return _rows_of_people(path, people, families)
    except QuiltdpError:
        raise
    except Exception as error:  # pointers where texts should be are followed, into whatever is there
        raise _unreadable_error(path, error) from None


def _unreadable_error(path: Path, error: Exception) -> FileFormatError:
    reason = f"{error!s:.200}" or type(error).__name__
    return FileFormatError(path, None, f"not a GEDCOM file ged4py can read: {reason}")


def _rows_of_people(path: Path, people: list[Any], families: dict[str, Any]) -> RowFile:
    warnings: list[str] = []
    births = _birth_families_by_child(people, families, warnings)
    known = {p.xref_id for p in people}
    strangers = [child for child in births if child not in known]
    if strangers:
        warnings.append(
            f"{len(strangers)} children listed in families have no record of their own and were left out"
            f" (first: {_bare_id(strangers[0])})"
        )
    starts = _line_start_offsets(path)
    rows = []
    for p in people:
        union = _choose_birth_family(p, births.get(p.xref_id, ()), families, warnings)
        father, mother = (_spouse_id(families.get(union), tag, known) for tag in ("HUSB", "WIFE"))
        sex = p.sub_tag_value("SEX")
        incomplete = union in families and (father is None or mother is None)
        rows.append(
            Row(
                id=_bare_id(p.xref_id),
                father=father,
                mother=mother,
                sex=read_sex(str(sex)) if sex else "unknown",
                line=bisect_right(starts, p.offset),
                couple=_bare_id(union) if incomplete else "",  # stands in for a parent nobody recorded
                label=_display_name(p),
            )
        )
    return RowFile(tuple(rows), str(path), "GEDCOM", tuple(warnings), global_ids=True)


class _UnclosedBuffer(io.BytesIO):
    """The file in memory; it stays open, because records are read when they are first looked at."""

    def close(self) -> None:
        """Do nothing."""


def _parse_records(path: Path) -> tuple[list[Any], dict[str, Any]]:
    try:
        from ged4py import GedcomReader
    except ImportError:
        needs = "reading GEDCOM needs ged4py; install it with: pip install 'quiltdp[gedcom]'"
        raise DependencyMissing(f"{path}: {needs}") from None
    log = logging.getLogger("ged4py")
    level = log.level
    log.setLevel(logging.CRITICAL)  # its remarks on header fields would land on the user's terminal
    content = _UnclosedBuffer(read_bytes(path))
    deep = _LEVEL.search(content.getvalue())
    if deep is not None:  # ged4py's search for the end of it is quadratic
        line = content.getvalue().count(b"\n", 0, deep.start()) + 1
        raise FileFormatError(path, line, "a level of more than nine digits is no GEDCOM")
    try:
        with GedcomReader(content, errors="replace") as reader:
            people = [r for r in reader.records0("INDI") if r.xref_id]
            families = {r.xref_id: r for r in reader.records0("FAM") if r.xref_id}
            for record in (*people, *families.values()):
                record.sub_tags("FAMC")  # read the links while the file is open
    except Exception as error:  # ged4py raises its own errors, and whatever its parsing trips over
        raise _unreadable_error(path, error) from None
    finally:
        log.setLevel(level)
    if not people:
        raise FileFormatError(path, None, "no INDI records: this GEDCOM file has nobody in it")
    seen: dict[str, Any] = {}
    for p in people:
        if p.xref_id in seen:
            starts = _line_start_offsets(path)
            first, again = (bisect_right(starts, q.offset) for q in (seen[p.xref_id], p))
            reason = f"the id {p.xref_id} is on line {first} already: two people need two ids"
            raise FileFormatError(path, again, reason)
        seen[p.xref_id] = p
    return people, families


def _bare_id(xref: str) -> str:
    return xref.strip("@")


def _pointer_records(record: Any, tag: str) -> list[Any]:
    """Return the sub-records ``tag`` that point somewhere (``sub_tags`` would follow them)."""
    return [s for s in record.sub_records if s.tag == tag and isinstance(s.value, str)]


def _birth_families_by_child(
    people: Sequence[Any], families: Mapping[str, Any], warnings: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return the families of every child by birth, as the child and the families say."""
    brought: set[tuple[str, str]] = set()  # child and family, not by birth
    for p in people:
        adoptive = {
            f.value for event in p.sub_records if event.tag == "ADOP" for f in _pointer_records(event, "FAMC")
        }
        for link in _pointer_records(p, "FAMC"):
            kind = next((str(s.value).lower() for s in link.sub_records if s.tag == "PEDI"), "birth")
            if kind == "birth" and link.value in adoptive:
                kind = "adopted"
            if kind in _NOT_BY_BIRTH:
                brought.add((p.xref_id, link.value))
                family = _bare_id(link.value)
                warnings.append(
                    f"{_name_with_id(p)}: the link to family {family} is {kind}, not by birth: ignored"
                )
    by_child = [(p.xref_id, link.value) for p in people for link in _pointer_records(p, "FAMC")]
    by_family = [(child.value, xref) for xref, f in families.items() for child in _pointer_records(f, "CHIL")]
    return grouped(pair for pair in dict.fromkeys(by_child + by_family) if pair not in brought)


def _choose_birth_family(
    p: Any, unions: Sequence[str], families: Mapping[str, Any], warnings: list[str]
) -> str:
    """Return the family of birth; of several that claim the child, the first one in the file."""
    real = [u for u in families if u in unions] if len(unions) > 1 else [u for u in unions if u in families]
    for u in unions:
        if u not in families:
            warnings.append(f"{_name_with_id(p)}: family {_bare_id(u)} is mentioned but not in the file")
    if len(real) > 1:
        others = ", ".join(_bare_id(u) for u in real[1:])
        warnings.append(
            f"{_name_with_id(p)} is a child of several families and none is marked adopted:"
            f" {_bare_id(real[0])} is taken as the family of birth, the links to {others} are"
            " dropped; mark them with PEDI"
        )
    return real[0] if real else ""


def _spouse_id(family: Any, tag: str, known: set[str]) -> str | None:
    spouse = next((s.value for s in _pointer_records(family, tag)), None) if family is not None else None
    return _bare_id(spouse) if spouse in known else None


def _display_name(p: Any) -> str:
    """Return the name of a person as people write it: given names, then the family's."""
    parts = p.sub_tag_value("NAME")
    words = " ".join(w for w in parts if w) if isinstance(parts, tuple) else str(parts or "")
    return " ".join(words.split())


def _name_with_id(p: Any) -> str:
    label = _display_name(p)
    return f"{_bare_id(p.xref_id)} ({label})" if label else _bare_id(p.xref_id)


def _line_start_offsets(path: Path) -> list[int]:
    """Return the byte offset of every line, for :func:`bisect.bisect_right`."""
    return [0, *(mark.end() for mark in re.finditer(rb"\n", read_bytes(path)))]

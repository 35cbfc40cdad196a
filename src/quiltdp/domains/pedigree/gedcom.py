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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quiltdp.domains.pedigree.cells import read_sex
from quiltdp.domains.pedigree.people import Row, RowFile
from quiltdp.errors import DependencyMissing, FileFormatError, QuiltdpError
from quiltdp.io.text import read_bytes

__all__ = ["read_gedcom"]

_LEVEL = re.compile(rb"(?m)^[ \t]{0,20}\d{10}")
_NOT_BY_BIRTH = frozenset({"adopted", "foster", "sealing", "step", "guardian", "adoptive", "surrogate"})


@dataclass
class _Links:
    """For every child the families it belongs to by birth, and the ones it was brought into."""

    birth: dict[str, list[str]] = field(default_factory=dict)
    other: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, child: str, family: str) -> None:
        if family not in self.other.get(child, {}) and family not in self.birth.setdefault(child, []):
            self.birth[child].append(family)


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
    people, families = _parse(path)
    try:
        return _rows(path, people, families)
    except QuiltdpError:
        raise
    except Exception as error:  # pointers where texts should be are followed, into whatever is there
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> FileFormatError:
    reason = f"{error!s:.200}" or type(error).__name__
    return FileFormatError(path, None, f"not a GEDCOM file ged4py can read: {reason}")


def _rows(path: Path, people: list[Any], families: dict[str, Any]) -> RowFile:
    warnings: list[str] = []
    links = _links(people, families, warnings)
    known = {p.xref_id for p in people}
    strangers = [child for child in links.birth if child not in known]
    if strangers:
        warnings.append(
            f"{len(strangers)} children listed in families have no record of their own and were left out"
            f" (first: {_plain(strangers[0])})"
        )
    starts = _line_starts(path)
    rows = []
    for p in people:
        union = _birth_family(p, links.birth.get(p.xref_id, []), families, warnings)
        father = _spouse(families.get(union), "HUSB", known)
        mother = _spouse(families.get(union), "WIFE", known)
        sex = p.sub_tag_value("SEX")
        rows.append(
            Row(
                id=_plain(p.xref_id),
                father=father,
                mother=mother,
                sex=read_sex(str(sex)) if sex else "unknown",
                line=bisect_right(starts, p.offset),
                couple=_plain(union)
                if union and _shares_parents(families.get(union), father, mother)
                else "",
                label=_label(p),
            )
        )
    return RowFile(tuple(rows), str(path), "GEDCOM", tuple(warnings), global_ids=True)


class _Content(io.BytesIO):
    """The file in memory; it stays open, because records are read when they are first looked at."""

    def close(self) -> None:
        """Do nothing."""


def _parse(path: Path) -> tuple[list[Any], dict[str, Any]]:
    try:
        from ged4py import GedcomReader
    except ImportError:
        raise DependencyMissing(
            f"{path}: reading GEDCOM needs ged4py; install it with: pip install 'quiltdp[gedcom]'"
        ) from None
    log = logging.getLogger("ged4py")
    level = log.level
    log.setLevel(logging.CRITICAL)  # its remarks on header fields would land on the user's terminal
    content = _Content(read_bytes(path))
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
        raise _unreadable(path, error) from None
    finally:
        log.setLevel(level)
    if not people:
        raise FileFormatError(path, None, "no INDI records: this GEDCOM file has nobody in it")
    seen: dict[str, Any] = {}
    for p in people:
        if p.xref_id in seen:
            starts = _line_starts(path)
            first, again = (bisect_right(starts, q.offset) for q in (seen[p.xref_id], p))
            raise FileFormatError(
                path, again, f"the id {p.xref_id} is on line {first} already: two people need two ids"
            )
        seen[p.xref_id] = p
    return people, families


def _plain(xref: str) -> str:
    return xref.strip("@")


def _pointers(record: Any, tag: str) -> list[Any]:
    """Return the sub-records ``tag`` that point somewhere (``sub_tags`` would follow them)."""
    return [s for s in record.sub_records if s.tag == tag and isinstance(s.value, str)]


def _links(people: Sequence[Any], families: Mapping[str, Any], warnings: list[str]) -> _Links:
    links = _Links()
    for p in people:
        adoptive = {
            str(f.value) for event in p.sub_records if event.tag == "ADOP" for f in _pointers(event, "FAMC")
        }
        for link in _pointers(p, "FAMC"):
            kind = next((str(s.value).lower() for s in link.sub_records if s.tag == "PEDI"), "birth")
            if kind in _NOT_BY_BIRTH or (kind == "birth" and link.value in adoptive):
                kind = "adopted" if kind == "birth" else kind
                links.other.setdefault(p.xref_id, {})[link.value] = kind
                warnings.append(
                    f"{_name(p)}: the link to family {_plain(link.value)} is {kind}, not by birth: ignored"
                )
    for p in people:
        for link in _pointers(p, "FAMC"):
            links.add(p.xref_id, link.value)
    for xref, family in families.items():
        for child in _pointers(family, "CHIL"):
            links.add(child.value, xref)
    return links


def _birth_family(p: Any, unions: Sequence[str], families: Mapping[str, Any], warnings: list[str]) -> str:
    """Return the family of birth; of several that claim the child, the first one in the file."""
    real = [u for u in unions if u in families]
    if len(real) > 1:
        real = [u for u in families if u in real]
    for u in unions:
        if u not in families:
            warnings.append(f"{_name(p)}: family {_plain(u)} is mentioned but not in the file")
    if len(real) > 1:
        others = ", ".join(_plain(u) for u in real[1:])
        warnings.append(
            f"{_name(p)} is a child of several families and none is marked adopted: {_plain(real[0])} is"
            f" taken as the family of birth, the links to {others} are dropped; mark them with PEDI"
        )
    return real[0] if real else ""


def _spouse(family: Any, tag: str, known: set[str]) -> str | None:
    if family is None:
        return None
    found = [s.value for s in _pointers(family, tag)]
    return _plain(found[0]) if found and found[0] in known else None


def _shares_parents(family: Any, father: str | None, mother: str | None) -> bool:
    """Return whether the union must stand in for a parent nobody recorded."""
    return family is not None and (father is None or mother is None)


def _label(p: Any) -> str:
    """Return the name of a person as people write it: given names, then the family's."""
    parts = p.sub_tag_value("NAME")
    words = " ".join(w for w in parts if w) if isinstance(parts, tuple) else str(parts or "")
    return " ".join(words.split())


def _name(p: Any) -> str:
    label = _label(p)
    return f"{_plain(p.xref_id)} ({label})" if label else _plain(p.xref_id)


def _line_starts(path: Path) -> list[int]:
    """Return the byte offset of every line, for :func:`bisect.bisect_right`."""
    data = read_bytes(path)
    starts = [0]
    at = data.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = data.find(b"\n", at + 1)
    return starts

"""Which column is which: names the field uses, and refusal where two could be meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from quiltdp.errors import FileFormatError, InvalidArgument, option

__all__ = ["ROLES", "is_header", "recognise"]

ROLES = ("family", "id", "father", "mother", "sex", "twin", "zygosity")

_NAMES = {
    "family": "fid famid familyid family fam ped pedid pedigree pedigreeid kindred kindredid",
    "id": "id iid ind indid indiv individ individual individualid person personid sample sampleid"
    " subject subjectid animal animalid ego egoid",
    "father": "father fatherid fa pat patid paternal paternalid dad dadid sire sireid",
    "mother": "mother motherid mo mat matid maternal maternalid mom momid mum mumid dam damid",
    "sex": "sex gender",
    "twin": "twin twinid",
    "zygosity": "zygosity zyg",
}
_ROLE_OF = {name: role for role, names in _NAMES.items() for name in names.split()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a line reads like a header: it names an id, and a parent, a family or a sex."""
    found = {_ROLE_OF[_plain(c)] for c in cells if _plain(c) in _ROLE_OF}
    return "id" in found and len(found) >= 2


def recognise(
    source: str, line: int, header: Sequence[str], given: Mapping[str, str | int] | None = None
) -> dict[str, int]:
    """Return role → column position, from ``given`` first and then from the names in the header.

    ``given`` maps a role (family, id, father, mother, sex, twin, zygosity) to a column name or a
    position counted from 0.  ``fid`` and ``mid`` together are father and mother, as pedtools
    writes them; ``fid`` alone is the family, as PLINK writes it.

    Raises
    ------
    FileFormatError
        If two columns could have one role, or there is no id.
    InvalidArgument
        If ``given`` names a role or a column that does not exist.
    """
    chosen: dict[str, int] = {}
    for role, column in (given or {}).items():
        if role not in ROLES:
            raise InvalidArgument(
                f"{option('columns')}: {role!r} is not a role; choose from {', '.join(ROLES)}"
            )
        chosen[role] = _position(source, header, role, column)
    candidates: dict[str, list[int]] = {}
    plain = [_plain(c) for c in header]
    for k, name in enumerate(plain):
        pedtools = {"fid": "father", "mid": "mother"} if "mid" in plain else {}
        found_role = pedtools.get(name) or _ROLE_OF.get(name)
        if found_role is not None and found_role not in chosen and k not in chosen.values():
            candidates.setdefault(found_role, []).append(k)
    for role, found in candidates.items():
        if len(found) > 1:
            names = " and ".join(repr(header[k]) for k in found)
            raise FileFormatError(
                source,
                line,
                f"columns {names} could each be the {role};"
                f" say which with {option('columns', '…', key=role)}",
            )
        chosen[role] = found[0]
    if "id" not in chosen:
        raise FileFormatError(
            source,
            line,
            f"no column for the id among {', '.join(map(repr, header))};"
            f" say which with {option('columns', '…', key='id')}",
        )
    return chosen


def _position(source: str, header: Sequence[str], role: str, column: str | int) -> int:
    if isinstance(column, int):
        if not 0 <= column < len(header):
            raise InvalidArgument(
                f"{option('columns', column, key=role)}: {source} has {len(header)} columns, counted from 0"
            )
        return column
    if column not in header:
        raise InvalidArgument(
            f"{option('columns', column, key=role)}: {source} has the columns {', '.join(map(repr, header))}"
        )
    return list(header).index(column)

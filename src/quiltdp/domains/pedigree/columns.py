"""Which column of a family table is which: the names the field uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.io import columns as shared
from quiltdp.io.columns import Role, plain

__all__ = ["ROLES", "is_header", "recognise"]

_FAMILY = "fid famid familyid family fam ped pedid pedigree pedigreeid kindred kindredid"
_FATHER = "father fatherid fa pat patid paternal paternalid dad dadid sire sireid"
_MOTHER = "mother motherid mo mat matid maternal maternalid mom momid mum mumid dam damid"
ROLES = {
    "family": Role("family", _FAMILY),
    "id": Role(
        "id",
        "id iid ind indid indiv individ individual individualid person personid sample sampleid"
        " subject subjectid animal animalid ego egoid",
    ),
    "father": Role("father", _FATHER),
    "mother": Role("mother", _MOTHER),
    "sex": Role("sex", "sex gender"),
    "twin": Role("twin", "twin twinid"),
    "zygosity": Role("zygosity", "zygosity zyg"),
}
_PEDTOOLS = {
    **ROLES,
    "family": Role("family", _FAMILY.replace("fid ", "")),
    "father": Role("father", f"fid {_FATHER}"),
    "mother": Role("mother", f"mid {_MOTHER}"),
}


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a line reads like a header: it names an id, and a parent, a family or a sex."""
    found = {role for role, kind in ROLES.items() if any(kind.rank(c) is not None for c in cells)}
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
    for role in given or {}:
        if role not in ROLES:
            raise InvalidArgument(
                f"{option('columns')}: {role!r} is not a role; choose from {', '.join(ROLES)}"
            )
    roles = _PEDTOOLS if "mid" in [plain(c) for c in header] else ROLES
    found = shared.recognise(header, roles, given or {}, source=source, line=line, say=_said)
    if "id" not in found:
        raise FileFormatError(
            source, line, f"no column for the id among {shared.listed(header)}; say which with {_said('id')}"
        )
    return found


def _said(role: str, column: str | int = "…") -> str:
    return option("columns", column, key=role)

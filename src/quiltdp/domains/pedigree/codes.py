"""Codes for sex and for "no parent": what the formats declare, and what people write anyway."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from quiltdp.domains.pedigree.types import Sex
from quiltdp.errors import InvalidArgument, option

__all__ = ["MissingCodes", "read_sex", "sex_codes", "zero_one_coding"]

_UNDECLARED = frozenset(
    ("0", "-9", "-99", "-999", "-1", ".", "?", "-", "*", "na", "n/a", "nan", "none", "null")
) | {"unknown", "unk", "missing"}
_STANDARD: Mapping[str, Sex] = {
    "1": "male", "2": "female", "m": "male", "f": "female", "male": "male", "female": "female",
    "man": "male", "woman": "female", "xy": "male", "xx": "female",
}  # fmt: skip


def sex_codes(male: str | None, female: str | None) -> Mapping[str, Sex] | None:
    """Return the coding the caller declared, or ``None`` for the standard one."""
    if male is None and female is None:
        return None
    if male is None or female is None or male == female:
        raise InvalidArgument(
            f"give two different codes, one with {option('male')} and one with {option('female')}"
        )
    return {male.lower(): "male", female.lower(): "female"}


def read_sex(value: str, codes: Mapping[str, Sex] | None = None) -> Sex:
    """Return the sex a cell says: 1/M/male, 2/F/female, anything else is unknown."""
    table = _STANDARD if codes is None else codes
    return table.get(value.strip().lower(), "unknown")


def zero_one_coding(
    values: Sequence[str], fathers: Collection[int], mothers: Collection[int]
) -> Mapping[str, Sex] | None:
    """Return what 0 and 1 mean in a sex column that holds only those, judged by the parents' roles.

    ``fathers`` and ``mothers`` are positions of rows.  ``None`` if the column is not of that kind, or
    the roles do not all agree: then the standard coding stands and 0 is unknown.
    """
    if not {"0", "1"} <= set(values) or not set(values) <= {"0", "1", "", "NA", "na"}:
        return None
    dads = {values[k] for k in fathers} & {"0", "1"}
    mums = {values[k] for k in mothers} & {"0", "1"}
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
            first = self.noticed.get(value, (line, person, 0))
            self.noticed[value] = (first[0], first[1], first[2] + 1)
            return None
        if value not in self.ids and value.endswith(".0") and value[:-2] in self.ids:
            self.decimals = self.decimals or f"line {line}: the parent {value!r} of {person!r}"
            return value[:-2]  # a spreadsheet made a number of the id
        return value

    def warnings(self) -> tuple[str, ...]:
        """Say which undeclared codes were read as missing, where first and how often."""
        spelled = (
            (f"{self.decimals} is read as the id without '.0' (so are others like it)",)
            if self.decimals
            else ()
        )
        return spelled + tuple(
            f"line {line}: {person!r} has the parent {code!r}, which nobody is called: read as missing"
            f" ({count} times; declare it: missing={code!r}, --missing {code})"
            for code, (line, person, count) in self.noticed.items()
        )

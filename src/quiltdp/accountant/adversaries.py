"""Who is attacking: what the adversary may know besides the model.

An adversary is an object, made by :func:`parse_adversary` from what people write.  ``informed`` may
know any subset of the other records, ``prior`` none of them; :func:`knows` makes those in between.
Leakage is monotone in what is known, so a bound for a stronger adversary also holds for a weaker one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model, suggest_names

if TYPE_CHECKING:
    from quiltdp.graph.components import ComponentClass


@dataclass(frozen=True)
class Adversary:
    """What an adversary may know.

    Attributes
    ----------
    records
        The declared records that may be known; ``None``: any.
    at_most
        How many records may be known at once; ``None``: all of them.

    Whoever may know nothing is the prior adversary, however it was written.
    """

    records: frozenset[str] | None = None
    at_most: int | None = None

    def __post_init__(self) -> None:
        """Write every adversary who may know nothing in one way."""
        if self.at_most == 0 or self.records == frozenset():
            object.__setattr__(self, "records", None)
            object.__setattr__(self, "at_most", 0)

    @property
    def knows_nothing(self) -> bool:
        """Whether nothing but the model is known."""
        return self.at_most == 0

    @property
    def name(self) -> str:
        """How people write it: ``informed``, ``prior``, ``knows=A,B`` or ``knows:k``."""
        if self.knows_nothing:
            return "prior"
        if self.records is not None:
            return "knows=" + ",".join(sorted(self.records))
        return "informed" if self.at_most is None else f"knows:{self.at_most}"

    def __str__(self) -> str:
        """Read as people write it."""
        return self.name

    def covers(self, other: Adversary) -> bool:
        """Return whether this adversary may know whatever ``other`` may: then its bounds hold for both."""
        if other.knows_nothing:
            return True
        wider = self.records is None or (other.records is not None and other.records <= self.records)
        most = len(other.records) if other.records is not None else None
        theirs = (
            other.at_most if most is None else min(most, other.at_most if other.at_most is not None else most)
        )
        return wider and (self.at_most is None or (theirs is not None and theirs <= self.at_most))


INFORMED = Adversary()
PRIOR = Adversary(at_most=0)


def knows(*records: str | int) -> Adversary:
    """Return the adversary who may know the named records, or any ``k`` records: ``knows(2)``.

    Examples
    --------
    >>> knows("mother", "father").name, knows(2).name, knows(0).name
    ('knows=father,mother', 'knows:2', 'prior')
    >>> knows() == knows(0) == PRIOR
    True
    """
    if len(records) == 1 and isinstance(records[0], int) and not isinstance(records[0], bool):
        if records[0] < 0:
            raise InvalidArgument(f"{option('adversary')}: {records[0]} records cannot be known")
        return Adversary(at_most=records[0])
    odd = next((r for r in records if not isinstance(r, str)), None)
    if odd is not None:
        raise InvalidArgument(f"{option('adversary')}: {odd!r} is not the name of a record")
    return Adversary(records=frozenset(str(r) for r in records))


def parse_adversary(given: object) -> Adversary:
    """Return the adversary that ``given`` names, or ``given`` itself if it is one.

    Raises
    ------
    InvalidArgument
        If it is not ``informed``, ``prior``, ``knows=A,B`` or ``knows:k``.
    """
    if isinstance(given, Adversary):
        return given
    if given == "informed":
        return INFORMED
    if given == "prior":
        return PRIOR
    if isinstance(given, str) and given.startswith("knows="):
        return knows(*(n for n in given.removeprefix("knows=").split(",") if n))
    if isinstance(given, str) and given.startswith("knows:") and given.removeprefix("knows:").isdigit():
        return knows(int(given.removeprefix("knows:")))
    raise InvalidArgument(
        f"{option('adversary')} must be 'informed', 'prior', 'knows=A,B' (declared records) or 'knows:2'"
        f" (any two records), not {given!r}"
    )


def check_known_records(adversary: Adversary, model: Model) -> Adversary:
    """Return the adversary, or refuse one who knows what is no record of the model.

    Raises
    ------
    InvalidArgument
        Naming the first such name, with names that are close to it.
    """
    for name in sorted(adversary.records or ()):
        if name not in model.index:
            hint = suggest_names(name, model.records)
            raise InvalidArgument(f"{option('adversary')}: {name!r} is not a node of the model{hint}")
        if not model.is_record(name):
            raise InvalidArgument(
                f"{option('adversary')}: {name!r} is latent: it is no row of the data, so nobody knows it"
            )
    return adversary


def adversary_in_component(adversary: Adversary, found: ComponentClass, model: Model) -> Adversary:
    """Return the adversary as one class of components sees them: declared records by their names there.

    What may be known in any of the copies may be known in the class, so that one bound covers them all.
    """
    if adversary.records is None:
        return adversary
    names = found.model.nodes
    local = frozenset(
        names[k] for copy in found.copies for k, at in enumerate(copy) if model.nodes[at] in adversary.records
    )
    return replace(adversary, records=local)

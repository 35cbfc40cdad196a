"""Who is in the study: the records; everybody else in the pedigree is latent."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from quiltdp.domains.pedigree.text import read_text
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.errors import FileFormatError, InvalidArgument

__all__ = ["read_ids", "study_members"]


def read_ids(path: str | Path) -> tuple[tuple[int, str], ...]:
    """Read (line, id) pairs: one id per line, or family and id as ``FID IID``; ``#`` starts a comment."""
    path = Path(path)
    found = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            found.append((number, text))
    if not found:
        raise FileFormatError(path, None, "the study file names nobody")
    return tuple(found)


def study_members(family: Pedigree, study: str | Path | Collection[str] | None) -> tuple[str, ...]:
    """Return the names of the people in the study, in pedigree order, twins each by their own name.

    Raises
    ------
    InvalidArgument
        For an id that is not in the pedigree, or that several families share, by line.
    """
    if study is None:
        chosen = {n for p in family.people if p.stated for n in (p.name, *p.also)}
    elif isinstance(study, (str, Path)):
        chosen = {family.find(text, f"{study}:{line}: ") for line, text in read_ids(study)}
    else:
        chosen = {family.find(str(i), "study: ") for i in study}
    members = tuple(n for p in family.people for n in (p.name, *p.also) if n in chosen)
    if not members:
        raise InvalidArgument(f"{family.source}: the study has nobody in it")
    return members

"""Families that are all of different shape, up to renaming: listed by size, and drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement, count
from typing import Any

from quiltdp.domains.pedigree import Pedigree, Person

__all__ = ["descents", "fam_lines", "families"]

Kin = tuple[Any, ...]
"""A person as the tuple of marriages, a marriage as the tuple of children: descendants up to renaming."""


@cache
def descents(people: int) -> tuple[Kin, ...]:
    """Return every person with descendants and their spouses, ``people`` in all, each shape once."""
    return tuple(multisets(people - 1, marriages, people - 1))


@cache
def marriages(people: int) -> tuple[Kin, ...]:
    """Return every marriage with at least one child: a spouse, the children and theirs."""
    return tuple(multisets(people - 1, descents, people - 1)) if people > 1 else ()


def multisets(total: int, kinds: Callable[[int], tuple[Kin, ...]], largest: int) -> Iterator[Kin]:
    """Yield every multiset of ``kinds`` whose sizes add up to ``total``, none larger than ``largest``."""
    if total == 0:
        yield ()
    for size in range(min(total, largest), 0, -1):
        for copies in range(total // size, 0, -1):
            for rest in multisets(total - copies * size, kinds, size - 1):
                for same in combinations_with_replacement(kinds(size), copies):
                    yield same + rest


@cache
def families(most: int) -> tuple[Pedigree, ...]:
    """Return ``most`` different families of 4 people and more, small and large ones mixed."""
    sized: list[Kin] = []
    for people in count(4):
        sized.extend(descents(people))
        if len(sized) >= most:
            break
    return tuple(drawn(kin) for kin in random.Random(0).sample(sized, most))


def drawn(root: Kin) -> Pedigree:
    """Return a person with all descendants and their spouses; sexes alternate."""
    people: list[Person] = []

    def add(person: Kin, *parents: str) -> None:
        name, male = str(len(people) + 1), len(people) % 2 == 0
        people.append(Person(name, *parents, sex="male" if male else "female"))
        for children in person:
            spouse = str(len(people) + 1)
            people.append(Person(spouse, sex="female" if male else "male"))
            for child in children:
                add(child, *((name, spouse) if male else (spouse, name)))

    add(root)
    return Pedigree(tuple(people))


def fam_lines(name: str, family: Pedigree) -> list[str]:
    """Return the lines of a PLINK family file."""
    sexes = {"male": 1, "female": 2}
    return [
        f"{name} {p.name} {p.father or 0} {p.mother or 0} {sexes.get(p.sex, 0)} -9" for p in family.people
    ]

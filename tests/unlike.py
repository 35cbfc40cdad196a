"""Families that differ from each other: none stands for another, so there is something to send to workers."""

from __future__ import annotations

import quiltdp as qd
from quiltdp.domains.pedigree import Pedigree, Person


def unlike_families(count: int) -> list[Pedigree]:
    """Return families of 3 people and more, no two of one shape: k // 3 + 1 children, k % 3 grandchildren."""
    families = []
    for k in range(count):
        people = [Person("a"), Person("b"), *(Person(f"c{j}", "a", "b") for j in range(k // 3 + 1))]
        if k % 3:
            people += [Person("s"), *(Person(f"d{j}", "c0", "s") for j in range(k % 3))]
        families.append(Pedigree(tuple(people)))
    return families


def unlike_components(count: int = 3) -> qd.Model:
    """Return such families as the components of one model."""
    people = []
    for k, family in enumerate(unlike_families(count)):
        for p in family.people:
            name, father, mother = (n if n is None else f"{k}.{n}" for n in (p.name, p.father, p.mother))
            people.append(Person(str(name), father, mother))
    return qd.pedigree(Pedigree(tuple(people)), 0.1)

"""Which protected units lie in which component: the bookkeeping between a model and its parts."""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.units import Units
from quiltdp.graph.components import ComponentClass
from quiltdp.graph.components import Places as Where
from quiltdp.model import Model

__all__ = ["Places", "assign_units"]

Places = tuple[tuple[Where, Where], ...]
"""For every copy, places of units in the component and in the whole model."""


def assign_units(
    model: Model, units: Units, classes: tuple[ComponentClass, ...]
) -> tuple[list[tuple[tuple[str, ...], ...] | None], list[Places]]:
    """Return the units inside every class, and where each copy's units stand in the whole model."""
    if units.members is not None:
        return _assign_sets(model, units.members, classes)
    if units.window > 1:
        return [None] * len(classes), _assign_windows(classes, units.window)
    every: list[Places] = []
    if len(model.records) == len(model.nodes):
        rank = None
    else:
        rank = np.cumsum([model.is_record(n) for n in model.nodes]) - 1
    for found in classes:
        part = found.model
        if rank is None:
            every.append(tuple((range(len(part.nodes)), copy) for copy in found.copies))
            continue
        real = [k for k, n in enumerate(part.nodes) if model.is_record(model.nodes[int(found.copies[0][k])])]
        inside = np.arange(len(real), dtype=np.intp)
        every.append(tuple((inside, rank[np.asarray(copy)[real]]) for copy in found.copies))
    return [None] * len(classes), every


def _assign_windows(classes: tuple[ComponentClass, ...], window: int) -> list[Places]:
    """Runs of steps: segments in order, each with its own runs."""
    starts = sorted((int(copy[0]), len(copy)) for found in classes for copy in found.copies)
    first, total = {}, 0
    for start, length in starts:
        first[start] = total
        total += max(1, length - window + 1)
    every: list[Places] = []
    for found in classes:
        count = max(1, len(found.model.nodes) - window + 1)
        begins = [first[int(copy[0])] for copy in found.copies]
        every.append(tuple((range(count), range(k, k + count)) for k in begins))
    return every


def _assign_sets(
    model: Model, members: tuple[tuple[str, ...], ...], classes: tuple[ComponentClass, ...]
) -> tuple[list[tuple[tuple[str, ...], ...] | None], list[Places]]:
    """Named sets: each is cut along components, and equal cuts of equal components are one."""
    home = {}
    for c, found in enumerate(classes):
        for k, copy in enumerate(found.copies):
            for place, j in enumerate(np.asarray(copy).tolist()):
                home[j] = (c, k, place)
    local: list[dict[tuple[str, ...], int]] = [{} for _ in classes]
    where: list[list[list[tuple[int, int]]]] = [[[] for _ in f.copies] for f in classes]
    for unit, chosen in enumerate(members):
        cuts: dict[tuple[int, int], list[int]] = {}
        for n in chosen:
            c, k, place = home[model.index[n]]
            cuts.setdefault((c, k), []).append(place)
        for (c, k), places in cuts.items():
            names = tuple(classes[c].model.nodes[p] for p in sorted(places))
            row = local[c].setdefault(names, len(local[c]))
            where[c][k].append((row, unit))
    every: list[Places] = [
        tuple(
            (np.array([r for r, _ in rows], dtype=np.intp), np.array([u for _, u in rows], dtype=np.intp))
            for rows in copies
        )
        for copies in where
    ]
    return [tuple(names) or None for names in local], every

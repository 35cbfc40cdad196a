"""Rows that belong together (families, patients, sessions): groups are independent, which is declared.

Within a group rows may depend on each other in any way.  How much is one number, ρ: the largest correlation
that any function of the joint state of a row has with the same function of another row of its group, over
all pairs in the table (and not less than that of any function that is tested).  The model has groups in
which every function of a row has correlation ρ: a row copies what its group hides with probability √ρ, *all*
of it, and else is drawn anew.  So the variance of every mean over rows is at most the model's.  With too few
groups to see ρ, rows of a group are copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.series.dependence import Feature
from quiltdp.model import Model

__all__ = ["FEWEST", "group_model", "largest_correlation", "means_of_groups"]

Ints = NDArray[np.int64]
FEWEST = 100
"""With fewer groups of two rows or more, rows of a group are taken for copies."""


def largest_correlation(states: Ints, features: Sequence[Feature], groups: Sequence[Ints]) -> float:
    """Return ρ.

    Examples
    --------
    >>> pairs = [np.array([2 * k, 2 * k + 1]) for k in range(200)]
    >>> round(largest_correlation(np.arange(400) // 2 % 2, [], pairs), 9)
    1.0
    """
    if sum(len(rows) > 1 for rows in groups) < FEWEST:
        return 1.0
    count = len(states)
    which = np.empty(count, dtype=np.int64)
    for k, rows in enumerate(groups):
        which[rows] = k
    sizes = np.bincount(which)
    pairs = float((sizes * (sizes - 1)).sum())
    share = np.bincount(states) / count
    table = np.zeros((len(groups), len(share)))
    np.add.at(table, (which, states), 1.0)
    table = (table - sizes[:, None] * share) / np.sqrt(share)
    alone = np.eye(len(share)) - np.outer(np.sqrt(share), np.sqrt(share))  # a row with itself
    found = [float(np.linalg.eigvalsh((table.T @ table - count * alone) / pairs)[-1])]
    for feature in features:
        f = feature.values - feature.values.mean()
        found.append(float(((np.bincount(which, f) ** 2).sum() - f @ f) / pairs / f.var()))
    return min(1.0, max(0.0, *found))


def group_model(
    correlation: float, share: NDArray[np.float64], sizes: Sequence[int], length: int | None,
    *, notes: Sequence[str], provenance: Mapping[str, str],
) -> Model:  # fmt: skip
    """Return the model of so many rows, in groups of these sizes, over and over if need be."""
    wanted = sum(sizes) if length is None else length
    copying = math.sqrt(correlation)
    table = copying * np.eye(len(share)) + (1 - copying) * share
    tables: dict[str, tuple[list[str], NDArray[np.float64]]] = {}
    records: list[str] = []
    for k, size in enumerate(cycle(sizes)):
        rows = [f"g{k}/{j}" for j in range(min(size, wanted - len(records)))]
        if not rows:
            break
        tables |= {f"g{k}": ([], share), **{row: ([f"g{k}"], table) for row in rows}}
        records += rows
    return Model.from_tables(tables, records, notes=notes, provenance=provenance)


def means_of_groups(features: Sequence[Feature], groups: Sequence[Ints]) -> list[Feature]:
    """Return every function as its mean over each group, in the order of groups."""
    return [Feature(f.name, np.array([f.values[rows].mean() for rows in groups])) for f in features]

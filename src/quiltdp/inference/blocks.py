"""Nodes joined into blocks, so that possible states are connected by changes of one block at a time.

Methods that follow single changes are lost where a node is a function of others: of four indicators of
which exactly one is on, none can change alone.  Where the possible states of a table fall apart, the nodes
that keep them apart become one block, whose values are the joint values that are possible.  The network
of the blocks has the same law.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.trees import JunctionTree
from quiltdp.model import Model

__all__ = ["Block", "Blocks", "apart", "blocks_of", "joined_nodes"]

Ints = NDArray[np.int64]
MOST_VALUES = 48  # joint values of one block


@dataclass(frozen=True, eq=False)
class Block:
    """Some nodes as one: their names, and their possible joint values, one row each."""

    nodes: tuple[str, ...]
    values: Ints


@dataclass(frozen=True, eq=False)
class Blocks:
    """The network of the blocks: ``model.nodes[k]`` is ``blocks[k]``, its values in that order."""

    model: Model
    blocks: tuple[Block, ...]


def apart(support: NDArray[np.bool_]) -> int:
    """Return into how many parts possible states fall when one axis may change at a time.

    Examples
    --------
    >>> import numpy as np
    >>> apart(np.eye(3, dtype=bool)), apart(np.array([[True, True], [False, True]]))
    (3, 1)
    """
    label = np.where(support, np.arange(support.size).reshape(support.shape), support.size)
    while True:
        before = label
        for axis in range(support.ndim):
            label = np.where(support, label.min(axis=axis, keepdims=True), support.size)
        if np.array_equal(label, before):
            return len(np.unique(label[support]))


def joined_nodes(model: Model, tree: JunctionTree, *, most: int = MOST_VALUES) -> list[tuple[str, ...]]:
    """Return the sets of nodes that are to be one block; no set where single changes connect everything.

    Pairs of axes of a table are joined, the pair that leaves the fewest parts first, until its possible
    states are connected or a block would have more than ``most`` values.
    """
    home: dict[str, tuple[str, ...]] = {n: (n,) for n in model.nodes}
    for factor in model.factors:
        if factor.table.all() or factor.table.ndim < 2:
            continue
        support = tree.log_marginal(factor.scope) > -np.inf
        groups: list[tuple[str, ...]] = []
        for n in factor.scope:
            if home[n] not in groups:
                groups.append(home[n])
        inside = [tuple(n for n in g if n in factor.scope) for g in groups]
        while len(inside) > 1 and apart(_by_groups(support, factor.scope, inside)) > 1:
            pair = _best_pair(support, factor.scope, inside, groups, model, most)
            if pair is None:
                break
            first, second = pair
            both = (*groups[first], *groups[second])
            for n in both:
                home[n] = both
            joined = (*inside[first], *inside[second])
            groups = [g for k, g in enumerate(groups) if k not in pair] + [both]
            inside = [g for k, g in enumerate(inside) if k not in pair] + [joined]
    return [g for g in dict.fromkeys(home.values()) if len(g) > 1]


def _best_pair(
    support: NDArray[np.bool_],
    scope: Sequence[str],
    inside: Sequence[tuple[str, ...]],
    groups: Sequence[tuple[str, ...]],
    model: Model,
    most: int,
) -> tuple[int, int] | None:
    """Return the two groups whose union leaves the fewest parts, then the fewest values."""
    found: list[tuple[int, int, int, int]] = []
    for a, b in itertools.combinations(range(len(inside)), 2):
        values = math.prod(model.cardinality(n) for n in (*groups[a], *groups[b]))
        if values > 64 * most:
            continue
        rest = [g for k, g in enumerate(inside) if k not in (a, b)]
        together = (*inside[a], *inside[b])
        table = _by_groups(support, scope, [*rest, together])
        possible = int(table.any(axis=tuple(range(table.ndim - 1))).sum())
        outside = values // math.prod(model.cardinality(n) for n in together)
        if possible * outside <= most:
            found.append((apart(table), possible * outside, a, b))
    return min(found)[2:] if found else None


def _by_groups(
    support: NDArray[np.bool_], scope: Sequence[str], groups: Sequence[tuple[str, ...]]
) -> NDArray[np.bool_]:
    """Return the support with one axis per group."""
    place = {n: k for k, n in enumerate(scope)}
    ordered = np.transpose(support, [place[n] for g in groups for n in g])
    return ordered.reshape([math.prod(support.shape[place[n]] for n in g) for g in groups])


def blocks_of(
    model: Model,
    tree: JunctionTree,
    joined: Iterable[Collection[str]],
    rank: dict[str, int],
) -> Blocks:
    """Return the network of the blocks: the joined sets, every other node alone, lowest rank first."""
    home: dict[str, tuple[str, ...]] = {n: (n,) for n in model.nodes}
    for nodes in joined:
        block = tuple(sorted(nodes, key=rank.__getitem__))
        home.update(dict.fromkeys(block, block))
    sets = sorted(dict.fromkeys(home.values()), key=lambda g: rank[g[0]])
    values = [np.argwhere(tree.log_marginal(g) > -np.inf).astype(np.int64) for g in sets]
    names = [" & ".join(g) for g in sets]
    number = {n: k for k, g in enumerate(sets) for n in g}
    potentials = []
    for factor in model.factors:
        axes = list(dict.fromkeys(number[n] for n in factor.scope))
        index = []
        for n in factor.scope:
            k = number[n]
            shape = [1] * len(axes)
            shape[axes.index(k)] = -1
            index.append(values[k][:, sets[k].index(n)].reshape(shape))
        potentials.append(([names[k] for k in axes], factor.table[tuple(index)]))
    network = Model.from_potentials({n: len(v) for n, v in zip(names, values, strict=True)}, potentials)
    return Blocks(network, tuple(Block(g, v) for g, v in zip(sets, values, strict=True)))

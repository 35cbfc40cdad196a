"""A junction tree of blocks read block by block, with whole tables: for methods of single changes.

The counterpart of :mod:`.coupling_tree`, which lists possible states one by one: here a clique keeps its
table, a state is possible where it is positive, and changing one block is moving along one axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.blocks import Blocks
from quiltdp.inference.plan import EliminationPlan
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import LEAST

__all__ = ["ChangeReveal", "ChangeTree", "Flags", "change_tree", "changes_of_plan", "effort_of_clique"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ChangeReveal:
    """One clique read away from its start.

    Attributes
    ----------
    columns
        The blocks of the clique, those of the start first, the others in the order they are revealed.
    known
        How many belong to the start.
    laws
        For every revealed block P(its value | those before it), axes in the order of ``columns``.
    possible
        Which states of the start, of the start and one block, … are possible.
    beyond
        For every clique beyond the number of its message, and the columns it speaks of.
    """

    columns: tuple[int, ...]
    known: int
    laws: tuple[Table, ...]
    possible: tuple[Flags, ...]
    beyond: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class ChangeTree:
    """Every message, those it is made from first, and for every block a reveal that starts with it alone."""

    blocks: Blocks
    messages: tuple[ChangeReveal, ...]
    roots: tuple[ChangeReveal, ...]
    log_marginals: tuple[Table, ...]


def effort_of_clique(
    clique: Collection[str], start: Collection[str], cardinality: Mapping[str, int]
) -> float:
    """Return what one reveal costs: single changes, weighted by the time a transport takes."""
    columns = [n for n in clique if n in start] + [n for n in clique if n not in start]
    sizes = [cardinality[n] for n in columns]
    total = 0.0
    for k in range(len(start), len(sizes)):
        before, size = math.prod(sizes[:k]), sizes[k]
        total += (
            before
            * sum(s - 1 for s in sizes[:k])
            * (1.0 if size <= 2 else 2.0 if size == 3 else size**3 / 4.0)
        )
    return total


def changes_of_plan(plan: EliminationPlan, cardinality: Mapping[str, int]) -> float:
    """Return about what all reveals of a junction tree cost, before any table is made."""
    near: list[list[set[str]]] = [[] for _ in plan.cliques]
    for k, above in enumerate(plan.parent):
        if above >= 0:
            shared = set(plan.cliques[k]) & set(plan.cliques[above])
            near[k].append(shared)
            near[above].append(shared)
    total = 0.0
    for clique, separators in zip(plan.cliques, near, strict=True):
        for start in separators:
            total += effort_of_clique(clique, start, cardinality)
    return total


def change_tree(blocks: Blocks, *, max_entries: int, workspace: Workspace) -> ChangeTree:
    """Return the reveals of every message and of every block.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_entries`` entries.
    """
    network = blocks.model
    tree = junction_tree(network, max_entries=max_entries)
    index = network.index
    cliques = [tuple(index[n] for n in c) for c in tree.cliques]
    edges = [(u, v, tuple(sorted(index[n] for n in z))) for u, v, z in tree.edges if z]
    near: list[list[int]] = [[] for _ in cliques]
    separator: dict[tuple[int, int], tuple[int, ...]] = {}
    for u, v, z in edges:
        near[u].append(v)
        near[v].append(u)
        separator[u, v] = separator[v, u] = z

    def read(k: int, start: tuple[int, ...], beyond: list[tuple[int, tuple[int, ...]]]) -> ChangeReveal:
        workspace.guard.check(planned_bytes=64 * math.prod(tree.clique_log_marginal(k).shape))
        columns = (*start, *sorted(set(cliques[k]) - set(start)))
        log_p = np.transpose(tree.clique_log_marginal(k), [cliques[k].index(c) for c in columns])
        laws: list[Table] = []
        possible = [log_p > -np.inf]
        for _ in range(len(columns) - len(start)):
            before = _log_sum(log_p)
            with np.errstate(invalid="ignore"):
                law = np.exp(log_p - np.where(before > -np.inf, before, 0.0)[..., None])
                law = np.where(log_p > -np.inf, np.maximum(law, LEAST), 0.0)
                law /= np.where(before > -np.inf, law.sum(axis=-1), 1.0)[..., None]
            laws.append(law)
            possible.append(before > -np.inf)
            log_p = before
        return ChangeReveal(columns, len(start), tuple(laws[::-1]), tuple(possible[::-1]), tuple(beyond))

    made: dict[tuple[int, int], int] = {}
    messages: list[ChangeReveal] = []
    upward = [(u, v) for u, v, _ in sorted(edges, key=lambda e: -e[1])]
    for u, v in [*upward, *((v, u) for u, v in reversed(upward))]:  # the message that v sends to u
        beyond = [(made[v, c], separator[v, c]) for c in near[v] if c != u]
        made[u, v] = len(messages)
        messages.append(read(v, separator[u, v], beyond))
    roots = []
    for block in range(len(blocks.blocks)):
        held = [k for k, c in enumerate(cliques) if block in c]
        k = min(held, key=lambda k: tree.clique_log_marginal(k).size)
        roots.append(read(k, (block,), [(made[k, c], separator[k, c]) for c in near[k]]))
    laws = tuple(tree.log_marginal([n]) for n in network.nodes)
    return ChangeTree(blocks, tuple(messages), tuple(roots), laws)


def _log_sum(log_p: Table) -> Table:
    """Return ln Σ exp over the last axis; −∞ exactly when every summand is."""
    top = log_p.max(axis=-1)
    shift = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(log_p - shift[..., None]).sum(axis=-1)) + shift)

"""Plan before work: an elimination order, its clique tree, and how large the tables will be.

A plan looks at scopes and sizes only.  It is made greedily (smallest new table first, or fewest new
edges first, whichever ends with the smaller tables) and turned into a clique tree with the running
intersection property, without recursion, so that chains of any length are fine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quiltdp.errors import ModelTooWide, option

__all__ = ["MAX_ENTRIES", "EliminationPlan", "plan_elimination"]

MAX_ENTRIES = 2**24
"""The default limit on one table: 128 MiB of doubles; a calibrated tree then fits in 2 GB."""

_TRY_FILL = 20_000  # nodes up to which the second, slower heuristic is tried as well


@dataclass(frozen=True)
class EliminationPlan:
    """An elimination order, the cliques it makes, and what they will cost.

    Attributes
    ----------
    order
        The nodes in the order they are summed out.
    cliques
        The nodes of each clique; parents come before their children in the tree.
    parent
        For each clique the position of its parent, −1 for a root.
    sizes
        The entries of each clique's table.
    home
        For each node, the clique nearest to the root that contains it.
    """

    order: tuple[str, ...]
    cliques: tuple[tuple[str, ...], ...]
    parent: tuple[int, ...]
    sizes: tuple[int, ...]
    home: Mapping[str, int]
    limit: int

    @property
    def largest(self) -> int:
        """The position of the largest clique."""
        return max(range(len(self.sizes)), key=self.sizes.__getitem__)

    @property
    def total_entries(self) -> int:
        """The entries of all cliques together."""
        return sum(self.sizes)

    @property
    def memory(self) -> int:
        """Predicted peak bytes: every table twice and three copies of the largest."""
        return 8 * (2 * self.total_entries + 3 * self.sizes[self.largest])

    @property
    def fits(self) -> bool:
        """Whether every table, and all of them together, stay within the limit."""
        return self.sizes[self.largest] <= self.limit and self.total_entries <= 4 * self.limit

    def check(self) -> None:
        """Raise :class:`ModelTooWide` naming the largest clique unless the plan fits."""
        if self.fits:
            return
        k = self.largest
        raise ModelTooWide(
            f"the clique {_short(self.cliques[k])} needs a table of {_count(self.sizes[k])} entries"
            f" ({_count(self.total_entries)} in all cliques), the limit is {_count(self.limit)}",
            f"raise {option('max_entries')}",
            f"use another {option('method')}, one that needs no exact inference",
        )

    def __str__(self) -> str:
        """Print the plan as people want to read it before any work is done."""
        k = self.largest
        verdict = "fits" if self.fits else "too wide"
        return "\n".join(
            (
                f"elimination of {len(self.order)} nodes: {len(self.cliques)} cliques,"
                f" {sum(p < 0 for p in self.parent)} components",
                f"order           {_short(self.order, 12)}",
                f"largest clique  {_short(self.cliques[k])}: {_count(self.sizes[k])} entries",
                f"all tables      {_count(self.total_entries)} entries, about {_bytes(self.memory)}",
                f"limit           {_count(self.limit)} entries per table: {verdict}",
            )
        )


def plan_elimination(
    sizes: Mapping[str, int], scopes: Iterable[Collection[str]], *, max_entries: int = MAX_ENTRIES
) -> EliminationPlan:
    """Return the better of two greedy plans for summing out every node of ``sizes``.

    Examples
    --------
    >>> from quiltdp.inference.plan import plan_elimination
    >>> plan = plan_elimination({"A": 2, "B": 3, "C": 2}, [("A", "B"), ("B", "C")])
    >>> plan.cliques, plan.parent, plan.sizes
    ((('B', 'C'), ('A', 'B')), (-1, 0), (6, 6))
    """
    graph = _interaction_graph(sizes, scopes)
    logs = {n: math.log(k) if k > 1 else 1e-9 for n, k in sizes.items()}
    best = _clique_tree(sizes, *_greedy(graph, logs, fill=False), max_entries)
    if len(sizes) <= _TRY_FILL and any(len(c) > 2 for c in best.cliques):
        other = _clique_tree(sizes, *_greedy(graph, logs, fill=True), max_entries)
        if other.total_entries < best.total_entries:
            best = other
    return best


def _interaction_graph(
    sizes: Mapping[str, int], scopes: Iterable[Collection[str]]
) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {n: set() for n in sizes}
    for scope in scopes:
        for n in scope:
            found[n].update(scope)
    return {n: frozenset(near - {n}) for n, near in found.items()}


def _greedy(
    graph: Mapping[str, frozenset[str]], logs: Mapping[str, float], *, fill: bool
) -> tuple[list[str], list[frozenset[str]]]:
    """Eliminate the cheapest node again and again; return the order and each node's neighbours then."""
    near = {n: set(adjacent) for n, adjacent in graph.items()}
    rank = {n: k for k, n in enumerate(near)}

    def cost(n: str) -> tuple[float, float, int]:
        weight = logs[n] + sum(logs[m] for m in near[n])
        if not fill:
            return (weight, 0.0, rank[n])
        around = near[n]
        missing = sum(len(around) - 1 - len(near[m] & around) for m in around)
        return (float(missing), weight, rank[n])

    costs = {n: cost(n) for n in near}
    heap = [(c, n) for n, c in costs.items()]
    heapq.heapify(heap)
    order: list[str] = []
    around: list[frozenset[str]] = []
    while heap:
        c, n = heapq.heappop(heap)
        if n not in near or costs[n] != c:
            continue  # an entry from before a neighbour was eliminated
        adjacent = near.pop(n)
        order.append(n)
        around.append(frozenset(adjacent))
        for m in adjacent:
            near[m].discard(n)
            near[m].update(adjacent)
            near[m].discard(m)
        for m in adjacent:
            costs[m] = cost(m)
            heapq.heappush(heap, (costs[m], m))
    return order, around


def _clique_tree(
    sizes: Mapping[str, int], order: Sequence[str], around: Sequence[frozenset[str]], limit: int
) -> EliminationPlan:
    """Turn an elimination order into a tree of maximal cliques, roots first."""
    position = {n: k for k, n in enumerate(order)}
    cliques: list[list[str]] = []
    parent: list[int] = []
    home: dict[str, int] = {}
    for k in range(len(order) - 1, -1, -1):
        n, adjacent = order[k], around[k]
        if not adjacent:
            home[n] = len(cliques)
            cliques.append([n])
            parent.append(-1)
            continue
        above = home[min(adjacent, key=position.__getitem__)]
        if len(cliques[above]) == len(adjacent):  # the clique above is exactly these: it grows
            cliques[above].append(n)
            home[n] = above
        else:
            home[n] = len(cliques)
            cliques.append([*sorted(adjacent, key=position.__getitem__, reverse=True), n])
            parent.append(above)
    named = tuple(tuple(reversed(c)) for c in cliques)
    entries = tuple(math.prod(sizes[n] for n in c) for c in named)
    return EliminationPlan(tuple(order), named, tuple(parent), entries, home, limit)


def _short(nodes: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(nodes[:most])
    return f"{{{shown}{f', … ({len(nodes)} nodes)' if len(nodes) > most else ''}}}"


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"{number:.2e}" if number < 10**300 else "more than 1e300"


def _bytes(number: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number = number // 1000 if number > 10**6 else number / 1000  # type: ignore[assignment]  # huge ints
    return f"{_count(int(number))} TB"

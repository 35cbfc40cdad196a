"""Plan before work: elimination orders, what they cost, and the thresholds of this layer.

A plan looks at scopes and sizes only.  :func:`plan_elimination` turns a greedy elimination order into a
clique tree with the running intersection property, without recursion, so that chains of any length
are fine.  :class:`Limits` holds what callers of :func:`quiltdp.quilt_influence` may choose, the constants
every other threshold of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.orders import greedy_elimination
from quiltdp.work import NO_GUARD, Guard

MAX_ENTRIES = 2**24
"""The default limit on one table: 128 MiB of doubles; a calibrated tree then fits in 2 GB."""

# The thresholds of this layer that no caller chooses, and what each trades.  None changes whether a number is
# sound; those of memory and time change no number at all.

# -- tables and trees
TRY_FILL = 20_000  # nodes up to which slower rules than the smallest table are tried: time for narrower trees
TRY_MORE = 2**17  # entries of all cliques from which still other rules are worth a tenth of a second
TREE_BYTES = 2**28  # of a junction tree; in wider models every question is an elimination of its own: memory
JOINT_ENTRIES = 2**16  # of a joint table, up to which it is the quickest way to an influence
MAX_JOINT = 2**22  # entries of the joint of the oracle: memory
KEPT_LAW = 2**12  # entries up to which the law of a clique given its separator is kept: memory for time
TABLE_OVERHEAD = 2_000  # entries that take about as long as the calls for one table
COUNTED_VALUES = 2**16  # of some nodes jointly, up to which they are counted in a table, not sorted: memory
CASES_AT_ONCE = 2**21  # numbers in one table of many cases: memory

# -- what is possible
SUPPORT_ENTRIES = 2**22  # of one Boolean clique; in wider models only what is next is looked at: tightness
EASY_ENTRIES = 2**12  # a node beyond the separator is eliminated at once while its table stays below this
SUPPORT_PASSES = 4  # over all tables for nodes of one value; a network listed in its order needs one
SUPPORT_TABLES = 100_000  # beyond as many tables nobody looks for nodes of one value: tightness for time

# -- log odds and interactions
MOVE_BYTES = 24  # of one log odds while a table of them is made: itself, its copy in the whole, its bound
DIRECT_ENTRIES = 2**12  # up to which log odds are simply added up; beyond it they are eliminated: time
REVEALED_TOGETHER = 8  # values of free nodes that are revealed at once: time
RECTANGLES_AT_ONCE = 2**16  # times pairs of tilted states: memory
OTHER_PAIRS = 2**10  # beside the most promising ones, that there is room for at first
PAIRS_AT_ONCE = 2**11  # two-point problems side by side: more would leave the processor's cache

# -- chains and trees of changes
DENSE_DISTANCES = 12  # with one table per step every distance up to here is looked at: tightness for time
STACKED_STATES = 16  # up to which the spreads of many tables are computed together: time
EVIDENCE_LISTED = (
    16  # steps up to which what is known is listed; farther evidence may be merged: tightness for time
)
POSITIONS_WALKED = 1000  # after which a repeating side should have settled: time
PERIODS = 400  # candidate periods of repeating matrices that are looked at: time


@dataclass(frozen=True)
class Limits:
    """Where one way to the numbers of a quilt gives way to the next, and what each limit trades.

    Attributes
    ----------
    entries
        The most entries of any one table: memory.
    known_sets
        The most sets L an adversary may know: time and memory of the answer, which names each.
    component
        Entries of the table of a hidden component; beyond it its hub is maximised instead of summed, an
        upper bound.
    """

    entries: int = MAX_ENTRIES
    known_sets: int = 4096
    component: int = 2**22


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
            f"the clique {_show_nodes(self.cliques[k])} needs a table of {_show_count(self.sizes[k])} entries"
            f" ({_show_count(self.total_entries)} in all cliques), the limit is {_show_count(self.limit)}",
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
                f"order           {_show_nodes(self.order, 12)}",
                f"largest clique  {_show_nodes(self.cliques[k])}: {_show_count(self.sizes[k])} entries",
                f"all tables      {_show_count(self.total_entries)} entries, about {_in_bytes(self.memory)}",
                f"limit           {_show_count(self.limit)} entries per table: {verdict}",
            )
        )


def plan_elimination(
    sizes: Mapping[str, int],
    scopes: Iterable[Collection[str]],
    *,
    max_entries: int = MAX_ENTRIES,
    guard: Guard = NO_GUARD,
) -> EliminationPlan:
    """Return the best of a few greedy plans for summing out every node of ``sizes``.

    The guard is looked at after every node: large models have orders that take minutes to find.

    Examples
    --------
    >>> from quiltdp.inference.plan import plan_elimination
    >>> plan = plan_elimination({"A": 2, "B": 3, "C": 2}, [("A", "B"), ("B", "C")])
    >>> plan.cliques, plan.parent, plan.sizes
    ((('B', 'C'), ('A', 'B')), (-1, 0), (6, 6))
    """
    joined = list(scopes)

    def by(rule: str) -> EliminationPlan:
        steps = []
        for step in greedy_elimination(joined, sizes, rule=rule):
            guard.check()
            steps.append(step)
        return _clique_tree(sizes, steps, max_entries)

    plans = [by("size")]
    if len(sizes) <= TRY_FILL and any(len(c) > 2 for c in plans[0].cliques):
        plans.append(by("fill"))
        if min(p.total_entries for p in plans) > TRY_MORE:
            plans += [by("weighted fill"), by("lazy fill")]
    return min(plans, key=lambda p: p.total_entries)


def _clique_tree(
    sizes: Mapping[str, int], steps: Sequence[tuple[str, frozenset[str]]], limit: int
) -> EliminationPlan:
    """Turn an elimination order into a tree of maximal cliques, roots first."""
    position = {n: k for k, (n, _) in enumerate(steps)}
    cliques: list[list[str]] = []
    parent: list[int] = []
    home: dict[str, int] = {}
    for n, adjacent in reversed(steps):
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
    return EliminationPlan(tuple(position), named, tuple(parent), entries, home, limit)


def _show_nodes(nodes: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(nodes[:most])
    return f"{{{shown}{f', … ({len(nodes)} nodes)' if len(nodes) > most else ''}}}"


def _show_count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"{number:.2e}" if number < 10**300 else "more than 1e300"


def _in_bytes(number: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number = number // 1000 if number > 10**6 else number / 1000  # type: ignore[assignment]  # huge ints
    return f"{_show_count(int(number))} TB"

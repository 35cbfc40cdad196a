"""Plan before work: which way the numbers of a quilt are found, elimination orders, and what they cost.

A plan looks at scopes and sizes only.  :func:`plan_elimination` turns a greedy elimination order into a
clique tree with the running intersection property, without recursion, so that chains of any length
are fine.  :class:`Limits` holds what callers may choose, the constants every other threshold of
the layer; :func:`quiltdp.inference.quilts.plan_quilt` applies them to one quilt, prints the result, and is
what :func:`quiltdp.quilt_influence` follows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.orders import eliminations

__all__ = [
    "BY_RAYS",
    "ELIMINATED",
    "FACTOR",
    "HUB_MAXIMISED",
    "MAX_ENTRIES",
    "OFF_JOINT",
    "ONE_BY_ONE",
    "SUMMED_OUT",
    "TOGETHER",
    "UNTOLD",
    "EliminationPlan",
    "Limits",
    "PlannedPart",
    "QuiltPlan",
    "plan_elimination",
]

# The ways to the moves of a quilt, and how one table of their sum is found.
UNTOLD = "nothing told"
OFF_JOINT = "read off the joint"
TOGETHER = "all known sets together"
ONE_BY_ONE = "one known set at a time"
ELIMINATED = "known values eliminated"
FACTOR, SUMMED_OUT, BY_RAYS, HUB_MAXIMISED = "factor", "summed out", "rays", "hub maximised"

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
MOST_AXES = 26  # of one array with many nodes: numpy ends at 32
AT_ONCE = 2**11  # entries of a product up to which it is summed in one call, whatever the order
KEPT_LAW = 2**12  # entries up to which the law of a clique given its separator is kept: memory for time
KEPT_SETS = 2**14  # sets of nodes remembered with their neighbours, a few megabytes: memory for time
TABLE_OVERHEAD = 2_000  # entries that take about as long as the calls for one table
COUNTED_VALUES = 2**16  # of some nodes jointly, up to which they are counted in a table, not sorted: memory
SHORT_LIST = 2**11  # numbers in a list of states up to which it is remembered how it is read: memory for time
READINGS_KEPT = 2**8  # of short lists: some megabytes for time
CASES_AT_ONCE = 2**21  # numbers in one table of many cases: memory

# -- what is possible
SUPPORT_ENTRIES = 2**22  # of one Boolean clique; in wider models only what is near is searched: tightness
EASY_ENTRIES = 2**12  # a node beyond the separator is eliminated at once while its table stays below this
SUPPORT_PASSES = 4  # over all tables for nodes of one value; a network listed in its order needs one
SUPPORT_TABLES = 100_000  # beyond as many tables nobody looks for nodes of one value: tightness for time

# -- moves and interactions
RANGE = 600.0  # logarithms of a product of probabilities add up to this at most: doubles end at e^-708
CACHED_ENTRIES = 2**15  # numbers of many tables in one array: calls for each against the processor's cache
DIFFERENCES_AT_ONCE = 2**18  # of two states of the targets: memory
MOVE_BYTES = 24  # of one move while a table of them is made: the move, its copy in the whole, its bound
MANY_PIECES = 100  # beyond which it is not looked at which of them meet: wider tables, the same numbers
SMALL_BATCH = 8  # quilts up to which packing them for compiled loops does not pay: time
BATCH_NODES = 64  # nodes of a model for every quilt, beyond which packing the model does not pay: time
BATCH_TABLES = 8  # of a quilt to begin with, when a batch is planned; four times as many if they do not do
MOST_NEARBY = 12  # nodes near a target in a batch, as the kernels' arrays are long; others are asked alone
BATCH_ENTRIES = 2**21  # of the moves of quilts in one batch: memory
RECTANGLES_AT_ONCE = 2**16  # times pairs of tilted states: memory
OTHER_PAIRS = 2**10  # beside the most promising ones, that there is room for at first
PAIRS_AT_ONCE = 2**11  # two-point problems side by side: more would leave the processor's cache

# -- chains and trees of changes
DENSE_DISTANCES = 12  # with one table per step every distance up to here is looked at: tightness for time
PERIODS = 400  # candidate periods of repeating matrices that are looked at: time
PERIODS_KEPT = 4  # periods of them beyond what anything reaches: a repeating end shows in three
LAW_PERIODS = 64  # periods after which the law of a chain is taken not to settle: time
BLOCK_VALUES = 48  # joint values of one block: tightness for time
NARROWING_ROUNDS = 60  # in which cliques lose a node before a tree is given up

# -- rays, the opt-in exact method
RAY_WORK = 2.5e10  # operations of the last step beyond which a component is given up: about ten seconds
RAY_ZEROS = 2.5  # how much longer it takes with zeros
MASSES_AT_ONCE = 2**17  # computed in one block: memory
GROUP_ENTRIES = 2**20  # up to which the product of a group is made once for all blocks: memory for time
PRUNED_SETS = 2**12  # beyond which pruning in three dimensions does not pay
PRUNED_RAYS = 2**15  # of all sets, beyond which it does not in four or more
USUAL_MEMBERS: dict[float, float] = {1: 1, 2: 2, 3: 24}  # to expect after pruning, by dimension
ENTRY_COST = 6  # operations of the last step for one entry of a product
PRUNE_COST: dict[float, float] = {
    2: 20,
    3: 600,
    4: 4000,
    5: 6000,
}  # the same for pruning one ray, by dimension
STEP_COST = 2**17  # what a step costs besides
CONE_COORDINATES = 16  # from which only copies of rays are looked for
HULL_FROM = {3: 8, 4: 16, 5: 16}  # rays up to which a hull is not worth its time, by dimension
HULL_UP_TO = {3: 2**20, 4: 4096, 5: 512}  # rays up to which it is, by dimension
CERTIFICATE_ENTRIES = 2**21  # of one block of certificates: memory


@dataclass(frozen=True)
class Limits:
    """Where one way to the numbers of a quilt gives way to the next, and what each limit trades.

    Attributes
    ----------
    entries
        The most entries of any one table: memory.
    known_sets
        The most sets L an adversary may know: time and memory of the answer, which names each.
    support_nodes
        Where the zeros of a model are too wide for a tree: how many nodes around a quilt are looked at.
        More finds more that is impossible: tighter and slower.
    together
        Entries of the moves of every known set in one table; beyond it one known set at a time.
    explicit
        Entries of the moves of one known set; beyond it known values are eliminated too, and b is only
        bounded by the swing.
    direct
        Entries up to which tables are simply added up, separator and all; beyond it the separator is
        eliminated node by node.
    component
        Entries of the table of a hidden component.  Beyond it its hub is maximised instead of summed (an
        upper bound), or with ``rays`` its extreme rays are compared (exact, and slow for many states).
    rays
        Whether hidden components beyond ``rays_from`` entries go through rays.
    rays_from
        From how many entries rays are quicker than the table.
    joint
        Entries of the joint of all nodes up to which quilts are read off it: the time for one large table
        against that of calls for many small ones.
    """

    entries: int = MAX_ENTRIES
    known_sets: int = 4096
    support_nodes: int = 300
    together: int = 2**18
    explicit: int = 2**18
    direct: int = 2**15
    component: int = 2**22
    rays: bool = False
    rays_from: int = 2**15
    joint: int = 2**12

    def way(self, told: bool, extended: int, shared: int, known: int) -> str:
        """Return how the moves of a quilt are found: the first way that fits.

        Parameters
        ----------
        told
            Whether the separator can tell anything at all.
        extended, shared
            Entries of the moves of every known set, and of the separator nodes that several tables hold.
        known
            Entries of the moves of the largest known set.
        """
        if not told:
            return UNTOLD
        if extended * shared <= self.together:
            return TOGETHER
        return ONE_BY_ONE if known <= self.explicit else ELIMINATED

    def how(self, hidden: bool, entries: int) -> str:
        """Return how one table of the sum is found, from whether it has hidden nodes, and its entries."""
        if not hidden:
            return FACTOR
        if self.rays and entries > self.rays_from:
            return BY_RAYS
        return HUB_MAXIMISED if entries > min(self.component, self.entries) else SUMMED_OUT


@dataclass(frozen=True)
class PlannedPart:
    """One table that the log-odds of a quilt are a sum of.

    ``nodes`` are summed out given the ``boundary``; ``how`` is ``factor`` (nothing to sum), ``summed out``,
    ``rays`` or ``hub maximised`` (an upper bound).
    """

    nodes: tuple[str, ...]
    boundary: tuple[str, ...]
    entries: int
    how: str


@dataclass(frozen=True)
class QuiltPlan:
    """How the numbers of one quilt will be found.

    ``way`` is ``nothing told``, ``read off the joint``, ``all known sets together``, ``one known set at a
    time`` or ``known values eliminated``; ``shared`` are the separator nodes that several tables contain.
    """

    targets: tuple[str, ...]
    records: tuple[str, ...]
    separator: tuple[str, ...]
    way: str
    entries: int
    shared: tuple[str, ...]
    parts: tuple[PlannedPart, ...]
    support: str

    def __str__(self) -> str:
        """Print the plan as people want to read it before any work is done."""
        lines = [
            f"quilt of {_short(self.targets)}: separator of {len(self.separator)},"
            f" {len(self.records)} nearby records, {2 ** len(self.records)} known sets",
            f"way       {self.way}: {_count(self.entries)} entries",
            f"support   {self.support}",
            f"shared    {_short(self.shared)}",
        ]
        for p in self.parts:
            lines.append(f"{p.how:<15} {_short(p.nodes)} next to {_short(p.boundary)}: {_count(p.entries)}")
        return "\n".join(lines)


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
    """Return the best of a few greedy plans for summing out every node of ``sizes``.

    Examples
    --------
    >>> from quiltdp.inference.plan import plan_elimination
    >>> plan = plan_elimination({"A": 2, "B": 3, "C": 2}, [("A", "B"), ("B", "C")])
    >>> plan.cliques, plan.parent, plan.sizes
    ((('B', 'C'), ('A', 'B')), (-1, 0), (6, 6))
    """
    joined = list(scopes)

    def by(rule: str) -> EliminationPlan:
        return _clique_tree(sizes, list(eliminations(joined, sizes, rule=rule)), max_entries)

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

"""Junction trees for methods of single changes: nodes joined into blocks, or left out, and whole tables.

*Blocks.*  Methods that follow single changes are lost where a node is a function of others: of four
indicators of which exactly one is on, none can change alone.  Where the possible states of a table fall
apart, the nodes that keep them apart become one block, whose values are the joint values that are possible.
The network of the blocks has the same law.

*The tree*, read block by block, is the counterpart of :mod:`.coupling_tree`, which lists possible states
one by one: here a clique keeps its table, a state is possible where it is positive, and changing one block
is moving along one axis.

*Narrower trees*: some nodes of a directed model are kept so that their junction tree is affordable.  They
are closed under ancestors, so their law is the product of their own tables; what is left out is closed
under descendants and is generated forward from what is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.plan import BLOCK_VALUES, NARROWING_ROUNDS, EliminationPlan, plan_elimination
from quiltdp.inference.trees import JunctionTree, junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import LEAST
from quiltdp.work import Guard

__all__ = [
    "Block",
    "Blocks",
    "ChangeReveal",
    "ChangeTree",
    "Flags",
    "Narrower",
    "apart",
    "blocks_of",
    "change_tree",
    "changes_of_plan",
    "effort_of_clique",
    "joined_nodes",
]

Ints = NDArray[np.int64]


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


def joined_nodes(model: Model, tree: JunctionTree, *, most: int = BLOCK_VALUES) -> list[tuple[str, ...]]:
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


class Narrower:
    """Sets of nodes, closed under ancestors, with narrow junction trees.

    Parameters
    ----------
    model
        A Bayesian network.
    entries
        The largest table of a clique.
    effort
        The most single changes of a whole tree.
    """

    def __init__(self, model: Model, *, entries: int, effort: float, guard: Guard) -> None:
        self._model, self._entries, self._effort, self._guard = model, entries, effort, guard
        self._family = {f.scope[-1]: f for f in model.factors}
        self._sizes = {n: model.cardinality(n) for n in model.nodes}
        self._order = list(model.topological_order)
        self._ancestors: dict[str, frozenset[str]] = {}
        for n in self._order:
            above = [self._ancestors[p] | {p} for p in self._family[n].scope[:-1]]
            self._ancestors[n] = frozenset().union(*above)
        self._descendants: dict[str, set[str]] = {n: set() for n in self._order}
        for n in self._order:
            for a in self._ancestors[n]:
                self._descendants[a].add(n)

    def left_out_below(self, node: str, kept: Collection[str]) -> list[str]:
        """Return the descendants of a node that are not kept."""
        return [n for n in self._order if n in self._descendants[node] and n not in kept]

    def network(self, kept: Collection[str]) -> Model:
        """Return the network of the kept nodes."""
        nodes = [n for n in self._model.nodes if n in kept]
        return Model({n: self._model.states[n] for n in nodes}, [self._family[n] for n in nodes])

    def plan(self, kept: Collection[str]) -> EliminationPlan:
        """Return the plan of the tree of the kept nodes."""
        sizes = {n: self._sizes[n] for n in self._order if n in kept}
        scopes = [self._family[n].scope for n in sizes]
        return plan_elimination(sizes, scopes, max_entries=self._entries)

    def keep(self, wanted: str | None = None) -> tuple[str, ...] | None:
        """Return a large affordable set with ``wanted`` in it, or ``None`` when its ancestors are too wide.

        From the dearest clique on, the node with the fewest descendants goes with all of them; afterwards
        every node whose parents stand together in a clique comes back.
        """
        needed = frozenset() if wanted is None else self._ancestors[wanted] | {wanted}
        kept = set(self._order)
        for _ in range(NARROWING_ROUNDS):
            self._guard.check()
            plan = self.plan(kept)
            efforts = self._efforts(plan)
            if plan.fits and sum(efforts) <= self._effort:
                return self._with_leaves(kept, plan, self._effort - sum(efforts))
            gone = self._one_of_each(plan, efforts, kept, needed)
            if not gone:
                return None
            kept -= gone
        return None

    def _efforts(self, plan: EliminationPlan) -> list[float]:
        near: list[list[set[str]]] = [[] for _ in plan.cliques]
        for k, above in enumerate(plan.parent):
            if above >= 0:
                shared = set(plan.cliques[k]) & set(plan.cliques[above])
                near[k].append(shared)
                near[above].append(shared)
        return [
            sum(effort_of_clique(c, start, self._sizes) for start in starts)
            for c, starts in zip(plan.cliques, near, strict=True)
        ]

    def _one_of_each(
        self, plan: EliminationPlan, efforts: Sequence[float], kept: set[str], needed: Collection[str]
    ) -> set[str]:
        """Return the nodes that go this time: from each of the dearest cliques one, with its descendants."""
        gone: set[str] = set()
        top = max(efforts)
        for k in sorted(range(len(efforts)), key=lambda k: (-efforts[k], k)):
            dear = efforts[k] > max(0.3 * top, self._effort / len(efforts))
            if plan.sizes[k] <= self._entries and not dear:
                continue
            if gone.intersection(plan.cliques[k]):
                continue
            free = [n for n in plan.cliques[k] if n not in needed]
            if not free:
                continue
            chosen = min(
                free, key=lambda n: (len(self._descendants[n] & kept), -self._sizes[n], self._order.index(n))
            )
            gone |= (self._descendants[chosen] & kept) | {chosen}
        if not gone and efforts:  # many small cliques: the last nodes of the order go
            free = [n for n in reversed(self._order) if n in kept and n not in needed]
            gone = set(free[: max(1, len(free) // 10)])
        return gone

    def _with_leaves(self, kept: set[str], plan: EliminationPlan, room: float) -> tuple[str, ...]:
        """Add nodes whose parents are together in a clique: the tree gets a leaf, not wider."""
        cliques = [set(c) for c in plan.cliques]
        holding: dict[str, list[int]] = {}
        for k, c in enumerate(cliques):
            for n in c:
                holding.setdefault(n, []).append(k)
        entries = 4 * self._entries - plan.total_entries
        for n in self._order:
            family = self._family[n]
            parents = set(family.scope[:-1])
            if n in kept or not parents <= kept:
                continue
            clique = family.scope
            cost = 2.0 * effort_of_clique(clique, parents, self._sizes)
            together = not parents or any(parents <= cliques[k] for k in holding[clique[0]])
            if not together or family.table.size > min(self._entries, entries) or cost > room:
                continue
            room -= cost
            entries -= family.table.size
            kept.add(n)
            holding.setdefault(n, []).append(len(cliques))
            cliques.append(set(clique))
            for p in parents:
                holding[p].append(len(cliques) - 1)
        return tuple(n for n in self._model.nodes if n in kept)

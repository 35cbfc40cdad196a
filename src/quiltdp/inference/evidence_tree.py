"""Everything that may be known around a few nodes T, and what it leaves of the others, node by node.

Let S be what is known.  Only the known nodes next to the part that hangs together with T without crossing S
matter: given them, all beyond is independent of T.  So what may be known is a connected set around T with
the values of its boundary; a sparse graph has few of them.

*One tree for all of it.*  Eliminate every node but T.  When its turn comes, node k has the neighbours z_k
*above* it; they separate it and all that hangs below it from the rest, so with e for what is known

    P(x_k | all revealed before k, e) = P(x_k | z_k, e at and below k)
    l_k(z_k; e) = Σ over the values x_k that e allows of P(x_k | z_k) · Π over children c of l_c(z_c; e),

l_k the probability of what is known at and below k.  Both depend on e through the subtree of k alone and are
computed once for every different part of e.  What hangs together without T is a :class:`Branch`.

*Twins* (:func:`twins`) are nodes that may change places without changing the model: brothers and sisters
without children.  Of everything that may be known of them only one arrangement is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.moral import moralize
from quiltdp.graph.orders import eliminations
from quiltdp.graph.types import DependencyGraph
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model

__all__ = ["Below", "Branch", "Revealed", "evidence_branches", "surroundings", "twins"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEAST = 1e-250  # a product of conditional probabilities that is smaller may have lost its digits


@dataclass(frozen=True, eq=False)
class Below:
    """How a node reads a child: ``part[e]`` is the child's part of e, ``seen[z, x]`` the state of its z."""

    child: int
    part: Ints
    seen: Ints


@dataclass(frozen=True, eq=False)
class Revealed:
    """One node, with everything that may be known at and below it.

    ``value[e]`` is its known value, or −1; ``law[e, z, x]`` is P(x | z, e), all zero where e is impossible
    given z.
    """

    node: int
    value: Ints
    law: Array
    below: tuple[Below, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """What hangs together without T: its nodes, children first, and how T reads the last of them.

    ``seen[t]`` is the state of its z for state t of T; ``possible[e, t]`` says whether e can be, given t, and
    ``count[e]`` how many nodes are known.
    """

    nodes: tuple[Revealed, ...]
    seen: Ints
    possible: NDArray[np.bool_]
    count: Ints

    @property
    def pairs(self) -> int:
        """How many pairs of states are compared, over all nodes and all that may be known."""
        return sum(len(n.law) * (n.law.shape[1] * n.law.shape[2]) ** 2 for n in self.nodes)

    def known(self, e: int) -> dict[int, int]:
        """Return what e says: the value of every known node."""
        found: dict[int, int] = {}
        queue = [(len(self.nodes) - 1, e)]
        while queue:
            k, part = queue.pop()
            value = int(self.nodes[k].value[part])
            if value >= 0:
                found[self.nodes[k].node] = value
            queue.extend((b.child, int(b.part[part])) for b in self.nodes[k].below)
        return found


def surroundings(
    graph: DependencyGraph,
    start: Collection[int],
    inside: Collection[int],
    may_know: Collection[int],
    most: int | None = None,
    before: Mapping[int, int] | None = None,
) -> Iterator[tuple[int, ...]]:
    """Yield every set of nodes that may be known, each next to what all of them leave around ``start``.

    Only nodes ``inside`` are looked at; each set is told once.  ``before`` names, for a node, a twin with a
    smaller number: where that is known, so is the node.

    Examples
    --------
    >>> from quiltdp import DependencyGraph
    >>> g = DependencyGraph(["A", "B", "C"], [("A", "B"), ("B", "C")])
    >>> sorted(surroundings(g, [0], [1, 2], [1, 2]))
    [(), (1,), (2,)]
    """
    near = {k: sorted(n for n in graph.neighbor_positions(k) if n in inside) for k in (*start, *inside)}
    before = {} if before is None else before
    first = tuple(dict.fromkeys(n for k in start for n in near[k]))
    waiting: list[tuple[frozenset[int], tuple[int, ...], tuple[int, ...]]] = [(frozenset(first), first, ())]
    while waiting:
        seen, front, known = waiting.pop()
        if not front:
            yield known
            continue
        node, rest = front[0], front[1:]
        fresh = tuple(n for n in near[node] if n not in seen)
        if before.get(node) not in known:
            waiting.append((seen.union(fresh), (*rest, *fresh), known))
        if node in may_know and (most is None or len(known) < most):
            waiting.append((seen, rest, (*known, node)))


def evidence_branches(
    model: Model,
    unit: Sequence[str],
    may_know: Collection[str],
    *,
    at_most: int | None = None,
    alike: Sequence[Sequence[str]] = (),
    rule: str = "fill",
    most: int,
    workspace: Workspace,
) -> list[Branch]:
    """Return the branches around the nodes of ``unit``, each with everything that may be known in it.

    Parameters
    ----------
    model, unit
        The model, and the nodes T; their states are counted with the last node fastest.
    may_know, at_most
        The records that may be known, and how many of them in one branch.
    alike
        Twins of which one arrangement is enough: classes of :func:`twins`.
    rule
        In which order nodes are eliminated (:data:`quiltdp.graph.orders.RULES`).
    most
        The most pairs of states, over all nodes and all that may be known.
    workspace
        Where the junction tree is kept; its guard is looked at.

    Raises
    ------
    ModelTooWide
        Naming the number of pairs; or if some states are too improbable for doubles.
    """
    order = _Order(model, unit, rule)
    order.read_laws(model, workspace)
    graph = moralize(model)
    start = [model.index[n] for n in unit]
    allowed = frozenset(model.index[n] for n in may_know)
    classes = [sorted(model.index[n] for n in c if n not in unit) for c in alike]
    before = {b: a for c in classes for a, b in pairwise(c)}
    found: list[Branch] = []
    for top in order.children[order.last]:
        members = order.subtree(top)
        inside = frozenset(order.node[k] for k in members)
        least = order.pairs(top)  # of each row, at the last node alone
        sets: list[list[list[int]]] = []
        count = 0
        for known in surroundings(graph, start, inside, allowed, at_most, before):
            groups = _groups(known, before)
            count += least * prod(comb(order.size_at(g[0]) + len(g) - 1, len(g)) for g in groups)
            if count > most:
                raise _too_many(count, most)
            sets.append(groups)
        workspace.guard.check()
        columns = [order.node[k] for k in members]
        rows = [_assignments(groups, [order.size_at(g[0]) for g in groups], columns) for groups in sets]
        found.append(_branch(order, members, np.concatenate(rows), most))
        most -= found[-1].pairs
    return found


def _too_many(count: int, most: int) -> ModelTooWide:
    return ModelTooWide(
        f"all that may be known has {count:,} pairs of states or more, the limit is {most:,}",
        f"raise {option('work')}",
        f"use another {option('method')}",
    )


def twins(model: Model, may_know: Collection[str]) -> list[tuple[str, ...]]:
    """Return classes of nodes that may change places: each in one table only, and these tables the same.

    Examples
    --------
    >>> step = [[0.9, 0.1], [0.2, 0.8]]
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], step), "C": (["A"], step)})
    >>> twins(m, m.records), twins(m, ["B"])
    ([('B', 'C')], [])
    """
    places: dict[str, list[int]] = {n: [] for n in model.nodes}
    for k, factor in enumerate(model.factors):
        for n in factor.scope:
            places[n].append(k)
    classes: dict[tuple[object, ...], list[str]] = {}
    for n, at in places.items():
        if len(at) == 1:
            factor = model.factors[at[0]]
            others = tuple("" if m == n else m for m in factor.scope)
            table = np.ascontiguousarray(factor.table)
            key = (others, table.shape, table.tobytes(), model.is_record(n), n in may_know)
            classes.setdefault(key, []).append(n)
    return [tuple(c) for c in classes.values() if len(c) > 1]


def _groups(known: Sequence[int], before: Mapping[int, int]) -> list[list[int]]:
    """Return the known nodes, twins together and in their order."""
    found: list[list[int]] = []
    for n in sorted(known):
        last = next((g for g in found if g[-1] == before.get(n)), None)
        if last is None:
            found.append([n])
        else:
            last.append(n)
    return found


def _assignments(groups: Sequence[Sequence[int]], sizes: Sequence[int], nodes: Sequence[int]) -> Ints:
    """Return every joint value of the known nodes, one row each; columns are ``nodes``, −1 for unknown.

    Of twins only the values in their order.
    """
    values = [combinations_with_replacement(range(k), len(g)) for g, k in zip(groups, sizes, strict=True)]
    rows = [sum(parts, ()) for parts in product(*values)]
    found = np.full((len(rows), len(nodes)), -1, dtype=np.int64)
    if groups:
        found[:, [nodes.index(n) for g in groups for n in g]] = rows
    return found


class _Order:
    """The nodes in the order of their elimination, what is above each, and P(x_k | z_k)."""

    def __init__(self, model: Model, unit: Sequence[str], rule: str) -> None:
        self.unit = tuple(unit)
        self.sizes = {n: model.cardinality(n) for n in model.nodes}
        scopes = [*(tuple(f.scope) for f in model.factors), self.unit]
        rest = [n for n in model.nodes if n not in unit]
        found = list(eliminations(scopes, self.sizes, nodes=rest, rule=rule))
        turn = {n: k for k, (n, _) in enumerate(found)}
        self.last = len(found)
        self.by_position = list(self.sizes.values())
        self.names = [n for n, _ in found]
        self.node = [model.index[n] for n in self.names]
        self.above = [tuple(sorted(near, key=model.index.__getitem__)) for _, near in found]
        self.children: list[list[int]] = [[] for _ in range(self.last + 1)]
        for k, z in enumerate(self.above):
            self.children[min((turn.get(n, self.last) for n in z), default=self.last)].append(k)

    def read_laws(self, model: Model, workspace: Workspace) -> None:
        """Compute P(x_k | z_k), axes (z, x); a row of zeros where z is impossible."""
        tree = junction_tree(model, workspace=workspace)
        self.laws: list[Array] = []
        least = 1.0
        for n, z in zip(self.names, self.above, strict=True):
            log_p = tree.log_marginal((*z, n)).reshape(-1, self.sizes[n])
            top = log_p.max(axis=1, keepdims=True)
            p = np.exp(log_p - np.where(np.isfinite(top), top, 0.0))
            law = p / np.maximum(p.sum(axis=1, keepdims=True), 0.5)  # 1 at least, or the row is impossible
            least *= float(law[law > 0].min(initial=1.0))
            self.laws.append(law)
            if least < _LEAST or ((law == 0) & np.isfinite(log_p)).any():
                raise ModelTooWide("some states are too improbable to list all that may be known")
        self.unit_possible = np.isfinite(tree.log_marginal(self.unit)).ravel()

    def subtree(self, top: int) -> list[int]:
        """Return a node and everything below it, children first."""
        found, queue = [], [top]
        while queue:
            k = queue.pop()
            found.append(k)
            queue.extend(self.children[k])
        return sorted(found)

    def size_at(self, node: int) -> int:
        """Return how many states a node of the model has."""
        return self.by_position[node]

    def states(self, k: int) -> int:
        """Return how many states z_k has."""
        return prod(self.sizes[n] for n in self.above[k])

    def pairs(self, k: int) -> int:
        """Return how many pairs of states are compared at a node, for each thing that may be known."""
        return (self.states(k) * self.sizes[self.names[k]]) ** 2

    def seen(self, k: int, names: Sequence[str]) -> Ints:
        """Return the state of z_k for every joint state of ``names``, the last one counting fastest."""
        grid = np.indices([self.sizes[n] for n in names]).reshape(len(names), -1)
        code = np.zeros(grid.shape[1], dtype=np.int64)
        for n in self.above[k]:
            code = code * self.sizes[n] + grid[names.index(n)]
        return code


def _branch(order: _Order, members: Sequence[int], values: Ints, most: int) -> Branch:
    """Return the branch of everything in ``values``, one column per member."""
    place = {k: j for j, k in enumerate(members)}
    parts: dict[int, Ints] = {}  # of every row, the number of its part at and below a node
    firsts: list[Ints] = []
    spent = 0
    for j, k in enumerate(members):
        code = values[:, j] + 1
        for c in order.children[k]:
            code = code * (int(parts[c].max()) + 1) + parts[c]
        _, first, part = np.unique(code, return_index=True, return_inverse=True)
        parts[k] = part.ravel()
        firsts.append(first)
        spent += len(first) * order.pairs(k)
        if spent > most:
            raise _too_many(spent, most)
    nodes: list[Revealed] = []
    likelihood: list[Array] = []
    for j, k in enumerate(members):
        first, n = firsts[j], order.names[k]
        value = values[first, j]
        shape = (order.states(k), order.sizes[n])
        below = tuple(
            Below(place[c], parts[c][first], order.seen(c, (*order.above[k], n)).reshape(shape))
            for c in order.children[k]
        )
        weight = np.where((value[:, None] < 0) | (value[:, None] == np.arange(shape[1])), 1.0, 0.0)
        joint = order.laws[k][None] * weight[:, None, :]
        for b in below:
            joint = joint * likelihood[b.child][b.part][:, b.seen]
        total = joint.sum(axis=2)
        likelihood.append(total)
        law = joint / np.where(total > 0, total, 1.0)[:, :, None]
        nodes.append(Revealed(order.node[k], value, law, below))
    seen = order.seen(members[-1], order.unit)
    possible = (likelihood[-1][:, seen] > 0) & order.unit_possible
    return Branch(tuple(nodes), seen, possible, (values[firsts[-1]] >= 0).sum(axis=1))

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.moral import moralize
from quiltdp.graph.types import DependencyGraph
from quiltdp.inference.reveal_order import RevealOrder
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model

__all__ = ["Below", "Branch", "Cases", "Outlined", "Revealed", "evidence_branches", "surroundings", "twins"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    given z: there ``possible[e, z]`` is false.
    """

    node: int
    value: Ints
    law: Array
    possible: NDArray[np.bool_]
    below: tuple[Below, ...]


@dataclass(frozen=True, eq=False)
class Cases:
    """Cases of what is known in a branch: its nodes, children first, and how T reads the last of them.

    ``seen[t]`` is the state of its z for state t of T; ``possible[e, t]`` says whether e can be, given t, and
    ``count[e]`` how many nodes are known.
    """

    nodes: tuple[Revealed, ...]
    seen: Ints
    possible: NDArray[np.bool_]
    count: Ints

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


@dataclass(frozen=True, eq=False)
class Outlined:
    """One node, with every set of nodes that may be known at and below it, whatever their values.

    ``known[s]`` says whether it is known itself, ``silent[s]`` whether nothing is; ``law[z, x]`` is P(x | z).
    """

    node: int
    known: NDArray[np.bool_]
    silent: NDArray[np.bool_]
    law: Array
    below: tuple[Below, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """What hangs together without T, and every set of its nodes that may be known.

    ``outline`` are its nodes, children first; the sets of the last are those of the branch.  ``seen`` is as
    in :class:`Cases`, ``possible[t]`` says whether t can be; ``values`` counts the joint values of every set,
    ``pairs`` the pairs of states to be compared, over all nodes and all that may be known.
    """

    outline: tuple[Outlined, ...]
    seen: Ints
    possible: NDArray[np.bool_]
    values: Ints
    pairs: int
    _order: RevealOrder
    _members: tuple[int, ...]
    _sets: tuple[list[list[int]], ...]

    def cases(self, chosen: Iterable[int] | None = None) -> Cases:
        """Return all that may be known, or what may be where the set is one of the ``chosen`` ones."""
        sets = self._sets if chosen is None else [self._sets[s] for s in chosen]
        order = self._order
        rows = _assignments(sets, order.size_at, [order.node[k] for k in self._members])
        return _cases(order, self._members, rows)


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
    order = RevealOrder(model, unit, rule)
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
        found.append(_branch(order, members, sets, classes, most))
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


def _assignments(
    sets: Sequence[Sequence[Sequence[int]]], size: Callable[[int], int], nodes: Sequence[int]
) -> Ints:
    """Return every joint value of each set of known nodes, a row each; columns are ``nodes``, −1: unknown.

    Of twins only the values in their order.
    """
    column = {n: j for j, n in enumerate(nodes)}
    listed: dict[tuple[tuple[int, int], ...], Ints] = {}  # sets of the same sizes have the same values
    found: list[Ints] = []
    for groups in sets:
        sizes = tuple((size(g[0]), len(g)) for g in groups)
        if sizes not in listed:
            values = [combinations_with_replacement(range(k), count) for k, count in sizes]
            rows = [sum(parts, ()) for parts in product(*values)]
            listed[sizes] = np.array(rows, dtype=np.int64).reshape(len(rows), -1)
        own = np.full((len(listed[sizes]), len(nodes)), -1, dtype=np.int64)
        own[:, [column[n] for g in groups for n in g]] = listed[sizes]
        found.append(own)
    return np.concatenate(found)


def _branch(
    order: RevealOrder,
    members: Sequence[int],
    sets: Sequence[list[list[int]]],
    classes: Sequence[Sequence[int]],
    most: int,
) -> Branch:
    """Return the branch in which these ``sets`` may be known, twins (``classes``) together in each."""
    place = {k: j for j, k in enumerate(members)}
    column = {order.node[k]: j for j, k in enumerate(members)}
    known = np.zeros((len(sets), len(members)), dtype=np.int64)
    for s, groups in enumerate(sets):
        known[s, [column[n] for g in groups for n in g]] = 1
    parts, firsts = _parts(order, members, known)
    alike = {n: c[0] for c in classes for n in c}
    spent = 0
    outline: list[Outlined] = []
    for j, k in enumerate(members):
        first = firsts[j]
        together: dict[int, list[int]] = {}  # columns at and below k, those of twins together
        for i in order.subtree(k):
            n = order.node[i]
            together.setdefault(alike.get(n, n), []).append(place[i])
        values = np.ones(len(first), dtype=np.int64)
        for n, columns in together.items():
            size = order.size_at(n)
            ways = np.array([comb(size + c - 1, c) for c in range(len(columns) + 1)])
            values *= ways[known[first][:, columns].sum(axis=1)]
        spent += int(values.sum()) * order.pairs(k)
        if spent > most:
            raise _too_many(spent, most)
        below = _below(order, k, place, parts, first)
        mine = known[first, j] > 0
        silent = ~mine
        for b in below:
            silent &= outline[b.child].silent[b.part]
        outline.append(Outlined(order.node[k], mine, silent, order.laws[k], below))
    seen = order.seen(members[-1], order.unit)
    listed = tuple(sets[s] for s in firsts[-1].tolist())
    return Branch(tuple(outline), seen, order.unit_possible, values, spent, order, tuple(members), listed)


def _parts(order: RevealOrder, members: Sequence[int], rows: Ints) -> tuple[dict[int, Ints], list[Ints]]:
    """Return for every node the number of each row's part at and below it, and a row for every part."""
    parts: dict[int, Ints] = {}
    firsts: list[Ints] = []
    for j, k in enumerate(members):
        _, first, part = np.unique(rows[:, j], return_index=True, return_inverse=True)
        for c in order.children[k]:
            # numbered anew after every child: digits of many children would not fit into one integer
            code = part.ravel() * len(firsts[members.index(c)]) + parts[c]
            _, first, part = np.unique(code, return_index=True, return_inverse=True)
        parts[k] = part.ravel()
        firsts.append(first)
    return parts, firsts


def _below(
    order: RevealOrder, k: int, place: Mapping[int, int], parts: Mapping[int, Ints], first: Ints
) -> tuple[Below, ...]:
    names = (*order.above[k], order.names[k])
    shape = (order.states(k), order.sizes[order.names[k]])
    return tuple(
        Below(place[c], parts[c][first], order.seen(c, names).reshape(shape)) for c in order.children[k]
    )


def _cases(order: RevealOrder, members: Sequence[int], values: Ints) -> Cases:
    """Return the cases in ``values``, one column per member, −1 for unknown."""
    place = {k: j for j, k in enumerate(members)}
    parts, firsts = _parts(order, members, values + 1)
    nodes: list[Revealed] = []
    likelihood: list[Array] = []
    for j, k in enumerate(members):
        value = values[firsts[j], j]
        below = _below(order, k, place, parts, firsts[j])
        states = np.arange(order.sizes[order.names[k]])
        weight = np.where((value[:, None] < 0) | (value[:, None] == states), 1.0, 0.0)
        joint = order.laws[k][None] * weight[:, None, :]
        for b in below:
            joint = joint * likelihood[b.child][b.part][:, b.seen]
        total = joint.sum(axis=2)
        likelihood.append(total)
        law = joint / np.where(total > 0, total, 1.0)[:, :, None]
        nodes.append(Revealed(order.node[k], value, law, total > 0, below))
    seen = order.seen(members[-1], order.unit)
    possible = (likelihood[-1][:, seen] > 0) & order.unit_possible
    return Cases(tuple(nodes), seen, possible, (values[firsts[-1]] >= 0).sum(axis=1))

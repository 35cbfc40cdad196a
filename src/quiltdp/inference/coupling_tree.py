"""A junction tree read node by node: which node is revealed next, its law, and what hangs on it.

Bounds that couple two versions of the data reveal a junction tree from some start (a protected unit, or
the separator of an edge): first the start, then one new node of the clique after the other, then the
cliques beyond.  A :class:`Reveal` is one clique read in one order away from one start: for every step
the possible states of what came before, the law of the next node given each of them, and the state it
leads to.  Only possible states are listed, so tables with zeros have few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from quiltdp.inference.cliques import CliqueStates, conditional_slack, listed_cliques
from quiltdp.inference.reading import Ints, Reading, read_states
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import LEAST

__all__ = [
    "CouplingTree",
    "Ints",
    "Reveal",
    "Step",
    "TreeReader",
    "coupling_tree",
    "reading_order",
]


@dataclass(frozen=True, eq=False)
class Step:
    """One node, or a few together, revealed after the earlier ones.

    For every possible state of the earlier nodes the possible values of the new ones are listed in
    slots; where a state has fewer values than there are slots, the others repeat its first, with law 0.

    Attributes
    ----------
    nodes
        Their places in ``model.nodes``.
    count
        How many states of the earlier nodes are possible.
    law
        P(value | state), shape (slots, count).
    after
        The number of the state that the value leads to, shape (slots, count).
    value
        Which of the rows of ``values`` it is, shape (slots, count).
    values
        The values of the new nodes, one row each.
    """

    nodes: tuple[int, ...]
    count: int
    law: Table
    after: Ints
    value: Ints
    values: Ints

    @property
    def slots(self) -> int:
        """How many values a state has at most."""
        return len(self.law)


@dataclass(frozen=True, eq=False)
class Reveal:
    """One clique read away from its start.

    Attributes
    ----------
    start
        The places in ``model.nodes`` of what is known at the beginning; it has ``count`` possible states.
    steps
        The other nodes of the clique in the order they are revealed.
    beyond
        For every clique beyond: the number of its message, and which of that message's states each
        state of the whole clique shows.
    states
        The possible states of the clique, columns in the order they are read (start first).
    signature
        Equal for reveals with equal laws and shapes.
    """

    start: tuple[int, ...]
    count: int
    steps: tuple[Step, ...]
    beyond: tuple[tuple[int, Ints], ...]
    states: Ints
    signature: bytes

    @property
    def pairs(self) -> int:
        """How many pairs of states all steps together compare."""
        return sum(s.count**2 for s in self.steps)

    def prefixes(self, steps: int) -> Ints:
        """Return the possible states of the start and of what the first ``steps`` steps reveal."""
        columns = len(self.start) + sum(len(s.nodes) for s in self.steps[:steps])
        prefix = self.states[:, :columns]
        fresh = np.ones(len(prefix), dtype=bool)
        fresh[1:] = (prefix[1:] != prefix[:-1]).any(axis=1)
        return np.asarray(prefix[fresh])

    @property
    def work(self) -> int:
        """The pairs weighted by the time one takes: that of nodes with four values counts as one."""
        return sum(s.count**2 * (8 + s.slots**3) // 72 + 1 for s in self.steps)


@dataclass(frozen=True, eq=False)
class CouplingTree:
    """Every message of a junction tree, those it is made from first, and a reveal for every unit.

    Attributes
    ----------
    messages
        For every direction of every edge the reveals of the clique behind it, one per order.
    units
        For every unit the reveals of a clique that holds it, one per order.
    slack
        How far ln of a law may be from the truth.
    """

    messages: tuple[tuple[Reveal, ...], ...]
    units: tuple[tuple[Reveal, ...], ...]
    slack: float

    @property
    def pairs(self) -> int:
        """How many pairs of states all reveals together compare."""
        return sum(r.pairs for found in (*self.messages, *self.units) for r in found)

    @property
    def work(self) -> int:
        """The pairs weighted by the time each takes."""
        return sum(r.work for found in (*self.messages, *self.units) for r in found)


def reading_order(model: Model) -> dict[str, int]:
    """Return the rank of every node in the first order: ancestors first, as the model lists them."""
    if not model.directed:
        return {n: k for k, n in enumerate(model.nodes)}
    parents = {f.scope[-1]: f.scope[:-1] for f in model.factors}
    depth: dict[str, int] = {}
    for n in model.nodes:
        stack = [n]
        while stack:
            missing = [p for p in parents[stack[-1]] if p not in depth]
            if missing:
                stack.extend(missing)
                continue
            top = stack.pop()
            depth[top] = 1 + max((depth[p] for p in parents[top]), default=0)
    ranked = sorted(range(len(model.nodes)), key=lambda k: (depth[model.nodes[k]], k))
    return {model.nodes[k]: rank for rank, k in enumerate(ranked)}


class TreeReader:
    """Reads the junction tree of a model from every unit and across every edge.

    Parameters
    ----------
    units
        What is protected; a set of several records is made a clique first.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_entries`` entries or ``max_states`` possible states.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> reader = TreeReader(markov_chain([[0.9, 0.1], [0.2, 0.8]], 3), [("X0",)])
    >>> tree = reader.read()
    >>> len(tree.messages), [s.nodes for s in tree.units[0][0].steps], tree.pairs
    (2, [(1,)], 12)
    >>> reader.work() == tree.work
    True
    """

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]],
        *,
        max_entries: int = 2**20,
        max_states: int = 2**20,
        workspace: Workspace | None = None,
    ) -> None:
        join = [u for u in units if len(u) > 1]
        tree = junction_tree(model, join=join, max_entries=max_entries, workspace=workspace)
        self._model, self._units, self._workspace = model, units, workspace
        self._cliques = list(listed_cliques(tree, max_states, workspace))
        self._edges = [(u, v, tuple(z)) for u, v, z in tree.edges if z]  # nothing is said across an empty one
        self._readers = list(self._from_everywhere())

    def work(self, *, together: int = 1, both_orders: bool = False) -> int:
        """Return the :attr:`CouplingTree.work` of the tree, arguments as below, before it is read."""
        orders = (1, -1) if both_orders else (1,)
        return sum(r.work(order, together) for _, r, _ in self._readers for order in r.worth(orders))

    def read(self, *, together: int = 1, both_orders: bool = False) -> CouplingTree:
        """Return the reveals of every message and unit.

        New nodes of a clique are revealed ``together`` while they have at most so many values (tighter, and
        more work), and in ``both_orders`` if asked.
        """
        orders = (1, -1) if both_orders else (1,)
        made: dict[_Edge, int] = {}
        messages: list[tuple[Reveal, ...]] = []
        found: list[tuple[Reveal, ...]] = []
        for edge, reader, branches in self._readers:
            beyond = [(made[branch], separator) for branch, separator in branches]
            reveals = tuple(reader.read(order, together, beyond) for order in reader.worth(orders))
            if edge is None:
                found.append(reveals)
            else:
                made[edge] = len(messages)
                messages.append(reveals)
            if self._workspace is not None:
                self._workspace.guard.check()
        return CouplingTree(tuple(messages), tuple(found), conditional_slack(self._model))

    def _from_everywhere(self) -> Iterator[tuple[_Edge | None, _Reader, list[tuple[_Edge, tuple[str, ...]]]]]:
        """Yield who reads every message, then every unit (no edge), each with what it is made from."""
        model, cliques, rank = self._model, self._cliques, reading_order(self._model)
        near: list[list[int]] = [[] for _ in cliques]
        separator: dict[_Edge, tuple[str, ...]] = {}
        for u, v, z in self._edges:
            near[u].append(v)
            near[v].append(u)
            separator[u, v] = separator[v, u] = z
        up = [(u, v) for u, v, _ in sorted(self._edges, key=lambda e: -e[1])]  # parents before children
        for u, v in [*up, *((v, u) for u, v in reversed(up))]:
            reader = _Reader(model, cliques[v], separator[u, v], rank)
            yield (u, v), reader, [((v, c), separator[v, c]) for c in near[v] if c != u]
        holding: dict[str, list[int]] = {}
        for k, clique in enumerate(cliques):
            for n in clique.nodes:
                holding.setdefault(n, []).append(k)
        for unit in self._units:
            inside = [k for k in holding[unit[0]] if set(unit) <= set(cliques[k].nodes)]
            k = min(inside, key=lambda k: len(cliques[k].states))
            yield None, _Reader(model, cliques[k], unit, rank), [((k, c), separator[k, c]) for c in near[k]]


def coupling_tree(
    model: Model,
    units: Sequence[tuple[str, ...]],
    *,
    together: int = 1,
    both_orders: bool = False,
    **limits: Any,
) -> CouplingTree:
    """Return the reveals of every message and unit (:class:`TreeReader`)."""
    return TreeReader(model, units, **limits).read(together=together, both_orders=both_orders)


_Edge = tuple[int, int]
"""The message that the second of two cliques sends to the first."""


class _Reader:
    """Reads one clique away from one start, in any order of the other nodes."""

    def __init__(self, model: Model, clique: CliqueStates, start: Collection[str], rank: Mapping[str, int]):
        self._model, self._clique = model, clique
        self._start = tuple(sorted(start, key=model.index.__getitem__))
        self._new = sorted((n for n in clique.nodes if n not in start), key=rank.__getitem__)
        self._column = {n: (k, model.cardinality(n)) for k, n in enumerate(clique.nodes)}

    def worth(self, orders: Sequence[int]) -> Sequence[int]:
        """Return the orders that differ."""
        return orders if len(self._new) > 1 else orders[:1]

    def read(self, order: int, together: int, beyond: Sequence[tuple[int, tuple[str, ...]]]) -> Reveal:
        """Return the reveal with the new nodes in their order (1) or in the reverse (−1)."""
        columns = (*self._start, *self._new[::order])
        reading = self._reading(columns, together, beyond)
        log_p = self._clique.log_p[reading.sorting]
        level = reading.start.log_p(log_p)
        digest = blake2b(reading.signature, digest_size=16)
        steps: list[Step] = []
        for move in reading.moves:
            after = move.later.log_p(log_p)
            law = np.zeros(move.after.shape)
            law[move.slot, move.origin] = np.maximum(np.exp(after - level[move.origin]), LEAST)
            law /= law.sum(axis=0)
            digest.update(law.tobytes())
            nodes = tuple(self._model.index[n] for n in columns[slice(*move.columns)])
            steps.append(Step(nodes, move.before.count, law, move.after, move.value, move.values))
            level = after
        shown = tuple((message, label) for (message, _), label in zip(beyond, reading.shown, strict=True))
        start = tuple(self._model.index[n] for n in self._start)
        return Reveal(start, reading.start.count, tuple(steps), shown, reading.states, digest.digest())

    def work(self, order: int, together: int) -> int:
        """Return the work of that reveal, without reading it."""
        return self._reading((*self._start, *self._new[::order]), together, ()).work

    def _reading(
        self, columns: tuple[str, ...], together: int, beyond: Sequence[tuple[int, tuple[str, ...]]]
    ) -> Reading:
        """Return how the clique's states are read; a separator's values are numbered as its message does."""
        index = self._model.index
        shown = [[columns.index(n) for n in sorted(nodes, key=index.__getitem__)] for _, nodes in beyond]
        place, sizes = zip(*(self._column[n] for n in columns), strict=True)
        return read_states(self._clique.states, place, sizes, len(self._start), together, shown)

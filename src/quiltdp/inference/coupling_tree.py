"""A junction tree read node by node: which node is revealed next, its law, and what hangs on it.

Bounds that couple two versions of the data reveal a junction tree from some start (a protected unit, or
the separator of an edge): first the start, then one new node of the clique after the other, then the
cliques beyond.  A :class:`Reveal` is one clique read in one order away from one start: for every step
the possible states of what came before, the law of the next node given each of them, and the state it
leads to.  Only possible states are listed, so tables with zeros have few.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cliques import CliqueStates, conditional_slack, listed_cliques
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import LEAST

__all__ = ["CouplingTree", "Ints", "Reveal", "Step", "coupling_tree", "reading_order"]

Ints = NDArray[np.int64]


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


def coupling_tree(
    model: Model,
    units: Sequence[tuple[str, ...]],
    *,
    together: int = 1,
    both_orders: bool = False,
    max_entries: int = 2**20,
    max_states: int = 2**20,
    workspace: Workspace | None = None,
) -> CouplingTree:
    """Return the reveals of every message and unit.

    Parameters
    ----------
    units
        What is protected; a set of several records is made a clique first.
    together
        New nodes of a clique are revealed together while they have at most so many values: tighter,
        and more work.
    both_orders
        Read every clique in the reverse order too.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_entries`` entries or ``max_states`` possible states.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> tree = coupling_tree(markov_chain([[0.9, 0.1], [0.2, 0.8]], 3), [("X0",)])
    >>> len(tree.messages), [s.nodes for s in tree.units[0][0].steps], tree.pairs
    (2, [(1,)], 12)
    """
    join = [u for u in units if len(u) > 1]
    tree = junction_tree(model, join=join, max_entries=max_entries, workspace=workspace)
    cliques = list(listed_cliques(tree, max_states, workspace))
    rank = reading_order(model)
    orders = (1, -1) if both_orders else (1,)
    made: dict[tuple[int, int], int] = {}
    messages: list[tuple[Reveal, ...]] = []
    edges = [(u, v, tuple(z)) for u, v, z in tree.edges if z]  # nothing is said across an empty one
    near: list[list[int]] = [[] for _ in cliques]
    separator: dict[tuple[int, int], tuple[str, ...]] = {}
    for u, v, z in edges:
        near[u].append(v)
        near[v].append(u)
        separator[u, v] = separator[v, u] = z
    up = [(u, v) for u, v, _ in sorted(edges, key=lambda e: -e[1])]  # parents come before children
    for u, v in [*up, *((v, u) for u, v in reversed(up))]:  # the message that v sends to u
        beyond = [(made[v, c], separator[v, c]) for c in near[v] if c != u]
        made[u, v] = len(messages)
        reader = _Reader(model, cliques[v], separator[u, v], rank)
        messages.append(tuple(reader.read(order, together, beyond) for order in reader.worth(orders)))
        if workspace is not None:
            workspace.guard.check()
    holding: dict[str, list[int]] = {}
    for k, clique in enumerate(cliques):
        for n in clique.nodes:
            holding.setdefault(n, []).append(k)
    found = []
    for unit in units:
        inside = [k for k in holding[unit[0]] if set(unit) <= set(cliques[k].nodes)]
        k = min(inside, key=lambda k: len(cliques[k].states))
        reader = _Reader(model, cliques[k], unit, rank)
        beyond = [(made[k, c], separator[k, c]) for c in near[k]]
        found.append(tuple(reader.read(order, together, beyond) for order in reader.worth(orders)))
    return CouplingTree(tuple(messages), tuple(found), conditional_slack(model))


class _Reader:
    """Reads one clique away from one start, in any order of the other nodes."""

    def __init__(self, model: Model, clique: CliqueStates, start: Collection[str], rank: Mapping[str, int]):
        self._model, self._clique = model, clique
        self._start = tuple(sorted(start, key=model.index.__getitem__))
        self._new = sorted((n for n in clique.nodes if n not in start), key=rank.__getitem__)

    def worth(self, orders: Sequence[int]) -> Sequence[int]:
        """Return the orders that differ."""
        return orders if len(self._new) > 1 else orders[:1]

    def read(self, order: int, together: int, beyond: Sequence[tuple[int, tuple[str, ...]]]) -> Reveal:
        """Return the reveal with the new nodes in their order (1) or in the reverse (−1)."""
        clique, known = self._clique, len(self._start)
        columns = (*self._start, *self._new[::order])
        place = [clique.nodes.index(n) for n in columns]
        sizes = [self._model.cardinality(n) for n in columns]
        code = _codes(clique.states, place, sizes)
        sorting = np.argsort(code, kind="stable")
        states, log_p, code = clique.states[sorting][:, place], clique.log_p[sorting], code[sorting]
        later = [math.prod(sizes[k:]) for k in range(len(sizes) + 1)]
        first = level = _Level(code // later[known], log_p)
        steps: list[Step] = []
        while known < len(columns):
            to, after = known + 1, _Level(code // later[known + 1], log_p)
            while to < len(columns):
                if together < 2:
                    break
                more = _Level(code // later[to + 1], log_p)
                if more.most_within(level) > together:
                    break
                to, after = to + 1, more
            steps.append(self._step(states, columns[known:to], known, level, after))
            known, level = to, after
        shown = [(message, self._shown(states, columns, nodes)) for message, nodes in beyond]
        digest = blake2b(np.array([first.count, len(steps)]).tobytes(), digest_size=16)
        for s in steps:
            for part in (s.law, s.after, s.value, s.values):
                digest.update(part.tobytes())
        for _, label in shown:
            digest.update(label.tobytes())
        start = tuple(self._model.index[n] for n in self._start)
        return Reveal(start, first.count, tuple(steps), tuple(shown), states, digest.digest())

    def _step(self, states: Ints, names: Sequence[str], known: int, before: _Level, after: _Level) -> Step:
        """Return the step from one level of the sorted states to a later one."""
        origin = before.label[after.first]
        starts = np.flatnonzero(np.diff(origin, prepend=-1))
        slot = np.arange(after.count) - np.repeat(starts, np.diff(starts, append=after.count))
        new = states[after.first, known : known + len(names)]
        sizes = [self._model.cardinality(n) for n in names]
        distinct = _codes(new, range(len(names)), sizes)
        _, one, which = np.unique(distinct, return_index=True, return_inverse=True)
        values = new[one]
        shape = (int(slot.max()) + 1, before.count)
        law = np.zeros(shape)
        law[slot, origin] = np.maximum(np.exp(after.log_p - before.log_p[origin]), LEAST)
        law /= law.sum(axis=0)
        reached, value = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        reached[:], value[:] = starts, which.ravel()[starts]
        reached[slot, origin], value[slot, origin] = np.arange(after.count), which.ravel()
        nodes = tuple(self._model.index[n] for n in names)
        return Step(nodes, before.count, law, reached, value, values)

    def _shown(self, states: Ints, columns: tuple[str, ...], nodes: Sequence[str]) -> Ints:
        """Number the states of a separator as the message's own start does."""
        order = sorted(nodes, key=self._model.index.__getitem__)
        code = _codes(states, [columns.index(n) for n in order], [self._model.cardinality(n) for n in order])
        return np.asarray(np.unique(code, return_inverse=True)[1].ravel(), dtype=np.int64)


def _codes(states: Ints, columns: Sequence[int], sizes: Sequence[int]) -> Ints:
    """Return one number per state, in the order of the columns: the last one counts fastest."""
    code = np.zeros(len(states), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        code = code * size + states[:, column]
    return code


class _Level:
    """The possible states of the first columns of sorted states: numbered in order, with ln P."""

    def __init__(self, code: Ints, log_p: Table) -> None:
        fresh = np.ones(len(code), dtype=bool)
        fresh[1:] = code[1:] != code[:-1]
        self.first = np.flatnonzero(fresh)
        self.count = len(self.first)
        self.label = np.cumsum(fresh) - 1
        if self.count == len(code):
            self.log_p = log_p
            return
        top = np.maximum.reduceat(log_p, self.first)
        self.log_p = np.log(np.add.reduceat(np.exp(log_p - top[self.label]), self.first)) + top

    def most_within(self, before: _Level) -> int:
        """Return how many of these states one state of an earlier level has at most."""
        return int(np.bincount(before.label[self.first]).max())

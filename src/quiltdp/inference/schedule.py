"""One walk over a clique tree, for every bound on it, for attacks and for sums.

A *task* (:class:`RootedClique`) is one clique read away from its root: a separator, or a protected unit.  Its
message says something about the states of the root, or about pairs of them; it is made from the messages of
its children, the cliques beyond.  Every direction of every edge that a unit needs is one task, children
first; the last tasks are those of the units, in their order.  Edges without a common node carry nothing.

**How to write a step.**  A step takes the tasks that can be computed now and the messages of the children of
each, and returns one message per task:

    def step(tasks, below):                       # below[t][c]: the message of child c of task t
        return [message(t, b) for t, b in zip(tasks, below)]

    messages = walk.run(step, key)                # of every task; those of the units: messages[walk.edges:]

- ``task.clique`` lists the possible states of the clique with ln P of each, ``task.label`` the root state of
  every clique state, ``task.children[c]`` = (number of a task, its root state at every clique state).
- A sum over all beyond the root is np.bincount(task.label, P · Π below[c][label of c]), weights of single
  nodes multiplied in where they are new (``task.new``).
- ``task.order(…)`` reads the clique node by node instead: a :class:`Level` has P(next value | prefix) and the
  longer prefix; the last level leads to the states of the clique.

``key(task)`` names all that the step uses of the task (its order's signature, α and prices of ``task.new``):
tasks of equal key with equal children are computed once.  Without a key every task is computed by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cliques import CliqueStates, conditional_slack, listed_cliques
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import LEAST, up

Ints = NDArray[np.int64]
Message = TypeVar("Message")


@dataclass(frozen=True, eq=False)
class Level:
    """One node, or a few together, revealed after a prefix of the clique's nodes.

    The possible values after a prefix are listed in slots; where a prefix has fewer values than there are
    slots, the others repeat its first, with law 0.

    Attributes
    ----------
    nodes
        Their places in ``model.nodes``.
    law
        P(value | prefix), shape (slots, prefixes).
    longer
        The number of the longer prefix (after the last level: of the clique's state), of the same shape.
    value
        Which row of ``values`` it is, of the same shape.
    values
        The values of the nodes, one row each.
    """

    nodes: tuple[int, ...]
    law: Table
    longer: Ints
    value: Ints
    values: Ints

    @property
    def work(self) -> int:
        """The pairs of prefixes, weighted by the time one takes: that of four values counts as one."""
        slots, prefixes = self.law.shape
        return int(prefixes**2 * (8 + slots**3) // 72 + 1)


@dataclass(frozen=True, eq=False)
class Order:
    """A clique read node by node.

    Attributes
    ----------
    levels
        The nodes that are revealed after the root.
    shown
        For every child after how many levels its root is revealed, and its root state at every prefix then.
    count
        The number of root states.
    """

    levels: tuple[Level, ...]
    shown: tuple[tuple[int, Ints], ...]
    count: int

    @cached_property
    def signature(self) -> bytes:
        """Equal for orders with equal laws and shapes."""
        digest = blake2b(repr((self.count, [s[0] for s in self.shown])).encode(), digest_size=16)
        for part in (
            *(a for v in self.levels for a in (v.law, v.longer, v.value, v.values)),
            *(label for _, label in self.shown),
        ):
            digest.update(repr(part.shape).encode() + part.tobytes())
        return digest.digest()

    @property
    def work(self) -> int:
        """The work of all levels."""
        return sum(level.work for level in self.levels)


@dataclass(frozen=True, eq=False)
class RootedClique:
    """A clique read away from its root.

    Attributes
    ----------
    clique
        Its nodes, its possible states and ln P of each.
    root
        The places in ``model.nodes`` of the nodes of the root, in the order of the clique's columns.
    label, count
        The root state of every clique state, numbered in order; how many there are.
    new
        The places of the other nodes, ancestors first.
    children
        For every clique beyond: the number of its task, and its root state at every state of this clique.
    roots
        The places of the nodes of every child's root.
    columns
        The column in ``clique.states`` of every node, by its place.
    """

    clique: CliqueStates
    root: tuple[int, ...]
    label: Ints
    count: int
    new: tuple[int, ...]
    children: tuple[tuple[int, Ints], ...]
    roots: tuple[tuple[int, ...], ...]
    columns: Mapping[int, int]

    @cached_property
    def root_states(self) -> Ints:
        """The values of the root's nodes at each of its states, one row each."""
        return np.asarray(self.clique.states[self.first][:, [self.columns[n] for n in self.root]])

    @cached_property
    def first(self) -> Ints:
        """The first state of the clique with each root state."""
        return np.unique(self.label, return_index=True)[1]

    def rerooted(self, nodes: Collection[int]) -> RootedClique:
        """Return the clique read away from more of its nodes, by their places; without its children."""
        root = tuple(n for n in self.columns if n in nodes)
        label, count = self.clique.labels([self.clique.nodes[self.columns[n]] for n in root])
        new = tuple(n for n in self.new if n not in nodes)
        return RootedClique(self.clique, root, label, count, new, (), (), self.columns)

    def order(self, *, reverse: bool = False, together: int = 1) -> Order:
        """Return the clique read node by node, ancestors first or last.

        Nodes are revealed ``together`` while they have at most so many values after each prefix.
        """
        nodes = (*self.root, *(self.new[::-1] if reverse else self.new))
        columns = [self.columns[n] for n in nodes]
        codes, later = _state_codes(self.clique.states[:, columns])
        sorting = np.argsort(codes, kind="stable")
        states, log_p = self.clique.states[sorting][:, columns], self.clique.log_p[sorting]
        codes = codes[sorting]
        known, before = len(self.root), _StatePrefixes(codes // later[len(self.root)], log_p)
        levels: list[Level] = []
        ends, prefixes = [known], [before]
        while known < len(nodes):
            to, after = known + 1, _StatePrefixes(codes // later[known + 1], log_p)
            while to < len(nodes) and together > 1:
                more = _StatePrefixes(codes // later[to + 1], log_p)
                if more.most_within(before) > together:
                    break
                to, after = to + 1, more
            last = sorting if to == len(nodes) else None
            levels.append(_make_level(nodes[known:to], states[:, known:to], before, after, last))
            known, before = to, after
            ends.append(known)
            prefixes.append(after)
        shown = []
        for (_, label), root in zip(self.children, self.roots, strict=True):
            depth = max((nodes.index(n) + 1 for n in root), default=0)
            k = next(k for k, end in enumerate(ends) if end >= depth)
            at = label if k == len(levels) > 0 else label[sorting][prefixes[k].first]
            shown.append((k, at))
        return Order(tuple(levels), tuple(shown), self.count)


class _StatePrefixes:
    """The possible values of the first columns of sorted states, numbered in order, with ln P of each."""

    def __init__(self, codes: Ints, log_p: Table) -> None:
        fresh = np.ones(len(codes), dtype=bool)
        fresh[1:] = codes[1:] != codes[:-1]
        self.first = np.flatnonzero(fresh)
        self.label = np.cumsum(fresh) - 1
        self._log_p = log_p

    @cached_property
    def log_p(self) -> Table:
        if len(self.first) == len(self.label):
            return self._log_p
        top = np.maximum.reduceat(self._log_p, self.first)
        mass = np.add.reduceat(np.exp(self._log_p - top[self.label]), self.first)
        return np.asarray(np.log(mass) + top)

    def most_within(self, before: _StatePrefixes) -> int:
        return int(np.bincount(before.label[self.first]).max())


def _make_level(
    nodes: tuple[int, ...], states: Ints, before: _StatePrefixes, after: _StatePrefixes, last: Ints | None
) -> Level:
    """Return the level between two lists of prefixes; ``last`` numbers the longer ones anew."""
    origin = before.label[after.first]
    starts = np.flatnonzero(np.diff(origin, prepend=-1))
    slot = np.arange(len(origin)) - np.repeat(starts, np.diff(starts, append=len(origin)))
    new = states[after.first]
    _, one, which = np.unique(_state_codes(new)[0], return_index=True, return_inverse=True)
    shape = (int(slot.max()) + 1, len(starts))
    longer = np.broadcast_to(starts, shape).copy()
    longer[slot, origin] = np.arange(len(origin))
    law = np.zeros(shape)
    law[slot, origin] = np.maximum(np.exp(after.log_p - before.log_p[origin]), LEAST)
    law /= law.sum(axis=0)
    return Level(nodes, law, longer if last is None else last[longer], which.ravel()[longer], new[one])


def _state_codes(states: Ints) -> tuple[Ints, list[int]]:
    """Return one number per state, the last column fastest, and the sizes of all tails of columns."""
    sizes = (states.max(axis=0, initial=0) + 1).tolist()
    codes = np.zeros(len(states), dtype=np.int64)
    for column, size in enumerate(sizes):
        codes = codes * size + states[:, column]
    return codes, [math.prod(sizes[k:]) for k in range(len(sizes) + 1)]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The tasks of a model, children first, those of the units last.

    Attributes
    ----------
    tasks
        Every direction of every edge that a unit needs, then one task per unit.
    edges
        How many of them belong to edges.
    slack
        How far ln of a conditional probability may be from the truth.
    units
        The number of the unit of every other task.
    """

    tasks: tuple[RootedClique, ...]
    edges: int
    slack: float
    units: tuple[int, ...] = ()

    def run(
        self,
        step: Callable[[Sequence[RootedClique], Sequence[Sequence[Message]]], Sequence[Message]],
        key: Callable[[RootedClique], Hashable] | None = None,
    ) -> list[Message]:
        """Return the message of every task; ``step`` gets all tasks whose children are done at once."""
        same = self.classes(key)
        found: dict[int, Message] = {}
        self.add(found, range(len(self.tasks)), step, same)
        return [found[k] for k in same]

    def add(
        self,
        found: dict[int, Message],
        wanted: Collection[int],
        step: Callable[[Sequence[RootedClique], Sequence[Sequence[Message]]], Sequence[Message]],
        same: Sequence[int] | None = None,
    ) -> None:
        """Add the messages of ``wanted`` tasks, by their numbers, to those that were ``found`` before.

        What is beyond a wanted task is wanted too.  ``same`` names the equal task that speaks for each.
        """
        same = range(len(self.tasks)) if same is None else same
        for wave in self._tasks_by_depth:
            chosen = [k for k in wave if k in wanted and same[k] == k and k not in found]
            tasks = [self.tasks[k] for k in chosen]
            below = [[found[same[c]] for c, _ in task.children] for task in tasks]
            found.update(zip(chosen, step(tasks, below), strict=True))

    def classes(self, key: Callable[[RootedClique], Hashable] | None) -> list[int]:
        """Return for every task the first one that is equal to it: key and children."""
        if key is None:
            return list(range(len(self.tasks)))
        first: dict[Hashable, int] = {}
        same: list[int] = []
        for number, task in enumerate(self.tasks):
            same.append(first.setdefault((key(task), *(same[c] for c, _ in task.children)), number))
        return same

    def under(self, number: int) -> list[int]:
        """Return the numbers of all tasks beyond one, children first."""
        found: set[int] = set()
        waiting = [number]
        while waiting:
            fresh = {c for c, _ in self.tasks[waiting.pop()].children} - found
            found |= fresh
            waiting.extend(fresh)
        return sorted(found)

    @cached_property
    def _tasks_by_depth(self) -> list[list[int]]:
        depth: list[int] = []
        waves: list[list[int]] = []
        for number, task in enumerate(self.tasks):
            depth.append(max((depth[c] + 1 for c, _ in task.children), default=0))
            if depth[-1] == len(waves):
                waves.append([])
            waves[depth[-1]].append(number)
        return waves

    def beyond(self, weights: Sequence[float]) -> list[float]:
        """Return for every task Σ of the weights (of ``model.nodes``) beyond its root, rounded up."""
        total: list[float] = []
        for task in self.tasks:
            parts = [float(weights[n]) for n in task.new] + [total[c] for c, _ in task.children]
            total.append(up(sum(parts), 4.0 + len(parts)))
        return total


def schedule(
    model: Model,
    units: Sequence[Collection[str]],
    *,
    max_entries: int = 2**20,
    max_states: int = 2**20,
    cliques_each: int = 1,
    workspace: Workspace | None = None,
) -> Schedule:
    """Return the tasks for some units; a unit of several nodes is made a clique first.

    A unit is the root of the clique that holds it with the fewest states, or of ``cliques_each`` of them.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_entries`` entries or ``max_states`` possible states.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> walk = schedule(markov_chain([[0.9, 0.1], [0.2, 0.8]], 3), [("X0",), ("X2",)])
    >>> [(task.root, task.new, [c for c, _ in task.children]) for task in walk.tasks]
    [((1,), (0,), []), ((1,), (2,), []), ((0,), (1,), [1]), ((2,), (1,), [0])]
    >>> walk.run(lambda tasks, below: [len(t.new) + sum(b) for t, b in zip(tasks, below)])
    [1, 1, 2, 2]
    """
    tree = junction_tree(
        model, join=[u for u in units if len(u) > 1], max_entries=max_entries, workspace=workspace
    )
    cliques = list(listed_cliques(tree, max_states, workspace))
    rank = reading_order(model)
    near: list[dict[int, tuple[str, ...]]] = [{} for _ in cliques]
    for u, v, separator in tree.edges:
        if separator:
            near[u][v] = near[v][u] = tuple(separator)
    upward = [(u, v) for u, v, z in sorted(tree.edges, key=lambda e: -e[1]) if z]
    plan = [(near[u][v], v, u) for u, v in upward] + [(near[u][v], u, v) for u, v in reversed(upward)]
    holding: dict[str, list[int]] = {}
    for k, clique in enumerate(cliques):
        for n in clique.nodes:
            holding.setdefault(n, []).append(k)
    owners = []
    for owner, unit in enumerate(units):
        members = set(unit)
        inside = [k for k in holding[next(iter(unit))] if members <= set(cliques[k].nodes)]
        for k in sorted(inside, key=lambda k: len(cliques[k].states))[:cliques_each]:
            plan.append((tuple(unit), k, -1))
            owners.append(owner)
    number = {(to, of): k for k, (_, of, to) in enumerate(plan[: 2 * len(upward)])}
    needed = set(range(2 * len(upward), len(plan)))
    for k in range(len(plan) - 1, -1, -1):
        if k in needed:
            needed.update(number[plan[k][1], c] for c in near[plan[k][1]] if c != plan[k][2])
    place = {k: at for at, k in enumerate(sorted(needed))}
    tasks = []
    for k in sorted(needed):
        if workspace is not None:
            workspace.guard.check()
        root, of, to = plan[k]
        beyond = [(place[number[of, c]], near[of][c]) for c in near[of] if c != to]
        tasks.append(_make_rooted(model, cliques[of], root, beyond, rank))
    return Schedule(tuple(tasks), len(tasks) - len(owners), conditional_slack(model), tuple(owners))


def _make_rooted(
    model: Model,
    clique: CliqueStates,
    root: Collection[str],
    beyond: Sequence[tuple[int, tuple[str, ...]]],
    rank: Mapping[str, int],
) -> RootedClique:
    label, count = clique.labels(root)
    new = sorted((n for n in clique.nodes if n not in root), key=rank.__getitem__)
    return RootedClique(
        clique,
        tuple(model.index[n] for n in clique.nodes if n in root),
        label,
        count,
        tuple(model.index[n] for n in new),
        tuple((task, clique.labels(nodes)[0]) for task, nodes in beyond),
        tuple(tuple(model.index[n] for n in nodes) for _, nodes in beyond),
        {model.index[n]: k for k, n in enumerate(clique.nodes)},
    )


def reading_order(model: Model) -> dict[str, int]:
    """Return the rank of every node in the order of reading: ancestors first, as the model lists them."""
    if not model.directed:
        return {n: k for k, n in enumerate(model.nodes)}
    parents = {f.scope[-1]: f.scope[:-1] for f in model.factors}
    depth: dict[str, int] = {}
    for n in model.topological_order:
        depth[n] = 1 + max((depth[p] for p in parents[n]), default=0)
    ranked = sorted(range(len(model.nodes)), key=lambda k: (depth[model.nodes[k]], k))
    return {model.nodes[k]: rank for rank, k in enumerate(ranked)}

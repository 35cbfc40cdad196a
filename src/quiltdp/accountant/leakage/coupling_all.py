"""Sequential coupling over all pairs of possible states: exact in its own terms, for narrow trees.

All messages that can be computed at the same time are computed together, one step of each at a time:
a tree of many small cliques then takes a few large array operations instead of many small ones.

*Assumes*: what :mod:`.coupling` does, and that all pairs fit the work budget.  *Cost*: the sum over cliques
of their possible states squared, times those of the next node.  *Reference*: docs/prior_adversary.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.pair_costs import PairCosts
from quiltdp.accountant.leakage.ties import MOST_NODES, Array, Ties, best_ties
from quiltdp.accountant.leakage.transport import (
    FARTHEST,
    transport,
    transport_of_columns,
    transport_renewed,
)
from quiltdp.accountant.trade_offs import COSTS_AT_ONCE, TREES_KEPT
from quiltdp.inference.coupling_tree import CouplingTree, Ints, Reveal, Step
from quiltdp.numbers import up, up_array
from quiltdp.work import Guard

__all__ = ["AllPairs", "differing"]


Trees = dict[tuple[int, int, int], Ties]


class AllPairs:
    """The messages of a coupling tree on all pairs of states.

    Trees of ties are found once for a power of four near α and used for every α near it: they prove
    their value at any costs, and where they are no longer optimal the problem is solved anew.
    """

    def __init__(self, tree: CouplingTree, guard: Guard, *, room: int = TREES_KEPT) -> None:
        self._tree = tree
        self._guard = guard
        self._room = room
        self._known: dict[bytes, Trees] = {}

    def evaluate(self, alpha: Vector) -> Vector:
        """Return the leakage of every unit: the largest message of its reveal, its own α included."""
        return _Sweep(self._tree, alpha, self._guard, self._near(alpha)).run()

    def _near(self, alpha: Vector) -> Trees:
        """Return the trees of the reference point of α, found now if they are not known."""
        scale = float(alpha.max()) or 1.0
        step = 4.0 ** round(float(np.log2(scale)) / 2.0)
        reference = step * np.round(alpha / scale, 9)
        key = reference.tobytes()
        if key not in self._known:
            trees: Trees = {}
            _Sweep(self._tree, reference, self._guard, trees, room=self._room).run()
            while len(self._known) > 1:
                self._known.pop(next(iter(self._known)))
            self._known[key] = trees
        return self._known[key]


@dataclass(eq=False)
class _Job:
    """One reveal on its way from the cliques beyond to its start."""

    reveal: Reveal
    owner: int
    cost: PairCosts
    ulps: float
    left: int

    @property
    def step(self) -> Step:
        return self.reveal.steps[self.left - 1]


class _Sweep:
    """One evaluation.  Messages come first, then units; equal ones are computed once."""

    def __init__(
        self, tree: CouplingTree, alpha: Vector, guard: Guard, trees: Trees, *, room: int = 0
    ) -> None:
        self._alpha, self._guard = alpha, guard
        self._trees, self._finding, self._room = trees, room > 0, room
        self._slack = 2.0 * tree.slack
        self._asked = [*tree.messages, *tree.units]
        self._wanted = range(len(tree.messages), len(self._asked))
        self._caps: list[float] = []
        self._same = self._twins()
        self._tables: dict[int, Array] = {}
        self._round = 0

    def _twins(self) -> list[int]:
        """Return for every message and unit the first one that is equal to it; note all caps."""
        first: dict[tuple[object, ...], int] = {}
        same: list[int] = []
        for number, reveals in enumerate(self._asked):
            own = [float(self._alpha[k]) for s in reveals[0].steps for k in s.nodes]
            parts = own + [self._caps[k] for k, _ in reveals[0].beyond]
            self._caps.append(up(sum(parts), 4.0 + len(parts)))
            key = tuple(
                (
                    r.signature,
                    *(self._alpha[k] for s in r.steps for k in s.nodes),
                    *(same[k] for k, _ in r.beyond),
                )
                for r in reveals
            )
            same.append(first.setdefault(key, number))
        return same

    def run(self) -> Vector:
        """Return the leakage of every unit; 0 for one with one possible state."""
        for wave in self._waves():
            jobs = wave
            while jobs:
                self._advance(jobs)
                for job in [j for j in jobs if not j.left]:
                    self._finish(job)
                jobs = [j for j in jobs if j.left]
        return np.array([self._leakage(k) for k in self._wanted])

    def _leakage(self, number: int) -> float:
        """Return max over pairs of what the unit itself and all beyond it tell; equal parts cost nothing."""
        reveal = self._asked[number][0]
        table = self._tables[self._same[number]] + differing(reveal.start, reveal.prefixes(0), self._alpha)
        top = float(table.max())
        return up(top, 8.0 + len(reveal.start)) if top > 0.0 else 0.0

    def _waves(self) -> Iterator[list[_Job]]:
        """Yield the jobs wave by wave: what a job is made from is done when it comes."""
        depth: list[int] = []
        waves: dict[int, list[int]] = defaultdict(list)
        for number, reveals in enumerate(self._asked):
            depth.append(1 + max((depth[k] for k, _ in reveals[0].beyond), default=0))
            if self._same[number] == number:
                waves[depth[-1]].append(number)
        for wave in sorted(waves):
            jobs = []
            for number in waves[wave]:
                for reveal in self._asked[number]:
                    ulps = 8.0 + len(reveal.beyond) + reveal.states.shape[1]
                    jobs.append(_Job(reveal, number, self._behind(reveal), ulps, len(reveal.steps)))
            for job in [j for j in jobs if not j.left]:
                self._finish(job)
            yield [j for j in jobs if j.left]

    def _behind(self, reveal: Reveal) -> PairCosts:
        """Return what the cliques beyond say about pairs of states of the whole clique."""
        parts = [(self._tables[self._same[k]], shown) for k, shown in reveal.beyond]
        return PairCosts(parts, reveal.steps[-1] if reveal.steps else None)

    def _finish(self, job: _Job) -> None:
        """Keep a finished table, the smaller one where there are two orders."""
        everything = np.arange(job.reveal.count)
        table = np.minimum(
            up_array(job.cost.between(everything, everything), job.ulps), self._caps[job.owner]
        )
        before = self._tables.get(job.owner)
        self._tables[job.owner] = table if before is None else np.minimum(before, table)

    def _advance(self, jobs: Sequence[_Job]) -> None:
        """Take one step of every job, nodes with equally many values together."""
        self._round += 1
        alike: dict[int, list[_Job]] = defaultdict(list)
        for job in jobs:
            alike[len(job.step.law)].append(job)
        for size in sorted(alike):
            tables = [np.zeros((j.step.count,) * 2) for j in alike[size]]
            for number, block in enumerate(_blocks(alike[size], max(1, COSTS_AT_ONCE // (size * size)))):
                self._guard.check()
                p, q, d = _columns([(alike[size][k], rows) for k, rows in block], self._alpha)
                value = self._transport((self._round, size, number), p, q, d)
                value = np.where(value > 0.0, value + self._slack, 0.0)
                start = 0
                for k, rows in block:
                    count = alike[size][k].step.count
                    tables[k][rows] = value[start : start + len(rows) * count].reshape(len(rows), count)
                    start += len(rows) * count
            for job, table in zip(alike[size], tables, strict=True):
                np.fill_diagonal(table, 0.0)
                job.ulps, job.left = 8.0 + len(job.step.nodes), job.left - 1
                job.cost = PairCosts([(table, None)], job.step if job.left else None)

    def _transport(self, key: tuple[int, int, int], p: Array, q: Array, d: Array) -> Array:
        size = len(p)
        if d.max(initial=0.0) > FARTHEST or 2 * size > MOST_NODES:
            return transport(p.T, q.T, d.T.reshape(-1, size, size))
        if size <= 3:  # closed forms
            return transport_of_columns(p, q, d)
        ties = self._trees.get(key)
        if ties is None and self._finding:
            ties = best_ties(p, q, d)
            taken = ties.cell.nbytes + ties.side.nbytes
            if taken <= self._room:
                self._room -= taken
                self._trees[key] = ties
        if ties is None or ties.cell.shape[1] != d.shape[1]:
            return transport_of_columns(p, q, d)
        return transport_renewed(p, q, d, ties)


def _blocks(jobs: Sequence[_Job], most: int) -> Iterator[list[tuple[int, Ints]]]:
    """Yield lists of (job, rows of its table) with at most ``most`` pairs, or one row."""
    block: list[tuple[int, Ints]] = []
    room = most
    for k, job in enumerate(jobs):
        count, start = job.step.count, 0
        while start < count:
            rows = min(count - start, room // count)
            if not rows and block:
                yield block
                block, room = [], most
                continue
            rows = max(rows, 1)
            block.append((k, np.arange(start, start + rows)))
            start, room = start + rows, max(0, room - rows * count)
    if block:
        yield block


def _columns(block: Sequence[tuple[_Job, Ints]], alpha: Vector) -> tuple[Array, Array, Array]:
    """Return p, q and D of the pairs (row, any state) of some jobs: problems on the last axis."""
    slots = block[0][0].step.slots
    wide = sum(len(rows) * job.step.count for job, rows in block)
    p, q, d = np.empty((slots, wide)), np.empty((slots, wide)), np.empty((slots * slots, wide))
    at = 0
    for job, rows in block:
        step = job.step
        job.cost.write(d, at, rows, differing(step.nodes, step.values, alpha), job.ulps)
        pairs = (slots, len(rows), step.count)
        here = slice(at, at + len(rows) * step.count)
        p[:, here] = np.broadcast_to(step.law[:, rows, None], pairs).reshape(slots, -1)
        q[:, here] = np.broadcast_to(step.law[:, None], pairs).reshape(slots, -1)
        at = here.stop
    return p, q, d


def differing(nodes: Sequence[int], values: Ints, alpha: Vector) -> Array:
    """Return Σ α of the nodes on which two rows of ``values`` differ, for all pairs of rows."""
    total = np.zeros((len(values),) * 2)
    for column, node in enumerate(nodes):
        x = values[:, column]
        total += float(alpha[node]) * (x[:, None] != x[None, :])
    return total

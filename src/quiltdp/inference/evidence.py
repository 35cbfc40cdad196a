"""A clique as evidence beyond its root sees it: known, tilted and free nodes.

What is known beyond the root Z of a task are records of the clique V itself and records beyond its children.
For a choice of both, the nodes of W = V∖Z fall into three kinds: *known* ones (equal on both sides),
*tilted* ones (they lie in the root of a child with known records beyond, whose likelihood moves their law),
and *free* ones, whose conditional law is the model's own:

    P(w | z, evidence) = P(free | z, tilted, known) · π_z(tilted),
    π_z(u) ∝ P(u, known | z) · Π likelihoods of the children with known records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from operator import or_
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.plan import REVEALED_TOGETHER
from quiltdp.inference.schedule import Ints, Level, RootedClique, Schedule

Array = NDArray[np.float64]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Choice:
    """What is known beyond a root: nodes of the clique (by their places), and children with known records.

    ``only`` tells whether each of ``children`` surely holds known records; if not, each may or may not.
    """

    known: tuple[int, ...] = ()
    tilted: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    only: bool = True


@dataclass(frozen=True, eq=False)
class Part:
    """The possible (known, z, u) under one choice, and how the free nodes are revealed after them.

    Attributes
    ----------
    log_p
        ln P(u, known | z), axes (known, z, u); −∞ where impossible.
    state
        A state of the clique for each.
    number
        A number of each possible one, in order.
    roots
        The state of the root for each number.
    known
        Which values of the known nodes every state of the clique has.
    after
        The clique read away from all of them: what is new there is free.
    """

    log_p: Array
    state: Ints
    number: Ints
    roots: Ints
    known: Ints
    after: RootedClique

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """Which (known, z, u) are possible."""
        return np.asarray(self.log_p > -np.inf)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The free nodes, revealed together while they have at most so many values."""
        return self.after.order(together=REVEALED_TOGETHER).levels if self.after.new else ()

    @property
    def prefix(self) -> Ints:
        """The number of each (known, z, u) in the first level, or its only state where no node is free."""
        return self.number if self.levels else self.state

    @cached_property
    def agreeing(self) -> list[tuple[Ints, Ints]]:
        """For every level the pairs of prefixes that agree on what is known."""
        labels = [self.known]
        for level in reversed(self.levels):
            labels.append(labels[-1][level.longer[0]])
        found = []
        for label in reversed(labels[1:]):
            first, second = np.nonzero(label[:, None] == label[None, :])
            found.append((first, second))
        return found

    @cached_property
    def impossible(self) -> Ints:
        """The places, in a table of all pairs of (known, z, u), of those that are impossible."""
        both = self.possible[:, :, None, :, None] & self.possible[:, None, :, None, :]
        return np.flatnonzero(~both)


@dataclass(frozen=True, eq=False)
class Seen:
    """A task with what may be known: the places of its own nodes, and whether a record beyond each child."""

    task: RootedClique
    may_know: tuple[int, ...]
    knowable: tuple[bool, ...]

    def choices(self, *, each: bool) -> Sequence[Choice]:
        """Return what may be known, except nothing at all.

        With ``each`` every set of children is a choice of its own (2^children); otherwise all children
        whose root is inside known and tilted nodes go together, and may or may not know.
        """
        return tuple(self._list_choices(each=True)) if each else self._merged_choices

    @cached_property
    def _merged_choices(self) -> tuple[Choice, ...]:
        return tuple(self._list_choices(each=False))

    def _list_choices(self, *, each: bool) -> Iterator[Choice]:
        """Yield the choices; sets of new nodes are bit masks here."""
        new = self.task.new
        knowing = [c for c, knowable in enumerate(self.knowable) if knowable]
        for known, tilts in self._tilted_nodes():
            if each:
                for chosen in _all_subsets(range(len(knowing))):
                    tilted = reduce(or_, [tilts[c] for c in chosen], 0)
                    if known or chosen:
                        yield Choice(known, _nodes_of_mask(new, tilted), tuple(knowing[c] for c in chosen))
                continue
            for tilted in _set_unions(tilts):
                within = tuple(c for c, tilt in zip(knowing, tilts, strict=True) if not tilt & ~tilted)
                if known or within:
                    yield Choice(known, _nodes_of_mask(new, tilted), within, only=False)

    def _tilted_nodes(self) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Yield what may be known of the clique, and the nodes that evidence beyond each child tilts then."""
        bit = {n: 1 << k for k, n in enumerate(self.task.new)}
        roots = (root for root, knowable in zip(self.task.roots, self.knowable, strict=True) if knowable)
        touched = [sum(bit.get(n, 0) for n in root) for root in roots]
        for known in _all_subsets(self.may_know):
            unseen = ~sum(bit[n] for n in known)
            yield known, [nodes & unseen for nodes in touched]

    def part(self, choice: Choice) -> Part:
        """Return the states of a choice, grouped by the known nodes, the root and the tilted nodes."""
        key = choice.known, choice.tilted
        if key not in self._kept_parts:
            task, clique = self.task, self.task.clique
            known, values = clique.labels(self._node_names(choice.known))
            u, width = clique.labels(self._node_names(choice.tilted))
            after = task.rerooted((*task.root, *choice.known, *choice.tilted))
            first = after.first
            at = (known[first], task.label[first], u[first])
            number, state = np.zeros((2, values, task.count, width), dtype=np.int64)
            log_p = np.full(number.shape, -np.inf)
            number[at], state[at] = np.arange(after.count), first
            log_p[at] = _log_sums_by_label(clique.log_p, after.label, after.count) - self._root_log_law[at[1]]
            self._kept_parts[key] = Part(log_p, state, number, at[1], known, after)
        return self._kept_parts[key]

    @cached_property
    def _kept_parts(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Part]:
        return {}

    def pairs(self, *, each: bool) -> int:
        """Return how many pairs of states all parts of all choices compare; the choices are not listed."""
        total = len(self.task.clique.states) ** 2
        for known, tilts in self._tilted_nodes():
            choices = 2 ** len(tilts) if each else len(_set_unions(tilts))
            if not known and (each or 0 not in tilts):
                choices -= 1  # nothing at all
            label, _ = self.task.clique.labels(self._node_names(known))
            total += choices * int((np.bincount(label).astype(np.int64) ** 2).sum())
        return total

    def group_states(self, known: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the states in groups of equal root and known values, and where each group starts.

        The last two results are the root state and the known values of every group, by their numbers.
        """
        if known not in self._kept_groups:
            values, count = self.task.clique.labels(self._node_names(known))
            group = self.task.label * count + values
            order = np.argsort(group, kind="stable")
            starts = np.flatnonzero(np.diff(group[order], prepend=-1))
            first = order[starts]
            self._kept_groups[known] = order, starts, self.task.label[first], values[first]
        return self._kept_groups[known]

    @cached_property
    def _kept_groups(self) -> dict[tuple[int, ...], tuple[Ints, Ints, Ints, Ints]]:
        return {}

    def count(self, nodes: Collection[int]) -> int:
        """Return how many values some nodes of the clique have."""
        return self.task.clique.labels(self._node_names(nodes))[1]

    @cached_property
    def _root_log_law(self) -> Array:
        return _log_sums_by_label(self.task.clique.log_p, self.task.label, self.task.count)

    def _node_names(self, nodes: Collection[int]) -> list[str]:
        columns = self.task.columns
        return [self.task.clique.nodes[columns[n]] for n in nodes]


def seen_by_evidence(walk: Schedule, may_know: Collection[int]) -> list[Seen]:
    """Return the tasks of a schedule as somebody sees them who may know these nodes, by their places."""
    some: list[bool] = []
    found = []
    for task in walk.tasks:
        own = tuple(n for n in sorted(task.new) if n in may_know)
        found.append(Seen(task, own, tuple(some[c] for c, _ in task.children)))
        some.append(bool(own) or any(found[-1].knowable))
    return found


def _all_subsets(items: Sequence[_Item]) -> Iterator[tuple[_Item, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _set_unions(masks: Sequence[int]) -> dict[int, None]:
    """Return all unions of some sets, without repetition, the empty one first."""
    unions: dict[int, None] = {0: None}
    for mask in masks:
        unions.update(dict.fromkeys([mask | union for union in unions]))
    return unions


def _nodes_of_mask(nodes: Sequence[int], mask: int) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(nodes) if mask >> k & 1)


def _log_sums_by_label(log_p: Array, label: Ints, count: int) -> Array:
    top = np.full(count, -np.inf)
    np.maximum.at(top, label, log_p)
    mass = np.bincount(label, weights=np.exp(log_p - top[label]), minlength=count)
    return np.asarray(np.log(mass) + top)

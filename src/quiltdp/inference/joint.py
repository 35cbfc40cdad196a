"""The joint of a tiny model, and the moves of many quilts read off it at once.

Where the joint of all nodes has few entries, P(x_C, x_Q) of a quilt is one sum over it, and

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)

needs no pieces.  Closed sets C with as many states along their axes are one array: the separator is its last
axis, filled up with values of probability 0, which are impossible and so never attain a maximum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from quiltdp.inference.moves import BIG, ordered_pairs
from quiltdp.inference.plan import CASES_AT_ONCE, MOST_AXES, RANGE, Limits
from quiltdp.inference.tables import LogTable, aligned, extended_law, factor_tables
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS

__all__ = ["JointQuilts", "ReadyMoves", "joint_entries", "joint_law"]


def joint_entries(model: Model, most: int) -> int | None:
    """Return the entries of the joint of all nodes, None if there are more than that."""
    if len(model.nodes) > MOST_AXES:
        return None
    entries = math.prod([len(model.states[n]) for n in model.nodes])
    return entries if entries <= most else None


def joint_law(workspace: Workspace, most: int) -> LogTable | None:
    """Return the product of all tables, made once; None if it is too large or could underflow."""

    def make() -> LogTable | None:
        model = workspace.model
        entries = joint_entries(model, most)
        if entries is None:
            return None
        every = np.concatenate([f.table.ravel() for f in model.factors])
        ends = np.abs(np.log([every[every > 0].min(), every.max()]))
        size = len(model.factors) * float(ends.max()) + math.log(entries)
        if 2 * size > RANGE:  # ratios must fit too
            return None
        law = np.ones((1,) * len(model.nodes))
        for f in model.factors:
            law = law * aligned((f.scope, f.table), model.nodes)
        return LogTable(tuple(model.nodes), law, size, len(model.factors) * EPS)

    return workspace.keep("joint", most, make, lambda made: 256 if made is None else 256 + made.array.nbytes)


class _ClosedSet(NamedTuple):
    """The axes of P(x_C, x_Q), latent nodes summed out, and the quilts that ask for it."""

    separator: frozenset[str]
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    width: int  # joint states of the separator
    outer: list[int]  # from one state of a node to the next, in a flat P(x_C)
    beyond: list[int]  # the same in a flat P(x_Q)
    asked: list[tuple[int, int]]  # the axis of the target, and the place of the quilt


class ReadyMoves(NamedTuple):
    """Moves and ln P(x, l) of quilts of one shape, a row each: axes pairs (or states), then extended ones."""

    places: list[int]
    moves: Table
    logs: Table
    error: float  # of a move of any row


class JointQuilts:
    """Quilts of a tiny model, gathered first and read off its joint together."""

    def __init__(self, workspace: Workspace, law: LogTable, limits: Limits) -> None:
        self._law = law
        self._limits = limits
        self._tables = factor_tables(workspace)
        self._place = {n: k for k, n in enumerate(law.scope)}
        self._states = dict(zip(law.scope, law.array.shape, strict=True))
        self._records = frozenset(workspace.model.records)
        self._sets: dict[Hashable, _ClosedSet | None] = {}

    def take(
        self, place: int, target: str, nearby: frozenset[str], separator: frozenset[str]
    ) -> tuple[str, ...] | None:
        """Gather a quilt and return its nearby records; None if it is one to be looked at by itself."""
        closed = nearby | {target}
        key = closed if target in self._records else (closed, target)
        try:
            found = self._sets[key]
        except KeyError:
            found = self._sets[key] = self._closed_set(closed, target)
        if found is None or found.separator != separator or target in nearby:
            return None
        axis = found.axes.index(target)
        if found.shape[axis] < 2:
            return None
        found.asked.append((axis, place))
        return found.axes[:axis] + found.axes[axis + 1 :]

    def _closed_set(self, closed: frozenset[str], target: str) -> _ClosedSet | None:
        """Return the axes of a closed set; None if a node is unknown, or the numbers would be too many."""
        states, place = self._states, self._place
        if not closed <= states.keys():
            return None
        separator = self._tables.boundary(closed)
        axes = tuple(sorted((closed & self._records) | {target}))
        shape = tuple([states[n] for n in axes])
        outer, beyond = [0] * len(place), [0] * len(place)
        step = 1
        for n in reversed(axes):
            outer[place[n]] = step
            step *= states[n]
        width = 1
        for n in separator:
            beyond[place[n]] = width
            width *= states[n]
        entries = math.prod([k + 1 for k in shape]) * max(*shape, width)
        few = 2 ** (len(axes) - 1) <= self._limits.known_sets and entries <= self._limits.together
        return _ClosedSet(separator, axes, shape, width, outer, beyond, []) if separator and few else None

    def ready(self) -> Iterator[ReadyMoves]:
        """Yield the moves of the quilts gathered, those of one shape together."""
        alike: dict[tuple[int, ...], list[_ClosedSet]] = {}
        for found in self._sets.values():
            if found is not None and found.asked:
                alike.setdefault(found.shape, []).append(found)
        for shape, group in alike.items():
            widest = max([s.width for s in group])
            room = max(shape) ** 2 * widest * math.prod([s + 1 for s in shape]) + self._law.array.size
            step = max(1, CASES_AT_ONCE // room)
            for k in range(0, len(group), step):
                yield from self._of_shape(shape, group[k : k + step])

    @cached_property
    def _digits(self) -> Table:
        """The states of all nodes at every entry of the joint, one row per node."""
        lengths = self._law.array.shape
        return np.indices(lengths, dtype=float).reshape(len(lengths), -1)

    def _sums(self, group: list[_ClosedSet], shape: tuple[int, ...], widest: int) -> tuple[Table, Table]:
        """Return P(x_C, x_Q) and P(x_C), closed sets along the last axis, in the order of the joint."""
        cells, rows = math.prod(shape), len(group)
        steps = np.array([(s.outer, s.beyond) for s in group], dtype=float).reshape(2 * rows, -1)
        outer, beyond = (steps @ self._digits).astype(np.intp).reshape(rows, 2, -1).swapaxes(0, 1)
        own, weights = np.arange(rows)[:, None], np.tile(self._law.array.ravel(), rows)
        masses = np.bincount((outer * rows + own).ravel(), weights, minlength=cells * rows)
        outer *= widest
        outer += beyond
        laws = np.bincount((outer * rows + own).ravel(), weights, minlength=cells * widest * rows)
        return (
            laws.reshape(*shape, widest, rows).astype(float, copy=False),  # numpy's stubs say integers
            masses.reshape(*shape, rows).astype(float, copy=False),
        )

    def _of_shape(self, shape: tuple[int, ...], group: list[_ClosedSet]) -> Iterator[ReadyMoves]:
        """Yield the moves of closed sets with as many states along their axes."""
        laws, masses = self._sums(group, shape, max([s.width for s in group]))
        for axis in range(len(shape)):
            laws, masses = extended_law(laws, axis), extended_law(masses, axis)
        with np.errstate(divide="ignore"):
            logs = np.log(masses)
        summed = self._law.array.size / math.prod(shape) + sum(shape)
        error = 2 * (self._law.error + EPS * (summed + 1 + 2 * self._law.size))
        by_shape: dict[tuple[int, ...], list[tuple[list[int], Table, Table]]] = {}
        for axis, states in enumerate(shape):
            asked = [(row, place) for row, s in enumerate(group) for a, place in s.asked if a == axis]
            if not asked:
                continue
            at: tuple[Any, ...] = (slice(None),) * axis
            parts = [laws[(*at, x)] for x in range(states)]
            pairs = zip(*ordered_pairs(states), strict=True)
            with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 is NaN, which fmax leaves out
                ratios = np.stack([np.fmax.reduce(parts[x] / parts[y], axis=-2) for x, y in pairs])
                moves = np.minimum(np.log(np.fmax(ratios, 0.0)), BIG)
            rows, others = [row for row, _ in asked], [k for k in range(len(shape)) if k != axis]
            odds = logs.transpose(len(shape), axis, *others)[rows, :-1]
            moves = moves.transpose(len(shape), *range(len(shape)))[rows]
            by_shape.setdefault(moves.shape[1:], []).append(([place for _, place in asked], moves, odds))
        for alike in by_shape.values():
            places, every, laws_of = zip(*alike, strict=True)
            yield ReadyMoves(
                list(itertools.chain(*places)), np.concatenate(every), np.concatenate(laws_of), error
            )

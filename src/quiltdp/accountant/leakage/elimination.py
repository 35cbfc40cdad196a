"""Summing out part of a clique: from a distance between its states to one between groups of states.

Given the law of v, a distance D(v, v') and a grouping z = z(v), the message is

    m(z, z') = K( P(v | z), P(v | z'); D ).

Groups of at most three states are answered in closed form, larger ones by transport.  Where that would
take too long they are merged in stages (first small groups inside each z, then groups of groups): at
every stage the merged functions H(g) = Σ_{v ∈ g} P(v | g) H(v) obey the distance of that stage, so the
last one is an upper bound on m.

*Assumes*: D ≥ 0 on the possible states, ∞ allowed.  *Cost*: a closed form or one transport per pair of
groups, or a few cheap stages.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import Array, closed_kernel
from quiltdp.accountant.leakage.transport import transport
from quiltdp.numbers import LEAST
from quiltdp.work import NO_GUARD, Guard

__all__ = ["Elimination", "Ints"]

Ints = NDArray[np.int64]
_CHUNK = 1 << 18  # numbers per block: it should stay in the processor's cache
_EFFORT = 200.0  # how much one message may cost in one stage, see transport


@dataclass(frozen=True, eq=False)
class _Stage:
    """One merge: ``members[g]`` lists the states of group g, ``law[g]`` their P(· | g)."""

    members: Ints
    law: Array

    @property
    def width(self) -> int:
        return int(self.members.shape[1])

    @property
    def effort(self) -> float:
        """What one message costs, in transports of four states."""
        return len(self.members) ** 2 * (self.width / 4.0) ** 3

    def message(self, d: Array, slack: float, guard: Guard) -> Array:
        """Return m(g, g') for every ordered pair of groups; ``d`` has axes (problem, state, state)."""
        count, width = self.members.shape
        result = np.zeros((len(d), count, count))
        rows = max(1, _CHUNK // max(1, len(d) * count * width * width))
        q = [self.law[None, :, k] for k in range(width)]
        for start in range(0, count, rows):
            guard.check()
            part = self.members[start : start + rows]
            block = d[:, part.T[:, None, :, None], self.members.T[None, :, None, :]]
            if width > 3:
                result[:, start : start + rows] = _wide(self.law, start, block)
            else:
                p = [self.law[start : start + rows, None, k] for k in range(width)]
                result[:, start : start + rows] = closed_kernel(p, q, np.moveaxis(block, 0, 2))
        result[:, np.arange(count), np.arange(count)] = 0.0
        ceiling = d.max(axis=(1, 2), initial=0.0)[:, None, None]
        return np.where(result > 0, np.minimum(result + 2.0 * slack, ceiling), 0.0)


def _wide(law: Array, start: int, block: Array) -> Array:
    """Return the transports of groups of more than three states."""
    batch, _, width, rows, count = block.shape
    flat = block.transpose(0, 3, 4, 1, 2).reshape(-1, width, width)
    row, column = np.divmod(np.arange(batch * rows * count) % (rows * count), count)
    p, q = law[start + row], law[column]
    away = np.flatnonzero((flat.max(axis=(1, 2)) > 0) & (start + row != column))
    value = np.zeros(len(flat))
    value[away] = transport(p[away], q[away], flat[away])
    return value.reshape(batch, rows, count)


class Elimination:
    """The map from distances between states to distances between groups, for one law and grouping.

    Parameters
    ----------
    log_p
        ln P of every state.
    label, count
        The group of every state, and the number of groups.
    columns
        The states' coordinates, one row per state: stages merge one coordinate at a time.
    slack
        How far ln of a conditional may be from the truth.
    """

    def __init__(self, log_p: Array, label: Ints, count: int, columns: Ints, *, slack: float) -> None:
        self.count = count
        self._slack = slack
        self._direct = _stage(log_p, label, count)
        self._plan = _staged(log_p, label, columns, list(range(columns.shape[1])))

    def message(self, d: Array, guard: Guard = NO_GUARD) -> Array:
        """Return the distance between groups, rounded up; ``guard`` is looked at between blocks.

        ``d`` is one distance, axes (state, state), or a batch of them, axes (problem, state, state).
        """
        if d.ndim == 2:
            return np.asarray(self.message(d[None], guard)[0])
        if self._direct.width <= 3 or len(d) * self._direct.effort <= _EFFORT:
            return self._direct.message(d, self._slack, guard)
        value = d
        for stage in self._plan:
            value = stage.message(value, self._slack, guard)
        return value


def _stage(log_p: Array, label: Ints, count: int) -> _Stage:
    """Return the merge of states into their groups."""
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label, minlength=count)
    width = int(sizes.max(initial=1))
    place = np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = order[np.minimum(np.cumsum(sizes) - sizes, len(order) - 1)]
    members = np.repeat(first[:, None], width, axis=1)  # padding repeats a possible state, with mass 0
    members[label[order], place] = order
    weight = np.zeros((count, width))
    weight[label[order], place] = _conditional(log_p[order], label[order], count)
    return _Stage(members, weight)


def _conditional(log_p: Array, label: Ints, count: int) -> Array:
    """Return P(state | its group)."""
    top = np.full(count, -np.inf)
    np.maximum.at(top, label, log_p)
    weight = np.maximum(np.exp(log_p - top[label]), LEAST)
    return np.asarray(weight / np.bincount(label, weights=weight, minlength=count)[label])


def _staged(log_p: Array, label: Ints, columns: Ints, order: list[int]) -> list[_Stage]:
    """Return merges of at most three groups each that end at ``label``.

    Coordinates are summed out one after the other; a coordinate with many values is halved or cut
    to thirds until one value is left.
    """
    stages: list[_Stage] = []
    law, keys, goal = log_p, columns.copy(), label
    for column in order:
        while keys[:, column].any():
            keys = keys.copy()
            keys[:, column] = _coarser(keys[:, column])
            merged = np.column_stack([goal, keys])
            distinct, group = np.unique(merged, axis=0, return_inverse=True)
            group = group.ravel()
            if len(distinct) == len(law):
                continue
            stages.append(_stage(law, group, len(distinct)))
            law = _log_sums(law, group, len(distinct))
            goal, keys = distinct[:, 0], distinct[:, 1:]
    return stages


def _coarser(values: Ints) -> Ints:
    """Join neighbouring values: three into one when that finishes, else pairs."""
    top = int(values.max())
    return np.asarray(values // 3 if top == 2 else values // 2)


def _log_sums(log_p: Array, label: Ints, count: int) -> Array:
    top = np.full(count, -np.inf)
    np.maximum.at(top, label, log_p)
    return np.asarray(np.log(np.bincount(label, weights=np.exp(log_p - top[label]), minlength=count)) + top)

"""Summing out part of a clique: from a distance between its states to one between groups of states.

Given the law of v, a distance D(v, v') and a grouping z = z(v), the message is

    m(z, z') = K( P(v | z), P(v | z'); D ).

Groups of at most three states are answered in closed form.  Larger ones are merged in stages (first
small groups inside each z, then groups of groups): at every stage the merged functions
H(g) = Σ_{v ∈ g} P(v | g) H(v) obey the distance of that stage, so the last one is an upper bound on
m.  Where the number of cells allows it a certified linear program does it in one stage, and the
smaller of the two is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import Array, kernel

__all__ = ["Elimination"]

Ints = NDArray[np.int64]
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class _Stage:
    """One merge: ``members[g]`` lists the states of group g (padded), ``law[g]`` their P(· | g)."""

    members: Ints
    law: Array

    @property
    def width(self) -> int:
        return int(self.members.shape[1])

    @property
    def cells(self) -> int:
        """How many distances one message reads."""
        return int(self.members.size) ** 2

    def message(self, d: Array, slack: float, lp_cells: int) -> Array:
        """Return m(g, g') for every ordered pair of groups."""
        count, width = self.members.shape
        result = np.zeros((count, count))
        rows = max(1, _CHUNK // max(1, count * width * width))
        for start in range(0, count, rows):
            part = self.members[start : start + rows]
            block = d[part[:, None, :, None], self.members[None, :, None, :]]
            p = np.repeat(self.law[start : start + rows], count, axis=0)
            q = np.tile(self.law, (len(part), 1))
            away = np.repeat(np.arange(start, start + len(part)), count) != np.tile(
                np.arange(count), len(part)
            )
            value = np.zeros(len(p))
            flat = block.reshape(-1, width, width)
            value[away] = kernel(p[away], q[away], flat[away], lp_cells=lp_cells)
            result[start : start + rows] = value.reshape(len(part), count)
        ceiling = d.max(initial=0.0)
        return np.where(result > 0, np.minimum(result + 2.0 * slack, ceiling), 0.0)


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
        self._plans: list[list[_Stage]] = []
        if self._direct.width > 3:
            orders = [list(range(columns.shape[1])), list(range(columns.shape[1]))[::-1]]
            self._plans = [_staged(log_p, label, columns, order) for order in orders]
        self.lp = False
        self.signature = b"".join((log_p.tobytes(), label.tobytes()))

    @property
    def lp_cells(self) -> int:
        """How many cells the one-stage linear programs would have; 0 when none is needed."""
        return self._direct.cells if self._direct.width > 3 else 0

    def message(self, d: Array) -> Array:
        """Return the distance between groups, rounded up."""
        if not self._plans:
            return self._direct.message(d, self._slack, 0)
        best = self._direct.message(d, self._slack, self._direct.cells if self.lp else 0)
        if self.lp:
            return best
        for plan in self._plans:
            value = d
            for stage in plan:
                value = stage.message(value, self._slack, 0)
            best = np.minimum(best, value)
        return best


def _stage(log_p: Array, label: Ints, count: int) -> _Stage:
    """Return the merge of states into their groups."""
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label, minlength=count)
    width = int(sizes.max(initial=1))
    place = np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = np.zeros((count, width), dtype=np.int64)
    members[label[order], place] = order
    weight = np.zeros((count, width))
    weight[label[order], place] = _conditional(log_p[order], label[order], count)
    return _Stage(members, weight)


def _conditional(log_p: Array, label: Ints, count: int) -> Array:
    """Return P(state | its group)."""
    top = np.full(count, -np.inf)
    np.maximum.at(top, label, log_p)
    weight = np.exp(log_p - top[label])
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

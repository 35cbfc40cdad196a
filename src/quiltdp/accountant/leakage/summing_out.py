"""Summing out part of a clique: from a distance between its states to one between groups of states.

    m(g, g') = T( P(v | v ∈ g), P(v | v ∈ g'); D )

Groups of at most three states are answered in closed form.  Larger ones are merged one coordinate at a time,
or answered by one transport each where the work budget has room for it: at every
stage the merged functions H(g) = Σ_{v ∈ g} P(v | g) H(v) obey the distance of that stage, so the last one
is an upper bound.  All pairs of groups are answered side by side.

*Assumes*: D ≥ 0 on the possible states of a clique, ∞ allowed.  *Cost*: a closed form, one stage per
coordinate, or one transport per pair of groups.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import CLOSED_UP_TO, closed_kernel, log_masses
from quiltdp.accountant.leakage.transport import transport
from quiltdp.compiled import Fixed, fixed, kernel
from quiltdp.numbers import EPS, LEAST
from quiltdp.work import NO_GUARD, Guard

__all__ = ["CLOSED", "Stage", "SummingOut", "programs_of"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_CELLS = 1 << 20  # distances gathered at once
_THIN = 1e-250  # a possible state that weighs less is not put into a transport
CLOSED = 3
"""States of a group up to which there is a closed form."""
_WASTE = 4  # times as many distances between states as are looked at: their exponentials are all taken
_WIDEST = 64  # states of a group up to which a transport is solved


def programs_of(pairs: int, width: int) -> int:
    """Return how many transports of four states, or the work of so many, pairs of groups take at once."""
    return pairs * max(1, width**3 // 64) if CLOSED < width <= _WIDEST else 0


@dataclass(frozen=True, eq=False)
class Stage:
    """One merge: ``members[g]`` are the states of group g, ``law[g]`` their P(· | g), padding has mass 0.

    Only the pairs (left[k], right[k]) of groups are compared.
    """

    members: Ints
    law: Array
    left: Ints
    right: Ints

    @property
    def width(self) -> int:
        """How many states a group has at most."""
        return int(self.members.shape[1])

    @property
    def cells(self) -> int:
        """How many distances between states are looked at."""
        return len(self.left) * self.width**2

    @cached_property
    def laws(self) -> tuple[Array, Array]:
        """The laws of the left and of the right groups, axes (state, pair of groups)."""
        return np.ascontiguousarray(self.law[self.left].T), np.ascontiguousarray(self.law[self.right].T)

    @cached_property
    def thin(self) -> NDArray[np.bool_]:
        """Which pairs of groups have a possible state that hardly weighs anything."""
        thin = np.asarray(((self.law > 0) & (self.law < _THIN)).any(axis=1))
        return np.asarray(thin[self.left] | thin[self.right])

    @cached_property
    def _alone(self) -> Ints:
        """The first states of the left groups."""
        return np.ascontiguousarray(self.members[self.left, 0])

    @cached_property
    def _beside(self) -> Ints:
        """The first states of the right groups."""
        return np.ascontiguousarray(self.members[self.right, 0])

    @cached_property
    def _cell(self) -> tuple[Ints, Ints]:
        return self.members[self.left].T[:, None, :], self.members[self.right].T[None, :, :]

    def gathered(self, d: Array) -> Array:
        """Return the distances between the states of every pair of groups, axes (state, state, pair)."""
        return np.asarray(d[self._cell])

    def distances(self, d: Array, slack: float, guard: Guard) -> Array:
        """Return m(left[k], right[k]) for every k, on the last axis; a first axis counts problems."""
        width, problems = self.members.shape[1], d.shape[:-2]
        if width == 1:
            if not problems:
                return np.take(d, self._alone * len(d) + self._beside)
            return np.asarray(d[..., self._alone, self._beside])
        if width <= CLOSED:
            guard.check()
            compiled = self._compiled(d, slack)
            if compiled is not None:
                return compiled
        found = np.empty((*problems, len(self.left)))
        many = max(1, _CELLS // (width**2 * math.prod(problems)))
        for start in range(0, len(self.left), many):
            guard.check()
            left, right = (a[start : start + many] for a in (self.left, self.right))
            block = d[..., self.members[left][:, :, None], self.members[right][:, None, :]]
            top = block.max(axis=(-2, -1))
            if width <= CLOSED:
                p, q = (np.ascontiguousarray(self.law[side].T) for side in (left, right))
                cells = np.ascontiguousarray(np.moveaxis(block, (-2, -1), (0, 1)))
                value = closed_kernel(list(p), list(q), cells)
            else:
                value = self._transports(left, right, block)
            value = np.where((left == right) | (top <= 0), 0.0, np.minimum(value + 2.0 * slack, top))
            some = slice(start, start + len(left))
            found[..., some] = np.where(self.thin[some], top, value)
        return found

    @cached_property
    def _in_c(self) -> tuple[tuple[Fixed, ...], tuple[Fixed, ...], Fixed]:
        """The stage as kernels read it: groups (with ln of their laws), pairs, and which are thin."""
        law = np.ascontiguousarray(self.law)
        members, left, right = (np.asarray(a, dtype=np.int64) for a in (self.members, self.left, self.right))
        groups = tuple(map(fixed, (members, law, *log_masses(law, law))))
        return groups, (fixed(left), fixed(right)), fixed(self.thin)

    def _compiled(self, d: Array, slack: float) -> Array | None:
        """Return the distances by the closed form in C; ``None`` where it does not apply."""
        closed, finish = kernel("qd_closed_stage"), kernel("qd_closed_finish")
        few = d.size <= _WASTE * math.prod(d.shape[:-2]) * self.cells
        if closed is None or finish is None or not few or not d.max(initial=0.0) <= CLOSED_UP_TO:
            return None
        d = np.ascontiguousarray(d)
        groups, pairs, thin = self._in_c
        shape = (*d.shape[:-2], len(self.left))
        count = math.prod(d.shape[:-2])
        top, value, most = np.empty(shape), np.empty(shape), np.empty(shape)
        closed(
            d, np.exp(d), count, d.shape[-1], *groups, self.width, *pairs, shape[-1], EPS, top, value, most
        )
        rounding = (2 * self.width + 24) * EPS
        finish(np.log(value, out=value), most, top, *pairs, thin, count, shape[-1], rounding, 2.0 * slack)
        return value

    def _transports(self, left: Ints, right: Ints, block: Array) -> Array:
        """Return one transport for every pair of groups and problem."""
        shape = (*block.shape[:-1],)
        p, q = (np.broadcast_to(self.law[side], shape).reshape(-1, shape[-1]) for side in (left, right))
        return transport(p, q, block.reshape(-1, *block.shape[-2:])).reshape(shape[:-1])


class SummingOut:
    """The map from distances between states to distances between groups of them.

    Parameters
    ----------
    members, law
        Axes (group, state): the states of every group and P(state | group); padding has mass 0 and
        repeats a state of the group.
    columns
        The coordinates of every state (one row each): stages merge one of them at a time.
    left, right
        The pairs of groups to be compared.
    slack
        How far ln of a conditional may be from the truth.

    Attributes
    ----------
    programs
        How many transports of four states (or the work of so many) one answer in one step would solve.
    at_once
        Whether it does; otherwise groups are merged in stages of at most three.
    slack
        As it was given.
    """

    def __init__(
        self, members: Ints, law: Array, columns: Ints, left: Ints, right: Ints, *, slack: float
    ) -> None:
        self.slack = slack
        self._direct = Stage(members, law, left, right)
        self._columns = columns
        self.programs = programs_of(len(left), members.shape[1])
        self.at_once = False

    @cached_property
    def _stages(self) -> list[Stage]:
        direct, columns = self._direct, self._columns
        if direct.width <= CLOSED:
            return [direct]
        order = [k for k in range(columns.shape[1]) if _moves(columns[:, k][direct.members], direct.law)]
        *before, last = _staged(direct.members, direct.law, columns, order)
        return [*before, Stage(last.members, last.law, direct.left, direct.right)]

    @property
    def one_stage(self) -> Stage | None:
        """The only stage, where one answers."""
        return self._direct if self.at_once or self._direct.width <= CLOSED else None

    @classmethod
    def of_labels(cls, p: Array, label: Ints, columns: Ints, *, slack: float) -> SummingOut:
        """Return the map for states of mass ``p`` > 0 in groups 0, 1, …, all pairs of groups compared."""
        count = int(label.max()) + 1
        top = np.zeros(count)
        np.maximum.at(top, label, p)
        with np.errstate(under="ignore"):
            whole = _merge(np.arange(len(p)), np.maximum(p / top[label], LEAST), label, count)
        return cls(whole.members, whole.law, columns, whole.left, whole.right, slack=slack)

    def distances(self, d: Array, guard: Guard = NO_GUARD, programs: float = 0.0) -> Array:
        """Return m(left[k], right[k]) for every k, rounded up.

        ``d`` has axes (state, state), or (problem, state, state) for several at once, answered likewise.
        All are answered in one step if that takes no more than ``programs``.
        """
        if self.at_once or 0 < self.programs * math.prod(d.shape[:-2]) <= programs:
            return self._direct.distances(d, self.slack, guard)
        *before, last = self._stages
        for stage in before:
            found = stage.distances(d, self.slack, guard)
            d = found.reshape(*found.shape[:-1], len(stage.members), -1)
        return last.distances(d, self.slack, guard)


def _moves(values: Ints, law: Array) -> bool:
    """Return whether a coordinate differs inside some group."""
    return bool(((values != values[:, :1]) & (law > 0)).any())


def _staged(members: Ints, law: Array, columns: Ints, order: list[int]) -> list[Stage]:
    """Return merges of at most three states each that sum out the coordinates in ``order``.

    A coordinate with many values is halved, or cut to thirds, until one is left.
    """
    group, place = np.nonzero(law > 0)
    state, weight = members[group, place], law[group, place]
    keys = np.column_stack([group, columns[state][:, order]])
    stages = []
    for column in range(len(order), 0, -1):
        while keys[:, column].any():
            keys[:, column] = keys[:, column] // (3 if keys[:, column].max() == 2 else 2)
            distinct, label = np.unique(keys, axis=0, return_inverse=True)
            if len(distinct) < len(keys):
                stages.append(_merge(state, weight, label.ravel(), len(distinct)))
                total = np.bincount(label.ravel(), weights=weight, minlength=len(distinct))
                weight, state = np.asarray(total, dtype=np.float64), np.arange(len(distinct))
                keys = distinct
    return stages


def _merge(state: Ints, weight: Array, label: Ints, count: int) -> Stage:
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label, minlength=count)
    place = np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = state[order[np.cumsum(sizes) - sizes]]
    members = np.repeat(first[:, None], int(sizes.max()), axis=1)
    members[label[order], place] = state[order]
    law = np.zeros(members.shape)
    law[label[order], place] = weight[order]
    left, right = (a.ravel() for a in np.indices((count, count)))
    return Stage(members.astype(np.int64), law / law.sum(axis=1, keepdims=True), left, right)

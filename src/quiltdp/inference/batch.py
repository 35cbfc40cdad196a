"""Many quilts at once in compiled loops: numbered and packed here, read off there.

The steps are those of :mod:`quiltdp.inference.quilts`, and so are the bytes of every number; what does not
fit (a table that must not be made, a quilt that must be refused) is left to it.  A batch crosses into C four
times: to plan which tables are needed, to make their moves, to add these up, and to read off b and the
swings.  Between them hidden components and marginals are summed here, and all logarithms are taken here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.compiled import kernel
from quiltdp.errors import InvalidModel, ModelTooWide
from quiltdp.inference.marginals import extended_log_marginals
from quiltdp.inference.moves import BIG, Moves
from quiltdp.inference.packing import Asked, Group, Ints, begins, packed_model, starts
from quiltdp.inference.plan import (
    BATCH_ENTRIES,
    BATCH_NODES,
    BATCH_TABLES,
    MANY_PIECES,
    MOST_NEARBY,
    SMALL_BATCH,
    Limits,
)
from quiltdp.inference.region import QuiltLike
from quiltdp.inference.tables import LogTable, aligned
from quiltdp.inference.trees import barriers_around
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import EPS

__all__ = ["Batch", "Reading", "swings_of_many"]

SLOT, COMPONENT, KEPT = 40, 16, 5  # as in quilts.h

Reading: TypeAlias = tuple[int, tuple[str, ...], bool, float, float, float, list[float], int, "int | None"]
"""Of one quilt: its place, target and nearby records, whether its moves are exact; b, swing, an upper bound
of it; the same by the number of known records, then for every known set; the set where the swing is attained,
the place in the moves where b is."""


class _Found(NamedTuple):
    """The moves of some quilts, and where ln P(x, l) of each begins (-1: not known)."""

    ready: NDArray[np.bool_]
    moves: Table
    moves_at: Ints
    logs: Table
    logs_at: Ints
    errors: Table


class _Planned(NamedTuple):
    """Of every quilt a line, and the tables and hidden components they name, one row each."""

    line_at: Ints
    line: Ints
    slot: Ints
    comp: Ints


class _Tables(NamedTuple):
    """Where the tables of factors and of components are, and those of slots that are given (else 0)."""

    source: Ints
    largest: int
    sizes: Table
    errors: Table
    scopes: list[list[int]]  # of the components
    given: Ints
    wide: list[int]  # components whose tables must not be made
    arrays: list[Table]  # what the addresses point to


def _address(array: Table) -> int:
    """Return where a contiguous table is in memory, as long as it is kept."""
    return int(array.__array_interface__["data"][0])


def _as_in_memory(table: LogTable) -> LogTable:
    """Return a table with its axes in the order in which they lie in memory."""
    steps = table.array.strides
    order = sorted(range(len(steps)), key=lambda k: -steps[k])
    return table._replace(scope=tuple([table.scope[k] for k in order]), array=table.array.transpose(order))


_NOTHING = LogTable((), np.zeros(()))


def _call(name: str, *arguments: Any) -> bool:
    """Call a kernel; return whether it asks for more room."""
    function = kernel(name)
    assert function is not None
    told = function(*arguments)
    if told == -2:
        raise MemoryError
    return told == -1


class Batch:
    """Quilts of one model, numbered, and what C makes of them.

    Parameters
    ----------
    joint
        The joint of a tiny model, if quilts are read off it.
    influences
        Whether b is asked for, and not the swings alone.
    """

    def __init__(
        self,
        moves: Moves,
        quilts: Sequence[QuiltLike],
        exact_support: bool,
        joint: LogTable | None,
        *,
        influences: bool = True,
    ) -> None:
        self._space = moves.space
        self._moves = moves
        self._tables = moves.tables
        self._limits = moves.limits
        self._joint = joint
        self._influences = influences
        self._walls = exact_support and self._tables.has_zeros and joint is None
        self._exact = exact_support or not self._tables.has_zeros
        self._model = packed_model(self._space)
        self._states = np.array(self._model.states, dtype=np.int64)
        self._records = frozenset(self._space.model.records)
        self._latent = len(self._records) < len(self._model.names)
        self._groups: list[Group] = []
        self._places: list[int] = []
        self._targets: list[str] = []
        self._group_of: list[int] = []
        self._gather(quilts)

    @classmethod
    def of(
        cls, moves: Moves, quilts: Sequence[QuiltLike], exact_support: bool, joint: LogTable | None
    ) -> Batch | None:
        """Return a batch, or None where there are no kernels or it would not pay."""
        return cls(moves, quilts, exact_support, joint) if cls.pays(moves, len(quilts)) else None

    @staticmethod
    def pays(moves: Moves, count: int) -> bool:
        """Return whether there are kernels, and so many quilts are worth the packing."""
        few = count < SMALL_BATCH or len(moves.space.model.nodes) > BATCH_NODES * count
        return not few and kernel("qd_quilt_plan") is not None

    # -- which quilts ----------------------------------------------------------------------------

    def _gather(self, quilts: Sequence[QuiltLike]) -> None:
        """Sort the quilts by closed set; leave out those that must be looked at one by one."""
        number, records = self._model.number, self._records
        found: dict[Any, int] = {}
        places, targets, group_of, groups = self._places, self._targets, self._group_of, self._groups
        for k, quilt in enumerate(quilts):
            target, nearby, separator = quilt.target, quilt.nearby, quilt.separator
            if type(nearby) is not frozenset or target in nearby:
                continue
            closed = nearby | {target}
            key = closed if target in records else (closed, target)
            own = found.get(key)
            if own is None:
                known = closed <= number.keys()
                own = found[key] = self._add_group(closed, target) if known else -1
            if own >= 0 and groups[own].separator == separator:
                places.append(k)
                targets.append(target)
                group_of.append(own)

    def _add_group(self, closed: frozenset[str], target: str) -> int:
        """Return the number of a new closed set, -1 if its separator tells nothing."""
        separator = self._tables.boundary(closed)
        if not separator:
            return -1
        records = closed & self._records if self._latent else closed
        if target not in records:
            records |= {target}
        walls: tuple[LogTable, ...] = ()
        exact = self._exact
        if self._walls:
            walls, exact = barriers_around(
                self._space, closed, separator, max_nodes=self._limits.support_nodes
            )
        self._groups.append(Group(closed, separator, tuple(sorted(records)), walls, exact))
        return len(self._groups) - 1

    # -- reading them off ------------------------------------------------------------------------

    def readings(self) -> Iterator[Reading]:
        """Yield what is read off the quilts, as many at a time as there is room for."""
        parts = [slice(0, len(self._places))] if self._places else []
        while parts:
            part = parts.pop()
            asked = Asked(self._model, self._groups, self._targets[part], self._group_of[part])
            try:
                found = self._off_joint(asked) if self._joint is not None else self._by_pieces(asked)
            except ModelTooWide:
                continue
            if found is None:
                half = (part.start + part.stop) // 2
                parts += [slice(half, part.stop), slice(part.start, half)]
            else:
                yield from self._read(part.start, asked, found)

    def _fits(self, entries: int, quilts: int) -> bool:
        """Return whether so many numbers are made at once; a single quilt has its own limits."""
        if entries > BATCH_ENTRIES and quilts > 1:
            return False
        self._space.guard.check(planned_bytes=8 * entries)
        return True

    def _off_joint(self, asked: Asked) -> _Found | None:
        """Return the moves read off the joint of a tiny model; None if they are too many at once."""
        law, limits, states = self._joint, self._limits, self._states
        assert law is not None
        own, begins = states[asked.nodes], asked.nodes_at[:-1]
        widths = np.multiply.reduceat(states[asked.separators], asked.separators_at[:-1])
        fits = asked.entries * np.maximum(np.maximum.reduceat(own, begins), widths) <= limits.together
        fits &= (asked.axes - 1 <= MOST_NEARBY) & (2 ** (asked.axes - 1) <= limits.known_sets)
        ready = fits[asked.group] & (states[asked.target] > 1)
        sizes, masses = np.where(ready, asked.moves, 0), np.where(fits, asked.entries, 0)
        if not self._fits(int(sizes.sum() + masses.sum()), len(ready)):
            return None
        masses_at, moves_at = starts(masses), starts(sizes)
        logs, moves = np.zeros(int(masses.sum())), np.zeros(int(sizes.sum()))
        place = {n: k for k, n in enumerate(law.scope)}
        _call(
            "qd_joint_quilts",
            *(self._model.net, asked.packed, np.ascontiguousarray(law.array)),
            np.array([place[n] for n in self._model.names], dtype=np.int64),
            np.array(law.array.shape, dtype=np.int64),
            int((masses * widths).max(initial=1)),
            *(np.where(fits, masses_at, -1), logs, moves_at, moves),
        )
        with np.errstate(divide="ignore"):
            logs, moves = np.log(logs), np.minimum(np.log(moves), BIG)
        summed = law.array.size / np.multiply.reduceat(own, begins) + np.add.reduceat(own, begins)
        errors = (2 * (law.error + EPS * (summed + 1 + 2 * law.size)))[asked.group]
        return _Found(ready, moves, moves_at, logs, masses_at[asked.group], errors)

    def _by_pieces(self, asked: Asked) -> _Found | None:
        """Return the moves as sums of those of factors and hidden components; None if too many at once."""
        planned = self._planned(asked)
        ready = planned.line[planned.line_at[:-1]] == 1
        sizes = np.where(ready, asked.moves, 0)
        parts = self._tables_of(planned, int(sizes.sum()), len(ready))
        if parts is None:
            return None
        if parts.wide:
            ready &= ~_reading(planned, parts.wide)
            sizes = np.where(ready, sizes, 0)
        slot_sizes = planned.slot[:, 3]
        slot_at, moves_at = starts(slot_sizes), np.where(ready, starts(sizes), -1)
        tables, moves = np.empty(int(slot_sizes.sum())), np.empty(int(sizes.sum()))
        net, errors = self._model.net, np.zeros(len(ready))
        _call(
            "qd_quilt_moves",
            *(net, len(planned.slot), planned.slot, parts.source),
            np.array(begins(parts.scopes), dtype=np.int64),
            np.array([*chain(*parts.scopes), 0], dtype=np.int64),
            *(parts.given, slot_at, parts.largest, tables),
        )
        walls = [w.array.ravel() for g in self._groups for w in g.walls]
        _call(
            "qd_quilt_sums",
            *(net, asked.packed, planned.line_at, planned.line, planned.slot, planned.comp, tables, slot_at),
            np.array(begins(walls), dtype=np.int64),
            np.concatenate([*walls, np.zeros(1)]),
            max(map(len, walls), default=1),
            *(parts.sizes, parts.errors, EPS, moves_at, moves, errors),
        )
        used = sorted(set(asked.group[ready].tolist())) if self._influences else []
        found = extended_log_marginals(self._space, [self._groups[g].nodes for g in used])
        laws = [found[self._groups[g].nodes] for g in used]
        lengths = np.array([0 if t is None else t.size for t in laws], dtype=np.int64)
        logs_at = np.full(len(self._groups), -1, dtype=np.int64)
        logs_at[used] = np.where(lengths > 0, starts(lengths), -1)
        logs = np.concatenate([np.zeros(0), *[t.ravel() for t in laws if t is not None]])
        return _Found(ready, moves, moves_at, logs, logs_at[asked.group], errors)

    def _planned(self, asked: Asked) -> _Planned:
        """Return which tables the quilts need, each once."""
        limits, quilts = self._limits, len(asked.target)
        widest = min(limits.component, limits.entries, limits.rays_from if limits.rays else limits.entries)
        allowed = np.array((limits.together, widest, limits.known_sets, MANY_PIECES), dtype=np.int64)
        room = BATCH_TABLES * quilts + 1
        while True:
            line, slot, comp = (np.empty(k * room, dtype=np.int64) for k in (8, SLOT, COMPONENT))
            counts, line_at = np.empty(2, dtype=np.int64), np.empty(quilts + 1, dtype=np.int64)
            if not _call(
                "qd_quilt_plan",
                *(self._model.net, asked.packed, allowed, counts, line_at),
                *(line, len(line), slot, room, comp, room),
            ):
                slots, comps = counts.tolist()
                made = (
                    slot[: SLOT * slots].reshape(-1, SLOT),
                    comp[: COMPONENT * comps].reshape(-1, COMPONENT),
                )
                return _Planned(line_at, line, *made)
            room = 4 * room

    def _tables_of(self, planned: _Planned, entries: int, quilts: int) -> _Tables | None:
        """Return the tables of factors and hidden components in a row; None if too many at once."""
        model, tables, names = self._model, self._tables, self._model.names
        hidden = [frozenset([names[n] for n in row[1 : 1 + row[0]]]) for row in planned.comp.tolist()]
        target, comp = planned.slot[:, 0], planned.slot[:, 2]
        moving = set(comp[(target >= 0) & (comp >= 0)].tolist())
        entries += sum([tables.entries(tables.boundary(hidden[c])) for c in moving])
        if not self._fits(int(planned.slot[:, 3].sum()) + entries, quilts):
            return None
        summed, wide = [_NOTHING] * len(hidden), []
        for c in sorted(moving):
            try:
                summed[c] = _as_in_memory(self._moves.summed(hidden[c], tables.near_set(hidden[c])))
            except ModelTooWide:
                wide.append(c)
        arrays = [t.array.ravel() for t in summed]
        given = np.zeros(len(comp), dtype=np.int64)
        for k in np.flatnonzero((target < 0) & (comp >= 0)).tolist():
            row = planned.slot[k].tolist()
            wall = self._wall(hidden[row[2]], tuple([names[n] for n in row[KEPT : KEPT + row[4]]]))
            arrays.append(wall.ravel())
            given[k] = _address(arrays[-1])
        for k in np.flatnonzero((target >= 0) & np.isin(comp, wide)).tolist() if wide else ():
            arrays.append(np.zeros(int(planned.slot[k, 3])))  # nobody will read it
            given[k] = _address(arrays[-1])
        logs, factors_at, sizes, errors = model.logs
        own = np.array([_address(a) for a in arrays[: len(summed)]], dtype=np.int64)
        return _Tables(
            np.concatenate([_address(logs) + logs.itemsize * factors_at, own]),
            max(len(logs), *map(len, arrays)) if arrays else len(logs),
            np.concatenate([sizes, [t.size for t in summed]]),
            np.concatenate([errors, [t.error for t in summed]]),
            [[model.number[n] for n in t.scope] for t in summed],
            given,
            wide,
            arrays,
        )

    def _wall(self, hidden: frozenset[str], kept: tuple[str, ...]) -> Table:
        """Return what hidden nodes that are next to no target forbid of others, every axis in full."""
        table = self._moves.table(self._moves.piece(hidden, ()), (), kept).table
        full = aligned((table.scope, table.array), kept)
        return np.ascontiguousarray(np.broadcast_to(full, [self._tables.states(n) for n in kept]))

    def _read(self, first: int, asked: Asked, found: _Found) -> Iterator[Reading]:
        """Yield b and the swings, read off the moves."""
        ready = found.ready
        counts = np.where(ready, asked.axes[asked.group] - 1, 0)
        sizes = np.where(ready, 4 + counts + 2**counts, 0)
        starts_at = starts(sizes)
        numbers, at = np.zeros(int(sizes.sum())), np.zeros(2 * len(ready), dtype=np.int64)
        _call(
            "qd_quilt_read",
            *(self._model.net, asked.packed, found.moves, np.where(ready, found.moves_at, -1)),
            *(found.logs, found.logs_at, found.errors),
            int(asked.entries[asked.group[ready]].max(initial=1)),
            *(starts_at, numbers, at),
        )
        if np.isnan(numbers).any():
            raise InvalidModel("a quilt came out with NaN: each of its numbers is ≥ 0 or ∞")
        told, places = numbers.tolist(), at.tolist()
        every = zip(ready.tolist(), starts_at.tolist(), sizes.tolist(), strict=True)
        for k, (read, begin, size) in enumerate(every, first):
            if read:
                group, at_k = self._groups[self._group_of[k]], 2 * (k - first)
                b, swing, upper, *rest = told[begin : begin + size]
                b_at = places[at_k + 1]
                yield (
                    self._places[k],
                    group.nodes,
                    group.exact,
                    b,
                    swing,
                    upper,
                    rest,
                    places[at_k],
                    None if b_at < 0 else b_at,
                )


def _reading(planned: _Planned, components: Sequence[int]) -> NDArray[np.bool_]:
    """Return which quilts read tables of some components."""
    theirs = np.isin(planned.slot[:, 2], components)
    found = np.zeros(len(planned.line_at) - 1, dtype=bool)
    for q, (start, end) in enumerate(pairwise(planned.line_at.tolist())):
        line = planned.line[start:end]
        if line[0] == 1:
            slots = line[4 + line[1] + line[2 + line[1]] :]
            found[q] = theirs[slots].any()
    return found


def swings_of_many(
    workspace: Workspace, quilts: Sequence[QuiltLike], limits: Limits
) -> dict[int, list[float]]:
    """Return s(C, L), rounded up, of those quilts that compiled loops can look at, by their places.

    The sets L come in the order of an array of shape (2, 2, …), one axis per nearby record in the order of
    names: entry 0 of an axis means known.
    """
    moves = Moves(workspace, limits)
    if not Batch.pays(moves, len(quilts)):
        return {}
    batch = Batch(moves, quilts, True, None, influences=False)
    return {reading[0]: reading[6][len(reading[1]) :] for reading in batch.readings()}

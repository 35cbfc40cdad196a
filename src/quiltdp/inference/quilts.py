"""b and the swings of quilts: exact, from factor tables.

The published influence and the swing of a quilt are maxima over every subset L of the nearby
records and every assignment.  They are read off its moves (:mod:`quiltdp.inference.region`; in tiny models
:mod:`quiltdp.inference.joint`): on extended axes a record is known at its own entries and not known at the
last one, so the largest entry over the first ones and the last one are all that is left of an axis.  The
tables of many quilts are made together, and moves of one shape read off together.  In workers each one
keeps the tables of the model for its next target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, option
from quiltdp.inference.batch import Batch
from quiltdp.inference.joint import JointQuilts, joint_entries, joint_law
from quiltdp.inference.marginals import extended_log_marginals, log_marginal
from quiltdp.inference.moves import BIG, Moves, Wanted, both_ways, finite, pair_odds, subsets
from quiltdp.inference.plan import MAX_ENTRIES, OFF_JOINT, TOGETHER, UNTOLD, Limits, QuiltPlan
from quiltdp.inference.region import (
    Assignment,
    QuiltInfluence,
    QuiltLike,
    Region,
    Witness,
    Witnesses,
)
from quiltdp.inference.tables import LogTable
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import above, above_array

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["plan_quilt", "quilt_influence", "quilt_influences", "swings"]

_LIMITS = Limits()


def quilt_influence(
    model: Model,
    quilt: QuiltLike,
    *,
    exact_support: bool = True,
    rays: bool = False,
    max_entries: int = MAX_ENTRIES,
    max_known_sets: int = _LIMITS.known_sets,
    max_support_nodes: int = _LIMITS.support_nodes,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> QuiltInfluence:
    """Return b, the swing, the swing for every known set, and the values that attain them.

    ::

        b    = max_L I(X_Q ⇝ X_i | X_L)
        s(L) = max ln [P(x_Q|x,l) P(x_Q'|x',l)] / [P(x_Q|x',l) P(x_Q'|x,l)]      (swing = max_L s(L))

    over the subsets L of the nearby *records*.  Values impossible in the full model are skipped.  If
    the rest of the model is too wide to know its zeros (or ``exact_support=False``), they are left
    out of account: the numbers are then upper bounds and ``exact`` is False.  Likewise b falls back
    to the swing, which is never smaller, where no marginal of the nearby records can be had, and a
    hidden node with too many neighbours for a table is maximised instead of summed.

    Parameters
    ----------
    quilt
        Anything with ``target``, ``separator`` and ``nearby``.
    rays
        Compare extreme rays (:mod:`quiltdp.inference.rays`) where a hidden node has too many neighbours
        for a table: exact, and slow for nodes of many states.
    max_known_sets, max_entries, max_support_nodes
        Limits on the sets L, on one table, and on the nodes whose zeros are looked at.
    limits
        All of them at once, instead of the four before.
    workspace
        Keeps what other quilts of the model can use.

    Raises
    ------
    ModelTooWide
        If there are more than ``max_known_sets`` sets L, or a table of the quilt itself is too large.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9)
    >>> g = qd.moralize(m)
    >>> blanket = next(iter(qd.quilts(g, "X4", max_nearby=0)))
    >>> qi = qd.quilt_influence(m, blanket)
    >>> round(qi.swing, 6), round(qi.b, 6), qi.exact     # 4 ln 9 and 2 ln 9
    (8.788898, 4.394449, True)
    """
    if limits is None:
        limits = Limits(max_entries, max_known_sets, max_support_nodes, rays=rays)
    (found,) = quilt_influences(
        model, [quilt], exact_support=exact_support, limits=limits, workspace=workspace
    )
    return found


def quilt_influences(
    model: Model,
    quilts: Iterable[QuiltLike],
    *,
    exact_support: bool = True,
    rays: bool = False,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
    executor: Executor | None = None,
) -> tuple[QuiltInfluence, ...]:
    """Return :func:`quilt_influence` of many quilts of one model: tables are shared between them.

    Quilts whose moves have the same shape are read off together.  A quilt that is refused ends the
    call.  With an ``executor`` targets are looked at there, with the same numbers: it pays where the
    quilts take seconds.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9)
    >>> g = qd.moralize(m)
    >>> [round(qi.swing, 3) for qi in qd.quilt_influences(m, qd.quilts(g, "X4", max_nearby=1))]
    [8.789, 7.427, 7.427, 0.0]
    """
    chosen = limits if limits is not None else Limits(rays=rays)
    if executor is not None:
        from quiltdp.inference.quilts_elsewhere import by_target

        return by_target(model, quilts, executor, exact_support=exact_support, limits=chosen)
    space = workspace if workspace is not None else Workspace(model)
    asked = list(quilts)
    law = joint_law(space, chosen.joint) if exact_support else None
    shared = Moves(space, chosen)
    found = dict(_compiled(shared, asked, exact_support, law))
    if len(found) < len(asked):
        left = {k: q for k, q in enumerate(asked) if k not in found}
        found.update(_in_numpy(shared, left, exact_support, law))
    return tuple([found[k] for k in range(len(found))])


def _compiled(
    shared: Moves, quilts: Sequence[QuiltLike], exact_support: bool, law: LogTable | None
) -> Iterator[tuple[int, QuiltInfluence]]:
    """Yield the numbers of those quilts that compiled loops can look at, with their places."""
    batch = Batch.of(shared, quilts, exact_support, law)
    if batch is None:
        return
    common = (ref(shared.space), shared.space.model, shared.limits, None)
    for k, nodes, exact, b, swing, upper, rest, best, at in batch.readings():
        q = quilts[k]
        later = partial(_later, common, (q.target, q.nearby, q.separator, nodes, exact), rest, best, at)
        yield k, QuiltInfluence.trusted(b, swing, upper, exact and at is not None, later)


def _in_numpy(
    shared: Moves, quilts: Mapping[int, QuiltLike], exact_support: bool, law: LogTable | None
) -> dict[int, QuiltInfluence]:
    """Return the numbers of quilts by their places."""
    space, chosen = shared.space, shared.limits
    joint = None if law is None else JointQuilts(space, law, chosen)
    found: dict[int, QuiltInfluence] = {}
    readings: dict[int, _Reading] = {}
    regions: dict[int, Region] = {}
    alike: dict[tuple[int, ...], list[tuple[int, LogTable]]] = {}
    for k, quilt in quilts.items():
        target, nearby, separator = quilt.target, quilt.nearby, quilt.separator
        if joint is not None:
            records = joint.take(k, target, nearby, separator)
            if records is not None:
                readings[k] = (target, nearby, separator, records, True)
                continue
        region = Region(
            space, (target,), nearby, separator, chosen, exact_support=exact_support, moves=shared
        )
        way = region.way
        if way == UNTOLD:
            found[k] = _nothing_told(region)
            continue
        _check_known_sets(region)
        if way == TOGETHER:
            regions[k] = region
        else:
            found[k] = _one_by_one(region)
    for k, moves in _together(regions):
        if moves is None:
            found[k] = _one_by_one(regions[k])
        else:
            region = regions[k]
            readings[k] = (region.targets[0], region.nearby, region._separator, region.records, region.exact)
            alike.setdefault(moves.array.shape, []).append((k, moves))
    reader = _Reader(space, chosen, readings)
    if joint is not None:
        for places, array, logs, error in joint.ready():
            found.update(reader.read(places, array, np.full(len(places), error), logs))
    for group in alike.values():
        places = [k for k, _ in group]
        stack = np.stack([m.array for _, m in group])
        errors = np.array([m.error for _, m in group])
        found.update(reader.read(places, stack, errors, reader.state_logs(places)))
    return found


def plan_quilt(
    model: Model,
    quilt: QuiltLike,
    *,
    exact_support: bool = True,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> QuiltPlan:
    """Return how the numbers of a quilt will be found, and how large its tables are, before any work.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=99)
    >>> quilt = next(q for q in qd.quilts(qd.moralize(m), "X4") if q.nearby == {"X5"})
    >>> print(plan_quilt(m, quilt))
    quilt of {X4}: separator of 2, 1 nearby records, 2 known sets
    way       all known sets together: 6 entries
    support   no zeros
    shared    {}
    factor          {} next to {X3, X4}: 4
    factor          {} next to {X4, X5}: 4
    summed out      {X5} next to {X4, X6}: 4
    """
    space = workspace if workspace is not None else Workspace(model)
    chosen = limits if limits is not None else _LIMITS
    region = Region(
        space, (quilt.target,), quilt.nearby, quilt.separator, chosen, exact_support=exact_support
    )
    entries = joint_entries(model, chosen.joint)
    if entries is not None and exact_support and region.way == TOGETHER:
        return replace(region.plan, way=OFF_JOINT, entries=entries, parts=())
    return region.plan


def swings(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    known_sets: Iterable[Collection[str]] | None = None,
    exact_support: bool = True,
    max_entries: int = MAX_ENTRIES,
    max_known_sets: int = _LIMITS.known_sets,
    max_support_nodes: int = _LIMITS.support_nodes,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> Mapping[frozenset[str], float]:
    """Return s_T(C, L), rounded up, for every set L of nearby records (or the given ones).

    T = ``targets`` is a protected unit with joint state x_T; a single record is the case |T| = 1.
    On a model of positive tables nothing outside C ∪ Q is touched.

    Raises
    ------
    ModelTooWide
        If there are too many sets L, or a table of the region itself is too large.
    """
    if isinstance(targets, str) or not targets:
        raise InvalidArgument("targets must name at least one node")
    chosen = limits if limits is not None else Limits(max_entries, max_known_sets, max_support_nodes)
    space = workspace if workspace is not None else Workspace(model)
    region = Region(space, tuple(targets), nearby, separator, chosen, exact_support=exact_support)
    if known_sets is None:
        _check_known_sets(region)
        moves = region.together() if region.way == TOGETHER else None
        if moves is not None:
            upper = above_array(_largest(moves.array[None]), np.array([2 * moves.error]))
            return dict(zip(_known_sets(region.records), upper[0].tolist(), strict=True))
        wanted = [tuple(k) for k in subsets(region.records)]
    else:
        wanted = [tuple(sorted(k)) for k in known_sets]
        for k in wanted:
            if not set(region.records).issuperset(k):
                raise InvalidArgument(f"the known set {list(k)} has a node that is no nearby record")
    if region.way == UNTOLD:
        return dict.fromkeys(map(frozenset, wanted), 0.0)
    return {frozenset(k): above(*_swing(region, k)) for k in wanted}


# -- one quilt ----------------------------------------------------------------------------------


def _nothing_told(region: Region) -> QuiltInfluence:
    """Return the influence of an empty separator: exactly 0 for every known set."""
    few = 2 ** len(region.records) <= region.limits.known_sets
    zeros = dict.fromkeys(_known_sets(region.records), 0.0) if few else {}
    return QuiltInfluence(0.0, 0.0, 0.0, True, (0.0,) * (len(region.records) + 1), zeros)


def _check_known_sets(region: Region) -> None:
    count, limit = len(region.records), region.limits.known_sets
    if 2**count > limit:
        raise ModelTooWide(
            f"the quilt of {', '.join(region.targets)} has {count} nearby records, 2^{count} sets an"
            f" adversary may know, over the limit of {limit}",
            "take a smaller quilt",
            f"raise {option('max_known_sets')}",
        )


def _swing(region: Region, known: Sequence[str]) -> tuple[float, float]:
    """Return s(C, L) and a bound on its rounding error."""
    if not region.explicit(known):
        value, error = region.eliminated_swing(known)
        return finite(value), error
    moves = region.given(known)
    return finite(float(both_ways(moves.array).max())), 2 * moves.error


def _one_by_one(region: Region) -> QuiltInfluence:
    """Return the numbers of a quilt, one known set after the other."""
    b, b_at = -1.0, None
    lengths = (2,) * (1 + len(region.records))  # as if on extended axes of one state each
    sets = list(subsets(region.records))
    values, errors = [], []
    marginals = all(map(region.explicit, sets))
    for known in sets:
        value, error = _swing(region, known)
        values.append(value)
        errors.append(error)
        if marginals:
            try:
                ratio = finite(float((region.given(known).array - _odds(region, known)).max()))
            except ModelTooWide:
                marginals = False
                continue
            if ratio > b:
                place = [0, *[int(n not in known) for n in region.records]]
                b, b_at = ratio, int(np.ravel_multi_index(place, lengths))
    upper = [above(v, e) for v, e in zip(values, errors, strict=True)]
    swing = max(values)
    best = sets[values.index(swing)]
    swing_at = int("".join(["0", *["0" if n in best else "1" for n in region.records]]), 2)
    sizes = range(len(region.records) + 1)
    shared = (ref(region.space), region.space.model, region.limits, lengths)
    reading = (region.targets[0], region.nearby, region._separator, region.records, region.exact)
    return QuiltInfluence(
        min(b, swing) if marginals else swing,
        swing,
        max(upper),
        region.exact and marginals,
        tuple([max(u for u, k in zip(upper, sets, strict=True) if len(k) == size) for size in sizes]),
        dict(zip(map(frozenset, sets), upper, strict=True)),
        partial(_witnesses, shared, reading, swing_at, b_at if marginals else None),
    )


def _odds(region: Region, known: Sequence[str]) -> Table:
    """Return ln P(x, l) − ln P(x', l) with these records known."""
    table = log_marginal(region.space.model, (*region.targets, *known), workspace=region.space)
    return pair_odds(table.reshape(-1, *table.shape[len(region.targets) :]))


# -- many quilts at once --------------------------------------------------------------------------


def _together(regions: Mapping[int, Region]) -> Iterator[tuple[int, LogTable | None]]:
    """Yield the moves of every known set of each region; their tables are made together, each once."""
    if not regions:
        return
    slots: dict[Wanted, int] = {}
    wanted = [[slots.setdefault(w, len(slots)) for w in r.wanted] for r in regions.values()]
    tables = next(iter(regions.values())).moves.tables_of(list(slots))
    for (k, region), own in zip(regions.items(), wanted, strict=True):
        yield k, region.together([tables[slot] for slot in own])


_Reading: TypeAlias = tuple[str, frozenset[str], frozenset[str], tuple[str, ...], bool]
"""Target, nearby, separator, nearby records (with the target or without), whether the moves are exact."""


class _Reader:
    """Reads off the moves of quilts that have the same shape."""

    def __init__(self, space: Workspace, limits: Limits, readings: Mapping[int, _Reading]) -> None:
        self._space = space
        self._limits = limits
        self._readings = readings

    def state_logs(self, places: Sequence[int]) -> list[Table | None]:
        """Return ln P(x, l) of every quilt, None where no marginal can be had."""
        logs: list[Table | None] = []
        for k in places:
            target, _, _, records, _ = self._readings[k]
            nodes = tuple(sorted((target, *records)))
            table = self._marginals[nodes]
            if table is not None:
                axis = nodes.index(target)
                if axis:
                    table = table.transpose((axis, *[j for j in range(len(nodes)) if j != axis]))
                table = table[:-1]
            logs.append(table)
        return logs

    @cached_property
    def _marginals(self) -> Mapping[tuple[str, ...], Table | None]:
        sets = [tuple(sorted((target, *records))) for target, _, _, records, _ in self._readings.values()]
        return extended_log_marginals(self._space, sets)

    def read(
        self, places: Sequence[int], stack: Table, errors: Table, logs: Table | Sequence[Table | None]
    ) -> Iterator[tuple[int, QuiltInfluence]]:
        """Yield the numbers of quilts with their places."""
        values = _largest(stack)
        upper = above_array(values, 2 * errors[:, None])
        order, begins = _by_size(stack.ndim - 2)
        by_known = np.maximum.reduceat(upper[:, order], begins, axis=1)
        swings, worst = values.max(axis=1), upper.max(axis=1)
        b, where = _influences(stack, logs)
        b = np.minimum(b, swings)  # b ≤ swing always: it stands in for a b that is too wide to know
        if np.isnan(b).any() or np.isnan(worst).any():
            raise InvalidModel("a quilt came out with NaN: each of its numbers is ≥ 0 or ∞")
        columns = (b, swings, worst, by_known, upper, values.argmax(axis=1))
        shared = (ref(self._space), self._space.model, self._limits, stack.shape[1:])
        readings = self._readings
        for k, at, b_at, swing, most, by_size, row, best in zip(
            places, where, *[c.tolist() for c in columns], strict=True
        ):
            reading = readings[k]
            later = partial(_later, shared, reading, [*by_size, *row], best, at)
            yield k, QuiltInfluence.trusted(b_at, swing, most, reading[4] and at is not None, later)


def _by_size(count: int) -> tuple[list[int], list[int]]:
    """Return the places of the known sets of so many records by size, and where each size begins."""
    sizes = [count - entry.bit_count() for entry in range(2**count)]
    order = sorted(range(2**count), key=sizes.__getitem__)
    return order, list(itertools.accumulate([math.comb(count, k) for k in range(count)], initial=0))


def _known_sets(records: Sequence[str]) -> list[frozenset[str]]:
    """Return the known sets in the order of an array of shape (2, 2, …): entry 0 of an axis means known."""
    sets = [frozenset[str]()]
    for n in records:
        one = frozenset((n,))
        sets = [made for s in sets for made in (s | one, s)]
    return sets


def _later(
    shared: _Shared, reading: _Reading, upper: Sequence[float], swing_at: int, b_at: int | None
) -> dict[str, Any]:
    """Return what few ask for: upper bounds by number of known records and by known set, and witnesses."""
    target, nearby, separator, nodes, exact = reading
    records = tuple([n for n in nodes if n != target])
    sizes = len(records) + 1
    return {
        "swing_by_known": tuple(upper[:sizes]),
        "swing_of": MappingProxyType(dict(zip(_known_sets(records), upper[sizes:], strict=True))),
        "find": partial(_witnesses, shared, (target, nearby, separator, records, exact), swing_at, b_at),
    }


def _largest(stack: Table) -> Table:
    """Return the swings of every known set, one row per quilt, from moves with extended axes."""
    half = stack.shape[1] // 2
    both = stack[:, :half] + stack[:, half:]
    largest = both[:, 0] if half == 1 else np.maximum.reduce(both, axis=1)
    for axis, length in enumerate(largest.shape[1:], 1):
        largest = np.maximum.reduceat(largest, (0, length - 1), axis=axis)
    values = np.maximum(largest.reshape(len(stack), -1), 0.0)
    values[values >= BIG / 2] = np.inf
    return values


def _influences(stack: Table, logs: Table | Sequence[Table | None]) -> tuple[Table, list[int | None]]:
    """Return b of every quilt and the place in its moves where it is attained, if a marginal can be had."""
    known = [k for k, table in enumerate(logs) if table is not None]
    if not known:
        return np.full(len(stack), np.inf), [None] * len(stack)
    whole = len(known) == len(stack)
    laws = logs if isinstance(logs, np.ndarray) else np.stack([t for t in logs if t is not None])
    ratios = (stack if whole else stack[known]) - pair_odds(laws, axis=1)
    ratios = ratios.reshape(len(ratios), -1)
    values, places = np.maximum(ratios.max(axis=1), 0.0), ratios.argmax(axis=1).tolist()
    values[values >= BIG / 2] = np.inf
    if whole:
        return values, places
    b: Table = np.full(len(stack), np.inf)
    where: list[int | None] = [None] * len(stack)
    b[known] = values
    for k, place in zip(known, places, strict=True):
        where[k] = place
    return b, where


# -- witnesses ------------------------------------------------------------------------------------

_Shared: TypeAlias = tuple["ref[Workspace]", Model, Limits, "tuple[int, ...] | None"]
"""Workspace (not kept alive for that), model, limits, and the shape of the moves (None: of all records)."""


def _witnesses(shared: _Shared, reading: _Reading, swing_at: int, b_at: int | None) -> Witnesses:
    """Return the values that attain the swing (of a known set, by its place) and b, where they are exact."""
    space, model, limits, shape = shared
    target, nearby, separator, records, exact = reading
    if not exact:
        return None, None
    kept = space()
    region = Region(kept if kept is not None else Workspace(model), (target,), nearby, separator, limits)
    unknown = zip(records, format(swing_at, f"0{len(records)}b"), strict=False)
    swing = region.swing_at([n for n, bit in unknown if bit == "0"])
    b = None
    if b_at is not None:
        if shape is None:
            states = region.moves.tables.states
            shape = (region.states * (region.states - 1), *[1 + states(n) for n in region.records])
        _, *index = np.unravel_index(b_at, shape)
        known = [n for n, k, most in zip(region.records, index, shape[1:], strict=True) if k < most - 1]
        b = region.attained(known, region.given(known).array - _odds(region, known))
    return (
        None if swing is None else _witness(region, *swing, both=True),
        None if b is None else _witness(region, *b, both=False),
    )


def _witness(region: Region, pair: int, known: Mapping[str, int], *, both: bool) -> Witness:
    model = region.space.model
    x, y = region.target_values(pair)
    there = None
    if both:
        there = _named(model, region.separator_values(known, region.reversed_pair(pair)))
    return Witness(
        _named(model, known),
        _named(model, x),
        _named(model, y),
        _named(model, region.separator_values(known, pair)),
        there,
    )


def _named(model: Model, values: Mapping[str, int]) -> Assignment:
    """Return the nodes with the names of their states."""
    return tuple((n, model.states[n][k]) for n, k in values.items())


# -- in workers -----------------------------------------------------------------------------------

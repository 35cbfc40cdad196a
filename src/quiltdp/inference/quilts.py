"""b and the swings of quilts: exact, from factor tables, never from a joint.

The published influence and the swing of a quilt are maxima over every subset L of the nearby
records and every assignment.  They are read off its moves (:mod:`quiltdp.inference.region`): on extended
axes a record is known at its own entries and not known at the last one, so the largest entry over the first
ones and the last one are all that is left of an axis.  Quilts whose moves have the same shape are read
off together.  In workers each one keeps the tables of the model for its next target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.marginals import log_marginal, state_log_marginals
from quiltdp.inference.moves import BIG, ComponentTooWide, both_ways, finite, pair_odds, subsets
from quiltdp.inference.plan import MAX_ENTRIES, TOGETHER, UNTOLD, Limits, QuiltPlan
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
    call.  With an ``executor`` targets are looked at there, with the same numbers.

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
        return _by_target(model, quilts, executor, exact_support=exact_support, limits=chosen)
    space = workspace if workspace is not None else Workspace(model)
    found: dict[int, QuiltInfluence] = {}
    alike: dict[tuple[int, ...], list[_Reading]] = {}
    for k, quilt in enumerate(quilts):
        region = Region(
            space, (quilt.target,), quilt.nearby, quilt.separator, chosen, exact_support=exact_support
        )
        way = region.way
        if way == UNTOLD:
            found[k] = _nothing_told(region)
            continue
        _check_known_sets(region)
        moves = _together(region) if way == TOGETHER else None
        if moves is not None:
            alike.setdefault(moves.array.shape, []).append(_Reading(k, region, moves))
        else:
            found[k] = _one_by_one(region)
    for group in alike.values():
        found.update(_read(group))
    return tuple([found[k] for k in range(len(found))])


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
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9)
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
        moves = _together(region) if region.way == TOGETHER else None
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


def _together(region: Region) -> LogTable | None:
    """Return the moves of every known set, None if a hidden component is too large for that."""
    try:
        return region.together()
    except ComponentTooWide:
        return None


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
                lengths = tuple([2] * (1 + len(region.records)))  # as if on extended axes of one state each
                place = [0, *[int(n not in known) for n in region.records]]
                b, b_at = ratio, (int(np.ravel_multi_index(place, lengths)), lengths)
    upper = [above(v, e) for v, e in zip(values, errors, strict=True)]
    swing = max(values)
    sizes = range(len(region.records) + 1)
    return QuiltInfluence(
        min(b, swing) if marginals else swing,
        swing,
        max(upper),
        region.exact and marginals,
        tuple([max(u for u, k in zip(upper, sets, strict=True) if len(k) == size) for size in sizes]),
        dict(zip(map(frozenset, sets), upper, strict=True)),
        _finder(region, frozenset(sets[values.index(swing)]), b_at if marginals else None),
    )


def _odds(region: Region, known: Sequence[str]) -> Table:
    """Return ln P(x, l) − ln P(x', l) with these records known."""
    table = log_marginal(region.space.model, (*region.targets, *known), workspace=region.space)
    return pair_odds(table.reshape(-1, *table.shape[len(region.targets) :]))


# -- many quilts at once --------------------------------------------------------------------------


class _Reading(NamedTuple):
    """A quilt whose moves are ready to be read off, and its place among those asked for."""

    place: int
    region: Region
    moves: LogTable


def _known_sets(records: Sequence[str]) -> list[frozenset[str]]:
    """Return the known sets in the order of an array of shape (2, 2, …): entry 0 of an axis means known."""
    sets = [frozenset[str]()]
    for n in records:
        one = frozenset((n,))
        sets = [made for s in sets for made in (s | one, s)]
    return sets


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


def _read(group: Sequence[_Reading]) -> dict[int, QuiltInfluence]:
    """Return the numbers of quilts whose moves have the same shape."""
    stack = np.stack([r.moves.array for r in group])
    values = _largest(stack)
    upper = above_array(values, 2 * np.array([[r.moves.error] for r in group]))
    influences = _influences(group, stack)
    count = stack.ndim - 2
    known = np.array([count - entry.bit_count() for entry in range(2**count)])
    by_known = np.stack([upper[:, known == size].max(axis=1) for size in range(count + 1)], axis=1)
    columns = (upper.tolist(), by_known.tolist(), values.max(axis=1).tolist(), values.argmax(axis=1).tolist())
    found: dict[int, QuiltInfluence] = {}
    for r, (b, where), row, most, swing, at in zip(group, influences, *columns, strict=True):
        sets = _known_sets(r.region.records)
        found[r.place] = QuiltInfluence(
            min(b, swing),  # b ≤ swing always: it stands in for a b that is too wide to know
            swing,
            max(row),
            r.region.exact and where is not None,
            tuple(most),
            dict(zip(sets, row, strict=True)),
            _finder(r.region, sets[at], None if where is None else (where, stack.shape[1:])),
        )
    return found


def _influences(group: Sequence[_Reading], stack: Table) -> list[tuple[float, int | None]]:
    """Return b of every quilt and the place in its moves where it is attained, if a marginal can be had."""
    logs: list[Table | None] = []
    for r in group:
        try:
            logs.append(state_log_marginals(r.region.space, r.region.targets, r.region.records))
        except ModelTooWide:
            logs.append(None)
    known = [k for k, table in enumerate(logs) if table is not None]
    found: list[tuple[float, int | None]] = [(math.inf, None)] * len(group)
    if known:
        chosen = stack if len(known) == len(group) else stack[known]
        ratios = chosen - pair_odds(np.stack([t for t in logs if t is not None]), axis=1)
        ratios = ratios.reshape(len(ratios), -1)
        at = ratios.argmax(axis=1).tolist()
        for k, a, b in zip(known, at, ratios.max(axis=1).tolist(), strict=True):
            found[k] = (finite(b), a)
    return found


# -- witnesses ------------------------------------------------------------------------------------


def _finder(
    region: Region, swing_known: frozenset[str], b_at: tuple[int, tuple[int, ...]] | None
) -> partial[Witnesses]:
    """Return what looks up the witnesses; the workspace is not kept alive for that."""
    quilt = (region.targets, region.nearby, region._separator, region.limits)
    return partial(_witnesses, ref(region.space), region.space.model, quilt, swing_known, b_at, region.exact)


def _witnesses(
    space: ref[Workspace],
    model: Model,
    quilt: tuple[tuple[str, ...], frozenset[str], frozenset[str], Limits],
    swing_known: frozenset[str],
    b_at: tuple[int, tuple[int, ...]] | None,
    exact: bool,
) -> Witnesses:
    """Return the values that attain the swing and b, where they are exact."""
    if not exact:
        return None, None
    kept = space()
    region = Region(kept if kept is not None else Workspace(model), *quilt)
    swing = region.swing_at(sorted(swing_known))
    b = None
    if b_at is not None:
        _, *index = np.unravel_index(*b_at)
        lengths = b_at[1][1:]
        known = [n for n, k, most in zip(region.records, index, lengths, strict=True) if k < most - 1]
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


class _Sets(NamedTuple):
    """A quilt as it is sent: its three sets of names, without the graph."""

    target: str
    separator: frozenset[str]
    nearby: frozenset[str]


class _Prepared:
    """The model and how its quilts are asked about, with what a worker has computed so far."""

    def __init__(self, model: Model, exact_support: bool, limits: Limits) -> None:
        self.model = model
        self.options: dict[str, Any] = {"exact_support": exact_support, "limits": limits}
        self.space = Workspace(model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the model, not what was computed here."""
        return _Prepared, (self.model, self.options["exact_support"], self.options["limits"])


def _by_target(
    model: Model, quilts: Iterable[QuiltLike], executor: Executor, *, exact_support: bool, limits: Limits
) -> tuple[QuiltInfluence, ...]:
    """Return b and the swings of every quilt, those of one target after another in one task."""
    plain = (_Sets(q.target, frozenset(q.separator), frozenset(q.nearby)) for q in quilts)
    parts = (tuple(group) for _, group in groupby(plain, key=lambda q: q.target))
    from quiltdp.parallel import each

    found = each(_of_target, parts, shared=_Prepared(model, exact_support, limits), executor=executor)
    return tuple(influence for part in found for influence in part)


def _of_target(prepared: _Prepared, part: tuple[_Sets, ...]) -> tuple[QuiltInfluence, ...]:
    return quilt_influences(prepared.model, part, workspace=prepared.space, **prepared.options)

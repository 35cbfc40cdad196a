"""Max-influence b and the swing of quilts: exact, from factor tables.

For targets T, known records L and separator Q, with x = x_T, x' = x_T' and l = x_L, let

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)      (up to a term that cancels);

    s(C, L) = max over x, x', l of  M(x, x', l) + M(x', x, l),
    b       = max over L, x, x', l of  M(x, x', l) − ln P(x, l) + ln P(x', l).

Observe L and Q: the log odds of x : x' are a sum of small tables.  The hidden nodes of C fall into connected
components; the log odds are the factors that hold a target and otherwise only observed nodes, plus each
component next to a target, summed out given its boundary.  What is next to no target cancels, but it may
forbid something.  The maximum over x_Q is max-sum elimination; the joint of Q is never made.  Beyond Q only
what is forbidden matters (:mod:`quiltdp.inference.trees`).

Without zeros only the known records next to a target, or to hidden nodes that are, enter the swing: sets L
with the same ones are computed once.  A hidden node with too many neighbours for a table is observed instead
of summed: Σ_k A_k / Σ_k B_k ≤ max_k A_k / B_k, an upper bound.

*On a path* (and in every tree, where C is a path) b is attained at L = ∅.  Given x the two sides are
independent; a known record cuts its side off, which leaves the ratio of the other side alone, and each side's
largest ratio is at least 1.  The same for the swing: no known set has a larger one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import combinations
from typing import TypeAlias
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.marginals import check_disjoint, log_marginal
from quiltdp.inference.plan import DIRECT_ENTRIES, JOINT_ENTRIES, MAX_ENTRIES, MOVE_BYTES, Limits
from quiltdp.inference.tables import (
    LogTable,
    aligned,
    best_assignment,
    factor_tables,
    log_ratio,
    log_sum,
    max_out,
    product,
    sum_out,
)
from quiltdp.inference.trees import barriers_around
from quiltdp.inference.witness import Assignment, QuiltInfluence, QuiltLike, Witness, Witnesses
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.interface import any_model
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS, plus_error

_NONE: frozenset[str] = frozenset()
_BIG = 1e150  # stands for +∞ inside sums, so that +∞ and −∞ never meet: −∞ (impossible) always wins
# The first axis of a table of log odds: the ordered pairs of joint states of the targets, first the pairs
# x < x', then the same pairs the other way round.
_PAIRS = "\0pairs"

_Part: TypeAlias = "int | frozenset[str]"
"""One table of the sum: a factor, by position, or hidden nodes that are summed out together."""


# -- any sets of nodes ------------------------------------------------------------------------------


@any_model
def max_influence(
    model: Model,
    *,
    of: str,
    on: Collection[str],
    given: Collection[str] = (),
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> float:
    """Return the conditional max-influence I(X_on ⇝ X_of | X_given).

    The largest ln P(x_on | x, x_given) / P(x_on | x', x_given) over all values and over pairs x, x'
    of the node that are both possible with x_given.  p/0 is ∞, 0/0 is skipped, impossible evidence
    is never conditioned on, and the influence on nothing is 0.  Exact in any network.

    Raises
    ------
    InvalidArgument
        If a node is unknown or in two of the sets.
    ModelTooWide
        If a table on the way would exceed ``max_entries``.

    References
    ----------
    Song, Wang and Chaudhuri (2017), Pufferfish privacy mechanisms for correlated data, definition 4.1.

    Examples
    --------
    >>> from quiltdp import Model, max_influence
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> round(max_influence(m, of="A", on=["B"]), 6)  # ln 0.8 / 0.1
    2.079442
    """
    check_disjoint(model, of=(of,), on=on, given=given)
    if not on:
        return 0.0
    space = workspace if workspace is not None else Workspace(model)
    seen, known = sorted(on), sorted(given)
    if math.prod(model.cardinality(n) for n in (of, *known, *seen)) <= JOINT_ENTRIES:
        with suppress(ModelTooWide):
            joint = log_marginal(model, (of, *known, *seen), max_entries=max_entries, workspace=space)
            return _influence_of_joint(joint, len(known))
    return _influence_by_elimination(space, of, seen, known, max_entries)


@any_model
def blanket_influence(
    model: Model, node: str, *, max_entries: int = MAX_ENTRIES, workspace: Workspace | None = None
) -> float:
    """Return a_i = b_i({i}): how strongly the Markov blanket of a node tells about it.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> round(blanket_influence(m, "X1"), 6)  # 2 ln 9
    4.394449
    """
    model.require([node])
    space = workspace if workspace is not None else Workspace(model)
    blanket = factor_tables(space).around(node) - {node}
    return max_influence(model, of=node, on=blanket, max_entries=max_entries, workspace=space)


def _influence_of_joint(joint: Table, known: int) -> float:
    """Return the influence from ln P with axes target, known…, seen…."""
    states, middle = joint.shape[0], math.prod(joint.shape[1 : 1 + known])
    table = joint.reshape(states, middle, -1)
    mass = log_sum((("x", "l", "q"), table), ("x", "l"))
    best = 0.0
    for x in range(states):
        largest = log_ratio(table[x], table).max(axis=-1)
        odds = log_ratio(mass[x], mass)
        possible = np.isfinite(odds)
        best = max(best, float((largest[possible] - odds[possible]).max(initial=0.0)))
    return best


def _influence_by_elimination(
    space: Workspace, of: str, on: Sequence[str], given: Sequence[str], max_entries: int
) -> float:
    """Return the influence by max-sum elimination: what is observed is the separator of what is not."""
    observed = frozenset((*on, *given))
    hidden = factor_tables(space).components(frozenset(space.model.nodes) - observed)
    nearby = next(part for part in hidden if of in part) - {of}
    region = _ClosedSet(space, (of,), nearby, observed, Limits(max_entries))
    if not region.told:
        return 0.0
    tables = [*region.given((), kept=given), region.prior(given)]
    if not region.exact:
        raise ModelTooWide(
            f"the influence of {of} on {len(on)} nodes needs a table of more than {max_entries:,} entries",
            f"raise {option('max_entries')}",
        )
    return region.largest(tables)[0]


# -- quilts -----------------------------------------------------------------------------------------

_LIMITS = Limits()


@any_model
def quilt_influence(
    model: Model,
    quilt: QuiltLike,
    *,
    max_entries: int = MAX_ENTRIES,
    max_known_sets: int = _LIMITS.known_sets,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> QuiltInfluence:
    """Return b, the swing, the swing for every known set, and the values that attain them.

    ::

        b    = max_L I(X_Q ⇝ X_i | X_L)
        s(L) = max ln [P(x_Q|x,l) P(x_Q'|x',l)] / [P(x_Q|x',l) P(x_Q'|x,l)]      (swing = max_L s(L))

    over the subsets L of the nearby *records*.  Values impossible in the full model are skipped.  If
    the rest of the model is too wide to know its zeros, only those next to the separator are taken into
    account: the numbers are then upper bounds and ``exact`` is False.  Likewise b falls back to the swing,
    which is never smaller, where no marginal of the nearby records can be had, and a hidden node with too
    many neighbours for a table is maximised instead of summed.

    Parameters
    ----------
    quilt
        Anything with ``target``, ``separator`` and ``nearby``.
    max_known_sets, max_entries
        Limits on the sets L and on one table.
    limits
        All of them at once, instead of the two before.
    workspace
        Keeps what other quilts of the model can use.

    Raises
    ------
    ModelTooWide
        If there are more than ``max_known_sets`` sets L (and C is not a path), or a table of the quilt
        itself is too large.

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
    limits = limits or Limits(max_entries, max_known_sets)
    space = workspace if workspace is not None else Workspace(model)
    region = _ClosedSet(space, (quilt.target,), quilt.nearby, quilt.separator, limits)
    if not region.told:
        sets = _ordered_known_sets(region.records) if 2 ** len(region.records) <= limits.known_sets else []
        zeros = (0.0,) * (len(region.records) + 1), dict.fromkeys(sets, 0.0)
        return QuiltInfluence(0.0, 0.0, 0.0, True, *zeros)
    sets = region.every_known_set()
    swing_of = region.swings(sets)
    worst = max(sets, key=lambda known: swing_of[known][0])
    swing = swing_of[worst][0]
    b, b_at = region.influence([_NONE] if region.is_path else sets)
    found = {known: plus_error(*value) for known, value in swing_of.items()}
    by_known = [max(s for known, s in found.items() if len(known) == k) for k in sorted({*map(len, found)})]
    exact = region.exact and b_at is not None
    numbers = (min(b, swing), swing, max(found.values()), exact, tuple(by_known), found)
    if not region.exact:
        return QuiltInfluence(*numbers)
    return QuiltInfluence(*numbers, partial(_witnesses, ref(space), model, quilt, limits, worst, b_at))


@any_model
def quilt_influences(
    model: Model,
    quilts: Iterable[QuiltLike],
    *,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> tuple[QuiltInfluence, ...]:
    """Return :func:`quilt_influence` of many quilts of one model: tables are shared between them.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.inference.influence import quilt_influences
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9)
    >>> g = qd.moralize(m)
    >>> [round(qi.swing, 3) for qi in quilt_influences(m, qd.quilts(g, "X4", max_nearby=1))]
    [8.789, 7.427, 7.427, 0.0]
    """
    space = workspace if workspace is not None else Workspace(model)
    return tuple(quilt_influence(model, q, limits=limits, workspace=space) for q in quilts)


def swings(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    limits: Limits = _LIMITS,
    workspace: Workspace | None = None,
) -> Mapping[frozenset[str], float]:
    """Return s_T(C, L), rounded up, for every L ⊆ nearby records, when several targets change together.

    Where C is a path with more sets than the limit, the empty set alone is listed, which is the worst.
    On a model of positive tables nothing outside C ∪ Q is touched.

    Raises
    ------
    ModelTooWide
        If there are too many sets L, or a table of the region itself is too large.
    """
    region = _ClosedSet(workspace or Workspace(model), targets, nearby, separator, limits)
    sets = region.every_known_set()
    if not region.told:
        return dict.fromkeys(sets, 0.0)
    return {known: plus_error(*value) for known, value in region.swings(sets).items()}


def unit_influence(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    limits: Limits = _LIMITS,
    workspace: Workspace | None = None,
) -> float:
    """Return I(X_Q ⇝ X_T): what the separator tells about several targets when nothing is known.

    Raises
    ------
    ModelTooWide
        If a table of the region itself is too large.
    """
    region = _ClosedSet(workspace or Workspace(model), targets, nearby, separator, limits)
    return region.influence([_NONE])[0] if region.told else 0.0


class _ClosedSet:
    """The closed set C = targets ∪ nearby with its separator, ready for every known set L.

    Raises
    ------
    InvalidArgument
        If the separator does not separate.
    """

    def __init__(
        self,
        space: Workspace,
        targets: Collection[str],
        nearby: Collection[str],
        separator: Collection[str],
        limits: Limits,
    ) -> None:
        check_disjoint(space.model, targets=targets, nearby=nearby, separator=separator)
        if not targets:
            raise InvalidArgument("targets must name at least one node")
        self.space, self.limits, self.targets = space, limits, tuple(sorted(targets))
        self.tables = factor_tables(space)
        self.states = self.tables.entries(self.targets)
        self.nearby, self.separator = frozenset(nearby), frozenset(separator)
        self.closed = self.nearby.union(targets)
        around = self.tables.boundary(self.closed)
        if not around <= self.separator:
            raise InvalidArgument(
                f"the separator {set(separator) or '{}'} does not separate"
                f" {set(self.targets)}: {min(around - self.separator)!r} is next to the nearby nodes"
            )
        self.records = tuple([n for n in sorted(self.nearby) if space.model.is_record(n)])
        self.told = bool(self.separator) and self.states > 1
        self.exact = True
        self._near = self.tables.near_any(sorted(self.closed))
        self._given: dict[frozenset[str], list[LogTable]] = {}
        self._walls: tuple[LogTable, ...] | None = None if self.tables.has_zeros else ()

    @property
    def beyond(self) -> tuple[LogTable, ...]:
        """What the rest of the model forbids of the separator, looked up when it is first needed."""
        if self._walls is None:
            self._walls, complete = barriers_around(self.space, self.closed, self.separator)
            self.exact = self.exact and complete
        return self._walls

    @cached_property
    def is_path(self) -> bool:
        """Whether C is a path around one target, and the model a forest: nothing joins its ends elsewhere."""
        if len(self.targets) > 1 or any(len(self.tables.around(n)) > 3 for n in self.closed):
            return False
        graph = moral_graph(self.space)
        forest = graph.edge_count == len(graph) - graph.component_count
        return forest and len(self.tables.components(self.closed)) == 1

    def every_known_set(self) -> list[frozenset[str]]:
        """Return every set an adversary may know; on a path with too many of them the worst alone."""
        count, limit = len(self.records), self.limits.known_sets
        if 2**count <= limit:
            return _ordered_known_sets(self.records)
        if self.is_path:
            return [_NONE]
        raise ModelTooWide(
            f"the quilt of {', '.join(self.targets)} has {count} nearby records, 2^{count} sets an"
            f" adversary may know, over the limit of {limit}",
            "take a smaller quilt",
            f"raise {option('max_known_sets')}",
        )

    # -- the two numbers ---------------------------------------------------------------------------

    def swings(self, sets: Sequence[frozenset[str]]) -> dict[frozenset[str], tuple[float, float]]:
        """Return s(C, L) with its rounding error for every known set."""
        met = {known: self._border(known) for known in sets}
        found = {some: self.largest(_sum_both_ways(self._odds(some))) for some in dict.fromkeys(met.values())}
        return {known: found[met[known]] for known in sets}

    def influence(self, sets: Sequence[frozenset[str]]) -> tuple[float, frozenset[str] | None]:
        """Return b and the known set that attains it; ∞ and None where a marginal cannot be had."""
        try:
            tables = {known: [*self._odds(self._border(known)), self.prior(sorted(known))] for known in sets}
            found = {known: self.largest(some)[0] for known, some in tables.items()}
        except ModelTooWide:
            return math.inf, None
        worst = max(sets, key=found.__getitem__)
        return found[worst], worst

    def _border(self, known: frozenset[str]) -> frozenset[str]:
        """Return the known records that are next to a target, or to hidden nodes that are; with zeros all."""
        if self.tables.has_zeros:
            return known
        hidden = [c for c in self.tables.components(self.nearby - known) if self._touches_target(c)]
        return self.tables.boundary(frozenset(self.targets).union(*hidden)) & known

    def _odds(self, known: frozenset[str]) -> list[LogTable]:
        if known not in self._given:
            self._given[known] = self.given(known)
        return self._given[known]

    def given(self, known: Collection[str], kept: Collection[str] = ()) -> list[LogTable]:
        """Return tables over pairs, known records and kept nodes of Q whose sum is M(x, x', l)."""
        parts = self._hidden_parts(known)
        names = [self._neighbour_names(p) for p in parts]
        scopes = [*names, *[frozenset(w.scope) for w in self.beyond]]
        shared = frozenset(n for one, two in combinations(scopes, 2) for n in one & two).union(known, kept)
        tables = [self._log_odds(p, tuple(sorted(own & shared))) for p, own in zip(parts, names, strict=True)]
        stay = (_PAIRS, *known, *kept)
        try:
            return self._maximise([*tables, *self.beyond], stay)
        except ModelTooWide:
            if not self.beyond:
                raise
        self.exact, self._walls = False, ()  # the rest is too wide: leave its zeros out for good
        return self._maximise(tables, stay)

    def _hidden_parts(self, known: Collection[str]) -> list[_Part]:
        """Return the parts of one known set; a hub whose component is too wide counts as observed."""
        hidden = self.nearby.difference(known)
        while True:
            parts: list[_Part] = [*self.tables.components(hidden)]
            parts += [f for f in self._near if hidden.isdisjoint(self.tables.scope(f))]
            parts = [p for p in parts if self._touches_target(p) or self._has_zeros(p)]
            hiding = (p for p in parts if isinstance(p, frozenset) and self._touches_target(p))
            wide = next((p for p in hiding if self._is_too_wide(p)), None)
            if wide is None:
                return parts
            hub = max(sorted(wide), key=lambda n: len(self.tables.around(n)))
            hidden, self.exact = hidden - {hub}, False

    def _is_too_wide(self, hidden: frozenset[str]) -> bool:
        """Return whether the table of a hidden component next to a target cannot be made."""
        if self.tables.entries(self.tables.boundary(hidden)) > self.limits.component:
            return True
        try:
            self._part_table(hidden)
        except ModelTooWide:
            return True
        return False

    # -- the tables of the sum ---------------------------------------------------------------------

    def _part_factors(self, part: _Part) -> list[int]:
        """Return the factors of a part."""
        return [part] if isinstance(part, int) else self.tables.near_any(sorted(part))

    def _neighbours(self, part: _Part) -> Collection[str]:
        """Return the nodes next to a part."""
        return self.tables.scope(part) if isinstance(part, int) else self.tables.boundary(part)

    def _neighbour_names(self, part: _Part) -> frozenset[str]:
        """Return the nodes next to a part, targets apart."""
        return frozenset(self._neighbours(part)).difference(self.targets)

    def _touches_target(self, part: _Part) -> bool:
        """Return whether a part is next to a target; if not, it matters only through its zeros."""
        return not frozenset(self._neighbours(part)).isdisjoint(self.targets)

    def _has_zeros(self, part: _Part) -> bool:
        """Return whether a part has zeros."""
        return self.tables.has_zeros and any(map(self.tables.barrier, self._part_factors(part)))

    def _log_odds(self, part: _Part, kept: tuple[str, ...]) -> LogTable:
        """Return the largest log odds of a part over the nodes that are not kept: axes pairs, kept.

        For a part next to no target, what it forbids.
        """
        limit, moves = self.limits.entries, self._touches_target(part)

        def make() -> LogTable:
            if not moves:
                walls = [w for f in self._part_factors(part) if (w := self.tables.barrier(f)) is not None]
                gone = {n for w in walls for n in w.scope}.difference(kept)
                return product(max_out(walls, gone, limit=limit, guard=self.space.guard), limit=limit)
            source = self._part_table(part)
            pairs = self.states * (self.states - 1)
            if pairs > limit:
                raise ModelTooWide(
                    f"{len(self.targets)} nodes protected together have {pairs:,} pairs of values, over the"
                    f" limit of {limit:,}",
                    "protect fewer of them together",
                )
            self.space.guard.check(planned_bytes=MOVE_BYTES * pairs * self.tables.entries(kept))
            return self._target_ratios(source, kept)

        key = (part, self.targets if moves else (), kept, limit)
        return self.space.keep("log odds", key, make, lambda t: 512 + int(t.array.nbytes))

    def _part_table(self, part: _Part) -> LogTable:
        """Return the table of a part over all its nodes; the same for every target."""
        if isinstance(part, int):
            return self.tables.logs(part)
        limit = self.limits.entries

        def make() -> LogTable:
            logs = [self.tables.logs(f) for f in self._part_factors(part)]
            return product(sum_out(logs, part, limit=limit, guard=self.space.guard), limit=limit)

        return self.space.keep("component", (part, limit), make, lambda t: 512 + int(t.array.nbytes))

    def _target_ratios(self, source: LogTable, kept: tuple[str, ...]) -> LogTable:
        """Return the largest ln φ(x, ·) − ln φ(x', ·) over the nodes neither in T nor kept."""
        kept = tuple([n for n in kept if n in source.scope])
        gone = [n for n in source.scope if n not in kept and n not in self.targets]
        array = aligned((source.scope, source.array), (*self.targets, *kept, *gone))
        stay = array.shape[len(self.targets) : len(self.targets) + len(kept)]
        own = [self.tables.states(n) for n in self.targets]
        array = np.broadcast_to(array, (*own, *array.shape[len(own) :]))
        array = array.reshape(self.states, math.prod(stay), -1)
        below = np.maximum(array, -_BIG)
        best = np.stack([(row - below).max(axis=-1) for row in array])
        first, second = _ordered_pairs(self.states)
        ratios = np.minimum(best[first, second], _BIG).reshape(-1, *stay)
        return LogTable((_PAIRS, *kept), ratios, 2 * source.size, 2 * source.error + 2 * source.size * EPS)

    def _maximise(self, tables: Sequence[LogTable], keep: Collection[str]) -> list[LogTable]:
        """Return tables whose sum is that of the given ones, maximised over all nodes but ``keep``."""
        sizes = {n: k for t in tables for n, k in zip(t.scope, t.array.shape, strict=True)}
        if not tables or math.prod(sizes.values()) > DIRECT_ENTRIES:
            gone = [n for n in sizes if n not in keep]
            return max_out(tables, gone, limit=self.limits.entries, guard=self.space.guard)
        whole = product(tables, limit=DIRECT_ENTRIES)
        stay = tuple([n for n in whole.scope if n in keep])
        gone_axes = tuple([k for k, n in enumerate(whole.scope) if n not in keep])
        return [whole._replace(scope=stay, array=np.maximum.reduce(whole.array, axis=gone_axes))]

    def largest(self, tables: Sequence[LogTable]) -> tuple[float, float]:
        """Return the largest value of a sum of tables, 0 if nothing is possible, and its error."""
        left = product(self._maximise(tables, ()) or [LogTable((), np.zeros(()))], limit=self.limits.entries)
        best = float(left.array)
        return math.inf if best >= _BIG / 2 else max(best, 0.0), left.error

    def prior(self, known: Sequence[str]) -> LogTable:
        """Return −ln P(x, l) + ln P(x', l), −∞ where x or x' is impossible with l."""
        logs = log_marginal(self.space.model, (*self.targets, *known), workspace=self.space)
        logs = logs.reshape(self.states, *logs.shape[len(self.targets) :])
        first, second = _ordered_pairs(self.states)
        with np.errstate(invalid="ignore"):
            odds = logs[second] - logs[first]
        return LogTable((_PAIRS, *known), np.where(np.isfinite(odds), odds, -np.inf))

    # -- witnesses ---------------------------------------------------------------------------------

    def witness(self, known: frozenset[str], *, both: bool) -> Witness | None:
        """Return values that attain the swing (both ways) or the influence with these records known."""
        tables = self.given(known)
        tables = _sum_both_ways(tables) if both else [*tables, self.prior(sorted(known))]
        at = best_assignment(tables, limit=self.limits.entries)
        if sum([float(t.at(at).array) for t in tables]) == -np.inf:
            return None
        pair = at[_PAIRS]
        values = {n: at.get(n, 0) for n in sorted(known)}
        shape = [self.tables.states(n) for n in self.targets]
        ends = [np.unravel_index(side[pair], shape) for side in _ordered_pairs(self.states)]
        x, y = ({n: int(k) for n, k in zip(self.targets, end, strict=True)} for end in ends)
        there = self._name_values(self._separator_values(values, y, x)) if both else None
        here = self._name_values(self._separator_values(values, x, y))
        return Witness(self._name_values(values), self._name_values(x), self._name_values(y), here, there)

    def _name_values(self, values: Mapping[str, int]) -> Assignment:
        return tuple((n, self.space.model.states[n][k]) for n, k in values.items())

    def _separator_values(
        self, known: Mapping[str, int], x: Mapping[str, int], y: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Return values of x_Q that attain M(x, x', l)."""
        tables = [t.at(known) for t in self.beyond]
        for part in self._hidden_parts(known):
            if not self._touches_target(part):
                tables.append(self._log_odds(part, tuple(sorted(self._neighbour_names(part)))).at(known))
                continue
            source = self._part_table(part).at(known)
            ratio = np.minimum(source.at(x).array - np.maximum(source.at(y).array, -_BIG), _BIG)
            tables.append(source.at(x)._replace(array=np.asarray(ratio)))
        values = best_assignment(tables, limit=self.limits.entries)
        return {n: values.get(n, 0) for n in sorted(self.separator)}


def _witnesses(
    space: ref[Workspace],
    model: Model,
    quilt: QuiltLike,
    limits: Limits,
    swing_at: frozenset[str],
    b_at: frozenset[str] | None,
) -> Witnesses:
    """Return the values that attain the swing and b; the workspace is not kept alive for that."""
    kept = space() or Workspace(model)
    region = _ClosedSet(kept, (quilt.target,), quilt.nearby, quilt.separator, limits)
    found = region.witness(swing_at, both=True)
    return found, None if b_at is None else region.witness(b_at, both=False)


# -- small steps ------------------------------------------------------------------------------------


def _ordered_pairs(states: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return x and x' of the pairs x < x', then of the same pairs the other way round."""
    first, second = np.triu_indices(states, 1)
    return np.concatenate([first, second]), np.concatenate([second, first])


def _sum_both_ways(tables: Sequence[LogTable]) -> list[LogTable]:
    """Return tables over (pairs x < x', l) whose sum is M(x, x', l) + M(x', x, l)."""
    made = []
    for t in tables:
        if _PAIRS not in t.scope:
            made.append(t)
            continue
        array, rest = np.moveaxis(t.array, t.scope.index(_PAIRS), 0), [n for n in t.scope if n != _PAIRS]
        both, error = array[: len(array) // 2] + array[len(array) // 2 :], 2 * (t.error + t.size * EPS)
        made.append(LogTable((_PAIRS, *rest), both, 2 * t.size, error))
    return made


def _ordered_known_sets(records: Sequence[str]) -> list[frozenset[str]]:
    """Return the known sets in the order of an array of shape (2, 2, …): entry 0 of an axis means known."""
    sets = [_NONE]
    for n in records:
        sets = [made for s in sets for made in (s | {n}, s)]
    return sets

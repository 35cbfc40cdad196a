"""Max-influence b and the swing of quilts: exact, from factor tables.

For targets T, known records L and separator Q, with x = x_T, x' = x_T' and l = x_L, let

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)      (up to a term that cancels);

    s(C, L) = max over x, x', l of  M(x, x', l) + M(x', x, l),
    b       = max over L, x, x', l of  M(x, x', l) − ln P(x, l) + ln P(x', l).

Observe L and Q: the log odds of x : x' are a sum of small tables (:mod:`quiltdp.inference.log_odds`), and the
maximum over x_Q is max-sum elimination; the joint of Q is never made.  Beyond Q only what is
forbidden matters (:mod:`quiltdp.inference.trees`).

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
from functools import cached_property, partial
from itertools import combinations
from weakref import ref

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.log_odds import BIG, PAIRS, LogOdds, Part, both_ways, negated, ordered_pairs
from quiltdp.inference.marginals import (
    check_disjoint,
    log_marginal,
    relevant_factors,
)
from quiltdp.inference.plan import JOINT_ENTRIES, MAX_ENTRIES, Limits
from quiltdp.inference.tables import (
    LogTable,
    best_assignment,
    factor_tables,
    log_ratio,
    log_sum,
)
from quiltdp.inference.trees import barriers_around, barriers_beyond
from quiltdp.inference.witness import Assignment, QuiltInfluence, QuiltLike, Witness, Witnesses, no_witnesses
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.model import Model, Table
from quiltdp.numbers import above

__all__ = [
    "blanket_influence",
    "max_influence",
    "quilt_influence",
    "quilt_influences",
    "swings",
]

_NONE: frozenset[str] = frozenset()


# -- any sets of nodes ------------------------------------------------------------------------------


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
        try:
            joint = log_marginal(model, (of, *known, *seen), max_entries=max_entries, workspace=space)
        except ModelTooWide:
            pass
        else:
            return _influence_of_joint(joint, len(known))
    return _influence_by_elimination(space, of, seen, known, max_entries)


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
    """Return the influence by one max-sum elimination; no table over all of ``on`` or ``given``."""
    tables, odds = factor_tables(space), LogOdds(space, (of,), Limits(max_entries))
    if odds.states == 1:
        return 0.0
    among = relevant_factors(space.model, tables, (of, *on, *given))
    nodes = frozenset(n for f in among for n in tables.scope(f)) - {of}
    used: set[int] = set()
    everything: list[LogTable] = []
    for observed, sign in ((frozenset((*on, *given)), 1), (frozenset(given), -1)):
        for part in odds.parts(nodes - observed, among):
            factors = odds.factors(part) & among
            table = odds.table(part, tuple(sorted(odds.names(part) & observed)), factors)
            everything.append(table if sign > 0 else negated(table))
            used |= factors if sign > 0 else set()
    skipped = frozenset(range(len(space.model.factors))) - among | used
    walls, _ = barriers_beyond(tables, (of, *on, *given), skipped, max_nodes=len(space.model.nodes))
    return odds.largest([*everything, *walls])[0]


# -- quilts -----------------------------------------------------------------------------------------

_LIMITS = Limits()


def quilt_influence(
    model: Model,
    quilt: QuiltLike,
    *,
    exact_support: bool = True,
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
    max_known_sets, max_entries, max_support_nodes
        Limits on the sets L, on one table, and on the nodes whose zeros are looked at.
    limits
        All of them at once, instead of the three before.
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
    if limits is None:
        limits = Limits(max_entries, max_known_sets, max_support_nodes)
    space = workspace if workspace is not None else Workspace(model)
    region = _Region(space, (quilt.target,), quilt.nearby, quilt.separator, limits, exact_support)
    if not region.told:
        few = 2 ** len(region.records) <= limits.known_sets
        zeros = dict.fromkeys(_known_sets(region.records), 0.0) if few else {}
        return QuiltInfluence(0.0, 0.0, 0.0, True, (0.0,) * (len(region.records) + 1), zeros)
    found, swing, best, b, b_at = region.numbers(region.every_known_set())
    largest: dict[int, float] = {}
    for known, value in found.items():
        largest[len(known)] = max(largest.get(len(known), 0.0), value)
    parts = (quilt.target, quilt.nearby, quilt.separator)
    find = partial(_witnesses, ref(space), model, parts, limits, best, b_at) if region.exact else no_witnesses
    by_known = tuple([largest[k] for k in range(len(largest))])
    exact = region.exact and b_at is not None
    return QuiltInfluence(min(b, swing), swing, max(found.values()), exact, by_known, found, find)


def quilt_influences(
    model: Model,
    quilts: Iterable[QuiltLike],
    *,
    exact_support: bool = True,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
) -> tuple[QuiltInfluence, ...]:
    """Return :func:`quilt_influence` of many quilts of one model: tables are shared between them.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=9)
    >>> g = qd.moralize(m)
    >>> [round(qi.swing, 3) for qi in qd.quilt_influences(m, qd.quilts(g, "X4", max_nearby=1))]
    [8.789, 7.427, 7.427, 0.0]
    """
    space = workspace if workspace is not None else Workspace(model)
    one = partial(quilt_influence, model, exact_support=exact_support, limits=limits, workspace=space)
    return tuple(map(one, quilts))


def swings(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    known_sets: Iterable[Collection[str]] | None = None,
    exact_support: bool = True,
    limits: Limits = _LIMITS,
    workspace: Workspace | None = None,
) -> Mapping[frozenset[str], float]:
    """Return s_T(C, L), rounded up, for every set L of nearby records (or the given ones).

    T = ``targets`` is a protected unit with joint state x_T; a single record is the case |T| = 1.
    Where C is a path with more sets than the limit, the empty set alone is listed, which is the worst.
    On a model of positive tables nothing outside C ∪ Q is touched.

    Raises
    ------
    ModelTooWide
        If there are too many sets L, or a table of the region itself is too large.
    """
    if isinstance(targets, str) or not targets:
        raise InvalidArgument("targets must name at least one node")
    space = workspace if workspace is not None else Workspace(model)
    region = _Region(space, tuple(targets), nearby, separator, limits, exact_support)
    wanted = None if known_sets is None else [frozenset(k) for k in known_sets]
    for k in wanted or ():
        if not k.issubset(region.records):
            raise InvalidArgument(f"the known set {sorted(k)} has a node that is no nearby record")
    sets = region.every_known_set() if wanted is None else wanted
    return region.numbers(sets, only_swings=True)[0] if region.told else dict.fromkeys(sets, 0.0)


class _Region(LogOdds):
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
        exact_support: bool = True,
    ) -> None:
        super().__init__(space, tuple(sorted(targets)), limits)
        check_disjoint(space.model, targets=targets, nearby=nearby, separator=separator)
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
        self.exact = exact_support or not self.tables.has_zeros
        self._walls: tuple[LogTable, ...] | None = None if exact_support and self.tables.has_zeros else ()

    @property
    def beyond(self) -> tuple[LogTable, ...]:
        """What the rest of the model forbids of the separator, looked up when it is first needed."""
        if self._walls is None:
            self._walls, complete = barriers_around(
                self.space, self.closed, self.separator, max_nodes=self.limits.support_nodes
            )
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
            return _known_sets(self.records)
        if self.is_path:
            return [_NONE]
        raise ModelTooWide(
            f"the quilt of {', '.join(self.targets)} has {count} nearby records, 2^{count} sets an"
            f" adversary may know, over the limit of {limit}",
            "take a smaller quilt",
            f"raise {option('max_known_sets')}",
        )

    def numbers(
        self, sets: Sequence[frozenset[str]], *, only_swings: bool = False
    ) -> tuple[dict[frozenset[str], float], float, frozenset[str], float, frozenset[str] | None]:
        """Return the swings, rounded up, the largest, its known set, b, and its known set (None: a bound)."""
        found: dict[frozenset[str], tuple[float, float]] = {}
        alike: dict[frozenset[str], tuple[list[LogTable], tuple[float, float]]] = {}
        b, b_at, bounded = -1.0, None, only_swings
        for known in sets:
            met = known if self.tables.has_zeros else self._met(known)
            if met not in alike:
                odds = self.given(met)
                alike[met] = odds, self.largest(both_ways(odds))
            odds, found[known] = alike[met]
            if not bounded and (not known or not self.is_path):
                try:
                    ratio, _ = self.largest([*odds, self.prior(sorted(known))])
                except ModelTooWide:
                    bounded = True
                else:
                    b, b_at = (ratio, known) if ratio > b else (b, b_at)
        worst = max(sets, key=lambda known: found[known][0])
        upper = {known: above(value, error) for known, (value, error) in found.items()}
        return upper, found[worst][0], worst, math.inf if bounded else b, None if bounded else b_at

    def _met(self, known: frozenset[str]) -> frozenset[str]:
        """Return the known records that are next to a target, or to hidden nodes that are."""
        hidden = [c for c in self.tables.components(self.nearby - known) if self.moves(c)]
        return self.tables.boundary(frozenset(self.targets).union(*hidden)) & known

    def given(self, known: Collection[str]) -> list[LogTable]:
        """Return tables over pairs and known records whose sum is M(x, x', l)."""
        parts = self._split(known)
        names = [self.names(p) for p in parts]
        scopes = [*names, *[frozenset(w.scope) for w in self.beyond]]
        shared = frozenset(n for one, two in combinations(scopes, 2) for n in one & two).union(known)
        tables = [self.table(p, tuple(sorted(own & shared))) for p, own in zip(parts, names, strict=True)]
        try:
            return self.maximised([*tables, *self.beyond], (PAIRS, *known))
        except ModelTooWide:
            if not self.beyond:
                raise
        self.exact, self._walls = False, ()  # the rest is too wide: leave its zeros out for good
        return self.maximised(tables, (PAIRS, *known))

    def _split(self, known: Collection[str]) -> list[Part]:
        """Return the parts of one known set; a hub whose component is too wide counts as observed."""
        hidden, near = self.nearby.difference(known), self.tables.near_set(self.closed)
        while True:
            parts: list[Part] = [*self.tables.components(hidden)]
            parts += [f for f in near if hidden.isdisjoint(self.tables.scope_set(f))]
            parts = [p for p in parts if self.moves(p) or self.forbids(p)]
            wide = next((p for p in parts if isinstance(p, frozenset) and self._too_wide(p)), None)
            if wide is None:
                return parts
            hub = max(sorted(wide), key=lambda n: len(self.tables.around(n)))
            hidden, self.exact = hidden - {hub}, False

    def _too_wide(self, hidden: frozenset[str]) -> bool:
        """Return whether the table of a hidden component next to a target cannot be made."""
        if not self.moves(hidden):
            return False
        if self.tables.entries(self.tables.boundary(hidden)) > self.limits.component:
            return True
        try:
            self.source(hidden)
        except ModelTooWide:
            return True
        return False

    # -- witnesses ---------------------------------------------------------------------------------

    def witness(self, known: frozenset[str], *, both: bool) -> Witness | None:
        """Return values that attain the swing (both ways) or the influence with these records known."""
        tables = self.given(known)
        tables = both_ways(tables) if both else [*tables, self.prior(sorted(known))]
        at = best_assignment(tables, limit=self.limits.entries)
        if sum([float(t.at(at).array) for t in tables]) == -np.inf:
            return None
        pair = at[PAIRS]
        values = {n: at.get(n, 0) for n in sorted(known)}
        shape = [self.tables.states(n) for n in self.targets]
        ends = [np.unravel_index(side[pair], shape) for side in ordered_pairs(self.states)]
        x, y = ({n: int(k) for n, k in zip(self.targets, end, strict=True)} for end in ends)
        there = self._named(self._separator_values(values, y, x)) if both else None
        here = self._named(self._separator_values(values, x, y))
        return Witness(self._named(values), self._named(x), self._named(y), here, there)

    def _named(self, values: Mapping[str, int]) -> Assignment:
        return tuple((n, self.space.model.states[n][k]) for n, k in values.items())

    def _separator_values(
        self, known: Mapping[str, int], x: Mapping[str, int], y: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Return values of x_Q that attain M(x, x', l)."""
        tables = [t.at(known) for t in self.beyond]
        for part in self._split(known):
            if not self.moves(part):
                tables.append(self.table(part, tuple(sorted(self.names(part)))).at(known))
                continue
            source = self.source(part).at(known)
            ratio = np.minimum(source.at(x).array - np.maximum(source.at(y).array, -BIG), BIG)
            tables.append(source.at(x)._replace(array=np.asarray(ratio)))
        values = best_assignment(tables, limit=self.limits.entries)
        return {n: values.get(n, 0) for n in sorted(self.separator)}


def _witnesses(
    space: ref[Workspace],
    model: Model,
    parts: tuple[str, frozenset[str], frozenset[str]],
    limits: Limits,
    swing_at: frozenset[str],
    b_at: frozenset[str] | None,
) -> Witnesses:
    """Return the values that attain the swing and b; the workspace is not kept alive for that."""
    target, nearby, separator = parts
    kept = space()
    region = _Region(kept if kept is not None else Workspace(model), (target,), nearby, separator, limits)
    found = region.witness(swing_at, both=True)
    return found, None if b_at is None else region.witness(b_at, both=False)


# -- small steps ------------------------------------------------------------------------------------


def _known_sets(records: Sequence[str]) -> list[frozenset[str]]:
    """Return the known sets in the order of an array of shape (2, 2, …): entry 0 of an axis means known."""
    sets = [_NONE]
    for n in records:
        sets = [made for s in sets for made in (s | {n}, s)]
    return sets

"""Influence, blanket influence and swing of quilts: exact, from factor tables, never from a joint.

The published influence and the swing of a quilt are maxima over every subset L of the nearby
records and every assignment.  For each L they are max-sum eliminations over a few small tables
(:mod:`quiltdp.inference.region`); components summed out for one L are reused for the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.elimination import LogTable, max_out, product
from quiltdp.inference.marginals import log_marginal, relevant_factors
from quiltdp.inference.odds import BIG, TargetOdds, factor_logs
from quiltdp.inference.plan import MAX_ENTRIES
from quiltdp.inference.readoff import (
    Question,
    finite_or_infinite,
    numbers,
    rounded_up,
    swings_of_all,
)
from quiltdp.inference.search import Asked, influence_of, search
from quiltdp.inference.side_sums import subsets
from quiltdp.inference.sides import side_tables
from quiltdp.inference.support import barriers_around, barriers_beyond
from quiltdp.inference.tables import log_ratio, log_sum
from quiltdp.inference.types import QuiltInfluence, QuiltLike, check_disjoint
from quiltdp.inference.whole import whole_table
from quiltdp.model import Model, Table

__all__ = ["blanket_influence", "max_influence", "quilt_influence", "swings"]

MAX_KNOWN_SETS = 4096
"""The default limit on the sets L of one quilt: 12 nearby records."""

MAX_SUPPORT_NODES = 300
"""Where the zeros of a model are too wide for a junction tree: how many nodes around a quilt to look at."""

_SMALL = 2**16  # a joint table up to this size is the quickest way to an influence


def max_influence(
    model: Model,
    *,
    of: str,
    on: Collection[str],
    given: Collection[str] = (),
    max_entries: int = MAX_ENTRIES,
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
    seen, known = sorted(on), sorted(given)
    if math.prod(model.cardinality(n) for n in (of, *known, *seen)) <= _SMALL:
        try:
            joint = log_marginal(model, (of, *known, *seen), max_entries=max_entries)
        except ModelTooWide:
            pass
        else:
            return _influence_of_joint(joint, len(known))
    return _influence_by_elimination(model, of, seen, known, max_entries)


def quilt_influence(
    model: Model,
    quilt: QuiltLike,
    *,
    exact_support: bool = True,
    max_entries: int = MAX_ENTRIES,
    max_known_sets: int = MAX_KNOWN_SETS,
    max_support_nodes: int = MAX_SUPPORT_NODES,
) -> QuiltInfluence:
    """Return b, the swing, the swing for every known set, and the values that attain them.

    ::

        b    = max_L I(X_Q ⇝ X_i | X_L)
        s(L) = max ln [P(x_Q|x,l) P(x_Q'|x',l)] / [P(x_Q|x',l) P(x_Q'|x,l)]      (swing = max_L s(L))

    over the subsets L of the nearby *records*.  Values impossible in the full model are skipped.  If
    the rest of the model is too wide to know its zeros (or ``exact_support=False``), they are left
    out of account: the numbers are then upper bounds and ``exact`` is False.  Likewise b falls back
    to the swing, which is never smaller, where no marginal of the nearby records can be had.

    Parameters
    ----------
    quilt
        Anything with ``target``, ``separator`` and ``nearby``.
    max_known_sets, max_entries, max_support_nodes
        Limits on the sets L, on one table, and on the nodes whose zeros are looked at.

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
    asked = Asked(
        model,
        (quilt.target,),
        frozenset(quilt.nearby),
        frozenset(quilt.separator),
        exact_support,
        max_entries,
        max_support_nodes,
    )
    if not _is_quilt(asked):
        check_disjoint(model, target=asked.targets, nearby=quilt.nearby, separator=quilt.separator)
        asked.region()  # says where the separator is left open
    records = asked.records()
    if not asked.separator or side_tables(model).size(quilt.target) == 1:
        return _nothing_told(records, max_known_sets)
    _check_known_sets(asked.targets, records, max_known_sets)
    question, exact = _question(asked, records)
    found = None if question is None else numbers(question)
    if found is not None:
        return influence_of(asked, found, exact)
    region = asked.region()
    return influence_of(asked, search(region), region.exact)


def blanket_influence(model: Model, node: str, *, max_entries: int = MAX_ENTRIES) -> float:
    """Return a_i = b_i({i}): how strongly the Markov blanket of a node tells about it.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> round(blanket_influence(m, "X1"), 6)  # 2 ln 9
    4.394449
    """
    model.require([node])
    logs = factor_logs(model)
    blanket = {n for f in logs.near(node) for n in logs.scope(f)} - {node}
    return max_influence(model, of=node, on=blanket, max_entries=max_entries)


def swings(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    known_sets: Iterable[Collection[str]] | None = None,
    exact_support: bool = True,
    max_entries: int = MAX_ENTRIES,
    max_known_sets: int = MAX_KNOWN_SETS,
    max_support_nodes: int = MAX_SUPPORT_NODES,
) -> Mapping[frozenset[str], float]:
    """Return s_T(C, L), rounded up, for every set L of nearby records (or the given ones).

    T = ``targets`` is a protected unit with joint state x_T; a single record is the case |T| = 1.
    On a model of positive tables nothing outside C ∪ Q is touched.

    Raises
    ------
    ModelTooWide
        If there are too many sets L, or a table of the region itself is too large.
    """
    check_disjoint(model, targets=targets, nearby=nearby, separator=separator)
    if not targets:
        raise InvalidArgument("targets must name at least one node")
    asked = Asked(
        model,
        tuple(sorted(targets)),
        frozenset(nearby),
        frozenset(separator),
        exact_support,
        max_entries,
        max_support_nodes,
    )
    records = asked.records()
    if known_sets is None:
        _check_known_sets(asked.targets, records, max_known_sets)
        if _is_quilt(asked) and math.prod(map(side_tables(model).size, targets)) > 1:
            question, _ = _question(asked, records)
            found = None if question is None else swings_of_all(question)
            if found is not None:
                return {frozenset(k): rounded_up(*v) for k, v in found.items()}
        chosen: Iterable[Collection[str]] = subsets(records)
    else:
        chosen = [frozenset(k) for k in known_sets]
        for k in chosen:
            if not frozenset(records).issuperset(k):
                raise InvalidArgument(f"the known set {sorted(k)} has a node that is no nearby record")
    region = asked.region()
    return {frozenset(k): rounded_up(*region.swing(sorted(k))) for k in chosen}


def _is_quilt(asked: Asked) -> bool:
    """Return whether the separator is exactly the boundary of targets and nearby nodes."""
    closed = asked.nearby.union(asked.targets)
    try:
        around = frozenset().union(*map(side_tables(asked.model).around, closed))
    except KeyError:  # an unknown node
        return False
    return around - closed == asked.separator


def _question(asked: Asked, records: tuple[str, ...]) -> tuple[Question | None, bool]:
    """Return the quilt with what the rest of the model forbids of its separator, and whether that is all.

    None if the rest is entangled beyond the separator, so that only an elimination can tell.
    """
    model, separator = asked.model, asked.separator
    beyond: Sequence[LogTable] = ()
    exact = asked.exact_support or not factor_logs(model).has_zeros
    if asked.exact_support and factor_logs(model).has_zeros and whole_table(model) is None:
        closed = asked.nearby.union(asked.targets)
        beyond, exact = barriers_around(model, closed, separator, max_nodes=asked.max_support_nodes)
        if not separator.issuperset(n for t in beyond for n in t.scope):
            return None, exact
    parts = (model, asked.targets, asked.nearby, separator, records, beyond)
    return Question(*parts, asked.max_entries, asked.exact_support), exact


def _nothing_told(records: Sequence[str], max_known_sets: int) -> QuiltInfluence:
    """Return the influence of an empty separator: exactly 0 for every known set."""
    few = 2 ** len(records) <= max_known_sets
    zeros = {frozenset(k): 0.0 for k in subsets(records)} if few else {}
    return QuiltInfluence(0.0, 0.0, 0.0, True, (0.0,) * (len(records) + 1), zeros)


def _check_known_sets(targets: Sequence[str], records: Sequence[str], limit: int) -> None:
    count = len(records)
    if 2**count > limit:
        raise ModelTooWide(
            f"the quilt of {', '.join(targets)} has {count} nearby records, 2^{count} sets an"
            f" adversary may know, over the limit of {limit}",
            "take a smaller quilt",
            f"raise {option('max_known_sets')}",
        )


# -- any sets of nodes ------------------------------------------------------------------------


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
    model: Model, of: str, on: Sequence[str], given: Sequence[str], max_entries: int
) -> float:
    """Return the influence by one max-sum elimination; no table over all of ``on`` or ``given``."""
    among = relevant_factors(model, (of, *on, *given))
    logs = factor_logs(model)
    odds = TargetOdds(model, (of,), limit=max_entries, among=among)
    seen = odds.given({*on, *given})
    prior = odds.given(frozenset(given))
    skipped = {*range(len(model.factors))} - among | seen.used
    walls, _ = barriers_beyond(logs, (of, *on, *given), skipped, max_nodes=len(model.nodes))
    tables = [*seen.moves, *map(_taken_back, prior.moves), *walls]
    left = max_out(tables, {n for t in tables for n in t.scope}, limit=max_entries)
    return finite_or_infinite(float(product(left, limit=max_entries).array.max()))


def _taken_back(move: LogTable) -> LogTable:
    """Return the move with its sign changed; a move from or to an impossible value is no candidate."""
    usable = np.abs(move.array) < BIG / 2
    return move._replace(array=np.where(usable, -np.where(usable, move.array, 0.0), -np.inf))

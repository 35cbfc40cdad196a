"""Marginals and conditionals of a model: one junction tree per model, elimination where it is too wide."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.elimination import LogTable, product, sum_out
from quiltdp.inference.junction_tree import JunctionTree, junction_tree
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.odds import factor_logs
from quiltdp.inference.pairs import PairOdds, ordered_pairs
from quiltdp.inference.plan import MAX_ENTRIES
from quiltdp.inference.tables import aligned, extended, extended_law, log_sum
from quiltdp.inference.types import check_disjoint
from quiltdp.inference.whole import whole_table
from quiltdp.model import Model, Table

__all__ = [
    "KnownOdds",
    "calibrated",
    "conditional",
    "extended_log_marginal",
    "log_marginal",
    "pair_odds",
    "pair_odds_given",
    "posterior",
    "relevant_factors",
]

_KEPT, _KEPT_SIZE = 4096, 4096  # small marginals kept with their model: how many, how large
_TOGETHER = 2**20  # entries up to which the marginals of all known sets are one table
_FEW = 6  # nodes up to which products of clique laws stay far from the smallest double
_DEEP = 600.0  # logarithms down to minus this are summed as probabilities


@kept_with_model
def _marginals(model: Model) -> dict[tuple[str, ...], Table]:
    return {}


@kept_with_model
def _extended_marginals(model: Model) -> dict[tuple[str, ...], tuple[Table, bool]]:
    return {}


@kept_with_model
def _tree(model: Model) -> JunctionTree | ModelTooWide:
    try:
        return junction_tree(model)
    except ModelTooWide as error:
        return error


def calibrated(model: Model) -> JunctionTree:
    """Return the model's junction tree with the default limit, built once and kept with the model."""
    found = _tree(model)
    if isinstance(found, ModelTooWide):
        raise ModelTooWide(found.text, *found.remedies)
    return found


def log_marginal(model: Model, nodes: Sequence[str], *, max_entries: int = MAX_ENTRIES) -> Table:
    """Return ln P(x_nodes), axes in the order given: −∞ exactly where impossible.

    The junction tree answers if the model is narrow enough for one; otherwise the nodes that matter
    (for a Bayesian network the ancestors) are eliminated for this question alone.

    Raises
    ------
    ModelTooWide
        If neither fits; the message names the nodes of the table.
    """
    size = math.prod(model.cardinality(n) for n in nodes)
    if size > max_entries:
        raise ModelTooWide(
            f"the marginal of {{{', '.join(nodes)}}} has {size:,} entries, over {max_entries:,}",
            f"raise {option('max_entries')}",
        )
    order = tuple(sorted(nodes))
    kept = _marginals(model)
    found = kept.get(order)
    if found is None:
        try:
            found = calibrated(model).log_marginal(order)
        except ModelTooWide:
            found = _by_elimination(model, order, {}, max_entries)
        if size <= _KEPT_SIZE:
            if len(kept) >= _KEPT:
                kept.clear()
            kept[order] = found
    return found.transpose([order.index(n) for n in nodes])


def extended_log_marginal(model: Model, nodes: Sequence[str]) -> tuple[Table, bool]:
    """Return ln P(x_nodes) with every axis evidence-extended, and whether all of it is finite.

    The last entry of an axis means "unobserved", so one table holds the marginal of every subset of
    the nodes; small ones are kept with their model.
    """
    whole = whole_table(model)
    if whole is not None:
        return whole.extended(nodes), whole.finite
    order = tuple(sorted(nodes))
    kept = _extended_marginals(model)
    found = kept.get(order)
    if found is None:
        table = _extended_law(model, order)
        if table is None:
            table = _extended(log_marginal(model, order))
        found = (table, bool(np.isfinite(table).all()))
        if table.size <= _KEPT_SIZE:
            if len(kept) >= _KEPT:
                kept.clear()
            kept[order] = found
    return found[0].transpose([order.index(n) for n in nodes]), found[1]


def pair_odds(model: Model, targets: Sequence[str], records: Sequence[str]) -> PairOdds:
    """Return the odds of every two values of the targets with every set of known records: extended axes.

    Raises
    ------
    ModelTooWide
        If no marginal of targets and records can be had.
    """
    whole = whole_table(model)
    if whole is not None:
        return whole.odds(tuple(targets), records)
    table, finite = extended_log_marginal(model, (*targets, *records))
    return _odds(
        table[:-1] if len(targets) == 1 else table[(slice(-1),) * len(targets)], len(targets), finite
    )


def pair_odds_given(model: Model, targets: Sequence[str], known: Sequence[str]) -> PairOdds:
    """Return the odds with one known set alone; its axes are not extended."""
    table = log_marginal(model, (*targets, *known))
    return _odds(table, len(targets), bool(np.isfinite(table).all()))


def _odds(table: Table, targets: int, finite: bool) -> PairOdds:
    flat = table if targets == 1 else table.reshape(-1, *table.shape[targets:])
    if finite and len(flat) == 2:
        odds = flat[:1] - flat[1:]
        return PairOdds(np.concatenate((odds, -odds)), True)
    first, second = ordered_pairs(len(flat))
    with np.errstate(invalid="ignore"):
        return PairOdds(flat.take(first, axis=0) - flat.take(second, axis=0), finite)


class KnownOdds:
    """The odds with one known set after the other: slices of one extended table while that is small."""

    def __init__(self, model: Model, targets: Sequence[str], records: Sequence[str]) -> None:
        self._model, self._targets, self._records = model, targets, records
        self._together = math.prod([len(model.states[n]) + 1 for n in (*targets, *records)]) <= _TOGETHER
        self._all: PairOdds | None = None

    def given(self, known: Sequence[str]) -> PairOdds:
        """Return the odds with these records known.

        Raises
        ------
        ModelTooWide
            If no marginal of targets and records can be had.
        """
        if not self._together:
            return pair_odds_given(self._model, self._targets, known)
        if self._all is None:
            self._all = pair_odds(self._model, self._targets, self._records)
        return self._all.given(known, self._records)


def _extended_law(model: Model, order: tuple[str, ...]) -> Table | None:
    """Return the extended table from probabilities of the junction tree, where that is safe."""
    if len(order) > _FEW:
        return None
    try:
        named = calibrated(model).law(frozenset(order))
    except ModelTooWide:
        return None
    if named is None:
        return None
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(extended_law(aligned(named, order), range(len(order)))))


def _extended(logs: Table) -> Table:
    if logs.min(initial=0.0, where=logs > -np.inf) < -_DEEP:
        for axis in range(logs.ndim):
            logs = extended(logs, axis)
        return logs
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(extended_law(np.exp(logs), range(logs.ndim))))


def conditional(
    model: Model, of: Sequence[str], given: Sequence[str] = (), *, max_entries: int = MAX_ENTRIES
) -> Table:
    """Return P(x_of | x_given), axes given… then of…; a row of impossible evidence is all zero.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> conditional(m, ["A"], ["B"]).round(4).tolist()
    [[0.8182, 0.1818], [0.1111, 0.8889]]
    """
    check_disjoint(model, of=of, given=given)
    scope = (*given, *of)
    logs = log_marginal(model, scope, max_entries=max_entries)
    mass = aligned((tuple(given), log_sum((scope, logs), given)), scope)
    return np.asarray(np.exp(logs - np.where(mass > -np.inf, mass, 0.0)))


def posterior(
    model: Model, of: Sequence[str], evidence: Mapping[str, str], *, max_entries: int = MAX_ENTRIES
) -> Table:
    """Return P(x_of | evidence) for values given by state name, one axis per node of ``of``.

    Raises
    ------
    InvalidArgument
        If a state does not exist or the evidence is impossible: it is never conditioned on.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> posterior(m, ["A"], {"B": "1"}).round(4).tolist()
    [0.1111, 0.8889]
    """
    check_disjoint(model, of=of, evidence=tuple(evidence))
    fixed: dict[str, int] = {}
    for n, state in evidence.items():
        if state not in model.states[n]:
            raise InvalidArgument(f"node {n!r} has no state {state!r}; it has {', '.join(model.states[n])}")
        fixed[n] = model.states[n].index(state)
    logs = _by_elimination(model, of, fixed, max_entries)
    mass = log_sum((tuple(of), logs), ())
    if not mass > -np.inf:
        raise InvalidArgument(f"the evidence {dict(evidence)} is impossible in this model")
    return np.asarray(np.exp(logs - mass))


def relevant_factors(model: Model, nodes: Collection[str]) -> frozenset[int]:
    """Return the factors that matter for the joint law of ``nodes``.

    For a Bayesian network these are the tables of the nodes and their ancestors: summing out anything
    below gives 1.  For a Markov network all factors matter.
    """
    if not model.directed:
        return frozenset(range(len(model.factors)))
    logs = factor_logs(model)
    found: dict[int, None] = {}
    reached = list(dict.fromkeys(nodes))
    seen = set(reached)
    for n in reached:  # grows while it is walked
        own = next(f for f in logs.near(n) if logs.scope(f)[-1] == n)
        found[own] = None
        fresh = [p for p in logs.scope(own)[:-1] if p not in seen]
        seen.update(fresh)
        reached.extend(fresh)
    return frozenset(found)


def _by_elimination(model: Model, nodes: Sequence[str], fixed: Mapping[str, int], max_entries: int) -> Table:
    """Return ln P(x_nodes, fixed), normalised over everything if nothing is fixed."""
    logs = factor_logs(model)
    tables = [_at(logs.logs(f), fixed) for f in sorted(relevant_factors(model, (*nodes, *fixed)))]
    gone = {n for t in tables for n in t.scope if n not in nodes}
    left = sum_out(tables, gone, limit=max_entries)
    shape = tuple(model.cardinality(n) for n in nodes)
    joint = product(left, limit=max_entries) if left else LogTable((), np.zeros(()))
    full = np.broadcast_to(aligned((joint.scope, joint.array), tuple(nodes)), shape)
    if fixed:
        return np.asarray(full)
    return np.asarray(full - log_sum((tuple(nodes), full), ()))


def _at(table: LogTable, fixed: Mapping[str, int]) -> LogTable:
    if not any(n in fixed for n in table.scope):
        return table
    index = tuple(fixed.get(n, slice(None)) for n in table.scope)
    scope = tuple(n for n in table.scope if n not in fixed)
    return LogTable(scope, np.asarray(table.array[index]), table.size, table.error)

"""Marginals and conditionals: one junction tree per workspace, elimination where it is too wide."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.elimination import product, sum_out
from quiltdp.inference.moves import ordered_pairs
from quiltdp.inference.plan import MAX_ENTRIES
from quiltdp.inference.tables import (
    FactorTables,
    LogTable,
    aligned,
    extended,
    factor_tables,
    log_sum,
)
from quiltdp.inference.trees import JunctionTree, junction_tree, plan_junction_tree
from quiltdp.inference.types import check_disjoint
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = [
    "conditional",
    "extended_log_marginal",
    "log_marginal",
    "pair_odds",
    "posterior",
    "relevant_factors",
    "state_log_marginals",
]

_TREE = 2**28  # bytes of a junction tree; in wider models every question is an elimination of its own


def _calibrated(workspace: Workspace) -> JunctionTree | None:
    """Return the junction tree of a workspace's model, None if it is too large."""
    plan = plan_junction_tree(workspace.model, workspace=workspace)
    if not plan.fits or plan.memory > _TREE:
        return None
    return junction_tree(workspace.model, workspace=workspace)


def log_marginal(
    model: Model,
    nodes: Sequence[str],
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> Table:
    """Return ln P(x_nodes), axes in the order given: −∞ exactly where impossible.

    The junction tree answers if the model is narrow enough for one; otherwise the nodes that matter
    (for a Bayesian network the ancestors) are eliminated for this question alone.

    Raises
    ------
    ModelTooWide
        If neither fits; the message names the nodes of the table.
    """
    space = workspace if workspace is not None else Workspace(model)
    size = math.prod(model.cardinality(n) for n in nodes)
    if size > max_entries:
        raise ModelTooWide(
            f"the marginal of {{{', '.join(nodes)}}} has {size:,} entries, over {max_entries:,}",
            f"raise {option('max_entries')}",
        )
    order = tuple(sorted(nodes))

    def make() -> Table:
        tree = _calibrated(space)
        if tree is not None:
            try:
                return tree.log_marginal(order)
            except ModelTooWide:
                pass
        return _by_elimination(space, order, {}, max_entries)

    found = space.keep("marginal", order, make, lambda table: 256 + 8 * table.size)
    return found.transpose([order.index(n) for n in nodes])


def extended_log_marginal(workspace: Workspace, nodes: Sequence[str]) -> Table:
    """Return ln P(x_nodes) with every axis evidence-extended.

    The last entry of an axis means "unobserved", so one table holds the marginal of every subset of
    the nodes.
    """
    order = tuple(sorted(nodes))

    def make() -> Table:
        logs = log_marginal(workspace.model, order, workspace=workspace)
        for axis in range(logs.ndim):
            logs = extended(logs, axis)
        return logs

    found = workspace.keep("extended marginal", order, make, lambda table: 256 + table.nbytes)
    return found.transpose([order.index(n) for n in nodes])


def state_log_marginals(workspace: Workspace, targets: Sequence[str], records: Sequence[str]) -> Table:
    """Return ln P(x, l) for every set of known records: joint states of the targets, then extended axes."""
    table = extended_log_marginal(workspace, (*targets, *records))
    if len(targets) == 1:
        return table[:-1]
    inner = table[(slice(-1),) * len(targets)]
    return inner.reshape(-1, *inner.shape[len(targets) :])


def pair_odds(logs: Table, axis: int = 0) -> Table:
    """Return ln P(x, l) − ln P(x', l) for all ordered pairs x ≠ x' on the axis of x.

    +∞ where x or x' is impossible with l: taken off a move, that leaves −∞.
    """
    first, second = ordered_pairs(logs.shape[axis])
    with np.errstate(invalid="ignore"):
        odds = logs.take(first, axis=axis) - logs.take(second, axis=axis)
    if not np.isfinite(odds).all():
        odds[~np.isfinite(odds)] = np.inf
    return np.asarray(odds)


def conditional(
    model: Model,
    of: Sequence[str],
    given: Sequence[str] = (),
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
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
    logs = log_marginal(model, scope, max_entries=max_entries, workspace=workspace)
    mass = aligned((tuple(given), log_sum((scope, logs), given)), scope)
    return np.asarray(np.exp(logs - np.where(mass > -np.inf, mass, 0.0)))


def posterior(
    model: Model,
    of: Sequence[str],
    evidence: Mapping[str, str],
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
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
    space = workspace if workspace is not None else Workspace(model)
    logs = _by_elimination(space, of, fixed, max_entries)
    mass = log_sum((tuple(of), logs), ())
    if not mass > -np.inf:
        raise InvalidArgument(f"the evidence {dict(evidence)} is impossible in this model")
    return np.asarray(np.exp(logs - mass))


def relevant_factors(model: Model, tables: FactorTables, nodes: Collection[str]) -> frozenset[int]:
    """Return the factors that matter for the joint law of ``nodes``.

    For a Bayesian network these are the tables of the nodes and their ancestors: summing out anything
    below gives 1.  For a Markov network all factors matter.
    """
    if not model.directed:
        return frozenset(range(len(model.factors)))
    found: dict[int, None] = {}
    reached = list(dict.fromkeys(nodes))
    seen = set(reached)
    for n in reached:  # grows while it is walked
        own = next(f for f in tables.near(n) if tables.scope(f)[-1] == n)
        found[own] = None
        fresh = [p for p in tables.scope(own)[:-1] if p not in seen]
        seen.update(fresh)
        reached.extend(fresh)
    return frozenset(found)


def _by_elimination(
    workspace: Workspace, nodes: Sequence[str], fixed: Mapping[str, int], max_entries: int
) -> Table:
    """Return ln P(x_nodes, fixed), normalised over everything if nothing is fixed."""
    model, factors = workspace.model, factor_tables(workspace)
    near = relevant_factors(model, factors, (*nodes, *fixed))
    tables = [factors.logs(f).at(fixed) for f in sorted(near)]
    gone = {n for t in tables for n in t.scope if n not in nodes}
    left = sum_out(tables, gone, limit=max_entries, guard=workspace.guard)
    shape = tuple(model.cardinality(n) for n in nodes)
    joint = product(left, limit=max_entries) if left else LogTable((), np.zeros(()))
    full = np.broadcast_to(aligned((joint.scope, joint.array), tuple(nodes)), shape)
    if fixed:
        return np.asarray(full)
    return np.asarray(full - log_sum((tuple(nodes), full), ()))

"""Conditional max-influence of any sets of nodes: exact, from factor tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.inference.marginals import check_disjoint, log_marginal, relevant_factors
from quiltdp.inference.moves import BIG, Moves, Source, finite, moved
from quiltdp.inference.plan import JOINT_ENTRIES, MAX_ENTRIES, Limits
from quiltdp.inference.tables import (
    FactorTables,
    LogTable,
    factor_tables,
    log_ratio,
    log_sum,
    max_out,
    product,
)
from quiltdp.inference.trees import barriers_beyond
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = ["blanket_influence", "max_influence"]


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
    tables = factor_tables(space)
    if tables.states(of) == 1:
        return 0.0
    among = relevant_factors(space.model, tables, (of, *on, *given))
    seen, used = _odds_tables(space, of, frozenset((*on, *given)), among, max_entries)
    prior, _ = _odds_tables(space, of, frozenset(given), among, max_entries)
    skipped = frozenset(range(len(space.model.factors))) - among | used
    walls, _ = barriers_beyond(tables, (of, *on, *given), skipped, max_nodes=len(space.model.nodes))
    everything = [*seen, *map(_negated, prior), *walls]
    names = {n for t in everything for n in t.scope}
    left = max_out(everything, names, limit=max_entries, guard=space.guard)
    return finite(float(product(left, limit=max_entries).array)) if left else 0.0


def _odds_tables(
    space: Workspace, of: str, observed: frozenset[str], among: frozenset[int], limit: int
) -> tuple[list[LogTable], frozenset[int]]:
    """Return the moves of ``of`` given the observed nodes among some factors, and the factors used."""
    found, tables = Moves(space, Limits(limit)), factor_tables(space)
    shape = [tables.states(of)]
    moves: list[LogTable] = []
    used: set[int] = set()
    done: set[str] = set()
    for f in [f for f in tables.near(of) if f in among]:
        hidden = [n for n in tables.scope(f) if n != of and n not in observed]
        if not hidden:
            used.add(f)
            scope = [n for n in tables.scope(f) if n != of]
            moves.append(moved(Source(tables.logs(f), (of,), shape, scope, zeros=True)))
        for start in hidden:
            if start not in done:
                component = _hidden_component(tables, start, observed | {of}, among)
                done |= component
                near = [g for g in tables.near_any(sorted(component)) if g in among]
                used.update(near)
                table = found.summed(component, tuple(near))
                scope = [n for n in table.scope if n != of]
                moves.append(moved(Source(table, (of,), shape, scope, zeros=True)))
    return moves, frozenset(used)


def _hidden_component(
    tables: FactorTables, start: str, observed: frozenset[str], among: frozenset[int]
) -> frozenset[str]:
    """Return the hidden nodes that are reached from one through some factors."""
    reached = [start]
    found = {start}
    for n in reached:  # grows while it is walked
        for f in tables.near(n):
            if f in among:
                fresh = [m for m in tables.scope(f) if m not in found and m not in observed]
                found.update(fresh)
                reached.extend(fresh)
    return frozenset(found)


def _negated(move: LogTable) -> LogTable:
    """Return the move with its sign changed; a move from or to an impossible value is no candidate."""
    usable = np.abs(move.array) < BIG / 2
    return move._replace(array=np.where(usable, -np.where(usable, move.array, 0.0), -np.inf))

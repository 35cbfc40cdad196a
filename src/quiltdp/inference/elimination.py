"""Eliminating nodes from a product of small tables, by sums or by maxima, never building the joint.

Tables are logarithms, or probabilities where nothing can underflow.  Every table carries a bound on
its finite logarithms and a bound on their rounding error, so that a result knows how far it can be
from the truth (*running error analysis*):

- a logarithm of a table entry is off by at most one unit ``EPS`` of its size;
- adding tables adds their errors, and one unit of the size of every partial sum; multiplying
  probabilities adds their relative errors and one unit for every product;
- ln Σ exp over n entries keeps the largest error of its entries and adds (n + 8) units for the sum,
  the exponentials and the logarithm, and four units of the entries' size for the shifts; a sum of n
  probabilities adds n units;
- a maximum adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.orders import eliminations
from quiltdp.inference.tables import LogTable, aligned
from quiltdp.model import Table
from quiltdp.numbers import EPS
from quiltdp.work import NO_GUARD, Guard

__all__ = ["best_assignment", "max_out", "product", "sum_out", "summed_law"]

_Product: TypeAlias = Callable[[Sequence[LogTable]], LogTable]
_Step: TypeAlias = Callable[[LogTable, str], LogTable]


def product(tables: Sequence[LogTable], *, limit: int) -> LogTable:
    """Return the product of the tables (the sum of their logarithms) over all their nodes.

    Raises
    ------
    ModelTooWide
        If it would have more than ``limit`` entries; the message names its nodes.
    """
    if len(tables) == 1:
        return tables[0]
    scope = _scope(tables, limit)
    total = aligned((tables[0].scope, tables[0].array), scope)
    for t in tables[1:]:
        total = total + aligned((t.scope, t.array), scope)
    size = sum([t.size for t in tables])
    return LogTable(scope, total, size, sum([t.error for t in tables]) + len(tables) * EPS * size)


def _law_product(tables: Sequence[LogTable], *, limit: int) -> LogTable:
    """Return the product of tables of probabilities; errors are relative."""
    if len(tables) == 1:
        return tables[0]
    scope = _scope(tables, limit)
    views = sorted([aligned((t.scope, t.array), scope) for t in tables], key=lambda v: v.size)
    total = views[0]
    for view in views[1:]:
        total = total * view
    error = sum([t.error for t in tables]) + len(tables) * EPS
    return LogTable(scope, total, sum([t.size for t in tables]), error)


def sum_out(
    tables: Iterable[LogTable], nodes: Collection[str], *, limit: int, guard: Guard = NO_GUARD
) -> list[LogTable]:
    """Return tables whose product is the sum over ``nodes`` of the product of ``tables``."""
    return _eliminate(tables, nodes, lambda ts: product(ts, limit=limit), _log_sum, guard)


def summed_law(
    tables: Iterable[LogTable], nodes: Collection[str], *, limit: int, guard: Guard = NO_GUARD
) -> LogTable:
    """Return the sum over ``nodes`` of the product of tables of *probabilities*, errors relative.

    The logarithms of the entries must add up to less than what a double holds, so that nothing
    underflows: the ``size`` of every table is a bound on them.
    """
    left = _eliminate(tables, nodes, lambda ts: _law_product(ts, limit=limit), _sum, guard)
    return _law_product(left, limit=limit)


def max_out(
    tables: Iterable[LogTable],
    nodes: Collection[str],
    *,
    limit: int,
    stop_at: int | None = None,
    guard: Guard = NO_GUARD,
) -> list[LogTable]:
    """Return tables whose product is the maximum over ``nodes`` of the product of ``tables``.

    With ``stop_at``, a node whose elimination would need a table beyond it is left in.
    """
    reduced = _private_maxima(list(tables), nodes)
    return _eliminate(reduced, nodes, lambda ts: product(ts, limit=limit), _largest, guard, stop_at)


def _private_maxima(tables: Sequence[LogTable], nodes: Collection[str]) -> list[LogTable]:
    """Maximise away, all at once, the nodes that only one table contains."""
    count: dict[str, int] = {}
    for t in tables:
        for n in t.scope:
            count[n] = count.get(n, 0) + 1
    made = []
    for t in tables:
        gone = tuple([k for k, n in enumerate(t.scope) if count[n] == 1 and n in nodes])
        if gone:
            rest = tuple([n for k, n in enumerate(t.scope) if k not in gone])
            made.append(LogTable(rest, t.array.max(axis=gone), t.size, t.error))
        else:
            made.append(t)
    return made


def best_assignment(tables: Iterable[LogTable], *, limit: int) -> Mapping[str, int]:
    """Return values of all nodes that attain the maximum of the product of ``tables``."""
    trail: list[tuple[str, tuple[str, ...], Table]] = []

    def remember(table: LogTable, node: str) -> LogTable:
        rest, axis = _without(table, node)
        trail.append((node, rest, table.array.argmax(axis=axis)))
        return LogTable(rest, table.array.max(axis=axis))

    everything = list(tables)
    nodes = dict.fromkeys(n for t in everything for n in t.scope)
    _eliminate(everything, nodes, lambda ts: product(ts, limit=limit), remember, NO_GUARD)
    found: dict[str, int] = {}
    for node, rest, choice in reversed(trail):
        found[node] = int(choice[tuple(found[n] for n in rest)])
    return found


# -- one node at a time ----------------------------------------------------------------------


def _without(table: LogTable, node: str) -> tuple[tuple[str, ...], int]:
    axis = table.scope.index(node)
    return table.scope[:axis] + table.scope[axis + 1 :], axis


def _largest(table: LogTable, node: str) -> LogTable:
    rest, axis = _without(table, node)
    return LogTable(rest, table.array.max(axis=axis), table.size, table.error)


def _sum(table: LogTable, node: str) -> LogTable:
    rest, axis = _without(table, node)
    count = table.array.shape[axis]
    size = table.size + math.log(count)
    return LogTable(rest, table.array.sum(axis=axis), size, table.error + count * EPS)


def _log_sum(table: LogTable, node: str) -> LogTable:
    rest, axis = _without(table, node)
    top = table.array.max(axis=axis)
    shift = np.maximum(top, -1e308)  # keeps −∞ − −∞ from being NaN
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table.array - np.expand_dims(shift, axis)).sum(axis=axis)) + shift
    count = table.array.shape[axis]
    size = table.size + math.log(count) if count > 1 else table.size
    return LogTable(rest, total, size, table.error + EPS * (count + 8 + 4 * size))


def _eliminate(
    tables: Iterable[LogTable],
    nodes: Collection[str],
    together: _Product,
    step: _Step,
    guard: Guard,
    stop_at: int | None = None,
) -> list[LogTable]:
    """Eliminate the node with the smallest table again and again, by ``step``."""
    live = dict(enumerate(tables))
    sizes = {n: k for t in live.values() for n, k in zip(t.scope, t.array.shape, strict=True)}
    gone = [n for n in nodes if n in sizes]
    if not gone:
        return list(live.values())
    where: dict[str, set[int]] = {n: set() for n in sizes}
    for key, t in live.items():
        for n in t.scope:
            where[n].add(key)
    fresh = len(live)
    for n, _ in eliminations([t.scope for t in live.values()], sizes, nodes=gone, stop_at=stop_at):
        guard.check()
        used = where.pop(n)
        made = live[fresh] = step(together([live.pop(key) for key in sorted(used)]), n)
        for m in made.scope:
            where[m] -= used
            where[m].add(fresh)
        fresh += 1
    return list(live.values())


def _scope(tables: Sequence[LogTable], limit: int) -> tuple[str, ...]:
    """Return the nodes of a product; refuse one that is too large."""
    sizes = {n: k for t in tables for n, k in zip(t.scope, t.array.shape, strict=True)}
    entries = math.prod(sizes.values())
    if entries > limit:
        scope = tuple(sizes)
        shown = ", ".join(n.strip("\0") for n in scope[:8])
        more = f", … ({len(scope)} nodes)" if len(scope) > 8 else ""
        raise ModelTooWide(
            f"a table over {{{shown}{more}}} needs {entries:,} entries, the limit is {limit:,}",
            f"raise {option('max_entries')}",
        )
    return tuple(sizes)

"""Eliminating nodes from a product of small tables, by sums or by maxima, never building the joint.

Tables are logarithms.  Every table carries a bound on its finite entries and a bound on their
rounding error, so that a result knows how far it can be from the truth (*running error analysis*):

- a logarithm of a table entry is off by at most one unit ``EPS`` of its size;
- adding tables adds their errors, and one unit of the size of every partial sum;
- ln Σ exp over n entries keeps the largest error of its entries and adds (n + 8) units for the sum,
  the exponentials and the logarithm, and four units of the entries' size for the shifts;
- a maximum adds nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.tables import aligned
from quiltdp.model import Table
from quiltdp.rounding import EPS

__all__ = ["LogTable", "best_assignment", "max_out", "product", "sum_out"]


class LogTable(NamedTuple):
    """A log table with named axes, a bound on its finite entries and a bound on their error."""

    scope: tuple[str, ...]
    array: Table
    size: float = 0.0
    error: float = 0.0

    @classmethod
    def of(cls, scope: Sequence[str], array: Table) -> LogTable:
        """Wrap the logarithms of a table of doubles, one unit of error each."""
        finite = np.abs(array[np.isfinite(array)])
        size = float(finite.max(initial=0.0))
        return cls(tuple(scope), array, size, size * EPS)


def product(tables: Sequence[LogTable], *, limit: int) -> LogTable:
    """Return the product of the tables (the sum of their logarithms) over all their nodes.

    Raises
    ------
    ModelTooWide
        If it would have more than ``limit`` entries; the message names its nodes.
    """
    if len(tables) == 1:
        return tables[0]
    scope = tuple(dict.fromkeys(n for t in tables for n in t.scope))
    _check_width(tables, scope, limit)
    total = aligned((tables[0].scope, tables[0].array), scope)
    for t in tables[1:]:
        total = total + aligned((t.scope, t.array), scope)
    size = sum(t.size for t in tables)
    return LogTable(scope, total, size, sum(t.error for t in tables) + len(tables) * EPS * size)


def sum_out(tables: Iterable[LogTable], nodes: Collection[str], *, limit: int) -> list[LogTable]:
    """Return tables whose product is the sum over ``nodes`` of the product of ``tables``."""
    return _eliminate(tables, nodes, _log_sum, limit)


def max_out(
    tables: Iterable[LogTable], nodes: Collection[str], *, limit: int, stop_at: int | None = None
) -> list[LogTable]:
    """Return tables whose product is the maximum over ``nodes`` of the product of ``tables``.

    With ``stop_at``, a node whose elimination would need a table beyond it is left in.
    """
    reduced = _private_maxima(list(tables), nodes)
    return _eliminate(reduced, nodes, _largest, limit, stop_at)


def _private_maxima(tables: Sequence[LogTable], nodes: Collection[str]) -> list[LogTable]:
    """Maximise away, all at once, the nodes that only one table contains."""
    count: dict[str, int] = {}
    for t in tables:
        for n in t.scope:
            count[n] = count.get(n, 0) + 1
    made = []
    for t in tables:
        gone = tuple(k for k, n in enumerate(t.scope) if count[n] == 1 and n in nodes)
        if gone:
            rest = tuple(n for k, n in enumerate(t.scope) if k not in gone)
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
    nodes = {n for t in everything for n in t.scope}
    _eliminate(everything, nodes, remember, limit)
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
    step: Callable[[LogTable, str], LogTable],
    limit: int,
    stop_at: int | None = None,
) -> list[LogTable]:
    """Eliminate the node with the smallest table again and again, by ``step``."""
    live: dict[int, LogTable] = dict(enumerate(tables))
    sizes = {n: k for t in live.values() for n, k in zip(t.scope, t.array.shape, strict=True)}
    where: dict[str, set[int]] = {n: set() for n in sizes}
    for key, t in live.items():
        for n in t.scope:
            where[n].add(key)
    gone = [n for n in nodes if n in sizes]
    if not gone:
        return list(live.values())
    fresh = len(live)

    def cost(n: str) -> int:
        around = {m for key in where[n] for m in live[key].scope}
        return math.prod(sizes[m] for m in around)

    heap = [(cost(n), k, n) for k, n in enumerate(gone)]
    rank = {n: k for k, n in enumerate(gone)}
    current = {n: c for c, _, n in heap}
    heapq.heapify(heap)
    while heap:
        c, _, n = heapq.heappop(heap)
        if current.get(n) != c:
            continue
        del current[n]
        if stop_at is not None and c > stop_at:
            continue
        used = where.pop(n)
        made = step(product([live.pop(key) for key in sorted(used)], limit=limit), n)
        for m in made.scope:
            where[m] -= used
            where[m].add(fresh)
        live[fresh] = made
        fresh += 1
        for m in made.scope:
            if m in current:
                current[m] = cost(m)
                heapq.heappush(heap, (current[m], rank[m], m))
    return list(live.values())


def _check_width(tables: Sequence[LogTable], scope: Sequence[str], limit: int) -> None:
    sizes = {n: k for t in tables for n, k in zip(t.scope, t.array.shape, strict=True)}
    entries = math.prod(sizes.values())
    if entries > limit:
        shown = ", ".join(n.rstrip("\0") for n in scope[:8])
        more = f", … ({len(scope)} nodes)" if len(scope) > 8 else ""
        raise ModelTooWide(
            f"a table over {{{shown}{more}}} needs {entries:,} entries, the limit is {limit:,}",
            f"raise {option('max_entries')}",
        )

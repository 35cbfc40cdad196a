"""Sums of products of *probabilities*, where nothing can underflow: hidden nodes summed out of their factors.

The errors of these tables are relative; see :mod:`quiltdp.inference.tables` for how they add up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from quiltdp.inference.plan import AT_ONCE, MOST_AXES
from quiltdp.inference.tables import LogTable, aligned, eliminated, product_scope, without
from quiltdp.model import Table
from quiltdp.numbers import EPS
from quiltdp.work import NO_GUARD, Guard

__all__ = ["summed_law"]


def summed_law(
    tables: Iterable[LogTable], nodes: Collection[str], *, limit: int, guard: Guard = NO_GUARD
) -> LogTable:
    """Return the sum over ``nodes`` of the product of tables of *probabilities*, errors relative.

    The logarithms of the entries must add up to less than what a double holds, so that nothing
    underflows: the ``size`` of every table is a bound on them.
    """
    every = list(tables)
    sizes = {n: k for t in every for n, k in zip(t.scope, t.array.shape, strict=True)}
    entries = math.prod(sizes.values())
    if entries <= min(limit, AT_ONCE) and len(every) < MOST_AXES and len(sizes) < MOST_AXES:
        return _summed_at_once(every, sizes, nodes)
    few = all(sizes[n] < 8 for n in nodes)  # then numpy adds up in one order, however a table lies

    def step(joined: Sequence[LogTable], node: str) -> LogTable:
        if few and len(joined) > 1:
            return _law_summed(joined, node, limit=limit)
        return _sum_out(_law_product(joined, limit=limit), node)

    left = eliminated(every, nodes, step, guard)
    return _law_product(left, limit=limit)


def _summed_at_once(tables: Sequence[LogTable], sizes: Mapping[str, int], nodes: Collection[str]) -> LogTable:
    """Return the same where the product of all tables is small: one call for everything."""
    label = {n: k for k, n in enumerate(sizes)}
    operands: list[Any] = []
    for t in tables:
        operands += [t.array, [label[n] for n in t.scope]]
    rest = tuple([n for n in sizes if n not in nodes])
    terms = math.prod([k for n, k in sizes.items() if n in nodes])
    law = np.einsum(*operands, [label[n] for n in rest])
    size = sum([t.size for t in tables]) + math.log(terms)
    return LogTable(rest, law, size, sum([t.error for t in tables]) + (len(tables) + terms) * EPS)


def _law_product(tables: Sequence[LogTable], *, limit: int) -> LogTable:
    """Return the product of tables of probabilities; errors are relative."""
    if len(tables) == 1:
        return tables[0]
    scope = product_scope(tables, limit)
    views = sorted([aligned((t.scope, t.array), scope) for t in tables], key=lambda v: v.size)
    total = views[0]
    for view in views[1:]:
        total = total * view
    error = sum([t.error for t in tables]) + len(tables) * EPS
    return LogTable(scope, total, sum([t.size for t in tables]), error)


def _sum_out(table: LogTable, node: str) -> LogTable:
    rest, axis = without(table, node)
    count = table.array.shape[axis]
    size = table.size + math.log(count)
    return LogTable(rest, table.array.sum(axis=axis), size, table.error + count * EPS)


def _law_summed(tables: Sequence[LogTable], node: str, *, limit: int) -> LogTable:
    """Return the sum over a node of few states of the product of tables of probabilities that contain it.

    The largest table is multiplied in value after value of the node, and that is added up in their order: the
    whole product is never made.
    """
    scope = product_scope(tables, limit)
    *views, last = sorted([aligned((t.scope, t.array), scope) for t in tables], key=lambda v: v.size)
    total = views[0]
    for view in views[1:]:
        total = total * view
    axis = scope.index(node)
    law, count = _summed_products(total, last, axis), last.shape[axis]
    size = sum([t.size for t in tables]) + math.log(count)
    error = sum([t.error for t in tables]) + len(tables) * EPS + count * EPS
    return LogTable(scope[:axis] + scope[axis + 1 :], law, size, error)


def _summed_products(one: Table, two: Table, axis: int) -> Table:
    """Return the sum along an axis of a product.

    In memory axes of both come first, then those of one table alone, then those of the other: long runs.
    """
    others = [k for k in range(one.ndim) if k != axis]
    both = [k for k in others if one.shape[k] > 1 and two.shape[k] > 1]
    alone = [k for k in others if one.shape[k] > 1 and two.shape[k] == 1]
    rest = [k for k in others if one.shape[k] == 1]
    if two.size < one.size:
        one, two, alone, rest = two, one, rest, alone
    order = [*both, *alone, *rest]
    count, common = one.shape[axis], math.prod([one.shape[k] for k in both])
    first = one.transpose([axis, *order]).reshape(count, common, -1, 1)
    second = two.transpose([axis, *order]).reshape(count, common, 1, -1)
    law = first[0] * second[0]
    room = np.empty_like(law)
    for k in range(1, count):
        law += np.multiply(first[k], second[k], out=room)
    law = law.reshape([max(one.shape[k], two.shape[k]) for k in order])
    return np.asarray(law.transpose([order.index(k) for k in others]))

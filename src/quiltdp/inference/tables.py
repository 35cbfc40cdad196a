"""Tables with named axes, in logarithms; and the one place that decides what 0/0 and p/0 mean.

A *named table* is a pair ``(scope, array)``: node names and one axis for each.  Arrays hold natural
logarithms, −∞ for impossible.  An *evidence-extended* axis has one entry more than its node has
states: the last one means "unobserved" and holds the sum along the axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.model import Table

__all__ = ["NamedTable", "aligned", "extended", "extended_law", "log_ratio", "log_sum", "log_table"]

_Kind = TypeVar("_Kind", bound=np.generic)
NamedTable: TypeAlias = tuple[Sequence[str], Table]


def log_table(table: Table, cache: dict[int, Table] | None = None) -> Table:
    """Return ln of a table, −∞ for zeros; ``cache`` keeps one result per table object."""
    if cache is not None and id(table) in cache:
        return cache[id(table)]
    with np.errstate(divide="ignore"):
        logs = np.log(table)
    if cache is not None:
        cache[id(table)] = logs
    return logs


def aligned(named: tuple[Sequence[str], NDArray[_Kind]], scope: Sequence[str]) -> NDArray[_Kind]:
    """Return a view of the table with the axes of ``scope``, length 1 where it has none.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.tables import aligned
    >>> aligned((("B", "A"), np.zeros((3, 2))), ("A", "C", "B")).shape
    (2, 1, 3)
    """
    own, array = named
    if tuple(own) == tuple(scope):
        return array
    where = {n: k for k, n in enumerate(own)}
    order = [where[n] for n in scope if n in where]
    moved = array.transpose(order)
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if n in where else 1 for n in scope])


def log_sum(named: NamedTable, keep: Collection[str]) -> Table:
    """Return ln Σ exp over the axes not in ``keep``, remaining axes in their order.

    The largest entry along the summed axes is taken out first, so a sum of positive numbers is
    never lost to underflow: the result is −∞ exactly when every summand is.
    """
    scope, array = named
    gone = tuple(k for k, n in enumerate(scope) if n not in keep)
    if not gone:
        return array
    top = array.max(axis=gone, keepdims=True)
    shift = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(array - shift).sum(axis=gone, keepdims=True)) + shift
    return np.asarray(total.squeeze(axis=gone))


def extended(array: Table, axis: int) -> Table:
    """Return the log table with one more entry, "unobserved", on an axis: ln of the sum along it.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.tables import extended
    >>> np.exp(extended(np.log([[0.2, 0.3], [0.4, 0.1]]), 1)).round(6).tolist()
    [[0.2, 0.3, 0.5], [0.4, 0.1, 0.5]]
    """
    names = tuple(str(k) for k in range(array.ndim))
    total = log_sum((names, array), names[:axis] + names[axis + 1 :])
    return np.concatenate([array, np.expand_dims(total, axis)], axis=axis)


def extended_law(law: Table, axes: Iterable[int]) -> Table:
    """Return a table of probabilities with one more entry, "unobserved", on some axes: the sum along each.

    One matrix product per axis, which is quicker than a sum beside a copy.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.tables import extended_law
    >>> extended_law(np.array([[0.2, 0.3], [0.4, 0.1]]), [1]).round(6).tolist()
    [[0.2, 0.3, 0.5], [0.4, 0.1, 0.5]]
    """
    for axis in axes:
        shape = law.shape
        longer = _extension(shape[axis]) @ law.reshape(math.prod(shape[:axis]), shape[axis], -1)
        law = longer.reshape(*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    return law


@lru_cache(maxsize=256)
def _extension(length: int) -> Table:
    """Return the matrix that appends the sum of a vector to it."""
    return np.concatenate((np.eye(length), np.ones((1, length))))


def log_ratio(numerator: Table, denominator: Table) -> Table:
    """Return ln p − ln q entry by entry: +∞ where p/0, −∞ where 0/q, and −∞ where 0/0.

    This is the one function that decides support.  It is made for maxima: an impossible numerator
    is no candidate for the largest ratio (−∞), whatever the denominator, so 0/0 is skipped; a
    possible numerator over an impossible denominator is +∞.
    """
    with np.errstate(invalid="ignore"):
        ratio = numerator - denominator
    return np.where(numerator > -np.inf, ratio, -np.inf)

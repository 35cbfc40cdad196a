"""What tables say one by one: their spread c, and which nodes have one possible value.

The spread is how far one factor alone can move the odds between two states:

    c_{i,f} = max_{x, x'} ( max_z − min_z )  of  ln ψ_f(x', z) − ln ψ_f(x, z)

over the assignments z of the factor's other nodes; 0/0 is skipped, p/0 is ∞.  States whose whole
row is zero are impossible and are left out.  One vectorised pass over each table, no inference.

*Nodes with one possible value*: nothing can be told about them, whoever asks.  Possible values are narrowed
table by table: a value of a node is kept while some entry of every table that holds it is positive, the
other nodes having values that are kept.  What is left may be too much, never too little, so a node with
one value left has no other.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument
from quiltdp.graph.components import FactorGraph
from quiltdp.inference.plan import SUPPORT_PASSES, SUPPORT_TABLES
from quiltdp.interface import any_model
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS


def spread_of_rows(rows: Table) -> float:
    """Return the spread of a matrix whose rows are the states and whose columns are z, rounded up.

    Notes
    -----
    A logarithm is off by at most a few units of its own size and a difference of two adds as much
    again, so the computed spread is raised by 16 units of the largest logarithm; rows that agree
    entry by entry have spread exactly 0.

    Examples
    --------
    >>> import numpy as np
    >>> round(spread_of_rows(np.array([[0.9, 0.1], [0.1, 0.9]])), 6)  # 2 ln 9 … twice ln 9
    4.394449
    >>> spread_of_rows(np.array([[1.0, 0.0], [0.5, 0.5]]))
    inf
    """
    kept = rows[rows.any(axis=1)]
    kept = kept[:, kept.any(axis=0)]
    if kept.shape[0] < 2 or kept.shape[1] < 2:
        return 0.0
    if (kept == kept[0]).all():
        return 0.0  # the same row again and again tells nothing, exactly
    with np.errstate(divide="ignore"):
        logs = np.log(kept)
    return _widest_pair(logs)


def _widest_pair(logs: Table) -> float:
    """Return the largest spread over pairs of rows of a log table."""
    finite = np.isfinite(logs)
    slack = 16 * EPS * float(np.abs(logs[finite]).max(initial=0.0))
    if finite.all():
        return _widest_of_possible(logs, slack) + slack
    best = 0.0
    for k in range(len(logs) - 1):
        known = finite[k] | finite[k + 1 :]
        with np.errstate(invalid="ignore"):
            moved = logs[k + 1 :] - logs[k]
        high = np.where(known, moved, -np.inf).max(axis=1)
        low = np.where(known, moved, np.inf).min(axis=1)
        best = max(best, float((high - low).max()))
    return best + slack  # rows that differ in the last place only may have looked equal


def _widest_of_possible(logs: Table, slack: float) -> float:
    """Return the same for a table without zeros; pairs that cannot be widest are passed over.

    For any row c a pair is at most as wide as both rows are, measured from c, together.
    """
    from_middle = logs - 0.5 * (logs.max(axis=0) + logs.min(axis=0))
    width = from_middle.max(axis=1) - from_middle.min(axis=1)
    order = np.argsort(-width, kind="stable")
    logs, width = logs[order], width[order]
    best = 0.0
    for k in range(len(logs) - 1):
        end = int(np.searchsorted(-width, width[k] + slack - best))  # narrower rows than these do not help
        if end <= k + 1:
            break
        moved = logs[k + 1 : end] - logs[k]
        best = max(best, float((moved.max(axis=1) - moved.min(axis=1)).max()))
    return best


def spreads_of_tables(tables: Table) -> Table:
    """Return :func:`spread_of_rows` of every matrix of a stack, all at once.

    Examples
    --------
    >>> import numpy as np
    >>> spreads_of_tables(np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])).round(6).tolist()
    [4.394449, 0.0]
    """
    with np.errstate(divide="ignore"):
        logs = np.log(tables)
    finite: NDArray[np.bool_] = np.isfinite(logs)
    alive: NDArray[np.bool_] = np.asarray(finite.any(axis=2))
    best = np.zeros(len(tables))
    differ = np.zeros(len(tables), dtype=bool)
    for x in range(tables.shape[1] - 1):
        for y in range(x + 1, tables.shape[1]):
            both = alive[:, x] & alive[:, y]
            known = finite[:, x] | finite[:, y]
            with np.errstate(invalid="ignore"):
                moved = logs[:, y] - logs[:, x]
                high = np.where(known, moved, -np.inf).max(axis=1)
                low = np.where(known, moved, np.inf).min(axis=1)
                wide = np.where(both & (known.sum(axis=1) > 1), high - low, 0.0)
            np.maximum(best, wide, out=best)
            differ |= both & (tables[:, x] != tables[:, y]).any(axis=1)
    largest = np.abs(np.where(finite, logs, 0.0)).max(axis=(1, 2))
    found: Table = np.where(differ, best + 16 * EPS * largest, 0.0)
    return found


@any_model
def spread(model: Model, node: str, factor: int) -> float:
    """Return c_{i,f} for a node and the position of a factor in ``model.factors``, rounded up.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> round(spread(m, "A", 1), 6), spread(m, "A", 0)
    (4.394449, 0.0)
    """
    return unit_spread(model, [node], factor)


def unit_spread(model: Model, nodes: Collection[str], factor: int) -> float:
    """Return c_{T,f}: the spread over the factor's other nodes when the nodes of T change together.

    Raises
    ------
    InvalidArgument
        If a node of T is not in the factor.
    """
    model.require(nodes)
    chosen = model.factors[factor]
    for n in nodes:
        if n not in chosen.scope:
            raise InvalidArgument(f"node {n!r} is not in the scope of {chosen!r}")
    return spread_of_rows(_matrix_of_rows(chosen.table, [chosen.scope.index(n) for n in nodes]))


def _matrix_of_rows(table: Table, axes: list[int]) -> Table:
    """Return the table as a matrix: the given axes together are the rows."""
    rest = [a for a in range(table.ndim) if a not in axes]
    size = int(np.prod([table.shape[a] for a in axes]))
    return table.transpose([*axes, *rest]).reshape(size, -1)


def all_spreads(model: Model, graph: FactorGraph) -> NDArray[np.float64]:
    """Return c for every edge of the model's factor graph, each distinct table looked at once."""
    known: dict[tuple[int, int], float] = {}
    values: list[float] = []
    for position in graph.factor_position:
        table = model.factors[int(position)].table
        for axis in range(table.ndim):
            key = (id(table), axis)
            value = known.get(key)
            if value is None:
                value = known[key] = spread_of_rows(_matrix_of_rows(table, [axis]))
            values.append(value)
    return np.array(values, dtype=np.float64)


# -- what is possible -------------------------------------------------------------------------------


def determined_nodes(model: Model) -> frozenset[str]:
    """Return nodes that have one possible value; some may be missed, none is wrong.

    Examples
    --------
    >>> from quiltdp import Model
    >>> determined_nodes(Model.from_tables({"A": ([], [1.0, 0.0]), "B": (["A"], [[0.5, 0.5], [0.1, 0.9]])}))
    frozenset({'A'})
    """
    if isinstance(model, ChainModel):
        return _certain_steps(model)
    if len(model.factors) > SUPPORT_TABLES:
        return frozenset()
    left = {n: np.ones(model.cardinality(n), dtype=bool) for n in model.nodes}
    for _ in range(SUPPORT_PASSES):
        changed = False
        for factor in model.factors:
            table = np.asarray(factor.table)
            if table.all():
                continue
            possible = table > 0
            for axis, n in enumerate(factor.scope):
                possible = possible & left[n].reshape([-1 if k == axis else 1 for k in range(table.ndim)])
            for axis, n in enumerate(factor.scope):
                others = tuple(k for k in range(table.ndim) if k != axis)
                seen: NDArray[np.bool_] = np.asarray(possible.any(axis=others))
                changed = changed or bool((seen != left[n]).any())
                left[n] = seen
        if not changed:
            break
    return frozenset(n for n, values in left.items() if values.sum() == 1)


def _certain_steps(model: ChainModel) -> frozenset[str]:
    """Return the steps of every chain before the first that may take several values."""
    found: set[str] = set()
    for segment in model.segments:
        now: NDArray[np.bool_] = np.asarray(segment.initial) > 0
        for t in range(segment.length):
            if now.sum() != 1 or len(found) >= SUPPORT_TABLES:
                break
            found.add(f"{segment.prefix}{t}")
            if t + 1 < segment.length:
                now = np.asarray((np.asarray(segment.transition(t))[now] > 0).any(axis=0))
    return frozenset(found)

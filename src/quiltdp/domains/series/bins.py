"""How columns become states, one by one and together, and the chain that a table's rows make of them.

Of numbers the rule and its edges are part of the answer.

Joint states are the combinations that occur.  Every column keeps its values where there are few; while
there are more than :data:`MOST` combinations the column with the most states is cut coarser.  Merging states
could hide dependence, so that nothing is taken for granted of what was merged: it is tested (see
:mod:`~quiltdp.domains.series.dependence`).

The law of the next row is a product over its columns.  A column depends on what it was in the row before,
always, and on every other column of that row, and on the columns before it in its own, where the Bayesian
information criterion sees it (a tree of contexts for each column, looking two columns ahead).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.trace.estimate import log_likelihood
from quiltdp.errors import InvalidArgument, option

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RULES = ("quantile", "width")


@dataclass(frozen=True)
class Bins:
    """States of a column: intervals between inner edges, or the texts themselves.

    Attributes
    ----------
    rule
        ``quantile``, ``width``, ``edges``, ``values`` or ``texts``.
    edges
        The inner edges, ascending; state k holds edges[k−1] ≤ x < edges[k].
    names
        One name per state.
    """

    rule: str
    edges: tuple[float, ...]
    names: tuple[str, ...]

    def states(self, values: Sequence[object]) -> NDArray[np.int64]:
        """Return the state of every value.

        Raises
        ------
        InvalidArgument
            For a text that was not seen when the states were found.
        """
        if self.rule == "texts":
            index = {name: k for k, name in enumerate(self.names)}
            odd = next((v for v in values if str(v) not in index), None)
            if odd is not None:
                raise InvalidArgument(f"the value {odd!r} is none of the states {', '.join(self.names)}")
            return np.array([index[str(v)] for v in values], dtype=np.int64)
        numbers = np.asarray(values, dtype=np.float64)
        return np.searchsorted(np.asarray(self.edges), numbers, side="right").astype(np.int64)


def find_bins(
    values: Sequence[object], states: int = 8, rule: str = "quantile", edges: Sequence[float] | None = None
) -> Bins:
    """Return the states of a column.

    - ``quantile``: as many values in every state as ties allow;
    - ``width``: intervals of equal width between the smallest and the largest value;
    - ``edges``: the inner edges that are given;
    - ``values``: a column with no more different numbers than states has a state for each of them;
    - a column that is not all numbers: every text is a state.

    Examples
    --------
    >>> find_bins([1.0, 2.0, 3.0, 4.0], states=2)
    Bins(rule='quantile', edges=(2.5,), names=('below 2.5', '2.5 and above'))
    """
    if isinstance(states, bool) or not isinstance(states, int) or not 1 <= states <= 1000:
        raise InvalidArgument(f"{option('states')} must be a whole number from 1 to 1000, not {states!r}")
    numbers = _finite_numbers(values)
    if numbers is None:
        names = tuple(sorted({str(v) for v in values}))
        if len(names) > 1000:
            raise InvalidArgument(
                f"the column has {len(names):,} different texts: at most 1,000 can be states"
            )
        return Bins("texts", (), names)
    if edges is not None:
        inner = np.asarray(sorted(set(edges)), dtype=np.float64)
        if not np.isfinite(inner).all():
            raise InvalidArgument(f"{option('edges')} must be finite numbers")
        return Bins("edges", tuple(inner.tolist()), _interval_names(inner))
    if rule not in RULES:
        raise InvalidArgument(f"{option('binning')} must be {' or '.join(RULES)}, not {rule!r}")
    distinct = np.unique(numbers)
    if len(distinct) <= states:
        inner = (distinct[:-1] + distinct[1:]) / 2
        return Bins("values", tuple(inner.tolist()), tuple(f"{v:.12g}" for v in distinct))
    if rule == "quantile":
        inner = np.quantile(numbers, np.arange(1, states) / states) if states > 1 else np.zeros(0)
    else:
        inner = np.linspace(numbers.min(), numbers.max(), states + 1)[1:-1]
    inner = np.unique(inner)
    inner = inner[inner > numbers.min()]  # an edge at the smallest value would leave a state without values
    return Bins(rule, tuple(inner.tolist()), _interval_names(inner))


def _finite_numbers(values: Sequence[object]) -> NDArray[np.float64] | None:
    """Return the values as finite numbers, or ``None`` if some are texts."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if not np.isfinite(numbers).all():
        where = int(np.argmin(np.isfinite(numbers)))
        raise InvalidArgument(f"value {where + 1} is {values[where]!r}: give finite numbers, or leave it out")
    return numbers


def _interval_names(edges: NDArray[np.float64]) -> tuple[str, ...]:
    if not len(edges):
        return ("any",)
    shown = [f"{e:.6g}" for e in edges]
    if len(set(shown)) < len(shown):
        shown = [repr(float(e)) for e in edges]
    middle = [f"{a} to {b}" for a, b in pairwise(shown)]
    return (f"below {shown[0]}", *middle, f"{shown[-1]} and above")


# -- joint states of several columns ------------------------------------------------------------------

MOST = 64
"""The most joint states of a chain of rows."""


@dataclass(frozen=True, eq=False)
class JointStates:
    """The joint state of every row.

    Attributes
    ----------
    of_row
        Which state each row is in, −1 where a cell has no value.
    table
        One line for each state: the state of every column.
    names
        One name for each state.
    sizes
        How many states each column has.
    """

    of_row: Ints
    table: Ints
    names: tuple[str, ...]
    sizes: Mapping[str, int]


def joint_states(columns: Mapping[str, Sequence[Any]], states: int, most: int = MOST) -> JointStates:
    """Return the joint states of columns, numbers cut into at most so many states.

    Raises
    ------
    InvalidArgument
        If there are too many columns for ``most`` joint states.

    Examples
    --------
    >>> found = joint_states({"a": [0, 1, 1, 0], "b": ["x", "x", "y", "x"]}, 8)
    >>> found.of_row.tolist(), found.names
    ([0, 1, 2, 0], ('a = 0, b = x', 'a = 1, b = x', 'a = 1, b = y'))
    """
    empty = np.array([any(v is None for v in row) for row in zip(*columns.values(), strict=True)], dtype=bool)
    kept = {
        name: [v for v, gone in zip(values, empty, strict=True) if not gone]
        for name, values in columns.items()
    }
    most_of = dict.fromkeys(columns, states)
    cut = {name: _column_states(kept[name], states) for name in columns}
    while True:
        codes = np.stack([code for code, _ in cut.values()], axis=1)
        table, where = np.unique(codes, axis=0, return_inverse=True)
        if len(table) <= most:
            break
        widest = max(cut, key=lambda name: len(cut[name][1]))
        if len(cut[widest][1]) <= 2:
            raise InvalidArgument(
                f"{len(columns)} columns have {len(table):,} joint states, at most {most} can be a chain:"
                f" name the columns that questions may read, {option('read')}"
            )
        most_of[widest] = len(cut[widest][1]) - 1
        cut[widest] = _column_states(kept[widest], most_of[widest])
    of_row = np.full(len(empty), -1, dtype=np.int64)
    of_row[~empty] = where.reshape(-1)
    names = tuple(
        ", ".join(f"{name} = {cut[name][1][k]}" for name, k in zip(cut, line, strict=True)) for line in table
    )
    return JointStates(of_row, table, names, {name: len(found) for name, (_, found) in cut.items()})


def _column_states(values: Sequence[Any], states: int) -> tuple[Ints, tuple[str, ...]]:
    """Return the state of every value, and the states' names; rare texts become one state."""
    if all(isinstance(v, str) for v in values):
        common = [text for text, _ in Counter(values).most_common()]
        if len(common) > states:
            common = [*common[: states - 1], "other"]
        index = {text: k for k, text in enumerate(common)}
        return np.array([index.get(v, len(common) - 1) for v in values], dtype=np.int64), tuple(common)
    bins = find_bins([v if isinstance(v, (int, float)) else str(v) for v in values], states)
    if bins.rule == "texts":  # numbers and texts mixed
        return _column_states([str(v) for v in values], states)
    return bins.states(values), bins.names


def joint_chain(joint: JointStates, pairs: Ints) -> Floats:
    """Return the transition matrix over joint states, from pairs of states that follow each other.

    Examples
    --------
    >>> steps = [0, 0, 1, 1, 0, 0, 1, 1, 0]
    >>> found = joint_states({"a": steps}, 2)
    >>> joint_chain(found, np.stack([found.of_row[:-1], found.of_row[1:]], axis=1)).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    size, width = joint.table.shape
    after = joint.table[pairs[:, 1]]
    context = np.concatenate([joint.table[pairs[:, 0]], after], axis=1)
    one, other = (grid.reshape(-1) for grid in np.indices((size, size)))
    every = np.concatenate([joint.table[one], joint.table[other]], axis=1)
    chance = np.ones(size * size)
    for k in range(width):
        law = np.bincount(after[:, k], minlength=joint.table[:, k].max() + 1) / len(after)
        tree = _ContextTree(
            context, after[:, k], every, [c for c in range(width + k) if c != k], np.log(len(pairs))
        )
        rows, wanted = np.arange(len(after)), np.arange(len(every))
        found = np.empty((len(every), len(law)))
        tree.split(k, rows, wanted, law, found)
        chance *= found[wanted, every[:, width + k]]
    matrix: Floats = chance.reshape(size, size)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _ContextTree:
    """The law of one column given the columns of the row before and those before it in its own row."""

    context: Ints
    target: Ints
    every: Ints
    candidates: Sequence[int]
    price: float  # of a parameter, on the scale of 2 ln L

    def grow(self, rows: Ints, wanted: Ints, law: Floats, found: Floats) -> None:
        """Fill in the law of the contexts ``wanted``, from the rows that share what is known of them."""
        if len(rows):
            law = np.bincount(self.target[rows], minlength=len(law)) / len(rows)
        for width in (1, 2):  # two columns may say together what neither says alone
            chosen = [(self._bic_gain(by, rows, len(law)), by) for by in combinations(self.candidates, width)]
            gain, by = max(chosen, default=(0.0, ()))
            if gain > 0:
                self.split(by[0], rows, wanted, law, found)
                return
        found[wanted] = law

    def split(self, by: int, rows: Ints, wanted: Ints, law: Floats, found: Floats) -> None:
        """Tell contexts apart by one column."""
        for value in np.unique(self.every[wanted, by]):
            same = wanted[self.every[wanted, by] == value]
            self.grow(rows[self.context[rows, by] == value], same, law, found)

    def _bic_gain(self, by: Sequence[int], rows: Ints, size: int) -> float:
        """Return by how much BIC falls when contexts are told apart by these columns."""
        values = self.context[rows][:, by] @ ((MOST + 1) ** np.arange(len(by)))
        table = np.bincount(values * size + self.target[rows], minlength=size).astype(np.float64)
        table = np.pad(table, (0, -len(table) % size)).reshape(-1, size)
        table = table[table.sum(axis=1) > 0]
        if len(table) < 2:
            return 0.0
        return 2 * (log_likelihood(table) - log_likelihood(table.sum(axis=0, keepdims=True))) - self.price * (
            (len(table) - 1) * (size - 1)
        )

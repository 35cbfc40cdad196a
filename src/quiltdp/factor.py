"""Factor tables: non-negative arrays with named axes, frozen and checked at birth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidModel
from quiltdp.printable import printable

Table: TypeAlias = NDArray[np.float64]

ROW_SUM_TOLERANCE = 1e-6
"""How far a CPT row of a real file may stray from 1 before it is refused instead of normalised."""


def frozen_table(values: ArrayLike, owner: str, node: str | None = None) -> Table:
    """Return a read-only double-precision copy of ``values``, or refuse it naming ``owner``."""
    try:
        table = np.array(values, dtype=np.float64, order="C")
        table += 0.0  # turns -0.0 into 0.0
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidModel(
            f"{owner}: the table is not a rectangular array of numbers ({error})", node
        ) from None
    if not np.all(np.isfinite(table)):
        place = _first_true_index(~np.isfinite(table))
        raise InvalidModel(f"{owner}: the table has a NaN or infinite entry at {place}", node)
    if np.any(table < 0):
        raise InvalidModel(f"{owner}: the table has a negative entry at {_first_true_index(table < 0)}", node)
    table.flags.writeable = False
    return table


def plain_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as plain strings, which print alike wherever they came from (NumPy, pandas)."""
    return tuple(n if type(n) is str or not isinstance(n, str) else str(n) for n in names)


def _first_true_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first true entry."""
    return tuple(int(k) for k in np.argwhere(mask)[0])


class Frozen:
    """What nobody changes after it was made."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__} is frozen")


class Factor(Frozen):
    """A non-negative table with named axes.

    Parameters
    ----------
    scope
        The nodes, one per axis.
    table
        Non-negative finite numbers; copied and made read-only.
    child
        For a conditional probability table, the node it describes: always the last axis.
        ``None`` for a potential.
    """

    __slots__ = ("child", "scope", "table")

    scope: tuple[str, ...]
    table: Table
    child: str | None

    def __init__(self, scope: Sequence[str], table: ArrayLike, child: str | None = None) -> None:
        names = plain_names(scope)
        child = str(child) if isinstance(child, str) else child
        owner = f"node {child!r}" if child is not None else f"factor over {names}"
        if len(set(names)) != len(names):
            raise InvalidModel(f"{owner}: a node appears twice in the scope {names}", child)
        array = frozen_table(table, owner, child)
        if array.ndim != len(names):
            raise InvalidModel(
                f"{owner}: the table has {array.ndim} axes but the scope has {len(names)} nodes {names}",
                child,
            )
        if array.size and not array.any():
            raise InvalidModel(f"{owner}: every entry of the table is zero", child)
        if child is not None and (not names or names[-1] != child):
            raise InvalidModel(f"{owner}: the child must be the last axis, the scope is {names}", child)
        self._set_fields(names, array, child)

    def _set_fields(self, scope: tuple[str, ...], table: Table, child: str | None) -> None:
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "child", child)

    @classmethod
    def _from_checked(cls, scope: tuple[str, ...], table: Table, child: str | None) -> Factor:
        """Wrap a table that was frozen and checked before, so that equal tables stay one object."""
        if len(set(scope)) != len(scope) or table.ndim != len(scope):
            return cls(scope, table, child)  # raises, with the right words
        factor = cls.__new__(cls)
        factor._set_fields(scope, table, child)
        return factor

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the constructor, so that a factor is checked wherever it arrives."""
        return (Factor, (self.scope, np.array(self.table), self.child))

    @property
    def parents(self) -> tuple[str, ...]:
        """The conditioning nodes of a CPT (empty for a potential)."""
        return self.scope[:-1] if self.child is not None else ()

    def __eq__(self, other: object) -> bool:
        """Equal scope, child and entries."""
        if not isinstance(other, Factor):
            return NotImplemented
        return (
            self.scope == other.scope
            and self.child == other.child
            and np.array_equal(self.table, other.table)
        )

    def __hash__(self) -> int:
        """Hash by scope and child (tables are compared on equality only)."""
        return hash((self.scope, self.child))

    def __repr__(self) -> str:
        """Read like a probability: ``P(B | A)`` or ``ψ(A, B)``."""
        if self.child is None:
            return printable(f"ψ({', '.join(self.scope)})")
        condition = f" | {', '.join(self.parents)}" if self.parents else ""
        return printable(f"P({self.child}{condition})")


class TablePool:
    """Keeps one read-only array per distinct table, so that a large model stays small."""

    def __init__(self) -> None:
        self._by_content: dict[tuple[tuple[int, ...], bytes], Table] = {}
        self._by_object: dict[int, tuple[object, Table]] = {}
        self._fixed: dict[int, tuple[Table, Table, float]] = {}
        self._normalised: list[tuple[str, float]] = []

    def intern(self, owner: str, values: ArrayLike, node: str | None = None) -> Table:
        """Return the frozen array of ``values``, the same object for equal tables."""
        table = frozen_table(values, owner, node)
        return self._by_content.setdefault((table.shape, table.tobytes()), table)

    def potential(self, scope: tuple[str, ...], values: ArrayLike) -> Table:
        """Return the frozen array of a potential, the same object for equal tables."""
        owner = f"factor over {scope}"
        table = self.intern(owner, values)
        if table.size and not table.any():
            raise InvalidModel(f"{owner}: every entry of the table is zero")
        return table

    def cpt(self, node: str, values: ArrayLike) -> Table:
        """Return the frozen, normalised CPT, the same object for equal tables."""
        known = self._by_object.get(id(values))
        raw = known[1] if known is not None else self.intern(f"node {node!r}", values, node)
        self._by_object[id(values)] = (values, raw)  # holds values, so its id stays taken
        return self.normalised(node, raw)

    def normalised(self, node: str, table: Table) -> Table:
        """Return a frozen table with its rows normalised, the same object for the same object."""
        known = self._fixed.get(id(table))
        if known is None:
            fixed, off = normalise_rows(node, table)
            fixed = self._by_content.setdefault((fixed.shape, fixed.tobytes()), fixed) if off > 0 else table
            known = self._fixed[id(table)] = (table, fixed, off)
        if known[2] > 0:
            self._normalised.append((node, known[2]))
        return known[1]

    def notes(self) -> tuple[str, ...]:
        """Say which nodes had rows that did not sum to 1."""
        visible = [(n, off) for n, off in self._normalised if off > 1e-12]
        if not visible:
            return ()
        worst = max(visible, key=lambda item: item[1])
        return (
            f"rows of {len(visible)} table{'s' * (len(visible) > 1)} did not sum to 1 and were normalised"
            f" (furthest off: node {worst[0]!r} by {worst[1]:.1e})",
        )


def normalise_rows(node: str, table: Table) -> tuple[Table, float]:
    """Return the CPT with rows summing to 1, and how far the worst row was off.

    Raises
    ------
    InvalidModel
        If a row is off by more than ``ROW_SUM_TOLERANCE``, naming node and row.
    """
    if table.ndim == 0 or table.shape[-1] == 0:
        raise InvalidModel(f"node {node!r}: the table has no states", node)
    with np.errstate(over="ignore"):  # a sum beyond the largest number is refused like any other
        sums = table.sum(axis=-1, keepdims=True)
    off = np.abs(sums - 1.0)
    worst = float(off.max(initial=0.0))
    if worst > ROW_SUM_TOLERANCE:
        row = _first_true_index(off[..., 0] > ROW_SUM_TOLERANCE) if table.ndim > 1 else ()
        where = f"row {row}" if row else "the table"
        total = float(sums[..., 0][row])
        raise InvalidModel(f"node {node!r}: {where} sums to {total:.9g}, it must sum to 1", node)
    # What rounding alone can do to the sum of n numbers is left as written, so that normalising
    # twice is normalising once and a saved model is read back bit for bit.
    if worst <= (4 + table.shape[-1]) * np.finfo(np.float64).eps:
        return table, 0.0
    fixed = table / sums
    fixed.flags.writeable = False
    return fixed, worst

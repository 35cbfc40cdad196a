"""Queries written as expressions over columns, evaluated without ``eval``.

The text is parsed, every node of the syntax tree is checked against a short list, and the tree is
walked with numpy.  A row where the expression makes no sense (a missing number, a division by zero)
gives NaN.  On the training data that refuses the query; on the holdout such a row counts 0, so that
nothing about the holdout can be learned from an error.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument

__all__ = ["Expression"]

MAX_CHARACTERS = 2000
MAX_NODES = 300

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "abs": (np.abs, 1),
    "floor": (np.floor, 1),
    "sign": (np.sign, 1),
    "minimum": (np.minimum, 2),
    "maximum": (np.maximum, 2),
    "clip": (np.clip, 3),
    "where": (np.where, 3),
}


class Expression:
    """A query over columns, one value in [0, 1] per row.

    Names are columns (``col("odd name")`` for the others); there are numbers, texts, ``True`` and
    ``False``, ``+ - * / // %``, comparisons (chained too), ``in (…)``, ``and or not``, and the
    functions abs, floor, sign, minimum, maximum, clip, where.

    Examples
    --------
    >>> from quiltdp.mechanisms.expressions import Expression
    >>> columns = {"age": [31, 64, 47], "town": ["Oslo", "Rome", "Oslo"]}
    >>> Expression("40 <= age < 65 and town == 'Oslo'").rows(columns, 3).tolist()
    [0.0, 0.0, 1.0]
    >>> Expression("__import__('os')")
    Traceback (most recent call last):
    ...
    quiltdp.errors.InvalidArgument: query "__import__('os')": the function '__import__' is not allowed; ...
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InvalidArgument(f"a query must be a non-empty text, not {text!r}")
        self.text = text.strip()
        if len(self.text) > MAX_CHARACTERS:
            raise InvalidArgument(f"query: {len(text)} characters, at most {MAX_CHARACTERS} are allowed")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # 1or 2 is a typing mistake, not a query
                self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, Warning, ValueError, MemoryError, RecursionError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise self._refusal(f"this is not an expression ({reason})") from None
        if sum(1 for _ in ast.walk(self._tree)) > MAX_NODES:
            raise self._refusal(f"more than {MAX_NODES} parts")
        self.columns = frozenset(self._check(self._tree))

    def _refusal(self, why: str) -> InvalidArgument:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "…"
        return InvalidArgument(f'query "{shown}": {why}')

    # -- checking --------------------------------------------------------------------------

    def _check(self, node: ast.expr) -> set[str]:
        """Return the columns that a tree reads; refuse every construct that is not on the list."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, (bool, int, float, str)):
                if isinstance(node.value, int) and abs(node.value) > 2**53:
                    raise self._refusal(f"the number {node.value} is too large")
                return set()
        elif isinstance(node, ast.Name):
            return {node.id}
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.UAdd)):
            return self._check(node.operand)
        elif isinstance(node, ast.BoolOp):
            return self._union(node.values)
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._union([node.left, node.right])
        elif isinstance(node, ast.Compare):
            return self._check_compare(node)
        elif isinstance(node, ast.Call):
            return self._check_call(node)
        raise self._refusal(f"{type(node).__name__} is not allowed")

    def _union(self, nodes: list[ast.expr]) -> set[str]:
        return set().union(*(self._check(n) for n in nodes))

    def _check_compare(self, node: ast.Compare) -> set[str]:
        found = self._check(node.left)
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not all(
                    isinstance(e, ast.Constant) for e in right.elts
                ):
                    raise self._refusal("'in' needs a list of constants")
                found |= self._union(right.elts)
            elif type(op) in _COMPARE:
                found |= self._check(right)
            else:
                raise self._refusal(f"the comparison {type(op).__name__} is not allowed")
        return found

    def _check_call(self, node: ast.Call) -> set[str]:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self._refusal(f"{name} takes plain arguments only")
        if name == "col":
            if len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
                return {str(node.args[0].value)}
            raise self._refusal("col needs one column name in quotes")
        if not isinstance(node.func, ast.Name) or name not in _FUNCTIONS:
            known = ", ".join(sorted({*_FUNCTIONS, "col"}))
            raise self._refusal(f"the function {name!r} is not allowed; there are {known}")
        if len(node.args) != _FUNCTIONS[name][1]:
            raise self._refusal(f"{name} takes {_FUNCTIONS[name][1]} arguments")
        return self._union(node.args)

    # -- evaluating ------------------------------------------------------------------------

    def rows(self, columns: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return one number per row; NaN where the expression makes no sense for it."""
        for name in sorted(self.columns):
            if name not in columns:
                raise self._refusal(f"there is no column {name!r}")
        with np.errstate(all="ignore"):
            try:
                value = self._evaluate(self._tree, columns)
                numbers = np.asarray(value, dtype=np.float64)
            except (TypeError, ValueError, ArithmeticError):
                raise self._refusal("it mixes texts and numbers, or is not a number at all") from None
        if numbers.ndim == 0:
            return np.full(rows, float(numbers))
        if numbers.shape != (rows,):
            raise self._refusal(f"it gives {numbers.shape} values for {rows} rows")
        return numbers

    def _evaluate(self, node: ast.expr, columns: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, bool)) else np.float64(node.value)  # type: ignore[arg-type]  # checked
        if isinstance(node, ast.Name):
            return np.asarray(columns[node.id])
        if isinstance(node, ast.UnaryOp):
            value = self._evaluate(node.operand, columns)
            return ~_truth(value) if isinstance(node.op, ast.Not) else _signed(node.op, value)
        if isinstance(node, ast.BoolOp):
            parts = [_truth(self._evaluate(v, columns)) for v in node.values]
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return combine.reduce(np.broadcast_arrays(*parts))
        if isinstance(node, ast.BinOp):
            left, right = self._evaluate(node.left, columns), self._evaluate(node.right, columns)
            return _BINARY[type(node.op)](_number(left), _number(right))
        if isinstance(node, ast.Compare):
            return self._compare(node, columns)
        if not isinstance(node, ast.Call):
            raise self._refusal(f"{type(node).__name__} is not allowed")
        if isinstance(node.func, ast.Name) and node.func.id == "col":
            return np.asarray(columns[str(ast.literal_eval(node.args[0]))])
        name = ast.unparse(node.func)
        arguments = [self._evaluate(a, columns) for a in node.args]
        if name == "where":
            arguments[0] = _truth(arguments[0])
        return _FUNCTIONS[name][0](*(_number(a) for a in arguments))

    def _compare(self, node: ast.Compare, columns: Mapping[str, Any]) -> Any:
        left = self._evaluate(node.left, columns)
        parts = []
        for op, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                elements = [self._evaluate(e, columns) for e in other.elts]  # type: ignore[attr-defined]  # checked
                inside = np.zeros(np.shape(left), dtype=bool)
                for element in elements:
                    inside = inside | _compared(operator.eq, left, element)
                parts.append(inside if isinstance(op, ast.In) else ~inside)
                right = left
            else:
                right = self._evaluate(other, columns)
                parts.append(_compared(_COMPARE[type(op)], left, right))
            left = right
        return np.logical_and.reduce(np.broadcast_arrays(*parts))


def _is_text(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "OSU"


def _compared(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compare numbers with numbers and texts with texts; refuse the mixture."""
    if _is_text(left) != _is_text(right):
        raise TypeError
    if _is_text(left):
        left, right = np.asarray(left, dtype=str), np.asarray(right, dtype=str)
    return np.asarray(compare(left, right), dtype=bool)


def _number(value: Any) -> Any:
    if _is_text(value):
        raise TypeError
    return np.asarray(value) if np.asarray(value).dtype.kind == "b" else np.asarray(value, dtype=np.float64)


def _truth(value: Any) -> NDArray[np.bool_]:
    if _is_text(value):
        raise TypeError
    array = np.asarray(value)
    # a missing number is neither true nor an error: it counts as false
    return array if array.dtype.kind == "b" else (array != 0) & ~np.isnan(array.astype(np.float64))


def _signed(op: ast.unaryop, value: Any) -> Any:
    number = np.asarray(_number(value), dtype=np.float64)
    return -number if isinstance(op, ast.USub) else number

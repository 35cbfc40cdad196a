"""Queries written as expressions over columns, evaluated without ``eval``.

The text is parsed, every node of the syntax tree is checked against a short list and against the kinds
of the columns, and the tree is walked with numpy.  Whether an expression fits is decided by the kinds
alone, which come from the training data, so no error can depend on the holdout.  A row where the
expression makes no sense (a missing number, a division by zero) gives NaN.  On the training data that
refuses the query; on the holdout such a row counts 0.
"""

from __future__ import annotations

import ast
import io
import operator
import re
import threading
import tokenize
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.cells import CellKind, Table, text_of

__all__ = ["Expression"]

MAX_CHARACTERS = 2000
MAX_NODES = 300
_COLUMNS_TOLD = 12
_ALONE = (
    threading.Lock()
)  # the filters of warnings belong to the process: two threads would leave them changed
_ASSIGNS = re.compile(r"(?<![=<>!])=(?!=)")

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
    "exp": (np.exp, 1),
    "log": (np.log, 1),
    "min": (np.minimum, 2),
    "max": (np.maximum, 2),
    "default": (lambda x, otherwise: np.where(np.isfinite(x), x, otherwise), 2),
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
    functions abs, exp, log, floor, sign, min, max (minimum, maximum), clip, where, and default(x, c):
    c where x is missing, infinite or undefined.  ``&`` and ``|`` are ``and`` and ``or``
    and bind as loosely, as in ``DataFrame.query``; ``~`` turns a condition round.  A missing number or
    truth value is not true, and no comparison with it holds but ``!=``; a missing text is ``''``.

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
            with _ALONE, warnings.catch_warnings():
                warnings.simplefilter("error")  # 1or 2 is a typing mistake, not a query
                self._tree = ast.parse(_with_words(self.text), mode="eval").body
        except (SyntaxError, Warning, ValueError, MemoryError, RecursionError, tokenize.TokenError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            hint = "; to compare, write ==" if _ASSIGNS.search(self.text) else ""
            raise self._refusal(f"this is not an expression ({reason}){hint}") from None
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
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert, ast.USub, ast.UAdd)):
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
        columns = self._check(node.left)
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not all(
                    isinstance(e, ast.Constant) for e in right.elts
                ):
                    raise self._refusal("'in' needs a list of constants")
                columns |= self._union(right.elts)
            elif type(op) in _COMPARE:
                columns |= self._check(right)
            else:
                raise self._refusal(f"the comparison {type(op).__name__} is not allowed")
        return columns

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

    # -- kinds -----------------------------------------------------------------------------

    def check(self, kinds: Mapping[str, CellKind]) -> None:
        """Refuse the expression unless it is a number or a condition over columns of these kinds."""
        for name in sorted(self.columns):
            if name not in kinds:
                more = ", …" if len(kinds) > _COLUMNS_TOLD else ""
                columns = ", ".join([*kinds][:_COLUMNS_TOLD]) + more
                raise self._refusal(f"there is no column {name!r}; the columns are {columns}")
        if self._kind(self._tree, kinds) == "text":
            raise self._refusal("it is a text; compare it with something")

    def _kind(self, node: ast.expr, kinds: Mapping[str, CellKind]) -> CellKind:
        """Return the kind of a part, or refuse a mixture of texts and numbers."""
        if isinstance(node, ast.Constant):
            return _constant_kind(node.value)
        if isinstance(node, (ast.Name, ast.Call)) and (name := _column(node)) is not None:
            return kinds[name]
        if isinstance(node, ast.Compare):
            return self._compare_kind(node, kinds)
        parts = [self._kind(part, kinds) for part in _operands(node)]
        if "text" in parts:
            raise self._refusal("it calculates with a text; compare texts with ==, != or in")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert) and parts != ["boolean"]:
            raise self._refusal("~ turns a condition round; of a number write == 0")
        logical = isinstance(node, ast.BoolOp) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert))
        )
        return "boolean" if logical else "number"

    def _compare_kind(self, node: ast.Compare, kinds: Mapping[str, CellKind]) -> CellKind:
        left = self._kind(node.left, kinds)
        for op, right in zip(node.ops, node.comparators, strict=True):
            sides = _operands(right) if isinstance(op, (ast.In, ast.NotIn)) else [right]
            for side in sides:
                if (self._kind(side, kinds) == "text") != (left == "text"):
                    raise self._refusal(
                        f"it compares a text with a number in {ast.unparse(node)!r}; the training data say"
                        " which column is what, or declare it"
                    )
        return "boolean"

    # -- evaluating ------------------------------------------------------------------------

    def rows(self, columns: Table | Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return one number per row; NaN where the expression makes no sense for it."""
        table = columns if isinstance(columns, Table) else Table.from_training(columns)
        if table is None:
            raise self._refusal("the data have no named columns")
        self.check(table.kinds)
        with np.errstate(all="ignore"):
            numbers = np.asarray(self._evaluate(self._tree, table.values), dtype=np.float64)
        return np.full(rows, float(numbers)) if numbers.ndim == 0 else numbers

    def _evaluate(self, node: ast.expr, columns: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return text_of(node.value)  # as the cells are read
            return np.float64(node.value)  # type: ignore[arg-type]  # checked
        if isinstance(node, (ast.Name, ast.Call)) and (name := _column(node)) is not None:
            return columns[name]
        if isinstance(node, ast.Compare):
            return self._compare(node, columns)
        parts = [self._evaluate(part, columns) for part in _operands(node)]
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, (ast.Not, ast.Invert)):
                return ~_truth(parts[0])
            number = np.asarray(parts[0], dtype=np.float64)
            return -number if isinstance(node.op, ast.USub) else number
        if isinstance(node, ast.BoolOp):
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return combine.reduce(np.broadcast_arrays(*map(_truth, parts)))
        numbers = [np.asarray(part, dtype=np.float64) for part in parts]
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](*numbers)
        if not isinstance(node, ast.Call):
            raise self._refusal(f"{type(node).__name__} is not allowed")
        function = ast.unparse(node.func)
        arguments = [_truth(numbers[0]), *numbers[1:]] if function == "where" else numbers
        return _FUNCTIONS[function][0](*arguments)

    def _compare(self, node: ast.Compare, columns: Mapping[str, Any]) -> Any:
        left = self._evaluate(node.left, columns)
        parts = []
        for op, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                inside = np.zeros(np.shape(left), dtype=bool)
                for element in _operands(other):
                    inside = inside | _compared(operator.eq, left, self._evaluate(element, columns))
                parts.append(inside if isinstance(op, ast.In) else ~inside)
            else:
                right = self._evaluate(other, columns)
                parts.append(_compared(_COMPARE[type(op)], left, right))
                left = right
        return np.logical_and.reduce(np.broadcast_arrays(*parts))


def _with_words(text: str) -> str:
    """Return the text with ``and`` for ``&`` and ``or`` for ``|``, outside of quotes."""
    if "&" not in text and "|" not in text:
        return text
    lines = text.splitlines(keepends=True)
    words = {"&": " and ", "|": " or "}
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.OP and token.string in words:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column] + words[token.string] + lines[line - 1][column + 1 :]
    return "".join(lines)


def _column(node: ast.Name | ast.Call) -> str | None:
    """Return the column that a name or ``col("name")`` stands for."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node.func, ast.Name) and node.func.id == "col":
        return str(ast.literal_eval(node.args[0]))
    return None


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the parts that an operation or a list works on."""
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.Call):
        return node.args
    return node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else []


def _constant_kind(value: object) -> CellKind:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _compared(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compare numbers with numbers, texts with texts."""
    return np.asarray(compare(left, right)).astype(bool)


def _truth(value: Any) -> NDArray[np.bool_]:
    array = np.asarray(value)
    # a missing value is neither true nor an error: it counts as false
    return array if array.dtype.kind == "b" else (array != 0) & ~np.isnan(array)

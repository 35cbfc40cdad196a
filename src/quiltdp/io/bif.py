"""The BIF reader: Bayesian networks of the *Interchange Format*, in double precision.

A file is a row of blocks ``network``, ``variable`` and ``probability``.  Blocks are cut out with
compiled patterns; a table is read statement by statement, and every complaint has its line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from quiltdp.io.text import MAX_AXES, MAX_TABLE, Source, blaming, bounded_product, read_source
from quiltdp.model import Model, Table

_QUOTED = r'"[^"]*"'
_COMMENT = re.compile(rf"{_QUOTED}|(?<![^\s;,{{}}()\[\]|])//|/\*")
_HEAD = re.compile(rf'\s*(network|variable|probability)\b([^{{}}"]*(?:{_QUOTED}[^{{}}"]*)*)\{{')
_BODY = re.compile(rf'[^}}"]*(?:{_QUOTED}[^}}"]*)*\}}')
_PROPERTY = rf'property\b[^;"]*(?:{_QUOTED}[^;"]*)*;\s*'
_VARIABLE = re.compile(
    rf"\s*(?:{_PROPERTY})*type\s+discrete\s*\[\s*([0-9]{{1,9}})\s*\]\s*"
    rf'\{{([^}}"]*(?:{_QUOTED}[^}}"]*)*)\}}\s*;?\s*(?:{_PROPERTY})*\}}'
)
_NAME = re.compile(rf'{_QUOTED}|[^\s,|()"]+')
_STATE = re.compile(rf'{_QUOTED}|[^\s,"]+')
_STATEMENT = re.compile(rf'\s*([^;}}"]*(?:{_QUOTED}[^;}}"]*)*)([;}}])')


@dataclass(frozen=True)
class _ProbabilityBlock:
    """One ``probability`` block: its names, where its body starts and where it ends."""

    child: str
    parents: tuple[str, ...]
    head: int
    start: int
    stop: int


def read_bif(
    path: str | os.PathLike[str],
    *,
    records: Collection[str] | None = None,
    encoding: str | None = None,
) -> Model:
    """Read a Bayesian network from a BIF file.

    Parameters
    ----------
    path
        The file; it may be compressed with gzip.
    records
        The nodes that are rows of the database; default all.
    encoding
        The encoding of the text, where it is not UTF-8.

    Raises
    ------
    FileFormatError
        With the line, what was found and what was expected.
    InvalidModel
        If the file is well formed and its network is not, with the line of the node's table.
    """
    return parse_bif(read_source(path, encoding=encoding), records=records)


def parse_bif(source: Source, *, records: Collection[str] | None = None) -> Model:
    """Return the network that a BIF text describes."""
    source = _blank_comments(source)
    states, blocks = _read_blocks(source)
    tables: dict[str, tuple[Sequence[str], Table]] = {}
    lines: dict[str, int] = {}
    at = _LineCounter(source.text)
    room = MAX_TABLE + len(source.text)  # entries: what the text spells out never fills it
    for block in blocks:
        if block.child in tables:
            raise source.error(
                block.head,
                f"a second table for node {block.child!r}, the first is on line {lines[block.child]}",
            )
        lines[block.child] = at(block.head)
        table = _read_table(source, block, states, room)
        room -= table.size
        tables[block.child] = (block.parents, table)
    for node, (_, head) in states.items():
        if node not in tables:
            raise source.error(head, f"variable {node!r} has no probability block")
    ordered = {node: tables[node] for node in states}
    names = {node: s for node, (s, _) in states.items()}
    with blaming(source.path, lines):
        return Model.from_tables(
            ordered, records, states=names, provenance={"file": source.path, "format": "BIF"}
        )


class _LineCounter:
    """Line numbers of increasing positions, each newline counted once."""

    def __init__(self, text: str) -> None:
        self._text, self._position, self._line = text, 0, 1

    def __call__(self, position: int) -> int:
        self._line += self._text.count("\n", self._position, position)
        self._position = position
        return self._line


def _blank_comments(source: Source) -> Source:
    """Blank comments out, keeping every newline where it was."""
    if "//" not in source.text and "/*" not in source.text:
        return source

    text, parts, position = source.text, [], 0
    while (found := _COMMENT.search(text, position)) is not None:
        if found[0].startswith('"'):
            parts.append(text[position : found.end()])
            position = found.end()
            continue
        mark = "\n" if found[0] == "//" else "*/"
        stop = text.find(mark, found.end())
        if stop < 0 and mark == "*/":
            raise source.error(found.start(), "this comment is never closed, expected '*/'")
        end = len(text) if stop < 0 else stop + (2 if mark == "*/" else 0)
        parts += [text[position : found.start()], " ", "\n" * text.count("\n", found.start(), end)]
        position = end
    parts.append(text[position:])
    return Source(source.path, "".join(parts))


# -- cutting the text into blocks ----------------------------------------------------------


def _read_blocks(source: Source) -> tuple[dict[str, tuple[tuple[str, ...], int]], list[_ProbabilityBlock]]:
    """Return node -> (states, position) and the probability blocks, in the order of the file."""
    text = source.text
    states: dict[str, tuple[tuple[str, ...], int]] = {}
    blocks: list[_ProbabilityBlock] = []
    position = 0
    while (match := _HEAD.match(text, position)) is not None:
        kind, header = match[1], match[2]
        head, start = match.start(1), match.end()
        if kind == "variable":
            node, values, position = _read_variable(source, header, head, start)
            if node in states:
                first = source.line(states[node][1])
                raise source.error(head, f"variable {node!r} is declared twice, first on line {first}")
            states[node] = (values, head)
            continue
        position = _find_end_of_body(source, head, start)
        if kind == "probability":
            child, parents = _read_scope(source, header, head)
            blocks.append(_ProbabilityBlock(child, parents, head, start, position))
    rest = text[position:].lstrip()
    if rest:
        where = len(text) - len(rest)
        found = _excerpt(rest)
        raise source.error(where, f"expected 'network', 'variable' or 'probability' and '{{', found {found}")
    if not states:
        raise source.error(None, "there is no variable in this file, expected 'variable NAME { … }'")
    return states, blocks


def _find_end_of_body(source: Source, head: int, start: int) -> int:
    """Return the position after the brace that closes a block without inner braces."""
    stop = source.text.find("}", start)
    if stop >= 0 and source.text.find('"', start, stop) < 0:
        return stop + 1
    match = _BODY.match(source.text, start)
    if match is None:
        raise source.error(head, "this block is never closed, expected '}'")
    return match.end()


def _read_variable(source: Source, header: str, head: int, start: int) -> tuple[str, tuple[str, ...], int]:
    """Return name, states and end of a ``variable`` block."""
    names = _header_names(header)
    if len(names) != 1:
        raise source.error(head, f"expected 'variable NAME {{', found {_excerpt('variable' + header)}")
    node = names[0]
    match = _VARIABLE.match(source.text, start)
    if match is None:
        raise source.error(
            head, f"variable {node!r}: expected 'type discrete [ count ] {{ state, … }};' and then '}}'"
        )
    values = _split_state_names(match[2])
    if len(values) != int(match[1]):
        raise source.error(
            match.start(1), f"variable {node!r} announces {int(match[1])} states and names {len(values)}"
        )
    return node, values, match.end()


def _read_scope(source: Source, header: str, head: int) -> tuple[str, tuple[str, ...]]:
    """Return child and parents of a ``probability`` header."""
    inner = header.strip()
    names = _header_names(inner)
    if not names or not (inner.startswith("(") and inner.endswith(")")) or _count_bars(inner) > 1:
        raise source.error(
            head, f"expected 'probability ( NODE | PARENT, … ) {{', found {_excerpt('probability' + header)}"
        )
    return names[0], tuple(names[1:])


def _header_names(text: str) -> list[str]:
    """Return the names in a header, quotes taken off."""
    return [m[0].strip('"') for m in _NAME.finditer(text)]


def _count_bars(header: str) -> int:
    """Return the number of ``|`` outside quotes."""
    return (re.sub(_QUOTED, "", header) if '"' in header else header).count("|")


def _split_state_names(text: str) -> tuple[str, ...]:
    """Return the names in a list separated by commas, or by blanks where there is no comma."""
    if '"' in text:
        return tuple(m[0].strip('"') for m in _STATE.finditer(text))
    if "," in text:
        return tuple(part.strip() for part in text.strip().rstrip(",").split(","))
    return tuple(text.split())


def _excerpt(text: str, width: int = 40) -> str:
    """Quote the beginning of a text on one line."""
    short = " ".join(text[: 4 * width].split())
    return repr(short if len(short) <= width else short[: width - 1] + "…")


# -- one table -----------------------------------------------------------------------------


def _read_table(
    source: Source, block: _ProbabilityBlock, states: Mapping[str, tuple[tuple[str, ...], int]], room: int
) -> Table:
    """Return the table of one block, axes parents…, child, of at most ``room`` entries."""
    for name in (block.child, *block.parents):
        if name not in states:
            role = "node" if name == block.child else f"parent of {block.child!r}"
            raise source.error(block.head, f"{role} {name!r} has no variable block")
    if len(block.parents) >= MAX_AXES:
        raise source.error(
            block.head, f"node {block.child!r} has {len(block.parents)} parents, at most {MAX_AXES - 1} fit"
        )
    axes = [states[name][0] for name in (*block.parents, block.child)]
    shape = tuple(len(a) for a in axes)
    if bounded_product(shape, room) is None:
        raise source.error(
            block.head,
            f"the table of {block.child!r} has more entries than the file may ask for without naming them",
        )
    places = [{name: k for k, name in enumerate(names)} for names in axes]
    table = np.empty(shape)
    filled = np.zeros(shape[:-1], dtype=bool)
    default: list[float] | None = None
    for position, statement in _split_statements(source, block):
        word = statement.split(None, 1)[0] if not statement.startswith("(") else "("
        if word == "property":
            continue
        if word == "(":
            row, numbers = _read_row(source, block, places, position, statement)
            if filled[row]:
                raise source.error(position, f"node {block.child!r}: this row is given twice")
            table[row], filled[row] = numbers, True
        elif word == "default":
            default = _read_numbers(source, block, position, statement[7:], shape[-1])
        elif word == "table":
            numbers = _read_numbers(source, block, position, statement[5:], prod(shape))
            table[...] = np.moveaxis(np.reshape(numbers, (shape[-1], *shape[:-1])), 0, -1)
            filled[...] = True
        else:
            raise source.error(
                position, f"expected 'table', 'default' or '( state, … )', found {_excerpt(statement)}"
            )
    if not filled.all():
        if default is None:
            missing = np.argwhere(~filled)[0]
            names = ", ".join(axes[k][j] for k, j in enumerate(missing))
            what = f"row ({names})" if names else "table"
            raise source.error(block.head, f"node {block.child!r}: the {what} is missing")
        table[~filled] = default
    return table


def _split_statements(source: Source, block: _ProbabilityBlock) -> list[tuple[int, str]]:
    """Return the statements of a block with their positions."""
    statements = []
    position = block.start
    while (match := _STATEMENT.match(source.text, position, block.stop)) is not None:
        statement = match[1].strip()
        position = match.end()
        if match[2] == "}":
            if statement:
                raise source.error(match.start(1), f"expected ';' after {_excerpt(statement)}")
            break
        if statement:
            statements.append((match.start(1), statement))
    return statements


def _read_row(
    source: Source, block: _ProbabilityBlock, axes: Sequence[Mapping[str, int]], position: int, statement: str
) -> tuple[tuple[int, ...], list[float]]:
    """Return index and numbers of ``(state, …) number, …``."""
    match = re.match(rf'\(([^)"]*(?:{_QUOTED}[^)"]*)*)\)', statement)
    if match is None:
        raise source.error(position, f"expected '( state, … )' and then numbers, found {_excerpt(statement)}")
    words = _split_state_names(match[1])
    if len(words) != len(block.parents) and '"' not in match[1]:
        whole = match[1].strip()  # of one parent, a state may hold blanks
        words = (whole,) if len(axes) == 2 and whole in axes[0] else tuple(whole.replace(",", " ").split())
    if len(words) != len(block.parents):
        raise source.error(
            position,
            f"node {block.child!r}: the row names {len(words)} states, expected one for each of"
            f" {len(block.parents)} parents",
        )
    index = []
    for parent, names, word in zip(block.parents, axes[:-1], words, strict=True):
        if word not in names:
            raise source.error(
                position,
                f"node {block.child!r}: {word!r} is not a state of {parent!r},"
                f" which has {_first_names([*names])}",
            )
        index.append(names[word])
    return tuple(index), _read_numbers(source, block, position, statement[match.end() :], len(axes[-1]))


def _first_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first few names."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _read_numbers(
    source: Source, block: _ProbabilityBlock, position: int, text: str, count: int
) -> list[float]:
    """Return exactly ``count`` numbers, separated by commas or blanks."""
    numbers = []
    for word in text.replace(",", " ").split():
        try:
            numbers.append(float(word))
        except ValueError:
            raise source.error(
                position, f"node {block.child!r}: expected a number, found {_excerpt(word)}"
            ) from None
    if len(numbers) != count:
        raise source.error(position, f"node {block.child!r}: found {len(numbers)} numbers, expected {count}")
    return numbers

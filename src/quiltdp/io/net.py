"""The HUGIN NET reader: ``node`` blocks with their states, ``potential`` blocks with their numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from quiltdp.io.declared import Declared
from quiltdp.io.text import Source, read_source
from quiltdp.model import Model

__all__ = ["read_net"]

_STRING = r'"[^"]*"'
_HEAD = re.compile(r'\s*(net|(?:discrete\s+)?node|potential)\b([^{}"]*)\{')
_BODY = re.compile(rf'([^}}"]*(?:{_STRING}[^}}"]*)*)\}}')
_STATES = re.compile(rf'\bstates\s*=\s*\(([^)"]*(?:{_STRING}[^)"]*)*)\)\s*;')
_DATA = re.compile(r"\bdata\s*=\s*([^;]*);")
_COMMENT = re.compile(rf"({_STRING})|%[^\n]*")


def read_net(
    path: str | os.PathLike[str], *, records: Collection[str] | None = None, encoding: str | None = None
) -> Model:
    """Read a Bayesian network from a HUGIN NET file.

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    text = read_source(path, encoding=encoding)
    source = Source(text.path, _COMMENT.sub(lambda m: m[1] or "", text.text))
    blocks = _blocks(source)
    network = Declared(path)
    for position, kind, name, body in blocks:
        if kind == "node":
            states = _first(_STATES, "states", body)
            if states is None:
                raise source.error(position, f"node {name!r}: expected 'states = ( … );'")
            network.declare(name, re.findall(r'"([^"]*)"', states[1]), source.line(position))
    for position, kind, head, body in blocks:
        if kind == "potential":
            node, parents = _scope(source, position, head)
            data = _first(_DATA, "data", body)
            if data is None:
                raise source.error(position, f"potential {head[:80]!r}: expected 'data = ( … );'")
            network.add_table(node, parents, re.sub(r"[()]", " ", data[1]), source.line(position))
    return network.model("NET", records)


def _first(pattern: re.Pattern[str], word: str, body: str) -> re.Match[str] | None:
    """Return the match where ``word =`` stands first; trying every later one would take forever."""
    head = re.search(rf"\b{word}\s*=", body)
    return None if head is None else pattern.match(body, head.start())


def _blocks(source: Source) -> list[tuple[int, str, str, str]]:
    """Return (position, kind, head, body) of every block, read from first to last once."""
    text, position, found = source.text, 0, []
    while (head := _HEAD.match(text, position)) is not None:
        body = _BODY.match(text, head.end())
        if body is None:
            raise source.error(head.start(1), "this block is never closed, expected '}'")
        found.append((head.start(1), head[1].split()[-1], head[2].strip(), body[1]))
        position = body.end()
    rest = text[position:].lstrip()
    if rest:
        excerpt = repr(" ".join(rest[:200].split())[:40])
        raise source.error(
            len(text) - len(rest), f"expected 'net', 'node' or 'potential' and '{{', found {excerpt}"
        )
    return found


def _scope(source: Source, position: int, head: str) -> tuple[str, list[str]]:
    """Return the node and the parents of ``( node | parents )``."""
    names = head[1:-1].replace("|", " ").split() if head.startswith("(") and head.endswith(")") else []
    if not names:
        raise source.error(position, f"expected 'potential ( NODE | PARENTS )', found {head[:40]!r}")
    return names[0], names[1:]

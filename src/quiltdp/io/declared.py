"""HUGIN NET, XMLBIF and GeNIe XDSL: nodes declared with their states, then a table for each.

In all of them a table is written out with the node's own states moving fastest, then those of the last
parent.  What is not a conditional probability table (a GeNIe ``deterministic`` node) is refused.  XML comes
from strangers: no entities in any encoding, no nest without end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from quiltdp.errors import FileFormatError
from quiltdp.factor import Table
from quiltdp.io.text import MAX_AXES, Source, blaming, is_number, read_bytes, read_source
from quiltdp.model import Model

MAX_DEPTH = 64
"""How deep elements may stand in each other; no format here needs ten."""

_STRING = r'"[^"]*"'
_HEAD = re.compile(r'\s*(net|(?:discrete\s+)?node|potential)\b([^{}"]*)\{')
_BODY = re.compile(rf'([^}}"]*(?:{_STRING}[^}}"]*)*)\}}')
_STATES = re.compile(rf'\bstates\s*=\s*\(([^)"]*(?:{_STRING}[^)"]*)*)\)\s*;')
_DATA = re.compile(r"\bdata\s*=\s*([^;]*);")
_COMMENT = re.compile(rf"({_STRING})|%[^\n]*")


@dataclass
class DeclaredNetwork:
    """A network while it is read: states first, then tables, each node exactly one of each."""

    path: object
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tables: dict[str, tuple[tuple[str, ...], Table]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def declare(self, name: str, states: Collection[str], line: int | None = None) -> None:
        """Note a node and its states."""
        if not name:
            raise FileFormatError(self.path, line, "a node has no name")
        if name in self.states:
            raise FileFormatError(self.path, line, f"node {name!r} is declared twice")
        if not states:
            raise FileFormatError(self.path, line, f"node {name!r} has no states")
        self.states[name] = tuple(states)

    def add_table(self, node: str, parents: Collection[str], text: str, line: int | None = None) -> None:
        """Note a table written out with the node's own states moving fastest, then the last parent's."""
        for name in (node, *parents):
            if name not in self.states:
                role = f"parent of {node!r}" if name != node else "node"
                raise FileFormatError(self.path, line, f"{role} {name!r} is not declared")
        if node in self.tables:
            raise FileFormatError(self.path, line, f"node {node!r} has two tables, expected 1")
        if len(parents) >= MAX_AXES:
            raise FileFormatError(
                self.path, line, f"node {node!r} has {len(parents)} parents, at most {MAX_AXES - 1} fit"
            )
        shape = tuple(len(self.states[name]) for name in (*parents, node))
        words = text.split()
        try:
            values = np.array(words, dtype=np.float64)
        except ValueError:
            odd = next(w for w in words if not is_number(w))
            raise FileFormatError(
                self.path, line, f"node {node!r}: expected a number, found {odd[:40]!r}"
            ) from None
        if len(words) != prod(shape):
            raise FileFormatError(
                self.path, line, f"node {node!r}: found {len(words)} numbers, expected {prod(shape)}"
            )
        self.tables[node] = (tuple(parents), values.reshape(shape))
        if line is not None:
            self.lines[node] = line

    def model(self, kind: str, records: Collection[str] | None) -> Model:
        """Return the network, every node with its table."""
        bare = next((name for name in self.states if name not in self.tables), None)
        if bare is not None:
            raise FileFormatError(self.path, None, f"node {bare!r} has 0 tables, expected 1")
        ordered = {name: self.tables[name] for name in self.states}
        with blaming(self.path, self.lines):
            return Model.from_tables(
                ordered, records, states=self.states, provenance={"file": str(self.path), "format": kind}
            )


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
    blocks = _read_blocks(source)
    network = DeclaredNetwork(path)
    for position, kind, name, body in blocks:
        if kind == "node":
            states = _match_assignment(_STATES, "states", body)
            if states is None:
                raise source.error(position, f"node {name!r}: expected 'states = ( … );'")
            network.declare(name, re.findall(r'"([^"]*)"', states[1]), source.line(position))
    for position, kind, head, body in blocks:
        if kind == "potential":
            node, parents = _read_scope(source, position, head)
            data = _match_assignment(_DATA, "data", body)
            if data is None:
                raise source.error(position, f"potential {head[:80]!r}: expected 'data = ( … );'")
            network.add_table(node, parents, re.sub(r"[()]", " ", data[1]), source.line(position))
    return network.model("NET", records)


def _match_assignment(pattern: re.Pattern[str], word: str, body: str) -> re.Match[str] | None:
    """Return the match where ``word =`` stands first; trying every later one would take forever."""
    head = re.search(rf"\b{word}\s*=", body)
    return None if head is None else pattern.match(body, head.start())


def _read_blocks(source: Source) -> list[tuple[int, str, str, str]]:
    """Return (position, kind, head, body) of every block, read from first to last once."""
    text, position, blocks = source.text, 0, []
    while (head := _HEAD.match(text, position)) is not None:
        body = _BODY.match(text, head.end())
        if body is None:
            raise source.error(head.start(1), "this block is never closed, expected '}'")
        blocks.append((head.start(1), head[1].split()[-1], head[2].strip(), body[1]))
        position = body.end()
    rest = text[position:].lstrip()
    if rest:
        excerpt = repr(" ".join(rest[:200].split())[:40])
        raise source.error(
            len(text) - len(rest), f"expected 'net', 'node' or 'potential' and '{{', found {excerpt}"
        )
    return blocks


def _read_scope(source: Source, position: int, head: str) -> tuple[str, list[str]]:
    """Return the node and the parents of ``( node | parents )``."""
    names = head[1:-1].replace("|", " ").split() if head.startswith("(") and head.endswith(")") else []
    if not names:
        raise source.error(position, f"expected 'potential ( NODE | PARENTS )', found {head[:40]!r}")
    return names[0], names[1:]


def read_xmlbif(path: str | os.PathLike[str], *, records: Collection[str] | None = None) -> Model:
    """Read a Bayesian network from an XMLBIF file.

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    root = read_xml(path)
    element = root.find("NETWORK") if root.tag == "BIF" else None
    if element is None:
        raise FileFormatError(path, None, f"expected <BIF> with <NETWORK> in it, found <{root.tag}>")
    network = DeclaredNetwork(path)
    for variable in element.findall("VARIABLE"):
        outcomes = [(e.text or "").strip() for e in variable.findall("OUTCOME")]
        network.declare(_child_text(path, variable, "NAME", "a VARIABLE"), outcomes)
    for definition in element.findall("DEFINITION"):
        node = _child_text(path, definition, "FOR", "a DEFINITION")
        parents = [(e.text or "").strip() for e in definition.findall("GIVEN")]
        numbers = _child_text(path, definition, "TABLE", f"the definition of {node!r}")
        network.add_table(node, parents, numbers)
    return network.model("XMLBIF", records)


def read_xdsl(path: str | os.PathLike[str], *, records: Collection[str] | None = None) -> Model:
    """Read a Bayesian network from a GeNIe XDSL file; all nodes must be ``<cpt>``.

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    root = read_xml(path)
    nodes = root.find("nodes") if root.tag == "smile" else None
    if nodes is None:
        raise FileFormatError(path, None, f"expected <smile> with <nodes> in it, found <{root.tag}>")
    network = DeclaredNetwork(path)
    for node in nodes:
        name = node.attrib.get("id", "")
        if node.tag != "cpt":
            raise FileFormatError(
                path,
                None,
                f"node {name!r} is a <{node.tag}>, only <cpt> nodes can be read: convert it in GeNIe",
            )
        network.declare(name, [e.attrib.get("id", "") for e in node.findall("state")])
    for node in nodes:
        name = node.attrib["id"]
        parents = " ".join(e.text or "" for e in node.findall("parents")).split()
        network.add_table(name, parents, _child_text(path, node, "probabilities", f"node {name!r}"))
    return network.model("XDSL", records)


def _child_text(path: object, element: ElementTree.Element, tag: str, owner: str) -> str:
    """Return the text of the one child with this tag."""
    texts = [(e.text or "").strip() for e in element.findall(tag)]
    if len(texts) != 1 or not texts[0]:
        raise FileFormatError(path, None, f"{owner}: expected one <{tag}> with text, found {len(texts)}")
    return texts[0]


def read_xml(path: str | os.PathLike[str]) -> ElementTree.Element:
    """Return the root of an XML file, in whatever encoding it declares.

    Raises
    ------
    FileFormatError
        With the line: not well-formed, an entity declared, elements nested too deeply.
    """
    return parse_xml(path, read_bytes(path))


def parse_xml(path: str | os.PathLike[str], data: bytes) -> ElementTree.Element:
    """Return the root of an XML document."""
    if not data or data.isspace():
        raise FileFormatError(path, None, "the file is empty")
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def open_element(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise error_here(f"elements stand {depth} deep in each other, at most {MAX_DEPTH} are allowed")
        builder.start(tag, attributes)

    def close_element(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse_entity(*_: object) -> None:
        raise error_here("XML entities are not allowed")

    def error_here(message: str) -> FileFormatError:
        return FileFormatError(path, parser.CurrentLineNumber, message)

    parser.StartElementHandler = open_element
    parser.EndElementHandler = close_element
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse_entity
    parser.buffer_text = True
    try:
        parser.Parse(data, True)
        return builder.close()
    except expat.ExpatError as error:
        raise FileFormatError(path, error.lineno, f"this is not well-formed XML ({error})") from None
    except (LookupError, ValueError, AssertionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(path, 1, f"this is not readable XML ({error})") from None

"""XMLBIF, HUGIN NET and GeNIe XDSL files, read through pgmpy.

pgmpy's readers drop what they do not know (a GeNIe ``deterministic`` node, a second definition of
a node) and pair tables with nodes by position.  So a file is looked through first, in a light pass
that knows how many nodes, states and tables there must be, and what pgmpy made of it is compared:
a file is read right or refused.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any
from xml.etree import ElementTree

from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel
from quiltdp.io.pgmpy import from_pgmpy
from quiltdp.io.text import Source, blaming, read_bytes, read_source
from quiltdp.model import Model

__all__ = ["read_net", "read_xdsl", "read_xmlbif"]

_Declared = dict[str, list[str]]  # node -> its states, as the file lists them


def read_xmlbif(path: str | os.PathLike[str], *, records: Collection[str] | None = None) -> Model:
    """Read a Bayesian network from an XMLBIF file (through pgmpy).

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    root = _xml(path)
    network = root.find("NETWORK") if root.tag == "BIF" else None
    if network is None:
        raise FileFormatError(path, None, f"expected <BIF> with <NETWORK> in it, found <{root.tag}>")
    for element in network.iter():
        if element.tag in ("NAME", "OUTCOME", "VALUE", "FOR", "GIVEN"):
            element.text = (element.text or "").strip()
    if network.find("NAME") is None:
        ElementTree.SubElement(network, "NAME").text = "unnamed"
    declared: _Declared = {}
    for variable in network.findall("VARIABLE"):
        for element in variable.findall("PROPERTY"):
            variable.remove(element)  # free text, which pgmpy would insist on parsing
        name = _text(path, variable, "NAME", "a VARIABLE")
        states = [e.text or "" for e in variable.findall("OUTCOME")]
        _declare(path, declared, name, states)
    _each_once(path, declared, [_text(path, d, "FOR", "a DEFINITION") for d in network.findall("DEFINITION")])
    for definition in network.findall("DEFINITION"):
        names = [_text(path, definition, "FOR", "a DEFINITION")]
        names += [e.text or "" for e in definition.findall("GIVEN")]
        _numbers(path, names, declared, _text(path, definition, "TABLE", f"the definition of {names[0]!r}"))
    return _through_pgmpy(path, "XMLBIF", "XMLBIFReader", _as_text(root), declared, records)


def read_xdsl(path: str | os.PathLike[str], *, records: Collection[str] | None = None) -> Model:
    """Read a Bayesian network from a GeNIe XDSL file (through pgmpy); all nodes must be ``<cpt>``.

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    root = _xml(path)
    nodes = root.find("nodes") if root.tag == "smile" else None
    if nodes is None:
        raise FileFormatError(path, None, f"expected <smile> with <nodes> in it, found <{root.tag}>")
    root.attrib.setdefault("id", "unnamed")
    declared: _Declared = {}
    for node in nodes:
        name = node.attrib.get("id", "")
        if node.tag != "cpt":
            raise FileFormatError(
                path,
                None,
                f"node {name!r} is a <{node.tag}>, only <cpt> nodes can be read: convert it in GeNIe",
            )
        _declare(path, declared, name, [e.attrib.get("id", "") for e in node.findall("state")])
    for node in nodes:
        for tag in ("parents", "probabilities"):
            for element in node.findall(tag):
                element.text = " ".join((element.text or "").split())
        given = node.find("parents")
        if given is not None and not given.text:
            node.remove(given)
        names = [node.attrib["id"], *(given.text.split() if given is not None and given.text else [])]
        _numbers(path, names, declared, _text(path, node, "probabilities", f"node {names[0]!r}"))
    return _through_pgmpy(path, "XDSL", "XDSLReader", _as_text(root), declared, records)


def read_net(
    path: str | os.PathLike[str], *, records: Collection[str] | None = None, encoding: str = "utf-8"
) -> Model:
    """Read a Bayesian network from a HUGIN NET file (through pgmpy).

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    source = _net_without_comments(read_source(path, encoding=encoding))
    declared: _Declared = {}
    plain = ["net {\n}\n"]
    for match in _NET_NODE.finditer(source.text):
        states = _NET_STATES.search(match[2])
        if states is None:
            raise source.error(match.start(), f"node {match[1]!r}: expected 'states = ( … );'")
        names = re.findall(r'"([^"]*)"', states[1])
        line = source.line(match.start())
        _declare(path, declared, match[1], names, line)
        if not re.fullmatch(r"[A-Za-z0-9_-]+", match[1]):
            raise FileFormatError(path, line, f"node {match[1]!r}: pgmpy needs plain names; save it as BIF")
        for state in names:
            if re.search(r"[\s(),]|^$", state):
                raise FileFormatError(
                    path, line, f"node {match[1]!r}: pgmpy would split the state {state!r}; save it as BIF"
                )
        plain.append(f"node {match[1]} {{\n  states = ({states[1]});\n}}\n")
    children = []
    for match in _NET_POTENTIAL.finditer(source.text):
        names = match[1].replace("|", " ").split()
        data = _NET_DATA.search(match[2])
        if data is None:
            raise source.error(match.start(), f"potential ({match[1].strip()}): expected 'data = ( … );'")
        line = source.line(match.start())
        _numbers(path, names, declared, re.sub(r"[()]", " ", data[1]), line)
        children.append(names[0])
        plain.append(
            f"potential ( {' '.join(names[:1])} | {' '.join(names[1:])} ) {{\n  data = {data[1]};\n}}\n"
        )
    left = _NET_POTENTIAL.sub("", _NET_NODE.sub("", _NET_HEAD.sub("", source.text))).strip()
    if left:
        found = repr(" ".join(left[:80].split())[:40])
        raise source.error(
            source.text.find(left[:20]), f"expected 'net', 'node' or 'potential', found {found}"
        )
    _each_once(path, declared, children)
    return _through_pgmpy(path, "NET", "NETReader", "".join(plain), declared, records)


_STRING = r'"[^"]*"'
_BLOCK = rf'\{{([^}}"]*(?:{_STRING}[^}}"]*)*)\}}'
_NET_HEAD = re.compile(rf"^\s*(?:net)\s*{_BLOCK}")
_NET_NODE = re.compile(rf"\b(?:discrete\s+)?node\s+([^\s{{]+)\s*{_BLOCK}")
_NET_POTENTIAL = re.compile(rf"\bpotential\s*\(([^)]*)\)\s*{_BLOCK}")
_NET_STATES = re.compile(rf'\bstates\s*=\s*\(([^)"]*(?:{_STRING}[^)"]*)*)\)\s*;')
_NET_DATA = re.compile(r"\bdata\s*=\s*([^;]*);")
_NET_COMMENT = re.compile(rf"({_STRING})|%[^\n]*")


def _net_without_comments(source: Source) -> Source:
    """Blank out ``%`` comments, which pgmpy would read as text."""
    return Source(source.path, _NET_COMMENT.sub(lambda m: m[1] or "", source.text))


def _xml(path: str | os.PathLike[str]) -> ElementTree.Element:
    """Return the root of an XML file, in whatever encoding it declares."""
    data = read_bytes(path)
    if not data.strip():
        raise FileFormatError(path, None, "the file is empty")
    if b"<!ENTITY" in data:
        raise FileFormatError(path, None, "XML entities are not allowed in a model file")
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise FileFormatError(path, error.position[0], f"this is not well-formed XML ({error})") from None
    except (LookupError, ValueError, RecursionError) as error:
        raise FileFormatError(path, 1, f"this is not readable XML ({error})") from None


def _as_text(root: ElementTree.Element) -> str:
    return ElementTree.tostring(root, encoding="unicode")


def _text(path: object, element: ElementTree.Element, tag: str, owner: str) -> str:
    """Return the text of the one child with this tag."""
    found = [e.text or "" for e in element.findall(tag)]
    if len(found) != 1 or not found[0].strip():
        raise FileFormatError(path, None, f"{owner}: expected one <{tag}> with text, found {len(found)}")
    return found[0]


def _declare(
    path: object, declared: _Declared, name: str, states: list[str], line: int | None = None
) -> None:
    """Note a node and its states, or refuse what pgmpy would garble."""
    if not name:
        raise FileFormatError(path, line, "a node has no name")
    if name in declared:
        raise FileFormatError(path, line, f"node {name!r} is declared twice")
    if not states:
        raise FileFormatError(path, line, f"node {name!r} has no states")
    declared[name] = states


def _each_once(path: object, declared: _Declared, tables: Sequence[str]) -> None:
    """Refuse a node with no table or two."""
    times = Counter(tables)
    for name in declared:
        if times[name] != 1:
            raise FileFormatError(path, None, f"node {name!r} has {times[name]} tables, expected 1")


def _numbers(
    path: object, names: Sequence[str], declared: _Declared, text: str, line: int | None = None
) -> None:
    """Refuse a table over unknown nodes, with the wrong count of numbers, or with a word in it."""
    expected = 1
    for name in names:
        if name not in declared:
            role = f"parent of {names[0]!r}" if name != names[0] else "node"
            raise FileFormatError(path, line, f"{role} {name!r} is not declared")
        expected *= len(declared[name])
    words = text.split()
    for word in words:
        try:
            float(word)
        except ValueError:
            raise FileFormatError(
                path, line, f"node {names[0]!r}: expected a number, found {word[:40]!r}"
            ) from None
    if len(words) != expected:
        raise FileFormatError(
            path, line, f"node {names[0]!r}: found {len(words)} numbers, expected {expected}"
        )


def _through_pgmpy(
    path: str | os.PathLike[str],
    kind: str,
    reader: str,
    text: str,
    declared: _Declared,
    records: Collection[str] | None,
) -> Model:
    """Let pgmpy read the text, and check that it saw the nodes and states that are there."""
    import pgmpy.readwrite

    make: Callable[..., Any] = getattr(pgmpy.readwrite, reader)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network = make(string=text).get_model()
        except Exception as error:  # pgmpy raises whatever its parsing trips over
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise FileFormatError(path, None, f"pgmpy cannot read this {kind} file: {reason}") from None
    with blaming(path):
        try:
            model = from_pgmpy(network, records=records, provenance={"file": str(path), "format": kind})
        except InvalidArgument:
            raise
        except (ValueError, KeyError) as error:
            if isinstance(error, InvalidModel):
                raise
            raise FileFormatError(
                path, None, f"pgmpy made no network of this {kind} file ({error})"
            ) from None
    seen = {n: list(s) for n, s in model.states.items()}
    if seen != declared:
        wrong = next(n for n in (*declared, *seen) if seen.get(n) != declared.get(n))
        raise FileFormatError(
            path,
            None,
            f"node {wrong!r}: pgmpy reads the states {seen.get(wrong)}, the file has {declared.get(wrong)};"
            " save the network as BIF",
        )
    return model

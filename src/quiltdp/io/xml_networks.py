"""XMLBIF and GeNIe XDSL: Bayesian networks in XML.

In both, a table is written out with the node's own states moving fastest, then those of the last
parent.  What is not a conditional probability table (a GeNIe ``deterministic`` node) is refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from xml.etree import ElementTree

from quiltdp.errors import FileFormatError
from quiltdp.io.declared import Declared
from quiltdp.io.xml_parse import read_xml
from quiltdp.model import Model

__all__ = ["read_xdsl", "read_xmlbif"]


def read_xmlbif(path: str | os.PathLike[str], *, records: Collection[str] | None = None) -> Model:
    """Read a Bayesian network from an XMLBIF file.

    Raises
    ------
    FileFormatError, InvalidModel
        With the file, and the line where there is one.
    """
    root = read_xml(path)
    found = root.find("NETWORK") if root.tag == "BIF" else None
    if found is None:
        raise FileFormatError(path, None, f"expected <BIF> with <NETWORK> in it, found <{root.tag}>")
    network = Declared(path)
    for variable in found.findall("VARIABLE"):
        outcomes = [(e.text or "").strip() for e in variable.findall("OUTCOME")]
        network.declare(_text(path, variable, "NAME", "a VARIABLE"), outcomes)
    for definition in found.findall("DEFINITION"):
        node = _text(path, definition, "FOR", "a DEFINITION")
        given = [(e.text or "").strip() for e in definition.findall("GIVEN")]
        numbers = _text(path, definition, "TABLE", f"the definition of {node!r}")
        network.add_table(node, given, numbers)
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
    network = Declared(path)
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
        network.add_table(name, parents, _text(path, node, "probabilities", f"node {name!r}"))
    return network.model("XDSL", records)


def _text(path: object, element: ElementTree.Element, tag: str, owner: str) -> str:
    """Return the text of the one child with this tag."""
    found = [(e.text or "").strip() for e in element.findall(tag)]
    if len(found) != 1 or not found[0]:
        raise FileFormatError(path, None, f"{owner}: expected one <{tag}> with text, found {len(found)}")
    return found[0]

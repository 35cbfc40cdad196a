"""XML from strangers: no entities in any encoding, no nest without end."""

from __future__ import annotations

import os
from xml.etree import ElementTree
from xml.parsers import expat

from quiltdp.errors import FileFormatError
from quiltdp.io.text import read_bytes

__all__ = ["MAX_DEPTH", "parse_xml", "read_xml"]

MAX_DEPTH = 64
"""How deep elements may stand in each other; no format here needs ten."""


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

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise _refused(f"elements stand {depth} deep in each other, at most {MAX_DEPTH} are allowed")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def entity(*_: object) -> None:
        raise _refused("XML entities are not allowed")

    def _refused(message: str) -> FileFormatError:
        return FileFormatError(path, parser.CurrentLineNumber, message)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = entity
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

"""Text that is safe to show: names come from files, and files are written by others.

A node, a person or a file may be called anything: an escape sequence that repaints the terminal, a mark
that turns the reading direction, a line end that forges a second line.  Whatever is shown goes through
:func:`printable`, and JSON through :func:`json_text`; nothing else in the library escapes names.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

# Suspects: control characters, format marks (bidirectional, zero width), line separators, lone surrogates,
# private use, not assigned.  The first pattern is quick and generous; the category decides.
_SUSPECT = re.compile(r"[^\x20-\x7e\xa1-\xac\xae-\u02ff]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with everything that is not plainly visible written as an escape.

    ``keep`` names characters that stay as they are (the line ends of a paragraph of ours).

    Examples
    --------
    >>> print(printable("Ann\x1b[2J\u202e σ = 1"))
    Ann\x1b[2J\u202e σ = 1
    >>> printable("Müller, 王 and 👩") == "Müller, 王 and 👩"
    True
    """
    return _SUSPECT.sub(lambda found: found[0] if found[0] in keep else _escape_hidden(found[0]), text)


def _escape_hidden(character: str) -> str:
    hidden = unicodedata.category(character) in _HIDDEN
    return character.encode("unicode_escape").decode() if hidden else character


def json_text(document: Any, *, indent: int | None = None) -> str:
    r"""Return JSON in which letters of all languages are themselves and what is not visible is escaped.

    Examples
    --------
    >>> print(json_text({"σ": "a\u202eb"}))
    {"σ": "a\u202eb"}
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    return _SUSPECT.sub(lambda found: found[0] if found[0] == "\n" else _json_escape_hidden(found[0]), text)


def _json_escape_hidden(character: str) -> str:
    return json.dumps(character)[1:-1] if unicodedata.category(character) in _HIDDEN else character

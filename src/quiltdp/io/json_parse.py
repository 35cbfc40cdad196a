"""JSON as strict as a model needs: no NaN, no key twice, no nest without end, no number without end."""

from __future__ import annotations

import json
import re
from typing import Any

from quiltdp.io.text import Source

__all__ = ["parse_json"]

_MOST_DIGITS = 400  # more than the largest double has


def parse_json(source: Source) -> Any:
    """Return the document that a text holds.

    Raises
    ------
    FileFormatError
        With the line where there is one.
    """

    def constant(word: str) -> Any:
        raise source.error(_find_word(source.text, word), f"{word} is not a number that a file may hold")

    def whole(word: str) -> int:
        if len(word) > _MOST_DIGITS:
            raise source.error(source.text.find(word), f"a number has {len(word):,} digits, too many")
        return int(word)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
            raise source.error(None, f"the key {twice!r} occurs twice in one object")
        return made

    try:
        return json.loads(source.text, parse_constant=constant, parse_int=whole, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"this is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise source.error(None, "the document is nested too deeply") from None


def _find_word(text: str, word: str) -> int | None:
    found = re.search(rf"(?<![\w\"]){re.escape(word)}\b", text)
    return found.start() if found else None

"""An error in the words of the command line: its options as the flags of the command that was called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from quiltdp.errors import QuiltdpError, in_python, options_in, spelled

__all__ = ["error_line", "speaking_for", "usage"]

# Keyword of the library -> the option that stands for it, where their names differ.
_OTHER_NAMES = {
    "keys": "key",
    "lat": "lat_column",
    "lon": "lon_column",
    "max_speed": "any_speed",
    "time": "time_column",
    "time_zone": "timezone",
    "user": "user_column",
}

_PARAMETERS: ContextVar[Mapping[str, Any] | None] = ContextVar("parameters", default=None)


@contextmanager
def speaking_for(parameters: Iterable[Any]) -> Iterator[None]:
    """Spell errors with the options of this command while it runs."""
    token = _PARAMETERS.set({p.name: p for p in parameters})
    try:
        yield
    finally:
        _PARAMETERS.reset(token)


def error_line(error: QuiltdpError) -> str:
    """Return the whole message as people at the command line know the options.

    A remedy that takes an option this command does not have is left out.
    """
    kept = [phrase for phrase in error.remedies if _can(phrase)]
    return spelled(": ".join(part for part in (error.text, " or ".join(kept)) if part), _as_flag)


def _can(phrase: str) -> bool:
    """Return whether the command has every option a phrase names."""
    parameters = _PARAMETERS.get()
    return parameters is None or all(_here(name) in parameters for name in options_in(phrase))


def _here(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


def _as_flag(name: str, key: str, value: str, literal: str) -> str:
    """Return an option as it is typed: ``--column id=…``."""
    parameters = _PARAMETERS.get()
    parameter = (parameters or {}).get(_here(name))
    flag = f"--{_here(name).replace('_', '-')}"
    if parameter is None and parameters is not None:
        return in_python(name, key, value, literal)
    if parameter is not None:
        if not parameter.opts[0].startswith("-"):
            return str(parameter.metavar or name).upper()
        flag = str(max(parameter.opts, key=len))
        if getattr(parameter, "is_flag", False):
            return flag
    shown = value if value in ("", "…") else shlex.quote(value)
    words = f"{key}={shown}" if key else shown
    return f"{flag} {words}" if words else flag


# What a parser found -> what to say, with the bound it states.
_EXPECTED = {
    "float_parsing": "is not a number",
    "int_parsing": "is not a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "is not a whole number",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "greater_than": "must be above {gt:g}",
    "less_than": "must be below {lt:g}",
}


def usage(error: Any) -> str:
    """Return in one line what is wrong with the call itself: an unknown option, a bad value."""
    listed = getattr(error.__cause__, "errors", None)
    found = listed()[0] if callable(listed) else {}
    words = _EXPECTED.get(found.get("type", ""))
    if words is not None and error.param is not None:
        said = words.format(**found.get("ctx", {}))
        return f"{max(error.param.opts, key=len)} {found['input']!r} {said}"
    said = " ".join(str(error.format_message()).split()).rstrip(".")
    said = re.sub(r"^Invalid value for '([^']+)'", r"\1", said)  # the option says it
    said = said.replace(". Did you mean", ", did you mean").replace("(Possible options: ", "(possible: ")
    return said[:1].lower() + said[1:]

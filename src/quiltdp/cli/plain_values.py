"""Values of options that need no library to be read: texts, plain numbers, lists of texts.

typer asks pydantic about every value, and loading pydantic takes longer than many commands.  What is
plainly what an option wants is taken as it is; everything else, and every mistake, goes typer's way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["take_plain_values"]

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,2})?")


class _NotPlain(Exception):
    """The value is left to typer."""


def take_plain_values(parameters: Sequence[Any]) -> list[Any]:
    """Return the parameters, whose plain values pass; nothing changes where typer does not say its wish."""
    for parameter in parameters:
        _quicken(parameter)
    return list(parameters)


def _quicken(parameter: Any) -> None:
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None or "process_value" in vars(parameter):
        return
    wanted, limits = descriptor.annotation, descriptor.parameter_info
    if limits.parser is not None or limits.clamp:
        return
    ordinary = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        several = parameter.multiple or parameter.nargs == -1
        try:
            if value is None and not parameter.required:
                plain = () if several else None
            else:
                plain = _plain(wanted, value, limits.min, limits.max)
        except _NotPlain:
            return ordinary(context, value)
        return plain if parameter.callback is None else parameter.callback(context, parameter, plain)

    parameter.process_value = process_value


def _plain(wanted: Any, value: Any, least: float | None, most: float | None) -> Any:
    """Return the value as typer would, or leave it."""
    if wanted in (str, bool) and type(value) is wanted:
        return value
    if wanted == list[str] and type(value) in (list, tuple) and value and all(type(v) is str for v in value):
        return list(value)
    if wanted in (int, float):
        pattern = _WHOLE if wanted is int else _DECIMAL
        if type(value) is wanted or (type(value) is str and pattern.fullmatch(value)):
            number = wanted(value)
            if (least is None or number >= least) and (most is None or number <= most):
                return number
    raise _NotPlain

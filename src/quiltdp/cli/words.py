"""An error in the words of the command line: its options as the flags of the command that was called."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from quiltdp.errors import QuiltdpError, mentioned_options, spell_in_python, spell_options

# Keyword of the library -> the option that stands for it where their names differ, {} for its value.
_READ = ("format", "missing", "male", "female", "twins", "lat", "lon", "time", "user", "header", "separator")
_OTHER_NAMES = {
    "keys": "--key {}",
    "ledger": "--ledger {}",
    "no_ledger": "--ledger none",
    "max_speed": "--accept any-speed",
    "drop_invalid": "--accept off-globe",
    "time_zone": "--timezone {}",
    "grid_crs": "--cell 500m@CRS",
    "stay_distance": "--cell stay:LENGTH:TIME",
    "stay_time": "--cell stay:LENGTH:TIME",
    "haplotypes": "--ld {}",
    "values": "--query {}",
    "columns": "--read {}",
    "crs": "--read crs={}",
    "time_format": "--read time-format={}",
    "unknown_parents": "--read unknown-parents={}",
    "join_families": "--read join-families=yes",
    **{name: f"--read {name}={{}}" for name in _READ},
}

_PARAMETERS: ContextVar[Mapping[str, Any] | None] = ContextVar("parameters", default=None)


@contextmanager
def speaking_for(parameters: Mapping[str, Any]) -> Iterator[None]:
    """Spell errors with the options of this command (name → argparse action) while it runs."""
    token = _PARAMETERS.set(parameters)
    try:
        yield
    finally:
        _PARAMETERS.reset(token)


def error_line(error: QuiltdpError) -> str:
    """Return the whole message as people at the command line know the options.

    A remedy that takes an option this command does not have is left out.
    """
    kept = [phrase for phrase in error.remedies if all(_flag_of(name) for name in mentioned_options(phrase))]
    return spell_options(": ".join(part for part in (error.text, " or ".join(kept)) if part), _spell_option)


def _flag_of(name: str) -> str | None:
    """Return how an option is typed here, ``{}`` for its value; None where the command lacks it."""
    parameters = _PARAMETERS.get()
    if parameters is None:
        return f"--{name.replace('_', '-')} {{}}"
    action = parameters.get(name)
    if action is not None:
        if not action.option_strings:
            return str(action.metavar or name).upper()
        flag = str(max(action.option_strings, key=len))
        return flag if action.nargs == 0 else f"{flag} {{}}"
    other = _OTHER_NAMES.get(name)
    there = other is not None and any(other.split()[0] in a.option_strings for a in parameters.values())
    return other if there else None


def _spell_option(name: str, key: str, value: str, literal: str) -> str:
    """Return an option as it is typed: ``--read id=…``."""
    flag = _flag_of(name)
    if flag is None:
        return spell_in_python(name, key, value, literal)
    shown = value if value in ("", "…") else shlex.quote(value)
    return flag.format(f"{key}={shown}" if key else shown).rstrip(" =")

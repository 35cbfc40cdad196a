"""Modules that moved: the old address warns and answers with the new one, for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["names_from"]


def names_from(old: str, new: str, renamed: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that warns and looks in the module ``new``.

    ``renamed`` maps old names to those of today.

    Examples
    --------
    >>> look = names_from("quiltdp.rounding", "quiltdp.numbers")
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     look("digits_up")(0.1), str(seen[0].message)
    (0.100000000001, 'quiltdp.rounding is now quiltdp.numbers; the old name goes with the next version')
    """

    def look(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(import_module(new), (renamed or {}).get(name, name))
        warnings.warn(
            f"{old} is now {new}; the old name goes with the next version", DeprecationWarning, stacklevel=2
        )
        return found

    return look

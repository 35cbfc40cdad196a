"""The field's libraries, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from quiltdp.errors import DependencyMissing

__all__ = ["need"]


def need(module: str, purpose: str, extra: str = "geo") -> Any:
    """Import an optional library, or say which extra installs it.

    Raises
    ------
    DependencyMissing
        Naming the library, what it is needed for, and the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise DependencyMissing(
            f"{purpose} needs the library {name!r}: pip install 'quiltdp[{extra}]'"
        ) from None

"""Modules that moved: the old address warns and answers with the new one, for one version.

The old addresses are the table ``MOVED`` and no files.  A finder that Python asks last, after every other
one has failed, makes a module for an old address when somebody imports it, and that module looks its names
up when they are asked for.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["MOVED", "NAMES", "RENAMED", "left", "old_addresses"]

MOVED = {
    "quiltdp.accountant.leakage.base": "quiltdp.accountant.bounds",
    "quiltdp.accountant.specs": "quiltdp.accountant.mechanisms",
    "quiltdp.inference.blocks": "quiltdp.inference.change_tree",
    "quiltdp.inference.chain_laws": "quiltdp.inference.chains",
    "quiltdp.inference.clique_states": "quiltdp.inference.cliques",
    "quiltdp.inference.components": "quiltdp.graph.components",
    "quiltdp.inference.determined": "quiltdp.inference.spread",
    "quiltdp.inference.elimination": "quiltdp.inference.tables",
    "quiltdp.inference.evidence": "quiltdp.inference.marginals",
    "quiltdp.inference.evidence_views": "quiltdp.inference.cliques",
    "quiltdp.inference.junction_tree": "quiltdp.inference.trees",
    "quiltdp.inference.narrower": "quiltdp.inference.change_tree",
    "quiltdp.inference.path": "quiltdp.inference.chains",
    "quiltdp.inference.ray_plan": "quiltdp.inference.raysets",
    "quiltdp.inference.reordered": "quiltdp.inference.ancestry",
    "quiltdp.inference.set_chain": "quiltdp.inference.uncertain",
    "quiltdp.inference.support": "quiltdp.inference.trees",
    "quiltdp.inference.table_error": "quiltdp.inference.uncertain",
    "quiltdp.inference.tilted": "quiltdp.inference.marginals",
    "quiltdp.inference.two_point": "quiltdp.inference.interaction",
    "quiltdp.inference.types": "quiltdp.inference.region",
    "quiltdp.rounding": "quiltdp.numbers",
}
"""Where a module was, and where its names are."""

RENAMED = {"quiltdp.accountant.specs": {"MechanismSpec": "Mechanism"}}
"""Names that are called otherwise at the new address."""

NAMES = {
    "quiltdp.inference.influence": {
        "quilt_influence": "quiltdp.inference.quilts",
        "swings": "quiltdp.inference.quilts",
    },
}
"""Single names that left a module which is still there."""


class _Moved(ModuleType):
    """An old address."""

    def __getattr__(self, name: str) -> Any:
        """Warn, and look in the module of today."""
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new = MOVED[self.__name__]
        found = getattr(import_module(new), RENAMED.get(self.__name__, {}).get(name, name))
        said = f"{self.__name__} is now {new}; the old name goes with the next version"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return found


def left(module: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that warns and finds the names which left it (``NAMES``)."""

    def look(name: str) -> Any:
        new = NAMES[module].get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        said = f"{module}.{name} is now {new}.{name}; the old name goes with the next version"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return getattr(import_module(new), name)

    return look


class _Finder:
    """Finds old addresses, and makes their modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the place of an old address, None for every other name."""
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]  # as good as a Loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that knows its new address."""
        return _Moved(spec.name, f"The old address of {MOVED[spec.name]}; it goes with the next version.")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: names are looked up when they are asked for."""


def old_addresses() -> None:
    """Let every old address answer; nothing is imported before it is asked for.

    Examples
    --------
    >>> from importlib import import_module
    >>> old = import_module("quiltdp.rounding")
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     old.digits_up(0.1), str(seen[0].message)
    (0.100000000001, 'quiltdp.rounding is now quiltdp.numbers; the old name goes with the next version')
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())

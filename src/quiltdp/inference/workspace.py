"""The one place where anything computed for a model is kept: passed explicitly, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from quiltdp.model import Model
from quiltdp.work import Guard

if TYPE_CHECKING:
    from quiltdp.graph.types import DependencyGraph

_Made = TypeVar("_Made")


class Workspace:
    """What has been computed for one model: trees, tables, swings.

    Nothing in it changes an answer; an empty one only makes the next call slower.  When it is full,
    what was used longest ago goes first.

    Parameters
    ----------
    model
        The model it belongs to.
    max_bytes
        How much may be kept.
    guard
        Looked at by long steps, between chunks.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> space = Workspace(markov_chain([[0.9, 0.1], [0.2, 0.8]], 5))
    >>> space.keep("steps", (), lambda: 5), space.keep("steps", (), lambda: 6)
    (5, 5)
    """

    def __init__(
        self,
        model: Model,
        max_bytes: int = 2**28,
        guard: Guard | None = None,
    ) -> None:
        self.model = model
        self._shelf = _BoundedCache(max_bytes, guard if guard is not None else Guard())
        self._part: Hashable = None

    @property
    def guard(self) -> Guard:
        """Looked at by long steps; a new question restarts it."""
        return self._shelf.guard

    def part(self, name: Hashable, model: Model) -> Workspace:
        """Return the workspace of a part of the model: room and guard are shared, keys are its own."""
        inner = Workspace.__new__(Workspace)
        inner.model, inner._shelf, inner._part = model, self._shelf, (self._part, name)
        return inner

    def keep(
        self, kind: str, key: Hashable, make: Callable[[], _Made], size: Callable[[_Made], int] | None = None
    ) -> _Made:
        """Return what is kept under ``kind`` and ``key``, made now if it is not there.

        ``size`` tells its bytes (256 by default); what is larger than the whole room is not kept.
        """
        return self._shelf.keep((kind, self._part, key), make, size)

    def kept(self, kind: str, key: Hashable) -> Any:
        """Return what is kept under ``kind`` and ``key``, None if it is not there."""
        return self._shelf.find((kind, self._part, key))


def moral_graph(workspace: Workspace) -> DependencyGraph:
    """Return the moral graph of the workspace's model, made once."""
    from quiltdp.graph.moral import moralize

    return workspace.keep("moral graph", (), lambda: moralize(workspace.model), lambda g: 64 * len(g))


class _BoundedCache:
    """What is kept, the longest unused first, and the room that is left."""

    def __init__(self, max_bytes: int, guard: Guard) -> None:
        self.guard = guard
        self._whole = self._room = max_bytes
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def find(self, key: Hashable) -> Any:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(
        self, key: Hashable, make: Callable[[], _Made], size: Callable[[_Made], int] | None = None
    ) -> _Made:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[0]  # type: ignore[no-any-return]  # what was put in under this key
        made = make()
        taken = 256 if size is None else size(made)
        if taken > self._whole:
            return made
        while taken > self._room:
            _, (_, freed) = self._kept.popitem(last=False)
            self._room += freed
        self._kept[key] = (made, taken)
        self._room -= taken
        return made

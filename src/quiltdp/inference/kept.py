"""What is made once and used again: per model, and in stores of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from quiltdp.model import Model

__all__ = ["Store", "kept_with_model"]

_Made = TypeVar("_Made")
_Key = TypeVar("_Key")


class kept_with_model(Generic[_Made]):  # noqa: N801 - used as a decorator
    """Make something of a model when it is first asked for, and keep it as long as the model lives.

    What is made must not hold the model itself, or neither would ever go.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> @kept_with_model
    ... def steps(model):
    ...     print("counting")
    ...     return len(model.nodes)
    >>> m = markov_chain([[0.9, 0.1], [0.2, 0.8]], 5)
    >>> steps(m), steps(m)
    counting
    (5, 5)
    """

    def __init__(self, make: Callable[[Model], _Made]) -> None:
        self.make = make
        self.kept: WeakKeyDictionary[Model, _Made] = WeakKeyDictionary()
        update_wrapper(self, make)

    def __call__(self, model: Model) -> _Made:
        """Return what was made of the model."""
        try:
            return self.kept[model]
        except KeyError:
            made = self.kept[model] = self.make(model)
            return made


class Store(dict[_Key, _Made]):
    """A dictionary with room for a number of entries in all; when it is full it begins again empty."""

    def __init__(self, room: int, size: Callable[[_Made], int]) -> None:
        self._whole = self._room = room
        self._size = size

    def __setitem__(self, key: _Key, made: _Made) -> None:
        """Keep one more; every item counts 64 entries for itself."""
        taken = self._size(made) + 64
        if taken > self._room:
            self.clear()
            self._room = self._whole
        self._room -= taken
        super().__setitem__(key, made)

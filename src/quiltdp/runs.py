"""Vectors whose neighbours are mostly equal: as long as one likes, no larger than what differs in them.

The leakages of a long chain are equal in its middle, and so are the α's of its steps.  :class:`Runs` holds
such a vector as its runs of equal numbers and behaves as the numpy vector it stands for: arithmetic,
comparisons, slices and reductions look at every run once, and whatever else is asked of it gets the numbers
written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

__all__ = [
    "Runs",
    "constant",
    "in_runs",
    "joined",
    "key_of",
    "numbers_of",
    "pointwise",
    "taken",
    "written_out",
]

Ints = NDArray[np.intp]
Vector = NDArray[Any]

_MANY = 1024  # runs beyond which a vector is written out, if they are shorter than eight on average


class Runs(NDArrayOperatorsMixin):
    """A vector as runs of equal numbers: ``numbers[r]`` stands at every place before ``ends[r]``.

    Functions that return one are typed as returning the numpy vector that it stands for.

    Examples
    --------
    >>> long = constant(10**9, 0.5)
    >>> len(long + 1), float((long + 1).max()), float((long * 2.0)[-1])
    (1000000000, 1.5, 1.0)
    """

    def __init__(self, numbers: Any, ends: Any) -> None:
        self.numbers, self.ends = np.asarray(numbers), np.asarray(ends, dtype=np.intp)
        self.numbers.flags.writeable = self.ends.flags.writeable = False

    ndim = 1

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __iter__(self) -> Iterator[Any]:
        for number, length in zip(self.numbers, self.lengths.tolist(), strict=True):
            yield from repeat(number, length)

    @property
    def lengths(self) -> Ints:
        """How long each run is."""
        return np.diff(self.ends, prepend=0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the numbers written out."""
        return np.repeat(self.numbers, self.lengths).astype(dtype or self.numbers.dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Look at every run once, where numbers are combined place by place."""
        if method == "__call__" and not options:
            return pointwise(ufunc, *inputs)
        return getattr(ufunc, method)(*map(written_out, inputs), **options)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            places = range(*key.indices(len(self)))
            if abs(places.step) == 1 and places:
                return self._between(min(places[0], places[-1]), len(places), places.step)
        elif not isinstance(key, np.ndarray):
            return self.numbers[np.searchsorted(self.ends, range(len(self))[key], side="right")]
        return np.asarray(self)[key]

    def _between(self, start: int, length: int, step: int) -> Runs:
        """Return a stretch, forwards or backwards."""
        first, last = np.searchsorted(self.ends, (start + 1, start + length)).tolist()
        numbers, ends = (
            self.numbers[first : last + 1],
            np.minimum(self.ends[first : last + 1] - start, length),
        )
        if step > 0:
            return Runs(numbers, ends)
        return Runs(numbers[::-1], length - np.concatenate([ends[:-1][::-1], [0]]))

    def max(self, axis: None = None, out: None = None, **options: Any) -> Any:
        """Return the largest number."""
        return self.numbers.max(**options)

    def any(self, axis: None = None, out: None = None) -> bool:
        """Return whether a number is not 0."""
        return bool(self.numbers.any())

    def all(self, axis: None = None, out: None = None) -> bool:
        """Return whether no number is 0."""
        return bool(self.numbers.all())

    def sum(self) -> float:
        """Return the sum; equal numbers are multiplied, so it is no less accurate than adding them."""
        return float((self.numbers * self.lengths).sum())

    def argmax(self, axis: None = None, out: None = None) -> int:
        """Return the first place of the largest number."""
        run = int(self.numbers.argmax())
        return int(self.ends[run - 1]) if run else 0


def in_runs(vector: Any) -> bool:
    """Return whether a vector is held as runs."""
    return isinstance(vector, Runs)


def written_out(vector: Any) -> Vector:
    """Return the numpy vector that runs stand for; anything else as it is."""
    return _typed(np.asarray(vector) if isinstance(vector, Runs) else vector)


def constant(length: int, number: float, head: Sequence[float] | Vector = ()) -> Vector:
    """Return a vector of one number, behind those of ``head``."""
    numbers = np.array([number]) if len(head) == 0 else np.concatenate([head, [number]])[:length]
    ends = np.arange(1, len(numbers) + 1)
    ends[-1] = length
    return _held(Runs(numbers, ends))


def pointwise(function: Callable[..., Any], *given: Any) -> Vector:
    """Return a function of the numbers at each place, in runs if nothing but runs and numbers is given."""
    runs = [g for g in given if isinstance(g, Runs)]
    if not runs or any(np.ndim(g) > 0 and not isinstance(g, Runs) for g in given):
        return _typed(function(*map(written_out, given)))
    ends = runs[0].ends
    if any(len(r) != len(runs[0]) for r in runs):
        raise ValueError(f"vectors of different lengths: {', '.join(str(len(r)) for r in runs)}")
    if any(r.ends is not ends for r in runs):
        ends = np.unique(np.concatenate([r.ends for r in runs]))
    parts = [g.numbers[np.searchsorted(g.ends, ends)] if isinstance(g, Runs) else g for g in given]
    return _held(Runs(function(*parts), ends))


def joined(parts: Sequence[Any]) -> Vector:
    """Return vectors one behind the other, in runs if one of them is."""
    if len(parts) == 1:
        return _typed(parts[0])
    if not any(map(in_runs, parts)):
        return np.concatenate(parts)
    runs = [p if isinstance(p, Runs) else Runs(p, np.arange(1, len(p) + 1)) for p in parts if len(p)]
    starts = np.cumsum([0, *map(len, runs[:-1])])
    ends = [r.ends + start for r, start in zip(runs, starts.tolist(), strict=True)]
    return _held(Runs(np.concatenate([r.numbers for r in runs]), np.concatenate(ends)))


def taken(vector: Any, places: Ints | range) -> Vector:
    """Return the numbers at some places; a range is a stretch of neighbours."""
    return _typed(vector[places.start : places.stop] if isinstance(places, range) else vector[places])


def key_of(vector: Any) -> bytes:
    """Return bytes that are equal for equal vectors held in the same way."""
    return bytes(vector.numbers.tobytes() + vector.ends.tobytes() if in_runs(vector) else vector.tobytes())


def numbers_of(vector: Any) -> tuple[Vector, Ints]:
    """Return the number of every run and where it starts; runs of one place for a plain vector."""
    if isinstance(vector, Runs):
        return vector.numbers, vector.ends - vector.lengths
    return vector, np.arange(len(vector))


def _held(runs: Runs) -> Vector:
    """Return runs, or the numbers written out where runs are so short that nothing is gained by them."""
    short = len(runs.ends) > _MANY and 8 * len(runs.ends) > len(runs)
    return written_out(runs) if short else _typed(runs)


def _typed(vector: Any) -> Vector:
    """Call runs what they stand for."""
    return cast("Vector", vector)

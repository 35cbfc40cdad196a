"""What is protected, and what each record pays: units and α vectors, normalised once at the edge.

The default unit is one record (event-level privacy).  ``protect`` names sets of records that are
protected together (all rows of one person: user-level privacy); ``window=w`` protects every run of w
consecutive steps of a chain (w-event privacy).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.bounds.contract import Vector
from quiltdp.chain import ChainModel, as_chain
from quiltdp.errors import InvalidArgument, LimitReached, UnknownNode, option
from quiltdp.model import Model
from quiltdp.work import Guard, Limit

LARGEST = 1e100
"""Beyond it sums of costs lose all meaning in doubles; no guarantee of this size means anything."""

SMALLEST_TARGET = 1e-100
"""Below it, α and its certificate leave the range of doubles."""


@dataclass(frozen=True, eq=False)
class Units:
    """The protected units of a model.

    ``names[k]`` is what unit k is called; ``members`` maps it to its records, or is ``None`` when
    every record stands alone; ``window`` is the length of runs of steps, 1 for single records.
    """

    names: Sequence[str]
    members: tuple[tuple[str, ...], ...] | None = None
    window: int = 1

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> str:
        """How people call this kind of protection."""
        if self.members is not None:
            return "sets of records"
        return "single records" if self.window == 1 else f"runs of {self.window} steps"


def largest_unit_weight(units: Units, model: Model, weights: Vector) -> float:
    """Return the largest sum of weights in a unit: what it pays if records are independent."""
    if units.members is not None:
        return max(float(sum(weights[model.index[n]] for n in unit)) for unit in units.members)
    if units.window == 1:
        return float(weights.max())
    best, start = 0.0, 0
    for segment in as_chain(model).segments:
        own = np.concatenate(([0.0], np.cumsum(weights[start : start + segment.length])))
        length = min(units.window, segment.length)
        best = max(best, float((own[length:] - own[:-length]).max()))
        start += segment.length
    return best


Protect = Mapping[str, Collection[str]] | Collection[Collection[str]] | None


def make_units(model: Model, protect: Protect = None, window: int = 1) -> Units:
    """Return the units a caller asked for, checked.

    Raises
    ------
    InvalidArgument
        Naming the set and what is wrong with it.
    """
    if not isinstance(model, Model):
        raise InvalidArgument(f"model must be a quiltdp Model, not {model!r}; load_model reads files")
    if isinstance(window, bool) or not isinstance(window, (int, np.integer)) or window < 1:
        raise InvalidArgument(f"{option('window')} must be a whole number ≥ 1, not {window!r}")
    if protect is None:
        if window > 1 and not isinstance(model, ChainModel):
            raise InvalidArgument(
                f"{option('window')} protects runs of steps and needs a Markov chain;"
                f" name sets with {option('protect')} instead"
            )
        if window > 1:
            return Units(_WindowNames(model, int(window)), None, int(window))
        return Units(model.records)
    if window > 1:
        raise InvalidArgument(f"give either {option('protect')} or {option('window')}, not both")
    if isinstance(protect, str) or not isinstance(protect, Iterable):
        raise InvalidArgument(f"protect must hold sets of records, not {protect!r}")
    named = protect if isinstance(protect, Mapping) else {_set_name(s): s for s in protect}
    if not named:
        raise InvalidArgument(f"{option('protect')} is empty: name at least one set of records")
    members = tuple(_checked_set(model, name, chosen) for name, chosen in named.items())
    return Units(tuple(str(n) for n in named), members)


def unit_name(chosen: Collection[str]) -> str:
    """Return how a set of records is called: a record by its name, others as ``protect`` does."""
    return next(iter(chosen)) if len(chosen) == 1 else _set_name(chosen)


def _set_name(chosen: Collection[str]) -> str:
    if isinstance(chosen, str):
        raise InvalidArgument(f"protect: {chosen!r} is a string; write [{chosen!r}] for a set of one record")
    if not isinstance(chosen, Collection):
        raise InvalidArgument(f"protect: {chosen!r} is not a set of records")
    names = sorted(map(str, chosen))
    return "+".join(names) if len(names) <= 4 else f"{names[0]}+…+{names[-1]} ({len(names)} records)"


def _checked_set(model: Model, name: str, chosen: Collection[str]) -> tuple[str, ...]:
    if isinstance(chosen, str):
        raise InvalidArgument(f"protect: set {name!r} is a string; write [{chosen!r}]")
    if not isinstance(chosen, Collection):
        raise InvalidArgument(f"protect: set {name!r} is not a set of records but {chosen!r}")
    if not chosen:
        raise InvalidArgument(f"{option('protect')}: set {name!r} is empty")
    odd = next((n for n in chosen if not isinstance(n, str)), None)
    if odd is not None:
        raise InvalidArgument(f"protect: {odd!r} in set {name!r} is not the name of a record")
    model.require(chosen)
    for n in chosen:
        if not model.is_record(n):
            raise InvalidArgument(
                f"{option('protect')}: {n!r} in set {name!r} is latent, only records are protected"
            )
    return tuple(sorted(set(chosen), key=lambda n: model.index[n]))


class _WindowNames(Sequence[str]):
    """Names of the runs of w steps of every segment, made on demand: ``X3…X7``."""

    def __init__(self, model: Model, window: int) -> None:
        self._segments = as_chain(model).segments
        self._window = window
        counts = [max(1, s.length - window + 1) for s in self._segments]
        self._starts = [0, *np.cumsum(counts).tolist()]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, key: int | slice) -> str | Sequence[str]:  # type: ignore[override]  # no overloads
        if isinstance(key, slice):
            return tuple(str(self[k]) for k in range(*key.indices(len(self))))
        position = range(len(self))[key]
        k = int(np.searchsorted(self._starts, position, side="right")) - 1
        segment, first = self._segments[k], position - int(self._starts[k])
        last = min(first + self._window, segment.length) - 1
        return f"{segment.prefix}{first}…{segment.prefix}{last}"

    def __iter__(self) -> Iterator[str]:
        return (str(self[k]) for k in range(len(self)))


DpEpsilon = float | Mapping[str, float]


def alphas(model: Model, dp_epsilon: DpEpsilon, name: str = "dp_epsilon") -> Vector:
    """Return one α per node: the given one for each person behind a record, 0 for latents.

    One number is what the mechanism costs one person; a record that stands for k people (monozygotic
    twins) pays k times as much, by group privacy.  A mapping gives each record its own α, all its people
    included; a record the query never reads has α = 0, and says so.

    Raises
    ------
    InvalidArgument
        For a negative, infinite or missing value, naming the record.
    """
    if isinstance(dp_epsilon, Mapping):
        return _alphas_per_record(model, dp_epsilon, name)
    value = positive_epsilon(dp_epsilon, name, zero=True)
    if len(model.records) == len(model.nodes) and not model.people:
        return np.broadcast_to(value, len(model.nodes))  # one number, however long a chain is
    if len(model.records) == len(model.nodes):
        vector = np.full(len(model.nodes), value)
    else:
        vector = np.array([value if model.is_record(n) else 0.0 for n in model.nodes])
    for record, count in model.people.items():
        vector[model.index[record]] *= count
    return vector


def _alphas_per_record(model: Model, given: Mapping[str, float], name: str) -> Vector:
    for n in given:
        if n not in model.states:
            raise UnknownNode(f"{name}: record {n!r} is not in the model")
        if not model.is_record(n):
            raise InvalidArgument(f"{name}: {n!r} is latent, it has no row in the data")
    missing = next((r for r in model.records if r not in given), None)
    if missing is not None:
        raise InvalidArgument(
            f"{name}: record {missing!r} has no value; give 0 for records that the query never reads"
        )
    return np.array(
        [
            positive_epsilon(given[n], f"{name} of record {n!r}", zero=True) if model.is_record(n) else 0.0
            for n in model.nodes
        ]
    )


def positive_epsilon(value: object, name: str, *, zero: bool = False, least: float = 0.0) -> float:
    """Return a finite positive number (zero where allowed) of at least ``least``, or refuse it by name."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}") from None
    except OverflowError:
        raise InvalidArgument(f"{option(name)} is too large for a floating-point number") from None
    if number > LARGEST and math.isfinite(number):
        raise InvalidArgument(f"{option(name)} must be at most {LARGEST:g}, not {value!r}")
    if isinstance(value, bool) or not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        wanted = "a finite number ≥ 0" if zero else "a finite number > 0"
        raise InvalidArgument(f"{option(name)} must be {wanted}, not {value!r}")
    if number < least:
        raise InvalidArgument(f"{option(name)} must be at least {least:g}, not {value!r}")
    return number


def make_guard(time_limit: Limit, memory_limit: float | None = None) -> Guard:
    """Return limits in seconds and bytes as a guard, or the guard that is given; refuse them by name."""
    if isinstance(time_limit, Guard):
        return time_limit
    seconds = None if time_limit is None else positive_epsilon(time_limit, "time_limit")
    return Guard(
        seconds, None if memory_limit is None else int(positive_epsilon(memory_limit, "memory_limit"))
    )


@contextmanager
def without_partial_answer() -> Iterator[None]:
    """Let a limit that is reached carry no partial answer: it would be of another question."""
    try:
        yield
    except LimitReached as limit:
        raise LimitReached(limit.text) from None

"""What is known of a model after a stage: leakages at any α, the largest α, and the reasons.

A stage is one more bound in every component that it fits.  Everything here is a pure function of the
model, the request, the work budget and the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.accountant.bounds import Bounds, Registered, Vector
from quiltdp.accountant.pieces import Places
from quiltdp.accountant.result import Binding, Certificate, PerUnit
from quiltdp.accountant.search import Passing, largest_scale
from quiltdp.accountant.stages import Component, Evaluation, SmallestBounds
from quiltdp.accountant.units import Units
from quiltdp.graph.components import ComponentClass
from quiltdp.graph.components import Places as Where
from quiltdp.model import Model
from quiltdp.numbers import digits_up, digits_up_array, scaled

if TYPE_CHECKING:
    from quiltdp.accountant.elsewhere import Elsewhere

__all__ = ["TOLERANCE", "Answers", "Leakages", "Piece", "Scale", "certificate"]

TOLERANCE = 1e-10
"""How far (relatively) an answer may stay below the largest α that passes."""

ROUGH = 0.015
"""The same for the first, rough answer of a stage."""

_NEAR = 0.005  # how far (relatively) below the target leakages need not be told exactly at the end
_FAR = 0.75  # the same at the beginning of a search
_BEYOND = 0.25  # how far above the target the others need not be looked at

_Key = tuple[int, bytes]  # a piece, and the α's of one of its copies


@dataclass(frozen=True, eq=False)
class Piece:
    """One class of components, its bounds, and where its units stand in the whole model."""

    found: ComponentClass
    component: Component
    places: Places


@dataclass(frozen=True, eq=False)
class Leakages:
    """Leakage of every unit at one α, and what was found for each piece and its α's."""

    alpha: Vector
    keys: tuple[_Key, ...]  # of every copy of every piece
    values: Vector
    results: Mapping[_Key, SmallestBounds]

    @property
    def epsilon(self) -> float:
        """The largest, rounded up to the digits that people get."""
        return digits_up(float(self.values.max(initial=0.0)))

    @cached_property
    def shown(self) -> Vector:
        """All of them, rounded up to the digits that people get."""
        return digits_up_array(self.values)


@dataclass(frozen=True)
class Scale:
    """A scale of α that passed, its leakage, and the bounds (so many of each piece) that said so.

    ``near`` are other scales that they were asked at, with their leakages, the nearest first;
    ``above`` what was found at the smallest that did not pass.
    """

    scale: float
    leakage: float
    counts: tuple[int, ...]
    near: tuple[Passing, ...] = ()
    above: Leakages | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Answers:
    """A model, its pieces, and how many bounds of each piece may be used.

    Attributes
    ----------
    stage
        The name of the stage: the last bound that was added.
    counts
        For every piece, how many of its bounds belong to this stage and those before it.
    additive
        Whether some unit reaches into several pieces; its leakages add up.
    rough
        Whether a search may end within a percent or so of its goal.
    elsewhere
        The pieces in workers; ``None`` if they are asked here.
    """

    model: Model
    units: Units
    pieces: Sequence[Piece]
    stage: str
    counts: tuple[int, ...]
    additive: bool
    rough: bool = False
    elsewhere: Elsewhere | None = None

    def leakages(self, alpha: Vector, before: Leakages | None = None) -> Leakages:
        """Return the leakage of every unit; ``before`` is an earlier stage's answer at the same α."""
        known = {} if before is None else before.results

        def evaluation(p: int, key: bytes, own: Vector) -> Evaluation:
            return Evaluation(p, self.counts[p], own, known.get((p, key)))

        return self._over_pieces(alpha, evaluation)

    def largest_leakages(self, decided: Leakages, count: int) -> Leakages:
        """Return leakages at an α that was decided: the ``count`` largest by all bounds that count there."""
        top = None if self.additive else count

        def evaluation(p: int, key: bytes, own: Vector) -> Evaluation:
            return Evaluation(p, self.counts[p], own, decided=decided.results[p, key], top=top)

        return self._over_pieces(decided.alpha, evaluation)

    def decide(
        self, alpha: Vector, target: float, *, near: float = _NEAR, larger: Leakages | None = None
    ) -> Leakages:
        """Return sound leakages, as good as it takes to tell whether the largest exceeds ``target``.

        Parameters
        ----------
        near
            Leakages so far (relatively) below the target need not be told exactly.
        larger
            The answer at a larger α, which leaks no less, or that of fewer bounds at the same α.
        """
        low, high = (1.0 - near) * target, (1.0 + _BEYOND) * target
        if self.additive:  # a unit's parts add up: none can be judged alone
            low, high = 0.0, math.inf
        known: dict[_Key, SmallestBounds] = {}
        same = larger is not None and bool(np.all(larger.alpha == alpha))
        if larger is not None and (same or bool(np.all(larger.alpha >= alpha))):
            for now, then in zip(self._keys(alpha), larger.keys, strict=True):
                known[now] = larger.results[then]

        def evaluation(p: int, key: bytes, own: Vector) -> Evaluation:
            found = known.get((p, key))
            before, above = (found, None) if same else (None, found)
            return Evaluation(p, self.counts[p], own, before, between=(low, high), above=above)

        return self._over_pieces(alpha, evaluation)

    def _over_pieces(self, alpha: Vector, evaluation: Callable[[int, bytes, Vector], Evaluation]) -> Leakages:
        """Collect the leakages of every piece, evaluated once per distinct α vector."""
        copies = (copy for piece in self.pieces for copy in piece.found.copies)
        keys = self._keys(alpha)
        own: dict[_Key, Vector] = {}
        for key, copy in zip(keys, copies, strict=True):
            if key not in own:
                own[key] = _taken(alpha, copy)
        due = [evaluation(*key, mine) for key, mine in own.items()]
        results = dict(zip(own, self._run(due), strict=True))
        told = {key: found.values for key, found in results.items()}
        return Leakages(alpha, keys, self._placed(keys, told), results)

    def _placed(self, keys: Sequence[_Key], told: Mapping[_Key, Vector]) -> Vector:
        """Return what is told of the units of every piece, and of each of its α's, in the whole model."""
        places = (both for piece in self.pieces for both in piece.places)
        values = np.zeros(len(self.units))
        for key, (inside, outside) in zip(keys, places, strict=True):
            mine = _taken(told[key], inside)
            if isinstance(outside, range) and len(outside) == len(values):
                return mine
            if self.additive:
                np.add.at(values, np.asarray(outside), mine * (1 + 1e-15))  # sums of rounded-up parts stay so
            elif isinstance(outside, range):
                values[outside.start : outside.stop] = mine
            else:
                values[outside] = mine
        return values

    def _keys(self, alpha: Vector) -> tuple[_Key, ...]:
        """Return what tells every copy's piece and α's apart: of equal α's nothing does."""
        equal = bool(np.all(alpha == alpha[0]))
        return tuple(
            (p, b"" if equal else _taken(alpha, copy).tobytes())
            for p, piece in enumerate(self.pieces)
            for copy in piece.found.copies
        )

    def _run(self, evaluations: list[Evaluation]) -> list[SmallestBounds]:
        if self.elsewhere is not None:
            return self.elsewhere.run(evaluations)
        return [e.run(self.pieces[e.piece].component) for e in evaluations]

    def scale(
        self, target: float, weights: Vector, tolerance: float = TOLERANCE, before: Scale | None = None
    ) -> Scale:
        """Return the largest s, of twelve digits, such that α = s·weights leaks at most ``target``.

        ``before`` is what an earlier stage found.  The returned scale was itself evaluated.
        """

        def at(s: float, near: float, larger: Leakages | None) -> Leakages:
            return self.decide(scaled(weights, s), target, near=near, larger=larger)

        return self.search(at, target, weights, tolerance, before)[0]

    def search(
        self,
        at: Callable[[float, float, Leakages | None], Leakages],
        target: float,
        weights: Vector,
        tolerance: float = TOLERANCE,
        before: Scale | None = None,
        leakages: Leakages | None = None,
    ) -> tuple[Scale, Leakages | None]:
        """Return the largest scale that leaks at most ``target``, and its leakages; rough ones come soon.

        ``at(s, near, larger)`` are the leakages at scale s, with the last arguments of :meth:`decide`;
        ``leakages`` those of the scale that was found before.
        """
        used = [p.component.bounds[:c] for p, c in zip(self.pieces, self.counts, strict=True)]
        dear = max((entry.near for bounds in used for entry, _ in bounds), default=0.0)
        wanted = max(tolerance, dear, ROUGH if self.rough else 0.0)
        seen: dict[float, Leakages] = {}
        floors: dict[float, float] = {}
        others: tuple[Passing, ...]
        above: Leakages | None = None
        start, near, others = None, _FAR, ()
        if before is not None:
            same = before.counts == self.counts
            start = Passing(before.scale, before.leakage if same else math.nan)
            if same:
                others = before.near
                near = min(near, max(_NEAR, 2.0 * abs(before.leakage / target - 1.0)))
            if leakages is not None:
                seen[before.scale] = leakages
            above = before.above

        def bound(s: float) -> float:
            nonlocal near
            larger = min((t for t in seen if t >= s), default=None)
            seen[s] = at(s, near, above if larger is None else seen[larger])
            floors[s] = 0.0 if self.additive else (1.0 - near) * target
            value = seen[s].epsilon
            if value > floors[s]:  # the next one will be nearer
                near = min(near, max(_NEAR, 2.0 * abs(value / target - 1.0)))
            return value

        found = largest_scale(
            bound,
            target,
            weights,
            tolerance=wanted,
            start=start,
            near=others,
            floor=lambda s: floors.get(s, (1.0 - _NEAR) * target),
        )
        told = [
            Passing(s, value)
            for s, value in ((s, seen[s].epsilon) for s in floors)
            if s != found.scale and floors[s] < value <= (1.0 + _BEYOND) * target
        ]
        others = tuple(dict.fromkeys((*told, *others)))
        nearest = tuple(sorted(others, key=lambda p: abs(p.scale - found.scale))[:2])
        failed = [s for s in seen if s > found.scale]
        above = seen[min(failed)] if failed else above
        return Scale(found.scale, found.leakage, self.counts, nearest, above), seen.get(found.scale)

    @property
    def roughly(self) -> Answers:
        """The same stage, content with an answer that is rough: what counts if time is short."""
        return replace(self, stage=f"{self.stage}~", rough=True)

    # -- the reasons ------------------------------------------------------------------------

    def binding(self, found: Leakages) -> tuple[Binding, Registered, Bounds]:
        """Return the unit that leaks most, and the bound that says so."""
        k = int(np.argmax(found.shown)) if len(found.values) else 0
        copies = [(p, *both) for p in self.pieces for both in zip(p.found.copies, p.places, strict=True)]
        for key, (piece, copy, (inside, outside)) in reversed(list(zip(found.keys, copies, strict=True))):
            if k in outside:
                local = int(inside[_where(outside, k)[-1]])
                smallest = found.results[key]
                entry, bounds = smallest.bounds[int(smallest.given[local])]
                witness = _renamed(bounds.witness.get(local, {}), piece.found, copy, self.model)
                name = str(self.units.names[k])
                method = entry.method if bounds.kind == entry.kind else bounds.theorem
                return Binding(name, float(found.shown[k]), method, witness), entry, bounds
        raise AssertionError("every unit belongs to a piece")

    def per_unit(self, found: Leakages) -> PerUnit:
        """Return the leakages by name."""
        return PerUnit(self.units.names, found.shown)

    def by_method(self, found: Leakages) -> dict[str, float]:
        """Return what every method says overall: the best one stands in for it where it was not tried.

        Every number is about the whole model, with a unit's parts in several components added up.
        """
        names = dict.fromkeys(n for smallest in found.results.values() for n in smallest.by_method)
        largest: dict[str, float] = {}
        for name in names:
            told = {key: s.by_method.get(name, s.values) for key, s in found.results.items()}
            largest[name] = digits_up(float(self._placed(found.keys, told).max(initial=0.0)))
        return largest


def _taken(vector: Vector, places: Where) -> Vector:
    """Return the numbers at some places; those of a range are neighbours, and not copied."""
    return vector[places.start : places.stop] if isinstance(places, range) else vector[places]


def _where(places: Where, place: int) -> list[int]:
    """Return where a place stands among places."""
    if isinstance(places, range):
        return [places.index(place)] if place in places else []
    found: list[int] = np.flatnonzero(places == place).tolist()
    return found


def certificate(
    entry: Registered, bounds: Bounds, work: Mapping[str, Any], stage: str, asked: str
) -> Certificate:
    """Return how a number was obtained, in the words of the bound that gave it."""
    says = entry.says if bounds.kind == entry.kind else f"above {entry.says}"
    return Certificate(bounds.kind, f"{says}; rounded up in floating point", dict(work), stage, asked)


def _renamed(witness: Mapping[str, Any], found: ComponentClass, copy: Where, whole: Model) -> dict[str, Any]:
    """Return a witness of a class with the node names of one of its copies, its numbers rounded up."""
    names = {}
    if copy is not found.copies[0] and witness:
        names = {n: whole.nodes[int(j)] for n, j in zip(found.model.nodes, copy, strict=True)}

    def rename(value: Any) -> Any:
        if isinstance(value, float):
            return digits_up(value)
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, (list, tuple)):
            return [rename(v) for v in value]
        if isinstance(value, dict):
            return {rename(k): rename(v) for k, v in value.items()}
        return value

    return {k: rename(v) for k, v in witness.items()}

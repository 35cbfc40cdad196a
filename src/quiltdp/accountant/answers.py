"""What is known of a model after a stage: leakages at any α, the largest α, and the reasons.

A stage is one more bound in every component that it fits.  Everything here is a pure function of the
model, the request, the work budget and the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from quiltdp.accountant.bounds import Bounds, Registered, Vector
from quiltdp.accountant.elsewhere import Elsewhere, Question
from quiltdp.accountant.result import Binding, Certificate, PerUnit
from quiltdp.accountant.search import Passing, largest_scale
from quiltdp.accountant.stages import Component, Smallest
from quiltdp.accountant.units import Units
from quiltdp.graph.components import ComponentClass
from quiltdp.model import Model
from quiltdp.numbers import digits_up, digits_up_array

__all__ = ["TOLERANCE", "Answers", "Leakages", "Piece", "Scale", "certificate"]

TOLERANCE = 1e-10
"""How far (relatively) an answer may stay below the largest α that passes."""

ROUGH = 0.015
"""The same for the first, rough answer of a stage."""

_NEAR = 0.02  # how far (relatively) from the target leakages must be told exactly


@dataclass(frozen=True, eq=False)
class Piece:
    """One class of components, its bounds, and where its units stand in the whole model."""

    found: ComponentClass
    component: Component
    places: tuple[tuple[np.ndarray, np.ndarray], ...]  # per copy: (local units, global units)


@dataclass(frozen=True, eq=False)
class Leakages:
    """Leakage of every unit at one α, and which piece and which of its units it came from."""

    alpha: Vector
    values: Vector
    piece: np.ndarray
    local: np.ndarray
    results: Mapping[tuple[int, bytes], Smallest]

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
    """A scale of α that passed, its leakage, and the bounds (so many of each piece) that said so."""

    scale: float
    leakage: float
    counts: tuple[int, ...]


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

        def question(p: int, key: bytes, own: Vector) -> Question:
            return Question(p, self.counts[p], own, known.get((p, key)))

        return self._over_pieces(alpha, question)

    def decide(self, alpha: Vector, target: float) -> Leakages:
        """Return sound leakages, as good as it takes to tell whether the largest exceeds ``target``."""
        low, high = (1.0 - _NEAR) * target, (1.0 + _NEAR) * target
        if self.additive:  # a unit's parts add up: none can be judged alone
            low, high = 0.0, math.inf

        def question(p: int, key: bytes, own: Vector) -> Question:
            return Question(p, self.counts[p], own, between=(low, high))

        return self._over_pieces(alpha, question)

    def _over_pieces(self, alpha: Vector, question: Callable[[int, bytes, Vector], Question]) -> Leakages:
        """Put together what each piece says, asked once per distinct α vector."""
        values, owner = np.zeros(len(self.units)), np.full(len(self.units), -1, dtype=np.intp)
        local = np.zeros(len(self.units), dtype=np.intp)
        equal = bool(len(alpha)) and bool(np.all(alpha == alpha[0]))
        asked: dict[tuple[int, bytes], Question] = {}
        for p, piece in enumerate(self.pieces):
            for copy in piece.found.copies:
                key = b"" if equal else alpha[copy].tobytes()
                if (p, key) not in asked:
                    asked[p, key] = question(p, key, alpha[copy])
        results = dict(zip(asked, self._ask(list(asked.values())), strict=True))
        for p, piece in enumerate(self.pieces):
            for copy, (inside, outside) in zip(piece.found.copies, piece.places, strict=True):
                key = b"" if equal else alpha[copy].tobytes()
                mine = results[p, key].values[inside]
                if self.additive:
                    np.add.at(values, outside, mine * (1 + 1e-15))  # sums of rounded-up parts stay so
                else:
                    values[outside] = mine
                owner[outside], local[outside] = p, inside
        return Leakages(alpha, values, owner, local, results)

    def _ask(self, questions: list[Question]) -> list[Smallest]:
        if self.elsewhere is not None:
            return self.elsewhere.ask(questions)
        return [q.answer(self.pieces[q.piece].component) for q in questions]

    def scale(
        self, target: float, weights: Vector, tolerance: float = TOLERANCE, before: Scale | None = None
    ) -> Scale:
        """Return the largest s, of twelve digits, such that α = s·weights leaks at most ``target``.

        ``before`` is what an earlier stage found.  The returned scale was itself evaluated.
        """

        def at(s: float) -> float:
            return self.decide(weights * s, target).epsilon

        return self.search(at, target, weights, tolerance, before)

    def search(
        self,
        at: Callable[[float], float],
        target: float,
        weights: Vector,
        tolerance: float = TOLERANCE,
        before: Scale | None = None,
    ) -> Scale:
        """Return the largest scale with ``at(s)`` at most ``target``; a rough stage is soon content."""
        wanted = max(tolerance, ROUGH) if self.rough else tolerance
        start = None
        if before is not None:
            same = before.counts == self.counts
            start = Passing(before.scale, before.leakage if same else math.nan)
        floor = 0.0 if self.additive else (1.0 - _NEAR) * target
        found = largest_scale(at, target, weights, tolerance=wanted, start=start, floor=floor)
        return Scale(found.scale, found.leakage, self.counts)

    @property
    def roughly(self) -> Answers:
        """The same stage, content with an answer that is rough: what counts if time is short."""
        return replace(self, stage=f"{self.stage}~", rough=True)

    # -- the reasons ------------------------------------------------------------------------

    def binding(self, found: Leakages) -> tuple[Binding, Registered, Bounds]:
        """Return the unit that leaks most, and the bound that says so."""
        k = int(np.argmax(found.shown)) if len(found.values) else 0
        p, local = int(found.piece[k]), int(found.local[k])
        piece = self.pieces[p]
        equal = bool(np.all(found.alpha == found.alpha[0]))
        for copy, (_, outside) in zip(piece.found.copies, piece.places, strict=True):
            if k in outside:
                smallest = found.results[p, b"" if equal else found.alpha[copy].tobytes()]
                entry, bounds = smallest.bounds[int(smallest.given[local])]
                witness = _renamed(bounds.witness.get(local, {}), piece.found, copy, self.model)
                name = str(self.units.names[k])
                return Binding(name, float(found.shown[k]), entry.name, witness), entry, bounds
        raise AssertionError("every unit belongs to a piece")

    def per_unit(self, found: Leakages) -> PerUnit:
        """Return the leakages by name."""
        return PerUnit(self.units.names, found.shown)

    def by_method(self, found: Leakages) -> dict[str, float]:
        """Return what every method says overall: the best one stands in for it where it was not tried.

        Every number is about the whole model, with a unit's parts in several components added up.
        """
        names = dict.fromkeys(n for smallest in found.results.values() for n in smallest.by_method)
        equal = bool(len(found.alpha)) and bool(np.all(found.alpha == found.alpha[0]))
        largest: dict[str, float] = {}
        for name in names:
            values = np.zeros(len(self.units))
            for p, piece in enumerate(self.pieces):
                for copy, (inside, outside) in zip(piece.found.copies, piece.places, strict=True):
                    smallest = found.results[p, b"" if equal else found.alpha[copy].tobytes()]
                    mine = smallest.by_method.get(name, smallest.values)[inside]
                    if self.additive:
                        np.add.at(values, outside, mine * (1 + 1e-15))
                    else:
                        values[outside] = mine
            largest[name] = digits_up(float(values.max(initial=0.0)))
        return largest


def certificate(entry: Registered, bounds: Bounds, work: Mapping[str, Any], stage: str) -> Certificate:
    """Return how a number was obtained, in the words of the bound that gave it."""
    return Certificate(bounds.kind, f"{entry.says}; rounded up in floating point", dict(work), stage)


def _renamed(
    witness: Mapping[str, Any], found: ComponentClass, copy: np.ndarray, whole: Model
) -> dict[str, Any]:
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

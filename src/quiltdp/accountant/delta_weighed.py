"""δ of every unit once sensitivities are given: the smallest of all bounds, and which one gave it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.delta_bounds import RegisteredDelta, WeighedBound
from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms import GroupProfile
from quiltdp.work import GuardStruck

__all__ = ["BoundStruck", "Deltas", "Evaluated", "WeighedPiece", "WeighedProfile"]

Evaluated = tuple[Vector, list[str]]
"""The smallest δ of every class of a piece, and by which bound."""


class BoundStruck(GuardStruck):
    """A limit was reached inside this bound."""

    def __init__(self, bound: str, struck: GuardStruck) -> None:
        super().__init__(str(struck))
        self.bound = bound

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes."""
        return BoundStruck, (self.bound, GuardStruck(str(self)))


@dataclass(frozen=True, eq=False)
class Deltas:
    """δ of every unit at one noise scale and ε, and which bound gave it."""

    values: Vector
    names: tuple[str, ...]
    given: np.ndarray

    @property
    def worst(self) -> int:
        """The unit with the largest δ."""
        return int(np.argmax(self.values)) if len(self.values) else 0

    @property
    def largest(self) -> float:
        """Its δ."""
        return float(self.values.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class WeighedPiece:
    """The bounds of one component for given sensitivities; units treated alike by all are one class."""

    bounds: tuple[tuple[RegisteredDelta, WeighedBound], ...]
    where: np.ndarray  # the class of every unit
    picks: tuple[np.ndarray, ...]  # per bound: its class for each of our classes
    whole: bool  # whether every sensitivity is a whole number

    @classmethod
    def of(cls, bounds: list[tuple[RegisteredDelta, WeighedBound]], whole: bool) -> WeighedPiece:
        """Return the piece: units that every bound has in one class are one class here."""
        where = np.zeros(len(bounds[0][1].where), dtype=np.intp)
        for _, bound in bounds:
            _, where = np.unique(
                where * (int(bound.where.max(initial=0)) + 1) + bound.where, return_inverse=True
            )
        first = np.unique(where, return_index=True)[1]
        picks = tuple(b.where[first] for _, b in bounds)
        return cls(tuple(bounds), where.astype(np.intp), picks, whole)

    def evaluate(self, profile: GroupProfile, epsilon: float, *, costly: bool = True) -> Evaluated:
        """Return the smallest δ of every class, and by which bound.

        Raises
        ------
        BoundStruck
            If a limit was reached.
        """
        if not self.whole and getattr(profile, "counts_records", False):
            raise InvalidArgument(
                f"{option('weights')}: this mechanism is known by what whole records cost (each may be drawn"
                " or not): give whole numbers, 1 for a record however little it moves"
            )
        best = np.ones(len(self.picks[0]))
        by = [self.bounds[0][0].name] * len(best)
        for (entry, bound), pick in zip(self.bounds, self.picks, strict=True):
            if entry.costly and not costly:
                continue
            try:
                found = np.minimum(bound.evaluate(profile, epsilon).values, 1.0)[pick]
            except GuardStruck as struck:
                raise BoundStruck(entry.name, struck) from None
            for k in np.flatnonzero(found < best).tolist():
                by[k] = entry.name
            best = np.minimum(best, found)
        return best, by


@dataclass(eq=False)
class WeighedProfile:
    """δ_BDP of a model whose sensitivities are given, at any noise and ε."""

    names: tuple[str, ...]
    count: int
    parts: tuple[tuple[WeighedPiece, np.ndarray, np.ndarray], ...]
    elsewhere: Callable[[GroupProfile, float, bool], list[Evaluated]] | None = None
    """Evaluates the pieces in workers, each once, in the order in which they come first."""

    def _evaluated(self, profile: GroupProfile, epsilon: float, costly: bool = True) -> dict[int, Evaluated]:
        """Return what every piece says, by its identity."""
        if math.isnan(epsilon):
            raise InvalidArgument(f"{option('epsilon')} must be a number, not {epsilon!r}")
        pieces = {id(piece): piece for piece, _, _ in self.parts}
        if self.elsewhere is not None:
            return dict(zip(pieces, self.elsewhere(profile, epsilon, costly), strict=True))
        return {k: piece.evaluate(profile, epsilon, costly=costly) for k, piece in pieces.items()}

    @property
    def costly(self) -> bool:
        """Whether some bound takes its time."""
        return any(entry.costly for piece, _, _ in self.parts for entry, _ in piece.bounds)

    def largest(self, profile: GroupProfile, epsilon: float, *, costly: bool = True) -> float:
        """Return the largest δ over all units; ε may be negative."""
        found = self._evaluated(profile, epsilon, costly)
        return max((float(best.max(initial=0.0)) for best, _ in found.values()), default=0.0)

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Deltas:
        """Return δ of every unit with the bound that gave it."""
        values, given = np.zeros(self.count), np.zeros(self.count, dtype=np.intp)
        found = self._evaluated(profile, epsilon)
        for piece, inside, outside in self.parts:
            (best, by), where = found[id(piece)], piece.where[inside]
            values[outside] = best[where]
            given[outside] = np.array([self.names.index(n) for n in by], dtype=np.intp)[where]
        return Deltas(values, self.names, given)

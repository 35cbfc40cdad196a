"""The bounds of one component, taken stage by stage: the smallest is sound, because each is.

A stage is one bound.  ``auto`` takes them cheapest first; each is deterministic, so what is known
after a stage does not depend on the clock.  A guard that strikes inside a stage leaves the component
as it was before that stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Bound, Bounds, Problem, Ranking, Refining, Registered, Vector
from quiltdp.accountant.methods import by_name
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["Component", "Evaluation", "SmallestBounds", "as_prepared"]

Given = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class SmallestBounds:
    """The smallest bound of every unit of a component, and which of the bounds gave it.

    ``given[k]`` is the place in ``bounds`` of what won at unit k; ``fresh[b]`` says whether bound b was
    asked at this very α (not at a larger one).
    """

    values: Vector
    given: Given
    bounds: tuple[tuple[Registered, Bounds], ...]
    fresh: tuple[bool, ...] = ()

    @cached_property
    def by_method(self) -> Mapping[str, Vector]:
        """What every method says about every unit."""
        found: dict[str, Vector] = {}
        for entry, bounds in self.bounds:
            before = found.get(entry.method)
            found[entry.method] = bounds.values if before is None else np.minimum(before, bounds.values)
        return found

    def in_full(self, place: int, bound: Bound) -> bool:
        """Return whether the bound at a place was asked at this α, and answers in full when it is."""
        return place < len(self.fresh) and self.fresh[place] and not isinstance(bound, Refining)

    def in_vain(self, place: int) -> bool:
        """Return whether the bound at a place was asked at this α, and lowered nothing that it looked at."""
        return place < len(self.fresh) and self.fresh[place] and not np.any(self.given == place)

    @property
    def notes(self) -> tuple[str, ...]:
        """What fell back to something looser."""
        return tuple(dict.fromkeys(n for _, bounds in self.bounds for n in bounds.notes))


class _InAWorker:
    """Stands for a bound that was prepared in a worker."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Refuse."""
        raise AssertionError("this bound lives in a worker")

    def evaluate(self, alpha: Vector) -> Bounds:
        """Refuse."""
        raise AssertionError("this bound lives in a worker")


_ELSEWHERE = _InAWorker()


def as_prepared(entry: Registered, bound: Bound) -> Registered:
    """Return the entry with what a prepared bound says of itself (``near``, ``settles``)."""
    return replace(
        entry, near=getattr(bound, "near", entry.near), settles=getattr(bound, "settles", entry.settles)
    )


@dataclass(eq=False)
class Component:
    """One component with the bounds prepared so far.

    ``settled`` says that a bound has answered beyond which ``auto`` looks no further.
    """

    problem: Problem
    workspace: Workspace
    budget: WorkBudget
    bounds: list[tuple[Registered, Bound]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settled: bool = False

    def anew(self, workspace: Workspace, budget: WorkBudget) -> Component:
        """Return a component of the same kind with nothing prepared; it changes bounds as this one does."""
        return replace(self, workspace=workspace, budget=budget, bounds=[], notes=[], settled=False)

    def wants(self, entry: Registered) -> bool:
        """Return whether ``auto`` takes this bound here."""
        if self.settled or any(known.name in entry.unless for known, _ in self.bounds):
            return False
        if not entry.against.covers(self.problem.adversary):
            return False
        return entry.auto(self.problem)

    def offer(self, entry: Registered) -> bool:
        """Prepare a bound if it applies and is not too large; return whether it was taken."""
        try:
            self.add(entry)
        except InvalidArgument:
            return False
        except ModelTooWide as error:
            if entry.kind != "exact" and not entry.otherwise:  # nobody expects the limit of a large model
                self.notes.append(f"{entry.method} was passed over: {error.reason}")
            return False
        return True

    def take(self, entry: Registered) -> None:
        """Prepare a bound, or its later stage where it is too wide, or refuse as that does."""
        try:
            self.add(entry)
        except ModelTooWide:
            if not entry.otherwise:
                raise
            self.take(by_name(entry.against.name, entry.otherwise))

    def add(self, entry: Registered) -> None:
        """Prepare exactly this bound, or refuse as it does; what changes bounds changes them here."""
        bound = entry.make(self.problem)
        bound.prepare(self.workspace, self.budget)
        self.note(as_prepared(entry, bound), bound)

    def taken_elsewhere(self, entry: Registered) -> None:
        """Note a bound that was prepared in a worker, which also evaluates it."""
        self.note(entry, _ELSEWHERE)

    def note(self, entry: Registered, bound: Bound) -> None:
        """Count a prepared bound in."""
        again = any(known.name == entry.method != entry.name for known, _ in self.bounds)
        self.settled = self.settled or entry.settles or again  # both stages of a method have answered
        self.bounds.append((entry, bound))

    def evaluate(
        self,
        alpha: Vector,
        bounds: int,
        before: SmallestBounds | None = None,
    ) -> SmallestBounds:
        """Return the smallest of the first ``bounds`` bounds of every unit.

        ``before`` is the answer of fewer bounds at the same α; only the others are evaluated then.
        """
        said = [] if before is None else list(before.bounds)
        known = None if before is None else (before.values, before.given)
        for entry, bound in self.bounds[len(said) : bounds]:
            if not alpha.any():
                found = self._nothing(entry)
            elif said and isinstance(bound, Refining):
                assert known is not None
                found = bound.refine(alpha, known[0], 0.0, math.inf)
            else:
                found = bound.evaluate(alpha)
            known = _smaller(known, found.values, len(said))
            said.append((entry, found))
        assert known is not None, "there is a first bound"
        return SmallestBounds(*known, tuple(said), (True,) * len(said))

    def largest(self, alpha: Vector, bounds: int, decided: SmallestBounds, top: int | None) -> SmallestBounds:
        """Return sound values, of the ``top`` largest units or all as those bounds tell them that count here.

        ``decided`` is what :meth:`decide` said at this α.  It holds, so a bound that answers in full is
        not asked again, nor one that ranks units and had nothing to say of those that leak most.  Others are
        asked where they can still say less.
        """
        said, best, given = list(decided.bounds), decided.values, decided.given
        due = [
            (b, entry, bound)
            for b, (entry, bound) in enumerate(self.bounds[:bounds])
            if not decided.in_full(b, bound) and not (isinstance(bound, Ranking) and decided.in_vain(b))
        ]
        while due and alpha.any():
            before = best
            for b, entry, bound in due:
                if top is not None and isinstance(bound, Ranking):
                    found = bound.largest(alpha, best, top)
                elif isinstance(bound, Refining):
                    found = bound.refine(alpha, best, 0.0, math.inf)
                else:
                    found = bound.evaluate(alpha)
                best, given = _smaller((best, given), found.values, b)
                said[b : b + 1] = [(entry, found.or_else(said[b][1]) if b < len(said) else found)]
            # where the largest are lowered, what comes up in their place may have to be told
            due = [asked for asked in due if top is not None and isinstance(asked[2], Ranking)]
            if np.all(best == before):
                break
        return SmallestBounds(best, given, tuple(said), (True,) * len(said))

    def _nothing(self, entry: Registered) -> Bounds:
        """No record of the component is read: nothing leaks."""
        return Bounds(np.zeros(self.problem.count), entry.name, entry.kind)

    def decide(
        self,
        alpha: Vector,
        bounds: int,
        low: float,
        high: float,
        *,
        before: SmallestBounds | None = None,
        above: SmallestBounds | None = None,
    ) -> SmallestBounds:
        """Return sound values, as good as it takes to tell where the largest of them lies.

        Nothing is refined that is known to be at most ``low``, or once something exceeds ``high``.
        ``before`` is the answer of fewer bounds at the same α (and the same limits, or farther ones);
        ``above`` one at a larger α: what it says holds here too.
        """
        said: list[tuple[Registered, Bounds]] = [] if before is None else list(before.bounds)
        fresh = [] if before is None else list(before.fresh)
        last = before if above is None else above
        known = None if last is None else (last.values, last.given)
        for entry, bound in self.bounds[len(said) : bounds]:
            if said and known is not None and known[0].max(initial=0.0) <= low:
                break
            if not alpha.any():
                found = self._nothing(entry)
            elif isinstance(bound, Refining):
                best = np.broadcast_to(np.inf, self.problem.count) if known is None else known[0]
                found = bound.refine(alpha, best, low, high)
            else:
                found = bound.evaluate(alpha)
            known = _smaller(known, found.values, len(said))
            said.append((entry, found))
            fresh.append(True)
        if above is not None:
            said.extend(above.bounds[len(said) :])  # some of its values may be the best still
            fresh.extend([False] * (len(said) - len(fresh)))
        assert known is not None, "there is a first bound"
        return SmallestBounds(*known, tuple(said), tuple(fresh))


def _smaller(known: tuple[Vector, Given] | None, values: Vector, place: int) -> tuple[Vector, Given]:
    """Return the smaller of what is known and the values of one more bound, and which bound gave it."""
    if known is None:
        return values, np.broadcast_to(np.int16(place), len(values))
    best, given = known
    return np.minimum(best, values), np.where(values < best, np.int16(place), given)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One piece evaluated at one α: its leakages, or (with ``between``) only where they lie.

    Attributes
    ----------
    piece, bounds
        Which piece, and how many of its bounds may be used.
    before
        The answer of fewer bounds at the same α.
    between
        Nothing at or below the first number is refined, and nothing once something exceeds the second.
    above
        The answer at a larger α: nothing leaks more here.
    decided, top
        As :meth:`Component.largest` takes them.
    """

    piece: int
    bounds: int
    alpha: Vector
    before: SmallestBounds | None = None
    between: tuple[float, float] | None = None
    above: SmallestBounds | None = None
    decided: SmallestBounds | None = None
    top: int | None = None

    def run(self, component: Component) -> SmallestBounds:
        """Evaluate the bounds of the component."""
        if self.decided is not None:
            return component.largest(self.alpha, self.bounds, self.decided, self.top)
        if self.between is None:
            return component.evaluate(self.alpha, self.bounds, self.before)
        return component.decide(self.alpha, self.bounds, *self.between, before=self.before, above=self.above)

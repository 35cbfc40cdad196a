"""Components for (ε, δ): the bounds of each, prepared where they are asked, here or in workers.

A worker prepares the bounds of a component from the same problem and work budget, so its δ is the one that
would be found here, to the last byte.  Evaluations carry the seconds that are left.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from quiltdp.accountant.bounds import Problem, Vector
from quiltdp.accountant.delta_bounds import ApproximateBound, RegisteredDelta
from quiltdp.accountant.delta_weighed import BoundStruck, Evaluated, WeighedPiece
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.work import Guard, GuardStruck, WorkBudget

__all__ = ["DeltaPiece", "evaluate_elsewhere"]


@dataclass(frozen=True, eq=False)
class DeltaPiece:
    """One class of components, where its units stand in the whole model, and the bounds tried so far."""

    copies: tuple[np.ndarray, ...]
    places: tuple[tuple[np.ndarray, np.ndarray], ...]
    problem: Problem
    workspace: Workspace
    tried: dict[str, ApproximateBound | None] = field(default_factory=dict)  # None: it does not fit

    def prepare(self, entry: RegisteredDelta, budget: WorkBudget) -> None:
        """Prepare a bound if it holds here, applies and is not too large; or raise as a limit does."""
        if entry.name in self.tried:
            return
        bound: ApproximateBound | None = None
        if entry.against.covers(self.problem.adversary):
            try:
                bound = entry.make(self.problem)
                bound.prepare(self.workspace, budget)
            except (InvalidArgument, ModelTooWide):
                bound = None
            except GuardStruck as struck:
                raise BoundStruck(entry.name, struck) from None
        self.tried[entry.name] = bound

    def weigh(self, weights: Vector, entries: Sequence[RegisteredDelta]) -> WeighedPiece:
        """Return its bounds for given sensitivities."""
        found = []
        for entry in entries:
            bound = self.tried[entry.name]
            try:
                if bound is not None:
                    found.append((entry, bound.weigh(weights)))
            except GuardStruck as struck:
                raise BoundStruck(entry.name, struck) from None
        return WeighedPiece.of(found, bool((weights == np.floor(weights)).all()))


class _Weighing:
    """Components with their sensitivities as a worker knows them; what it prepares is kept."""

    def __init__(
        self,
        asked: Sequence[tuple[Problem, Vector]],
        fitting: Sequence[tuple[RegisteredDelta, ...]],
        budget: WorkBudget,
    ) -> None:
        self.asked, self.fitting, self.budget = tuple(asked), tuple(fitting), budget
        self._found: dict[int, tuple[Workspace, WeighedPiece]] = {}

    def piece(self, k: int, guard: Guard) -> WeighedPiece:
        """Return a component with the bounds that fit it, weighed."""
        if k not in self._found:
            problem, weights = self.asked[k]
            made = DeltaPiece((), (), problem, Workspace(problem.model, guard=guard))
            for entry in self.fitting[k]:
                made.prepare(entry, self.budget)
                assert made.tried[entry.name] is not None, "what fits there fits here"
            self._found[k] = made.workspace, made.weigh(weights, self.fitting[k])
        space, found = self._found[k]
        space.guard.follow(guard)
        return found


_Question = tuple[int, GroupProfile, float, bool, Guard]


def _evaluate(shared: _Weighing, asked: _Question) -> Evaluated:
    k, profile, epsilon, costly, guard = asked
    return shared.piece(k, guard).evaluate(profile, epsilon, costly=costly)


def evaluate_elsewhere(
    pieces: Sequence[tuple[DeltaPiece, Vector, WeighedPiece]], budget: WorkBudget, executor: Executor
) -> Callable[[GroupProfile, float, bool], list[Evaluated]]:
    """Return a function that evaluates components through an executor.

    What a mechanism's own δ(ε) is made of cannot always be sent; then the components are evaluated here.
    """
    from quiltdp.parallel import each

    asked = [(piece.problem, weights) for piece, weights, _ in pieces]
    fitting = [tuple(entry for entry, _ in weighed.bounds) for _, _, weighed in pieces]
    shared = _Weighing(asked, fitting, budget)

    def evaluate(profile: GroupProfile, epsilon: float, costly: bool) -> list[Evaluated]:
        if not _can_be_sent(profile):
            return [weighed.evaluate(profile, epsilon, costly=costly) for _, _, weighed in pieces]
        guards = [piece.workspace.guard for piece, _, _ in pieces]
        questions: list[_Question] = [(k, profile, epsilon, costly, guard) for k, guard in enumerate(guards)]
        return list(each(_evaluate, questions, shared=shared, executor=executor, chunk=1))

    return evaluate


def _can_be_sent(profile: GroupProfile) -> bool:
    try:
        pickle.dumps(profile)
    except Exception:  # whatever the objects inside say
        return False
    return True

"""Components asked in workers: what an analysis asks of its pieces, answered where the executor is.

A piece is prepared in the worker that is asked about it, from the same problem and work budget, so the
answer is the one that would be found here.  Evaluations carry the seconds that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from quiltdp.accountant.bounds import Bound, Registered
from quiltdp.accountant.methods import by_name
from quiltdp.accountant.stages import Component, Evaluation, SmallestBounds
from quiltdp.inference.workspace import Workspace
from quiltdp.parallel import each
from quiltdp.work import Guard, WorkBudget

__all__ = ["Elsewhere"]

Names = tuple[tuple[str, str], ...]


class _Prepared:
    """The pieces as a worker knows them; it prepares the bounds that it is asked about, and keeps them."""

    def __init__(self, components: Sequence[Component], budget: WorkBudget) -> None:
        self.components = tuple(c.anew(Workspace(c.problem.model), budget) for c in components)
        self._spaces: dict[int, Workspace] = {}
        self._bounds: dict[tuple[int, tuple[str, str]], tuple[Registered, Bound]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Send the model, not what was found here."""
        return {"components": self.components, "_spaces": {}, "_bounds": {}}

    def component(self, piece: int, names: Names, guard: Guard) -> Component:
        """Return a piece with exactly these bounds."""
        usual = self.components[piece]
        space = self._spaces.setdefault(piece, Workspace(usual.problem.model))
        space.guard.follow(guard)
        found = usual.anew(space, usual.budget)
        for name in names:
            if (piece, name) not in self._bounds:
                found.take(by_name(*name))
                self._bounds[piece, name] = found.bounds.pop()
            found.bounds.append(self._bounds[piece, name])
        return found

    def keep(self, piece: int, bounds: Sequence[tuple[Registered, Bound]]) -> None:
        """Remember bounds that were prepared."""
        for entry, bound in bounds:
            self._bounds[piece, (entry.against.name, entry.name)] = (entry, bound)


def _names(component: Component) -> Names:
    return tuple((entry.against.name, entry.name) for entry, _ in component.bounds)


class Elsewhere:
    """The pieces of an analysis, asked through an executor.

    Parameters
    ----------
    components
        The pieces as they are known here; their bounds need not be prepared here.
    """

    def __init__(self, components: Sequence[Component], budget: WorkBudget, executor: Executor) -> None:
        self.components = components
        self.executor = executor
        self._shared = _Prepared(components, budget)

    def offer(self, entry: Registered, pieces: Sequence[int], *, insist: bool = False) -> list[bool]:
        """Prepare a bound in some pieces, where it applies; return in which of them it was taken.

        With ``insist`` it refuses in its own words what it does not fit.
        """
        asked = [(p, _names(self.components[p]), entry, insist, self._guard(p)) for p in pieces]
        taken = []
        for p, (took, notes, found) in zip(pieces, self._each(_offer, asked), strict=True):
            self.components[p].notes.extend(notes)
            if took:
                last, said = found
                self.components[p].taken_elsewhere(replace(last, **said))
            taken.append(took)
        return taken

    def run(self, evaluations: Sequence[Evaluation]) -> list[SmallestBounds]:
        """Return what all evaluations give, in their order."""
        asked = [(q, _names(self.components[q.piece])[: q.bounds], self._guard(q.piece)) for q in evaluations]
        found = self._each(_evaluate, asked)
        return [self._ours(q.piece, one) for q, one in zip(evaluations, found, strict=True)]

    def _ours(self, piece: int, found: SmallestBounds) -> SmallestBounds:
        """Return an answer with what is known here of its bounds: an entry travels by its name alone."""
        entries = [entry for entry, _ in self.components[piece].bounds[: len(found.bounds)]]
        return replace(found, bounds=tuple((e, b) for e, (_, b) in zip(entries, found.bounds, strict=True)))

    def _each(self, work: Any, asked: Sequence[Any]) -> Any:
        return each(work, asked, shared=self._shared, executor=self.executor, chunk=1)

    def _guard(self, piece: int) -> Guard:
        return self.components[piece].workspace.guard


def _offer(
    shared: _Prepared, asked: tuple[int, Names, Registered, bool, Guard]
) -> tuple[bool, list[str], tuple[Registered, dict[str, Any]]]:
    piece, names, entry, insist, guard = asked
    component = shared.component(piece, names, guard)
    took = True
    if insist:
        component.take(entry)
    else:
        took = component.offer(entry)
    shared.keep(piece, component.bounds)
    last = component.bounds[-1][0] if took else entry
    said = {name: getattr(last, name) for name in ("near", "settles", "kind", "says")}
    return took, component.notes, (last, said)  # an entry travels by its name


def _evaluate(shared: _Prepared, asked: tuple[Evaluation, Names, Guard]) -> SmallestBounds:
    evaluation, names, guard = asked
    return evaluation.run(shared.component(evaluation.piece, names, guard))

"""One driver for every question: the smallest of what all bounds say of every component of a model.

An :class:`Analysis` does the work that depends on no cost once; then it answers for any cost, pure α or an
(ε, δ) profile, and finds the largest cost that passes.  A *stage* is one more bound in every component that
it fits.  Each is deterministic, so what is known after a stage does not depend on the clock; a limit that is
reached inside a stage leaves the answer of the stages before it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from quiltdp.accountant.bounds.contract import ALL, Bounds, Cost, Need, ProfileCost, Registered, Vector
from quiltdp.accountant.component import (
    Component,
    EvaluationTask,
    Places,
    Preparation,
    UnitBounds,
    component_problems,
)
from quiltdp.accountant.request import Request
from quiltdp.accountant.result import Binding, Certificate
from quiltdp.accountant.solve import TOLERANCE, largest_passing
from quiltdp.errors import InvalidArgument, LimitReached, option
from quiltdp.graph.components import Places as Where
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import is_constant, round_up_digits
from quiltdp.work import GuardReached

if TYPE_CHECKING:
    from concurrent.futures import Executor

_NEAR = 0.005  # how far (relatively) below the target values need not be told exactly at the end of a search
_FAR = 0.75  # the same at its beginning
_BEYOND = 0.25  # how far above the target the others need not be looked at

_Answer = TypeVar("_Answer")
_Key = tuple[int, bytes]  # a component, and the costs of one of its copies


class Stage(NamedTuple):
    """The bounds up to one of them.

    ``counts`` are how many of each component's bounds take part, ``near`` is how near (relatively) to its
    goal a search by them ends.
    """

    name: str
    counts: tuple[int, ...]
    near: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The value of every unit at one cost, and what was found for each component and its costs."""

    cost: Cost
    keys: tuple[_Key, ...]  # of every copy of every component
    values: Vector
    results: Mapping[_Key, UnitBounds]

    @property
    def largest(self) -> float:
        """The largest value; a leakage rounded up to the digits that people get."""
        value = float(self.values.max(initial=0.0))
        return value if isinstance(self.cost, ProfileCost) else round_up_digits(value)


class Solution(NamedTuple):
    """The largest x of a search whose cost passed, and its values."""

    x: float
    found: Evaluation


class Analysis:
    """The bounds of every component of a model, for one request.

    Attributes
    ----------
    request
        What is asked.
    stages
        What was prepared so far.
    reached
        Where a limit was reached: which one, and whose answer there is; else empty.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.model, self.units, self.budget = request.model, request.units, request.budget
        self.adversary, self.method = request.who, request.method
        self.workspace = Workspace(request.model, guard=request.guard)
        problems = list(component_problems(self.model, self.units, self.adversary, request.prices))
        self._copies = [kind.copies for kind, _, _ in problems]
        self._places: list[Places] = [places for _, places, _ in problems]
        self.components = tuple(
            self._make_component(problem, kind, self.workspace.part(k, problem.model))
            for k, (kind, _, problem) in enumerate(problems)
        )
        self._additive = self._has_split_unit()
        self._executor = request.executor if len(self.components) > 1 else None  # one is evaluated here
        self._reset_stages()

    def _reset_stages(self) -> None:
        facing = dict.fromkeys([self.adversary, *(c.problem.adversary for c in self.components)])
        self._waiting = iter(self.request.stages(*facing))
        self.stages: list[Stage] = []
        self.reached = ""
        self._fresh = True

    def _make_component(self, problem: Any, kind: Any, workspace: Workspace) -> Component:
        return Component(problem, workspace, self.budget, approximate=self.request.approximate)

    def _has_split_unit(self) -> bool:
        """Return whether a named set reaches into several components; its leakages add up."""
        if self.units.members is None:
            return False
        homes = np.zeros(len(self.units), dtype=np.intp)
        for places in self._places:
            for _, outside in places:
                np.add.at(homes, np.asarray(outside), 1)
        if self.request.approximate and (homes > 1).any():
            raise InvalidArgument(
                f"{option('protect')}: set {self.units.names[int(np.argmax(homes))]!r} reaches into several"
                " independent components; approximate DP protects each part as a set of its own"
            )
        return bool((homes > 1).any())

    # -- stages ----------------------------------------------------------------------------

    def _prepare_next_stage(self) -> bool:
        """Prepare the next bound that some component takes; return whether there was one."""
        for name in () if self.reached else self._waiting:
            if self._prepare_bound(name):
                counts = tuple(len(c.taken) for c in self.components)
                self.stages.append(Stage(name, counts, max(c.near for c in self.components)))
                return True
        return False

    def _prepare_bound(self, name: str) -> bool:
        """Prepare a bound where it is wanted; return whether some component took it."""
        if self.request.progress is not None:
            self.request.progress(f"preparing {name}", min(0.9, 0.1 * len(self.stages)))
        insist = name == self.method and not self.request.approximate
        wanted = [
            k for k, c in enumerate(self.components) if insist or self.method != "auto" or c.auto_takes(name)
        ]
        tasks = [(k, name, insist, self.workspace.guard) for k in wanted]
        for k, prepared in zip(wanted, self._map_tasks(_prepare_task, tasks, self._executor), strict=True):
            if prepared.refused is None:
                self.components[k].add_prepared(name, prepared)
            elif prepared.refused:
                self.components[k].notes.append(prepared.refused)
        return any(c.taken and c.taken[-1].name == name for c in self.components)

    def _map_tasks(self, work: Any, tasks: Sequence[Any], executor: Executor | None) -> list[Any]:
        """Return what a function of the components makes of every task, here or in workers."""
        if executor is None:
            return [work(self.components, task) for task in tasks]
        from quiltdp.parallel import each

        return list(each(work, tasks, shared=self.components, executor=executor, chunk=1))

    def prepare(self) -> None:
        """Do the work of every stage that depends on no cost now.

        Raises
        ------
        LimitReached
            With this analysis, which knows the stages that were finished.
        """
        try:
            while self._prepare_next_stage():
                pass
        except GuardReached as struck:
            self._keep_finished_stages(len(self.stages), struck)
        self._fresh = False
        self._report_progress("prepared")
        self.require_complete(self)

    def _report_progress(self, label: str) -> None:
        if self.request.progress is not None:
            self.request.progress(label, 1.0)

    def _keep_finished_stages(self, finished: int, struck: GuardReached) -> None:
        """Keep only the stages that were finished, and say so."""
        del self.stages[finished:]
        if not self.stages:
            raise LimitReached(f"{struck} before {option('method', self.method)} had an answer") from None
        self.reached = self.budget.describe_stop(struck, [stage.name for stage in self.stages])

    def require_complete(self, found: _Answer) -> _Answer:
        """Return an answer; where a limit was reached, raise :class:`LimitReached` with it."""
        if self.reached:
            raise LimitReached(self.reached, found)
        return found

    def answer(self, question: Callable[[Stage, _Answer | None], _Answer]) -> tuple[_Answer, Stage]:
        """Answer a question stage by stage; return the last answer and its stage.

        ``question`` gets a stage and the answer of the one before.  Where a limit is reached, that of the
        last finished stage is :meth:`require_complete`'s partial answer.
        """
        if not self._fresh and not self.request.shares_guard:
            self.workspace.guard.restart()
        self._fresh = False
        found: _Answer | None = None
        done = 0
        try:
            while done < len(self.stages) or self._prepare_next_stage():
                found = question(self.stages[done], found)
                done += 1
        except GuardReached as struck:
            self._keep_finished_stages(done, struck)
        self._report_progress("answered")
        assert found is not None, "the first stage answers"
        return found, self.stages[done - 1]

    # -- values ----------------------------------------------------------------------------

    def evaluate(
        self,
        cost: Cost,
        stage: Stage,
        need: Need = ALL,
        known: Evaluation | None = None,
        *,
        refine: bool = False,
    ) -> Evaluation:
        """Return the smallest value of every unit by the bounds of a stage, as good as ``need`` asks.

        ``known`` is what an earlier stage said at this very cost, or what was said at a larger one; with
        ``refine`` it is what a search said here, of which the ``need.count`` largest values are told.
        """
        if self._additive:  # a unit's parts add up: none can be judged alone
            need = ALL
        keys = self._cost_keys(cost)
        before: dict[_Key, UnitBounds] = {}
        if known is not None:
            before = {now: known.results[then] for now, then in zip(keys, known.keys, strict=True)}
        tasks: dict[_Key, EvaluationTask] = {}
        copies = (place for copies in self._copies for place in copies)
        for key, place in zip(keys, copies, strict=True):
            if key not in tasks:
                k = key[0]
                names = tuple(entry.name for entry in self.components[k].taken[: stage.counts[k]])
                same = known is not None and known.cost is cost
                mine, guard = _select_costs(cost, place), self.workspace.guard
                tasks[key] = EvaluationTask(k, mine, names, guard, need, before.get(key), same, refine)
        executor = self._executor if self._executor is None or _is_picklable(cost) else None
        found = self._map_tasks(_evaluate_task, list(tasks.values()), executor)
        results = dict(zip(tasks, found, strict=True))
        values = self._scatter_values(keys, {key: result.values for key, result in results.items()})
        return Evaluation(cost, keys, values, results)

    def _cost_keys(self, cost: Cost) -> tuple[_Key, ...]:
        """Return what tells every copy's component and costs apart: of equal costs nothing does."""
        numbers = cost.weights if isinstance(cost, ProfileCost) else cost
        equal = is_constant(numbers)
        return tuple(
            (k, b"" if equal else _select_costs(numbers, place).tobytes())
            for k, copies in enumerate(self._copies)
            for place in copies
        )

    def _scatter_values(self, keys: Sequence[_Key], by_component: Mapping[_Key, Vector]) -> Vector:
        """Return the values of every component's units where they stand in the whole model."""
        values = np.zeros(len(self.units))
        for key, (inside, outside) in zip(keys, self._unit_places(), strict=True):
            mine: Vector = _select_costs(by_component[key], inside)
            if isinstance(outside, range) and len(outside) == len(values):
                return mine
            if self._additive:
                np.add.at(values, np.asarray(outside), mine * (1 + 1e-15))  # sums of rounded-up parts stay so
            elif isinstance(outside, range):
                values[outside.start : outside.stop] = mine
            else:
                values[outside] = mine
        return values

    def _unit_places(self) -> Iterator[tuple[Where, Where]]:
        return (both for places in self._places for both in places)

    # -- the inverse -----------------------------------------------------------------------

    def solve(
        self,
        cost_at: Callable[[float], Cost],
        target: float,
        start: float,
        ceiling: float,
        tolerance: float = TOLERANCE,
    ) -> tuple[Solution, Stage]:
        """Return the largest x in (0, ceiling] such that cost_at(x) has values of at most ``target``.

        Costs grow with x.  The x that is returned was itself evaluated and passed; ``start`` is likely to.
        """
        seen: dict[float, Evaluation] = {}

        def search(stage: Stage, before: Solution | None) -> Solution:
            near = _FAR

            def value(x: float) -> tuple[float, bool]:
                nonlocal near
                low = 0.0 if self._additive else (1.0 - near) * target
                known = seen.get(x)
                if known is None:  # what leaks no more at a larger cost leaks no more here
                    known = seen.get(min((t for t in seen if t > x), default=x))
                cost = cost_at(x) if x not in seen else seen[x].cost
                found = self.evaluate(cost, stage, Need(None, low, (1.0 + _BEYOND) * target), known)
                seen[x] = found
                passing = max((t for t in seen if seen[t].largest <= target), default=0.0)
                above = min((t for t in seen if t > passing), default=passing)
                for t in set(seen) - {passing, above}:  # only the ends of the interval are used again
                    del seen[t]
                if found.largest > low:  # the next one will be nearer
                    near = min(near, max(_NEAR, 2.0 * abs(found.largest / target - 1.0)))
                return found.largest, found.largest > low

            first = start if before is None else before.x
            x = largest_passing(value, target, first, ceiling, max(tolerance, stage.near))
            return Solution(x, seen[x])

        return self.answer(search)

    def largest(self, solution: Solution, stage: Stage, count: int) -> Evaluation:
        """Return the ``count`` largest values at the end of a search, by the bounds that count there.

        A search tells the largest; others it may only place below it.  They are left so where a limit was
        reached, now or before, and where the work budget names its last stage: it repeats such answers.
        """
        found = solution.found
        if self.reached or self.budget.until:
            return found
        try:
            full = self.evaluate(found.cost, stage, Need(count=count), found, refine=True)
        except GuardReached as struck:
            self._keep_finished_stages(len(self.stages), struck)
            return found
        return full if full.largest <= found.largest else found  # what passed the search stays the answer

    # -- reasons ---------------------------------------------------------------------------

    def binding(self, found: Evaluation) -> tuple[Binding, Registered, Bounds]:
        """Return the unit with the largest value, the bound that gave it, and what that said."""
        k = int(np.argmax(found.values)) if len(found.values) else 0
        copies = (place for copies in self._copies for place in copies)
        for key, place, (inside, outside) in zip(found.keys, copies, self._unit_places(), strict=True):
            at = _find_place(outside, k)
            if at:
                local, result = int(inside[at[0]]), found.results[key]
                by = int(result.by[local])
                entry, bounds = self.components[key[0]].taken[by], result.results[by]
                witness = self._rename_nodes(bounds.witness.get(local, {}), key[0], place)
                method = entry.name if bounds.kind == entry.kind else bounds.theorem
                value = round_up_digits(float(found.values[k]))
                return Binding(str(self.units.names[k]), value, method, witness), entry, bounds
        raise AssertionError("every unit belongs to a component")

    def witnesses(self, found: Evaluation) -> dict[str, dict[str, Any]]:
        """Return what forces the value of every unit, where its bound can tell."""
        copies = (place for copies in self._copies for place in copies)
        told: dict[str, dict[str, Any]] = {}
        for key, place, (inside, outside) in zip(found.keys, copies, self._unit_places(), strict=True):
            result = found.results[key]
            for local, k in zip(np.asarray(inside).tolist(), np.asarray(outside).tolist(), strict=True):
                witness = result.results[int(result.by[local])].witness.get(local, {})
                told[str(self.units.names[k])] = self._rename_nodes(witness, key[0], place)
        return told

    def _rename_nodes(self, witness: Mapping[str, Any], component: int, place: Where) -> dict[str, Any]:
        """Return a witness with the node names of one copy of a component, its numbers rounded up."""
        names = {}
        if place is not self._copies[component][0] and witness:
            nodes = self.components[component].problem.model.nodes
            names = {n: self.model.nodes[int(j)] for n, j in zip(nodes, place, strict=True)}

        def rename_node(value: Any) -> Any:
            if isinstance(value, float):
                return round_up_digits(value)
            if isinstance(value, str):
                return names.get(value, value)
            if isinstance(value, (list, tuple)):
                return [rename_node(v) for v in value]
            if isinstance(value, dict):
                return {rename_node(k): rename_node(v) for k, v in value.items()}
            return value

        return {k: rename_node(v) for k, v in witness.items()}

    def certificate(self, statement: str, kind: str, stage: Stage) -> Certificate:
        """Return how a number was obtained."""
        return Certificate(kind, statement, self.budget.to_dict(), stage.name, self.method)

    def notes(self) -> list[str]:
        """Return what was passed over, and whether a limit was reached."""
        found = [note for component in self.components for note in component.notes]
        return list(dict.fromkeys(([self.reached] if self.reached else []) + found))


def _prepare_task(components: Sequence[Component], task: tuple[int, str, bool, Any]) -> Preparation:
    k, name, insist, guard = task
    components[k].workspace.guard.copy_limits(guard)
    return components[k].prepare(name, insist=insist)


def _evaluate_task(components: Sequence[Component], task: EvaluationTask) -> UnitBounds:
    return task.run(components)


def _is_picklable(cost: Cost) -> bool:
    """Return whether a cost can go to a worker: what a mechanism's own δ(ε) is made of cannot always."""
    try:
        pickle.dumps(cost)
    except Exception:  # whatever the objects inside say
        return False
    return True


def _select_costs(cost: Any, places: Where) -> Any:
    """Return the costs at some places; those of a range are neighbours, and not copied."""
    if isinstance(cost, ProfileCost):
        return replace(cost, weights=_select_costs(cost.weights, places))
    return cost[places.start : places.stop] if isinstance(places, range) else cost[places]


def _find_place(places: Where, place: int) -> list[int]:
    """Return where a place stands among places."""
    if isinstance(places, range):
        return [places.index(place)] if place in places else []
    found: list[int] = np.flatnonzero(places == place).tolist()
    return found

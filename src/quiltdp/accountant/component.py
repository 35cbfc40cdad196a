"""One kind of component with the bounds prepared so far: the smallest of them is sound, because each is.

Records of different components are independent, and components that are copies of each other leak alike, so
a model is analysed one kind of component at a time (:func:`component_problems`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import adversary_in_component
from quiltdp.accountant.bounds.contract import ALL, Bound, Bounds, Cost, Need, Problem, Registered, Vector
from quiltdp.accountant.methods import find_line, load_bound
from quiltdp.accountant.units import Units
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.graph.components import ComponentClass, component_classes
from quiltdp.graph.components import Places as Where
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import Guard, WorkBudget


@dataclass(frozen=True, eq=False)
class UnitBounds:
    """The smallest bound of every unit of a component.

    Attributes
    ----------
    values
        One number for every unit.
    by
        The place of the bound that gave it.
    results
        What every bound said: the first ``asked`` at this very cost, others at one that is no smaller.
    """

    values: Vector
    by: NDArray[np.int16]
    results: tuple[Bounds, ...]
    asked: int

    def merge_bound(self, result: Bounds, place: int) -> UnitBounds:
        """Return the smaller of these and what the bound at a place says."""
        values, mine, by = result.values, self.values, self.by
        if values.strides == mine.strides == by.strides == (0,):  # one number that stands for all
            values, mine, by = values[:1], mine[:1], by[:1]
        by = np.broadcast_to(np.where(values < mine, np.int16(place), by), len(self.by))
        values = np.broadcast_to(np.minimum(values, mine), len(self.by))
        results = (*self.results[:place], result, *self.results[place + 1 :])
        return UnitBounds(values, by, results, max(self.asked, place + 1))


class Preparation(NamedTuple):
    """How a bound was prepared: why not (``None``: it was), and what it says of itself then.

    Some bounds know only then whether later ones may still be better (``settles``), and whether one
    evaluation takes seconds, so that a search should end ``near`` its goal.
    """

    refused: str | None
    settles: bool = True
    near: float = 0.0


class Component:
    """A connected model, what is protected in it, and its bounds, each prepared when it is taken.

    Attributes
    ----------
    taken
        The bounds, in the order in which they were taken.
    notes
        What was passed over, and why.
    complete
        Whether ``auto`` looks no further.
    near
        How near (relatively) to its goal a search ends.
    """

    def __init__(
        self, problem: Problem, workspace: Workspace, budget: WorkBudget, *, approximate: bool = False
    ) -> None:
        self.problem, self.workspace, self.budget = problem, workspace, budget
        self.approximate = approximate
        self.taken: list[Registered]
        self.notes: list[str]
        self.complete: bool
        self.near: float
        self._bounds: dict[str, Bound]
        self.__dict__.update(_nothing_prepared())

    def __getstate__(self) -> dict[str, Any]:
        """Send a worker what it needs to prepare the same bounds, not what was prepared here."""
        return {**self.__dict__, **_nothing_prepared(), "workspace": Workspace(self.problem.model)}

    def unprepared_copy(self, budget: WorkBudget) -> Component:
        """Return the same component with another budget, and nothing prepared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **_nothing_prepared(), budget=budget)
        return other

    # -- bounds ----------------------------------------------------------------------------

    def auto_takes(self, name: str) -> bool:
        """Return whether ``auto`` takes the bound of this name here."""
        line = find_line(name, self.problem.adversary, approximate=self.approximate)
        return not self.complete and line is not None and line.when(self.problem)

    def prepare(self, name: str, *, insist: bool = False) -> Preparation:
        """Prepare a bound if it fits; with ``insist`` it refuses in its own words."""
        try:
            bound = self.prepared_bound(name)
        except InvalidArgument:
            if insist:
                raise
            return Preparation("")  # it is for other models
        except ModelTooWide as error:
            if insist:
                raise
            wide = self.find_entry(name).kind != "exact"  # nobody expects the limit of a large model
            return Preparation(f"{name} was passed over: {error.reason}" if wide else "")
        return Preparation(None, getattr(bound, "settles", True), getattr(bound, "near", 0.0))

    def add_prepared(self, name: str, prepared: Preparation) -> None:
        """Count a prepared bound in."""
        line = find_line(name, self.problem.adversary, approximate=self.approximate)
        self.taken.append(self.find_entry(name))
        self.complete = self.complete or (line is not None and line.last and prepared.settles)
        self.near = max(self.near, prepared.near)

    def prepare_wanted(self, names: Sequence[str]) -> None:
        """Take those of some bounds that ``auto`` takes."""
        for name in names:
            if self.auto_takes(name):
                self.workspace.guard.check()
                prepared = self.prepare(name)
                if prepared.refused is None:
                    self.add_prepared(name, prepared)

    def find_entry(self, name: str) -> Registered:
        """Return what the registry knows of a bound."""
        line = find_line(name, self.problem.adversary, approximate=self.approximate)
        if line is None:
            raise InvalidArgument(f"the bound {name!r} is registered by a module that was not imported here")
        return load_bound(line, approximate=self.approximate)

    def prepared_bound(self, name: str) -> Bound:
        """Return a bound, prepared now if it was not."""
        if name not in self._bounds:
            made = self.make_bound(name)
            made.prepare(self.workspace, self.budget)
            self._bounds[name] = made
        return self._bounds[name]

    def make_bound(self, name: str) -> Bound:
        """Return a bound that is not prepared."""
        return self.find_entry(name).make(self.problem)

    # -- values ----------------------------------------------------------------------------

    def evaluate(
        self,
        cost: Cost,
        need: Need = ALL,
        *,
        names: Sequence[str] | None = None,
        known: UnitBounds | None = None,
        same: bool = False,
    ) -> UnitBounds:
        """Return the smallest of some bounds (all by default), as good as ``need`` asks.

        Nothing is refined that is known to be at most ``need.low``, or once something exceeds ``need.high``.
        ``known`` is what fewer bounds said at the ``same`` cost, or what was said at a larger one.
        """
        chosen = [entry.name for entry in self.taken] if names is None else names
        found = known if known is None or same else replace(known, asked=0)
        for b in range(0 if found is None else found.asked, len(chosen)):
            if b and found is not None and found.values.max(initial=0.0) <= need.low:
                break
            if isinstance(cost, np.ndarray) and not cost.any():  # no record is read: nothing leaks
                result = Bounds(np.zeros(self.problem.count), chosen[b])
            else:
                asked = replace(need, known=None if found is None else found.values)
                result = self.prepared_bound(chosen[b]).evaluate(cost, asked)
            if found is None:
                everything = np.broadcast_to(np.int16(b), len(result.values))
                found = UnitBounds(result.values, everything, (result,), 1)
            else:
                found = found.merge_bound(result, b)
        assert found is not None, "there is a first bound"
        return found

    def refine(self, cost: Cost, found: UnitBounds, count: int | None, names: Sequence[str]) -> UnitBounds:
        """Return the ``count`` largest values as the bounds that gave them tell them in full.

        ``found`` is what a search said at this cost.  A bound that lowered nothing there is not asked again.
        """
        for b, result in enumerate(found.results):
            if result.partial and np.any(found.by == b):
                again = self.prepared_bound(names[b]).evaluate(cost, Need(found.values, count=count))
                found = found.merge_bound(again, b)
        return found


def _nothing_prepared() -> dict[str, Any]:
    """Return what a component has prepared at first."""
    return {"taken": [], "notes": [], "complete": False, "near": 0.0, "_bounds": {}}


@dataclass(frozen=True, eq=False)
class EvaluationTask:
    """One evaluation of one component, for a worker or here."""

    component: int
    cost: Cost
    names: tuple[str, ...]
    guard: Guard
    need: Need = ALL
    known: UnitBounds | None = None
    same: bool = False
    refine: bool = False

    def run(self, components: Sequence[Component]) -> UnitBounds:
        """Evaluate."""
        component = components[self.component]
        component.workspace.guard.copy_limits(self.guard)
        if self.refine and self.known is not None:
            return component.refine(self.cost, self.known, self.need.count, self.names)
        return component.evaluate(self.cost, self.need, names=self.names, known=self.known, same=self.same)


# -- which units lie in which component --------------------------------------------------------

Places = tuple[tuple[Where, Where], ...]
"""For every copy, places of units in the component and in the whole model."""


def component_problems(
    model: Model, units: Units, adversary: Any, prices: Mapping[str, Vector]
) -> Iterator[tuple[ComponentClass, Places, Problem]]:
    """Yield every kind of component that holds units, where they stand, and what is asked of it."""
    classes = split_by_price(model, component_classes(model), prices)
    local, places = assign_units(model, units, classes)
    for found, inside, where in zip(classes, local, places, strict=True):
        if any(len(outside) for _, outside in where):
            names = zip(found.model.nodes, found.copies[0], strict=True) if prices else ()
            here = {n: model.nodes[int(j)] for n, j in names}
            own = {n: prices[there] for n, there in here.items() if there in prices}
            facing = adversary_in_component(adversary, found, model)
            yield found, where, Problem(found.model, inside, facing, units.window, own)


def split_by_price(
    model: Model, classes: tuple[ComponentClass, ...], prices: Mapping[str, Vector]
) -> tuple[ComponentClass, ...]:
    """Return the classes of components such that changes cost the same in every copy of a class."""
    if not prices:
        return classes
    found: dict[tuple[int, tuple[bytes, ...]], list[Where]] = {}
    for k, one in enumerate(classes):
        for copy in one.copies:
            tables = [prices.get(model.nodes[int(j)]) for j in copy]
            key = (k, tuple(b"" if t is None else t.tobytes() for t in tables))
            found.setdefault(key, []).append(copy)
    return tuple(replace(classes[k], copies=tuple(copies)) for (k, _), copies in found.items())


def assign_units(
    model: Model, units: Units, classes: tuple[ComponentClass, ...]
) -> tuple[list[tuple[tuple[str, ...], ...] | None], list[Places]]:
    """Return the units inside every class, and where each copy's units stand in the whole model."""
    if units.members is not None:
        return _assign_sets(model, units.members, classes)
    if units.window > 1:
        return [None] * len(classes), _assign_windows(classes, units.window)
    every: list[Places] = []
    if len(model.records) == len(model.nodes):
        rank = None
    else:
        rank = np.cumsum([model.is_record(n) for n in model.nodes]) - 1
    for found in classes:
        part = found.model
        if rank is None:
            every.append(tuple((range(len(part.nodes)), copy) for copy in found.copies))
            continue
        real = [k for k, n in enumerate(part.nodes) if model.is_record(model.nodes[int(found.copies[0][k])])]
        inside = np.arange(len(real), dtype=np.intp)
        every.append(tuple((inside, rank[np.asarray(copy)[real]]) for copy in found.copies))
    return [None] * len(classes), every


def _assign_windows(classes: tuple[ComponentClass, ...], window: int) -> list[Places]:
    """Runs of steps: segments in order, each with its own runs."""
    starts = sorted((int(copy[0]), len(copy)) for found in classes for copy in found.copies)
    first, total = {}, 0
    for start, length in starts:
        first[start] = total
        total += max(1, length - window + 1)
    every: list[Places] = []
    for found in classes:
        count = max(1, len(found.model.nodes) - window + 1)
        begins = [first[int(copy[0])] for copy in found.copies]
        every.append(tuple((range(count), range(k, k + count)) for k in begins))
    return every


def _assign_sets(
    model: Model, members: tuple[tuple[str, ...], ...], classes: tuple[ComponentClass, ...]
) -> tuple[list[tuple[tuple[str, ...], ...] | None], list[Places]]:
    """Named sets: each is cut along components, and equal cuts of equal components are one."""
    home = {}
    for c, found in enumerate(classes):
        for k, copy in enumerate(found.copies):
            for place, j in enumerate(np.asarray(copy).tolist()):
                home[j] = (c, k, place)
    local: list[dict[tuple[str, ...], int]] = [{} for _ in classes]
    where: list[list[list[tuple[int, int]]]] = [[[] for _ in f.copies] for f in classes]
    for unit, chosen in enumerate(members):
        cuts: dict[tuple[int, int], list[int]] = {}
        for n in chosen:
            c, k, place = home[model.index[n]]
            cuts.setdefault((c, k), []).append(place)
        for (c, k), places in cuts.items():
            names = tuple(classes[c].model.nodes[p] for p in sorted(places))
            row = local[c].setdefault(names, len(local[c]))
            where[c][k].append((row, unit))
    every: list[Places] = [
        tuple(
            (np.array([r for r, _ in rows], dtype=np.intp), np.array([u for _, u in rows], dtype=np.intp))
            for rows in copies
        )
        for copies in where
    ]
    return [tuple(names) or None for names in local], every

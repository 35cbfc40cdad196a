"""Stages of a component: the smallest of sound bounds, each asked no more than it must be."""

from __future__ import annotations

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.answers import Answers
from quiltdp.accountant.bounds import Bounds, Problem, Registered
from quiltdp.accountant.stages import Component, Evaluation
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 3)


def constant(name: str, values: list[float], *, fails: Exception | None = None, **rest) -> Registered:
    """A bound that always says the same and counts its questions."""

    class Constant:
        asked = 0

        def __init__(self, problem: Problem) -> None:
            pass

        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
            if fails is not None:
                raise fails

        def evaluate(self, alpha: np.ndarray) -> Bounds:
            Constant.asked += 1
            return Bounds(np.array(values), name)

    return Registered(name, INFORMED, "certified bound", name, Constant, **rest)


@pytest.fixture
def component() -> Component:
    return Component(Problem(CHAIN), Workspace(CHAIN), WorkBudget())


ALPHA = np.full(3, 0.1)


def test_the_smallest_wins_and_is_named(component: Component) -> None:
    for entry in (constant("one", [3.0, 1.0, 2.0]), constant("two", [2.0, 2.0, 2.0])):
        component.take(entry)
    found = component.evaluate(ALPHA, 2)
    assert found.values.tolist() == [2.0, 1.0, 2.0]
    assert [found.bounds[k][0].name for k in found.given] == ["two", "one", "one"]


def test_a_stage_more_asks_only_its_own_bound(component: Component) -> None:
    first, second = constant("one", [3.0, 3.0, 3.0]), constant("two", [2.0, 2.0, 2.0])
    component.take(first)
    component.take(second)
    before = component.decide(ALPHA, 1, 0.98, 1.02)
    assert before.values.max() == 3.0
    found = component.decide(ALPHA, 2, 0.98, 1.02, before=before)
    assert found.values.max() == 2.0
    assert (first.make.asked, second.make.asked) == (1, 1)
    smaller = component.decide(0.5 * ALPHA, 2, 2.5, 9.0, above=found)
    assert smaller.values.tolist() == [2.0, 2.0, 2.0]


def test_a_decision_does_not_depend_on_what_was_asked_before(component: Component) -> None:
    for entry in (constant("one", [3.0, 1.0, 2.0]), constant("two", [2.0, 2.0, 2.0])):
        component.take(entry)
    cold = component.decide(ALPHA, 2, 0.5, 9.0)
    for bounds in (1, 2, 1):
        component.decide(ALPHA, bounds, 0.5, 9.0)
    warm = component.decide(ALPHA, 2, 0.5, 9.0)
    assert (warm.values.tolist(), warm.given.tolist()) == (cold.values.tolist(), cold.given.tolist())
    assert Evaluation(0, 2, ALPHA, between=(0.5, 9.0)).run(component).values.tolist() == [2.0, 1.0, 2.0]


def test_what_is_decided_is_refined_no_further(component: Component) -> None:
    first, second = constant("one", [0.5, 0.5, 0.5]), constant("two", [0.1, 0.1, 0.1])
    component.take(first)
    component.take(second)
    assert component.decide(ALPHA, 2, 0.98, 1.02).values.max() == 0.5
    assert second.make.asked == 0


def test_a_bound_that_does_not_fit_is_passed_over_and_a_wide_one_says_so(component: Component) -> None:
    assert not component.offer(constant("other", [], fails=InvalidArgument("not for chains")))
    assert not component.offer(constant("wide", [], fails=ModelTooWide("too many states", "buy memory")))
    assert component.notes == ["wide was passed over: too many states"]
    assert component.offer(constant("last", [1.0, 1.0, 1.0], settles=True))
    assert component.settled
    assert not component.wants(constant("more", [1.0, 1.0, 1.0]))


def ranking(name: str, values: list[float]) -> Registered:
    """A bound that tells the largest unit only, unless it is asked for more, and counts that."""

    class Ranked:
        asked = 0

        def __init__(self, problem: Problem) -> None:
            pass

        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
            pass

        def evaluate(self, alpha: np.ndarray) -> Bounds:
            return Bounds(np.array(values), name)

        def refine(self, alpha: np.ndarray, known: np.ndarray, low: float, high: float) -> Bounds:
            told = np.arange(len(known)) == np.argmax(known)
            return Bounds(np.where(told, np.minimum(known, values), known), name)

        def largest(self, alpha: np.ndarray, known: np.ndarray, count: int) -> Bounds:
            Ranked.asked += 1
            return Bounds(np.minimum(known, values), name)

    return Registered(name, INFORMED, "certified bound", name, Ranked)


@pytest.mark.parametrize(
    ("others", "asked", "told"), [(3.0, True, [2.0, 0.1, 0.1]), (1.5, False, [2.0, 1.5, 1.0])]
)
def test_what_lowered_nothing_is_not_asked_about_the_others(
    component: Component, others: float, asked: bool, told: list[float]
) -> None:
    """The second bound looks at what leaks most when the first has answered: others, or the same."""
    first, second = ranking("one", [2.0, 2.5, 1.0]), ranking("two", [2.5, 0.1, 0.1])
    for entry in (constant("all", [4.0, others, others]), first, second):
        component.take(entry)
    decided = component.decide(ALPHA, 3, 0.5, 9.0)
    assert component.largest(ALPHA, 3, decided, 2).values.tolist() == told
    assert first.make.asked
    assert bool(second.make.asked) == asked


def test_nothing_leaks_where_nothing_is_read(component: Component) -> None:
    component.take(constant("one", [3.0, 1.0, 2.0]))
    assert component.evaluate(np.zeros(3), 1).values.tolist() == [0.0, 0.0, 0.0]


def test_answers_of_a_whole_model_name_the_unit_that_binds() -> None:
    profile = qd.analyze(CHAIN, adversary=PRIOR)
    leakages, stage = profile.ask(lambda stage, before: stage.leakages(ALPHA, before))
    assert isinstance(stage, Answers)
    binding, entry, bounds = stage.binding(leakages)
    per_unit = stage.per_unit(leakages)
    assert per_unit[binding.unit] == binding.epsilon == leakages.epsilon == max(per_unit.values())
    assert entry.name == bounds.theorem == binding.method
    assert stage.by_method(leakages)[entry.name] >= leakages.epsilon

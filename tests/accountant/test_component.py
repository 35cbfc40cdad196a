"""A component: the smallest of sound bounds, each asked no more than it must be."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Registered
from quiltdp.accountant.bounds.table import Line
from quiltdp.accountant.component import Component, Preparation
from quiltdp.accountant.leakage import analyze
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 3)
ALPHA = np.full(3, 0.1)


class Some(Component):
    """A component with bounds of its own."""

    def __init__(self, *bounds: Registered) -> None:
        super().__init__(Problem(CHAIN), Workspace(CHAIN), WorkBudget())
        self.own = {b.name: b for b in bounds}
        for b in bounds:
            assert self.prepare(b.name).refused is None
            self.taken.append(b)

    def find_entry(self, name: str) -> Registered:
        return self.own[name]


def constant(name: str, values: list[float], *, fails: Exception | None = None) -> Registered:
    """A bound that always says the same and counts its questions."""

    class Constant:
        asked = 0

        def __init__(self, problem: Problem) -> None:
            pass

        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
            if fails is not None:
                raise fails

        def evaluate(self, alpha: np.ndarray, need: Need = ALL) -> Bounds:
            Constant.asked += 1
            return Bounds(np.array(values), name)

    return Registered(name, INFORMED, "certified bound", name, Constant)


def test_the_smallest_wins_and_is_named() -> None:
    component = Some(constant("one", [3.0, 1.0, 2.0]), constant("two", [2.0, 2.0, 2.0]))
    found = component.evaluate(ALPHA)
    assert found.values.tolist() == [2.0, 1.0, 2.0]
    assert [component.taken[k].name for k in found.by] == ["two", "one", "one"]
    assert [r.theorem for r in found.results] == ["one", "two"]


def test_one_bound_more_asks_only_that_one() -> None:
    first, second = constant("one", [3.0, 3.0, 3.0]), constant("two", [2.0, 2.0, 2.0])
    component, need = Some(first, second), Need(None, 0.98, 1.02)
    before = component.evaluate(ALPHA, need, names=["one"])
    assert before.values.max() == 3.0
    found = component.evaluate(ALPHA, need, known=before, same=True)
    assert found.values.max() == 2.0
    assert (first.make.asked, second.make.asked) == (1, 1)
    smaller = component.evaluate(0.5 * ALPHA, Need(None, 2.5, 9.0), known=found)
    assert smaller.values.tolist() == [2.0, 2.0, 2.0]
    assert (smaller.asked, first.make.asked, second.make.asked) == (1, 2, 1)


def test_an_evaluation_does_not_depend_on_what_was_asked_before() -> None:
    component = Some(constant("one", [3.0, 1.0, 2.0]), constant("two", [2.0, 2.0, 2.0]))
    cold = component.evaluate(ALPHA, Need(None, 0.5, 9.0))
    for names in (["one"], ["one", "two"], ["one"]):
        component.evaluate(ALPHA, Need(None, 0.5, 9.0), names=names)
    warm = component.evaluate(ALPHA, Need(None, 0.5, 9.0))
    assert (warm.values.tolist(), warm.by.tolist()) == (cold.values.tolist(), cold.by.tolist())


def test_what_is_decided_is_refined_no_further() -> None:
    first, second = constant("one", [0.5, 0.5, 0.5]), constant("two", [0.1, 0.1, 0.1])
    assert Some(first, second).evaluate(ALPHA, Need(None, 0.98, 1.02)).values.max() == 0.5
    assert second.make.asked == 0


def test_a_bound_that_does_not_fit_is_passed_over_and_a_wide_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = constant("other", [], fails=InvalidArgument("not for chains"))
    wide = constant("wide", [], fails=ModelTooWide("too many states", "buy memory"))
    component = Some(constant("one", [1.0, 1.0, 1.0]))
    component.own |= {"other": other, "wide": wide}
    assert component.prepare("other").refused == ""
    assert component.prepare("wide").refused == "wide was passed over: too many states"
    for name, error in (("other", InvalidArgument), ("wide", ModelTooWide)):
        with pytest.raises(error):
            component.prepare(name, insist=True)
    line = Line("informed", "one", "nowhere", last=True)
    monkeypatch.setattr("quiltdp.accountant.component.find_line", lambda *_, **__: line)
    assert component.auto_takes("one")
    component.add_prepared("one", Preparation(None, settles=False, near=1e-3))
    assert (component.near, component.complete) == (1e-3, False)
    component.add_prepared("one", Preparation(None))
    assert component.complete
    assert not component.auto_takes("one")


def ranking(name: str, values: list[float]) -> Registered:
    """A bound that tells the largest unit only, unless it is asked for more, and counts that."""

    class Ranked:
        asked = 0

        def __init__(self, problem: Problem) -> None:
            pass

        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
            pass

        def evaluate(self, alpha: np.ndarray, need: Need = ALL) -> Bounds:
            known = need.fill_unknown(3)[0]
            Ranked.asked += need.count is not None
            told = np.full(3, True) if not need.limited else np.arange(len(known)) == np.argmax(known)
            return Bounds(np.where(told, np.minimum(known, values), known), name, partial=need.partial)

    return Registered(name, INFORMED, "certified bound", name, Ranked)


@pytest.mark.parametrize(
    ("others", "asked", "told"), [(3.0, True, [2.0, 0.1, 0.1]), (1.5, False, [2.0, 1.5, 1.0])]
)
def test_what_lowered_nothing_is_not_asked_about_the_others(
    others: float, asked: bool, told: list[float]
) -> None:
    """The second bound looks at what leaks most when the first has answered: others, or the same."""
    first, second = ranking("one", [2.0, 2.5, 1.0]), ranking("two", [2.5, 0.1, 0.1])
    component = Some(constant("all", [4.0, others, others]), first, second)
    names = [entry.name for entry in component.taken]
    found = component.evaluate(ALPHA, Need(None, 0.5, 9.0))
    assert component.refine(ALPHA, found, 2, names).values.tolist() == told
    assert first.make.asked
    assert bool(second.make.asked) == asked


def test_nothing_leaks_where_nothing_is_read() -> None:
    component = Some(constant("one", [3.0, 1.0, 2.0]))
    assert component.evaluate(np.zeros(3)).values.tolist() == [0.0, 0.0, 0.0]


def test_a_worker_gets_what_is_asked_and_prepares_the_same_bounds() -> None:
    here: Any = Component(Problem(CHAIN), Workspace(CHAIN), WorkBudget())
    before = pickle.dumps(here)
    here.prepare_wanted(["group", "propagation"])
    assert [entry.name for entry in here.taken] == ["group", "propagation"]
    there = pickle.loads(pickle.dumps(here))
    assert pickle.dumps(here) == before  # so that a worker knows it by its bytes
    assert not there.taken
    names = ["group", "propagation"]
    assert there.evaluate(ALPHA, names=names).values.tolist() == here.evaluate(ALPHA).values.tolist()
    with pytest.raises(InvalidArgument, match="not imported"):
        there.prepared_bound("of my own")


def test_answers_of_a_whole_model_name_the_unit_that_binds() -> None:
    profile = analyze(CHAIN, adversary=PRIOR)
    found, stage = profile.answer(lambda stage, before: profile.evaluate(ALPHA, stage, known=before))
    binding, entry, bounds = profile.binding(found)
    told = profile.explain(found, stage, 0.1)
    assert told.per_record[binding.unit] == binding.epsilon == found.largest == max(told.per_record.values())
    assert entry.name == bounds.theorem == binding.method
    assert told.by_method[entry.name] >= found.largest

"""(ε, δ) of components in workers: the bytes of a run without them, limits and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import pytest
from limited import partial_answer
from unlike import unlike_components

import quiltdp as qd
from quiltdp import parallel
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.component import EvaluationTask
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import GaussianProfile
from quiltdp.parallel import Workers


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Workers(2) as made:
        yield made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    usual, tasks = parallel._TaskSender.submit, []

    def submit(sender: Any, items: tuple[Any, ...]) -> Any:
        tasks.append(items)
        return usual(sender, items)

    monkeypatch.setattr(parallel._TaskSender, "submit", submit)
    return tasks


@pytest.mark.parametrize(("adversary", "method"), [("informed", "auto"), ("prior", "transport")])
def test_gaussian_calibrations_are_the_same_bytes(
    pool: Executor, sent: list[Any], adversary: str, method: str
) -> None:
    model, noise = unlike_components(2), qd.Gaussian(1.0, 1e-5)
    told: list[str] = []
    options = {"adversary": adversary, "method": method, "work": "quick"}
    here = qd.calibrate(model, 1.0, noise, **options)
    there = qd.calibrate(
        model, 1.0, noise, executor=pool, progress=lambda label, _: told.append(label), **options
    )
    assert there.to_json() == here.to_json()
    assert len(sent) >= 2 * 10  # both components, at every scale of the search
    assert "preparing transport" in told
    assert "executor" not in there.origin[1]


@pytest.mark.slow
def test_sensitivities_differ_between_components_that_are_alike(pool: Executor) -> None:
    model = qd.example("two_families")
    weights = {r: 1.0 + (k % 3) for k, r in enumerate(model.records)}
    noise = qd.Gaussian(weights, 1e-5)
    options = {"method": "transport", "work": "quick"}
    here = qd.calibrate(model, 1.0, noise, **options)
    assert qd.calibrate(model, 1.0, noise, executor=pool, **options).to_json() == here.to_json()


def test_what_cannot_be_sent_is_evaluated_here(pool: Executor, sent: list[Any]) -> None:
    noise = GaussianProfile(5.0)

    class Own(GaussianProfile):
        """Of a function, so no worker can import it."""

    own = Own(5.0)
    model = unlike_components()
    here = DeltaProfile(model, method="group").deltas(own, 1.0)
    there = DeltaProfile(model, method="group", executor=pool).deltas(own, 1.0)
    assert there.tobytes() == here.tobytes()
    assert not [items for items in sent if isinstance(items[0], EvaluationTask)]
    sent.clear()
    sending = DeltaProfile(model, method="group", executor=pool).deltas(noise, 1.0)
    assert sending.tobytes() == DeltaProfile(model, method="group").deltas(noise, 1.0).tobytes()
    assert sum(len(items) for items in sent if isinstance(items[0], EvaluationTask)) == 3


def test_limits_and_refusals_travel(pool: Executor) -> None:
    model = unlike_components()
    asked = (model, 1.0, qd.Gaussian(1.0, 1e-5))
    found = partial_answer(lambda: qd.calibrate(*asked, executor=pool, time_limit=1e-9))
    assert any("time limit" in note for note in found.notes)
    with pytest.raises(InvalidArgument, match="epsilon must be a number"):
        DeltaProfile(model, executor=pool).delta(GaussianProfile(5.0), float("nan"))
    with pytest.raises(InvalidArgument, match="executor must be"):
        qd.calibrate(model, 1.0, qd.Gaussian(1.0, 1e-5), executor=42)

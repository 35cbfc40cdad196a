"""The way back from noise to leakage: a calibration, searched for as it was made, keeps what it says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from limited import answer_or_partial, partial_answer

import quiltdp as qd
from quiltdp import work
from quiltdp.accountant.ledger import Ledger
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import InvalidArgument

CHAIN = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=5)
TREE = qd.Model.from_tables(
    {
        "A": ([], [0.3, 0.7]),
        "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
        "C": (["A"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]),
        "D": (["B"], [[0.75, 0.25], [0.4, 0.6]]),
        "X": ([], [0.5, 0.5]),
        "Y": (["X"], [[0.8, 0.2], [0.3, 0.7]]),
    }
)
LOOP = qd.example("cancer")
UNEQUAL = {"A": 1.0, "B": 0.0, "C": 2.5, "D": 0.3, "X": 1.0, "Y": 0.7}

REQUESTS: dict[str, tuple[qd.Model, Any, dict[str, Any]]] = {
    "laplace": (TREE, qd.Laplace(1.0), {}),
    "laplace loop": (LOOP, qd.Laplace(1.0), {}),
    "unequal": (TREE, qd.Laplace(UNEQUAL), {}),
    "sets": (TREE, qd.Laplace(1.0), {"protect": [["A", "D"], ["C"]]}),
    "sets, unequal, prior": (TREE, qd.Laplace(UNEQUAL), {"protect": [["B", "C"]], "adversary": "prior"}),
    "knows:1": (LOOP, qd.Laplace(1.0), {"adversary": "knows:1"}),
    "runs": (CHAIN, qd.Laplace(1.0), {"window": 2}),
    "thresholdout": (CHAIN, qd.Thresholdout(budget=3, sensitivity=0.01), {"adversary": "prior"}),
    "gaussian": (TREE, qd.Gaussian(1.0, 1e-6), {}),
    "gaussian chain": (CHAIN, qd.Gaussian(1.0, 1e-6), {"adversary": "prior"}),
    "gaussian unequal": (TREE, qd.Gaussian({**UNEQUAL, "B": 0.2}, 1e-5), {"adversary": "prior"}),
    "gaussian sets": (TREE, qd.Gaussian(1.0, 1e-6), {"protect": [["A", "D"]], "adversary": "knows:2"}),
}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock that moves by a second whenever it is looked at: limits strike at a chosen look."""
    ticks = itertools.count()
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    yield
    monkeypatch.undo()


@pytest.mark.parametrize("limit", [1.5, 12.0, 40.0, 250.0])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_calibration_cut_short_anywhere_is_confirmed_by_its_own_search(
    looks: None, name: str, limit: float
) -> None:
    model, mechanism, options = REQUESTS[name]
    if limit > 100.0 and not mechanism.pure:
        pytest.skip("a long search, and no other stage")
    cal, partial = answer_or_partial(
        lambda: qd.calibrate(model, 1.0, mechanism, work="quick", time_limit=limit, compare=False, **options)
    )
    found = leakage_of(model, cal)
    assert 0.0 < found.epsilon <= 1.0
    assert (found.adversary, found.protected) == (cal.adversary, cal.protected)
    read = qd.Calibration.from_json(cal.to_json())
    again = {"protect": options["protect"]} if "protect" in options else {}
    assert leakage_of(model, read, **again).epsilon == found.epsilon
    typed = f"quick:{cal.certificate.stage}"  # what the note says
    same = qd.calibrate(model, 1.0, mechanism, work=typed, compare=False, **options)
    assert (same.sigma, same.certificate.stage) == (cal.sigma, cal.certificate.stage)
    if partial:
        assert any(f"--work {typed} gives this partial" in note.replace(")", "") for note in cal.notes)
    else:
        assert not any("limit was reached" in note for note in cal.notes)
    if mechanism.pure:
        assert leakage_of(model, cal, 3.0 * cal.sigma).epsilon < found.epsilon
        assert leakage_of(model, cal, 0.5 * cal.sigma).epsilon > 1.0


@pytest.mark.parametrize("name", ["laplace", "sets", "gaussian", "gaussian sets"])
def test_a_limit_that_is_too_short_raises_and_carries_a_looser_number(looks: None, name: str) -> None:
    model, mechanism, options = REQUESTS[name]
    cal = qd.calibrate(model, 1.0, mechanism, work="quick", compare=False, **options)
    partial = partial_answer(lambda: leakage_of(model, cal, time_limit=1.5))
    assert partial.epsilon >= leakage_of(model, cal).epsilon


def test_a_shorter_search_may_say_more_and_the_calibrations_own_never_does() -> None:
    mechanism = qd.Laplace(1.0)
    cal = qd.calibrate(LOOP, 1.0, mechanism, adversary="prior", compare=False)
    short = {"adversary": "prior", "work": "quick:propagation"}
    assert leakage_of(LOOP, mechanism, cal.sigma, **short).epsilon > 1.0
    assert leakage_of(LOOP, cal).epsilon <= 1.0
    quick = qd.calibrate(LOOP, 1.0, mechanism, compare=False, **short)
    assert quick.sigma > cal.sigma
    assert leakage_of(LOOP, qd.Calibration.from_json(quick.to_json())).epsilon <= 1.0


@pytest.mark.parametrize("method", ["group", "propagation", "swing", "exact"])
def test_a_method_by_name_is_confirmed_by_that_method(method: str) -> None:
    cal = qd.calibrate(LOOP, 1.0, qd.Laplace(1.0), method=method, compare=False)
    found = leakage_of(LOOP, qd.Calibration.from_json(cal.to_json()))
    assert found.epsilon <= 1.0
    assert found.certificate.asked == method


def test_a_ledger_takes_what_the_calibrations_own_search_confirms() -> None:
    """Searched for in the usual way, a thorough calibration may look like too little noise."""
    for level in ("thorough", "quick:propagation"):
        cal = qd.calibrate(LOOP, 1.0, qd.Laplace(1.0), adversary="prior", work=level, compare=False)
        assert Ledger.create(":memory:", cal, model=LOOP).genesis["checked"] == "model"


def test_an_edited_calibration_is_found_out_whatever_search_it_names() -> None:
    cal = qd.calibrate(LOOP, 1.0, qd.Laplace(1.0), compare=False)
    document = json.loads(cal.to_json())
    document["sigma"] = document["releases"]["sigma"] = cal.sigma * 0.9
    document["dp_epsilon"] = qd.Laplace(1.0).dp_epsilon(cal.sigma * 0.9) * (1 + 1e-12)
    for stage in (cal.certificate.stage, "group", "propagation", "quilts"):
        document["certificate"]["stage"] = stage
        edited = qd.Calibration.from_json(json.dumps(document))
        assert leakage_of(LOOP, edited).epsilon > 1.0
    for wrong in (
        {"stage": "nonsense"},
        {"asked": "nonsense"},
        {"stage": 3},
        {"work": {"quilts": 1e30}},
        {"work": {"quilts": -1}},
        {"work": {"quilts": True}},
        {"work": {"level": 4}},
        {"work": {"nonsense": 1}},
        {"work": 7},
        {"work": None},
    ):
        document["certificate"] = {**cal.certificate.to_dict(), **wrong}
        with pytest.raises(InvalidArgument):
            leakage_of(LOOP, qd.Calibration.from_json(json.dumps(document)))


def test_what_a_calibration_says_itself_is_not_asked_for() -> None:
    cal = qd.calibrate(CHAIN, 1.0, qd.Laplace(1.0), window=2, compare=False)
    for options in ({"method": "group"}, {"adversary": "prior"}, {"work": "quick"}):
        with pytest.raises(InvalidArgument, match="says its own"):
            leakage_of(CHAIN, cal, **options)
    with pytest.raises(
        InvalidArgument, match="it protects runs of 2 steps, this check is for single records"
    ):
        leakage_of(CHAIN, cal, window=1)
    with pytest.raises(InvalidArgument, match="another model"):
        leakage_of(LOOP, cal)
    with pytest.raises(InvalidArgument, match="scale is missing"):
        leakage_of(CHAIN, qd.Laplace(1.0))
    sets = qd.calibrate(CHAIN, 1.0, qd.Laplace(1.0), protect=[["X0", "X1"]], compare=False)
    with pytest.raises(InvalidArgument, match="protects sets of records"):
        leakage_of(CHAIN, qd.Calibration.from_json(sets.to_json()))

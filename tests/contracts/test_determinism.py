"""The same model, request and work budget give the same bytes: in any order, process and hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from limited import partial_answer

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp import work
from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.accountant.leakage import analyze
from quiltdp.accountant.methods import method_names
from quiltdp.work import GuardReached

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
import quiltdp as qd
from quiltdp.accountant.leakage import analyze

TRIO = {
    "mother": ([], [0.8, 0.2]), "father": ([], [0.8, 0.2]),
    "child": (["mother", "father"], [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]),
}
CHILD = TRIO["child"][1]
THREE = {
    **{g: ([], [0.8, 0.2]) for g in "abcd"}, "m": (["a", "b"], CHILD), "f": (["c", "d"], CHILD),
    "x": (["m", "f"], CHILD), "y": (["m", "f"], CHILD), "z": (["m", "f"], CHILD),
}
MODELS = {
    "asia": qd.load_model("models/asia.bif"),
    "cancer": qd.load_model("models/cancer.bif"),
    "child": qd.load_model("models/child.bif"),
    "trio": qd.Model.from_tables(TRIO),
    "family": qd.Model.from_tables(THREE),
    "chain": qd.markov_chain([[0.9, 0.1], [0.3, 0.7]], length=60, initial=[0.2, 0.8]),
}
PROFILES = {}
slow = {"work": "quick", "time_limit": 3600}  # a busy machine gives the same

def profile(name, adversary):
    if (name, adversary) not in PROFILES:
        PROFILES[name, adversary] = analyze(MODELS[name], adversary=adversary, **slow)
    return PROFILES[name, adversary]

def calibrated(name, adversary):
    found = qd.calibrate(MODELS[name], 1.0, laplace, adversary=adversary, compare=False, **slow)
    return found.to_json()

laplace, many = qd.Laplace(sensitivity=1.0), qd.Thresholdout(budget=4, sensitivity=0.01)
REQUESTS = [
    *(lambda n=n, a=a: calibrated(n, a) for n in MODELS for a in ("informed", "prior")),
    *(lambda n=n, a=a: profile(n, "informed").leakage(a).to_json()
      for n in ("asia", "family", "chain") for a in (0.02, 0.7)),
    lambda: qd.calibrate(MODELS["family"], 0.3, many, adversary="prior", time_limit=3600).to_json(),
    lambda: repr(profile("family", "prior").dp_epsilon(2.0)),
]
assert len(REQUESTS) == 20
order = [int(k) for k in sys.argv[1].split(",")]
print(json.dumps({k: REQUESTS[k]() for k in order}, sort_keys=True))
"""


def answers(order: list[int], seed: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(map(str, order))],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_twenty_requests_in_two_orders_and_two_processes() -> None:
    shuffled = [k * 7 % 20 for k in range(20)][::-1]
    one, two = answers(list(range(20)), "1"), answers(shuffled, "4242")
    assert sorted(one) == sorted(two) == sorted(map(str, range(20)))
    for k in one:
        assert one[k] == two[k], k


GENOTYPES = [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("work", ["quick", "normal"])
def test_records_that_look_the_same_leak_the_same(adversary: str, alpha: float, work: str) -> None:
    """A symmetric family of three generations: four grandparents, two parents, five children."""
    family = qd.Model.from_tables(
        {
            **{g: ([], [0.8, 0.2]) for g in ("g1", "g2", "g3", "g4")},
            "mother": (["g1", "g2"], GENOTYPES),
            "father": (["g3", "g4"], GENOTYPES),
            **{f"child{k}": (["mother", "father"], GENOTYPES) for k in range(5)},
        }
    )
    found = qd.leakage(family, alpha, adversary=adversary, work=work).per_record
    assert len({found[g] for g in ("g1", "g2", "g3", "g4")}) == 1
    assert found["mother"] == found["father"]
    assert len({found[f"child{k}"] for k in range(5)}) == 1


def test_the_certificate_says_how_far_the_search_went() -> None:
    found = qd.leakage(qd.example("asia"), 0.1, work="quick")
    document = json.loads(found.to_json())
    assert document["certificate"]["work"]["level"] == "quick"
    assert document["certificate"]["stage"]
    assert "seconds" not in document
    again = qd.leakage(qd.example("asia"), 0.1, work="quick:propagation")
    assert again.certificate.stage == "propagation"
    assert again.epsilon >= found.epsilon


def test_when_a_limit_is_reached_the_last_finished_stage_is_the_partial_answer(monkeypatch) -> None:
    from quiltdp.accountant.bounds import propagation

    model = qd.example("asia")
    expected = qd.calibrate(model, 1.0, qd.Laplace(1.0), work="normal:propagation", compare=False)
    real, calls = propagation.PropagationBound.evaluate, []

    def late(self, alpha, *rest):  # the clock runs out when the next stage starts to search
        calls.append(alpha)
        return real(self, alpha, *rest)

    monkeypatch.setattr(propagation.PropagationBound, "evaluate", late)
    from quiltdp.accountant.bounds.limit import ExactBound

    def struck(self, *rest):
        raise GuardReached("the time limit was reached")

    monkeypatch.setattr(ExactBound, "prepare", struck)
    found = partial_answer(lambda: qd.calibrate(model, 1.0, qd.Laplace(1.0), compare=False))
    assert calls
    assert (found.sigma, found.certificate.stage) == (expected.sigma, "propagation")
    assert "the time limit was reached after stage 'propagation'" in str(found)
    assert "bounds that had finished: group, propagation" in str(found)
    assert "--work normal:propagation" in found.to_json()


def test_a_method_by_name_that_does_not_finish_is_an_error_not_another_method() -> None:
    model = qd.example("asia")
    said = "the time limit was reached before method='exact' had an answer"
    assert partial_answer(lambda: qd.leakage(model, 0.1, "exact", "prior", time_limit=1e-6), said) is None


def test_every_question_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that was prepared long ago answers under the guard of the question, not under its own."""
    now = [0.0]
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: now[0]))
    chain = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 4)
    for adversary, method in [
        (a, m) for a in ("informed", "prior") for m in method_names(parse_adversary(a))
    ]:
        try:
            profile = analyze(chain, method=method, adversary=adversary, time_limit=5.0)
        except qd.QuiltdpError:
            continue  # not for chains
        now[0] += 1000.0
        assert profile.epsilon(0.3) >= 0.3 * (1 - 1e-9)
        assert not profile.reached

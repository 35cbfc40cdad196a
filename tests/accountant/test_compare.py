"""σ for several adversaries side by side (quiltdp.accountant.compare): monotone, certified for each."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from limited import partial_answer
from strategies import random_network

import quiltdp as qd
from quiltdp import parallel, work
from quiltdp.accountant import compare
from quiltdp.accountant.compare import calibrate_adversaries
from quiltdp.errors import InvalidArgument
from quiltdp.parallel import Workers


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "spec",
    [qd.Laplace(1.0), pytest.param(qd.Gaussian(1.0, 1e-5), marks=pytest.mark.slow)],
    ids=["laplace", "gaussian"],
)
def test_noise_never_falls_as_more_is_known(seed, spec):
    rng = np.random.default_rng(seed)
    names = [f"n{k}" for k in range(4)]
    parents = {n: [p for p in names[:k] if rng.random() < 0.6] for k, n in enumerate(names)}
    model = random_network(seed, parents, dict.fromkeys(names, 2), zeros=0.2 * (seed % 2))
    found = calibrate_adversaries(model, 1.0, spec, work="quick")
    assert [c.adversary for c in found] == ["prior", "knows:1", "knows:2", "informed"]
    sigmas = [c.sigma for c in found]
    assert sigmas == sorted(sigmas)
    for c in found if spec.kind == "laplace" else ():  # each is enough: no attack attains more than ε
        assert qd.attack(model, c.dp_epsilon, c.adversary).leakage <= 1.0
        limit = qd.leakage(model, c.dp_epsilon, "exact", c.adversary).epsilon
        assert limit <= 1.0 + 1e-7


def test_a_looser_method_for_a_weaker_adversary_gives_way(monkeypatch):
    """Whatever the methods find, a scale certified against a stronger adversary serves a weaker one."""
    model = qd.example("cancer")
    real = compare.calibrate

    def poor(model, epsilon, mechanism, *, adversary, **options):
        found = real(model, epsilon, mechanism, adversary=adversary, **options)
        return (
            real(model, epsilon, mechanism, adversary=adversary, method="group")
            if (adversary.name == "knows:1")
            else found
        )

    monkeypatch.setattr(compare, "calibrate", poor)
    prior, one, two, informed = calibrate_adversaries(model, 1.0, qd.Laplace(1.0))
    assert one.sigma == two.sigma
    assert one.adversary == "knows:1"
    assert any("knows:2" in n for n in one.notes)
    assert prior.sigma <= one.sigma <= informed.sigma
    assert replace(one).to_dict()["adversary"] == "knows:1"


def test_declared_sets_stand_beside_the_others():
    model = qd.example("asia")
    who = ("prior", "knows=tub", "knows=tub,bronc", "informed")
    found = calibrate_adversaries(model, 1.0, qd.Laplace(1.0), adversaries=who)
    assert [c.sigma for c in found] == sorted(c.sigma for c in found)
    assert found[0].sigma < found[-1].sigma


def test_bad_requests():
    model = qd.example("cancer")
    with pytest.raises(InvalidArgument, match="adversaries"):
        calibrate_adversaries(model, 1.0, qd.Laplace(1.0), adversaries=())
    with pytest.raises(InvalidArgument, match="adversaries"):
        calibrate_adversaries(model, 1.0, qd.Laplace(1.0), adversary="prior")


def test_one_limit_is_shared_and_every_row_says_where_it_stopped(monkeypatch):
    """The second adversary takes all the time there is; everyone after it still answers, and says so."""
    now = [0.0]
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: now[0]))
    real = compare.calibrate

    def slow(model, epsilon, mechanism, *, adversary, **options):
        now[0] += 1.0 if adversary.knows_nothing else 30.0
        return real(model, epsilon, mechanism, adversary=adversary, **options)

    monkeypatch.setattr(compare, "calibrate", slow)
    asked = (qd.example("cancer"), 1.0, qd.Laplace(1.0))
    found = partial_answer(lambda: calibrate_adversaries(*asked, time_limit=30.0))
    assert not any("limit" in note for note in found[0].notes)
    for c in found[1:]:
        assert any(f"limit was reached after stage {c.certificate.stage!r}" in note for note in c.notes)


def test_what_is_known_is_not_made_again(monkeypatch):
    model = qd.example("cancer")
    one = qd.calibrate(model, 1.0, qd.Laplace(1.0))
    monkeypatch.setattr(compare, "calibrate", None)
    assert calibrate_adversaries(model, 1.0, qd.Laplace(1.0), adversaries=["informed"], known=[one]) == (one,)


@pytest.mark.parametrize("spec", [qd.Laplace(1.0), qd.Gaussian(1.0, 1e-5)], ids=["laplace", "gaussian"])
def test_adversaries_are_asked_in_workers_with_the_same_answers(spec, monkeypatch):
    """In one connected model the adversaries go to workers, in one of unlike parts the parts do."""
    one = qd.example("cancer")
    two = qd.Model.from_tables(
        {
            "a": ([], [0.3, 0.7]),
            "b": (["a"], [[0.9, 0.1], [0.2, 0.8]]),
            "x": ([], [0.4, 0.6]),
            "y": (["x"], [[0.6, 0.4], [0.3, 0.7]]),
        }
    )
    with Workers(2) as pool:
        sent, usual = [], parallel._TaskSender.submit
        note = lambda self, items: sent.append(self.task[0].__name__) or usual(self, items)  # noqa: E731
        monkeypatch.setattr(parallel._TaskSender, "submit", note)
        for model in (one, two):
            there = calibrate_adversaries(model, 1.0, spec, executor=pool)
            here = calibrate_adversaries(model, 1.0, spec)
            assert [c.to_json() for c in there] == [c.to_json() for c in here]
            assert all(c.origin[0] is model for c in there)
            assert [c.origin[1] for c in there] == [c.origin[1] for c in here]
    assert sent.count("_calibrate_against") == len(compare.COMPARED)
    assert len(set(sent)) > 1

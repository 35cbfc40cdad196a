"""The registry: the index says where each bound lives, decorators say what it is, and they agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp import papers
from quiltdp.accountant import leakage
from quiltdp.accountant.adversaries import INFORMED, PRIOR, knows
from quiltdp.accountant.bounds import registered
from quiltdp.accountant.methods import METHODS, available, by_name, candidates, find_method, method_names
from quiltdp.errors import InvalidArgument
from quiltdp.work import WorkBudget

INDEX = (*leakage.AUTOMATIC, *leakage.ON_REQUEST)


def test_every_decorator_has_a_line_in_the_index_and_the_other_way_round() -> None:
    found = set()
    for path in (*Path(leakage.__file__).parent.glob("*.py"), *Path(papers.__file__).parent.glob("*.py")):
        for name, who in re.findall(r'@register\(\s*"([^"]+)",\s*against=(\w+)', path.read_text()):
            module = path.stem if path.parent.stem == "leakage" else f"quiltdp.papers.{path.stem}"
            found.add((who.lower(), name, module))
    assert found == set(INDEX)
    for adversary, name, _ in INDEX:
        entry = by_name(adversary, name)
        assert (available(adversary).get(name) is entry) == ("@" not in name)  # later stages have no name
        assert (entry.name, entry.against.name) == (name, adversary)
        assert entry.kind in ("exact", "certified bound", "published")
        assert entry.says
        assert registered()[adversary, name] is entry


def test_names_are_known_without_loading_anything() -> None:
    program = (
        "import sys; from quiltdp.accountant.methods import method_names;"
        "method_names('prior'); bound = ('quiltdp.accountant.leakage.', 'quiltdp.papers');"
        "print([m for m, x in sys.modules.items() if m.startswith(bound) and x.__spec__])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_bound_against_a_stronger_adversary_is_offered_too() -> None:
    assert set(METHODS["informed"]) == set(method_names("informed")) - {"auto"}
    assert find_method(PRIOR, "propagation").against == INFORMED
    assert find_method(PRIOR, "exact").against == PRIOR  # its own hides the namesake
    assert next(e.name for e in candidates(INFORMED)) == "group"
    some = {e.name for e in candidates(knows("A"))}
    assert {"group", "propagation", "quilts"} <= some
    assert "coupling" not in some
    with pytest.raises(InvalidArgument, match="coupling"):
        find_method(INFORMED, "coupling")


def test_the_certificate_is_in_the_words_of_the_bound_that_won() -> None:
    """On an identity chain the informed chain solver already attains what the prior one says."""
    chain = qd.markov_chain([[1.0, 0.0], [0.0, 1.0]], length=20, initial=[0.5, 0.5])
    found = qd.leakage(chain, 0.1, adversary="prior")
    assert found.epsilon == pytest.approx(2.0)
    assert available("informed")[found.method].says in found.certificate.statement


def test_a_bound_may_be_registered_elsewhere() -> None:
    program = """
import numpy as np, quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, register

@register("mine", against=INFORMED, kind="certified bound", says="everything counts twice")
class Mine:
    def __init__(self, problem):
        self.count = problem.count
    def prepare(self, workspace, budget):
        pass
    def evaluate(self, alpha):
        return Bounds(np.full(self.count, 2 * alpha.sum()), "mine")

chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=200)
leaves = {f"L{k}": (["A"], [[0.9, 0.1], [0.1, 0.9]]) for k in range(20)}
fork = qd.Model.from_tables({"A": ([], [0.5, 0.5])} | leaves)
print(qd.leakage(chain, 0.1, "mine").certificate, "mine" in qd.leakage(fork, 0.1).by_method)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("everything counts twice; rounded up in floating point True")


def test_the_name_of_the_version_before_is_understood_with_a_warning() -> None:
    model = qd.example("asia")
    now = qd.leakage(model, 0.1, "coupling", "prior").to_json()
    for old in ("clique-tree", "coupling-chosen", "coupling-single"):
        with pytest.warns(FutureWarning, match=f"'{old}' is now called 'coupling'"):
            assert qd.leakage(model, 0.1, old, "prior").to_json() == now


def test_one_method_takes_the_form_that_the_budget_allows_and_says_which() -> None:
    """All pairs of states, chosen ones, single changes: one name, no smaller answer with less work."""
    model, found = qd.example("asia"), []
    for pairs, states, form in (
        (2 * 10**7, 2_000, "all pairs of states"),
        (160, 2_000, "chosen pairs of states"),
        (2 * 10**7, 0, "single changes"),
    ):
        work = WorkBudget(level="custom", pairs=pairs, states=states)
        answer = qd.leakage(model, 0.1, "coupling", "prior", work=work)
        assert (answer.binding.method, answer.binding.witness["form"]) == ("coupling", form)
        found.append(answer.epsilon)
    assert found == sorted(found)


def test_a_widening_is_a_bounds_own_and_never_inherited() -> None:
    """Models nearby take what a class says of itself; a subclass with other numbers says nothing yet."""
    from dataclasses import replace

    from quiltdp.accountant.leakage.propagation import PropagationBound
    from quiltdp.accountant.methods import by_name

    class Sharper(PropagationBound):
        pass

    entry = by_name("informed", "propagation")
    assert entry.widens
    assert not replace(entry, make=Sharper).widens
    assert by_name("informed", "chain").widens
    assert by_name("informed", "group").universal
    assert not by_name("informed", "quilts").widens


def test_whoever_knows_nothing_is_the_prior_adversary() -> None:
    from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, adversary_from

    for same in (qd.knows(), qd.knows(0), adversary_from("knows="), Adversary(frozenset({"A"}), 0)):
        assert same == PRIOR
        assert same.knows_nothing
        assert hash(same) == hash(PRIOR)
    assert not INFORMED.knows_nothing
    assert not qd.knows("A").knows_nothing

"""The registry: the index says where each bound lives, decorators say what it is, and they agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import quiltdp as qd
import quiltdp.papers
from quiltdp.accountant import bounds
from quiltdp.accountant.adversaries import INFORMED, PRIOR, knows
from quiltdp.accountant.bounds.contract import APPROXIMATE
from quiltdp.accountant.bounds.table import APPROXIMATE_BOUNDS, AUTOMATIC, ON_REQUEST
from quiltdp.accountant.methods import (
    automatic_stages,
    available_methods,
    find_method,
    load_bound,
    method_names,
)
from quiltdp.errors import InvalidArgument
from quiltdp.work import WorkBudget


def test_every_decorator_has_a_line_in_the_index_and_the_other_way_round() -> None:
    found, on_delta = set(), set()
    for path in Path(bounds.__file__).parent.glob("*.py"):
        if path.stem == "contract":  # its docstring shows one
            continue
        decorators = r'@register\(\s*"([^"]+)",\s*against=(\w+),\s*kind=([^,]+),'
        for name, who, kind in re.findall(decorators, path.read_text()):
            (on_delta if kind == "APPROXIMATE" else found).add((who.lower(), name, path.stem))
    assert found == {line[:3] for line in (*AUTOMATIC, *ON_REQUEST)}
    assert on_delta == {line[:3] for line in APPROXIMATE_BOUNDS}
    for line in (*AUTOMATIC, *ON_REQUEST):
        entry = load_bound(line)
        assert available_methods(line.against)[line.name] is entry
        assert (entry.name, entry.against.name) == (line.name, line.against)
        assert entry.kind in ("exact", "certified bound", "published")
        assert entry.says
    assert {load_bound(line, approximate=True).kind for line in APPROXIMATE_BOUNDS} == {APPROXIMATE}


def test_names_are_known_without_loading_anything() -> None:
    program = (
        "import sys; from quiltdp.accountant.methods import method_names;"
        "method_names('prior'); bound = ('quiltdp.accountant.bounds.', 'quiltdp.papers');"
        "loaded = [m for m, x in sys.modules.items() if m.startswith(bound) and x.__spec__];"
        "print([m for m in loaded if not m.endswith(('.contract', '.table'))])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_bound_against_a_stronger_adversary_is_offered_too() -> None:
    assert set(available_methods("informed")) == set(method_names("informed")) - {"auto"}
    assert find_method(PRIOR, "propagation").against == INFORMED
    assert find_method(PRIOR, "published").against == PRIOR  # its own hides the namesake
    assert automatic_stages(INFORMED)[0] == automatic_stages(PRIOR)[0] == "group"
    assert automatic_stages(PRIOR, until="coupling")[-1] == "coupling"
    assert automatic_stages(INFORMED, until="coupling")[-1] == "exact"  # the table is read up to there
    some = set(automatic_stages(knows("A")))
    assert {"group", "propagation", "exact"} <= some
    assert "coupling" not in some
    with pytest.raises(InvalidArgument, match="coupling"):
        find_method(INFORMED, "coupling")


def test_the_certificate_is_in_the_words_of_the_bound_that_won() -> None:
    """On an identity chain the informed chain solver already attains what the prior one says."""
    chain = qd.markov_chain([[1.0, 0.0], [0.0, 1.0]], length=20, initial=[0.5, 0.5])
    found = qd.leakage(chain, 0.1, adversary="prior")
    assert found.epsilon == pytest.approx(2.0)
    assert available_methods("informed")[found.method].says in found.certificate.statement


def test_importing_the_papers_adds_names_and_changes_no_answer() -> None:
    program = """
import quiltdp as qd
from quiltdp.accountant.methods import method_names
chain = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=50)
before = qd.leakage(chain, 0.1).to_json(), set(method_names("prior"))
import quiltdp.papers
after = qd.leakage(chain, 0.1).to_json(), set(method_names("prior"))
print(before[0] == after[0], sorted(after[1] - before[1]))
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True ['gk16', 'lange', 'lemma4', 'mqm-approx']"


def test_a_bound_may_be_registered_elsewhere() -> None:
    program = """
import numpy as np, quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import Bounds, register

@register("mine", against=INFORMED, kind="certified bound", says="nearly everything counts")
class Mine:
    def __init__(self, problem):
        self.count = problem.count
    def prepare(self, workspace, budget):
        pass
    def evaluate(self, alpha, need):
        return Bounds(np.full(self.count, 0.99 * alpha.sum()), "mine")

chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=200)
leaves = {f"L{k}": (["A"], [[0.9, 0.1], [0.1, 0.9]]) for k in range(20)}
fork = qd.Model.from_tables({"A": ([], [0.5, 0.5])} | leaves)
found = qd.leakage(fork, 0.1)
print(qd.leakage(chain, 0.1, "mine").certificate, "mine" in found.by_method)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("nearly everything counts; rounded up in floating point True")


def test_the_name_of_the_version_before_is_understood_with_a_warning() -> None:
    model = qd.example("asia")
    now = qd.leakage(model, 0.1, "coupling", "prior").to_json()
    for old in ("clique-tree", "coupling-chosen", "coupling-single"):
        with pytest.warns(FutureWarning, match=f"'{old}' is now called 'coupling'"):
            assert qd.leakage(model, 0.1, old, "prior").to_json() == now


def test_one_method_takes_the_form_that_the_budget_allows_and_says_which() -> None:
    """All pairs of states, or few of them: one name, no smaller answer with less work."""
    model, found = qd.example("asia"), []
    for pairs, form in ((2 * 10**7, "all pairs of states"), (600, "few pairs of states")):
        work = WorkBudget(level="custom", pairs=pairs)
        answer = qd.leakage(model, 0.1, "coupling", "prior", work=work)
        assert (answer.binding.method, answer.binding.witness["form"]) == ("coupling", form)
        found.append(answer.epsilon)
    assert found == sorted(found)


def test_a_widening_is_a_bounds_own_and_never_inherited() -> None:
    """Models nearby take what a class says of itself; a subclass with other numbers says nothing yet."""
    from dataclasses import replace

    from quiltdp.accountant.bounds.propagation import PropagationBound

    class Sharper(PropagationBound):
        pass

    entry = find_method(INFORMED, "propagation")
    assert entry.widens
    assert not replace(entry, make=Sharper).widens
    assert find_method(INFORMED, "chain").widens
    assert find_method(INFORMED, "group").widens
    assert not find_method(INFORMED, "swing").widens


def test_whoever_knows_nothing_is_the_prior_adversary() -> None:
    from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, parse_adversary

    for same in (qd.knows(), qd.knows(0), parse_adversary("knows="), Adversary(frozenset({"A"}), 0)):
        assert same == PRIOR
        assert same.knows_nothing
        assert hash(same) == hash(PRIOR)
    assert not INFORMED.knows_nothing
    assert not qd.knows("A").knows_nothing

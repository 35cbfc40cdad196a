"""Old addresses answer with the new names, and warn; nothing inside the package uses them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import quiltdp
from quiltdp.moved import MOVED, NAMES, RENAMED

SOURCES = Path(quiltdp.__file__).parent
WERE = {  # some of what stood at an old address
    "quiltdp.accountant.leakage.base": ["Vector"],
    "quiltdp.accountant.specs": [
        "Gaussian",
        "Laplace",
        "MechanismSpec",
        "Sensitivities",
        "Thresholdout",
        "gaussian_delta",
        "mechanism_from_dict",
    ],
    "quiltdp.inference.blocks": ["Block", "apart", "joined_nodes"],
    "quiltdp.inference.chain_laws": ["ChainLaws"],
    "quiltdp.inference.clique_states": ["CliqueForest", "clique_forest"],
    "quiltdp.inference.components": ["ComponentClass", "component_classes"],
    "quiltdp.inference.determined": ["determined_nodes"],
    "quiltdp.inference.elimination": ["best_assignment", "max_out", "product", "sum_out", "summed_law"],
    "quiltdp.inference.evidence": ["condition", "count_evidence", "each_evidence"],
    "quiltdp.inference.evidence_views": ["View", "Views"],
    "quiltdp.inference.junction_tree": ["JunctionTree", "junction_tree", "plan_junction_tree"],
    "quiltdp.inference.narrower": ["Narrower"],
    "quiltdp.inference.path": ["Path", "StepSpreads", "path_of", "spectral_gap", "step_spreads"],
    "quiltdp.inference.ray_plan": ["Planner"],
    "quiltdp.inference.reordered": ["Loop", "Reordered", "Step", "loop_above", "reorder"],
    "quiltdp.inference.set_chain": ["SetChain", "set_chain_spreads"],
    "quiltdp.inference.support": ["SupportTree", "barriers_around", "barriers_beyond", "support_tree"],
    "quiltdp.inference.table_error": ["TableErrors", "interval_errors", "relative_errors"],
    "quiltdp.inference.tilted": ["TiltedTree"],
    "quiltdp.inference.two_point": ["least_rate", "two_point"],
    "quiltdp.inference.types": ["Assignment", "QuiltInfluence", "Witness", "check_disjoint"],
    "quiltdp.rounding": ["digits_up", "digits_down", "up", "down", "EPS"],
}


def test_every_old_address_is_asked_here() -> None:
    assert set(WERE) == set(MOVED)


@pytest.mark.parametrize("old", MOVED)
def test_the_old_address_answers_and_warns(old: str) -> None:
    new = MOVED[old]
    for name in WERE[old]:
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            found = getattr(import_module(old), name)
        assert found is getattr(import_module(new), RENAMED.get(old, {}).get(name, name))


def test_the_old_address_is_imported_as_it_was() -> None:
    code = "from quiltdp.inference.junction_tree import JunctionTree\nimport quiltdp.rounding\n"
    code += "print(JunctionTree.__module__, quiltdp.rounding.up(0.0) > 0)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "quiltdp.inference.trees True\n"


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = import_module("quiltdp.rounding").nonsense


@pytest.mark.parametrize("old", MOVED)
def test_nothing_inside_uses_an_old_address(old: str) -> None:
    package, _, leaf = old.rpartition(".")
    uses = re.compile(rf"\b{re.escape(old)}\b|from {re.escape(package)} import [^\n]*\b{leaf}\b")
    for path in SOURCES.rglob("*.py"):
        if path.name != "moved.py":
            assert not uses.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in NAMES.items() for n in names])
def test_a_name_that_left_its_module_answers_and_warns(module: str, name: str) -> None:
    old, new = import_module(module), NAMES[module][name]
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} is now {new}"):
        found = getattr(old, name)
    assert found is getattr(import_module(new), name)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = old.nonsense

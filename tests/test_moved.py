"""Old addresses answer with the new names, and warn; nothing inside the package uses them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import quiltdp
from quiltdp.moved import names_from

SOURCES = Path(quiltdp.__file__).parent
OLD = {
    "quiltdp.accountant.leakage.base": ("quiltdp.accountant.bounds", ["Vector"]),
    "quiltdp.accountant.specs": (
        "quiltdp.accountant.mechanisms",
        [
            "Gaussian",
            "Laplace",
            "MechanismSpec",
            "Sensitivities",
            "Thresholdout",
            "gaussian_delta",
            "mechanism_from_dict",
        ],
    ),
    "quiltdp.inference.components": ("quiltdp.graph.components", ["ComponentClass", "component_classes"]),
    "quiltdp.inference.junction_tree": (
        "quiltdp.inference.trees",
        ["JunctionTree", "junction_tree", "plan_junction_tree"],
    ),
    "quiltdp.inference.reordered": (
        "quiltdp.inference.ancestry",
        ["Loop", "Reordered", "Step", "loop_above", "reorder"],
    ),
    "quiltdp.rounding": ("quiltdp.numbers", ["digits_up", "digits_down", "up", "down", "EPS"]),
}
RENAMED = {"MechanismSpec": "Mechanism"}


@pytest.mark.parametrize("old", OLD)
def test_the_old_address_answers_and_warns(old: str) -> None:
    new, names = OLD[old]
    for name in names:
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            found = getattr(import_module(old), name)
        assert found is getattr(import_module(new), RENAMED.get(name, name))


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        names_from("old", "quiltdp.numbers")("nonsense")


@pytest.mark.parametrize("old", OLD)
def test_nothing_inside_uses_an_old_address(old: str) -> None:
    package, _, leaf = old.rpartition(".")
    uses = re.compile(rf"\b{re.escape(old)}\b|from {re.escape(package)} import [^\n]*\b{leaf}\b")
    for path in SOURCES.rglob("*.py"):
        if path.name != "moved.py":
            assert not uses.search(path.read_text(encoding="utf-8")), path

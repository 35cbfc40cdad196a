"""The exact limit against the prior adversary."""

import numpy as np
import pytest
from prior_oracle import REFERENCE, alphas, exact_prior_limit, mendelian_family, reference_model

from quiltdp import Model
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.errors import ModelTooWide


def test_exact_limit_equals_the_reference():
    for entry in REFERENCE:
        model = reference_model(entry)
        found = exact_prior_limit(model, alphas(model, entry["dp_epsilon"]))
        limit = [entry["prior_limit"][r] for r in model.records]
        assert found == pytest.approx(limit, abs=1e-7)


def test_families():
    trio, quartet = mendelian_family(1), mendelian_family(2)
    for family, limit in ((trio, [1.81, 1.81, 2.42]), (quartet, [2.61, 2.61, 3.04, 3.04])):
        alpha = np.full(len(family.nodes), 0.1)
        assert exact_prior_limit(family, alpha) / 0.1 == pytest.approx(limit, abs=0.006)


def test_refuses_what_is_too_wide():
    model = mendelian_family(3)
    with pytest.raises(ModelTooWide, match="needs 2,430 numbers, the limit is 10"):
        ready(ExactBound, model, adversary=PRIOR, max_entries=10)


def test_a_set_that_differs_in_part_costs_that_part():
    """Two independent records of one unit: the pair that differs in both costs both, never more."""
    model = Model.from_tables({"A": ([], [0.5, 0.5]), "B": ([], [1.0, 0.0]), "C": ([], [0.2, 0.8])})
    assert exact_prior_limit(model, np.full(3, 0.5), [("A", "B")]) == pytest.approx([0.5], rel=1e-9)
    assert exact_prior_limit(model, np.full(3, 0.5), [("A", "C")]) == pytest.approx([1.0], rel=1e-9)


def test_improbable_values_are_told_apart_like_any_other():
    """The whole joint spans more than doubles do, each of its rows does not."""
    flip = [[0.9, 0.1], [0.1, 0.9]]
    rare = Model.from_tables({"A": ([], [1.0 - 1e-300, 1e-300]), "B": (["A"], flip), "C": (["B"], flip)})
    even = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], flip), "C": (["B"], flip)})
    alpha = np.full(3, 0.7)
    assert exact_prior_limit(rare, alpha)[0] == pytest.approx(exact_prior_limit(even, alpha)[0], rel=1e-9)
    large = np.full(3, 400.0)
    assert ready(ExactBound, rare, adversary=PRIOR).evaluate(large).kind == "certified bound"

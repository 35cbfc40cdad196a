"""Units, pieces, results, known records, the (ε, δ) registry and the audit: small parts by themselves."""

from __future__ import annotations

import json
import math
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant import trade_offs
from quiltdp.accountant.adversaries import INFORMED, PRIOR, adversary_in_component, check_known_records, knows
from quiltdp.accountant.audit import audit
from quiltdp.accountant.bounds.contract import APPROXIMATE, register
from quiltdp.accountant.component import assign_units, split_by_price
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.methods import automatic_stages
from quiltdp.accountant.result import Binding, Certificate, PerUnit, jsonable
from quiltdp.accountant.units import alphas, largest_unit_weight, make_units, positive_epsilon
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.graph.components import component_classes
from quiltdp.inference.marginals import condition, count_evidence, each_evidence
from quiltdp.inference.trees import junction_tree

STEP = [[0.9, 0.1], [0.2, 0.8]]
TABLES = {"A": ([], [0.6, 0.4]), "B": (["A"], STEP), "C": ([], [0.5, 0.5]), "D": (["C"], STEP)}
MODEL = qd.Model.from_tables(TABLES, records=["A", "B", "D"])


def test_alpha_is_zero_for_latents_and_one_number_or_one_per_record() -> None:
    assert alphas(MODEL, 0.5).tolist() == [0.5, 0.5, 0.0, 0.5]
    assert alphas(MODEL, {"A": 0.1, "B": 0.0, "D": 0.3}).tolist() == [0.1, 0.0, 0.0, 0.3]
    for bad in ({"A": 0.1}, {"X": 0.1}, -1.0, math.nan):
        with pytest.raises(QuiltdpError):
            alphas(MODEL, bad)


def test_the_heaviest_unit_pays_for_all_its_records() -> None:
    units = make_units(MODEL, {"family": ["A", "B"], "D": ["D"]})
    assert largest_unit_weight(units, MODEL, np.array([1.0, 0.5, 0.0, 0.25])) == pytest.approx(1.5)
    assert largest_unit_weight(make_units(MODEL), MODEL, np.array([1.0, 0.5, 0.0, 0.25])) == pytest.approx(
        1.0
    )


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, None])
def test_a_target_is_a_positive_number(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="epsilon"):
        positive_epsilon(bad, "epsilon")


def test_equal_components_whose_changes_cost_differently_are_different_classes() -> None:
    tables = {f"{n}{k}": ([f"A{k}"], STEP) if n == "B" else ([], [0.6, 0.4]) for k in range(3) for n in "AB"}
    model = qd.Model.from_tables(tables)
    half = np.array([[0.0, 0.5], [0.5, 0.0]])
    prices = {"B0": half, "B2": half}
    split = split_by_price(model, component_classes(model), prices)
    assert sorted(sorted(len(copy) for copy in one.copies) for one in split) == [[2], [2, 2]]
    profile = LeakageProfile(model, prices=prices)
    given = {tuple(sorted(c.problem.prices)) for c in profile.components}
    assert given == {(), ("B0",)}
    for component, copies in zip(profile.components, profile._copies, strict=True):
        assert len(copies) == 1 + bool(component.problem.prices)


def test_every_unit_has_one_place_in_the_whole_model() -> None:
    classes = component_classes(MODEL)
    for protect in (None, {"pair": ["A", "B"], "far": ["B", "D"]}):
        units = make_units(MODEL, protect)
        local, places = assign_units(MODEL, units, classes)
        for k, found in enumerate(classes):
            inside = local[k] or tuple((n,) for n in found.model.records if MODEL.is_record(n))
            for here, there in places[k]:
                for a, b in zip(here.tolist(), there.tolist(), strict=True):
                    whole = set(units.members[b] if units.members is not None else (units.names[b],))
                    assert set(inside[a]) <= whole
        seen = {int(b) for some in places for _, there in some for b in there}
        assert seen == set(range(len(units)))


def test_known_records_are_checked_and_follow_their_component() -> None:
    with pytest.raises(QuiltdpError, match="X"):
        check_known_records(knows("X"), MODEL)
    who = check_known_records(knows("A", "D"), MODEL)
    mine = [adversary_in_component(who, found, MODEL) for found in component_classes(MODEL)]
    named = sorted(n for adversary in mine for n in (adversary.records or ()))
    assert len(named) <= 2
    assert adversary_in_component(INFORMED, component_classes(MODEL)[0], MODEL) == INFORMED


def test_evidence_makes_the_conditional_model() -> None:
    given = condition(MODEL, {"B": 1})
    joint = np.array([0.6, 0.4])[:, None] * np.array(STEP)
    assert "B" not in given.nodes
    assert np.exp(junction_tree(given).log_marginal(["A"])) == pytest.approx(joint[:, 1] / joint[:, 1].sum())
    listed = list(each_evidence(MODEL, ["A", "B"]))
    assert len(listed) == count_evidence(MODEL, ["A", "B"]) == 1 + 2 + 2 + 4
    assert len(list(each_evidence(MODEL, ["A", "B"], 1))) == count_evidence(MODEL, ["A", "B"], 1) == 5


def test_per_unit_values_read_like_a_mapping_and_do_not_change() -> None:
    values = PerUnit(["a", "b", "c"], np.array([0.1, math.inf, 0.3]))
    assert dict(values) == {"a": 0.1, "b": math.inf, "c": 0.3}
    assert values.top(2) == [("b", math.inf), ("c", 0.3)]
    with pytest.raises(ValueError, match="read-only"):
        values.values_array[0] = 5.0
    assert json.loads(json.dumps(jsonable({"x": np.float64(1.5), "y": (np.int64(2),)}))) == {
        "x": 1.5,
        "y": [2],
    }


def test_a_certificate_survives_its_dictionary() -> None:
    certificate = Certificate("exact", "the limit", {"level": "normal"}, "exact")
    assert Certificate.from_dict(certificate.to_dict()) == certificate
    assert Binding("a", 0.5, "exact").to_dict()["unit"] == "a"


def test_delta_bounds_are_registered_once_and_hold_for_weaker_adversaries() -> None:
    informed, prior = automatic_stages(INFORMED, approximate=True), automatic_stages(PRIOR, approximate=True)
    assert {"group", "transport"} <= set(informed)
    assert set(informed) <= set(prior)
    import_module("quiltdp.accountant.bounds.approximate")  # a line's module is imported when it is reached
    with pytest.raises(ValueError, match="twice"):
        register("group", against=INFORMED, kind=APPROXIMATE, says="again")(object)


def test_an_audit_puts_every_method_between_mechanism_and_group() -> None:
    found = audit(qd.Model.from_tables({"A": ([], [0.6, 0.4]), "B": (["A"], STEP)}), 0.5)
    assert found.laplace_sum <= found.limit * (1 + 1e-9)
    values = {row.method: row.epsilon for row in found.rows if row.epsilon is not None}
    assert min(values.values()) >= found.limit * (1 - 1e-9)
    assert values["group"] == pytest.approx(1.0)


def test_every_threshold_is_used_and_says_what_it_trades() -> None:
    home = Path(trade_offs.__file__)
    text = home.read_text(encoding="utf-8")
    users = "".join(p.read_text(encoding="utf-8") for p in home.parent.rglob("*.py") if p != home)
    names = [n for n in vars(trade_offs) if n.isupper()]
    assert len(names) > 40
    for name in names:
        assert re.search(rf"\b{name}\b", users), f"{name} is used nowhere"
        assert re.search(rf"^(# .+\n{name} =|{name} = .*  # .+)", text, re.MULTILINE), (
            f"{name} is not explained"
        )

"""Every published formula on a table of values that can be checked by hand (one CSV per paper)."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import mpmath
import pytest

import quiltdp.generalization as g

HERE = Path(__file__).parent
PAPERS = ("rogers2016", "zhao2017", "wang2016", "bassily2016", "lecture18")


def nats(bound):
    return bound.nats


def step(eta, nu=1e-4):
    return g.TypicalStability(eta, 0.0, nu, reference=True)


FORMULAS = {
    "pure_dp_max_information": lambda e, n: nats(g.pure_dp_max_information(e, n)),
    "product_dp_max_information": lambda e, n, b: nats(g.product_dp_max_information(e, n, b)),
    "description_length_max_information": lambda k, b: nats(g.description_length_max_information(k, b)),
    "published_drift": g.published_drift,
    "threshold_from_mutual_information_published": lambda a, m: g.threshold_from_mutual_information(
        a, m, method="published"
    ),
    "threshold_from_mutual_information_best": lambda a, m: g.threshold_from_mutual_information(
        a, m, method="max-information"
    ),
    "threshold_from_max_information": lambda a, k, b: g.threshold_from_max_information(
        a, g.MaxInformation(k * math.log(2), b, "this law", "table")
    ),
    "bayesian_dp_published": lambda e, n, b: nats(g.bayesian_dp_max_information(e, n, b, method="published")),
    "bayesian_dp_repaired": lambda e, n, b: nats(g.bayesian_dp_max_information(e, n, b, method="repaired")),
    "bayesian_dp_sharp": lambda e, n, b: nats(g.bayesian_dp_max_information(e, n, b)),
    "published_records": g.published_records,
    "published_sigma": lambda m, t, b, c: g.published_plan(queries=m, accuracy=t, failure=b, slack=c).sigma,
    "published_threshold": lambda m, t, b, c: (
        g.published_plan(queries=m, accuracy=t, failure=b, slack=c).threshold
    ),
    "published_plan_records": lambda m, t, b, c: (
        g.published_plan(queries=m, accuracy=t, failure=b, slack=c).records_needed
    ),
    "task_dp_epsilon": lambda n, b, s: g.Task(n, 100, b, 0.05).dp_epsilon(s),
    "kl_laplace": g.kl_laplace,
    "kl_gaussian": g.kl_gaussian,
    "gap_lower": lambda i, y, n, s: g.gap_bounds_from_mutual_information(i, gamma=y, n=n, subgaussian_mean=s)[
        0
    ],
    "gap_upper": lambda i, y, n, s: g.gap_bounds_from_mutual_information(i, gamma=y, n=n, subgaussian_mean=s)[
        1
    ],
    "majority_kl": lambda n, y: g.on_average_kl(g.GibbsSampler([[0, 1], [1, 0]], y), [0.5, 0.5], n),
    "sensitive_radius": lambda d, n, p: g.sensitive_queries(d, n).radius(p),
    "subgaussian_radius": lambda s, p: g.subgaussian_queries(s).radius(p),
    "subexponential_radius": lambda s, b, p: g.subexponential_queries(s, b).radius(p),
    "laplace_scale": lambda s, e, v: g.laplace_typical(g.subgaussian_queries(s), eta=e, nu=v).scale,
    "adaptive_eta": lambda e, k, s: g.compose_typical_adaptively(step(e), k, slack=s).eta,
    "adaptive_eta_published": lambda e, k, s: (
        g.compose_typical_adaptively(step(e), k, slack=s, method="published").eta
    ),
    "adaptive_tau": lambda e, k, s: g.compose_typical_adaptively(step(e), k, slack=s).tau,
    "adaptive_tau_published": lambda e, k, s: (
        g.compose_typical_adaptively(step(e), k, slack=s, method="published").tau
    ),
    "generalization": lambda e, t, v, y: g.typical_generalization(g.TypicalStability(e, t, v), y),
    "generalization_published": lambda e, t, v, y: g.typical_generalization(
        g.TypicalStability(e, t, v), y, method="published"
    ),
    "iid_deviation": lambda e, d, n: g.iid_transfer(e, d, n)[0],
    "iid_failure": lambda e, d, n: g.iid_transfer(e, d, n)[1],
    "monitor_ceiling": g.monitor_ceiling,
    "exponential_loss": lambda k, e, s: g.exponential_mechanism_loss(k, dp_epsilon=e, sensitivity=s),
}


def rows():
    for paper in PAPERS:
        with (HERE / f"{paper}.csv").open(encoding="utf-8", newline="") as handle:
            for row in csv.DictReader(handle):
                yield pytest.param(row, id=f"{paper}-{row['formula']}-{row['arguments']}")


@pytest.mark.parametrize("row", list(rows()))
def test_formula(row):
    names = {"exp": mpmath.exp, "log": mpmath.log, "sqrt": mpmath.sqrt, "tanh": mpmath.tanh}
    by_hand = float(mpmath.mpf(eval(row["by_hand"], {"__builtins__": {}}, names)))
    value = FORMULAS[row["formula"]](*json.loads(row["arguments"]))
    assert value == pytest.approx(by_hand, rel=1e-9, abs=1e-15)
    slack = 1e-13 * abs(by_hand)
    if row["direction"] == "up":
        assert value >= by_hand - slack
    if row["direction"] == "down":
        assert value <= by_hand + slack


def test_every_formula_is_on_a_table():
    used = {row.values[0]["formula"] for row in rows()}
    assert used == set(FORMULAS)

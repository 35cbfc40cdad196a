"""Every published formula against a table typed from the printed page (one CSV per paper, see README.md)."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import mpmath
import pytest

from quiltdp.generalization import max_information, pvalues, routes
from quiltdp.mechanisms import ExponentialMechanism
from quiltdp.papers import kl_privacy, monitor, rogers, typical_stability, zhao
from quiltdp.papers.zhao import lemma4_distances, lemma4_dp_epsilon

HERE = Path(__file__).parent
PAPERS = ("rogers2016", "zhao2017", "wang2016", "bassily2016", "lecture18")
LN2 = math.log(2)


def bits(k, beta, laws="this law"):
    return max_information.MaxInformation(k * LN2, beta, laws, "table")


def typical(e=0.0, t=0.0, v=0.0, reference=False):
    return typical_stability.TypicalStability(e, t, v, reference)


def adaptive(e, k, s, v=1e-4, method="published"):
    return typical_stability.compose_typical_adaptively(typical(e, 0.0, v, True), k, slack=s, method=method)


def approximate(e, t, v, k, s):
    return typical_stability.compose_typical_adaptively_approximate(
        typical(e, t, v, True), k, slack=s, method="published"
    )


def theorem2(m, tau, beta, c, B=1):
    return zhao.published_plan(queries=m, budget=B, accuracy=tau, failure=beta, slack=c)


def n_star(B, sigma, tau, beta, a):
    return zhao.published_n_star(budget=B, sigma=sigma, accuracy=tau, failure=beta, influences=[a])


def n_sharp(B, sigma, tau, beta, N1, b1, N2, b2):
    quilts = [[(N1 + 1, b1), (N2 + 1, b2)]]
    return zhao.published_n_sharp(budget=B, sigma=sigma, accuracy=tau, failure=beta, quilts=quilts)


def theorem2_n_star(m, B, tau, beta, c):
    plan = theorem2(m, tau, beta, c, B)
    return n_star(B, plan.sigma, plan.accuracy, plan.failure, 0.0)


def gap(mutual, y, n, s, b=None):
    return kl_privacy.gap_bounds_from_mutual_information(
        mutual, gamma=y, n=n, subgaussian_mean=s, subexponential_scale=b
    )


def sharing(e, t, v, k):
    whole = typical_stability.compose_typical([typical(e, t, v)] * k)
    return whole.eta + 10 * whole.tau + 100 * whole.nu


def laplace(s, e, v):
    return typical_stability.laplace_typical(typical_stability.subgaussian_queries(s), eta=e, nu=v)


def gaussian_published(s, e, t, v):
    return typical_stability.gaussian_typical(
        typical_stability.subgaussian_queries(s), eta=e, tau=t, nu=v, method="published"
    ).scale


VOTE = [[0, 1], [1, 0]]
FORMULAS = {
    # Zhao
    "n_star": n_star,
    "n_sharp": n_sharp,
    "theorem2_sigma": lambda *v: theorem2(*v).sigma,
    "theorem2_threshold": lambda *v: theorem2(*v).threshold,
    "theorem2_least": lambda *v: theorem2(*v).least_records,
    "theorem2_n_star": theorem2_n_star,
    "lemma1_tail": lambda t, n, D: zhao.published_tail(t, n, sensitivity=D),
    "lemma1_failure": lambda tau, n, D: zhao.published_deviation(0.0, tau, n, sensitivity=D),
    "theorem3": lambda e, n, beta: (
        max_information.bayesian_dp_max_information(e, n, beta, method="published").nats
    ),
    "theorem3_repaired": lambda e, n, beta: (
        max_information.bayesian_dp_max_information(e, n, beta, method="repaired").nats
    ),
    "theorem3_sharp": lambda e, n, beta: max_information.bayesian_dp_max_information(e, n, beta).nats,
    "lemma4_d": lambda e, g, rho, c: lemma4_distances(e, gap=g, rho=rho, c=c)[0],
    "lemma4_s": lambda e, g, rho, c: lemma4_distances(e, gap=g, rho=rho, c=c)[1],
    "lemma4_h": lambda e, g, rho, c, n: lemma4_dp_epsilon(e, gap=g, rho=rho, length=n, c=c)[0],
    "algorithm1_cost": lambda n, B, sigma: routes.Task(n, 100, B, 0.05).dp_epsilon(sigma),
    # Rogers et al.
    "theorem_1_3": lambda a, k, beta: pvalues.threshold_from_max_information(a, bits(k, beta)),
    "theorem_1_4_any": lambda e, n: max_information.pure_dp_max_information(e, n).nats,
    "theorem_1_4_product": lambda e, n, beta: (
        max_information.product_dp_max_information(e, n, beta, method="published").nats
    ),
    "theorem_1_4_sharp": lambda e, n, beta: max_information.product_dp_max_information(e, n, beta).nats,
    "description_length": lambda k, beta: max_information.description_length_max_information(k, beta).nats,
    "lemma_1_5_beta": lambda m, k: max_information.max_information_from_mutual_information(m, k).beta,
    "lemma_1_5_printed": lambda k, beta, S: rogers.mutual_information_from_max_information(
        bits(k, beta), S, method="published"
    ),
    "lemma_1_5_bits": lambda k, beta, S: rogers.mutual_information_from_max_information(bits(k, beta), S),
    "claim_3_4": rogers.conditioning_failure,
    "theorem_3_1_second": lambda e, d, n: rogers.rogers_theorem(e, d, n).second,
    "printed_drift": lambda e, d, n: rogers.printed_drift(e, math.sqrt(e * d) / 15),
    "repaired_drift": lambda e, d, n: rogers.published_drift(e, math.sqrt(e * d) / 15),
    "theorem_3_1_beta": lambda e, d, n: rogers.rogers_theorem(e, d, n).beta,
    "theorem_3_1_k": lambda e, d, n: rogers.rogers_theorem(e, d, n).printed,
    "theorem_3_1_nats": lambda e, d, n: rogers.rogers_theorem(e, d, n).nats,
    "corollary_1_6": rogers.approximate_dp_mutual_information,
    "theorem_3_9_distance": lambda e, d, n: (
        rogers.printed_reconstruction(n=n, dp_epsilon=e, delta=d).distance
    ),
    "theorem_3_9_bits": lambda e, d, n: (
        rogers.printed_reconstruction(n=n, dp_epsilon=e, delta=d).published_bits
    ),
    "theorem_3_9_threshold": lambda e, d, n: (
        rogers.printed_reconstruction(n=n, dp_epsilon=e, delta=d).threshold
    ),
    "theorem_3_9_answers": lambda e, d, n: (
        rogers.printed_reconstruction(n=n, dp_epsilon=e, delta=d).answer_chance
    ),
    "theorem_3_9_needs": lambda e, d, n: rogers.printed_reconstruction(n=n, dp_epsilon=e, delta=d).needs,
    "corollary_3_10": lambda n, r, d, b: rogers.no_product_bound(
        n=n, published_bits=r, delta=d, beta_first=b
    ),
    "lemma_a_6": lambda e, d: rogers.pointwise_parameters(e, d)[1],
    "lemma_a_7": rogers.conditioning_failure,
    "lemma_b_1": rogers.p_value_sensitivity,
    "theorem_b_2_deviation": lambda e, d, n, D: rogers.sensitive_query_transfer(e, d, n, sensitivity=D)[0],
    "theorem_b_2_failure": lambda e, d, n, D: rogers.sensitive_query_transfer(e, d, n, sensitivity=D)[1],
    "corollary_c_2": lambda a, m: pvalues.threshold_from_mutual_information(a, m, method="published"),
    "corollary_c_2_best": lambda a, m: pvalues.threshold_from_mutual_information(
        a, m, method="max-information"
    ),
    "theorem_d_1": lambda e, d, n, C: rogers.approximate_dp_transfer(e, d, n, factor=C),
    # Wang, Lei and Fienberg
    "kl_laplace": kl_privacy.kl_laplace,
    "kl_gaussian": kl_privacy.kl_gaussian,
    "remark_3": lambda B, y: kl_privacy.GibbsSampler([[B, -B], [-B, B]], y).dp_epsilon(),
    "lemma_11": lambda k, n: kl_privacy.kl_privacy_from_max_information(
        max_information.MaxInformation(k, 0.0, "every law", "table"), n
    ),
    "corollary_15_below": lambda *v: gap(*v)[0],
    "corollary_15_above": lambda *v: gap(*v)[1],
    "corollary_15_subexponential": lambda *v: gap(*v)[1],
    "majority_kl": lambda n, y: kl_privacy.on_average_kl(kl_privacy.GibbsSampler(VOTE, y), [0.5, 0.5], n),
    "conditional_entropy": lambda y: kl_privacy.conditional_entropy(
        kl_privacy.GibbsSampler(VOTE, y), [0.5, 0.5], 1
    ),
    # Bassily and Freund
    "lemma_2_5": sharing,
    "pairs_tau": lambda e, t, v: typical(e, t, v, True).as_pairs().tau,
    "sensitive_radius": lambda D, n, p: typical_stability.sensitive_queries(D, n).radius(p),
    "subgaussian_radius": lambda s, p: typical_stability.subgaussian_queries(s).radius(p),
    "subexponential_radius": lambda s, b, p: typical_stability.subexponential_queries(s, b).radius(p),
    "lemma_2_6": lambda e, t, v, p: typical_stability.near_independence(typical(e, t, v), p),
    "theorem_2_7": lambda e, t, v, y: typical_stability.typical_generalization(
        typical(e, t, v), y, method="published"
    ),
    "theorem_2_7_sharp": lambda e, t, v, y: typical_stability.typical_generalization(typical(e, t, v), y),
    "theorem_3_2_eta": lambda e, k, s: adaptive(e, k, s).eta,
    "theorem_3_2_tau": lambda e, s, v: adaptive(e, 2, s, v).tau,
    "theorem_3_2_eta_sharp": lambda e, k, s: adaptive(e, k, s, method="sharp").eta,
    "theorem_3_2_tau_sharp": lambda e, s, v: adaptive(e, 2, s, v, method="sharp").tau,
    "theorem_3_8_eta": lambda e, t, v, k, s: approximate(e, t, v, k, s).eta,
    "theorem_3_8_tau": lambda e, t, v, s: approximate(e, t, v, 2, s).tau,
    "theorem_4_1": lambda s, e, v: laplace(s, e, v).scale,
    "theorem_4_2": lambda s, e, v, b: laplace(s, e, v).error(b),
    "theorem_4_3": gaussian_published,
    "theorem_4_4": lambda a, e, t, b: typical_stability.published_gaussian_error(a, eta=e, tau=t, failure=b),
    # the lecture
    "theorem_0_1": lambda k, e, D, b: ExponentialMechanism(D, e).regret(k, b),
    "theorem_0_1_mean": lambda k, e, D: monitor.exponential_mechanism_loss(k, dp_epsilon=e, sensitivity=D),
    "theorem_0_2_deviation": lambda e, d, n: monitor.iid_transfer(e, d, n)[0],
    "theorem_0_2_failure": lambda e, d, n: monitor.iid_transfer(e, d, n)[1],
    "lemma_0_4": monitor.monitor_ceiling,
}
NAMES = {
    **{name: getattr(mpmath, name) for name in ("exp", "log", "sqrt", "tanh", "ceil", "mpf")},
    "min": min,
    "max": max,
}
ROUNDED_TO_A_GRID = {"theorem_0_1"}


def rows():
    for paper in PAPERS:
        with (HERE / f"{paper}.csv").open(encoding="utf-8", newline="") as handle:
            for row in csv.DictReader(handle):
                yield pytest.param(row, id=f"{paper}-{row['formula']}-{row['values']}")


@pytest.mark.parametrize("row", list(rows()))
def test_formula(row):
    values = json.loads(row["values"])
    exact = {name: mpmath.mpf(value) for name, value in values.items()}
    with mpmath.workdps(40):
        names = {**NAMES, "log2e": 1 / mpmath.log(2), **exact}
        by_hand = float(mpmath.mpf(eval(row["printed"], {"__builtins__": {}}, names)))
    value = FORMULAS[row["formula"]](*values.values())
    tolerance = 1e-5 if row["formula"] in ROUNDED_TO_A_GRID else 1e-9
    assert value == pytest.approx(by_hand, rel=tolerance, abs=1e-15)
    slack = 1e-13 * abs(by_hand)
    if row["direction"] == "up":
        assert value >= by_hand - slack
    if row["direction"] == "down":
        assert value <= by_hand + slack


def test_every_formula_is_on_a_table():
    used = {row.values[0]["formula"] for row in rows()}
    assert used == set(FORMULAS)


def test_every_row_says_where_it_was_read():
    for row in rows():
        assert row.values[0]["status"] in ("printed", "repaired")
        assert row.values[0]["source"]

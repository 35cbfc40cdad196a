"""The Markov Quilt Mechanism authors' own printed noise, reproduced and beaten.

``mqm_binary_T100_eps1.csv`` holds the noise per unit sensitivity that the authors' program prints for
stationary binary chains of length 100 at ε = 1.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.chain import ChainModel
from quiltdp.errors import NoCertificate

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "mqm_binary_T100_eps1.csv"


def cases() -> list[dict[str, float]]:
    with REFERENCE.open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def chain(case: dict[str, float]) -> ChainModel:
    p01, p11 = case["p01"], case["p11"]
    return qd.markov_chain([[1 - p01, p01], [1 - p11, p11]], 100)


def noise(case: dict[str, float], epsilon: float = 1.0, **options: str) -> float:
    return 1 / qd.dp_epsilon(chain(case), epsilon, **options)


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c['p01']}-{c['p11']}")
def test_their_numbers_are_reproduced(case: dict[str, float]) -> None:
    assert noise(case, method="published", adversary="prior") == pytest.approx(case["mqm_exact"], rel=1e-3)
    approx = noise(case, method="mqm-approx", adversary="prior")
    assert approx == pytest.approx(case["mqm_approx"], rel=1e-3)
    if math.isnan(case["gk16"]):
        with pytest.raises(NoCertificate):
            noise(case, method="gk16", adversary="prior")
    else:
        assert noise(case, method="gk16", adversary="prior") == pytest.approx(case["gk16"], rel=1e-3)


@pytest.mark.parametrize("case", cases()[::6], ids=lambda c: f"{c['p01']}-{c['p11']}")
def test_our_prior_noise_is_never_above_theirs(case: dict[str, float]) -> None:
    assert noise(case, adversary="prior") <= case["mqm_exact"] * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 2.5), (0.2, 4.0)])
def test_informed_noise_is_lower_although_the_adversary_is_stronger(epsilon: float, least: float) -> None:
    ratios = [
        noise(case, epsilon, method="published", adversary="prior") / noise(case, epsilon)
        for case in cases()[::3]
    ]
    assert np.median(ratios) >= least

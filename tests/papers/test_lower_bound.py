"""The construction behind the order rule: a short description, then a private step, reveal everything."""

from __future__ import annotations

import importlib.util
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from quiltdp.errors import InvalidArgument
from quiltdp.papers.rogers import no_product_bound, printed_reconstruction

pytest.importorskip("galois")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reconstruction.py"
SPEC = importlib.util.spec_from_file_location("reconstruction", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
module = importlib.util.module_from_spec(SPEC)
sys.modules["reconstruction"] = module
SPEC.loader.exec_module(module)
reconstruction = module.reconstruction


@pytest.fixture(scope="module")
def attack():
    return reconstruction(n=63, dp_epsilon=1.0, delta=0.1)


def release_probability(attack, distance, point):
    """P[step 2 answers] exactly: Lap(1/ε) ≤ threshold − distance."""
    if point is None:
        return 0.0
    gap = (attack.threshold - distance) * attack.dp_epsilon
    return 1 - 0.5 * math.exp(-gap) if gap >= 0 else 0.5 * math.exp(gap)


def test_both_steps_together_return_the_dataset(attack):
    rng = np.random.default_rng(39)
    assert attack.published_bits <= attack.corrects * 6  # t log₂(n + 1)
    assert attack.published_bits < attack.n / 2
    hits = 0
    for _ in range(60):
        data = rng.integers(0, 2, attack.n).astype(np.uint8)
        answer = attack.answer(data, attack.describe(data), rng=rng)
        hits += answer is not None and bool((answer == data).all())
    assert hits / 60 > attack.success_probability() - 0.15
    assert attack.success_probability() >= 1 - attack.delta


def test_second_step_is_private(attack):
    """Exact output laws of neighbours, from the coset's own point out to where decoding fails."""
    rng = np.random.default_rng(40)
    grow = math.exp(attack.dp_epsilon)
    for _ in range(4):
        data = rng.integers(0, 2, attack.n).astype(np.uint8)
        described = attack.describe(data)
        order = rng.permutation(attack.n)
        here = data.copy()
        laws = [attack._nearest(here, described)]
        for k in order[: 2 * attack.corrects + 3]:
            here = here.copy()
            here[k] ^= 1
            laws.append(attack._nearest(here, described))
        assert laws[0][0] == 0
        for (d, p), (e, q) in pairwise(laws):
            assert abs(d - e) <= 1
            first, second = release_probability(attack, d, p), release_probability(attack, e, q)
            same = p is not None and q is not None and bool((p == q).all())
            for a, b in ((first, second), (second, first)):
                # named point: compare with the neighbour's chance of naming the same point
                assert a <= grow * (b if same else 0.0) + attack.delta + 1e-12
                assert (1 - a) <= grow * (1 - b) + attack.delta + 1e-12


@pytest.mark.slow
def test_adding_the_bounds_would_be_wrong():
    """Description length + the product-data bound of the second step stay below the n bits revealed."""
    big = reconstruction(n=4095, dp_epsilon=0.5, delta=1e-16)
    rng = np.random.default_rng(41)
    data = rng.integers(0, 2, big.n).astype(np.uint8)
    answer = big.answer(data, big.describe(data), rng=rng)
    assert answer is not None
    assert (answer == data).all()
    assert big.separate_bits(0.1) < 0.7 * big.revealed_bits(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 64, "dp_epsilon": 1.0, "delta": 0.1}, "2\\^m"),
        ({"n": 63, "dp_epsilon": 0.0, "delta": 0.1}, "dp_epsilon"),
        ({"n": 63, "dp_epsilon": 1.0, "delta": 0.6}, "delta"),
        ({"n": 63, "dp_epsilon": 0.01, "delta": 1e-9}, "more records"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(InvalidArgument, match=words):
        reconstruction(**options)


def test_data_must_be_bits(attack):
    with pytest.raises(InvalidArgument, match="63 bits"):
        attack.describe(np.zeros(10, dtype=np.uint8))


def test_second_step_alone_says_little(attack):
    """Theorem 3.9(2): on uniform data and a fixed description it hardly ever answers; exact and sampled."""
    rng = np.random.default_rng(42)
    described = attack.describe(rng.integers(0, 2, attack.n).astype(np.uint8))
    chance = attack.answer_chance_alone()
    answered = 0.0
    for _ in range(200):
        data = rng.integers(0, 2, attack.n).astype(np.uint8)
        distance, point = attack._nearest(data, described)
        answered += release_probability(attack, distance, point)
    assert answered / 200 == pytest.approx(chance, abs=0.02)
    bits, beta = attack.alone_bits()
    assert beta == chance
    assert bits == pytest.approx(-math.log2(1 - chance))
    assert attack.revealed_bits(0.01) > 50 * max(bits, 0.01)


def test_no_bound_for_all_laws(attack):
    """Corollary 3.10 with the code's own description length, and its range."""
    found = no_product_bound(
        n=attack.n, published_bits=attack.published_bits, delta=attack.delta, beta_first=0.1
    )
    assert found == pytest.approx(attack.n - 1 - attack.published_bits - math.log2(10))
    with pytest.raises(InvalidArgument, match="beta_first"):
        no_product_bound(n=63, published_bits=10, delta=0.1, beta_first=0.4)
    with pytest.raises(InvalidArgument, match="δ ≤ ¼"):
        printed_reconstruction(n=63, dp_epsilon=0.6, delta=0.1)

"""Chains and the prior adversary: the recursion, the published mechanism and its comparisons."""

import csv
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from quiltdp import markov_chain
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.chain_contraction import ContractionBound
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.mqm_chain import MarkovQuiltChainBound
from quiltdp.errors import InvalidArgument
from quiltdp.papers.comparisons import GK16Bound, MarkovQuiltApproxBound

REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "mqm_binary_T100_eps1.csv"
ROWS = list(csv.DictReader(REFERENCE.open()))


def scalar(chain, units=None):
    """The scalar recursion against the prior adversary."""
    return ready(ContractionBound, chain, units, adversary=PRIOR)


def noise(bound, n, epsilon=1.0):
    low, high = 0.0, epsilon
    for _ in range(34):
        middle = (low + high) / 2
        if bound.evaluate(np.full(n, middle)).values.max() <= epsilon:
            low = middle
        else:
            high = middle
    return 1 / low if low > 1e-9 else np.inf


@pytest.mark.parametrize("row", ROWS[::8], ids=lambda r: f"{r['p01']},{r['p11']}")
def test_reproduces_the_authors_program(row):
    a, b = float(row["p01"]), float(row["p11"])
    chain = markov_chain([[1 - a, a], [1 - b, b]], length=100)
    exact = noise(ready(MarkovQuiltChainBound, chain), 100)
    assert exact == pytest.approx(float(row["mqm_exact"]), rel=1e-6)
    assert noise(ready(MarkovQuiltApproxBound, chain), 100) == pytest.approx(
        float(row["mqm_approx"]), rel=1e-6
    )
    gk16 = noise(ready(GK16Bound, chain), 100)
    assert np.isinf(gk16) if row["gk16"] == "NaN" else gk16 == pytest.approx(float(row["gk16"]), rel=1e-6)
    assert noise(scalar(chain), 100) <= exact


def test_never_noisier_than_the_published_mechanism():
    for row in ROWS:
        a, b = float(row["p01"]), float(row["p11"])
        chain = markov_chain([[1 - a, a], [1 - b, b]], length=100)
        alpha = np.full(100, 1 / float(row["mqm_exact"]))
        assert scalar(chain).evaluate(alpha).values.max() <= 1.0


def test_quick_number():
    chain = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    assert noise(scalar(chain), 100) == pytest.approx(8.64, abs=0.005)


def attained(model, alpha, unit):
    """The leakage of the best of some mechanisms that answer every record separately."""
    names = list(model.nodes)
    shape = [len(model.states[n]) for n in names]
    joint = np.ones(shape)
    for f in model.factors:
        axes = [names.index(n) for n in f.scope]
        table = f.table.transpose(np.argsort(axes))
        joint = joint * table.reshape([shape[k] if k in axes else 1 for k in range(len(names))])
    rest = tuple(k for k, n in enumerate(names) if n not in unit)
    law = joint.sum(axis=rest)
    worst = 0.0
    for favourite in product(*[range(s) for s in shape]):
        weight = np.ones(shape)
        for k, s in enumerate(favourite):
            factor = np.ones(shape[k])
            factor[s] = np.exp(alpha[k])
            weight = weight * factor.reshape([-1 if j == k else 1 for j in range(len(names))])
        ratio = (joint * weight).sum(axis=rest)[law > 0] / law[law > 0]
        worst = max(worst, float(np.log(ratio.max() / ratio.min())))
    return worst


def random_chain(seed):
    rng = np.random.default_rng(seed)
    n, kind = int(rng.integers(2, 6)), seed % 4
    size = 2 if kind == 3 else 3
    matrices = [rng.dirichlet(np.full(size, 0.4), size) for _ in range(n - 1)]
    if kind == 0:
        return markov_chain(matrices[0], length=n)
    if kind == 1:
        return markov_chain(matrices[0], length=n, initial=[0.7, 0.3, 0.0])
    return markov_chain(matrices, initial=[0.5, 0.25, 0.25] if kind == 2 else [0.9, 0.1])


@pytest.mark.parametrize("seed", range(12))
def test_never_below_what_a_mechanism_attains(seed):
    chain = random_chain(seed)
    n = len(chain.nodes)
    alpha = np.random.default_rng(seed).choice([0.0, 0.1, 1.0, 2.0], n) if seed % 2 else np.full(n, 0.5)
    alone = scalar(chain).evaluate(alpha).values
    published = ready(MarkovQuiltChainBound, chain).evaluate(alpha).values
    for k, node in enumerate(chain.nodes):
        truth = attained(chain, alpha, (node,))
        assert alone[k] >= truth
        assert published[k] >= truth
    windows = [tuple(chain.nodes[k : k + 2]) for k in range(n - 1)]
    for bound in (scalar(chain, windows), ready(MarkovQuiltChainBound, chain, windows)):
        found = bound.evaluate(alpha).values
        for k, unit in enumerate(windows):
            assert found[k] >= attained(chain, alpha, unit)


def test_the_gaps_of_a_set_count_as_its_own():
    chain = markov_chain([[0.8, 0.2], [0.3, 0.7]], length=5)
    units = [("X0", "X2"), ("X0", "X1", "X2"), ("X1", "X4"), ("X1", "X2", "X3", "X4")]
    found = scalar(chain, units).evaluate(np.full(5, 0.3)).values
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    assert found[2] == pytest.approx(found[3], abs=1e-12)


@pytest.mark.slow
def test_a_million_steps_of_fifty_states():
    rng = np.random.default_rng(3)
    p = 0.8 * np.eye(50) + 0.2 * rng.dirichlet(np.ones(50), 50)
    long = scalar(markov_chain(p, length=1_000_000)).evaluate(np.full(1_000_000, 0.02)).values
    assert long[500_000] == pytest.approx(long.max())


def test_the_fixed_point_agrees_with_walking():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    walked = scalar(markov_chain(p, length=390)).evaluate(np.full(390, 0.05)).values
    long = scalar(markov_chain(p, length=100_000)).evaluate(np.full(100_000, 0.05)).values
    assert long.max() == pytest.approx(walked.max(), rel=1e-7)
    assert long.max() >= walked.max()
    assert long[:100] == pytest.approx(walked[:100], rel=1e-6)


def test_other_initial_laws_settle_on_the_stationary_answer():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    alpha = np.full(5000, 0.05)
    still = scalar(markov_chain(p, length=5000)).evaluate(alpha).values
    moving = scalar(markov_chain(p, length=5000, initial=[0.99, 0.01])).evaluate(alpha).values
    assert moving[1000:] == pytest.approx(still[1000:], rel=1e-6)


def test_a_chain_of_copies_is_group_privacy():
    periodic = markov_chain([[0.0, 1.0], [1.0, 0.0]], length=30_000, initial=[0.9, 0.1])
    value = scalar(periodic).evaluate(np.full(30_000, 1e-4)).values
    assert np.all(value >= 3.0 - 1e-9)


def test_unequal_alpha_on_a_long_chain():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    alpha = np.full(2000, 0.05)
    alpha[::2] = 0.01
    long = scalar(markov_chain(p, length=2000)).evaluate(alpha).values
    short = scalar(markov_chain(p, length=1000)).evaluate(alpha[:1000]).values
    middle = slice(400, 600)
    assert np.all(long[middle] >= short[middle] * (1 - 1e-9))
    assert np.all(long[middle] <= short[middle] * 1.01)


def test_comparisons_refuse_other_chains():
    p, q = [[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.1, 0.9]]
    other = markov_chain([p, q, p], initial=[0.5, 0.5])
    with pytest.raises(InvalidArgument, match="homogeneous"):
        ready(MarkovQuiltApproxBound, other)
    with pytest.raises(InvalidArgument, match="homogeneous"):
        ready(GK16Bound, other)
    cyclic = markov_chain([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]], length=5)
    with pytest.raises(InvalidArgument, match="reversible"):
        ready(MarkovQuiltApproxBound, cyclic)

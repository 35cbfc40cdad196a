"""K(p, q; d): closed forms and transport against the linear program itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.accountant.leakage.kernel import closed_kernel
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.accountant.leakage.transport import transport, uniform_transport


def problems(rng, count, n, zeros, scale):
    laws = []
    for _ in range(2):
        p = rng.dirichlet(np.full(n, 0.5), count)
        if zeros:
            p = p * (rng.random(p.shape) < 0.6)
            p[p.sum(axis=1) == 0] = 1.0
            p /= p.sum(axis=1, keepdims=True)
        laws.append(p)
    place = rng.random((count, n, 3)) * scale
    return laws[0], laws[1], np.abs(place[:, :, None] - place[:, None]).sum(axis=-1)


def primal(p, q, d):
    """The linear-fractional program itself: H on sources, G on sinks, every pair a constraint."""
    from scipy.optimize import linprog

    n, m = d.shape
    rows = np.zeros((n * m, n + m))
    one, two = np.divmod(np.arange(n * m), m)
    rows[np.arange(n * m), one], rows[np.arange(n * m), n + two] = np.exp(-d.ravel()), -1.0
    cost, total = np.append(-p, np.zeros(m)), np.append(np.zeros(n), q)
    answer = linprog(cost, A_ub=rows, b_ub=np.zeros(n * m), A_eq=total[None], b_eq=[1.0])
    return float(np.log(-answer.fun))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("zeros", [False, True])
def test_matches_the_primal_program(n, zeros):
    rng = np.random.default_rng(n)
    p, q, d = problems(rng, 20, n, zeros, 1.0)
    found = transport(p, q, d)
    for k in range(len(p)):
        rows, columns = np.flatnonzero(p[k]), np.flatnonzero(q[k])
        true = primal(p[k][rows], q[k][columns], d[k][np.ix_(rows, columns)])
        assert found[k] == pytest.approx(true, abs=1e-7)


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 6), (6, 3), (1, 4), (4, 1)])
def test_different_sources_and_sinks(shape):
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(shape[0]), 30), rng.dirichlet(np.ones(shape[1]), 30)
    d = rng.random((30, *shape)) * 3
    expected = [primal(*problem) for problem in zip(p, q, d, strict=True)]
    assert transport(p, q, d) == pytest.approx(expected, abs=1e-7)
    if min(shape) <= 3:
        closed = closed_kernel(list(p.T), list(q.T), np.ascontiguousarray(d.transpose(1, 2, 0)))
        assert closed == pytest.approx(expected, abs=1e-7)


def test_ceilings_where_the_effort_is_bounded():
    rng = np.random.default_rng(2)
    p, q, d = problems(rng, 50, 5, True, 2.0)
    assert np.all(transport(p, q, d, effort=1.0) >= transport(p, q, d) - 1e-12)


@given(st.integers(2, 6), st.floats(0.01, 5), st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_uniform_distance_is_the_threshold_form(n, o, seed, zeros):
    rng = np.random.default_rng(seed)
    p, q, _ = problems(rng, 4, n, zeros, 1.0)
    d = np.broadcast_to(o * (1 - np.eye(n)), (4, n, n))
    expected = transport(p, q, d)
    assert uniform_transport(p, q, np.full(4, o)) == pytest.approx(expected, abs=1e-7)
    rows = np.stack([p[0], q[0]])
    both = max(transport(p[:1], q[:1], d[:1])[0], transport(q[:1], p[:1], d[:1])[0])
    assert ThresholdCurve(rows)(o) == pytest.approx(both, abs=1e-7)


def test_rounded_up_against_many_digits():
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(5)
    with mpmath.workdps(60):
        for _ in range(200):
            p, q = rng.dirichlet([0.3, 0.3]), rng.dirichlet([0.3, 0.3])
            o = float(rng.random() * 4)
            gain = mpmath.expm1(mpmath.mpf(o))
            sums = [mpmath.mpf(float(p[0])) + float(p[1]), mpmath.mpf(float(q[0])) + float(q[1])]
            true = max(
                mpmath.log((float(p[t]) * gain + sums[0]) / (float(q[t]) * gain + sums[1])) for t in (0, 1)
            )
            d = np.array([[[0.0, o], [o, 0.0]]])
            assert transport(p[None], q[None], d)[0] >= true
            assert uniform_transport(p[None], q[None], np.array([o]))[0] >= true
            assert ThresholdCurve(np.stack([p, q]))(o) >= true


def test_equal_laws_and_no_distance_leak_nothing():
    p = np.array([[0.2, 0.3, 0.5]])
    d = np.array([1.0 - np.eye(3)])
    assert transport(p, p, d)[0] < 1e-13
    assert transport(p, p[:, ::-1], 0 * d)[0] == 0.0
    assert transport(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3, 3))).shape == (0,)


def test_huge_distances_stay_finite_and_sound():
    p, q = np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
    for o in (150.0, 250.0, 1e6):
        d = np.array([[[0.0, o], [o, 0.0]]])
        assert np.log(2) <= transport(p, q, d)[0] <= np.log(2) + 1e-9


def test_nan_is_an_error():
    with pytest.raises(ValueError, match="costs must be"):
        transport(np.ones((1, 1)), np.ones((1, 1)), np.full((1, 1, 1), np.nan))

"""Lossy transport against its own program in 50 digits: every spanning tree of ties, one by one."""

import itertools
from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf

from quiltdp.accountant.bounds.transport import transport, uniform_transport

mp.dps = 50


@cache
def spanning_trees(n, m):
    """All spanning trees of the complete bipartite graph, each in an order that grows from source 0."""
    found = []
    for edges in itertools.combinations(itertools.product(range(n), range(m)), n + m - 1):
        reached, order, left = {0}, [], list(edges)
        while left:
            grown = [e for e in left if (e[0] in reached) != (e[1] + n in reached)]
            if not grown:
                break
            order.append(grown[0])
            reached |= {grown[0][0], grown[0][1] + n}
            left.remove(grown[0])
        if len(reached) == n + m:
            found.append(tuple(order))
    return found


def exact(p, q, d):
    """T to 50 digits: the largest Σ p H / Σ q G over the feasible vertices of the primal."""
    sources, sinks = np.flatnonzero(p), np.flatnonzero(q)
    p, q = [mpf(float(p[i])) for i in sources], [mpf(float(q[j])) for j in sinks]
    e = [[mp.exp(mpf(float(d[i, j]))) for j in sinks] for i in sources]
    best = mpf(0)
    for tree in spanning_trees(len(p), len(q)):
        h, g = {0: mpf(1)}, {}
        for i, j in tree:
            if i in h:
                g[j] = h[i] / e[i][j]
            else:
                h[i] = g[j] * e[i][j]
        room = 1 + mpf(10) ** -40
        if all(h[i] <= e[i][j] * g[j] * room for i in h for j in g):
            ratio = sum(p[i] * h[i] for i in h) / sum(q[j] * g[j] for j in g)
            best = max(best, ratio)
    return mp.log(best)


def laws(rng, count, size, depth):
    """Random laws: some with masses down to 10^-depth, some with impossible states."""
    raw = rng.dirichlet(np.full(size, 0.5), count)
    raw *= 10.0 ** -(rng.integers(0, 2, raw.shape) * rng.random(raw.shape) * depth)
    raw[(rng.random(raw.shape) < 0.15) & (np.arange(size) > 0)] = 0.0
    return raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("n", "m", "count"), [(1, 3, 20), (2, 2, 150), (3, 1, 20), (3, 2, 40), (2, 3, 40), (3, 3, 60), (4, 3, 6)]
)
@pytest.mark.parametrize("depth", [0, 14, 25])
def test_it_is_the_exact_maximum_and_never_below_it(n, m, count, depth):
    rng = np.random.default_rng(100 * n + 10 * m + depth)
    p, q = laws(rng, count, n, depth), laws(rng, count, m, depth)
    d = rng.choice([0.1, 1.0, 6.0], count)[:, None, None] * rng.integers(0, 4, (count, n, m))
    d = np.where(rng.random(count)[:, None, None] < 0.5, d, d * rng.random(d.shape))
    found = transport(p, q, d)
    for k in range(count):
        true = exact(p[k], q[k], d[k]) + mp.log(sum(map(mpf, q[k].tolist())))
        true -= mp.log(sum(map(mpf, p[k].tolist())))  # doubles sum to 1 only nearly
        assert mpf(float(found[k])) >= max(true, 0) - mpf(10) ** -15 * (1 + abs(true))
        assert float(found[k]) <= max(float(true), 0.0) + 2e-11 * (1 + d[k].max())


def test_small_masses_stay_sharp():
    p = np.array([[0.107, 1.8e-12, 0.893, 9.7e-15]])
    q = np.array([[3.7e-4, 1.1e-15, 0.9996, 1.8e-15]])
    apart = 1.0 - np.eye(4)
    assert transport(p, q, 3.0 * apart[None])[0] == pytest.approx(1.105, abs=1e-3)
    uneven = np.array(
        [[[0.0, 3.0, 2.9, 3.0], [3.0, 0.1, 3.0, 3.0], [3.0, 2.8, 0.0, 3.0], [2.7, 3.0, 3.0, 0.0]]]
    )
    assert transport(p / p.sum(), q / q.sum(), uneven)[0] < 1.12


def test_unmet_demand_is_priced():
    """A mass of 5e-10 that has nowhere to stay is worth 2.66 at a cost of 24, not nothing."""
    p, q = np.array([[1 - 5e-10, 5e-10]]), np.array([[1.0, 0.0]])
    value = transport(p, q, 24.0 * (1.0 - np.eye(2))[None])[0]
    assert value == pytest.approx(np.log(1 - 5e-10 + 5e-10 * np.exp(24.0)), rel=1e-12)


def test_edges_of_the_domain():
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    assert transport(p, p, 1.0 - np.eye(3)[None].repeat(2, 0)).tolist() == [0.0, 0.0]
    assert transport(p, p[::-1], np.zeros((2, 3, 3))).tolist() == [0.0, 0.0]
    assert len(transport(p[:0], p[:0], np.zeros((0, 3, 3)))) == 0
    far = transport(p, p[::-1], 1e4 * (1.0 - np.eye(3))[None].repeat(2, 0))
    assert far[0] == pytest.approx(np.log(0.5 / 0.2), rel=1e-9)
    assert far[1] == 1e4
    with pytest.raises(ValueError, match="costs must be"):
        transport(p, p, np.full((2, 3, 3), np.nan))


@pytest.mark.parametrize("n", [4, 6, 12, 30])
def test_larger_problems_agree_with_a_linear_program(n):
    from scipy.optimize import linprog

    rng = np.random.default_rng(n)
    for _ in range(6):
        p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
        d = rng.choice([0.2, 2.0]) * (1.0 - np.eye(n) + rng.integers(0, 3, (n, n)))
        system = np.zeros((n * n, 2 * n))
        one, two = np.divmod(np.arange(n * n), n)
        system[np.arange(n * n), one] = np.exp(-d.ravel())
        system[np.arange(n * n), two + n] = -1.0
        cost, total = np.append(-p, np.zeros(n)), np.append(np.zeros(n), q)
        answer = linprog(cost, A_ub=system, b_ub=np.zeros(n * n), A_eq=total[None], b_eq=[1.0])
        assert transport(p[None], q[None], d[None])[0] == pytest.approx(np.log(-answer.fun), abs=1e-7)


def test_uniform_costs_have_a_closed_form():
    rng = np.random.default_rng(3)
    p, q = laws(rng, 40, 5, 6), laws(rng, 40, 5, 6)
    o = 4.0 * rng.random(40)
    value = transport(p, q, o[:, None, None] * (1.0 - np.eye(5)))
    assert value == pytest.approx(uniform_transport(p, q, o), abs=1e-9)


def test_the_closed_form_is_rounded_up_to_the_last_bit():
    """Any feasible H and G is below T: with two sinks, G tied to one source and the largest H it allows."""
    rng = np.random.default_rng(24)
    p, q = rng.dirichlet([1.0, 1.0], 200), rng.dirichlet([1.0, 1.0], 200)
    d = rng.random((200, 2, 2))
    for a, b, cost, found in zip(p, q, d, transport(p, q, d), strict=True):
        e = [[mp.exp(mpf(float(c))) for c in row] for row in cost]
        below = (
            sum(mpf(float(a[i])) * min(e[i][j] / e[x][j] for j in range(2)) for i in range(2))
            / sum(mpf(float(b[j])) / e[x][j] for j in range(2))
            for x in range(2)
        )
        assert mpf(float(found)) >= min(mp.log(max(below)), mpf(float(cost.max())))


def test_threshold_sets_are_rounded_up_to_the_last_bit():
    """H is e^o on some set and 1 elsewhere: none of them is above the closed form."""
    rng = np.random.default_rng(24)
    p, q = laws(rng, 300, 3, 1), laws(rng, 300, 3, 1)
    o = rng.choice([1e-3, 0.3, 2.0, 30.0, 300.0], 300)
    sets = list(itertools.product([False, True], repeat=3))
    for a, b, cost, found in zip(p, q, o, uniform_transport(p, q, o), strict=True):
        first, second = ([mpf(float(v)) / sum(map(mpf, map(float, law))) for v in law] for law in (a, b))
        high = mp.exp(mpf(float(cost)))
        ratios = (
            sum(v * (high if s else 1) for v, s in zip(first, chosen, strict=True))
            / sum(v * (high if s else 1) for v, s in zip(second, chosen, strict=True))
            for chosen in sets
        )
        assert mpf(float(found)) >= mp.log(max(ratios))

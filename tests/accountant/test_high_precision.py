"""Certified values are never below the true ones: a twin in 50 digits, on models of binary records.

For binary records with equal α the worst likelihoods are e^{αh} with integer height functions h, so
the limit is a maximum over finitely many exact expressions; mpmath evaluates them from the tables'
own doubles, and every bound of both adversaries must lie at or above that, without any tolerance.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.methods import available_methods
from quiltdp.errors import QuiltdpError

mpmath.mp.dps = 50


def heights(count: int) -> list[dict[tuple[int, ...], int]]:
    """All functions on {0,1}^count whose neighbours differ by exactly one, with h(0…0) = 0."""
    points = list(itertools.product((0, 1), repeat=count))
    found = []
    for values in itertools.product(range(-count, count + 1), repeat=len(points) - 1):
        h = dict(zip(points, (0, *values), strict=True))
        near = ((a, b) for a, b in itertools.combinations(points, 2) if sum(map(int.__ne__, a, b)) == 1)
        if all(abs(h[a] - h[b]) == 1 for a, b in near):
            found.append(h)
    return found


HEIGHTS = {count: heights(count) for count in (0, 1, 2)}


def true_limit(model: qd.Model, alpha: float, adversary: str) -> dict[str, mpmath.mpf]:
    """The limit of every record, in 50 digits."""
    nodes = list(model.nodes)
    joint = {}
    for x in itertools.product((0, 1), repeat=len(nodes)):
        weight = mpmath.mpf(1)
        for f in model.factors:
            weight *= mpmath.mpf(float(f.table[tuple(x[nodes.index(n)] for n in f.scope)]))
        joint[x] = weight
    limits = {}
    for i, node in enumerate(nodes):
        others = [k for k in range(len(nodes)) if k != i]
        best = mpmath.mpf(0)
        sizes = range(len(others) + 1) if adversary == "informed" else [0]
        for known in itertools.chain(*(itertools.combinations(others, s) for s in sizes)):
            unknown = [k for k in others if k not in known]
            for values in itertools.product((0, 1), repeat=len(known)):
                laws = []
                for v in (0, 1):
                    law = {}
                    for u in itertools.product((0, 1), repeat=len(unknown)):
                        x = dict([(i, v), *zip(known, values, strict=True), *zip(unknown, u, strict=True)])
                        law[u] = joint[tuple(x[k] for k in range(len(nodes)))]
                    laws.append((law, sum(law.values())))
                if any(total == 0 for _, total in laws):
                    continue
                for (p, tp), (q, tq) in itertools.permutations(laws, 2):
                    for h in HEIGHTS[len(unknown)]:
                        grown = {u: mpmath.exp(mpmath.mpf(alpha) * k) for u, k in h.items()}
                        top = sum(p[u] * grown[u] for u in p) / tp
                        bottom = sum(q[u] * grown[u] for u in q) / tq
                        best = max(best, mpmath.log(top / bottom))
        limits[node] = mpmath.mpf(alpha) + best
    return limits


def networks() -> list[qd.Model]:
    rng = np.random.default_rng(11)
    found = []
    for k in range(6):
        row = rng.random((8, 2)) if k % 2 else rng.random((8, 2)) ** 8  # mild and extreme tables
        row = row / row.sum(axis=1, keepdims=True)
        if k == 4:
            row[2] = [1.0, 0.0]
        shapes = [
            {"A": [], "B": ["A"]},
            {"A": [], "B": ["A"], "C": ["B"]},
            {"A": [], "B": ["A"], "C": ["A", "B"]},
        ]
        tables = {}
        for (node, parents), start in zip(shapes[k % 3].items(), (0, 1, 3), strict=False):
            table = row[start : start + 2 ** len(parents)].reshape((2,) * len(parents) + (2,))
            tables[node] = (parents, table)
        found.append(qd.Model.from_tables(tables))
    return found


@pytest.mark.parametrize("alpha", [1e-8, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_no_certified_value_is_below_the_true_one(alpha: float, adversary: str) -> None:
    for model in networks():
        limits = true_limit(model, alpha, adversary)
        for method in ("auto", *available_methods(adversary)):
            try:
                found = qd.leakage(model, alpha, method, adversary)
            except QuiltdpError:
                continue
            for record, limit in limits.items():
                assert mpmath.mpf(found.per_record[record]) >= limit, (method, record, float(limit))
            if method == "exact":
                worst = max(limits.values())
                assert found.epsilon <= float(worst) * (1 + 1e-9) + 1e-10


def test_the_inverse_passes_its_own_certificate() -> None:
    for model in networks():
        alpha = qd.dp_epsilon(model, 1.0)
        assert max(true_limit(model, alpha, "informed").values()) <= 1
        assert max(true_limit(model, alpha * (1 + 1e-5), "informed").values()) > 1

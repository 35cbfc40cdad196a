"""Every method against the exact limit in 50 digits: loops, three states, tiny masses, zeros, unequal α."""

import itertools

import fifty_digits
import numpy as np
import pytest
from mpmath import mpf

import quiltdp as qd
from quiltdp.accountant.methods import method_names
from quiltdp.errors import QuiltdpError


def ring(tables, sizes, records=None):
    """A loop: one table for every two neighbours."""
    names = [f"N{k}" for k in range(len(sizes))]
    potentials = [((names[k], names[(k + 1) % len(names)]), table) for k, table in enumerate(tables)]
    return qd.Model.from_potentials(dict(zip(names, sizes, strict=True)), potentials, records=records)


def drawn(seed, sizes, tiny):
    """Tables with a few entries of that size."""
    rng = np.random.default_rng(seed)
    tables = []
    for k, size in enumerate(sizes):
        table = np.exp(rng.normal(size=(size, sizes[(k + 1) % len(sizes)])))
        table[tuple(rng.integers(table.shape))] = tiny
        table[0, 0] = 1.0
        tables.append(table)
    return tables


MODELS = {
    "loop of four": (ring(drawn(1, [2] * 4, 1e-12), [2] * 4), [0.5] * 4),
    "loop of four, unequal": (ring(drawn(2, [2] * 4, 1e-200), [2] * 4), [0.1, 2.0, 0.0, 1.0]),
    "loop with zeros and a latent": (
        ring(drawn(3, [2] * 4, 0.0), [2] * 4, ["N0", "N1", "N2"]),
        [1.0, 1.0, 3.0, 0.0],
    ),
    "ternary loop": (ring(drawn(4, [3, 2, 3], 1e-12), [3, 2, 3]), [1.0, 0.3, 0.6]),
    "chain with copies": (
        qd.markov_chain([np.eye(2), [[0.9, 0.1], [1e-12, 1 - 1e-12]]], initial=[0.3, 0.7]),
        [0.7] * 3,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("adversary", ["prior", "informed", "knows:1"])
def test_no_method_is_below_the_limit(name, adversary):
    model, costs = MODELS[name]
    exact = fifty_digits.Exact(model)
    records = [model.index[r] for r in model.records]
    alpha = {r: costs[model.index[r]] for r in model.records}
    most = {"prior": 0, "informed": len(records), "knows:1": 1}[adversary]
    limits = {}
    for unit in records:
        others = [k for k in records if k != unit]
        known = [
            dict(zip(chosen, values, strict=True))
            for size in range(min(most, len(others)) + 1)
            for chosen in itertools.combinations(others, size)
            for values in itertools.product(*(range(exact.sizes[k]) for k in chosen))
        ]
        limits[model.nodes[unit]] = fifty_digits.limit(exact, costs, [unit], records, known)
    for method in method_names(adversary):
        try:
            found = qd.leakage(model, alpha, method, adversary)
        except QuiltdpError:
            continue
        for record, limit in limits.items():
            assert mpf(found.per_record[record]) >= limit - mpf(10) ** -25, (method, record, float(limit))
            if method == "exact":
                assert found.per_record[record] <= float(limit) * (1 + 1e-8) + 1e-9

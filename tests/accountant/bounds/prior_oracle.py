"""Helpers of the prior adversary's tests: reference networks, α vectors, families, random pedigrees."""

import json
from pathlib import Path

import numpy as np
from strategies import random_network

from quiltdp import Model
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.inference.trees import junction_tree

DATA = Path(__file__).parents[2] / "data" / "reference"
REFERENCE = json.loads((DATA / "networks.json").read_text())
FREQUENCY = 0.3


def reference_model(entry):
    tables = {
        n: (t["parents"], t["table"]) if isinstance(t, dict) else tuple(t) for n, t in entry["tables"].items()
    }
    return Model.from_tables(tables, records=entry["records"])


def exact_prior_limit(model, alpha, units=None):
    """The exact limit of every unit against the prior adversary."""
    return ready(ExactBound, model, units, adversary=PRIOR).evaluate(alpha).values


def alphas(model, values):
    chosen = np.broadcast_to(np.asarray(values, dtype=float), (len(model.nodes),))
    return np.where([model.is_record(n) for n in model.nodes], chosen, 0.0)


def mendelian_table():
    """P(child | father, mother), genotype = number of alternative alleles."""
    pass_on = np.array([0.0, 0.5, 1.0])
    table = np.zeros((3, 3, 3))
    for f in range(3):
        for m in range(3):
            a, b = pass_on[f], pass_on[m]
            table[f, m] = [(1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b]
    return table


def pedigree(parents, records=None):
    """A pedigree: person -> (father, mother) or ()."""
    q = FREQUENCY
    founder, child = [(1 - q) ** 2, 2 * q * (1 - q), q**2], mendelian_table()
    tables = {n: ((), founder) if not ps else (tuple(ps), child) for n, ps in parents.items()}
    return Model.from_tables(tables, records=records)


def mendelian_family(children):
    return pedigree({"f": (), "m": (), **{f"c{k}": ("f", "m") for k in range(children)}})


def random_pedigree(rng, people, inbred):
    """People in order; each is a founder or the child of two earlier ones (related only if allowed)."""
    parents, ancestors = {}, {}
    for k in range(people):
        name, couple = f"p{k}", ()
        if k >= 2 and rng.random() < 0.7:
            for _ in range(20):
                a, b = (f"p{j}" for j in rng.choice(k, 2, replace=False))
                if inbred or not ({a, *ancestors[a]} & {b, *ancestors[b]}):
                    couple = (a, b)
                    break
        parents[name] = couple
        ancestors[name] = {x for p in couple for x in (p, *ancestors[p])}
    return pedigree(parents)


def attained_limit(model, alpha, units=None):
    """What the best mechanism found by a linear program really attains, per unit.

    The program's H is made exactly feasible (its Lipschitz envelope), so the value is attained by a
    mechanism and every sound bound must be at least as large.
    """
    from scipy.optimize import linprog

    records = list(model.records)
    joint = junction_tree(model).marginal(records)
    a = np.array([alpha[model.index[r]] for r in records])
    found = []
    for unit in [(r,) for r in records] if units is None else units:
        inside = [records.index(n) for n in unit]
        others = [k for k in range(len(records)) if k not in inside]
        table = joint.transpose([*inside, *others])
        sizes = table.shape[len(inside) :]
        rows = table.reshape(-1, int(np.prod(sizes)))
        rows = rows[rows.sum(axis=1) > 0]
        rows = rows / rows.sum(axis=1, keepdims=True)
        points = np.array(list(np.ndindex(*sizes))).reshape(rows.shape[1], -1)
        d = ((points[:, None] != points[None]) * a[others]).sum(axis=-1)
        one, two = np.nonzero(d > 0)
        system = np.zeros((len(one), len(points)))
        system[np.arange(len(one)), one] = np.exp(-d[one, two])
        system[np.arange(len(one)), two] = -1.0
        best = 0.0 if len(rows) < 2 else a[inside].sum()
        for k, p in enumerate(rows):
            for j, q in enumerate(rows):
                if k != j and len(one):
                    answer = linprog(-p, A_ub=system, b_ub=np.zeros(len(one)), A_eq=q[None], b_eq=[1.0])
                    h = np.log(np.maximum(answer.x, 1e-300))
                    h = np.exp((h[None, :] + d).min(axis=1))
                    best = max(best, a[inside].sum() + np.log(p @ h) - np.log(q @ h))
        found.append(best)
    return np.array(found) * (1 - 1e-12) - 1e-14  # the oracle's own rounding


def random_dag(seed, *, max_nodes=6, max_joint=120):
    """A random Bayesian network with latents, zeros and unequal α, and its α."""
    rng = np.random.default_rng(seed)
    while True:
        n = int(rng.integers(2, max_nodes + 1))
        names = [f"X{k}" for k in range(n)]
        parents = {
            name: tuple(rng.permutation(names[:k])[: rng.integers(0, min(k, 3) + 1)])
            for k, name in enumerate(names)
        }
        sizes = {name: int(rng.integers(2, 4)) for name in names}
        records = [name for name in names if rng.random() < 0.8] or names
        if np.prod([sizes[r] for r in records]) <= max_joint:
            break
    model = random_network(
        seed,
        parents,
        sizes,
        zeros=float(rng.choice([0, 0, 0.3, 0.6])),
        alpha=float(rng.choice([0.2, 1, 3])),
        records=records,
    )
    equal = rng.random() < 0.6
    return model, alphas(
        model, rng.choice([0.05, 0.3, 1.0, 3.0]) if equal else rng.choice([0, 0.1, 0.5, 2], n)
    )

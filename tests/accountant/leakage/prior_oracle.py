"""Helpers of the prior adversary's tests: reference networks, α vectors, families, random pedigrees."""

import json
from pathlib import Path

import numpy as np

from quiltdp import Model

DATA = Path(__file__).parents[2] / "data" / "reference"
REFERENCE = json.loads((DATA / "networks.json").read_text())
FREQUENCY = 0.3


def reference_model(entry):
    tables = {
        n: (t["parents"], t["table"]) if isinstance(t, dict) else tuple(t) for n, t in entry["tables"].items()
    }
    return Model.from_tables(tables, records=entry["records"])


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

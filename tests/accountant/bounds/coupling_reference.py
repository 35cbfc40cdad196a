"""Sequential coupling written down slowly: dictionaries, the joint table, one linear program per pair."""

import itertools

import numpy as np
from scipy.optimize import linprog

from quiltdp.inference.schedule import reading_order
from quiltdp.inference.trees import junction_tree


def joint_table(model):
    """The joint law of all nodes, by multiplying the factors."""
    axes = {n: k for k, n in enumerate(model.nodes)}
    total = np.ones([model.cardinality(n) for n in model.nodes])
    for f in model.factors:
        order = np.argsort([axes[n] for n in f.scope])
        shape = [model.cardinality(n) if n in f.scope else 1 for n in model.nodes]
        total = total * np.asarray(f.table).transpose(order).reshape(shape)
    return total / total.sum()


def lossy_transport(p, q, d):
    """T(p, q; D) by its linear program over (H, G)."""
    n, m = d.shape
    system = np.zeros((n * m, n + m))
    for row, (i, j) in enumerate(itertools.product(range(n), range(m))):
        system[row, i], system[row, n + j] = np.exp(-d[i, j]), -1.0
    cost, total = np.append(-p, np.zeros(m)), np.append(np.zeros(n), q)
    answer = linprog(cost, A_ub=system, b_ub=np.zeros(n * m), A_eq=total[None], b_eq=[1.0])
    return max(0.0, float(np.log(-answer.fun)))


def coupled_leakage(model, alpha, unit):
    """The bound of one unit: its smallest clique first, new nodes in the reading order."""
    joint, rank = joint_table(model), reading_order(model)
    axes = {n: k for k, n in enumerate(model.nodes)}
    tree = junction_tree(model, join=[unit] if len(unit) > 1 else [])
    near = {k: [] for k in range(len(tree.cliques))}
    for u, v, _ in tree.edges:
        near[u].append(v)
        near[v].append(u)
    sizes = [int((tree.clique_log_marginal(k) > -np.inf).sum()) for k in near]
    holding = [k for k in near if set(unit) <= set(tree.cliques[k])]
    known = {}

    def mass(given):
        index = [slice(None)] * joint.ndim
        for n, x in given.items():
            index[axes[n]] = x
        return float(joint[tuple(index)].sum())

    def message(clique, came_from, z, w):
        """How far can what lies at and beyond the clique tell z from w (values of the same nodes)?"""
        key = (clique, came_from, tuple(sorted(z.items())), tuple(sorted(w.items())))
        if key not in known:
            known[key] = 0.0 if z == w else revealed(clique, came_from, z, w)
        return known[key]

    def revealed(clique, came_from, z, w):
        hidden = sorted((n for n in tree.cliques[clique] if n not in z), key=rank.__getitem__)
        if not hidden:
            return sum(
                message(c, clique, *({n: v[n] for n in tree.cliques[c] if n in v} for v in (z, w)))
                for c in near[clique]
                if c != came_from
            )
        node = hidden[0]
        one = [x for x in range(model.cardinality(node)) if mass({**z, node: x}) > 0]
        two = [x for x in range(model.cardinality(node)) if mass({**w, node: x}) > 0]
        p = np.array([mass({**z, node: x}) for x in one]) / mass(z)
        q = np.array([mass({**w, node: x}) for x in two]) / mass(w)
        own = alpha[axes[node]]
        d = np.array(
            [
                [own * (x != y) + message(clique, came_from, {**z, node: x}, {**w, node: y}) for y in two]
                for x in one
            ]
        )
        return lossy_transport(p, q, d)

    root = min(holding, key=sizes.__getitem__)
    states = [dict(zip(unit, s, strict=True)) for s in np.ndindex(*(model.cardinality(n) for n in unit))]
    states = [s for s in states if mass(s) > 0]
    best = 0.0
    for z, w in itertools.permutations(states, 2):
        own = sum(alpha[axes[n]] for n in unit if z[n] != w[n])
        best = max(best, own + message(root, None, z, w))
    return best

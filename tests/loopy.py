"""Small models with loops, and what is true about them, by enumeration straight from the definitions.

Nothing here uses the library's inference: the joint is multiplied out, evidence is listed, and the worst
mechanism is a linear program whose answer is made feasible again, so that it is attained for certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import linprog

from quiltdp import Model

SHAPES = {
    "loop of four": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "loop of five": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)],
    "loop of six": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)],
    "diamond": [(0, 1), (0, 2), (1, 3), (2, 3), (1, 2), (3, 4)],
    "K4 less an edge": [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)],
    "ladder": [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)],
    "wheel": [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4)],
    "fan": [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (1, 4)],
}
KINDS = ("plain", "zeros", "extreme", "near zero")


def _table(rng: np.random.Generator, shape: Sequence[int], kind: str) -> np.ndarray:
    if kind == "extreme":
        return np.exp(rng.normal(size=shape) * rng.choice([2.0, 6.0]))
    if kind == "near zero":
        return np.where(rng.random(shape) < 0.5, 1.0, rng.choice([1e-3, 1e-6])) * rng.uniform(0.5, 1, shape)
    table = rng.gamma(rng.choice([0.4, 1.0, 4.0]), size=shape) + 1e-6
    while kind == "zeros":
        some = np.where(rng.random(shape) < 0.2, 0.0, table)
        if some.any():
            return some
    return table


def loopy(
    seed: int, shape: str, kind: str, *, states: int = 2, latents: bool = False, joint_states: int = 100
) -> Model:
    """Return a Markov network of this shape with seeded tables; every joint has possible states."""
    rng = np.random.default_rng(seed)
    edges = SHAPES[shape]
    count = 1 + max(b for e in edges for b in e)
    while True:
        sizes = rng.integers(2, states + 1, size=count)
        if sizes.prod() <= joint_states or states == 2:
            break
    names = [f"X{k}" for k in range(count)]
    potentials = [((names[a], names[b]), _table(rng, (sizes[a], sizes[b]), kind)) for a, b in edges]
    for a, b, c in itertools.combinations(range(count), 3):
        sides = {frozenset(e) for e in ((a, b), (b, c), (a, c))}
        if sides <= {frozenset(e) for e in edges} and rng.random() < 0.6:
            triangle = (names[a], names[b], names[c])
            potentials.append((triangle, _table(rng, (sizes[a], sizes[b], sizes[c]), kind)))
    potentials += [((n,), rng.gamma(1.0, size=s) + 1e-3) for n, s in zip(names, sizes, strict=True)]
    records = [n for n in names if rng.random() < 0.7] if latents else names
    model = Model.from_potentials(
        dict(zip(names, sizes.tolist(), strict=True)), potentials, records=records or names[:2]
    )
    return model if joint(model) is not None else loopy(seed + 10_000, shape, kind, states=states)


def joint(model: Model) -> np.ndarray | None:
    """Return P over ``model.nodes``, one axis each; ``None`` if everything is impossible."""
    nodes = list(model.nodes)
    table = np.ones([model.cardinality(n) for n in nodes])
    for factor in model.factors:
        at = [nodes.index(n) for n in factor.scope]
        shape = [table.shape[k] if k in at else 1 for k in range(len(nodes))]
        table = table * np.asarray(factor.table).transpose(np.argsort(at)).reshape(shape)
    return table / table.sum() if table.sum() > 0 else None


def evidence(model: Model, records: Sequence[str], most: int | None = None) -> Iterator[dict[str, int]]:
    """Yield every set of known records with every value of them."""
    for size in range((len(records) if most is None else min(most, len(records))) + 1):
        for known in itertools.combinations(records, size):
            for values in itertools.product(*(range(model.cardinality(n)) for n in known)):
                yield dict(zip(known, values, strict=True))


def law(model: Model, table: np.ndarray, of: Sequence[str], given: dict[str, int]) -> np.ndarray | None:
    """Return P(of | given), flattened in the order of ``of``; ``None`` if ``given`` is impossible."""
    nodes = list(model.nodes)
    kept = [nodes.index(n) for n in of]
    cut = table[tuple(slice(given[n], given[n] + 1) if n in given else slice(None) for n in nodes)]
    left = cut.sum(axis=tuple(k for k in range(len(nodes)) if k not in kept))
    left = left.transpose(np.argsort(np.argsort(kept))) if len(kept) > 1 else left
    return left.ravel() / left.sum() if left.sum() > 0 else None


def gain(p: np.ndarray, q: np.ndarray, sizes: Sequence[int], alpha: Sequence[float]) -> float:
    """Return an attained ln E_p H / E_q H over α-Lipschitz H, the largest that the program finds."""
    if len(p) < 2:
        return 0.0
    states = list(np.ndindex(*sizes))
    rows = []
    for a, b in itertools.permutations(range(len(states)), 2):
        differ = [k for k in range(len(sizes)) if states[a][k] != states[b][k]]
        if len(differ) == 1:
            row = np.zeros(len(states))
            row[a], row[b] = 1.0, -np.exp(alpha[differ[0]])
            rows.append(row)
    found = linprog(-p, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=q[None], b_eq=[1.0])
    if found.x is None:
        return 0.0
    log_h = np.log(np.maximum(found.x, 1e-300)).reshape(tuple(sizes))
    for axis, a in enumerate(alpha):
        log_h = np.minimum(log_h, log_h.min(axis=axis, keepdims=True) + a)
    h = np.exp(log_h - log_h.max()).ravel()
    return float(np.log((p @ h) / (q @ h)))


def attained(
    model: Model,
    alpha: dict[str, float],
    unit: Sequence[str],
    *,
    may_know: Sequence[str] | None = None,
    most: int | None = None,
) -> float:
    """Return the leakage about ``unit`` that some mechanism and some adversary attain."""
    table = joint(model)
    assert table is not None
    others = [n for n in model.records if n not in unit]
    best = 0.0
    for known in evidence(model, [n for n in others if may_know is None or n in may_know], most):
        unknown = [n for n in others if n not in known]
        sizes, costs = [model.cardinality(n) for n in unknown], [alpha[n] for n in unknown]
        values = list(itertools.product(*(range(model.cardinality(n)) for n in unit)))
        laws = [law(model, table, unknown, {**known, **dict(zip(unit, v, strict=True))}) for v in values]
        for (v, p), (w, q) in itertools.permutations(zip(values, laws, strict=True), 2):
            if p is not None and q is not None:
                own = sum(alpha[n] for n, a, b in zip(unit, v, w, strict=True) if a != b)
                best = max(best, own + gain(p, q, sizes, costs))
    return best

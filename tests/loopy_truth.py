"""What is true about a small model with loops: cross ratios, messages and leakages, by enumeration.

The yardsticks of the informed clique tree, straight from the definitions: the joint is multiplied out, every
evidence is listed, and the worst mechanism is attained (a height function or a linear program's answer made
feasible), so a bound below any of these numbers is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

import loopy
import numpy as np

from quiltdp import Model
from quiltdp.inference.interaction import Interaction
from quiltdp.inference.schedule import Schedule

Law = np.ndarray
HYPEREDGES = {
    "agreeing coins": [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 4, 5)],
    "two triangles": [(0, 1, 2), (1, 2, 3), (0, 3)],
    "star of triangles": [(0, 1, 2), (0, 2, 3), (0, 1, 4), (1, 2, 5)],
    "loop with a gate": [(0, 1), (1, 2, 3), (3, 4), (4, 0)],
}
SHAPES = {**loopy.SHAPES, **HYPEREDGES}


def shape_of(seed: int) -> str:
    """Return the shape of the model that belongs to a seed."""
    return sorted(SHAPES)[seed % len(SHAPES)]


def drawn(seed: int) -> tuple[Model, dict[str, float]]:
    """Return the model and the α of every record that belong to a seed: all shapes and kinds in turn."""
    rng = np.random.default_rng([seed, 14])
    shape = shape_of(seed)
    kind = loopy.KINDS[seed // len(SHAPES) % len(loopy.KINDS)]
    states, latents = int(rng.choice([2, 2, 3])), bool(rng.random() < 0.4)
    if shape in HYPEREDGES:
        model = _gates(rng, HYPEREDGES[shape], kind, states, latents)
    else:
        model = loopy.loopy(
            1_000 + seed, shape, kind, states=states, latents=latents, joint_states=150 if states > 2 else 64
        )
    top = float(np.exp(rng.uniform(np.log(0.01), np.log(5.0))))
    shares = rng.choice([0.0, 0.3, 1.0], size=len(model.records)) if rng.random() < 0.25 else None
    share = dict.fromkeys(model.records, 1.0)
    if shares is not None and shares.any():
        share = dict(zip(model.records, shares.tolist(), strict=True))
    return model, {n: top * s for n, s in share.items()}


def _gates(
    rng: np.random.Generator, scopes: Sequence[tuple[int, ...]], kind: str, states: int, latents: bool
) -> Model:
    """Return a model with tables of three and four nodes; half of them nearly constant, or rare events."""
    count = 1 + max(k for scope in scopes for k in scope)
    names = [f"X{k}" for k in range(count)]
    while True:
        sizes = rng.integers(2, states + 1, size=count)
        potentials = []
        for scope in scopes:
            table = loopy._table(rng, sizes[list(scope)], kind)
            if rng.random() < 0.3:  # a rare event: mass at a few places of the last node's last value
                rare = np.where(rng.random(table.shape[:-1]) < 0.3, 0.01, 0.0)
                table = np.ones(table.shape)
                table[..., -1] = rare if kind == "zeros" else np.maximum(rare, 1e-9)
            potentials.append((tuple(names[k] for k in scope), table))
        if not all(table.any() for _, table in potentials):
            continue
        records = [n for n in names if rng.random() < 0.7] if latents else names
        model = Model.from_potentials(
            dict(zip(names, sizes.tolist(), strict=True)), potentials, records=records or names[:2]
        )
        if sizes.prod() <= 150 and loopy.joint(model) is not None:
            return model


def nodes_beyond(model: Model, walk: Schedule, number: int) -> list[str]:
    """Return the nodes beyond the root of a task of a schedule."""
    tasks = [number, *walk.under(number)]
    return sorted({model.nodes[n] for k in tasks for n in walk.tasks[k].new})


def cross_ratio_excess(model: Model, j: Interaction, beyond: Sequence[str]) -> tuple[int, float]:
    """Return how many cross ratios of likelihoods there are, and by how much the worst exceeds its J."""
    if len(j.nodes) < 2 or j.table is None:
        return 0, -np.inf
    table = loopy.joint(model)
    assert table is not None
    values = {tuple(v): k for k, v in enumerate(j.values.tolist())}
    corners = []
    for mask in range(1, 2 ** len(j.nodes) - 1):
        side = np.array([(mask >> k) & 1 for k in range(len(j.nodes))], dtype=bool)
        for a, b in itertools.permutations(range(len(j.values)), 2):
            turned = values.get(tuple(np.where(side, j.values[b], j.values[a]).tolist()))
            other = values.get(tuple(np.where(side, j.values[a], j.values[b]).tolist()))
            if turned is not None and other is not None:
                corners.append((mask, a, b, turned, other))
    if not corners:
        return 0, -np.inf
    masks, first, second, turned_at, other_at = np.array(corners).T
    allowed = j.table[masks, first, second]
    count, worst = 0, -np.inf
    for known in loopy.evidence(model, [n for n in model.records if n in beyond]):
        weight = _likelihoods(model, table, known, j)
        above = weight[first] * weight[second]
        below = weight[turned_at] * weight[other_at]
        real = above > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(below > 0, np.log(above) - np.log(below), np.inf)
            excess = np.where(np.isinf(allowed), -np.inf, ratio - allowed)[real]
        count += int(real.sum())
        worst = max(worst, float(excess.max(initial=-np.inf)))
    return count, worst


def _likelihoods(model: Model, table: np.ndarray, known: dict[str, int], j: Interaction) -> np.ndarray:
    """Return P(known | separator state) of every state that J lists."""
    nodes = list(model.nodes)
    places = list(j.nodes)
    gone = tuple(k for k in range(len(nodes)) if k not in places)
    cut = table.copy()
    for n, v in known.items():
        wrong = [slice(None)] * len(nodes)
        wrong[nodes.index(n)] = np.arange(table.shape[nodes.index(n)]) != v  # type: ignore[call-overload]
        cut[tuple(wrong)] = 0.0
    order = np.argsort(np.argsort(places))
    both = [t.sum(axis=gone).transpose(order)[tuple(j.values.T)] for t in (cut, table)]
    return np.asarray(both[0] / both[1])


@lru_cache(maxsize=32)
def _heights(sizes: tuple[int, ...]) -> np.ndarray | None:
    """Return integer functions that neighbours change by at most one (by exactly one if all are binary)."""
    points = list(itertools.product(*(range(k) for k in sizes)))
    if len(points) > (16 if set(sizes) == {2} else 9):
        return None
    steps = (-1, 1) if set(sizes) == {2} else (-1, 0, 1)
    found: list[tuple[int, ...]] = [(0,)]
    for at in range(1, len(points)):
        near = [k for k in range(at) if sum(a != b for a, b in zip(points[at], points[k], strict=True)) == 1]
        found = [
            (*f, f[near[0]] + s)
            for f in found
            for s in steps
            if all(abs(f[near[0]] + s - f[k]) <= 1 for k in near)
        ]
    return np.array(found, dtype=float)


def gain(p: Law, q: Law, sizes: tuple[int, ...], alpha: tuple[float, ...]) -> float:
    """Return an attained ln E_p H / E_q H over α-Lipschitz H: all heights where they are few."""
    read = [k for k, a in enumerate(alpha) if a > 0]
    if len(read) < len(sizes):
        gone = tuple(k for k in range(len(sizes)) if k not in read)
        p, q = (law.reshape(sizes).sum(axis=gone).ravel() for law in (p, q))
        sizes, alpha = tuple(sizes[k] for k in read), tuple(alpha[k] for k in read)
    if not sizes:
        return 0.0
    heights = _heights(sizes) if len(set(alpha)) == 1 else None
    if heights is None:
        return loopy.gain(p, q, sizes, alpha)
    h = np.exp(alpha[0] * (heights - heights.max(axis=1, keepdims=True)))
    return float((np.log(h @ p) - np.log(h @ q)).max())


def attained(
    model: Model,
    alpha: dict[str, float],
    first: Sequence[str],
    others: Sequence[str],
    *,
    own: bool,
    least: int = 0,
    most: int | None = None,
    may_know: Sequence[str] | None = None,
) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """Return, for pairs of values of ``first``, the largest ln of a ratio that some mechanism attains.

    ``others`` are the records that mechanisms read and adversaries may know (or only ``may_know``), from
    ``least`` to ``most`` of them; with ``own`` the pair's own α counts.  One number for all pairs, under the
    key ((), ()), if ``own``.
    """
    best: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    table = loopy.joint(model)
    assert table is not None
    tasks = []
    for known, v, w, p, q in _pairs(model, table, first, others, least, most, may_know):
        unknown = [n for n in others if n not in known]
        cost = sum(alpha[n] for n, a, b in zip(first, v, w, strict=True) if a != b) if own else 0.0
        sizes = tuple(model.cardinality(n) for n in unknown)
        costs = tuple(alpha[n] for n in unknown)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf).max(initial=0.0)
        key = ((), ()) if own else (v, w)
        tasks.append((cost + min(sum(costs), float(ratio)), key, cost, p, q, sizes, costs))
    for ceiling, key, cost, p, q, sizes, costs in sorted(tasks, key=lambda t: -t[0]):
        if ceiling > best.get(key, 0.0) + 1e-12:
            best[key] = max(best.get(key, 0.0), cost + gain(p, q, sizes, costs))
    return best


def _pairs(
    model: Model,
    table: np.ndarray,
    first: Sequence[str],
    others: Sequence[str],
    least: int,
    most: int | None,
    may_know: Sequence[str] | None,
) -> Iterator[tuple[dict[str, int], tuple[int, ...], tuple[int, ...], Law, Law]]:
    values = list(itertools.product(*(range(model.cardinality(n)) for n in first)))
    allowed = others if may_know is None else [n for n in others if n in may_know]
    for known in loopy.evidence(model, allowed, most):
        if len(known) < least:
            continue
        unknown = [n for n in others if n not in known]
        laws = []
        for v in values:
            found = loopy.law(model, table, unknown, {**dict(zip(first, v, strict=True)), **known})
            if found is not None:
                laws.append((v, found))
        for (v, p), (w, q) in itertools.permutations(laws, 2):
            yield known, v, w, p, q

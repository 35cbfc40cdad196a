"""Interactions against the true cross ratios of every evidence, not only against the leakage."""

from __future__ import annotations

import itertools

import loopy
import numpy as np
import pytest
from loopy_truth import nodes_beyond

from quiltdp import Model
from quiltdp.inference.cliques import View, Views, clique_forest
from quiltdp.inference.interaction import Interaction, interaction


def all_interactions(model: Model) -> dict[tuple[int, int], tuple[View, Interaction]]:
    forest = clique_forest(model)
    views = Views(forest, model.records)
    found: dict[tuple[int, int], Interaction] = {}
    for key in views.order():
        found[key] = interaction(views.edge(key), found, slack=forest.slack, most=10**7)
    return {key: (views.edge(key), found[key]) for key in found}


def worst_excess(model: Model) -> tuple[int, float]:
    """Return how many cross ratios there are, and by how much the largest exceeds its J."""
    table = loopy.joint(model)
    assert table is not None
    forest = clique_forest(model)
    count, worst = 0, -np.inf
    for key, (_, j) in all_interactions(model).items():
        if len(j.nodes) < 2 or j.table is None:
            continue
        beyond = [n for n in model.records if n in nodes_beyond(forest, key)]
        values = {tuple(v): k for k, v in enumerate(j.values.tolist())}
        for known in loopy.evidence(model, beyond):
            weight = [
                _likelihood(model, table, known, dict(zip(j.nodes, v, strict=True)))
                for v in j.values.tolist()
            ]
            for mask in range(1, 2 ** len(j.nodes) - 1):
                for a, b in itertools.permutations(range(len(weight)), 2):
                    turned, other = (
                        values.get(
                            tuple(int(j.values[x if (mask >> k) & 1 else y, k]) for k in range(len(j.nodes)))
                        )
                        for x, y in ((b, a), (a, b))
                    )
                    if turned is None or other is None or weight[a] * weight[b] == 0:
                        continue
                    below = weight[turned] * weight[other]
                    ratio = np.log(weight[a] * weight[b] / below) if below > 0 else np.inf
                    count += 1
                    if ratio > j.table[mask, a, b]:  # ∞ is not above ∞
                        worst = max(worst, ratio - j.table[mask, a, b])
    return count, worst


def _likelihood(model: Model, table: np.ndarray, known: dict[str, int], given: dict[str, int]) -> float:
    def mass(fixed: dict[str, int]) -> float:
        at = tuple(fixed.get(n, slice(None)) for n in model.nodes)
        return float(table[at].sum())

    return mass({**given, **known}) / mass(given)


@pytest.mark.parametrize("kind", loopy.KINDS)
@pytest.mark.parametrize("shape", sorted(loopy.SHAPES))
def test_no_cross_ratio_exceeds_the_interaction(shape: str, kind: str) -> None:
    model = loopy.loopy(7, shape, kind, latents=True)
    _, worst = worst_excess(model)
    assert worst <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_cross_ratio_exceeds_the_interaction_of_many_models(seed: int) -> None:
    shapes = sorted(loopy.SHAPES)
    model = loopy.loopy(
        seed + 100,
        shapes[seed % len(shapes)],
        loopy.KINDS[seed % 4],
        states=2 + seed % 3,
        latents=seed % 2 == 0,
    )
    _, worst = worst_excess(model)
    assert worst <= 1e-9


def agreeing_coins() -> Model:
    """p, q, u are fair coins and w can be 1 only if they agree; r and x are latent and say nothing."""
    w = np.zeros((2, 2, 2, 2))
    w[..., 0] = 1.0
    w[0, 0, 0] = w[1, 1, 1] = [0.99, 0.01]
    flat = np.ones((2, 2, 2, 2))
    scopes = [(tuple("pquw"), w), (tuple("pqur"), flat), (tuple("pqrx"), flat)]
    coins = [((n,), [0.5, 0.5]) for n in "pqu"]
    return Model.from_potentials(dict.fromkeys("pquwrx", 2), [*coins, *scopes], records=list("pquw"))


def test_evidence_that_makes_coins_agree_couples_them_without_limit() -> None:
    found = all_interactions(agreeing_coins())
    tables = [j.table for _, j in found.values() if set(j.nodes) >= {"p", "q"} and j.table is not None]
    assert any(np.isinf(t).any() for t in tables)
    assert worst_excess(agreeing_coins())[1] <= 1e-9


def test_over_the_budget_the_interaction_is_infinite_where_it_matters() -> None:
    model = loopy.loopy(3, "ladder", "plain")
    forest = clique_forest(model)
    views = Views(forest, model.records)
    key = next(k for k in views.order() if len(forest.edges[k[0]].separator) == 2)
    j = interaction(views.edge(key), {}, slack=0.0, most=1)
    assert j.table is None
    same, other = np.array([0]), np.array([3])
    assert j.of(1, same, same)[0] == 0.0
    assert j.of(1, same, other)[0] == np.inf
    assert j.of(0, same, other)[0] == 0.0

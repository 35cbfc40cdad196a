"""Interactions against the true cross ratios of every evidence, not only against the leakage."""

from __future__ import annotations

import loopy
import numpy as np
import pytest
from loopy_truth import cross_ratio_excess, nodes_beyond

from quiltdp import Model
from quiltdp.inference.evidence import seen_by_evidence
from quiltdp.inference.interaction import Interaction, interaction
from quiltdp.inference.schedule import Schedule, schedule


def all_interactions(model: Model, most: int = 10**7) -> tuple[Schedule, list[Interaction]]:
    walk = schedule(model, [(n,) for n in model.nodes], cliques_each=9)  # every edge in both directions
    seen = seen_by_evidence(walk, {model.index[r] for r in model.records})
    found: list[Interaction] = []
    for s in seen[: walk.edges]:
        beyond = [found[c] for c, _ in s.task.children]
        found.append(interaction(s, beyond, slack=walk.slack, most=most))
    return walk, found


def worst_excess(model: Model) -> tuple[int, float]:
    """Return how many cross ratios there are, and by how much the largest exceeds its J."""
    walk, found = all_interactions(model)
    each = [cross_ratio_excess(model, j, nodes_beyond(model, walk, k)) for k, j in enumerate(found)]
    return sum(count for count, _ in each), max((excess for _, excess in each), default=-np.inf)


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
    model = agreeing_coins()
    p, q = model.index["p"], model.index["q"]
    _, found = all_interactions(model)
    tables = [j.table for j in found if set(j.nodes) >= {p, q} and j.table is not None]
    assert any(np.isinf(t).any() for t in tables)
    assert worst_excess(model)[1] <= 1e-9


def test_over_the_budget_the_interaction_is_infinite_where_it_matters() -> None:
    _, found = all_interactions(loopy.loopy(3, "ladder", "plain"), most=1)
    j = next(j for j in found if len(j.nodes) == 2)
    assert j.table is None
    same, other = np.array([0]), np.array([3])
    assert j.between(1, same, same)[0] == 0.0
    assert j.between(1, same, other)[0] == np.inf
    assert j.between(0, same, other)[0] == 0.0

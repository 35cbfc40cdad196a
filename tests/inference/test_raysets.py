"""Ray sets: joining, folding and summing commute with the tables they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from quiltdp.inference.raysets import folded, joined, product_of, ray_set, restricted, summed

RNG = np.random.default_rng(3)


def same_direction(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.allclose(found / found.max(), wanted / wanted.max(), rtol=1e-12))


def test_join_then_sum_is_the_table() -> None:
    one, two = RNG.random((2, 3)), RNG.random((3, 4))  # (A, H) and (H, B): H is hidden, A and B observed
    first, second = ray_set(0, ("A", "H"), one, {"H"}), ray_set(1, ("H", "B"), two, {"H"})
    both = joined(first, second)
    assert both.scope == ("A", "B")
    assert (both.members, both.dimension, both.sets) == (1, 3, 8)
    for a in range(2):
        for b in range(4):
            assert same_direction(both.array[a, b, 0], one[a] * two[:, b])
    assert summed(both, "H").array.shape == (2, 4, 1)


@pytest.mark.parametrize("states", [2, 3])
def test_folding_keeps_the_extremes(states: int) -> None:
    table = RNG.random((states, 9))
    item = folded(ray_set(0, ("H", "Q"), table, {"H"}), "Q", remember=True)
    assert item.marks == ("Q",)
    weights = RNG.random((50, 2, states))
    for above, below in weights:
        best = ((above @ table) / (below @ table)).max()
        kept = item.array.reshape(-1, states)
        assert ((kept @ above) / (kept @ below)).max() == pytest.approx(best, rel=1e-12)
    values = item.choices.reshape(-1).tolist()
    for ray, q in zip(item.array.reshape(-1, states), values, strict=True):
        assert same_direction(ray, table[:, q])


def test_products_and_restrictions() -> None:
    one, two = RNG.random((2, 3)), RNG.random((2, 3))
    items = [ray_set(k, ("A", "H"), t, {"H"}) for k, t in enumerate((one, two))]
    assert product_of(items).factors == {0, 1}
    at = restricted(product_of(items), {"A": 1})
    assert at.scope == ()
    assert same_direction(at.array[0], one[1] * two[1])

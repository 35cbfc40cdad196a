"""Hidden hubs: ray sets against plain enumeration, and against the full table."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_network, without_whole_tables

import quiltdp as qd
from quiltdp.inference import readoff, region
from quiltdp.inference.cone import corners
from quiltdp.inference.influence import quilt_influence


def hub_model(seed: int, hub: int, children: int, shared: bool) -> qd.Model:
    """T → H → many children; some children share a second parent."""
    parents = {"T": (), "H": ("T",), "Z": ()}
    for k in range(children):
        parents[f"C{k}"] = ("H", "Z") if shared and k < 2 else ("H",)
    sizes = {"T": 2, "H": hub, "Z": 2} | {f"C{k}": 2 + k % 2 for k in range(children)}
    return random_network(seed, parents, sizes, alpha=0.7)


def by_enumeration(model: qd.Model, children: int) -> float:
    """The swing of T with H hidden, straight from the tables, one separator value after the other."""
    tables = {f.child: f for f in model.factors}
    first = tables["H"].table
    moves = []
    ranges = [range(model.cardinality(f"C{k}")) for k in range(children)]
    for z in range(2):
        for values in product(*ranges):
            like = np.ones(first.shape[1])
            for k, v in enumerate(values):
                f = tables[f"C{k}"]
                like = like * (f.table[:, z, v] if len(f.scope) == 3 else f.table[:, v])
            up = first @ like
            moves.append(math.log(up[0]) - math.log(up[1]))
    return max(moves) - min(moves)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 7), st.booleans())
def test_hub_by_rays_is_exact(seed, hub, children, shared):
    model = hub_model(seed, hub, children, shared)
    graph = qd.moralize(model)
    around = {f"C{k}" for k in range(children)} | {"Z"} if shared else {f"C{k}" for k in range(children)}
    quilt = qd.Quilt(graph, "T", around, ["H"], set(model.nodes) - around - {"T", "H"})
    wanted = by_enumeration(model, children)
    with pytest.MonkeyPatch.context() as patch:
        without_whole_tables(patch)
        patch.setattr(region, "_WIDE", 0)
        patch.setattr(readoff, "_TOGETHER", 0)
        patch.setattr(readoff, "_ALONE", 0)
        found = quilt_influence(model, quilt)
    assert found.exact
    assert found.swing_of[frozenset()] == pytest.approx(wanted, abs=1e-9)
    assert found.swing_of[frozenset()] >= wanted - 1e-12


def test_a_hub_with_forty_children():
    model = hub_model(5, 3, 40, True)  # a joint of 10^16 entries
    around = {f"C{k}" for k in range(40)} | {"Z"}
    found = quilt_influence(model, qd.Quilt(qd.moralize(model), "T", around, ["H"], []))
    assert found.exact
    w = found.witness
    assert w is not None
    # the witness must reproduce the number by plain arithmetic
    tables = {f.child: f.table for f in model.factors}
    known = dict(w.known)

    def odds(separator):
        value = {n: int(v) for n, v in separator}
        like = np.ones(3)
        for k in range(40):
            t = tables[f"C{k}"]
            like = like * (t[:, value["Z"], value[f"C{k}"]] if t.ndim == 3 else t[:, value[f"C{k}"]])
            like /= like.max()
        rows = tables["H"] if not known else tables["H"][:, [int(known["H"])]]
        like = like if not known else like[[int(known["H"])]]
        up = rows @ like
        return math.log(up[int(w.value[0][1])]) - math.log(up[int(w.other[0][1])])

    assert odds(w.separator) - odds(w.separator_other) == pytest.approx(found.swing, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30), st.sampled_from([3, 4, 5]))
def test_dropped_rays_are_inside(seed, count, dim):
    from scipy.optimize import nnls

    rays = np.random.default_rng(seed).gamma(0.5, size=(count, dim)) + 1e-9
    rays /= rays.max(axis=1, keepdims=True)
    kept = sorted(set(corners(rays[None])[0].tolist()))
    for k in set(range(count)) - set(kept):
        weights, _ = nnls(rays[kept].T / rays[k][:, None], np.ones(dim))
        assert np.abs(rays[kept].T @ weights / rays[k] - 1).max() < 1e-9

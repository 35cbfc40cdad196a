"""Hidden components by rays: against the oracle, plain enumeration and full tables, whatever is planned."""

import math
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_network

import quiltdp as qd
from quiltdp.graph.quilts import unit_quilts
from quiltdp.inference import brute_force, rays
from quiltdp.inference.moves import subsets
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influence, swings
from quiltdp.inference.raysets import Planner
from quiltdp.inference.region import Region
from quiltdp.inference.workspace import Workspace

MODELS = Path(__file__).resolve().parents[2] / "models"
ONLY_RAYS = Limits(rays=True, rays_from=0, joint=0)
RAYS = Limits(rays=True)


def as_planned(patch):
    pass


def nothing_eliminated(patch):
    patch.setattr(Planner, "best", lambda self, items: None)
    patch.setattr(Planner, "grouped", lambda self, items: False)


def everything_eliminated(patch):
    def dear(self, shapes, members):
        return 1e30 * sum(1 + (s.scope | s.vector).bit_count() for s in shapes)

    patch.setattr(Planner, "_finish", dear)
    patch.setattr(rays, "RAY_WORK", math.inf)


def in_small_blocks(patch):
    nothing_eliminated(patch)
    patch.setattr(rays, "MASSES_AT_ONCE", 4)
    patch.setattr(rays, "GROUP_ENTRIES", 0)


WAYS = (as_planned, nothing_eliminated, everything_eliminated, in_small_blocks)


# -- small models against the oracle ----------------------------------------------------------

SHAPES = {
    "hub": {"H": ("T",), "A": ("H",), "B": ("H", "A"), "C": ("H",), "D": ("H", "C"), "T": ()},
    "hub above": {"H": (), "T": ("H",), "A": ("H", "T"), "B": ("H",), "C": ("H",), "D": ("B", "H")},
    "pair": {"T": (), "H": ("T",), "K": ("H",), "A": ("H",), "B": ("H", "K"), "C": ("K",), "D": ("K", "A")},
    "tree": {"T": (), "H": ("T",), "K": ("H",), "M": ("H",), "A": ("K",), "B": ("M",), "C": ("K", "M")},
    "two sides": {"H": (), "T": ("H",), "K": ("T",), "A": ("H",), "B": ("K",), "C": ("H", "K"), "D": ("C",)},
    "collider": {"T": (), "H": (), "K": ("T", "H"), "A": ("H",), "B": ("K", "H"), "C": ("K",)},
}


@st.composite
def hidden_models(draw) -> qd.Model:
    parents = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    hub = draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes = {n: hub if n == "H" else int(rng.integers(2, 4)) for n in parents}
    latents = draw(st.sampled_from([set(), {"H"}, {"K"} & set(parents)]))
    return random_network(
        int(rng.integers(10**6)),
        parents,
        sizes,
        zeros=draw(st.sampled_from([0.0, 0.0, 0.25, 0.5])),
        alpha=draw(st.sampled_from([0.3, 1.0])),
        records=[n for n in parents if n not in latents],
    )


def close(found: float, wanted: float) -> bool:
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)


def assert_attained(model: qd.Model, where: Region, known: tuple[str, ...], swing: float) -> None:
    """The values that Region names give the swing by plain probabilities."""
    found = where.swing_at(known)
    if found is None:
        assert swing < 1e-9
        return
    pair, at = found
    (target,) = where.targets
    names = (target, *known, *where.separator)
    joint = brute_force.log_marginal(model, names)
    x, y = (end[target] for end in where.target_values(pair))

    def odds(ordered) -> tuple[float, float]:
        values = where.separator_values(at, ordered)
        index = (*[at[n] for n in known], *[values[n] for n in where.separator])
        return joint[(x, *index)], joint[(y, *index)]

    (p, q), (r, s) = odds(pair), odds(where.reversed_pair(pair))
    assert p > -np.inf
    assert s > -np.inf
    assert close(p - q + s - r, swing)


@settings(max_examples=40, deadline=None)
@given(hidden_models(), st.sampled_from(WAYS))
def test_rays_agree_with_the_oracle(model, way):
    quilts = [q for q in qd.quilts(qd.moralize(model), "T") if q.nearby and q.separator][:4]
    space = Workspace(model)
    with pytest.MonkeyPatch.context() as patch:
        way(patch)
        for quilt in quilts:  # ray sets kept for one quilt are met again in the next
            wanted = brute_force.quilt_influence(model, quilt)
            found = quilt_influence(model, quilt, limits=ONLY_RAYS, workspace=space)
            assert found.exact
            assert close(found.b, wanted.b)
            assert close(found.swing, wanted.swing)
            where = Region(space, ("T",), quilt.nearby, quilt.separator, ONLY_RAYS)
            for known, value in wanted.swing_of.items():
                assert close(found.swing_of[known], value)
                assert found.swing_of[known] >= value * (1 - 1e-12) - 1e-13
                assert_attained(model, where, tuple(sorted(known)), value)


@settings(max_examples=12, deadline=None)
@given(hidden_models(), st.sampled_from(WAYS))
def test_protected_units(model, way):
    unit = [n for n in ("T", "A") if model.is_record(n)]
    for quilt in [q for q in unit_quilts(qd.moralize(model), unit) if q.nearby and q.separator][:2]:
        args = (model, unit, quilt.nearby, quilt.separator)
        wanted = brute_force.swings(*args)
        with pytest.MonkeyPatch.context() as patch:
            way(patch)
            found = swings(*args, limits=ONLY_RAYS)
        # the unit's own tables are read at impossible states of the separator too: then it is a bound
        exact = (brute_force.marginal(model, sorted(quilt.separator)) > 0).all()
        for known, value in wanted.items():
            assert found[known] >= value * (1 - 1e-12) - 1e-13
            assert close(found[known], value) or not exact


# -- hubs with many children -------------------------------------------------------------------


def hub_model(seed: int, hub: int, children: int, *, tiny: float = 0.0) -> qd.Model:
    """T → H → many children, of which two share a second parent Z."""
    rng = np.random.default_rng(seed)
    tables = {"T": ([], [0.5, 0.5]), "H": (["T"], rng.dirichlet(np.ones(hub), size=2)), "Z": ([], [0.4, 0.6])}
    for k in range(children):
        above = ["H", "Z"] if k < 2 else ["H"]
        rows = rng.dirichlet(np.full(2 + k % 2, 0.7), size=(hub, 2)[: len(above)])
        if tiny:
            rows[k % hub, ..., 0] = tiny
        tables[f"C{k}"] = (above, rows / rows.sum(axis=-1, keepdims=True))
    return qd.Model.from_tables(tables)


def hub_quilt(model: qd.Model) -> qd.Quilt:
    around = set(model.nodes) - {"T", "H"}
    return qd.Quilt(qd.moralize(model), "T", around, ["H"], [])


def hub_odds(model: qd.Model, values) -> float:
    """ln P(0 | values) − ln P(1 | values) of T with H hidden, straight from the tables, in logarithms."""
    tables = {f.child: f for f in model.factors}
    like = np.log(tables["H"].table)
    for n, f in tables.items():
        if n.startswith("C"):
            like = like + np.log(f.table[(slice(None), *(values[m] for m in f.scope[1:]))])
    return float(np.subtract(*np.logaddexp.reduce(like, axis=1)))


@pytest.mark.parametrize("tiny", [0.0, 1e-200])
@pytest.mark.parametrize("hub", [2, 3, 4, 5])
def test_a_hub_against_enumeration(hub, tiny):
    model = hub_model(hub, hub, 6, tiny=tiny)
    names = [n for n in model.nodes if n not in "TH"]
    moves = [
        hub_odds(model, dict(zip(names, at, strict=True)))
        for at in product(*(range(model.cardinality(n)) for n in names))
    ]
    wanted = max(moves) - min(moves)
    found = quilt_influence(model, hub_quilt(model), limits=ONLY_RAYS).swing_of[frozenset()]
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-9)
    assert found >= wanted * (1 - 1e-13) - 1e-12


def test_a_hub_with_forty_children():
    model = hub_model(5, 3, 40)  # a joint of 10^16 entries
    assert not quilt_influence(model, hub_quilt(model)).exact  # a table that large is not made
    found = quilt_influence(model, hub_quilt(model), rays=True)
    assert found.exact
    w = found.witness
    assert w is not None
    assert not w.known
    up, down = ({n: int(v) for n, v in side} for side in (w.separator, w.separator_other))
    move = abs(hub_odds(model, up) - hub_odds(model, down))
    assert move == pytest.approx(found.swing_of[frozenset()], abs=1e-9)


# -- networks ----------------------------------------------------------------------------------


@cache
def network(name: str) -> qd.Model:
    return qd.load_model(MODELS / f"{name}.bif")


@pytest.mark.parametrize(
    ("name", "nearby", "count"), [("insurance", 2, 12), ("alarm", 3, 12), ("child", 3, 8)]
)
def test_networks_by_rays_and_by_tables(name, nearby, count):
    """Components whose full table still fits: the table and the rays agree."""
    model = network(name)
    graph = qd.moralize(model)
    quilts = [
        q for n in model.nodes for q in qd.quilts(graph, n, max_nearby=nearby) if len(q.nearby) == nearby
    ]
    quilts = [q for q in quilts if 5 <= len(q.separator) <= 11]
    space = Workspace(model)
    for k in np.random.default_rng(1).choice(len(quilts), count, replace=False):
        wanted = quilt_influence(model, quilts[k], limits=Limits(component=2**24, joint=0), workspace=space)
        found = quilt_influence(model, quilts[k], limits=ONLY_RAYS, workspace=space)
        assert found.exact
        assert wanted.exact
        assert close(found.b, wanted.b)
        for known, value in wanted.swing_of.items():
            assert close(found.swing_of[known], value)


def factor_odds(model: qd.Model, target: str, hidden: list[str], values) -> np.ndarray:
    """ln P(x, values) for every x of the target, up to one constant: the hidden nodes summed out plainly."""
    names = [target, *hidden]
    total = np.zeros((1,) * len(names))
    for f in model.factors:
        if not set(names).isdisjoint(f.scope):
            own = [n for n in f.scope if n in names]
            with np.errstate(divide="ignore"):
                part = np.log(f.table[tuple(slice(None) if n in names else values[n] for n in f.scope)])
            part = part.transpose(np.argsort([names.index(n) for n in own]))
            own.sort(key=names.index)
            total = total + part.reshape([model.cardinality(n) if n in own else 1 for n in names])
    return np.logaddexp.reduce(total.reshape(total.shape[0], -1), axis=1)


@pytest.mark.parametrize(("name", "nearby", "count"), [("hepar2", 2, 4), ("alarm", 4, 4)])
def test_wide_components_attain_what_they_say(name, nearby, count):
    """Separators far too wide for a table: the values named give the swing of every known set, and
    no change of one value of the separator gives more."""
    model = network(name)
    graph = qd.moralize(model)
    wide = [
        q
        for n in model.nodes[::3]
        for q in qd.quilts(graph, n, max_nearby=nearby)
        if len(q.separator) > 12 and q.nearby
    ]
    space = Workspace(model)
    for k in np.random.default_rng(2).choice(len(wide), count, replace=False):
        quilt = wide[k]
        target = quilt.target
        found = quilt_influence(model, quilt, rays=True, workspace=space)
        assert found.exact
        where = Region(space, (target,), quilt.nearby, quilt.separator, RAYS)
        for known in subsets(where.records):
            swing = found.swing_of[frozenset(known)]
            attained = where.swing_at(known)
            if attained is None or math.isinf(swing):
                continue
            pair, at = attained
            hidden = [n for n in quilt.nearby if n not in known]
            x, y = (end[target] for end in where.target_values(pair))

            def move(at, target=target, hidden=hidden, x=x, y=y) -> float:
                law = factor_odds(model, target, hidden, at)
                return float(law[x] - law[y])

            up = {**at, **where.separator_values(at, pair)}
            down = {**at, **where.separator_values(at, where.reversed_pair(pair))}
            most, least = move(up), move(down)
            assert close(most - least, swing)
            for n in where.separator:
                for v in range(model.cardinality(n)):
                    assert move(up | {n: v}) <= most + 1e-9
                    assert move(down | {n: v}) >= least - 1e-9

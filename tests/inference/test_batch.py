"""quiltdp.inference.batch, quiltdp.inference.packing: compiled loops give the bytes of numpy."""

import math
import pickle
import random
from itertools import combinations

import numpy as np
import pytest
from strategies import example_models, random_network

import quiltdp as qd
from quiltdp.compiled import kernel
from quiltdp.errors import InvalidArgument, ModelTooWide, UnknownNode
from quiltdp.inference import batch, marginals
from quiltdp.inference.batch import Batch, swings_of_many
from quiltdp.inference.joint import joint_law
from quiltdp.inference.marginals import extended_log_marginals
from quiltdp.inference.moves import Moves
from quiltdp.inference.packing import Asked
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influences, swings
from quiltdp.inference.workspace import Workspace

pytestmark = pytest.mark.skipif(kernel("qd_quilt_plan") is None, reason="needs the compiled kernels")

LIMITS = {
    "off the joint": Limits(),
    "by pieces": Limits(joint=0),
    "some one by one": Limits(joint=0, together=60),
    "some off the joint": Limits(together=60),
    "some hubs maximised": Limits(joint=0, component=8),
    "some rays": Limits(joint=0, rays=True, rays_from=8),
}


def every_quilt(model, max_nearby=4):
    graph = qd.moralize(model)
    return [q for n in model.nodes for q in qd.quilts(graph, n, max_nearby=max_nearby)]


def exactly(found):
    """Everything of an answer, to the last bit."""
    numbers = (found.b, found.swing, found.swing_upper, *found.swing_by_known, *found.swing_of.values())
    return [x.hex() for x in numbers], found.exact, list(found.swing_of), found.witness, found.b_witness


def in_both(monkeypatch, model, quilts, limits, **options):
    """Return the answers of compiled loops and of numpy alone, and how many the loops looked at."""
    looked = []
    plain = Batch.readings

    def counted(self):
        for reading in plain(self):
            looked.append(reading)
            yield reading

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "readings", counted)
        compiled = quilt_influences(model, quilts, limits=limits, **options)
    with monkeypatch.context() as patch:
        patch.setattr(batch, "kernel", lambda name: None)
        numpy = quilt_influences(model, quilts, limits=limits, **options)
    assert [exactly(f) for f in compiled] == [exactly(f) for f in numpy]
    return len(looked)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("name", example_models())
def test_every_shape_gives_the_bytes_of_numpy(monkeypatch, name, limits):
    model = example_models()[name]
    in_both(monkeypatch, model, every_quilt(model), limits)
    in_both(monkeypatch, model, every_quilt(model), limits, exact_support=False)


def drawn(seed):
    """A random network with zeros, latent nodes and nodes of one state, and its quilts in any order."""
    rng = random.Random(seed)
    names = [f"N{rng.randrange(1000)}_{k}" for k in range(rng.randint(5, 11))]
    parents = {n: rng.sample(names[:k], min(k, rng.choice([0, 1, 1, 2, 3]))) for k, n in enumerate(names)}
    sizes = {n: rng.choice([1, 2, 2, 2, 3, 3, 4]) for n in names}
    records = None if seed % 2 else rng.sample(names, len(names) - rng.randint(1, 3))
    zeros = (0.0, 0.2, 0.5)[seed % 3]
    model = random_network(seed, parents, sizes, zeros=zeros, alpha=rng.choice([0.3, 1.0]), records=records)
    quilts = every_quilt(model, 3)
    rng.shuffle(quilts)
    return model, quilts[:60]


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_give_the_bytes_of_numpy(monkeypatch, seed):
    model, quilts = drawn(seed)
    assert in_both(monkeypatch, model, quilts, LIMITS["by pieces"]) > 0
    for name in ("off the joint", "some one by one", "some hubs maximised"):
        in_both(monkeypatch, model, quilts, LIMITS[name])


def test_a_network_is_read_off_whole(monkeypatch):
    model = qd.example("asia")
    quilts = [q for q in every_quilt(model, 2) if q.separator]
    assert in_both(monkeypatch, model, quilts, Limits()) == len(quilts)
    assert in_both(monkeypatch, model, quilts, Limits(joint=0)) == len(quilts)


@pytest.mark.parametrize("joint", [0, 2**12])
def test_little_room_cuts_a_batch_up(monkeypatch, joint):
    model, quilts = drawn(3)
    monkeypatch.setattr(batch, "BATCH_ENTRIES", 200)
    assert in_both(monkeypatch, model, quilts, Limits(joint=joint)) > 0


def test_a_plan_gets_the_room_it_needs(monkeypatch):
    model = qd.example("alarm")
    quilts = [q for q in every_quilt(model, 3) if q.target == "VENTLUNG" and q.separator]
    space = Workspace(model)
    made = Batch(Moves(space, Limits()), quilts, True, None)
    asked = Asked(made._model, made._groups, made._targets, made._group_of)
    large = made._planned(asked)
    monkeypatch.setattr(batch, "BATCH_TABLES", 0)
    small = made._planned(asked)
    assert np.array_equal(large.slot, small.slot)
    assert np.array_equal(large.comp, small.comp)
    assert np.array_equal(large.line_at, small.line_at)


def test_few_quilts_of_a_large_model_are_not_packed():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=2000)
    quilts = list(qd.quilts(qd.moralize(model), "X5", max_nearby=3))
    assert Batch.of(Moves(Workspace(model), Limits()), quilts, True, None) is None


def test_infinities_and_impossible_values(monkeypatch):
    """A copied bit is forgotten beyond its copy, and a value that only the rest forbids never counts."""
    copy = [[1.0, 0.0], [0.0, 1.0]]
    model = qd.Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": (["A"], copy),
            "C": (["B"], [[0.9, 0.1], [0.3, 0.7]]),
            "D": (["C"], [[1.0, 0.0], [1.0, 0.0]]),
            "E": (["D"], [[0.6, 0.4], [0.1, 0.9]]),
        }
    )
    quilts = every_quilt(model)
    for limits in (Limits(), Limits(joint=0)):
        assert in_both(monkeypatch, model, quilts, limits) > 0
    assert math.inf in [f.b for f in quilt_influences(model, quilts)]


def test_refused_quilts_are_refused_as_in_numpy(monkeypatch):
    model = qd.example("asia")
    quilts = [q for q in every_quilt(model, 2) if q.separator]
    wrong = batch_quilt("xray", {"tub"}, set())
    strange = batch_quilt("xray", {"either"}, {"nobody"})
    for limits in (Limits(), Limits(joint=0)):
        with pytest.raises(InvalidArgument, match="does not separate"):
            quilt_influences(model, [*quilts, wrong], limits=limits)
        with pytest.raises(UnknownNode, match="nobody"):
            quilt_influences(model, [*quilts, strange], limits=limits)
    with pytest.raises(ModelTooWide, match="over the limit of 2"):
        quilt_influences(model, quilts, limits=Limits(known_sets=2))


class batch_quilt:  # noqa: N801 - stands for a value
    def __init__(self, target, separator, nearby):
        self.target, self.separator, self.nearby = target, frozenset(separator), frozenset(nearby)


def test_the_model_is_packed_once_for_a_workspace():
    model = qd.example("asia")
    space = Workspace(model)
    moves = Moves(space, Limits())
    quilts = [q for q in every_quilt(model, 2) if q.separator]
    law = joint_law(space, Limits().joint)
    first, second = (Batch.of(moves, quilts, True, law) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first._model is second._model


@pytest.mark.parametrize("limits", [Limits(), Limits(entries=40), Limits(together=60), Limits(component=8)])
def test_swings_of_many_are_those_of_each(limits):
    """Whatever the loops look at; some tables are too wide for them."""
    for model in (qd.example("asia"), qd.example("cancer"), qd.example("child")):
        quilts = every_quilt(model, 2)[:150]
        space = Workspace(model)
        found = swings_of_many(space, quilts, limits)
        assert found
        for k, row in found.items():
            q = quilts[k]
            alone = swings(
                model, [q.target], q.nearby, q.separator, limits=limits, workspace=Workspace(model)
            )
            records = sorted(n for n in q.nearby if model.is_record(n))
            for entry, value in enumerate(row):
                bits = format(entry, f"0{len(records)}b") if records else ""
                known = frozenset(n for n, bit in zip(records, bits, strict=True) if bit == "0")
                assert alone[known].hex() == value.hex()


def test_extended_marginals_give_the_bytes_of_numpy(monkeypatch):
    model = random_network(
        5,
        {"A": [], "B": ["A"], "C": ["A", "B"], "D": ["C"], "E": [], "F": ["D", "B"]},
        {"A": 2, "B": 3, "C": 1, "D": 4, "E": 2, "F": 2},
        zeros=0.3,
    )
    sets = [s for k in range(5) for s in combinations(sorted(model.nodes), k)]
    compiled = extended_log_marginals(Workspace(model), sets)
    monkeypatch.setattr(marginals, "kernel", lambda name: None)
    plain = extended_log_marginals(Workspace(model), sets)
    assert list(compiled) == sets
    for nodes, table in plain.items():
        found = compiled[nodes]
        assert found is not None
        assert table is not None
        assert found.shape == table.shape
        assert found.tobytes() == np.ascontiguousarray(table).tobytes(), nodes


def test_an_answer_makes_what_is_asked_for_and_is_the_same_when_sent():
    model = qd.example("asia")
    quilts = [q for q in every_quilt(model, 2) if q.separator]
    found, again = quilt_influences(model, quilts), quilt_influences(model, quilts)
    assert pickle.loads(pickle.dumps(found[3])) == again[3]
    assert "swing_of=" in repr(found[4])
    assert found[5].swing_of is found[5].swing_of
    assert max(found[5].swing_of.values()) == found[5].swing_upper
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = found[5].nothing


def test_more_nearby_nodes_than_a_kernel_holds_are_asked_alone(monkeypatch):
    monkeypatch.setattr(batch, "SMALL_BATCH", 1)
    monkeypatch.setattr(batch, "BATCH_NODES", 100)
    nodes = [f"A{k:02d}" for k in range(20)]
    sizes = [2 if k in (0, 10, 19) else 1 for k in range(20)]
    rng = np.random.default_rng(0)
    tables = {
        n: (
            nodes[k - 1 : k] if k else [],
            rng.dirichlet(np.ones(sizes[k]), size=sizes[k - 1 : k] if k else ()),
        )
        for k, n in enumerate(nodes)
    }
    model = qd.Model.from_tables(tables)
    graph = qd.moralize(model)
    wide = [q for q in qd.quilts(graph, "A00", max_nearby=20) if q.separator and len(q.nearby) == 13]
    assert wide
    given, call = [], batch._call
    monkeypatch.setattr(batch, "_call", lambda name, *a: (given.append((name, a)), call(name, *a))[1])
    limits = Limits(known_sets=2**20)
    (found,) = quilt_influences(model, wide[:1], limits=limits)
    alone = qd.quilt_influence(model, wide[0], limits=limits)
    assert (found.b, found.swing) == (alone.b, alone.swing)
    places = [a[6] for name, a in given if name == "qd_joint_quilts"]
    assert places
    assert all((p == -1).all() for p in places)  # the kernel is told to leave them alone

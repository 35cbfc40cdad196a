"""Models to test on: Hypothesis strategies, one fixed example per shape, and the reference networks.

Structure (nodes, parents, states, records) is drawn by Hypothesis and shrinks; the numbers in the
tables come from a drawn seed, with a drawn share of exact zeros and a drawn concentration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from quiltdp import Model, markov_chain

DATA = Path(__file__).parent / "data"

SHAPES = ("one node", "chain", "tree", "loop", "disconnected", "zeros", "latents", "dense")


# -- tables ---------------------------------------------------------------------------------


def random_cpt(
    rng: np.random.Generator, parents: Sequence[int], size: int, *, zeros: float = 0.0, alpha: float = 1.0
) -> np.ndarray:
    """Return a CPT with axes parents…, node; every row keeps at least one positive entry."""
    table = rng.gamma(alpha, size=(*parents, size)) + 1e-6
    mask = rng.random(table.shape) < zeros
    keep = rng.integers(size, size=tuple(parents))
    np.put_along_axis(mask, keep[..., None], False, axis=-1)
    table[mask] = 0.0
    return table / table.sum(axis=-1, keepdims=True)


def random_network(
    seed: int,
    parents: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
    *,
    zeros: float = 0.0,
    alpha: float = 1.0,
    records: Iterable[str] | None = None,
) -> Model:
    """Return a Bayesian network with this structure and seeded random tables."""
    rng = np.random.default_rng(seed)
    tables = {
        n: (list(ps), random_cpt(rng, [sizes[p] for p in ps], sizes[n], zeros=zeros, alpha=alpha))
        for n, ps in parents.items()
    }
    return Model.from_tables(tables, records=None if records is None else list(records))


# -- Hypothesis strategies ------------------------------------------------------------------


@st.composite
def structures(
    draw: st.DrawFn, shape: str | None = None, min_nodes: int = 1, max_nodes: int = 6, max_parents: int = 3
) -> dict[str, tuple[str, ...]]:
    """Draw ``node -> parents`` of one shape: chain, tree, loop, disconnected, one node, or anything."""
    low = {"one node": 1, "chain": 2, "tree": 2, "loop": 4, "disconnected": 2, "latents": 2}.get(
        shape or "", 1
    )
    count = 1 if shape == "one node" else draw(st.integers(max(low, min_nodes), max(low, max_nodes)))
    names = [f"X{k}" for k in range(count)]
    if shape == "chain":
        return {n: (names[k - 1],) if k else () for k, n in enumerate(names)}
    if shape == "tree":
        return {n: (names[draw(st.integers(0, k - 1))],) if k else () for k, n in enumerate(names)}
    if shape == "loop":  # two directed paths from the first node to the last one
        cut = draw(st.integers(1, count - 3)) if count > 3 else 1
        left, right = names[: cut + 1], [names[0], *names[cut + 1 : -1]]
        found: dict[str, tuple[str, ...]] = {names[0]: ()}
        for path in (left, right):
            found.update({b: (a,) for a, b in pairwise(path)})
        found[names[-1]] = tuple(dict.fromkeys((left[-1], right[-1])))
        return found
    split = draw(st.integers(1, count - 1)) if shape == "disconnected" else 0
    result = {}
    for k, n in enumerate(names):
        earlier = names[split:k] if k >= split else names[:k]
        wanted = draw(st.integers(0, min(len(earlier), max_parents)))
        result[n] = tuple(draw(st.permutations(earlier)))[:wanted]
    return result


@st.composite
def bayesian_networks(
    draw: st.DrawFn,
    shape: str | None = None,
    *,
    min_nodes: int = 1,
    max_nodes: int = 6,
    max_states: int = 4,
    max_joint: int = 1024,
    zeros: bool | None = None,
    latents: bool | None = None,
) -> Model:
    """Draw a Bayesian network; ``zeros``/``latents`` force or forbid them, ``None`` draws either."""
    parents = draw(structures(shape, min_nodes, max_nodes))
    sizes: dict[str, int] = {}
    room = max_joint
    for n in parents:
        sizes[n] = draw(st.integers(1, max(1, min(max_states, room))))
        room //= sizes[n]
    with_zeros = zeros if zeros is not None else shape == "zeros" or draw(st.booleans())
    share = draw(st.sampled_from([0.15, 0.35, 0.6])) if with_zeros else 0.0
    with_latents = latents if latents is not None else shape == "latents" or draw(st.booleans())
    records = None
    if with_latents:
        records = draw(st.sets(st.sampled_from(list(parents)), min_size=1))
    return random_network(
        draw(st.integers(0, 2**32 - 1)),
        parents,
        sizes,
        zeros=share,
        alpha=draw(st.sampled_from([0.3, 1.0, 5.0])),
        records=records,
    )


@st.composite
def markov_networks(
    draw: st.DrawFn, *, max_nodes: int = 5, max_states: int = 3, zeros: bool | None = None
) -> Model:
    """Draw a Markov network of possible total mass: potentials on random scopes, maybe with zeros."""
    count = draw(st.integers(1, max_nodes))
    names = [f"X{k}" for k in range(count)]
    sizes = {n: draw(st.integers(1, max_states)) for n in names}
    scopes = draw(
        st.lists(st.sets(st.sampled_from(names), min_size=1, max_size=3), min_size=1, max_size=count + 2)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = (
        draw(st.sampled_from([0.1, 0.3])) if (zeros if zeros is not None else draw(st.booleans())) else 0.0
    )
    alive = {n: int(rng.integers(sizes[n])) for n in names}  # this state keeps positive mass
    potentials = []
    for scope in map(sorted, scopes):
        table = rng.gamma(1.0, size=[sizes[n] for n in scope]) + 1e-6
        mask = rng.random(table.shape) < share
        mask[tuple(alive[n] for n in scope)] = False
        table[mask] = 0.0
        potentials.append((scope, table))
    records = draw(st.one_of(st.none(), st.sets(st.sampled_from(names), min_size=1)))
    return Model.from_potentials(sizes, potentials, records=records)


@st.composite
def chains(draw: st.DrawFn, *, max_length: int = 6, max_states: int = 3, zeros: bool = False) -> Model:
    """Draw a Markov chain (homogeneous or not), as ``markov_chain`` builds it."""
    length, size = draw(st.integers(1, max_length)), draw(st.integers(2, max_states))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = 0.3 if zeros else 0.0
    initial = random_cpt(rng, [], size, zeros=share)
    if draw(st.booleans()):
        return markov_chain(random_cpt(rng, [size], size, zeros=share), length, initial)
    steps = [random_cpt(rng, [size], size, zeros=share) for _ in range(max(1, length - 1))]
    return markov_chain(steps, max(2, length), initial)


def models(shape: str | None = None, **options: Any) -> st.SearchStrategy[Model]:
    """Draw a model of any kind, or a Bayesian network of one ``shape`` of :data:`SHAPES`."""
    if shape is not None:
        return bayesian_networks(shape, **options)
    networks = st.one_of(*(bayesian_networks(s, **options) for s in SHAPES))
    return networks if options else st.one_of(networks, markov_networks(), chains())


# -- fixed models ---------------------------------------------------------------------------


@cache
def example_models() -> dict[str, Model]:
    """Return one fixed model per shape, for parametrised contract tests."""
    binary = dict.fromkeys((f"X{k}" for k in range(6)), 2)
    mixed = {"X0": 2, "X1": 3, "X2": 2, "X3": 3, "X4": 2, "X5": 2}
    chain = {f"X{k}": (f"X{k - 1}",) if k else () for k in range(5)}
    tree = {"X0": (), "X1": ("X0",), "X2": ("X0",), "X3": ("X1",), "X4": ("X1",)}
    loop = {"X0": (), "X1": ("X0",), "X2": ("X0",), "X3": ("X1", "X2"), "X4": ("X3",)}
    apart = {"X0": (), "X1": ("X0",), "X2": (), "X3": ("X2",), "X4": ()}
    dense = {"X0": (), "X1": ("X0",), "X2": ("X0", "X1"), "X3": ("X0", "X1", "X2")}
    sizes = {"A": 2, "B": 3, "C": 2, "D": 2}
    rng = np.random.default_rng(7)
    square = [((a, b), rng.gamma(1.0, size=(sizes[a], sizes[b]))) for a, b in ("AB", "BC", "CD", "DA")]
    return {
        "one node": random_network(1, {"X0": ()}, {"X0": 3}),
        "chain": random_network(2, chain, mixed),
        "tree": random_network(3, tree, mixed),
        "loop": random_network(4, loop, mixed),
        "disconnected": random_network(5, apart, mixed),
        "zeros": random_network(6, loop, mixed, zeros=0.3),
        "zeros in a tree": random_network(61, tree, mixed, zeros=0.4),
        "zeros in a chain": random_network(62, chain, mixed, zeros=0.4),
        "latents": random_network(7, loop, mixed, records=["X1", "X2", "X4"]),
        "latents and zeros": random_network(8, tree, mixed, zeros=0.3, records=["X0", "X3", "X4"]),
        "dense": random_network(9, dense, binary),
        "markov network": Model.from_potentials(sizes, square),
        "markov chain": markov_chain([[0.9, 0.1], [0.3, 0.7]], 5),
        "one state": random_network(10, chain, {**mixed, "X2": 1}),
    }


@dataclass(frozen=True)
class ReferenceQuilt:
    """One quilt of a reference network with its brute-forced b and swing."""

    target: str
    separator: frozenset[str]
    nearby: frozenset[str]
    remote: frozenset[str]
    b: float
    swing: float


@dataclass(frozen=True)
class ReferenceNetwork:
    """One network of ``tests/data/reference/networks.json``: model, limits, bounds and quilts."""

    model: Model
    dp_epsilon: float
    limit: float
    prior_limit: Mapping[str, float]
    bounds: Mapping[str, float]
    quilts: tuple[ReferenceQuilt, ...]


@cache
def reference_networks() -> tuple[ReferenceNetwork, ...]:
    """Load the 60 reference networks (``"inf"`` becomes ∞)."""
    raw = json.loads((DATA / "reference" / "networks.json").read_text())
    return tuple(_reference(entry) for entry in raw)


def _reference(entry: Mapping[str, Any]) -> ReferenceNetwork:
    tables = {n: (t["parents"], t["table"]) for n, t in entry["tables"].items()}
    quilts = tuple(
        ReferenceQuilt(
            q["target"],
            frozenset(q["quilt"]),
            frozenset(q["nearby"]),
            frozenset(q["remote"]),
            float(q["b"]),
            float(q["swing"]),
        )
        for q in entry["quilts"]
    )
    return ReferenceNetwork(
        Model.from_tables(tables, records=entry["records"]),
        float(entry["dp_epsilon"]),
        float(entry["limit"]),
        {n: float(v) for n, v in entry["prior_limit"].items()},
        {n: float(v) for n, v in entry["bounds"].items()},
        quilts,
    )

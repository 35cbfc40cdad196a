"""Independent parts of a model, each kind once.

Records in different connected components are independent, so a record's leakage depends on its own
component only; and components that are copies of each other (thousands of families of one shape)
have the same leakage.  :func:`component_classes` finds the distinct ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel
from quiltdp.model import Factor, Model

__all__ = ["ComponentClass", "component_classes"]

_LARGE = 2000  # components beyond it are not compared with others

Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ComponentClass:
    """One connected model and where its copies lie.

    ``copies[c][k]`` is the position, in the whole model, of node k of ``model`` in copy c.
    """

    model: Model
    copies: tuple[Ints, ...]


def component_classes(model: Model) -> tuple[ComponentClass, ...]:
    """Return the distinct connected components of ``model`` with the places of their copies.

    Two components are one class when some renaming of nodes carries tables (the same table object),
    scopes and records of one onto the other.  The renaming is checked, never assumed; copies listed
    in an unusual order may be missed, which costs time and nothing else.
    """
    if isinstance(model, ChainModel):
        return _chain_classes(model)
    groups = _groups(model)
    if len(groups) == 1:
        return (ComponentClass(model, (np.arange(len(model.nodes), dtype=np.intp),)),)
    found: dict[object, tuple[Model, list[Ints]]] = {}
    for nodes, factors in groups:
        order = _canonical_order(model, nodes, factors)
        key = _signature(model, order, factors) if len(nodes) <= _LARGE else id(factors)
        if key not in found:
            found[key] = (_part(model, order, factors), [])
        found[key][1].append(np.array(order, dtype=np.intp))
    return tuple(ComponentClass(part, tuple(copies)) for part, copies in found.values())


def _chain_classes(model: ChainModel) -> tuple[ComponentClass, ...]:
    """Segments with the same tables and length are copies."""
    found: dict[object, tuple[Model, list[Ints]]] = {}
    start = 0
    for s in model.segments:
        key = (s.length, s.initial.tobytes(), tuple(id(t) for t in s.transitions))
        if key not in found:
            names = model.states[f"{s.prefix}0"] if s.homogeneous else None
            found[key] = (ChainModel([s], names), [])
        found[key][1].append(np.arange(start, start + s.length, dtype=np.intp))
        start += s.length
    return tuple(ComponentClass(part, tuple(copies)) for part, copies in found.values())


def _groups(model: Model) -> list[tuple[list[int], list[int]]]:
    """Return (nodes, factors) of every connected component, by position."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    index = model.index
    n, f = len(model.nodes), len(model.factors)
    rows, cols = [], []
    for k, factor in enumerate(model.factors):
        for name in factor.scope:
            rows.append(index[name])
            cols.append(n + k)
    graph = csr_matrix((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(n + f, n + f))
    _, label = connected_components(graph, directed=False)
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for j in range(n):
        groups.setdefault(int(label[j]), ([], []))[0].append(j)
    for k in range(f):
        if int(label[n + k]) in groups:
            groups[int(label[n + k])][1].append(k)
    return list(groups.values())


def _canonical_order(model: Model, nodes: Sequence[int], factors: Sequence[int]) -> list[int]:
    """Return the nodes sorted by what they look like from two steps away, then as listed."""
    names = model.nodes
    if len(nodes) == 1 or len(nodes) > _LARGE:
        return list(nodes)
    scopes = [(id(model.factors[f].table), [model.index[n] for n in model.factors[f].scope]) for f in factors]
    colour: dict[int, object] = {j: (model.is_record(names[j]), model.cardinality(names[j])) for j in nodes}
    for _ in range(3):
        seen: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {j: [] for j in nodes}
        for table, scope in scopes:
            around = tuple(hash(colour[j]) for j in scope)
            for axis, j in enumerate(scope):
                seen[j].append((table, axis, around))
        colour = {j: (colour[j], tuple(sorted(seen[j]))) for j in nodes}
        colour = {j: hash(c) for j, c in colour.items()}
    return sorted(nodes, key=lambda j: (colour[j], j))


def _signature(model: Model, order: Sequence[int], factors: Sequence[int]) -> object:
    """Return the whole structure with nodes named by their place in ``order``."""
    place = {model.nodes[j]: k for k, j in enumerate(order)}
    parts = sorted(
        (tuple(place[n] for n in model.factors[f].scope), id(model.factors[f].table)) for f in factors
    )
    kinds = tuple((model.is_record(model.nodes[j]), model.cardinality(model.nodes[j])) for j in order)
    return (kinds, tuple(parts))


def _part(model: Model, order: Sequence[int], factors: Sequence[int]) -> Model:
    """Return one component as a model of its own, in the given node order.

    A component without any record (only latents) is kept with all its nodes as records: nothing is
    ever asked of it.
    """
    names = [model.nodes[j] for j in order]
    chosen: list[Factor] = [model.factors[f] for f in factors]
    records = [n for n in names if model.is_record(n)] or names
    return Model({n: model.states[n] for n in names}, chosen, records)

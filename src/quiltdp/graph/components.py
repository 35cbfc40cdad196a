"""Connected components: the one routine, the independent parts of a model, and its factor graph.

Records in different connected components are independent, so a record's leakage depends on its own
component only; and components that are copies of each other (thousands of families of one shape)
have the same leakage.  :func:`component_classes` finds the distinct ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.model import Factor, Model, Table

_LARGE = 2000  # components beyond it are not compared with others
_SCIPY = 50_000  # nodes from which scipy, with its import, is quicker than a union of sets in Python

Ints = NDArray[np.intp]
Places = Ints | range


def connected_components(count: int, pairs: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the component of every node 0, …, count − 1; components are numbered by their first node.

    Examples
    --------
    >>> connected_components(5, np.array([[1, 3], [4, 3]])).tolist()
    [0, 1, 2, 1, 1]
    """
    if count > _SCIPY:
        from scipy.sparse import coo_array, csgraph

        ones = np.ones(len(pairs), dtype=np.int8)
        matrix = coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
        found = csgraph.connected_components(matrix, directed=False)[1]
        _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)
    above = list(range(count))

    def find_root(k: int) -> int:
        while above[k] != k:
            above[k] = k = above[above[k]]
        return k

    for one, two in pairs.tolist():
        a, b = find_root(one), find_root(two)
        above[max(a, b)] = min(a, b)
    number: dict[int, int] = {}
    labels = []
    for k in range(count):
        above[k] = above[above[k]]  # the first node of a component is its root, met before the others
        labels.append(number.setdefault(above[k], len(number)))
    return np.array(labels, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ComponentClass:
    """One connected model and where its copies lie.

    ``copies[c][k]`` is the position, in the whole model, of node k of ``model`` in copy c; those of
    chains are ranges.
    """

    model: Model
    copies: tuple[Places, ...]


def component_classes(model: Model) -> tuple[ComponentClass, ...]:
    """Return the distinct connected components of ``model`` with the places of their copies.

    Two components are one class when some renaming of nodes carries tables (the same table object),
    scopes and records of one onto the other.  The renaming is checked, never assumed; copies listed
    in an unusual order may be missed, which costs time and nothing else.
    """
    if isinstance(model, ChainModel):
        return _chain_component_classes(model)
    groups = _group_by_component(model)
    if len(groups) == 1:
        return (ComponentClass(model, (np.arange(len(model.nodes), dtype=np.intp),)),)
    tables: dict[int, int] = {}  # every distinct table by its place, which is the same in every process
    for f in model.factors:
        tables.setdefault(id(f.table), len(tables))
    found: dict[object, tuple[Model, list[Ints]]] = {}
    for nodes, factors in groups:
        order = _canonical_order(model, nodes, factors, tables)
        key = _structure_key(model, order, factors, tables) if len(nodes) <= _LARGE else tuple(nodes)
        if key not in found:
            found[key] = (_component_model(model, order, factors), [])
        found[key][1].append(np.array(order, dtype=np.intp))
    return tuple(ComponentClass(part, tuple(copies)) for part, copies in found.values())


def dependent_records(model: Model) -> Iterator[Sequence[str]]:
    """Yield the records of every component that has at least two.

    A chain is cut at a transition all of whose rows are equal: what follows does not depend on what was.

    Examples
    --------
    >>> import quiltdp as qd
    >>> twins = {"ann": ([], [0.5, 0.5]), "eve": (["ann"], [[0.9, 0.1], [0.2, 0.8]]), "bob": ([], [0.5, 0.5])}
    >>> [*dependent_records(qd.Model.from_tables(twins))]
    [['ann', 'eve']]
    """
    if isinstance(model, ChainModel):
        for s in model.segments:
            yield from _dependent_steps(s)
        return
    for nodes, _ in _group_by_component(model):
        records = [model.nodes[j] for j in nodes if model.is_record(model.nodes[j])]
        if len(records) > 1:
            yield records


def _dependent_steps(s: ChainSegment) -> Iterator[Sequence[str]]:
    cuts = {id(table): bool((table == table[:1]).all()) for table in s.transitions}
    steps = range(s.length - 1)
    if len(s.transitions) == 1:  # all of them, or none
        ends = [] if cuts[id(s.transitions[0])] else [s.length]
    else:
        ends = [t + 1 for t in steps if cuts[id(s.transitions[t])]] + [s.length]
    first = 0
    for end in ends:
        if end - first > 1:
            yield [f"{s.prefix}{t}" for t in range(first, end)]
        first = end


def _chain_component_classes(model: ChainModel) -> tuple[ComponentClass, ...]:
    """Segments with the same tables and length are copies."""
    found: dict[object, tuple[Model, list[range]]] = {}
    equal: dict[bytes, list[Table]] = {}  # distinct tables, by what is likely to tell them apart
    first: dict[int, int] = {}  # the first of all tables that are equal to a table

    def register_equal(table: Table) -> None:
        if id(table) not in first:
            like = equal.setdefault(table[:1].tobytes() + table[:, :1].tobytes(), [])
            known = next((t for t in like if np.array_equal(t, table)), table)
            if known is table:
                like.append(table)
            first[id(table)] = id(known)

    start = 0
    for s in model.segments:
        for table in {id(t): t for t in s.transitions}.values():
            register_equal(table)
        key = (s.length, s.initial.tobytes(), tuple([first[id(t)] for t in s.transitions]))
        if key not in found:
            names = model.states[f"{s.prefix}0"] if s.homogeneous else None
            found[key] = (ChainModel([s], names), [])
        found[key][1].append(range(start, start + s.length))
        start += s.length
    return tuple(ComponentClass(part, tuple(copies)) for part, copies in found.values())


def _group_by_component(model: Model) -> list[tuple[list[int], list[int]]]:
    """Return (nodes, factors) of every connected component, by position."""
    index = model.index
    scopes = [[index[n] for n in f.scope] for f in model.factors]
    pairs = np.array([(s[0], j) for s in scopes for j in s[1:]], dtype=np.intp).reshape(-1, 2)
    label = connected_components(len(model.nodes), pairs).tolist()
    groups: list[tuple[list[int], list[int]]] = [([], []) for _ in range(max(label) + 1)]
    for j, k in enumerate(label):
        groups[k][0].append(j)
    for f, scope in enumerate(scopes):
        if scope:
            groups[label[scope[0]]][1].append(f)
    return groups


def _canonical_order(
    model: Model, nodes: Sequence[int], factors: Sequence[int], tables: Mapping[int, int]
) -> list[int]:
    """Return the nodes sorted by what they look like from two steps away, then as listed."""
    names = model.nodes
    if len(nodes) == 1 or len(nodes) > _LARGE:
        return list(nodes)
    scopes = [
        (tables[id(model.factors[f].table)], [model.index[n] for n in model.factors[f].scope])
        for f in factors
    ]
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


def _structure_key(
    model: Model, order: Sequence[int], factors: Sequence[int], tables: Mapping[int, int]
) -> object:
    """Return the whole structure with nodes named by their place in ``order``."""
    place = {model.nodes[j]: k for k, j in enumerate(order)}
    parts = sorted(
        (tuple(place[n] for n in model.factors[f].scope), tables[id(model.factors[f].table)]) for f in factors
    )
    names = [model.nodes[j] for j in order]
    kinds = tuple((model.is_record(n), model.cardinality(n), model.people.get(n, 1)) for n in names)
    return (kinds, tuple(parts))


def _component_model(model: Model, order: Sequence[int], factors: Sequence[int]) -> Model:
    """Return one component as a model of its own, in the given node order.

    A component without any record (only latents) is kept with all its nodes as records: nothing is
    ever asked of it.
    """
    names = [model.nodes[j] for j in order]
    chosen: list[Factor] = [model.factors[f] for f in factors]
    records = [n for n in names if model.is_record(n)] or names
    people = {n: k for n, k in model.people.items() if n in names}
    return Model({n: model.states[n] for n in names}, chosen, records, people=people)


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """Edges (node, factor) of a model, sorted by factor: what message passing runs on.

    Factors over a single node carry no correlation and are left out.

    ``edge_node[e]`` and ``edge_factor[e]`` are the ends of edge ``e``; ``factor_position[f]`` is the
    place of factor ``f`` in ``model.factors``; ``component[j]`` numbers the connected component of
    node ``j``.
    """

    nodes: int
    edge_node: Ints
    edge_factor: Ints
    factor_position: Ints
    component: Ints

    @property
    def factors(self) -> int:
        """The number of factors with at least two nodes."""
        return len(self.factor_position)


def factor_graph(model: Model) -> FactorGraph:
    """Return the factor graph of ``model``, leaving out factors over a single node."""
    index = model.index
    edge_node: list[int] = []
    sizes: list[int] = []
    kept: list[int] = []
    for k, factor in enumerate(model.factors):
        if len(factor.scope) > 1:
            kept.append(k)
            sizes.append(len(factor.scope))
            edge_node.extend([index[n] for n in factor.scope])
    n, f = len(model.nodes), len(kept)
    nodes = np.array(edge_node, dtype=np.intp)
    factors = np.repeat(np.arange(f, dtype=np.intp), np.array(sizes, dtype=np.intp))
    starts = np.cumsum([0, *sizes[:-1]], dtype=np.intp) if f else np.zeros(0, dtype=np.intp)
    component = connected_components(n, np.stack((nodes[starts[factors]], nodes), axis=1))
    positions = np.array(kept, dtype=np.intp)
    return FactorGraph(n, nodes, factors, positions, component.astype(np.intp))

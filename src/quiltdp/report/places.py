"""Where nodes stand in a picture: pedigrees by generation, chains as a strip, networks in layers.

Places are found here, not in the browser, so that the same model always gives the same picture.  The states
of a location chain have places too: square cells are called by their column and row (``x522y5831``), hexagons
by their H3 index; other states have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.domains.pedigree.people import Pedigree, Person
from quiltdp.errors import QuiltdpError
from quiltdp.model import Model
from quiltdp.report.pedigree_layout import layout

_SHOWN = 600  # nodes drawn one by one; more are drawn in parts, or the ones that leak most
_STRIP = 150  # marks of one chain
_LINE = 25  # marks in a line of a strip
_STEP = 40.0  # points between neighbours
_SQUARE = re.compile(r"x(-?\d+)y(-?\d+)")
_MOVE = 0.05  # moves between cells at least this likely are drawn
_CELL = 34.0  # points between cells


@dataclass(frozen=True)
class Picture:
    """Nodes with places and edges between them; ``parts`` lists the records behind a mark of many.

    Attributes
    ----------
    kind
        ``pedigree``, ``strip`` or ``network``.
    places
        Mark → (x, y), y downwards.
    edges
        Pairs of marks, and whether the edge has a direction.
    parts
        Mark → the records it stands for; empty when every mark is a node.
    left_out
        How many nodes are not shown.
    """

    kind: str
    places: Mapping[str, tuple[float, float]]
    edges: tuple[tuple[str, str, bool], ...]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: int = 0


def place_nodes(model: Model, leaks: Mapping[str, float]) -> Picture:
    """Return the places of a model's nodes.

    Parameters
    ----------
    model
        The model.
    leaks
        Leakage by record; of a large network the records that leak most are shown.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> picture = place_nodes(chain, {})
    >>> picture.kind, picture.places["X1"]
    ('strip', (40.0, 0.0))
    """
    if isinstance(model, ChainModel):
        return _chain_strip(model)
    shown = _shown_nodes(model, leaks)
    if len(shown) == len(model.nodes) and model.provenance.get("format", "").endswith("pedigree"):
        drawn = _pedigree_picture(model)
        if drawn is not None:
            return drawn
    return _network_picture(model, shown)


def _chain_strip(model: ChainModel) -> Picture:
    """One row per chain; a long chain is cut into parts, each a mark of its own."""
    places: dict[str, tuple[float, float]] = {}
    edges: list[tuple[str, str, bool]] = []
    parts: dict[str, tuple[str, ...]] = {}
    rows = model.segments[: _SHOWN // 20]
    per_row = max(10, min(_STRIP, _SHOWN // len(rows)))
    first = line = 0
    for segment in rows:
        names = [str(n) for n in model.nodes[first : first + segment.length]]
        first += segment.length
        marks: list[tuple[str, ...]] = [(n,) for n in names]
        if len(names) > per_row:
            marks = [tuple(str(n) for n in part) for part in np.array_split(np.array(names), per_row)]
        before = ""
        for k, inside in enumerate(marks):
            mark = inside[0] if len(inside) == 1 else f"{inside[0]} … {inside[-1]}"
            if len(inside) > 1:
                parts[mark] = inside
            places[mark] = (k % _LINE * _STEP, (line + k // _LINE) * 1.6 * _STEP)
            if before:
                edges.append((before, mark, True))
            before = mark
        line += 1 + (len(marks) - 1) // _LINE
    left = sum(s.length for s in model.segments[len(rows) :])
    return Picture("strip", places, tuple(edges), parts, left)


def _shown_nodes(model: Model, leaks: Mapping[str, float]) -> list[str]:
    """Return all nodes, or of a large model those that leak most and their neighbours."""
    nodes = list(model.nodes)
    if len(nodes) <= _SHOWN:
        return nodes
    wanted = sorted(leaks, key=lambda n: (-leaks[n], model.index[n]))[: _SHOWN // 2]
    chosen = dict.fromkeys(wanted)
    for n in wanted:
        for f in model.factors_of[n]:
            for other in model.factors[f].scope:
                if len(chosen) < _SHOWN:
                    chosen.setdefault(other)
    return [n for n in nodes if n in chosen]


def _pedigree_picture(model: Model) -> Picture | None:
    people = []
    for factor in model.factors:
        *parents, name = factor.scope
        if factor.child != name or len(parents) not in (0, 2):
            return None
        father, mother = parents or (None, None)
        people.append(Person(name, father, mother))
    try:
        places = layout(Pedigree(tuple(people)))
    except QuiltdpError:
        return None
    edges = tuple((p, q.name, False) for q in people for p in q.parents)
    return Picture("pedigree", {n: (1.5 * _STEP * x, -2 * _STEP * y) for n, (x, y) in places.items()}, edges)


def _network_picture(model: Model, shown: list[str]) -> Picture:
    """Layers from parents to children for a directed model, a spring layout otherwise (networkx)."""
    import networkx as nx

    inside = set(shown)
    graph = nx.DiGraph() if model.directed else nx.Graph()
    graph.add_nodes_from(shown)
    for factor in model.factors:
        scope = [n for n in factor.scope if n in inside]
        if model.directed and factor.child in inside:
            graph.add_edges_from((p, factor.child) for p in scope if p != factor.child)
        elif not model.directed:
            graph.add_edges_from((a, b) for k, a in enumerate(scope) for b in scope[k + 1 :])
    split = nx.weakly_connected_components if model.directed else nx.connected_components
    parts = [sorted(part, key=model.index.__getitem__) for part in split(graph)]
    draw = _layered_places if model.directed else _spring_places
    places = _pack_side_by_side(
        [draw(graph.subgraph(part)) for part in sorted(parts, key=lambda p: model.index[p[0]])]
    )
    edges = tuple((str(a), str(b), model.directed) for a, b in graph.edges)
    return Picture("network", places, edges, {}, len(model.nodes) - len(shown))


def _pack_side_by_side(parts: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """Put the drawings of separate families side by side, in rows that make a page rather than a line."""
    if len(parts) == 1:
        return parts[0]
    boxes = []
    for part in parts:
        spots = np.array(list(part.values()))
        low, high = spots.min(axis=0), spots.max(axis=0)
        boxes.append((low, high - low + 2 * _STEP))
    widest = max(float(size[0]) for _, size in boxes)
    width = max(widest, float(np.sqrt(1.6 * sum(float(size[0] * size[1]) for _, size in boxes))))
    places: dict[str, tuple[float, float]] = {}
    x = y = tallest = 0.0
    for part, (low, size) in zip(parts, boxes, strict=True):
        if x > 0 and x + size[0] > width:
            x, y, tallest = 0.0, y + tallest, 0.0
        for n, (a, b) in part.items():
            places[n] = (x + a - float(low[0]), y + b - float(low[1]))
        x, tallest = x + float(size[0]), max(tallest, float(size[1]))
    return places


def _layered_places(graph: object) -> dict[str, tuple[float, float]]:
    import networkx as nx

    places: dict[str, tuple[float, float]] = {}
    x: dict[str, float] = {}
    for depth, layer in enumerate(nx.topological_generations(graph)):

        def preferred_x(n: str) -> float:
            above = [x[p] for p in graph.predecessors(n) if p in x]  # type: ignore[attr-defined]
            return float(np.mean(above)) if above else 0.0

        ordered = sorted(layer, key=lambda n: (preferred_x(n), str(n)))
        start = -0.5 * (len(ordered) - 1)
        for k, n in enumerate(ordered):
            x[n] = start + k
            places[str(n)] = (x[n] * 1.8 * _STEP, depth * 2.2 * _STEP)
    return places


def _spring_places(graph: object) -> dict[str, tuple[float, float]]:
    import networkx as nx

    scale = _STEP * max(4.0, 1.5 * float(np.sqrt(len(graph))))  # type: ignore[arg-type]
    spots = nx.spring_layout(graph, seed=1, iterations=80, scale=scale)
    return {str(n): (float(p[0]), float(p[1])) for n, p in spots.items()}


def state_map(model: Model) -> dict[str, Any] | None:
    """Return cells with places, shares of the time and the usual moves; ``None`` without located states.

    Examples
    --------
    >>> import quiltdp as qd
    >>> state_map(qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=5)) is None
    True
    """
    if not isinstance(model, ChainModel) or not model.provenance.get("cells"):
        return None
    segment = max(model.segments, key=lambda s: s.length)
    if not segment.homogeneous:
        return None
    names = [str(s) for s in model.states[model.nodes[0]]]
    places = _cell_places(names)
    if places is None:
        return None
    matrix = segment.transition(0)
    share = _visit_shares(segment.initial, matrix)
    order = [k for k in np.argsort(-share, kind="stable").tolist() if places[k] is not None][:_SHOWN]
    inside = set(order)
    moves = [
        [names[a], names[b], float(matrix[a, b])]
        for a in order
        for b in np.flatnonzero(matrix[a] >= _MOVE).tolist()
        if b != a and b in inside
    ]
    left = len(names) - len(order)
    return {
        "nodes": [
            {"id": names[k], "x": places[k][0], "y": places[k][1], "share": float(share[k])}
            for k in sorted(order)
        ],
        "moves": moves,
        "says": f"The {len(names):,} places of the model, {model.provenance['cells']}; redder ones are"
        f" visited more often, and arrows are moves of at least {100 * _MOVE:g} % a step, north is up."
        + (f" {left:,} are not drawn." if left else ""),
    }


def _visit_shares(initial: Any, matrix: Any) -> Any:
    """Return how often each state is visited, as the model has it; for the eye only."""
    law = np.asarray(initial, dtype=np.float64)
    total = np.zeros(len(law))
    for _ in range(200):
        total += law
        law = law @ matrix
    return total / total.sum()


def _cell_places(names: list[str]) -> list[tuple[float, float] | None] | None:
    squares = [_SQUARE.fullmatch(n) for n in names]
    if any(squares):
        spots = [None if m is None else (float(m[1]), -float(m[2])) for m in squares]
    else:
        hexagons = _hexagon_places(names)
        if hexagons is None:
            return None
        spots = hexagons
    known = np.array([p for p in spots if p is not None])
    corner = known.min(axis=0)
    step = 1.0 if any(squares) else _smallest_distance(known)
    return [
        None if p is None else ((p[0] - corner[0]) / step * _CELL, (p[1] - corner[1]) / step * _CELL)
        for p in spots
    ]


def _smallest_distance(known: Any) -> float:
    """Return the smallest distance between two places."""
    if len(known) < 2:
        return 1.0
    gaps = np.linalg.norm(known[:, None, :] - known[None, :, :], axis=2)
    return float(gaps[gaps > 0].min(initial=1.0))


def _hexagon_places(names: list[str]) -> list[tuple[float, float] | None] | None:
    try:
        import h3
    except ImportError:
        return None
    spots: list[tuple[float, float] | None] = []
    for n in names:
        if not h3.is_valid_cell(n):
            spots.append(None)
            continue
        lat, lon = h3.cell_to_latlng(n)
        spots.append((lon * float(np.cos(np.radians(lat))), -lat))
    return spots if any(spots) else None

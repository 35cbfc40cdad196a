"""Where the states of a location chain lie: a map of its cells, made from their names.

Square cells are called by their column and row (``x522y5831``), hexagons by their H3 index; other states
have no place.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.model import Model

__all__ = ["state_map"]

_SQUARE = re.compile(r"x(-?\d+)y(-?\d+)")
_SHOWN = 600  # cells drawn; the least visited are left out
_MOVE = 0.05  # moves at least this likely are drawn
_SIZE = 34.0


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
    places = _places(names)
    if places is None:
        return None
    matrix = segment.transition(0)
    share = _share(segment.initial, matrix)
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


def _share(initial: Any, matrix: Any) -> Any:
    """Return how often each state is visited, as the model has it; for the eye only."""
    law = np.asarray(initial, dtype=np.float64)
    total = np.zeros(len(law))
    for _ in range(200):
        total += law
        law = law @ matrix
    return total / total.sum()


def _places(names: list[str]) -> list[tuple[float, float] | None] | None:
    squares = [_SQUARE.fullmatch(n) for n in names]
    if any(squares):
        spots = [None if m is None else (float(m[1]), -float(m[2])) for m in squares]
    else:
        found = _hexagons(names)
        if found is None:
            return None
        spots = found
    known = np.array([p for p in spots if p is not None])
    corner = known.min(axis=0)
    step = 1.0 if any(squares) else _nearest(known)
    return [
        None if p is None else ((p[0] - corner[0]) / step * _SIZE, (p[1] - corner[1]) / step * _SIZE)
        for p in spots
    ]


def _nearest(known: Any) -> float:
    """Return the smallest distance between two places."""
    if len(known) < 2:
        return 1.0
    gaps = np.linalg.norm(known[:, None, :] - known[None, :, :], axis=2)
    return float(gaps[gaps > 0].min(initial=1.0))


def _hexagons(names: list[str]) -> list[tuple[float, float] | None] | None:
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

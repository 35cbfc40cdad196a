"""Queries on a location trace by name, each with how far one step can move it.

A record is one step's cell.  Replacing it moves one visit from a cell to another: two counts change
by one.  The sensitivities below are for one record; several steps (``window``) and correlation are
the accountant's business, through α.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.domains.trace.points import Floats
from quiltdp.domains.trace.steps import UNSEEN, Steps
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.laplace import Laplace, LaplaceMechanism
from quiltdp.numbers import EPS

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.mechanisms.noise import NoiseSource

__all__ = ["CellQuery", "rank_cells", "release_cells", "time_per_cell", "top_places", "visits_per_cell"]


@dataclass(frozen=True, eq=False)
class CellQuery:
    """One number per cell.

    Attributes
    ----------
    name, unit
        What it counts, and in what.
    cells
        The cells' names.
    values
        The true values: not private until noise is added.
    sensitivity
        Δ₁: how far replacing one record moves the whole vector in the L1 norm; the Laplace scale is
        Δ₁ / α.
    sensitivity_l2, sensitivity_one
        The same in the L2 norm (Gaussian noise), and for a single cell.
    """

    name: str
    unit: str
    cells: tuple[str, ...]
    values: Floats
    sensitivity: float
    sensitivity_l2: float
    sensitivity_one: float

    def per_record(self, steps: Steps) -> dict[str, float]:
        """Return Δ_j by record: 0 for steps without a point, which the query never reads."""
        moves = {}
        for s in steps.stretches:
            for t, cell in enumerate(s.cells.tolist()):
                moves[f"{s.prefix}{t}"] = 0.0 if cell == UNSEEN else self.sensitivity
        return moves


def visits_per_cell(steps: Steps) -> CellQuery:
    """Return the number of seen steps in each cell (Δ₁ = 2, Δ₂ = √2, one cell: 1)."""
    return _weighted_visits(steps, "visits per cell", "steps", 1.0)


def time_per_cell(steps: Steps, unit: str = "h") -> CellQuery:
    """Return the time spent in each cell: visits times the interval, sensitivities likewise.

    ``unit`` is ``s``, ``min`` or ``h``.
    """
    sizes = {"s": 1.0, "min": 60.0, "h": 3600.0}
    if unit not in sizes:
        raise InvalidArgument(f"unit must be s, min or h, not {unit!r}")
    return _weighted_visits(steps, "time per cell", unit, steps.interval / sizes[unit])


def _weighted_visits(steps: Steps, name: str, unit: str, weight: float) -> CellQuery:
    values: Floats = steps.visits().astype(np.float64) * weight
    values.flags.writeable = False
    # A product that is not a whole number is rounded; neighbours may differ by that much more.
    slack = 1.0 if weight.is_integer() else 1.0 + 4.0 * EPS * (steps.total + 1)
    one = weight * slack
    root = math.nextafter(math.sqrt(2.0) * one, math.inf)
    return CellQuery(name, unit, steps.cells.names, values, 2.0 * one, root, one)


def release_cells(
    query: CellQuery,
    scale: float,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    noise: NoiseSource | None = None,
) -> Floats:
    """Return the query with Laplace noise of the given scale on every cell.

    The cost is α = ``query.sensitivity / scale`` for one record.  Cells that no step falls in are not
    part of the query: which cells were visited at all is public then.  Where it is not, fix the cells
    beforehand with :func:`~quiltdp.domains.trace.area.over_area`.

    Parameters
    ----------
    query
        Visits or time per cell.
    scale
        The Laplace scale σ, for example of :func:`quiltdp.calibrate`.
    ledger, label
        An account, charged durably before any noise is drawn, and a note for it.
    noise
        A noise source of :mod:`quiltdp.mechanisms`; the default is secure.
    """
    spec = Laplace(sensitivity=query.sensitivity)
    mechanism = LaplaceMechanism(spec, scale, dimension=len(query.cells), noise=noise)
    return np.array(mechanism.release(query.values, ledger=ledger, label=label), dtype=np.float64)


def top_places(
    query: CellQuery, k: int, scale: float, *, noise: NoiseSource | None = None
) -> tuple[str, ...]:
    """Return the k cells with the largest noisy values, largest first.

    It is post-processing of :func:`release_cells`, so its cost is the same α = Δ₁ / scale, whatever
    k is, and the noisy histogram may be published beside it at no further cost.
    """
    if not 1 <= k <= len(query.cells):
        raise InvalidArgument(f"k must lie between 1 and the number of cells {len(query.cells)}, not {k}")
    return rank_cells(query.cells, release_cells(query, scale, noise=noise))[:k]


def rank_cells(cells: Sequence[str], values: Floats) -> tuple[str, ...]:
    """Return the cells by falling value; equal values by name, so that the order says no more."""
    return tuple(c for _, c in sorted(zip((-values).tolist(), cells, strict=True)))

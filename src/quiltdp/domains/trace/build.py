"""From a file of points to a Markov chain model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.chain import ChainModel, markov_chains
from quiltdp.domains.trace.cells import assign_cells
from quiltdp.domains.trace.checks import MAX_SPEED, check_points
from quiltdp.domains.trace.clock import CLOCK, clock_of
from quiltdp.domains.trace.diagnostics import Diagnostics, diagnose
from quiltdp.domains.trace.estimate import Estimate, Estimator, estimate_transitions, parse_estimator
from quiltdp.domains.trace.points import Points
from quiltdp.domains.trace.readers import read_points
from quiltdp.domains.trace.steps import Pick, Steps, make_steps
from quiltdp.errors import InvalidArgument, option

__all__ = [
    "LocationStudy",
    "chain_from_steps",
    "discretise",
    "location_chain",
    "location_study",
    "whole_traces",
]

_LARGEST_MATRIX = 4000


@dataclass(frozen=True, eq=False)
class LocationStudy:
    """Everything between the points and the model: points, steps, estimate, diagnostics, model.

    ``past`` are the steps on which the model was fitted, where they are not those that are counted.
    """

    points: Points
    steps: Steps
    estimate: Estimate
    diagnostics: Diagnostics
    model: ChainModel
    past: Steps | None = None


def discretise(
    points: Points,
    cell: str | float = "500m",
    interval: str | float = "5min",
    *,
    max_gap: str | float | None = None,
    max_speed: float | None = MAX_SPEED,
    pick: Pick = "first",
    grid_crs: str | None = None,
    stay_distance: str | float = "100m",
    stay_time: str | float = "5min",
    stay_gap: str | float = "15min",
) -> Steps:
    """Check points and turn them into regular steps over cells.

    See :func:`~quiltdp.domains.trace.checks.check_points`,
    :func:`~quiltdp.domains.trace.cells.assign_cells` and
    :func:`~quiltdp.domains.trace.steps.make_steps` for what each option means.
    """
    checked = check_points(points, max_speed=max_speed)
    cells = assign_cells(
        checked, cell, crs=grid_crs, stay_distance=stay_distance, stay_time=stay_time, stay_gap=stay_gap
    )
    return make_steps(checked, cells, interval, max_gap=max_gap, pick=pick)


def chain_from_steps(
    steps: Steps, estimate: Estimate | str | Estimator = "mle", *, initial: str | ArrayLike = "occupancy"
) -> ChainModel:
    """Return the model: one chain per stretch, one transition matrix for all.

    Parameters
    ----------
    steps
        The discretised trace.
    estimate
        A transition estimate, or the estimator to use.
    initial
        The law of the first step of each stretch: ``occupancy`` (the share of seen steps in each
        cell: every cell that was seen is possible), ``stationary``, ``uniform``, or a vector.

    Assumes
    -------
    A homogeneous first-order chain, the same for all users; stretches independent of each other.
    """
    made = estimate if isinstance(estimate, Estimate) else estimate_transitions(steps.counts(), estimate)
    law, named = _initial(steps, made, initial)
    unseen = () if not isinstance(initial, str) or initial != "stationary" else _impossible(steps, law)
    return markov_chains(
        made.matrix,
        {s.prefix: len(s) for s in steps.stretches},
        law,
        states=steps.cells.names,
        notes=(*steps.notes, *made.notes, *unseen),
        provenance={
            **steps.provenance,
            CLOCK: clock_of(steps),
            "domain": "location trace",
            "estimator": str(made.estimator),
            "smoothing": f"{made.estimator.smoothing:g}",
            "initial": named,
            "transitions": str(int(made.counts.sum())),
        },
    )


def whole_traces(model: ChainModel) -> dict[str, tuple[str, ...]]:
    """Return user → all of the user's steps, for ``protect=``: whole-trace protection.

    Examples
    --------
    >>> from quiltdp import markov_chains
    >>> whole_traces(markov_chains([[0.9, 0.1], [0.1, 0.9]], {"ann/0/": 2, "ann/1/": 1, "bob/0/": 1}))
    {'ann': ('ann/0/0', 'ann/0/1', 'ann/1/0'), 'bob': ('bob/0/0',)}
    """
    found: dict[str, list[str]] = {}
    for s in model.segments:
        user = s.prefix.rsplit("/", 2)[0]
        found.setdefault(user, []).extend(f"{s.prefix}{t}" for t in range(s.length))
    return {user: tuple(nodes) for user, nodes in found.items()}


def _initial(steps: Steps, made: Estimate, initial: str | ArrayLike) -> tuple[Any, str]:
    if not isinstance(initial, str):
        return np.asarray(initial, dtype=np.float64), "given"
    if initial == "occupancy":
        visits = steps.visits().astype(np.float64)
        return visits / visits.sum(), initial
    if initial == "uniform":
        return np.full(len(made.matrix), 1.0 / len(made.matrix)), initial
    if initial == "stationary":
        from quiltdp.chain import stationary_distribution

        return stationary_distribution(made.matrix), initial
    raise InvalidArgument(
        f"{option('initial')} must be occupancy, stationary, uniform or a vector, not {initial!r}"
    )


def _impossible(steps: Steps, law: Any) -> tuple[str, ...]:
    gone = int(((law == 0) & (steps.visits() > 0)).sum())
    if not gone:
        return ()
    return (f"the stationary law gives {gone} visited cells probability 0: a stretch cannot begin there",)


def location_study(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Points,
    cell: str | float = "500m",
    interval: str | float = "5min",
    estimator: str | Estimator = "mle",
    *,
    smoothing: float | None = None,
    initial: str | ArrayLike = "occupancy",
    max_gap: str | float | None = None,
    max_speed: float | None = MAX_SPEED,
    pick: Pick = "first",
    grid_crs: str | None = None,
    stay_distance: str | float = "100m",
    stay_time: str | float = "5min",
    stay_gap: str | float = "15min",
    max_states: int = _LARGEST_MATRIX,
    **reading: Any,
) -> LocationStudy:
    """Read points and return every intermediate result with the model; see :func:`location_chain`."""
    how = parse_estimator(estimator, smoothing)
    points = path if isinstance(path, Points) else read_points(path, **reading)
    steps = discretise(
        points,
        cell,
        interval,
        max_gap=max_gap,
        max_speed=max_speed,
        pick=pick,
        grid_crs=grid_crs,
        stay_distance=stay_distance,
        stay_time=stay_time,
        stay_gap=stay_gap,
    )
    if len(steps.cells.names) > max_states:
        raise InvalidArgument(
            f"{len(steps.cells.names)} cells need a {len(steps.cells.names)}² transition matrix (limit"
            f" {max_states}): use larger cells"
        )
    made = estimate_transitions(steps.counts(), how)
    split = steps.shortest_split
    facts = diagnose(
        made.counts,
        made.matrix,
        gap_steps=int(split // steps.interval) if math.isfinite(split) else None,
    )
    return LocationStudy(points, steps, made, facts, chain_from_steps(steps, made, initial=initial))


def location_chain(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Points,
    cell: str | float = "500m",
    interval: str | float = "5min",
    estimator: str | Estimator = "mle",
    **options: Any,
) -> ChainModel:
    """Return the Markov chain of a location trace: cells at regular time steps.

    Parameters
    ----------
    path
        CSV, GeoLife PLT, GPX, GeoJSON / Moving Features or Parquet; several files; a folder; or
        :class:`~quiltdp.domains.trace.points.Points`.
    cell
        ``500m`` (squares), ``h3:7`` (hexagons) or ``stay`` (places where someone stayed).
    interval
        The length of a time step.
    estimator
        ``mle``, ``additive:<smoothing>`` or ``reversible``.  Smoothing makes memory look shorter and
        the noise smaller: it is never the default, and always in the model's provenance.
    **options
        Of reading (``lat``, ``lon``, ``time``, ``user``, ``time_zone``, ``time_format``, ``crs``,
        ``separator``, ``header``, ``drop_invalid``), of steps (``max_gap``, ``max_speed``, ``pick``,
        ``grid_crs``, ``stay_distance``, ``stay_time``, ``stay_gap``) and of the model
        (``smoothing``, ``initial``).

    Returns
    -------
    ChainModel
        One chain per user and stretch between gaps, named ``user/stretch/step``; every step is a
        record.  Its ``notes`` say everything that was sorted, dropped, split or smoothed.

    Raises
    ------
    FileFormatError, InvalidArgument, InvalidModel, DependencyMissing
        Each with one line naming the file, line or option.

    Examples
    --------
    >>> from quiltdp.domains.trace import Points, location_chain
    >>> lat = [47.37, 47.37, 47.38, 47.37, 47.38]
    >>> p = Points(("ann",), [0] * 5, [0, 300, 600, 900, 1200], lat, [8.54] * 5)
    >>> m = location_chain(p, cell="500m", interval="5min")
    >>> m, m.nodes[0], m.provenance["estimator"]
    (<Markov chain: 5 steps, 2 states>, 'ann/0/0', 'mle')
    """
    return location_study(path, cell, interval, estimator, **options).model

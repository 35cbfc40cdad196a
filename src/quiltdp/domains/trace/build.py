"""From a file of points to a Markov chain model, of the same steps or of later ones.

**Fit on the past, release the present**: nothing of the model comes from the steps that are counted.  The
states are the cells of the past, and where the estimator adds to every count one more, ``elsewhere``, for
every cell that the past never saw, whether the present has such cells or not.  Which of these cells it is, is
then drawn for each step on its own: given the states, the rows of all of them are equal, and a factor that
depends on the column alone cancels in every ratio of the transition matrix.  So leakage about the cell is
bounded by leakage about the state.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.chain import ChainModel, markov_chains, stationary_distribution
from quiltdp.domains.trace.cells import assign_cells
from quiltdp.domains.trace.estimate import (
    Diagnostics,
    Estimate,
    Estimator,
    diagnose,
    estimate_transitions,
    first_step_law,
    parse_estimator,
)
from quiltdp.domains.trace.hours import fit_hours_of_counts, hourly_chain
from quiltdp.domains.trace.points import MAX_SPEED, Ints, Points, check_points
from quiltdp.domains.trace.readers import read_points
from quiltdp.domains.trace.steps import Pick, Steps, make_steps
from quiltdp.domains.trace.times import CLOCK, clock_provenance
from quiltdp.errors import InvalidArgument, option
from quiltdp.io.columns import as_file

__all__ = [
    "ELSEWHERE",
    "LocationStudy",
    "chain_from_steps",
    "discretise",
    "location_chain",
    "location_study",
    "past_transition_counts",
    "study_from_past",
    "whole_traces",
]

ELSEWHERE = "elsewhere"
"""The state of every cell that the past never saw."""

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

    See :func:`~quiltdp.domains.trace.points.check_points`,
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
    fit = estimate if isinstance(estimate, Estimate) else estimate_transitions(steps.counts(), estimate)
    visits = steps.visits()
    law, named, _ = first_step_law(initial, visits / visits.sum())
    unseen: tuple[str, ...] = ()
    if named == "stationary":
        law = stationary_distribution(fit.matrix)
        gone = int(((law == 0) & (visits > 0)).sum())
        if gone:
            cells = f"gives {gone} visited cells probability 0: a stretch cannot begin there"
            unseen = (f"the stationary law {cells}",)
    return markov_chains(
        fit.matrix,
        {s.prefix: len(s) for s in steps.stretches},
        law,
        states=steps.cells.names,
        notes=(*steps.notes, *fit.notes, *unseen),
        provenance=_chain_provenance(steps, fit, named),
    )


def _chain_provenance(steps: Steps, fit: Estimate, initial: str) -> dict[str, str]:
    return {
        **steps.provenance,
        CLOCK: clock_provenance(steps),
        "domain": "location trace",
        "estimator": str(fit.estimator),
        "smoothing": f"{fit.estimator.smoothing:g}",
        "initial": initial,
        "transitions": str(int(fit.counts.sum())),
    }


def whole_traces(model: ChainModel) -> dict[str, tuple[str, ...]]:
    """Return user → all of the user's steps, for ``protect=``: whole-trace protection.

    Examples
    --------
    >>> from quiltdp.chain import markov_chains
    >>> whole_traces(markov_chains([[0.9, 0.1], [0.1, 0.9]], {"ann/0/": 2, "ann/1/": 1, "bob/0/": 1}))
    {'ann': ('ann/0/0', 'ann/0/1', 'ann/1/0'), 'bob': ('bob/0/0',)}
    """
    steps: dict[str, list[str]] = {}
    for s in model.segments:
        user = s.prefix.rsplit("/", 2)[0]
        steps.setdefault(user, []).extend(f"{s.prefix}{t}" for t in range(s.length))
    return {user: tuple(nodes) for user, nodes in steps.items()}


def location_study(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Points,
    cell: str | float = "500m",
    interval: str | float = "5min",
    estimator: str | Estimator = "mle",
    *,
    smoothing: float | None = None,
    initial: str | ArrayLike = "occupancy",
    max_states: int = _LARGEST_MATRIX,
    **options: Any,
) -> LocationStudy:
    """Read points and return every intermediate result with the model; see :func:`location_chain`."""
    how = parse_estimator(estimator, smoothing)
    stepping = {name: options.pop(name) for name in signature(discretise).parameters if name in options}
    if isinstance(path, Points):
        points = path
    else:
        with as_file(path) as file:
            points = read_points(file, **options)
    steps = discretise(points, cell, interval, **stepping)
    if len(steps.cells.names) > max_states:
        raise InvalidArgument(
            f"{len(steps.cells.names)} cells need a {len(steps.cells.names)}² transition matrix (limit"
            f" {max_states}): use larger cells"
        )
    fit = estimate_transitions(steps.counts(), how)
    gap = steps.shortest_split // steps.interval
    facts = diagnose(fit.counts, fit.matrix, gap_steps=int(gap) if math.isfinite(gap) else None)
    return LocationStudy(points, steps, fit, facts, chain_from_steps(steps, fit, initial=initial))


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
        CSV, GeoLife PLT, GPX, GeoJSON / Moving Features or Parquet; several files; a folder; a DataFrame; or
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


def study_from_past(
    past: LocationStudy,
    present: LocationStudy,
    *,
    initial: str = "occupancy",
    time_of_day: bool = False,
    estimator: str | Estimator | None = None,
) -> LocationStudy:
    """Return the present steps under the chain fitted on past ones: nothing of the present is fitted.

    Of the present only the users, the beginnings and the lengths of their stretches are in the model.
    With ``time_of_day`` every hour of the day has the matrix of that hour in the past.  ``estimator`` is
    the past study's own unless given.

    Raises
    ------
    InvalidArgument
        If the two use other cells or steps, or if the present has cells that the past never saw and the
        estimator adds nothing to them.
    """
    before, now = past.steps, present.steps
    how = past.estimate.estimator if estimator is None else parse_estimator(estimator)
    _refuse_other_cells_or_steps(before, now)
    _refuse_new_cells(before, now, how)
    states = (*before.cells.names, ELSEWHERE) if how.smoothing else before.cells.names
    counts = past_transition_counts(before, len(states), by_hour=time_of_day)
    fit = estimate_transitions(counts.sum(axis=0), how)
    if time_of_day and initial != "occupancy":
        raise InvalidArgument(
            f"{option('initial')} {initial!r}: with a matrix for every hour the first step follows the"
            " occupancy"
        )
    visits = np.full(len(states), how.smoothing)
    visits[: len(before.cells.names)] += before.visits()
    law, _, _ = first_step_law(initial, visits / visits.sum())
    note = f"fitted on earlier data ({past.points.source}), of which nothing is released here"
    if how.smoothing:
        note += "; cells that it never saw are one state, elsewhere"
    provenance = _chain_provenance(now, fit, initial)
    if time_of_day:
        assert not isinstance(law, str)
        hourly = hourly_chain(now, fit_hours_of_counts(counts, how), law, states)
        provenance["estimator"] = hourly.provenance["estimator"]
        model = ChainModel(hourly.segments, states, notes=(*hourly.notes, note), provenance=provenance)
    else:
        lengths = {s.prefix: len(s) for s in now.stretches}
        notes = (*now.notes, *fit.notes, note)
        model = markov_chains(fit.matrix, lengths, law, states=states, notes=notes, provenance=provenance)
    facts = diagnose(fit.counts, fit.matrix)
    return LocationStudy(present.points, now, fit, facts, model, past=before)


def past_transition_counts(before: Steps, size: int, *, by_hour: bool = False) -> Ints:
    """Return the moves of the past, per hour or all together, with room for states it never saw."""
    room = size - len(before.cells.names)
    old = before.counts(by_hour=True) if by_hour else before.counts()[None]
    return np.pad(old, ((0, 0), (0, room), (0, room)))


def _refuse_other_cells_or_steps(before: Steps, now: Steps) -> None:
    """Refuse cells that cannot be compared, and other cells or steps."""
    if now.cells.shape not in ("square", "h3"):
        raise InvalidArgument(
            "stay points are places found in the data, so those of the past are not those of the present:"
            f" use squares ({option('cell', '500m')}) or hexagons ({option('cell', 'h3:7')})"
        )
    for what, remedy in (("cells", f"; {option('grid_crs')} lays both in one plane"), ("interval", "")):
        if before.provenance[what] != now.provenance[what]:
            raise InvalidArgument(
                f"the past has {what} {before.provenance[what]}, the present {now.provenance[what]}:"
                f" they must agree{remedy}"
            )


def _refuse_new_cells(before: Steps, now: Steps, how: Estimator) -> None:
    new = set(now.cells.names) - set(before.cells.names)
    if new and not how.smoothing:
        raise InvalidArgument(
            f"{len(new)} of {len(now.cells.names)} cells were never seen in the past: add to every count"
            f" ({option('estimator', 'additive:0.1')}), or use larger cells"
        )

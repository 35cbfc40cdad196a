"""Fit on the past, release the present: nothing of the model comes from the steps that are counted.

The states are the cells of the past, and where the estimator adds to every count one more, ``elsewhere``,
for every cell that the past never saw, whether the present has such cells or not.  Which of these cells
it is, is then drawn for each step on its own: given the states, the rows of all of them are equal, and a
factor that depends on the column alone cancels in every ratio of the transition matrix.  So leakage
about the cell is bounded by leakage about the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.chain import ChainModel, markov_chains
from quiltdp.domains.trace.build import LocationStudy
from quiltdp.domains.trace.clock import CLOCK, clock_of
from quiltdp.domains.trace.diagnostics import diagnose
from quiltdp.domains.trace.estimate import Estimator, estimate_transitions, parse_estimator
from quiltdp.domains.trace.hours import counts_by_hour, fit_hours, hourly_chain
from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.robust import family_of
from quiltdp.domains.trace.steps import Steps
from quiltdp.errors import InvalidArgument, InvalidModel, option

__all__ = ["ELSEWHERE", "past_counts", "robust_models_of_past", "study_from_past"]

ELSEWHERE = "elsewhere"
"""The state of every cell that the past never saw."""


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
    _alike(before, now)
    _no_new_cells(before, now, how)
    states = (*before.cells.names, ELSEWHERE) if how.smoothing else before.cells.names
    counts = past_counts(before, len(states), by_hour=time_of_day)
    made = estimate_transitions(counts.sum(axis=0), how)
    law = _law(before, how, initial, len(states), time_of_day=time_of_day)
    note = f"fitted on earlier data ({past.points.source}), of which nothing is released here"
    if how.smoothing:
        note += "; cells that it never saw are one state, elsewhere"
    provenance = {
        **now.provenance,
        CLOCK: clock_of(now),
        "domain": "location trace",
        "estimator": str(how),
        "smoothing": f"{how.smoothing:g}",
        "initial": initial,
        "transitions": str(int(made.counts.sum())),
    }
    if time_of_day:
        assert not isinstance(law, str)
        hourly = hourly_chain(now, fit_hours(counts, how), law, states)
        provenance["estimator"] = hourly.provenance["estimator"]
        model = ChainModel(hourly.segments, states, notes=(*hourly.notes, note), provenance=provenance)
    else:
        model = markov_chains(
            made.matrix,
            {s.prefix: len(s) for s in now.stretches},
            law,
            states=states,
            notes=(*now.notes, *made.notes, note),
            provenance=provenance,
        )
    facts = diagnose(made.counts, made.matrix)
    return LocationStudy(present.points, now, made, facts, model, past=before)


def past_counts(before: Steps, size: int, *, by_hour: bool = False) -> Ints:
    """Return the moves of the past, per hour or all together, with room for states it never saw."""
    old = counts_by_hour(before) if by_hour else before.counts()[None]
    room = size - old.shape[1]
    counts: Ints = np.pad(old, ((0, 0), (0, room), (0, room)))
    return counts


def robust_models_of_past(
    past: LocationStudy, present: LocationStudy, estimators: Sequence[str], *, initial: str = "occupancy"
) -> tuple[ChainModel, ...]:
    """Return one model of the present steps per estimator, each fitted on the past.

    An estimator that does not exist for these counts, or that cannot have a cell that only the present
    has, is left out, and a note of every model that remains says so.
    """

    def fit(how: Estimator) -> ChainModel:
        return study_from_past(past, present, initial=initial, estimator=how).model

    return family_of(fit, estimators, (InvalidModel, InvalidArgument))


def _alike(before: Steps, now: Steps) -> None:
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


def _no_new_cells(before: Steps, now: Steps, how: Estimator) -> None:
    new = set(now.cells.names) - set(before.cells.names)
    if new and not how.smoothing:
        raise InvalidArgument(
            f"{len(new)} of {len(now.cells.names)} cells were never seen in the past: add to every count"
            f" ({option('estimator', 'additive:0.1')}), or use larger cells"
        )


def _law(before: Steps, how: Estimator, initial: str, size: int, *, time_of_day: bool) -> Floats | str:
    """Return the law of the first step of a stretch."""
    if initial == "occupancy":
        visits = np.full(size, how.smoothing)
        visits[: len(before.cells.names)] += before.visits()
        law: Floats = visits / visits.sum()
        return law
    if initial not in ("stationary", "uniform"):
        raise InvalidArgument(
            f"{option('initial')} must be occupancy, stationary or uniform, not {initial!r}"
        )
    if time_of_day:
        raise InvalidArgument(
            f"{option('initial')} {initial!r}: with a matrix for every hour the first step follows the"
            " occupancy"
        )
    return np.full(size, 1.0 / size) if initial == "uniform" else initial

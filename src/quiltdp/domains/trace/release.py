"""Visits per cell, ready to publish: calibrated, noisy, over cells that were chosen without the data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.accountant.calibration import Calibration, calibrate
from quiltdp.accountant.verify import leakage_of
from quiltdp.domains.trace.area import Area, over_area
from quiltdp.domains.trace.build import LocationStudy, whole_traces
from quiltdp.domains.trace.cells import Rings, ring
from quiltdp.domains.trace.points import Floats
from quiltdp.domains.trace.queries import CellQuery, release_cells, visits_per_cell
from quiltdp.domains.trace.steps import Steps
from quiltdp.domains.trace.times import CLOCK, clock_provenance, when
from quiltdp.domains.usefulness import judge_table
from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms import Laplace
from quiltdp.parallel import Progress

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.mechanisms.noise import NoiseSource

_REMEDY = (
    "nothing in it can be told from noise; larger cells, longer steps, a longer period, the prior adversary"
    " or a larger ε would help"
)


@dataclass(frozen=True, eq=False)
class CellRelease:
    """A noisy count for every cell of a public area, with the calibration behind it.

    Attributes
    ----------
    cells, centres, outlines
        The cells' names, their (lat, lon) and corners.
    values
        The noisy counts: whole cells may be negative, which is noise and stays.
    sigma, epsilon
        The Laplace scale that was used, and the leakage that it is certified for.
    calibration
        How much noise the target asked for, and why.
    notes
        What a reader of the release must know, also how much of it stands above the noise.
    """

    cells: tuple[str, ...]
    centres: tuple[tuple[float, float], ...]
    outlines: Rings
    values: Floats
    sigma: float
    epsilon: float
    level: str
    calibration: Calibration
    notes: tuple[str, ...]

    def about(self) -> dict[str, Any]:
        """Return what stands beside the counts: the promise, the scale, the calibration."""
        return {
            "query": "visits per cell",
            "sigma": self.sigma,
            "epsilon": self.epsilon,
            "protects": self.level,
            "adversary": self.calibration.adversary,
            "notes": list(self.notes),
            "calibration": json.loads(self.calibration.to_json()),
        }

    def to_csv(self) -> str:
        """Return cell, centre, noisy count and σ, one line per cell, the calibration in a first comment."""
        text = io.StringIO()
        text.write("# quiltdp: " + json.dumps(self.about(), ensure_ascii=True) + "\n")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["cell", "latitude", "longitude", "noisy_count", "sigma"])
        for cell, (lat, lon), value in zip(self.cells, self.centres, self.values.tolist(), strict=True):
            rows.writerow([cell, f"{lat:.6f}", f"{lon:.6f}", f"{value:.12g}", f"{self.sigma:.12g}"])
        return text.getvalue()

    def to_geojson(self) -> str:
        """Return the cells as polygons with their noisy counts, the calibration as a member."""
        features = []
        for k, cell in enumerate(self.cells):
            corners = [[lon, lat] for lat, lon in self.outlines[k]]
            features.append(
                {
                    "type": "Feature",
                    "geometry": {"type": "Polygon", "coordinates": [[*corners, corners[0]]]},
                    "properties": {
                        "cell": cell,
                        "latitude": self.centres[k][0],
                        "longitude": self.centres[k][1],
                        "noisy_count": float(self.values[k]),
                        "sigma": self.sigma,
                    },
                }
            )
        return json.dumps({"type": "FeatureCollection", "quiltdp": self.about(), "features": features})


@dataclass(frozen=True, eq=False)
class PreparedVisits:
    """A release of visits per cell but for its noise; ``calibration`` is what it costs.

    ``target`` is the calibration for the ε that was asked for; another scale has a cost of its own.
    """

    query: CellQuery
    centres: tuple[tuple[float, float], ...]
    outlines: Rings
    level: str
    calibration: Calibration
    target: Calibration
    notes: tuple[str, ...]

    def draw(self, ledger: Ledger | None = None, *, noise: NoiseSource | None = None) -> CellRelease:
        """Charge the ledger, durably, then draw the noise."""
        scale = self.calibration.sigma
        values = release_cells(
            self.query, scale, ledger=ledger, label=f"visits per cell, {self.level}", noise=noise
        )
        above, verdict = judge_table(values, scale)
        return self._release_with(values, verdict if above else f"{verdict}: {_REMEDY}")

    def rehearse(self) -> CellRelease:
        """Return what :meth:`draw` will, with other numbers: neither counts nor noise."""
        return self._release_with(np.full(len(self.query.cells), -1e9 / 3.0), _REMEDY)

    def _release_with(self, values: Floats, verdict: str) -> CellRelease:
        paid = self.calibration
        return CellRelease(
            self.query.cells, self.centres, self.outlines, values, paid.sigma, paid.epsilon, self.level,
            self.target, (*self.notes, verdict),
        )  # fmt: skip


def release_visits(
    study: LocationStudy, epsilon: float, area: Area, *, noise: NoiseSource | None = None, **options: Any
) -> CellRelease:
    """Return visits per cell of a public area with noise certified for ``epsilon``.

    ``options`` are those of :func:`prepare_visits`, which does everything but the draw.
    """
    return prepare_visits(study, epsilon, area, **options).draw(noise=noise)


def prepare_visits(
    study: LocationStudy,
    epsilon: float,
    area: Area,
    *,
    level: str | None = None,
    window: int = 1,
    adversary: str = "informed",
    sigma: float | None = None,
    less_noise: bool = False,
    past: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> PreparedVisits:
    """Calibrate visits per cell of a public area for ``epsilon``; nothing is drawn.

    Parameters
    ----------
    study
        The steps to be counted, and the model of their correlation.
    epsilon
        The Bayesian DP target.
    area
        The public area: its cells are published, visited or not.
    level
        ``step`` (any one step, or with ``window`` any run of steps) or ``user`` (everything a user did);
        needed when there are several users.
    sigma, less_noise
        A scale of your own; one below what the target asks for is refused unless ``less_noise`` says
        that it is meant, and then the release says which ε it has.
    past
        Whether the model was fitted on other, earlier data.
    progress
        Called with a label and a fraction in [0, 1].

    Raises
    ------
    InvalidArgument
        Several users and no level; an area that holds none of the points; too small a ``sigma``.
    """
    chosen = _check_level(study.steps, level)
    query, centres, outlines = _query_over_area(study.steps, area)
    protect = whole_traces(study.model) if chosen == "user" else None
    asked = {"adversary": adversary, "protect": protect, "window": window, **options}
    spec = Laplace(sensitivity=query.sensitivity)
    target = calibrate(study.model, epsilon, spec, progress=progress, **asked)
    paid = target if sigma is None else _calibration_at_sigma(study, target, sigma, less_noise, asked)
    notes = _notes_on_release(study, target, past=past)
    return PreparedVisits(query, centres, outlines, _protection_phrase(chosen, window), paid, target, notes)


def _check_level(steps: Steps, level: str | None) -> str:
    if level is None and len(steps.users) > 1:
        raise InvalidArgument(
            f"there are {len(steps.users)} users: say what is protected,"
            f" {option('level', 'user')} (everything a user did) or {option('level', 'step')} (any one step)"
        )
    chosen = level or "step"
    if chosen not in ("step", "user"):
        raise InvalidArgument(f"{option('level')} must be step or user, not {chosen!r}")
    return chosen


def _protection_phrase(level: str, window: int) -> str:
    if level == "user":
        return "everything a user did"
    return "any one step" if window == 1 else f"any {window} steps in a row"


def _query_over_area(steps: Steps, area: Area) -> tuple[CellQuery, tuple[tuple[float, float], ...], Rings]:
    """Return the query over every cell of the area; refuse one that holds no point."""
    wide = over_area(visits_per_cell(steps), steps.cells, area)
    if not wide.query.values.any():
        lat, lon = float(np.mean(steps.cells.lat)), float(np.mean(steps.cells.lon))
        south, west, north, east = area.box
        swapped = south <= lon <= north and west <= lat <= east
        hint = (
            "latitude and longitude look swapped: write south,west,north,east"
            if swapped
            else f"the points lie around latitude {lat:.3f}, longitude {lon:.3f}"
        )
        raise InvalidArgument(f"{option('area')} holds none of the points; {hint}")
    lats, lons = np.array([np.mean(r, axis=0) for r in wide.outlines]).T
    return wide.query, ring(lats, lons), wide.outlines


def _calibration_at_sigma(
    study: LocationStudy, target: Calibration, sigma: float, less_noise: bool, asked: Mapping[str, Any]
) -> Calibration:
    """Return the calibration of another scale: the leakage it is certified for is its ε."""
    if sigma == target.sigma:
        return target
    reached = leakage_of(study.model, target.mechanism, sigma, **asked).epsilon
    if sigma < target.sigma and not less_noise:
        raise InvalidArgument(
            f"{option('sigma')} {sigma:g} is less noise than ε = {target.epsilon:g} asks for"
            f" ({target.sigma:.6g}): it leaks up to {reached:.4g}; leave it out, or insist with"
            f" {option('less_noise')}"
        )
    cost = target.mechanism.dp_epsilon(sigma)
    return replace(target, sigma=sigma, epsilon=reached, leakage=reached, dp_epsilon=cost, compared={})


def _notes_on_release(study: LocationStudy, target: Calibration, *, past: bool) -> tuple[str, ...]:
    forced = f"forced by {name_step(study.steps, target.binding.unit)}"
    if past:
        return (forced,)
    fitted = "the model was fitted on the steps that are counted here, which tells about them itself"
    return (f"{fitted}: fit it on earlier data", forced)


def name_step(steps: Steps, unit: str) -> str:
    """Return a step, or a run of steps, by its time: ``ann, Tue 2024-05-07 08:05 UTC``; others as they are.

    Examples
    --------
    >>> from quiltdp.domains.trace import Points, location_study
    >>> p = Points(("ann",), [0] * 3, [0, 300, 600], [47.37, 47.37, 47.38], [8.54] * 3)
    >>> name_step(location_study(p, "500m", "5min").steps, "ann/0/2")
    'ann, Thu 1970-01-01 00:10 UTC'
    """
    return when({CLOCK: clock_provenance(steps)}, unit) or unit

"""What ``quiltdp trace --release`` needs besides: the study it counts, the file it writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.domains.trace.release import CellRelease, PreparedVisits
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.cli.release import ReleaseOptions
    from quiltdp.domains.accounts import Account
    from quiltdp.domains.trace import LocationStudy
    from quiltdp.domains.trace.area import Area, Rings

_KINDS = (".csv", ".geojson")


def check_trace_options(
    *,
    outline: str | None,
    map_file: str | None,
    sigma: float | None,
    area: str | None,
    release: Path | None,
    level: str | None,
    adversary: str,
    epsilon: float,
    cell: str,
    confidence: float | None,
    robust: bool,
    time_of_day: bool,
) -> tuple[Area | None, Rings]:
    """Refuse what cannot work, alone or together, before any point is read.

    Returns the public area, and the polygons to draw on the map.
    """
    if sigma is not None and release is None:
        raise InvalidArgument("--sigma belongs to a release: give --release FILE too")
    if area is not None and map_file is None and release is None:
        raise InvalidArgument("--area belongs to a map or a release: give -o map.png or --release FILE too")
    if sigma is not None and not 0.0 < sigma < math.inf:
        raise InvalidArgument(f"--sigma must be a positive finite number, not {sigma!r}")
    if not 0.0 < epsilon < math.inf:
        raise InvalidArgument(f"--epsilon must be a positive finite number, not {epsilon!r}")
    parse_adversary(adversary)
    if level not in (None, "step", "user"):
        raise InvalidArgument(f"--level must be step or user, not {level!r}")
    if time_of_day and (robust or confidence is not None):
        raise InvalidArgument(
            "--robust and --confidence compare chains with one matrix: leave --time-of-day out"
        )
    if release is not None:
        _check_release(release, area, confidence)
    if map_file is not None:
        from quiltdp.report.plots import check_map

        check_map(map_file)
    _check_cell_library(cell)
    from quiltdp.domains.trace.area import parse_area

    public = None if area is None else parse_area(area)
    if outline is None:
        return public, () if public is None else public.rings
    if map_file is None:
        raise InvalidArgument("--outline is drawn on a map: give -o map.png too")
    return public, parse_area(outline).rings


def _check_release(release: Path, area: str | None, confidence: float | None) -> None:
    """Refuse a release over the cells that happened to be visited, and files of another kind."""
    if area is None:
        raise InvalidArgument(
            "the cells themselves would tell where people were: give --area, a public area whose every cell"
            " is published (south,west,north,east or a GeoJSON file)"
        )
    if release.suffix.lower() not in _KINDS:
        raise InvalidArgument(f"--release {release}: a release is written as {' or '.join(_KINDS)}")
    if confidence is not None:
        raise InvalidArgument(
            "--confidence tells what every chain that the counts allow would need: read it first, then"
            " release with a --sigma of your choice"
        )


def _check_cell_library(cell: str) -> None:
    """Refuse cells whose library is missing."""
    from quiltdp.errors import need

    if cell.startswith("h3"):
        need("h3", "hexagonal cells", "geo")
    else:
        need("pyproj", "a square grid", "geo")


def choose_study(
    read: Callable[..., LocationStudy],
    points: Sequence[str],
    fit_on: Sequence[str] | None,
    *,
    time_of_day: bool,
    initial: str,
) -> tuple[LocationStudy, LocationStudy | None]:
    """Return the study of the points, under the chain of earlier points or of hours where asked for.

    The second study is that of the earlier points.
    """
    from quiltdp.domains.trace.build import study_from_past
    from quiltdp.domains.trace.hours import fit_hours_of_steps, hourly_chain

    if fit_on:
        past = read(list(fit_on))
        present = read(points, estimator="mle", initial="occupancy")  # nothing of it is used but its steps
        return study_from_past(past, present, initial=initial, time_of_day=time_of_day), past
    study = read(points)
    if time_of_day:
        fit = fit_hours_of_steps(study.steps, str(study.estimate.estimator))
        law = study.model.segments[0].initial
        return replace(study, model=hourly_chain(study.steps, fit, law)), None
    return study, None


def publish_visits(
    published: ReleaseOptions, kept: Account | None, whole: Calibration, prepared: PreparedVisits
) -> tuple[CellRelease, dict[str, Any]]:
    """Charge, draw and write the visits in the format that the ending of their file names."""
    assert published.file is not None
    render = CellRelease.to_geojson if published.file.suffix.lower() == ".geojson" else CellRelease.to_csv
    drawn: list[CellRelease] = []

    def draw(ledger: Ledger | None) -> str:
        drawn.append(prepared.draw(ledger))
        return render(drawn[0])

    told = published.publish(kept, whole, draw, render(prepared.rehearse()))
    return drawn[0], {"file": str(published.file), **drawn[0].about(), **told}

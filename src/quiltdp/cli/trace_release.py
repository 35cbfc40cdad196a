"""What ``quiltdp trace --release`` needs besides: the study it counts, the file it writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.domains.trace import LocationStudy
    from quiltdp.domains.trace.release import CellRelease

__all__ = ["check_release", "chosen_study", "released_text"]

_KINDS = (".csv", ".geojson")


def check_release(release: str | None, area: str | None, *, noisy_map: bool) -> None:
    """Refuse a release over the cells that happened to be visited, and files of another kind."""
    if area is None and (release is not None or noisy_map):
        raise InvalidArgument(
            "the cells themselves would tell where people were: give --area, a public area whose every cell"
            " is published (south,west,north,east or a GeoJSON file)"
        )
    if release is not None and os.path.splitext(release)[1].lower() not in _KINDS:
        raise InvalidArgument(f"--release {release}: a release is written as {' or '.join(_KINDS)}")


def chosen_study(
    read: Callable[..., LocationStudy],
    points: Sequence[str],
    fit_on: Sequence[str] | None,
    *,
    time_of_day: bool,
    initial: str,
) -> LocationStudy:
    """Return the study of the points, under the chain of earlier points and of hours where asked for."""
    from quiltdp.domains.trace.build import study_from_past
    from quiltdp.domains.trace.hours import hourly_chain, hourly_fit

    study = read(points)
    if fit_on:
        return study_from_past(read(list(fit_on)), study, initial=initial, time_of_day=time_of_day)
    if time_of_day:
        fit = hourly_fit(study.steps, str(study.estimate.estimator))
        law = study.model.segments[0].initial
        return replace(study, model=hourly_chain(study.steps, fit, law))
    return study


def released_text(found: CellRelease, path: str) -> str:
    """Return the release in the format that the ending of its file names."""
    return found.to_geojson() if path.lower().endswith(".geojson") else found.to_csv()

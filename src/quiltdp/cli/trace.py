"""``quiltdp trace POINTS``: from a file of points to a Markov chain model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.cli.accounting import AsJson, progress_bar
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.option_words import arg, opt, switch
from quiltdp.cli.release import Force, LedgerFile, NoLedger, ReleaseOptions, TotalEpsilon

if TYPE_CHECKING:
    from quiltdp.chain import ChainModel
    from quiltdp.domains.trace import LocationStudy
    from quiltdp.domains.trace.area import Area, Rings
    from quiltdp.domains.trace.release import CellRelease

__all__ = ["trace"]


def trace(
    points: Annotated[
        list[str],
        arg("POINTS...", "Files of points (CSV, PLT, GPX, GeoJSON, Moving Features, Parquet), or folders."),
    ],
    *,
    cell: Annotated[
        str, opt("CELL", "The cells: squares (500m), hexagons (h3:7) or stay points (stay).")
    ] = "500m",
    interval: Annotated[str, opt("TIME", "The length of a time step.")] = "5min",
    output: Annotated[
        str | None, opt("FILE", "Write the chain to this .json file.", "-o", "--output")
    ] = None,
    estimator: Annotated[str, opt("NAME", "mle, additive:SMOOTHING or reversible.")] = "mle",
    initial: Annotated[
        str, opt("LAW", "Law of a stretch's first step: occupancy, stationary or uniform.")
    ] = "occupancy",
    max_gap: Annotated[
        str | None,
        opt("TIME", "A longer gap splits the trace; none: never.  [default: 15min, at least two steps]"),
    ] = None,
    pick: Annotated[
        str, opt("WHICH", "The point that stands for a step: first, last or most (the commonest).")
    ] = "first",
    lat_column: Annotated[str | None, opt("NAME", "The latitude column, if its name does not tell.")] = None,
    lon_column: Annotated[str | None, opt("NAME", "The longitude column, likewise.")] = None,
    time_column: Annotated[
        str | None, opt("NAME", "The time column, likewise; DATE+CLOCK for two columns.")
    ] = None,
    user_column: Annotated[
        str | None, opt("NAME", "The user column, likewise; without one, the points are one user's.")
    ] = None,
    timezone: Annotated[
        str | None, opt("ZONE", "Of times that name none, and of hours: Europe/Rome, +02:00.  [default: UTC]")
    ] = None,
    time_format: Annotated[
        str | None, opt("FORMAT", "Of times that are not ISO 8601: '%d.%m.%Y %H:%M'.")
    ] = None,
    header: Annotated[
        str | None, opt("NAMES", "The columns of a CSV without a header line: user,time,lon,lat.")
    ] = None,
    separator: Annotated[str | None, opt("MARK", "Between columns of a CSV, if it is not found.")] = None,
    crs: Annotated[str | None, opt("CRS", "Of coordinates that are not degrees: EPSG:32650.")] = None,
    grid_crs: Annotated[
        str | None, opt("CRS", "The plane of the squares.  [default: their UTM zone]")
    ] = None,
    stay_distance: Annotated[str, opt("LENGTH", "Stay points: people stay within this distance.")] = "100m",
    stay_time: Annotated[str, opt("TIME", "Stay points: for at least this long.")] = "5min",
    drop_invalid: Annotated[
        bool, switch("--drop-invalid", "Drop points off the globe instead of refusing the file.")
    ] = False,
    any_speed: Annotated[
        bool, switch("--any-speed", "Accept impossible speeds instead of refusing the file.")
    ] = False,
    robust: Annotated[
        bool, switch("--robust", "Compare estimators, and write the one that needs most noise.")
    ] = False,
    confidence: Annotated[
        float | None, opt("P", "Also tell the noise for every chain that the counts cannot rule out: 0.95.")
    ] = None,
    epsilon: Annotated[float, opt("E", "The leakage at which --robust and --confidence compare.")] = 1.0,
    window: Annotated[int, opt("W", "With --robust or --confidence: protect runs of W steps.", min=1)] = 1,
    map_file: Annotated[
        str | None, opt("FILE", "Draw the visits per cell (.png, .svg, .pdf).", "--map")
    ] = None,
    sigma: Annotated[float | None, opt("S", "With --release: a Laplace scale of your own.")] = None,
    less_noise: Annotated[
        bool, switch("--less-noise", "Release with a --sigma below what --epsilon asks for.")
    ] = False,
    area: Annotated[
        str | None,
        opt(
            "S,W,N,E",
            "The public area, every cell whose centre is in it, visited or not: south,west,north,east in"
            " degrees, or a GeoJSON file with polygons.",
        ),
    ] = None,
    outline: Annotated[
        str | None, opt("FILE", "Draw the polygons of this GeoJSON on the map.  [default: those of --area]")
    ] = None,
    release: Annotated[
        Path | None,
        opt(
            "FILE",
            "Publish noisy visits per cell (.csv or .geojson), calibrated for --epsilon; needs --area.",
        ),
    ] = None,
    level: Annotated[
        str | None, opt("WHAT", "With --release: protect any step, or all that a user did (user).")
    ] = None,
    adversary: Annotated[
        str, opt("WHO", "With --release: informed, prior, knows=STEP,STEP or knows:K (any K steps).")
    ] = "informed",
    fit_on: Annotated[
        list[str] | None, opt("PAST", "Fit the chain on these earlier points; repeat for several.")
    ] = None,
    time_of_day: Annotated[bool, switch("--time-of-day", "A matrix for every hour of the day.")] = False,
    ledger: LedgerFile = None,
    no_ledger: NoLedger = False,
    total_epsilon: TotalEpsilon = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Turn points into a Markov chain: cells at regular time steps, one chain per user and stretch.

    Nothing is repaired silently: rows sorted or dropped, gaps, dead ends and smoothing are listed, and
    stay in the chain's file. The chain is fitted to the trace: keep its file as private as the trace.

    Examples
    --------
    $ quiltdp trace points.csv --cell 500m --interval 5min -o chain.json
    $ quiltdp trace Data/001 --cell h3:7 --estimator additive:0.1 --json
    $ quiltdp trace points.gpx --cell 1km --interval 1min --robust --confidence 0.95
    $ quiltdp trace may.csv --fit-on april.csv --epsilon 1 --area zurich.geojson --release visits.csv
    """
    with guarded():
        from quiltdp.cli.trace_release import check_trace, chosen_study, released
        from quiltdp.domains.trace import location_study
        from quiltdp.domains.trace.points import MAX_SPEED
        from quiltdp.domains.trace.readers import point_files
        from quiltdp.domains.trace.release import prepare_visits
        from quiltdp.io.replace import check_writable, write_whole

        published = ReleaseOptions(release, ledger, no_ledger, total_epsilon, force)
        for name in (output, map_file, release):
            if name is not None:
                check_writable(name, *points, *(fit_on or ()), ledger)
        public, border = check_trace(
            outline=outline, output=output, map_file=map_file, sigma=sigma, area=area, release=release,
            level=level, adversary=adversary, epsilon=epsilon, cell=cell, confidence=confidence,
            robust=robust, time_of_day=time_of_day,
        )  # fmt: skip
        published.check(epsilon)
        read = partial(
            location_study,
            cell=cell,
            interval=interval,
            estimator=estimator,
            initial=initial,
            max_gap=max_gap,
            max_speed=None if any_speed else MAX_SPEED,
            pick=pick,
            grid_crs=grid_crs,
            stay_distance=stay_distance,
            stay_time=stay_time,
            lat=lat_column,
            lon=lon_column,
            time=time_column,
            user=user_column,
            time_zone=timezone,
            time_format=time_format,
            separator=separator,
            header=header,
            crs=crs,
            drop_invalid=drop_invalid,
        )
        with progress_bar():  # reading
            study, past = chosen_study(read, points, fit_on, time_of_day=time_of_day, initial=initial)
        kept = published.account(point_files(points)) if release is not None else None
        model, worst = study.model, None
        if robust or confidence is not None:
            model, worst = _worst(
                study, past, robust=robust, confidence=confidence, epsilon=epsilon, window=window
            )
        facts = _facts(study, model, worst, one_matrix=not time_of_day)
        prepared = None
        if release is not None:
            assert public is not None
            calibrated = partial(
                prepare_visits, replace(study, model=model), area=public, level=level, window=window,
                adversary=adversary, past=bool(fit_on),
            )  # fmt: skip
            with progress_bar() as progress:
                prepared = calibrated(epsilon, sigma=sigma, less_noise=less_noise, progress=progress)
                whole = published.whole(
                    kept, prepared.calibration, lambda total: calibrated(total, progress=progress).target
                )
        if output is not None:
            from quiltdp import save_model

            save_model(model, output)
            facts["output"] = output
        shown = None
        if prepared is not None:  # last: nothing after the draw but to write it down
            shown, facts["release"] = released(published, kept, whole, prepared)
        if map_file is not None:
            picture, facts["map"] = _draw(study, map_file, public, shown, border)
            write_whole(map_file, picture)
        if json:
            emit_json("trace", facts)
        else:
            from quiltdp.cli.trace_tables import for_people

            for_people(facts)


def _worst(
    study: LocationStudy,
    past: LocationStudy | None,
    *,
    robust: bool,
    confidence: float | None,
    epsilon: float,
    window: int,
) -> tuple[ChainModel, dict[str, Any]]:
    """Compare the estimators, and the confidence region, at one ε; return the neediest model."""
    from quiltdp.domains.trace.build import past_counts, robust_models_of_past
    from quiltdp.domains.trace.robust import (
        ROBUST_ESTIMATORS,
        RegionBound,
        robust_models,
        worst_case_dp_epsilon,
    )

    chosen = str(study.estimate.estimator)
    names = tuple(dict.fromkeys((chosen, *ROBUST_ESTIMATORS))) if robust else (chosen,)
    initial = study.model.provenance["initial"]
    models = (
        robust_models(study.steps, names, initial=initial)
        if past is None
        else robust_models_of_past(past, study, names, initial=initial)
    )
    found = worst_case_dp_epsilon(models, epsilon, window=window)
    listed: dict[str, Any] = {
        "epsilon": epsilon,
        "window": window,
        "dp_epsilon_by_estimator": {
            m.provenance["estimator"]: a for m, a in zip(models, found.by_model, strict=True)
        },
        "worst_estimator": found.model.provenance["estimator"],
        "dp_epsilon": found.dp_epsilon,
    }
    if confidence is not None:
        counts = None if past is None else past_counts(past.steps, len(study.estimate.counts))[0]
        region = RegionBound(study.steps, confidence, window=window, counts=counts)
        listed["confidence"] = confidence
        listed["dp_epsilon_region"] = region.dp_epsilon(epsilon)
        listed["spreads_region"] = list(region.spreads[:8])
        listed["dp_epsilon"] = min(found.dp_epsilon, listed["dp_epsilon_region"])
    return found.model, listed


def _facts(
    study: LocationStudy, model: ChainModel, worst: dict[str, Any] | None, *, one_matrix: bool
) -> dict[str, Any]:
    """Return everything the command found, as it stands in the JSON."""
    from quiltdp.domains.trace.hours import hours_hint

    steps, points = study.steps, study.points
    hint = hours_hint(study.past or steps) if one_matrix else None
    south, west, north, east = points.bounding_box
    facts: dict[str, Any] = {
        "points": len(points),
        "users": len(steps.users),
        "bounding_box": {"south": south, "west": west, "north": north, "east": east},
        "cells": steps.provenance["cells"],
        "interval_seconds": steps.interval,
        "steps": steps.total,
        "unseen_steps": steps.total - steps.seen,
        "stretches": len(steps.stretches),
        "estimator": model.provenance["estimator"],
        "initial": model.provenance["initial"],
        "diagnostics": study.diagnostics.as_dict(),
        "gap_by_estimator": _gaps(study),
        "warnings": [*study.diagnostics.warnings(), *([hint] if hint else ())],
        "notes": list(model.notes),
        "fingerprint": model.fingerprint,
    }
    if worst is not None:
        facts["robust"] = worst
    return facts


def _gaps(study: LocationStudy) -> dict[str, dict[str, float]]:
    """Return what smoothing would do to the spectral gap; nothing for very many cells."""
    from quiltdp.domains.trace.diagnostics import gap_by_estimator

    if study.diagnostics.states > 600:
        return {}
    found = gap_by_estimator(study.estimate.counts)
    return {name: {"largest_class": inner, "all_cells": whole} for name, (inner, whole) in found.items()}


def _draw(
    study: LocationStudy, file: str, area: Area | None, published: CellRelease | None, border: Rings
) -> tuple[bytes, dict[str, Any]]:
    """Draw what is released, or the true visits; return the picture and the facts about it."""
    from quiltdp.cli.show import number
    from quiltdp.domains.trace.area import over_area
    from quiltdp.domains.trace.queries import visits_per_cell
    from quiltdp.report.plots import map_picture

    query, outlines = visits_per_cell(study.steps), study.steps.cells.outlines
    values, title = query.values, "Visits per cell: true counts, not for publication"
    if published is not None:  # a picture of what is released, with no noise of its own
        values, outlines = published.values, published.outlines
        title = f"Visits per cell with Laplace noise, scale {number(published.sigma, 6, up=True)}"
    elif area is not None:
        wide = over_area(query, study.steps.cells, area)
        values, outlines = wide.query.values, wide.outlines
    picture = map_picture(file, outlines, values, unit=query.unit, title=title, border=border)
    scale = None if published is None else published.sigma
    return picture, {"file": file, "query": query.name, "sensitivity": query.sensitivity, "sigma": scale}

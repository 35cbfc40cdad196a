"""``quiltdp trace POINTS``: from a file of points to a Markov chain model."""

from __future__ import annotations

import math
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiltdp.cli.accounting import AsJson
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.show import say

if TYPE_CHECKING:
    from quiltdp.chain import ChainModel
    from quiltdp.domains.trace import LocationStudy
    from quiltdp.domains.trace.release import CellRelease

__all__ = ["trace"]


def trace(
    points: Annotated[
        list[str],
        typer.Argument(
            metavar="POINTS...",
            help="Files of points (CSV, PLT, GPX, GeoJSON, Moving Features, Parquet), or folders.",
        ),
    ],
    *,
    cell: Annotated[
        str,
        typer.Option(
            metavar="CELL", help="The cells: squares (500m), hexagons (h3:7) or stay points (stay)."
        ),
    ] = "500m",
    interval: Annotated[str, typer.Option(metavar="TIME", help="The length of a time step.")] = "5min",
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the chain to this .json file.")
    ] = None,
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="mle, additive:SMOOTHING or reversible.")
    ] = "mle",
    initial: Annotated[
        str,
        typer.Option(metavar="LAW", help="Law of a stretch's first step: occupancy, stationary or uniform."),
    ] = "occupancy",
    max_gap: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="A longer gap splits the trace; none: never.  [default: 15min, at least two steps]",
        ),
    ] = None,
    pick: Annotated[
        str,
        typer.Option(
            metavar="WHICH", help="The point that stands for a step: first, last or most (the commonest)."
        ),
    ] = "first",
    lat_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The latitude column, if its name does not tell.")
    ] = None,
    lon_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The longitude column, likewise.")
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The time column, likewise; DATE+CLOCK for two columns."),
    ] = None,
    user_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The user column, likewise; without one, the points are one user's."
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Of times that name none: Europe/Rome, +02:00.  [default: UTC]"),
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of times that are not ISO 8601: '%d.%m.%Y %H:%M'.")
    ] = None,
    header: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="The columns of a CSV without a header line: user,time,lon,lat."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option(metavar="MARK", help="Between columns of a CSV, if it is not found.")
    ] = None,
    crs: Annotated[
        str | None, typer.Option(metavar="CRS", help="Of coordinates that are not degrees: EPSG:32650.")
    ] = None,
    grid_crs: Annotated[
        str | None, typer.Option(metavar="CRS", help="The plane of the squares.  [default: their UTM zone]")
    ] = None,
    stay_distance: Annotated[
        str, typer.Option(metavar="LENGTH", help="Stay points: people stay within this distance.")
    ] = "100m",
    stay_time: Annotated[
        str, typer.Option(metavar="TIME", help="Stay points: for at least this long.")
    ] = "5min",
    drop_invalid: Annotated[
        bool, typer.Option("--drop-invalid", help="Drop points off the globe instead of refusing the file.")
    ] = False,
    any_speed: Annotated[
        bool, typer.Option("--any-speed", help="Accept impossible speeds instead of refusing the file.")
    ] = False,
    robust: Annotated[
        bool, typer.Option("--robust", help="Compare estimators, and write the one that needs most noise.")
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Also tell the noise for every chain that the counts cannot rule out: 0.95."
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(metavar="E", help="The leakage at which --robust and --confidence compare.")
    ] = 1.0,
    window: Annotated[
        int, typer.Option(metavar="W", min=1, help="With --robust or --confidence: protect runs of W steps.")
    ] = 1,
    map_file: Annotated[
        str | None, typer.Option("--map", metavar="FILE", help="Draw the visits per cell (.png, .svg, .pdf).")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(metavar="S", help="The Laplace scale of the map's noise; without it, true counts."),
    ] = None,
    area: Annotated[
        str | None,
        typer.Option(
            metavar="S,W,N,E",
            help="The public area, every cell of it, visited or not: south,west,north,east in degrees, or a"
            " GeoJSON file with polygons.",
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Publish noisy visits per cell (.csv or .geojson), calibrated for --epsilon; needs --area.",
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="With --release: protect any step, or all that a user did (user)."),
    ] = None,
    adversary: Annotated[
        str, typer.Option(metavar="WHO", help="With --release: informed or prior.")
    ] = "informed",
    fit_on: Annotated[
        list[str] | None,
        typer.Option(metavar="PAST", help="Fit the chain on these earlier points; repeat for several."),
    ] = None,
    time_of_day: Annotated[
        bool, typer.Option("--time-of-day", help="A matrix for every hour of the day.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Release with a --sigma below what --epsilon asks for.")
    ] = False,
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
        from quiltdp.cli.trace_release import chosen_study, released_text
        from quiltdp.domains.trace import location_study
        from quiltdp.domains.trace.area import parse_area
        from quiltdp.domains.trace.checks import MAX_SPEED
        from quiltdp.domains.trace.release import release_visits
        from quiltdp.io.replace import check_writable, write_whole

        _check_map(map_file, sigma, area, release)
        for name in (output, map_file, release):
            if name is not None:
                check_writable(name, *points, *(fit_on or ()))
        read = partial(
            location_study,
            cell=cell,
            interval=interval,
            estimator=estimator,
            initial=initial,
            max_gap=max_gap,
            max_speed=None if any_speed else MAX_SPEED,
            pick=pick,  # type: ignore[arg-type]  # checked there, with one line for the user
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
        study = chosen_study(read, points, fit_on, time_of_day=time_of_day, initial=initial)
        model, worst = study.model, None
        if robust or confidence is not None:
            model, worst = _worst(study, robust=robust, confidence=confidence, epsilon=epsilon, window=window)
        facts = _facts(study, model, worst)
        picture, published = b"", None
        if release is not None:
            published = release_visits(
                study,
                epsilon,
                parse_area(str(area)),
                level=level,
                window=window,
                adversary=adversary,
                sigma=sigma,
                force=force,
                past=bool(fit_on),
            )
            facts["release"] = {"file": release, **published.about(), "remarks": list(published.remarks)}
        if map_file is not None:
            picture, facts["map"] = _draw(study, map_file, sigma, area, published)
        if output is not None:
            from quiltdp import save_model

            save_model(model, output)
            facts["output"] = output
        if published is not None and release is not None:
            write_whole(release, released_text(published, release))
        if map_file is not None:  # last: whatever was wrong was said before anything was written
            write_whole(map_file, picture)
        if json:
            emit_json("trace", facts)
        else:
            _for_people(facts)


def _check_map(map_file: str | None, sigma: float | None, area: str | None, release: str | None) -> None:
    """Refuse what belongs together and stands alone, and noise of no scale, before any work."""
    from quiltdp.cli.trace_release import check_release
    from quiltdp.errors import InvalidArgument

    for flag, value in (("--sigma", sigma), ("--area", area)):
        if value is not None and map_file is None and release is None:
            raise InvalidArgument(f"{flag} belongs to a map or a release: give --map or --release FILE too")
    if sigma is not None and not 0.0 < sigma < math.inf:
        raise InvalidArgument(f"--sigma must be a positive finite number, not {sigma!r}")
    check_release(release, area, noisy_map=map_file is not None and sigma is not None)


def _worst(
    study: LocationStudy, *, robust: bool, confidence: float | None, epsilon: float, window: int
) -> tuple[ChainModel, dict[str, Any]]:
    """Compare the estimators, and the confidence region, at one ε; return the neediest model."""
    from quiltdp.domains.trace.robust import (
        ROBUST_ESTIMATORS,
        RegionBound,
        robust_models,
        worst_case_dp_epsilon,
    )

    chosen = str(study.estimate.estimator)
    names = tuple(dict.fromkeys((chosen, *ROBUST_ESTIMATORS))) if robust else (chosen,)
    models = robust_models(study.steps, names, initial=study.model.provenance["initial"])
    found = worst_case_dp_epsilon(models, epsilon, window=window, time_limit=10.0)
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
        region = RegionBound(study.steps, confidence, window=window)
        listed["confidence"] = confidence
        listed["dp_epsilon_region"] = region.dp_epsilon(epsilon)
        listed["spreads_region"] = list(region.spreads[:8])
        listed["dp_epsilon"] = min(found.dp_epsilon, listed["dp_epsilon_region"])
    return found.model, listed


def _facts(study: LocationStudy, model: ChainModel, worst: dict[str, Any] | None) -> dict[str, Any]:
    """Return everything the command found, as it stands in the JSON."""
    steps, points = study.steps, study.points
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
        "warnings": list(study.diagnostics.warnings()),
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
    study: LocationStudy, file: str, sigma: float | None, area: str | None, published: CellRelease | None
) -> tuple[bytes, dict[str, Any]]:
    """Draw the visits, with noise when a scale is given; return the picture and the facts about it."""
    from quiltdp.domains.trace.area import over_area, parse_area
    from quiltdp.domains.trace.queries import release_cells, visits_per_cell
    from quiltdp.report.trace_map import map_picture

    query, outlines = visits_per_cell(study.steps), study.steps.cells.outlines
    if published is not None:  # a picture of what is released, with no noise of its own
        title = f"Visits per cell with Laplace noise, scale {published.sigma:.4g}"
        picture = map_picture(file, published.outlines, published.values, unit=query.unit, title=title)
        told = {"query": query.name, "sensitivity": query.sensitivity, "sigma": published.sigma}
        return picture, {"file": file, **told}
    if area is not None:
        wide = over_area(query, study.steps.cells, parse_area(area))
        query, outlines = wide.query, wide.outlines
    if sigma is None:
        values, title = query.values, "Visits per cell: true counts, not for publication"
    else:
        values = release_cells(query, sigma)
        title = f"Visits per cell with Laplace noise, scale {sigma:g}"
    picture = map_picture(file, outlines, values, unit=query.unit, title=title)
    return picture, {"file": file, "query": query.name, "sensitivity": query.sensitivity, "sigma": sigma}


def _for_people(facts: dict[str, Any]) -> None:
    """Print the diagnostics, then what was noticed, then what was written."""
    from quiltdp.cli.show import number, show_facts, show_line, show_table
    from quiltdp.domains.trace.units import many

    d, box = facts["diagnostics"], facts["bounding_box"]
    stretches = f"{facts['stretches']} stretch{'es' if facts['stretches'] > 1 else ''}"
    rows = [
        ("points", f"{facts['points']} of {facts['users']} user{'s' if facts['users'] > 1 else ''}"),
        (
            "area",
            f"latitude {box['south']:.4f} to {box['north']:.4f},"
            f" longitude {box['west']:.4f} to {box['east']:.4f}",
        ),
        ("cells", f"{d['states']} ({facts['cells']})"),
        (
            "steps",
            f"{facts['steps']} in {stretches}, {facts['unseen_steps']} without a point",
        ),
        ("transitions", f"{d['transitions']}, {100 * d['zero_fraction']:.1f} % of pairs never seen"),
        (
            "classes",
            f"{d['classes']}, the largest of {many(d['largest_class'], 'cell')}, period {d['period']}",
        ),
        ("dead ends", str(d["dead_ends"])),
        ("estimator", f"{facts['estimator']}, first step: {facts['initial']}"),
        ("spectral gap", f"{number(d['gap'])} (largest class {number(d['class_gap'])})"),
        *(
            (f"  with {name}", f"{number(gap['all_cells'])} (largest class {number(gap['largest_class'])})")
            for name, gap in facts["gap_by_estimator"].items()
            if name != facts["estimator"]
        ),
    ]
    show_facts(rows, title="Markov chain of a location trace")
    for note in (*facts["warnings"], *facts["notes"]):
        show_line(f"note: {note}")
    if "robust" in facts:
        _show_robust(facts["robust"], show_line, show_table, number, written="output" in facts)
    if "release" in facts:
        told = facts["release"]
        show_line(
            f"released {told['file']}: visits per cell with Laplace noise, σ = {told['sigma']:.6g};"
            f" ε = {told['epsilon']:.6g} protects {told['protects']} against the {told['adversary']}"
            " adversary",
            style="bold green",
        )
        for note in (*told["notes"], *told["remarks"]):
            show_line(f"note: {note}")
    if "map" in facts:
        drawn = facts["map"]
        cost = (
            f"noise scale {number(drawn['sigma'])},"
            f" dp_epsilon {number(drawn['sensitivity'] / drawn['sigma'])}"
            if drawn["sigma"] is not None
            else "true counts, no noise: not for publication"
        )
        show_line(f"wrote {drawn['file']} ({drawn['query']}, sensitivity {drawn['sensitivity']:g}; {cost})")
    if "output" in facts:
        show_line(f"wrote {facts['output']}; next, for visits per cell:")
        say(f"  quiltdp calibrate {shlex.quote(facts['output'])} --epsilon 1 --sensitivity 2")


def _show_robust(
    worst: dict[str, Any], show_line: Any, show_table: Any, number: Any, *, written: bool
) -> None:
    """Print the noise each estimator asks for."""
    rows = [
        (name, number(a), number(1.0 / a) if a else "∞")
        for name, a in worst["dp_epsilon_by_estimator"].items()
    ]
    if "dp_epsilon_region" in worst:
        a = worst["dp_epsilon_region"]
        rows.append((f"region, {100 * worst['confidence']:g} % confidence", number(a), number(1.0 / a)))
    what = "each step" if worst["window"] == 1 else f"any {worst['window']} steps in a row"
    show_table(
        ("model", "dp_epsilon", "noise per unit"),
        rows,
        title=f"What epsilon {worst['epsilon']:g} for {what} costs",
        right=("dp_epsilon", "noise per unit"),
    )
    wrote = "this one is written" if written else "-o FILE would write this one"
    show_line(f"worst estimator: {worst['worst_estimator']} ({wrote})")

"""``quiltdp trace POINTS``: from a file of points to a Markov chain model, and noisy visits per cell."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import files_by_ending, key_values
from quiltdp.cli.release import ReleaseOptions, show_account
from quiltdp.cli.running import progress_bar
from quiltdp.cli.show import number, say, show_facts, show_line, show_table
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.chain import ChainModel
    from quiltdp.domains.trace import LocationStudy
    from quiltdp.domains.trace.area import Area, Rings
    from quiltdp.domains.trace.release import CellRelease

_WRITTEN = {"model": (".json", ".json.gz"), "map": (".png", ".svg", ".pdf")}
_READ = ("lat", "lon", "time", "user", "time-format", "header", "separator", "crs")
_ACCEPTED = ("off-globe", "any-speed")


def trace(
    points: list[str],
    *,
    read: list[str] | None = None,
    timezone: str | None = None,
    accept: list[str] | None = None,
    fit_on: list[str] | None = None,
    cell: str = "500m",
    interval: str = "5min",
    max_gap: str | None = None,
    pick: str = "first",
    estimator: str = "mle",
    initial: str = "occupancy",
    time_of_day: bool = False,
    robust: bool = False,
    confidence: float | None = None,
    epsilon: float = 1.0,
    area: str | None = None,
    release: Path | None = None,
    level: str | None = None,
    window: int = 1,
    adversary: str = "informed",
    sigma: float | None = None,
    less_noise: bool = False,
    account: str | None = None,
    total_epsilon: float | None = None,
    output: list[str] | None = None,
    outline: str | None = None,
    json: bool = False,
) -> None:
    """Turn points into a Markov chain: cells at regular time steps, one chain per user and stretch.

    Nothing is repaired silently: rows sorted or dropped, gaps, dead ends and smoothing are listed, and
    stay in the chain's file. The chain is fitted to the trace: keep its file as private as the trace.

    Arguments
    ---------
    points : POINTS...
        Files of points (CSV, PLT, GPX, GeoJSON, Moving Features, Parquet), or folders.

    Reading
    -------
    read : KEY=VALUE
        How to read them, where that is not plain; repeated. The columns: lat=, lon=, time= (DATE+CLOCK for
        two), user=; time-format='%d.%m.%Y %H:%M'; a CSV's header=user,time,lon,lat and separator=;
        crs=EPSG:32650 of coordinates that are not degrees.
    timezone : ZONE
        Of times that name none, and of hours: Europe/Rome, +02:00 (default: UTC).
    accept : WHAT
        Do not refuse the file for points off-globe (they are dropped) or for any-speed; repeated.
    fit_on : PAST
        Fit the chain on these earlier points; repeat for several.

    Model
    -----
    cell : CELL
        The cells: squares (500m, or 500m@EPSG:2056 in a plane other than their UTM zone), hexagons (h3:7) or
        stay points (stay, or stay:100m:5min for people who stay within 100 m for 5 minutes).
    interval : TIME
        The length of a time step.
    max_gap : TIME
        A longer gap splits the trace; none: never (default: 15min, at least two steps).
    pick : WHICH
        The point that stands for a step: first, last or most (the commonest).
    estimator : NAME
        mle, additive:SMOOTHING or reversible.
    initial : LAW
        Law of a stretch's first step: occupancy, stationary or uniform.
    time_of_day
        A matrix for every hour of the day.
    robust
        Compare estimators, and write the one that needs most noise.
    confidence : P
        Also tell the noise for every chain that the counts cannot rule out: 0.95.

    Release
    -------
    epsilon : E
        The leakage allowed: of a release, and where --robust and --confidence compare.
    area : S,W,N,E
        The public area, every cell whose centre is in it, visited or not: south,west,north,east in degrees,
        or a GeoJSON file with polygons.
    release : FILE
        Publish noisy visits per cell (.csv or .geojson), calibrated for --epsilon; needs --area.
    level : WHAT
        With --release: protect any step, or all that a user did (user).
    window : W >= 1
        Protect every run of W consecutive steps.
    adversary : WHO
        With --release: informed, prior, knows=STEP,STEP or knows:K (any K steps).
    sigma : S
        With --release: a Laplace scale of your own.
    less_noise
        Release with a --sigma below what --epsilon asks for.

    Output
    ------
    output (-o, --output) : FILE
        Write the chain (.json), or a map of the visits per cell (.png .svg .pdf); repeated for both.
    outline : FILE
        Draw the polygons of this GeoJSON on the map (default: those of --area).

    Examples
    --------
    $ quiltdp trace points.csv --cell 500m --interval 5min -o chain.json
    $ quiltdp trace Data/001 --cell h3:7 --estimator additive:0.1 --json
    $ quiltdp trace points.gpx --cell 1km --interval 1min --robust --confidence 0.95
    $ quiltdp trace may.csv --fit-on april.csv --epsilon 1 --area zurich.geojson --release visits.csv
    """
    from quiltdp.cli.trace_release import check_trace_options, choose_study, publish_visits
    from quiltdp.domains.trace import location_study
    from quiltdp.domains.trace.points import MAX_SPEED
    from quiltdp.domains.trace.readers import point_files
    from quiltdp.domains.trace.release import prepare_visits
    from quiltdp.io.replace import check_writable, write_whole

    files = files_by_ending(output or (), _WRITTEN)
    map_file = None if "map" not in files else str(files["map"])
    published = ReleaseOptions(release, account, total_epsilon)
    for name in (*files.values(), *([] if release is None else [release])):
        check_writable(name, *points, *(fit_on or ()), published.ledger_file)
    public, border = check_trace_options(
        outline=outline, map_file=map_file, sigma=sigma, area=area, release=release, level=level,
        adversary=adversary, epsilon=epsilon, cell=cell, confidence=confidence, robust=robust,
        time_of_day=time_of_day,
    )  # fmt: skip
    published.check(epsilon)
    accepted = _check_accepted(accept or [])
    study_of = partial(
        location_study, **_parse_cell(cell), interval=interval, estimator=estimator, initial=initial,
        max_gap=max_gap, max_speed=None if "any-speed" in accepted else MAX_SPEED, pick=pick,
        time_zone=timezone, drop_invalid="off-globe" in accepted, **_reader_options(read or []),
    )  # fmt: skip
    with progress_bar():  # reading
        study, past = choose_study(study_of, points, fit_on, time_of_day=time_of_day, initial=initial)
    kept = published.account(point_files(points)) if release is not None else None
    model, worst = study.model, None
    if robust or confidence is not None:
        model, worst = _compare_estimators(
            study, past, robust=robust, confidence=confidence, epsilon=epsilon, window=window
        )
    facts = _trace_facts(study, model, worst, one_matrix=not time_of_day)
    prepared = None
    if release is not None:
        assert public is not None
        calibrated = partial(
            prepare_visits, replace(study, model=model), area=public, level=level, window=window,
            adversary=adversary, past=bool(fit_on),
        )  # fmt: skip
        with progress_bar() as progress:
            prepared = calibrated(epsilon, sigma=sigma, less_noise=less_noise, progress=progress)
            whole = published.whole_budget(
                kept, prepared.calibration, lambda total: calibrated(total, progress=progress).target
            )
    if "model" in files:
        from quiltdp import save_model

        save_model(model, files["model"])
        facts["output"] = str(files["model"])
    shown = None
    if prepared is not None:  # last: nothing after the draw but to write it down
        shown, facts["release"] = publish_visits(published, kept, whole, prepared)
    if map_file is not None:
        picture, facts["map"] = _draw_map(study, map_file, public, shown, border)
        write_whole(map_file, picture)
    if json:
        emit_json("trace", facts)
    else:
        _show_trace(facts)


def _reader_options(words: list[str]) -> dict[str, Any]:
    """Return what ``--read`` says as options of the readers."""
    found = dict(key_values("--read", words))
    for key in found:
        if key not in _READ:
            raise InvalidArgument(f"--read {key}=…: the keys are {', '.join(_READ)}")
    return {key.replace("-", "_"): value for key, value in found.items()}


def _check_accepted(words: list[str]) -> list[str]:
    for word in words:
        if word not in _ACCEPTED:
            raise InvalidArgument(f"--accept must be {' or '.join(_ACCEPTED)}, not {word!r}")
    return words


def _parse_cell(cell: str) -> dict[str, Any]:
    """Return the cell with the sizes that ``--cell`` adds: a plane, or how people stay."""
    if cell.startswith("stay:"):
        sizes = cell.split(":")[1:]
        if len(sizes) != 2:
            raise InvalidArgument(f"--cell {cell!r}: write stay, or stay:LENGTH:TIME like stay:100m:5min")
        return {"cell": "stay", "stay_distance": sizes[0], "stay_time": sizes[1]}
    size, at, plane = cell.partition("@")
    return {"cell": size, "grid_crs": plane} if at else {"cell": cell}


def _compare_estimators(
    study: LocationStudy,
    past: LocationStudy | None,
    *,
    robust: bool,
    confidence: float | None,
    epsilon: float,
    window: int,
) -> tuple[ChainModel, dict[str, Any]]:
    """Compare the estimators, and the confidence region, at one ε; return the neediest model."""
    from quiltdp.domains.trace.build import past_transition_counts
    from quiltdp.domains.trace.robust import (
        ROBUST_ESTIMATORS,
        RegionBound,
        robust_models,
        robust_models_of_past,
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
        "dp_epsilon": found.value,
    }
    if confidence is not None:
        counts = None if past is None else past_transition_counts(past.steps, len(study.estimate.counts))[0]
        region = RegionBound(study.steps, confidence, window=window, counts=counts)
        listed["confidence"] = confidence
        listed["dp_epsilon_region"] = region.dp_epsilon(epsilon)
        listed["spreads_region"] = list(region.spreads[:8])
        listed["dp_epsilon"] = min(found.value, listed["dp_epsilon_region"])
    return found.model, listed


def _trace_facts(
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
        "gap_by_estimator": _spectral_gaps(study),
        "warnings": [*study.diagnostics.warnings(), *([hint] if hint else ())],
        "notes": list(model.notes),
        "fingerprint": model.fingerprint,
    }
    if worst is not None:
        facts["robust"] = worst
    return facts


def _spectral_gaps(study: LocationStudy) -> dict[str, dict[str, float]]:
    """Return what smoothing would do to the spectral gap; nothing for very many cells."""
    from quiltdp.domains.trace.estimate import gap_by_estimator

    if study.diagnostics.states > 600:
        return {}
    found = gap_by_estimator(study.estimate.counts)
    return {name: {"largest_class": inner, "all_cells": whole} for name, (inner, whole) in found.items()}


def _draw_map(
    study: LocationStudy, file: str, area: Area | None, published: CellRelease | None, border: Rings
) -> tuple[bytes, dict[str, Any]]:
    """Draw what is released, or the true visits; return the picture and the facts about it."""
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


def _show_trace(facts: dict[str, Any]) -> None:
    """Print the diagnostics, then what was noticed, then what was written."""
    from quiltdp.domains.trace.times import many

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
        _show_robust(facts["robust"], written="output" in facts)
    if "release" in facts:
        told = facts["release"]
        show_line(
            f"released {told['file']}: visits per cell with Laplace noise,"
            f" σ = {number(told['sigma'], 6, up=True)};"
            f" ε = {told['epsilon']:.6g} protects {told['protects']} against the {told['adversary']}"
            " adversary",
            style="bold green",
        )
        for note in told["notes"]:
            show_line(f"note: {note}")
        show_account(told)
    if "map" in facts:
        drawn = facts["map"]
        cost = (
            f"noise scale {number(drawn['sigma'], 6, up=True)},"
            f" dp_epsilon {number(drawn['sensitivity'] / drawn['sigma'], up=True)}"
            if drawn["sigma"] is not None
            else "true counts, no noise: not for publication"
        )
        show_line(f"wrote {drawn['file']} ({drawn['query']}, sensitivity {drawn['sensitivity']:g}; {cost})")
    if "output" in facts:
        show_line(f"wrote {facts['output']}; next, for visits per cell:")
        say(f"  quiltdp calibrate {shlex.quote(facts['output'])} --epsilon 1 --sensitivity 2")


def _show_robust(worst: dict[str, Any], *, written: bool) -> None:
    """Print the noise each estimator asks for."""
    rows = [
        (name, number(a, down=True), number(1.0 / a, up=True) if a else "∞")
        for name, a in worst["dp_epsilon_by_estimator"].items()
    ]
    if "dp_epsilon_region" in worst:
        a = worst["dp_epsilon_region"]
        region = f"region, {100 * worst['confidence']:g} % confidence"
        rows.append((region, number(a, down=True), number(1.0 / a, up=True)))
    what = "each step" if worst["window"] == 1 else f"any {worst['window']} steps in a row"
    show_table(
        ("model", "dp_epsilon", "noise per unit"),
        rows,
        title=f"What epsilon {worst['epsilon']:g} for {what} costs",
        right=("dp_epsilon", "noise per unit"),
    )
    wrote = "this one is written" if written else "-o FILE would write this one"
    show_line(f"worst estimator: {worst['worst_estimator']} ({wrote})")

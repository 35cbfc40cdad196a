"""Readers of location traces: CSV, GeoLife PLT, GPX, GeoJSON and Moving Features, Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from quiltdp.domains.trace.points import Points
from quiltdp.domains.trace.readers.geojson import read_geojson
from quiltdp.domains.trace.readers.gps import read_gpx, read_plt
from quiltdp.domains.trace.readers.rows import Layout, Rows, make_points
from quiltdp.domains.trace.readers.tables import read_csv, read_parquet
from quiltdp.errors import FileFormatError, InvalidArgument

__all__ = ["FORMATS", "point_files", "read_points"]

FORMATS: dict[str, Callable[[Path, Layout], Rows]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), read_csv),
    ".plt": read_plt,
    ".gpx": read_gpx,
    **dict.fromkeys((".json", ".geojson", ".mfjson"), read_geojson),
    **dict.fromkeys((".parquet", ".pq"), read_parquet),
}
"""File name ending → reader: from a file, and what is said of its layout, to rows."""

_COLUMNS = ("time", "lat", "lon", "line")


def read_points(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    lat: str | None = None,
    lon: str | None = None,
    time: str | None = None,
    user: str | None = None,
    time_zone: str | None = None,
    time_format: str | None = None,
    crs: str | None = None,
    separator: str | None = None,
    header: str | None = None,
    drop_invalid: bool = False,
) -> Points:
    """Read the points of a location trace.

    Parameters
    ----------
    path
        A file, several files, or a folder (every file in it with a known ending; for GeoLife the
        folder above ``Trajectory`` is the user).
    lat, lon, time, user
        Column (or property) names, where they are not recognised; ``time="date+clock"`` joins two.
    time_zone
        For times that carry none; without it they are read as UTC and a note says so.
    time_format
        As in ``strptime``, for times that are not ISO 8601.
    crs
        The coordinate system of projected coordinates, for example ``EPSG:32650``.
    separator
        The column separator of a CSV, where the header does not tell.
    header
        The column names of a CSV without a header line: ``"user,time,lon,lat"``.
    drop_invalid
        Drop points outside the globe (counted in the notes) instead of refusing the file.

    Raises
    ------
    FileFormatError
        ``path:line: what is wrong, what to do``.
    """
    files = point_files(path)
    layout = Layout({"lat": lat, "lon": lon, "time": time, "user": user}, separator, header)
    read = [
        make_points(
            _reader_for(file)(file, layout),
            time_zone=time_zone,
            time_format=time_format,
            crs=crs,
            drop_invalid=drop_invalid,
        )
        for file in files
    ]
    return read[0] if len(read) == 1 else _join_points(read, files)


def point_files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the files to read, folders opened."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise InvalidArgument("no file of points was given")
    files: list[Path] = []
    for item in map(Path, paths):
        if _is_folder(item):
            inside = sorted(_files_in_folder(item))
            if any(_format_ending(f) == ".plt" for f in inside):  # GeoLife folders also hold labels.txt
                inside = [f for f in inside if _format_ending(f) == ".plt"]
            if not inside:
                raise FileFormatError(item, None, f"the folder has no file ending in {', '.join(FORMATS)}")
            files.extend(inside)
        else:
            files.append(item)
    return files


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:  # a folder above it that may not be searched, a name too long
        reason = getattr(error, "strerror", None) or error
        raise FileFormatError(path, None, f"the file cannot be read ({reason})") from None


def _files_in_folder(folder: Path) -> list[Path]:
    """Return the files of a known kind in a folder and the folders in it; refuse one that is closed."""

    def refuse_folder(error: OSError) -> NoReturn:
        where = error.filename or folder
        raise FileFormatError(where, None, f"the folder cannot be searched ({error.strerror})") from None

    files = []
    for root, _, names in os.walk(folder, onerror=refuse_folder):
        files += [Path(root, name) for name in names if _format_ending(Path(name)) in FORMATS]
    return [file for file in files if file.is_file()]


def _reader_for(path: Path) -> Callable[[Path, Layout], Rows]:
    if _format_ending(path) not in FORMATS:
        raise FileFormatError(path, None, f"unknown ending {path.suffix!r}: {', '.join(FORMATS)} are read")
    return FORMATS[_format_ending(path)]


def _format_ending(path: Path) -> str:
    """Return the ending that tells the format; ``.csv.gz`` counts as ``.csv``."""
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == ".gz" else ending


def _join_points(parts: list[Points], files: list[Path]) -> Points:
    """Put several files together; a user named in several files is one user."""
    users = tuple(dict.fromkeys(u for p in parts for u in p.users))
    place = {u: k for k, u in enumerate(users)}
    who = [np.array([place[u] for u in p.users], dtype=np.int64)[p.who] for p in parts]
    notes = tuple(dict.fromkeys(n for p in parts for n in p.notes))
    return Points(
        users,
        np.concatenate(who),
        **{name: np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS},
        source=f"{files[0]} and {len(files) - 1} more",
        notes=(*notes, f"{len(files)} files read together"),
        provenance={
            **parts[0].provenance,
            "format": ", ".join(sorted({p.provenance.get("format", "?") for p in parts})),
        },
    )

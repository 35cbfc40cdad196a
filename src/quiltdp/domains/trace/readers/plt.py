"""Points from a GeoLife PLT file: six header lines, then lat, lon, 0, feet, day number, date, time in GMT."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from quiltdp.domains.trace.readers.rows import Rows
from quiltdp.errors import FileFormatError
from quiltdp.io.text import read_text

__all__ = ["read_plt", "user_of"]

_HEADER_LINES = 6


def user_of(path: Path) -> str:
    """Return GeoLife's user: the folder above ``Trajectory``, or the file's own name.

    Examples
    --------
    >>> user_of(Path("Data/001/Trajectory/20081023055305.plt")), user_of(Path("walk.plt"))
    ('001', 'walk')
    """
    if path.parent.name.lower() == "trajectory":
        return path.parent.parent.name or path.stem
    return path.stem


def read_plt(path: Path) -> Rows:
    """Read one PLT file; its times are GMT by definition.

    Raises
    ------
    FileFormatError
        Naming the line that is not a PLT point.
    """
    lines = read_text(path).splitlines()
    if len(lines) < _HEADER_LINES or "wgs 84" not in " ".join(lines[:_HEADER_LINES]).lower():
        raise FileFormatError(path, 1, "not a GeoLife PLT file: six header lines naming WGS 84 are expected")
    rows = Rows(str(path), provenance={"format": "plt"})
    user = user_of(path)
    for number, line in enumerate(lines[_HEADER_LINES:], start=_HEADER_LINES + 1):
        if not line.strip():
            continue
        fields = line.split(",")
        if len(fields) != 7:
            raise FileFormatError(path, number, f"a PLT point has 7 fields, this line has {len(fields)}")
        try:
            lat, lon = float(fields[0]), float(fields[1])
            stamp = datetime.strptime(f"{fields[5].strip()} {fields[6].strip()}", "%Y-%m-%d %H:%M:%S")
        except ValueError as error:
            raise FileFormatError(path, number, f"not a PLT point ({error})") from None
        rows.lat.append(lat)
        rows.lon.append(lon)
        rows.seconds.append(stamp.replace(tzinfo=UTC).timestamp())
        rows.user.append(user)
        rows.line.append(number)
    return rows

"""Write a file in one step: it appears complete, or what was there stays."""

from __future__ import annotations

import os
from pathlib import Path

from quiltdp.errors import FileFormatError

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write ``data`` to a new file beside ``path`` and rename it; an interruption leaves nothing behind.

    Raises
    ------
    FileFormatError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(pathlib.Path(folder) / "a.txt", "σ = 1")
    ...     [(p.name, p.read_text(encoding="utf-8")) for p in pathlib.Path(folder).iterdir()]
    [('a.txt', 'σ = 1')]
    """
    name = Path(os.path.realpath(path))  # through a link, to the file it names
    if name.exists() and not name.is_file():  # /dev/stdout, a pipe: nothing to replace
        _straight(name, data)
        return
    draft = name.with_name(f".{name.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        draft.replace(name)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def _straight(path: Path, data: bytes | str) -> None:
    try:
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: object, error: OSError) -> FileFormatError:
    return FileFormatError(path, None, f"the file cannot be written ({error.strerror or error})")

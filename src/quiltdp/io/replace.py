"""Write a file in one step: it appears complete and durable, or what was there stays."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from quiltdp.errors import FileFormatError

_BESIDE = ("-journal", "-wal", "-shm", "-lock")
"""Files that belong to a database and its lock."""


def check_output(path: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse to write over a ledger (any database), over a file it needs, or over an input.

    Every command that writes asks :func:`check_writable` before its work begins; :func:`write_whole`
    asks again.
    Links are followed, and two names of one file are one file.

    Raises
    ------
    FileFormatError
        Naming the file.

    Examples
    --------
    >>> check_output("result.json", "model.bif")
    >>> check_output("model.bif", "./model.bif")
    Traceback (most recent call last):
    ...
    quiltdp.errors.FileFormatError: model.bif: this is an input of the command; write to another file
    """
    try:
        name = os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise _unwritable_error(path, error) from None
    for source in inputs:
        if source is not None and (os.path.realpath(source) == name or _is_same_file(source, name)):
            raise FileFormatError(path, None, "this is an input of the command; write to another file")
    if _is_database(name):
        raise FileFormatError(
            path, None, "this is a ledger or another database, and is never overwritten; choose another file"
        )
    for end in _BESIDE:
        if name.endswith(end) and _is_database(name.removesuffix(end)):
            raise FileFormatError(path, None, "this file belongs to a ledger; choose another file")


def _is_same_file(one: str | os.PathLike[str], other: str) -> bool:
    with suppress(OSError, ValueError):
        return os.path.samefile(one, other)
    return False


def _is_database(name: str) -> bool:
    """Return whether a file is a database; SQLite looks, because ``open()`` would drop its locks."""
    try:
        if not os.path.isfile(name) or os.path.getsize(name) == 0:
            return False
        with closing(sqlite3.connect(f"{Path(name).as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        return "not a database" not in str(error)  # busy, or in need of repair, but one
    except (OSError, ValueError):
        return False
    return True


def write_whole(
    path: str | os.PathLike[str],
    data: bytes | str,
    *inputs: str | os.PathLike[str] | None,
    replace: bool = True,
) -> None:
    """Write ``data`` to a new file beside ``path`` and rename it; an interruption leaves nothing behind.

    Without ``replace`` a file that is there by then stays, and the call fails.

    Raises
    ------
    FileFormatError
        If the file cannot be written, or must not be: see :func:`check_output`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(pathlib.Path(folder) / "a.txt", "σ = 1")
    ...     [(p.name, p.read_text(encoding="utf-8")) for p in pathlib.Path(folder).iterdir()]
    [('a.txt', 'σ = 1')]
    """
    check_output(path, *inputs)
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        name = Path(os.path.realpath(path))  # through a link, to the file it names
        if name.exists() and not name.is_file():  # /dev/stdout, a pipe: nothing to replace
            name.write_bytes(content)
            return
        with _draft_beside(name, content) as draft:
            if replace:
                draft.replace(name)
            else:
                _rename_draft(draft, name)
        _sync_folder(name.parent)
    except (OSError, ValueError) as error:
        raise _unwritable_error(path, error) from None


def check_new(path: str | os.PathLike[str]) -> None:
    """Refuse to replace a file; a pipe or a device is none."""
    if os.path.isfile(path) or os.path.islink(path):
        raise FileFormatError(path, None, "this file exists: choose another name, or move it away")


def keep(name: str, data: str, *folders: str | os.PathLike[str]) -> Path | None:
    """Write what must not be lost into the first folder that takes it, for its owner only.

    Returns where it is, or None if no folder took it.
    """
    for folder in folders:
        path = Path(os.path.realpath(folder), f"{name[:32]}.{secrets.token_hex(4)}.kept")
        with suppress(OSError, ValueError):
            _write_new_file(path, data.encode("utf-8"), 0o600)
            _sync_folder(path.parent)
            return path
    return None


def check_writable(
    path: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None, room: int = 0
) -> None:
    """Refuse an output path that cannot or must not be written, before any long work is done.

    Its disk must have room for ``room`` bytes.

    Raises
    ------
    FileFormatError
        If its folder does not exist or may not be written to, or the path is a folder, a ledger or
        one of the ``inputs``: see :func:`check_output`.
    """
    check_output(path, *inputs)
    name = Path(os.path.realpath(path))
    if name.is_dir():
        raise FileFormatError(path, None, "this is a folder: name a file to write")
    if not name.parent.is_dir():
        raise FileFormatError(path, None, "its folder does not exist: make it first")
    if name.exists() and not os.access(name, os.W_OK):
        raise FileFormatError(path, None, "the file cannot be written (permission denied)")
    if not name.exists() or name.is_file():
        try:  # permissions do not tell all
            with _draft_beside(name, bytes(room)):
                pass
        except OSError as error:
            raise _unwritable_error(path, error) from None


@contextmanager
def _draft_beside(name: Path, content: bytes = b"") -> Iterator[Path]:
    """Make a new file beside ``name``, with its mode, synced; it is gone at the end, unless renamed.

    Nobody can foresee what it is called, and a link that is laid there is not followed.
    """
    draft = name.with_name(f".{name.name[:32]}.{secrets.token_hex(8)}.part")
    try:
        mode = stat.S_IMODE(name.stat().st_mode) if name.exists() else None
        _write_new_file(draft, content, mode)
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink()


def _write_new_file(path: Path, content: bytes, mode: int | None) -> None:
    """Write a file that is not there yet, synced; ``mode`` None is the usual one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else 0o600), "wb") as file:
        if mode is not None:
            os.chmod(file.fileno() if os.chmod in os.supports_fd else path, mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _rename_draft(draft: Path, name: Path) -> None:
    """Give a draft its name, unless something has it."""
    try:
        os.link(draft, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(name):
            raise
        draft.replace(name)


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable_error(path: object, error: OSError | ValueError) -> FileFormatError:
    return FileFormatError(
        path, None, f"the file cannot be written ({getattr(error, 'strerror', None) or error})"
    )

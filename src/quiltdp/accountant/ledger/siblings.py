"""Is there another ledger for the same data?  Two accounts of one data set each know half the truth."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from quiltdp.accountant.ledger.requests import keyed
from quiltdp.accountant.ledger.store import MEMORY, data_binding

__all__ = ["other_account"]

_PAGE = 4096  # SQLite's; a ledger is made of whole pages, at least one for each of its tables
_MOST_FILES = 2000


def other_account(ledger: str | Path, identity: str, folders: Iterable[str | Path] = ()) -> Path | None:
    """Return a ledger of the same data beside ``ledger`` or in ``folders``, or None.

    Every ledger has a key of its own, so identities can be compared only by somebody who may read
    the other file; a ledger that lies elsewhere is not found.  A ledger that is bound to its data
    has been through this, and finds none.
    """
    if str(ledger) == MEMORY or data_binding(ledger) is not None:
        return None
    this_path = os.path.realpath(ledger)
    for folder in dict.fromkeys(os.path.realpath(f) for f in (Path(this_path).parent, *folders)):
        for path in _candidates(folder):
            if os.path.realpath(path) == this_path:
                continue
            binding = data_binding(path)
            if binding is not None and hmac.compare_digest(binding[1], keyed(binding[0], "data", identity)):
                return path
    return None


def _candidates(folder: str) -> list[Path]:
    """Return the files of a folder that could be ledgers by their size, without opening any."""
    paths = []
    with suppress(OSError), os.scandir(folder) as listed:
        for entry in listed:
            with suppress(OSError):
                size = entry.stat().st_size if entry.is_file() else 0
                if size and size % _PAGE == 0:
                    paths.append(Path(entry.path))
    return sorted(paths)[:_MOST_FILES]

"""The account of all releases from one data set, found again by what the data are.

The ledger lies beside the data, or in the user's state folder where that cannot be written to.  An index
in the state folder knows, by keyed hashes, which data have an account and where: data that are renamed,
copied, packed or sorted find it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.ledger import Ledger, other_account
from quiltdp.accountant.ledger.locks import FileLock
from quiltdp.errors import BudgetSpent, FileFormatError, InvalidArgument, Refused, option
from quiltdp.io.replace import check_writable
from quiltdp.io.text import read_bytes

_WORD = re.compile(rb"[^\s,;|\"]+")
_SLACK = 1e-9  # α is rounded to twelve digits; the ledger decides exactly, this only spares work


def content_identity(files: Iterable[str | os.PathLike[str]]) -> str:
    r"""Return a digest of what files hold: their lines in any order, each a set of words in any order.

    Names, packing, separators and the order of rows and columns do not matter.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     one, other = Path(folder, "a.csv"), Path(folder, "b.tsv")
    ...     _ = one.write_text("user,lat\nann,47.1\nbob,47.2\n")
    ...     _ = other.write_text("lat\tuser\r\n47.2\tbob\r\n47.1\tann")
    ...     content_identity([one]) == content_identity([other])
    True
    """
    lines = []
    for file in files:
        for line in read_bytes(file).splitlines():
            words = sorted(_WORD.findall(line))
            if words:
                lines.append(hashlib.sha256(b"\0".join(words)).digest())
    return hashlib.sha256(b"quiltdp data v1\0" + b"".join(sorted(lines))).hexdigest()


def state_folder() -> Path:
    """Return where programs keep what outlives them: ``$XDG_STATE_HOME/quiltdp``."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return Path(home if os.path.isabs(home) else os.path.expanduser("~/.local/state"), "quiltdp")


def _make_state_folder() -> Path:
    """Make the state folder, where the system lets us."""
    folder = state_folder()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Account:
    """Where the ledger of a data set is, or will be; ``folders`` are those of the data."""

    path: Path
    identity: str
    folders: tuple[Path, ...]

    @property
    def exists(self) -> bool:
        """Whether anything was released before."""
        return os.path.lexists(self.path)

    def check(self) -> None:
        """Refuse a ledger that is spent or cannot be made, before any long work.

        Raises
        ------
        BudgetSpent, FileFormatError, InvalidArgument
        """
        if not self.exists:
            check_writable(self.path)
            return
        ledger = Ledger.open(self.path)
        if ledger.settings.get("kind") == "thresholdout":
            raise InvalidArgument(f"{self.path}: this ledger belongs to a reusable holdout; ask through it")
        if ledger.head.spent > 1 - _SLACK:
            raise self._budget_spent_error(ledger, "nothing is left")

    def prepare(self, release: Calibration, total: float | None) -> float:
        """Refuse what the ledger would refuse; return the ε that the account has, or will have."""
        if not self.exists:
            return release.epsilon if total is None else total
        ledger = self._check_same_terms(Ledger.open(self.path), release)
        budget = ledger.terms.epsilon
        if total is not None and total != budget:
            raise Refused(
                f"{self.path}: all releases of these data may leak ε = {budget:g} together, as was said"
                f" for the first of them; leave {option('total_epsilon')} out"
            )
        left, need = ledger.odometer().remaining_dp_epsilon, release.dp_epsilon
        if isinstance(left, float) and isinstance(need, float) and need > left * (1 + _SLACK):
            raise self._budget_spent_error(ledger, f"α = {left:.4g} is left and this one needs {need:.4g}")
        return budget

    def ledger(self, whole: Calibration) -> Ledger:
        """Open the ledger, or make it for the calibration of the whole budget; bound to the data.

        Of all processes that make one for the same data, under any names, one does.
        """
        with _lock_index():
            self._refuse_other_ledger(_find_known_ledger(self.identity, self.folders))
            try:
                ledger = Ledger.open(self.path) if self.exists else Ledger.create(self.path, whole)
            except FileExistsError:  # another process was quicker
                ledger = Ledger.open(self.path)
            self._check_same_terms(ledger, whole).bind_data(self.identity)
            if os.path.realpath(self.path) not in map(str, _ledgers_in_index(self.identity)):
                _add_to_index(self)
        return ledger

    def _refuse_other_ledger(self, known: Path | None) -> None:
        if known is not None and os.path.realpath(known) != os.path.realpath(self.path):
            raise Refused(
                f"{self.path}: {known} keeps the account of the same data; go on with that ledger, or release"
                f" without an account ({option('no_ledger')}): what the two leak adds up"
            )

    def _check_same_terms(self, ledger: Ledger, release: Calibration) -> Ledger:
        """Return the ledger if its costs and those of the release add: one model, query and promise."""
        for what in ("fingerprint", "mechanism", "adversary", "protected"):
            if getattr(ledger.terms, what) != getattr(release, what):
                name = "model or query" if what in ("fingerprint", "mechanism") else what
                raise Refused(
                    f"{self.path}: this keeps the account of the same data for another {name}, and what the"
                    " two leak cannot be added; release as before, or without an account"
                    f" ({option('no_ledger')})"
                )
        return ledger

    def _budget_spent_error(self, ledger: Ledger, left: str) -> BudgetSpent:
        return BudgetSpent(
            f"{self.path}: all releases of these data may leak ε = {ledger.terms.epsilon:g} together, and"
            f" {left}; what was released stays, and can be used: if more may be leaked, release without an"
            f" account ({option('no_ledger')})"
        )


def find_account(
    files: Sequence[str | os.PathLike[str]], ledger: str | os.PathLike[str] | None = None
) -> Account:
    """Return the account of the data in these files; ``ledger`` is one that somebody names.

    Raises
    ------
    Refused
        Another ledger than the named one keeps their account, or the one that did is gone.
    """
    identity = content_identity(files)
    folders = tuple(dict.fromkeys(Path(os.path.realpath(f)).parent for f in files))
    known = _find_known_ledger(identity, folders)
    path = Path(ledger) if ledger is not None else known or _new_ledger_path(Path(files[0]).name, folders[0])
    account = Account(path, identity, folders)
    account._refuse_other_ledger(known)
    return account


def _find_known_ledger(identity: str, folders: Sequence[Path]) -> Path | None:
    """Return the ledger that keeps the account of these data; refuse if it is gone."""
    listed = _ledgers_in_index(identity)
    places = [*folders, state_folder(), *(path.parent for path in listed)]
    known = other_account(folders[0] / ".no ledger", identity, places)
    if known is None and listed:
        raise Refused(
            f"{listed[-1]}: this ledger kept the account of the same data and is gone; bring it back, or, if"
            f" it was put away on purpose, take its line out of {_index_path()}"
        )
    return known


def _new_ledger_path(name: str, folder: Path) -> Path:
    """Return a free name for a ledger beside the data, or in the state folder where that is for reading."""
    path = _unused_ledger_path(folder, name)
    with suppress(FileFormatError):
        if not os.path.lexists(path):
            check_writable(path)
        return path
    return _unused_ledger_path(_make_state_folder(), name)


def _unused_ledger_path(folder: Path, name: str) -> Path:
    marks = ("", *(f".{k}" for k in range(2, 1000)))
    paths = (folder / f"{name}{mark}.ledger.db" for mark in marks)
    return next(path for path in paths if not os.path.lexists(path) or _is_unbound_ledger(path))


def _is_unbound_ledger(path: Path) -> bool:
    """Return whether this is a ledger that is being made, or whose making was interrupted."""
    with suppress(Exception):
        head = Ledger.open(path).head
        return head.data is None and head.spent == 0
    return False


# -- the index ---------------------------------------------------------------------------------------


def _index_path() -> Path:
    return state_folder() / "accounts.jsonl"


@contextmanager
def _lock_index() -> Iterator[None]:
    """Let one process at a time decide who keeps an account, where there is a state folder."""
    if not os.access(_make_state_folder(), os.W_OK):
        yield
        return
    with FileLock(str(_index_path())).held(str(_index_path()), 60.0, alone=True):
        yield


def _ledgers_in_index(identity: str) -> list[Path]:
    """Return the ledgers that were made for these data; refuse an index that is there and cannot be read."""
    ledgers: list[Path] = []
    for line in read_bytes(_index_path()).splitlines() if os.path.lexists(_index_path()) else ():
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            entry: dict[str, Any] = json.loads(line)
            if entry["data"] == _keyed_hash(entry["salt"], identity):
                ledgers.append(Path(entry["ledger"]))
    return ledgers


def _add_to_index(account: Account) -> None:
    """Add an account to the index; where there is no state folder, it is found beside the data only."""
    salt = secrets.token_hex(16)
    entry = {
        "salt": salt,
        "data": _keyed_hash(salt, account.identity),
        "ledger": os.path.realpath(account.path),
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with suppress(OSError), os.fdopen(os.open(_index_path(), flags, 0o600), "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _keyed_hash(salt: str, identity: str) -> str:
    return hashlib.blake2b(identity.encode(), key=bytes.fromhex(salt), digest_size=32).hexdigest()

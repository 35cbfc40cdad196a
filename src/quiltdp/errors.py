"""The exception tree: every error a user can cause descends from ``QuiltdpError``.

The command line turns any of them into one line on stderr and an exit code: 2 for bad input,
1 for a refusal (nothing is left to spend), 3 for a limit that somebody set and that was reached.  Each
message names the culprit (file, line, node or option), says what is wrong, and says what to do about it.

An option has two names, ``max_gap=`` for Python and ``--max-gap`` for the shell.  A message writes it
as :func:`option`, and is spelled when it is shown: ``str(error)`` in Python's way, the command line in
its own.  Both go through :func:`spell_options`, which also escapes what a terminal would obey.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from quiltdp.printable import printable

_LONGEST = 1_500  # a message quotes what it found, and a file may hold anything
Spelling = Callable[[str, str, str, str], str]
_OPTION = re.compile(
    "\ue000(.*?)\ue001(.*?)\ue001(.*?)\ue001(.*?)\ue002", re.DOTALL
)  # private-use characters


def option(name: str, value: object = "", *, key: str = "") -> str:
    """Return an option for the text of an error, to be spelled where the error is shown.

    ``value`` is what to give, ``key`` its key where the option is a mapping.  A name that is no
    identifier (``"sensitivity of record 'A'"``) stays as it is.

    Examples
    --------
    >>> spell_options(f"raise {option('max_entries')}")
    'raise max_entries'
    >>> spell_options(f"say {option('columns', '…', key='id')} or {option('missing', '0')}")
    "say columns={'id': …} or missing='0'"
    """
    literal = value if value in ("", "…") else repr(value)
    return f"\ue000{name}\ue001{key}\ue001{value}\ue001{literal}\ue002" if name.isidentifier() else name


def spell_in_python(name: str, key: str, value: str, literal: str) -> str:
    """Return an option as a keyword argument."""
    if key:
        return f"{name}={{{key!r}: {literal}}}"
    return f"{name}={literal}" if literal else name


def spell_options(text: str, spelling: Spelling = spell_in_python) -> str:
    """Return a text with its options spelled; ``spelling`` takes name, key, value and literal.

    Names of files and nodes stand in it as they are: what is not visible is escaped, and of a text that
    is too long to read the beginning and the end are kept.
    """
    shown = printable(_OPTION.sub(lambda found: spelling(*found.groups()), text))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 400]} … {shown[-390:]}"


def mentioned_options(text: str) -> tuple[str, ...]:
    """Return the names of the options that a text mentions."""
    return tuple(match[1] for match in _OPTION.finditer(text))


class QuiltdpError(Exception):
    """Base of everything quiltdp raises on purpose.

    ``text`` is what is wrong, options still unspelled; ``remedies`` are ways out, each a phrase that
    names the option it takes, so that a command line without that option can leave it out.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, text: object = "", *remedies: str) -> None:
        self.remedies = remedies
        super().__init__(text)

    @property
    def text(self) -> str:
        """The message without the remedies, its options not yet spelled."""
        return str(self.args[0])

    @property
    def reason(self) -> str:
        """What is wrong, without the remedies: for a note beside an answer."""
        return spell_options(self.text)

    def __str__(self) -> str:
        """Return the whole message as Python users know the options."""
        return spell_options(": ".join(part for part in (self.text, " or ".join(self.remedies)) if part))


class InvalidArgument(QuiltdpError, ValueError):
    """A parameter is outside the range its theorem allows."""


class InvalidModel(QuiltdpError, ValueError):
    """A model, factor or graph that is not what it claims to be; ``node`` is the culprit, if one is."""

    node: str | None

    def __init__(self, message: str, node: str | None = None) -> None:
        self.node = node
        super().__init__(message)


class UnknownNode(InvalidArgument, KeyError):
    """A node name that the model does not have."""


class FileFormatError(QuiltdpError, ValueError):
    """A file that cannot be read: ``path:line: what was found, what was expected``."""

    def __init__(self, path: object, line: int | None, message: str) -> None:
        self.path = str(path)
        self.line = line
        self.message = message
        where = printable(f"{path}:{line}" if line is not None else f"{path}")
        super().__init__(f"{where}: {message}")

    def __reduce__(self) -> tuple[type[FileFormatError], tuple[str, int | None, str]]:
        """Pickle through the constructor, so that a worker process can raise it."""
        return type(self), (self.path, self.line, self.message)


class ModelTooWide(QuiltdpError):
    """An exact method would need a table beyond the limit; the message names the clique and its size."""


class NoCertificate(QuiltdpError):
    """A bound was computed but its certificate did not pass, so no number may be shown."""


class DependencyMissing(QuiltdpError, ImportError):
    """An optional dependency is needed; the message says which extra installs it."""


class Refused(QuiltdpError):
    """A request that is well formed but not allowed (exit code 1)."""

    exit_code = 1


class LimitReached(QuiltdpError):
    """A limit of time or memory that somebody set was reached (exit code 3).

    ``partial`` is what had been finished: sound, of the type that was asked for, and possibly far looser
    than the answer; ``None`` where there is nothing.
    """

    exit_code = 3

    def __init__(self, text: str, partial: Any = None) -> None:
        self.partial = partial
        super().__init__(text)

    def __reduce__(self) -> tuple[type[LimitReached], tuple[str, Any]]:
        """Pickle through the constructor, so that a worker process can raise it."""
        return type(self), (self.text, self.partial)


class WorkerLost(Refused):
    """A worker died and its part could not be done again: the run has no answer."""


class BudgetSpent(Refused):
    """No answer is left to give, or the privacy that is left to spend does not cover the request."""


class Conflict(Refused):
    """An idempotency key that was used before, and not for an answer to the same question."""


class KeyReused(Conflict):
    """An idempotency key that was used for another question."""


class NotTold(Conflict):
    """A question that was charged and whose answer was never told: something broke in between."""


class LedgerCorrupt(Refused):
    """The ledger file was edited, truncated or belongs to something else."""


class NotALedger(LedgerCorrupt):
    """A file that is something else than a ledger, or empty: most likely the wrong name was given."""

    exit_code = 2


def need(module: str, purpose: str, extra: str) -> Any:
    """Import an optional library, or say which extra installs it.

    Raises
    ------
    DependencyMissing
        Naming the library, what it is needed for, and the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise DependencyMissing(
            f"{purpose} needs the library {name!r}: pip install 'quiltdp[{extra}]'"
        ) from None

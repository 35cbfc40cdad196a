"""The exception tree: every error a user can cause descends from ``QuiltdpError``.

The command line turns any of them into one line on stderr and an exit code: 2 for bad input,
1 for a refusal (budget spent, ledger full).  Each message names the culprit (file, line, node or
option), says what is wrong, and says what to do about it.
"""

from __future__ import annotations

__all__ = [
    "BudgetSpent",
    "DependencyMissing",
    "FileFormatError",
    "InvalidArgument",
    "InvalidModel",
    "LedgerCorrupt",
    "ModelTooWide",
    "NoCertificate",
    "QuiltdpError",
    "Refused",
    "UnknownNode",
]


class QuiltdpError(Exception):
    """Base of everything quiltdp raises on purpose."""


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

    def __str__(self) -> str:
        """Return the plain message (``KeyError`` would quote it)."""
        return str(self.args[0]) if self.args else ""


class FileFormatError(QuiltdpError, ValueError):
    """A file that cannot be read: ``path:line: what was found, what was expected``."""

    def __init__(self, path: object, line: int | None, message: str) -> None:
        self.path = str(path)
        self.line = line
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


class ModelTooWide(QuiltdpError):
    """An exact method would need a table beyond the limit; the message names the clique and its size."""


class NoCertificate(QuiltdpError):
    """A bound was computed but its certificate did not pass, so no number may be shown."""


class DependencyMissing(QuiltdpError, ImportError):
    """An optional dependency is needed; the message says which extra installs it."""


class Refused(QuiltdpError):
    """A request that is well formed but not allowed (exit code 1)."""


class BudgetSpent(Refused):
    """The privacy budget does not cover the request."""


class LedgerCorrupt(Refused):
    """The ledger file was edited, truncated or belongs to something else."""

"""What is asked of a ledger, checked to the last character before anything is drawn."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quiltdp.errors import InvalidArgument

__all__ = ["MAX_TEXT", "Outcome", "Request", "keyed", "storable"]

MAX_TEXT = 500


@dataclass(frozen=True)
class Request:
    """A question or a charge: what it is, the caller's idempotency key, and a note.

    Everything that is written down later is checked here, so that nothing can be refused for it
    after the noise is drawn.
    """

    text: str
    key: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        """Refuse a key or a label that could not be stored."""
        for name in ("key", "label"):
            if type(text := getattr(self, name)) is not str and isinstance(text, str):
                object.__setattr__(self, name, str.__str__(text))  # numpy's; and nobody's own ``encode``
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise InvalidArgument(f"an idempotency key must be a non-empty text, not {self.key!r}")
        if self.label is not None and (not isinstance(self.label, str) or len(self.label) > MAX_TEXT):
            raise InvalidArgument(f"a label must be a text of at most {MAX_TEXT} characters")
        for name, text in (("an idempotency key", self.key), ("a label", self.label)):
            if text is not None and not storable(text):
                raise InvalidArgument(f"{name} must be a text in UTF-8 without NUL characters, not {text!a}")


def storable(text: str) -> bool:
    """Return whether every store can hold a text."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class Outcome:
    """What came of a reserved question: its kind, exact cost, and the value that is told."""

    kind: Literal["failed", "holdout", "train", "unasked"]
    share: Fraction = Fraction(0)
    answers: int = 0
    value: float | None = None


def keyed(salt: bytes, purpose: str, text: str) -> str:
    """Return a keyed hash: the ledger stores neither keys nor requests nor data in clear.

    Examples
    --------
    >>> keyed(b"salt", "key", "a") == keyed(b"salt", "key", "a") != keyed(b"pepper", "key", "a")
    True
    """
    message = f"{purpose}\0{text}".encode("utf-8", "surrogatepass")
    return hmac.new(salt, message, hashlib.sha256).hexdigest()

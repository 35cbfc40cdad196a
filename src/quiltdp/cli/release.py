"""What every ``--release`` does: an account by default, and nothing after the draw but writing it down."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.show import show_line
from quiltdp.errors import FileFormatError, InvalidArgument, QuiltdpError

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.domains.accounts import Account


def check_new_ledger(ledger: Path) -> None:
    """Refuse a name that is taken."""
    if ledger.exists():
        raise InvalidArgument(
            f"{ledger}: this exists already, and a ledger is never overwritten; choose another name"
        )


@dataclass(frozen=True)
class ReleaseOptions:
    """The file of a release, and who keeps its account: a ledger, or ``none``."""

    file: Path | None
    ledger: str | None
    total_epsilon: float | None

    @property
    def ledger_file(self) -> Path | None:
        """The ledger that was named."""
        return None if self.ledger in (None, "none") else Path(str(self.ledger))

    def check(self, epsilon: float | None) -> None:
        """Refuse what cannot be, before any file is read; an existing release is not replaced."""
        from quiltdp.io.replace import check_new

        for flag, value in {"--ledger": self.ledger, "--total-epsilon": self.total_epsilon}.items():
            if value and self.file is None:
                raise InvalidArgument(f"{flag} belongs to a release: give --release FILE too")
        if self.ledger == "none" and self.total_epsilon:
            raise InvalidArgument("--ledger none keeps no account: leave --total-epsilon out")
        if self.total_epsilon is not None and not (epsilon or 0.0) <= self.total_epsilon < math.inf:
            raise InvalidArgument(f"--total-epsilon must be at least --epsilon, not {self.total_epsilon!r}")
        if self.file is not None:
            check_new(self.file)

    def account(self, data: Sequence[str | Path]) -> Account | None:
        """Find the account of the data; refuse one that is spent, before any long work."""
        if self.file is None or self.ledger == "none":
            return None
        from quiltdp.domains.accounts import find_account

        found = find_account(data, self.ledger_file)
        found.check()
        return found

    def whole_budget(
        self, account: Account | None, release: Calibration, at: Callable[[float], Calibration]
    ) -> Calibration:
        """Return the calibration of the whole budget; refuse a release that the account does not cover."""
        if account is None:
            return release
        total = account.prepare(release, self.total_epsilon)
        return release if account.exists or total == release.epsilon else at(total)

    def publish(
        self,
        account: Account | None,
        whole: Calibration,
        draw: Callable[[Ledger | None], str],
        rehearsal: str,
    ) -> dict[str, Any]:
        """Charge, draw and write the release; a text that is paid for is kept whatever happens.

        ``rehearsal`` is the text with other numbers: what is wrong with the file or its disk is found
        before the charge.  An interrupt after the charge waits for the text.
        """
        from quiltdp.accountant.ledger.interrupts import interruptible, uninterrupted
        from quiltdp.io.replace import check_writable, write_whole

        assert self.file is not None
        self.check(None)
        check_writable(self.file, room=2 * len(rehearsal.encode()) + 4096)
        ledger = None if account is None else account.ledger(whole)
        with uninterrupted():
            text = draw(ledger)
            try:
                with interruptible():
                    write_whole(self.file, text, replace=False)
            except BaseException as error:
                raise self._rescue_release(account, text, error) from None
        told: dict[str, Any] = {"ledger": None if ledger is None else str(ledger.path)}
        if ledger is not None:
            with suppress(QuiltdpError):  # everything is done: nothing may fail now
                told["ledger_left"] = round(float(1 - ledger.head.spent), 9)
        return told

    def _rescue_release(self, account: Account | None, text: str, error: BaseException) -> FileFormatError:
        """Keep a release that could not be written; return what to say about it."""
        from quiltdp.domains.accounts import state_folder
        from quiltdp.io.replace import keep

        assert self.file is not None
        own = () if account is None else (account.path.parent,)
        kept = keep(self.file.name, text, *own, state_folder(), tempfile.gettempdir())
        why = error.message if isinstance(error, FileFormatError) else str(error) or "interrupted"
        paid = "drawn" if account is None else "drawn and charged"
        where = "and is lost: no folder took it" if kept is None else f"and kept in {kept}"
        return FileFormatError(self.file, None, f"{why}; the release was {paid}, {where}")


def show_account(told: dict[str, Any]) -> None:
    """Print who was charged, and what is left."""
    if told["ledger"] is None:
        show_line("no account was kept: what several releases leak adds up, and nobody counts it")
        return
    left = f": {told['ledger_left']:.4g} is left" if "ledger_left" in told else ""
    show_line(f"charged: {told['ledger']}{left}")

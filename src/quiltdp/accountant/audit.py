"""Every bound beside the exact limit (small models), a real mechanism's leakage, and an attack."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.bracket import Bracket, bracket
from quiltdp.accountant.known_records import check_known
from quiltdp.accountant.leakage.laplace_sum import LaplaceSum
from quiltdp.accountant.methods import available
from quiltdp.accountant.profile import Progress, Who, Work
from quiltdp.accountant.profile import leakage as leakage_at
from quiltdp.accountant.units import guard_of, positive_epsilon
from quiltdp.errors import LimitReached, ModelTooWide, QuiltdpError
from quiltdp.model import Model
from quiltdp.parallel import each
from quiltdp.work import Guard, Limit

__all__ = ["Audit", "AuditRow", "audit"]


@dataclass(frozen=True)
class AuditRow:
    """One method's answer: its largest leakage, or why it has none."""

    method: str
    epsilon: float | None
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """The exact limit, what the Laplace-sum mechanism leaks, every bound, and the bracket.

    ``limit`` is the leakage of the worst α-DP mechanism; no sound bound is below it (beyond rounding),
    and ``laplace_sum`` is never above it; both are ``None`` for models that are too large for them.
    ``bracket`` is the smallest bound beside what an attack attains, ``None`` without a junction tree.
    """

    dp_epsilon: float
    adversary: str
    limit: float | None
    laplace_sum: float | None
    rows: tuple[AuditRow, ...]
    fingerprint: str
    bracket: Bracket | None = None

    @property
    def sound(self) -> bool:
        """Whether no bound lies below the limit or the attack, and the mechanism does not lie above it."""
        bounds = [row.epsilon for row in self.rows if row.epsilon is not None]
        floors = [] if self.bracket is None else [self.bracket.attained]
        if self.limit is not None and self.laplace_sum is not None:
            slack = 1e-7 * max(1.0, self.limit)
            if self.laplace_sum > self.limit + slack:
                return False
            floors.append(self.limit - slack)
        return all(e >= floor for e in bounds for floor in floors)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "dp_epsilon": self.dp_epsilon,
            "adversary": self.adversary,
            "limit": self.limit,
            "laplace_sum": self.laplace_sum,
            "bracket": None if self.bracket is None else self.bracket.to_dict(),
            "sound": self.sound,
            "methods": [dict(vars(row)) for row in self.rows],
            "fingerprint": self.fingerprint,
        }


def audit(
    model: Model,
    dp_epsilon: float,
    adversary: Who = "informed",
    *,
    work: Work = "normal",
    time_limit: Limit = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Audit:
    """Compare every method with the exact limit where there is one, and with what an attack attains.

    With an ``executor`` the methods are asked there, with the same answers.  ``time_limit`` is for all of it:
    where it is reached, :class:`~quiltdp.errors.LimitReached` carries the methods that were finished.

    Examples
    --------
    >>> import quiltdp as qd
    >>> found = qd.audit(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=4), dp_epsilon=0.1)
    >>> round(found.limit, 4), round(found.laplace_sum, 4), found.sound
    (0.3238, 0.3238, True)
    >>> str(found.bracket)
    'certified ≤ 0.3238, attained ≥ 0.3238, ratio 1'
    """
    alpha = positive_epsilon(dp_epsilon, "dp_epsilon")
    who = check_known(adversary_from(adversary), model)
    limit: float | None = None
    reached: float | None = None
    guard = guard_of(time_limit)
    with suppress(QuiltdpError):  # too large for a limit, or for the time allowed
        exact = leakage_at(model, alpha, "exact", who, work=work, time_limit=guard)
        reached = float(LaplaceSum(model, who).evaluate(alpha).max(initial=0.0))
        limit = exact.epsilon
    shared = (model, alpha, who, work, guard)
    asked = list(available(who))
    said = list(each(_row, asked, shared=shared, executor=executor, progress=progress, label="methods"))
    rows = [row for row, _ in said]
    short = next((limit for _, limit in said if limit), "")
    rows.sort(key=lambda row: (row.epsilon is None, row.epsilon or 0.0))
    found: Bracket | None = None
    answers = [row.epsilon for row in rows if row.epsilon is not None]
    with suppress(ModelTooWide):
        found = bracket(model, min(answers), alpha, who, work=work) if answers and not short else None
    made = Audit(alpha, who.name, limit, reached, tuple(rows), model.fingerprint, found)
    if short:
        raise LimitReached(short, made)
    return made


def _row(shared: tuple[Model, float, Adversary, Work, Guard], name: str) -> tuple[AuditRow, str]:
    """Return what one method says, or why it has no answer, and which limit was reached."""
    model, alpha, who, work, guard = shared
    kind = available(who)[name].kind
    try:
        found = leakage_at(model, alpha, name, who, work=work, time_limit=guard)
    except QuiltdpError as error:
        return AuditRow(name, None, kind, error.reason), error.text if isinstance(error, LimitReached) else ""
    return AuditRow(name, found.epsilon, kind, "; ".join(found.notes)), ""

"""Every bound of a small model beside the exact limit and a real mechanism's leakage."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.leakage.laplace_sum import LaplaceSum
from quiltdp.accountant.methods import available
from quiltdp.accountant.profile import Progress, Who, Work
from quiltdp.accountant.profile import leakage as leakage_at
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import ModelTooWide, QuiltdpError, option
from quiltdp.model import Model
from quiltdp.parallel import each

__all__ = ["Audit", "AuditRow", "audit"]


@dataclass(frozen=True)
class AuditRow:
    """One method's answer: its largest leakage, or why it has none."""

    method: str
    epsilon: float | None
    seconds: float
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """The exact limit, what the Laplace-sum mechanism leaks, and every bound.

    ``limit`` is the leakage of the worst α-DP mechanism; no sound bound is below it (beyond rounding),
    and ``laplace_sum`` is never above it.
    """

    dp_epsilon: float
    adversary: str
    limit: float
    laplace_sum: float
    rows: tuple[AuditRow, ...]
    fingerprint: str

    @property
    def sound(self) -> bool:
        """Whether no bound lies below the limit, and the mechanism does not lie above it."""
        slack = 1e-7 * max(1.0, self.limit)
        bounds = [row.epsilon for row in self.rows if row.epsilon is not None]
        return all(e >= self.limit - slack for e in bounds) and self.laplace_sum <= self.limit + slack

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "dp_epsilon": self.dp_epsilon,
            "adversary": self.adversary,
            "limit": self.limit,
            "laplace_sum": self.laplace_sum,
            "sound": self.sound,
            "methods": [{k: v for k, v in vars(row).items() if k != "seconds"} for row in self.rows],
            "fingerprint": self.fingerprint,
        }


def audit(
    model: Model,
    dp_epsilon: float,
    adversary: Who = "informed",
    *,
    work: Work = "normal",
    time_limit: float = 60.0,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Audit:
    """Compare every method with the exact limit, on a model small enough to have one.

    With an ``executor`` the methods are asked there, with the same answers.

    Raises
    ------
    ModelTooWide
        If the model is too large for the limit.

    Examples
    --------
    >>> import quiltdp as qd
    >>> found = qd.audit(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=4), dp_epsilon=0.1)
    >>> round(found.limit, 4), round(found.laplace_sum, 4), found.sound
    (0.3238, 0.3238, True)
    """
    alpha = positive_epsilon(dp_epsilon, "dp_epsilon")
    who = adversary_from(adversary)
    try:
        exact = leakage_at(model, alpha, "exact", who, work=work, time_limit=time_limit)
        reached = float(LaplaceSum(model, who.name).evaluate(alpha).max(initial=0.0))
    except ModelTooWide as error:
        raise ModelTooWide(
            error.text,
            "use leakage, which bounds models of any size,",
            f"name fewer {option('records')}",
        ) from None
    shared = (model, alpha, who, work, time_limit)
    rows = list(
        each(_row, list(available(who)), shared=shared, executor=executor, progress=progress, label="methods")
    )
    rows.sort(key=lambda row: (row.epsilon is None, row.epsilon or 0.0))
    return Audit(alpha, who.name, exact.epsilon, reached, tuple(rows), model.fingerprint)


def _row(shared: tuple[Model, float, Adversary, Work, float], name: str) -> AuditRow:
    """Return what one method says, or why it has no answer."""
    model, alpha, who, work, time_limit = shared
    kind = available(who)[name].kind
    try:
        found = leakage_at(model, alpha, name, who, work=work, time_limit=time_limit)
    except QuiltdpError as error:
        return AuditRow(name, None, 0.0, kind, error.reason)
    return AuditRow(name, found.epsilon, found.seconds, kind, "; ".join(found.notes))

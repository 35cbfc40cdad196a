"""Every bound beside the exact limit (small models), a real mechanism's leakage, and an attack."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import Adversary, check_known_records, parse_adversary
from quiltdp.accountant.bounds.adversaries import count_entries, list_pairs
from quiltdp.accountant.bracket import Bracket, bracket
from quiltdp.accountant.leakage import leakage as leakage_at
from quiltdp.accountant.methods import available_methods
from quiltdp.accountant.request import Progress, Who, Work
from quiltdp.accountant.units import make_guard, positive_epsilon
from quiltdp.errors import LimitReached, ModelTooWide, QuiltdpError
from quiltdp.inference.trees import junction_tree
from quiltdp.interface import any_model
from quiltdp.model import Model
from quiltdp.parallel import each
from quiltdp.work import Guard, Limit


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


@any_model
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
    >>> from quiltdp.accountant.audit import audit
    >>> found = audit(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=4), dp_epsilon=0.1)
    >>> round(found.limit, 4), round(found.laplace_sum, 4), found.sound
    (0.3238, 0.3238, True)
    >>> str(found.bracket)
    'certified ≤ 0.3238, attained ≥ 0.3238, ratio 1'
    """
    alpha = positive_epsilon(dp_epsilon, "dp_epsilon")
    who = check_known_records(parse_adversary(adversary), model)
    limit: float | None = None
    reached: float | None = None
    guard = make_guard(time_limit)
    with suppress(QuiltdpError):  # too large for a limit, or for the time allowed
        exact = leakage_at(model, alpha, "exact", who, work=work, time_limit=guard)
        reached = float(LaplaceSum(model, who).evaluate(alpha).max(initial=0.0))
        limit = exact.epsilon
    shared = (model, alpha, who, work, guard)
    asked = [(name, entry.make.__module__) for name, entry in available_methods(who).items()]
    said = list(each(_audit_row, asked, shared=shared, executor=executor, progress=progress, label="methods"))
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


def _audit_row(
    shared: tuple[Model, float, Adversary, Work, Guard], method: tuple[str, str]
) -> tuple[AuditRow, str]:
    """Return what one method says, or why it has no answer, and which limit was reached."""
    model, alpha, who, work, guard = shared
    name, module = method
    import_module(module)  # a worker may not have registered it yet
    kind = available_methods(who)[name].kind
    try:
        found = leakage_at(model, alpha, name, who, work=work, time_limit=guard)
    except QuiltdpError as error:
        return AuditRow(name, None, kind, error.reason), error.text if isinstance(error, LimitReached) else ""
    return AuditRow(name, found.epsilon, kind, "; ".join(found.notes)), ""


class LaplaceSum:
    """The exact leakage of the Laplace-sum mechanism, for every record of a small model.

    Records count by the place of their state, scaled to [0, 1], so that one record moves the sum by at
    most 1 and noise of scale 1/α is α-DP.  Given x_T and what is known, the output is a mixture of
    Laplace densities; between two of its kinks the ratio of two such mixtures is monotone, and beyond the
    outermost it is constant, so the largest ratio is at a kink.

    Parameters
    ----------
    model
        A small model; a ``ModelTooWide`` names the size otherwise.
    adversary
        ``informed``, ``prior``, or one who knows some records.
    """

    def __init__(
        self, model: Model, adversary: str | Adversary = "informed", *, max_entries: int = 4_000_000
    ) -> None:
        records = tuple(model.records)
        self._sizes = [model.cardinality(r) for r in records]
        if len(records) > 16:
            raise ModelTooWide(f"the audit lists every adversary: {len(records)} records are too many")
        needed = sum(count_entries(self._sizes, (k,)) for k in range(len(records)))
        if needed > max_entries:
            raise ModelTooWide(f"the audit needs {needed:,} numbers, the limit is {max_entries:,}")
        who = parse_adversary(adversary)
        may = None if who.records is None else {records.index(n) for n in who.records if n in records}
        units = [(k,) for k in range(len(records))]
        prices = [1.0 - np.eye(k) for k in self._sizes]
        log_joint = junction_tree(model).log_marginal(records)
        self._groups = list_pairs(log_joint, units, prices, may, who.at_most)

    def evaluate(self, alpha: float) -> np.ndarray:
        """Return the leakage of every record when the noise has scale 1/α."""
        best = np.zeros(len(self._sizes))
        for group in self._groups:
            sums = np.zeros(1)
            for size in group.sizes:
                sums = np.add.outer(sums, np.linspace(0.0, 1.0, size)).reshape(-1)
            most = np.array(self._sizes)[group.unit] - 1  # the last state counts 1
            x, y = (group.values / np.maximum(most, 1)[:, None]).T
            for kink in np.unique(np.round(np.add.outer(sums, np.unique(x)), 12)):
                above = (group.p * np.exp(-alpha * np.abs(kink - sums - x[:, None]))).sum(axis=1)
                below = (group.q * np.exp(-alpha * np.abs(kink - sums - y[:, None]))).sum(axis=1)
                np.maximum.at(best, group.unit, np.log(above) - np.log(below))
        return best

"""What else could be chosen where an answer is no better than group privacy, and how it can be improved.

Every number is a calibration of its own with the smallest work budget: the same work says the same on every
machine, and a larger budget may find less noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import PRIOR, parse_adversary
from quiltdp.accountant.calibration import Calibration, calibrate
from quiltdp.errors import InvalidArgument, LimitReached, QuiltdpError, WorkerLost
from quiltdp.mechanisms import Laplace, repeat_mechanism
from quiltdp.numbers import format_up, up

if TYPE_CHECKING:
    from quiltdp.accountant.bracket import Bracket

_NEARLY = 0.95
_EQUAL = 0.995
_TIGHT = 1.05


def near_group_privacy(calibration: Calibration) -> bool:
    """Return whether an answer on dependent records saves less than a twentieth of group privacy."""
    group, alone = calibration.compared.get("group"), calibration.compared.get("independent")
    return group is not None and alone is not None and calibration.sigma >= _NEARLY * group > 1.01 * alone


@dataclass(frozen=True)
class Alternatives:
    """What stands beside an answer at group privacy.

    Attributes
    ----------
    prior
        σ for the same noise against the prior adversary.
    laplace
        The scale of Laplace noise with δ = 0, where the answer's noise is not pure.
    notes
        Why one of them is not told.
    """

    answer: Calibration
    prior: float | None = None
    laplace: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def laplace_std(self) -> float | None:
        """The standard deviation of that Laplace noise: √2 times its scale."""
        return None if self.laplace is None else up(math.sqrt(2.0) * self.laplace)

    def describe(self, bracket: Bracket | None = None) -> tuple[str, ...]:
        """Return the lines that follow σ; a ``bracket`` tells whether less noise is possible at all."""
        found = self.answer
        part = found.sigma / found.compared["group"]
        first = (
            "this is no better than group privacy"
            if part >= _EQUAL
            else f"this is {100.0 * part:.0f} % of the noise of group privacy"
        )
        if self.prior is not None and self.prior < found.sigma:
            first += (
                "; against the prior adversary, who knows only the model,"
                f" σ = {format_up(self.prior)} is enough (--adversary prior)"
            )
        lines = [first]
        std, own = self.laplace_std, found.sigma
        if found.mechanism.single().pure:
            own *= math.sqrt(2.0)
        if self.laplace is not None and std is not None and std < own:
            lines.append(
                f"Laplace noise of standard deviation {format_up(std)} (scale {format_up(self.laplace)},"
                " δ = 0) is enough for one number (--mechanism laplace without --delta)"
            )
        return (*lines, f"to improve it: {'; '.join(self._suggest_improvements(bracket))}")

    def _suggest_improvements(self, bracket: Bracket | None) -> list[str]:
        certificate = self.answer.certificate
        hints = []
        if bracket is not None and bracket.ratio is not None and bracket.ratio <= _TIGHT:
            hints.append("an attack leaks as much, so no search finds less noise against this adversary")
        else:
            if certificate.asked != "auto":
                hints.append("--method auto takes the best bound that applies")
            if certificate.work.get("level") != "thorough" or certificate.work.get("until"):
                hints.append("--work thorough searches further")
        if self.prior is not None and self.prior < self.answer.sigma:  # what is known makes a difference
            hints.append("--adversary knows=A,B if an adversary can know no other records")
        hints.append("a query that reads fewer of the records that depend on each other")
        return hints

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, JSON-ready; ``None`` where there is none."""
        return {
            "prior_adversary_sigma": self.prior,
            "laplace_sigma": self.laplace,
            "laplace_standard_deviation": self.laplace_std,
        }


def alternatives(calibration: Calibration, **how: Any) -> Alternatives:
    """Return what the prior adversary and Laplace noise would need for the same ε, where that is less to ask.

    ``how`` are limits and an executor, as for :func:`quiltdp.calibrate`.

    Raises
    ------
    InvalidArgument
        If the calibration was read from a file, which holds no model.
    LimitReached
        With what was found before.

    Examples
    --------
    >>> import quiltdp as qd
    >>> copies = qd.markov_chain([[0.999, 0.001], [0.001, 0.999]], length=4)
    >>> found = alternatives(qd.calibrate(copies, 1.0, qd.Gaussian(1.0, delta=1e-6)))
    >>> round(found.laplace_std, 2)
    5.65
    """
    if calibration.origin is None:
        raise InvalidArgument("this calibration was read from a file: calibrate the model again")
    model, options = calibration.origin
    asked = {name: options[name] for name in ("protect", "window") if options.get(name) is not None}
    notes: list[str] = []
    reached: list[str] = []

    def calibrated_sigma(name: str, mechanism: Any, adversary: str) -> float | None:
        more = {"adversary": adversary, "work": "quick", "compare": False, **asked, **how}
        try:
            return calibrate(model, calibration.epsilon, mechanism, **more).sigma
        except WorkerLost:
            raise
        except LimitReached as limit:
            reached.append(limit.text)
            return None
        except QuiltdpError as error:
            notes.append(f"no σ {name}: {error}")
            return None

    spec, who = calibration.mechanism, calibration.adversary
    prior = None
    if parse_adversary(who) != PRIOR:
        prior = calibrated_sigma("against the prior adversary", spec, "prior")
    laplace = None
    if not spec.pure and spec.answers is None:  # a run of many answers is no number
        pure = repeat_mechanism(Laplace(spec.deltas), spec.releases)
        laplace = calibrated_sigma("of Laplace noise", pure, who)
    found = Alternatives(calibration, prior, laplace, tuple(notes))
    if reached:
        raise LimitReached(reached[0], found)
    return found

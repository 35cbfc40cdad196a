"""The analyses behind a report: independent questions about one model, asked here or in workers.

A question is about one adversary at one multiple of the target or of its α.  Whoever is asked makes the
analysis against that adversary once and keeps it; its answers do not depend on what was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

from quiltdp.accountant.calibration import Calibration, calibrate, calibrate_profile
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.result import PerUnit
from quiltdp.errors import LimitReached, QuiltdpError
from quiltdp.model import Model
from quiltdp.parallel import each

__all__ = ["STEPS", "Analysed", "ReportRequest", "analysed"]

STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Multiples of the target and of its α that are tabulated."""

_OTHERS = {"informed": "prior", "prior": "informed"}


@dataclass(frozen=True, eq=False)
class ReportRequest:
    """A calibration with the model and the options it was made from."""

    calibration: Calibration
    model: Model
    options: Mapping[str, Any]
    name: str
    command: str

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The chosen adversary and the usual other one."""
        own = self.calibration.adversary
        return (own, _OTHERS[own]) if own in _OTHERS else (own, "prior", "informed")


class _Question(NamedTuple):
    """What is asked (a method of :class:`_Analyses`), against whom, at which multiple."""

    kind: str
    adversary: str
    step: float


@dataclass(frozen=True, eq=False)
class Analysed:
    """What the analyses say.

    Attributes
    ----------
    sigma
        σ at a multiple of ε; ``None`` for a target so small or large that no scale is representable.
    leakage
        Every unit's leakage at the answer's α, by adversary; empty where the mechanism is not pure.
    epsilon
        The largest leakage at a multiple of the answer's α, by adversary.
    cut_short
        The adversaries whose numbers are partial ones, and why.
    """

    sigma: Mapping[tuple[str, float], float | None]
    leakage: Mapping[str, PerUnit]
    epsilon: Mapping[tuple[str, float], float]
    cut_short: Mapping[str, str]


def analysed(
    request: ReportRequest,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Analysed:
    """Ask everything that the report shows of other targets, other α and other adversaries."""
    questions = _questions(request)
    said = each(
        _ask,
        questions,
        shared=_Analyses(request),
        executor=executor,
        progress=progress,
        label="other targets and adversaries",
    )
    found: dict[str, dict[Any, Any]] = {"sigma": {}, "leakage": {}, "epsilon": {}}
    cut_short: dict[str, str] = {}
    for (kind, who, step), (answer, note) in zip(questions, said, strict=True):
        found[kind][who if kind == "leakage" else (who, step)] = answer
        if note is not None:
            cut_short[who] = note
    return Analysed(cut_short=cut_short, **found)


def _questions(request: ReportRequest) -> list[_Question]:
    """Return what is asked, the questions that take longest first."""
    cal = request.calibration
    asked = [_Question("sigma", cal.adversary, step) for step in STEPS if step != 1.0]
    if cal.adversary in _OTHERS:
        asked.append(_Question("sigma", _OTHERS[cal.adversary], 1.0))
    if cal.mechanism.pure:
        who = request.adversaries
        asked += [_Question("epsilon", a, step) for a in who for step in STEPS]
        asked += [_Question("leakage", a, 1.0) for a in who]
    return asked


class _Analyses:
    """The analyses of a request as a worker knows them: one per adversary, made when it is needed."""

    def __init__(self, request: ReportRequest) -> None:
        self.request = request
        self._profiles: dict[str, LeakageProfile] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the request, not what was found here."""
        return _Analyses, (self.request,)

    def sigma(self, adversary: str, step: float) -> float | None:
        """Return the noise that a multiple of the target takes."""
        cal, epsilon = self.request.calibration, self.request.calibration.epsilon * step
        try:
            if cal.mechanism.pure:  # one analysis, several targets
                profile = self._profile(adversary)
                return calibrate_profile(profile, epsilon, cal.mechanism, compare=False).sigma
            how = self.request.options
            model = self.request.model
            return calibrate(model, epsilon, cal.mechanism, adversary=adversary, compare=False, **how).sigma
        except LimitReached:
            raise
        except QuiltdpError:
            return None

    def leakage(self, adversary: str, step: float) -> PerUnit:
        """Return every unit's leakage."""
        return self._profile(adversary).per_unit(self._alpha(step))

    def epsilon(self, adversary: str, step: float) -> float:
        """Return the largest leakage."""
        return self._profile(adversary).epsilon(self._alpha(step))

    def _profile(self, adversary: str) -> LeakageProfile:
        if adversary not in self._profiles:
            how = self.request.options
            self._profiles[adversary] = LeakageProfile(self.request.model, adversary=adversary, **how)
        return self._profiles[adversary]

    def _alpha(self, step: float) -> Any:
        given = self.request.calibration.dp_epsilon
        return {n: a * step for n, a in given.items()} if isinstance(given, Mapping) else given * step  # type: ignore[operator]  # pure


def _ask(analyses: _Analyses, question: _Question) -> tuple[Any, str | None]:
    """Return the answer; where a limit is reached, the partial one and why."""
    kind, adversary, step = question
    try:
        return getattr(analyses, kind)(adversary, step), None
    except LimitReached as limit:
        if limit.partial is None:
            raise
        return getattr(limit.partial, "sigma", limit.partial), limit.reason

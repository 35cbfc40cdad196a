"""The analyses behind a report: independent questions about one model, asked here or in workers.

A question is about one adversary at one multiple of the target or of its α.  Whoever is asked makes the
analysis against that adversary once and keeps it; its answers do not depend on what was asked before.
Beside them stand the reasons: the theorem behind the number, and what if the model is wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.accountant.calibration import Calibration, calibrate, calibrate_profile
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.methods import find_method
from quiltdp.accountant.result import PerUnit
from quiltdp.accountant.robust import robust
from quiltdp.chain import ChainModel, markov_chain
from quiltdp.errors import LimitReached, QuiltdpError
from quiltdp.graph.components import component_classes
from quiltdp.mechanisms import Mechanism
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.parallel import each

STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Multiples of the target and of its α that are tabulated."""

OFF_BY = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""How far the tables may be off, as shares: the lines of the section on a wrong model."""

_RUN = 100  # steps of a chain
_LARGEST = 400  # nodes of a network

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


class _ReportQuestion(NamedTuple):
    """What is asked (a method of :class:`_ReportAnalyses`), against whom, at which multiple."""

    kind: str
    adversary: str
    step: float


@dataclass(frozen=True, eq=False)
class ReportAnswers:
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


def answer_report_questions(
    request: ReportRequest,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> ReportAnswers:
    """Ask everything that the report shows of other targets, other α and other adversaries."""
    questions = _list_questions(request)
    answers = each(
        _answer_question,
        questions,
        shared=_ReportAnalyses(request),
        executor=executor,
        progress=progress,
        label="other targets and adversaries",
    )
    tables: dict[str, dict[Any, Any]] = {"sigma": {}, "leakage": {}, "epsilon": {}}
    cut_short: dict[str, str] = {}
    for (kind, who, step), (answer, note) in zip(questions, answers, strict=True):
        tables[kind][who if kind == "leakage" else (who, step)] = answer
        if note is not None:
            cut_short[who] = note
    return ReportAnswers(cut_short=cut_short, **tables)


def _list_questions(request: ReportRequest) -> list[_ReportQuestion]:
    """Return what is asked, the questions that take longest first."""
    cal = request.calibration
    asked = [_ReportQuestion("sigma", cal.adversary, step) for step in STEPS if step != 1.0]
    if cal.adversary in _OTHERS:
        asked.append(_ReportQuestion("sigma", _OTHERS[cal.adversary], 1.0))
    if cal.mechanism.pure:
        who = request.adversaries
        asked += [_ReportQuestion("epsilon", a, step) for a in who for step in STEPS]
        asked += [_ReportQuestion("leakage", a, 1.0) for a in who]
    return asked


class _ReportAnalyses:
    """The analyses of a request as a worker knows them: one per adversary, made when it is needed."""

    def __init__(self, request: ReportRequest) -> None:
        self.request = request
        self._profiles: dict[str, LeakageProfile] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the request, not what was found here."""
        return _ReportAnalyses, (self.request,)

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
        return self._profile(adversary).per_unit(self._scaled_alpha(step))

    def epsilon(self, adversary: str, step: float) -> float:
        """Return the largest leakage."""
        return self._profile(adversary).epsilon(self._scaled_alpha(step))

    def _profile(self, adversary: str) -> LeakageProfile:
        if adversary not in self._profiles:
            model, how = self.request.model, self.request.options
            prices = self.request.calibration.mechanism.prices(model)
            self._profiles[adversary] = LeakageProfile(model, adversary=adversary, prices=prices, **how)
        return self._profiles[adversary]

    def _scaled_alpha(self, step: float) -> Any:
        alpha = self.request.calibration.dp_epsilon
        return {n: a * step for n, a in alpha.items()} if isinstance(alpha, Mapping) else alpha * step  # type: ignore[operator]  # pure


def _answer_question(analyses: _ReportAnalyses, question: _ReportQuestion) -> tuple[Any, str | None]:
    """Return the answer; where a limit is reached, the partial one and why."""
    kind, adversary, step = question
    try:
        return getattr(analyses, kind)(adversary, step), None
    except LimitReached as limit:
        if limit.partial is None:
            raise
        return getattr(limit.partial, "sigma", limit.partial), limit.reason


def attackable_part(model: Model, unit: str) -> Model | None:
    """Return the part of a model in which an attack on ``unit`` is looked for; ``None`` if it is too large.

    A mechanism may read fewer records, so whatever an attack attains on a part whose law is the model's
    own it attains on the whole: the record's connected component, and of a long chain a run of steps.
    """
    if isinstance(model, ChainModel):
        segment, step = model.locate(unit)
        if segment.length <= _RUN:
            return ChainModel([segment], None if not segment.homogeneous else model.states[unit])
        if not segment.homogeneous:
            return None
        first = min(max(0, step - _RUN // 2), segment.length - _RUN)
        law = np.asarray(segment.initial @ np.linalg.matrix_power(segment.transition(0), first))
        law = np.maximum(law, 0.0) / np.maximum(law, 0.0).sum()
        return markov_chain(segment.transition(0), length=_RUN, initial=law)
    if len(model.nodes) <= _LARGEST:
        return model
    place = model.index[unit]
    for kind in component_classes(model):
        if any(place in copy for copy in kind.copies):
            return kind.model if len(kind.model.nodes) <= _LARGEST else None
    return None


def theorem_of(cal: Calibration) -> str:
    """Return the theorem by which the answer was found, with its proof where it is short; or nothing."""
    try:
        entry = find_method(parse_adversary(cal.adversary), cal.binding.method)
    except QuiltdpError:
        return ""
    text = sys.modules[entry.make.__module__].__doc__ or ""
    return re.sub(r":\w+:`~?\.?([^`]*)`", r"\1", text).strip()


def noise_for_wrong_models(
    cal: Calibration, model: Model, options: Mapping[str, Any], executor: Executor | None = None
) -> dict[str, Any]:
    """Return the noise that is enough if every table is off by so much, one line per share.

    Each line is a calibration of its own, certified for every model in that neighbourhood; once group
    privacy is reached nothing larger is needed, whatever the tables say.
    """
    if not cal.mechanism.pure:
        return {"lines": [], "says": "Not told for this mechanism: the theorem is about pure α."}
    asked = {**options, "work": "quick", "adversary": cal.adversary}
    most = cal.compared.get("group")
    lines: list[dict[str, Any]] = []
    answers = each(
        _sigma_near_model, OFF_BY, shared=(model, cal.epsilon, cal.mechanism, asked), executor=executor
    )
    for share in OFF_BY:
        reached = lines and most is not None and lines[-1]["sigma"] >= most * (1 - 1e-9)
        if not reached:
            answer = next(answers)
            if answer is None:
                break
            # the model itself is among them, and its own answer searched further
            lines.append({"off_by": share, "sigma": max(answer[0], cal.sigma), "method": answer[1]})
        else:
            lines.append({**lines[-1], "off_by": share})
    if not lines:
        return {"lines": [], "says": "Not told: no bound for models nearby exists for this kind of model."}
    says = (
        "Off by 5 % means that a probability p may truly be anything from p/1.05 to 1.05 p, in every table at"
        " once; a zero stays a zero. Each line is certified for all such models together. Which records"
        " depend on which is still assumed."
    )
    if most is not None and lines[-1]["sigma"] >= most * (1 - 1e-9):
        says += f" No model with these dependencies needs more than {format_up(most)}, group privacy."
    return {"lines": lines, "says": says}


def _sigma_near_model(
    shared: tuple[Model, float, Mechanism, Mapping[str, Any]], share: float
) -> tuple[float, str] | None:
    """Return σ for all models that are off by so much, and its method; ``None`` where there is no bound."""
    model, epsilon, mechanism, asked = shared
    try:
        answer = robust(model, epsilon, mechanism, off_by=share, **asked)
    except QuiltdpError:
        return None
    return answer.sigma, answer.binding.method

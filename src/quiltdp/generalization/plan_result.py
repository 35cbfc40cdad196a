"""What the planner returns, and the holdout that keeps it: calibration, threshold, rounding, extensions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.calibration import Calibration, dp_cost_at
from quiltdp.accountant.leakage import analyze
from quiltdp.accountant.ledger import Ledger
from quiltdp.accountant.shared_work import SharedWork
from quiltdp.accountant.units import without_partial_answer
from quiltdp.errors import BudgetSpent, InvalidArgument, Refused, option
from quiltdp.generalization.plan_search import (
    LeakageSketch,
    ProfileAccountant,
    accuracy_at,
    contenders_for,
)
from quiltdp.generalization.routes import GUESSING, Alternative, Task
from quiltdp.interface import any_model, as_model
from quiltdp.mechanisms import Thresholdout
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor


@dataclass(frozen=True)
class AccuracyPromise:
    """Every answer is within ``error`` of the population value, except with probability ``failure``."""

    error: float
    failure: float
    theorem: str

    def __str__(self) -> str:
        """Read as a sentence."""
        return (
            f"every answer is within {format_up(self.error, 4)} of the population value,"
            f" with probability at least {1 - self.failure:.4g}"
        )


@dataclass(frozen=True)
class BudgetPromise:
    """A query whose training value is within ``overfit`` of the population value spends no budget.

    ``overfit`` is ``None`` when nothing can be promised; ``reason`` says why.
    """

    overfit: float | None
    failure: float
    theorem: str
    reason: str = ""

    def __str__(self) -> str:
        """Read as a sentence."""
        if self.overfit is None:
            return f"nothing is promised about how long the budget lasts: {self.reason}"
        off = f" by more than {format_up(self.overfit, 4)}" if self.overfit > 1e-9 else ""
        return (
            f"a query spends budget only if its training value is off{off},"
            f" with probability at least {1 - self.failure:.4g}"
        )


@dataclass(frozen=True)
class Plan:
    """A reusable holdout that keeps its promise: how to set it, what it guarantees, and why.

    Attributes
    ----------
    records, queries, budget
        n records, m queries, B answers from the holdout.
    accuracy, confidence
        τ and 1 − β.
    sigma, threshold
        Thresholdout's noise scale σ and threshold T, for queries of sensitivity 1/n.
    resolution
        Answers from the holdout are rounded to multiples of this.
    dp_epsilon
        α = 9B/(4σn), what the whole run costs.
    leakage
        The largest leakage about a record to the prior adversary, at α.
    epsilon
        The privacy that was asked for and is kept, against the informed adversary; else ``None``.
    effective_sample_size
        n_eff under the model; ``None`` for a Markov network.
    route, covers
        The theorem that won, and which queries it is about.
    answers, budget_lasts
        The two promises, apart: they hold for different reasons.
    alternatives
        The other theorems, best first; the published ones carry their warning.
    work, stage, notes
        The work budget of the leakages behind it (empty for an accountant of one's own); where a limit was
        reached, the stage that they are of, and how to get the same plan again.
    """

    records: int
    queries: int
    budget: int
    accuracy: float
    confidence: float
    sigma: float
    threshold: float
    resolution: float
    dp_epsilon: float
    leakage: float
    epsilon: float | None
    effective_sample_size: float | None
    route: str
    covers: str
    answers: AccuracyPromise
    budget_lasts: BudgetPromise
    alternatives: tuple[Alternative, ...]
    fingerprint: str
    work: Mapping[str, Any] = field(default_factory=dict)
    stage: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that no plan has, and a promise no better than answering ½."""
        for name in ("sigma", "threshold", "accuracy", "dp_epsilon", "leakage"):
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise InvalidArgument(f"a plan's {name} cannot be {value!r}")
        if self.accuracy >= 0.5:
            raise InvalidArgument(f"a plan's accuracy cannot be {self.accuracy!r}: answering ½ is as good")

    @property
    def privacy(self) -> str:
        """Read as a sentence: what the answers say about a record."""
        if self.epsilon is not None:
            most = format_up(self.epsilon, 4)
            return f"the answers say at most {most} about any record, whatever else is known"
        return (
            f"none asked for; the answers together may leak {_format_leakage(self.leakage)} about a record"
            " to those who know the model"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promises rest on: a list to be checked by who knows the data."""
        return (
            "the records of the holdout follow the model, and the model was not fitted on them",
            "the training data say nothing about the holdout beyond the model",
            f"every query is about the rows: {self.covers}, values in [0, 1], one row moves it by 1/n",
            "queries may depend on earlier answers and on the training data, on the holdout in no other way",
            f"at most {self.queries:,} queries are asked and {self.budget} answered from the holdout, all"
            " through one ledger",
        )

    def __str__(self) -> str:
        """Read as a short paragraph with a table of the routes."""
        warned = [a for a in self.alternatives if not a.valid]
        size = (
            f", worth {self.effective_sample_size:,.0f} independent ones"
            if self.effective_sample_size
            else ""
        )
        return "\n".join(
            [
                f"{self.queries:,} queries on {self.records:,} records{size}",
                f"  set        {self._settings()}",
                f"  accuracy   {self.answers}",
                f"  budget     {self.budget_lasts}",
                f"  privacy    {self.privacy}",
                f"  by         {self.answers.theorem}, {self.covers}",
                *(f"  note       {note}" for note in self.notes),
                "",
                *self.table(),
                *(["", *(f"  {a}" for a in warned)] if warned else []),
            ]
        )

    def _settings(self) -> str:
        return (
            f"σ = {format_up(self.sigma, 4)}, T = {self.threshold:.4g}, budget {self.budget},"
            f" answers rounded to {self.resolution:g} (costs α = {format_up(self.dp_epsilon, 4)})"
        )

    def table(self) -> list[str]:
        """Return the lines of a table: every route, the accuracy it promises, what it would leak."""
        rows: list[tuple[str, float | None, float | None, str]] = []
        rows.append((self.route, self.accuracy, self.leakage, "this plan"))
        rows += [(a.name, a.accuracy, a.leakage, a.note) for a in self.alternatives if a.valid]
        width = max(len(r[0]) for r in rows)
        lines = [f"  {'route':{width}}  accuracy   leaks"]
        for name, accuracy, leakage, note in rows:
            value = format_up(accuracy, 4) if accuracy is not None else "–"
            leaks = _format_leakage(leakage) if leakage is not None else "–"
            lines.append(f"  {name:{width}}  {value:>8}  {leaks:>6}  {note}".rstrip())
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with stable keys."""
        return {**asdict(self), "privacy": self.privacy, "assumptions": list(self.assumptions)}


def _format_leakage(leakage: float) -> str:
    return format_up(leakage, 3) if leakage < 1e4 else "all" if math.isinf(leakage) else f"{leakage:.0e}"


@any_model
@without_partial_answer()
def plan_calibration(
    model: Model, plan: Plan, *, time_limit: Limit = None, executor: Executor | None = None
) -> Calibration:
    """Return the plan's noise as a calibration: σ, and the leakage that is certified at it.

    ε is what the planned run leaks to the informed adversary, or what was asked for.  Searches go as far as
    those behind the plan did.

    Raises
    ------
    Refused
        If the planned run has no finite leakage.
    InvalidArgument
        If the plan was made for another model.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=20_000)
    >>> plan = qd.plan(chain, queries=50, budget=2, epsilon=1.0)
    >>> made = plan_calibration(chain, plan)
    >>> made.sigma == plan.sigma, made.leakage <= made.epsilon == 1.0
    (True, True)
    """
    if plan.fingerprint != model.fingerprint:
        raise InvalidArgument("the plan was made for another model")
    mechanism = Thresholdout(budget=plan.budget, sensitivity=1 / plan.records)
    work = replace(WorkBudget.from_dict(plan.work), until=plan.stage or plan.work.get("until", ""))
    profile = analyze(
        model,
        adversary=INFORMED,
        work=SharedWork(work).budget,
        time_limit=time_limit,
        executor=executor,
    )
    found = profile.leakage(dp_cost_at(mechanism, plan.sigma))  # as a certificate is checked
    if math.isinf(found.epsilon):
        raise Refused("the planned run has no finite leakage to account for: ask for privacy")
    return Calibration(
        sigma=plan.sigma,
        epsilon=plan.epsilon if plan.epsilon is not None else found.epsilon,
        dp_epsilon=found.dp_epsilon,
        leakage=found.epsilon,
        mechanism=mechanism,
        adversary=found.adversary,
        method=found.method,
        binding=found.binding,
        certificate=found.certificate,
        fingerprint=found.fingerprint,
        protected=found.protected,
        per_record=tuple(found.per_record.top(10)),
        notes=found.notes,
    )


@any_model
def holdout_arguments(model: Model, plan: Plan, *, time_limit: Limit = None) -> dict[str, Any]:
    """Return what :class:`quiltdp.ReusableHoldout` takes besides data and ledger, so that it keeps the plan.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=20_000)
    >>> plan = qd.plan(chain, queries=50, budget=2)
    >>> sorted(holdout_arguments(chain, plan))
    ['accuracy', 'calibration', 'failure', 'queries', 'resolution', 'threshold']
    """
    return {
        "calibration": plan_calibration(model, plan, time_limit=time_limit),
        "threshold": plan.threshold,
        "failure": 1 - plan.confidence,
        "queries": plan.queries,
        "resolution": plan.resolution,
        "accuracy": plan.accuracy,
        **allowed_columns(model),
    }


def allowed_columns(model: Model) -> dict[str, list[str]]:
    """Return, as ``columns``, those that questions may read, where the model is one of a table's rows."""
    if "columns" not in model.provenance:
        return {}
    try:
        return {"columns": [str(name) for name in json.loads(model.provenance["columns"])]}
    except (ValueError, TypeError, RecursionError):
        raise InvalidArgument(
            "the model does not say which columns questions may read: fit it anew"
        ) from None


def read_holdout_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same from what ``quiltdp plan --json`` printed.

    Raises
    ------
    InvalidArgument
        If it is no plan, or one that a reusable holdout cannot run.
    """
    if document.get("schema") != "quiltdp/plan":
        raise InvalidArgument("this is no plan: no key 'schema' with value 'quiltdp/plan'")
    made = document.get("calibration")
    if made is None:
        raise InvalidArgument(
            "this plan has no calibration, so no holdout can run it: make it anew, without --shortest"
        )
    try:
        return {
            "calibration": Calibration.from_json(json.dumps(made)),
            "threshold": float(document["threshold"]),
            "failure": float(document["answers"]["failure"]),
            "queries": int(document["queries"]),
            "resolution": float(document["resolution"]),
            "accuracy": float(document["accuracy"]),
            **({"columns": [str(name) for name in document["columns"]]} if "columns" in document else {}),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"the plan lacks or garbles {error}") from None


@dataclass(frozen=True)
class Extension:
    """An extended plan: how many queries may be asked in all, and what is promised of them.

    ``accuracy`` holds for all of these queries except with probability ``failure`` (None: nothing was
    promised about the population), by ``theorem``; ``total_failure`` is that of all promises so far.
    """

    queries: int
    accuracy: float | None
    failure: float
    total_failure: float
    theorem: str = ""
    covers: str = ""


def extend_plan(
    ledger: Ledger,
    model: Any = None,
    *,
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
) -> Extension:
    """Allow as many queries again as were planned, with the noise, the threshold and the answers left.

    Claim: the j-th extension is a plan for all (j + 1) m queries at failure probability β/2^j, with the
    σ, T, B and rounding of the first.  All of that is fixed before the first query, so that neither when nor
    whether to extend can depend on the answers to any effect; and all plans together fail with
    probability at most β + β/2 + … + β/2^j < 2β.  B answers in all may come from the holdout, so
    its α, and what that leaks, is the calibrated one.

    Parameters
    ----------
    ledger
        Of a reusable holdout with a number of queries.
    model
        The model of its calibration; needed where the plan promises something about the population.
    work, time_limit
        As for :func:`quiltdp.plan`.

    Raises
    ------
    BudgetSpent
        If no answer from the holdout is left: more of them would cost more privacy than was calibrated.
    Refused
        If no theorem promises anything about so many queries; nothing is extended.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=20_000)
    >>> plan = qd.plan(chain, queries=50, budget=2)
    >>> data = [{"x": [k % 2] * 20_000} for k in range(2)]
    >>> study = qd.ReusableHoldout(*data, ledger=":memory:", **holdout_arguments(chain, plan))
    >>> more = extend_plan(study.ledger, chain)
    >>> more.queries, round(more.failure, 3), plan.accuracy < more.accuracy < 1.1 * plan.accuracy
    (100, 0.025, True)
    """
    settings, terms, head = ledger.settings, ledger.terms, ledger.head
    planned, budget = settings.get("queries"), terms.mechanism.answers
    if planned is None or budget is None:
        raise InvalidArgument(f"{ledger.path}: no number of queries was planned, so there is none to extend")
    if head.answers >= budget:
        raise BudgetSpent(
            f"{ledger.path}: all {budget} answers from the holdout are used up; more would leak more than was"
            " calibrated: plan anew, on other data"
        )
    times = len(head.extensions) + 1
    beta = float.fromhex(settings["failure"])
    found = Extension(planned * (times + 1), None, beta / 2**times, beta * (2.0 - 2.0**-times))
    if "accuracy" in settings:
        model = None if model is None else as_model(model)
        if model is None or model.fingerprint != ledger.fingerprint:
            raise InvalidArgument(
                f"{ledger.path}: its plan promises something about the population: give the {option('model')}"
                " that it was made for"
            )
        found = _promised_extension(found, settings, terms, model, work, time_limit)
    with ledger.visit() as visit:
        if len(visit.head.extensions) != times - 1:
            raise Refused(f"{ledger.path}: another process has just extended this plan; nothing was changed")
        visit.extend(found.accuracy)
    return found


def _promised_extension(
    asked: Extension,
    settings: Mapping[str, Any],
    terms: Any,
    model: Model,
    work: str | WorkBudget,
    time_limit: Limit,
) -> Extension:
    """Return the extension with the best accuracy that a theorem promises at the ledger's σ and T."""
    records = len(model.records)
    if terms.mechanism.sensitivity != 1 / records:
        raise InvalidArgument(f"the plan is for means over the {records:,} records of its model only")
    rounding = float.fromhex(settings.get("resolution", "0x0p0"))
    task = Task(records, asked.queries, terms.mechanism.budget, asked.failure, rounding)
    shared = SharedWork(work, time_limit)
    accountant = ProfileAccountant(model, shared=shared)

    def best() -> Extension:
        offers = [
            (accuracy_at(c.exact, task, terms.sigma, float.fromhex(settings["threshold"])), c)
            for c in contenders_for(model, accountant, LeakageSketch(accountant))[0]
        ]
        accuracy, winner = min(offers, key=lambda offer: offer[0])
        if accuracy >= GUESSING:
            raise Refused(
                f"no theorem promises anything better than a guess for {asked.queries:,} queries with the"
                " noise and the threshold of this plan: it cannot be extended"
            )
        return replace(asked, accuracy=accuracy, theorem=winner.exact.theorem, covers=winner.exact.covers)

    return shared.answer(best)

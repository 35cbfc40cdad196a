"""From a plan to the holdout that keeps it: calibration, threshold, rounding, without retyping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.mechanisms import Thresholdout
from quiltdp.accountant.profile import analyze
from quiltdp.accountant.shared_work import SharedWork
from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.generalization.plan_result import Plan
from quiltdp.model import Model
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["holdout_arguments", "plan_calibration", "read_holdout_arguments"]


def plan_calibration(
    model: Model, plan: Plan, *, time_limit: float = 30.0, executor: Executor | None = None
) -> Calibration:
    """Return the plan's noise as a calibration: σ, and the leakage that is certified at it.

    ε is what the planned run leaks to the informed adversary, or what was asked for.  Searches go as far as
    those behind the plan did.

    Raises
    ------
    Refused
        If the plan cuts the holdout into pieces, which Thresholdout does not do.
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
    if plan.pieces is not None:
        raise Refused(
            f"this plan cuts the holdout into pieces ({plan.route}); ask for privacy with"
            f" {option('epsilon')} for a plan that a reusable holdout can run"
        )
    if plan.fingerprint != model.fingerprint:
        raise InvalidArgument("the plan was made for another model")
    mechanism = Thresholdout(budget=plan.budget, sensitivity=1 / plan.records)
    work = replace(WorkBudget.from_dict(plan.work), until=plan.stage or plan.work.get("until", ""))
    profile = analyze(
        model,
        adversary=INFORMED,
        work=SharedWork(work).budget_for(INFORMED),
        time_limit=time_limit,
        executor=executor,
    )
    found = profile.leakage(mechanism.dp_epsilon(plan.sigma))
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
        seconds=found.seconds,
    )


def holdout_arguments(model: Model, plan: Plan, *, time_limit: float = 30.0) -> dict[str, Any]:
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
    }


def read_holdout_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same from what ``quiltdp plan --json`` printed.

    Raises
    ------
    InvalidArgument
        If it is no plan, or one that a reusable holdout cannot run.
    """
    import json

    if document.get("schema") != "quiltdp/plan":
        raise InvalidArgument("this is no plan: no key 'schema' with value 'quiltdp/plan'")
    made = document.get("calibration")
    if made is None:
        raise InvalidArgument(
            "this plan cuts the holdout into pieces: plan with --epsilon for one that can be run"
        )
    try:
        return {
            "calibration": Calibration.from_json(json.dumps(made)),
            "threshold": float(document["threshold"]),
            "failure": float(document["answers"]["failure"]),
            "queries": int(document["queries"]),
            "resolution": float(document["resolution"]),
            "accuracy": float(document["accuracy"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"the plan lacks or garbles {error}") from None

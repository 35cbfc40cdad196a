"""``quiltdp plan MODEL``: how many queries a reusable holdout can answer, and how accurately."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load
from quiltdp.cli.release import check_new_ledger
from quiltdp.cli.running import limited, worker_pool
from quiltdp.cli.show import say
from quiltdp.errors import InvalidArgument


def plan(
    model: str,
    *,
    budget: int,
    queries: int | None = None,
    accuracy: float | None = None,
    confidence: float = 0.95,
    overfit: float | None = None,
    epsilon: float | None = None,
    shortest: bool = False,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    apply: Path | None = None,
    work: str = "normal",
    time_limit: float | None = None,
    allow_partial: bool = False,
    workers: int = 1,
    json: bool = False,
) -> None:
    """Plan a reusable holdout on correlated records: noise, threshold, and what they promise.

    Every theorem that applies competes; the table shows what each would promise.  With both --queries
    and --accuracy the plan takes the most noise that keeps them, else it finds the best of the other.

    Arguments
    ---------
    model : MODEL
        The model of the holdout's records.

    Release
    -------
    budget : B
        How many answers may come from the holdout.
    queries : M
        How many queries may be asked; default: as many as possible.
    accuracy : X
        How far an answer may be off; default: as little as possible.
    confidence : P
        The probability of each promise.
    overfit : X
        Training values off by no more than this must spend no answer.
    epsilon : E
        Ask for privacy too: the answers say at most this about a record.
    shortest
        For a chain: the smallest length that is enough.

    Output
    ------
    apply : LEDGER
        Also make the ledger of a holdout that keeps this plan.

    Examples
    --------
    $ quiltdp plan holdout_chain.json --budget 5 --queries 1000
    $ quiltdp plan holdout_chain.json --budget 5 --queries 1000 --epsilon 1 --apply study.db
    $ quiltdp plan holdout_chain.json --budget 5 --queries 1000 --json > plan.json
    $ quiltdp plan models/location_chain.json --budget 1 --queries 10 --accuracy 0.3 --shortest
    """
    with limited(time_limit, allow_partial=allow_partial, json=json) as limits:
        from quiltdp.generalization.plan_result import allowed_columns

        if apply is not None:
            check_new_ledger(apply)
        loaded = load(model, records, allele_frequency)
        asked: dict[str, Any] = {
            "queries": queries,
            "budget": budget,
            "accuracy": accuracy,
            "confidence": confidence,
            "overfit": overfit,
            "epsilon": epsilon,
            "work": work,
            "time_limit": limits.guard,
        }
        with worker_pool(workers) as executor:
            found = limits.answer(lambda: _make_plan(loaded, shortest, executor=executor, **asked))
            applied = apply is not None and limits.may_write(str(apply))
            rest = None if limits.reached else limits.guard  # of a partial plan it is group privacy: quick
            calibration = _calibrate_plan(
                loaded, found, shortest, json or applied, time_limit=rest, executor=executor
            )
        if apply is not None and applied:
            _make_ledger(apply, found, calibration, loaded)
        if json:
            made = None if calibration is None else loads(calibration.to_json())
            facts = {"model": model, **found.to_dict(), **allowed_columns(loaded), "calibration": made}
            emit_json("plan", facts, limits.reached)
            return
        print(found, flush=True)
        print("\nThis rests on (check each):")
        for claim in (*found.assumptions, *loaded.notes):
            say(f"  [ ] {claim}")
        if applied:
            print()
            say(f"{apply}: made for this plan; ask with 'quiltdp holdout ask'")


def _calibrate_plan(model: Any, plan: Any, shortest: bool, wanted: bool, **how: Any) -> Any:
    """Return the plan's noise as a calibration; None where no holdout of this model runs it."""
    from quiltdp.generalization.plan_result import plan_calibration

    if not wanted or (shortest and plan.fingerprint != model.fingerprint):
        return None
    return plan_calibration(model, plan, **how)


def _make_ledger(ledger: Path, plan: Any, calibration: Any, model: Any) -> None:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.generalization.plan_result import allowed_columns, plan_calibration
    from quiltdp.mechanisms.holdout import checked_settings

    if calibration is None:
        calibration = plan_calibration(model, plan)  # says why this plan cannot be applied
    settings = checked_settings(
        plan.threshold,
        1 - plan.confidence,
        plan.queries,
        resolution=plan.resolution,
        accuracy=plan.accuracy,
        columns=allowed_columns(model).get("columns"),
    )
    Ledger.create(ledger, calibration, settings=settings)


def _make_plan(model: Any, shortest: bool, **options: Any) -> Any:
    from quiltdp.chain import ChainModel
    from quiltdp.generalization.planner import plan as make_plan
    from quiltdp.generalization.planner import plan_length
    from quiltdp.papers.zhao import with_published

    if not shortest:
        return with_published(model, make_plan(model, **options), overfit=options["overfit"])
    if not isinstance(model, ChainModel):
        raise InvalidArgument("--shortest needs a Markov chain, this model is not one")
    if options["queries"] is None or options["accuracy"] is None:
        raise InvalidArgument("--shortest needs both --queries and --accuracy")
    options.pop("executor")  # one chain is one piece
    if options.pop("overfit") is not None:
        raise InvalidArgument("--shortest does not take --overfit: plan the length it finds with it")
    return plan_length(model, **options)

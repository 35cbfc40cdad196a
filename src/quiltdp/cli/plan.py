"""``quiltdp plan MODEL``: how many queries a reusable holdout can answer, and how accurately."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from quiltdp.cli.accounting import AsJson, TimeLimit
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options

__all__ = ["plan"]


@model_options
def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model file of the holdout's records.")],
    *,
    budget: Annotated[int, typer.Option(metavar="B", help="How many answers may come from the holdout.")],
    queries: Annotated[
        int | None,
        typer.Option(metavar="M", help="How many queries may be asked; default: as many as possible."),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(metavar="X", help="How far an answer may be off; default: as little as possible."),
    ] = None,
    confidence: Annotated[float, typer.Option(metavar="P", help="The probability of each promise.")] = 0.95,
    threshold_share: Annotated[
        float, typer.Option(metavar="S", help="The threshold's least share of the accuracy.")
    ] = 0.5,
    overfit: Annotated[
        float | None,
        typer.Option(metavar="X", help="Training values off by no more than this must spend no budget."),
    ] = None,
    shortest: Annotated[
        bool, typer.Option("--shortest", help="For a chain: the smallest length that is enough.")
    ] = False,
    time_limit: TimeLimit = 30.0,
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Plan a reusable holdout on correlated records: noise, threshold, and what they promise.

    Examples
    --------
    $ quiltdp plan holdout_chain.json --budget 5 --accuracy 0.3 --overfit 0.01
    $ quiltdp plan models/location_chain.json --budget 1 --queries 10 --accuracy 0.3 --shortest
    """
    with guarded():
        found = _planned(
            load(model, **options),
            shortest,
            queries=queries,
            budget=budget,
            accuracy=accuracy,
            confidence=confidence,
            threshold_share=threshold_share,
            overfit=overfit,
            time_limit=time_limit,
        )
        if json:
            emit_json("plan", {"model": model, **found.to_dict()})
        else:
            typer.echo(str(found))


def _planned(model: Any, shortest: bool, **options: Any) -> Any:
    from quiltdp.chain import ChainModel
    from quiltdp.errors import InvalidArgument
    from quiltdp.generalization.planner import plan as make_plan
    from quiltdp.generalization.planner import plan_length

    if not shortest:
        return make_plan(model, **options)
    if not isinstance(model, ChainModel):
        raise InvalidArgument("--shortest needs a Markov chain, this model is not one")
    if options["queries"] is None or options["accuracy"] is None:
        raise InvalidArgument("--shortest needs both --queries and --accuracy")
    if options.pop("overfit") is not None:
        raise InvalidArgument("--shortest does not take --overfit: plan the length it finds with it")
    return plan_length(model, **options)

"""``quiltdp quilts MODEL NODE``: the Markov quilts of a node."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options

if TYPE_CHECKING:
    from quiltdp.graph.quilt import Quilt

__all__ = ["quilts"]


@model_options
def quilts(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model file (.bif, .json, .ped, …).")],
    node: Annotated[str, typer.Argument(metavar="NODE", help="The record under attack.")],
    *,
    max_nearby: Annotated[
        int | None,
        typer.Option(metavar="K", min=0, help="At most this many nearby records; latents are not counted."),
    ] = None,
    max_separator: Annotated[
        int | None, typer.Option(metavar="K", min=0, help="At most this many nodes in the separator.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Stop after this many quilts.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="Plain JSON on stdout, nothing else.")] = False,
    options: dict[str, Any],
) -> None:
    """List the Markov quilts of a node, smallest nearby set first.

    A quilt is a separator that cuts the node off from the remote rest; the nearby nodes are on its own
    side. The trivial quilt, with nothing remote in the node's component, is always in the full list.

    Examples
    --------
    $ quiltdp quilts models/asia.bif smoke
    $ quiltdp quilts models/alarm.bif HR --max-nearby 2 --max-separator 6
    $ quiltdp quilts models/pigs.bif p48124091 --limit 5 --json
    """
    with guarded():
        import quiltdp as qd

        loaded = load(model, **options)
        loaded.require([node])
        graph = qd.moralize(loaded)
        found = list(islice(qd.quilts(graph, node, max_nearby, max_separator), limit + 1))
        more = len(found) > limit
        if json:
            _as_json(model, node, found[:limit], more)
        else:
            _as_table(model, node, found[:limit], more)


def _as_json(model: str, node: str, found: list[Quilt], more: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "separator": q.separator,
            "nearby": q.nearby,
            "remote": q.remote,
            "nearby_records": q.nearby_records,
            "trivial": q.is_trivial,
        }
        for q in found
    ]
    emit_json("quilts", {"model": model, "target": node, "more": more, "quilts": rows})


def _as_table(model: str, node: str, found: list[Quilt], more: bool) -> None:
    from quiltdp.cli.show import listed, show_line, show_table

    rows = []
    for k, q in enumerate(found, 1):
        away = len(q.graph) - len(q.separator) - len(q.nearby) - 1
        rows.append((str(k), str(q.nearby_records), listed(q.separator), listed(q.nearby), str(away)))
    show_table(
        ["#", "records nearby", "separator", "nearby", "remote"],
        rows,
        title=f"Markov quilts of {node} in {model}",
        right=["#", "records nearby", "remote"],
    )
    if more:
        show_line(f"… and more: raise --limit {len(found)} or lower --max-nearby", style="dim")

"""``quiltdp quilts MODEL NODE``: the Markov quilts of a node."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load

if TYPE_CHECKING:
    from quiltdp.graph.quilt import Quilt
    from quiltdp.inference.witness import QuiltInfluence

__all__ = ["quilts"]


def quilts(
    model: str,
    node: str,
    *,
    max_nearby: int | None = None,
    max_separator: int | None = None,
    limit: int = 100,
    influence: bool = False,
    dp_epsilon: float = 0.1,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    json: bool = False,
) -> None:
    """List the Markov quilts of a node, smallest nearby set first.

    A quilt is a separator that cuts the node off from the remote rest; the nearby nodes are on its own
    side. The trivial quilt, with nothing remote in the node's component, is always in the full list.

    Arguments
    ---------
    node : NODE
        The record under attack.

    Release
    -------
    max_nearby : K >= 0
        At most this many nearby records; latents are not counted.
    max_separator : K >= 0
        At most this many nodes in the separator.
    limit : N >= 1
        Stop after this many quilts.
    influence
        Add b and the swing of each quilt, the most useful first.
    dp_epsilon : A
        With --influence: the α at which quilts are ranked.

    Examples
    --------
    $ quiltdp quilts models/asia.bif smoke
    $ quiltdp quilts models/alarm.bif HR --max-nearby 2 --max-separator 6
    $ quiltdp quilts models/pigs.bif p48124091 --limit 5 --json
    $ quiltdp quilts models/asia.bif smoke --influence --dp-epsilon 0.5
    """
    import quiltdp as qd
    from quiltdp.accountant.units import positive_epsilon

    positive_epsilon(dp_epsilon, "dp_epsilon", zero=True)
    loaded = load(model, records, allele_frequency)
    loaded.require([node])
    graph = qd.moralize(loaded)
    found = list(islice(qd.quilts(graph, node, max_nearby, max_separator), limit + 1))
    more = len(found) > limit
    if influence:
        from quiltdp.cli.influence import by_use

        _with_influence(model, node, by_use(loaded, found[:limit], dp_epsilon), more, dp_epsilon, json)
    elif json:
        _as_json(model, node, found[:limit], more)
    else:
        _as_table(model, node, found[:limit], more)


def _as_json(model: str, node: str, found: list[Quilt], more: bool) -> None:
    rows = [_parts(q) for q in found]
    emit_json("quilts", {"model": model, "target": node, "more": more, "quilts": rows})


def _parts(q: Quilt) -> dict[str, Any]:
    return {
        "separator": q.separator,
        "nearby": q.nearby,
        "remote": q.remote,
        "nearby_records": q.nearby_records,
        "trivial": q.is_trivial,
    }


def _with_influence(
    model: str,
    node: str,
    found: list[tuple[Quilt, QuiltInfluence | None, float]],
    more: bool,
    dp_epsilon: float,
    json: bool,
) -> None:
    """Print the quilts with b, swing and the leakage they allow at α, most useful first."""
    if json:
        rows = [
            {
                **_parts(q),
                "b": told and told.b,
                "swing": told and told.swing,
                "exact": told and told.exact,
                "leakage": leakage,
            }
            for q, told, leakage in found
        ]
        facts = {"model": model, "target": node, "more": more, "dp_epsilon": dp_epsilon, "quilts": rows}
        emit_json("quilts", facts)
        return
    from quiltdp.cli.show import listed, number, show_line, show_table

    lines = []
    for q, told, leakage in found:
        mark = "" if told is None or told.exact else "≤ "
        b, s = (
            ("too wide",) * 2
            if told is None
            else (mark + number(told.b, up=True), mark + number(told.swing, up=True))
        )
        lines.append(
            (number(leakage, up=True), b, s, str(q.nearby_records), listed(q.separator), listed(q.nearby))
        )
    columns = ["leakage", "b", "swing", "records nearby", "separator", "nearby"]
    title = f"Markov quilts of {node} in {model}, best first at dp_epsilon {number(dp_epsilon)}"
    show_table(columns, lines, title=title, right=columns[:4])
    if more:
        show_line(f"… and more: raise --limit {len(found)} or lower --max-nearby", style="dim")


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

"""``quiltdp quilts MODEL [RECORD]``: the influence table of all records, or the Markov quilts of one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.graph.quilt import Quilt
    from quiltdp.inference.witness import QuiltInfluence
    from quiltdp.model import Model


def quilts(
    model: str,
    record: str | None = None,
    *,
    moral: bool = False,
    on: str | None = None,
    given: str = "",
    max_nearby: int | None = None,
    max_separator: int | None = None,
    limit: int = 100,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    epsilon: float = 1.0,
    dp_epsilon: float | None = None,
    json: bool = False,
) -> None:
    """Show which quilt forces the published noise: b, a and the best quilt of every record, or of one.

    A quilt is a separator that cuts the record off from the remote rest; the nearby nodes N are on its own
    side. b is the max-influence of the separator on the record, whatever nearby records are known; a that of
    the Markov blanket. The published leakage is |C| α + 4 b of the best quilt, C the record and N together.

    Arguments
    ---------
    record : RECORD
        The record under attack; without one, a table of all records.

    Model
    -----
    moral
        The edges of the moral graph, and which of them moralization joined.
    on : NAMES
        Only the max-influence of these nodes (separated by commas) on the record.
    given : NAMES
        Nodes known already; without --on the rest of its blanket is seen.
    max_nearby : K >= 0
        At most this many nearby records; latents are not counted.
    max_separator : K >= 0
        At most this many nodes in the separator.
    limit : N >= 1
        At most this many quilts, or rows.

    Release
    -------
    epsilon : E
        The Bayesian DP target that decides which quilt is the best.
    dp_epsilon : A
        α itself, instead of what the target allows.

    Examples
    --------
    $ quiltdp quilts models/asia.bif
    $ quiltdp quilts models/asia.bif smoke
    $ quiltdp quilts models/asia.bif --moral
    $ quiltdp quilts models/asia.bif lung --on xray --given either
    $ quiltdp quilts models/alarm.bif HR --dp-epsilon 0.1 --max-nearby 2 --max-separator 6
    """
    if record is None and (on is not None or given):
        raise InvalidArgument("--on and --given ask about one record: name it after the model")
    loaded = load(model, records, allele_frequency)
    if moral:
        _show_moral_graph(model, loaded, json)
    elif record is None:
        _show_influence_table(model, loaded, epsilon, dp_epsilon, limit, json)
    elif on is not None or given:
        _show_max_influence(model, loaded, record, on, given, json)
    else:
        loaded.require([record])
        limits = (max_nearby, max_separator, limit)
        _show_quilts(model, loaded, record, epsilon, dp_epsilon, limits, json)


def _show_moral_graph(path: str, model: Model, json: bool) -> None:
    """Print the moral graph."""
    from quiltdp.graph.moral import moralize

    graph = moralize(model)
    if json:
        emit_json("moral graph", {"model": path, "edges": list(graph.edges()), "joined": graph.joined})
        return
    from quiltdp.cli.show import show_table

    joined = set(graph.joined)
    words = {True: "joined: parents of one child", False: ""}
    rows = [(f"{a} – {b}", words[(a, b) in joined]) for a, b in graph.edges()]
    title = f"The moral graph of {path}: {graph.edge_count} edges, {len(joined)} of them joined"
    show_table(["edge", ""], rows, title=title)


def _show_influence_table(
    path: str, model: Model, epsilon: float, dp_epsilon: float | None, limit: int, json: bool
) -> None:
    """Print the influence table."""
    from quiltdp.accountant.influence_table import COLUMNS, influence_table

    table = influence_table(model, epsilon, dp_epsilon=dp_epsilon)
    if json:
        rows = [row.to_dict() for row in table.values()]
        emit_json("influence table", {"model": path, "dp_epsilon": table.dp_epsilon, "records": rows})
        return
    from quiltdp.cli.show import number, show_line, show_table

    title = f"Influence table of {path} at α = {number(table.dp_epsilon)}"
    columns = [*COLUMNS[:-1], "|C| α + 4 b"]
    show_table(columns, table.cells(limit), title=title, right=columns[2:])
    if len(table) > limit:
        show_line(f"… and {len(table) - limit:,} more: raise --limit", style="dim")
    show_line(f"The published number is forced by {table.binding}.")


def _show_max_influence(path: str, model: Model, record: str, on: str | None, given: str, json: bool) -> None:
    """Print one conditional max-influence, by default that of the Markov blanket."""
    from quiltdp.graph.quilts import markov_blanket
    from quiltdp.inference.influence import max_influence

    model.require([record])
    known = _node_names(model, given)
    seen = sorted(markov_blanket(model, record).difference(known)) if on is None else _node_names(model, on)
    value = max_influence(model, of=record, on=seen, given=known)
    if json:
        emit_json("influence", {"model": path, "of": record, "on": seen, "given": known, "influence": value})
        return
    from quiltdp.cli.show import listed, number, show_facts

    facts = [("of", record), ("on", listed(seen)), ("given", listed(known)), ("max-influence", number(value))]
    show_facts(facts, title=f"Influence in {path}")


def _node_names(model: Model, text: str) -> list[str]:
    """Return the node names of a comma-separated list; a whole name that contains commas is one node."""
    if text in model.states:
        return [text]
    return [part for part in (p.strip() for p in text.split(",")) if part]


def _show_quilts(
    path: str,
    model: Model,
    record: str,
    epsilon: float,
    dp_epsilon: float | None,
    limits: tuple[int | None, int | None, int],
    json: bool,
) -> None:
    """Print the quilts of one record with b and the published leakage they allow."""
    from quiltdp.accountant.leakage import dp_epsilon as allowed
    from quiltdp.accountant.units import positive_epsilon
    from quiltdp.graph.moral import moralize
    from quiltdp.graph.quilts import quilts as quilts_of

    most = limits[2]
    listed_quilts = list(islice(quilts_of(moralize(model), record, *limits[:2]), most + 1))
    more, chosen = len(listed_quilts) > most, listed_quilts[:most]
    influences = _quilt_influences(model, chosen)
    if dp_epsilon is None:
        dp_epsilon = allowed(model, epsilon, method="published")
    alpha = positive_epsilon(dp_epsilon, "dp_epsilon", zero=True)
    leaks = [
        float("inf") if i is None else q.closed_records * alpha + 4.0 * i.b
        for q, i in zip(chosen, influences, strict=True)
    ]
    if json:
        parts = zip(chosen, influences, leaks, strict=True)
        rows = [_quilt_facts(q, influence, leakage) for q, influence, leakage in parts]
        facts = {"model": path, "target": record, "dp_epsilon": alpha, "more": more, "quilts": rows}
        emit_json("quilts", facts)
        return
    from quiltdp.cli.show import listed, number, show_line, show_table

    lines = []
    for k, (q, i, leakage) in enumerate(zip(chosen, influences, leaks, strict=True), 1):
        b = "too wide" if i is None else ("" if i.exact else "≤ ") + number(i.b, up=True)
        sides = (listed(q.separator), listed(q.nearby), listed(q.remote, 4))
        lines.append((str(k), *sides, str(q.nearby_records), b, number(leakage, up=True)))
    columns = ["#", "separator", "nearby", "remote", "|N|", "b", "|C| α + 4 b"]
    right = ["#", *columns[4:]]
    show_table(columns, lines, title=f"Markov quilts of {record} in {path}, α = {number(alpha)}", right=right)
    if more:
        show_line(f"… and more: raise --limit {most} or lower --max-nearby", style="dim")
    best = min(range(len(chosen)), key=leaks.__getitem__)
    show_line(f"The best of them is {best + 1}: |N| = {lines[best][4]}, b = {lines[best][5]}.")


def _quilt_influences(model: Model, chosen: list[Quilt]) -> list[QuiltInfluence | None]:
    """Return the influence of every quilt, None where its tables are too wide."""
    from quiltdp.errors import ModelTooWide
    from quiltdp.inference.influence import quilt_influence
    from quiltdp.inference.workspace import Workspace

    space = Workspace(model)

    def influence(quilt: Quilt) -> QuiltInfluence | None:
        try:
            return quilt_influence(model, quilt, workspace=space)
        except ModelTooWide:
            return None

    return [influence(q) for q in chosen]


def _quilt_facts(q: Quilt, influence: QuiltInfluence | None, leakage: float) -> dict[str, Any]:
    return {
        "separator": q.separator,
        "nearby": q.nearby,
        "remote": q.remote,
        "nearby_records": q.nearby_records,
        "trivial": q.is_trivial,
        "b": influence and influence.b,
        "swing": influence and influence.swing,
        "exact": influence and influence.exact,
        "leakage": leakage,
    }

"""``quiltdp info MODEL``: what a model contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load
from quiltdp.cli.show import show_facts

if TYPE_CHECKING:
    from quiltdp.chain import ChainModel
    from quiltdp.model import Model


def info(
    model: str,
    *,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    json: bool = False,
) -> None:
    """Say what a model contains: nodes, states, records, components, treewidth, tables, zeros.

    Examples
    --------
    $ quiltdp info models/alarm.bif
    $ quiltdp info models/pigs.bif --json
    """
    facts = describe_model(load(model, records, allele_frequency))
    if json:
        emit_json("info", {"model": model, **facts})
    else:
        _show_facts(model, facts)


def describe_model(model: Model) -> dict[str, Any]:
    """Return the facts about a model, as they stand in the JSON."""
    from quiltdp.chain import ChainModel
    from quiltdp.graph.moral import moralize
    from quiltdp.graph.orders import treewidth_estimate

    graph = moralize(model)
    width = treewidth_estimate(graph)
    sizes = graph.component_record_counts
    chain = isinstance(model, ChainModel)
    return {
        "kind": "Markov chain" if chain else "Bayesian network" if model.directed else "Markov network",
        "nodes": len(graph),
        "records": len(model.records),
        "latents": len(model.latents),
        "edges": graph.edge_count,
        "components": graph.component_count,
        "largest_component_records": int(sizes.max()),
        **_table_facts(model),
        "treewidth_estimate": width,
        "notes": list(model.notes),
        "fingerprint": model.fingerprint,
    }


def _table_facts(model: Model) -> dict[str, Any]:
    """Return the facts about states and tables; a chain is asked for its distinct tables only."""
    from quiltdp.chain import ChainModel

    if isinstance(model, ChainModel):
        return _chain_table_facts(model)
    states = [len(s) for s in model.states.values()]
    largest = max(model.factors, key=lambda f: f.table.size, default=None)
    return {
        "states": {"smallest": min(states), "largest": max(states), "total": sum(states)},
        "factors": len(model.factors),
        "largest_table": {
            "entries": largest.table.size if largest is not None else 0,
            "factor": repr(largest) if largest is not None else "",
        },
        "entries": sum(f.table.size for f in model.factors),
        "zeros": sum(f.table.size - int((f.table > 0).sum()) for f in model.factors),
    }


def _chain_table_facts(model: ChainModel) -> dict[str, Any]:
    states, entries, zeros, total = [], 0, 0, 0
    best = (0, "")
    for s in model.segments:
        repeats = s.length - 1 if s.homogeneous else 1
        here = [len(s.initial), *(m.shape[1] for m in s.transitions if s.length > 1)]
        states += here
        total += here[0] + repeats * sum(here[1:])
        used = s.transitions if s.length > 1 else ()
        entries += s.initial.size + repeats * sum(m.size for m in used)
        zeros += int((s.initial == 0).sum()) + repeats * sum(int((m == 0).sum()) for m in used)
        for t, m in enumerate(used):
            best = max(best, (m.size, f"P({s.prefix}{t + 1} | {s.prefix}{t})"), key=lambda b: b[0])
        best = max(best, (s.initial.size, f"P({s.prefix}0)"), key=lambda b: b[0])
    return {
        "states": {"smallest": min(states), "largest": max(states), "total": total},
        "factors": len(model.nodes),
        "largest_table": {"entries": best[0], "factor": best[1]},
        "entries": entries,
        "zeros": zeros,
    }


def _show_facts(name: str, facts: dict[str, Any]) -> None:
    states, largest = facts["states"], facts["largest_table"]
    span = (
        f"{states['smallest']}"
        if states["smallest"] == states["largest"]
        else f"{states['smallest']} to {states['largest']}"
    )
    share = f"{100 * facts['zeros'] / facts['entries']:.1f} %" if facts["entries"] else "none"
    lines = [
        ("kind", facts["kind"]),
        ("nodes", f"{facts['nodes']:,}, with {span} states"),
        ("records", f"{facts['records']:,}, and {facts['latents']:,} latents"),
        ("moral graph", f"{facts['edges']:,} edges, treewidth at most {facts['treewidth_estimate']}"),
        (
            "components",
            f"{facts['components']:,}, the largest with {facts['largest_component_records']:,} records",
        ),
        ("largest table", f"{largest['factor']}: {largest['entries']:,} entries"),
        ("zeros", f"{facts['zeros']:,} of {facts['entries']:,} entries ({share})"),
        *(("note", note) for note in facts["notes"]),
        ("fingerprint", facts["fingerprint"]),
    ]
    show_facts(lines, title=name)

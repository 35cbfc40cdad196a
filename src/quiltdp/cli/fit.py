"""``quiltdp fit DATA -o model.json``: a model from public or past data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quiltdp.cli.accounting import AsJson
from quiltdp.cli.app import emit_json, guarded

__all__ = ["fit"]


def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A CSV file with a header.")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the model (.json).")
    ],
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A Markov chain of this column, rows in the order of time; without it, a Bayesian network"
            " over all columns.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="For a holdout of rows: independent, or time (of all columns, the chain that needs the most"
            " noise).",
            show_default=False,
        ),
    ] = None,
    states: Annotated[
        int, typer.Option(metavar="K", min=1, help="How many states numbers are cut into.")
    ] = 8,
    binning: Annotated[str, typer.Option(metavar="RULE", help="Chain: quantile or width.")] = "quantile",
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Chain: mle, additive:A or reversible.")
    ] = "mle",
    length: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Chain: steps to protect; default those of the data."),
    ] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A>B", help="Network: an edge; repeat for several. Default: learned (pgmpy, BIC)."
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(metavar="E", help="The target at which the sampling error is told.")
    ] = 1.0,
    confidence: Annotated[float, typer.Option(metavar="P", help="Of the region of chains.")] = 0.95,
    json: AsJson = False,
) -> None:
    """Fit a model to public or past data: a chain of one column, or a network over columns.

    Never fit on the records that are to be protected: the model would tell about them before any
    noise is drawn.  A chain also tells what the answer becomes if its matrix is off by the sampling
    error.

    Examples
    --------
    $ quiltdp fit last_year.csv --column load --states 8 -o chain.json
    $ quiltdp fit survey_2024.csv --states 4 -o network.json
    $ quiltdp fit train.csv --rows time --length 50000 -o rows.json
    """
    with guarded():
        from quiltdp.domains.series.read import read_columns
        from quiltdp.io.json_write import save_model
        from quiltdp.io.replace import check_writable

        check_writable(output, data)
        if rows is not None:
            told, model = _rows(data, rows, column, edge, length=length, states=states, epsilon=epsilon)
        elif column is not None:
            values = read_columns(data, [column])[column]
            told, model = _chain(
                values, states, binning, estimator, length, epsilon, confidence, f"{data}, column {column}"
            )
        else:
            told, model = _network(read_columns(data), states, edge, data)
        save_model(model, output)
        if json:
            emit_json("fit", {"file": str(output), **told})
        else:
            from quiltdp.cli.show import show_facts, show_line

            show_line(f"wrote {output}", style="bold green")
            show_facts([(k.replace("_", " "), _shown(v)) for k, v in told.items()])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _rows(
    data: str, rows: str, column: str | None, edge: list[str] | None, **options: Any
) -> tuple[dict[str, Any], Any]:
    from quiltdp.domains.series.read import read_columns
    from quiltdp.domains.series.rows import fit_rows
    from quiltdp.errors import InvalidArgument

    if column is not None or edge:
        raise InvalidArgument(
            f"--rows chooses the column itself: leave {'--column' if column else '--edge'} out"
        )
    if rows not in ("independent", "time"):
        raise InvalidArgument(f"--rows must be independent or time, not {rows!r}")
    found = fit_rows(read_columns(data, missing="text"), rows, source=data, **options)
    told: dict[str, Any] = {"kind": f"rows: {found.rule}", "rows": len(found.model.nodes)}
    if found.noise:
        ranked = sorted(found.noise.items(), key=lambda item: -item[1])
        told["noise_by_column"] = [
            f"{name} {value:.4g} times that of independent rows" for name, value in ranked
        ]
    if found.skipped:
        told["left_out"] = [f"{name}: {why}" for name, why in found.skipped.items()]
    told["rests_on"] = [f"[ ] {claim}" for claim in found.assumptions]
    return told, found.model


def _chain(
    values: Any,
    states: int,
    binning: str,
    estimator: str,
    length: int | None,
    epsilon: float,
    confidence: float,
    source: str,
) -> tuple[dict[str, Any], Any]:
    from quiltdp import dp_epsilon
    from quiltdp.domains.series.chain import fit_series

    found = fit_series(values, states, binning=binning, estimator=estimator, length=length, source=source)
    fitted = 1.0 / dp_epsilon(found.model, epsilon)
    robust = 1.0 / found.robust_dp_epsilon(epsilon, confidence)
    return {
        "kind": "Markov chain",
        "steps": found.model.segments[0].length,
        "states": list(found.bins.names),
        "binning": found.bins.rule,
        "transitions": int(found.counts.sum()),
        "order": f"{found.order} by {found.criterion} (the model is of order 1)",
        "spectral_gap": found.diagnostics.gap,
        "halves_differ": "too few values" if found.stationarity is None else found.stationarity,
        "sigma_of_the_fit": fitted,
        "sigma_if_off_by_sampling_error": robust,
        "told_for": f"ε = {epsilon:g}, sensitivity 1, informed adversary, confidence {confidence:g}",
        "notes": list(found.model.notes),
    }, found.model


def _network(columns: Any, states: int, edge: list[str] | None, source: str) -> tuple[dict[str, Any], Any]:
    from quiltdp.domains.series.network import fit_network
    from quiltdp.errors import InvalidArgument

    edges = None
    if edge:
        edges = []
        for text in edge:
            parent, arrow, child = text.partition(">")
            if not arrow or not parent.strip() or not child.strip():
                raise InvalidArgument(f"--edge {text!r}: write PARENT>CHILD")
            edges.append((parent.strip(), child.strip()))
    found = fit_network(columns, states=states, edges=edges, source=source)
    return {
        "kind": "Bayesian network",
        "columns": list(columns),
        "edges": [f"{a} → {b}" for a, b in found.edges],
        "edges_found": found.criterion,
        "notes": list(found.model.notes),
    }, found.model

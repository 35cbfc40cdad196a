"""``quiltdp fit DATA -o model.json``: a model from public or past data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.running import progress_bar
from quiltdp.cli.show import show_facts, show_line
from quiltdp.errors import InvalidArgument


def fit(
    data: str,
    *,
    column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    missing: str = "refuse",
    rows: str | None = None,
    unit: str | None = None,
    read: list[str] | None = None,
    states: int = 8,
    binning: str = "quantile",
    initial: str = "auto",
    estimator: str = "mle",
    length: int | None = None,
    edge: list[str] | None = None,
    epsilon: float = 1.0,
    confidence: float = 0.95,
    output: Path,
    json: bool = False,
) -> None:
    """Fit a model to public or past data: a chain of one column, or a network over columns.

    Never fit on the records that are to be protected: the model would tell about them before any
    noise is drawn.  A chain also tells what the answer becomes if its matrix is off by the sampling
    error.

    Arguments
    ---------
    data : DATA
        A CSV file with a header.

    Reading
    -------
    column : NAME
        A Markov chain of this column, rows in the order of time; without it, a Bayesian network over all
        columns.
    group : NAME
        Chain: rows with one value in this column belong together (a machine, a user); one chain for each.
    time : NAME
        Chain: the column with the time; steps that are not there are steps that nobody saw.
    missing : HOW
        Chain: refuse a missing value, or take it for a gap.
    rows : HOW
        For a holdout of rows: independent, time (a chain over the joint states of the columns) or group
        (rows with one value of --unit belong together).
    unit : NAME
        --rows group: the column that says which rows belong together; groups are independent.
    read : NAME
        --rows: a column that questions may read; repeat for several. Default: all but counters, dates.

    Model
    -----
    states : K >= 1
        How many states numbers are cut into.
    binning : RULE
        Chain: quantile or width.
    initial : LAW
        Chain: the first step: stationary, occupancy (shares of the data) or uniform; auto is stationary
        where every state is reached from every other, else occupancy.
    estimator : NAME
        Chain: mle, additive:A or reversible.
    length : N >= 1
        Chain: steps to protect, with --group of each; default those of the data.
    edge : A>B
        Network: an edge; repeat for several. Default: learned (pgmpy, BIC).

    Release
    -------
    epsilon : E
        The target at which the sampling error is told.
    confidence : P
        Of the region of chains.

    Output
    ------
    output (-o, --output) : FILE
        Where to write the model (.json).

    Examples
    --------
    $ quiltdp fit last_year.csv --column load --states 8 -o chain.json
    $ quiltdp fit survey_2024.csv --states 4 -o network.json
    $ quiltdp fit train.csv --rows time --length 50000 -o rows.json
    $ quiltdp fit train.csv --rows group --unit patient -o rows.json
    $ quiltdp fit meters.csv --column load --group meter --time hour -o chains.json
    """
    from quiltdp.domains.series.read import read_columns
    from quiltdp.io.json_models import save_model
    from quiltdp.io.replace import check_writable

    check_writable(output, data)
    _check_options(output, rows, column, edge, group=group, time=time, missing=missing, initial=initial)
    if rows is None and (unit or read):
        raise InvalidArgument(f"--{'unit' if unit else 'read'} belongs to a holdout of rows: give --rows too")
    how: dict[str, Any] = {"states": states, "length": length, "missing": missing, "initial": initial}
    if rows is not None:
        told, model = _fit_rows(data, rows, unit=unit, read=read, group=group, time=time, **how)
    elif column is not None:
        wanted = list(dict.fromkeys(name for name in (column, group, time) if name is not None))
        table = read_columns(data, wanted, missing=missing, optional=[column])
        found = {"group": group and table[group], "time": time and table[time]}
        how |= {"binning": binning, "estimator": estimator, "source": f"{data}, column {column}"}
        told, model = _fit_chain(table[column], epsilon, confidence, **found, **how)
    else:
        told, model = _fit_network(read_columns(data, missing="gap", optional=()), states, edge, data)
    save_model(model, output)
    if json:
        emit_json("fit", {"file": str(output), **told})
    else:
        show_line(f"wrote {output}", style="bold green")
        show_facts([(k.replace("_", " "), _format_value(v)) for k, v in told.items()])


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _check_options(
    output: Path, rows: str | None, column: str | None, edge: list[str] | None, **chain: str | None
) -> None:
    """Refuse options that do not belong together, before any file is read."""
    if not str(output).lower().endswith((".json", ".json.gz")):
        raise InvalidArgument(f"{output}: models are saved as .json or .json.gz files")
    if rows is not None and (column is not None or edge):
        raise InvalidArgument(
            f"--rows is about all columns that --read names: leave {'--column' if column else '--edge'} out"
        )
    if rows not in (None, "independent", "time", "group"):
        raise InvalidArgument(f"--rows must be independent, time or group, not {rows!r}")
    if chain["missing"] not in ("refuse", "gap"):
        raise InvalidArgument(f"--missing must be refuse or gap, not {chain['missing']!r}")
    if chain["initial"] not in ("auto", "stationary", "occupancy", "uniform"):
        raise InvalidArgument(
            f"--initial must be auto, stationary, occupancy or uniform, not {chain['initial']!r}"
        )
    if rows is None and column is None:
        for name, usual in (("group", None), ("time", None), ("missing", "refuse"), ("initial", "auto")):
            if chain[name] != usual:
                raise InvalidArgument(f"--{name} belongs to a chain: give --column or --rows time too")


def _fit_rows(data: str, rows: str, **options: Any) -> tuple[dict[str, Any], Any]:
    from quiltdp.domains.series.read import read_columns
    from quiltdp.domains.series.rows import fit_rows

    table = read_columns(data, missing=options["missing"])
    with progress_bar() as progress:
        found = fit_rows(table, rows, source=data, progress=progress, **options).fit
    told: dict[str, Any] = {"kind": f"rows: {found.rule}", "rows": len(found.model.records)}
    told["columns"] = list(found.columns)
    if found.rule != "independent":
        told["states"] = [f"{name}: {states}" for name, states in found.columns.items()]
    if found.skipped:
        told["left_out"] = [f"{name}: {why}" for name, why in found.skipped.items()]
    told["rests_on"] = [f"[ ] {claim}" for claim in found.assumptions]
    return told, found.model


def _fit_chain(values: Any, epsilon: float, confidence: float, **how: Any) -> tuple[dict[str, Any], Any]:
    from quiltdp import dp_epsilon
    from quiltdp.domains.series.chain import fit_chain

    found = fit_chain(values, **how).fit
    with progress_bar() as progress:
        fitted = 1.0 / dp_epsilon(found.model, epsilon, progress=progress)
        if progress is not None:
            progress("every chain that the counts allow", 0.5)
        robust = 1.0 / found.robust_dp_epsilon(epsilon, confidence)
    return {
        "kind": "Markov chain",
        "steps": len(found.model.records),
        **({"groups": len(found.model.segments)} if how["group"] else {}),
        "states": list(found.bins.names),
        "binning": found.bins.rule,
        "transitions": int(found.counts.sum()),
        "order": f"{found.order} by {found.criterion} (the model is of order 1)",
        "spectral_gap": found.diagnostics.gap,
        "first_step": found.model.provenance["initial"],
        "halves_differ": "too few values" if found.stationarity is None else found.stationarity,
        "sigma_of_the_fit": fitted,
        "sigma_if_off_by_sampling_error": robust,
        "told_for": f"ε = {epsilon:g}, sensitivity 1, informed adversary, confidence {confidence:g}",
        "notes": list(found.model.notes),
    }, found.model


def _fit_network(
    columns: Any, states: int, edge: list[str] | None, source: str
) -> tuple[dict[str, Any], Any]:
    from quiltdp.domains.series.network import fit_network

    edges = None
    if edge:
        edges = []
        for text in edge:
            parent, arrow, child = text.partition(">")
            if not arrow or not parent.strip() or not child.strip():
                raise InvalidArgument(f"--edge {text!r}: write PARENT>CHILD")
            edges.append((parent.strip(), child.strip()))
    found = fit_network(columns, states=states, edges=edges, source=source).fit
    return {
        "kind": "Bayesian network",
        "columns": list(columns),
        "edges": [f"{a} → {b}" for a, b in found.edges],
        "edges_found": found.criterion,
        "notes": list(found.model.notes),
    }, found.model

"""A Bayesian network over the columns of a table, through pgmpy's structure learning or given edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.series.bins import Bins, find_bins
from quiltdp.domains.series.parts import plain_values
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model

_WARNING = "fit on public or past data: a model fitted on the records to be protected tells about them itself"
_LARGEST = 2**20


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A fitted network, the states of its columns, and how its edges were found."""

    model: Model
    bins: Mapping[str, Bins]
    edges: tuple[tuple[str, str], ...]
    criterion: str


def fit_network(
    columns: Mapping[str, Sequence[object]],
    *,
    states: int = 4,
    edges: Sequence[tuple[str, str]] | None = None,
    smoothing: float = 1.0,
    max_parents: int = 3,
    source: str = "a table",
) -> Model:
    """Fit a Bayesian network over the columns of a table of independent rows; ``fit`` says how.

    Parameters
    ----------
    columns
        Column → its values (a DataFrame will do); texts are states, numbers are cut into ``states``
        quantiles.
    edges
        Parent → child pairs; default: hill climbing on BIC (pgmpy).
    smoothing
        Added to every count; never silent: the notes say so.
    max_parents
        The most parents that the search gives a column.

    Raises
    ------
    InvalidArgument
        If the columns differ in length, or an edge names a column that is not there.
    """
    columns = {str(name): plain_values(columns[name]) for name in columns}
    for name, values in columns.items():
        if None in values:
            raise InvalidArgument(
                f"column {name!r} has no value in row {list(values).index(None) + 1}: fill it, leave the row"
                " out or the column"
            )
    lengths = {name: len(values) for name, values in columns.items()}
    if not lengths or len(set(lengths.values())) > 1:
        raise InvalidArgument(f"the columns must have the same number of values, not {lengths}")
    if not (np.isfinite(smoothing) and smoothing > 0):
        raise InvalidArgument(f"{option('smoothing')} must be a positive number, not {smoothing!r}")
    bins = {name: find_bins(values, states) for name, values in columns.items()}
    numbered = {name: bins[name].states(values) for name, values in columns.items()}
    if edges is None:
        chosen, criterion = _learn_edges(numbered, bins, max_parents), "hill climbing on BIC (pgmpy)"
    else:
        chosen, criterion = _check_given_edges(edges, columns), "given"
    tables = {}
    for name in columns:
        parents = [a for a, b in chosen if b == name]
        tables[name] = (parents, _conditional_table(numbered, bins, parents, name, smoothing))
    model = Model.from_tables(
        tables,
        states={name: found.names for name, found in bins.items()},
        notes=(f"smoothed: {smoothing:g} added to every count", _WARNING),
        provenance={"source": source, "format": "fitted network", "edges": criterion},
    )
    return model._attach_fit(NetworkFit(model, bins, chosen, criterion))


def _check_given_edges(
    edges: Sequence[tuple[str, str]], columns: Mapping[str, Sequence[object]]
) -> tuple[tuple[str, str], ...]:
    for pair in edges:
        for name in pair:
            if name not in columns:
                raise InvalidArgument(f"{option('edges')}: there is no column {name!r}")
    return tuple((a, b) for a, b in edges)


def _learn_edges(
    numbered: Mapping[str, NDArray[np.int64]], bins: Mapping[str, Bins], max_parents: int
) -> tuple[tuple[str, str], ...]:
    """Return the edges that hill climbing on BIC finds, in the order of the columns."""
    import pandas as pd
    from pgmpy.causal_discovery import HillClimbSearch

    names = [n for n in numbered if len(bins[n].names) > 1]
    if len(names) < 2:
        return ()
    frame = pd.DataFrame({n: pd.Categorical(numbered[n]) for n in names})
    search = HillClimbSearch(
        scoring_method="bic-d", max_indegree=max_parents, return_type="dag", show_progress=False
    )
    found = search.fit(frame).causal_graph_
    place = {n: k for k, n in enumerate(numbered)}
    return tuple(
        sorted(((str(a), str(b)) for a, b in found.edges()), key=lambda e: (place[e[1]], place[e[0]]))
    )


def _conditional_table(
    numbered: Mapping[str, NDArray[np.int64]],
    bins: Mapping[str, Bins],
    parents: Sequence[str],
    name: str,
    smoothing: float,
) -> NDArray[np.float64]:
    shape = tuple(len(bins[n].names) for n in (*parents, name))
    if int(np.prod(shape)) > _LARGEST:
        raise InvalidArgument(
            f"the table of {name!r} would have {int(np.prod(shape)):,} entries: fewer parents or states"
        )
    counts = np.full(shape, float(smoothing))
    np.add.at(counts, tuple(numbered[n] for n in (*parents, name)), 1.0)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))

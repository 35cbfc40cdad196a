"""A model of how the rows of a table depend on each other, by a stated rule: for a holdout of rows.

========================= =======================================================================
rows                      the model
========================= =======================================================================
``independent``           every row on its own: unrelated people, drawn one by one
``time``                  a Markov chain of one column, rows in the order of time: of all columns the
                          one whose chain needs the most noise
========================= =======================================================================

The rule cannot be seen in the data: ``independent`` is a claim about how they were collected.  ``time``
assumes that rows depend on each other through the chosen column alone.  Rows that belong together otherwise
(a household, several visits of one patient) are neither: keep one of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.accountant.profile import dp_epsilon
from quiltdp.chain import ChainModel, markov_chain
from quiltdp.domains.series.chain import fit_series
from quiltdp.errors import InvalidArgument, QuiltdpError, option

__all__ = ["RowsFit", "columns_of", "fit_rows"]

_COIN = np.full((2, 2), 0.5)


@dataclass(frozen=True, eq=False)
class RowsFit:
    """A model of rows and how it was chosen.

    Attributes
    ----------
    model
        A chain with one record per row.
    rule
        ``independent`` or ``time``.
    noise
        What a sum of one number per row needs at ε by every column that could be fitted, relative to
        independent rows; for ``time`` only.
    skipped
        Columns that could not be fitted, and why.
    assumptions
        What the model takes for granted, to be checked by who knows the data.
    """

    model: ChainModel
    rule: str
    noise: Mapping[str, float]
    skipped: Mapping[str, str]
    assumptions: tuple[str, ...]


def columns_of(table: Any) -> dict[str, list[Any]]:
    """Return the columns of a DataFrame or a mapping as plain lists; missing values are refused by row.

    Truth values become 0 and 1, categories their labels.

    Examples
    --------
    >>> columns_of({"flag": [False, True], "town": ["Oslo", "Rome"]})
    {'flag': [0, 1], 'town': ['Oslo', 'Rome']}
    """
    found: dict[str, list[Any]] = {}
    for name in table:
        values = list(table[name])
        for row, value in enumerate(values):
            if _missing(value):
                raise InvalidArgument(
                    f"column {str(name)!r} has no value in row {row + 1}: fill it, leave the row out or the"
                    " column"
                )
        found[str(name)] = [int(v) if isinstance(v, (bool, np.bool_)) else v for v in values]
    return found


def _missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, or pandas' NA and NaT."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def fit_rows(
    table: Any,
    rows: str,
    *,
    length: int | None = None,
    states: int = 8,
    epsilon: float = 1.0,
    source: str = "a table",
) -> RowsFit:
    """Return the model of the rows of a holdout, by the rule that is named; see this module.

    Parameters
    ----------
    table
        A DataFrame or a mapping of columns: public or past data of the same kind, not the holdout.
    rows
        ``independent`` or ``time``.
    length
        How many rows the holdout has; default as many as the table.
    states, epsilon
        For ``time``: how numbers are cut, and the target at which columns are compared.

    Examples
    --------
    >>> past = {"slow": [0, 0, 0, 1, 1, 1] * 50, "coin": [0, 1, 1, 0] * 75}
    >>> found = fit_rows(past, "time", length=50_000)
    >>> found.rule, sorted(found.noise), len(found.model.nodes)
    ('time', ['coin', 'slow'], 50000)
    """
    columns = columns_of(table)
    counts = {len(values) for values in columns.values()}
    if len(counts) != 1 or not min(counts):
        raise InvalidArgument("the table needs columns of one length, with at least one row")
    size = counts.pop() if length is None else length
    if size < 1:
        raise InvalidArgument(f"{option('length')} must be at least 1, not {length!r}")
    if rows == "independent":
        return _independent(size, source)
    if rows == "time":
        return _slowest(columns, size, states, epsilon, source)
    raise InvalidArgument(f"{option('rows')} must be independent or time, not {rows!r}")


def _independent(size: int, source: str) -> RowsFit:
    said = "every row is on its own: nobody is in two rows, and no row was drawn because of another"
    model = markov_chain(
        _COIN, size, initial=_COIN[0], notes=(said,), provenance=_provenance("independent", source)
    )
    return RowsFit(model, "independent", {}, {}, (said,))


def _slowest(
    columns: Mapping[str, Sequence[Any]], size: int, states: int, epsilon: float, source: str
) -> RowsFit:
    """Return the chain of the column that needs the most noise."""
    noise: dict[str, float] = {}
    skipped: dict[str, str] = {}
    models: dict[str, ChainModel] = {}
    for name, values in columns.items():
        try:
            made = fit_series(values, states, length=size, source=f"{source}, column {name}")
        except QuiltdpError as error:
            skipped[name] = error.reason
            continue
        models[name] = made.model
        noise[name] = epsilon / dp_epsilon(made.model, epsilon)
    if not noise:
        raise InvalidArgument(f"no column could be fitted: {next(iter(skipped.values()))}")
    chosen = max(noise, key=noise.__getitem__)
    said = (
        "the rows are in the order of time, one step apart",
        f"rows depend on each other through {chosen!r} alone: given its state, the rest of a row tells"
        " nothing about other rows",
        "the holdout moves like the data the chain was fitted on, which are not the holdout",
    )
    model = models[chosen]
    told = ChainModel(
        model.segments, model.states[model.nodes[0]], notes=(*model.notes, *said),
        provenance={**model.provenance, "rows": "time"},
    )  # fmt: skip
    return RowsFit(told, "time", noise, skipped, said)


def _provenance(rows: str, source: str) -> dict[str, str]:
    return {"source": source, "format": "fitted chain", "rows": rows}

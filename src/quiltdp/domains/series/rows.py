"""A model of how the rows of a table depend on each other, by a stated rule: for a holdout of rows.

========================= =======================================================================
rows                      the model
========================= =======================================================================
``independent``           every row on its own: unrelated people, drawn one by one
``time``                  a Markov chain of one column, rows in the order of time: of all columns the
                          one whose chain needs the most noise
========================= =======================================================================

The rule cannot be seen in the data: ``independent`` is a claim about how they were collected.  ``time``
assumes that rows depend on each other through the chosen column alone; with ``group`` every group (a machine,
a user) is a chain of its own, and groups are independent.  Rows that belong together without an order (a
household) are neither: keep one of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.accountant.profile import dp_epsilon
from quiltdp.chain import ChainModel, markov_chain
from quiltdp.domains.series.chain import fit_series
from quiltdp.domains.series.parts import plain_values
from quiltdp.errors import InvalidArgument, QuiltdpError, option
from quiltdp.parallel import Progress

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


def columns_of(table: Any, missing: str = "refuse") -> dict[str, list[Any]]:
    """Return the columns of a DataFrame or a mapping as plain lists; missing values are refused by row.

    Truth values become 0 and 1, categories their labels.  With ``missing="gap"`` a missing value is
    ``None``.

    Examples
    --------
    >>> columns_of({"flag": [False, True], "town": ["Oslo", "Rome"]})
    {'flag': [0, 1], 'town': ['Oslo', 'Rome']}
    """
    found: dict[str, list[Any]] = {}
    for name in table:
        values = plain_values(table[name])
        if missing != "gap" and None in values:
            raise InvalidArgument(
                f"column {str(name)!r} has no value in row {values.index(None) + 1}: fill it, leave the row"
                f" out or the column, or take it for a step that nobody saw ({option('missing', 'gap')})"
            )
        found[str(name)] = values
    return found


def fit_rows(
    table: Any,
    rows: str,
    *,
    length: int | None = None,
    states: int = 8,
    epsilon: float = 1.0,
    group: str | None = None,
    time: str | None = None,
    missing: str = "refuse",
    initial: str = "auto",
    source: str = "a table",
    progress: Progress | None = None,
) -> RowsFit:
    """Return the model of the rows of a holdout, by the rule that is named; see this module.

    Parameters
    ----------
    table
        A DataFrame or a mapping of columns: public or past data of the same kind, not the holdout.
    rows
        ``independent`` or ``time``.
    length
        How many rows the holdout has (with ``group``: every group of it); default as many as the table.
    states, epsilon
        For ``time``: how numbers are cut, and the target at which columns are compared.
    group, time
        For ``time``: the columns that say what a row belongs to, and when it was.
    missing, initial
        For ``time``: see :func:`~quiltdp.domains.series.chain.fit_series`.
    progress
        Called with a label and a fraction in [0, 1].

    Examples
    --------
    >>> past = {"slow": [0, 0, 0, 1, 1, 1] * 50, "coin": [0, 1, 1, 0] * 75}
    >>> found = fit_rows(past, "time", length=50_000)
    >>> found.rule, sorted(found.noise), len(found.model.nodes)
    ('time', ['coin', 'slow'], 50000)
    """
    columns = columns_of(table, missing)
    for what, name in (("group", group), ("time", time)):
        if name is not None and name not in columns:
            raise InvalidArgument(
                f"{option(what)}: there is no column {name!r}; the columns are {', '.join(columns)}"
            )
    counts = {len(values) for values in columns.values()}
    if len(counts) != 1 or not min(counts):
        raise InvalidArgument("the table needs columns of one length, with at least one row")
    size = counts.pop() if length is None else length
    if size < 1:
        raise InvalidArgument(f"{option('length')} must be at least 1, not {length!r}")
    if rows == "independent":
        if group is not None or time is not None:
            raise InvalidArgument(
                f"{option('group')} and {option('time')} belong to rows that follow each other:"
                f" {option('rows', 'time')}"
            )
        return _independent(size, source)
    if rows == "time":
        how = {
            "length": length,
            "group": None if group is None else columns.pop(group),
            "time": None if time is None else columns.pop(time),
            "missing": missing,
            "initial": initial,
        }
        return _slowest(columns, states, epsilon, source, how, progress)
    raise InvalidArgument(f"{option('rows')} must be independent or time, not {rows!r}")


def _independent(size: int, source: str) -> RowsFit:
    said = "every row is on its own: nobody is in two rows, and no row was drawn because of another"
    model = markov_chain(
        _COIN, size, initial=_COIN[0], notes=(said,), provenance=_provenance("independent", source)
    )
    return RowsFit(model, "independent", {}, {}, (said,))


def _slowest(
    columns: Mapping[str, Sequence[Any]],
    states: int,
    epsilon: float,
    source: str,
    how: Mapping[str, Any],
    progress: Progress | None,
) -> RowsFit:
    """Return the chain of the column that needs the most noise."""
    noise: dict[str, float] = {}
    skipped: dict[str, str] = {}
    models: dict[str, ChainModel] = {}
    for k, (name, values) in enumerate(columns.items()):
        if progress is not None:
            progress(f"column {name}", k / len(columns))
        try:
            made = fit_series(values, states, source=f"{source}, column {name}", **how)
        except QuiltdpError as error:
            skipped[name] = error.reason
            continue
        models[name] = made.model
        noise[name] = epsilon / dp_epsilon(made.model, epsilon)
    if not noise:
        raise InvalidArgument(f"no column could be fitted: {next(iter(skipped.values()))}")
    chosen = max(noise, key=noise.__getitem__)
    together = () if how["group"] is None else ("groups are independent of each other, and move alike",)
    said = (
        "the rows are in the order of time, one step apart" + (", within each group" if together else ""),
        *together,
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

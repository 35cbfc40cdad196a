"""A model of how the rows of a table depend on each other, by a stated rule: for a holdout of rows.

========================= =======================================================================
rows                      the model
========================= =======================================================================
``independent``           every row on its own: unrelated people, drawn one by one
``time``                  a Markov chain over the joint states of the columns, rows in the order of time
``group``                 rows that belong together (a family, a patient) depend on each other, rows of
                          different groups do not
========================= =======================================================================

The rule is a claim about how the data were collected: no test can find it.  What it takes for granted is
tested on the table (:mod:`~quiltdp.domains.series.dependence`), and refused where the table speaks against
it.  Questions may read the columns of a chain or of groups, and no others.

Within a group rows may depend on each other in any way.  How much is one number, ρ: the largest correlation
that any function of the joint state of a row has with the same function of another row of its group, over
all pairs in the table (and not less than that of any function that is tested).  The model has groups in
which every function of a row has correlation ρ: a row copies what its group hides with probability √ρ, *all*
of it, and else is drawn anew.  So the variance of every mean over rows is at most the model's.  With too few
groups to see ρ, rows of a group are copies.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import markov_chain, markov_chains
from quiltdp.domains.series.bins import joint_chain, joint_states
from quiltdp.domains.series.dependence import Feature, find_violation, make_features
from quiltdp.domains.series.parts import UNSEEN, make_parts, plain_values, windows
from quiltdp.domains.trace.estimate import first_step_law
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model
from quiltdp.parallel import Progress

Ints = NDArray[np.int64]

Columns = Mapping[str, Sequence[Any]]
_COIN = np.full((2, 2), 0.5)
_LEAST_ROWS = 100
_MOST_IN_GROUPS = 16  # joint states: more would show correlation that is chance
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d{2}")
_ORDERED = 10  # a column that never turns back counts something when it has as many values


@dataclass(frozen=True, eq=False)
class RowsFit:
    """A model of rows and how it was chosen.

    Attributes
    ----------
    model
        One record per row.
    rule
        ``independent``, ``time`` or ``group``.
    columns
        The columns that questions may read, with how many states each has in the model.
    skipped
        Columns that were left out, and why.
    assumptions
        What the model takes for granted, to be checked by who knows the data.
    """

    model: Model
    rule: str
    columns: Mapping[str, int]
    skipped: Mapping[str, str]
    assumptions: tuple[str, ...]


def named_columns(table: Any, missing: str = "refuse") -> dict[str, list[Any]]:
    """Return the columns of a DataFrame or a mapping as plain lists; missing values are refused by row.

    Truth values become 0 and 1, categories their labels.  With ``missing="gap"`` a missing value is
    ``None``.

    Examples
    --------
    >>> named_columns({"flag": [False, True], "town": ["Oslo", "Rome"]})
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
    read: Sequence[str] | None = None,
    states: int = 8,
    unit: str | None = None,
    group: str | None = None,
    time: str | None = None,
    missing: str = "refuse",
    initial: str = "auto",
    source: str = "a table",
    progress: Progress | None = None,
) -> Model:
    """Return the model of the rows of a holdout, by the rule that is named; its ``fit`` says how.

    Parameters
    ----------
    table
        A DataFrame or a mapping of columns: public or past data of the same kind, not the holdout.
    rows
        ``independent``, ``time`` or ``group``.
    length
        How many rows the holdout has (with ``group``: every group of it); default as many as the table.
    read
        The columns that questions may read; default all that do not count rows or say when they were.
    states
        How many states numbers are cut into at most.
    unit
        For ``group``: the column that says which rows belong together.
    group, time
        For ``time``: the columns that say what a row belongs to, and when it was.
    missing, initial
        For ``time``: see :func:`~quiltdp.domains.series.chain.fit_chain`.
    progress
        Called with a label and a fraction in [0, 1].

    Raises
    ------
    InvalidArgument
        If the table speaks against the rule, naming the columns and the lag; if it has too few rows or the
        columns too many joint states; or if an option makes no sense.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> past = {"slow": np.cumsum(rng.random(900) < 0.2) % 2, "id": range(900)}
    >>> past["coin"] = rng.integers(0, 2, 900)
    >>> model = fit_rows(past, "time", length=50_000)
    >>> model.fit.columns, model.fit.skipped, len(model.nodes)
    ({'slow': 2, 'coin': 2}, {'id': 'it counts the rows'}, 50000)
    """
    columns = named_columns(table, missing)
    for what, names in (("group", [group]), ("time", [time]), ("unit", [unit]), ("read", read or [])):
        for name in names:
            if name is not None and name not in columns:
                raise InvalidArgument(
                    f"{option(what)}: there is no column {name!r}; the columns are {', '.join(columns)}"
                )
    counts = {len(values) for values in columns.values()}
    if len(counts) != 1:
        raise InvalidArgument("the table needs columns of one length")
    if rows not in ("independent", "time", "group"):
        raise InvalidArgument(f"{option('rows')} must be independent, time or group, not {rows!r}")
    _refuse_few_rows(counts.pop(), rows)
    if length is not None and length < 1:
        raise InvalidArgument(f"{option('length')} must be at least 1, not {length!r}")
    if rows != "time" and (group is not None or time is not None):
        raise InvalidArgument(
            f"{option('group')} and {option('time')} belong to rows that follow each other:"
            f" {option('rows', 'time')}"
        )
    if (unit is not None) != (rows == "group"):
        raise InvalidArgument(f"{option('rows', 'group')} and {option('unit')} belong together")
    named = {
        what: columns.pop(name) for what, name in (("group", group), ("time", time), ("unit", unit)) if name
    }
    skipped = {} if read else _row_counting_columns(columns, named.get("group", named.get("unit")))
    columns = {name: columns[name] for name in columns if (name in read if read else name not in skipped)}
    if not columns:
        raise InvalidArgument("no column is left that questions could read")
    data = _TableRows(columns, skipped, length, states, source, progress)
    if rows == "independent":
        return _fit_independent_rows(data)
    if rows == "group":
        return _fit_groups_of_rows(data, named["unit"])
    return _fit_chain_of_rows(data, named.get("group"), named.get("time"), missing, initial)


@dataclass(frozen=True, eq=False)
class _TableRows:
    """The columns that questions may read, and what all three rules need besides."""

    columns: Columns
    skipped: Mapping[str, str]
    length: int | None
    states: int
    source: str
    progress: Progress | None

    def refuse_other_dependence(self, rule: str, *rows: Any) -> None:
        """Refuse rows that depend on each other beyond the model."""
        violation = find_violation(*rows, progress=self.progress)
        if violation is None:
            return
        words = {"time": option("rows", "time"), "group": option("rows", "group"), "read": option("read")}
        of = "groups depend" if rule == "group" else "rows depend"
        raise InvalidArgument(
            f"the {of} on each other beyond {option('rows', rule)}: {violation};"
            f" {_REMEDY[rule].format(**words)}"
        )

    def row_features(self, joint: Ints) -> list[Feature]:
        """Return functions of every row; 0 where a cell has no value."""
        seen = np.flatnonzero(joint != UNSEEN)
        read = {name: [values[int(k)] for k in seen] for name, values in self.columns.items()}
        features = []
        for f in make_features(read, joint[seen]):
            values = np.zeros(len(joint))
            values[seen] = f.values
            features.append(Feature(f.name, values))
        return features

    def provenance(self, rows: str) -> dict[str, str]:
        """Return where a model by this rule comes from."""
        columns = json.dumps(list(self.columns))
        return {"source": self.source, "format": "model of rows", "rows": rows, "columns": columns}

    def with_fit(
        self, model: Model, rule: str, sizes: Mapping[str, int], assumptions: tuple[str, ...]
    ) -> Model:
        """Return the model with how it was chosen."""
        return model._attach_fit(RowsFit(model, rule, sizes, self.skipped, assumptions))


def _refuse_few_rows(count: int, rows: str) -> None:
    least = 3 if rows == "independent" else _LEAST_ROWS
    if count < least:
        raise InvalidArgument(f"the table has {count} rows: {option('rows', rows)} needs {least} at least")


def _row_counting_columns(columns: Columns, group: Sequence[Any] | None) -> dict[str, str]:
    """Return the columns that count rows or say when they were, and why they are left out."""
    found: dict[str, str] = {}
    parts = make_parts([0] * len(next(iter(columns.values()))), group=group)[0] if columns else ()
    for name, values in columns.items():
        if not all(isinstance(v, (int, float)) for v in values):
            texts = [str(v) for v in values if v is not None]
            if texts and all(_DATE.match(t) for t in texts):
                found[name] = "it is a date"
            elif len(set(texts)) > len(texts) / 2 and len(texts) > _ORDERED:
                found[name] = "nearly every row has a text of its own"
            continue
        numbers = np.asarray(values, dtype=np.float64)
        moves = np.unique(np.concatenate([np.zeros(0), *(np.diff(numbers[part.rows]) for part in parts)]))
        kinds = len(np.unique(numbers)) if len(moves) else 0
        wraps = kinds > 2 and len(moves) == 2 and moves[0] == numbers.min() - numbers.max()
        onward = kinds >= (3 if group is not None else _ORDERED) and (moves[0] >= 0 or moves[-1] <= 0)
        if wraps or onward:
            found[name] = "it counts the rows"
    return found


def _fit_independent_rows(data: _TableRows) -> Model:
    joint = joint_states(data.columns, 2, most=1 << 62).of_row
    seen = np.flatnonzero(joint != UNSEEN)
    alone = np.zeros(len(joint), dtype=np.int64)
    data.refuse_other_dependence("independent", data.row_features(joint), alone, np.ones((1, 1)), seen, seen)
    said = ("every row is on its own: nobody is in two rows, and no row was drawn because of another",)
    told = {"source": data.source, "format": "model of rows", "rows": "independent"}
    size = len(joint) if data.length is None else data.length
    model = markov_chain(_COIN, size, initial=_COIN[0], notes=said, provenance=told)
    return data.with_fit(model, "independent", dict.fromkeys(data.columns, 1), said)


def _fit_chain_of_rows(
    data: _TableRows, group: Sequence[Any] | None, time: Sequence[Any] | None, missing: str, initial: str
) -> Model:
    """Return the chain over the joint states of the columns."""
    joint = joint_states(data.columns, data.states)
    cells = [None if state == UNSEEN else state for state in joint.of_row]
    parts, noticed = make_parts(cells, group=group, time=time, missing=missing)
    pairs = windows(parts, joint.of_row, 2)
    if len(pairs) < _LEAST_ROWS - 1:
        raise InvalidArgument(f"only {len(pairs)} rows follow another one step later: too few for a chain")
    matrix = joint_chain(joint, pairs)
    features = data.row_features(joint.of_row)
    line = np.concatenate([part.rows for part in parts])
    before = np.concatenate([np.r_[UNSEEN, part.rows[:-1]] for part in parts])
    data.refuse_other_dependence("time", features, joint.of_row, matrix, line, before)
    if len(parts) > 1 and all((np.diff(part.rows[part.rows != UNSEEN]) > 0).all() for part in parts):
        earlier = np.full(len(joint.of_row), UNSEEN)  # rows as they stand in the table: groups side by side
        earlier[line[line != UNSEEN]] = before[line != UNSEEN]
        data.refuse_other_dependence("time", features, joint.of_row, matrix, np.arange(len(earlier)), earlier)
    together = () if group is None else ("groups are independent of each other, and move alike",)
    read = ", ".join(map(repr, data.columns))
    said = (
        "the rows are in the order of time, one step apart" + (", within each group" if together else ""),
        *together,
        f"given the joint state of {read}, a row tells no more about later rows",
        f"questions read {read}, and no other column",
        "the holdout moves like the data the chain was fitted on, which are not the holdout, and nothing"
        " changes so slowly that those data have seen one side of it only",
    )
    occupied = np.bincount(joint.of_row[joint.of_row != UNSEEN])
    law, named, also = first_step_law(initial, occupied / occupied.sum(), matrix)
    provenance = {**data.provenance("time"), "format": "fitted chain", "initial": named}
    told: dict[str, Any] = {
        "states": joint.names,
        "notes": (*noticed, *also, *said),
        "provenance": provenance,
    }
    lengths = {f"{part.name}/": len(part.rows) if data.length is None else data.length for part in parts}
    model = (
        markov_chain(matrix, length=lengths["/"], initial=law, **told)
        if group is None
        else markov_chains(matrix, lengths, law, **told)
    )
    return data.with_fit(model, "time", joint.sizes, said)


def _fit_groups_of_rows(data: _TableRows, unit: Sequence[Any]) -> Model:
    """Return groups whose rows depend on each other as much as any function of a row does."""
    groups = [part.rows for part in make_parts([0] * len(unit), group=unit)[0]]
    if len(groups) < 2:
        raise InvalidArgument(
            f"{option('unit')}: all rows belong to one group, and nothing is known of others"
        )
    joint = joint_states(data.columns, data.states, most=_MOST_IN_GROUPS)
    if (joint.of_row == UNSEEN).any():
        raise InvalidArgument("rows in groups need a value in every cell")
    features = data.row_features(joint.of_row)
    one, order = np.zeros(len(groups), dtype=np.int64), np.arange(len(groups))
    data.refuse_other_dependence(
        "group", _means_of_groups(features, groups), one, np.ones((1, 1)), order, order
    )
    correlation = largest_correlation(joint.of_row, features, groups)
    said = (
        "nobody is in two groups, and no group was drawn because of another",
        f"no function of a row has a correlation above {correlation:.3g} with another row of its group",
        f"questions read {', '.join(map(repr, data.columns))}, and no other column",
        "the groups of the holdout are as large as those of the data, and alike",
    )
    share = np.bincount(joint.of_row) / len(joint.of_row)
    sizes = [len(rows) for rows in groups]
    model = _group_model(
        correlation, share, sizes, data.length, notes=said, provenance=data.provenance("group")
    )
    return data.with_fit(model, "group", joint.sizes, said)


_REMEDY = {
    "independent": "say how the rows belong together ({time}, {group}), or put them in the order in which"
    " they were drawn if somebody sorted them",
    "time": "a chain of single rows forgets too quickly: declare stretches that are independent of each"
    " other ({group}), or name only the columns that questions read ({read})",
    "group": "take units that are independent of each other",
}


# -- groups --------------------------------------------------------------------------------------------

FEWEST = 100
"""With fewer groups of two rows or more, rows of a group are taken for copies."""


def largest_correlation(states: Ints, features: Sequence[Feature], groups: Sequence[Ints]) -> float:
    """Return ρ.

    Examples
    --------
    >>> pairs = [np.array([2 * k, 2 * k + 1]) for k in range(200)]
    >>> round(largest_correlation(np.arange(400) // 2 % 2, [], pairs), 9)
    1.0
    """
    if sum(len(rows) > 1 for rows in groups) < FEWEST:
        return 1.0
    count = len(states)
    which = np.empty(count, dtype=np.int64)
    for k, rows in enumerate(groups):
        which[rows] = k
    sizes = np.bincount(which)
    pairs = float((sizes * (sizes - 1)).sum())
    share = np.bincount(states) / count
    table = np.zeros((len(groups), len(share)))
    np.add.at(table, (which, states), 1.0)
    table = (table - sizes[:, None] * share) / np.sqrt(share)
    alone = np.eye(len(share)) - np.outer(np.sqrt(share), np.sqrt(share))  # a row with itself
    found = [float(np.linalg.eigvalsh((table.T @ table - count * alone) / pairs)[-1])]
    for feature in features:
        f = feature.values - feature.values.mean()
        found.append(float(((np.bincount(which, f) ** 2).sum() - f @ f) / pairs / f.var()))
    return min(1.0, max(0.0, *found))


def _group_model(
    correlation: float, share: NDArray[np.float64], sizes: Sequence[int], length: int | None,
    *, notes: Sequence[str], provenance: Mapping[str, str],
) -> Model:  # fmt: skip
    """Return the model of so many rows, in groups of these sizes, over and over if need be."""
    wanted = sum(sizes) if length is None else length
    copying = math.sqrt(correlation)
    table = copying * np.eye(len(share)) + (1 - copying) * share
    tables: dict[str, tuple[list[str], NDArray[np.float64]]] = {}
    records: list[str] = []
    for k, size in enumerate(cycle(sizes)):
        rows = [f"g{k}/{j}" for j in range(min(size, wanted - len(records)))]
        if not rows:
            break
        tables |= {f"g{k}": ([], share), **{row: ([f"g{k}"], table) for row in rows}}
        records += rows
    return Model.from_tables(tables, records, notes=notes, provenance=provenance)


def _means_of_groups(features: Sequence[Feature], groups: Sequence[Ints]) -> list[Feature]:
    """Return every function as its mean over each group, in the order of groups."""
    return [Feature(f.name, np.array([f.values[rows].mean() for rows in groups])) for f in features]

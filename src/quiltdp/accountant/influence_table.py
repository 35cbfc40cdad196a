"""The influence table: for every record the quilt that Lemma 2 uses, with |N|, b, a and its leakage.

Lemma 2 of Zhao bounds the leakage of a record i by |C| α + 4 b_i(C), for any quilt with C = {i} ∪ N; the
best quilt depends on α.  The table is taken at the largest α whose published leakages are at most ε: the
record with the largest one, and its quilt, force the published noise.

References
----------
J. Zhao, Adaptive Statistical Learning with Bayesian Differential Privacy, WPES 2017, Lemmas 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.request import Work
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import UnknownNode
from quiltdp.graph.quilt import Quilt
from quiltdp.inference.influence import quilt_influence
from quiltdp.inference.workspace import moral_graph
from quiltdp.interface import any_model
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.printable import printable

COLUMNS = ("record", "separator", "|N|", "b", "a", "published leakage")
_LISTED = 40  # rows of a printed table


@dataclass(frozen=True)
class RecordInfluence:
    """What the published lemmas say about one record.

    Attributes
    ----------
    record, quilt
        The record, and its quilt with the smallest |C| α + 4 b among those listed, the trivial one included.
    b
        The influence of that quilt, max_L I(X_Q ⇝ X_i | X_L) over the known L ⊆ N; 0 for the trivial quilt.
    a
        The influence of the Markov blanket, a_i of Lemma 3.
    leakage
        The published leakage |C| α + 4 b, rounded up.
    b_exact, a_exact
        False where a table would be too large (a hub) and the number is an upper bound.
    """

    record: str
    quilt: Quilt
    b: float
    a: float
    leakage: float
    b_exact: bool = True
    a_exact: bool = True

    @property
    def separator(self) -> list[str]:
        """The separator of the quilt, in the order of the nodes."""
        return sorted(self.quilt.separator, key=self.quilt.graph.index.__getitem__)

    @property
    def nearby_records(self) -> int:
        """|N|, counting records."""
        return self.quilt.nearby_records

    def __str__(self) -> str:
        """Read as one line."""
        around = ", ".join(self.separator)
        quilt = f"its quilt {{{around}}}" if around else "the quilt of its whole component"
        numbers = f"|N| = {self.nearby_records}, b = {_format_number(self.b, self.b_exact)}"
        return printable(f"{self.record}: {quilt}, {numbers}")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "record": self.record,
            "separator": self.separator,
            "nearby_records": self.nearby_records,
            "b": self.b,
            "b_exact": self.b_exact,
            "a": self.a,
            "a_exact": self.a_exact,
            "leakage": self.leakage,
        }


@dataclass(frozen=True)
class InfluenceTable(Mapping[str, RecordInfluence]):
    """A :class:`RecordInfluence` for every record, at one α (``dp_epsilon``)."""

    rows: Mapping[str, RecordInfluence]
    dp_epsilon: float

    def __getitem__(self, record: str) -> RecordInfluence:
        if record not in self.rows:
            raise UnknownNode(f"{record!r} is no record of this table")
        return self.rows[record]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def binding(self) -> RecordInfluence:
        """The record whose quilt forces the published number: the one with the largest leakage."""
        return max(self.rows.values(), key=lambda row: row.leakage)

    def cells(self, most: int | None = None) -> list[tuple[str, ...]]:
        """Return record, separator, |N|, b, a and published leakage as texts; ≤ marks an upper bound."""
        return [
            (
                printable(r.record),
                printable(", ".join(r.separator)) or "–",
                str(r.nearby_records),
                _format_number(r.b, r.b_exact),
                _format_number(r.a, r.a_exact),
                _format_number(r.leakage),
            )
            for r in islice(self.rows.values(), most)
        ]

    def __str__(self) -> str:
        """Read as a table."""
        rows = [COLUMNS, *self.cells(_LISTED)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        more = [f"… {len(self) - _LISTED:,} more"] if len(self) > _LISTED else []
        return "\n".join([f"influence table at α = {format_up(self.dp_epsilon, 4)}", *lines, *more])


def _format_number(value: float, exact: bool = True) -> str:
    return ("" if exact else "≤ ") + ("∞" if math.isinf(value) else format_up(value, 4))


@any_model
def influence_table(
    model: Model,
    epsilon: float = 1.0,
    *,
    dp_epsilon: float | None = None,
    records: Iterable[str] | None = None,
    work: Work = "normal",
) -> InfluenceTable:
    """Return for every record the quilt that Lemma 2 uses, |N|, b, a, and the published leakage.

    Parameters
    ----------
    model
        Any model.
    epsilon
        The Bayesian DP target: the table is that of the largest α with published leakages of at most ε.
    dp_epsilon
        α itself, instead of ε.
    records
        Only these rows; default all.
    work
        How many quilts of a record are listed: ``quick``, ``normal`` or ``thorough``.

    Examples
    --------
    >>> import quiltdp as qd
    >>> table = qd.influence_table(qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=20))
    >>> row = table.binding
    >>> row.record, row.separator, row.nearby_records, round(row.b, 3), round(row.a, 3)
    ('X3', ['X0', 'X6'], 4, 0.032, 0.811)
    """
    profile = LeakageProfile(model, "published", work=work)
    if dp_epsilon is None:
        dp_epsilon = profile.dp_epsilon(epsilon)
    alpha = positive_epsilon(dp_epsilon, "dp_epsilon")
    chosen = list(model.records) if records is None else list(records)
    model.require(chosen)
    leakages, quilts = profile.reasons(alpha)
    graph, space = moral_graph(profile.workspace), profile.workspace
    rows = {}
    for record in chosen:
        best, around = quilts[record], Quilt.within(graph, record, graph.neighbors(record))
        blanket = quilt_influence(model, around, workspace=space)
        quilt = Quilt.within(graph, record, best["separator"])
        numbers = (best["b"], blanket.b, leakages[record], best["exact"], blanket.exact)
        rows[record] = RecordInfluence(record, quilt, *numbers)
    return InfluenceTable(rows, alpha)

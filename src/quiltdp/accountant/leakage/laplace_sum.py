"""What one concrete mechanism leaks, exactly: the sum of all records plus Laplace noise.

Records count by the place of their state, scaled to [0, 1], so that one record moves the sum by at
most 1 and noise of scale 1/α is α-DP.  Given x_T and what is known, the output is a mixture of
Laplace densities; between two of its kinks the ratio of two such mixtures is monotone, and beyond the
outermost it is constant, so the largest ratio is at a kink.  It lies below the limit, and shows how
much of it an everyday mechanism reaches.

*Assumes*: the records' joint law as one table.  *Cost*: mixtures at every kink, for every adversary.
*Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.leakage.adversaries import PairTable, count_entries, pair_tables
from quiltdp.errors import ModelTooWide
from quiltdp.inference.trees import junction_tree
from quiltdp.model import Model

__all__ = ["LaplaceSum"]


class LaplaceSum:
    """The exact leakage of the Laplace-sum mechanism, for every record of a small model.

    Parameters
    ----------
    model
        A small model; a ``ModelTooWide`` names the size otherwise.
    adversary
        ``informed``, ``prior``, or one who knows some records.
    """

    def __init__(
        self, model: Model, adversary: str | Adversary = "informed", *, max_entries: int = 4_000_000
    ) -> None:
        records = tuple(model.records)
        self._sizes = [model.cardinality(r) for r in records]
        if len(records) > 16:
            raise ModelTooWide(f"the audit lists every adversary: {len(records)} records are too many")
        needed = sum(count_entries(self._sizes, (k,)) for k in range(len(records)))
        if needed > max_entries:
            raise ModelTooWide(f"the audit needs {needed:,} numbers, the limit is {max_entries:,}")
        log_joint = junction_tree(model).log_marginal(records)
        who = adversary_from(adversary)
        may = None if who.records is None else {records.index(n) for n in who.records if n in records}
        self._tables = [list(pair_tables(log_joint, (k,), may, who.at_most)) for k in range(len(records))]

    def evaluate(self, alpha: float) -> np.ndarray:
        """Return the leakage of every record when the noise has scale 1/α."""
        return np.array([self._record(k, tables, alpha) for k, tables in enumerate(self._tables)])

    def _record(self, k: int, tables: Sequence[PairTable], alpha: float) -> float:
        own = np.linspace(0.0, 1.0, self._sizes[k]) if self._sizes[k] > 1 else np.zeros(1)
        best = 0.0
        for table in tables:
            if len(table.p):
                best = max(best, self._largest_ratio(table, own, alpha))
        return best

    def _largest_ratio(self, table: PairTable, own: np.ndarray, alpha: float) -> float:
        """Return the largest ln ratio over the kinks, for all pairs of one set of unknown records."""
        grids = [np.linspace(0.0, 1.0, s) if s > 1 else np.zeros(1) for s in table.sizes]
        sums = np.zeros(1)
        for grid in grids:
            sums = np.add.outer(sums, grid).reshape(-1)
        x, y = own[table.values[:, 0]], own[table.values[:, 1]]
        kinks = np.unique(np.round(np.add.outer(sums, own).reshape(-1), 12))
        best = 0.0
        for kink in kinks:
            above = (table.p * np.exp(-alpha * np.abs(kink - sums - x[:, None]))).sum(axis=1)
            below = (table.q * np.exp(-alpha * np.abs(kink - sums - y[:, None]))).sum(axis=1)
            best = max(best, float((np.log(above) - np.log(below)).max()))
        return best

"""The published bounds against the informed adversary, for comparison.

Lemma 2:  Leakage(i) ≤ min over quilts of |C| α + 4 b_i(C).
Lemma 3 (``published-blanket``): Leakage(i) ≤ α + 4 a_i, the Markov blanket alone.
Lemma 4 stands in :mod:`~quiltdp.papers.lemma4`.

All as printed, and no smaller: where a lemma says nothing, its bound is ∞, not group privacy.

*Assumes*: what the lemmas assume, as printed.  *Cost*: one exact influence b per quilt looked at, within
the work budget.

References
----------
J. Zhao, Adaptive Statistical Learning with Bayesian Differential Privacy, WPES 2017, Lemmas 2 to 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Vector, never, register
from quiltdp.accountant.trade_offs import LEMMA_QUILTS
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import quilts
from quiltdp.inference.influence import blanket_influence
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influences
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.numbers import up, up_array
from quiltdp.work import WorkBudget

__all__ = [
    "BlanketBound",
    "PublishedBound",
]


class PublishedBound:
    """Lemma 2: min over quilts of |C| α + 4 b_i(C), on any model.

    Parameters
    ----------
    problem
        A connected model; single records only.
    max_nearby
        How far the quilts of each record are listed; the trivial quilt (group privacy) always counts.
        How many are looked at is what the work budget says, four times over.
    """

    def __init__(self, problem: Problem, *, max_nearby: int = 4) -> None:
        self._records = problem.single_records("published")
        self._model = problem.model
        self._max_nearby = max_nearby

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Moralize; quilts are listed, and their influences computed, when an α asks for them."""
        self._workspace, self._budget = workspace, budget
        self._graph = moral_graph(workspace)

    def _listed(self, record: str) -> list[tuple[Quilt, NDArray[np.intp]]]:
        """Return the smallest quilts of a record, each with the records whose α it pays."""

        def make() -> list[tuple[Quilt, NDArray[np.intp]]]:
            self._workspace.guard.check()
            found = quilts(self._graph, record, max_nearby=self._max_nearby, max_separator=24)
            first = itertools.islice(found, 4 * self._budget.quilts)
            return [(q, self._paying(q)) for q in first if q.separator]

        key = (record, self._max_nearby, self._budget.quilts)
        return self._workspace.keep("quilts of the lemma", key, make, lambda made: 1024 * len(made))

    def _paying(self, quilt: Quilt) -> NDArray[np.intp]:
        return np.array(
            [self._model.index[n] for n in quilt.closed if self._model.is_record(n)], dtype=np.intp
        )

    def _influences(self, asked: Sequence[Quilt]) -> list[float]:
        """Return b of quilts, kept in the workspace; ∞ where a table is too large."""
        space, entries = self._workspace, self._budget.entries
        keys = [(quilt.target, quilt.closed, entries) for quilt in asked]
        found = [space.kept("b", key) for key in keys]
        due = [k for k, b in enumerate(found) if b is None]
        for k, b in zip(due, self._together([asked[k] for k in due]), strict=True):
            found[k] = space.keep("b", keys[k], partial(float, b))
        return found

    def _together(self, asked: Sequence[Quilt]) -> list[float]:
        """Return b of quilts that are looked at together, or one by one if one of them is too large."""
        self._workspace.guard.check()
        limits = Limits(self._budget.entries)
        try:
            found = quilt_influences(self._model, asked, limits=limits, workspace=self._workspace)
        except ModelTooWide:
            return [math.inf] if len(asked) == 1 else [self._together([quilt])[0] for quilt in asked]
        return [influence.b for influence in found]

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the smallest |C| α + 4 b of every record."""
        return self.refine(alpha, np.full(len(self._records), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return it for the records that decide whether all leak at most ``high``."""
        whole = up(float(alpha.sum()), len(alpha) + 8.0)
        values, witnesses = np.minimum(whole, known), {}
        worst, partial = low, low > 0.0 or high < math.inf
        for k in np.argsort(-values, kind="stable").tolist():
            if partial and (values[k] <= worst or worst > high):
                break  # something else leaks as much
            listed = [(q, float(alpha[paying].sum())) for q, paying in self._listed(self._records[k])]
            for start in range(0, len(listed), LEMMA_QUILTS):
                if partial and values[k] <= worst:
                    break  # nothing hangs on this record
                # others: their own records cost as much already
                some = [(q, near) for q, near in listed[start : start + LEMMA_QUILTS] if near < values[k]]
                for (quilt, near), b in zip(some, self._influences([q for q, _ in some]), strict=True):
                    value = up(near + 4.0 * b * (1 + 1e-12), 64.0)
                    if value < values[k] and not (partial and values[k] <= worst):
                        values[k] = value
                        witnesses[k] = {"separator": sorted(quilt.separator), "b": b}
            worst = max(worst, float(values[k]))
        return Bounds(values, "published", "published", witnesses)


@register(
    "published",
    against=INFORMED,
    kind="published",
    says="Lemma 2: |C| α + 4 b of the best quilt",
    auto=never,
)
def published(problem: Problem) -> Bound:
    """Return Lemma 2 in the form that fits the model."""
    if not isinstance(problem.model, ChainModel):
        return PublishedBound(problem)
    from quiltdp.accountant.leakage.mqm_chain import PublishedChainBound

    return PublishedChainBound(problem)


@register(
    "published-blanket",
    against=INFORMED,
    kind="published",
    says="Lemma 3: α + 4 a of the blanket",
    auto=never,
)
class BlanketBound:
    """Lemma 3: Leakage(i) ≤ α_i + 4 a_i, a_i the influence of the Markov blanket."""

    def __init__(self, problem: Problem) -> None:
        self._model = problem.model
        self._records = records = problem.single_records("published-blanket")
        if len(records) > 5000:
            raise ModelTooWide(
                f"published-blanket takes at most 5,000 records, not {len(records):,}",
                f"use another {option('method')}",
            )
        self._places = np.array([self._model.index[r] for r in records], dtype=np.intp)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the influence of every blanket."""
        influences = []
        for r in self._records:
            workspace.guard.check()
            influences.append(blanket_influence(self._model, r, workspace=workspace))
        self._influence = np.array(influences)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return α + 4 a for every record."""
        return Bounds(
            up_array(alpha[self._places] + 4.0 * self._influence * (1 + 1e-12)),
            "published-blanket",
            "published",
        )

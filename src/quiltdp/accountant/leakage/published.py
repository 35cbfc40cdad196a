"""The published bounds, for comparison.

Lemma 2:  Leakage(i) ≤ min over quilts of |C| α + 4 b_i(C).
Lemma 3 (``published-blanket``): Leakage(i) ≤ α + 4 a_i, the Markov blanket alone.
Markov Quilt Mechanism (prior adversary):  Leakage(T) ≤ Σ_C α + I(X_Q ⇝ X_T).
Lemma 4 stands in :mod:`~quiltdp.papers.lemma4`.

All as printed, and no smaller: where a lemma says nothing, its bound is ∞, not group privacy.

*Assumes*: what the lemmas assume, as printed; the Markov Quilt Mechanism assumes that nothing is known.
*Cost*: one exact influence per quilt looked at, within the work budget.

References
----------
J. Zhao, Adaptive Statistical Learning with Bayesian Differential Privacy, WPES 2017, Lemmas 2 to 4.
S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Vector, never, register
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import connected_sets, quilts
from quiltdp.inference.influence import blanket_influence, quilt_influence
from quiltdp.inference.marginals import log_marginal
from quiltdp.inference.plan import Limits
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.numbers import up, up_array
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.accountant.leakage.propagation import Messages
    from quiltdp.accountant.leakage.quilts import Reach

__all__ = ["BlanketBound", "MarkovQuiltBound", "PublishedBound"]


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
            first = islice(found, 4 * self._budget.quilts)
            return [(q, self._paying(q)) for q in first if q.separator]

        key = (record, self._max_nearby, self._budget.quilts)
        return self._workspace.keep("quilts of the lemma", key, make, lambda made: 1024 * len(made))

    def _paying(self, quilt: Quilt) -> NDArray[np.intp]:
        return np.array(
            [self._model.index[n] for n in quilt.closed if self._model.is_record(n)], dtype=np.intp
        )

    def _influence(self, quilt: Quilt) -> float:
        """Return b of a quilt, kept in the workspace; ∞ where a table is too large."""
        space, limits = self._workspace, Limits(self._budget.entries)

        def make() -> float:
            space.guard.check()
            try:
                return quilt_influence(self._model, quilt, limits=limits, workspace=space).b
            except ModelTooWide:
                return math.inf

        return space.keep("b", (quilt.target, quilt.closed, limits), make)

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
            for quilt, paying in self._listed(self._records[k]):
                if partial and values[k] <= worst:
                    break  # nothing hangs on this record
                near = float(alpha[paying].sum())
                if near >= values[k]:
                    continue  # its own records cost as much already
                b = self._influence(quilt)
                value = up(near + 4.0 * b * (1 + 1e-12), 64.0)
                if value < values[k]:
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


# -- the prior adversary -------------------------------------------------------------------------------

_SLACK = 1e-12  # how far ln of a conditional probability may be from the truth


@dataclass(frozen=True, eq=False)
class _PriorQuilt:
    """One quilt of one unit: whose α it pays, Λ of its separator, and Σ out_q beyond it (None: ∞)."""

    closed: NDArray[np.intp]
    separator: tuple[int, ...]
    curve: ThresholdCurve
    reach: Reach | None

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        return 4096 + 16 * len(self.closed) + 256 * len(self.separator)


class MarkovQuiltBound:
    """The Markov Quilt Mechanism on any network (method ``"published"``, prior adversary).

    Parameters
    ----------
    problem
        Any model.
    max_nearby, max_separator
        Which quilts are searched; the empty quilt always is.
    max_entries
        The largest table P(x_T, x_Q) that is computed; larger quilts are passed over.

    Notes
    -----
    As many quilts of one unit are looked at as the work budget says.

    References
    ----------
    S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> from quiltdp.accountant.bounds import ready
    >>> ready(MarkovQuiltBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.405465, 1.405465]
    """

    theorem, kind = "published", "published"

    def __init__(
        self, problem: Problem, *, max_nearby: int = 4, max_separator: int = 8, max_entries: int = 4096
    ) -> None:
        self.model = problem.model
        self.units = problem.listed()
        self._max_nearby, self._max_separator, self._max_entries = max_nearby, max_separator, max_entries

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List the smallest quilts of every unit; their Λ is computed when an α asks for it."""
        model = self.model
        self._workspace = workspace
        self._budget = budget
        self._graph = moral_graph(workspace)
        self._labels = [
            sorted(set(self._graph.component_labels[[model.index[n] for n in unit]].tolist()))
            for unit in self.units
        ]

    def _most_quilts(self) -> int:
        return self._budget.quilts + self._budget.quilts // 3

    def _listed(self, k: int) -> list[tuple[NDArray[np.intp], tuple[int, ...]]]:
        """Return (C, Q) of the smallest quilts of one unit (the empty one is added at evaluation)."""

        def make() -> list[tuple[NDArray[np.intp], tuple[int, ...]]]:
            self._workspace.guard.check()
            sets = connected_sets(self._graph, self.units[k], self._max_nearby, self._max_separator)
            proper = ((closed, separator) for closed, separator in sets if separator)
            index = self.model.index
            return [
                (np.array(sorted(index[n] for n in c), dtype=np.intp), tuple(sorted(index[n] for n in q)))
                for c, q in islice(proper, self._most_quilts())
            ]

        key = (self._most_quilts(), self._max_nearby, self._max_separator, self.units[k])
        return self._workspace.keep(
            "listed quilts", key, make, lambda m: sum(c.nbytes + 16 * len(q) for c, q in m)
        )

    def _quilt(self, k: int, closed: NDArray[np.intp], separator: tuple[int, ...]) -> _PriorQuilt | None:
        """Return one quilt with its Λ, kept in the workspace."""
        key = (self.theorem, self._max_entries, self.units[k], closed.tobytes())

        def make() -> _PriorQuilt | None:
            self._workspace.guard.check()
            return self._examine(self.units[k], frozenset(closed.tolist()), list(separator))

        return self._workspace.keep("prior quilt", key, make, lambda q: 256 if q is None else q.size)

    def _examine(
        self, unit: tuple[str, ...], closed: frozenset[int], separator: list[int]
    ) -> _PriorQuilt | None:
        """Compute Λ of one quilt, or pass it over if its table is too large."""
        names = self.model.nodes
        wanted = (*unit, *(names[q] for q in separator))
        if math.prod(self.model.cardinality(n) for n in wanted) > self._max_entries:
            return None
        try:
            table = log_marginal(self.model, wanted, workspace=self._workspace)
        except ModelTooWide:
            return None
        rows = table.reshape(math.prod(table.shape[: len(unit)]), -1)
        rows = rows[(rows > -np.inf).any(axis=1)]
        law = np.exp(rows - rows.max(axis=1, keepdims=True))
        logs = rows - rows.max(axis=1, keepdims=True) - np.log(law.sum(axis=1, keepdims=True))
        logs = logs[:, (logs > -np.inf).any(axis=0)]
        influence = float((logs.max(axis=0) - logs.min(axis=0)).max())  # not from what exp has lost
        curve = ThresholdCurve(law / law.sum(axis=1, keepdims=True), slack=_SLACK, influence=influence)
        members = np.array(sorted(closed), dtype=np.intp)
        return _PriorQuilt(members, tuple(separator), curve, self._reach(closed, separator))

    def _reach(self, closed: frozenset[int], separator: list[int]) -> Reach | None:
        """Return Σ_q out_q(C), None for ∞."""
        return None

    def _messages(self, alpha: Vector) -> Messages | None:
        return None

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the best quilt of every unit, or the sum of all α of its components."""
        return self.refine(alpha, np.full(len(self.units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the best quilt of the units that decide whether all leak at most ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        messages = self._messages(alpha)
        group = np.bincount(self._graph.component_labels, weights=alpha)
        whole = [up(float(group[labels].sum()), 8.0 + len(alpha)) for labels in self._labels]
        values, witnesses = np.minimum(whole, known), {}
        worst, partial = low, low > 0.0 or high < math.inf
        for k in np.argsort(-values, kind="stable").tolist():
            if partial and (values[k] <= worst or worst > high):
                break  # something else leaks as much
            for closed, separator in self._listed(k):
                near = up(float(alpha[closed].sum()), 8.0 + len(closed))
                quilt = self._quilt(k, closed, separator) if near < values[k] else None
                if quilt is None:
                    continue  # its own records cost as much already, or it is too large
                reach = math.inf
                if quilt.reach is not None and messages is not None:
                    reach = float(quilt.reach(alpha, messages)[0])
                value = up(near + quilt.curve(reach))
                if value < values[k]:
                    values[k] = value
                    names = ([self.model.nodes[j] for j in part] for part in (quilt.closed, quilt.separator))
                    witnesses[k] = dict(zip(("closed", "separator"), names, strict=True))
            worst = max(worst, float(values[k]))
        return Bounds(values, self.theorem, self.kind, witnesses)


@register("published", against=PRIOR, kind="published", says="the Markov Quilt Mechanism", auto=never)
def markov_quilt_mechanism(problem: Problem) -> Bound:
    """Return the Markov Quilt Mechanism in the form that fits the model."""
    if not isinstance(problem.model, ChainModel):
        return MarkovQuiltBound(problem)
    from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltChainBound

    return MarkovQuiltChainBound(problem)

"""Bounds from quilts: Lemmas 2 and 3, the Markov Quilt Mechanism and the swing.

For any set C ∋ i grown from the unit under attack, with separator Q = ∂C,

    published            Leakage(i) ≤ |C| α + 4 b_i(C)                       Lemma 2, the best quilt
    published-blanket    Leakage(i) ≤ α + 4 a_i                              Lemma 3, the Markov blanket alone
    published (prior)    Leakage(T) ≤ Σ_C α + I(X_Q ⇝ X_T)                   the Markov Quilt Mechanism
    swing                Leakage(T) ≤ max_L { Σ_{C∖L} α + s_T(C, L) }

where L ranges over the records near the unit that the adversary may know.  The maximum over L is needed:
L = ∅ alone is unsound.  The quilt without a separator, C a whole component, is group privacy.  The lemmas are
as printed: where Lemma 3 says nothing, its bound is ∞.  Lemma 4 stands in :mod:`quiltdp.papers`, the
forms for Markov chains in :mod:`.mqm_chain`.

*Assumes*: the Markov Quilt Mechanism assumes that nothing is known; all else holds for any model and any
evidence.  *Cost*: one influence, conditional or swing per quilt looked at, the smallest quilts first, as many
as the work budget says.

References
----------
J. Zhao, Adaptive Statistical Learning with Bayesian Differential Privacy, WPES 2017, Lemmas 2 to 4.
S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.
docs/theory.md, section 4.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds.contract import ALL, Bound, Bounds, Need, Problem, Vector, register
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import unit_quilts
from quiltdp.inference.influence import blanket_influence, quilt_influence, swings, unit_influence
from quiltdp.inference.plan import Limits
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.numbers import up, up_array
from quiltdp.work import WorkBudget

_Number = TypeVar("_Number")

_QUILTS = 4  # times the quilts of the work budget are looked at: most are dismissed by their records alone
_OUT = math.inf
_SLACK = 2e-12  # how far a difference of logarithms of conditional probabilities may be from the truth


class BestQuilt:
    """The smallest leakage over the quilts of every unit, group privacy among them.

    Parameters
    ----------
    problem
        Any model.
    max_nearby
        The most nearby records of a quilt.
    """

    theorem: ClassVar[str]
    kind: ClassVar[str] = "published"
    times: ClassVar[float] = 1.0
    """A quilt allows Σ_C α and at least so many times I(X_Q ⇝ X_T), what Q tells whoever knows nothing."""
    max_separator: ClassVar[int] = 24

    def __init__(self, problem: Problem, *, max_nearby: int = 4) -> None:
        self.model = problem.model
        self.units = problem.listed()
        self._max_nearby = max_nearby

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Moralize; quilts are listed, and looked at, when an α asks for them."""
        self._workspace, self._budget = workspace, budget
        self._graph = moral_graph(workspace)

    @abstractmethod
    def _leakage_of_quilt(self, quilt: Quilt, alpha: Vector) -> tuple[float, dict[str, object]]:
        """Return the leakage that a quilt allows, rounded up, and what attains it."""

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the best quilt of the units that decide whether all leak at most ``high``."""
        known, low, high = need.fill_unknown(len(self.units))
        values, witnesses = np.minimum(self._group_privacy(alpha), known), {}
        worst, partial = low, need.limited
        for k in np.argsort(-values, kind="stable").tolist():
            if partial and (values[k] <= worst or worst > high):
                break  # something else leaks as much
            for quilt, members in self._smallest_quilts(k):
                if partial and values[k] <= worst:
                    break  # nothing hangs on this unit
                near = float(alpha[members].sum())
                if near >= values[k] or near + self.times * self._influence(quilt) >= values[k]:
                    continue  # its own records cost as much, or what is told if nothing is known
                value, witness = self._leakage_of_quilt(quilt, alpha)
                if value < values[k]:
                    values[k], witnesses[k] = value, {"separator": sorted(quilt.separator), **witness}
            worst = max(worst, float(values[k]))
        return Bounds(values, self.theorem, self.kind, witnesses, partial=partial)

    def _group_privacy(self, alpha: Vector) -> Vector:
        """Return group privacy of every unit: Σ α over its components."""
        labels = self._graph.component_labels
        total = np.bincount(labels, weights=alpha)
        places = [list({int(labels[self.model.index[n]]) for n in unit}) for unit in self.units]
        return np.array([up(float(total[found].sum()), 8.0 + len(alpha)) for found in places])

    def _smallest_quilts(self, k: int) -> list[tuple[Quilt, NDArray[np.intp]]]:
        """Return the smallest quilts of a unit, each with the places of C."""

        def make() -> list[tuple[Quilt, NDArray[np.intp]]]:
            self._workspace.guard.check()
            found = unit_quilts(self._graph, self.units[k], self._max_nearby, self.max_separator)
            first = [q for q in islice(found, _QUILTS * self._budget.quilts) if q.separator]
            return [(q, np.array(sorted(self.model.index[n] for n in q.closed), np.intp)) for q in first]

        key = (self.units[k], self._max_nearby, self.max_separator, self._budget.quilts)
        return self._workspace.keep("listed quilts", key, make, lambda made: 1024 * len(made))

    def _influence(self, quilt: Quilt) -> float:
        """Return I(X_Q ⇝ X_T), ∞ where a table is too large."""
        parts = (quilt.targets, quilt.nearby, quilt.separator)
        return self._keep(
            "influence", quilt, lambda: unit_influence(self.model, *parts, **self._options), _OUT
        )

    def _keep(self, what: str, quilt: Quilt, make: Callable[[], _Number], otherwise: _Number) -> _Number:
        """Return something about a quilt, kept in the workspace; ``otherwise`` where a table is too large."""

        def checked() -> _Number:
            self._workspace.guard.check()
            try:
                return make()
            except ModelTooWide:
                return otherwise

        key = (what, quilt.targets, quilt.closed, self._budget.entries)
        return self._workspace.keep("of a quilt", key, checked, lambda _: 1024)

    @property
    def _options(self) -> dict[str, Any]:
        return {"limits": Limits(self._budget.entries), "workspace": self._workspace}

    def _closed_price(self, quilt: Quilt, alpha: Vector, known: frozenset[str] = frozenset()) -> float:
        """Return Σ α over C without what is known, rounded up."""
        places = [self.model.index[n] for n in sorted(quilt.closed - known)]
        return up(float(alpha[places].sum()), 8.0 + len(places))


class PublishedBound(BestQuilt):
    """Lemma 2: |C| α + 4 b_i(C), on any model; single records only."""

    theorem = "published"
    times = 4.0

    def __init__(self, problem: Problem, *, max_nearby: int = 4) -> None:
        problem.require_singles("published")
        super().__init__(problem, max_nearby=max_nearby)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the best quilt of the units that matter; where none is told it is the trivial one."""
        found, graph = super().evaluate(alpha, need), self._graph
        quilts = dict(found.witness)
        for k, (record,) in enumerate(self.units):
            if k not in quilts:
                others = (
                    int(graph.component_record_counts[graph.component_labels[graph.position(record)]]) - 1
                )
                quilts[k] = {"separator": [], "nearby_records": others, "b": 0.0, "exact": True}
        return replace(found, witness=quilts)

    def _leakage_of_quilt(self, quilt: Quilt, alpha: Vector) -> tuple[float, dict[str, object]]:
        def influence() -> tuple[float, bool]:
            found = quilt_influence(self.model, quilt, **self._options)
            return found.b, found.exact

        b, exact = self._keep("b", quilt, influence, (_OUT, False))
        leakage = up(self._closed_price(quilt, alpha) + 4.0 * b * (1 + 1e-12), 64.0)
        return leakage, {"nearby_records": quilt.nearby_records, "b": b, "exact": exact}


class MarkovQuiltBound(BestQuilt):
    """The Markov Quilt Mechanism on any network: Σ_C α + I(X_Q ⇝ X_T), for who knows nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> ready(MarkovQuiltBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.405465, 1.405465]
    """

    theorem = "published"
    max_separator = 8

    def _leakage_of_quilt(self, quilt: Quilt, alpha: Vector) -> tuple[float, dict[str, object]]:
        told = self._influence(quilt) + _SLACK
        reasons = {"closed": sorted(quilt.closed), "nearby_records": quilt.nearby_records, "b": told}
        return up(self._closed_price(quilt, alpha) + told), reasons


@register("swing", against=INFORMED, kind="certified bound", says="swing of the best quilt")
class SwingBound(BestQuilt):
    """The swing: Leakage(T) ≤ max_L { Σ_{C∖L} α + s_T(C, L) }, the best quilt found, or group privacy."""

    theorem = "swing"
    kind = "certified bound"
    max_separator = 12

    def _leakage_of_quilt(self, quilt: Quilt, alpha: Vector) -> tuple[float, dict[str, object]]:
        parts = (quilt.targets, quilt.nearby, quilt.separator)
        whole: Mapping[frozenset[str], float] = {frozenset(): _OUT}
        found = self._keep("swings", quilt, lambda: swings(self.model, *parts, **self._options), whole)
        leaks = {known: up(self._closed_price(quilt, alpha, known) + swing) for known, swing in found.items()}
        worst = max(leaks, key=leaks.__getitem__)
        closed = sorted(quilt.closed)
        return leaks[worst], {"closed": closed, "known": sorted(worst), "swing": found[worst]}


@register(
    "published-blanket",
    against=INFORMED,
    kind="published",
    says="Lemma 3: α + 4 a of the blanket",
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

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return α + 4 a for every record."""
        values = up_array(alpha[self._places] + 4.0 * self._influence * (1 + 1e-12))
        return Bounds(values, "published-blanket", "published")


# -- in the form that fits the model -------------------------------------------------------------------


@register(
    "published",
    against=INFORMED,
    kind="published",
    says="Lemma 2: |C| α + 4 b of the best quilt",
)
def published(problem: Problem) -> Bound:
    """Return Lemma 2 in the form that fits the model."""
    if not isinstance(problem.model, ChainModel):
        return PublishedBound(problem)
    from quiltdp.accountant.bounds.mqm_chain import PublishedChainBound

    return PublishedChainBound(problem)


@register("published", against=PRIOR, kind="published", says="the Markov Quilt Mechanism")
def markov_quilt_mechanism(problem: Problem) -> Bound:
    """Return the Markov Quilt Mechanism in the form that fits the model."""
    if not isinstance(problem.model, ChainModel):
        return MarkovQuiltBound(problem)
    from quiltdp.accountant.bounds.mqm_chain import MarkovQuiltChainBound

    return MarkovQuiltChainBound(problem)

"""Quilts against the prior adversary: the Markov Quilt Mechanism, and one quilt with Λ.

For a set C ⊇ T grown from the protected unit, with separator Q = ∂C,

    published:  Leakage(T) ≤ Σ_C α + I(X_Q ⇝ X_T)                      (Markov Quilt Mechanism)
    quilts:     Leakage(T) ≤ Σ_C α + Λ( P(x_Q | x_T), Σ_{q∈Q} out_q(C) )

with Λ of :mod:`.threshold` and out_q(C) of bound 4 (what the far side of q can tell, from certified
propagation messages).  Λ(·, ∞) = I, so the second is never above the first on the same quilt.

*Why.*  Σ_C α pays for the records of C whatever happens; after that only X_Q carries information,
through a function whose logarithm moves by at most Σ_q out_q(C): the uniform kernel of P(x_Q | x_T).
The prior adversary conditions on nothing else, so no known sets L are needed.

*Assumes*: no evidence; P(x_Q | x_T) from the junction tree.  *Cost*: one conditional per quilt, as many
quilts as the work budget says.  *Reference*: docs/prior_adversary.md, quilts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Vector, never, register
from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltChainBound
from quiltdp.accountant.leakage.propagation import Messages, propagation_of
from quiltdp.accountant.leakage.quilt_terms import Reach, edges_beyond
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.accountant.trade_offs import PRIOR_QUILTS_NODES, PRIOR_QUILTS_UNITS
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide
from quiltdp.graph.quilts import connected_sets
from quiltdp.inference.marginals import log_marginal
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.numbers import up
from quiltdp.work import WorkBudget

__all__ = ["MarkovQuiltBound", "PriorQuiltsBound"]

_SLACK = 1e-12  # how far ln of a conditional probability may be from the truth


@dataclass(frozen=True, eq=False)
class _Quilt:
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

    def _quilt(self, k: int, closed: NDArray[np.intp], separator: tuple[int, ...]) -> _Quilt | None:
        """Return one quilt with its Λ, kept in the workspace."""
        key = (self.theorem, self._max_entries, self.units[k], closed.tobytes())

        def make() -> _Quilt | None:
            self._workspace.guard.check()
            return self._examine(self.units[k], frozenset(closed.tolist()), list(separator))

        return self._workspace.keep("prior quilt", key, make, lambda q: 256 if q is None else q.size)

    def _examine(self, unit: tuple[str, ...], closed: frozenset[int], separator: list[int]) -> _Quilt | None:
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
        return _Quilt(members, tuple(separator), curve, self._reach(closed, separator))

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
                    witnesses[k] = self._describe(quilt)
            worst = max(worst, float(values[k]))
        return Bounds(values, self.theorem, self.kind, witnesses)

    def _describe(self, quilt: _Quilt) -> dict[str, object]:
        names = self.model.nodes
        return {
            "closed": [names[j] for j in quilt.closed],
            "separator": [names[j] for j in quilt.separator],
        }


@register("published", against=PRIOR, kind="published", says="the Markov Quilt Mechanism", auto=never)
def markov_quilt_mechanism(problem: Problem) -> Bound:
    """Return the Markov Quilt Mechanism in the form that fits the model."""
    return (
        MarkovQuiltChainBound(problem) if isinstance(problem.model, ChainModel) else MarkovQuiltBound(problem)
    )


def _worth_it(problem: Problem) -> bool:
    """One quilt per record takes longer than it is worth on a large model."""
    return len(problem.model.nodes) <= PRIOR_QUILTS_NODES


@register("quilts", against=PRIOR, kind="certified bound", says="Λ of the best quilt", auto=_worth_it)
class PriorQuiltsBound(MarkovQuiltBound):
    """One quilt with Λ (method ``"quilts"``, prior adversary).

    Parameters are those of :class:`MarkovQuiltBound`.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> from quiltdp.accountant.bounds import ready
    >>> ready(PriorQuiltsBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.185376, 1.185376]
    """

    theorem, kind = "quilts", "certified bound"

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute Λ of the smallest quilts of every unit, and the spreads beyond them."""
        self._propagation = propagation_of(workspace)
        super().prepare(workspace, budget)

    def _most_quilts(self) -> int:
        share = PRIOR_QUILTS_UNITS * self._budget.quilts // len(self.units)
        return min(max(share, 3), self._budget.quilts // 3)

    def _reach(self, closed: frozenset[int], separator: list[int]) -> Reach | None:
        """Return Σ_q out_q(C) as a function of α and the messages."""
        beyond = edges_beyond(self._propagation, closed, separator)
        return Reach([separator], [beyond], self._propagation.spreads)

    def _messages(self, alpha: Vector) -> Messages | None:
        return self._propagation.messages(alpha)

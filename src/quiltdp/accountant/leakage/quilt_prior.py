"""Quilts against the prior adversary: the Markov Quilt Mechanism, and one quilt with Λ.

For a set C ⊇ T grown from the protected unit, with separator Q = ∂C,

    published:  Leakage(T) ≤ Σ_C α + I(X_Q ⇝ X_T)                      (Markov Quilt Mechanism)
    quilts:     Leakage(T) ≤ Σ_C α + Λ( P(x_Q | x_T), Σ_{q∈Q} out_q(C) )

with Λ of :mod:`.threshold` and out_q(C) of bound 4 (what the far side of q can tell, from certified
propagation messages).  Λ(·, ∞) = I, so the second is never above the first on the same quilt.

*Why.*  Σ_C α pays for the records of C whatever happens; after that only X_Q carries information,
through a function whose logarithm moves by at most Σ_q out_q(C): the uniform kernel of P(x_Q | x_T).
The prior adversary conditions on nothing else, so no known sets L are needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.propagation import Messages, PropagationBound
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.errors import ModelTooWide
from quiltdp.graph.moral import moralize
from quiltdp.graph.quilts import connected_sets
from quiltdp.inference.marginals import log_marginal
from quiltdp.model import Model
from quiltdp.rounding import EPS, up

__all__ = ["MarkovQuiltBound", "PriorQuiltsBound"]

_SLACK = 1e-12  # how far ln of a conditional probability may be from the truth


@dataclass(frozen=True, eq=False)
class _Quilt:
    """One quilt of one unit: whose α it pays, Λ of its separator, and what feeds out_q."""

    closed: NDArray[np.intp]
    separator: tuple[int, ...]
    curve: ThresholdCurve
    beyond: tuple[tuple[int, tuple[int, ...]], ...]

    def near(self, alpha: Vector) -> float:
        """Return Σ_C α, rounded up."""
        return up(float(alpha[self.closed].sum()), 8.0 + len(self.closed))


class MarkovQuiltBound:
    """The Markov Quilt Mechanism on any network (method ``"published"``, prior adversary).

    Parameters
    ----------
    model, units
        A model and its protected sets (``None``: every record alone).
    max_nearby, max_separator
        Which quilts are searched; the empty quilt always is.
    max_entries
        The largest table P(x_T, x_Q) that is computed; larger quilts are passed over.
    per_unit, seconds
        The most quilts of one unit, and when to stop looking for more.

    References
    ----------
    S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> MarkovQuiltBound(m).evaluate(np.array([1.0, 1.0])).epsilon.round(6).tolist()
    [1.405465, 1.405465]
    """

    name = "published"
    adversary = "prior"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        max_nearby: int = 4,
        max_separator: int = 8,
        max_entries: int = 4096,
        per_unit: int = 64,
        seconds: float = 10.0,
    ) -> None:
        self.model = model
        self.units = [(r,) for r in model.records] if units is None else [tuple(u) for u in units]
        self._graph = moralize(model)
        self._deadline = time.monotonic() + seconds
        self._scopes = [tuple(model.index[n] for n in f.scope) for f in model.factors]
        self._quilts: list[list[_Quilt]] = []
        self._labels: list[list[int]] = []
        for unit in self.units:
            late = time.monotonic() > self._deadline
            found = [] if late else self._search(unit, max_nearby, max_separator, max_entries, per_unit)
            self._quilts.append(found)
            labels = self._graph.component_labels[[model.index[n] for n in unit]]
            self._labels.append(sorted(set(labels.tolist())))

    def _search(
        self, unit: tuple[str, ...], max_nearby: int, max_separator: int, max_entries: int, per_unit: int
    ) -> list[_Quilt]:
        """Return the smallest quilts of one unit (the empty one is added at evaluation)."""
        found: list[_Quilt] = []
        looked = 0
        for closed, separator in connected_sets(self._graph, unit, max_nearby, max_separator):
            if not separator:
                continue
            looked += 1
            if looked > per_unit or time.monotonic() > self._deadline:
                break
            index = self.model.index
            quilt = self._examine(
                unit, frozenset(index[n] for n in closed), sorted(index[n] for n in separator), max_entries
            )
            if quilt is not None:
                found.append(quilt)
        return found

    def _examine(
        self, unit: tuple[str, ...], closed: frozenset[int], separator: list[int], max_entries: int
    ) -> _Quilt | None:
        """Compute Λ of one quilt, or pass it over if its table is too large."""
        names = self.model.nodes
        wanted = (*unit, *(names[q] for q in separator))
        if math.prod(self.model.cardinality(n) for n in wanted) > max_entries:
            return None
        try:
            table = log_marginal(self.model, wanted)
        except ModelTooWide:
            return None
        rows = table.reshape(math.prod(table.shape[: len(unit)]), -1)
        rows = rows[(rows > -np.inf).any(axis=1)]
        law = np.exp(rows - rows.max(axis=1, keepdims=True))
        curve = ThresholdCurve(law / law.sum(axis=1, keepdims=True), slack=_SLACK)
        members = np.array(sorted(closed), dtype=np.intp)
        return _Quilt(members, tuple(separator), curve, self._feeding(closed, separator))

    def _feeding(
        self, closed: frozenset[int], separator: list[int]
    ) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return what feeds out_q; nothing is needed when o = ∞."""
        return ()

    def _reach(self, quilt: _Quilt, alpha: Vector, messages: Messages | None) -> float:
        """Return Σ_q out_q(C)."""
        return float("inf")

    def _messages(self, alpha: Vector) -> Messages | None:
        return None

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the best quilt of every unit, or the sum of all α of its components."""
        alpha = np.asarray(alpha, dtype=np.float64)
        messages = self._messages(alpha)
        group = np.bincount(self._graph.component_labels, weights=alpha)
        values, witnesses = np.zeros(len(self.units)), {}
        for k, quilts in enumerate(self._quilts):
            values[k] = up(float(group[self._labels[k]].sum()), 8.0 + len(alpha))
            for quilt in quilts:
                near = quilt.near(alpha)
                if near < values[k]:
                    value = up(near + quilt.curve(self._reach(quilt, alpha, messages)))
                    if value < values[k]:
                        values[k] = value
                        names = self.model.nodes
                        witnesses[k] = {
                            "closed": [names[j] for j in quilt.closed],
                            "separator": [names[j] for j in quilt.separator],
                        }
        return RecordBounds(values, self.name, witnesses)


class PriorQuiltsBound(MarkovQuiltBound):
    """One quilt with Λ (method ``"quilts"``, prior adversary).

    Parameters are those of :class:`MarkovQuiltBound`.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> PriorQuiltsBound(m).evaluate(np.array([1.0, 1.0])).epsilon.round(6).tolist()
    [1.185376, 1.185376]
    """

    name = "quilts"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        max_nearby: int = 4,
        max_separator: int = 8,
        max_entries: int = 4096,
        per_unit: int = 16,
        seconds: float = 5.0,
    ) -> None:
        self._propagation = PropagationBound(model)
        super().__init__(
            model,
            units,
            max_nearby=max_nearby,
            max_separator=max_separator,
            max_entries=max_entries,
            per_unit=per_unit,
            seconds=seconds,
        )

    def _feeding(
        self, closed: frozenset[int], separator: list[int]
    ) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return, for every q and factor g ∋ q away from C, the edge of q and those of g∖Q."""
        inside, found = frozenset(separator), []
        for q in separator:
            for f in self.model.factors_of[self.model.nodes[q]]:
                scope = self._scopes[f]
                others = [a for a, j in enumerate(scope) if j not in inside]
                if len(scope) > 1 and others and not closed.intersection(scope):
                    first = self._propagation.first_edge(f)
                    found.append((first + scope.index(q), tuple(first + a for a in others)))
        return tuple(found)

    def _messages(self, alpha: Vector) -> Messages | None:
        return self._propagation.messages(alpha)

    def _reach(self, quilt: _Quilt, alpha: Vector, messages: Messages | None) -> float:
        """Return Σ_q out_q(C), rounded up."""
        if messages is None:
            return float("inf")
        total = float(alpha[list(quilt.separator)].sum())
        for edge, others in quilt.beyond:
            arriving = float(messages.out[list(others)].sum()) * (1 + 64 * EPS)
            total += float(phi(self._propagation.spreads[edge], arriving))
        return up(total, 64.0 + 4 * (len(quilt.separator) + len(quilt.beyond)))

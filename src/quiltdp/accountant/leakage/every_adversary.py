"""Every adversary by itself: sequential coupling given each thing that may be known, for models of few nodes.

Leakage(T) = max over S and possible x_S of what the prior adversary learns about T in the model given x_S.
Given x_S the records S are constants, and :mod:`.coupling` bounds the rest: with x_k the nodes revealed one
after the other, z_k the earlier ones that k depends on, and e what is known at and below k,

    m_k(z, z'; e) = T( P(x_k | z, e), P(x_k | z', e); D ),
    D(x, x') = α_k·1[x ≠ x'] + Σ over children c of m_c((z,x), (z',x'); e),     k unknown,
    m_k(z, z'; e) = D(v, v),                                                     k known to be v,

    Leakage(T) ≤ max over x_T ≠ x_T' of  Σ_{t∈T} α_t·1[x_t ≠ x_t'] + Σ over branches of max_e m(x_T, x_T'; e).

*Why.*  For fixed e it is the theorem of :mod:`.coupling` in the model given e.  A message depends on e through
the subtree of k alone, so it is computed once for each part of e that occurs (:mod:`.evidence_tree`).  Given
x_T the branches are independent, and so is what is known in them.

Where the informed clique tree has to suppose the worst tilt for every pair of states, here each tilt is the
one of an adversary who exists.  No looser than sequential coupling is against the prior adversary.

*Assumes*: few enough connected sets around every unit.  *Cost*: pairs of states, for every node and every
different part of what may be known at and below it, at each α.  *Reference*: docs/theory.md, section 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.transport import FARTHEST, transport
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import conditional_slack
from quiltdp.inference.evidence_tree import Branch, Revealed, evidence_branches
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up
from quiltdp.work import WorkBudget

__all__ = ["EveryAdversaryBound"]

Array = NDArray[np.float64]
_MOST_NODES = 40
_RULES = ("fill", "size")  # orders of elimination; the smaller of both is kept
_AT_ONCE = 1 << 18  # pairs of values handled at once


@register(
    "every-adversary",
    against=INFORMED,
    kind="certified bound",
    says="sequential coupling given each thing that may be known, one by one",
    auto=lambda problem: not isinstance(problem.model, ChainModel) and problem.adversary.name != PRIOR.name,
    near=1e-8,
)
class EveryAdversaryBound:
    """Sequential coupling, once for everything that may be known (method ``"every-adversary"``).

    Parameters
    ----------
    problem
        A model of few nodes; any units and any adversary.

    Raises
    ------
    ModelTooWide
        Naming how much may be known.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> from quiltdp.accountant.bounds import ready
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> ready(EveryAdversaryBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem) -> None:
        model, adversary = problem.model, problem.adversary
        if len(model.nodes) > _MOST_NODES:
            raise ModelTooWide(
                f"everything that may be known is listed for at most {_MOST_NODES} nodes,"
                f" this component has {len(model.nodes):,}",
                f"use another {option('method')}",
            )
        self._model, self._units = model, problem.listed()
        named = adversary.records
        self._may_know = [n for n in model.records if named is None or n in named]
        self._most = adversary.at_most

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List everything that may be known, with the laws it leaves."""
        self._workspace = workspace
        room = budget.pairs // (len(self._units) * len(_RULES))
        self._trees = [
            [
                evidence_branches(
                    self._model,
                    unit,
                    self._may_know,
                    at_most=self._most,
                    rule=rule,
                    most=room,
                    workspace=workspace,
                )
                for rule in _RULES
            ]
            for unit in self._units
        ]
        # a law is a quotient of sums of products of conditional probabilities, a few roundings for each
        nodes = len(self._model.nodes)
        states = max(self._model.cardinality(n) for n in self._model.nodes)
        self._slack = 4.0 * nodes * (conditional_slack(self._model) + (states + 8) * EPS)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        values, witness = np.array(known), {}
        if float(alpha.sum()) > FARTHEST:
            return Bounds(values, "every-adversary")
        least, partial = low, high < math.inf
        for k in np.argsort(-known, kind="stable").tolist():
            if known[k] <= least:
                break
            for branches in self._trees[k]:
                found, knows = self._leakage(self._units[k], branches, alpha)
                if found < values[k]:
                    values[k], witness[k] = found, {"known": sorted(knows), "evidence": knows}
            if partial:  # only the largest is asked for
                least = max(least, float(values[k]))
            if values[k] > high:
                break
        return Bounds(values, "every-adversary", "certified bound", witness)

    def _leakage(
        self, unit: Sequence[str], branches: Sequence[Branch], alpha: Vector
    ) -> tuple[float, dict[str, int]]:
        """Return the largest leakage of a unit over all adversaries, and what the worst one knows."""
        shape = [self._model.cardinality(n) for n in unit]
        states = np.indices(shape).reshape(len(unit), -1)
        own = np.zeros((states.shape[1],) * 2)
        for j, n in enumerate(unit):
            own += float(alpha[self._model.index[n]]) * (states[j][:, None] != states[j][None, :])
        total, worst = own.copy(), []
        for branch in branches:
            self._workspace.guard.check()
            message = _last_message(branch, alpha, self._slack)[:, branch.seen][:, :, branch.seen]
            both = branch.possible[:, :, None] & branch.possible[:, None, :]
            message = np.where(both, message, -np.inf)
            worst.append(message.argmax(axis=0))
            total += message.max(axis=0)
        np.fill_diagonal(total, 0.0)
        if not branches:
            return up(float(total.max()), 8.0), {}
        place = np.unravel_index(int(total.argmax()), total.shape)
        knows: dict[str, int] = {}
        for branch, argmax in zip(branches, worst, strict=True):
            found = branch.known(int(argmax[place]))
            knows |= {self._model.nodes[n]: v for n, v in found.items()}
        top = float(total[place])
        return (up(top, 16.0 + len(unit) + len(branches)) if top > 0.0 else 0.0), knows


def _last_message(branch: Branch, alpha: Vector, slack: float) -> Array:
    """Return m(z, z'; e) of the node next to T, axes (e, z, z'); what is impossible is not to be read."""
    messages: list[Array] = []
    for node in branch.nodes:
        messages.append(_message(node, messages, float(alpha[node.node]), slack))
    return messages[-1]


def _message(node: Revealed, messages: Sequence[Array], alpha: float, slack: float) -> Array:
    """Return m_k(z, z'; e) for every part e of what may be known at and below k."""
    parts, count, states = node.law.shape
    found = np.zeros((parts, count, count))
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    apart = alpha * (1.0 - np.eye(states))
    step = max(1, _AT_ONCE // max(1, len(first) * states**2))
    for start in range(0, parts if len(first) else 0, step):
        some = slice(start, start + step)
        law, value = node.law[some], node.value[some]
        d = np.broadcast_to(apart, (len(law), len(first), states, states)).copy()
        for b in node.below:
            below = messages[b.child][b.part[some]]
            d += below[:, b.seen[first][:, :, None], b.seen[second][:, None, :]]
        fixed = np.flatnonzero(value >= 0)
        if len(fixed):
            v = value[fixed]
            found[fixed[:, None] + start, first, second] = d[fixed, :, v, v]
        free = np.flatnonzero(value < 0)
        if len(free):
            p, q = law[free][:, first], law[free][:, second]
            n = len(free) * len(first)
            costs = d[free].reshape(n, states, states)
            t = transport(p.reshape(n, states), q.reshape(n, states), costs * (1.0 + 32.0 * EPS))
            found[free[:, None] + start, first, second] = t.reshape(len(free), -1) + slack
    return found

"""Every adversary by itself: sequential coupling given each thing that may be known, for models of few nodes.

Leakage(T) = max over S and possible x_S of what the prior adversary learns about T in the model given x_S.
Given x_S the records S are constants, and :mod:`.coupling` bounds the rest: with x_k the nodes revealed one
after the other, z_k the earlier ones that k depends on, and e what is known at and below k,

    m_k(z, z'; e) = T( P(x_k | z, e), P(x_k | z', e); D ),
    D(x, x') = α_k·1[x ≠ x'] + Σ over children c of m_c((z,x), (z',x'); e),     k unknown,
    m_k(z, z'; e) = D(v, v),                                                     k known to be v,

    Leakage(T) ≤ max over x_T ≠ x_T' of  Σ_{t∈T} α_t·1[x_t ≠ x_t'] + Σ over branches of max_e m(x_T, x_T'; e).

*Why.*  For fixed e it is the theorem of :mod:`.coupling` in the model given e.  A message depends on e
through the subtree of k alone, so it is computed once for each part of e that occurs
(:mod:`quiltdp.inference.evidence_tree`).  Given x_T the branches are independent, and so is what is known in
them; at most k known records are shared out among the branches.  Who knows something else of twins with the
same α learns as much from them as who knows it of the others: one arrangement is enough.

Where the informed clique tree has to suppose the worst tilt for every pair of states, here each tilt is the
one of an adversary who exists.  No looser than sequential coupling is against the prior adversary.

*Assumes*: few enough connected sets around every unit.  *Cost*: pairs of states, for every node and every
different part of what may be known at and below it, at each α.  *Reference*: docs/theory.md, section 17.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.transport import FARTHEST, transport
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import conditional_slack
from quiltdp.inference.evidence_tree import Branch, Revealed, evidence_branches, twins
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import WorkBudget

__all__ = ["EveryAdversaryBound"]

Array = NDArray[np.float64]
Choices: TypeAlias = dict[
    tuple[int, ...], tuple[int, ...]
]  # per pair of values, what is known in every branch
_SETS = 8  # 2 to so many pairs of states are counted for each set of nodes
_WORTH = 3  # a pair here takes less than elsewhere: most are of two states
_AT_ONCE = 1 << 18  # pairs of values handled at once


@register(
    "every-adversary",
    against=INFORMED,
    kind="certified bound",
    says="sequential coupling given each thing that may be known, one by one",
    auto=lambda problem: not isinstance(problem.model, ChainModel) and not problem.adversary.knows_nothing,
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
        self._model, self._units = model, problem.listed()
        named = adversary.records
        self._may_know = [n for n in model.records if named is None or n in named]
        self._most = adversary.at_most
        self._informed = adversary == INFORMED

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List everything that may be known, with the laws it leaves."""
        nodes = len(self._model.nodes)
        self._alike = twins(self._model, self._may_know)
        self.settles = self._informed and not self._alike
        apart = nodes - sum(len(c) for c in self._alike)
        if prod([2**apart, *(len(c) + 1 for c in self._alike)]) > budget.pairs >> _SETS:
            raise ModelTooWide(
                f"the sets that may be known are listed for about {budget.pairs.bit_length() - 1 - _SETS}"
                f" nodes, this component has {nodes:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._workspace = workspace
        room = _WORTH * budget.pairs
        self._branches: list[list[Branch]] = []
        self._like = self._first_alike()
        for k, unit in enumerate(self._units):
            if self._like[k] < k:
                self._branches.append(self._branches[self._like[k]])
                continue
            found = evidence_branches(
                self._model,
                unit,
                self._may_know,
                at_most=self._most,
                alike=self._alike,
                most=room,
                workspace=workspace,
            )
            room -= sum(b.pairs for b in found)
            self._branches.append(found)
        # a law is a quotient of sums of products of conditional probabilities, a few roundings for each
        states = max(self._model.cardinality(n) for n in self._model.nodes)
        self._slack = 4.0 * nodes * (conditional_slack(self._model) + (states + 8) * EPS)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        values, witness = np.array(known), {}
        answers: dict[int, tuple[float, dict[str, int]]] = {}
        if float(alpha.sum()) > FARTHEST or not self._twins_cost_the_same(alpha):
            return Bounds(values, "every-adversary")
        least, partial = low, high < math.inf
        for k in np.argsort(-known, kind="stable").tolist():
            if known[k] <= least:
                break
            first = self._like[k]
            if first not in answers:
                answers[first] = self._leakage(first, alpha)
            found, knows = answers[first]
            if found < values[k]:
                values[k], witness[k] = found, self._told(k, knows)
            if partial:  # only the largest is asked for
                least = max(least, float(values[k]))
            if values[k] > high:
                break
        return Bounds(values, "every-adversary", "certified bound", witness)

    def _first_alike(self) -> list[int]:
        """Return for every unit the first that is its twin (of single records), or itself."""
        classes = {n: c for c in self._alike for n in c}
        first: dict[tuple[str, ...], int] = {}
        return [
            first.setdefault(classes.get(unit[0], unit) if len(unit) == 1 else unit, k)
            for k, unit in enumerate(self._units)
        ]

    def _told(self, k: int, knows: Mapping[str, int]) -> dict[str, object]:
        """Return what the worst adversary knows, twins of the unit in each other's place."""
        own, first = self._units[k][0], self._units[self._like[k]][0]
        named = {first if n == own else n: v for n, v in knows.items()}
        return {"known": sorted(named), "evidence": named}

    def _twins_cost_the_same(self, alpha: Vector) -> bool:
        index = self._model.index
        return all(len({float(alpha[index[n]]) for n in c}) == 1 for c in self._alike)

    def _leakage(self, k: int, alpha: Vector) -> tuple[float, dict[str, int]]:
        """Return the largest leakage of a unit over all adversaries, and what the worst one knows."""
        unit, branches = self._units[k], self._branches[k]
        states = np.indices([self._model.cardinality(n) for n in unit]).reshape(len(unit), -1)
        own = np.zeros((states.shape[1],) * 2)
        for j, n in enumerate(unit):
            own += float(alpha[self._model.index[n]]) * (states[j][:, None] != states[j][None, :])
        # by how many records are known so far: with no limit on them, one number will do
        total, known = {0: own}, {0: _nobody(own)}
        for branch in branches:
            self._workspace.guard.check()
            total, known = self._with(branch, alpha, total, known)
        best = max(total, key=lambda c: _largest(total[c]))
        top = _largest(total[best])
        if top <= 0.0:
            return 0.0, {}
        off = np.where(np.eye(len(own), dtype=bool), -np.inf, total[best])
        place = divmod(int(off.argmax()), len(off))
        knows: dict[str, int] = {}
        for branch, e in zip(branches, known[best][place], strict=True):
            knows |= {self._model.nodes[n]: v for n, v in branch.known(e).items()}
        return up(top, 16.0 + len(unit) + 2.0 * len(branches)), knows

    def _with(
        self, branch: Branch, alpha: Vector, total: Mapping[int, Array], known: Mapping[int, Choices]
    ) -> tuple[dict[int, Array], dict[int, Choices]]:
        """Add what one more branch tells, for every number of known records."""
        message = _last_message(branch, alpha, self._slack)[:, branch.seen][:, :, branch.seen]
        both = branch.possible[:, :, None] & branch.possible[:, None, :]
        message = np.where(both, message, -np.inf)
        count = np.zeros_like(branch.count) if self._most is None else branch.count
        best: dict[int, Array] = {}
        chosen: dict[int, Choices] = {}
        for here in np.unique(count).tolist():
            rows = np.flatnonzero(count == here)
            which = rows[message[rows].argmax(axis=0)]
            gain = message[rows].max(axis=0)
            for before, sofar in total.items():
                number = before + here
                if self._most is not None and number > self._most:
                    continue
                value = sofar + gain
                told = {z: (*known[before][z], int(which[z])) for z in np.ndindex(value.shape)}
                old = best.get(number)
                if old is None:
                    best[number], chosen[number] = value, told
                    continue
                for z in np.argwhere(value > old).tolist():
                    chosen[number][tuple(z)] = told[tuple(z)]
                best[number] = np.maximum(old, value)
        return best, chosen


def _nobody(pairs: Array) -> Choices:
    return dict.fromkeys(np.ndindex(pairs.shape), ())


def _largest(pairs: Array) -> float:
    """Return the largest entry off the diagonal: a value and itself are no question."""
    return float(pairs[~np.eye(len(pairs), dtype=bool)].max(initial=0.0))


def _last_message(branch: Branch, alpha: Vector, slack: float) -> Array:
    """Return m(z, z'; e) of the node next to T, axes (e, z, z'); what is impossible is not to be read."""
    messages: list[Array] = []
    caps: list[Array] = []  # Σ α of the unknown records at and below a node: no message exceeds it
    for node in branch.nodes:
        own = float(alpha[node.node])
        cap = np.where(node.value < 0, own, 0.0)
        for b in node.below:
            cap = cap + caps[b.child][b.part]
        caps.append(cap)
        most = up_array(cap, 8.0 + len(branch.nodes))[:, None, None]
        messages.append(np.minimum(_message(node, messages, own, slack), most))
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
        there = law.max(axis=2) > 0
        e, pair = np.nonzero((value < 0)[:, None] & there[:, first] & there[:, second])
        if len(e):
            z, y = first[pair], second[pair]
            t = transport(law[e, z], law[e, y], d[e, pair] * (1.0 + 32.0 * EPS))
            found[e + start, z, y] = t + slack
    return found

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
same α learns as much from them as who knows it of the others: one arrangement is enough.  Symmetric units
whose trees are each other's image have one answer, and values are listed only of sets of nodes that can be
known by the worst adversary (:mod:`.worst_sets`).

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
from quiltdp.accountant.leakage.three_states import compared
from quiltdp.accountant.leakage.transport import FARTHEST
from quiltdp.accountant.leakage.worst_sets import worst_sets
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import conditional_slack
from quiltdp.inference.evidence_tree import Branch, Cases, Revealed, evidence_branches, twins
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
_WORTH_CHOOSING = 1 << 20  # pairs of states: fewer are compared sooner than chosen from
_LEFT = 0.6  # what share of all values may be left for choosing to pay
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
        self._branches: dict[int, list[Branch]] = {}
        self._like = self._first_alike()
        for k in range(len(self._units)):
            if self._like[k] == k:
                self._branches[k] = self._around(k, room)
                room -= sum(b.pairs for b in self._branches[k])
        self._asked = b""  # the last α, and what was answered there
        self._answers: dict[int, tuple[float, dict[str, int]]] = {}
        self._listed: dict[tuple[int, int], tuple[list[int], Cases]] = {}
        # a law is a quotient of sums of products of conditional probabilities, a few roundings for each
        states = max(self._model.cardinality(n) for n in self._model.nodes)
        self._slack = 4.0 * nodes * (conditional_slack(self._model) + (states + 8) * EPS)

    def _around(self, k: int, most: int) -> list[Branch]:
        return evidence_branches(
            self._model,
            self._units[k],
            self._may_know,
            at_most=self._most,
            alike=self._alike,
            most=most,
            workspace=self._workspace,
        )

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        values, witness = np.array(known), {}
        if float(alpha.sum()) > FARTHEST or not self._twins_cost_the_same(alpha):
            return Bounds(values, "every-adversary")
        if self._asked != alpha.tobytes():
            self._asked, self._answers = alpha.tobytes(), {}
        answers = self._answers
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
        unit, branches, own = self._units[k], self._branches[k], self._own(k, alpha)
        # by how many records are known so far: with no limit on them, one number will do
        total, known = {0: own}, {0: _nobody(own)}
        listed = self._cases(k, own, alpha)
        for cases in listed:
            self._workspace.guard.check()
            total, known = self._with(cases, alpha, total, known)
        best = max(total, key=lambda c: _largest(total[c]))
        top = _largest(total[best])
        if top <= 0.0:
            return 0.0, {}
        off = np.where(np.eye(len(own), dtype=bool), -np.inf, total[best])
        place = divmod(int(off.argmax()), len(off))
        knows: dict[str, int] = {}
        for cases, e in zip(listed, known[best][place], strict=True):
            knows |= {self._model.nodes[n]: v for n, v in cases.known(e).items()}
        return up(top, 16.0 + len(unit) + 2.0 * len(branches)), knows

    def _own(self, k: int, alpha: Vector) -> Array:
        """Return what every two states of a unit cost by themselves."""
        unit = self._units[k]
        states = np.indices([self._model.cardinality(n) for n in unit]).reshape(len(unit), -1)
        own = np.zeros((states.shape[1],) * 2)
        for j, n in enumerate(unit):
            own += float(alpha[self._model.index[n]]) * (states[j][:, None] != states[j][None, :])
        return own

    def _cases(self, k: int, own: Array, alpha: Vector) -> list[Cases]:
        """Return what is looked at in every branch: all, or what can be the worst; kept for the next α."""
        branches = self._branches[k]
        chosen = [list(range(len(b.values))) for b in branches]
        if self._most is None and sum(b.pairs for b in branches) > _WORTH_CHOOSING:
            worst = worst_sets(branches, own, alpha, self._slack)
            left = sum(int(b.values[sets].sum()) for b, sets in zip(branches, worst, strict=True))
            if left <= _LEFT * sum(int(b.values.sum()) for b in branches):
                chosen = worst
        for j, (branch, sets) in enumerate(zip(branches, chosen, strict=True)):
            if (k, j) not in self._listed or sets != self._listed[k, j][0]:
                self._listed[k, j] = (sets, branch.cases(sets))
        return [self._listed[k, j][1] for j in range(len(branches))]

    def _with(
        self, branch: Cases, alpha: Vector, total: Mapping[int, Array], known: Mapping[int, Choices]
    ) -> tuple[dict[int, Array], dict[int, Choices]]:
        """Add what one more branch tells, for every number of known records."""
        message = _last_message(branch, alpha, self._slack)[:, branch.seen][:, :, branch.seen]
        both = branch.possible[:, :, None] & branch.possible[:, None, :]
        message = np.where(both, message, -np.inf)
        count = np.zeros_like(branch.count) if self._most is None else branch.count
        best: dict[int, Array] = {}
        chosen: dict[int, Choices] = {}
        for here in sorted(set(count.tolist())):
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


def _last_message(branch: Cases, alpha: Vector, slack: float) -> Array:
    """Return m(z, z'; e) of the node next to T, axes (e, z, z'); what is impossible is not to be read."""
    messages: list[Array] = []
    caps: list[Array] = []  # Σ α of the unknown records at and below a node: no message exceeds it
    leaves: dict[tuple[bytes, bytes, float], int] = {}  # brothers and sisters have one message
    for k, node in enumerate(branch.nodes):
        own = float(alpha[node.node])
        if not node.below:
            same = leaves.setdefault((node.law.tobytes(), node.value.tobytes(), own), k)
            if same < k:
                messages.append(messages[same])
                caps.append(caps[same])
                continue
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
    step = max(1, _AT_ONCE // max(1, len(first) * states**2))
    for start in range(0, parts if len(first) else 0, step):
        some = slice(start, start + step)
        law, value = node.law[some], node.value[some]
        children = [(messages[b.child], b.part[some], b.seen) for b in node.below]
        fixed = np.flatnonzero(value >= 0)
        if len(fixed):
            v = value[fixed, None]
            same = np.zeros((len(fixed), len(first)))
            for below, part, seen in children:
                same += below[part[fixed, None], seen[first, v], seen[second, v]]
            found[fixed[:, None] + start, first, second] = same
        there = node.possible[some]
        e, pair = np.nonzero((value < 0)[:, None] & there[:, first] & there[:, second])
        if len(e):
            z, y = first[pair], second[pair]
            found[e + start, z, y] = compared(law, (e, z, y), children, alpha) + slack
    return found

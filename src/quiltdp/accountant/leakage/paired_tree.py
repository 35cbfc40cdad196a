"""(ε, δ) against the prior adversary on any narrow junction tree: pairings along the tree.

Claim.  Root a junction tree at a clique that holds the unit.  For the edge to a clique V with separator Z
and possible separator states z, z' let p = P(v | z), q = P(v | z') on the states of V, and

    D(v, v') = λ Σ_{records j ∈ V∖Z, v_j ≠ v'_j} Δ_j + Σ_{cliques c beyond V} m_c(v|_{Zc}, v'|_{Zc}).

Any flow with Σ_{v'} f(v, v') = p(v) and Σ_v f(v, v') e^{D(v, v')} ≤ e^{m(z, z')} q(v') makes m(z, z') the
toll of a pairing of everything beyond Z.  Its weight is, with f-mass f(v, v'), Σ_{j ∈ V∖Z} Δ_j 1[v_j ≠ v'_j]
plus the independent weights of the cliques beyond at (v, v').

Why.  g = f e^{D − m} at every clique; a message's toll is added in D and subtracted again by the clique it
leads to, so on a whole pair of databases ln g/f = λ w − m(root).  Given v (and v') the branches are
independent, so their pairings multiply.  Equal separator states continue equal: toll 0, weight 0.

Assumes.  No evidence (the prior adversary).  Cost.  A transport per pair of separator states and direction
of every edge, for each rate λ tried; :class:`ModelTooWide` beyond the work budget.

*Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.delta_bounds import register_delta
from quiltdp.accountant.leakage.flows import LARGEST_COST, MOST_STATES, transport_flows
from quiltdp.accountant.leakage.paired import (
    NOTHING,
    RATES,
    SLACK,
    Pairing,
    WeightLaw,
    joined,
    mixed,
    moved,
    smallest_over_rates,
    units_of,
)
from quiltdp.accountant.trade_offs import PAIRED_PATH, SEPARATOR_PAIR
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.chains import path_of
from quiltdp.inference.cliques import CliqueForest, clique_forest
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

__all__ = ["PairedTreeBound"]

_SHARE = 1.2  # of ε: the toll of group privacy at the rate where the search begins
_RARE = 1e-30  # flows below it are not worth a law: they count as δ = 1

Ints = NDArray[np.int64]


@register_delta(
    "paired-tree", against=PRIOR, says="pairings along a junction tree: flows and their weights", costly=True
)
class PairedTreeBound:
    """δ of every unit of a model with a narrow junction tree, against the prior adversary.

    Raises
    ------
    InvalidArgument
        For a long path: the chain's own pairings are as good and quicker.
    ModelTooWide
        If the pairs of separator states exceed the work budget, or a clique has too many new states.
    """

    def __init__(self, problem: Problem) -> None:
        path = path_of(problem.model)
        if len(problem.model.nodes) < 2 or (path is not None and len(path.nodes) > PAIRED_PATH):
            raise InvalidArgument("pairings along a tree are for networks")
        self._model = problem.model
        self._units = problem.listed()

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List the possible states of every clique and separator."""
        self._workspace = workspace
        join = [u for u in self._units if len(u) > 1]
        forest = clique_forest(
            self._model,
            join=join,
            max_entries=8 * budget.entries,
            max_states=budget.states,
            workspace=workspace,
        )
        self._tree = _Tree(self._model.index, forest, self._units)
        pairs = self._tree.pairs()
        most = budget.pairs // SEPARATOR_PAIR
        if pairs > most:
            raise ModelTooWide(
                f"the separators have {pairs:,} pairs of possible states, the limit is {most:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        widest = self._tree.widest()
        if widest > MOST_STATES:
            raise ModelTooWide(
                f"a clique has {widest} states for one state of its separator, the limit is {MOST_STATES}",
                f"use another {option('method')}",
            )

    def weigh(self, weights: Vector) -> WeighedTree:
        """Return the pairings for given sensitivities."""
        weights = np.asarray(weights, dtype=np.float64)
        unit, units = units_of(weights)
        key = units.tobytes()
        made = self._workspace.keep(
            "tree pairings", key, lambda: _Pairings(self._tree, units, self._workspace), lambda _: 2**24
        )
        own = np.array([units[[self._model.index[n] for n in u]].sum() * unit for u in self._units])
        return WeighedTree(made, unit, own)


@dataclass(frozen=True, eq=False)
class WeighedTree:
    """Pairings along a tree with given sensitivities; every unit is a class of its own."""

    pairings: _Pairings
    unit: float
    own: Vector

    @property
    def where(self) -> NDArray[np.intp]:
        """Every unit by itself."""
        return np.arange(len(self.own), dtype=np.intp)

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of every unit, at the rate that is best for the worst of them."""
        if epsilon <= 0.0 or not self.pairings.units.any():
            value = profile.delta(epsilon, 0.0) if not self.pairings.units.any() else 1.0
            return Bounds(np.full(len(self.own), value), "paired-tree")

        def at(k: int) -> Vector:
            found = self.pairings.at(k)
            if found is None:
                return np.ones(len(self.own))
            return np.array(
                [
                    max(
                        (Pairing(t, law, w).delta(profile, epsilon, RATES[k], self.unit) for t, law in pairs),
                        default=profile.delta(epsilon, 0.0),
                    )
                    for pairs, w in zip(found, self.own.tolist(), strict=True)
                ]
            )

        known: dict[int, Vector] = {}

        def worst(k: int) -> float:
            known[k] = at(k)
            return float(known[k].max())

        # group privacy would have the toll λ Σ u: the best rate lies above the one where that is ε
        start = 8 * round(math.log(_SHARE * epsilon / float(self.pairings.units.sum())) / (8 * RATES.spacing))
        smallest_over_rates(worst, start + 8)
        return Bounds(np.minimum.reduce(list(known.values())), "paired-tree")


@dataclass(frozen=True, eq=False)
class _Task:
    """A clique read away from its separator (or unit): who groups its states, and what lies beyond."""

    clique: int
    label: Ints
    count: int
    inside: tuple[str, ...]  # the nodes of the separator or unit
    beyond: tuple[tuple[int, Ints], ...]  # (task, separator state of every clique state)


class _Tree:
    """The tasks of every direction of every edge, those they need first, then one per unit."""

    def __init__(
        self, index: Mapping[str, int], forest: CliqueForest, units: tuple[tuple[str, ...], ...]
    ) -> None:
        self.forest, self.index = forest, index
        near: list[list[tuple[int, int, bool]]] = [[] for _ in forest.cliques]
        for e, edge in enumerate(forest.edges):
            near[edge.parent].append((edge.child, e, True))
            near[edge.child].append((edge.parent, e, False))
        made: dict[tuple[int, int], int] = {}
        tasks: list[_Task] = []

        def labels(e: int, at_parent: bool) -> Ints:
            edge = forest.edges[e]
            return edge.parent_label if at_parent else edge.child_label

        def message(to: int, of: int, e: int) -> None:
            edge = forest.edges[e]
            beyond = tuple(
                (made[of, c], labels(other, at_parent)) for c, other, at_parent in near[of] if c != to
            )
            made[to, of] = len(tasks)
            label = labels(e, edge.parent == of)
            tasks.append(_Task(of, label, edge.count, edge.separator, beyond))

        order = sorted(range(len(forest.edges)), key=lambda e: forest.edges[e].child)
        for e in reversed(order):
            message(forest.edges[e].parent, forest.edges[e].child, e)
        for e in order:
            message(forest.edges[e].child, forest.edges[e].parent, e)
        self.messages = len(tasks)
        for unit in units:
            k = forest.holding(unit)[0]
            label, count = forest.cliques[k].labels(unit)
            beyond = tuple((made[k, c], labels(e, at_parent)) for c, e, at_parent in near[k])
            tasks.append(_Task(k, label, count, unit, beyond))
        self.tasks = tuple(tasks)

    def pairs(self) -> int:
        """How many pairs of states all tasks compare."""
        return sum(t.count * (t.count - 1) for t in self.tasks)

    def widest(self) -> int:
        """The most states of a clique for one state of its separator."""
        return max(int(np.bincount(t.label).max()) for t in self.tasks)


@dataclass(eq=False)
class _Messages:
    """Toll and law of every ordered pair of different separator states."""

    tolls: Vector
    laws: dict[tuple[int, int], WeightLaw]


@dataclass(eq=False)
class _Pairings:
    """All pairings for given sensitivities (in units), kept by rate."""

    tree: _Tree
    units: NDArray[np.int64]
    workspace: Workspace
    kept: dict[int, tuple[tuple[tuple[float, WeightLaw], ...], ...] | None] = field(default_factory=dict)

    def at(self, k: int) -> tuple[tuple[tuple[float, WeightLaw], ...], ...] | None:
        """Return, for every unit, toll and law of every pair of its values; none if a cost is too large."""
        if k not in self.kept:
            self.kept[k] = self._made(RATES[k] * (1.0 + 4.0 * EPS))
        return self.kept[k]

    def _made(self, rate: float) -> tuple[tuple[tuple[float, WeightLaw], ...], ...] | None:
        if rate * float(self.units.sum()) > LARGEST_COST:
            return None
        found: list[_Messages] = []
        for task in self.tree.tasks:
            self.workspace.guard.check()
            found.append(self._message(task, rate, found))
        return tuple(
            tuple((float(m.tolls[z, y]), m.laws[z, y]) for z, y in sorted(m.laws))
            for m in found[self.tree.messages :]
        )

    def _message(self, task: _Task, rate: float, found: list[_Messages]) -> _Messages:
        clique = self.tree.forest.cliques[task.clique]
        index = self.tree.index
        weight = np.zeros((len(clique.states),) * 2, dtype=np.int64)
        for column, n in enumerate(clique.nodes):
            w = int(self.units[index[n]])
            if n not in task.inside and w:
                weight += w * (clique.states[:, None, column] != clique.states[None, :, column])
        cost = rate * weight.astype(np.float64)
        for other, label in task.beyond:
            cost = cost + found[other].tolls[np.ix_(label, label)]
        cost = cost * (1.0 + (len(task.beyond) + 4.0) * EPS)
        groups = [np.flatnonzero(task.label == z) for z in range(task.count)]
        laws_of = [_law(clique.log_p[g]) for g in groups]
        result = _Messages(np.zeros((task.count, task.count)), {})
        pairs = [(z, y) for z in range(task.count) for y in range(task.count) if z != y]
        if not pairs:
            return result
        slack = SLACK + 3.0 * self.tree.forest.slack
        value, flows = _solve(groups, laws_of, cost, pairs)
        cap = rate * float(self._beyond(task)) * (1.0 + 4.0 * EPS)
        known: dict[tuple[tuple[int, int, int], ...], WeightLaw] = {}
        for (z, y), v, f in zip(pairs, value.tolist(), flows, strict=True):
            toll = max(v, 0.0) + slack
            if toll >= cap:  # call everything beyond different: group privacy of what lies there
                result.tolls[z, y] = cap
                result.laws[z, y] = moved(NOTHING, self._beyond(task))
                continue
            result.tolls[z, y] = toll
            result.laws[z, y] = self._weights(task, groups[z], groups[y], f, weight, found, known)
        return result

    def _beyond(self, task: _Task) -> int:
        """Return the weight of all records beyond a separator."""
        nodes: set[str] = set()
        stack = [task]
        while stack:
            t = stack.pop()
            nodes |= set(self.tree.forest.cliques[t.clique].nodes)
            stack.extend(self.tree.tasks[other] for other, _ in t.beyond)
        index = self.tree.index
        places = [index[n] for n in sorted(nodes - set(task.inside))]
        return int(self.units[places].sum()) if places else 0

    def _weights(
        self,
        task: _Task,
        first: Ints,
        second: Ints,
        f: Vector,
        weight: Ints,
        found: list[_Messages],
        known: dict[tuple[tuple[int, int, int], ...], WeightLaw],
    ) -> WeightLaw:
        """Return the law of the weight under a flow: over its pairs of states, and what lies beyond each."""
        parts: list[tuple[float, WeightLaw]] = []
        tail = 0.0
        for i, j in np.argwhere(f > 0.0).tolist():
            v, w = int(first[i]), int(second[j])
            if f[i, j] < _RARE:
                tail += float(f[i, j])
                continue
            key = tuple(
                (other, int(label[v]), int(label[w])) for other, label in task.beyond if label[v] != label[w]
            )
            if key not in known:
                law = NOTHING
                for other, a, b in key:
                    law = joined(law, found[other].laws[a, b])
                known[key] = law
            parts.append((float(f[i, j]), moved(known[key], int(weight[v, w]))))
        law = mixed(parts, tail)
        growth = 1.0 + 4.0 * EPS + 2.0 * self.tree.forest.slack
        return WeightLaw(law.masses * growth, law.tail * growth, law.step, law.excess)


def _law(log_p: Vector) -> Vector:
    """Return the conditional law of a group of states."""
    mass = np.exp(log_p - log_p.max())
    return np.asarray(mass / mass.sum())


def _solve(
    groups: list[NDArray[np.intp]], laws: list[Vector], cost: Vector, pairs: list[tuple[int, int]]
) -> tuple[Vector, list[Vector]]:
    """Return value and flows of every pair, padded to one shape."""
    most = max(len(g) for g in groups)
    p, q = np.zeros((len(pairs), most)), np.zeros((len(pairs), most))
    d = np.zeros((len(pairs), most, most))
    for k, (z, y) in enumerate(pairs):
        p[k, : len(groups[z])], q[k, : len(groups[y])] = laws[z], laws[y]
        d[k, : len(groups[z]), : len(groups[y])] = cost[np.ix_(groups[z], groups[y])]
    value, flows = transport_flows(p, q, d)
    return value, [flows[k, : len(groups[z]), : len(groups[y])] for k, (z, y) in enumerate(pairs)]

"""Laws of nodes: marginals and conditionals, a model given what is known, and laws under weights.

Marginals come from one junction tree per workspace, or from elimination where that is too wide.  Evidence is
put into the factors of a model, and what is left is a model again (:func:`condition`).

*Weights* (:class:`TiltedTree`): E[ Π_j w_j(x_j) ] and the tilted law, by one pass up and one down a tree.
With calibrated cliques P(x) = Π_k P(C_k | S_k), so weights of single nodes enter where the node first
appears and the sum runs from the leaves to the roots; evidence is a weight that is 0 elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, option
from quiltdp.inference.plan import CASES_AT_ONCE, MAX_ENTRIES, TABLE_OVERHEAD, TREE_BYTES
from quiltdp.inference.tables import (
    FactorTables,
    LogTable,
    aligned,
    factor_tables,
    log_sum,
    product,
    sum_out,
)
from quiltdp.inference.trees import JunctionTree, junction_tree, plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = [
    "TiltedTree",
    "check_disjoint",
    "condition",
    "conditional",
    "count_evidence",
    "each_evidence",
    "log_marginal",
    "posterior",
    "relevant_factors",
]


def _calibrated(workspace: Workspace) -> JunctionTree | None:
    """Return the junction tree of a workspace's model, None if it is too large."""
    plan = plan_junction_tree(workspace.model, workspace=workspace)
    if not plan.fits or plan.memory > TREE_BYTES:
        return None
    return junction_tree(workspace.model, workspace=workspace)


def check_disjoint(model: Model, **parts: Collection[str]) -> None:
    """Refuse unknown nodes, a string where a collection is due, and a node in two parts."""
    owner: dict[str, str] = {}
    for part, nodes in parts.items():
        if isinstance(nodes, str):
            raise InvalidArgument(f"{part} must be a collection of node names, not the string {nodes!r}")
        model.require(nodes)
        for n in sorted(frozenset(nodes)):
            if n in owner:
                raise InvalidArgument(f"node {n!r} is in both {option(owner[n])} and {option(part)}")
            owner[n] = part


def log_marginal(
    model: Model,
    nodes: Sequence[str],
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> Table:
    """Return ln P(x_nodes), axes in the order given: −∞ exactly where impossible.

    The junction tree answers if the model is narrow enough for one; otherwise the nodes that matter
    (for a Bayesian network the ancestors) are eliminated for this question alone.

    Raises
    ------
    ModelTooWide
        If neither fits; the message names the nodes of the table.
    """
    space = workspace if workspace is not None else Workspace(model)
    size = math.prod(model.cardinality(n) for n in nodes)
    if size > max_entries:
        raise ModelTooWide(
            f"the marginal of {{{', '.join(nodes)}}} has {size:,} entries, over {max_entries:,}",
            f"raise {option('max_entries')}",
        )
    order = tuple(sorted(nodes))

    def make() -> Table:
        tree = _calibrated(space)
        if tree is not None:
            try:
                return tree.log_marginal(order)
            except ModelTooWide:
                pass
        return _by_elimination(space, order, {}, max_entries)

    found = space.keep("marginal", order, make, lambda table: 256 + 8 * table.size)
    return found.transpose([order.index(n) for n in nodes])


def conditional(
    model: Model,
    of: Sequence[str],
    given: Sequence[str] = (),
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> Table:
    """Return P(x_of | x_given), axes given… then of…; a row of impossible evidence is all zero.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> conditional(m, ["A"], ["B"]).round(4).tolist()
    [[0.8182, 0.1818], [0.1111, 0.8889]]
    """
    check_disjoint(model, of=of, given=given)
    scope = (*given, *of)
    logs = log_marginal(model, scope, max_entries=max_entries, workspace=workspace)
    mass = aligned((tuple(given), log_sum((scope, logs), given)), scope)
    return np.asarray(np.exp(logs - np.where(mass > -np.inf, mass, 0.0)))


def posterior(
    model: Model,
    of: Sequence[str],
    evidence: Mapping[str, str],
    *,
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> Table:
    """Return P(x_of | evidence) for values given by state name, one axis per node of ``of``.

    Raises
    ------
    InvalidArgument
        If a state does not exist or the evidence is impossible: it is never conditioned on.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> posterior(m, ["A"], {"B": "1"}).round(4).tolist()
    [0.1111, 0.8889]
    """
    check_disjoint(model, of=of, evidence=tuple(evidence))
    fixed: dict[str, int] = {}
    for n, state in evidence.items():
        if state not in model.states[n]:
            raise InvalidArgument(f"node {n!r} has no state {state!r}; it has {', '.join(model.states[n])}")
        fixed[n] = model.states[n].index(state)
    space = workspace if workspace is not None else Workspace(model)
    logs = _by_elimination(space, of, fixed, max_entries)
    mass = log_sum((tuple(of), logs), ())
    if not mass > -np.inf:
        raise InvalidArgument(f"the evidence {dict(evidence)} is impossible in this model")
    return np.asarray(np.exp(logs - mass))


def relevant_factors(model: Model, tables: FactorTables, nodes: Collection[str]) -> frozenset[int]:
    """Return the factors that matter for the joint law of ``nodes``.

    For a Bayesian network these are the tables of the nodes and their ancestors: summing out anything
    below gives 1.  For a Markov network all factors matter.
    """
    if not model.directed:
        return frozenset(range(len(model.factors)))
    found: dict[int, None] = {}
    reached = list(dict.fromkeys(nodes))
    seen = set(reached)
    for n in reached:  # grows while it is walked
        own = next(f for f in tables.near(n) if tables.scope(f)[-1] == n)
        found[own] = None
        fresh = [p for p in tables.scope(own)[:-1] if p not in seen]
        seen.update(fresh)
        reached.extend(fresh)
    return frozenset(found)


def _by_elimination(
    workspace: Workspace, nodes: Sequence[str], fixed: Mapping[str, int], max_entries: int
) -> Table:
    """Return ln P(x_nodes, fixed), normalised over everything if nothing is fixed."""
    model, factors = workspace.model, factor_tables(workspace)
    near = relevant_factors(model, factors, (*nodes, *fixed))
    tables = [factors.logs(f).at(fixed) for f in sorted(near)]
    gone = {n for t in tables for n in t.scope if n not in nodes}
    left = sum_out(tables, gone, limit=max_entries, guard=workspace.guard)
    shape = tuple(model.cardinality(n) for n in nodes)
    joint = product(left, limit=max_entries) if left else LogTable((), np.zeros(()))
    full = np.broadcast_to(aligned((joint.scope, joint.array), tuple(nodes)), shape)
    if fixed:
        return np.asarray(full)
    return np.asarray(full - log_sum((tuple(nodes), full), ()))


def condition(model: Model, evidence: Mapping[str, int | str]) -> Model:
    """Return the law of the other nodes given the values of some, as a Markov network.

    Parameters
    ----------
    evidence
        A state (its name or its number) for some nodes; at least one node must be left.

    Raises
    ------
    InvalidArgument
        If a node or a state does not exist, or nothing is left.
    InvalidModel
        If a factor alone shows that the evidence is impossible.  Evidence that only several factors
        together exclude leaves a model without a possible state, which inference refuses.

    Examples
    --------
    >>> from quiltdp import Model, conditional
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> conditional(condition(m, {"B": 1}), ["A"]).round(4).tolist()
    [0.1111, 0.8889]
    """
    fixed = {n: _state(model, n, value) for n, value in evidence.items()}
    left = [n for n in model.nodes if n not in fixed]
    if not left:
        raise InvalidArgument("every node of the model is known: there is nothing left to ask about")
    potentials = []
    for factor in model.factors:
        at = tuple(fixed.get(n, slice(None)) for n in factor.scope)
        table = np.asarray(factor.table)[at]
        if not (table > 0).any():
            raise InvalidModel(f"the evidence {dict(evidence)} is impossible in this model")
        scope = [n for n in factor.scope if n not in fixed]
        if scope:
            potentials.append((scope, table))
    records = [n for n in model.records if n not in fixed]
    if not records:
        raise InvalidArgument("every record of the model is known: there is nothing left to ask about")
    people = {n: k for n, k in model.people.items() if n not in fixed}
    states = {n: model.states[n] for n in left}
    return Model.from_potentials(states, potentials, records=records, people=people)


def _state(model: Model, node: str, value: int | str) -> int:
    model.require([node])
    states = model.states[node]
    if isinstance(value, str):
        if value not in states:
            raise InvalidArgument(f"node {node!r} has no state {value!r}; it has {', '.join(states)}")
        return states.index(value)
    if not 0 <= value < len(states):
        raise InvalidArgument(f"node {node!r} has no state number {value}; it has {len(states)}")
    return int(value)


def count_evidence(model: Model, nodes: Collection[str], most: int | None = None) -> int:
    """Return how many sets of known nodes with values there are, the empty one included."""
    sizes = [model.cardinality(n) for n in nodes]
    if most is None or most >= len(sizes):
        return math.prod(1 + s for s in sizes)
    if len(set(sizes)) == 1:
        return sum(math.comb(len(sizes), k) * sizes[0] ** k for k in range(most + 1))
    sums = [1] + [0] * most  # elementary symmetric polynomials of the numbers of states
    for s in sizes:
        for k in range(most, 0, -1):
            sums[k] += s * sums[k - 1]
    return sum(sums)


def each_evidence(model: Model, nodes: Collection[str], most: int | None = None) -> Iterator[dict[str, int]]:
    """Yield every set of known nodes with every value, fewer known ones first.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> [len(e) for e in each_evidence(m, ["A", "B"], most=1)], count_evidence(m, ["A", "B"], most=1)
    ([0, 1, 1, 1, 1], 5)
    """
    chosen = [n for n in model.nodes if n in set(nodes)]
    for size in range((len(chosen) if most is None else min(most, len(chosen))) + 1):
        for known in itertools.combinations(chosen, size):
            for values in itertools.product(*(range(model.cardinality(n)) for n in known)):
                yield dict(zip(known, values, strict=True))


_RARE = 1e-280  # a mean below it has lost digits, or may lose them: it is computed in logarithms
_CASE = "\0case"  # the axis of many cases; no node is called so


def _summed(clique: Sequence[str], table: Table, keep: Sequence[str]) -> Table:
    """Return the sum over the nodes that are not kept, one row per case."""
    gone = tuple(k + 1 for k, n in enumerate(clique) if n not in keep)
    return np.asarray(table.sum(axis=gone) if gone else table)


class TiltedTree:
    """A junction tree that answers for any weights of single nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> tree = TiltedTree(m)
    >>> float(np.exp(tree.log_mean({"A": np.log([1.0, 2.0])})).round(6))
    1.7
    """

    def __init__(self, model: Model, *, max_entries: int = 2**20, workspace: Workspace | None = None) -> None:
        tree = junction_tree(model, max_entries=max_entries, workspace=workspace)
        self.model = model
        self._cliques, self._parent, self._separators = tree.cliques, tree.plan.parent, tree.separators
        self._new = [[n for n in c if n not in s] for c, s in zip(tree.cliques, tree.separators, strict=True)]
        self._tables = [
            tree.clique_log_marginal(k) if p < 0 else tree.given_above(k) for k, p in enumerate(self._parent)
        ]

    @property
    def size(self) -> int:
        """Entries of all clique tables."""
        return sum(int(t.size) for t in self._tables)

    @property
    def effort(self) -> int:
        """Entries of all clique tables, and a flat price for every one of them: what a propagation costs."""
        return self.size + TABLE_OVERHEAD * len(self._tables)

    @property
    def neighbours(self) -> dict[str, int]:
        """How many nodes share a clique with each node."""
        near: dict[str, set[str]] = {n: set() for n in self.model.nodes}
        for clique in self._cliques:
            for n in clique:
                near[n].update(clique)
        return {n: len(found) - 1 for n, found in near.items()}

    def log_mean(self, weights: Mapping[str, Table]) -> float:
        """Return ln E[ Π exp w_n(x_n) ]; −∞ if the weights leave nothing possible."""
        return self._up(weights)[0]

    def laws(self, weights: Mapping[str, Table]) -> tuple[float, dict[str, Table]]:
        """Return ln E and the tilted law of every node."""
        total, sums, messages = self._up(weights)
        beliefs: list[Table] = [np.zeros(0)] * len(self._cliques)
        found: dict[str, Table] = {}
        for k, p in enumerate(self._parent):  # parents come first
            belief = sums[k]
            if p >= 0:
                above = log_sum((self._cliques[p], beliefs[p]), self._separators[k])
                with np.errstate(invalid="ignore"):
                    ratio = np.where(above > -np.inf, above - messages[k], -np.inf)
                belief = belief + aligned((self._separators[k], ratio), self._cliques[k])
            beliefs[k] = belief
            for n in self._new[k]:
                law = log_sum((self._cliques[k], belief), (n,))
                top = law.max()
                plain = np.exp(law - top) if top > -np.inf else np.zeros_like(law)
                found[n] = plain / plain.sum() if top > -np.inf else plain
        return total, found

    def laws_given(self, cases: Sequence[Mapping[str, int]]) -> dict[str, Table]:
        """Return P(x_n | case) for every node, one row per case, many cases at once; 0 if it is impossible.

        In plain probabilities: quick, for searches; cases rarer than 1e-300 count as impossible.
        """
        return self._of_many(cases, [{}] * len(cases))[1]

    def laws_tilted(
        self, cases: Sequence[Mapping[str, int]], tilts: Sequence[Mapping[str, Table]]
    ) -> tuple[Table, dict[str, Table]]:
        """Return ln E[ 1[case] Π exp w_n(x_n) ] and the tilted laws, one row per case with its tilt.

        As quick as :meth:`laws_given`; a case that is too rare for plain probabilities is asked by itself.
        """
        log_means, laws = self._of_many(cases, tilts)
        for row in np.flatnonzero(log_means < math.log(_RARE)).tolist():
            tilt = {n: w for n, w in tilts[row].items() if n not in cases[row]}
            log_means[row], alone = self.laws({**self.evidence(cases[row]), **tilt})
            for n, law in alone.items():
                laws[n][row] = law
        return log_means, laws

    def _of_many(
        self, cases: Sequence[Mapping[str, int]], tilts: Sequence[Mapping[str, Table]]
    ) -> tuple[Table, dict[str, Table]]:
        step = max(1, CASES_AT_ONCE // max(t.size for t in self._tables))
        slices = [slice(k, k + step) for k in range(0, len(cases), step)]
        parts = [self._given(cases[some], tilts[some]) for some in slices]
        laws = {n: np.concatenate([part[n] for _, part in parts]) for n in self.model.nodes}
        return np.concatenate([log_means for log_means, _ in parts]), laws

    @cached_property
    def _plain(self) -> list[Table]:
        return [np.exp(table)[None] for table in self._tables]

    def _given(
        self, cases: Sequence[Mapping[str, int]], tilts: Sequence[Mapping[str, Table]]
    ) -> tuple[Table, dict[str, Table]]:
        masks: dict[str, Table] = {}
        log_means = np.zeros(len(cases))
        for row, (case, tilt) in enumerate(zip(cases, tilts, strict=True)):
            for n in (*case, *(n for n in tilt if n not in case)):
                if n not in masks:
                    masks[n] = np.ones((len(cases), self.model.cardinality(n)))
                if n in case:
                    masks[n][row] = 0.0
                    masks[n][row, case[n]] = 1.0
                else:
                    top = float(tilt[n].max())
                    masks[n][row] = np.exp(tilt[n] - top)
                    log_means[row] += top
        sums, messages = self._passed_up(masks)
        with np.errstate(divide="ignore"):
            for message, p in zip(messages, self._parent, strict=True):
                if p < 0:
                    log_means = log_means + np.log(message)
        found: dict[str, Table] = {}
        for k, p in enumerate(self._parent):  # parents come first
            if p >= 0:
                above = _summed(self._cliques[p], sums[p], self._separators[k])
                below = np.where(messages[k] > 0.0, messages[k], 1.0)  # where it is 0, so is what is above
                sums[k] = sums[k] * aligned(
                    ((_CASE, *self._separators[k]), above / below), (_CASE, *self._cliques[k])
                )
            for n in self._new[k]:
                law = _summed(self._cliques[k], sums[k], (n,))
                if len(law) < len(cases):  # nothing is known, nothing is weighed here
                    law = np.broadcast_to(law, (len(cases), law.shape[1]))
                whole = law.sum(axis=1, keepdims=True)
                found[n] = law / np.where(whole > 0.0, whole, 1.0)
        return log_means, found

    def means(
        self, weights: Mapping[str, NDArray[np.complex128]], fixed: Mapping[str, int], cases: int
    ) -> NDArray[np.complex128]:
        """Return E[ 1[fixed] Π w_n(x_n) ] for many weights at once, one row per case; weights may be complex.

        In plain probabilities: what is fixed should not be rarer than 1e-300.
        """
        step = max(1, CASES_AT_ONCE // max(t.size for t in self._tables))
        parts = [
            self._means({n: w[k : k + step] for n, w in weights.items()}, fixed)
            for k in range(0, cases, step)
        ]
        return np.concatenate(parts)

    def _means(
        self, weights: Mapping[str, NDArray[np.complex128]], fixed: Mapping[str, int]
    ) -> NDArray[np.complex128]:
        kept = {n: np.eye(self.model.cardinality(n))[[state]] for n, state in fixed.items()}
        both = {n: weights.get(n, 1.0) * kept.get(n, 1.0) for n in (*weights, *kept)}
        _, messages = self._passed_up(both)
        result = np.ones(1, dtype=np.complex128)
        for message, p in zip(messages, self._parent, strict=True):
            if p < 0:
                result = result * message
        return np.asarray(result)

    def _passed_up(self, weights: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return weighted cliques, what comes from below included, and messages: one row per case, plain."""
        sums: list[Any] = []
        for k, table in enumerate(self._plain):
            total = table
            for n in self._new[k]:
                if n in weights:
                    total = total * aligned(((_CASE, n), weights[n]), (_CASE, *self._cliques[k]))
            sums.append(total)
        messages: list[Any] = [None] * len(sums)
        for k in range(len(sums) - 1, -1, -1):  # children come after their parents
            p, above = self._parent[k], self._separators[k]
            messages[k] = _summed(self._cliques[k], sums[k], above)
            if p >= 0:
                sums[p] = sums[p] * aligned(((_CASE, *above), messages[k]), (_CASE, *self._cliques[p]))
        return sums, messages

    def _up(self, weights: Mapping[str, Table]) -> tuple[float, list[Table], list[Table]]:
        """Sum from the leaves to the roots: (ln E, weighted clique tables, messages to the parents)."""
        sums: list[Table] = []
        for k, table in enumerate(self._tables):
            total = table
            for n in self._new[k]:
                if n in weights:
                    total = total + aligned(((n,), weights[n]), self._cliques[k])
            sums.append(total)
        messages: list[Table] = [np.zeros(())] * len(self._cliques)
        result = 0.0
        for k in range(len(self._cliques) - 1, -1, -1):
            p = self._parent[k]
            message = log_sum((self._cliques[k], sums[k]), self._separators[k])
            messages[k] = message
            if p >= 0:
                sums[p] = sums[p] + aligned((self._separators[k], message), self._cliques[p])
            else:
                result += float(message)
        return result, sums, messages

    def evidence(self, known: Mapping[str, int]) -> dict[str, Table]:
        """Return the weights that fix nodes to states."""
        fixed = {}
        for n, state in known.items():
            weight = np.full(self.model.cardinality(n), -np.inf)
            weight[state] = 0.0
            fixed[n] = weight
        return fixed

"""Laws of nodes: marginals and conditionals, and a model given what is known.

Marginals come from one junction tree per workspace, or from elimination where that is too wide.  Evidence is
put into the factors of a model, and what is left is a model again (:func:`condition`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, option
from quiltdp.inference.plan import MAX_ENTRIES, TREE_BYTES
from quiltdp.inference.tables import (
    FactorTables,
    aligned,
    factor_tables,
    log_sum,
    product,
    sum_out,
)
from quiltdp.inference.trees import JunctionTree, junction_tree, plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.interface import any_model
from quiltdp.model import Model, Table


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
        return _by_elimination(space, order, max_entries)

    found = space.keep("marginal", order, make, lambda table: 256 + 8 * table.size)
    return found.transpose([order.index(n) for n in nodes])


@any_model
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


def _by_elimination(workspace: Workspace, nodes: Sequence[str], max_entries: int) -> Table:
    """Return ln P(x_nodes) by summing out everything else that matters."""
    model, factors = workspace.model, factor_tables(workspace)
    tables = [factors.logs(f) for f in sorted(relevant_factors(model, factors, nodes))]
    gone = {n for t in tables for n in t.scope if n not in nodes}
    joint = product(sum_out(tables, gone, limit=max_entries, guard=workspace.guard), limit=max_entries)
    shape = tuple(model.cardinality(n) for n in nodes)
    full = np.broadcast_to(aligned((joint.scope, joint.array), tuple(nodes)), shape)
    return np.asarray(full - log_sum((tuple(nodes), full), ()))


@any_model
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
    >>> from quiltdp import Model
    >>> from quiltdp.inference.marginals import conditional
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

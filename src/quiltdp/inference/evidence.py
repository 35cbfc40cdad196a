"""A model given what is known: evidence is put into its factors, and what is left is a model again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product
from math import comb, prod

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.model import Model

__all__ = ["condition", "count_evidence", "each_evidence"]


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
        return prod(1 + s for s in sizes)
    if len(set(sizes)) == 1:
        return sum(comb(len(sizes), k) * sizes[0] ** k for k in range(most + 1))
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
        for known in combinations(chosen, size):
            for values in product(*(range(model.cardinality(n)) for n in known)):
                yield dict(zip(known, values, strict=True))

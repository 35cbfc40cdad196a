"""Kin-privacy metrics people quote: estimation error and entropy before and after a release.

The adversary knows the pedigree and the frequencies, perhaps some relatives' genotypes, and sees one
noisy count.  The release is the count plus two-sided geometric noise, P(k) ∝ e^{−α|k|/Δ}, the discrete
Laplace mechanism.  The count is summed by a chain of counters added to the network, so the posterior
is exact inference, and outside the range of the count the posterior no longer changes, so the average
over all outputs is a finite sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from quiltdp.domains.pedigree.queries import GenotypeQuery
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.trees import junction_tree
from quiltdp.model import Factor, Model, Table

__all__ = ["KinPrivacy", "count_table", "kin_privacy"]


@dataclass(frozen=True, slots=True)
class KinPrivacy:
    """The adversary's knowledge of one person's genotype, before and after the release.

    ``error`` is the expected estimation error E|x − x̂| when x̂ is drawn from the posterior, ``entropy``
    the entropy of the posterior divided by ln(number of genotypes): 1 knows nothing, 0 knows all.
    """

    person: str
    error_before: float
    error_after: float
    entropy_before: float
    entropy_after: float


def kin_privacy(
    model: Model,
    query: GenotypeQuery,
    *,
    dp_epsilon: float,
    people: Collection[str] | None = None,
    known: Mapping[str, int] | None = None,
) -> tuple[KinPrivacy, ...]:
    """Return the metrics for each of ``people`` (default: every record not known).

    Assumes a count with whole-number terms (allele count, carrier count) and a family whose network
    with the counter is narrow enough for exact inference.

    Raises
    ------
    ModelTooWide
        If it is not.
    InvalidArgument
        For a query with several cells, or known genotypes that are impossible together.
    """
    if not dp_epsilon >= 0:
        raise InvalidArgument(f"{option('dp_epsilon')} must be at least 0, not {dp_epsilon!r}")
    given = dict(known or {})
    wanted = [n for n in (people if people is not None else model.records) if n not in given]
    model.require([*wanted, *given])
    found = []
    for person in wanted:
        table = _law_of_count(model, query, (person, *given))
        joint = table.reshape(*table.shape[:2], -1)[..., _flat(table.shape[2:], given)]
        if not joint.sum() > 0:
            raise InvalidArgument(f"the known genotypes {given} are impossible together")
        found.append(_metrics(person, joint / joint.sum(), dp_epsilon / query.sensitivity))
    return tuple(found)


def _flat(shape: tuple[int, ...], known: Mapping[str, int]) -> int:
    """Return the position of the known genotypes in the flattened trailing axes."""
    for (name, value), size in zip(known.items(), shape, strict=True):
        if not 0 <= value < size:
            raise InvalidArgument(f"known: {name!r} has no genotype {value!r}")
    return int(np.ravel_multi_index(tuple(known.values()), shape)) if shape else 0


def count_table(model: Model, query: GenotypeQuery, person: str) -> Table:
    """Return P(genotype of the person, value of the count), exactly."""
    return _law_of_count(model, query, (person,))


def _law_of_count(model: Model, query: GenotypeQuery, nodes: tuple[str, ...]) -> Table:
    """Return P(first node, count, other nodes); the first is counted last, next to the total."""
    extended, counter = _with_counter(model, query, last=nodes[0])
    wanted = (nodes[0], counter, *nodes[1:])
    return junction_tree(extended, join=[wanted]).marginal(wanted)


def _with_counter(model: Model, query: GenotypeQuery, last: str) -> tuple[Model, str]:
    """Add S_k = S_{k−1} + term of the k-th record, a chain of deterministic nodes; return its end."""
    if len(query.cells) != 1:
        raise InvalidArgument(f"{query.name} returns {len(query.cells)} numbers; choose a single count")
    states = dict(model.states)
    factors = list(model.factors)
    before, size = None, 1
    order = [n for n in _counting_order(model) if n in query.terms and n != last]
    order += [last] if last in query.terms else []
    for k, record in enumerate(order):
        terms = query.terms[record][:, 0]
        if np.any(terms < 0) or np.any(terms != np.round(terms)):
            raise InvalidArgument(f"{query.name}: the terms of {record!r} are not whole numbers")
        steps = terms.astype(int)
        total = size + int(steps.max())
        table = np.zeros((size, len(steps), total))
        for s in range(size):
            table[s, np.arange(len(steps)), s + steps] = 1.0
        name = f"count:{k}"
        scope = (record, name) if before is None else (before, record, name)
        factors.append(Factor(scope, table[0] if before is None else table, name))
        states[name] = tuple(str(v) for v in range(total))
        before, size = name, total
    if before is None:
        raise InvalidArgument(f"{query.name} reads no record")
    return Model(states, factors, list(model.records)), before


def _counting_order(model: Model) -> list[str]:
    """Children right after each other and near their parents: the counter then crosses few cliques."""
    depth_first: dict[str, None] = {}
    children: dict[str, list[str]] = {}
    for f in model.factors:
        for p in f.parents:
            children.setdefault(p, []).append(f.scope[-1])
    for root in model.topological_order:
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in depth_first:
                depth_first[node] = None
                stack.extend(reversed(children.get(node, [])))
    return list(depth_first)


def _metrics(person: str, joint: Table, rate: float) -> KinPrivacy:
    prior = joint.sum(axis=1)
    error_after = entropy_after = 0.0
    for likelihood in _outputs(joint.shape[1], rate):
        weight = joint @ likelihood  # P(x, y)
        mass = float(weight.sum())
        if mass > 0:
            error_after += mass * _error(weight / mass)
            entropy_after += mass * _entropy(weight / mass)
    return KinPrivacy(person, _error(prior), error_after, _entropy(prior), entropy_after)


def _outputs(counts: int, rate: float) -> list[Table]:
    """P(y | count) for every output y that matters; all y ≤ 0 are one, all y ≥ the largest count too."""
    c = np.arange(counts)
    if counts == 1 or rate == 0:
        return [np.ones(counts)]
    r = np.exp(-rate)
    inner = [(1 - r) / (1 + r) * r ** np.abs(y - c) for y in range(1, counts - 1)]
    return [r**c / (1 + r), *inner, r ** (counts - 1 - c) / (1 + r)]


def _error(p: Table) -> float:
    x = np.arange(len(p))
    return float(p @ np.abs(x[:, None] - x[None, :]) @ p)


def _entropy(p: Table) -> float:
    seen = p[p > 0]
    return max(0.0, float(-(seen * np.log(seen)).sum() / np.log(len(p))))

"""The ancestors of a family in reverse: each one given those that are still to come.

Sum the ancestors of some nodes T out one by one.  When w is summed out, ψ(N, w) is the product of
all tables that hold w and

    P(w | everything left) = P(w | N) = ψ(N, w) / Σ_w ψ(N, w),

so the order of elimination turned round is again a directed model of the same law, in which T comes
first and w has the parents N.  Where Σ_w ψ = 0 the state N is impossible and the row may be chosen
freely: it becomes the average of the nearest possible rows.

**Lines that meet only once.**  An ancestor a cuts its own line An(a) off when nobody else between
An(a) and T descends from that line.  Then An(a) depends on the rest through a alone, and a enters as
a founder with its own marginal law.  Only the loops remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.model import Table

__all__ = ["Loop", "Reordered", "Step", "loop_above", "reorder"]

_LEAST = 1e-250  # below this a product of probabilities could be lost to underflow


@dataclass(frozen=True)
class Loop:
    """The ancestors of some nodes, lines that are cut off by one node left out.

    ``members`` are the nodes kept, ``tops`` those that stand for their whole line (real founders
    among them).
    """

    targets: tuple[int, ...]
    members: tuple[int, ...]
    tops: frozenset[int]


@dataclass(frozen=True, eq=False)
class Step:
    """One node given the ones left: ``law[n₁, …, n_k]`` is the row P(node | n₁ … n_k)."""

    node: int
    given: tuple[int, ...]
    law: Table


@dataclass(frozen=True, eq=False)
class Reordered:
    """The law of a loop as steps, first summed out first, and the law of its targets."""

    steps: tuple[Step, ...]
    joint: Table

    @property
    def roundings(self) -> int:
        """How many products and sums stand behind one entry, at most."""
        return sum(len(s.given) + 2 + s.law.shape[-1] for s in self.steps)


def loop_above(
    targets: Sequence[int],
    parents: Sequence[tuple[int, ...]],
    order: Sequence[int],
    known: Mapping[int, bool],
) -> Loop:
    """Return the ancestors of ``targets`` without the lines that one node cuts off.

    Parameters
    ----------
    targets
        Different nodes.
    parents
        The parents of every node.
    order
        The ancestors of the targets and the targets, parents before children.
    known
        Whether the marginal law of a node is known; a line is only left out below a known node.
    """
    spot = {u: k for k, u in enumerate(order)}
    below = [0] * len(order)  # children among the ancestors and targets, as bits
    for u in order:
        for p in parents[u]:
            below[spot[p]] |= 1 << spot[u]
    outside = 1 << len(order)
    for t in targets:
        below[spot[t]] |= outside  # somebody beyond depends on a target
    line, reached = [0] * len(order), [0] * len(order)
    cut: set[int] = set()
    for k, u in enumerate(order):
        for p in parents[u]:
            line[k] |= line[spot[p]] | 1 << spot[p]
            reached[k] |= reached[spot[p]] | below[spot[p]]
        if known[u] and not reached[k] & ~(line[k] | 1 << k):
            cut.add(u)
    kept, stack = set(targets), list(targets)
    while stack:
        u = stack.pop()
        for p in parents[u] if u not in cut else ():
            if p not in kept:
                kept.add(p)
                stack.append(p)
    members = tuple(u for u in order if u in kept)
    return Loop(tuple(targets), members, frozenset(u for u in members if u in cut or not parents[u]))


def reorder(
    loop: Loop,
    parents: Sequence[tuple[int, ...]],
    tables: Sequence[Table],
    marginals: Sequence[Table | None],
    *,
    max_entries: int,
) -> Reordered:
    """Sum a loop's members out, the cheapest one first, and return every step.

    Raises
    ------
    ModelTooWide
        If a table would exceed ``max_entries``, or probabilities leave the range of doubles.

    Examples
    --------
    >>> import numpy as np
    >>> flip = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> loop = Loop((1,), (0, 1), frozenset({0}))
    >>> found = reorder(loop, [(), (0,)], [np.full(2, 0.5), flip], [np.full(2, 0.5), None], max_entries=64)
    >>> found.joint.round(3).tolist(), found.steps[0].law.round(3).tolist()
    ([0.55, 0.45], [[0.818, 0.182], [0.111, 0.889]])
    """
    size = {u: tables[u].shape[-1] for u in loop.members}
    around: dict[int, set[int]] = {u: set() for u in loop.members}
    holding: dict[int, list[tuple[tuple[int, ...], Table]]] = {u: [] for u in loop.members}

    def add(scope: tuple[int, ...], table: Table) -> None:
        for u in scope:
            around[u].update(scope)
            around[u].discard(u)
            holding[u].append((scope, table))

    for u in loop.members:
        own = marginals[u] if u in loop.tops else tables[u]
        assert own is not None, "a line is cut off at a known node only"
        add((u,) if u in loop.tops else (*parents[u], u), own)
    left = set(loop.members) - set(loop.targets)
    steps: list[Step] = []
    while left:
        w = _cheapest(left, around, size)
        given = tuple(sorted(around[w]))
        scope = (*given, w)
        if math.prod(size[v] for v in scope) > max_entries:
            raise ModelTooWide(f"summing out an ancestor needs a table of {len(scope)} nodes")
        psi = _product(scope, [size[v] for v in scope], holding[w])
        mass = psi.sum(axis=-1)
        steps.append(Step(w, given, _rows(psi, mass)))
        gone = {id(table) for _, table in holding[w]}
        for u in given:
            holding[u] = [f for f in holding[u] if w not in f[0] or id(f[1]) not in gone]
            around[u].discard(w)
        left.discard(w)
        if given:
            add(given, mass / mass.max())
    factors = list({(s, id(t)): (s, t) for u in loop.targets for s, t in holding[u]}.values())
    joint = _product(loop.targets, [size[t] for t in loop.targets], factors)
    return Reordered(tuple(steps), joint / joint.sum())


def _cheapest(left: Iterable[int], around: Mapping[int, set[int]], size: Mapping[int, int]) -> int:
    """Return the node with the smallest table, among those the one that joins the fewest others."""
    widths = {u: math.prod(size[v] for v in around[u]) for u in left}
    least = min(widths.values())

    def joined(u: int) -> int:
        return sum(len(around[u] - around[v]) - 1 for v in around[u])

    return min((u for u, n in widths.items() if n == least), key=lambda u: (joined(u), u))


def _product(
    scope: Sequence[int], shape: Sequence[int], factors: Sequence[tuple[tuple[int, ...], Table]]
) -> Table:
    """Return the product of tables over ``scope``; refuse where a product could underflow."""
    result, possible = np.ones(shape), np.ones(shape, dtype=bool)
    at = {v: k for k, v in enumerate(scope)}
    for own, table in factors:
        axes = sorted(range(len(own)), key=lambda k: at[own[k]])
        spread = [1] * len(scope)
        for k in axes:
            spread[at[own[k]]] = table.shape[k]
        part = table.transpose(axes).reshape(spread)
        result = result * part
        possible = possible & (part > 0)
    if np.any(result[possible] < _LEAST):
        raise ModelTooWide("probabilities of the ancestors leave the range of doubles")
    return result


def _rows(psi: Table, mass: Table) -> Table:
    """Return ψ / Σ_w ψ; impossible rows become the average of the nearest possible ones."""
    known = mass > 0
    law = psi / np.where(known, mass, 1.0)[..., None]
    while not known.all():
        total, count = np.zeros_like(law), np.zeros(known.shape)
        for axis in range(known.ndim):
            total += np.where(known[..., None], law, 0.0).sum(axis=axis, keepdims=True)
            count += known.sum(axis=axis, keepdims=True)
        new = ~known & (count > 0)
        law[new] = total[new] / count[new][:, None]
        known = known | new
    return np.asarray(law)

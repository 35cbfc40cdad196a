"""What the ancestors above lines that meet can tell about the nodes below them.

The loop is read in reverse (:mod:`quiltdp.inference.ancestry`): every ancestor w has a law
P(w | N) given the nodes left.  Write the distance of the function that is left as a sum of small
tables, ln H(v) − ln H(v') ≤ Σ_F δ_F(v_F, v'_F); at first δ_u = ℓ_u, what u's other descendants (and
for the top of a line its ancestors) can tell.  Summing out w replaces the tables that hold w by

    δ_N(z, z') = T( P(w | z), P(w | z'); Σ_{F ∋ w} δ_F ).

For few nodes N this table is kept.  For more, N is split into groups g and the table is replaced by
what a change of one group can do whatever the others are, γ_g(x, x') = max_u δ_N((x, u), (x', u)).

*Why Σ_g γ_g ≥ δ_N.*  T obeys the triangle inequality when its distance does: for x_i ≤ e^{d(i, k)} y_k
put m_j = max_i x_i e^{−d(i, j)}; then x_i ≤ e^{d(i, j)} m_j and m_j ≤ e^{d(j, k)} y_k, so
ln E_p x / E_r y splits at E_q m.  Sums and maxima of such distances are such distances, hence every
δ_F is one, and changing N one group at a time costs at most Σ_g γ_g.

*Assumes*: the law of the loop as steps of :mod:`quiltdp.inference.ancestry`, distances ℓ_u that obey the
triangle inequality.  *Cost*: one batch of transports per ancestor, over pairs of states of the few nodes
kept.  *Reference*: docs/prior_adversary.md, forward–backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import transport
from quiltdp.accountant.trade_offs import LOOPS_AT_ONCE, LOOPS_SOLVED
from quiltdp.inference.ancestry import Loop, Step
from quiltdp.numbers import up_array
from quiltdp.work import NO_GUARD, Guard

Tables = dict[tuple[int, ...], Array]
"""Distances δ_F by their nodes F: axes are the values of F, then the other values of F."""


class LoopMessages:
    """Distances between the states of a loop's targets, all α-independent work done.

    Parameters
    ----------
    loop
        The loop in reverse order.
    max_group
        How many joint states the nodes of one kept table may have.
    roundings, slack
        How many products and sums stand behind one entry of a law, and how far its logarithm may be from the
        truth; equal for loops that share ``known``.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.ancestry import Loop, Step
    >>> flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> loop = Loop((1,), (0, 1), frozenset({0}), {}, (Step(0, (1,), flip),), np.full(2, 0.5))
    >>> LoopMessages(loop).run({0: 1.0 - np.eye(2)}).round(6).tolist()
    [[0.0, 0.776137], [0.776137, 0.0]]
    """

    def __init__(
        self, loop: Loop, *, max_group: int = 27, roundings: int = 1000, slack: float = 1e-12
    ) -> None:
        self._loop, self._most = loop, max_group
        self._ulps, self._slack = 8.0 + 4.0 * roundings, slack

    def run(
        self,
        distance: Mapping[int, Array],
        known: dict[bytes, Array] | None = None,
        guard: Guard = NO_GUARD,
    ) -> Array:
        """Return D(z, z') between joint states of the targets, flattened, rounded up.

        ``distance[u]`` is ℓ_u of every node that is no target; the targets' own ℓ is not included.
        ``known`` keeps messages for other loops with equal parts.
        """
        known = {} if known is None else known
        holding: dict[int, Tables] = {u: {} for u in self._loop.members}

        def add(scope: tuple[int, ...], table: Array) -> None:
            for u in scope:
                holding[u][scope] = holding[u][scope] + table if scope in holding[u] else table

        for u, table in distance.items():
            add((u,), table)
        for step in self._loop.steps:
            tables = holding.pop(step.node)
            for scope in tables:
                for u in scope:
                    if u != step.node:
                        del holding[u][scope]
            for group in _split_into_groups(step, self._most):
                key = _loop_signature(step, group, tables)
                if key not in known:
                    known[key] = self._largest_change(step, group, tables, guard)
                add(tuple(step.given[k] for k in group), known[key])
        targets = self._loop.targets
        assert self._loop.joint is not None, "the loop was summed out"
        values = np.indices(self._loop.joint.shape).reshape(len(targets), -1)
        total = np.zeros((values.shape[1],) * 2)
        for scope, table in {s: t for tables in holding.values() for s, t in tables.items()}.items():
            at = [values[targets.index(u)] for u in scope]
            total += table[(*(a[:, None] for a in at), *(a[None, :] for a in at))]
        return up_array(total, self._ulps)

    def _largest_change(self, step: Step, group: tuple[int, ...], tables: Tables, guard: Guard) -> Array:
        """Return the largest δ_N when the nodes of ``group`` change and the others do not."""
        *shape, size = step.law.shape
        rest = [k for k in range(len(shape)) if k not in group]
        law, values = step.law.reshape(-1, size), np.indices(shape).reshape(len(shape), -1)
        numbers = np.arange(len(law)).reshape(shape).transpose(*group, *rest)
        states = numbers.reshape(int(np.prod([shape[k] for k in group])), -1)  # (of the group, of the rest)
        one, two = np.nonzero(~np.eye(len(states), dtype=bool))
        best = np.zeros((len(states),) * 2)
        chunk = max(1, LOOPS_AT_ONCE // (states.shape[1] * size**2))
        for k in range(0, len(one), chunk):
            guard.check()
            some = one[k : k + chunk], two[k : k + chunk]
            first, second = (states[side].ravel() for side in some)
            d = np.zeros((len(first), size, size))
            for scope, table in tables.items():
                n, w = len(scope), scope.index(step.node)
                others = [k for k in range(n) if k != w]
                columns = [values[step.given.index(scope[k])] for k in others]
                at = (*(c[first] for c in columns), *(c[second] for c in columns))
                d += table.transpose(*others, *(n + k for k in others), w, n + w)[at]
            d = up_array(d, self._ulps)
            value = transport(law[first], law[second], d, effort=LOOPS_SOLVED)
            value = np.where(value > 0, np.minimum(value + 2.0 * self._slack, d.max(axis=(1, 2))), 0.0)
            best[some] = value.reshape(-1, states.shape[1]).max(axis=1)
        return best.reshape([shape[k] for k in group] * 2)


def _loop_signature(step: Step, group: tuple[int, ...], tables: Tables) -> bytes:
    """Return a key that is equal for equal laws and distances of the same nodes."""
    digest = blake2b(repr((step.node, step.given, group, sorted(tables))).encode())
    for table in (step.law, *(tables[scope] for scope in sorted(tables))):
        digest.update(np.ascontiguousarray(table).tobytes())
    return digest.digest()


def _split_into_groups(step: Step, most: int) -> list[tuple[int, ...]]:
    """Split N into groups whose tables are kept."""
    shape = step.law.shape[:-1]
    groups: list[tuple[int, ...]] = []
    for k, n in enumerate(shape):
        if groups and n * int(np.prod([shape[m] for m in groups[-1]])) <= most:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return groups

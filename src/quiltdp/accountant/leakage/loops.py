"""What the ancestors above lines that meet can tell about the nodes below them.

The loop is read in reverse (:mod:`quiltdp.inference.ancestry`): every ancestor w has a law
P(w | N) given the nodes left.  Write the distance of the function that is left as a sum of small
tables, ln H(v) − ln H(v') ≤ Σ_F δ_F(v_F, v'_F); at first δ_u = ℓ_u, what u's other descendants (and
for the top of a line its ancestors) can tell.  Summing out w replaces the tables that hold w by

    δ_N(z, z') = K( P(w | z), P(w | z'); Σ_{F ∋ w} δ_F ).

For few nodes N this table is kept.  For more, N is split into groups g and the table is replaced by
what a change of one group can do whatever the others are, γ_g(x, x') = max_u δ_N((x, u), (x', u)).

*Why Σ_g γ_g ≥ δ_N.*  K obeys the triangle inequality when its distance does: for x_i ≤ e^{d(i, k)} y_k
put m_j = max_i x_i e^{−d(i, j)}; then x_i ≤ e^{d(i, j)} m_j and m_j ≤ e^{d(j, k)} y_k, so
ln E_p x / E_r y splits at E_q m.  Sums and maxima of such distances are such distances, hence every
δ_F is one, and changing N one group at a time costs at most Σ_g γ_g.

*Assumes*: the law of the loop as steps of :mod:`quiltdp.inference.ancestry`.  *Cost*: one batch of kernels
per ancestor, over pairs of states of the few nodes kept.  *Reference*: docs/prior_adversary.md,
forward–backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import Array
from quiltdp.accountant.leakage.transport import transport
from quiltdp.accountant.trade_offs import LOOPS_AT_ONCE, LOOPS_SOLVED
from quiltdp.inference.ancestry import Reordered, Step
from quiltdp.numbers import EPS, up_array
from quiltdp.work import NO_GUARD, Guard

__all__ = ["LoopMessages"]


class LoopMessages:
    """Distances between the states of a loop's targets, all α-independent work done.

    Parameters
    ----------
    loop
        The loop in reverse order.
    targets
        Its targets.
    max_group
        How many joint states the nodes of one kept table may have.
    roundings
        How many products and sums stand behind one entry of a law; equal for loops that share ``known``.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.ancestry import Loop, reorder
    >>> flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> laws = [np.full(2, 0.5), None]
    >>> found = reorder(Loop((1,), (0, 1), frozenset({0})), [(), (0,)], [laws[0], flip], laws, max_entries=64)
    >>> LoopMessages(found, (1,)).run({0: 1.0 - np.eye(2)}).round(6).tolist()
    [[0.0, 0.776137], [0.776137, 0.0]]
    """

    def __init__(
        self, loop: Reordered, targets: tuple[int, ...], *, max_group: int = 27, roundings: int = 1000
    ) -> None:
        self._most = max_group
        self._targets = targets
        self._shape = loop.joint.shape
        self._steps = loop.steps
        self._ulps = 8.0 + 4.0 * roundings
        self._slack = 1e-12 + 64 * EPS * roundings

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
        tables: dict[int, dict[tuple[int, ...], Array]] = {}

        def add(scope: tuple[int, ...], table: Array) -> None:
            for u in scope:
                mine = tables.setdefault(u, {})
                mine[scope] = mine[scope] + table if scope in mine else table

        for u, table in distance.items():
            add((u,), table)
        for step in self._steps:
            mine = tables.pop(step.node)
            for scope in mine:
                for u in scope:
                    if u != step.node:
                        del tables[u][scope]
            for group in _groups(step, self._most):
                add(tuple(step.given[k] for k in group), self._once(step, group, mine, known, guard))
        left = {scope: table for mine in tables.values() for scope, table in mine.items()}
        return self._read(left)

    def _once(
        self,
        step: Step,
        group: tuple[int, ...],
        tables: Mapping[tuple[int, ...], Array],
        known: dict[bytes, Array],
        guard: Guard,
    ) -> Array:
        """Return the message of a group, computed once for equal laws and distances."""
        digest = blake2b(repr((step.node, step.given, group)).encode())
        digest.update(np.ascontiguousarray(step.law).tobytes())
        for scope in sorted(tables):
            digest.update(repr(scope).encode())
            digest.update(np.ascontiguousarray(tables[scope]).tobytes())
        key = digest.digest()
        if key not in known:
            known[key] = self._message(step, group, tables, guard)
        return known[key]

    def _message(
        self, step: Step, group: tuple[int, ...], tables: Mapping[tuple[int, ...], Array], guard: Guard
    ) -> Array:
        """Return the largest δ_N when the nodes of ``group`` change and the others do not."""
        size, shape = step.law.shape[-1], step.law.shape[:-1]
        rest = [k for k in range(len(shape)) if k not in group]
        law = step.law.transpose(*group, *rest, len(shape))
        sizes = [shape[k] for k in group]
        count = int(np.prod(sizes))
        law = law.reshape(count, -1, size)
        one, two = np.nonzero(~np.eye(count, dtype=bool))
        moving = np.indices(sizes).reshape(len(sizes), -1)
        fixed = np.indices([shape[k] for k in rest]).reshape(len(rest), law.shape[1])
        left = {step.given[k]: moving[m][one][:, None] for m, k in enumerate(group)}
        right = {step.given[k]: moving[m][two][:, None] for m, k in enumerate(group)}
        for m, k in enumerate(rest):
            left[step.given[k]] = right[step.given[k]] = fixed[m][None, :]
        best = np.zeros(len(one))
        chunk = max(1, LOOPS_AT_ONCE // (law.shape[1] * size * size))
        for s in range(0, len(one), chunk):
            guard.check()
            part = slice(s, s + chunk)
            d = self._distance(step.node, tables, left, right, part, (len(one[part]), law.shape[1], size))
            found = self._kernel(
                law[one[part]].reshape(-1, size), law[two[part]].reshape(-1, size), d.reshape(-1, size, size)
            )
            best[part] = found.reshape(-1, law.shape[1]).max(axis=1)
        result = np.zeros((count, count))
        result[one, two] = best
        return result.reshape(*sizes, *sizes)

    def _distance(
        self,
        node: int,
        tables: Mapping[tuple[int, ...], Array],
        left: Mapping[int, NDArray[np.intp]],
        right: Mapping[int, NDArray[np.intp]],
        part: slice,
        shape: tuple[int, int, int],
    ) -> Array:
        """Return Σ_{F ∋ w} δ_F, axes (pair, others, w, w')."""
        d = np.zeros((*shape, shape[2]))
        for scope, table in tables.items():
            n = len(scope)
            w = scope.index(node)
            others = [k for k in range(n) if k != w]
            read = table.transpose(*others, *(n + k for k in others), w, n + w)
            at = [_part(side[scope[k]], part) for side in (left, right) for k in others]
            d += read[tuple(at)] if at else read
        return d

    def _kernel(self, p: Array, q: Array, d: Array) -> Array:
        """Return K for a batch, rounded up."""
        d = up_array(d, self._ulps)
        found = transport(p, q, d, effort=LOOPS_SOLVED)
        top = d.max(axis=(1, 2), initial=0.0)
        return np.where(found > 0, np.minimum(found + 2.0 * self._slack, top), 0.0)

    def _read(self, tables: Mapping[tuple[int, ...], Array]) -> Array:
        """Return the sum of the tables that are left, on pairs of target states."""
        values = np.indices(self._shape).reshape(len(self._shape), -1)
        at = {t: values[k] for k, t in enumerate(self._targets)}
        total = np.zeros((values.shape[1],) * 2)
        for scope, table in tables.items():
            total += table[tuple([at[t][:, None] for t in scope] + [at[t][None, :] for t in scope])]
        return up_array(total, self._ulps)


def _part(values: NDArray[np.intp], part: slice) -> NDArray[np.intp]:
    """Return the rows of a chunk; values that are the same for all pairs have one row only."""
    return values if len(values) == 1 else values[part]


def _groups(step: Step, most: int) -> list[tuple[int, ...]]:
    """Split N into groups whose tables are kept."""
    shape = step.law.shape[:-1]
    groups: list[tuple[int, ...]] = []
    for k, n in enumerate(shape):
        if groups and n * int(np.prod([shape[m] for m in groups[-1]])) <= most:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return groups

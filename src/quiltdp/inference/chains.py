"""Chains, and models that are one path: their step tables, spreads of d-step tables, and laws.

A Markov chain, homogeneous or not, and any model whose moral graph is a path (directed either way,
or a Markov network) has one table per step.  The d-step table is the product of d of them; its
spread says how far x_{i+d} can move the odds of x_i when nothing in between is known.

:class:`ChainLaws` are the laws of a Markov chain without evidence: marginals, d-step forward and backward
conditionals.  Everything is a product of non-negative numbers, so each entry is accurate to a small
relative error (no cancellation), whatever the length of the chain; one that doubles cannot hold weighs
1e-300, so that 0 always means impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment, stationary_distribution
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.inference.plan import DENSE_DISTANCES, PERIODS, STACKED_STATES
from quiltdp.inference.spread import spread_of_rows, spreads_of_tables
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS, LEAST, UNDERFLOW


@dataclass(frozen=True, eq=False)
class Path:
    """Nodes in path order and the table of each step (a single one if every step is the same).

    ``start`` and ``end`` weigh the states of the first and of the last node; ``states`` tells which states
    of every node the tables are about (``None``: all).
    """

    nodes: Sequence[str]
    tables: tuple[Table, ...]
    start: Table
    end: Table
    states: NDArray[np.bool_] | None = None

    @property
    def homogeneous(self) -> bool:
        """Whether one table serves every step."""
        return len(self.tables) == 1 and len(self.nodes) != 2

    def table(self, step: int) -> Table:
        """Return the table between nodes ``step`` and ``step + 1``."""
        return self.tables[0] if len(self.tables) == 1 else self.tables[step]

    def shortened(self, reach: int) -> tuple[Path, int]:
        """Return a path that stands for this one, and the period p with which tables repeat (0: not at all).

        It is shorter by whole periods: within ``reach`` steps every position that is not among its last p
        looks as it does on the whole path, and those further in look like the last of their phase.

        Examples
        --------
        >>> day, night, one = np.eye(2), np.full((2, 2), 0.5), np.ones(2)
        >>> few, period = Path(range(301), (day, day, night) * 100, one, one).shortened(4)
        >>> len(few.nodes), period
        (19, 3)
        """
        if self.homogeneous:
            return self, 1
        ids, length = np.array([id(t) for t in self.tables]), len(self.nodes)
        for p in (1 + np.flatnonzero(ids[1:] == ids[:1])[:PERIODS]).tolist():
            least = reach + 4 * p + 1
            if length > least and np.array_equal(ids[p:], ids[:-p]):
                short = least + (length - least) % p
                return replace(self, nodes=self.nodes[:short], tables=self.tables[: short - 1]), p
        return self, 0


@dataclass(frozen=True, eq=False)
class StepSpreads:
    """Spreads of d-step tables.

    ``forward[a, i]`` is the spread, in the state of node i, of the table from i to
    ``i + distances[a]``; ``backward[a, i]`` of the table from ``i − distances[a]`` to i.  For a
    homogeneous path there is one column, which holds for every i.
    """

    distances: NDArray[np.intp]
    forward: Table
    backward: Table

    @property
    def homogeneous(self) -> bool:
        """Whether one column holds for every node."""
        return bool(self.forward.shape[1] == 1)


def path_of(model: Model) -> Path | None:
    """Return the model as a path of pairwise tables, or ``None`` if it is not one connected path."""
    if isinstance(model, ChainModel):
        return _chain_path(model) if len(model.segments) == 1 else None
    pairs: dict[frozenset[str], list[Table]] = {}
    near: dict[str, set[str]] = {n: set() for n in model.nodes}
    unary: dict[str, list[Table]] = {}
    for factor in model.factors:
        if len(factor.scope) > 2:
            return None
        if len(factor.scope) == 1:
            (n,) = factor.scope
            unary.setdefault(n, []).append(factor.table)
            continue
        a, b = factor.scope
        near[a].add(b)
        near[b].add(a)
        oriented = factor.table if a < b else factor.table.T
        pairs.setdefault(frozenset(factor.scope), []).append(oriented)
    order = _order_path(near)
    if order is None:
        return None
    tables: list[Table] = []
    known: dict[tuple[tuple[int, ...], bytes], Table] = {}
    for a, b in pairwise(order):
        parts = [t if a < b else t.T for t in pairs[frozenset((a, b))]]
        if b != order[-1]:
            parts += unary.get(b, [])  # the tables of an inner node go into the step that leads to it
        table = _table_product(parts)
        if table is None:
            return None
        table = np.ascontiguousarray(table)
        tables.append(known.setdefault((table.shape, table.tobytes()), table))
    ends = [_table_product([np.ones(model.cardinality(n)), *unary.get(n, [])]) for n in (order[0], order[-1])]
    if ends[0] is None or ends[1] is None:
        return None
    same = len(known) == 1 and tables[0].shape[0] == tables[0].shape[1]
    if len(order) == 1:
        ends[1] = np.ones_like(ends[0])
    return Path(tuple(order), tuple(tables[:1] if same else tables), ends[0], ends[1])


def _table_product(parts: Sequence[Table]) -> Table | None:
    """Return the product of a step's tables up to a constant; ``None`` if a possible entry underflows."""
    if len(parts) == 1:
        return parts[0]
    product = reduce(np.multiply, [t / float(t.max()) for t in parts])
    support = reduce(np.logical_and, [t > 0 for t in parts])
    return None if np.any(support & (product < UNDERFLOW)) else np.asarray(product)


def _chain_path(model: ChainModel) -> Path:
    """Return the steps of a chain, restricted to the states it can ever reach."""
    segment = model.segments[0]
    if not segment.homogeneous:
        last = segment.cardinality(segment.length - 1)
        return Path(model.nodes, segment.transitions, segment.initial, np.ones(last))
    matrix = segment.transitions[0]
    reached = segment.initial > 0
    while True:
        wider = reached | (matrix[reached] > 0).any(axis=0)
        if (wider == reached).all():
            break
        reached = wider
    inner = np.ascontiguousarray(matrix[np.ix_(reached, reached)])
    return Path(model.nodes, (inner,), segment.initial[reached], np.ones(len(inner)), reached)


def _order_path(near: dict[str, set[str]]) -> list[str] | None:
    """Return the nodes along the path, or ``None`` if the graph is not a single path."""
    ends = [n for n, others in near.items() if len(others) <= 1]
    if len(near) > 1 and len(ends) != 2:
        return None
    order = [ends[0]]
    before = ""
    while True:
        onward = [n for n in near[order[-1]] if n != before]
        if len(onward) > 1:
            return None
        if not onward:
            break
        before = order[-1]
        order.append(onward[0])
    return order if len(order) == len(near) else None


def step_spreads(
    path: Path,
    *,
    max_distance: int = 4096,
    max_work: float = 2e9,
    check: Callable[[], None] = lambda: None,
) -> StepSpreads:
    """Return the spreads of the d-step tables for a growing list of distances d, rounded up.

    Distances are 1, 2, 3, … and then grow by a few per cent (homogeneous), or 1, 2, 3, 4, 6, 8,
    12, … (one table per step).  Leaving distances out loses tightness, never soundness.

    Parameters
    ----------
    max_distance
        The longest distance looked at.
    max_work
        Stop before about this many table operations have been spent.
    check
        Called between distances; may raise.
    """
    distances: list[int] = []
    forward: list[Table] = []
    backward: list[Table] = []
    for d, family in step_families(path, max_distance, max_work):
        check()
        ahead, behind = family.spreads(d)
        beyond = np.full(d, np.inf)
        distances.append(d)
        forward.append(np.concatenate([ahead, beyond]))
        backward.append(np.concatenate([beyond, behind]))
        if max(ahead.max(initial=0.0), behind.max(initial=0.0)) < 1e-10 * d:
            break
    found = [np.array(side).reshape(len(distances), -1) for side in (forward, backward)]
    if path.homogeneous:
        found = [found[0][:, :1], found[1][:, -1:]]
    return StepSpreads(np.array(distances, dtype=np.intp), *found)


def _multiply_steps(
    left: Table, left_support: NDArray[np.bool_], right: Table, right_support: NDArray[np.bool_]
) -> tuple[Table, NDArray[np.bool_]]:
    """Multiply two step tables (or stacks of them), and their supports; rescaled against overflow."""
    product = left @ right
    support: NDArray[np.bool_] = (left_support.astype(np.float32) @ right_support.astype(np.float32)) > 0
    top = product.max(axis=(-2, -1), keepdims=True)
    return product / np.where(top > 0, top, 1.0), support


def _rounding(steps: int, states: int) -> float:
    return 4 * (steps + 4) * (states + 3) * EPS


class StepFamily:
    """The d-step tables of a path, each distinct one once: ``which[i]`` is the one that starts at i."""

    def __init__(self, tables: list[tuple[Table, NDArray[np.bool_]]], which: NDArray[np.intp]) -> None:
        self.tables = tables
        self.which = which

    def times(self, other: StepFamily, shift: int) -> StepFamily:
        """Return the tables of this family, each followed by the other's ``shift`` steps further on."""
        count = len(other.which) - shift
        pairs = self.which[:count].astype(np.int64) * len(other.tables) + other.which[shift:]
        codes, which = np.unique(pairs, return_inverse=True)
        made = []
        for code in codes.tolist():
            a, b = divmod(code, len(other.tables))
            made.append(_multiply_steps(*self.tables[a], *other.tables[b]))
        return StepFamily(made, which.ravel().astype(np.intp))

    def spreads(self, steps: int) -> tuple[Table, Table]:
        """Return the certified spreads of the tables that start at each i, forward and backward."""
        values = np.empty((2, len(self.tables)))
        shapes: dict[tuple[int, ...], list[int]] = {}
        for k, (table, _) in enumerate(self.tables):
            shapes.setdefault(table.shape, []).append(k)
        for chosen in shapes.values():
            for part in np.array_split(np.array(chosen), 1 + len(chosen) // 4096):
                tables = np.stack([self.tables[k][0] for k in part])
                supports = np.stack([self.tables[k][1] for k in part])
                values[0, part] = _certified_spreads(tables, supports, steps)
                turned = tables.transpose(0, 2, 1), supports.transpose(0, 2, 1)
                values[1, part] = values[0, part] if supports.all() else _certified_spreads(*turned, steps)
        return values[0, self.which], values[1, self.which]


def _certified_spreads(tables: Table, supports: NDArray[np.bool_], steps: int) -> Table:
    """Return the spreads of products of ``steps`` tables, raised by their rounding errors.

    Every entry is a sum of non-negative products, so its relative error is at most
    (steps + 4)·(states + 3) units; four of them enter a spread.  An entry that the support calls possible
    but that underflowed makes the spread ∞; rows of one table that agree entry by entry have spread 0.
    """
    inside = np.where(supports, tables, 0.0)
    many = tables.shape[1] > STACKED_STATES
    found = np.array([spread_of_rows(t) for t in inside]) if many else spreads_of_tables(inside)
    raised = np.where((found == 0.0) & (steps == 1), 0.0, found + _rounding(steps, max(tables.shape[1:])))
    lost = (supports & (tables < UNDERFLOW)).any(axis=(1, 2))
    return np.where(lost, np.inf, raised)


def step_families(path: Path, max_distance: int, max_work: float) -> Iterator[tuple[int, StepFamily]]:
    """Yield the d-step tables for d = 1, 2, …, 12, 16, 24, 32, 48, …, until the work is spent."""
    longest = min(max_distance, len(path.nodes) - 1)
    one = last = _first_family(path, longest)
    kept: dict[int, StepFamily] = {}
    d, done = 1, 0.0
    while d <= longest and done <= max_work:
        if d > 1:
            half = d // 2
            last = last.times(one, d - 1) if d <= DENSE_DISTANCES else kept[half].times(kept.pop(half), half)
        if d in (8, 12) or d > DENSE_DISTANCES:
            kept[d] = last  # twice as far is made of it
        yield d, last
        done += 2.0 * sum(t.shape[0] * t.shape[1] * max(t.shape) for t, _ in last.tables)
        d = d + 1 if d < DENSE_DISTANCES else 2 * min(kept)


def _first_family(path: Path, longest: int) -> StepFamily:
    """Return the one-step tables, scaled; equal objects are one table, and one for all serves a few steps."""
    known: dict[int, int] = {}
    tables: list[tuple[Table, NDArray[np.bool_]]] = []
    which = np.empty(longest if path.homogeneous else len(path.nodes) - 1, dtype=np.intp)
    for i in range(len(which)):
        table = path.table(i)
        if id(table) not in known:
            known[id(table)] = len(tables)
            tables.append((table / float(table.max()), table > 0))
        which[i] = known[id(table)]
    return StepFamily(tables, which)


def spectral_gap(segment: ChainSegment) -> tuple[float, float]:
    """Return (g, ρ) = (1 − |λ₂|, min π) of a homogeneous reversible chain, whatever law it starts in.

    Raises
    ------
    InvalidArgument
        If the chain is none of these, saying which.
    """
    if not segment.homogeneous:
        raise InvalidArgument("the spectral gap needs a homogeneous chain")
    p = segment.transitions[0]
    law = stationary_distribution(p)
    if law.min() <= 0:
        raise InvalidArgument("the spectral gap needs a chain with a positive stationary law")
    flow = law[:, None] * p
    if not np.allclose(flow, flow.T, rtol=1e-9, atol=1e-12):
        raise InvalidArgument("the spectral gap needs a reversible chain")
    root = np.sqrt(law)
    values = np.sort(np.abs(np.linalg.eigvalsh(root[:, None] * p / root[None, :])))
    return 1.0 - (float(values[-2]) if len(values) > 1 else 0.0), float(law.min())


def normalised(rows: Table) -> Table:
    """Return the rows divided by their sums; all-zero rows stay zero."""
    sums = rows.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0))


def _multiply(one: Table, other: Table) -> Table:
    """Return the product; an entry that is possible is never lost to underflow."""
    product = one @ other
    if product.min(initial=1.0) >= LEAST:
        return np.asarray(product)
    support = (one > 0).astype(np.float32) @ (other > 0).astype(np.float32) > 0
    return np.where(support, np.maximum(product, LEAST), 0.0)


class ChainLaws:
    """The conditionals of one chain, over *possible* states only.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> laws = ChainLaws(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5).segments[0])
    >>> laws.forward(1, 2).round(3).tolist(), laws.stationary
    ([[0.82, 0.18], [0.18, 0.82]], True)
    """

    def __init__(self, segment: ChainSegment) -> None:
        self.segment = segment
        self.length = segment.length
        self._marginals = [np.asarray(segment.initial)]
        self._supports = [np.asarray(segment.initial) > 0]
        self._powers: list[Table] = []

    def marginal(self, t: int) -> Table:
        """Return P(X_t), keeping every earlier one."""
        known = self._marginals
        while len(known) <= t:
            law = known[-1] @ self.segment.transition(len(known) - 1)
            known.append(np.where(self.possible(len(known)), np.maximum(law, LEAST), 0.0))
        return known[t]

    def possible(self, t: int) -> NDArray[np.bool_]:
        """Return which states step t can have: never lost to underflow, as the marginal may be."""
        known = self._supports
        while len(known) <= t:
            step = self.segment.transition(len(known) - 1) > 0
            known.append(np.asarray(step[known[-1]].any(axis=0)))
        return known[t]

    def steps(self, t: int, d: int) -> Table:
        """Return P(X_{t+d} | X_t), a row for every state."""
        if self.segment.homogeneous:
            step = np.asarray(self.segment.transitions[0])
            while len(self._powers) < d:
                self._powers.append(_multiply(self._powers[-1], step) if self._powers else step)
            return self._powers[d - 1]
        return self.tables_from(t, d)[-1]

    def tables_from(self, t: int, most: int) -> list[Table]:
        """Return P(X_{t+d} | X_t) for d = 1, …, ``most``, each made of the one before."""
        if self.segment.homogeneous:
            return [self.steps(t, d) for d in range(1, most + 1)]
        steps = (np.asarray(self.segment.transition(s)) for s in range(t, t + most))
        return list(accumulate(steps, _multiply))

    def forward(self, t: int, d: int) -> Table:
        """Return P(X_{t+d} | X_t = x) for the possible x."""
        return self.steps(t, d)[self.possible(t)]

    def backward(self, t: int, d: int) -> Table | None:
        """Return P(X_{t−d} | X_t = x) for the possible x; ``None`` if one is lost to underflow."""
        return self.reversed_rows(self.marginal(t - d), self.steps(t - d, d), self.possible(t))

    def slack(self, t: int) -> float:
        """Return how far ln of an entry computed from the law of step ``t`` may be from the truth."""
        return 2.0 * EPS * (len(self.segment.initial) + 4) * (t + 4)

    @staticmethod
    def reversed_rows(law: Table, steps: Table, possible: NDArray[np.bool_]) -> Table | None:
        """Return P(X_0 | X_d = x) for the possible x, by Bayes' rule; ``None`` if one underflows."""
        joint = (law[:, None] * steps).T[possible]
        if np.any((joint < UNDERFLOW) & ((law[:, None] > 0) & (steps > 0)).T[possible]):
            return None
        return normalised(joint)

    # -- homogeneous chains: what holds for all late steps -------------------------------------

    @cached_property
    def limit(self) -> Table | None:
        """The stationary law of a homogeneous chain, if there is only one."""
        if not self.segment.homogeneous:
            return None
        try:
            return stationary_distribution(self.segment.transitions[0])
        except InvalidModel:
            return None

    @cached_property
    def reachable(self) -> Table:
        """Which states of a homogeneous chain are possible at some step (as 0 or 1)."""
        seen = np.asarray(self.segment.initial) > 0
        step = np.asarray(self.segment.transitions[0]) > 0
        for _ in range(len(seen)):
            seen = seen | step[seen].any(axis=0)
        return seen.astype(np.float64)

    def distance(self, t: int) -> float:
        """Return s ≥ |ln P(X_u = x) / π(x)| for every u ≥ t and every possible x; ``inf`` if none.

        P(X_{u+1} = y) / π(y) is an average of P(X_u = x) / π(x) over x, so its range only shrinks.
        """
        law = self.limit
        if law is None or np.any(self.possible(t) & (law < UNDERFLOW)):
            return float("inf")
        alive = law > 0
        ratio = self.marginal(t)[alive] / law[alive]
        if ratio.min() <= 0 or law[alive].min() < UNDERFLOW:
            return float("inf")
        return float(np.abs(np.log(ratio)).max())

    @cached_property
    def stationary(self) -> bool:
        """Whether every step has the stationary law (to rounding)."""
        return self.distance(0) <= 1e-12

"""The log odds of two values of some nodes, given others: a sum of small tables.

Hide some nodes and observe the rest.  The hidden ones fall into connected components; the log odds of
x : x' are the factors that hold a target and otherwise only observed nodes, plus each component next to a
target, summed out given its boundary.  What is next to no target cancels, but it may forbid something.

The first axis of a table of log odds, ``PAIRS``, is that of the *ordered pairs* of joint states of the
targets: first the pairs x < x', then the same pairs the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.inference.marginals import log_marginal
from quiltdp.inference.plan import DIRECT_ENTRIES, MOVE_BYTES, Limits
from quiltdp.inference.tables import LogTable, aligned, factor_tables, max_out, product, sum_out
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS

__all__ = ["BIG", "PAIRS", "LogOdds", "Part", "both_ways", "negated", "ordered_pairs"]

BIG = 1e150  # stands for +∞ inside sums, so that +∞ and −∞ never meet: −∞ (impossible) always wins
PAIRS = "\0pairs"  # the axis of ordered pairs

Part: TypeAlias = "int | frozenset[str]"
"""One table of the sum: a factor, by position, or hidden nodes that are summed out together."""


class LogOdds:
    """The tables that the log odds of the targets are a sum of, kept in the workspace for other quilts."""

    def __init__(self, space: Workspace, targets: tuple[str, ...], limits: Limits) -> None:
        self.space, self.limits, self.targets = space, limits, targets
        self.tables = factor_tables(space)
        self.states = self.tables.entries(targets)

    def factors(self, part: Part) -> frozenset[int]:
        """Return the factors of a part."""
        return frozenset((part,) if isinstance(part, int) else self.tables.near_set(part))

    def names(self, part: Part) -> frozenset[str]:
        """Return the nodes next to a part, targets apart."""
        around = self.tables.scope_set(part) if isinstance(part, int) else self.tables.boundary(part)
        return around.difference(self.targets)

    def moves(self, part: Part) -> bool:
        """Return whether a part is next to a target; if not, it matters only through its zeros."""
        around = self.tables.scope_set(part) if isinstance(part, int) else self.tables.boundary(part)
        return not around.isdisjoint(self.targets)

    def forbids(self, part: Part) -> bool:
        """Return whether a part has zeros."""
        return self.tables.has_zeros and any(map(self.tables.with_zeros, self.factors(part)))

    def parts(self, hidden: frozenset[str], factors: Iterable[int]) -> list[Part]:
        """Return the parts next to a target with these nodes hidden, all others observed."""
        found: list[Part] = [c for c in self.tables.components(hidden) if self.moves(c)]
        near = set(self.tables.near_any(self.targets)).intersection(factors)
        return found + [f for f in sorted(near) if hidden.isdisjoint(self.tables.scope_set(f))]

    def table(self, part: Part, kept: tuple[str, ...], factors: frozenset[int] | None = None) -> LogTable:
        """Return the largest log odds of a part over the nodes that are not kept: axes pairs, kept.

        For a part next to no target, what it forbids.  ``factors``: only these of the part.
        """
        limit, moves = self.limits.entries, self.moves(part)
        key = (part, self.targets if moves else (), kept, limit, factors)

        def make() -> LogTable:
            if not moves:
                walls = [w for f in sorted(self.factors(part)) if (w := self.tables.barrier(f)) is not None]
                gone = {n for w in walls for n in w.scope}.difference(kept)
                return product(max_out(walls, gone, limit=limit, guard=self.space.guard), limit=limit)
            source = self.source(part, factors)
            pairs = self.states * (self.states - 1)
            if pairs > limit:
                raise ModelTooWide(
                    f"{len(self.targets)} nodes protected together have {pairs:,} pairs of values, over the"
                    f" limit of {limit:,}",
                    "protect fewer of them together",
                )
            self.space.guard.check(planned_bytes=MOVE_BYTES * pairs * self.tables.entries(kept))
            return self._ratios(source, kept)

        return self.space.keep("log odds", key, make, lambda t: 512 + int(t.array.nbytes))

    def source(self, part: Part, factors: frozenset[int] | None = None) -> LogTable:
        """Return the table of a part over all its nodes; the same for every target."""
        if isinstance(part, int):
            return self.tables.logs(part)
        own = sorted(self.factors(part) if factors is None else factors)

        def make() -> LogTable:
            limit, logs = self.limits.entries, [self.tables.logs(f) for f in own]
            return product(sum_out(logs, part, limit=limit, guard=self.space.guard), limit=limit)

        key = (part, tuple(own), self.limits.entries)
        return self.space.keep("component", key, make, lambda t: 512 + int(t.array.nbytes))

    def _ratios(self, source: LogTable, kept: tuple[str, ...]) -> LogTable:
        """Return the largest ln φ(x, ·) − ln φ(x', ·) over the nodes neither in T nor kept."""
        kept = tuple([n for n in kept if n in source.scope])
        gone = [n for n in source.scope if n not in kept and n not in self.targets]
        array = aligned((source.scope, source.array), (*self.targets, *kept, *gone))
        stay = array.shape[len(self.targets) : len(self.targets) + len(kept)]
        own = [self.tables.states(n) for n in self.targets]
        array = np.broadcast_to(array, (*own, *array.shape[len(own) :]))
        array = array.reshape(self.states, math.prod(stay), -1)
        below = np.maximum(array, -BIG)
        best = np.stack([(row - below).max(axis=-1) for row in array])
        first, second = ordered_pairs(self.states)
        ratios = np.minimum(best[first, second], BIG).reshape(-1, *stay)
        return LogTable((PAIRS, *kept), ratios, 2 * source.size, 2 * source.error + 2 * source.size * EPS)

    def maximised(self, tables: Sequence[LogTable], keep: Collection[str]) -> list[LogTable]:
        """Return tables whose sum is that of the given ones, maximised over all nodes but ``keep``."""
        sizes = {n: k for t in tables for n, k in zip(t.scope, t.array.shape, strict=True)}
        gone = [n for n in sizes if n not in keep]
        if not tables or math.prod(sizes.values()) > DIRECT_ENTRIES:
            return max_out(tables, gone, limit=self.limits.entries, guard=self.space.guard)
        whole = product(tables, limit=DIRECT_ENTRIES)
        stay = tuple([n for n in whole.scope if n in keep])
        gone_axes = tuple([k for k, n in enumerate(whole.scope) if n not in keep])
        return [whole._replace(scope=stay, array=np.maximum.reduce(whole.array, axis=gone_axes))]

    def largest(self, tables: Sequence[LogTable]) -> tuple[float, float]:
        """Return the largest value of a sum of tables, 0 if nothing is possible, and its error."""
        left = product(self.maximised(tables, ()) or [LogTable((), np.zeros(()))], limit=self.limits.entries)
        best = float(left.array)
        return math.inf if best >= BIG / 2 else max(best, 0.0), left.error

    def prior(self, known: Sequence[str]) -> LogTable:
        """Return −ln P(x, l) + ln P(x', l) of one target, −∞ where x or x' is impossible with l."""
        logs = log_marginal(self.space.model, (*self.targets, *known), workspace=self.space)
        first, second = ordered_pairs(len(logs))
        with np.errstate(invalid="ignore"):
            odds = logs[second] - logs[first]
        return LogTable((PAIRS, *known), np.where(np.isfinite(odds), odds, -np.inf))


def ordered_pairs(states: int) -> tuple[list[int], list[int]]:
    """Return x and x' of the pairs x < x', then of the same pairs the other way round."""
    pairs = list(combinations(range(states), 2))
    first, second = [x for x, _ in pairs], [y for _, y in pairs]
    return first + second, second + first


def both_ways(tables: Sequence[LogTable]) -> list[LogTable]:
    """Return tables over (pairs x < x', l) whose sum is M(x, x', l) + M(x', x, l)."""
    made = []
    for t in tables:
        if PAIRS not in t.scope:
            made.append(t)
            continue
        array, rest = np.moveaxis(t.array, t.scope.index(PAIRS), 0), [n for n in t.scope if n != PAIRS]
        both, error = array[: len(array) // 2] + array[len(array) // 2 :], 2 * (t.error + t.size * EPS)
        made.append(LogTable((PAIRS, *rest), both, 2 * t.size, error))
    return made


def negated(table: LogTable) -> LogTable:
    """Return log odds with their sign changed; from or to an impossible value there is no candidate."""
    usable = np.abs(table.array) < BIG / 2
    return table._replace(array=np.where(usable, -np.where(usable, table.array, 0.0), -np.inf))

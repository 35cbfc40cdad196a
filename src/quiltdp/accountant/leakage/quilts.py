"""Bounds from quilts: the swing, and the swing with propagation beyond the separator.

For any set C ∋ i grown from the unit under attack, with separator Q = ∂C,

    swing:   Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }
    quilts:  Leakage(i) ≤ max_L { Σ_{C∖L} α + Φ( s_i(C, L), Σ_{q∈Q} out_q(C) ) },
             out_q(C) = α_q + Σ_{g ∋ q, g ∩ C = ∅} Φ( c_{q,g}, Σ_{k ∈ g∖Q} o_{k→g} ),

where L ranges over the records near the unit that the adversary may know and o are certified
propagation messages.  The maximum over L is needed: L = ∅ alone is unsound.

Which quilts to look at is a search, not a sweep: the unit with the largest bound is refined, by
growing its best set one separator node at a time, until the largest bound stops falling.  Swings do
not depend on α and are kept.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.propagation import Messages, PropagationBound
from quiltdp.errors import ModelTooWide
from quiltdp.graph.moral import moralize
from quiltdp.inference.influence import swings
from quiltdp.model import Model
from quiltdp.rounding import EPS, up

_EXHAUSTIVE = 8

__all__ = ["QuiltLimits", "QuiltTerm", "QuiltsBound", "SwingBound"]


@dataclass(frozen=True)
class QuiltLimits:
    """How far the search for quilts goes.

    Attributes
    ----------
    nearby
        The most nearby records of a quilt (the bound enumerates the 2^nearby sets L).
    separator
        The largest separator.
    per_unit
        The most quilts examined for one unit.
    total
        The most quilts examined altogether.
    entries
        The largest table on the way to a swing; quilts that need more are passed over.
    seconds
        When to stop looking for more quilts (those found stay in use).
    """

    nearby: int = 4
    separator: int = 24
    per_unit: int = 48
    total: int = 2000
    entries: int = 2**17
    seconds: float = 15.0


@dataclass(frozen=True, eq=False)
class QuiltTerm:
    """One quilt of one unit, ready to be evaluated at any α."""

    closed: frozenset[int]
    separator: tuple[int, ...]
    near: np.ndarray  # nearby records, by position
    unknown: Vector  # rows: known sets L; columns: near; 1 where the record is not in L
    swing: Vector  # one per L
    beyond: tuple[tuple[int, int, tuple[int, ...]], ...]  # (q, its edge to g, edges of g∖Q)

    def value(self, own: float, alpha: Vector, out: float) -> tuple[float, int]:
        """Return max_L and the L that attains it."""
        inside = own + self.unknown @ alpha[self.near]
        total = inside * (1 + 4 * len(self.near) * EPS) + phi(self.swing, out)
        k = int(np.argmax(total))
        return up(float(total[k])), k


class _Search:
    """The quilts of one unit found so far, and where to grow next."""

    def __init__(self, start: frozenset[int]) -> None:
        self.terms: dict[frozenset[int], QuiltTerm | None] = {}
        self.start = start
        self.expanded: set[frozenset[int]] = set()


class QuiltsBound:
    """Bound 4: quilts with propagation beyond the separator, best-first on the binding unit.

    Parameters
    ----------
    model, units
        A connected model and its protected sets (``None``: every record alone).
    propagation
        The propagation bound of the same model, shared.
    limits
        How far the search goes.
    """

    name = "quilts"
    adversary = "informed"
    _beyond = True

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        propagation: PropagationBound | None = None,
        limits: QuiltLimits | None = None,
    ) -> None:
        self.model = model
        self.limits = limits if limits is not None else QuiltLimits()
        self.propagation = propagation if propagation is not None else PropagationBound(model, units)
        self.units = [(r,) for r in model.records] if units is None else [tuple(u) for u in units]
        self._graph = moralize(model)
        self._searches: dict[int, _Search] = {}
        self._examined = 0
        small = len(model.nodes) <= _EXHAUSTIVE  # every quilt is looked at, however busy the machine
        self._deadline = math.inf if small else time.monotonic() + self.limits.seconds
        self._scopes = [tuple(model.index[n] for n in f.scope) for f in model.factors]

    def evaluate(self, alpha: Vector, *, floor: float = 0.0) -> RecordBounds:
        """Return the best quilt bound of every unit; units at or below ``floor`` are not refined."""
        messages = self.propagation.messages(alpha)
        values = np.array(self._initial(alpha, messages).epsilon)
        witnesses: dict[int, dict[str, object]] = {}
        for k, search in self._searches.items():
            self._use(k, search, alpha, messages, values, witnesses)
        done: set[int] = set()
        queue = [(-float(v), k) for k, v in enumerate(values)]
        heapq.heapify(queue)
        while queue:
            negative, k = heapq.heappop(queue)
            if -negative > values[k]:
                heapq.heappush(queue, (-float(values[k]), k))
                continue
            if k in done or values[k] <= floor or self._spent():
                break
            before = values[k]
            if not self._refine(k, alpha, messages, values, witnesses) or values[k] >= before:
                done.add(k)
            heapq.heappush(queue, (-float(values[k]), k))
        return RecordBounds(values, self.name, witnesses)

    def members(self, k: int) -> list[int]:
        """Return the nodes of unit k, by position."""
        return [self.model.index[n] for n in self.units[k]]

    def terms(self, k: int) -> list[QuiltTerm]:
        """Return the quilts of unit k that have been examined so far."""
        search = self._searches.get(k)
        return [] if search is None else [t for t in search.terms.values() if t is not None]

    def _initial(self, alpha: Vector, messages: Messages) -> RecordBounds:
        """Where the search starts: what propagation says."""
        return self.propagation.evaluate(alpha)

    def _spent(self) -> bool:
        return self._examined >= self.limits.total or time.monotonic() > self._deadline

    def _use(
        self,
        k: int,
        search: _Search,
        alpha: Vector,
        messages: Messages,
        values: Vector,
        witnesses: dict[int, dict[str, object]],
    ) -> None:
        """Apply every quilt known for unit k."""
        for term in search.terms.values():
            if term is not None:
                self._apply(k, term, alpha, messages, values, witnesses)

    def _apply(
        self,
        k: int,
        term: QuiltTerm,
        alpha: Vector,
        messages: Messages,
        values: Vector,
        witnesses: dict[int, dict[str, object]],
    ) -> float:
        own = float(sum(alpha[j] for j in self._searches[k].start)) * (1 + 8 * EPS)
        out = self._out(term, alpha, messages)
        value, known = term.value(own, alpha, out)
        if value < values[k]:
            values[k] = value
            witnesses[k] = self._describe(term, known)
        return value

    def _out(self, term: QuiltTerm, alpha: Vector, messages: Messages) -> float:
        """Return Σ_q out_q(C), rounded up; ∞ where the propagation beyond Q is not used."""
        if not self._beyond:
            return float("inf")
        total = float(sum(alpha[q] for q in term.separator))
        for _q, edge, others in term.beyond:
            arriving = sum(float(messages.out[e]) for e in others) * (1 + 64 * EPS)
            total += float(phi(self.propagation.spreads[edge], arriving))
        return up(total, 64.0 + 4 * (len(term.separator) + len(term.beyond)))

    def _refine(
        self,
        k: int,
        alpha: Vector,
        messages: Messages,
        values: Vector,
        witnesses: dict[int, dict[str, object]],
    ) -> bool:
        """Grow the unit's best sets by one separator node; return whether anything new was examined."""
        search = self._searches.setdefault(k, _Search(frozenset(self.model.index[n] for n in self.units[k])))
        if search.start not in search.terms:
            self._examine(search, search.start)
            term = search.terms[search.start]
            if term is not None:
                self._apply(k, term, alpha, messages, values, witnesses)
        fresh = False
        most = 256 if len(self.model.nodes) <= _EXHAUSTIVE else 3
        patience = most
        while patience and len(search.terms) < self.limits.per_unit and not self._spent():
            closed = self._next(search, alpha, messages)
            if closed is None:
                break
            search.expanded.add(closed)
            before = values[k]
            for grown in self._grown(closed):
                if grown in search.terms or len(search.terms) >= self.limits.per_unit:
                    continue
                self._examine(search, grown)
                fresh = True
                term = search.terms[grown]
                if term is not None:
                    self._apply(k, term, alpha, messages, values, witnesses)
            patience = most if values[k] < before else patience - 1
        return fresh

    def _next(self, search: _Search, alpha: Vector, messages: Messages) -> frozenset[int] | None:
        """Return the best set that has not been grown yet."""
        own = float(sum(alpha[j] for j in search.start))
        best, found = float("inf"), None
        for closed, term in search.terms.items():
            if closed in search.expanded:
                continue
            if term is None:
                value = 1e300 + len(closed)  # impossible to examine, still possible to grow
            else:
                value = term.value(own, alpha, self._out(term, alpha, messages))[0]
                value = min(value, 1e299)
            if value < best:
                best, found = value, closed
        return found

    def _grown(self, closed: frozenset[int]) -> list[frozenset[int]]:
        """Return the set with each one of its neighbours."""
        graph = self._graph
        boundary = {v for u in closed for v in graph.neighbor_positions(u)} - closed
        return [closed | {v} for v in sorted(boundary)]

    def _examine(self, search: _Search, closed: frozenset[int]) -> None:
        """Compute the swings of one quilt, or note that it is too large."""
        graph, model = self._graph, self.model
        separator = sorted({v for u in closed for v in graph.neighbor_positions(u)} - closed)
        names = model.nodes
        nearby = sorted(closed - search.start)
        near = [j for j in nearby if model.is_record(names[j])]
        search.terms[closed] = None
        if not separator or len(near) > self.limits.nearby or len(separator) > self.limits.separator:
            return
        self._examined += 1
        try:
            found = swings(
                model,
                [names[j] for j in search.start],
                [names[j] for j in nearby],
                [names[j] for j in separator],
                max_entries=self.limits.entries,
            )
        except ModelTooWide:
            return
        rows = list(found.items())
        unknown = np.array([[0.0 if names[j] in known else 1.0 for j in near] for known, _ in rows])
        search.terms[closed] = QuiltTerm(
            closed,
            tuple(separator),
            np.array(near, dtype=np.intp),
            unknown.reshape(len(rows), len(near)),
            np.array([s for _, s in rows], dtype=np.float64),
            self._edges_beyond(closed, separator) if self._beyond else (),
        )

    def _edges_beyond(
        self, closed: frozenset[int], separator: list[int]
    ) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Return, for every q in Q and factor g ∋ q away from C, the edges that feed out_q."""
        inside, found = frozenset(separator), []
        for q in separator:
            for f in self.model.factors_of[self.model.nodes[q]]:
                scope = self._scopes[f]
                if len(scope) < 2 or closed.intersection(scope):
                    continue
                first = self.propagation.first_edge(f)
                others = tuple(first + a for a, j in enumerate(scope) if j not in inside)
                if others:
                    found.append((q, first + scope.index(q), others))
        return tuple(found)

    def _describe(self, term: QuiltTerm, row: int) -> dict[str, object]:
        """Name the quilt and the known records that attain its maximum."""
        names = self.model.nodes
        known = [names[int(j)] for j, u in zip(term.near, term.unknown[row], strict=True) if u == 0.0]
        return {
            "closed": sorted(names[j] for j in term.closed),
            "separator": sorted(names[j] for j in term.separator),
            "known": known,
            "swing": float(term.swing[row]),
        }


class SwingBound(QuiltsBound):
    """Bound 2: Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }, the best quilt found, or group privacy."""

    name = "swing"
    _beyond = False

    def _initial(self, alpha: Vector, messages: Messages) -> RecordBounds:
        """Where the search starts: group privacy, the trivial quilt."""
        cap = [
            sum({int(self.propagation.graph.component[j]): float(messages.cap[j]) for j in members}.values())
            for members in ([self.model.index[n] for n in unit] for unit in self.units)
        ]
        return RecordBounds(np.array(cap), self.name)

"""Many quilts of one unit as one table: their bounds at an α in a few array operations.

    max_L { Σ_{C∖L} α + Φ( s_i(C, L), Σ_{q∈Q} out_q(C) ) },
    out_q(C) = α_q + Σ_{g ∋ q, g ∩ C = ∅} Φ( c_{q,g}, Σ_{k ∈ g∖Q} o_{k→g} )

for every quilt (C, Q) of a list; o are certified propagation messages.  Without them out = ∞, and Φ is
the swing itself.

*Assumes*: swings and messages that are certified.  *Cost*: a few operations on arrays of all quilts and
known sets.  *Reference*: docs/theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.propagation import Messages, Propagation
from quiltdp.numbers import EPS, up_array

__all__ = ["Feed", "QuiltTable", "QuiltTerm", "Reach", "edges_beyond"]

Ints = NDArray[np.intp]
Feed: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class QuiltTerm:
    """One quilt of one unit, ready to be evaluated at any α.

    Attributes
    ----------
    closed, separator, near
        C, Q, and the records of C outside the unit, by position.
    unknown, swing
        For every set L of known records: which of ``near`` are not in L (1 or 0), and s_i(C, L).
    beyond
        For every q ∈ Q and factor g ∋ q away from C: the edge of q to g, and the edges of g∖Q.
    """

    closed: frozenset[int]
    separator: tuple[int, ...]
    near: Ints
    unknown: Vector
    swing: Vector
    beyond: tuple[Feed, ...]

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        return 512 + self.unknown.nbytes + self.swing.nbytes + 64 * (len(self.closed) + len(self.beyond))


class QuiltTable:
    """Quilts of one unit, evaluated together.

    Parameters
    ----------
    terms
        The quilts.
    members
        The nodes of the unit.
    spreads
        c for every edge of the factor graph, or ``None`` to ignore what lies beyond separators.
    """

    def __init__(self, terms: Sequence[QuiltTerm], members: frozenset[int], spreads: Vector | None) -> None:
        self.terms = tuple(terms)
        self._members = np.array(sorted(members), dtype=np.intp)
        counts = [len(t.swing) for t in self.terms]
        self._starts = np.cumsum([0, *counts])[:-1].astype(np.intp)
        self._of_row = np.repeat(np.arange(len(counts)), counts)
        self._swing = np.concatenate([np.zeros(0), *(t.swing for t in self.terms)])
        rows, nodes = [], []
        for start, term in zip(self._starts.tolist(), self.terms, strict=True):
            row, column = np.nonzero(term.unknown)
            rows.append(row + start)
            nodes.append(term.near[column])
        none = np.zeros(0, dtype=np.intp)
        self._near_row, self._near_node = np.concatenate([none, *rows]), np.concatenate([none, *nodes])
        self._most_near = max((len(t.near) for t in self.terms), default=0)
        self._reach: Reach | None = None
        if spreads is not None:
            self._reach = Reach([t.separator for t in self.terms], [t.beyond for t in self.terms], spreads)

    def values(self, alpha: Vector, messages: Messages | None) -> tuple[Vector, Ints]:
        """Return max_L of every quilt, rounded up, and the row of the L that attains it."""
        if not self.terms:
            return np.zeros(0), np.zeros(0, dtype=np.intp)
        own = float(alpha[self._members].sum()) * (1 + 8 * (1 + len(self._members)) * EPS)
        near = np.bincount(self._near_row, weights=alpha[self._near_node], minlength=len(self._swing))
        reach = np.full(len(self.terms), np.inf)
        if self._reach is not None and messages is not None:
            reach = self._reach(alpha, messages)
        reach = reach[self._of_row]
        total = (own + near) * (1 + 4 * (1 + self._most_near) * EPS) + phi(self._swing, reach)
        best = np.maximum.reduceat(total, self._starts)
        row = np.array(
            [
                int(np.argmax(total[s : s + len(t.swing)]))
                for s, t in zip(self._starts.tolist(), self.terms, strict=True)
            ],
            dtype=np.intp,
        )
        return up_array(best), row


class Reach:
    """Σ_{q∈Q} out_q(C) of some quilts: what the far sides of their separators can tell.

    Parameters
    ----------
    separators, beyond
        Q of every quilt, and what feeds its out_q (:func:`edges_beyond`).
    spreads
        c for every edge of the factor graph.
    """

    def __init__(
        self, separators: Sequence[Sequence[int]], beyond: Sequence[Sequence[Feed]], spreads: Vector
    ) -> None:
        self._count = len(separators)
        self._q = _flat(separators)
        self._q_term = np.repeat(np.arange(self._count), [len(q) for q in separators])
        feeds = [feed for found in beyond for feed in found]
        self._feed_term = np.repeat(np.arange(self._count), [len(found) for found in beyond])
        self._feed_spread = spreads[np.array([edge for edge, _ in feeds], dtype=np.intp)]
        self._edge = _flat(others for _, others in feeds)
        self._edge_feed = np.repeat(np.arange(len(feeds)), [len(others) for _, others in feeds])
        longest = max((len(others) for _, others in feeds), default=0)
        self._slack_in = 1 + (64 + longest) * EPS
        terms = [len(q) + len(found) for q, found in zip(separators, beyond, strict=True)]
        self._slack_out = 64.0 + 4 * max(terms, default=0)

    def __call__(self, alpha: Vector, messages: Messages) -> Vector:
        """Return it for every quilt, rounded up."""
        total = np.bincount(self._q_term, weights=alpha[self._q], minlength=self._count).astype(np.float64)
        arriving = np.bincount(
            self._edge_feed, weights=messages.out[self._edge], minlength=len(self._feed_spread)
        )
        given = phi(self._feed_spread, arriving * self._slack_in)
        total += np.bincount(self._feed_term, weights=given, minlength=self._count)
        return up_array(total, self._slack_out)


def _flat(parts: Iterable[Iterable[int]]) -> Ints:
    return np.array(list(chain.from_iterable(parts)), dtype=np.intp)


def edges_beyond(
    propagation: Propagation, closed: frozenset[int], separator: Sequence[int]
) -> tuple[Feed, ...]:
    """Return what feeds out_q: for q in Q and factors g ∋ q away from C, the edge of q and those of g∖Q."""
    inside, found = frozenset(separator), []
    for q in separator:
        for own, first, scope in propagation.factors_at(q):
            if closed.isdisjoint(scope):
                others = tuple([first + a for a, j in enumerate(scope) if j not in inside])
                if others:
                    found.append((own, others))
    return tuple(found)

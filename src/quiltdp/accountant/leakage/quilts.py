"""Bounds from quilts: the swing, and the swing with propagation beyond the separator.

For any set C ∋ i grown from the unit under attack, with separator Q = ∂C,

    swing:   Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }
    quilts:  Leakage(i) ≤ max_L { Σ_{C∖L} α + Φ( s_i(C, L), Σ_{q∈Q} out_q(C) ) },
             out_q(C) = α_q + Σ_{g ∋ q, g ∩ C = ∅} Φ( c_{q,g}, Σ_{k ∈ g∖Q} o_{k→g} ),

where L ranges over the records near the unit that the adversary may know and o are certified
propagation messages.  The maximum over L is needed: L = ∅ alone is unsound.

Which quilts to look at is a search, not a sweep: a unit's best sets are grown by each of their
neighbours until that stops helping.  Sets that tie are grown together, so that records which look the
same get the same leakage.  The search is done at a few guiding strengths around α, on a fixed grid,
and every quilt it meets is used: the answer depends on α and the work budget only.  Swings and searches
are kept in the workspace, which makes the next question quicker and changes nothing.

*Assumes*: nothing: any model, any evidence.  *Cost*: one swing per quilt (a table of the unit, its nearby
records and the separator), as many quilts per unit and guide as the work budget says.  *Reference*:
docs/theory.md, sections 4 and 7.
"""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, never, register
from quiltdp.accountant.leakage.propagation import Messages, PropagationBound, propagation_of
from quiltdp.accountant.leakage.quilt_terms import QuiltTable, QuiltTerm, edges_beyond
from quiltdp.accountant.trade_offs import (
    QUILTS_ALL,
    QUILTS_NEARBY,
    QUILTS_PATH,
    QUILTS_PATIENCE,
    QUILTS_UNITS,
)
from quiltdp.errors import ModelTooWide
from quiltdp.inference.quilts import swings
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.work import WorkBudget

__all__ = ["QuiltTerm", "QuiltsBound", "SwingBound"]

_TIE = 1e-9  # values this close (relatively) are one value
_GUIDES = (-1, 0, 1, 2, 3)  # half decades around α at which quilts are looked for: what pays at a
# larger α is often better than what a search at α itself gets stuck with
_WEAKEST, _STRONGEST = -6, 4  # half decades beyond which guides tell nothing new


def _worth_it(problem: Problem) -> bool:
    """Against the informed adversary, except on long paths."""
    if problem.adversary.knows_nothing:
        return False
    from quiltdp.inference.chains import path_of

    return len(problem.model.nodes) <= QUILTS_PATH or path_of(problem.model) is None


@register(
    "quilts",
    against=INFORMED,
    kind="certified bound",
    says="swing of the best quilt, propagation beyond it",
    auto=_worth_it,
)
class QuiltsBound:
    """Bound 4: quilts with propagation beyond the separator.

    Parameters
    ----------
    problem
        A connected model and its protected sets.
    """

    theorem = "quilts"
    _beyond = True

    def __init__(self, problem: Problem) -> None:
        self.model = problem.model
        self.units = problem.listed()
        self._problem = problem
        self._starts = [frozenset(self.model.index[n] for n in unit) for unit in self.units]

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Set up the propagation and the graph; swings are computed when a search asks for them."""
        self._workspace = workspace
        self._budget = budget
        self._most_separator = min(24, 8 + budget.quilts // 24)  # wide ones seldom pay, and cost most
        self._propagation = propagation_of(workspace)
        self._outside = PropagationBound(self._problem)
        self._outside.prepare(workspace, budget)
        self._graph = moral_graph(workspace)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the best quilt bound of every unit."""
        return self.refine(alpha, np.full(len(self.units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the best quilt bound of the units that decide whether all leak at most ``high``."""
        return self._best(alpha, known, low, high, len(self.units))

    def largest(self, alpha: Vector, known: Vector, count: int) -> Bounds:
        """Return the best quilt bound of the units that leak most."""
        return self._best(alpha, known, 0.0, math.inf, count)

    def _best(self, alpha: Vector, known: Vector, low: float, high: float, count: int) -> Bounds:
        messages = self._propagation.messages(alpha)
        values = np.minimum(self._initial(alpha, messages), known)
        witnesses: dict[int, dict[str, object]] = {}
        worst, looked, partial = low, 0, low > 0.0 or high < math.inf
        order = np.argsort(-values, kind="stable").tolist()
        searched: list[int] = []
        for most, tied in groupby(order, key=lambda k: float(f"{values[k]:.9e}")):
            if looked > QUILTS_UNITS * self._budget.quilts:
                break  # units that tie are all searched, or none of them
            if sum(values[k] > most * (1.0 + 1e-8) for k in searched) >= count:
                break
            for k in tied:
                if partial and (values[k] <= worst or worst > high):
                    break  # something else leaks as much
                searched.append(k)
                table = self._table(k, alpha)
                looked += len(table.terms)
                found, row = table.values(alpha, messages)
                best = int(np.argmin(found)) if len(found) else 0
                if len(found) and found[best] < values[k]:
                    values[k] = found[best]
                    witnesses[k] = self._describe(table.terms[best], int(row[best]))
                worst = max(worst, float(values[k]))
        return Bounds(values, self.theorem, witness=witnesses)

    def quilts_at(self, alpha: Vector, k: int) -> tuple[QuiltTerm, ...]:
        """Return the quilts of unit k that a search around ``alpha`` meets."""
        return self._table(k, alpha).terms

    def members(self, k: int) -> list[int]:
        """Return the nodes of unit k, by position."""
        return [self.model.index[n] for n in self.units[k]]

    def _initial(self, alpha: Vector, messages: Messages) -> Vector:
        """Where the search starts: what propagation says."""
        return self._outside.evaluate(alpha).values

    @property
    def _spreads(self) -> Vector | None:
        return self._propagation.spreads if self._beyond else None

    # -- the search ---------------------------------------------------------------------------

    def _table(self, k: int, alpha: Vector) -> QuiltTable:
        """Return the quilts met by the searches around α, kept for other α of the same half decade."""
        top = float(alpha.max())
        shape = np.round(alpha / top, 9)  # only a guide
        decade = min(max(round(2 * math.log10(top)), _WEAKEST), _STRONGEST)

        def make() -> QuiltTable:
            found: dict[frozenset[int], QuiltTerm] = {}
            for step in _GUIDES:
                if _WEAKEST <= decade + step <= _STRONGEST or step == 0:
                    found.update(self._search(k, shape * 10.0 ** ((decade + step) / 2)))
            return QuiltTable(tuple(found.values()), self._starts[k], self._spreads)

        key = (self._beyond, self._budget.quilts, self._budget.entries, decade, shape.tobytes(), k)
        return self._workspace.keep("quilts", key, make, lambda table: sum(t.size for t in table.terms))

    def _search(self, k: int, guide: Vector) -> dict[frozenset[int], QuiltTerm]:
        """Grow the unit's best sets by one neighbour each, round by round; return all that was met."""
        messages = self._propagation.messages(guide)
        found: dict[frozenset[int], QuiltTerm] = {}
        seen = {self._starts[k]}
        waiting: dict[frozenset[int], float] = {}
        best = float(self._initial(guide, messages)[k])
        fresh = [self._starts[k]]
        most = 256 if len(self.model.nodes) <= QUILTS_ALL else QUILTS_PATIENCE
        patience = most + 1  # the unit alone is no disappointment
        while True:
            before = best
            terms = {closed: self._examine(k, closed) for closed in fresh}
            usable = {closed: term for closed, term in terms.items() if term is not None}
            table = QuiltTable(tuple(usable.values()), self._starts[k], self._spreads)
            values = table.values(guide, messages)[0].tolist()
            # what cannot be examined can still be grown, after everything else
            waiting.update({closed: 1e300 * (1 + len(closed)) for closed in fresh})
            waiting.update({c: min(v, 1e299) for c, v in zip(usable, values, strict=True)})
            found.update(usable)
            best = min([best, *values])
            patience = most if best < before else patience - 1
            if not patience or not waiting or len(seen) >= self._budget.quilts:
                return found
            least = min(waiting.values())
            chosen = [c for c, v in waiting.items() if v <= least * (1 + _TIE)]
            grown = [g for c in chosen for g in self._grown(c)]
            fresh = [g for g in dict.fromkeys(grown) if g not in seen]
            seen.update(fresh)
            for closed in chosen:
                del waiting[closed]

    def _grown(self, closed: frozenset[int]) -> list[frozenset[int]]:
        """Return the set with each one of its neighbours."""
        return [closed | {v} for v in self._boundary(closed)]

    def _boundary(self, closed: frozenset[int]) -> list[int]:
        graph = self._graph
        return sorted({v for u in closed for v in graph.neighbor_positions(u)} - closed)

    def _examine(self, k: int, closed: frozenset[int]) -> QuiltTerm | None:
        """Return one quilt with its swings, or ``None`` if it is too large; kept in the workspace."""
        return self._workspace.keep(
            "quilt",
            (self._beyond, self._budget.entries, self._starts[k], closed),
            lambda: self._quilt(self._starts[k], closed),
            lambda term: 256 if term is None else term.size,
        )

    def _quilt(self, start: frozenset[int], closed: frozenset[int]) -> QuiltTerm | None:
        model, names = self.model, self.model.nodes
        separator = self._boundary(closed)
        nearby = sorted(closed - start)
        near = [j for j in nearby if model.is_record(names[j])]
        if not separator or len(near) > QUILTS_NEARBY or len(separator) > self._most_separator:
            return None
        self._workspace.guard.check()
        try:
            found = swings(
                model,
                [names[j] for j in sorted(start)],
                [names[j] for j in nearby],
                [names[j] for j in separator],
                max_entries=self._budget.entries,
                workspace=self._workspace,
            )
        except ModelTooWide:
            return None
        rows = list(found.items())
        unknown = np.array([[0.0 if names[j] in known else 1.0 for j in near] for known, _ in rows])
        return QuiltTerm(
            closed,
            tuple(separator),
            np.array(near, dtype=np.intp),
            unknown.reshape(len(rows), len(near)),
            np.array([s for _, s in rows], dtype=np.float64),
            edges_beyond(model, self._propagation, closed, separator) if self._beyond else (),
        )

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


@register("swing", against=INFORMED, kind="certified bound", says="swing of the best quilt", auto=never)
class SwingBound(QuiltsBound):
    """Bound 2: Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }, the best quilt found, or group privacy."""

    theorem = "swing"
    _beyond = False

    def _initial(self, alpha: Vector, messages: Messages) -> Vector:
        """Where the search starts: group privacy, the trivial quilt."""
        labels = self._propagation.graph.component
        return np.array(
            [
                sum({int(labels[j]): float(messages.cap[j]) for j in members}.values())
                for members in self._starts
            ]
        )

"""The exact limit: the worst α-DP mechanism against the worst adversary, for small models.

Nothing sound can be below it, so it is the yardstick of every other bound and the best method for
small families.  All adversaries (which records are known, and their values) are listed; each has a
cheap ceiling; the maximum itself is computed only for adversaries whose ceiling exceeds what has been
proved already.  Every number is proved from above and attained from below; where the two do not meet
(a work budget spent, α out of the range of doubles) the answer is called a certified bound, not exact.

*Assumes*: a small model: the joint law of its records as one table.  *Cost*: every adversary's ceiling, and
a program for each whose ceiling decides; the work budget counts the programs.  *Reference*: docs/theory.md,
section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds.adversaries import Ints, LawPairs, count_entries, list_pairs
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.worst_mechanism import staged_ceiling, worst_gains
from quiltdp.accountant.trade_offs import ADVERSARIES_AT_ONCE, CEILINGS_AT_ONCE, LIMIT_AXES, LIMIT_RECORDS
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up
from quiltdp.work import Guard, WorkBudget

FROM_ABOVE = "limit-bound"
"""The name of what the search for the limit proved, where it is not attained."""

_EXACT = 1e-7  # how far (relatively) proved and attained may be apart in what is called exact
_QUICK = 8  # joint values up to which a program takes no longer than a ceiling
_SEARCHES = 3  # at different α, whose ceilings are used again
_STAGED = 2048  # joint values up to which ceilings of all pairs fit into memory
_EXP_LIMIT = 600.0  # Σ α beyond which e^Σα times the smallest double is no longer nothing


@register(
    "exact",
    against=INFORMED,
    kind="exact",
    says="the limit over all α-DP mechanisms and adversaries",
)
class ExactBound:
    """Leakage(T) = max of Σ_{t∈T} α_t·1[x_t ≠ x_t'] + max_H ln E_p H / E_p' H over adversaries, x_T ≠ x_T'.

    Parameters
    ----------
    problem
        A small model, any units and any adversary: the tables of all that may be known are predicted
        before any work.
    max_entries
        The most numbers the tables may hold.
    max_programs
        The most programs of more than a few values in one evaluation (default: what the work budget says);
        adversaries beyond it keep their ceiling, and the result says so.

    Raises
    ------
    ModelTooWide
        Before any work, naming the size.
    """

    def __init__(
        self, problem: Problem, *, max_entries: int = 4_000_000, max_programs: int | None = None
    ) -> None:
        model = problem.model
        most = LIMIT_AXES if PRIOR.covers(problem.adversary) else LIMIT_RECORDS
        if len(model.records) > most:
            raise ModelTooWide(
                f"the exact limit lists every adversary of at most {most} records,"
                f" this component has {len(model.records):,}",
                f"use another {option('method')}",
            )
        records = tuple(model.records)
        sizes = [model.cardinality(r) for r in records]
        place = {r: k for k, r in enumerate(records)}
        self._units = [tuple(place[n] for n in unit) for unit in problem.listed()]
        named = problem.adversary.records
        self._may_know = None if named is None else frozenset(place[n] for n in named if n in place)
        self._most = problem.adversary.at_most
        needed = sum(count_entries(sizes, unit, self._may_know, self._most) for unit in self._units)
        if needed > max_entries:
            raise ModelTooWide(
                f"the exact limit of {len(records)} records needs {needed:,} numbers,"
                f" the limit is {max_entries:,}",
                f"use another {option('method')}",
                f"raise {option('max_entries')}",
            )
        self._model, self._names = model, records
        self._records = np.array([model.index[r] for r in records], dtype=np.intp)
        self._max_programs = max_programs
        self._prices = [_cheapest_changes(problem.price(r)) for r in records]

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List every adversary: the two laws that each pair of values leaves for the unknown records."""
        self._guard = workspace.guard
        self._programs = budget.programs if self._max_programs is None else self._max_programs
        log_joint = junction_tree(self._model, workspace=workspace).log_marginal(self._names)
        # the joint's relative error, four times, is how far a gain may be off on its account
        logs = log_joint[np.isfinite(log_joint)]
        depth = float(np.abs(logs).max(initial=0.0))
        self._thin = float(logs.max() - logs.min()) > _EXP_LIMIT
        self._slack = 256 * EPS * (len(self._model.nodes) + depth)
        self._groups = list_pairs(
            log_joint, self._units, self._prices, self._may_know, self._most, workspace.guard
        )
        self._searches: list[_AdversarySearch] = []

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        known, low, high = need.fill_unknown(len(self._units))
        a = alpha[self._records]
        search = self._search(a)
        if self._thin and float(a.sum()) > _EXP_LIMIT:  # what is lost below the smallest double could matter
            search.ceiling[:] = up(float(a.sum()), 4.0 + len(a))
        else:
            search.run(np.where(known > low, low, np.inf), high, self._programs)
        values, witnesses, loose = np.zeros(len(known)), {}, []
        decided = low if high == math.inf else search.proved.max(initial=low, where=known > low)
        for k in range(len(known)):
            rows = np.flatnonzero(search.unit == k)
            if not len(rows):
                continue  # one possible value
            top = int(rows[np.lexsort((search.attained[rows], search.ceiling[rows]))[-1]])
            above, below = float(search.ceiling[top]), float(search.attained[top])
            values[k] = min(float(known[k]), up(above))
            if below >= 0.0:
                witnesses[k] = self._describe(search, top)
            if above - below > _EXACT * max(1.0, above) and values[k] > decided:
                loose.append(k)
        if not loose or (search.attained > high).any():
            return Bounds(values, "exact", "exact", witnesses, partial=need.limited)
        names = ", ".join(str(self._names[self._units[k][0]]) for k in loose[:3])
        notes = (f"exact: proved and attained do not meet for {len(loose)} of the units ({names}, …)",)
        return Bounds(values, FROM_ABOVE, "certified bound", witnesses, notes, need.limited)

    def _search(self, a: Vector) -> _AdversarySearch:
        """Return the search at an α, with the ceilings of larger ones: nobody learns more here."""
        for search in self._searches:
            if np.array_equal(search.alpha, a):
                return search
        made = _AdversarySearch(self._groups, a, self._prices, self._slack, self._guard)
        for search in self._searches:
            if np.all(search.alpha >= a):
                made.ceiling = np.minimum(made.ceiling, search.ceiling)
        self._searches = [*self._searches[1 - _SEARCHES :], made]
        return made

    def _describe(self, search: _AdversarySearch, row: int) -> dict[str, object]:
        """Say who the worst adversary is: what is known and which two values are told apart."""
        group, at = search.locate_adversary(row)
        return {
            "known": [self._names[j] for j in group.known[at]],
            "unknown": [self._names[j] for j in group.unknown[at]],
            "known_values": int(group.evidence[at]),
            "values": group.values[at].tolist(),
        }


def _cheapest_changes(price: Vector) -> Vector:
    """Return the cheapest way from each value to each other: a change may be made in steps."""
    price = np.array(price)
    for k in range(len(price)):
        price = np.minimum(price, price[:, k, None] + price[None, k])
    return price


class _AdversarySearch:
    """The search at one α: the adversary with the highest ceiling gets a sharper one, or is settled.

    Attributes
    ----------
    unit, ceiling, attained
        Per adversary its unit, what it learns at most, and what some mechanism tells it (−1: not settled).
    proved
        Per unit the largest ceiling of its settled adversaries.
    """

    def __init__(
        self, groups: Sequence[LawPairs], alpha: Vector, prices: Sequence[Vector], slack: float, guard: Guard
    ) -> None:
        self._groups, self.alpha, self._prices, self._guard = groups, alpha, prices, guard
        self._ends = np.cumsum([len(g.p) for g in groups])
        self._slack = slack
        self._own = np.concatenate([g.own_prices(alpha) for g in groups]) + slack
        self.unit = np.concatenate([g.unit for g in groups])
        self.ceiling = self._own + np.concatenate([g.ceilings(alpha) for g in groups])
        self.attained = np.full(len(self.unit), -1.0)
        self.proved = np.zeros(self.unit.max(initial=-1) + 1)
        width = np.array([g.p.shape[1] for g in groups])
        self._quick = np.repeat(width <= _QUICK, [len(g.p) for g in groups])
        self._staged = self._quick.copy()  # whose ceiling becomes no sharper without a program

    def run(self, low: Vector, high: float, programs: int) -> None:
        """Settle who decides: ceilings above what is proved, and above ``low`` of their unit.

        Below ``high`` < ∞ only the largest of all units counts, and it ends above ``high``.
        """
        self.proved = np.array(low)
        settled = self.attained >= 0.0
        np.maximum.at(self.proved, self.unit[settled], self.ceiling[settled])
        while True:
            self._guard.check()
            least = self.proved
            if high < math.inf:
                least = np.maximum(least, least.max(initial=0.0, where=np.isfinite(least)))
            rows = np.flatnonzero((self.attained < 0.0) & (self.ceiling > least[self.unit]))
            if not len(rows) or (self.attained > high).any():
                return
            rows = rows[np.argsort(-self.ceiling[rows], kind="stable")[:ADVERSARIES_AT_ONCE]]
            slow = np.flatnonzero(self._staged[rows] & ~self._quick[rows])
            if len(slow):  # a program by itself, when it is the next
                rows = rows[: max(1, int(slow[0]))]
                programs -= slow[0] == 0
            if programs < 0:
                return
            place = np.searchsorted(self._ends, rows, side="right")
            for k in sorted(set(place.tolist())):
                group, some = self._groups[k], rows[place == k]
                self._sharpen_ceilings(group, some, some - self._ends[k] + len(group.p))

    def locate_adversary(self, row: int) -> tuple[LawPairs, int]:
        """Return the group of an adversary and its row there."""
        group = int(np.searchsorted(self._ends, row, side="right"))
        return self._groups[group], row - int(self._ends[group]) + len(self._groups[group].p)

    def _sharpen_ceilings(self, group: LawPairs, rows: Ints, at: Ints) -> None:
        """Settle adversaries, rows ``at`` of a group, or give them the ceilings of revealing one by one."""
        alphas = self.alpha[group.unknown[at]]
        reads = alphas > 0
        if (reads != reads[0]).any():  # those that are alike in which unknown records the mechanism reads
            alike = np.unique(reads, axis=0, return_inverse=True)[1].ravel()
            for k in range(int(alike.max()) + 1):
                self._sharpen_ceilings(group, rows[alike == k], at[alike == k])
            return
        unread = tuple(1 + np.flatnonzero(~reads[0]))  # no likelihood depends on them
        laws = (law[at].reshape(-1, *group.sizes) for law in (group.p, group.q))
        p, q = (law.sum(axis=unread).reshape(len(at), -1) for law in laws)
        read = np.flatnonzero(reads[0])
        tables = [np.array([self._prices[u] for u in group.unknown[at, j]]) for j in read]
        costs = [alphas[:, j, None, None] * table for j, table in zip(read, tables, strict=True)]
        own, values = self._own[rows], p.shape[1]
        if not self._staged[rows[0]] and _QUICK < values <= _STAGED:
            self._staged[rows] = True
            step = max(1, CEILINGS_AT_ONCE // values**2)
            for k in range(0, len(rows), step):
                self._guard.check()
                part = slice(k, k + step)
                sharper = own[part] + staged_ceiling(p[part], q[part], [c[part] for c in costs])
                self.ceiling[rows[part]] = np.minimum(self.ceiling[rows[part]], sharper)
            return
        above, below = worst_gains(p, q, costs, self._guard)
        self.ceiling[rows] = np.minimum(self.ceiling[rows], own + above)
        self.attained[rows] = np.maximum(own + below - 4.0 * self._slack, 0.0)
        np.maximum.at(self.proved, self.unit[rows], self.ceiling[rows])

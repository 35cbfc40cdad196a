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
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.adversaries import PairStack, PairTable, count_entries, pair_tables
from quiltdp.accountant.leakage.limit_search import FROM_ABOVE, UnitBracket, UnitSearch
from quiltdp.accountant.trade_offs import LIMIT_AXES, LIMIT_RECORDS
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import EPS, up
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.accountant.leakage.informed_tree import InformedTreeBound

__all__ = ["ExactBound", "is_small"]

_SEARCHES = 3  # at different α, whose ceilings are kept
_EXP_LIMIT = 600.0  # Σ α beyond which e^Σα times the smallest double is no longer nothing


def is_small(model: Model) -> bool:
    """Return whether the exact limit takes moments: few records, few joint states."""
    if len(model.records) > 8:
        return False
    states = 1
    for r in model.records:
        states *= model.cardinality(r)
    return states <= 256


@register(
    "exact",
    against=PRIOR,
    kind="exact",
    says="the limit over all α-DP mechanisms",
    auto=lambda problem: is_small(problem.model),
    settles=True,
    near=1e-8,
)
@register(
    "exact",
    against=INFORMED,
    kind="exact",
    says="the limit over all α-DP mechanisms and adversaries",
    auto=lambda problem: is_small(problem.model),
    settles=True,
    near=1e-8,
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
        The most transports and linear programs of one unit in one evaluation (default: what the work
        budget says); adversaries beyond it keep their ceiling, and the result says so.

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
        self._problem, self._model, self._names = problem, model, records
        self._records = np.array([model.index[r] for r in records], dtype=np.intp)
        self._shape = tuple(sizes)
        self._asked_programs = max_programs
        self._otherwise: InformedTreeBound | None = None

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List every adversary: the two laws that each pair of values leaves for the unknown records."""
        self._workspace, self._budget = workspace, budget
        asked = self._asked_programs
        self._max_programs = max(1, budget.programs // len(self._units)) if asked is None else asked
        log_joint = junction_tree(self._model, workspace=workspace).log_marginal(self._names)
        # the joint's relative error, four times, is how far a gain may be off on its account
        logs = log_joint[np.isfinite(log_joint)]
        depth = float(np.abs(logs).max(initial=0.0))
        self._thin = float(logs.max() - logs.min()) > _EXP_LIMIT
        self._slack = 256 * EPS * (len(self._model.nodes) + depth)
        self._searches: list[tuple[Vector, UnitSearch]] = []
        self._worst = np.zeros(len(self._units))  # leakages of the units when they were last searched
        tables, owner = [], []
        for k, unit in enumerate(self._units):
            mine = list(pair_tables(log_joint, unit, self._may_know, self._most))
            tables.extend(mine)
            owner.extend([k] * len(mine))
        self._stack = PairStack(tables)
        of_row = np.repeat(np.array(owner, dtype=np.intp)[self._stack.order], np.diff(self._stack.offsets))
        self._rows = [np.flatnonzero(of_row == k) for k in range(len(self._units))]

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        a = alpha[self._records]
        search = self._search(a)
        values, witnesses = np.array(known), {}
        loose: list[int] = []
        least, partial = low, high < math.inf
        asked = [rows for rows, most in zip(self._rows, known.tolist(), strict=True) if most > low]
        if search is not None and asked:
            if not partial:
                search.settle(low, asked)
            else:
                found = search.run(low, np.sort(np.concatenate(asked)))
                if found.exact and found.above <= high:
                    least = max(low, found.below - 2.0 * self._slack)
        for k in np.lexsort((-self._worst, -known)).tolist():  # who leaked most at another α
            if known[k] <= least:
                break
            unit = self._unit(search, k, a, least)
            values[k] = min(known[k], up(unit.above)) if unit.above > 0.0 else 0.0
            if not unit.exact and unit.above > least:
                loose.append(k)
            if partial:  # only the largest is asked for
                least = max(least, unit.below)
            if unit.witness is not None:
                witnesses[k] = self._describe(*unit.witness)
            if values[k] > high:
                break
        if not loose:
            return Bounds(values, "exact", "exact", witnesses)
        values = self._tree().refine(alpha, values, low, high).values
        names = ", ".join(str(self._names[self._units[k][0]]) for k in loose[:3])
        notes = (f"exact: proved and attained do not meet for {len(loose)} of the units ({names}, …)",)
        return Bounds(values, FROM_ABOVE, "certified bound", witnesses, notes)

    def _tree(self) -> InformedTreeBound:
        """Return the clique tree, for what could not be settled."""
        if self._otherwise is None:
            from quiltdp.accountant.leakage.informed_tree import InformedTreeBound

            self._otherwise = InformedTreeBound(self._problem)
            self._otherwise.prepare(self._workspace, self._budget)
        return self._otherwise

    def _search(self, a: Vector) -> UnitSearch | None:
        """Return the search at an α; ``None`` where what is lost below the smallest double could matter."""
        if self._thin and float(a.sum()) > _EXP_LIMIT:
            return None
        for alpha, search in self._searches:
            if np.array_equal(alpha, a):
                return search
        own = np.empty(int(self._stack.offsets[-1]))
        for unit, rows in zip(self._units, self._rows, strict=True):
            own[rows] = self._stack.apart(a, unit, self._shape, rows)
        above = [search.ceilings for alpha, search in self._searches if bool(np.all(alpha >= a))]
        guard = self._workspace.guard
        made = UnitSearch(self._stack, own + self._slack, a, self._max_programs, guard, above)
        self._searches = [*self._searches, (a, made)][-_SEARCHES:]
        return made

    def _unit(self, search: UnitSearch | None, k: int, a: Vector, least: float) -> UnitBracket:
        """Return the largest leakage of one unit over all adversaries, or ``least`` if that is larger."""
        if search is None:
            return UnitBracket(up(float(a.sum()), 4.0 + len(a)), 0.0)
        found = search.run(least, self._rows[k])
        self._worst[k] = found.above
        return replace(found, below=max(0.0, found.below - 2.0 * self._slack))

    def _describe(self, table: PairTable, row: int) -> dict[str, object]:
        """Say who the worst adversary is: what is known and which two values are told apart."""
        known = [self._names[j] for j in table.known_sets]
        return {
            "known": known,
            "unknown": [self._names[j] for j in table.unknown],
            "known_values": int(table.known[row]),
            "values": [int(v) for v in table.values[row]],
        }

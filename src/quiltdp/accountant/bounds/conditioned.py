"""Listed evidence on wide models: the model given each thing that may be known, by sequential coupling.

    Leakage(T; knows K) = max over S ⊆ K∖T and possible x_S of Leakage(T; prior) in the model given x_S.

*Why.*  Given x_S the known records are constants; what is left to the adversary is the law of the others,
and the mechanism's likelihood at those constants is an α-DP likelihood of the others.  Where cliques have too
many states for all their pairs, the sparse form of :mod:`.coupling` still answers each conditioned model.

*Assumes*: few sets and values of records that may be known.  *Cost*: sequential coupling once for each.
*Reference*: docs/theory.md, adversaries between prior and informed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import Bounds, Need, Problem, Vector
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.errors import InvalidModel, ModelTooWide, option
from quiltdp.inference.marginals import condition, count_evidence, each_evidence
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


@dataclass(frozen=True, eq=False)
class _ConditionedModel:
    """The model given one evidence: which units are left, where its nodes stand, and its bound."""

    evidence: dict[str, int]
    units: NDArray[np.intp]
    nodes: NDArray[np.intp]
    bound: CouplingBound


class ConditionedModels:
    """The model given everything that may be known, each with its bound against the prior adversary.

    Raises
    ------
    ModelTooWide
        If more may be known than the work budget allows, or a model is too wide for sequential coupling.
    """

    def __init__(self, problem: Problem, workspace: Workspace, budget: WorkBudget) -> None:
        model, who = problem.model, problem.adversary
        may_know = [n for n in model.records if who.records is None or n in who.records]
        count = count_evidence(model, may_know, who.at_most)
        if count > budget.evidence:
            raise ModelTooWide(
                f"{count:,} sets and values of records may be known, the limit is {budget.evidence:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._guard = workspace.guard
        self._given: list[_ConditionedModel] = []
        units = problem.listed()
        self._units = len(units)
        for place, evidence in enumerate(each_evidence(model, may_know, who.at_most)):
            self._guard.check()
            left = [k for k, unit in enumerate(units) if not evidence.keys() & set(unit)]
            if not left:
                continue
            try:
                after = condition(model, evidence) if evidence else model
                junction_tree(after)  # refuses a model without a possible state
            except InvalidModel:
                continue
            asked = tuple(units[k] for k in left)
            bound = CouplingBound(replace(problem, model=after, units=asked, adversary=PRIOR, window=1))
            bound.prepare(workspace.part(("given", place), after), budget)
            nodes = np.array([model.index[n] for n in after.nodes], dtype=np.intp)
            self._given.append(_ConditionedModel(evidence, np.array(left), nodes, bound))

    def evaluate(self, alpha: Vector, need: Need) -> Bounds:
        """Return the leakage of every unit; only what is known once some unit leaks more than is asked."""
        known, _, high = need.fill_unknown(self._units)
        values = np.zeros(self._units)
        witness: dict[int, dict[str, object]] = {}
        for given in self._given:
            self._guard.check()
            found = given.bound.evaluate(alpha[given.nodes]).values
            for k in np.flatnonzero(found > values[given.units]).tolist():
                unit = int(given.units[k])
                values[unit] = found[k]
                witness[unit] = {"known": sorted(given.evidence), "evidence": dict(given.evidence)}
            if np.minimum(values, known).max(initial=0.0) > high:
                return Bounds(known, "listed-evidence", partial=True)
        return Bounds(np.minimum(values, known), "listed-evidence", witness=witness, partial=need.limited)

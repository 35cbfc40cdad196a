"""An adversary who may know some records: the prior adversary, once for everything that may be known.

    Leakage(T; knows K) = max over S ⊆ K∖T and possible x_S of Leakage(T; prior) in the model given x_S.

*Why.*  Given x_S the known records are constants; what is left to the adversary is the law of the others,
and the mechanism's likelihood at those constants is an α-DP likelihood of the others.  With few sets and
values this is as sharp as the prior adversary's methods are; bounds that hold against anybody who knows
more (the informed tree with a budget of known records, group privacy) stand beside it.

*Assumes*: an adversary whose known records are a declared set, or at most k of them.  *Cost*: one analysis
against the prior adversary for every set and value that may be known, within the work budget.  *Reference*:
docs/theory.md, adversaries between prior and informed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.stages import Component, SmallestBounds
from quiltdp.accountant.trade_offs import CONDITIONED_NODES
from quiltdp.errors import InvalidModel, ModelTooWide, option
from quiltdp.inference.marginals import condition, count_evidence, each_evidence
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import WorkBudget

__all__ = ["ConditionedBound"]


@dataclass(frozen=True, eq=False)
class _Given:
    """The model given one evidence: which units are left, where its nodes stand, and its bounds."""

    evidence: dict[str, int]
    units: NDArray[np.intp]
    nodes: NDArray[np.intp]
    component: Component


@register(
    "conditioned",
    against=INFORMED,
    kind="certified bound",
    says="the prior adversary's bounds, given everything that may be known",
    auto=lambda problem: problem.adversary not in (INFORMED, PRIOR),
)
class ConditionedBound:
    """The prior adversary's bounds, maximised over what may be known (method ``"conditioned"``).

    Parameters
    ----------
    problem
        Any model and adversary for which few sets and values of records may be known.

    Raises
    ------
    ModelTooWide
        In ``prepare``, if there are more than the work budget allows.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> from quiltdp.accountant.adversaries import knows
    >>> from quiltdp.accountant.bounds import ready
    >>> step = [[0.9, 0.1], [0.1, 0.9]]
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], step), "C": (["B"], step)})
    >>> ready(ConditionedBound, m, adversary=knows("B")).evaluate(np.ones(3)).values.round(4).tolist()
    [2.2902, 2.5523, 2.2902]
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._units = problem.listed()
        records = problem.model.records
        named = problem.adversary.records
        self._may_know = [n for n in records if named is None or n in named]
        self._most = problem.adversary.at_most

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Condition the model on everything that may be known, and prepare the prior bounds of each."""
        model = self._problem.model
        if len(model.nodes) > CONDITIONED_NODES:
            raise ModelTooWide(
                f"models of at most {CONDITIONED_NODES:,} nodes are conditioned,"
                f" this has {len(model.nodes):,}",
                f"use another {option('method')}",
            )
        count = count_evidence(model, self._may_know, self._most)
        if count > budget.evidence:
            raise ModelTooWide(
                f"{count:,} sets and values of records may be known, the limit is {budget.evidence:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._workspace = workspace
        self._given: list[_Given] = []
        for k, evidence in enumerate(each_evidence(model, self._may_know, self._most)):
            workspace.guard.check()
            left = [u for u, unit in enumerate(self._units) if not evidence.keys() & set(unit)]
            found = self._after(model, evidence, left, workspace, budget, k) if left else None
            if found is not None:
                self._given.append(found)

    def _after(
        self,
        model: Model,
        evidence: dict[str, int],
        left: list[int],
        workspace: Workspace,
        budget: WorkBudget,
        place: int,
    ) -> _Given | None:
        """Return the prior bounds of the model given one evidence; ``None`` if it is impossible."""
        from quiltdp.accountant.methods import candidates  # the registry lists this module too
        from quiltdp.inference.trees import junction_tree

        try:
            after = condition(model, evidence) if evidence else model
            if evidence:
                junction_tree(after)  # refuses a model without a possible state
        except InvalidModel:
            return None
        units = tuple(self._units[u] for u in left)
        space = workspace.part(("conditioned", place), after)
        component = Component(Problem(after, units, PRIOR), space, budget)
        for entry in candidates(PRIOR):
            own = entry.against == PRIOR or entry.universal
            if own and component.wants(entry):
                component.offer(entry)
        nodes = np.array([model.index[n] for n in after.nodes], dtype=np.intp)
        return _Given(evidence, np.array(left, dtype=np.intp), nodes, component)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        values = np.zeros(len(self._units))
        witness: dict[int, dict[str, object]] = {}
        for given in self._given:
            self._workspace.guard.check()
            found = self._smallest(given, alpha[given.nodes], low, high)
            for unit, value in zip(given.units.tolist(), found.values.tolist(), strict=True):
                if value > values[unit]:
                    values[unit] = value
                    witness[unit] = {"known": sorted(given.evidence), "evidence": dict(given.evidence)}
            if np.minimum(values, known).max(initial=0.0) > high:
                return Bounds(known, "conditioned")  # not all evidence was looked at: no better bound yet
        return Bounds(np.minimum(values, known), "conditioned", "certified bound", witness)

    @staticmethod
    def _smallest(given: _Given, alpha: Vector, low: float, high: float) -> SmallestBounds:
        """Return the smallest bound of every unit, as good as it needs be."""
        component = given.component
        count = len(component.bounds)
        if low <= 0.0 and math.isinf(high):
            return component.evaluate(alpha, count)
        return component.decide(alpha, count, low, high)

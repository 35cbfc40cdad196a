"""Leakage propagation: a bound from one pass over each table, for graphs of any size.

    o_{j→f} = α_j + Σ_{g ∋ j, g ≠ f} Φ( c_{j,g}, Σ_{k ∈ g∖j} o_{k→g} )          (least fixed point)
    Leakage(i) ≤ α_i + Σ_{f ∋ i} Φ( c_{i,f}, Σ_{k ∈ f∖i} o_{k→f} )

c_{j,g} is the spread of table g in node j.  Unrolling a loopy graph into its tree of self-avoiding
walks only drops terms, so the bound holds for every graph; every message, and every sum of messages
that enters Φ, is also cut at the sum of all α of its component, which is group privacy.

**Certificate.**  Write F for the right-hand side with the cut.  F is monotone, so any u with
F(u) ≤ u lies above the least fixed point.  Group privacy is such a super-solution, and with u so is every
u' between F(u) and u: F(u') ≤ F(u) ≤ u'.  So the messages start at group privacy and descend, F rounded up,
until they settle or the work is spent; what is returned is certified at every step.

*Assumes*: nothing: any factor graph, any evidence.  *Cost*: one spread per table and axis, then sweeps over
all edges until they settle.  *Reference*: docs/theory.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.contraction import phi
from quiltdp.graph.components import FactorGraph, factor_graph
from quiltdp.inference.spread import all_spreads, unit_spread
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up_array
from quiltdp.work import NO_GUARD, Guard, WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

_SETTLED = 1e-12  # relative decrease of a message below which it does not go on


@dataclass(frozen=True, eq=False)
class Messages:
    """A super-solution of the propagation equations at one α.

    ``out[e]`` bounds the message node → factor on edge e, ``into[e]`` what comes back from the
    factor to the node; ``total[j]`` is the bound on the leakage of node j; ``cap[j]`` is group privacy.
    """

    out: Vector
    into: Vector
    total: Vector
    cap: Vector


def propagate(
    graph: FactorGraph,
    spreads: Vector,
    alpha: Vector,
    *,
    max_work: float = 4e8,
    guard: Guard = NO_GUARD,
) -> Messages:
    """Return a certified super-solution of the propagation equations.

    Parameters
    ----------
    graph, spreads
        The factor graph and c for each of its edges.
    alpha
        One α per node, 0 for latents.
    max_work
        How many edge updates may be spent.
    guard
        Looked at before every sweep.
    """
    node, factor = graph.edge_node, graph.edge_factor
    longest = max(np.bincount(ends, minlength=1).max(initial=0) for ends in (node, factor)) + 8  # sum
    whole = np.bincount(graph.component, weights=alpha, minlength=1).astype(np.float64)
    cap = up_array(whole, len(alpha) + 8.0)[graph.component]
    own, most = alpha[node], cap[node]

    def into(out: Vector) -> Vector:
        """Φ(c, sum over the factor's other nodes) for every edge."""
        total = np.bincount(factor, weights=out, minlength=graph.factors)[factor]
        others = np.maximum(total - out, 0.0) + total * (longest * EPS)
        return phi(spreads, np.minimum(others, most))

    out, back = most, into(most)
    for _ in range(int(max(50, min(20_000, max_work / max(1, len(node)))))):
        guard.check()
        total = own + np.bincount(node, weights=back, minlength=graph.nodes)[node]
        lower = np.maximum(total - back, own) + total * (longest * EPS)
        lower = np.minimum(lower, out)
        settled = bool(np.all(out - lower <= _SETTLED * out))
        out, back = lower, into(lower)
        if settled:
            break
    sums = up_array(alpha + np.bincount(node, weights=back, minlength=graph.nodes), longest)
    return Messages(out, back, np.minimum(sums, cap), cap)


@register(
    "propagation",
    against=INFORMED,
    kind="certified bound",
    says="leakage propagation, super-solution checked",
)
class PropagationBound:
    """Bound 3: leakage propagation for every protected unit.

    For a unit T of several nodes,
    Leakage(T) ≤ Σ_{t∈T} α_t + Σ_{f meets T and its outside} Φ( c_{T,f}, Σ_{k ∈ f∖T} o_{k→f} ).
    """

    def __init__(self, problem: Problem, errors: TableErrors | None = None) -> None:
        model, singles = problem.model, problem.singles
        self._model, self._errors = model, errors
        self._units = None if singles else problem.listed()
        chosen = problem.single_records("propagation") if singles else ()
        self._single = np.array([model.index[r] for r in chosen], dtype=np.intp)

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> PropagationBound:
        """Return the bound for every model within the errors: spreads are raised, nothing is added."""
        return cls(problem, errors)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the spread of every table in each of its nodes, raised by twice the table's wobble."""
        self._guard = workspace.guard
        self._graph = g = factor_graph(self._model)
        self._spreads = all_spreads(self._model, g)
        if self._errors is not None:
            more = np.array([self._extra_spread(int(f)) for f in g.factor_position])
            sizes = np.array([self._model.cardinality(self._model.nodes[j]) for j in g.edge_node])
            self._spreads = np.where(sizes > 1, self._spreads + more[g.edge_factor], 0.0)

    def _extra_spread(self, factor: int) -> float:
        return 0.0 if self._errors is None else 2.0 * self._errors.wobble(self._model.factors[factor])

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the propagation bound of every unit."""
        messages = propagate(self._graph, self._spreads, alpha, guard=self._guard)
        if self._units is None:
            return Bounds(messages.total[self._single], "propagation")
        values = [self._leakage_of_unit(unit, alpha, messages) for unit in self._units]
        return Bounds(np.array(values), "propagation")

    def _leakage_of_unit(self, unit: tuple[str, ...], alpha: Vector, messages: Messages) -> float:
        """Return the bound for one protected set."""
        model, g = self._model, self._graph
        members = {model.index[n] for n in unit}
        value = float(sum(alpha[j] for j in members))
        for f in {f for n in unit for f in model.factors_of[n]}:
            scope = [model.index[n] for n in model.factors[f].scope]
            outside = [a for a, j in enumerate(scope) if j not in members]
            if outside:
                first = int(np.searchsorted(g.edge_factor, np.searchsorted(g.factor_position, f)))
                arriving = sum(float(messages.out[first + a]) for a in outside) * (1 + 64 * EPS)
                inside = [model.nodes[j] for j in scope if j in members]
                value += float(phi(unit_spread(model, inside, f) + self._extra_spread(f), arriving))
        own = {int(g.component[j]): float(messages.cap[j]) for j in members}
        return min(float(up_array(np.array(value), 64.0 + 4 * len(unit))), sum(own.values()))

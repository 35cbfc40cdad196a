"""Leakage propagation: a bound from one pass over each table, for graphs of any size.

    o_{j→f} = α_j + Σ_{g ∋ j, g ≠ f} Φ( c_{j,g}, Σ_{k ∈ g∖j} o_{k→g} )          (least fixed point)
    Leakage(i) ≤ α_i + Σ_{f ∋ i} Φ( c_{i,f}, Σ_{k ∈ f∖i} o_{k→f} )

c_{j,g} is the spread of table g in node j.  Unrolling a loopy graph into its tree of self-avoiding
walks only drops terms, so the bound holds for every graph; every message, and every sum of messages
that enters Φ, is also cut at the sum of all α of its component, which is group privacy.

**Certificate.**  Write F for the right-hand side with the cut.  F is monotone, so any u with
F(u) ≤ u lies above the least fixed point.  What is returned is always such a super-solution, checked
component by component with F itself rounded up.

*Assumes*: nothing: any factor graph, any evidence.  *Cost*: one spread per table and axis, then sweeps over
all edges until they settle.  *Reference*: docs/theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.graph.factor_graph import FactorGraph, factor_graph
from quiltdp.inference.spread import all_spreads, unit_spread
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up_array
from quiltdp.work import NO_GUARD, Guard, WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

__all__ = ["Messages", "Propagation", "PropagationBound", "propagate", "propagation_of"]

_INFLATIONS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True, eq=False)
class Messages:
    """A super-solution of the propagation equations at one α.

    ``out[e]`` bounds the message node → factor on edge e, ``into[e]`` what comes back from the
    factor to the node; ``total[j]`` is the bound on the leakage of node j; ``cap[j]`` is group
    privacy; ``how`` says how the certificate was found.
    """

    out: Vector
    into: Vector
    total: Vector
    cap: Vector
    how: str


@dataclass(frozen=True, eq=False)
class _Sweep:
    """One application of F, rounded up."""

    graph: FactorGraph
    spreads: Vector
    alpha: Vector
    cap: Vector  # per node
    _widest: int = field(init=False)

    def __post_init__(self) -> None:
        """Find the longest sum, which decides how far sums are rounded up."""
        g = self.graph
        factor = np.bincount(g.edge_factor, minlength=1).max(initial=0)
        node = np.bincount(g.edge_node, minlength=1).max(initial=0)
        object.__setattr__(self, "_widest", int(max(factor, node)) + 8)

    def into(self, out: Vector) -> Vector:
        """Return Φ(c, sum over the factor's other nodes) for every edge."""
        g = self.graph
        whole = np.bincount(g.edge_factor, weights=out, minlength=g.factors)[g.edge_factor]
        others = np.maximum(whole - out, 0.0) + whole * (self._widest * EPS)
        return phi(self.spreads, np.minimum(others, self.cap[g.edge_node]))

    def totals(self, into: Vector) -> Vector:
        """Return α + Σ into for every node, cut at group privacy."""
        g = self.graph
        sums = np.bincount(g.edge_node, weights=into, minlength=g.nodes)
        whole = up_array(self.alpha + sums, self._widest)
        return np.minimum(whole, self.cap)

    def __call__(self, out: Vector) -> tuple[Vector, Vector]:
        """Return (F(out), the messages factor → node it was made of)."""
        g = self.graph
        into = self.into(out)
        sums = np.bincount(g.edge_node, weights=into, minlength=g.nodes)
        whole = (self.alpha + sums)[g.edge_node]
        new = np.maximum(whole - into, self.alpha[g.edge_node]) + whole * (self._widest * EPS)
        return np.minimum(new, self.cap[g.edge_node]), into


def propagate(
    graph: FactorGraph,
    spreads: Vector,
    alpha: Vector,
    *,
    max_work: float = 4e8,
    tolerance: float = 1e-13,
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
        How many edge updates may be spent; where the iteration has not settled by then the
        messages descend from group privacy instead, which is certified at every step.
    guard
        Looked at before every sweep.
    """
    whole = np.bincount(graph.component, weights=alpha, minlength=1).astype(np.float64)
    cap = up_array(whole, len(alpha) + 8.0)
    sweep = _Sweep(graph, spreads, alpha, cap[graph.component])
    if not len(graph.edge_node):
        return Messages(np.zeros(0), np.zeros(0), sweep.totals(np.zeros(0)), sweep.cap, "no edges")
    sweeps = int(max(50, min(20_000, max_work / len(graph.edge_node))))
    out = np.zeros(len(graph.edge_node))
    for _ in range(sweeps):
        guard.check()
        new, _into = sweep(out)
        settled = bool(np.all(new - out <= tolerance * new))
        out = new
        if settled:
            break
    found = _inflate(sweep, out) or _climb(sweep, out)
    how = "super-solution above the least fixed point"
    if found is None:
        found = _descend(sweep, sweeps)
        how = "super-solution below group privacy"
    out, into = found
    return Messages(out, into, sweep.totals(into), sweep.cap, how)


_SuperSolution = tuple[Vector, Vector]


def _inflate(sweep: _Sweep, out: Vector) -> _SuperSolution | None:
    """Look for δ with F((1 + δ) out) ≤ (1 + δ) out: Φ is concave, so a little is enough."""
    cap = sweep.cap[sweep.graph.edge_node]
    for delta in _INFLATIONS:
        trial = np.minimum(out * (1.0 + delta), cap)
        new, _ = sweep(trial)
        if np.all(new <= trial):
            return _settle(sweep, new)
    return None


def _climb(sweep: _Sweep, out: Vector, rounds: int = 200) -> _SuperSolution | None:
    """Raise the messages where F still exceeds them: ends where only rounding was in the way."""
    trial = out
    for _ in range(rounds):
        new, _ = sweep(trial)
        if np.all(new <= trial):
            return _settle(sweep, new)
        trial = np.maximum(trial, new)
    return None


def _descend(sweep: _Sweep, rounds: int) -> _SuperSolution:
    """Start from group privacy, a super-solution by construction, and apply F."""
    trial = sweep.cap[sweep.graph.edge_node]
    for _ in range(rounds):
        new, _ = sweep(trial)
        new = np.minimum(new, trial)
        if np.all(trial - new <= 1e-12 * trial):
            break
        trial = new
    return _settle(sweep, trial)


def _settle(sweep: _Sweep, out: Vector) -> _SuperSolution:
    """Return the super-solution with its messages factor → node (F of it is below it)."""
    new, _ = sweep(out)
    return np.minimum(out, new), sweep.into(np.minimum(out, new))


class Propagation:
    """The propagation equations of one model: its factor graph, its spreads, messages at any α.

    Parameters
    ----------
    workspace
        Where messages are kept; its guard is looked at while they settle.
    """

    kept_as = "messages"

    def __init__(self, workspace: Workspace, *, max_work: float = 4e8) -> None:
        self._workspace = workspace
        self._max_work = max_work
        self.model = workspace.model
        self.graph = factor_graph(self.model)
        self.spreads = self._spreads()
        self._factors_at: dict[int, tuple[tuple[int, int, tuple[int, ...]], ...]] = {}

    def _spreads(self) -> Vector:
        """Return c for every edge of the graph."""
        return all_spreads(self.model, self.graph)

    def unit_spread(self, nodes: Collection[str], factor: int) -> float:
        """Return c of a factor when several of its nodes change together."""
        return unit_spread(self.model, nodes, factor)

    def messages(self, alpha: Vector) -> Messages:
        """Return the certified messages at ``alpha``, kept for a while."""
        key = np.ascontiguousarray(alpha).tobytes()
        return self._workspace.keep(self.kept_as, (self._max_work, key), lambda: self._solve(alpha), _size)

    def _solve(self, alpha: Vector) -> Messages:
        guard = self._workspace.guard
        return propagate(self.graph, self.spreads, alpha, max_work=self._max_work, guard=guard)

    def first_edge(self, factor: int) -> int:
        """Return the first edge of a factor of the model."""
        place = int(np.searchsorted(self.graph.factor_position, factor))
        return int(np.searchsorted(self.graph.edge_factor, place))

    def factors_at(self, node: int) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Return the factors of a node that have others too: the node's edge, the first edge, the scope."""
        found = self._factors_at.get(node)
        if found is None:
            model, made = self.model, []
            for f in model.factors_of[model.nodes[node]]:
                scope = tuple([model.index[n] for n in model.factors[f].scope])
                if len(scope) > 1:
                    first = self.first_edge(f)
                    made.append((first + scope.index(node), first, scope))
            found = self._factors_at[node] = tuple(made)
        return found


def _size(messages: Messages) -> int:
    """Return the bytes of the messages, with those of their key."""
    return 3 * messages.out.nbytes + 3 * messages.total.nbytes


def propagation_of(workspace: Workspace) -> Propagation:
    """Return the propagation equations of the workspace's model, set up once."""
    return workspace.keep("propagation", (), lambda: Propagation(workspace))


@register(
    "propagation",
    against=INFORMED,
    kind="certified bound",
    says="leakage propagation, super-solution checked",
    unless=("chain",),
)
class PropagationBound:
    """Bound 3: leakage propagation for every protected unit.

    For a unit T of several nodes,
    Leakage(T) ≤ Σ_{t∈T} α_t + Σ_{f meets T and its outside} Φ( c_{T,f}, Σ_{k ∈ f∖T} o_{k→f} ).
    """

    def __init__(self, problem: Problem) -> None:
        model, singles = problem.model, problem.singles
        self._model = model
        self._units = None if singles else problem.listed()
        chosen = problem.single_records("propagation") if singles else ()
        self._single = np.array([model.index[r] for r in chosen], dtype=np.intp)

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> PropagationBound:
        """Return the bound for every model within the errors: spreads are raised, nothing is added."""
        return _RaisedPropagationBound(problem, errors)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the spread of every table in each of its nodes."""
        self._propagation = propagation_of(workspace)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the propagation bound of every unit."""
        messages = self._propagation.messages(alpha)
        if self._units is None:
            return Bounds(messages.total[self._single], "propagation")
        values = [self._unit(unit, alpha, messages) for unit in self._units]
        return Bounds(np.array(values), "propagation")

    def _unit(self, unit: tuple[str, ...], alpha: Vector, messages: Messages) -> float:
        """Return the bound for one protected set."""
        model, g = self._model, self._propagation.graph
        members = {model.index[n] for n in unit}
        value = float(sum(alpha[j] for j in members))
        for f in {f for n in unit for f in model.factors_of[n]}:
            scope = [model.index[n] for n in model.factors[f].scope]
            outside = [j for j in scope if j not in members]
            if not outside:
                continue
            first = self._propagation.first_edge(f)
            arriving = sum(float(messages.out[first + a]) for a, j in enumerate(scope) if j not in members)
            inside = [model.nodes[j] for j in scope if j in members]
            value += float(phi(self._propagation.unit_spread(inside, f), arriving * (1 + 64 * EPS)))
        own = {int(g.component[j]) for j in members}
        cap = sum(float(messages.cap[next(j for j in members if g.component[j] == c)]) for c in own)
        return min(float(up_array(np.array(value), 64.0 + 4 * len(unit))), cap)


class _RaisedPropagation(Propagation):
    """The propagation equations with every spread raised by twice its table's wobble."""

    kept_as = "raised messages"

    def __init__(self, workspace: Workspace, errors: TableErrors) -> None:
        self._errors = errors
        super().__init__(workspace)

    def _spreads(self) -> Vector:
        g = self.graph
        more = np.array([self._more(int(f)) for f in g.factor_position])
        sizes = np.array([self.model.cardinality(self.model.nodes[j]) for j in g.edge_node])
        return np.where(sizes > 1, super()._spreads() + more[g.edge_factor], 0.0)

    def _more(self, factor: int) -> float:
        return 2.0 * self._errors.wobble(self.model.factors[factor])

    def unit_spread(self, nodes: Collection[str], factor: int) -> float:
        """Return c of a factor when several of its nodes change together, raised."""
        return super().unit_spread(nodes, factor) + self._more(factor)


class _RaisedPropagationBound(PropagationBound):
    """Propagation for every model within the errors."""

    def __init__(self, problem: Problem, errors: TableErrors) -> None:
        super().__init__(problem)
        self._errors = errors

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the raised spread of every table in each of its nodes."""
        self._propagation = _RaisedPropagation(workspace, self._errors)

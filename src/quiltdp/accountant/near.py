"""Leakage that no model within given errors of this one exceeds.

**Theorem (models nearby).**  Let the tables of a connected model be replaced by others, the range of
ln(ψ'_f/ψ_f) at most w_f, W = Σ w_f.  For every unit T, adversary and α-DP mechanism

    Leakage'(T) ≤ Leakage(T) + 2 Φ( W, Σ_{j ∉ T} α_j ).

*Proof.*  Given x_T and what the adversary knows, the laws p' and p of the unknown nodes u are normalised
products of the tables, so ln(p'/p) is Σ ln(ψ'_f/ψ_f) up to a constant and has range at most W on their common
support.  The likelihood h(x_T, ·) of an output has ln h of range at most Σ_{j ∉ T} α_j, so by the contraction
lemma ln(E_p' h / E_p h) ≤ Φ(W, Σ α_j) at x_T, and the mirror image at x'_T.  ∎

Nothing in it depends on how Leakage(T) was bounded, so every certified bound of the model itself becomes
one of its neighbourhood.  A bound that has a widening of its own (``widened``) is taken so instead:
propagation and the chain solver are repeated with raised spreads, no sum over far tables.  Group
privacy holds for all models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quiltdp.accountant.answers import Piece
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Refining, Registered, Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.profile import LeakageProfile
from quiltdp.accountant.stages import Component, as_prepared
from quiltdp.inference.uncertain import TableErrors
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import EPS, up_array
from quiltdp.work import WorkBudget

__all__ = ["NearProfile", "useless_from"]


def useless_from(total: float) -> float:
    """Return the leakage up to which widening by W = ``total`` never beats group privacy; 0 if it may.

    Group privacy says α_T + o, o = Σ_{j ∉ T} α_j, and the widened bound at least α_T + 2 Φ(W, o), which is
    smaller only beyond o* with 2 Φ(W, o*) = o*, that is tanh²(o*/8) = 2 tanh(W/4) − 1; there both exceed o*.
    """
    square = 2.0 * math.tanh(total / 4.0) - 1.0
    if square <= 0.0:
        return 0.0
    return 8.0 * math.atanh(math.sqrt(square)) if square < 1.0 else math.inf


class NearProfile(LeakageProfile):
    """How much any α-DP mechanism leaks, whichever model within ``errors`` of this one is true.

    Every stage of the usual analysis, each bound widened; all that holds of a
    :class:`~quiltdp.accountant.profile.LeakageProfile` holds here.

    Parameters
    ----------
    model, errors
        The model, and how far its tables may be off.
    up_to
        Only leakages up to this one will be asked for: bounds that cannot help there are not prepared.
    """

    def __init__(self, model: Model, errors: TableErrors, *, up_to: float = math.inf, **options: Any) -> None:
        self.errors = errors
        self._up_to = up_to
        super().__init__(model, **options)

    def _take_apart(self) -> Iterator[Piece]:
        """Yield the usual pieces, each with a component that widens what it takes."""
        for piece in super()._take_apart():
            errors = self.errors.part(piece.found.model, piece.found.copies, self.model)
            usual = piece.component
            near = _Widened(usual.problem, usual.workspace, usual.budget, errors=errors, up_to=self._up_to)
            yield replace(piece, component=near)


@dataclass(eq=False)
class _Widened(Component):
    """A component whose bounds hold for every model within the errors."""

    errors: TableErrors | None = None
    up_to: float = math.inf

    def wants(self, entry: Registered) -> bool:
        """Return whether ``auto`` takes this bound: not where widening it gives more than group privacy."""
        assert self.errors is not None
        useless = not entry.widens and useless_from(self.errors.total(self.problem.model)) > self.up_to
        return not useless and super().wants(entry)

    def add(self, entry: Registered) -> None:
        """Prepare a bound, widened; or refuse as it does."""
        assert self.errors is not None
        bound: Bound
        if entry.widens:
            bound = entry.widened(self.problem, self.errors)
        else:
            bound = _Shifted(entry.make(self.problem), self.problem, self.errors)
        bound.prepare(self.workspace, self.budget)
        entry = as_prepared(entry, bound.inner if isinstance(bound, _Shifted) else bound)
        says = f"{entry.says}, widened to every model where {self.errors.says}"
        kind = "certified bound" if entry.kind == "exact" else entry.kind
        self.note(replace(entry, kind=kind, says=says), bound)


class _Shifted:
    """A bound of the model itself, raised by 2 Φ(W, Σ_{j ∉ T} α_j)."""

    def __init__(self, inner: Bound, problem: Problem, errors: TableErrors) -> None:
        self.inner = inner
        self._total = errors.total(problem.model)
        self._count = problem.count
        self._sets = _positions(problem)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Prepare the bound of the model itself."""
        self.inner.prepare(workspace, budget)

    def _shift(self, alpha: Vector) -> Vector:
        whole = float(alpha.sum())
        own = np.zeros(self._count)  # a run of steps is counted among the others: looser, never wrong
        for position, unit in self._sets:
            np.add.at(own, unit, alpha[position])
        others = np.maximum(whole - own, 0.0) + whole * ((len(alpha) + 8) * EPS)
        if np.isinf(self._total):  # zeros may come or go: nothing of the model's own bound is left
            return np.full(len(own), np.inf)
        return up_array(2.0 * phi(self._total, others))

    def _raised(self, found: Bounds, shift: Vector) -> Bounds:
        kind = "certified bound" if found.kind == "exact" else found.kind
        return replace(found, values=up_array(found.values + shift), kind=kind)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the raised bound of every unit."""
        return self._raised(self.inner.evaluate(alpha), self._shift(alpha))

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Refine the model's own bound as far as the raised one needs it.

        ``known`` holds for all models nearby, so for the model itself too.
        """
        shift = self._shift(alpha)
        if not isinstance(self.inner, Refining):
            return self._raised(self.inner.evaluate(alpha), shift)
        least, most = float(shift.min(initial=0.0)), float(shift.max(initial=0.0))
        found = self.inner.refine(alpha, known, max(low - most, 0.0), max(high - least, 0.0))
        return self._raised(found, shift)


def _positions(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the positions of the units' records and the units they belong to; none for runs of steps."""
    if problem.window > 1:
        return []
    index, units = problem.model.index, problem.listed()
    place = np.array([index[n] for unit in units for n in unit], dtype=np.intp)
    unit = np.repeat(np.arange(len(units), dtype=np.intp), [len(u) for u in units])
    return [(place, unit)]

"""What if the model is wrong: the noise that is enough for every model that may be the true one.

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quiltdp.accountant.bounds.contract import ALL, Bound, Bounds, Need, Problem, Registered, Vector
from quiltdp.accountant.bounds.contraction import phi
from quiltdp.accountant.calibration import Calibration, calibrate, calibrate_profile
from quiltdp.accountant.component import Component
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.units import SMALLEST_TARGET, positive_epsilon, without_partial_answer
from quiltdp.errors import InvalidArgument
from quiltdp.graph.components import ComponentClass
from quiltdp.inference.uncertain import TableErrors, interval_errors, relative_errors
from quiltdp.inference.workspace import Workspace
from quiltdp.interface import as_model
from quiltdp.mechanisms import Mechanism, check_mechanism
from quiltdp.model import Model
from quiltdp.numbers import EPS, format_up, up_array
from quiltdp.work import WorkBudget


@without_partial_answer()
def robust(
    models: Model | Sequence[Model],
    epsilon: float,
    mechanism: Mechanism,
    *,
    off_by: float | Mapping[str, float] | None = None,
    intervals: Any = None,
    **options: Any,
) -> Calibration:
    """Return the smallest noise scale certified for every model that may be the true one.

    Parameters
    ----------
    models
        One model, or a family of them (several estimates, several experts): the noise is enough
        whichever member is true.
    epsilon, mechanism
        As for :func:`quiltdp.calibrate`.
    off_by
        How far the tables of each model may be off, as a share: with 0.05 every probability p may be
        anything from p/1.05 to 1.05 p, zeros stay zeros.  A mapping names the tables that may be wrong.
    intervals
        Instead: node → (lower, upper), tables between which the true one lies; for a homogeneous chain
        one pair of matrices.
    **options
        Those of :func:`quiltdp.calibrate`: ``adversary``, ``method``, ``protect``, ``window``, ``work``, …

    Returns
    -------
    Calibration
        The one of the worst member; its notes say for which models it holds.

    Assumes
    -------
    The truth is a member of the family, or lies within the errors of one, with the same dependencies:
    which records depend on which is not in question.

    Raises
    ------
    InvalidArgument
        For errors with Gaussian noise (the theorem is about pure α), an empty family, or bad intervals.

    Examples
    --------
    >>> import quiltdp as qd
    >>> fair, sticky = (qd.markov_chain([[s, 1 - s], [1 - s, s]], length=1000) for s in (0.8, 0.9))
    >>> noise = qd.Laplace(sensitivity=1.0)
    >>> round(qd.robust([fair, sticky], 1.0, noise).sigma, 3)  # whichever of the two is true
    8.653
    >>> round(qd.robust(sticky, 1.0, noise, off_by=0.02).sigma, 3)  # or anything near the second
    9.268
    """
    family = [as_model(m) for m in (models if isinstance(models, (list, tuple)) else [models])]
    if not family:
        raise InvalidArgument("robust: give a model or a family of models")
    target = positive_epsilon(epsilon, "epsilon", least=SMALLEST_TARGET)
    check_mechanism(mechanism)
    if off_by is not None and intervals is not None:
        raise InvalidArgument("give off_by or intervals, not both")
    found = [
        _calibrate_one(m, _make_errors(m, off_by, intervals), target, mechanism, options) for m in family
    ]
    worst = max(range(len(found)), key=lambda k: (found[k].sigma, -k))
    said = list(found[worst].notes)
    if len(family) > 1:
        names = ", ".join(f"{format_up(c.sigma)}" for c in found)
        said.append(f"enough for each of {len(family)} models, whose own noise is {names}")
    return replace(found[worst], notes=tuple(said))


def _make_errors(model: Model, off_by: Any, intervals: Any) -> TableErrors | None:
    if intervals is not None:
        return interval_errors(model, intervals)
    return None if off_by is None else relative_errors(model, off_by)


def _calibrate_one(
    model: Model, errors: TableErrors | None, epsilon: float, mechanism: Mechanism, options: Mapping[str, Any]
) -> Calibration:
    if errors is None:
        return calibrate(model, epsilon, mechanism, **options)
    if not mechanism.pure:
        raise InvalidArgument(
            f"off_by and intervals are proved for pure mechanisms, not for {mechanism.kind} noise;"
            " give a family of models"
        )
    own = dict(options)
    compare = bool(own.pop("compare", False))
    profile = RobustProfile(model, errors, up_to=epsilon, **own)
    found = calibrate_profile(profile, epsilon, mechanism, compare=compare)
    return replace(found, notes=(*found.notes, f"holds if {errors.says}"), origin=None)


# -- models nearby ----------------------------------------------------------------------------


def useless_below(total: float) -> float:
    """Return the leakage up to which widening by W = ``total`` never beats group privacy; 0 if it may.

    Group privacy says α_T + o, o = Σ_{j ∉ T} α_j, and the widened bound at least α_T + 2 Φ(W, o), which is
    smaller only beyond o* with 2 Φ(W, o*) = o*, that is tanh²(o*/8) = 2 tanh(W/4) − 1; there both exceed o*.
    """
    square = 2.0 * math.tanh(total / 4.0) - 1.0
    if square <= 0.0:
        return 0.0
    return 8.0 * math.atanh(math.sqrt(square)) if square < 1.0 else math.inf


class RobustProfile(LeakageProfile):
    """How much any α-DP mechanism leaks, whichever model within ``errors`` of this one is true.

    Every stage of the usual analysis, each bound widened; all that holds of a
    :class:`~quiltdp.accountant.leakage.LeakageProfile` holds here.

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

    def _make_component(self, problem: Problem, kind: ComponentClass, workspace: Workspace) -> Component:
        """Return a component that widens the bounds it takes."""
        errors = self.errors.part(kind.model, kind.copies, self.model)
        return _WidenedComponent(problem, workspace, self.budget, errors, self._up_to)


class _WidenedComponent(Component):
    """A component whose bounds hold for every model within the errors."""

    def __init__(
        self, problem: Problem, workspace: Workspace, budget: WorkBudget, errors: TableErrors, up_to: float
    ) -> None:
        super().__init__(problem, workspace, budget)
        self.errors, self._up_to = errors, up_to

    def auto_takes(self, name: str) -> bool:
        """Return whether ``auto`` takes this bound: not where widening it gives more than group privacy."""
        if not super().auto_takes(name) or super().find_entry(name).widens:
            return super().auto_takes(name)
        return useless_below(self.errors.total(self.problem.model)) <= self._up_to

    def find_entry(self, name: str) -> Registered:
        """Return what is known of a bound, with what it holds for."""
        usual = super().find_entry(name)
        kind = "certified bound" if usual.kind == "exact" else usual.kind
        return replace(
            usual, kind=kind, says=f"{usual.says}, widened to every model where {self.errors.says}"
        )

    def make_bound(self, name: str) -> Bound:
        """Return a bound, widened, that is not prepared."""
        entry = super().find_entry(name)
        if entry.widens:
            return entry.widened(self.problem, self.errors)
        return _ShiftedBound(entry.make(self.problem), self.problem, self.errors)


class _ShiftedBound:
    """A bound of the model itself, raised by 2 Φ(W, Σ_{j ∉ T} α_j)."""

    def __init__(self, inner: Bound, problem: Problem, errors: TableErrors) -> None:
        self.inner = inner
        self._total = errors.total(problem.model)
        self._count = problem.count
        # a run of steps is counted among the others: looser, never wrong
        units = () if problem.window > 1 else problem.listed()
        self._places = np.array([problem.model.index[n] for unit in units for n in unit], dtype=np.intp)
        self._unit = np.array([k for k, unit in enumerate(units) for _ in unit], dtype=np.intp)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Prepare the bound of the model itself."""
        self.inner.prepare(workspace, budget)
        self.near, self.settles = getattr(self.inner, "near", 0.0), getattr(self.inner, "settles", True)

    def _contraction_shift(self, alpha: Vector) -> Vector:
        whole = float(alpha.sum())
        own = np.zeros(self._count)
        np.add.at(own, self._unit, alpha[self._places])
        others = np.maximum(whole - own, 0.0) + whole * ((len(alpha) + 8) * EPS)
        if np.isinf(self._total):  # zeros may come or go: nothing of the model's own bound is left
            return np.full(len(own), np.inf)
        return up_array(2.0 * phi(self._total, others))

    def _raise_bounds(self, found: Bounds, shift: Vector) -> Bounds:
        kind = "certified bound" if found.kind == "exact" else found.kind
        return replace(found, values=up_array(found.values + shift), kind=kind)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the model's own bound, raised, as far as that is needed.

        What is known holds for all models nearby, so for the model itself too.
        """
        shift = self._contraction_shift(alpha)
        least, most = float(shift.min(initial=0.0)), float(shift.max(initial=0.0))
        inner = replace(need, low=max(need.low - most, 0.0), high=max(need.high - least, 0.0))
        return self._raise_bounds(self.inner.evaluate(alpha, inner), shift)

"""Approximate Bayesian DP of a whole model: δ at a given ε, and the noise scale to match."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.bounds import Problem, Vector
from quiltdp.accountant.delta_bounds import ApproximateBound, RegisteredDelta, delta_bounds_for
from quiltdp.accountant.delta_search import TOLERANCE, in_stages
from quiltdp.accountant.delta_weighed import Deltas, WeighedPiece, WeighedProfile
from quiltdp.accountant.mechanisms import GroupProfile, Mechanism
from quiltdp.accountant.pieces import assign_units
from quiltdp.accountant.result import Binding, Certificate, Leakage, PerUnit
from quiltdp.accountant.units import (
    Protect,
    Units,
    alpha_vector,
    checked_bytes,
    heaviest,
    make_units,
    positive_epsilon,
)
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.graph.components import component_classes
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import digits_up, shown_up
from quiltdp.work import NO_GUARD, Guard, GuardStruck, WorkBudget

__all__ = ["ApproximateCalibration", "DeltaProfile", "approximate_leakage", "left_out", "smallest_scale"]

_SMALLEST_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class _Piece:
    """One class of components, its bounds, and where its units stand in the whole model."""

    copies: tuple[np.ndarray, ...]
    places: tuple[tuple[np.ndarray, np.ndarray], ...]
    count: int
    bounds: tuple[tuple[RegisteredDelta, ApproximateBound], ...]


class DeltaProfile:
    """δ_BDP(ε) of any mechanism with a group-privacy profile, for every unit of a model.

    Parameters
    ----------
    model, adversary, protect, window, work, time_limit, memory_limit
        As for :func:`quiltdp.leakage`; a protected set must lie in one connected component.
    method
        ``auto`` (the smallest of all bounds that fit), or ``group``, ``swing``, ``paired``.
    without
        Bounds that are left out, by name: what a limit of time took from an answer that is to be repeated.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.delta import DeltaProfile
    >>> from quiltdp.accountant.mechanisms import GaussianProfile
    >>> m = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=1000)
    >>> delta = DeltaProfile(m).delta(GaussianProfile(8.0), epsilon=1.0)
    >>> 0 < delta < 1e-6
    True
    """

    def __init__(
        self,
        model: Model,
        *,
        adversary: Adversary | str = "informed",
        method: str = "auto",
        protect: Protect = None,
        window: int = 1,
        work: WorkBudget | str = "normal",
        time_limit: float = 30.0,
        memory_limit: float | None = None,
        without: Collection[str] = (),
    ) -> None:
        limits = (positive_epsilon(time_limit, "time_limit"), checked_bytes(memory_limit))
        self.model = model
        self.adversary = adversary_from(adversary)
        self.units: Units = make_units(model, protect, window)
        self.budget = WorkBudget.named(work)
        self.notes: tuple[str, ...] = ()
        self._method = method
        self._left_out = frozenset(without)
        self._limit = Guard(*limits)
        self._workspace = Workspace(model, guard=Guard(*limits))
        chosen = self._chosen(method)
        classes = component_classes(model)
        local, places = assign_units(model, self.units, classes)
        _check_one_component(self.units, places)
        self._pieces = []
        for k, (found, units, where) in enumerate(zip(classes, local, places, strict=True)):
            if any(len(g) for _, g in where):
                problem = Problem(found.model, units, self.adversary, self.units.window)
                space = self._workspace.part(k, found.model)
                bounds = self._prepared(problem, space, chosen)
                self._pieces.append(_Piece(found.copies, where, problem.count, bounds))

    def _chosen(self, method: str) -> tuple[RegisteredDelta, ...]:
        known = delta_bounds_for(self.adversary)
        if method == "auto":
            return tuple(known.values())
        if method not in known or known[method].method != method:
            names = ", ".join(n for n, f in known.items() if f.method == n)
            raise InvalidArgument(
                f"{option('method')} for (ε, δ) must be 'auto' or one of {names}, not {method!r}"
            )
        return tuple(f for f in known.values() if f.method in ("group", method))

    def _prepared(
        self, problem: Problem, space: Workspace, chosen: tuple[RegisteredDelta, ...]
    ) -> tuple[tuple[RegisteredDelta, ApproximateBound], ...]:
        """Prepare the bounds that fit; a limit of time ends the list, for every component."""
        bounds = []
        for k, entry in enumerate(chosen):
            if entry.name in self._left_out:
                continue
            try:
                bound = entry.make(problem)
                bound.prepare(space, self.budget)
            except (InvalidArgument, ModelTooWide):
                continue
            except GuardStruck as struck:
                self._note(f"{struck} before {entry.name} was ready: it was left out")
                self._left_out = self._left_out.union(later.name for later in chosen[k:])
                break
            bounds.append((entry, bound))
        return tuple(bounds)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes = (*self.notes, text)

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Take the limit of time away for what has been asked before and is asked once more."""
        left = self._workspace.guard.left()
        self._workspace.guard.restart(NO_GUARD)
        yield
        self._workspace.guard.restart(Guard(*left))

    def weigh(self, weights: Vector | None = None) -> WeighedProfile:
        """Return the profile for given sensitivities per node, 1 for every record by default."""
        self._workspace.guard.restart(self._limit)  # every question has its own limit
        dropped = set(self._left_out)
        w = alpha_vector(self.model, 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
        parts, known = [], {}
        for p, piece in enumerate(self._pieces):
            for copy, (inside, outside) in zip(piece.copies, piece.places, strict=True):
                own = w[copy]
                key = (p, own.tobytes())
                if key not in known:
                    whole = bool((own == np.floor(own)).all())
                    known[key] = WeighedPiece.of([(e, b.weigh(own)) for e, b in piece.bounds], dropped, whole)
                parts.append((known[key], inside, outside))
        names = tuple(delta_bounds_for(self.adversary))
        return WeighedProfile(names, len(self.units), tuple(parts), dropped)

    def deltas(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> Vector:
        """Return δ of every unit; ``weights`` are sensitivities per node, 1 for records by default."""
        return self.weigh(weights).evaluate(profile, epsilon).values

    def delta(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> float:
        """Return the largest δ over all units; ε may be negative."""
        return self.weigh(weights).largest(profile, epsilon)

    def largest_group(self, weights: Vector) -> float:
        """Return the largest sum of sensitivities of a component."""
        return max((float(weights[c].sum()) for p in self._pieces for c in p.copies), default=0.0)


def _check_one_component(units: Units, places: Any) -> None:
    """Refuse a protected set that reaches into several components."""
    seen = np.zeros(len(units), dtype=np.intp)
    for where in places:
        for _, outside in where:
            seen[outside] += 1
    if (seen > 1).any():
        raise InvalidArgument(
            f"{option('protect')}: set {units.names[int(np.argmax(seen))]!r} reaches into several independent"
            " components; approximate DP protects each part as a set of its own"
        )


@dataclass(frozen=True)
class ApproximateCalibration:
    """The smallest noise scale found, the δ it was certified for, and why."""

    scale: float
    delta: float
    binding: Binding
    certificate: Certificate
    protected: str
    compared: Mapping[str, float]
    notes: tuple[str, ...]


def smallest_scale(
    model: Model, epsilon: float, mechanism: Mechanism, **options: Any
) -> ApproximateCalibration:
    """Return the smallest noise scale with certified δ_BDP(ε) ≤ δ; it was itself checked.

    ``options`` are those of :class:`DeltaProfile`.  The way back, :func:`approximate_leakage` at that
    scale, was walked too and says at most ε.
    """
    bounds = DeltaProfile(model, **options)
    weights = alpha_vector(model, mechanism.deltas, "sensitivity")
    weighed = bounds.weigh(weights)

    def worst(scale: float, costly: bool) -> float:
        return weighed.largest(mechanism.group_profile(scale), epsilon, costly=costly)

    heavy = heaviest(bounds.units, model, weights)
    alone = mechanism.group(heavy).scale(epsilon) if heavy > 0.0 else 0.0
    start = alone if alone > 0.0 else mechanism.scale(epsilon) * 2.0**-20
    scale = digits_up(in_stages(worst, weighed, mechanism.target_delta, start, mechanism.scale_name))
    used = frozenset(weighed.dropped)
    found = _once_more(bounds, weighed, used, mechanism.group_profile(scale), epsilon)
    for k in range(40):
        passes = found.largest <= mechanism.target_delta
        back = _smallest_epsilon(weighed, mechanism, scale, heavy) if passes else math.inf
        if passes and (back <= epsilon or weighed.dropped != used):  # a limit leaves what was certified
            break
        scale = digits_up(scale * (1.0 + TOLERANCE * 2.0**k))
        found = _once_more(bounds, weighed, used, mechanism.group_profile(scale), epsilon)
    if used - bounds._left_out:
        bounds._note(f"a limit was reached: without {', '.join(sorted(used))}")
    whole = max(bounds.largest_group(weights), mechanism.max_sensitivity)
    compared = {"independent": alone} if alone > 0.0 else {}
    return ApproximateCalibration(
        scale,
        found.largest,
        _binding(bounds, found, epsilon),
        _certificate(bounds, found, epsilon, used),
        bounds.units.kind,
        {**compared, "group": mechanism.group(whole).scale(epsilon)},
        bounds.notes,
    )


def _binding(bounds: DeltaProfile, found: Deltas, epsilon: float) -> Binding:
    k = found.worst
    name = found.names[int(found.given[k])]
    return Binding(str(bounds.units.names[k]), epsilon, name)


def _once_more(
    bounds: DeltaProfile,
    weighed: WeighedProfile,
    used: frozenset[str],
    profile: GroupProfile,
    epsilon: float,
) -> Deltas:
    """Return what the bounds that a search ended with say, without a limit of time: each has answered."""
    weighed.dropped.clear()
    weighed.dropped.update(used)
    with bounds.unlimited():
        return weighed.evaluate(profile, epsilon)


_ALL, _BUT = "all bounds", "all bounds but "


def _certificate(
    bounds: DeltaProfile, found: Deltas, epsilon: float, without: Collection[str]
) -> Certificate:
    says = delta_bounds_for(bounds.adversary)[found.names[int(found.given[found.worst])]].says
    statement = f"δ ≤ {shown_up(found.largest, 3)} at ε = {epsilon:g}: {says}; rounded up"
    stage = _BUT + ", ".join(sorted(without)) if without else _ALL
    return Certificate("certified bound", statement, bounds.budget.to_dict(), stage, bounds._method)


def left_out(stage: str) -> tuple[str, ...]:
    """Return the bounds that an answer did without, from the stage in its certificate."""
    return tuple(stage.removeprefix(_BUT).split(", ")) if stage.startswith(_BUT) else ()


def _smallest_epsilon(weighed: WeighedProfile, mechanism: Mechanism, scale: float, heavy: float) -> float:
    """Return the smallest ε found with certified δ(ε) ≤ δ; ``heavy`` is the weight of the heaviest unit."""
    profile = mechanism.group_profile(scale)
    start = _SMALLEST_EPSILON
    while heavy > 0.0 and profile.delta(2.0 * start, heavy) > mechanism.target_delta:
        start *= 2.0

    def worst(epsilon: float, costly: bool) -> float:
        return weighed.largest(profile, epsilon, costly=costly)

    return digits_up(in_stages(worst, weighed, mechanism.target_delta, start, "ε"))


def approximate_leakage(
    model: Model, mechanism: Mechanism, scale: float, *, known: float = math.inf, **options: Any
) -> Leakage:
    """Return the smallest ε found with certified δ_BDP(ε) ≤ δ for noise of this scale.

    ``known`` is an ε that is looked at first: if it passes, the answer is no larger.  ``options`` are those
    of :class:`DeltaProfile`.
    """
    started = time.monotonic()
    positive_epsilon(scale, "scale")
    bounds = DeltaProfile(model, **options)
    weights = alpha_vector(model, mechanism.deltas, "sensitivity")
    weighed = bounds.weigh(weights)
    profile = mechanism.group_profile(scale)
    passes = known < math.inf and weighed.largest(profile, known) <= mechanism.target_delta
    used = frozenset(weighed.dropped)
    epsilon = _smallest_epsilon(weighed, mechanism, scale, heaviest(bounds.units, model, weights))
    if passes and known < epsilon:
        epsilon = known
    else:
        used = frozenset(weighed.dropped)
    found = _once_more(bounds, weighed, used, profile, epsilon)
    if used - bounds._left_out:
        bounds._note(f"a limit was reached: without {', '.join(sorted(used))}")
    binding = _binding(bounds, found, epsilon)
    return Leakage(
        epsilon=epsilon,
        dp_epsilon=math.inf,
        per_record=PerUnit(bounds.units.names, np.full(len(found.values), epsilon)),
        binding=binding,
        method=binding.method,
        certificate=_certificate(bounds, found, epsilon, used),
        adversary=bounds.adversary.name,
        fingerprint=model.fingerprint,
        seconds=time.monotonic() - started,
        notes=("approximate DP: the same ε for every unit, at the stated δ", *bounds.notes),
        protected=bounds.units.kind,
    )

"""Approximate Bayesian DP of a whole model: δ at a given ε, and the noise scale to match.

Work is done in stages, one bound each, in the order of :data:`~quiltdp.accountant.delta_bounds.APPROXIMATE`.
A limit that is reached inside a bound takes it and all later ones away, so that a partial answer is that of
a stage and the ones before it, and ``work="normal:paired"`` gives it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.bounds import Problem, Vector
from quiltdp.accountant.delta_bounds import RegisteredDelta, delta_bounds_for
from quiltdp.accountant.delta_pieces import DeltaPiece, evaluate_elsewhere
from quiltdp.accountant.delta_search import TOLERANCE, smallest_passing
from quiltdp.accountant.delta_weighed import BoundStruck, Deltas, WeighedPiece, WeighedProfile
from quiltdp.accountant.known_records import check_known, known_in
from quiltdp.accountant.pieces import assign_units
from quiltdp.accountant.result import Binding, Certificate, Leakage, PerUnit
from quiltdp.accountant.units import (
    Protect,
    Units,
    alphas,
    guard_of,
    heaviest,
    make_units,
    positive_epsilon,
)
from quiltdp.errors import InvalidArgument, LimitReached, option
from quiltdp.graph.components import component_classes
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile, Mechanism
from quiltdp.model import Model
from quiltdp.numbers import digits_up, shown_up
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["ApproximateCalibration", "DeltaProfile", "approximate_leakage", "smallest_scale"]

_SMALLEST_EPSILON = 1e-6
_Answer = TypeVar("_Answer")


class DeltaProfile:
    """δ_BDP(ε) of any mechanism with a group-privacy profile, for every unit of a model.

    Parameters
    ----------
    model, adversary, protect, window, work, time_limit, memory_limit, progress, executor
        As for :func:`quiltdp.leakage`; a protected set must lie in one connected component.  The stages that
        ``work`` may end with are ``group``, ``paired``, ``paired-prior``, ``paired-tree`` and
        ``carried``, in this order, as far as they hold against the adversary.
    method
        ``auto`` (the smallest of all bounds that fit), or ``group``, ``paired``, ``carried``.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.delta import DeltaProfile
    >>> from quiltdp.mechanisms import GaussianProfile
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
        time_limit: Limit = None,
        memory_limit: float | None = None,
        progress: Callable[[str, float], None] | None = None,
        executor: Executor | None = None,
    ) -> None:
        guard = guard_of(time_limit, memory_limit)
        self.model = model
        self.adversary = check_known(adversary_from(adversary), model)
        self.units: Units = make_units(model, protect, window)
        self.budget = WorkBudget.named(work)
        self.reached = ""
        """Where a limit was reached: which one, and whose answer there is; else empty."""
        self.stage = ""
        """The last bound of the last answer."""
        self._method = method
        self._progress, self._executor = progress, _checked(executor)
        self._workspace, self._shares_guard = Workspace(model, guard=guard), guard is time_limit
        classes = component_classes(model)
        local, places = assign_units(model, self.units, classes)
        _check_one_component(self.units, places)
        self._pieces = []
        for k, (found, units, where) in enumerate(zip(classes, local, places, strict=True)):
            if any(len(g) for _, g in where):
                facing = known_in(self.adversary, found, model)
                problem = Problem(found.model, units, facing, self.units.window)
                space = self._workspace.part(k, found.model)
                copies = tuple(np.asarray(copy) for copy in found.copies)
                inside_outside = tuple((np.asarray(i), np.asarray(o)) for i, o in where)
                self._pieces.append(DeltaPiece(copies, inside_outside, problem, space))
        facing_all = dict.fromkeys([self.adversary, *(p.problem.adversary for p in self._pieces)])
        self._known = delta_bounds_for(*facing_all)
        self._chosen = self._up_to(self._by_method(method))

    def _by_method(self, method: str) -> tuple[RegisteredDelta, ...]:
        """Return the bounds that a method means."""
        known = self._known
        if method == "auto":
            return tuple(known.values())
        if method not in known or known[method].method != method:
            names = ", ".join(n for n, f in known.items() if f.method == n)
            raise InvalidArgument(
                f"{option('method')} for (ε, δ) must be 'auto' or one of {names}, not {method!r}"
            )
        return tuple(f for f in known.values() if f.method in ("group", method))

    def _up_to(self, entries: tuple[RegisteredDelta, ...]) -> tuple[RegisteredDelta, ...]:
        """Return the bounds up to the stage that the work budget ends with."""
        last, names = self.budget.until, [f.name for f in entries]
        if last and last not in names:
            raise InvalidArgument(
                f"{option('work')}: {last!r} is not a stage for (ε, δ); stages are {', '.join(names)}"
            )
        return entries[: names.index(last) + 1] if last else entries

    # -- stages ----------------------------------------------------------------------------

    def ask(
        self,
        weights: Vector | None,
        question: Callable[[WeighedProfile, _Answer | None], _Answer],
        *,
        at_once: bool = False,
    ) -> _Answer:
        """Answer a question by the quick bounds, then by all; at a limit, by what was finished.

        Parameters
        ----------
        weights
            Sensitivities per node, 1 for records by default.
        question
            Gets the bounds for these sensitivities, and the answer of the quick ones.
        at_once
            Ask all bounds together: for questions that take one look.
        """
        everything = self._chosen
        quick = tuple(f for f in everything if not f.costly)  # the first of them, by their order
        found: _Answer | None = None
        last: tuple[RegisteredDelta, ...] = ()
        stopped: BoundStruck | None = None
        for stages in (everything,) if at_once else (quick, everything):
            entries = stages
            while stopped is None or len(entries) > len(last):
                try:
                    weighed = self.weigh(weights, entries)
                    if found is None or weighed.costly:
                        found, last = question(weighed, found), entries
                    break
                except BoundStruck as struck:
                    stopped = struck
                    entries = entries[: [f.name for f in entries].index(struck.bound)]
            if stopped is not None:
                break
        assert found is not None, "group privacy answers, whatever the limits"
        prepared = [f.name for f in last if any(p.tried[f.name] is not None for p in self._pieces)]
        self.stage = prepared[-1]
        self.reached = "" if stopped is None else self.budget.stopped(stopped, prepared)
        return found

    def whole(self, found: _Answer) -> _Answer:
        """Return an answer; where a limit was reached, raise :class:`LimitReached` with it."""
        if self.reached:
            raise LimitReached(self.reached, found)
        return found

    def weigh(
        self, weights: Vector | None = None, entries: tuple[RegisteredDelta, ...] = ()
    ) -> WeighedProfile:
        """Return some bounds (all by default), prepared, for sensitivities per node (1 for records).

        Raises
        ------
        BoundStruck
            If a limit was reached.
        """
        given = alphas(self.model, 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
        entries = entries or self._chosen
        parts: list[tuple[WeighedPiece, np.ndarray, np.ndarray]] = []
        known: dict[tuple[int, bytes], tuple[DeltaPiece, Vector, WeighedPiece]] = {}
        for k, entry in enumerate(entries):
            if self._progress is not None:
                self._progress(f"(ε, δ) by {entry.name}", 0.1 * (k + 1))
            for piece in self._pieces:
                piece.prepare(entry, self.budget)
        for p, piece in enumerate(self._pieces):
            for copy, (inside, outside) in zip(piece.copies, piece.places, strict=True):
                own = given[copy]
                key = (p, own.tobytes())
                if key not in known:
                    known[key] = (piece, own, piece.weigh(own, entries))
                parts.append((known[key][2], inside, outside))
        elsewhere = None
        if self._executor is not None and len(known) > 1:  # one piece is asked here: nothing is gained
            elsewhere = evaluate_elsewhere(list(known.values()), self.budget, self._executor)
        return WeighedProfile(tuple(self._known), len(self.units), tuple(parts), elsewhere)

    # -- questions -------------------------------------------------------------------------

    def deltas(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> Vector:
        """Return δ of every unit; ``weights`` are sensitivities per node, 1 for records by default."""
        self._begin()
        found = self.ask(weights, lambda weighed, _: weighed.evaluate(profile, epsilon), at_once=True)
        return self.whole(found.values)

    def delta(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> float:
        """Return the largest δ over all units; ε may be negative."""
        self._begin()
        return self.whole(
            self.ask(weights, lambda weighed, _: weighed.largest(profile, epsilon), at_once=True)
        )

    def _begin(self) -> None:
        """Give every question a limit of its own."""
        if not self._shares_guard:
            self._workspace.guard.restart()

    def largest_group(self, weights: Vector) -> float:
        """Return the largest sum of sensitivities of a component."""
        return max((float(weights[c].sum()) for p in self._pieces for c in p.copies), default=0.0)

    def certificate(self, found: Deltas, epsilon: float) -> Certificate:
        """Return how the last answer was obtained."""
        says = self._known[found.names[int(found.given[found.worst])]].says
        statement = f"δ ≤ {shown_up(found.largest, 3)} at ε = {epsilon:g}: {says}; rounded up"
        return Certificate("certified bound", statement, self.budget.to_dict(), self.stage, self._method)


def _checked(executor: Executor | None) -> Executor | None:
    if executor is not None:
        from quiltdp.parallel import checked_executor

        checked_executor(executor)
    return executor


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
    reached: str = ""
    """Which limit was reached, if one was."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know."""
        return (self.reached,) if self.reached else ()


def smallest_scale(
    model: Model, epsilon: float, mechanism: Mechanism, **options: Any
) -> ApproximateCalibration:
    """Return the smallest noise scale with certified δ_BDP(ε) ≤ δ; it was itself checked.

    ``options`` are those of :class:`DeltaProfile`.  The way back, :func:`approximate_leakage` at that
    scale, was walked too and says at most ε.
    """
    bounds = DeltaProfile(model, **options)
    weights = alphas(model, mechanism.deltas, "sensitivity")
    heavy = heaviest(bounds.units, model, weights)
    alone = mechanism.group(heavy).scale(epsilon) if heavy > 0.0 else 0.0
    start = alone if alone > 0.0 else mechanism.scale(epsilon) * 2.0**-20

    def search(weighed: WeighedProfile, before: _Found | None) -> _Found:
        def worst(scale: float, costly: bool) -> float:
            return weighed.largest(mechanism.group_profile(scale), epsilon, costly=costly)

        first = smallest_passing(
            worst,
            mechanism.target_delta,
            start,
            mechanism.scale_name,
            costly=weighed.costly,
            known=None if before is None else before.first,
        )
        scale = digits_up(first)
        found = weighed.evaluate(mechanism.group_profile(scale), epsilon)
        for k in range(40):
            if (
                found.largest <= mechanism.target_delta
                and digits_up(_smallest_epsilon(weighed, mechanism, scale, heavy)) <= epsilon
            ):
                break
            scale = digits_up(scale * (1.0 + TOLERANCE * 2.0**k))
            found = weighed.evaluate(mechanism.group_profile(scale), epsilon)
        return _Found(first, scale, found)

    answer = bounds.ask(weights, search)
    whole = max(bounds.largest_group(weights), mechanism.max_sensitivity)
    compared = {"independent": alone} if alone > 0.0 else {}
    return ApproximateCalibration(
        answer.number,
        answer.deltas.largest,
        _binding(bounds, answer.deltas, epsilon),
        bounds.certificate(answer.deltas, epsilon),
        bounds.units.kind,
        {**compared, "group": mechanism.group(whole).scale(epsilon)},
        bounds.reached,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """What the bounds found first, the noise scale or ε that was made of it, and its δ's."""

    first: float
    number: float
    deltas: Deltas


def _binding(bounds: DeltaProfile, found: Deltas, epsilon: float) -> Binding:
    k = found.worst
    name = found.names[int(found.given[k])]
    return Binding(str(bounds.units.names[k]), epsilon, name)


def _smallest_epsilon(
    weighed: WeighedProfile, mechanism: Mechanism, scale: float, heavy: float, known: float | None = None
) -> float:
    """Return the smallest ε found with certified δ(ε) ≤ δ.

    ``heavy`` is the weight of the heaviest unit, ``known`` what the quick bounds found before.
    """
    profile = mechanism.group_profile(scale)
    start = _SMALLEST_EPSILON
    while heavy > 0.0 and profile.delta(2.0 * start, heavy) > mechanism.target_delta:
        start *= 2.0

    def worst(epsilon: float, costly: bool) -> float:
        return weighed.largest(profile, epsilon, costly=costly)

    return smallest_passing(worst, mechanism.target_delta, start, "ε", costly=weighed.costly, known=known)


def approximate_leakage(
    model: Model,
    mechanism: Mechanism,
    scale: float,
    *,
    known: float = math.inf,
    **options: Any,
) -> Leakage:
    """Return the smallest ε found with certified δ_BDP(ε) ≤ δ for noise of this scale.

    ``known`` is an ε that is looked at too: if it passes, the answer is no larger.  ``options`` are those
    of :class:`DeltaProfile`.
    """
    positive_epsilon(scale, "scale")
    bounds = DeltaProfile(model, **options)
    weights = alphas(model, mechanism.deltas, "sensitivity")
    heavy = heaviest(bounds.units, model, weights)
    profile = mechanism.group_profile(scale)

    def search(weighed: WeighedProfile, before: _Found | None) -> _Found:
        quick = None if before is None else before.first
        first = _smallest_epsilon(weighed, mechanism, scale, heavy, quick)
        epsilon = digits_up(first)
        if known < epsilon and weighed.largest(profile, known) <= mechanism.target_delta:
            epsilon = known
        return _Found(first, epsilon, weighed.evaluate(profile, epsilon))

    answer = bounds.ask(weights, search)
    binding = _binding(bounds, answer.deltas, answer.number)
    found = Leakage(
        epsilon=answer.number,
        dp_epsilon=math.inf,
        per_record=PerUnit(bounds.units.names, np.full(len(answer.deltas.values), answer.number)),
        binding=binding,
        method=binding.method,
        certificate=bounds.certificate(answer.deltas, answer.number),
        adversary=bounds.adversary.name,
        fingerprint=model.fingerprint,
        notes=(
            *((bounds.reached,) if bounds.reached else ()),
            "approximate DP: the same ε for every unit, at the stated δ",
        ),
        protected=bounds.units.kind,
    )
    return bounds.whole(found)

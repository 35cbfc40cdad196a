"""The leakage of a model as a function of α: heavy work once, any α afterwards.

:func:`leakage` answers for one α, :func:`dp_epsilon` for the inverse, and :func:`analyze` returns the
:class:`LeakageProfile` behind both, for repeated use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.answers import TOLERANCE, Answers, Leakages, Piece, certificate
from quiltdp.accountant.bounds import Problem, Registered, Vector
from quiltdp.accountant.known_records import check_known, known_in
from quiltdp.accountant.leakage import AUTOMATIC
from quiltdp.accountant.methods import candidates, find_method, method_names
from quiltdp.accountant.pieces import assign_units
from quiltdp.accountant.result import Leakage, PerUnit
from quiltdp.accountant.stages import Component
from quiltdp.accountant.units import (
    SMALLEST_TARGET,
    DpEpsilon,
    Protect,
    alphas,
    guard_of,
    make_units,
    positive_epsilon,
)
from quiltdp.edges import edge
from quiltdp.errors import InvalidArgument, LimitReached, option
from quiltdp.graph.components import component_classes
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import GuardStruck, Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quiltdp.accountant.elsewhere import Elsewhere

__all__ = ["LeakageProfile", "analyze", "dp_epsilon", "leakage"]

Progress = Callable[[str, float], None]
Work = str | WorkBudget
Who = str | Adversary
_Answer = TypeVar("_Answer")


class LeakageProfile:
    """How much any α-DP mechanism leaks about each unit of a model, for any α.

    Made by :func:`analyze`.  Components are analysed once per kind: a thousand identical families
    cost one.

    Examples
    --------
    >>> import quiltdp as qd
    >>> profile = qd.analyze(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5))
    >>> round(profile.leakage(0.1).epsilon, 4), round(profile.dp_epsilon(1.0), 4)
    (0.3877, 0.2592)
    """

    def __init__(
        self,
        model: Model,
        *,
        method: str = "auto",
        adversary: Who = "informed",
        protect: Protect = None,
        window: int = 1,
        work: Work = "normal",
        time_limit: Limit = None,
        memory_limit: float | None = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.adversary = check_known(adversary_from(adversary), model)
        guard = guard_of(time_limit, memory_limit)
        self.budget = WorkBudget.named(work)
        self.model = model
        self.units = make_units(model, protect, window)
        self.protection: dict[str, Any] = {"protect": protect, "window": window}
        self.workspace = Workspace(model, guard=guard)
        self._fresh, self._shares_guard = True, guard is time_limit
        self._progress = progress
        self._entry = None if method == "auto" else find_method(self.adversary, method)
        self.method = method if self._entry is None else self._entry.name  # an old name is known by the new
        _check_stage(self.budget.until, self.adversary)
        self._pieces = tuple(self._take_apart())
        self._elsewhere: Elsewhere | None = None
        if executor is not None:
            from quiltdp.parallel import checked_executor

            checked_executor(executor)
        if executor is not None and len(self._pieces) > 1:  # one piece is asked here: nothing is gained
            from quiltdp.accountant.elsewhere import Elsewhere

            self._elsewhere = Elsewhere([p.component for p in self._pieces], self.budget, executor)
        self._additive = self._some_unit_is_cut()
        self._stages: list[Answers] = []
        self._waiting = self._next_stages()
        self.reached = ""
        """Where a limit was reached: which one, and whose answer there is; else empty."""

    # -- building --------------------------------------------------------------------------

    def _take_apart(self) -> Iterator[Piece]:
        """Yield every class of components that holds units, with what is protected in it."""
        classes = component_classes(self.model)
        local, places = assign_units(self.model, self.units, classes)
        for k, found in enumerate(classes):
            if any(len(g) for _, g in places[k]):
                adversary = known_in(self.adversary, found, self.model)
                problem = Problem(found.model, local[k], adversary, self.units.window)
                space = self.workspace.part(k, found.model)
                yield Piece(found, Component(problem, space, self.budget), places[k])

    def with_method(self, method: str, work: Work) -> LeakageProfile:
        """Return the same units and components, workspace and guard, for one method by name."""
        other = copy(self)
        other.method, other.budget = method, WorkBudget.named(work)
        other._entry = find_method(self.adversary, method)
        other._pieces = tuple(
            replace(p, component=p.component.anew(p.component.workspace, other.budget)) for p in self._pieces
        )
        other._stages, other.reached, other._progress = [], "", None
        other._elsewhere, other._fresh = None, True
        other._waiting = other._next_stages()
        return other

    def _some_unit_is_cut(self) -> bool:
        """Return whether a named set reaches into several components."""
        if self.units.members is None:
            return False
        seen: set[int] = set()
        for piece in self._pieces:
            for _, outside in piece.places:
                units = list(map(int, outside))
                if len(set(units)) < len(units) or seen.intersection(units):
                    return True
                seen.update(units)
        return False

    def _next_stages(self) -> Iterator[Answers]:
        """Yield stage after stage, each prepared when it is asked for."""
        facing = dict.fromkeys(p.component.problem.adversary for p in self._pieces)
        entries = candidates(*facing) if self._entry is None else iter([self._entry])
        last = self.budget.until
        for entry in entries:
            name = self._stage_name(entry)
            if any(self._prepare(entry)):
                counts = tuple(len(p.component.bounds) for p in self._pieces)
                yield Answers(
                    self.model,
                    self.units,
                    self._pieces,
                    name,
                    counts,
                    self._additive,
                    elsewhere=self._elsewhere,
                )
            settled = self._entry is None and all(p.component.settled for p in self._pieces)
            if name == last.removesuffix("~") or settled:  # what comes after is not even loaded
                return

    def _prepare(self, entry: Registered) -> list[bool]:
        """Add one bound to every piece where it is wanted; return in which it was taken."""
        if self._progress is not None:
            self._progress(f"preparing {entry.name}", min(0.9, 0.1 * len(self._stages)))
        components = [piece.component for piece in self._pieces]
        if self._entry is not None:  # asked for by name: it refuses in its own words
            if self._elsewhere is not None:
                return self._elsewhere.offer(entry, range(len(components)), insist=True)
            for component in components:
                component.take(entry)
            return [True] * len(components)
        if self._elsewhere is None:
            return [component.wants(entry) and component.offer(entry) for component in components]
        return self._elsewhere.offer(entry, [p for p, c in enumerate(components) if c.wants(entry)])

    def _stage_name(self, entry: Registered) -> str:
        """Return the name of a stage; a namesake for a stronger adversary says so."""
        twice = sum(1 for _, name, _ in AUTOMATIC if name == entry.name) > 1
        if not twice or entry.against == self.adversary:
            return entry.name
        return f"{entry.name}@{entry.against.name}"

    def prepare(self) -> None:
        """Do the α-independent work of every stage now.

        Raises
        ------
        LimitReached
            With this profile, which knows the stages that were finished.
        """
        try:
            while self._advance():
                pass
        except GuardStruck as struck:
            self._stop(len(self._stages), struck, self._stages[-1] if self._stages else None)
        self._fresh = False
        if self._progress is not None:
            self._progress("prepared", 1.0)
        self.whole(self)

    def _advance(self) -> bool:
        """Prepare one more stage; return whether there was one."""
        if self.reached:
            return False
        found = next(self._waiting, None)
        if found is not None:
            self._stages.append(found)
        return found is not None

    def _stop(self, stages: int, struck: GuardStruck, last: Answers | None) -> None:
        """Keep only the stages that were finished (``last`` may be the rough half of one), and say so."""
        del self._stages[stages:]
        if last is None:
            raise LimitReached(f"{struck} before {option('method', self.method)} had an answer") from None
        names = [stage.stage for stage in self._stages]
        self.reached = self.budget.stopped(struck, names if last.stage in names else [*names, last.stage])

    def whole(self, found: _Answer) -> _Answer:
        """Return an answer; where a limit was reached, raise :class:`LimitReached` with it."""
        if self.reached:
            raise LimitReached(self.reached, found)
        return found

    # -- answering -------------------------------------------------------------------------

    def ask(
        self, question: Callable[[Answers, _Answer | None], _Answer], *, search: bool = False
    ) -> tuple[_Answer, Answers]:
        """Answer a question stage by stage; return the last answer and the stage it came from.

        ``question`` gets a stage and the answer of the one before.  When a guard strikes, what the last
        finished stage says is :meth:`whole`'s partial answer.  A ``search`` asks every stage twice, roughly
        at first.
        """
        if not self._fresh and not self._shares_guard:
            self.workspace.guard.restart()
        self._fresh = False
        found: _Answer | None = None
        last: Answers | None = None
        done = 0
        try:
            while last is None or not self._is_last(last):
                if done == len(self._stages) and not self._advance():
                    break
                stage = self._stages[done]
                for part in (stage.roughly, stage) if search else (stage,):
                    if last is None or not self._is_last(last):
                        found, last = question(part, found), part
                done += 1
        except GuardStruck as struck:
            self._stop(done, struck, last)
        if self._progress is not None:
            self._progress("answered", 1.0)
        assert found is not None, "the first stage answers, whatever the limits"
        assert last is not None
        return found, last

    def _is_last(self, stage: Answers) -> bool:
        """Return whether the work budget ends with this stage."""
        return stage.stage == self.budget.until

    def notes(self) -> list[str]:
        """Return what was passed over, and whether a limit was reached."""
        found = [n for piece in self._pieces for n in piece.component.notes]
        return list(dict.fromkeys(([self.reached] if self.reached else []) + found))

    def epsilon(self, dp_epsilon: DpEpsilon) -> float:
        """Return only the largest leakage at ``dp_epsilon``."""
        alpha = alphas(self.model, dp_epsilon)
        return self.whole(self.ask(lambda stage, before: stage.leakages(alpha, before))[0].epsilon)

    def leakage(self, dp_epsilon: DpEpsilon) -> Leakage:
        """Return the leakage of every unit under a ``dp_epsilon``-DP mechanism, certified.

        ``dp_epsilon`` is one α for all records or a mapping record → α_j.
        """
        alpha = alphas(self.model, dp_epsilon)
        found, stage = self.ask(lambda stage, before: stage.leakages(alpha, before))
        return self.whole(self.explain(found, stage, dp_epsilon))

    def per_unit(self, dp_epsilon: DpEpsilon) -> PerUnit:
        """Return the :attr:`Leakage.per_record` of :meth:`leakage`, without its reasons."""
        alpha = alphas(self.model, dp_epsilon)
        found, stage = self.ask(lambda stage, before: stage.leakages(alpha, before))
        return self.whole(stage.per_unit(found))

    def with_largest_leakages(self, found: Leakages, stage: Answers, count: int) -> Leakages:
        """Return the ``count`` largest leakages at the end of a search, by the bounds that count there.

        A search tells the largest; others it may only place below it.  They are left so where a limit
        was reached, now or before, and where the work budget names its last stage: it repeats such answers.
        A bound that could not lower the largest is not asked about the others; :meth:`leakage` asks all.
        """
        if self.reached or self.budget.until:
            return found
        try:
            full = stage.largest_leakages(found, count)
        except GuardStruck as struck:
            self._stop(len(self._stages), struck, stage)
            return found
        return full if full.epsilon <= found.epsilon else found  # what passed the search stays the answer

    def explain(self, found: Leakages, stage: Answers, dp_epsilon: DpEpsilon) -> Leakage:
        """Return leakages with their reasons."""
        binding, entry, bounds = stage.binding(found)
        notes = self.notes()
        for smallest in found.results.values():
            notes.extend(n for n in smallest.notes if n not in notes)
        return Leakage(
            epsilon=found.epsilon,
            dp_epsilon=dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
            per_record=stage.per_unit(found),
            binding=binding,
            method=binding.method,
            certificate=certificate(entry, bounds, self.budget.to_dict(), stage.stage, self.method),
            adversary=self.adversary.name,
            fingerprint=self.model.fingerprint,
            by_method=stage.by_method(found),
            notes=tuple(notes),
            protected=self.units.kind,
        )

    # -- the inverse -----------------------------------------------------------------------

    def dp_epsilon(self, bdp_epsilon: float, *, tolerance: float = TOLERANCE) -> float:
        """Return the largest α whose certified leakage is at most ``bdp_epsilon``, rounded down."""
        return self.scale(bdp_epsilon, alphas(self.model, 1.0), tolerance=tolerance)

    def scale(self, bdp_epsilon: float, weights: Vector, *, tolerance: float = TOLERANCE) -> float:
        """Return the largest s such that α = s·weights leaks at most ``bdp_epsilon``, certified.

        The returned s was itself evaluated and passed; every bound is monotone in α.
        """
        target = positive_epsilon(bdp_epsilon, "bdp_epsilon", least=SMALLEST_TARGET)
        found, _ = self.ask(
            lambda stage, before: stage.scale(target, weights, tolerance, before), search=True
        )
        return self.whole(found.scale)

    def curve(self, dp_epsilons: Any) -> list[Leakage]:
        """Return the leakage at each of several α, for tables and pictures."""
        return [self.leakage(a) for a in dp_epsilons]

    def plot(self, dp_epsilons: Any = None, *, ax: Any = None) -> Any:
        """Draw leakage against α, one line per method; return matplotlib axes."""
        return edge("plot_profile")(self, dp_epsilons, ax=ax)


def _check_stage(name: str, adversary: Adversary) -> None:
    known = method_names(adversary)[1:]
    if name and name.removesuffix("~").partition("@")[0] not in known:
        raise InvalidArgument(
            f"{option('work')}: {name!r} is not a stage; stages are among {', '.join(known)}"
        )


def analyze(
    model: Model,
    *,
    method: str = "auto",
    adversary: Who = "informed",
    protect: Protect = None,
    window: int = 1,
    work: Work = "normal",
    time_limit: Limit = None,
    memory_limit: float | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> LeakageProfile:
    """Do the α-independent work once and return the profile.

    Parameters
    ----------
    model
        The model of the correlation.
    method
        ``auto`` (the best sound bound the work budget allows) or one method by name.
    adversary
        ``informed`` (knows any subset of the other records), ``prior`` (knows only the model), or an
        :class:`~quiltdp.accountant.adversaries.Adversary`.
    protect, window
        What is protected: single records by default, named sets of records, or runs of ``window``
        consecutive steps of a chain.
    work
        How far searches go: ``quick``, ``normal``, ``thorough``, or a
        :class:`~quiltdp.work.WorkBudget`; the same work gives the same answer everywhere.
    time_limit, memory_limit
        Limits in seconds (for the analysis, and again for every question) and bytes; none by default.  When
        one is reached, :class:`~quiltdp.errors.LimitReached` is raised with the partial answer.
    progress
        Called with a label and a fraction in [0, 1].
    executor
        Any ``concurrent.futures.Executor``: components of the model are analysed there, with the same
        answer (see :mod:`quiltdp.parallel`).
    """
    profile = LeakageProfile(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        work=work,
        time_limit=time_limit,
        memory_limit=memory_limit,
        progress=progress,
        executor=executor,
    )
    profile.prepare()
    return profile


def leakage(
    model: Model,
    dp_epsilon: DpEpsilon,
    method: str = "auto",
    adversary: Who = "informed",
    *,
    protect: Protect = None,
    window: int = 1,
    work: Work = "normal",
    time_limit: Limit = None,
    memory_limit: float | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Leakage:
    """Return how much an α-DP mechanism leaks about each record of correlated data.

    Leakage(i) = sup over what the adversary may know and over outputs y of
    ln P(y | x_i, x_S) / P(y | x_i', x_S); the largest over all records is the Bayesian DP guarantee
    ε.  The number is certified: it is never below the true one.

    Parameters
    ----------
    model
        The model of the correlation.
    dp_epsilon
        α, the mechanism's DP guarantee with respect to replacing one record; or one α per record.
    method, adversary, protect, window, work, time_limit, memory_limit, progress, executor
        As for :func:`analyze`.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    >>> print(qd.leakage(m, dp_epsilon=0.1))
    leakage ≤ 0.387... at α = 0.1 against the informed adversary
      binding    X2 (by chain)
      certified  certified bound: messages on pairs of states along the chain; rounded up in floating point
    """
    profile = LeakageProfile(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        work=work,
        time_limit=time_limit,
        memory_limit=memory_limit,
        progress=progress,
        executor=executor,
    )
    return profile.leakage(dp_epsilon)


def dp_epsilon(
    model: Model,
    bdp_epsilon: float,
    method: str = "auto",
    adversary: Who = "informed",
    *,
    protect: Protect = None,
    window: int = 1,
    work: Work = "normal",
    time_limit: Limit = None,
    memory_limit: float | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> float:
    """Return the largest α for which every α-DP mechanism is certified to leak at most ε.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> round(1 / qd.dp_epsilon(m, bdp_epsilon=1.0), 3)
    8.653
    """
    profile = LeakageProfile(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        work=work,
        time_limit=time_limit,
        memory_limit=memory_limit,
        progress=progress,
        executor=executor,
    )
    return profile.dp_epsilon(bdp_epsilon)

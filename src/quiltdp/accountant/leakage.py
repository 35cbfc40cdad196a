"""The leakage of a model as a function of α: heavy work once, any α afterwards.

:func:`leakage` answers for one α, :func:`dp_epsilon` for the inverse, and :func:`analyze` returns the
:class:`LeakageProfile` behind both, for repeated use.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from quiltdp import edges
from quiltdp.accountant.analysis import Analysis, Evaluation, Solution, Stage
from quiltdp.accountant.bounds.contract import Vector
from quiltdp.accountant.request import Options, Request, Who, Work
from quiltdp.accountant.result import Leakage, PerUnit
from quiltdp.accountant.units import SMALLEST_TARGET, DpEpsilon, alphas, positive_epsilon
from quiltdp.interface import any_model, old_keyword
from quiltdp.model import Model
from quiltdp.numbers import down, round_down_digits, round_up_digits, round_up_digits_array, scaled


class LeakageProfile(Analysis):
    """How much any α-DP mechanism leaks about each unit of a model, for any α.

    Made by :func:`analyze`, whose options it takes.  Components are analysed once per kind: a thousand
    identical families cost one.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.leakage import analyze
    >>> profile = analyze(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5))
    >>> round(profile.leakage(0.1).epsilon, 4), round(profile.dp_epsilon(1.0), 4)
    (0.3877, 0.2592)
    """

    def __init__(self, model: Model, *options: Any, **more: Any) -> None:
        super().__init__(Request(model, *options, **more))

    def with_method(self, method: str, work: Work) -> LeakageProfile:
        """Return the same analysis by one method by name, with what is left of the same limits."""
        other = copy.copy(self)
        other.request = self.request.with_method(method, work)
        other.budget, other.method = other.request.budget, method
        other.components = tuple(c.unprepared_copy(other.budget) for c in self.components)
        other._executor = None
        other._reset_stages()
        return other

    def _evaluate_at(self, dp_epsilon: DpEpsilon) -> tuple[Evaluation, Stage]:
        alpha = alphas(self.model, dp_epsilon)
        return self.answer(lambda stage, before: self.evaluate(alpha, stage, known=before))

    def epsilon(self, dp_epsilon: DpEpsilon) -> float:
        """Return only the largest leakage at ``dp_epsilon``."""
        return self.require_complete(self._evaluate_at(dp_epsilon)[0].largest)

    def leakage(self, dp_epsilon: DpEpsilon) -> Leakage:
        """Return the leakage of every unit under a ``dp_epsilon``-DP mechanism, certified.

        ``dp_epsilon`` is one α for all records or a mapping record → α_j.
        """
        return self.require_complete(self.explain(*self._evaluate_at(dp_epsilon), dp_epsilon))

    def per_unit(self, dp_epsilon: DpEpsilon) -> PerUnit:
        """Return the :attr:`Leakage.per_record` of :meth:`leakage`, without its reasons."""
        return self.require_complete(self._per_unit(self._evaluate_at(dp_epsilon)[0].values))

    def reasons(self, dp_epsilon: DpEpsilon) -> tuple[PerUnit, dict[str, dict[str, Any]]]:
        """Return the leakage of every unit, and what forces it where the bound can tell."""
        found, _ = self._evaluate_at(dp_epsilon)
        return self.require_complete((self._per_unit(found.values), self.witnesses(found)))

    def _per_unit(self, values: Vector) -> PerUnit:
        return PerUnit(self.units.names, round_up_digits_array(values))

    def explain(self, found: Evaluation, stage: Stage, dp_epsilon: DpEpsilon) -> Leakage:
        """Return leakages with their reasons."""
        binding, entry, bounds = self.binding(found)
        says = entry.says if bounds.kind == entry.kind else f"above {entry.says}"
        says += "; rounded up in floating point"
        says += "; for a sum of these values only" if self.request.prices else ""
        notes = self.notes()
        notes += [n for result in found.results.values() for bounds in result.results for n in bounds.notes]
        return Leakage(
            epsilon=found.largest,
            dp_epsilon=dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
            per_record=self._per_unit(found.values),
            binding=binding,
            method=binding.method,
            certificate=self.certificate(says, bounds.kind, stage),
            adversary=self.adversary.name,
            fingerprint=self.model.fingerprint,
            by_method=self._largest_by_method(found),
            notes=tuple(dict.fromkeys(notes)),
            protected=self.units.kind,
        )

    def _largest_by_method(self, found: Evaluation) -> dict[str, float]:
        """Return what every method says overall: the smallest stands in for it where it was not tried.

        Every number is about the whole model, with a unit's parts in several components added up.
        """
        said: dict[tuple[int, bytes], dict[str, Vector]] = {}
        for key, result in found.results.items():
            names = [entry.name for entry in self.components[key[0]].taken]
            said[key] = {n: bounds.values for n, bounds in zip(names, result.results, strict=False)}
        largest: dict[str, float] = {}
        for name in dict.fromkeys(n for own in said.values() for n in own):
            values = {key: own.get(name, found.results[key].values) for key, own in said.items()}
            largest[name] = round_up_digits(float(self._scatter_values(found.keys, values).max(initial=0.0)))
        return largest

    # -- the inverse -----------------------------------------------------------------------

    @old_keyword("bdp_epsilon", "epsilon")
    def dp_epsilon(self, epsilon: float, **how: float) -> float:
        """Return the largest α whose certified leakage is at most ``epsilon``, rounded down."""
        return self.scale(epsilon, alphas(self.model, 1.0), **how)

    def scale(self, epsilon: float, weights: Vector, **how: float) -> float:
        """Return the largest s such that α = s·weights leaks at most ``epsilon``, certified.

        The returned s was itself evaluated and passed; every bound is monotone in α.
        """
        target = positive_epsilon(epsilon, "epsilon", least=SMALLEST_TARGET)
        if not weights.any():
            return math.inf
        return self.require_complete(self.search(lambda s: scaled(weights, s), target, weights, **how)[0].x)

    def search(
        self, cost_at: Callable[[float], Vector], target: float, weights: Vector, **how: float
    ) -> tuple[Solution, Stage]:
        """Return the largest s such that cost_at(s), about s·weights, leaks at most the target.

        Group privacy passes at target / Σ weights; a record leaks at least its own α.
        """
        start = round_down_digits(down(target / float(weights.sum()), 64.0 + 4 * len(weights)))
        ceiling = round_down_digits(target / float(weights.max()))
        return self.solve(cost_at, target, start, ceiling, **how)

    def curve(self, dp_epsilons: Any) -> list[Leakage]:
        """Return the leakage at each of several α, for tables and pictures."""
        return [self.leakage(a) for a in dp_epsilons]

    def plot(self, dp_epsilons: Any = None, *, ax: Any = None) -> Any:
        """Draw leakage against α, one line per method; return matplotlib axes."""
        return edges.plot_profile(self, dp_epsilons, ax=ax)


@any_model
def analyze(
    model: Model, *, method: str = "auto", adversary: Who = "informed", **options: Unpack[Options]
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
    profile = LeakageProfile(model, method, adversary, **options)
    profile.prepare()
    return profile


@any_model
def leakage(
    model: Model,
    dp_epsilon: DpEpsilon,
    method: str = "auto",
    adversary: Who = "informed",
    **options: Unpack[Options],
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
    return LeakageProfile(model, method, adversary, **options).leakage(dp_epsilon)


@old_keyword("bdp_epsilon", "epsilon")
@any_model
def dp_epsilon(
    model: Model,
    epsilon: float,
    method: str = "auto",
    adversary: Who = "informed",
    **options: Unpack[Options],
) -> float:
    """Return the largest α for which every α-DP mechanism is certified to leak at most ε.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> round(1 / qd.dp_epsilon(m, epsilon=1.0), 3)
    8.653
    """
    return LeakageProfile(model, method, adversary, **options).dp_epsilon(epsilon)

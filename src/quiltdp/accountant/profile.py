"""The leakage of a model as a function of α: heavy work once, any α afterwards.

:func:`leakage` answers for one α, :func:`dp_epsilon` for the inverse, and :func:`analyze` returns the
:class:`LeakageProfile` behind both, for repeated use.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.leakage.combined import Combined, CombinedBounds
from quiltdp.accountant.methods import METHODS, Part, automatic, build, check_adversary
from quiltdp.accountant.pieces import assign_units
from quiltdp.accountant.result import Binding, Certificate, Leakage, PerUnit
from quiltdp.accountant.search import largest_scale
from quiltdp.accountant.units import (
    SMALLEST_TARGET,
    DpEpsilon,
    Protect,
    alpha_vector,
    make_units,
    positive_epsilon,
)
from quiltdp.inference.components import ComponentClass, component_classes
from quiltdp.model import Model
from quiltdp.rounding import up

__all__ = ["LeakageProfile", "analyze", "dp_epsilon", "leakage"]

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class _Piece:
    """One class of components, its bounds, and where its units stand in the whole model."""

    found: ComponentClass
    combined: Combined
    places: tuple[tuple[np.ndarray, np.ndarray], ...]  # per copy: (local units, global units)


@dataclass(frozen=True, eq=False)
class _Values:
    """Leakage of every unit at one α, and which piece and which of its units it came from."""

    epsilon: Vector
    piece: np.ndarray
    local: np.ndarray
    results: Mapping[tuple[int, bytes], CombinedBounds]


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
        adversary: str = "informed",
        protect: Protect = None,
        window: int = 1,
        time_limit: float = 30.0,
        progress: Progress | None = None,
    ) -> None:
        check_adversary(adversary)
        positive_epsilon(time_limit, "time_limit")
        self.model = model
        self.method = method
        self.adversary = adversary
        self.units = make_units(model, protect, window)
        self.protection: dict[str, Any] = {"protect": protect, "window": window}
        self._notes: list[str] = []
        self._started = time.monotonic()
        self._limit = float(time_limit)
        self._pieces = tuple(self._build(progress))
        self._additive = any(len(p) > 1 for p in self._parts_of_units().values())
        self.seconds = time.monotonic() - self._started

    # -- building --------------------------------------------------------------------------

    def _build(self, progress: Progress | None) -> list[_Piece]:
        classes = component_classes(self.model)
        local, places = assign_units(self.model, self.units, classes)
        pieces = []
        for k, found in enumerate(classes):
            if not any(len(g) for _, g in places[k]):
                continue
            if progress is not None:
                progress("analysing components", k / len(classes))
            part = Part(found.model, local[k], self.units.window, self._remaining())
            if self.method == "auto":
                combined, notes = automatic(self.adversary, part)
            else:
                combined, notes = Combined([build(self.adversary, self.method, part)]), ()
            self._notes.extend(n for n in notes if n not in self._notes)
            pieces.append(_Piece(found, combined, places[k]))
        if progress is not None:
            progress("analysing components", 1.0)
        return pieces

    def _remaining(self) -> float:
        return max(1.0, self._limit - (time.monotonic() - self._started))

    def _parts_of_units(self) -> dict[int, list[int]]:
        """Return, for named sets, the pieces each one reaches into."""
        parts: dict[int, list[int]] = {}
        if self.units.members is None:
            return parts
        for p, piece in enumerate(self._pieces):
            for _, places in piece.places:
                for unit in places.tolist():
                    parts.setdefault(unit, []).append(p)
        return parts

    # -- evaluating ------------------------------------------------------------------------

    def _values(self, alpha: Vector, floor: float = 0.0, enough: float = math.inf) -> _Values:
        """Evaluate every class of components once per distinct α vector."""
        count = len(self.units)
        epsilon = np.zeros(count)
        owner, local = np.full(count, -1, dtype=np.intp), np.zeros(count, dtype=np.intp)
        results: dict[tuple[int, bytes], CombinedBounds] = {}
        equal = bool(len(alpha)) and bool(np.all(alpha == alpha[0]))
        if self._additive:  # a unit's parts add up: none can be judged alone
            floor, enough = 0.0, math.inf
        for p, piece in enumerate(self._pieces):
            for copy, (inside, outside) in zip(piece.found.copies, piece.places, strict=True):
                own = alpha[copy]
                key = (p, b"" if equal else own.tobytes())
                if key not in results:
                    total = up(float(own.sum()), len(own) + 8.0) if own.any() else 0.0
                    if 4.0 * total <= floor:  # far below: group privacy will do; also if nothing is read
                        count = max(int(i.max(initial=-1)) + 1 for i, _ in piece.places)
                        results[key] = piece.combined.group(count, total)
                    else:
                        results[key] = piece.combined.evaluate(own, floor=floor, enough=enough)
                found = results[key]
                values = found.epsilon[inside]
                if self._additive:
                    values = values * (1 + 1e-15)  # sums of rounded-up parts stay rounded up
                    np.add.at(epsilon, outside, values)
                else:
                    epsilon[outside] = values
                owner[outside], local[outside] = p, inside
        return _Values(epsilon, owner, local, results)

    def epsilon(self, dp_epsilon: DpEpsilon) -> float:
        """Return only the largest leakage at ``dp_epsilon``."""
        values = self._values(alpha_vector(self.model, dp_epsilon))
        return float(values.epsilon.max(initial=0.0))

    def leakage(self, dp_epsilon: DpEpsilon) -> Leakage:
        """Return the leakage of every unit under a ``dp_epsilon``-DP mechanism, certified.

        ``dp_epsilon`` is one α for all records or a mapping record → α_j.
        """
        started = time.monotonic()
        alpha = alpha_vector(self.model, dp_epsilon)
        values = self._values(alpha)
        k = int(np.argmax(values.epsilon)) if len(values.epsilon) else 0
        binding = self._binding(values, alpha, k)
        largest: dict[str, float] = {}
        notes = list(self._notes)
        for found in values.results.values():
            for name, value in found.largest.items():
                largest[name] = max(largest.get(name, 0.0), value)
            notes.extend(n for n in found.notes if n not in notes)
        return Leakage(
            epsilon=float(values.epsilon[k]),
            dp_epsilon=dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
            per_record=PerUnit(self.units.names, values.epsilon),
            binding=binding,
            method=binding.method,
            certificate=self._certificate(binding.method, notes),
            adversary=self.adversary,
            fingerprint=self.model.fingerprint,
            seconds=self.seconds + time.monotonic() - started,
            by_method=largest,
            notes=tuple(notes),
            protected=self.units.kind,
        )

    def _binding(self, values: _Values, alpha: Vector, k: int) -> Binding:
        piece = self._pieces[int(values.piece[k])]
        local = int(values.local[k])
        for copy, (_, outside) in zip(piece.found.copies, piece.places, strict=True):
            if k in outside:
                equal = bool(np.all(alpha == alpha[0]))
                key = (int(values.piece[k]), b"" if equal else alpha[copy].tobytes())
                found = values.results[key]
                witness = _renamed(found.witnesses.get(local, {}), piece.found, copy, self.model)
                name = found.names[int(found.winner[local])]
                return Binding(str(self.units.names[k]), float(values.epsilon[k]), name, witness)
        raise AssertionError("every unit belongs to a piece")

    def _certificate(self, name: str, notes: list[str]) -> Certificate:
        for adversary in (self.adversary, *METHODS):
            method = METHODS[adversary].get(name)
            if method is not None:
                kind = method.kind
                if kind == "exact" and any(n.startswith("exact:") for n in notes):
                    kind = "certified bound"
                return Certificate(kind, f"{method.says}; rounded up in floating point")
        raise AssertionError(f"unknown method {name}")

    # -- the inverse -----------------------------------------------------------------------

    def dp_epsilon(self, bdp_epsilon: float, *, tolerance: float = 1e-8) -> float:
        """Return the largest α whose certified leakage is at most ``bdp_epsilon``, rounded down."""
        return self.scale(bdp_epsilon, alpha_vector(self.model, 1.0), tolerance=tolerance)

    def scale(self, bdp_epsilon: float, weights: Vector, *, tolerance: float = 1e-8) -> float:
        """Return the largest s such that α = s·weights leaks at most ``bdp_epsilon``, certified.

        The returned s was itself evaluated and passed; every bound is monotone in α.
        """
        target = positive_epsilon(bdp_epsilon, "bdp_epsilon", least=SMALLEST_TARGET)

        def at(s: float) -> float:
            values = self._values(weights * s, floor=0.98 * target, enough=1.02 * target)
            return float(values.epsilon.max(initial=0.0))

        return largest_scale(at, target, weights, tolerance=tolerance)

    def curve(self, dp_epsilons: Any) -> list[Leakage]:
        """Return the leakage at each of several α, for tables and pictures."""
        return [self.leakage(a) for a in dp_epsilons]

    def plot(self, dp_epsilons: Any = None, *, ax: Any = None) -> Any:
        """Draw leakage against α, one line per method; return matplotlib axes."""
        # pictures are an edge: found when asked for, never imported by the accountant
        return import_module("quiltdp.report.plots").plot_profile(self, dp_epsilons, ax=ax)


def _renamed(
    witness: Mapping[str, Any], found: ComponentClass, copy: np.ndarray, whole: Model
) -> dict[str, Any]:
    """Return a witness of a class with the node names of one of its copies."""
    if copy is found.copies[0] or not witness:
        return dict(witness)
    names = {n: whole.nodes[int(j)] for n, j in zip(found.model.nodes, copy, strict=True)}

    def rename(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, (list, tuple)):
            return [rename(v) for v in value]
        if isinstance(value, dict):
            return {rename(k): rename(v) for k, v in value.items()}
        return value

    return {k: rename(v) for k, v in witness.items()}


def analyze(
    model: Model,
    *,
    method: str = "auto",
    adversary: str = "informed",
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
    progress: Progress | None = None,
) -> LeakageProfile:
    """Do the α-independent work once and return the profile.

    Parameters
    ----------
    model
        The model of the correlation.
    method
        ``auto`` (the best sound bound the time limit allows) or one method by name.
    adversary
        ``informed`` (knows any subset of the other records) or ``prior`` (knows only the model).
    protect, window
        What is protected: single records by default, named sets of records, or runs of ``window``
        consecutive steps of a chain.
    time_limit
        Seconds that searches may take altogether.
    progress
        Called with a label and a fraction in [0, 1].
    """
    return LeakageProfile(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        time_limit=time_limit,
        progress=progress,
    )


def leakage(
    model: Model,
    dp_epsilon: DpEpsilon,
    method: str = "auto",
    adversary: str = "informed",
    *,
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
    progress: Progress | None = None,
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
    method, adversary, protect, window, time_limit, progress
        As for :func:`analyze`.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    >>> print(qd.leakage(m, dp_epsilon=0.1))
    leakage ≤ 0.387... at α = 0.1 against the informed adversary
      binding    X2 (by exact)
      certified  exact: the limit over all α-DP mechanisms and adversaries; rounded up in floating point
    """
    profile = analyze(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        time_limit=time_limit,
        progress=progress,
    )
    return profile.leakage(dp_epsilon)


def dp_epsilon(
    model: Model,
    bdp_epsilon: float,
    method: str = "auto",
    adversary: str = "informed",
    *,
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
    progress: Progress | None = None,
) -> float:
    """Return the largest α for which every α-DP mechanism is certified to leak at most ε.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> round(1 / qd.dp_epsilon(m, bdp_epsilon=1.0), 3)
    8.908
    """
    profile = analyze(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        time_limit=time_limit,
        progress=progress,
    )
    return profile.dp_epsilon(bdp_epsilon)

"""Approximate Bayesian DP of a whole model: δ at a given ε, and Gaussian noise to match."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.group_profiles import GaussianProfile
from quiltdp.accountant.leakage.approximate import DeltaBound, GroupProfile
from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.pieces import assign_units
from quiltdp.accountant.result import Binding, Certificate, Leakage, PerUnit
from quiltdp.accountant.specs import Gaussian
from quiltdp.accountant.units import Protect, Units, alpha_vector, heaviest, make_units, positive_epsilon
from quiltdp.errors import InvalidArgument, NoCertificate, option
from quiltdp.inference.components import component_classes
from quiltdp.model import Model

__all__ = ["DeltaProfile", "GaussianCalibration", "gaussian_leakage", "smallest_std"]


class DeltaProfile:
    """δ_BDP(ε) of any mechanism with a group-privacy profile, for every unit of a model.

    Parameters
    ----------
    model, protect, window
        As for :func:`quiltdp.leakage`; a protected set must lie in one connected component.
    time_limit
        Seconds the search for quilts may take.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.delta import DeltaProfile
    >>> from quiltdp.accountant.group_profiles import GaussianProfile
    >>> m = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=1000)
    >>> delta = DeltaProfile(m).delta(GaussianProfile(20.0), epsilon=1.0)
    >>> 0 < delta < 1e-3
    True
    """

    def __init__(
        self, model: Model, *, protect: Protect = None, window: int = 1, time_limit: float = 30.0
    ) -> None:
        positive_epsilon(time_limit, "time_limit")
        self.model = model
        self.units: Units = make_units(model, protect, window)
        classes = component_classes(model)
        local, places = assign_units(model, self.units, classes)
        self._pieces = []
        seen = np.zeros(len(self.units), dtype=np.intp)
        deadline = time.monotonic() + time_limit
        for found, units, where in zip(classes, local, places, strict=True):
            if not any(len(g) for _, g in where):
                continue
            for _, outside in where:
                seen[outside] += 1
            seconds = max(1.0, 0.5 * (deadline - time.monotonic()))
            bound = DeltaBound(found.model, units, window=self.units.window, seconds=seconds)
            self._pieces.append((found, bound, where))
        if (seen > 1).any():
            name = self.units.names[int(np.argmax(seen))]
            raise InvalidArgument(
                f"{option('protect')}: set {name!r} reaches into several independent components;"
                " approximate DP protects each part as a set of its own"
            )

    def deltas(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> Vector:
        """Return δ of every unit; ``weights`` are sensitivities per node, 1 for records by default."""
        w = alpha_vector(self.model, 1.0) if weights is None else weights
        values = np.zeros(len(self.units))
        for found, bound, where in self._pieces:
            known: dict[bytes, Vector] = {}
            for copy, (inside, outside) in zip(found.copies, where, strict=True):
                own = w[copy]
                key = own.tobytes()
                if key not in known:
                    known[key] = bound.evaluate(profile, own, epsilon)
                values[outside] = known[key][inside]
        return values

    def delta(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> float:
        """Return the largest δ over all units."""
        return float(self.deltas(profile, epsilon, weights).max(initial=0.0))


@dataclass(frozen=True)
class GaussianCalibration:
    """The smallest standard deviation found, and the δ it was certified for."""

    gaussian_std: float
    delta: float
    unit: str
    protected: str
    compared: Mapping[str, float]


def _weights(model: Model, mechanism: Gaussian) -> Vector:
    given = mechanism.sensitivity
    return alpha_vector(model, given, "sensitivity")


def smallest_std(
    model: Model,
    epsilon: float,
    mechanism: Gaussian,
    *,
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
) -> GaussianCalibration:
    """Return the smallest standard deviation with certified δ_BDP(ε) ≤ δ; it was itself checked."""
    bounds = DeltaProfile(model, protect=protect, window=window, time_limit=time_limit)
    weights = _weights(model, mechanism)

    def worst(std: float) -> float:
        return bounds.delta(GaussianProfile(std), epsilon, weights)

    single = mechanism.scale(epsilon)
    std = _smallest(worst, mechanism.delta, single, "standard deviation")
    values = bounds.deltas(GaussianProfile(std), epsilon, weights)
    k = int(np.argmax(values))
    largest = max((float(weights[c].sum()) for f, _, _ in bounds._pieces for c in f.copies), default=0.0)
    group = Gaussian(max(largest, mechanism.max_sensitivity), mechanism.delta).scale(epsilon)
    return GaussianCalibration(
        std,
        float(values[k]),
        str(bounds.units.names[k]),
        bounds.units.kind,
        {
            "independent": Gaussian(heaviest(bounds.units, model, weights), mechanism.delta).scale(epsilon),
            "group": group,
        },
    )


def _smallest(worst: Callable[[float], float], delta: float, start: float, what: str) -> float:
    """Return the smallest x ≥ start with worst(x) ≤ δ, by doubling and bisection on its logarithm."""
    if worst(start) <= delta:
        return start
    low, high = start, start
    for _ in range(80):
        low, high = high, 2.0 * high
        if worst(high) <= delta:
            break
    else:
        raise NoCertificate(f"no {what} up to {high:.3g} reaches δ = {delta:g}")
    while high - low > 1e-9 * high:
        middle = math.sqrt(low * high)
        if worst(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def gaussian_leakage(
    model: Model,
    mechanism: Gaussian,
    gaussian_std: float,
    *,
    adversary: str = "informed",
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
) -> Leakage:
    """Return the smallest ε with certified δ_BDP(ε) ≤ δ for Gaussian noise of this deviation."""
    started = time.monotonic()
    positive_epsilon(gaussian_std, "gaussian_std")
    bounds = DeltaProfile(model, protect=protect, window=window, time_limit=time_limit)
    weights = _weights(model, mechanism)
    profile = GaussianProfile(gaussian_std)

    def worst(epsilon: float) -> float:
        return bounds.delta(profile, epsilon, weights)

    epsilon = _smallest(worst, mechanism.delta, 1e-6, "ε")
    values = bounds.deltas(profile, epsilon, weights)
    unit = str(bounds.units.names[int(np.argmax(values))])
    return Leakage(
        epsilon=epsilon,
        dp_epsilon=math.inf,
        per_record=PerUnit(bounds.units.names, np.full(len(values), epsilon)),
        binding=Binding(unit, epsilon, "swing"),
        method="swing",
        certificate=Certificate("certified bound", f"δ ≤ {mechanism.delta:g} from group profiles and swings"),
        adversary=adversary,
        fingerprint=model.fingerprint,
        seconds=time.monotonic() - started,
        notes=("approximate DP: the same ε for every unit, at the stated δ",),
        protected=bounds.units.kind,
    )

"""Calibration: the noise that is enough, with its reasons.

:func:`calibrate` finds the smallest noise scale whose *own* certificate passes: the DP cost of the
mechanism at that scale is converted to leakage, rounded up, and compared with the target.
:func:`leakage_of` is the other direction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any

from quiltdp.accountant.checks import check_cost, check_gaussian, check_mechanism, check_scale
from quiltdp.accountant.delta import gaussian_leakage, smallest_std
from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.profile import LeakageProfile, Progress, analyze
from quiltdp.accountant.result import Binding, Certificate, Leakage, jsonable
from quiltdp.accountant.specs import (
    Gaussian,
    Laplace,
    MechanismSpec,
    Sensitivities,
    Thresholdout,
    mechanism_from_dict,
)
from quiltdp.accountant.units import SMALLEST_TARGET, Protect, alpha_vector, heaviest, positive_epsilon
from quiltdp.errors import InvalidArgument, NoCertificate, QuiltdpError
from quiltdp.model import Model

__all__ = ["Calibration", "calibrate", "leakage_of"]

SCHEMA = "quiltdp/calibration"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Calibration:
    """A noise scale with its reasons.

    Attributes
    ----------
    sigma
        The noise scale: a Laplace scale, or the standard deviation for Gaussian noise (then also
        called ``gaussian_std``).
    epsilon, delta
        The guarantee: (ε, δ) Bayesian DP; δ is 0 for Laplace and Thresholdout.
    dp_epsilon
        α, the plain DP cost at that scale: one number, or one per record; ``None`` for Gaussian.
    leakage
        The certified leakage at that scale, at most ``epsilon``.
    mechanism, adversary, method, binding, certificate, fingerprint, protected
        What it was made for, and how.
    compared
        Scales that other answers would give: ``independent`` (too small on correlated data),
        ``group``, ``published``.
    """

    sigma: float
    epsilon: float
    dp_epsilon: float | Mapping[str, float] | None
    leakage: float
    mechanism: MechanismSpec
    adversary: str
    method: str
    binding: Binding
    certificate: Certificate
    fingerprint: str
    delta: float = 0.0
    protected: str = "single records"
    compared: Mapping[str, float] = field(default_factory=dict)
    per_record: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a scale or target that is not positive and finite, and a leakage above the target."""
        positive_epsilon(self.sigma, "sigma")
        positive_epsilon(self.epsilon, "epsilon")
        if not 0.0 <= self.delta < 1.0:
            raise InvalidArgument(f"delta must be in [0, 1), not {self.delta!r}")
        if math.isnan(self.leakage) or self.leakage > self.epsilon:
            raise NoCertificate(f"the leakage {self.leakage} exceeds the target {self.epsilon}")
        if not isinstance(self.mechanism, Gaussian):
            check_cost(self.mechanism, self.sigma, self.dp_epsilon)
        object.__setattr__(self, "compared", MappingProxyType(dict(self.compared)))

    @property
    def gaussian_std(self) -> float:
        """The standard deviation, for Gaussian noise only."""
        if not isinstance(self.mechanism, Gaussian):
            raise InvalidArgument("this calibration is for Laplace noise: its scale is sigma")
        return self.sigma

    def __str__(self) -> str:
        """Read as a short paragraph."""
        kind = "standard deviation" if isinstance(self.mechanism, Gaussian) else "scale"
        promise = f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")
        return "\n".join(
            [
                f"σ = {self.sigma:.6g} ({kind}) for {promise} against the {self.adversary} adversary",
                f"  mechanism  {self.mechanism}",
                f"  binding    {self.binding}",
                f"  certified  {self.certificate}",
                *(f"  note       {n}" for n in self.notes),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary: mechanism, sensitivity and scale kept apart."""
        alpha = dict(self.dp_epsilon) if isinstance(self.dp_epsilon, Mapping) else self.dp_epsilon
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "mechanism": self.mechanism.to_dict(),
            "sigma": self.sigma,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "dp_epsilon": alpha,
            "leakage": self.leakage,
            "adversary": self.adversary,
            "protected": self.protected,
            "method": self.method,
            "certificate": self.certificate.to_dict(),
            "binding": self.binding.to_dict(),
            "per_record": [list(row) for row in self.per_record],
            "compared": dict(self.compared),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def to_json(self) -> str:
        """Return one JSON object with stable, versioned keys."""
        return json.dumps(jsonable(self.to_dict()), ensure_ascii=False, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read back what :meth:`to_json` wrote.

        Raises
        ------
        InvalidArgument
            If it is not a calibration, or of a version this library does not know.
        """
        try:
            d = json.loads(text)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"the calibration is not JSON: {error}") from None
        if not isinstance(d, dict) or d.get("schema") != SCHEMA:
            raise InvalidArgument(f"this is not a calibration: no key 'schema' with value {SCHEMA!r}")
        if d.get("version") != VERSION:
            raise InvalidArgument(f"calibration version {d.get('version')!r} is not known, only {VERSION}")
        try:
            b, c = d["binding"], d["certificate"]
            return cls(
                sigma=float(d["sigma"]),
                epsilon=float(d["epsilon"]),
                dp_epsilon=d["dp_epsilon"],
                leakage=float(d["leakage"]),
                mechanism=mechanism_from_dict(d["mechanism"]),
                adversary=d["adversary"],
                method=d["method"],
                binding=Binding(b["unit"], float(b["epsilon"]), b["method"], b["witness"]),
                certificate=Certificate(c["kind"], c["statement"]),
                fingerprint=d["fingerprint"],
                delta=float(d["delta"]),
                protected=d["protected"],
                compared={k: float(v) for k, v in d["compared"].items()},
                per_record=tuple((str(n), float(v)) for n, v in d["per_record"]),
                notes=tuple(d["notes"]),
                seconds=float(d["seconds"]),
            )
        except QuiltdpError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"the calibration lacks or garbles {error}") from None

    def to_opendp(self) -> Any:
        """Return an OpenDP measurement that adds this noise to one number (a float query)."""
        return import_module("quiltdp.mechanisms.opendp_export").to_opendp(self)

    def to_dp_event(self) -> Any:
        """Return the ``dp_accounting`` event of one release at this scale."""
        return import_module("quiltdp.mechanisms.dp_events").to_dp_event(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw this scale beside what other answers would give; return matplotlib axes."""
        return import_module("quiltdp.report.plots").plot_calibration(self, ax=ax)


def calibrate(
    model: Model,
    epsilon: float,
    mechanism: MechanismSpec,
    *,
    method: str = "auto",
    adversary: str = "informed",
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
    compare: bool = True,
    progress: Progress | None = None,
) -> Calibration:
    """Return the smallest noise scale certified to leak at most ``epsilon`` about any unit.

    Parameters
    ----------
    model
        The model of the correlation.
    epsilon
        The Bayesian DP target.
    mechanism
        :class:`Laplace`, :class:`Gaussian` or :class:`Thresholdout`, with its sensitivity.
    method, adversary, protect, window, time_limit, progress
        As for :func:`quiltdp.leakage`.
    compare
        Also tell what independent records, group privacy and the published lemma would give.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0))
    >>> round(cal.sigma, 3), cal.binding.method, round(cal.compared["group"], 1)
    (8.908, 'chain', 100.0)
    """
    target = positive_epsilon(epsilon, "epsilon", least=SMALLEST_TARGET)
    check_mechanism(mechanism)
    if isinstance(mechanism, Gaussian):
        check_gaussian(method, adversary)
        return _gaussian(model, target, mechanism, adversary, protect, window, time_limit)
    profile = analyze(
        model,
        method=method,
        adversary=adversary,
        protect=protect,
        window=window,
        time_limit=time_limit,
        progress=progress,
    )
    return calibrate_profile(profile, target, mechanism, compare=compare)


def calibrate_profile(
    profile: LeakageProfile, epsilon: float, mechanism: Laplace | Thresholdout, *, compare: bool = True
) -> Calibration:
    """Calibrate from a profile that was made before (several targets, one analysis)."""
    weights = _weights(profile.model, mechanism)
    s = profile.scale(epsilon, weights)
    sigma, found = _first_that_passes(profile, mechanism, epsilon, s)
    check_scale(sigma, epsilon)
    return Calibration(
        sigma=sigma,
        epsilon=epsilon,
        dp_epsilon=found.dp_epsilon,
        leakage=found.epsilon,
        mechanism=mechanism,
        adversary=profile.adversary,
        method=found.method,
        binding=found.binding,
        certificate=found.certificate,
        fingerprint=found.fingerprint,
        protected=found.protected,
        compared=_compared(profile, mechanism, epsilon, weights) if compare else {},
        per_record=tuple(found.per_record.top(10)),
        notes=found.notes,
        seconds=found.seconds,
    )


def _weights(model: Model, mechanism: Laplace | Thresholdout) -> Vector:
    """Return Δ_j / max Δ for every node, 0 for latents."""
    if isinstance(mechanism.sensitivity, Sensitivities):
        deltas = alpha_vector(model, mechanism.sensitivity, "sensitivity")
        top = float(deltas.max())
        if top <= 0.0:
            raise InvalidArgument("sensitivity: no record of the model has a sensitivity above 0")
        return deltas / top
    return alpha_vector(model, 1.0)


def _first_that_passes(
    profile: LeakageProfile, mechanism: Laplace | Thresholdout, epsilon: float, s: float
) -> tuple[float, Leakage]:
    """Return a scale near α = s whose own cost, rounded up, converts to at most ε."""
    sigma = mechanism.scale(s)
    for k in range(60):
        found = profile.leakage(mechanism.dp_epsilon(sigma))
        if found.epsilon <= epsilon:
            return sigma, found
        sigma *= 1.0 + 2.0 ** (k - 50)
    raise NoCertificate(f"no scale near {sigma:.6g} passed its certificate for ε = {epsilon}")


def _compared(
    profile: LeakageProfile, mechanism: Laplace | Thresholdout, epsilon: float, weights: Vector
) -> dict[str, float]:
    """Return the scales of independent records, group privacy, and the published formula."""
    compared = {"independent": mechanism.scale(epsilon / heaviest(profile.units, profile.model, weights))}
    for name in ("group", "published"):
        try:
            other = analyze(
                profile.model, method=name, adversary=profile.adversary, time_limit=5.0, **profile.protection
            )
            compared[name] = mechanism.scale(other.scale(epsilon, weights, tolerance=1e-6))
        except QuiltdpError:
            continue  # not for this kind of model or unit
    return compared


def leakage_of(
    model: Model,
    mechanism: MechanismSpec,
    scale: float,
    *,
    method: str = "auto",
    adversary: str = "informed",
    protect: Protect = None,
    window: int = 1,
    time_limit: float = 30.0,
) -> Leakage:
    """Return the leakage of a mechanism used at a given noise scale: σ → ε.

    For Gaussian noise the answer is the ε at the specification's own δ.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> round(qd.leakage_of(m, qd.Laplace(sensitivity=1.0), scale=8.908005).epsilon, 5)
    1.0
    """
    check_mechanism(mechanism)
    number = positive_epsilon(scale, "scale")
    if isinstance(mechanism, Gaussian):
        check_gaussian(method, adversary)
        return gaussian_leakage(
            model,
            mechanism,
            number,
            adversary=adversary,
            protect=protect,
            window=window,
            time_limit=time_limit,
        )
    profile = analyze(
        model, method=method, adversary=adversary, protect=protect, window=window, time_limit=time_limit
    )
    return profile.leakage(mechanism.dp_epsilon(number))


def _gaussian(
    model: Model,
    epsilon: float,
    mechanism: Gaussian,
    adversary: str,
    protect: Protect,
    window: int,
    time_limit: float,
) -> Calibration:
    found = smallest_std(model, epsilon, mechanism, protect=protect, window=window, time_limit=time_limit)
    return Calibration(
        sigma=found.gaussian_std,
        epsilon=epsilon,
        dp_epsilon=None,
        leakage=epsilon,
        mechanism=mechanism,
        adversary=adversary,
        method="swing",
        binding=Binding(found.unit, epsilon, "swing"),
        certificate=Certificate(
            "certified bound", f"δ ≤ {found.delta:.3g} at ε = {epsilon:g} from group profiles and swings"
        ),
        fingerprint=model.fingerprint,
        delta=mechanism.delta,
        protected=found.protected,
        compared=found.compared,
        notes=("per-unit values are δ's: every unit has ε at the stated δ",),
    )

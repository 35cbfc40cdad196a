"""Calibration: the noise that is enough, with its reasons.

:func:`calibrate` finds the smallest noise scale whose *own* certificate passes: the DP cost of the
mechanism at that scale is converted to leakage, rounded up, and compared with the target.
:func:`~.recheck.leakage_of` is the other direction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from quiltdp import edges
from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.accountant.analysis import Solution, Stage
from quiltdp.accountant.bounds.contract import Vector
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.request import Options, Who, Work
from quiltdp.accountant.result import Binding, Certificate, jsonable
from quiltdp.accountant.units import (
    LARGEST,
    SMALLEST_TARGET,
    DpEpsilon,
    alphas,
    largest_unit_weight,
    positive_epsilon,
)
from quiltdp.errors import InvalidArgument, LimitReached, ModelTooWide, NoCertificate, QuiltdpError, option
from quiltdp.interface import any_model
from quiltdp.mechanisms import Mechanism, check_mechanism, mechanism_from_dict, repeat_mechanism
from quiltdp.mechanisms.sensitivities import apply_to_sensitivity, whole_at_least_one
from quiltdp.model import Model
from quiltdp.numbers import format_up, round_up_digits, scaled
from quiltdp.printable import json_text, printable
from quiltdp.work import LEVELS, ComparisonBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quiltdp.accountant.bracket import Bracket
    from quiltdp.accountant.composition import Concentrated

SCHEMA = "quiltdp/calibration"
VERSION = 2
READABLE = (1, VERSION)
"""Version 1 wrote the scale of one release as ``sigma``, whatever number of releases was asked for."""
LISTED = 10
"""How many records a calibration lists, those that leak most."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A noise scale with its reasons.

    Attributes
    ----------
    sigma
        The noise scale to draw with, for each of the :attr:`releases`: a Laplace scale, or the standard
        deviation for Gaussian noise (then also called ``gaussian_std``).
    epsilon, delta
        The guarantee for all releases together: (ε, δ) Bayesian DP; δ is 0 for Laplace and Thresholdout.
    dp_epsilon
        α, the plain DP cost of all releases at that scale: one number, or one per record; ``None`` for
        Gaussian.
    leakage
        The certified leakage of all releases at that scale, at most ``epsilon``.
    mechanism, adversary, method, binding, certificate, fingerprint, protected
        What it was made for, and how; ``mechanism.single()`` is that of each release.
    compared
        Scales that other answers would give: ``independent`` (too small on correlated data),
        ``group``, ``published``.
    published
        The record and the quilt (``separator``, ``nearby_records`` |N|, ``b``) that force
        ``compared["published"]``; ``None`` where it was not compared.
    disjoint
        How many releases read disjoint records: they are one vector, of which no record pays twice.
    """

    sigma: float
    epsilon: float
    dp_epsilon: float | Mapping[str, float] | None
    leakage: float
    mechanism: Mechanism
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
    origin: tuple[Model, Mapping[str, Any]] | None = field(default=None, repr=False)
    """The model and the options it was made from, for :meth:`report`; not part of the JSON."""
    disjoint: int = 1
    published: Binding | None = None

    def __post_init__(self) -> None:
        """Refuse a scale or target that is not positive and finite, and a leakage above the target."""
        positive_epsilon(self.sigma, "sigma")
        positive_epsilon(self.epsilon, "epsilon")
        if not 0.0 <= self.delta < 1.0:
            raise InvalidArgument(f"delta must be in [0, 1), not {self.delta!r}")
        if not self.leakage >= 0.0:
            raise InvalidArgument(f"leakage must be at least 0, not {self.leakage!r}")
        if self.leakage > self.epsilon:
            raise NoCertificate(f"the leakage {self.leakage} exceeds the target {self.epsilon}")
        if self.mechanism.pure:
            check_cost(self.mechanism, self.sigma, self.dp_epsilon)
        if (
            isinstance(self.dp_epsilon, bool)
            or self.mechanism.pure == (self.dp_epsilon is None)
            or (self.mechanism.pure and self.delta > 0.0)
        ):
            raise InvalidArgument("a calibration has a dp_epsilon and δ = 0, or no dp_epsilon and a δ")
        whole_at_least_one(self.disjoint, "releases")
        parse_adversary(self.adversary)
        for name in ("method", "fingerprint", "protected"):
            if not isinstance(getattr(self, name), str):
                raise InvalidArgument(f"{name} must be a text, not {getattr(self, name)!r}")
        object.__setattr__(self, "compared", MappingProxyType(dict(self.compared)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the constructor, so that it is checked wherever it arrives."""
        state = {f.name: getattr(self, f.name) for f in fields(self)} | {"compared": dict(self.compared)}
        return Calibration, tuple(state.values())

    @property
    def gaussian_std(self) -> float:
        """Another name for ``sigma`` where it is a standard deviation: for Gaussian noise only."""
        if self.mechanism.scale_name != "standard deviation":
            raise InvalidArgument(f"this calibration is for {self.mechanism.kind} noise: its scale is sigma")
        return self.sigma

    @property
    def releases(self) -> int:
        """How many releases share the guarantee, each with noise of scale ``sigma``."""
        return self.mechanism.releases * self.disjoint

    def concentrated(self) -> Concentrated:
        """Return zCDP and Rényi DP of one release and of all: :func:`~.composition.concentrated`."""
        from quiltdp.accountant.composition import concentrated

        return concentrated(self)

    @property
    def each(self) -> str:
        """The words that follow σ where it is that of each of several releases."""
        kind = "releases on disjoint records" if self.disjoint > 1 else "releases"
        return f" for each of {self.releases:,} {kind}" if self.releases > 1 else ""

    def __str__(self) -> str:
        """Read as a short paragraph."""
        promise = f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")
        return "\n".join(
            [
                f"σ = {format_up(self.sigma)}{self.each} ({self.mechanism.scale_name}) for {promise}"
                f" against the {self.adversary} adversary",
                f"  mechanism  {self.mechanism}",
                f"  binding    {self.binding}",
                f"  certified  {self.certificate}",
                *(f"  note       {printable(n)}" for n in self.notes),
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
            "releases": {
                "count": self.releases,
                "disjoint": self.disjoint > 1,
                "sigma": self.sigma,
                "sigma_of_one_alone": self.mechanism.equivalent_scale(self.sigma),
            },
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
            "published": None if self.published is None else self.published.to_dict(),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return one JSON object with stable, versioned keys."""
        return json_text(jsonable(self.to_dict()), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read back what :meth:`to_json` wrote; refuse what is no calibration or of an unknown version."""
        try:
            d = json.loads(text, parse_constant=_refuse_constant)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"the calibration is not JSON: {error}") from None
        if not isinstance(d, dict) or d.get("schema") != SCHEMA:
            raise InvalidArgument(f"this is not a calibration: no key 'schema' with value {SCHEMA!r}")
        if d.get("version") not in READABLE or isinstance(d["version"], bool):
            known = " and ".join(map(str, READABLE))
            raise InvalidArgument(f"calibration version {d.get('version')!r} is not known, only {known}")
        try:
            if not all(isinstance(note, str) for note in d["notes"]):
                raise TypeError("notes")
            mechanism, notes = mechanism_from_dict(d["mechanism"]), tuple(d["notes"])
            count, apart = mechanism.releases, 1
            if d["version"] > 1:
                apart = d["releases"]["count"] // count if d["releases"]["disjoint"] else 1
            elif (asked := d.get("releases", {"count": count})["count"]) != count:
                notes += (f"σ is that of one release: this file, of version 1, was made for {asked}",)
            found = cls(
                sigma=_json_number(d["sigma"]),
                epsilon=_json_number(d["epsilon"]),
                dp_epsilon=d["dp_epsilon"],
                leakage=_json_number(d["leakage"]),
                mechanism=mechanism,
                adversary=d["adversary"],
                method=d["method"],
                binding=Binding.from_dict(d["binding"]),
                certificate=Certificate.from_dict(d["certificate"]),
                fingerprint=d["fingerprint"],
                delta=_json_number(d["delta"]),
                protected=d["protected"],
                compared={k: float(v) for k, v in d["compared"].items()},
                per_record=tuple((str(n), float(v)) for n, v in d["per_record"]),
                notes=notes,
                disjoint=apart,
                published=Binding.from_dict(d["published"]) if d.get("published") else None,
            )
            told = found.to_dict()["releases"]
            for name in ("count", "disjoint", "sigma") if d["version"] > 1 else ():
                if d["releases"][name] != told[name]:
                    raise ValueError(f"the {name} of its releases: {d['releases'][name]!r}")
            return found
        except QuiltdpError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"the calibration lacks or garbles {error}") from None

    def bracket(self, work: Work = "normal") -> Bracket:
        """Return what is certified beside what an attack attains: :func:`~.bracket.bracket_of`."""
        from quiltdp.accountant.bracket import bracket_of

        return bracket_of(self, work)

    def to_opendp(self) -> Any:
        """Return an OpenDP measurement that adds the noise of one release to one number.

        OpenDP's own privacy map then tells the *plain* DP cost, α = Δ/σ for Laplace: the certified leakage
        is the calibration's, not OpenDP's.  Thresholdout is no single release: it is refused.
        """
        return self.mechanism.single().to_opendp(self.sigma)

    def to_dp_event(self) -> Any:
        """Return the ``dp_accounting`` event of one release at this scale.

        The sensitivity is that of *replacing* a record: use the accountant with its own default neighbours,
        which shift the query by one sensitivity.  Compose events first, then convert once.
        """
        return self.mechanism.single().to_dp_event(self.sigma)

    def _repr_html_(self) -> str:
        """Show in a notebook."""
        told = [
            ("mechanism", str(self.mechanism)),
            ("adversary", self.adversary),
            ("binding", str(self.binding)),
        ]
        title = (
            f"σ = {format_up(self.sigma)}{self.each} ({self.mechanism.scale_name}) for ε = {self.epsilon:g}"
        )
        return str(edges.leakage_table(title, told, self.per_record))

    def report(self, path: Any, *, title: str = "", executor: Executor | None = None) -> None:
        """Write this answer as one self-contained page: reasons, comparison, every record.

        With an ``executor`` what stands beside the answer is analysed there, with the same numbers.

        Raises
        ------
        InvalidArgument
            If this calibration was read from a file, which holds no model.
        """
        if self.origin is None:
            raise InvalidArgument(
                "this calibration was read from a file: calibrate the model again to report it"
            )
        model, options = self.origin
        edges.write_report(self, path, model, options=options, name=title, executor=executor)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw this scale beside what other answers would give; return matplotlib axes."""
        return edges.plot_calibration(self, ax=ax)


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number there")


def _json_number(value: object) -> float:
    """Return a number of a JSON file: what is written in quotes, true and false are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number: {value!r}")
    return float(value)


@any_model
def calibrate(
    model: Model,
    epsilon: float,
    mechanism: Mechanism,
    *,
    releases: int = 1,
    disjoint: bool = False,
    method: str = "auto",
    adversary: Who = "informed",
    compare: bool = True,
    **options: Unpack[Options],
) -> Calibration:
    """Return the smallest noise scale certified to leak at most ``epsilon`` about any unit.

    Parameters
    ----------
    model
        The model of the correlation.
    epsilon
        The Bayesian DP target.
    mechanism
        :class:`Laplace`, :class:`Gaussian` or :class:`Thresholdout`, with its sensitivity: that of one
        release.
    releases
        How many equal releases share ε; ``sigma`` is the scale of each.  On the *same* records costs add
        up: α for pure DP, so that σ grows with the number of releases, and (Δ/σ)² for Gaussian noise, so
        that it grows with its root.
    disjoint
        No record is read by two of the releases: they are one vector, no record pays twice, and σ is that
        of one (the model must be that of all the records together).
    method, adversary, protect, window, work, time_limit, memory_limit, progress, executor
        As for :func:`quiltdp.leakage`.
    compare
        Also tell what independent records, group privacy and the published lemma would give.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0))
    >>> round(cal.sigma, 3), cal.binding.method, round(cal.compared["group"], 1)
    (8.653, 'chain', 100.0)
    >>> year = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0), releases=12)
    >>> round(year.sigma, 3), year.releases
    (103.835, 12)
    """
    target = positive_epsilon(epsilon, "epsilon", least=SMALLEST_TARGET)
    check_mechanism(mechanism)
    if disjoint:
        apart = whole_at_least_one(releases, "releases")
    else:
        mechanism, apart = repeat_mechanism(mechanism, releases), 1
    search = {"method": method, "adversary": adversary, **options}
    pure = mechanism if mechanism.pure else mechanism.as_pure()
    found = [] if mechanism.pure else [_calibrate_approximate(model, target, mechanism, apart, **search)]
    if pure is not None and (not found or method == "auto"):  # the same noise with δ = 0 may need less of it
        profile = LeakageProfile(model, prices=pure.prices(model), **search)
        found.append(calibrate_profile(profile, target, pure, compare=compare, disjoint=apart))
    return min(reversed(found), key=lambda calibration: calibration.sigma)


def calibrate_profile(
    profile: LeakageProfile,
    epsilon: float,
    mechanism: Mechanism,
    *,
    compare: bool = True,
    disjoint: int = 1,
) -> Calibration:
    """Calibrate from a profile that was made before (several targets, one analysis)."""
    weights = _sensitivity_weights(profile.model, mechanism)
    sigma, solution, stage = smallest_noise(profile, epsilon, mechanism)
    check_scale(sigma, epsilon)
    found = profile.explain(profile.largest(solution, stage, LISTED), stage, dp_cost_at(mechanism, sigma))
    compared, published, left_out = (
        _comparison_scales(profile, mechanism, epsilon, weights) if compare else ({}, None, ())
    )
    made = Calibration(
        sigma=sigma,
        epsilon=epsilon,
        dp_epsilon=found.dp_epsilon,
        leakage=found.epsilon,
        mechanism=mechanism,
        adversary=found.adversary,
        method=found.method,
        binding=found.binding,
        certificate=found.certificate,
        fingerprint=found.fingerprint,
        protected=found.protected,
        compared=compared,
        per_record=tuple(found.per_record.top(LISTED)),
        notes=(*found.notes, *left_out),
        origin=(profile.model, profile.request.repeatable),
        disjoint=disjoint,
        published=published,
    )
    return profile.require_complete(made)


def smallest_noise(
    profile: LeakageProfile, epsilon: float, mechanism: Mechanism
) -> tuple[float, Solution, Stage]:
    """Return the smallest noise scale whose own cost, rounded up, leaks at most ε, and how it was found."""

    def noise_scale(s: float) -> float:
        return round_up_digits(mechanism.scale(s))

    def alphas_at(s: float) -> Vector:
        return alphas(profile.model, dp_cost_at(mechanism, noise_scale(s)))

    solution, stage = profile.search(alphas_at, epsilon, _sensitivity_weights(profile.model, mechanism))
    return noise_scale(solution.x), solution, stage


def check_cost(spec: Mechanism, sigma: float, stated: object) -> None:
    """Refuse a scale that costs more than the α that was certified: one of the two was changed."""
    cost = spec.dp_epsilon(sigma)
    if isinstance(cost, Mapping):
        certified = stated if isinstance(stated, Mapping) else {}
        odd = next((n for n, a in cost.items() if not a <= certified.get(n, -1.0)), None)
        if odd is not None:
            raise NoCertificate(f"sigma = {sigma:.6g} costs record {odd!r} more than was certified")
    elif not isinstance(stated, (int, float)) or not cost <= stated:
        raise NoCertificate(f"sigma = {sigma:.6g} costs α = {cost:.6g}, more than the certified {stated!r}")


def check_scale(sigma: float, epsilon: float) -> None:
    """Refuse a target that asks for more noise than numbers can hold."""
    if not sigma <= LARGEST:
        raise InvalidArgument(
            f"{option('epsilon')} {epsilon:g} needs noise of scale {sigma:.3g}, the limit is {LARGEST:g}:"
            f" allow more leakage, or measure in a larger unit so that {option('sensitivity')} is smaller"
        )


def dp_cost_at(mechanism: Mechanism, sigma: float) -> DpEpsilon:
    """Return α at a noise scale, rounded up to the digits that people get."""
    return apply_to_sensitivity(mechanism.dp_epsilon(sigma), round_up_digits)


def _sensitivity_weights(model: Model, mechanism: Mechanism) -> Vector:
    """Return Δ_j / max Δ for every node, 0 for latents."""
    if isinstance(mechanism.deltas, Mapping):
        deltas = alphas(model, mechanism.deltas, "sensitivity")
        top = float(deltas.max())
        if top <= 0.0:
            raise InvalidArgument("sensitivity: no record of the model has a sensitivity above 0")
        return deltas / top
    return alphas(model, 1.0)


def _comparison_scales(
    profile: LeakageProfile, mechanism: Mechanism, epsilon: float, weights: Vector
) -> tuple[dict[str, float], Binding | None, tuple[str, ...]]:
    """Return the scales of independent records, group privacy and the published lemma, its quilt, and notes.

    The published formula gets the smallest work budget, no more work than such an answer takes, and what is
    left of the answer's own limits; where they are reached, the whole answer is a partial one.
    """
    budget = ComparisonBudget(**LEVELS["quick"].to_dict())
    alone = epsilon / largest_unit_weight(profile.units, profile.model, weights)
    compared, notes = {"independent": round_up_digits(mechanism.scale(alone))}, []
    published = None
    for name in ("group", "published"):
        other = profile.with_method(name, budget)
        try:
            solution, _ = other.search(lambda s: scaled(weights, s), epsilon, weights, tolerance=1e-6)
            compared[name] = round_up_digits(mechanism.scale(other.require_complete(solution.x)))
            published = other.binding(solution.found)[0] if name == "published" else None
        except LimitReached:
            notes.append(f"a limit was reached before the answer was compared with {name!r}")
            profile.reached = profile.reached or notes[-1]
        except ModelTooWide as error:
            asked = f"method={name!r} (--method {name}) asks for it alone"
            notes.append(f"not compared with {name!r}: {error.reason}; {asked}")
        except QuiltdpError:
            continue  # not for this kind of model or unit
    return compared, published, tuple(notes)


def _calibrate_approximate(
    model: Model, epsilon: float, mechanism: Mechanism, disjoint: int, **options: Any
) -> Calibration:
    from quiltdp.accountant.approximate import smallest_scale

    analysis, sigma, found, stage = smallest_scale(model, epsilon, mechanism, **options)
    check_scale(sigma, epsilon)
    binding = replace(analysis.binding(found)[0], epsilon=epsilon, witness={})
    made = Calibration(
        sigma=sigma,
        epsilon=epsilon,
        dp_epsilon=None,
        leakage=epsilon,
        mechanism=mechanism,
        adversary=analysis.adversary.name,
        method=binding.method,
        binding=binding,
        certificate=analysis.statement(found, stage),
        fingerprint=model.fingerprint,
        delta=mechanism.target_delta,
        protected=analysis.units.kind,
        compared=analysis.compared(mechanism, epsilon),
        notes=("per-unit values are δ's: every unit has ε at the stated δ", *analysis.notes()),
        origin=(model, analysis.request.repeatable),
        disjoint=disjoint,
    )
    return analysis.require_complete(made)

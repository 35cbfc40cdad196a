"""The noise that is enough for a whole panel, and the table released with it.

One σ, or one per locus for the least total error; counts at every locus with secure noise, in the columns
PLINK users know.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary, parse_adversary
from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.result import Binding, Certificate
from quiltdp.accountant.shared_work import WorkDone
from quiltdp.domains.pedigree.genotypes import GenotypeCounts
from quiltdp.domains.pedigree.panel import PanelProfile
from quiltdp.domains.pedigree.queries import QUERIES
from quiltdp.domains.usefulness import judge_noise, judge_table
from quiltdp.errors import InvalidArgument, NoCertificate, option
from quiltdp.mechanisms import Laplace
from quiltdp.mechanisms.laplace import LaplaceMechanism
from quiltdp.numbers import round_up_digits, up
from quiltdp.printable import json_text, printable
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.mechanisms.noise import NoiseSource

Vector = NDArray[np.float64]

SPLITS = ("equal", "least-error")
_CLOSE = 1e-3  # a σ that leaves less of ε than this unused is not searched further


@dataclass(frozen=True, eq=False)
class PanelCalibration:
    """A noise scale for every locus, with its reasons.

    Attributes
    ----------
    sigma
        The Laplace scale at a locus of weight 1.
    weights
        For every locus, its scale in units of ``sigma``: all 1 unless the error was minimised.
    epsilon, adversary, unit
        The target, against whom, and what it is about.
    leakage
        The certified leakage of every person at this noise.
    binding
        Who forces it.
    done
        How far searches went: the work budget, and the stage where a limit was reached.
    """

    profile: PanelProfile
    sigma: float
    weights: Vector
    epsilon: float
    adversary: str
    unit: str
    leakage: Mapping[str, float]
    done: WorkDone = field(default_factory=lambda: WorkDone(WorkBudget()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Where a limit was reached: after which stage, and how to get the same answer again."""
        return self.done.notes

    def __post_init__(self) -> None:
        """Refuse a leakage above the target."""
        if not max(self.leakage.values()) <= self.epsilon:
            raise NoCertificate(f"the leakage {max(self.leakage.values())} exceeds the target {self.epsilon}")

    @property
    def sigmas(self) -> Vector:
        """The Laplace scale of every locus."""
        return np.asarray(self.sigma * self.weights)

    @property
    def binding(self) -> str:
        """The person with the largest leakage, the first of several."""
        return max(self.leakage, key=self.leakage.__getitem__)

    @property
    def dp_epsilon(self) -> float:
        """α of the whole release for one person (per locus: at one locus), rounded up."""
        if self.per_locus:
            return up(max(k.query.sensitivity for k in self.profile.kinds) / self.sigma)
        parts = (
            float((kind.query.sensitivity / self.weights[kind.loci]) @ kind.counts)
            for kind in self.profile.kinds
        )
        return up(math.fsum(parts) / self.sigma, 4096.0)

    @property
    def compared(self) -> dict[str, float]:
        """One σ for all loci if nobody had relatives (too little noise), and by group privacy."""
        kinds = self.profile.kinds
        alone = [(1 if self.per_locus else kind.size) * kind.query.sensitivity for kind in kinds]
        own = max(alone) if self.per_locus else math.fsum(alone)
        group = _group_privacy_sigma(self.profile, self.epsilon, per_locus=self.per_locus)
        return {"independent": round_up_digits(own / self.epsilon), "group": round_up_digits(group)}

    @property
    def per_locus(self) -> bool:
        """Whether the target holds for each locus alone, not for a person's loci together."""
        return "one locus" in self.unit

    @property
    def useless(self) -> bool:
        """Whether the noise hides what a reader could see; see :mod:`quiltdp.domains.usefulness`."""
        profile = self.profile
        return judge_noise(float(self.sigmas.max()), profile.numbers, profile.largest_count) is not None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        profile = self.profile
        scales = self.sigmas
        return {
            "sigma": self.sigma,
            "smallest_sigma": float(scales.min()),
            "largest_sigma": float(scales.max()),
            "epsilon": self.epsilon,
            "adversary": self.adversary,
            "unit": self.unit,
            "query": profile.query,
            "loci": profile.panel.loci,
            "sensitivity": profile.sensitivity,
            "sensitivity_unit": profile.unit,
            "largest_count": profile.largest_count,
            "dp_epsilon": self.dp_epsilon,
            "leakage": max(self.leakage.values()),
            "binding": self.binding,
            "fingerprint": profile.fingerprint,
            **self.done.to_dict(),
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return one JSON object."""
        return json_text(self.to_dict(), indent=2)


def calibrate_panel(
    profile: PanelProfile,
    epsilon: float,
    *,
    adversary: str | Adversary = "informed",
    split: str = "equal",
    per_locus: bool = False,
) -> PanelCalibration:
    """Return the smallest noise found that is certified to leak at most ``epsilon`` about any person.

    Parameters
    ----------
    profile
        From :func:`~quiltdp.domains.pedigree.panel.analyze_panel`.
    epsilon
        The leakage allowed, for all loci of a person together.
    adversary
        ``informed``, ``prior`` or who knows some people, by name or as an object.
    split
        ``equal``: one σ for all loci.  ``least-error``: σ_l in proportion to the cube root of what a
        unit of α costs at locus l, which makes the sum of squared errors least: minimise Σ σ_l² under
        Σ s_l / σ_l ≤ ε.
    per_locus
        Let ``epsilon`` be for each locus alone; what a person loses at all loci is then the sum.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> from quiltdp.domains.pedigree.panel import analyze_panel
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> profile = analyze_panel(trio, {"rs1": 0.1, "rs2": 0.3, "rs3": 0.3})
    >>> cal = calibrate_panel(profile, epsilon=1.0)
    >>> round(cal.sigma, 2), cal.unit, cal.useless
    (12.0, 'one person, all 3 loci together', True)
    >>> round(calibrate_panel(profile, 1.0, per_locus=True).sigma, 2)
    4.0
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise InvalidArgument(f"{option('epsilon')} must be a finite number above 0, not {epsilon!r}")
    who = parse_adversary(adversary)
    if split not in SPLITS:
        raise InvalidArgument(f"{option('split')} must be one of {', '.join(SPLITS)}, not {split!r}")
    if per_locus and split != "equal":
        raise InvalidArgument("per locus every locus has the noise it needs: leave the split equal")
    unit = "one person at one locus" if per_locus else profile.unit

    def find_noise() -> PanelCalibration:
        weights = np.ones(len(profile.panel))
        enough = _group_privacy_sigma(profile, epsilon, per_locus=per_locus)
        if split == "least-error":
            for kind in profile.kinds:
                weights[kind.loci] = np.cbrt(kind.leakage_slopes(who, 1.0 / enough))
            weights /= float(np.average(weights, weights=profile.panel.counts))

        def leakage(sigma: float) -> Vector:
            if per_locus:
                return profile.leakage_per_locus(sigma, who)
            return profile.leakage(sigma, who, weights)

        sigma, leakages = _smallest_certified_sigma(leakage, epsilon, enough / float(weights.min()))
        people = dict(zip(profile.people, leakages.tolist(), strict=True))
        return PanelCalibration(profile, sigma, weights, epsilon, who.name, unit, people, profile.done)

    return profile.answer(find_noise)


def _group_privacy_sigma(profile: PanelProfile, epsilon: float, *, per_locus: bool) -> float:
    """Return a σ that is surely enough: the whole family's sensitivity over ε."""
    totals = [(1 if per_locus else kind.size) * float(kind.whole.max()) for kind in profile.kinds]
    return up((max(totals) if per_locus else math.fsum(totals)) / epsilon, 4096.0)


def _smallest_certified_sigma(
    leakage: Callable[[float], Vector], epsilon: float, enough: float
) -> tuple[float, Vector]:
    """Return the smallest σ that passed its own check, and the leakages there; group privacy's is enough.

    Leakage is nearly proportional to 1/σ, so a few steps do.
    """
    best: tuple[float, Vector] | None = None
    sigma = enough
    for _ in range(40):
        sigma = round_up_digits(sigma)
        values = leakage(sigma)
        worst = float(values.max())
        if worst <= epsilon:
            if best is None or sigma < best[0]:
                best = (sigma, values)
            if worst >= epsilon * (1.0 - _CLOSE):
                return best
        elif best is not None and sigma >= best[0] * (1.0 - _CLOSE):
            return best
        step = sigma * worst / epsilon * (1.0 + 1e-5)
        sigma = step if best is None or step < best[0] else math.sqrt(sigma * best[0])
    if best is None:
        raise NoCertificate("no noise passed its own certificate, not even that of group privacy")
    return best


# -- the release: as a ledger takes it, and as a table -------------------------------------------------


def to_calibration(panel: PanelCalibration) -> Calibration:
    """Return the calibration that a ledger can be bound to: the whole vector as one release.

    Locus l is released as count_l / weight_l, so that all numbers get the same noise σ; one person moves
    that vector by Σ_l Δ_l / weight_l.
    """
    profile = panel.profile
    spec = _laplace_mechanism(panel)
    statement = (
        f"leakages of {profile.panel.loci:,} independent loci add; {panel.unit}; certified bounds per"
        f" frequency, rounded up; for the {profile.query} only"
    )
    return Calibration(
        sigma=panel.sigma,
        epsilon=panel.epsilon,
        dp_epsilon=spec.dp_epsilon(panel.sigma),
        leakage=max(panel.leakage.values()),
        mechanism=spec,
        adversary=panel.adversary,
        method="panel",
        binding=Binding(panel.binding, panel.leakage[panel.binding], "panel"),
        certificate=Certificate("certified bound", statement, panel.done.work.to_dict(), panel.done.stage),
        fingerprint=_release_fingerprint(panel),
        protected=panel.unit,
        notes=(*profile.assumed, *panel.notes),
    )


def _laplace_mechanism(panel: PanelCalibration) -> Laplace:
    """Return how far the protected unit, one person or one person at one locus, moves the vector."""
    parts = [k.query.sensitivity_per_locus / panel.weights[k.loci] for k in panel.profile.kinds]
    if panel.per_locus:
        return Laplace(round_up_digits(max(float(p.max()) for p in parts)))
    return Laplace(round_up_digits(sum(float(p.sum()) for p in parts)))


def _release_fingerprint(panel: PanelCalibration) -> str:
    """Return the family's, the loci's and, where they differ, the weights': costs add only at equal ones."""
    own = panel.profile.fingerprint
    if np.ptp(panel.weights) == 0.0:
        return own
    return hashlib.sha256(own.encode() + panel.weights.astype("<f8").tobytes()).hexdigest()


def noisy_counts(
    panel: PanelCalibration,
    genotypes: GenotypeCounts,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    noise: NoiseSource | None = None,
) -> NDArray[np.float64]:
    """Return the numbers of the query at every locus with Laplace noise; loci × cells.

    A ledger is charged, durably, before any noise is drawn.
    """
    true = genotypes.answer(panel.profile.query)
    if len(true) != len(panel.profile.panel):
        raise InvalidArgument(f"genotypes of {len(true)} loci for a panel of {len(panel.profile.panel)}")
    spec = _laplace_mechanism(panel)
    # rounding is charged at every number by itself, to the least change of it: all of them together
    smallest = true.size / float(panel.weights.max())  # counts are whole numbers
    mechanism = LaplaceMechanism(spec, panel.sigma, dimension=true.size, smallest=smallest, noise=noise)
    weights = panel.weights[:, None]
    noisy = mechanism.release((true / weights).ravel(), ledger=ledger, label=label)
    return np.asarray(np.asarray(noisy).reshape(true.shape) * weights)


def release_table(
    panel: PanelCalibration, noisy: NDArray[np.float64], *, people: int, notes: Sequence[str] = ()
) -> str:
    """Return the released table as text: #CHROM ID REF ALT, the noisy numbers, OBS_CT and SIGMA.

    OBS_CT is what everybody knows, two alleles for each person of the study (one for a man on the X),
    not how many were called: that would be a fact about the data.  A line of its own says what a
    missing call is.
    """
    profile = panel.profile
    loci = profile.panel
    above, said = judge_table(noisy, panel.sigmas[:, None])
    notes = (*notes, said if above else f"{said}: nothing in it can be told from noise")
    described: dict[str, Any] = {**panel.to_dict(), "people": people, "notes": notes}
    observed = np.full(len(loci), people)
    if profile.query == "allele-count":
        for kind in profile.kinds:
            persons = kind.model.people  # behind each record
            observed[kind.loci] = sum((len(t) - 1) * persons.get(r, 1) for r, t in kind.query.terms.items())
    head = ["#CHROM", "ID", "REF", "ALT", *QUERIES[profile.query].columns, "OBS_CT", "SIGMA"]
    missing = "in none of the columns" if profile.query == "genotype-histogram" else "counted as REF"
    lines = [
        f"##quiltdp={json_text(described)}",
        f"##missing_calls=a call that is missing is {missing}; OBS_CT is of everybody in the study, called or"
        " not: how many were called would be a fact about the data",
        "\t".join(head),
    ]
    described_loci = zip(loci.chromosome, loci.names, loci.reference, loci.alternative, strict=True)
    for cells, values, count, sigma in zip(described_loci, noisy, observed, panel.sigmas, strict=True):
        numbers = [*(f"{v:.3f}" for v in values), str(count), f"{sigma:.12g}"]
        lines.append("\t".join([*map(printable, cells), *numbers]))
    return "\n".join(lines) + "\n"

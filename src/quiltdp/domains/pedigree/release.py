"""The noisy table itself: counts at every locus with secure noise, in the columns PLINK users know."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.result import Binding, Certificate
from quiltdp.domains.pedigree.genotypes import GenotypeCounts
from quiltdp.domains.pedigree.panel_calibration import PanelCalibration
from quiltdp.domains.pedigree.queries import QUERIES
from quiltdp.domains.usefulness import judge_table
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import Laplace
from quiltdp.numbers import round_up_digits
from quiltdp.printable import json_text, printable

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.mechanisms.noise import NoiseSource

__all__ = ["noisy_counts", "release_table", "to_calibration"]


def to_calibration(panel: PanelCalibration) -> Calibration:
    """Return the calibration that a ledger can be bound to: the whole vector as one release.

    Locus l is released as count_l / weight_l, so that all numbers get the same noise σ; one person moves
    that vector by Σ_l Δ_l / weight_l.
    """
    profile = panel.profile
    spec = _spec(panel)
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
        fingerprint=_fingerprint(panel),
        protected=panel.unit,
        notes=(*profile.assumed, *panel.notes),
    )


def _spec(panel: PanelCalibration) -> Laplace:
    """Return how far the protected unit, one person or one person at one locus, moves the vector."""
    parts = [k.query.sensitivity_per_locus / panel.weights[k.loci] for k in panel.profile.kinds]
    if panel.per_locus:
        return Laplace(round_up_digits(max(float(p.max()) for p in parts)))
    return Laplace(round_up_digits(sum(float(p.sum()) for p in parts)))


def _fingerprint(panel: PanelCalibration) -> str:
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
    from quiltdp.mechanisms.laplace import LaplaceMechanism

    true = genotypes.answer(panel.profile.query)
    if len(true) != len(panel.profile.panel):
        raise InvalidArgument(f"genotypes of {len(true)} loci for a panel of {len(panel.profile.panel)}")
    spec = _spec(panel)
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

"""The noisy table itself: counts at every locus with secure noise, in the columns PLINK users know."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.mechanisms import Laplace
from quiltdp.accountant.result import Binding, Certificate
from quiltdp.domains.pedigree.genotypes import GenotypeCounts, missing_calls, released_columns
from quiltdp.domains.pedigree.panel_calibration import PanelCalibration
from quiltdp.errors import BudgetSpent, InvalidArgument
from quiltdp.io.replace import check_writable
from quiltdp.numbers import digits_up
from quiltdp.printable import json_text, printable

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.mechanisms.noise import NoiseSource

__all__ = ["check_ledger", "noisy_counts", "open_ledger", "release_table", "to_calibration"]


def to_calibration(panel: PanelCalibration) -> Calibration:
    """Return the calibration that a ledger can be bound to: the whole vector as one release.

    Locus l is released as count_l / weight_l, so that all numbers get the same noise σ; one person moves
    that vector by Σ_l Δ_l / weight_l.
    """
    profile = panel.profile
    spec = Laplace(digits_up(_total_sensitivity(panel)))
    statement = (
        f"leakages of {profile.panel.loci:,} independent loci add; {panel.unit}; certified bounds per"
        " frequency, rounded up"
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
        fingerprint=profile.fingerprint,
        protected=panel.unit,
        notes=(*profile.assumed, *panel.notes),
    )


def _total_sensitivity(panel: PanelCalibration) -> float:
    parts = [
        float((kind.query.sensitivity_per_locus / panel.weights[kind.loci]).sum())
        for kind in panel.profile.kinds
    ]
    return sum(parts)


def check_ledger(path: str | os.PathLike[str]) -> None:
    """Refuse a ledger that cannot pay for a release of all loci, before the long work begins.

    Such a release takes the whole budget, so a ledger with any charge cannot.  Whether the ledger belongs
    to this family and panel is known only when the noise is.

    Raises
    ------
    BudgetSpent
        Something is charged already.
    FileFormatError, InvalidArgument
        A new ledger cannot be made there; a ledger of a reusable holdout.
    """
    from quiltdp.accountant.ledger import Ledger

    if not os.path.lexists(path):
        check_writable(path)
        return
    ledger = Ledger.open(os.fspath(path))
    if ledger.settings.get("kind") == "thresholdout":
        raise InvalidArgument(f"{ledger.path}: this ledger belongs to a reusable holdout; ask through it")
    spent = ledger.head.spent
    if spent:
        raise BudgetSpent(
            f"{ledger.path}: a release of all loci needs the whole budget, and {min(float(spent), 1.0):.4g}"
            " of it is spent; what was released before stays charged"
        )


def open_ledger(path: str | os.PathLike[str], calibration: Calibration) -> Ledger:
    """Open the ledger of a calibration, or make it where there is none."""
    from quiltdp.accountant.ledger import Ledger

    if os.path.exists(path):
        return Ledger.open(os.fspath(path), calibration=calibration)
    return Ledger.create(os.fspath(path), calibration)


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
    spec = Laplace(digits_up(_total_sensitivity(panel)))
    mechanism = LaplaceMechanism(spec, panel.sigma, dimension=true.size, noise=noise)
    weights = panel.weights[:, None]
    noisy = mechanism.release((true / weights).ravel(), ledger=ledger, label=label)
    found: NDArray[np.float64] = np.asarray(noisy).reshape(true.shape) * weights
    return found


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
    described: dict[str, Any] = {**panel.to_dict(), "people": people, "notes": list(notes)}
    observed = np.zeros(len(loci), dtype=np.int64)
    for kind in profile.kinds:
        alleles = sum(len(t) - 1 for t in kind.query.terms.values()) if profile.query == "allele-count" else 0
        extra = sum((k - 1) * (len(kind.query.terms[r]) - 1) for r, k in kind.model.people.items())
        observed[kind.loci] = alleles + extra if profile.query == "allele-count" else people
    head = ["#CHROM", "ID", "REF", "ALT", *released_columns(profile.query), "OBS_CT", "SIGMA"]
    lines = [
        f"##quiltdp={json_text(described)}",
        f"##missing_calls={missing_calls(profile.query)}",
        "\t".join(head),
    ]
    sigmas = panel.sigmas
    for k, name in enumerate(loci.names):
        cells = [loci.chromosome[k], name, loci.reference[k], loci.alternative[k]]
        numbers = [f"{v:.3f}" for v in noisy[k]]
        lines.append("\t".join([*map(printable, cells), *numbers, str(observed[k]), f"{sigmas[k]:.12g}"]))
    return "\n".join(lines) + "\n"

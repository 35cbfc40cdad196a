"""``quiltdp pedigree --frequencies FILE``: all loci of a person together, and the noisy table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.cli.pedigree import Question
    from quiltdp.cli.release import ReleaseOptions
    from quiltdp.domains.accounts import Account
    from quiltdp.domains.pedigree import Pedigree
    from quiltdp.domains.pedigree.genotypes import GenotypeCounts
    from quiltdp.domains.pedigree.panel import PanelProfile
    from quiltdp.domains.pedigree.panel_calibration import PanelCalibration


def account_for_panel(
    payload: dict[str, Any],
    family: Pedigree,
    frequencies: Path,
    genetics: dict[str, Any],
    asked: Question,
    genotypes: Path | None,
    published: ReleaseOptions,
) -> None:
    """Read everything, then analyse, then prepare the release: what can fail fails first."""
    from quiltdp import parallel
    from quiltdp.cli.running import progress_bar
    from quiltdp.domains.pedigree.frequencies import read_frequencies
    from quiltdp.domains.pedigree.genotypes import count_genotypes
    from quiltdp.domains.pedigree.panel import analyze_panel
    from quiltdp.domains.pedigree.panel_calibration import calibrate_panel, to_calibration
    from quiltdp.domains.pedigree.people import study_members

    limits, adversary, per_locus = asked.limits, asked.adversary, asked.split == "per-locus"
    shared: dict[str, Any] = {"split": "equal" if per_locus else asked.split, "per_locus": per_locus}
    panel = read_frequencies(frequencies)
    counts = None
    if genotypes is not None:
        counts = count_genotypes(genotypes, panel, family, study_members(family, genetics.get("study")))
        kept = published.account([genotypes])
    with parallel.workers(asked.workers) as executor, progress_bar() as progress:
        how: dict[str, Any] = {"progress": progress, "executor": executor}
        how |= {"work": asked.work, "time_limit": limits.guard}
        profile = analyze_panel(family, panel, asked.query, **how, **genetics)
        payload["genetics"] = {k: v for k, v in profile.provenance.items() if k not in ("source", "loci")}
        payload["unit"] = "one person at one locus" if per_locus else profile.unit

        def calibrate_and_tabulate() -> tuple[dict[str, PanelCalibration], dict[str, Any]]:
            found: dict[str, PanelCalibration] = {}
            if asked.epsilon is not None:
                for a in ("informed", "prior"):
                    found[a] = calibrate_panel(profile, asked.epsilon, adversary=a, **shared)
            return found, _panel_and_people(profile, found, adversary, asked.dp_epsilon, per_locus=per_locus)

        found, told = limits.answer(lambda: profile.answer(calibrate_and_tabulate))  # one limit for all of it
        found = {a: replace(cal, done=profile.done) for a, cal in found.items()}
        payload |= told
        payload["panel"] |= {**profile.done.to_dict(), **{a: cal.to_dict() for a, cal in found.items()}}
        payload["notes"] = list(profile.notes)
        if counts is not None and limits.may_write():
            chosen = found[adversary]
            ask: Any = partial(calibrate_panel, profile, adversary=adversary, **shared)
            whole = published.whole_budget(
                kept, to_calibration(chosen), lambda total: to_calibration(ask(total))
            )
            payload["notes"] += list(counts.notes)
            payload["missing_calls"] = counts.missing
            payload["_release"] = partial(_publish_counts, chosen, counts, published, kept, whole)


def _panel_and_people(
    profile: PanelProfile,
    found: dict[str, PanelCalibration],
    adversary: str,
    dp_epsilon: float | None,
    *,
    per_locus: bool,
) -> dict[str, Any]:
    """Return both adversaries' leakage of every person at the noise of the chosen one."""
    from quiltdp.domains.pedigree.output import as_json, person_table

    panel: dict[str, Any] = {
        "loci": profile.panel.loci,
        "query": profile.query,
        "sensitivity": profile.sensitivity,
        "sensitivity_unit": profile.unit,
        "largest_count": profile.largest_count,
        "numbers": profile.numbers,
        "analysed_frequencies": sum(len(kind.nodes) for kind in profile.kinds),
    }
    if found:
        sigma, weights = found[adversary].sigma, found[adversary].weights
        panel |= found[adversary].compared
    elif dp_epsilon is not None:
        sigma, weights = profile.sensitivity / dp_epsilon, None
    else:
        return {"panel": panel}

    def leakage(who: str) -> Any:
        if found and who == adversary:
            return dict(found[who].leakage)
        values = profile.leakage_per_locus(sigma, who) if per_locus else profile.leakage(sigma, who, weights)
        return dict(zip(profile.people, values.tolist(), strict=True))

    both = {who: leakage(who) for who in ("informed", "prior")}
    panel["leakage"] = {
        "sigma": sigma, "adversary": adversary, **{who: max(v.values()) for who, v in both.items()}
    }  # fmt: skip
    words = "one locus" if per_locus else f"all {profile.panel.loci:,} loci"
    rows = person_table(profile.kinds[0].model, profile.family, both["informed"], both["prior"])
    rows = tuple(replace(r, locus=words) for r in rows)
    return {"panel": panel, "people": as_json(rows), "_rows": rows}


def _publish_counts(
    cal: PanelCalibration,
    counts: GenotypeCounts,
    published: ReleaseOptions,
    kept: Account | None,
    whole: Calibration,
) -> dict[str, Any]:
    """Charge, draw and write the noisy table; return what is told about it."""
    from quiltdp.domains.pedigree.panel_calibration import noisy_counts, release_table
    from quiltdp.domains.usefulness import judge_table

    notes = (*cal.profile.assumed, *cal.notes)
    told: dict[str, Any] = {}

    def draw(ledger: Ledger | None) -> str:
        noisy = noisy_counts(cal, counts, ledger=ledger, label=f"{cal.profile.query}, {cal.unit}")
        told["usefulness"] = judge_table(noisy, cal.sigmas[:, None])[1]
        return release_table(cal, noisy, people=counts.people, notes=notes)

    shape = counts.answer(cal.profile.query).shape
    rehearsal = release_table(cal, np.full(shape, -1e9), people=counts.people, notes=notes)
    return {**published.publish(kept, whole, draw, rehearsal), **told}

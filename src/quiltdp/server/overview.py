"""A study at a glance: what is promised, what is left, and a picture of the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quiltdp.numbers import format_down, format_up

if TYPE_CHECKING:
    from quiltdp.server.asking import Study

__all__ = ["answers_plot", "overview"]

_AGAINST = {
    "informed": "even knowing all other rows",
    "prior": "knowing the model of the rows and no row",
}


def overview(study: Study) -> dict[str, Any]:
    """Return what a member reads first, in plain words and numbers rounded towards privacy."""
    terms, settings, reading = study.ledger.terms, study.ledger.settings, study.ledger.odometer()
    remaining = reading.remaining or 0
    asked = f"{reading.asked} questions were asked"
    if reading.query_limit is not None:
        asked = f"{reading.asked} of {reading.query_limit} planned questions were asked"
    lost = f", {reading.lost} answers were charged and never told" if reading.lost else ""
    threshold, failure = (float.fromhex(settings[name]) for name in ("threshold", "failure"))
    return {
        "epsilon": format_up(terms.epsilon, 4),
        "against": _AGAINST.get(terms.adversary, f"adversary {terms.adversary}"),
        "budget": study.budget,
        "remaining": remaining,
        "left": f"{remaining} of {study.budget} answers left",
        "spent": format_up(float(reading.share), 4),
        "asked": f"{asked}{lost}.",
        "terms": [
            ("noise", f"σ = {format_up(terms.sigma, 4)}, threshold T = {format_down(threshold, 4)}"),
            ("error bounds", f"hold for all answers together with probability {1 - failure:.4g}"),
            ("protected", terms.protected),
            ("certified by", terms.method),
            ("model", f"{terms.fingerprint[:16]}…"),
        ],
    }


def answers_plot(study: Study, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a drawing (SVG) of the answers in [0, 1] in the order they were told, with error bars."""
    told = [line for line in reversed(lines) if line.get("value") is not None][-200:]
    if not told:
        return ""
    values = {entry.seq: entry.value or 0.0 for entry in study.ledger.entries()}  # before any range
    bounds = study.holdout.next_bounds(study.ledger.head)  # never smaller than those told before
    step = 600 / len(told)
    marks = []
    for k, line in enumerate(told):
        x, bound = 40 + step * (k + 0.5), bounds.get(line["source"], math.inf)
        top, middle, bottom = (
            150 - 130 * min(1.0, max(0.0, values[line["entry"]] + s * bound)) for s in (1, 0, -1)
        )
        marks.append(f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
        marks.append(f'<circle class="{line["source"]}" cx="{x:.1f}" cy="{middle:.1f}" r="3"/>')
    axes = "".join(
        f'<line class="axis" x1="40" x2="640" y1="{150 - 130 * v:.0f}" y2="{150 - 130 * v:.0f}"/>'
        f'<text x="8" y="{154 - 130 * v:.0f}">{v:g}</text>'
        for v in (0, 0.5, 1)
    )
    title = f"{len(told)} answers with error bars"
    return f'<svg viewBox="0 0 650 170" role="img" aria-label="{title}">{axes}{"".join(marks)}</svg>'

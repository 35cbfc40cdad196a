"""What ``quiltdp trace`` prints for people."""

from __future__ import annotations

import shlex
from typing import Any

from quiltdp.cli.release import show_account
from quiltdp.cli.show import say

__all__ = ["for_people"]


def for_people(facts: dict[str, Any]) -> None:
    """Print the diagnostics, then what was noticed, then what was written."""
    from quiltdp.cli.show import number, show_facts, show_line, show_table
    from quiltdp.domains.trace.units import many

    d, box = facts["diagnostics"], facts["bounding_box"]
    stretches = f"{facts['stretches']} stretch{'es' if facts['stretches'] > 1 else ''}"
    rows = [
        ("points", f"{facts['points']} of {facts['users']} user{'s' if facts['users'] > 1 else ''}"),
        (
            "area",
            f"latitude {box['south']:.4f} to {box['north']:.4f},"
            f" longitude {box['west']:.4f} to {box['east']:.4f}",
        ),
        ("cells", f"{d['states']} ({facts['cells']})"),
        (
            "steps",
            f"{facts['steps']} in {stretches}, {facts['unseen_steps']} without a point",
        ),
        ("transitions", f"{d['transitions']}, {100 * d['zero_fraction']:.1f} % of pairs never seen"),
        (
            "classes",
            f"{d['classes']}, the largest of {many(d['largest_class'], 'cell')}, period {d['period']}",
        ),
        ("dead ends", str(d["dead_ends"])),
        ("estimator", f"{facts['estimator']}, first step: {facts['initial']}"),
        ("spectral gap", f"{number(d['gap'])} (largest class {number(d['class_gap'])})"),
        *(
            (f"  with {name}", f"{number(gap['all_cells'])} (largest class {number(gap['largest_class'])})")
            for name, gap in facts["gap_by_estimator"].items()
            if name != facts["estimator"]
        ),
    ]
    show_facts(rows, title="Markov chain of a location trace")
    for note in (*facts["warnings"], *facts["notes"]):
        show_line(f"note: {note}")
    if "robust" in facts:
        _show_robust(facts["robust"], show_line, show_table, number, written="output" in facts)
    if "release" in facts:
        told = facts["release"]
        show_line(
            f"released {told['file']}: visits per cell with Laplace noise,"
            f" σ = {number(told['sigma'], 6, up=True)};"
            f" ε = {told['epsilon']:.6g} protects {told['protects']} against the {told['adversary']}"
            " adversary",
            style="bold green",
        )
        for note in told["notes"]:
            show_line(f"note: {note}")
        show_account(told)
    if "map" in facts:
        drawn = facts["map"]
        cost = (
            f"noise scale {number(drawn['sigma'], 6, up=True)},"
            f" dp_epsilon {number(drawn['sensitivity'] / drawn['sigma'], up=True)}"
            if drawn["sigma"] is not None
            else "true counts, no noise: not for publication"
        )
        show_line(f"wrote {drawn['file']} ({drawn['query']}, sensitivity {drawn['sensitivity']:g}; {cost})")
    if "output" in facts:
        show_line(f"wrote {facts['output']}; next, for visits per cell:")
        say(f"  quiltdp calibrate {shlex.quote(facts['output'])} --epsilon 1 --sensitivity 2")


def _show_robust(
    worst: dict[str, Any], show_line: Any, show_table: Any, number: Any, *, written: bool
) -> None:
    """Print the noise each estimator asks for."""
    rows = [
        (name, number(a, down=True), number(1.0 / a, up=True) if a else "∞")
        for name, a in worst["dp_epsilon_by_estimator"].items()
    ]
    if "dp_epsilon_region" in worst:
        a = worst["dp_epsilon_region"]
        region = f"region, {100 * worst['confidence']:g} % confidence"
        rows.append((region, number(a, down=True), number(1.0 / a, up=True)))
    what = "each step" if worst["window"] == 1 else f"any {worst['window']} steps in a row"
    show_table(
        ("model", "dp_epsilon", "noise per unit"),
        rows,
        title=f"What epsilon {worst['epsilon']:g} for {what} costs",
        right=("dp_epsilon", "noise per unit"),
    )
    wrote = "this one is written" if written else "-o FILE would write this one"
    show_line(f"worst estimator: {worst['worst_estimator']} ({wrote})")

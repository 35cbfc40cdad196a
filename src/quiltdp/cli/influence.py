"""``quiltdp influence MODEL --of A --on B,C --given D``: how strongly some nodes tell about another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load

if TYPE_CHECKING:
    from quiltdp.graph.quilt import Quilt
    from quiltdp.inference.witness import QuiltInfluence
    from quiltdp.model import Model

__all__ = ["by_use", "influence"]


def influence(
    model: str,
    *,
    of: str,
    on: str | None = None,
    given: str = "",
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    json: bool = False,
) -> None:
    """Show the conditional max-influence: how far the nodes seen can tell two values of a node apart.

    It is the largest ln P(seen | x, known) / P(seen | x', known) over all values and all pairs x, x' that
    are possible with what is known; inf if some outcome is possible under one value only.

    Release
    -------
    of : NODE
        The node under attack.
    on : NAMES
        The nodes seen, separated by commas; default: its Markov blanket.
    given : NAMES
        Nodes whose values are known already, separated by commas.

    Examples
    --------
    $ quiltdp influence models/asia.bif --of smoke --on bronc,lung
    $ quiltdp influence models/asia.bif --of lung --on xray --given either --json
    $ quiltdp influence models/alarm.bif --of HR
    """
    from quiltdp.graph.moral import moralize
    from quiltdp.inference.influence import max_influence

    loaded = load(model, records, allele_frequency)
    loaded.require([of])
    blanket = moralize(loaded).neighbors(of)
    known = _names(loaded, given)
    seen = sorted(blanket.difference(known)) if on is None else _names(loaded, on)
    value = max_influence(loaded, of=of, on=seen, given=known)
    if json:
        emit_json("influence", {"model": model, "of": of, "on": seen, "given": known, "influence": value})
        return
    from quiltdp.cli.show import listed, number, show_facts

    facts = [("of", of), ("on", listed(seen)), ("given", listed(known)), ("max-influence", number(value))]
    show_facts(facts, title=f"Influence in {model}")


def _names(model: Model, text: str) -> list[str]:
    """Return the node names of a comma-separated list; a whole name that contains commas is one node."""
    if text in model.states:
        return [text]
    return [part for part in (p.strip() for p in text.split(",")) if part]


def by_use(
    model: Model, found: list[Quilt], dp_epsilon: float
) -> list[tuple[Quilt, QuiltInfluence | None, float]]:
    """Return the quilts with their influence and the leakage each allows at α, the lowest first.

    The leakage is that of the swing bound, max_k (|C| − k) α + (largest swing with k known records); it
    ranks the quilts, nothing more.  A quilt too wide for exact influence has None and comes last.
    """
    import math

    from quiltdp.errors import ModelTooWide
    from quiltdp.inference.influence import quilt_influence
    from quiltdp.inference.workspace import Workspace

    space = Workspace(model)
    rows: list[tuple[Quilt, QuiltInfluence | None, float]] = []
    for q in found:
        try:
            told = quilt_influence(model, q, workspace=space)
        except ModelTooWide:
            rows.append((q, None, math.inf))
            continue
        by_known = enumerate(told.swing_by_known)
        rows.append((q, told, max((q.closed_records - k) * dp_epsilon + s for k, s in by_known)))
    return sorted(rows, key=lambda row: (row[2], row[0].closed_records))

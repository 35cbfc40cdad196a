"""Which values of a separator are possible in the whole model: Boolean elimination of the rest.

The factors beyond a separator do not move with the target, so they matter only through their zeros:
a value of the separator that the rest makes impossible must not be counted.  Factors without zeros
forbid nothing and are never looked at, so on a model of positive tables nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from quiltdp.errors import ModelTooWide
from quiltdp.inference.elimination import LogTable, max_out
from quiltdp.inference.odds import FactorLogs, barrier

__all__ = ["barriers_beyond"]

_EASY = 2**12  # a node of the rest is eliminated at once while its table stays below this


def barriers_beyond(
    logs: FactorLogs,
    start: Iterable[str],
    skipped: Collection[int],
    *,
    max_nodes: int,
) -> tuple[LogTable, ...]:
    """Return 0 / −∞ tables whose maximum over other nodes is the support of the ``start`` nodes.

    Walks from ``start`` through factors that have zeros and are not ``skipped``, and eliminates the
    nodes met on the way while that is cheap; hard ones are left in the tables for a later
    elimination.

    Raises
    ------
    ModelTooWide
        If more than ``max_nodes`` nodes would have to be looked at.
    """
    kept = frozenset(start)
    reached = list(kept)
    seen = set(kept)
    factors: dict[int, LogTable] = {}
    for n in reached:  # grows while it is walked
        for f in logs.near(n):
            if f in skipped or f in factors:
                continue
            wall = logs.barrier(f)
            if wall is None:
                continue
            factors[f] = wall
            fresh = [m for m in wall.scope if m not in seen]
            seen.update(fresh)
            reached.extend(fresh)
        if len(reached) > max_nodes + len(kept):
            raise ModelTooWide(f"the support of the rest involves more than {max_nodes:,} nodes")
    if not factors:
        return ()
    left = max_out(factors.values(), seen - kept, limit=_EASY, stop_at=_EASY)
    walls = (barrier(t) for t in left)
    return tuple(w for w in walls if w is not None)

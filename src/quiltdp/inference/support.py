"""Which values of a separator are possible in the whole model: Boolean elimination of the rest.

The factors beyond a separator do not move with the target, so they matter only through their zeros:
a value of the separator that the rest makes impossible must not be counted.  Factors without zeros
forbid nothing and are never looked at, so on a model of positive tables nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from quiltdp.inference.elimination import LogTable, max_out
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.odds import FactorLogs, barrier, factor_logs
from quiltdp.inference.support_tree import support_tree
from quiltdp.model import Model

__all__ = ["barriers_around", "barriers_beyond"]

_EASY = 2**12  # a node of the rest is eliminated at once while its table stays below this
_KEPT = 4096


@kept_with_model
def _around(model: Model) -> dict[tuple[frozenset[str], frozenset[str]], tuple[LogTable, ...]]:
    """Return the barriers found so far, by closed set and separator."""
    return {}


def barriers_around(
    model: Model, closed: Collection[str], separator: Collection[str], *, max_nodes: int
) -> tuple[tuple[LogTable, ...], bool]:
    """Return 0 / −∞ tables for the values of a separator that the rest forbids, and whether they are all.

    From the messages of the model's support tree; where that is too wide, from the factors around the
    separator up to ``max_nodes`` nodes away, which may miss something that is forbidden from afar.
    """
    tree = support_tree(model)
    if tree is not None:
        kept = _around(model)
        if len(kept) >= _KEPT:
            kept.clear()
        key = (frozenset(closed), frozenset(separator))
        found = kept.get(key)
        if found is None:  # asked again for every target inside the same closed set
            walls = tree.beyond(closed, separator)
            found = _reduced(walls, {n for w in walls for n in w.scope}.difference(separator))
            if sum(w.array.size for w in found) <= _EASY:
                kept[key] = found
        return found, True
    logs = factor_logs(model)
    inner = {f for n in closed for f in logs.near(n)}
    return barriers_beyond(logs, separator, inner, max_nodes=max_nodes)


def barriers_beyond(
    logs: FactorLogs,
    start: Iterable[str],
    skipped: Collection[int],
    *,
    max_nodes: int,
) -> tuple[tuple[LogTable, ...], bool]:
    """Return 0 / −∞ tables whose maximum over other nodes is the support of the ``start`` nodes.

    Walks from ``start`` through factors that have zeros and are not ``skipped``, and eliminates the
    nodes met on the way while that is cheap; hard ones are left in the tables for a later
    elimination.  The walk ends after ``max_nodes`` nodes; the second value says whether it got
    everywhere.
    """
    kept = frozenset(start)
    reached = list(kept)
    seen = set(kept)
    factors: dict[int, LogTable] = {}
    complete = True
    for n in reached:  # grows while it is walked
        if len(reached) > max_nodes + len(kept):
            complete = False
            break
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
    return _reduced(list(factors.values()), seen - kept), complete


def _reduced(walls: Sequence[LogTable], nodes: Collection[str]) -> tuple[LogTable, ...]:
    """Maximise the nodes away while that is cheap, and drop tables that forbid nothing."""
    if not walls:
        return ()
    left = max_out(walls, nodes, limit=_EASY, stop_at=_EASY)
    found = (barrier(t) for t in left)
    return tuple(w for w in found if w is not None)

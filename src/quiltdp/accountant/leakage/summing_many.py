"""Many summings-out side by side: what :mod:`.summing_out` says of each, computed together.

Most cliques are small, and then the calls take the time, not the numbers.  Groups of equally many states
are answered by one closed form or one transport for all summings-out that have such groups.

*Assumes*: nothing beyond :mod:`.summing_out`; the answers are those, up to the last bits of sums whose order
depends on how many there are.  *Cost*: the same numbers in fewer calls.  *Reference*:
docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import CLOSED_UP_TO, closed_kernel
from quiltdp.accountant.leakage.summing_out import CLOSED, Stage, SummingOut
from quiltdp.accountant.leakage.transport import transport
from quiltdp.compiled import kernel

__all__ = ["distances_of_many"]

Array = NDArray[np.float64]
_AT_ONCE = 1 << 15  # distances gathered at once: they should stay in the processor's cache


def distances_of_many(tasks: Sequence[tuple[SummingOut, Array]]) -> list[Array]:
    """Return ``summing.distances(d)`` for every summing-out with the distances between its states."""
    found: list[Array | None] = [None] * len(tasks)
    by_width: dict[int, list[int]] = {}
    for k, (summing, d) in enumerate(tasks):
        stage = summing.one_stage
        if stage is None or stage.width == 1 or stage.cells > _AT_ONCE:
            found[k] = summing.distances(d)
        else:
            by_width.setdefault(stage.width, []).append(k)
    for width, places in by_width.items():
        for some in _in_blocks(places, [_stage(tasks[k]).cells for k in places]):
            together = [(_stage(tasks[k]), *tasks[k]) for k in some]
            for k, values in zip(some, _block(width, together), strict=True):
                found[k] = values
    return [values for values in found if values is not None]


def _stage(task: tuple[SummingOut, Array]) -> Stage:
    stage = task[0].one_stage
    assert stage is not None, "only those of one stage are put together"
    return stage


def _in_blocks(places: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places in their order, as many at once as the cache holds."""
    block: list[int] = []
    room = _AT_ONCE
    for k, size in zip(places, sizes, strict=True):
        if block and size > room:
            yield block
            block, room = [], _AT_ONCE
        block.append(k)
        room -= size
    if block:
        yield block


def _block(width: int, tasks: Sequence[tuple[Stage, SummingOut, Array]]) -> list[Array]:
    """Answer some with groups of one width, the problems on the last axis."""
    if len(tasks) == 1 or (width <= CLOSED and kernel("qd_closed_stage") is not None):
        return [summing.distances(d) for _, summing, d in tasks]
    gathered = [stage.gathered(d) for stage, _, d in tasks]
    block = np.concatenate(gathered, axis=2)
    p, q = (np.concatenate([stage.laws[side] for stage, _, _ in tasks], axis=1) for side in (0, 1))
    top = block.max(axis=(0, 1))
    if width > CLOSED:
        value = transport(p.T, q.T, block.transpose(2, 0, 1))
    elif top.max(initial=0.0) <= CLOSED_UP_TO:
        value = closed_kernel(list(p), list(q), block)
    else:  # the closed form is out of its range for some
        return [summing.distances(d) for _, summing, d in tasks]
    slack = np.concatenate([np.full(len(stage.left), 2.0 * summing.slack) for stage, summing, _ in tasks])
    still = np.concatenate([stage.left == stage.right for stage, _, _ in tasks])
    thin = np.concatenate([stage.thin for stage, _, _ in tasks])
    value = np.where(still | (top <= 0), 0.0, np.minimum(value + slack, top))
    value = np.where(thin, top, value)
    return np.split(value, np.cumsum([len(stage.left) for stage, _, _ in tasks])[:-1])

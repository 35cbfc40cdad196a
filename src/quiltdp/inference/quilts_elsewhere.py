"""Quilts looked at in workers, those of one target in one task; a worker keeps the tables for the next one.

Numbers come back; known sets and witnesses, which are many, are looked up here when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from weakref import ref

from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influences
from quiltdp.inference.region import QuiltInfluence, QuiltLike
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.parallel import each

__all__ = ["by_target"]


class _Sets(NamedTuple):
    """A quilt as it is sent: its three sets of names, without the graph."""

    target: str
    separator: frozenset[str]
    nearby: frozenset[str]


class _Prepared:
    """The model and how its quilts are asked about, with what a worker has computed so far."""

    def __init__(self, model: Model, exact_support: bool, limits: Limits) -> None:
        self.model = model
        self.options: dict[str, Any] = {"exact_support": exact_support, "limits": limits}
        self.space = Workspace(model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the model, not what was computed here."""
        return _Prepared, (self.model, self.options["exact_support"], self.options["limits"])


def by_target(
    model: Model, quilts: Iterable[QuiltLike], executor: Executor, *, exact_support: bool, limits: Limits
) -> tuple[QuiltInfluence, ...]:
    """Return b and the swings of every quilt, those of one target after another in one task."""
    plain = (_Sets(q.target, frozenset(q.separator), frozenset(q.nearby)) for q in quilts)
    parts = (tuple(group) for _, group in groupby(plain, key=lambda q: q.target))
    found = each(_of_target, list(parts), shared=_Prepared(model, exact_support, limits), executor=executor)
    space = Workspace(model)
    return tuple(_unpacked(sent, space, limits) for part in found for sent in part)


def _of_target(prepared: _Prepared, part: tuple[_Sets, ...]) -> list[Any]:
    found = quilt_influences(prepared.model, part, workspace=prepared.space, **prepared.options)
    return [_packed(influence) for influence in found]


def _packed(found: QuiltInfluence) -> Any:
    """Return an influence as it travels: what nobody has asked for yet is looked up where it is asked for."""
    later = found.__dict__.get("_later")
    if not isinstance(later, partial):
        return found
    (_, _, _, shape), *reading = later.args
    return (found.b, found.swing, found.swing_upper, found.exact), later.func, shape, reading


def _unpacked(sent: Any, space: Workspace, limits: Limits) -> QuiltInfluence:
    if isinstance(sent, QuiltInfluence):
        return sent
    (b, swing, upper, exact), look_up, shape, reading = sent
    later = partial(look_up, (ref(space), space.model, limits, shape), *reading)
    return QuiltInfluence.trusted(b, swing, upper, exact, later)

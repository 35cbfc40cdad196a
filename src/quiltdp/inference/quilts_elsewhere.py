"""Quilts of many targets, asked in workers: each worker keeps the tables of the model for the next target."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from itertools import groupby
from typing import Any, NamedTuple

from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influences
from quiltdp.inference.types import QuiltInfluence, QuiltLike
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.parallel import each

__all__ = ["ask_by_target"]


class _Sets(NamedTuple):
    """A quilt as it is sent: its three sets of names, without the graph."""

    target: str
    separator: frozenset[str]
    nearby: frozenset[str]


class _Asked:
    """The model and how its quilts are asked about, with what a worker has computed so far."""

    def __init__(self, model: Model, exact_support: bool, limits: Limits) -> None:
        self.model = model
        self.options: dict[str, Any] = {"exact_support": exact_support, "limits": limits}
        self.space = Workspace(model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the question, not what was found here."""
        return _Asked, (self.model, self.options["exact_support"], self.options["limits"])


def ask_by_target(
    model: Model, quilts: Iterable[QuiltLike], executor: Executor, *, exact_support: bool, limits: Limits
) -> tuple[QuiltInfluence, ...]:
    """Return b and the swings of every quilt, those of one target after another in one task."""
    plain = (_Sets(q.target, frozenset(q.separator), frozenset(q.nearby)) for q in quilts)
    parts = (tuple(group) for _, group in groupby(plain, key=lambda q: q.target))
    found = each(_ask, parts, shared=_Asked(model, exact_support, limits), executor=executor)
    return tuple(influence for part in found for influence in part)


def _ask(asked: _Asked, part: tuple[_Sets, ...]) -> tuple[QuiltInfluence, ...]:
    return quilt_influences(asked.model, part, workspace=asked.space, **asked.options)

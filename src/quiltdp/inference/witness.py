"""What is told about a quilt: its influence and swings, and values that attain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from quiltdp.errors import InvalidModel

Assignment: TypeAlias = tuple[tuple[str, str], ...]
"""Node and state name, node after node."""


class QuiltLike(Protocol):
    """Anything with the parts of a Markov quilt, such as :class:`quiltdp.Quilt`."""

    @property
    def target(self) -> str:
        """The record under attack."""
        ...

    @property
    def separator(self) -> frozenset[str]:
        """Q, which cuts the target off from the remote nodes."""
        ...

    @property
    def nearby(self) -> frozenset[str]:
        """N, the nodes on the target's side, without the target."""
        ...


@dataclass(frozen=True)
class Witness:
    """Values that attain a swing or an influence, so that anyone can check it with probabilities.

    With K = ``known``, x = ``value``, x' = ``other``, q = ``separator`` and q' = ``separator_other``::

        swing = ln [P(q|x,K) P(q'|x',K)] / [P(q|x',K) P(q'|x,K)]
        b     = ln  P(q|x,K) / P(q|x',K)                          (``separator_other`` is None)
    """

    known: Assignment
    value: Assignment
    other: Assignment
    separator: Assignment
    separator_other: Assignment | None = None


Witnesses: TypeAlias = tuple[Witness | None, Witness | None]
"""The values that attain the swing, and those that attain b."""


def no_witnesses() -> Witnesses:
    """Return none: nothing attains an upper bound."""
    return None, None


@dataclass(frozen=True)
class QuiltInfluence:
    """How strongly the separator of one quilt tells about its target.

    Attributes
    ----------
    b
        The published influence max_L I(X_Q ⇝ X_i | X_L).
    swing
        The largest s_i(C, L) over the sets L of nearby records an adversary may know.
    swing_upper
        ``swing`` plus a bound on its rounding error: never below the true value.
    exact
        Whether b and swing are the exact values; if not, they are upper bounds.
    swing_by_known
        Entry k is the largest swing with exactly k known nearby records, rounded up.
    swing_of
        The swing for each set of known nearby records, rounded up.  On a path with more sets than the limit,
        here and in ``swing_by_known`` only the empty set, which is the worst.
    find
        Looks up the witnesses when they are first asked for.
    """

    b: float
    swing: float
    swing_upper: float
    exact: bool
    swing_by_known: tuple[float, ...]
    swing_of: Mapping[frozenset[str], float]
    find: Callable[[], Witnesses] = field(default=no_witnesses, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse NaN and numbers below zero; freeze the mapping."""
        if not (self.b >= 0 and self.swing >= 0 and self.swing_upper >= 0):
            numbers = f"b = {self.b}, swing = {self.swing}, swing_upper = {self.swing_upper}"
            raise InvalidModel(f"a quilt came out with {numbers}: each is a number ≥ 0 or ∞")
        object.__setattr__(self, "swing_of", MappingProxyType(dict(self.swing_of)))

    @cached_property
    def _witnesses(self) -> Witnesses:
        return self.find()

    @property
    def witness(self) -> Witness | None:
        """Values that attain the swing; ``None`` if no two values of the target are possible.

        Also ``None`` where the swing is only an upper bound.
        """
        return self._witnesses[0]

    @property
    def b_witness(self) -> Witness | None:
        """Values that attain b, under the same conditions."""
        return self._witnesses[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the numbers; the witnesses stay behind with the model."""
        numbers = (self.b, self.swing, self.swing_upper, self.exact, self.swing_by_known)
        return QuiltInfluence, (*numbers, dict(self.swing_of))

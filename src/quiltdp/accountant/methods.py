"""Which bounds exist, by adversary and name, and which of them ``auto`` combines.

A method is a factory: it takes a connected component and its units and returns a
:class:`~quiltdp.accountant.leakage.base.Bound`, or refuses (``InvalidArgument`` when it does not
apply, ``ModelTooWide`` when the component is too large for it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from quiltdp.accountant.leakage.base import Bound
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.model import Model

if TYPE_CHECKING:
    from quiltdp.accountant.leakage.combined import Combined

__all__ = ["METHODS", "Method", "Part", "automatic", "build", "method_names"]


@dataclass(frozen=True, eq=False)
class Part:
    """A connected component with its units, as every factory takes it.

    ``units`` is ``None`` for every record alone; ``window`` > 1 asks for runs of steps instead;
    ``seconds`` is how long a search may take.
    """

    model: Model
    units: tuple[tuple[str, ...], ...] | None
    window: int = 1
    seconds: float = 30.0

    @property
    def singles(self) -> bool:
        """Whether every unit is one record."""
        return self.window == 1 and (self.units is None or all(len(u) == 1 for u in self.units))

    def listed(self) -> tuple[tuple[str, ...], ...] | None:
        """Return the units as sets of names; runs of steps are written out."""
        if self.window == 1:
            return self.units
        nodes = self.model.nodes
        count = max(1, len(nodes) - self.window + 1)
        if count * self.window > 200_000:
            raise InvalidArgument("this method takes no windows on a chain of this length; use 'chain'")
        return tuple(tuple(nodes[k : k + self.window]) for k in range(count))


Factory = Callable[[Part], Bound]


@dataclass(frozen=True)
class Method:
    """A named bound: its factory, how its numbers are to be read, and one line for people."""

    factory: Factory
    kind: str
    says: str


def _propagation(part: Part) -> Bound:
    from quiltdp.accountant.leakage.propagation import PropagationBound

    return PropagationBound(part.model, part.listed())


def _chain(part: Part) -> Bound:
    from quiltdp.accountant.leakage.chain import ChainBound

    return ChainBound(part.model, part.units, window=part.window)


def _quilts(part: Part) -> Bound:
    from quiltdp.accountant.leakage.quilts import QuiltLimits, QuiltsBound

    return QuiltsBound(part.model, part.listed(), limits=QuiltLimits(seconds=part.seconds / 2))


def _swing(part: Part) -> Bound:
    from quiltdp.accountant.leakage.quilts import QuiltLimits, SwingBound

    return SwingBound(part.model, part.listed(), limits=QuiltLimits(seconds=part.seconds / 2))


def _exact(part: Part) -> Bound:
    from quiltdp.accountant.leakage.limit import ExactBound

    return ExactBound(part.model, part.listed(), seconds=part.seconds)


def _group(part: Part) -> Bound:
    from quiltdp.accountant.leakage.group import GroupBound

    return GroupBound(part.model, part.listed() if part.window == 1 else None, window=part.window)


_INFORMED: Mapping[str, Method] = MappingProxyType(
    {
        "group": Method(_group, "certified bound", "group privacy: every record of the component counts"),
        "chain": Method(_chain, "certified bound", "the direct chain solver with blocks"),
        "propagation": Method(_propagation, "certified bound", "leakage propagation, super-solution checked"),
        "exact": Method(_exact, "exact", "the limit over all α-DP mechanisms and adversaries"),
        "quilts": Method(_quilts, "certified bound", "swing of the best quilt, propagation beyond it"),
        "swing": Method(_swing, "certified bound", "swing of the best quilt"),
    }
)

METHODS: Mapping[str, Mapping[str, Method]] = MappingProxyType({"informed": _INFORMED})


def method_names(adversary: str) -> tuple[str, ...]:
    """Return the names a caller may give as ``method=``, ``auto`` first."""
    return ("auto", *METHODS[adversary])


def build(adversary: str, name: str, part: Part) -> Bound:
    """Return the bound called ``name`` for one component.

    Raises
    ------
    InvalidArgument
        If no such method exists for this adversary, listing those that do, or if it does not apply.
    ModelTooWide
        If the component is too large for it.
    """
    known = METHODS[adversary]
    if name not in known:
        names = ", ".join(method_names(adversary))
        raise InvalidArgument(f"method {name!r} is not one of {names} (adversary {adversary!r})")
    return known[name].factory(part)


def automatic(adversary: str, part: Part) -> tuple[Combined, tuple[str, ...]]:
    """Return the bounds that ``auto`` combines for a component, and notes on what was too large.

    Small components get the exact limit.  Otherwise: the chain solver on paths, propagation and
    quilts elsewhere; against the prior adversary its own methods too, because every informed bound
    also holds for an adversary who knows less.
    """
    from quiltdp.accountant.leakage.combined import Combined

    plan = _Plan(part)
    if adversary == "prior" and plan.add("prior", "exact", quickly=True):
        return Combined(plan.bounds), ()
    if not plan.add("informed", "chain"):
        plan.add("informed", "propagation")
    if plan.add("informed", "exact", quickly=True) and adversary == "informed":
        return Combined(plan.bounds), ()
    if adversary == "prior":
        if not plan.add("prior", "chain") and not plan.add("prior", "clique-tree"):
            plan.add("prior", "forward-backward")
        plan.add("prior", "quilts")
    if len(part.model.nodes) <= _QUILT_NODES or not plan.has("chain"):
        plan.add("informed", "quilts")
    return Combined(plan.bounds), tuple(plan.notes)


_QUILT_NODES = 64  # on longer paths the chain solver's blocks are the quilts worth looking at


def _is_small(model: Model) -> bool:
    """Return whether the exact limit takes moments: few records, few joint states."""
    if len(model.records) > 8:
        return False
    states = 1
    for r in model.records:
        states *= model.cardinality(r)
    return states <= 250


class _Plan:
    """Bounds being put together: methods that do not apply are passed over, too large ones noted."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.bounds: list[Bound] = []
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        return any(b.name == name for b in self.bounds)

    def add(self, adversary: str, name: str, *, quickly: bool = False) -> bool:
        """Build one bound if it exists and applies; return whether it did."""
        if name not in METHODS[adversary] or (quickly and not _is_small(self.part.model)):
            return False
        try:
            self.bounds.append(build(adversary, name, self.part))
        except InvalidArgument:
            return False
        except ModelTooWide as error:
            if name != "exact":  # nobody expects the limit of a large model
                self.notes.append(f"{name} was passed over: {error}")
            return False
        return True

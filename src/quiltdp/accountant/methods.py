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
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.model import Model

if TYPE_CHECKING:
    from quiltdp.accountant.leakage.combined import Combined

__all__ = ["METHODS", "Method", "Part", "automatic", "build", "check_adversary", "method_names"]


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
            raise InvalidArgument(
                f"this method takes no windows on a chain of this length; use {option('method', 'chain')}"
            )
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


def _published(part: Part) -> Bound:
    from quiltdp.accountant.leakage.published import PublishedBound, PublishedChainBound

    _only_singles(part, "published")
    if isinstance(part.model, ChainModel):
        return PublishedChainBound(part.model, part.units)
    return PublishedBound(part.model, part.units, seconds=part.seconds / 2)


def _published_blanket(part: Part) -> Bound:
    from quiltdp.accountant.leakage.published import BlanketBound

    _only_singles(part, "published-blanket")
    return BlanketBound(part.model, part.units)


def _lemma4(part: Part) -> Bound:
    from quiltdp.accountant.leakage.published import Lemma4Bound

    _only_singles(part, "lemma4")
    return Lemma4Bound(part.model, part.units)


def _only_singles(part: Part, name: str) -> None:
    if not part.singles:
        raise InvalidArgument(
            f"the {name} bound is stated for single records, not for sets or windows;"
            f" use another {option('method')}"
        )


def _prior_chain(part: Part) -> Bound:
    from quiltdp.accountant.leakage.chain_prior import ChainPriorBound

    return ChainPriorBound(_as_chain(part.model), part.units, window=part.window)


def _mqm(part: Part) -> Bound:
    from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltChainBound
    from quiltdp.accountant.leakage.quilt_prior import MarkovQuiltBound

    if isinstance(part.model, ChainModel):
        return MarkovQuiltChainBound(part.model, part.units, window=part.window)
    return MarkovQuiltBound(part.model, part.listed())


def _prior_quilts(part: Part) -> Bound:
    from quiltdp.accountant.leakage.quilt_prior import PriorQuiltsBound

    return PriorQuiltsBound(part.model, part.listed())


def _forward_backward(part: Part) -> Bound:
    from quiltdp.accountant.leakage.forward_backward import ForwardBackwardBound

    return ForwardBackwardBound(part.model, part.listed())


def _mqm_approx(part: Part) -> Bound:
    from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltApproxBound

    return MarkovQuiltApproxBound(_as_chain(part.model), part.listed())


def _gk16(part: Part) -> Bound:
    from quiltdp.accountant.leakage.mqm_chain import GK16Bound

    return GK16Bound(_as_chain(part.model), part.listed())


def _clique_tree(part: Part) -> Bound:
    from quiltdp.accountant.leakage.clique_tree import CliqueTreeBound

    if len(part.model.nodes) > _CLIQUE_NODES:
        raise ModelTooWide(
            f"the clique tree takes at most {_CLIQUE_NODES:,} nodes", f"use another {option('method')}"
        )
    return CliqueTreeBound(part.model, part.listed())


def _prior_exact(part: Part) -> Bound:
    from quiltdp.accountant.leakage.limit_prior import ExactPriorBound

    return ExactPriorBound(part.model, part.listed())


def _as_chain(model: Model) -> ChainModel:
    if not isinstance(model, ChainModel):
        raise InvalidArgument(f"this {option('method')} needs a Markov chain, and the model is none")
    return model


_INFORMED: Mapping[str, Method] = MappingProxyType(
    {
        "group": Method(_group, "certified bound", "group privacy: every record of the component counts"),
        "chain": Method(_chain, "certified bound", "the direct chain solver with blocks"),
        "propagation": Method(_propagation, "certified bound", "leakage propagation, super-solution checked"),
        "exact": Method(_exact, "exact", "the limit over all α-DP mechanisms and adversaries"),
        "quilts": Method(_quilts, "certified bound", "swing of the best quilt, propagation beyond it"),
        "swing": Method(_swing, "certified bound", "swing of the best quilt"),
        "published": Method(_published, "published", "Lemma 2: |C| α + 4 b of the best quilt"),
        "published-blanket": Method(_published_blanket, "published", "Lemma 3: α + 4 a of the blanket"),
        "lemma4": Method(_lemma4, "published", "Lemma 4: spectral gap of a reversible chain"),
    }
)

_PRIOR: Mapping[str, Method] = MappingProxyType(
    {
        "group": _INFORMED["group"],
        "chain": Method(_prior_chain, "certified bound", "the chain recursion with Λ"),
        "clique-tree": Method(
            _clique_tree, "certified bound", "the clique tree, programs certified by duality"
        ),
        "forward-backward": Method(
            _forward_backward, "certified bound", "forward–backward over the directed model"
        ),
        "exact": Method(_prior_exact, "exact", "the limit over all α-DP mechanisms"),
        "quilts": Method(_prior_quilts, "certified bound", "Λ of the best quilt"),
        "published": Method(_mqm, "published", "the Markov Quilt Mechanism"),
        "mqm-approx": Method(_mqm_approx, "published", "the Markov Quilt Mechanism's spectral form"),
        "gk16": Method(_gk16, "published", "the influence-matrix method"),
    }
)

_CLIQUE_NODES = 20_000

METHODS: Mapping[str, Mapping[str, Method]] = MappingProxyType({"informed": _INFORMED, "prior": _PRIOR})


def method_names(adversary: str) -> tuple[str, ...]:
    """Return the names a caller may give as ``method=``, ``auto`` first."""
    return ("auto", *METHODS[adversary])


def check_adversary(adversary: object) -> None:
    """Refuse an adversary that does not exist."""
    if adversary not in tuple(METHODS):
        raise InvalidArgument(f"{option('adversary')} must be 'informed' or 'prior', not {adversary!r}")


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
        raise InvalidArgument(f"{option('method')} {name!r} is not one of {names} (adversary {adversary!r})")
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
        if plan.add("prior", "chain") or plan.add("prior", "clique-tree"):
            return Combined(plan.bounds), tuple(plan.notes)
        if not plan.add("prior", "forward-backward") or len(part.model.nodes) <= _PRIOR_QUILT_NODES:
            plan.add("prior", "quilts")
        return Combined(plan.bounds), tuple(plan.notes)
    if len(part.model.nodes) <= _QUILT_NODES or not plan.has("chain"):
        plan.add("informed", "quilts")
    return Combined(plan.bounds), tuple(plan.notes)


_PRIOR_QUILT_NODES = 300  # beyond it one quilt per record takes longer than it is worth
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
                self.notes.append(f"{name} was passed over: {error.reason}")
            return False
        return True

"""The contract of an (ε, δ) bound, and its registry: the mirror image of :mod:`quiltdp.accountant.bounds`.

A bound is one file: a class with ``prepare`` and ``weigh``, registered by decorator and listed in
:data:`APPROXIMATE` in the order in which they are tried.

    @register_delta("paired", against=PRIOR, says="…")
    class PairedChainBound:
        def __init__(self, problem: Problem) -> None: ...             # cheap; refuses what it does not fit
        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None: ...
        def weigh(self, weights: Vector) -> WeighedBound: ...         # what does not depend on noise or ε

    class Weighed:
        where: NDArray[np.intp]                                       # the class of every unit
        def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds: ...   # δ of every class; pure

``weights`` are the sensitivities of the nodes (0 for latents), ``profile`` is δ of the mechanism for any
group of records at one noise scale; the values are δ's in [0, 1], sound for every ε, negative ones too.
Units that are alike share a class, so that a million steps cost no more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary
from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.work import WorkBudget

__all__ = [
    "APPROXIMATE",
    "ApproximateBound",
    "RegisteredDelta",
    "WeighedBound",
    "delta_bounds_for",
    "register_delta",
]

APPROXIMATE = (
    ("group", "quiltdp.accountant.leakage.approximate"),
    ("paired", "quiltdp.accountant.leakage.paired_bound"),
    ("paired-prior", "quiltdp.accountant.leakage.paired_bound"),
    ("paired-tree", "quiltdp.accountant.leakage.paired_tree"),
    ("carried", "quiltdp.accountant.leakage.carried"),
)


class ApproximateBound(Protocol):
    """A sound bound on δ for one component."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Do all work that depends on neither noise nor ε, as far as the budget goes; deterministic."""
        ...

    def weigh(self, weights: Vector) -> WeighedBound:
        """Return the bound for given sensitivities."""
        ...


class WeighedBound(Protocol):
    """A bound on δ for given sensitivities."""

    @property
    def where(self) -> NDArray[np.intp]:
        """The class of every unit."""
        ...

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of every class; pure: the same arguments, the same bytes."""
        ...


@dataclass(frozen=True)
class RegisteredDelta:
    """An (ε, δ) bound as the registry knows it; a ``costly`` one is asked last, near the answer only."""

    name: str
    against: Adversary
    says: str
    make: Callable[[Problem], ApproximateBound]
    costly: bool = False

    @property
    def method(self) -> str:
        """The name by which people ask for it, and for its variants."""
        return self.name.partition("-")[0]


_FOUND: dict[tuple[str, str], RegisteredDelta] = {}
_Class = TypeVar("_Class")


def register_delta(
    name: str, *, against: Adversary, says: str, costly: bool = False
) -> Callable[[_Class], _Class]:
    """Register a bound class under a name for the strongest adversary it holds for."""

    def add(made: _Class) -> _Class:
        if (against.name, name) in _FOUND:
            raise ValueError(f"the bound {name!r} against {against.name} is registered twice")
        entry = RegisteredDelta(name, against, says, made, costly)  # type: ignore[arg-type]  # a class makes bounds
        _FOUND[against.name, name] = entry
        return made

    return add


def delta_bounds_for(*adversaries: Adversary) -> Mapping[str, RegisteredDelta]:
    """Return the bounds that hold against one of some adversaries, by name, in the order of stages.

    That is the order of :data:`APPROXIMATE`, costly ones last.
    """
    for _, module in APPROXIMATE:
        import_module(module)
    order = [name for name, _ in APPROXIMATE]
    holding = [f for f in _FOUND.values() if any(f.against.covers(a) for a in adversaries)]
    return MappingProxyType(
        {f.name: f for f in sorted(holding, key=lambda f: (f.costly, order.index(f.name)))}
    )

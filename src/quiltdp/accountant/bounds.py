"""The contract of a leakage bound, and the registry that ``auto``, help texts and certificates read.

A bound is one file: a class with ``prepare`` and ``evaluate``, registered by decorator.

    @register("coupling", against=PRIOR, kind="certified bound", says="sequential coupling on a tree",
              auto=lambda problem: len(problem.model.nodes) <= 20_000)
    class CouplingBound:
        def __init__(self, problem: Problem) -> None: ...             # cheap; refuses what it does not fit
        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None: ...   # all α-free work
        def evaluate(self, alpha: Vector) -> Bounds: ...              # pure: same α, same bytes

``evaluate`` never depends on earlier calls, and every value it returns is sound.  The order in which
``auto`` takes bounds is the order of :data:`quiltdp.accountant.leakage.AUTOMATIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, Adversary
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

__all__ = [
    "Bound",
    "Bounds",
    "Problem",
    "Ranking",
    "Refining",
    "Registered",
    "Vector",
    "always",
    "never",
    "ready",
    "register",
    "registered",
]

Vector: TypeAlias = NDArray[np.float64]

_MOST_LISTED = 200_000  # records in all windows together that may be written out


@dataclass(frozen=True, eq=False)
class Problem:
    """A connected component, what is protected in it, and against whom.

    ``units`` is ``None`` for every record alone (in node order); ``window`` > 1 asks for runs of
    that many consecutive steps of a chain instead.

    ``prices`` are tables over pairs of a record's values, the largest entry 1: a change of record j from x to
    x' costs α_j·prices[j][x, x'].  A record without one has the flat price, α_j·1[x ≠ x'].  A bound may
    ignore them: no price exceeds α_j.
    """

    model: Model
    units: tuple[tuple[str, ...], ...] | None = None
    adversary: Adversary = INFORMED
    window: int = 1
    prices: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def singles(self) -> bool:
        """Whether every unit is one record."""
        return self.window == 1 and (self.units is None or all(len(u) == 1 for u in self.units))

    def price(self, node: str) -> Vector:
        """Return the price of a change of a record, as a share of its α: a table of pairs of values."""
        flat = 1.0 - np.eye(self.model.cardinality(node))
        return self.prices.get(node, flat)

    @property
    def count(self) -> int:
        """How many units there are."""
        if self.window > 1:
            return max(1, len(self.model.nodes) - self.window + 1)
        return len(self.model.records) if self.units is None else len(self.units)

    def listed(self) -> tuple[tuple[str, ...], ...]:
        """Return the units as sets of names; single records and runs of steps are written out.

        Raises
        ------
        InvalidArgument
            If the runs of a long chain would hold too many names.
        """
        if self.window == 1:
            return tuple((r,) for r in self.model.records) if self.units is None else self.units
        nodes, count = self.model.nodes, self.count
        if count * self.window > _MOST_LISTED:
            raise InvalidArgument(
                f"this method takes no windows on a chain of this length; use {option('method', 'chain')}"
            )
        return tuple(tuple(nodes[k : k + self.window]) for k in range(count))

    def require_singles(self, name: str) -> None:
        """Refuse units other than single records, in the name of a bound that is stated for these."""
        if not self.singles:
            raise InvalidArgument(
                f"the {name} bound is stated for single records, not for sets or windows;"
                f" use another {option('method')}"
            )

    def single_records(self, name: str) -> tuple[str, ...]:
        """Return the protected records of a bound that is stated for single ones, or refuse the rest."""
        self.require_singles(name)
        return tuple(self.model.records) if self.units is None else tuple(u[0] for u in self.units)


@dataclass(frozen=True, eq=False)
class Bounds:
    """What one bound says at one α.

    Attributes
    ----------
    values
        One leakage per protected unit, sound and rounded up; ``inf`` is a value, NaN is refused.
    theorem
        The registered name of the bound that gave them.
    kind
        ``exact``, ``certified bound`` or ``published``.
    witness
        For some units, what forces the value (quilt, states, …).
    notes
        What fell back to something looser, for people to read.
    """

    values: Vector
    theorem: str
    kind: str = "certified bound"
    witness: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Freeze the values; refuse NaN and negative ones."""
        values = np.asarray(self.values, dtype=np.float64).view()
        if values.ndim != 1 or not values.min(initial=0.0) >= 0.0:
            raise ValueError(f"{self.theorem}: leakages must be a vector of numbers in [0, ∞]")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def or_else(self, before: Bounds) -> Bounds:
        """Return these, or what the same bound said ``before`` where that is no larger."""
        kept = before.values <= self.values
        witness = {k: w for k, w in before.witness.items() if kept[k]}
        witness |= {k: w for k, w in self.witness.items() if not kept[k]}
        return replace(self, values=np.minimum(self.values, before.values), witness=witness)


class Bound(Protocol):
    """A sound leakage bound for one component."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Do all work that does not depend on α, as far as the budget goes; deterministic."""
        ...

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit; ``alpha`` is aligned with ``model.nodes``, 0 for latents."""
        ...


@runtime_checkable
class Refining(Protocol):
    """A bound that can answer less than everything, in less time; optional.

    The search for the largest α asks only whether the largest leakage is below or above a target.
    """

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return sound values, as good as they need be; pure, like ``evaluate``.

        ``known`` are sound values from other bounds.  Units at or below ``low`` in them may be
        answered by them; once a unit is found to leak more than ``high`` all others may be.
        """
        ...


@runtime_checkable
class Ranking(Protocol):
    """A bound that can tell only the units that leak most; optional."""

    def largest(self, alpha: Vector, known: Vector, count: int) -> Bounds:
        """Return what ``evaluate`` says of the ``count`` units that leak most, given ``known``.

        Every other unit gets a sound value below theirs.
        """
        ...


Applies = Callable[[Problem], bool]


def always(problem: Problem) -> bool:
    """``auto`` takes it wherever it applies."""
    return True


def never(problem: Problem) -> bool:
    """``auto`` leaves it alone: it is asked for by name only."""
    return False


@dataclass(frozen=True)
class Registered:
    """A bound as the registry knows it.

    Attributes
    ----------
    name, against, kind, says
        Its method name, the strongest adversary it holds for, how its numbers are to be read, and one
        line for people.
    make
        The class.
    auto
        Whether ``auto`` takes it for a problem.
    unless
        ``auto`` passes it over where one of these bounds already answers.
    settles
        Where it answers, ``auto`` looks no further.
    near
        How near (relatively) to its goal a search for α ends: one evaluation of some bounds takes seconds.
        A bound that has a ``near`` or ``settles`` of its own says so once it is prepared.
    otherwise
        Who asks for it by name gets this later stage of the same method where the model is too wide for it.
    universal
        It looks at no table and costs nothing: it holds for every model of these nodes as it stands.

    A class may have ``widened(problem, errors)`` too: its own bound for every model within given errors of
    this one, sharper than :mod:`quiltdp.accountant.near` makes of any bound.
    """

    name: str
    against: Adversary
    kind: str
    says: str
    make: Callable[[Problem], Bound]
    auto: Applies = always
    unless: tuple[str, ...] = ()
    settles: bool = False
    near: float = 0.0
    otherwise: str = ""
    universal: bool = False

    @property
    def widens(self) -> bool:
        """Whether it has a widening of its own; one that is inherited would be another bound's."""
        return self.universal or "widened" in vars(self.make)

    def widened(self, problem: Problem, errors: TableErrors) -> Bound:
        """Return the bound's own widening to every model within the errors."""
        if self.universal:
            return self.make(problem)
        made: Bound = self.make.widened(problem, errors)  # type: ignore[attr-defined]  # see widens
        return made

    @property
    def method(self) -> str:
        """What people call it: a later stage of a method is registered as ``method@stage``."""
        return self.name.partition("@")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: the process that reads it has its own registry."""
        from quiltdp.accountant.methods import by_name

        return by_name, (self.against.name, self.name)


_FOUND: dict[tuple[str, str], Registered] = {}
_Class = TypeVar("_Class")


def register(
    name: str,
    *,
    against: Adversary,
    kind: str,
    says: str,
    auto: Applies = always,
    unless: tuple[str, ...] = (),
    settles: bool = False,
    near: float = 0.0,
    otherwise: str = "",
    universal: bool = False,
) -> Callable[[_Class], _Class]:
    """Register a bound class (or a function that picks one) under a name for an adversary.

    ``says`` is its one line for people; all else as in :class:`Registered`.
    """

    def add(made: _Class) -> _Class:
        if (against.name, name) in _FOUND:
            raise ValueError(f"the bound {name!r} against {against.name} is registered twice")
        rest = (auto, unless, settles, near, otherwise, universal)
        entry = Registered(name, against, kind, says, made, *rest)  # type: ignore[arg-type]  # a class makes bounds
        _FOUND[against.name, name] = entry
        return made

    return add


def registered() -> Mapping[tuple[str, str], Registered]:
    """Return every bound registered so far, by adversary and name."""
    return MappingProxyType(_FOUND)


_Made = TypeVar("_Made", bound=Bound)


def ready(
    kind: Callable[..., _Made],
    model: Model,
    units: Any = None,
    *,
    window: int = 1,
    adversary: Adversary = INFORMED,
    budget: WorkBudget | None = None,
    **limits: Any,
) -> _Made:
    """Return one bound, made and prepared: for tests, notebooks and bounds built on other bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.leakage.group import GroupBound
    >>> chain = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> ready(GroupBound, chain).evaluate(np.full(3, 0.1)).values.round(6).tolist()
    [0.3, 0.3, 0.3]
    """
    chosen = None if units is None else tuple(tuple(u) for u in units)
    bound = kind(Problem(model, chosen, adversary, window), **limits)
    bound.prepare(Workspace(model), budget if budget is not None else WorkBudget())
    return bound

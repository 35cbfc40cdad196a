"""The contract of a bound, for pure α and for (ε, δ), and the registry that help texts and certificates read.

A bound is one file: a class with ``prepare`` and ``evaluate``, registered by decorator.

    @register("coupling", against=PRIOR, kind="certified bound", says="sequential coupling on a tree")
    class CouplingBound:
        def __init__(self, problem: Problem) -> None: ...             # cheap; refuses what it does not fit
        def prepare(self, workspace: Workspace, budget: WorkBudget) -> None: ...   # all cost-free work
        def evaluate(self, cost: Cost, need: Need = ALL) -> Bounds: ...   # pure: same cost, same bytes

``evaluate`` never depends on earlier calls, and every value it returns is sound.  When ``auto`` takes which
bound, and in which order, is one table: :mod:`quiltdp.accountant.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, Adversary
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors
    from quiltdp.mechanisms import GroupProfile

Vector: TypeAlias = NDArray[np.float64]
APPROXIMATE = "certified bound on δ"
"""The kind of a bound whose values are δ's."""

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
class ProfileCost:
    """What an (ε, δ) mechanism costs: bounds return a δ for every unit.

    Attributes
    ----------
    weights
        The sensitivity to every node, 0 for latents.
    profile
        δ of the mechanism for any group of records, at one noise scale.
    epsilon
        At which ε; negative ones are allowed.
    """

    weights: Vector
    profile: GroupProfile
    epsilon: float

    def __post_init__(self) -> None:
        """Refuse an ε that is no number, and parts of records where whole ones are counted."""
        if math.isnan(self.epsilon):
            raise InvalidArgument(f"{option('epsilon')} must be a number, not {self.epsilon!r}")
        if getattr(self.profile, "counts_records", False) and (self.weights != np.floor(self.weights)).any():
            raise InvalidArgument(
                f"{option('weights')}: this mechanism is known by what whole records cost (each may be drawn"
                " or not): give whole numbers, 1 for a record however little it moves"
            )


Cost = Vector | ProfileCost
"""α of every node (aligned with ``model.nodes``, 0 for latents), or a group profile with sensitivities."""


@dataclass(frozen=True, eq=False)
class Need:
    """How much of an answer is needed.

    Attributes
    ----------
    known
        Sound values from other bounds; ``None`` for none.
    low
        Units that are known to leak at most this may be answered by what is known.
    high
        Once a unit is seen to leak more, all others may be answered by what is known.
    count
        Only so many units, those that leak most, are needed; the others get sound values below theirs.
    """

    known: Vector | None = None
    low: float = 0.0
    high: float = math.inf
    count: int | None = None

    @property
    def partial(self) -> bool:
        """Whether less than everything is needed."""
        return self.limited or self.count is not None

    @property
    def limited(self) -> bool:
        """Whether units may be left out by what they leak."""
        return self.low > 0.0 or self.high < math.inf

    def fill_unknown(self, units: int) -> tuple[Vector, float, float]:
        """Return the known values of so many units, ∞ where nothing is known, and ``low``, ``high``."""
        known = np.full(units, np.inf) if self.known is None else self.known
        return known, self.low, self.high


ALL = Need()
"""Everything is needed."""


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
    partial
        Whether some units may have been answered by known values only (:class:`Need`).
    """

    values: Vector
    theorem: str
    kind: str = "certified bound"
    witness: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        """Freeze the values; refuse NaN and negative ones."""
        values = np.asarray(self.values, dtype=np.float64).view()
        if values.ndim != 1 or not values.min(initial=0.0) >= 0.0:
            raise ValueError(f"{self.theorem}: leakages must be a vector of numbers in [0, ∞]")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)


class Bound(Protocol):
    """A sound leakage bound for one component."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Do all work that does not depend on α, as far as the budget goes; deterministic."""
        ...

    def evaluate(self, cost: Any, /, need: Need = ALL) -> Bounds:
        """Return a sound value of every unit, as good as ``need`` asks; a bound may ignore that.

        ``cost`` is what the mechanism costs (:data:`Cost`): of its two kinds a bound takes one.
        """
        ...


@dataclass(frozen=True)
class Registered:
    """A bound as the registry knows it.

    Attributes
    ----------
    name, against, kind, says
        Its method name, the strongest adversary it holds for, how its numbers are to be read (``exact``,
        ``certified bound``, ``published``, or :data:`APPROXIMATE` for values of δ), and one line for people.
    make
        The class, or a function that picks one.

    A class may have ``widened(problem, errors)`` too: its own bound for every model within given errors of
    this one, sharper than :mod:`quiltdp.accountant.robust` makes of any bound.
    """

    name: str
    against: Adversary
    kind: str
    says: str
    make: Callable[[Problem], Bound]

    @property
    def widens(self) -> bool:
        """Whether it has a widening of its own; one that is inherited would be another bound's."""
        return "widened" in vars(self.make)

    def widened(self, problem: Problem, errors: TableErrors) -> Bound:
        """Return the bound's own widening to every model within the errors."""
        made: Bound = self.make.widened(problem, errors)  # type: ignore[attr-defined]  # see widens
        return made


_FOUND: dict[tuple[bool, str, str], Registered] = {}
_Class = TypeVar("_Class")


def register(name: str, *, against: Adversary, kind: str, says: str) -> Callable[[_Class], _Class]:
    """Register a bound class (or a function that picks one) under a name for an adversary."""

    def add(made: _Class) -> _Class:
        key = (kind == APPROXIMATE, against.name, name)
        if key in _FOUND:
            raise ValueError(f"the bound {name!r} against {against.name} is registered twice")
        _FOUND[key] = Registered(name, against, kind, says, made)  # type: ignore[arg-type]  # a class makes bounds
        return made

    return add


def registered() -> Mapping[tuple[bool, str, str], Registered]:
    """Return every bound registered so far, by whether it is one on δ, adversary and name."""
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
    >>> from quiltdp.accountant.bounds.group import GroupBound
    >>> chain = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> ready(GroupBound, chain).evaluate(np.full(3, 0.1)).values.round(6).tolist()
    [0.3, 0.3, 0.3]
    """
    chosen = None if units is None else tuple(tuple(u) for u in units)
    bound = kind(Problem(model, chosen, adversary, window), **limits)
    bound.prepare(Workspace(model), budget if budget is not None else WorkBudget())
    return bound

"""What is asked of a model: the options of every analysis, checked once and carried as one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, check_known_records, parse_adversary
from quiltdp.accountant.bounds.contract import Vector
from quiltdp.accountant.bounds.table import RENAMED, RENAMED_APPROXIMATE
from quiltdp.accountant.methods import approximate_stages, automatic_stages, find_method
from quiltdp.accountant.units import Protect, Units, make_guard, make_units
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model
from quiltdp.work import Guard, Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

Progress = Callable[[str, float], None]
Work = str | WorkBudget
Who = str | Adversary


class Options(TypedDict, total=False):
    """The options that every analysis takes besides its method and adversary; see :func:`quiltdp.analyze`."""

    protect: Protect
    window: int
    work: Work
    time_limit: Limit
    memory_limit: float | None
    progress: Progress | None
    executor: Executor | None


class SearchOptions(Options, total=False):
    """The same, and the method and the adversary."""

    method: str
    adversary: Who


@dataclass(frozen=True, eq=False)
class Request:
    """A model and the options of an analysis (:func:`quiltdp.analyze` describes them).

    Attributes
    ----------
    approximate
        Whether the question is about (ε, δ).
    prices
        What each change of a record costs, as a share of its α.
    """

    model: Model
    method: str = "auto"
    adversary: Who = "informed"
    protect: Protect = None
    window: int = 1
    work: Work = "normal"
    time_limit: Limit = None
    memory_limit: float | None = None
    progress: Progress | None = None
    executor: Executor | None = None
    prices: Mapping[str, Vector] = field(default_factory=dict)
    approximate: bool = False
    who: Adversary = field(init=False)
    budget: WorkBudget = field(init=False)
    guard: Guard = field(init=False)
    units: Units = field(init=False)

    def __post_init__(self) -> None:
        """Check every option, and refuse by name."""

        def set_fields(**values: Any) -> None:
            for name, value in values.items():
                object.__setattr__(self, name, value)

        set_fields(units=make_units(self.model, self.protect, self.window))
        set_fields(who=check_known_records(parse_adversary(self.adversary), self.model))
        set_fields(guard=make_guard(self.time_limit, self.memory_limit), budget=WorkBudget.named(self.work))
        if self.method != "auto" and not self.approximate:
            set_fields(method=find_method(self.who, self.method).name)  # an old name is known by the new
        if self.executor is not None:
            from quiltdp.parallel import checked_executor

            checked_executor(self.executor)
        known = automatic_stages(INFORMED, PRIOR, approximate=self.approximate)
        if self.budget.until not in ("", self.method, *known, *RENAMED, *RENAMED_APPROXIMATE):
            raise InvalidArgument(
                f"{option('work')}: {self.budget.until!r} is not a stage; stages are {', '.join(known)}"
            )

    @property
    def shares_guard(self) -> bool:
        """Whether the limit is one of several analyses together."""
        return self.guard is self.time_limit

    @property
    def repeatable(self) -> dict[str, Any]:
        """The options that an answer depends on, to ask the same again."""
        what = {"protect": self.protect, "window": self.window}
        return {"method": self.method, "work": self.budget, **what}

    def stages(self, *adversaries: Adversary) -> tuple[str, ...]:
        """Return the bounds that are asked, in their order, where the components see these adversaries."""
        last = self.budget.until
        if self.method == "auto":
            return automatic_stages(*adversaries, approximate=self.approximate, until=last)
        names: tuple[str, ...] = (self.method,)
        if self.approximate:
            names = approximate_stages(self.who, self.method)
        elif find_method(self.who, self.method).kind == "certified bound":
            names = tuple(dict.fromkeys(("group", self.method)))  # what it cannot improve, it must not claim
        return names[: names.index(last) + 1] if last in names else names

    def with_method(self, method: str, work: Work) -> Request:
        """Return the same request for one method by name, without progress or workers."""
        return replace(self, method=method, work=work, time_limit=self.guard, progress=None, executor=None)

"""One target, several adversaries: what the noise costs if the adversary knows more.

Leakage is monotone in what is known, so a scale that is certified against a stronger adversary is
certified against a weaker one.  The scales that are returned never fall from one adversary to the next
who covers it, whatever the methods for each happen to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from quiltdp.accountant.adversaries import Adversary, parse_adversary
from quiltdp.accountant.calibration import Calibration, calibrate
from quiltdp.accountant.request import Progress
from quiltdp.accountant.units import make_guard
from quiltdp.errors import InvalidArgument, LimitReached, option
from quiltdp.graph.components import component_classes
from quiltdp.interface import as_model
from quiltdp.mechanisms import Mechanism
from quiltdp.model import Model
from quiltdp.parallel import checked_executor, each
from quiltdp.work import Limit

COMPARED = ("prior", "knows:1", "knows:2", "informed")
"""Nothing known but the model, any record, any two records, any records at all."""


def calibrate_adversaries(
    model: Model,
    epsilon: float,
    mechanism: Mechanism,
    *,
    adversaries: Sequence[str | Adversary] = COMPARED,
    time_limit: Limit = None,
    memory_limit: float | None = None,
    known: Sequence[Calibration] = (),
    progress: Progress | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> tuple[Calibration, ...]:
    """Return one calibration per adversary, in the order given.

    Parameters
    ----------
    model, epsilon, mechanism
        As for :func:`quiltdp.calibrate`.
    adversaries
        Who is compared; default: prior, knows:1, knows:2, informed.
    time_limit, memory_limit
        Limits in seconds and bytes for all of them together.
    known
        Calibrations for the same request that need not be made again.
    progress, executor
        As for :func:`quiltdp.analyze`; the adversaries are asked there, or (in a model of unlike parts)
        the components, one adversary after another.
    options
        Further options of :func:`quiltdp.calibrate`, the same for all.

    Raises
    ------
    InvalidArgument
        If there is no adversary, or one is also given as an option.
    LimitReached
        With one calibration per adversary, of which some are partial.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.compare import calibrate_adversaries
    >>> found = calibrate_adversaries(qd.example("asia"), 1.0, qd.Laplace(1.0))
    >>> [f"{c.adversary} {c.sigma:.4f}" for c in found]
    ['prior 3.9650', 'knows:1 4.0210', 'knows:2 4.0361', 'informed 4.0361']
    """
    if "adversary" in options or not adversaries:
        raise InvalidArgument(
            f"{option('adversaries')} must name at least one adversary, and be the only such"
        )
    model, who = as_model(model), [parse_adversary(a) for a in adversaries]
    before = {c.adversary: c for c in known}
    new = list(dict.fromkeys(a for a in who if a.name not in before))
    checked_executor(executor)
    here = executor is None or len(component_classes(model)) > 1
    if here:
        options |= {"progress": progress, "executor": executor}
    found = each(
        _calibrate_against,
        new,
        shared=(model, epsilon, mechanism, {**options, "time_limit": make_guard(time_limit, memory_limit)}),
        executor=None if here else executor,
        progress=None if here else progress,
        label="adversaries",
    )
    reached = ""
    for a, (made, how, limit) in zip(new, found, strict=True):
        before[a.name] = replace(made, origin=(model, how))
        reached = reached or limit
    own = [before[a.name] for a in who]
    answer = tuple(_smallest_certified(a, c, who, own) for a, c in zip(who, own, strict=True))
    if reached:
        raise LimitReached(reached, answer)
    return answer


def _calibrate_against(
    shared: tuple[Model, float, Mechanism, Mapping[str, Any]], adversary: Adversary
) -> tuple[Calibration, Mapping[str, Any], str]:
    """Return the calibration against an adversary, its options (not the model), and the limit reached."""
    model, epsilon, mechanism, options = shared
    try:
        found, reached = calibrate(model, epsilon, mechanism, adversary=adversary, **options), ""
    except LimitReached as limit:
        if limit.partial is None:
            raise
        found, reached = limit.partial, limit.text
    assert found.origin is not None
    return replace(found, origin=None), found.origin[1], reached


def _smallest_certified(
    adversary: Adversary, found: Calibration, who: Sequence[Adversary], others: Sequence[Calibration]
) -> Calibration:
    """Return the smallest scale that is certified against this adversary or one who may know more."""
    for stronger, other in zip(who, others, strict=True):
        if other.sigma < found.sigma and stronger.covers(adversary):
            note = f"certified against the {stronger.name} adversary, who may know more"
            origin = None if other.origin is None else (other.origin[0], dict(other.origin[1]))
            found = replace(other, adversary=adversary.name, notes=(*other.notes, note), origin=origin)
    return found

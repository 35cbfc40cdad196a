"""One target, several adversaries: what the noise costs if the adversary knows more.

Leakage is monotone in what is known, so a scale that is certified against a stronger adversary is
certified against a weaker one.  The scales that are returned never fall from one adversary to the next
who covers it, whatever the methods for each happen to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import time
from typing import Any

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.calibration import Calibration, calibrate
from quiltdp.accountant.mechanisms import Mechanism
from quiltdp.accountant.profile import Progress
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import InvalidArgument, option
from quiltdp.graph.components import component_classes
from quiltdp.model import Model
from quiltdp.parallel import checked_executor, each

__all__ = ["SIDE_BY_SIDE", "calibrate_adversaries"]

SIDE_BY_SIDE = ("prior", "knows:1", "knows:2", "informed")
"""Nothing known but the model, any record, any two records, any records at all."""

_KEPT = 0.1  # of the limit, for each adversary still to come
_LEAST = 1e-3  # seconds: enough for group privacy


def calibrate_adversaries(
    model: Model,
    epsilon: float,
    mechanism: Mechanism,
    *,
    adversaries: Sequence[str | Adversary] = SIDE_BY_SIDE,
    time_limit: float = 30.0,
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
    time_limit
        One guard in seconds for all of them together: each gets what is left, less a tenth of the limit
        for everyone after it.
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

    Examples
    --------
    >>> import quiltdp as qd
    >>> found = qd.calibrate_adversaries(qd.example("asia"), 1.0, qd.Laplace(1.0))
    >>> [f"{c.adversary} {c.sigma:.4f}" for c in found]
    ['prior 3.9650', 'knows:1 4.0210', 'knows:2 4.0361', 'informed 4.0361']
    """
    if "adversary" in options or not adversaries:
        raise InvalidArgument(
            f"{option('adversaries')} must name at least one adversary, and be the only such"
        )
    who = [adversary_from(a) for a in adversaries]
    before = {c.adversary: c for c in known}
    new = list(dict.fromkeys(a for a in who if a.name not in before))
    checked_executor(executor)
    here = executor is None or len(component_classes(model)) > 1
    if here:
        options |= {"progress": progress, "executor": executor}
    deadline = time() + positive_epsilon(time_limit, "time_limit")
    found = each(
        _calibrated,
        [(a, len(new) - k) for k, a in enumerate(new, 1)],
        shared=_Request(model, epsilon, mechanism, options, time_limit, deadline),
        executor=None if here else executor,
        progress=None if here else progress,
        label="adversaries",
    )
    for a, (made, how) in zip(new, found, strict=True):
        before[a.name] = replace(made, origin=(model, how))
    own = [before[a.name] for a in who]
    return tuple(_smallest(a, c, who, own) for a, c in zip(who, own, strict=True))


@dataclass(frozen=True)
class _Request:
    """What is asked against every adversary, and until when, in seconds since the epoch: for workers too."""

    model: Model
    epsilon: float
    mechanism: Mechanism
    options: Mapping[str, Any]
    time_limit: float
    deadline: float


def _calibrated(asked: _Request, about: tuple[Adversary, int]) -> tuple[Calibration, Mapping[str, Any]]:
    """Return the calibration against an adversary, with so many after it, and its options; not the model."""
    adversary, waiting = about
    share = max(asked.deadline - time() - _KEPT * asked.time_limit * waiting, _LEAST)
    limited = {**asked.options, "adversary": adversary, "time_limit": share}
    found = calibrate(asked.model, asked.epsilon, asked.mechanism, **limited)
    assert found.origin is not None
    return replace(found, origin=None), found.origin[1]


def _smallest(
    adversary: Adversary, found: Calibration, who: Sequence[Adversary], others: Sequence[Calibration]
) -> Calibration:
    """Return the smallest scale that is certified against this adversary or one who may know more."""
    for stronger, other in zip(who, others, strict=True):
        if other.sigma < found.sigma and stronger.covers(adversary):
            note = f"certified against the {stronger.name} adversary, who may know more"
            if any("limit was reached" in said for said in found.notes):
                stage = found.certificate.stage
                note += f"; against {adversary.name} itself a limit was reached after stage {stage!r}"
            origin = None if other.origin is None else (other.origin[0], dict(other.origin[1]))
            found = replace(other, adversary=adversary.name, notes=(*other.notes, note), origin=origin)
    return found

"""One target, several adversaries: what the noise costs if the adversary knows more.

Leakage is monotone in what is known, so a scale that is certified against a stronger adversary is
certified against a weaker one.  The scales that are returned never fall from one adversary to the next
who covers it, whatever the methods for each happen to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.calibration import Calibration, calibrate
from quiltdp.accountant.mechanisms import Mechanism
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model

__all__ = ["SIDE_BY_SIDE", "calibrate_adversaries"]

SIDE_BY_SIDE = ("prior", "knows:1", "knows:2", "informed")
"""Nothing known but the model, any record, any two records, any records at all."""


def calibrate_adversaries(
    model: Model,
    epsilon: float,
    mechanism: Mechanism,
    *,
    adversaries: Sequence[str | Adversary] = SIDE_BY_SIDE,
    **options: Any,
) -> tuple[Calibration, ...]:
    """Return one calibration per adversary, in the order given.

    Parameters
    ----------
    model, epsilon, mechanism
        As for :func:`quiltdp.calibrate`.
    adversaries
        Who is compared; default: prior, knows:1, knows:2, informed.
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
    own = [calibrate(model, epsilon, mechanism, adversary=a, **options) for a in who]
    return tuple(_smallest(a, c, who, own) for a, c in zip(who, own, strict=True))


def _smallest(
    adversary: Adversary, found: Calibration, who: Sequence[Adversary], others: Sequence[Calibration]
) -> Calibration:
    """Return the smallest scale that is certified against this adversary or one who may know more."""
    for stronger, other in zip(who, others, strict=True):
        if other.sigma < found.sigma and stronger.covers(adversary):
            note = f"certified against the {stronger.name} adversary, who may know more"
            origin = None if other.origin is None else (other.origin[0], dict(other.origin[1]))
            found = replace(other, adversary=adversary.name, notes=(*other.notes, note), origin=origin)
    return found

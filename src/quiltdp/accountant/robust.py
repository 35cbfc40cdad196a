"""What if the model is wrong: the noise that is enough for every model that may be the true one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quiltdp.accountant.calibration import Calibration, calibrate, calibrate_profile
from quiltdp.accountant.near import NearProfile
from quiltdp.accountant.units import SMALLEST_TARGET, all_or_nothing, positive_epsilon
from quiltdp.errors import InvalidArgument
from quiltdp.inference.uncertain import TableErrors, interval_errors, relative_errors
from quiltdp.mechanisms import Mechanism, check_mechanism
from quiltdp.model import Model
from quiltdp.numbers import shown_up

__all__ = ["robust"]


@all_or_nothing()
def robust(
    models: Model | Sequence[Model],
    epsilon: float,
    mechanism: Mechanism,
    *,
    off_by: float | Mapping[str, float] | None = None,
    intervals: Any = None,
    **options: Any,
) -> Calibration:
    """Return the smallest noise scale certified for every model that may be the true one.

    Parameters
    ----------
    models
        One model, or a family of them (several estimates, several experts): the noise is enough
        whichever member is true.
    epsilon, mechanism
        As for :func:`quiltdp.calibrate`.
    off_by
        How far the tables of each model may be off, as a share: with 0.05 every probability p may be
        anything from p/1.05 to 1.05 p, zeros stay zeros.  A mapping names the tables that may be wrong.
    intervals
        Instead: node → (lower, upper), tables between which the true one lies; for a homogeneous chain
        one pair of matrices.
    **options
        Those of :func:`quiltdp.calibrate`: ``adversary``, ``method``, ``protect``, ``window``, ``work``, …

    Returns
    -------
    Calibration
        The one of the worst member; its notes say for which models it holds.

    Assumes
    -------
    The truth is a member of the family, or lies within the errors of one, with the same dependencies:
    which records depend on which is not in question.

    Raises
    ------
    InvalidArgument
        For errors with Gaussian noise (the theorem is about pure α), an empty family, or bad intervals.

    Examples
    --------
    >>> import quiltdp as qd
    >>> fair, sticky = (qd.markov_chain([[s, 1 - s], [1 - s, s]], length=1000) for s in (0.8, 0.9))
    >>> noise = qd.Laplace(sensitivity=1.0)
    >>> round(qd.robust([fair, sticky], 1.0, noise).sigma, 3)  # whichever of the two is true
    8.653
    >>> round(qd.robust(sticky, 1.0, noise, off_by=0.02).sigma, 3)  # or anything near the second
    9.268
    """
    family = _family(models)
    target = positive_epsilon(epsilon, "epsilon", least=SMALLEST_TARGET)
    check_mechanism(mechanism)
    if off_by is not None and intervals is not None:
        raise InvalidArgument("give off_by or intervals, not both")
    found = [_one(m, _errors(m, off_by, intervals), target, mechanism, options) for m in family]
    worst = max(range(len(found)), key=lambda k: (found[k].sigma, -k))
    said = list(found[worst].notes)
    if len(family) > 1:
        names = ", ".join(f"{shown_up(c.sigma)}" for c in found)
        said.append(f"enough for each of {len(family)} models, whose own noise is {names}")
    return replace(found[worst], notes=tuple(said))


def _family(models: Any) -> list[Model]:
    family = [models] if isinstance(models, Model) else list(models) if isinstance(models, Iterable) else []
    if not family or not all(isinstance(m, Model) for m in family):
        raise InvalidArgument("robust: give a model or a family of models")
    return family


def _errors(model: Model, off_by: Any, intervals: Any) -> TableErrors | None:
    if intervals is not None:
        return interval_errors(model, intervals)
    return None if off_by is None else relative_errors(model, off_by)


def _one(
    model: Model, errors: TableErrors | None, epsilon: float, mechanism: Mechanism, options: Mapping[str, Any]
) -> Calibration:
    if errors is None:
        return calibrate(model, epsilon, mechanism, **options)
    if not mechanism.pure:
        raise InvalidArgument(
            f"off_by and intervals are proved for pure mechanisms, not for {mechanism.kind} noise;"
            " give a family of models"
        )
    own = dict(options)
    compare = bool(own.pop("compare", False))
    profile = NearProfile(model, errors, up_to=epsilon, **own)
    found = calibrate_profile(profile, epsilon, mechanism, compare=compare)
    return replace(found, notes=(*found.notes, f"holds if {errors.says}"), origin=None)

"""The way back: what a mechanism leaks at a given noise scale, and a calibration certified anew.

Every number here is certified by a search of its own.  How good it is depends on how far that search
goes: noise that a thorough calibration found to be enough may look like too little to a quick one.  A
*calibration* is therefore searched for as it was made, with the work budget, the stage and the bounds
in its certificate, and then never leaks more than it promised.
"""

from __future__ import annotations

import re
from typing import Any

from quiltdp.accountant.approximate import approximate_leakage
from quiltdp.accountant.calibration import Calibration, cost_at, smallest_noise
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.request import Who, Work
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import Protect, make_units, positive_epsilon
from quiltdp.errors import InvalidArgument, option
from quiltdp.interface import any_model
from quiltdp.mechanisms import Mechanism, check_mechanism
from quiltdp.model import Model
from quiltdp.work import Limit, WorkBudget

__all__ = ["leakage_of"]


@any_model
def leakage_of(
    model: Model,
    mechanism: Mechanism | Calibration,
    scale: float | None = None,
    *,
    method: str | None = None,
    adversary: Who | None = None,
    protect: Protect = None,
    window: int | None = None,
    work: Work | None = None,
    time_limit: Limit = None,
    memory_limit: float | None = None,
) -> Leakage:
    """Return the leakage of a mechanism used at a given noise scale, certified: σ → ε.

    For Gaussian noise the answer is the ε at the specification's own δ.

    Parameters
    ----------
    mechanism
        A mechanism with its sensitivity; or a calibration, which is certified anew by the search it was
        made with: at its own scale (the default) or more noise it never leaks more than its ε.
    method, adversary, window, work, time_limit, memory_limit
        As for :func:`quiltdp.leakage`, with its defaults.  A calibration says all but the limits itself.
    protect
        As for :func:`quiltdp.leakage`; needed again for a calibration for sets that was read from a file.

    Raises
    ------
    InvalidArgument
        If a calibration was made for another model, or is asked for with other options.
    LimitReached
        If a limit was reached before the search of a calibration was repeated.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.verify import leakage_of
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> round(leakage_of(m, qd.Laplace(sensitivity=1.0), scale=8.652947).epsilon, 5)
    1.0
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0), work="thorough")
    >>> leakage_of(m, cal).epsilon <= 1.0
    True
    """
    if isinstance(mechanism, Calibration):
        said = {"method": method, "adversary": adversary, "work": work}
        given = next((name for name, value in said.items() if value is not None), None)
        if given is not None:
            raise InvalidArgument(f"{option(given)}: a calibration says its own; leave it out")
        number = mechanism.sigma if scale is None else positive_epsilon(scale, "scale")
        return _certified_anew(model, mechanism, number, protect, window, time_limit, memory_limit)
    check_mechanism(mechanism)
    if scale is None:
        raise InvalidArgument(f"{option('scale')} is missing: give the noise scale of the mechanism")
    number = positive_epsilon(scale, "scale")
    options: dict[str, Any] = {
        "method": "auto" if method is None else method,
        "adversary": "informed" if adversary is None else adversary,
        "protect": protect,
        "window": 1 if window is None else window,
        "work": "normal" if work is None else work,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
    }
    if not mechanism.pure:
        return approximate_leakage(model, mechanism, number, **options)
    profile = LeakageProfile(model, prices=mechanism.prices(model), **options)
    return profile.leakage(cost_at(mechanism, number))


def _certified_anew(
    model: Model,
    calibration: Calibration,
    scale: float,
    protect: Protect,
    window: int | None,
    time_limit: Limit,
    memory_limit: float | None,
) -> Leakage:
    """Return the leakage by the search in a calibration's certificate."""
    if model.fingerprint != calibration.fingerprint:
        raise InvalidArgument(
            f"calibration: it was made for another model ({calibration.fingerprint[:12]}…),"
            f" not for this one ({model.fingerprint[:12]}…)"
        )
    certificate = calibration.certificate
    options: dict[str, Any] = {
        "method": certificate.asked,
        "adversary": calibration.adversary,
        "time_limit": time_limit,
        **_protection(model, calibration, protect, window),
    }
    options |= {
        "work": WorkBudget.from_dict(certificate.work, certificate.stage),
        "memory_limit": memory_limit,
    }
    if not calibration.mechanism.pure:
        return approximate_leakage(model, calibration.mechanism, scale, known=calibration.epsilon, **options)
    options["prices"] = calibration.mechanism.prices(model)
    profile = LeakageProfile(model, **options)
    found = profile.leakage(cost_at(calibration.mechanism, scale))
    if found.epsilon > calibration.epsilon:  # a search may know better than one look: it is repeated
        profile = LeakageProfile(model, **options)
        sigma, solution, stage = smallest_noise(profile, calibration.epsilon, calibration.mechanism)
        if sigma <= scale:
            found = profile.explain(solution.found, stage, cost_at(calibration.mechanism, sigma))
    return profile.whole(found)


def _protection(
    model: Model, calibration: Calibration, protect: Protect, window: int | None
) -> dict[str, Any]:
    """Return what a calibration protects: what is given, else what it was made from, else what it says."""
    chosen: dict[str, Any] = {"protect": protect, "window": 1 if window is None else window}
    if protect is None and window is None:
        run = re.fullmatch(r"runs of (\d{1,9}) steps", calibration.protected)
        if calibration.origin is not None:
            chosen = {name: calibration.origin[1].get(name, value) for name, value in chosen.items()}
        elif run:
            chosen["window"] = int(run[1])
    kind = make_units(model, **chosen).kind
    if kind != calibration.protected:
        raise InvalidArgument(
            f"calibration: it protects {calibration.protected}, this check is for {kind}:"
            f" give the same {option('protect')} or {option('window')}"
        )
    return chosen

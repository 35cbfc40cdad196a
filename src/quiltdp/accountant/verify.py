"""The way back: what a mechanism leaks at a given noise scale, and a calibration certified anew.

Every number here is certified by a search of its own.  How good it is depends on how far that search
goes: noise that a thorough calibration found to be enough may look like too little to a quick one.  A
*calibration* is therefore searched for as it was made, with the work budget, the stage and the bounds
in its certificate, and then never leaks more than it promised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

from quiltdp.accountant.approximate import approximate_leakage
from quiltdp.accountant.calibration import Calibration, dp_cost_at, smallest_noise
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.request import SearchOptions
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import make_units, positive_epsilon
from quiltdp.errors import InvalidArgument, option
from quiltdp.interface import any_model
from quiltdp.mechanisms import Mechanism, check_mechanism
from quiltdp.model import Model
from quiltdp.work import WorkBudget


@any_model
def leakage_of(
    model: Model,
    mechanism: Mechanism | Calibration,
    scale: float | None = None,
    **options: Unpack[SearchOptions],
) -> Leakage:
    """Return the leakage of a mechanism used at a given noise scale, certified: σ → ε.

    For Gaussian noise the answer is the ε at the specification's own δ.

    Parameters
    ----------
    mechanism
        A mechanism with its sensitivity; or a calibration, which is certified anew by the search it was
        made with: at its own scale (the default) or more noise it never leaks more than its ε.
    **options
        Those of :func:`quiltdp.leakage`, with its defaults.  A calibration says all but the limits itself;
        ``protect`` is needed again for one for sets that was read from a file.

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
    search: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(mechanism, Calibration):
        stated = next((name for name in ("method", "adversary", "work") if name in search), None)
        if stated is not None:
            raise InvalidArgument(f"{option(stated)}: a calibration says its own; leave it out")
        number = mechanism.sigma if scale is None else positive_epsilon(scale, "scale")
        return _certify_again(model, mechanism, number, search)
    check_mechanism(mechanism)
    if scale is None:
        raise InvalidArgument(f"{option('scale')} is missing: give the noise scale of the mechanism")
    number = positive_epsilon(scale, "scale")
    if not mechanism.pure:
        return approximate_leakage(model, mechanism, number, **search)
    profile = LeakageProfile(model, prices=mechanism.prices(model), **search)
    return profile.leakage(dp_cost_at(mechanism, number))


def _certify_again(
    model: Model, calibration: Calibration, scale: float, options: Mapping[str, Any]
) -> Leakage:
    """Return the leakage by the search in a calibration's certificate."""
    if model.fingerprint != calibration.fingerprint:
        raise InvalidArgument(
            f"calibration: it was made for another model ({calibration.fingerprint[:12]}…),"
            f" not for this one ({model.fingerprint[:12]}…)"
        )
    certificate, mechanism = calibration.certificate, calibration.mechanism
    search = {
        **options,
        **_protection_options(model, calibration, options),
        "method": certificate.asked,
        "adversary": calibration.adversary,
        "work": WorkBudget.from_dict(certificate.work, certificate.stage),
    }
    if not mechanism.pure:
        return approximate_leakage(model, mechanism, scale, known=calibration.epsilon, **search)
    search["prices"] = mechanism.prices(model)
    profile = LeakageProfile(model, **search)
    found = profile.leakage(dp_cost_at(mechanism, scale))
    if found.epsilon > calibration.epsilon:  # a search may know better than one evaluation: it is repeated
        profile = LeakageProfile(model, **search)
        sigma, solution, stage = smallest_noise(profile, calibration.epsilon, mechanism)
        if sigma <= scale:
            found = profile.explain(solution.found, stage, dp_cost_at(mechanism, sigma))
    return profile.require_complete(found)


def _protection_options(model: Model, calibration: Calibration, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a calibration protects: as the options say, else what it was made from, or what it says."""
    chosen: dict[str, Any] = {name: options[name] for name in ("protect", "window") if name in options}
    if not chosen and calibration.origin is not None:
        made = calibration.origin[1]
        chosen = {name: made[name] for name in ("protect", "window") if name in made}
    elif not chosen and (run := re.fullmatch(r"runs of (\d{1,9}) steps", calibration.protected)):
        chosen["window"] = int(run[1])
    kind = make_units(model, **chosen).kind
    if kind != calibration.protected:
        raise InvalidArgument(
            f"calibration: it protects {calibration.protected}, this check is for {kind}:"
            f" give the same {option('protect')} or {option('window')}"
        )
    return chosen

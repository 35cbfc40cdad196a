"""What a calibration must fulfil, and what it may be asked for."""

from __future__ import annotations

from collections.abc import Mapping

from quiltdp.accountant.units import LARGEST
from quiltdp.errors import InvalidArgument, NoCertificate, option
from quiltdp.mechanisms import Mechanism, check_mechanism

__all__ = ["check_cost", "check_mechanism", "check_scale"]


def check_cost(spec: Mechanism, sigma: float, stated: object) -> None:
    """Refuse a scale that costs more than the α that was certified: one of the two was changed."""
    cost = spec.dp_epsilon(sigma)
    if isinstance(cost, Mapping):
        certified = stated if isinstance(stated, Mapping) else {}
        odd = next((n for n, a in cost.items() if not a <= certified.get(n, -1.0)), None)
        if odd is not None:
            raise NoCertificate(f"sigma = {sigma:.6g} costs record {odd!r} more than was certified")
    elif not isinstance(stated, (int, float)) or not cost <= stated:
        raise NoCertificate(f"sigma = {sigma:.6g} costs α = {cost:.6g}, more than the certified {stated!r}")


def check_scale(sigma: float, epsilon: float) -> None:
    """Refuse a target that asks for more noise than numbers can hold."""
    if not sigma <= LARGEST:
        raise InvalidArgument(
            f"{option('epsilon')} {epsilon:g} needs noise of scale {sigma:.3g}, the limit is {LARGEST:g}:"
            f" allow more leakage, or measure in a larger unit so that {option('sensitivity')} is smaller"
        )

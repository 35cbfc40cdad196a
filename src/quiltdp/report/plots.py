"""Pictures of leakage: matplotlib axes out, nothing drawn on import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.errors import DependencyMissing

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.profile import LeakageProfile

__all__ = ["new_axes", "plot_calibration", "plot_profile"]


def new_axes(ax: Any = None) -> Any:
    """Return ``ax``, or fresh axes; say which extra is missing when there is no matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise DependencyMissing("pictures need matplotlib: pip install 'quiltdp[plot]'") from None
    return plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]


def plot_profile(profile: LeakageProfile, dp_epsilons: Any = None, *, ax: Any = None) -> Any:
    """Draw the largest leakage against α on logarithmic axes, one line per method.

    The thick line is the smallest bound; the dotted one is what independent records would leak.
    """
    ax = new_axes(ax)
    alphas = np.geomspace(1e-3, 3.0, 25) if dp_epsilons is None else np.asarray(dp_epsilons, dtype=float)
    curve = profile.curve(alphas)
    names = list(dict.fromkeys(name for point in curve for name in point.by_method))
    for name in names:
        ax.plot(alphas, [point.by_method.get(name, np.nan) for point in curve], lw=1, label=name)
    ax.plot(alphas, [point.epsilon for point in curve], lw=2.5, color="black", label="certified")
    ax.plot(alphas, alphas, ls=":", color="grey", label="independent records")
    ax.set(xscale="log", yscale="log", xlabel="α of the mechanism (dp_epsilon)", ylabel="leakage ε")
    ax.set_title(f"{profile.adversary} adversary, {profile.units.kind}")
    ax.legend(fontsize="small")
    return ax


def plot_calibration(calibration: Calibration, *, ax: Any = None) -> Any:
    """Draw the calibrated scale beside those of other answers, as bars on a logarithmic axis."""
    ax = new_axes(ax)
    names = ["this answer", *calibration.compared]
    values = [calibration.sigma, *calibration.compared.values()]
    colours = ["#2a6f97", *("#c9c9c9" for _ in calibration.compared)]
    ax.barh(names[::-1], values[::-1], color=colours[::-1])
    for k, value in enumerate(values[::-1]):
        ax.text(value, k, f" {value:.3g}", va="center")
    ax.set(xscale="log", xlabel="noise scale σ")
    ax.set_title(f"ε = {calibration.epsilon:g}, {calibration.adversary} adversary")
    ax.margins(x=0.15)
    return ax

"""Figure 2 of Wang, Lei and Fienberg (2016), as printed; ``make figures`` draws it.

Left: Z is the mean of 100 draws from a standard normal truncated to [−2, 2]; h is drawn with density
∝ exp(−γ|Z − h|), which is 4γ-DP.  Right: y = xh + noise with x and noise uniform on [−1, 1], true h = 1;
h is drawn from [−2, 2] with density ∝ exp(−γ Σ (y_i − x_i h)²), which is 64γ-DP.  (The text gives no n for
the right one; here n = 100.)  Over an exponential grid of γ: the ε of differential privacy, the on-average
KL-privacy, γ times the generalization error (the same number, by Theorem 4), the generalization
error itself, and the excess risk.

    python benchmarks/kl_privacy_experiments.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.stats import truncnorm

Curves = dict[str, np.ndarray]
GAMMAS = np.logspace(-2, 3, 16)
POINTS = 100


def private_mean(gammas: np.ndarray, rng: np.random.Generator, samples: int) -> Curves:
    """Release the mean of 100 truncated normals with Laplace noise 1/γ."""
    law = truncnorm(-2, 2)
    z, other = (law.rvs((samples, POINTS), random_state=rng).mean(axis=1) for _ in range(2))
    population = law.rvs((4000, POINTS), random_state=rng).mean(axis=1)
    best = np.abs(population - np.median(population)).mean()
    rows = []
    for gamma in gammas:
        scaled = gamma * np.abs(z - other)
        kl = scaled + np.expm1(-scaled)  # of two Laplace laws
        h = z + rng.laplace(scale=1 / gamma, size=samples)
        gap = np.abs(other - h) - np.abs(z - h)  # fresh data, then the data themselves
        excess = np.abs(population[rng.integers(0, len(population), samples)] - h) - best
        rows.append((4 * gamma, *stated(kl), *stated(gap), *stated(excess)))
    return curves(gammas, rows)


def regression(gammas: np.ndarray, rng: np.random.Generator, samples: int, grid: int = 801) -> Curves:
    """Draw the slope of a line through the origin from its posterior on [−2, 2]."""
    h = np.linspace(-2, 2, grid)
    x = rng.uniform(-1, 1, (samples, POINTS + 1))
    y = x + rng.uniform(-1, 1, (samples, POINTS + 1))
    old, new = (y[:, k, None] - x[:, k, None] * h for k in (0, POINTS))
    change = new**2 - old**2  # loss of the fresh point minus loss of the one it replaces
    first = (x[:, :POINTS] ** 2).sum(axis=1)[:, None] * h**2 - 2 * (x[:, :POINTS] * y[:, :POINTS]).sum(
        axis=1
    )[:, None] * h
    second = first + change
    risk = (h - 1) ** 2 / 3  # E (x (1 − h))², what is above the noise
    rows = []
    for gamma in gammas:
        p, q = (posterior(-gamma * s) for s in (first, second))
        kl = np.sum(np.exp(p) * (p - q), axis=1)
        # fresh minus used loss, averaged with the two points swapped: the same mean, less noise
        gap = np.sum((np.exp(p) - np.exp(q)) * change, axis=1) / 2
        rows.append((64 * gamma, *stated(kl), *stated(gap), *stated(np.exp(p) @ risk)))
    return curves(gammas, rows)


def posterior(score: np.ndarray) -> np.ndarray:
    """Return the logarithm of probabilities proportional to e^score, on the grid."""
    top = score.max(axis=1, keepdims=True)
    found: np.ndarray = score - top - np.log(np.exp(score - top).sum(axis=1, keepdims=True))
    return found


def stated(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def curves(gammas: np.ndarray, rows: list[tuple[float, ...]]) -> Curves:
    """Name the columns."""
    names = ("DP", "KL", "KL error", "gap", "gap error", "excess", "excess error")
    return {"gamma": gammas, **dict(zip(names, np.array(rows).T, strict=True))}


def panels(samples: int = 20_000, seed: int = 2016) -> dict[str, dict[str, list[float]]]:
    """Return the curves of both panels."""
    rng = np.random.default_rng(seed)
    both = {
        "mean of 100 truncated normals, ε = 4γ": private_mean(GAMMAS, rng, samples),
        "regression, squared loss, ε = 64γ": regression(GAMMAS, rng, samples // 5),
    }
    return {title: {k: v.tolist() for k, v in found.items()} for title, found in both.items()}


def draw(both: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Save both panels."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(both), figsize=(5.2 * len(both), 4.1), dpi=110)
    for axis, (title, lists) in zip(axes, both.items(), strict=True):
        found = {name: np.array(values) for name, values in lists.items()}
        gamma = found["gamma"]
        axis.loglog(gamma, found["DP"], "k--", label="ε of differential privacy")
        axis.errorbar(
            gamma, found["KL"], yerr=2 * found["KL error"], fmt="o-", ms=4, label="on-average KL-privacy"
        )
        seen = found["gap"] > 2 * found["gap error"]  # elsewhere the simulation cannot tell it from zero
        times = gamma * found["gap"]
        axis.errorbar(
            gamma[seen],
            times[seen],
            yerr=2 * (gamma * found["gap error"])[seen],
            fmt="x",
            ms=7,
            label="γ × generalization error",
        )
        axis.loglog(gamma[seen], found["gap"][seen], "-.", label="generalization error")
        axis.loglog(gamma, np.maximum(found["excess"], 1e-9), ":", label="excess risk")
        axis.set_xlabel("γ")
        axis.set_ylim(1e-7, 1e5)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", type=Path, default=Path("docs/benchmarks/kl_privacy.json"))
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=2016)
    options = parser.parse_args()
    numbers = panels(options.samples, options.seed)
    options.numbers.write_text(json.dumps(numbers, indent=1) + "\n")
    for name, found in numbers.items():
        for k in range(0, len(GAMMAS), 5):
            print(name, {key: float(f"{value[k]:.3g}") for key, value in found.items()})


if __name__ == "__main__":
    main()

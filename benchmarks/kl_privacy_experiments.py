"""Redraw the two experiments of Wang, Lei and Fienberg (2016): docs/figures/kl_privacy_*.png.

1. The mean of a truncated normal, released with Laplace noise, and by a Gibbs sampler of the absolute
   loss: the DP ε, the on-average KL-privacy, and γ × the generalization gap.
2. One-dimensional regression through the origin by a Gibbs sampler of the absolute loss.

    python benchmarks/kl_privacy_experiments.py [--out docs/figures]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from scipy.stats import truncnorm

from quiltdp.generalization import GibbsSampler, estimate_on_average_kl, kl_laplace

SIZES = np.unique(np.geomspace(5, 2000, 14).astype(int))


def laplace_mean(rng: np.random.Generator, samples: int) -> dict[str, np.ndarray]:
    """Mean of records truncated to [−½, ½], plus Laplace noise of scale 0.05."""
    law = truncnorm(-2.5, 2.5, scale=0.2)
    scale = 0.05
    rows = []
    for n in SIZES:
        found = estimate_on_average_kl(
            lambda z, w: kl_laplace(float(z.mean() - w.mean()), scale),
            lambda r, size: law.rvs(size, random_state=r),
            int(n),
            samples=samples,
            rng=rng,
        )
        rows.append((1 / (n * scale), found.value, found.standard_error))
    dp, kl, error = np.array(rows).T
    return {"n": SIZES, "DP": dp, "on-average KL": kl, "error": error}


def gibbs(
    loss: np.ndarray, weights: np.ndarray, gamma: float, rng: np.random.Generator, samples: int
) -> dict[str, np.ndarray]:
    """DP ε, on-average KL, γ × gap and excess risk of a Gibbs sampler on a finite grid."""
    sampler = GibbsSampler(loss, gamma)
    risk = weights @ loss
    rows = []
    for n in SIZES:
        kl, gap, excess = np.empty(samples), np.empty(samples), np.empty(samples)
        for r in range(samples):
            data = rng.choice(len(weights), size=n + 1, p=weights)
            counts = np.bincount(data[:n], minlength=len(weights))
            other = counts.copy()
            other[data[0]] -= 1
            other[data[n]] += 1
            p, q = sampler.log_output_law(counts), sampler.log_output_law(other)
            kl[r] = np.sum(np.exp(p) * (p - q))
            # fresh minus used loss, averaged with the two records swapped: same mean, less noise
            gap[r] = gamma / 2 * np.sum((np.exp(p) - np.exp(q)) * (loss[data[n]] - loss[data[0]]))
            excess[r] = np.exp(p) @ risk - risk.min()
        root = math.sqrt(samples)
        rows.append(
            (sampler.dp_epsilon(), kl.mean(), kl.std() / root, gap.mean(), gap.std() / root, excess.mean())
        )
    dp, kl_mean, kl_error, gap_mean, gap_error, excess_mean = np.array(rows).T
    return {
        "n": SIZES,
        "DP": dp,
        "on-average KL": kl_mean,
        "error": kl_error,
        "γ × gap": gap_mean,
        "gap error": gap_error,
        "excess risk": excess_mean,
    }


def mean_problem() -> tuple[np.ndarray, np.ndarray]:
    """Truncated normal on a grid, absolute loss."""
    grid = np.linspace(-0.5, 0.5, 81)
    weights = np.exp(-0.5 * ((grid - 0.1) / 0.2) ** 2)
    return np.abs(grid[:, None] - grid[None, :]), weights / weights.sum()


def regression_problem() -> tuple[np.ndarray, np.ndarray]:
    """y = 0.7 x + noise with x uniform on [−1, 1], absolute loss |y − xθ|, θ on a grid."""
    x = np.linspace(-1, 1, 15)
    noise = np.linspace(-0.3, 0.3, 9)
    chance = np.exp(-0.5 * (noise / 0.15) ** 2)
    chance /= chance.sum()
    theta = np.linspace(-1, 1, 81)
    points = [(a, 0.7 * a + e, p / len(x)) for a in x for e, p in zip(noise, chance, strict=True)]
    xs, ys, ps = (np.array(v) for v in zip(*points, strict=True))
    return np.abs(ys[:, None] - xs[:, None] * theta[None, :]), ps


def draw(path: Path, title: str, curves: dict[str, np.ndarray]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4.2), dpi=120)
    axis.loglog(curves["n"], curves["DP"], "k--", label="differential privacy ε")
    axis.errorbar(
        curves["n"],
        curves["on-average KL"],
        yerr=3 * curves["error"],
        fmt="o-",
        ms=3,
        label="on-average KL-privacy (± 3 s.e.)",
    )
    if "γ × gap" in curves:
        axis.errorbar(
            curves["n"],
            np.maximum(curves["γ × gap"], 1e-8),
            yerr=3 * curves["gap error"],
            fmt="x",
            ms=5,
            label="γ × generalization gap (± 3 s.e.)",
        )
        axis.loglog(curves["n"], curves["excess risk"], ":", label="excess risk")
    axis.set_xlabel("records n")
    axis.set_ylim(bottom=0.3 * float(curves["on-average KL"].min()))
    axis.set_title(title)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2016)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    runs = {
        "kl_privacy_laplace_mean": (
            "Truncated-normal mean, Laplace noise",
            laplace_mean(rng, options.samples),
        ),
        "kl_privacy_gibbs_mean": (
            "Truncated-normal mean, Gibbs sampler (γ = 1)",
            gibbs(*mean_problem(), 1.0, rng, options.samples),
        ),
        "kl_privacy_regression": (
            "One-dimensional regression, Gibbs sampler (γ = 1)",
            gibbs(*regression_problem(), 1.0, rng, options.samples),
        ),
    }
    for name, (title, curves) in runs.items():
        draw(options.out / f"{name}.png", title, curves)
        last = {k: float(f"{v[-1]:.3g}") for k, v in curves.items()}
        print(name, last)


if __name__ == "__main__":
    main()

"""Draws every picture of the documentation into docs/figures; run by ``make docs`` and ``make figures``.

Pictures come from the program itself, so that they never show what it no longer does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import quiltdp as qd

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
_CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip


def noise() -> None:
    """How much noise ε = 1 needs on bundled models: plain DP, quiltdp against both adversaries, one group."""
    from matplotlib.figure import Figure

    names = ("asia", "child", "location_chain", "two_families")
    rows = {}
    for name in names:
        model = qd.example(name)
        count = qd.Laplace(sensitivity=1.0)
        informed = qd.calibrate(model, 1.0, count, time_limit=3600.0)
        prior = qd.calibrate(model, 1.0, count, adversary="prior", compare=False, time_limit=3600.0)
        rows[name] = (1.0, prior.sigma, informed.sigma, informed.compared["group"])
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    labels = (
        "plain DP (promises too little)",
        "quiltdp, prior adversary",
        "quiltdp, informed adversary",
        "one group",
    )
    colours = ("#d7dde2", "#6aa9c9", "#1f5f8b", "#b9a7a0")
    places = np.arange(len(names))
    for k, (label, colour) in enumerate(zip(labels, colours, strict=True)):
        values = [rows[n][k] for n in names]
        bars = axes.bar(places + 0.2 * (k - 1.5), values, 0.19, label=label, color=colour)
        axes.bar_label(bars, [f"{v:.3g}" for v in values], fontsize=7, padding=2)
    axes.set_xticks(places, [n.replace("_", " ") for n in names])
    axes.set(yscale="log", ylabel="noise σ for ε = 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    axes.set_ylim(0.7, axes.get_ylim()[1] * 6)
    figure.savefig(FIGURES / "noise.png", dpi=130)


def pedigree() -> None:
    """A family coloured by leakage."""
    out = FIGURES / "pedigree.png"
    run(
        "pedigree",
        "models/pedigree/ceph1463.fam",
        "--allele-frequency",
        "0.1",
        "--dp-epsilon",
        "0.1",
        "--plot",
        out,
    )


def trace() -> None:
    """A map of released visits."""
    with tempfile.TemporaryDirectory() as folder:
        points = "models/location/trackintel_google_trajectory.csv"
        model = ("--cell", "1km", "--estimator", "additive:1", "--epsilon", "3")
        release = ("--area", "47.33,8.45,47.44,8.62", "--release", Path(folder) / "visits.csv")
        run("trace", points, *model, *release, "--map", FIGURES / "visits.png")


def report() -> None:
    """The first screen of a report, photographed in Chromium where there is one."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("no Chromium: docs/figures/report.png is left as it is", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        run("report", "models/asia.bif", "--epsilon", "1", "-o", page, "--time-limit", "3600")
        size = ("--window-size=1100,1500", "--virtual-time-budget=4000")
        files = (f"--user-data-dir={folder}/profile", f"--screenshot={FIGURES / 'report.png'}")
        command = [browser, *_CHROMIUM, *size, *files, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def run(*arguments: object) -> None:
    """Run the command line."""
    subprocess.run(
        [sys.executable, "-m", "quiltdp", *map(str, arguments)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for draw in (noise, pedigree, trace, report):
        draw()

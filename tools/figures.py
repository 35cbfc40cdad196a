"""Draws every picture of the documentation into docs/figures; run by ``make docs`` and ``make figures``.

Each picture is drawn from data that the program has just computed, and carries them: a text chunk
:data:`CHUNK` of the PNG holds them as JSON.  ``tests/test_figures.py`` computes them again and compares.
"""

from __future__ import annotations

import contextlib
import csv
import doctest
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import quiltdp as qd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import kl_privacy_experiments  # noqa: E402 - the experiments draw their own figures
import thresholdout_experiment  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
CHUNK = "quiltdp-data"
_CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip
_FAMILY = ROOT / "models" / "pedigree" / "ceph1463.fam"
_POINTS = ROOT / "models" / "location" / "trackintel_google_trajectory.csv"


def noise() -> dict[str, Any]:
    """How much noise ε = 1 needs on bundled models: plain DP, quiltdp against both adversaries, one group."""
    rows = {}
    for name in ("asia", "child", "location_chain", "two_families"):
        model, count = qd.example(name), qd.Laplace(sensitivity=1.0)
        informed = qd.calibrate(model, 1.0, count)
        prior = qd.calibrate(model, 1.0, count, adversary="prior", compare=False)
        rows[name] = {
            "plain DP (promises too little)": informed.compared["independent"],
            "quiltdp, prior adversary": prior.sigma,
            "quiltdp, informed adversary": informed.sigma,
            "one group": informed.compared["group"],
        }
    return rows


def draw_noise(rows: dict[str, Any], path: Path) -> None:
    """Four bars per model, each with its number."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    colours = ("#d7dde2", "#6aa9c9", "#1f5f8b", "#b9a7a0")
    places = np.arange(len(rows))
    for k, (label, colour) in enumerate(zip(next(iter(rows.values())), colours, strict=True)):
        values = [row[label] for row in rows.values()]
        bars = axes.bar(places + 0.2 * (k - 1.5), values, 0.19, label=label, color=colour)
        axes.bar_label(bars, [f"{v:.3g}" for v in values], fontsize=7, padding=2)
    axes.set_xticks(places, [name.replace("_", " ") for name in rows])
    axes.set(yscale="log", ylabel="noise σ for ε = 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    axes.set_ylim(0.7, axes.get_ylim()[1] * 6)
    figure.savefig(path, dpi=130)


def quilt() -> dict[str, Any]:
    """The edges of asia's moral graph and the parts of one quilt of smoke."""
    graph = qd.moralize("models/asia.bif")
    chosen = next(q for q in qd.quilts(graph, "smoke") if q.separator == {"either", "dysp", "tub"})
    parts = {name: sorted(getattr(chosen, name)) for name in ("separator", "nearby", "remote")}
    return {"edges": [list(e) for e in graph.edges()], "target": chosen.target, **parts}


def draw_quilt(parts: dict[str, Any], path: Path) -> None:
    """The moral graph, the parts of the quilt in colour."""
    graph = qd.moralize("models/asia.bif")
    chosen = next(q for q in qd.quilts(graph, parts["target"]) if sorted(q.separator) == parts["separator"])
    axes = graph.plot(highlight=chosen)
    axes.legend(loc="lower right", fontsize="small", frameon=False)
    axes.set_title("smoke: separator, nearby and remote nodes of one Markov quilt", fontsize=9, pad=16)
    axes.figure.set_size_inches(6.0, 3.6)
    axes.figure.savefig(path, dpi=150, bbox_inches="tight")


def pedigree() -> dict[str, Any]:
    """What each person of a family leaks to the informed adversary when α = 0.1."""
    return dict(qd.leakage(qd.pedigree(_FAMILY, allele_frequency=0.1), dp_epsilon=0.1).per_record)


def draw_family(leakages: dict[str, Any], path: Path) -> None:
    """The family tree, coloured by leakage."""
    from quiltdp.domains.pedigree import read_pedigree
    from quiltdp.report.pedigree_plot import draw_pedigree

    axes = draw_pedigree(read_pedigree(_FAMILY), leakages, label="leakage ε (informed adversary)")
    axes.figure.savefig(path, dpi=150, bbox_inches="tight")


def message() -> dict[str, Any]:
    """The messages of docs/how_a_bound_works.md, computed by the code on that page."""
    page = (ROOT / "docs" / "how_a_bound_works.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec("".join(example.source for example in doctest.DocTestParser().get_examples(page)), names)
    nodes, found = names["family"].nodes, {}
    for task, table in zip(names["walk"].tasks, names["messages"], strict=True):
        found[f"{nodes[task.new[0]]} to {nodes[task.root[0]]}"] = table.tolist()
    return {"messages": found, "leakage": float(names["leakage"])}


def draw_message(data: dict[str, Any], path: Path) -> None:
    """The family as a tree, a table of pairs of genotypes beside every edge."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.0))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 8.4), ylim=(0, 4))
    axes.axis("off")
    people = {"Ann": (1.1, 3.2), "Bob": (1.1, 0.8), "Mum": (4.2, 2.0), "Grandma": (7.3, 2.0)}
    below, above = data["messages"]["Ann to Mum"], data["messages"]["Mum to Grandma"]
    arrows = [("Ann", "Mum", below, (2.75, 3.25)), ("Bob", "Mum", below, (3.1, 0.8)),
              ("Mum", "Grandma", above, (5.75, 3.0))]  # fmt: skip
    for start, end, table, (x, y) in arrows:
        line = {"arrowstyle": "-|>", "color": "#1f5f8b", "lw": 2, "shrinkA": 28, "shrinkB": 30}
        axes.annotate("", people[end], people[start], arrowprops=line)
        for i, row in enumerate(table):
            for j, value in enumerate(row):
                shade = 1 - 0.55 * value / 2
                axes.add_patch(
                    _box(
                        x + 0.34 * (j - 1.5),
                        y - 0.26 * (i - 0.5),
                        0.34,
                        0.26,
                        (shade, shade + (1 - shade) / 2, 1),
                    )
                )
                axes.text(
                    x + 0.34 * (j - 1),
                    y - 0.26 * (i - 1),
                    f"{value:.2f}",
                    fontsize=7,
                    ha="center",
                    va="center",
                )
        axes.text(
            x,
            y + (0.48 if y > 2 else -0.6),
            f"{start}'s message: pairs of {end}'s genotypes",
            fontsize=7.5,
            ha="center",
        )
    for name, (x, y) in people.items():
        axes.text(
            x,
            y,
            name,
            ha="center",
            va="center",
            bbox={"boxstyle": "round,pad=0.6", "fc": "#eef4f8", "ec": "#1f5f8b"},
        )
    axes.text(5.1, 1.35, "D = α·1[x ≠ x'] + Ann's + Bob's", fontsize=8, ha="center", style="italic")
    axes.text(
        7.3,
        1.05,
        f"leakage ≤ α + {data['leakage'] - 1:.2f}\n(α = 1)",
        fontsize=8,
        ha="center",
        style="italic",
    )
    figure.savefig(path, dpi=140)


def _box(x: float, y: float, width: float, height: float, colour: tuple[float, float, float]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="white")


def visits() -> dict[str, Any]:
    """The noise on visits per cell; the noisy counts themselves are drawn with the picture."""
    city = qd.location_chain(_POINTS, cell="1km", estimator="additive:1")
    return {"sigma": qd.calibrate(city, 3.0, qd.Laplace(sensitivity=2.0), compare=False).sigma}


def draw_visits(data: dict[str, Any], path: Path) -> None:
    """Release the visits and draw their map; the noise that was drawn joins the data."""
    with tempfile.TemporaryDirectory() as folder:
        points, table = (Path(folder) / name for name in ("points.csv", "visits.csv"))
        shutil.copy(_POINTS, points)
        model = ("--cell", "1km", "--estimator", "additive:1", "--epsilon", "3")
        run(
            "trace",
            points,
            *model,
            "--area",
            "47.33,8.45,47.44,8.62",
            "--release",
            table,
            "--no-ledger",
            "--map",
            path,
        )
        rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()[1:]))
    data["sigma"] = float(rows[0]["sigma"])
    data["noisy counts"] = {row["cell"]: float(row["noisy_count"]) for row in rows}


def report() -> dict[str, Any]:
    """The numbers on the first screen of a report."""
    with tempfile.TemporaryDirectory() as folder:
        page = _report_page(Path(folder)).read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    return {
        **{name: data[name] for name in ("sigma", "targets", "leakage")},
        "bars": {bar["label"]: bar["sigma"] for bar in data["bars"]},
        "bracket": {name: data["bracket"][name] for name in ("certified", "attained")},
        "records": {record["name"]: record["leaks_to"] for record in data["records"]},
    }


def draw_report(_: dict[str, Any], path: Path) -> None:
    """Photograph the page in Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise FileNotFoundError("no Chromium (make chromium)")
    with tempfile.TemporaryDirectory() as folder:
        page = _report_page(Path(folder))
        size = ("--window-size=1100,1500", "--virtual-time-budget=4000")
        files = (f"--user-data-dir={folder}/profile", f"--screenshot={path}")
        command = [browser, *_CHROMIUM, *size, *files, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def _report_page(folder: Path) -> Path:
    page = folder / "report.html"
    run("report", "models/asia.bif", "--epsilon", "1", "-o", page)
    return page


def run(*arguments: object) -> None:
    """Run the command line."""
    subprocess.run(
        [sys.executable, "-m", "quiltdp", *map(str, arguments)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )


def experiment(*ways: str) -> dict[str, Any]:
    """What the reusable-holdout experiment measured, as recorded, beside what is promised now."""
    recorded = json.loads((ROOT / "docs" / "benchmarks" / "thresholdout_experiment.json").read_text())
    settings = thresholdout_experiment.settings(thresholdout_experiment.Setting())
    return {
        level: {
            way: {
                "found": recorded["no signal"][level][way]["found"],
                # a calibration of many kinds of rows takes its time: recorded, and computed anew by a test
                "promised": recorded["no signal"][level][way]["promised"]
                if way == "paper"
                else thresholdout_experiment.promise(setting, way),
                "epsilon": recorded["no signal"][level][way]["epsilon"],
            }
            for way in ways
        }
        for level, setting in settings.items()
    }


Data = dict[str, Any]
PICTURES: dict[str, tuple[Callable[[], Data], Callable[[Data, Path], None]]] = {
    "noise": (noise, draw_noise),
    "pedigree": (pedigree, draw_family),
    "quilt": (quilt, draw_quilt),
    "message": (message, draw_message),
    "visits": (visits, draw_visits),
    "report": (report, draw_report),
    "holdout_naive": (lambda: experiment("naive"), thresholdout_experiment.draw_figure),
    "holdout_thresholdout": (
        lambda: experiment("independent", "paper", "plan"),
        thresholdout_experiment.draw_figure,
    ),
    "kl_privacy_figure2": (kl_privacy_experiments.panels, kl_privacy_experiments.draw),
}
"""Per picture: what computes its data, and what draws it from them."""


def stamp(path: Path, data: Data) -> None:
    """Put into a picture the data it was drawn from."""
    chunk = PngInfo()
    chunk.add_text(CHUNK, json.dumps(data, allow_nan=False), zip=True)
    with Image.open(path) as picture:
        picture.save(path, pnginfo=chunk, optimize=True)


def drawn_from(path: Path) -> Data:
    """Return the data a picture was drawn from."""
    with Image.open(path) as picture:
        data: Data = json.loads(picture.info[CHUNK])
    return data


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        compute, draw = PICTURES[name]
        data, path = compute(), FIGURES / f"{name}.png"
        try:
            draw(data, path)
        except FileNotFoundError as missing:
            print(f"{path} is left as it is: {missing}", file=sys.stderr)
        else:
            stamp(path, data)

"""Cold starts: processor seconds of new processes, now and in the version before, in turns."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench_peers import spread

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "9270987"
"""The last commit before searches came from above and messages were computed side by side."""

_ENOUGH = 4.0  # seconds of one command after which it is not repeated

PLAIN = {
    "python -c pass": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import scipy.optimize": ["-c", "import scipy.optimize"],
    "import quiltdp": ["-c", "import quiltdp"],
    "quiltdp --help": ["-m", "quiltdp", "--help"],
    "quiltdp info asia": ["-m", "quiltdp", "info", "models/asia.bif"],
}


def startup(quick: bool) -> list[dict[str, Any]]:
    rounds = 2 if quick else 3
    with tempfile.TemporaryDirectory() as folder, earlier(Path(folder)) as before:
        trees = [tree for tree in (ROOT, before) if tree is not None]
        for tree in trees:
            child_seconds(["-m", "compileall", "-q", str(tree / "src")], tree, folder)
        rows = []
        for said, words in commands(quick, Path(folder)).items():
            times: list[list[float]] = [[], []]
            sigmas: list[float | None] = [None, None]
            for k in range(rounds):
                for version, tree in enumerate(trees):
                    if k and not times[version]:
                        continue
                    seconds, answer = child_seconds(words, tree, folder)
                    if answer is not None:
                        times[version].append(seconds)
                        sigmas[version] = sigma(answer)
                if max(map(sum, times)) > _ENOUGH:
                    break
            ratios = [b / a for a, b in zip(*times, strict=False)]
            rows.append([said, *map(spread, (*times, ratios)), *sigmas])
    return [
        {
            "title": "From a cold start",
            "says": "Processor seconds of a new process, user and system; median (least–most) of rounds in"
            f" which both versions run in turns; *before* is commit {BEFORE}. Bytecode is compiled, as in an"
            " installed package. `calibrate` at ε = 1, with the noise σ that each version asks for: an answer"
            " that is quicker and no better than group privacy is no match.",
            "columns": ["command", "now, s", "before, s", "before / now", "σ now", "σ before"],
            "rows": rows,
        }
    ]


def commands(quick: bool, folder: Path) -> dict[str, list[str]]:
    found = dict(PLAIN)
    for name in ("asia",) if quick else ("asia", "survey", "child", "alarm", "win95pts", "hepar2"):
        file = f"models/{name}.bif"
        if name == "win95pts":
            packed = example(name)
            if packed is None:
                continue
            (folder / f"{name}.bif").write_bytes(gzip.decompress(packed.read_bytes()))
            file = str(folder / f"{name}.bif")
        for adversary in ("informed", "prior"):
            found[f"calibrate {name}, {adversary}"] = calibrate(file, adversary)
    family = ["--allele-frequency", "0.1", "--query", "allele-count"]
    for name, file, more in (
        ("two_families", "models/two_families.json", ["--sensitivity", "1"]),
        ("ceph1463", "models/pedigree/ceph1463.fam", family),
        ("location chain", "models/location_chain.json", []),
    )[: 1 if quick else 3]:
        for adversary in ("informed", "prior"):
            found[f"calibrate {name}, {adversary}"] = [*calibrate(file, adversary), *more]
    return found


def calibrate(file: str, adversary: str) -> list[str]:
    words = ["--epsilon", "1", "--adversary", adversary, "--json"]
    return ["-m", "quiltdp", "calibrate", file, *words]


def example(name: str) -> Path | None:
    """Return a network that pgmpy carries."""
    spec = find_spec("pgmpy")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    return path if path.exists() else None


@contextmanager
def earlier(folder: Path) -> Iterator[Path | None]:
    """Check the version before out beside this one; ``None`` where its history is not here."""
    place = folder / "before"
    git = ["git", "-C", str(ROOT), "worktree"]
    made = subprocess.run([*git, "add", "--detach", str(place), BEFORE], capture_output=True, check=False)
    try:
        yield place if made.returncode == 0 else None
    finally:
        if made.returncode == 0:
            subprocess.run([*git, "remove", "--force", str(place)], capture_output=True, check=False)


def sigma(answer: str) -> float | None:
    """Return the noise of a calibration, from its JSON."""
    return float(json.loads(answer)["sigma"]) if answer.startswith("{") else None


def child_seconds(words: Sequence[str], tree: Path, cache: str) -> tuple[float, str | None]:
    """Return the processor seconds of one process that imports from ``tree``, and what it prints.

    The second is ``None`` if it failed.
    """
    new = {"PYTHONPATH": str(tree / "src"), "PYTHONPYCACHEPREFIX": str(Path(cache) / "bytecode")}
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | new
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=env, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, done.stdout if done.returncode == 0 else None

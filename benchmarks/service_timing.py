"""Does the time of a reply tell where the answer came from?  AUC of branch by time, with slots and without.

python benchmarks/service_timing.py --questions 400

Questions that the training data answer and questions that the holdout answers are asked in random order over
HTTP; 0.5 says that time tells nothing, 1 that it tells all.
"""

from __future__ import annotations

import argparse
import random
import socket
import tempfile
import threading
import time

import numpy as np
import uvicorn

import quiltdp as qd
from quiltdp.accountant.ledger import Terms
from quiltdp.server.app import Limits, create_app
from quiltdp.server.database import make_tables, opened
from quiltdp.server.studies import create_study

ROWS = 2000


def columns(seed: int, shift: float) -> dict[str, list[str]]:
    """Return two columns; ``y`` differs between training and holdout."""
    rng = np.random.default_rng(seed)
    return {
        "x": [f"{v:.4f}" for v in rng.random(ROWS)],
        "y": [f"{v:.4f}" for v in np.clip(rng.random(ROWS) + shift, 0, 1)],
    }


def times(slot: float, questions: int) -> dict[str, list[float]]:
    """Return how long replies took, by where the answer came from."""
    database = f"sqlite:///{tempfile.mkdtemp()}/study.db"
    engine = opened(database)
    make_tables(engine)
    spec = qd.Thresholdout(budget=questions, sensitivity=1 / ROWS)
    terms = Terms(spec, spec.scale(1e6), 1e6, 1e6, 0.0, "informed", "exact", "f" * 64)
    settings = {"calibration": terms, "threshold": 0.1, "failure": 0.05, "queries": None}
    _, token = create_study(engine, "t", columns(0, 0.0), columns(1, 0.4), settings, train_is_public=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = create_app(database, slot=slot, limits=Limits(rate=1_000_000))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    study = qd.connect(f"http://127.0.0.1:{port}", token)
    spent: dict[str, list[float]] = {"train": [], "holdout": []}
    order = random.Random(0)
    for k in range(questions):
        text = f"{order.choice('xy')} < {0.3 + 0.4 * k / questions:.4f}"
        begun = time.perf_counter()
        answer = study.ask(text)
        spent[answer.source].append(time.perf_counter() - begun)
    server.should_exit = True
    return spent


def auc(first: list[float], second: list[float]) -> float:
    """Return the probability that a time of the second kind is the longer one."""
    a, b = np.array(first)[:, None], np.array(second)[None, :]
    return float(((b > a) + 0.5 * (a == b)).mean())


def main() -> None:
    """Print one line for each slot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=400)
    given = parser.parse_args()
    for slot in (1e-6, 0.25):
        spent = times(slot, given.questions)
        area = auc(spent["train"], spent["holdout"])
        error = 0.5 / np.sqrt(min(map(len, spent.values())))
        middle = {source: f"{1000 * np.median(values):.1f} ms" for source, values in spent.items()}
        counts = {source: len(values) for source, values in spent.items()}
        print(f"slot {slot:g} s: AUC {area:.3f} ± {error:.3f}, medians {middle}, {counts}")


if __name__ == "__main__":
    main()

"""What exactly one charge per question costs: answers per second and latency of a service's account.

    python benchmarks/service.py [--questions 400] [--clients 8] [--postgres URL] [-o FILE]

Each client is a thread that asks its next question as soon as the last is answered, of one server and
without HTTP, so that the account alone is measured.  Beside it stand two servers that nobody should run: an
*unlocked* one, which reads the count of answers, draws, and writes the count plus one; and an *unaccounted*
one, which only reads the holdout and draws.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import sqlalchemy
from sqlalchemy import text

from quiltdp.accountant.ledger import Terms
from quiltdp.mechanisms import Thresholdout
from quiltdp.mechanisms.thresholdout import ThresholdoutState
from quiltdp.server.asking import Study
from quiltdp.server.database import make_tables, opened
from quiltdp.server.questions import ExpressionQuestion
from quiltdp.server.studies import add_member, create_study

ROWS = 10_000
QUESTION = ExpressionQuestion("luck")

PAGE = """# What exactly one charge per question costs

`python benchmarks/service.py` asks one server {questions} questions from {clients} threads at once, each of
which costs an answer, about a holdout of {rows} rows. Beside it: a server that reads the count of answers,
draws and writes the count plus one (*unlocked*), and one that only reads the holdout and draws
(*unaccounted*). Without HTTP, and without the slots at which a service lets answers leave (0.25 s by default,
which is what a client waits for). Python {python}, SQLAlchemy {sqlalchemy}, {cores} cores of a virtual
machine, load {load} when it ended: other work ran beside it, so read the ratios.

| database | server | answers/s | median ms | 95 % ms | × quiltdp | answered |
|---|---|---:|---:|---:|---:|---|
{lines}

A question is a look, a reservation and a settlement under one lock, two of them durable commits, with the
chain of hashes walked in every transaction: questions of one study queue, and other studies do not wait for
it. The unlocked server is quicker and answers more than its budget, because two questions read the same
count; the unaccounted one has no budget. What was told is then no longer what the calibration promised.
"""


def made(url: str, budget: int) -> tuple[Study, Any]:
    """Return a study of which every question costs an answer, and an analyst."""
    engine, chance = opened(url), random.Random(time.time_ns())
    make_tables(engine)
    spec = Thresholdout(budget, 1 / ROWS)
    calibration = Terms(spec, 0.003, 1e6, spec.dp_epsilon(0.003), 0.0, "informed", "benchmark", "0" * 64)
    terms = {"calibration": calibration, "threshold": 0.1, "failure": 0.05, "queries": None}
    train = {"luck": [f"{0.5 + chance.random() / 2}" for _ in range(ROWS)]}
    fresh = {"luck": [f"{chance.random() / 2}" for _ in range(ROWS)]}
    study, _ = create_study(engine, "benchmark", train, fresh, terms, train_is_public=True)
    with engine.begin() as connection:
        member = add_member(connection, study, "ann", "analyst")[0]
        connection.execute(text("CREATE TABLE naive (answers INTEGER)"))
        connection.execute(text("INSERT INTO naive VALUES (0)"))
    return Study(engine, study), member


def drawn(study: Study) -> float:
    """Return an answer that nobody counts."""
    tables, mechanism = study.holdout._tables, study.holdout._mechanism
    query = QUESTION.query({}, study.train, {})
    trained = tables.on_training(query)
    units, fresh = mechanism.units, tables.on_holdout(query, trained)
    outcome = mechanism.run([(units(fresh), units(trained.exact))], ThresholdoutState(0, None))[0][0]
    return float(mechanism.grid.value(outcome.units or 0))


def unlocked(study: Study, budget: int) -> bool:
    """Answer as servers do that keep a count: read it, answer, write one more; return whether it did."""
    with study.engine.connect() as connection:
        count = int(connection.execute(text("SELECT answers FROM naive")).scalar_one())
    if count >= budget:
        return False
    drawn(study)
    with study.engine.begin() as connection:
        connection.execute(text("UPDATE naive SET answers = :count"), {"count": count + 1})
    return True


def measured(ask: Callable[[int], Any], questions: int, clients: int) -> tuple[float, list[float], int]:
    """Return answers per second, the milliseconds of each, and how many were answered."""
    numbers, lock, spans, told = iter(range(questions)), threading.Lock(), [], []

    def client() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            start = time.perf_counter()
            told.append(bool(ask(number)))
            spans.append(1000 * (time.perf_counter() - start))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return questions / (time.perf_counter() - start), spans, sum(told)


def lines_of(name: str, url: str, questions: int, clients: int) -> list[str]:
    """Measure one database; return lines of the table."""
    study, member = made(url, 10 * questions)
    study.ask(member, QUESTION, "the first")
    limit = 3 * questions // 4
    servers = {
        "quiltdp": lambda k: study.ask(member, QUESTION, f"{k}").value,
        "unlocked": lambda _: unlocked(study, limit),
        "unaccounted": lambda _: drawn(study),
    }
    lines, safe = [], 0.0
    for server, ask in servers.items():
        rate, spans, told = measured(ask, questions, clients)
        safe = safe or rate
        said = f"{told} of a budget of {limit}" if server == "unlocked" else f"{told} of {questions}"
        middle, high = median(spans), quantiles(spans, n=20)[-1]
        lines.append(
            f"| {name} | {server} | {rate:.0f} | {middle:.0f} | {high:.0f} | {rate / safe:.1f} | {said} |"
        )
        print(lines[-1], flush=True)
    study.engine.dispose()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--postgres", help="default: one that is started from PyPI's pgserver")
    parser.add_argument("--folder", type=Path, help="the disk that is measured; default: of temporary files")
    parser.add_argument("-o", dest="output", type=Path)
    chosen = parser.parse_args()
    size = (chosen.questions, chosen.clients)
    with tempfile.TemporaryDirectory(dir=chosen.folder, ignore_cleanup_errors=True) as folder:
        lines = lines_of("SQLite", f"sqlite:///{folder}/study.db", *size)
        url, server = chosen.postgres, None
        if url is None:
            import pgserver

            server = pgserver.get_server(Path(folder) / "postgres")
            url = server.get_uri()
        try:
            lines += lines_of("PostgreSQL", url, *size)
        finally:
            if server is not None:
                server.cleanup()
    load = os.getloadavg()[0]
    facts = {
        "questions": chosen.questions,
        "clients": chosen.clients,
        "rows": f"{ROWS:,}",
        "python": platform.python_version(),
        "sqlalchemy": sqlalchemy.__version__,
        "cores": os.cpu_count(),
        "load": f"{load:.0f}",
        "lines": "\n".join(lines),
    }
    page = PAGE.format(**facts)
    if chosen.output is not None:
        chosen.output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

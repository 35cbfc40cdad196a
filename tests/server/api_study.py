"""A small study behind the application, with a member of every kind, and a clock that waits for nobody."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

import quiltdp as qd
from quiltdp.accountant.ledger import Terms
from quiltdp.server.app import create_app
from quiltdp.server.database import make_tables, opened
from quiltdp.server.studies import add_member, create_study

ROWS = 400


class Clock:
    """Time that passes when somebody sleeps, or works for ``costs`` seconds a look."""

    def __init__(self):
        self.now, self.slept, self.costs = 0.0, [], 0.0

    def __call__(self):
        self.now += self.costs
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def columns(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    return {
        "id": [str(k + 1) for k in range(rows)],
        "x": [f"{v:.3f}" for v in rng.random(rows)],
        "label": [str(int(v < 0.5)) for v in rng.random(rows)],
    }


def terms(budget, queries=None, epsilon=1000.0):
    """Terms with so little noise that tests know whether an answer comes from the holdout."""
    spec = qd.Thresholdout(budget=budget, sensitivity=1 / ROWS)
    calibration = Terms(spec, spec.scale(epsilon), epsilon, epsilon, 0.0, "informed", "exact", "f" * 64)
    return {"calibration": calibration, "threshold": 0.1, "failure": 0.05, "queries": queries}


class Served:
    """A database with a study, its members' tokens, and clients of the application."""

    def __init__(self, folder: Path, budget: int = 5, *, train=None, holdout=None, **options):
        self.url = f"sqlite:///{folder}/study.db"
        self.engine = opened(self.url)
        make_tables(self.engine)
        train = columns(0) if train is None else train
        holdout = columns(1) if holdout is None else holdout
        self.id, owner = create_study(
            self.engine, "demo", train, holdout, terms(budget), train_is_public=True, row_id="id",
            target="label",
        )  # fmt: skip
        self.tokens = {"owner": owner}
        self.members = {}
        for role in ("analyst", "auditor"):
            self.add(role, role)
        self.clock = Clock()
        self.app = create_app(self.url, **{"clock": self.clock, "sleep": self.clock.sleep, **options})
        self.service = self.app.state.service

    def add(self, name, role, **limits):
        with self.engine.begin() as connection:
            member, token = add_member(connection, self.id, name, role, **limits)
        self.members[name], self.tokens[name] = member, token
        return token

    @contextmanager
    def client(self, who="analyst"):
        headers = {} if who is None else {"Authorization": f"Bearer {self.tokens.get(who, who)}"}
        with TestClient(self.app, headers=headers, raise_server_exceptions=False) as client:
            yield client


def question(text="x < 0.5", **more):
    return {"kind": "expression", "expression": text, **more}


def asked(client, key="k1", text="x < 0.5", **more):
    return client.post("/api/v1/questions", json=question(text, **more), headers={"Idempotency-Key": key})

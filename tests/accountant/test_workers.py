"""Components analysed in workers give the answers of a run without workers, to the last byte."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.leakage import analyze
from quiltdp.errors import InvalidArgument, LimitReached
from quiltdp.parallel import Workers


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Workers(2) as made:
        yield made


def families() -> qd.Model:
    """Three components of different kinds, one of them twice; a latent node in one."""
    rng = np.random.default_rng(3)

    def table(*shape: int) -> np.ndarray:
        return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1] or None)

    tables: dict[str, tuple[list[str], np.ndarray]] = {}
    for name, size in (("a", 4), ("b", 3)):
        tables[f"{name}0"] = ([], table(2))
        for k in range(1, size):
            tables[f"{name}{k}"] = ([f"{name}{k - 1}"], table(2, 2))
    again = {n.replace("b", "c"): ([p.replace("b", "c") for p in ps], t) for n, (ps, t) in tables.items()
             if n.startswith("b")}  # fmt: skip
    tables |= again
    tables |= {"x": ([], table(3)), "y": ([], table(2)), "z": (["x", "y"], table(3, 2, 3))}
    return qd.Model.from_tables(tables, records=[n for n in tables if n != "y"])


@pytest.mark.parametrize("adversary", ["informed", "prior", "knows:1"])
def test_leakage_and_calibration_are_the_same_bytes(pool: Executor, adversary: str) -> None:
    model = families()
    here = qd.calibrate(model, 1.0, qd.Laplace(1.0), adversary=adversary)
    there = qd.calibrate(model, 1.0, qd.Laplace(1.0), adversary=adversary, executor=pool)
    assert there.to_json() == here.to_json()
    alpha = {r: 0.05 * (k + 1) for k, r in enumerate(model.records)}
    found = qd.leakage(model, alpha, adversary=adversary, executor=pool)
    assert found.to_dict() == qd.leakage(model, alpha, adversary=adversary).to_dict()


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_models_nearby_are_widened_in_workers_too(pool: Executor, adversary: str) -> None:
    """An analysis that changes its bounds changes them wherever they are prepared."""
    model = families()
    here = qd.robust(model, 1.0, qd.Laplace(1.0), off_by=0.05, adversary=adversary)
    there = qd.robust(model, 1.0, qd.Laplace(1.0), off_by=0.05, adversary=adversary, executor=pool)
    assert there.to_json() == here.to_json()
    assert there.sigma > qd.calibrate(model, 1.0, qd.Laplace(1.0), adversary=adversary).sigma


def test_sets_across_components_and_any_other_executor() -> None:
    model = families()
    options = {"protect": {"mine": ["a0", "b1", "z"]}, "method": "propagation"}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = qd.dp_epsilon(model, 1.0, executor=pool, **options)
    assert there == qd.dp_epsilon(model, 1.0, **options)


def test_refusals_are_those_of_a_run_without_workers(pool: Executor) -> None:
    model = families()
    with pytest.raises(LimitReached) as here:
        qd.leakage(model, 0.1, "exact", work="quick", time_limit=1e-9)
    with pytest.raises(LimitReached) as there:
        qd.leakage(model, 0.1, "exact", work="quick", time_limit=1e-9, executor=pool)
    assert str(here.value) == str(there.value)
    with pytest.raises(InvalidArgument, match="chain"):
        analyze(model, method="chain", executor=pool)


class Pickling(Executor):
    """Threads to which everything goes as it goes to processes."""

    def __init__(self, threads: Executor) -> None:
        self.threads = threads

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.threads.submit(_pickled, pickle.dumps((fn, args)))


def _pickled(sent: bytes) -> Any:
    fn, args = pickle.loads(sent)
    return pickle.loads(pickle.dumps(fn(*args)))

"""A real Dask cluster of worker processes: the answers of a run without workers, also when one is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiltdp as qd
from quiltdp.errors import ModelTooWide, WorkerLost
from quiltdp.parallel import each

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("dask")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(folder)
    )
    with cluster, distributed.Client(cluster) as made:
        yield made


def die_once(marker: str, k: int) -> tuple[int, int]:
    """Kill the worker at item 3, the first time; take long enough that both workers have something to do."""
    time.sleep(0.02)
    if k == 3 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k, os.getpid()


def die(_: None, k: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return k


def refuse(_: None, k: int) -> int:
    if k == 2:
        raise ModelTooWide("too wide", "take a smaller one")
    return k


def test_a_cluster_answers_as_one_process_does(client: Any) -> None:
    model = qd.example("two_families")
    with client.get_executor() as executor:
        for method in ("propagation", "forward-backward"):
            options = {"adversary": "prior", "method": method}
            there = qd.calibrate(model, 1.0, qd.Laplace(1.0), executor=executor, **options)
            assert there.to_json() == qd.calibrate(model, 1.0, qd.Laplace(1.0), **options).to_json()
        with pytest.raises(ModelTooWide, match="too wide: take a smaller one"):
            list(each(refuse, range(4), executor=executor))


def test_a_killed_workers_part_is_done_again(client: Any, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    with client.get_executor() as executor:
        found = list(each(die_once, range(40), shared=str(marker), executor=executor))
    assert marker.exists()
    assert [value for value, _ in found] == [k * k for k in range(40)]
    assert os.getpid() not in {process for _, process in found}
    assert len({process for _, process in found}) > 1


@pytest.mark.slow
def test_a_part_that_kills_every_worker_ends_in_a_clear_error(client: Any) -> None:
    with client.get_executor() as executor, pytest.raises(WorkerLost, match="a part would be missing"):
        list(each(die, [1], executor=executor))

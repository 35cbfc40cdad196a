"""A real Dask cluster of worker processes: the answers of a run without workers, also when one is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unlike import unlike_components, unlike_families

import quiltdp as qd
from quiltdp import parallel
from quiltdp.domains.pedigree.genome import account_families
from quiltdp.domains.pedigree.panel import Panel
from quiltdp.errors import ModelTooWide, WorkerLost
from quiltdp.parallel import each, worker_count

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


class Sent(list[Any]):
    """Tasks that were sent, and what happens after some of them."""

    after = 0

    def kill_after(self, count: int, client: Any) -> None:
        """Kill a worker when so many tasks more were sent, while they are under way."""
        process = next(iter(client.run(os.getpid).values()))
        self.after, self.happens = len(self) + count, lambda: os.kill(process, signal.SIGKILL)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The items of all tasks that are submitted."""
    usual, tasks = parallel._TaskSender.submit, Sent()

    def submit(sender: Any, items: tuple[Any, ...]) -> Any:
        future = usual(sender, items)
        tasks.append(items)
        if len(tasks) == tasks.after:
            tasks.happens()
        return future

    monkeypatch.setattr(parallel._TaskSender, "submit", submit)
    return tasks


def test_a_cluster_answers_as_one_process_does(client: Any, sent: Sent) -> None:
    model = unlike_components()
    with client.get_executor() as executor:
        for adversary, method in (("informed", "auto"), ("prior", "forward-backward")):
            before, options = len(sent), {"adversary": adversary, "method": method}
            there = qd.calibrate(model, 1.0, qd.Laplace(1.0), executor=executor, **options)
            assert there.to_json() == qd.calibrate(model, 1.0, qd.Laplace(1.0), **options).to_json()
            assert len(sent) >= before + 6  # three components are prepared and evaluated there
        with pytest.raises(ModelTooWide, match="too wide: take a smaller one"):
            list(each(refuse, range(4), executor=executor))


def test_a_killed_workers_part_is_done_again(client: Any, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    with client.get_executor() as executor:
        found = list(each(die_once, range(40), shared=str(marker), executor=executor, chunk=1))
    assert marker.exists()
    assert [value for value, _ in found] == [k * k for k in range(40)]
    assert os.getpid() not in {process for _, process in found}
    assert len({process for _, process in found}) > 1


def test_a_worker_killed_in_the_middle_of_a_calibration(client: Any, sent: Sent) -> None:
    model = unlike_components()
    with client.get_executor() as executor:
        sent.kill_after(4, client)
        there = qd.calibrate(model, 1.0, qd.Laplace(1.0), executor=executor)
    assert len(sent) > 4
    assert there.to_json() == qd.calibrate(model, 1.0, qd.Laplace(1.0)).to_json()


def test_a_worker_killed_in_the_middle_of_a_study(client: Any, sent: Sent) -> None:
    """The panel, larger than what goes with every task, is kept by the cluster and made again as well."""
    panel = Panel.of({f"rs{k}": 0.01 + 0.4 * k / 3000 for k in range(3000)})
    families, asked = unlike_families(5), {"epsilon": 1.0, "nodes": 2}
    with client.get_executor() as executor:
        sent.kill_after(3, client)
        there = list(account_families(families, panel, executor=executor, **asked))
    assert sum(len(items) for items in sent) == 5
    assert there == list(account_families(families, panel, **asked))


def length(shared: bytes, k: int) -> int:
    return len(shared) + k


def test_what_is_shared_is_kept_by_the_cluster_in_pieces_that_it_takes_without_a_warning(
    client: Any, recwarn: pytest.WarningsRecorder
) -> None:
    shared = b"x" * 11_000_000
    with client.get_executor() as executor:
        assert worker_count(executor) == 2
        assert list(each(length, range(40), shared=shared, executor=executor)) == [
            11_000_000 + k for k in range(40)
        ]
    assert not [w for w in recwarn if "large graph" in str(w.message)]


@pytest.mark.slow
def test_a_part_that_kills_every_worker_ends_in_a_clear_error(client: Any) -> None:
    with client.get_executor() as executor, pytest.raises(WorkerLost, match="a part would be missing"):
        list(each(die, [1], executor=executor))

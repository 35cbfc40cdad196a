"""MPI's pool: the answers of a run without workers, from processes that mpiexec started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

SCRIPT = """
import os
import quiltdp as qd
from quiltdp.accountant.compare import calibrate_adversaries
from mpi4py.futures import MPIPoolExecutor
from quiltdp import parallel
from quiltdp.errors import ModelTooWide
from quiltdp.parallel import each
from unlike import unlike_components

def look_up(table, k):
    return table[k]

def square(shared, k):
    return k * k + shared, os.getpid()

def refuse(_, k):
    if k == 2:
        raise ModelTooWide("too wide", "take a smaller one")
    return k

if __name__ == "__main__":
    model = unlike_components()
    sent = []
    submit = parallel._TaskSender.submit
    parallel._TaskSender.submit = lambda self, *task: sent.append(task) or submit(self, *task)
    with MPIPoolExecutor() as pool:
        for method in ("propagation", "forward-backward"):
            options = {"adversary": "prior", "method": method}
            there = qd.calibrate(model, 1.0, qd.Laplace(1.0), executor=pool, **options)
            assert there.to_json() == qd.calibrate(model, 1.0, qd.Laplace(1.0), **options).to_json()
        noise = qd.Gaussian(1.0, 1e-6)
        there = qd.calibrate(model, 1.0, noise, executor=pool, work="quick")
        assert there.to_json() == qd.calibrate(model, 1.0, noise, work="quick").to_json()
        assert len(sent) >= 12, sent
        cancer = qd.example("cancer")
        there = calibrate_adversaries(cancer, 1.0, qd.Laplace(1.0), executor=pool)
        here = calibrate_adversaries(cancer, 1.0, qd.Laplace(1.0))
        assert [c.to_json() for c in there] == [c.to_json() for c in here]
        table = list(range(10_000))  # too large to go with every task
        assert list(each(look_up, range(40), shared=table, executor=pool)) == list(range(40))
        found = list(each(square, range(40), shared=7, executor=pool))
        assert [k for k, _ in found] == [k * k + 7 for k in range(40)]
        assert os.getpid() not in {pid for _, pid in found}
        try:
            list(each(refuse, range(4), executor=pool))
        except ModelTooWide as error:
            assert "too wide: take a smaller one" in str(error)
        else:
            raise AssertionError("an error in a worker is an error here")
    print("as one process does")
"""


def test_processes_of_mpi_answer_as_one_does(tmp_path: Path) -> None:
    mpiexec = shutil.which(
        "mpiexec", path=os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    )
    if mpiexec is None:
        pytest.skip("no mpiexec")
    script = tmp_path / "work.py"
    script.write_text(SCRIPT, encoding="utf-8")
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)
    if "cannot load MPI library" in done.stderr or "libmpi" in done.stderr:
        pytest.skip("mpi4py finds no MPI library")
    assert done.stdout.strip() == "as one process does", done.stderr

"""Nobody is limited who did not ask; who asked gets an exception, exit code 3, and nothing written."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pickle
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from limited import partial_answer

import quiltdp as qd
from quiltdp.accountant.audit import audit
from quiltdp.accountant.compare import calibrate_adversaries
from quiltdp.accountant.leakage import analyze
from quiltdp.accountant.verify import leakage_of
from quiltdp.errors import LimitReached, QuiltdpError
from quiltdp.work import Guard, GuardReached

SOURCE = Path(qd.__file__).parent
CLOCKS = {"time", "datetime", "timeit", "sched"}
READING = {
    "work.py": "the limit that somebody set",
    "accountant/ledger/locks.py": "how long a ledger that others hold is waited for",
    "accountant/ledger/visit.py": "the date in an entry",
    "client.py": "how long a server that is busy is asked again",
    "server/app.py": "the slots at which replies leave, the rate of a token, the dates of the log",
    "server/pages.py": "when a session ends",
    "server/studies.py": "when a token ends",
}
OF_DATA = ("domains/trace/", "domains/series/", "mechanisms/cells.py")  # times that stand in files
LIMITS = ("time_limit", "memory_limit", "deadline")


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages([str(SOURCE)], "quiltdp."):
        if not found.name.endswith(("__main__", "_kernels")):
            yield importlib.import_module(found.name)


def test_one_module_reads_a_clock() -> None:
    """What reads no clock cannot depend on how busy the machine is."""
    reading = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            clock = any(n.partition(".")[0] in CLOCKS for n in names)
            if clock and not name.startswith(OF_DATA):
                reading.add(name)
            if name.startswith(OF_DATA) and isinstance(node, ast.Attribute):
                assert node.attr not in ("now", "today", "utcnow", "monotonic", "perf_counter"), name
    assert reading == set(READING)


def test_no_limit_is_set_by_default() -> None:
    """Neither in Python nor on the command line, under any name."""
    for module in modules():
        for _, thing in inspect.getmembers(module):
            parts = [thing, *vars(thing).values()] if inspect.isclass(thing) else [thing]
            for part in parts:
                if not inspect.isfunction(part) or not part.__module__.startswith("quiltdp"):
                    continue
                for name, parameter in inspect.signature(part).parameters.items():
                    if name in LIMITS:
                        assert parameter.default in (None, inspect.Parameter.empty), (part, name)


def test_it_travels_and_is_one_of_ours() -> None:
    assert issubclass(qd.LimitReached, QuiltdpError)
    sent = pickle.loads(pickle.dumps(LimitReached("the time limit was reached", 7)))
    assert (str(sent), sent.partial, sent.exit_code) == ("the time limit was reached", 7, 3)
    late, early = (pickle.loads(pickle.dumps(Guard(s, b))) for s, b in ((1e6, 2**50), (1e-9, None)))
    late.check()
    with pytest.raises(GuardReached, match="time"):
        early.check()
    with pytest.raises(GuardReached, match="memory"):
        late.check(planned_bytes=2**51)


CALLS: dict[str, Any] = {
    "leakage": lambda m, **o: qd.leakage(m, 0.1, **o).epsilon,
    "dp_epsilon": lambda m, **o: 1 / qd.dp_epsilon(m, 1.0, **o),
    "analyze": lambda m, **o: analyze(m, **o) and 0,
    "laplace": lambda m, **o: qd.calibrate(m, 1.0, qd.Laplace(1.0), **o).sigma,
    "gaussian": lambda m, **o: qd.calibrate(m, 1.0, qd.Gaussian(1.0, 1e-6), **o).sigma,
    "adversaries": lambda m, **o: [c.sigma for c in calibrate_adversaries(m, 1.0, qd.Laplace(1.0), **o)],
    "audit": lambda m, **o: audit(m, 0.1, **o).bracket.certified,
    "leakage_of": lambda m, **o: leakage_of(m, qd.Laplace(1.0), 10.0, **o).epsilon,
}


@pytest.mark.parametrize("name", CALLS)
def test_every_question_raises_with_the_partial_answer(name: str) -> None:
    partial = partial_answer(lambda: CALLS[name](qd.example("cancer"), time_limit=1e-9))
    whole = CALLS[name](qd.example("cancer"), time_limit=1e6)
    if name in ("leakage", "leakage_of"):
        assert partial.epsilon >= whole > 0
    elif name == "dp_epsilon":
        assert 1 / partial >= whole
    elif name in ("laplace", "gaussian"):
        assert partial.sigma >= whole
        assert any("limit was reached" in note for note in partial.notes)
    elif name == "analyze":
        assert partial_answer(lambda: partial.leakage(0.1)).epsilon > 0
    elif name == "adversaries":
        assert all(c.sigma >= s for c, s in zip(partial, whole, strict=True))
    else:
        assert any("limit was reached" in row.note for row in partial.rows)


STRIKING = {
    "calibrate": ("calibrate", "models/asia.bif", "--epsilon", 1),
    "gaussian": ("calibrate", "models/asia.bif", "--epsilon", 1, "--mechanism", "gaussian", "--delta", 1e-6),
    "leakage": ("leakage", "models/asia.bif", "--dp-epsilon", 0.1),
    "audit": ("leakage", "--audit", "models/cancer.bif"),
    "pedigree": ("pedigree", "tests/data/pedigree/trio.ped", "--allele-frequency", 0.1, "--epsilon", 1),
    "plan": ("plan", "CHAIN", "--budget", 1, "--queries", 10, "--epsilon", 1),
    "report": ("calibrate", "models/asia.bif", "--epsilon", 1),
}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit that is set has passed."""
    monkeypatch.setattr(Guard, "check", _struck)


def _struck(self: Guard, planned_bytes: int = 0) -> None:
    if self._deadline is not None:
        raise GuardReached("the time limit was reached")


@pytest.mark.parametrize("name", STRIKING)
def test_commands_mark_the_first_line_leave_with_3_and_write_nothing(
    name: str, cli: Any, late: None, tmp_path: Path
) -> None:
    chain = tmp_path / "chain.json"
    qd.save_model(qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=20_000), chain)
    asked = (*(chain if word == "CHAIN" else word for word in STRIKING[name]), "--time-limit", 5)
    files = {
        "report": ("--report", "page.html"),
        "plan": ("--apply", "study.db"),
        "pedigree": ("-o", "people.tsv"),
    }
    file = (files[name][0], tmp_path / files[name][1]) if name in files else ()
    shown, told = cli(*asked, *file), cli(*asked, *file, "--json")
    assert (shown.code, told.code) == (3, 3)
    if name == "plan":  # group privacy allows none
        assert "the time limit was reached" in shown.err
    else:
        assert shown.out.startswith("PARTIAL ANSWER: the time limit was reached")
        assert told.out.splitlines()[0].startswith('{"partial": "the time limit was reached')
        assert json.loads(told.out)["schema"].startswith("quiltdp/")
    assert list(tmp_path.iterdir()) == [chain]
    if file and name != "plan":
        assert f"{file[1]} was not written" in shown.err
    if name == "report":
        allowed = cli(*asked, *file, "--allow-partial")
        assert (allowed.code, allowed.err) == (3, "")
        assert allowed.out.startswith("PARTIAL ANSWER")
        assert Path(file[1]).exists()


def test_a_release_of_a_partial_answer_is_neither_written_nor_charged(
    cli: Any, late: None, tmp_path: Path
) -> None:
    folder = "models/pedigree"
    asked = (
        "pedigree",
        f"{folder}/ceph1463.fam",
        "--allele-frequency",
        f"{folder}/panel.afreq",
        "--epsilon",
        1,
    )
    files = (tmp_path / "noisy.tsv", tmp_path / "ledger.db")
    asked = (*asked, "--genotypes", f"{folder}/panel.raw", "--release", files[0], "--ledger", files[1])
    result = cli(*asked, "--time-limit", 1)
    assert (result.code, list(tmp_path.iterdir())) == (3, [])


def test_without_an_option_there_is_no_limit(cli: Any, late: None) -> None:
    for name, asked in STRIKING.items():
        if name in ("calibrate", "leakage", "audit", "pedigree"):
            assert cli(*asked).code == 0, name


def test_python_is_not_limited_either(late: None) -> None:
    for name, call in CALLS.items():
        assert call(qd.example("cancer")) is not None, name

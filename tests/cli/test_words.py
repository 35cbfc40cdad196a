"""What people read at the command line: errors in its own options, however deep they come from."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from quiltdp.cli import main
from quiltdp.cli.words import error_line, speaking_for
from quiltdp.errors import (
    FileFormatError,
    InvalidArgument,
    LedgerCorrupt,
    ModelTooWide,
    NotALedger,
    UnknownNode,
    mentioned_options,
    option,
)
from quiltdp.io.replace import write_whole

ROOT = Path(__file__).parents[2]
FAM = "tests/data/pedigree/peddy_ceph1463.ped"
PROCESS = [sys.executable, "-c", "from quiltdp.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def parameters(**flags: str) -> dict[str, SimpleNamespace]:
    """Return options by name: ``--flag VALUE``, ``--flag``, or "" for an argument."""
    return {
        name: SimpleNamespace(
            option_strings=[flag.split()[0]] if flag else [],
            nargs=None if flag.endswith(" VALUE") else 0,
            metavar=None,
        )
        for name, flag in flags.items()
    }


def test_an_option_is_spelled_where_the_error_is_shown() -> None:
    error = FileFormatError(
        "f.csv", 1, f"say {option('columns', '…', key='id')} or {option('missing', 'n a')}"
    )
    assert str(error) == "f.csv:1: say columns={'id': …} or missing='n a'"
    with speaking_for(parameters(read="--read VALUE")):
        assert error_line(error) == "f.csv:1: say --read id=… or --read missing='n a'"
    assert str(UnknownNode("node 'x'")) == "node 'x'"
    assert mentioned_options(error.text) == ("columns", "missing")


def test_an_option_that_the_command_lacks_is_no_flag() -> None:
    error = InvalidArgument(f"{option('sigma')} must be small")
    with speaking_for(parameters(epsilon="--epsilon VALUE")):
        assert error_line(error) == "sigma must be small"
    assert error_line(error) == "--sigma must be small"
    error = InvalidArgument(f"accept any speed: {option('max_speed', None)}, {option('path')}")
    assert str(error) == "accept any speed: max_speed=None, path"
    with speaking_for(parameters(accept="--accept VALUE", path="")):
        assert error_line(error) == "accept any speed: --accept any-speed, PATH"


def test_a_remedy_is_told_only_where_it_can_be_taken() -> None:
    error = ModelTooWide("too wide", f"use another {option('method')}", f"raise {option('max_entries')}")
    assert str(error) == "too wide: use another method or raise max_entries"
    assert error.reason == "too wide"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with speaking_for(parameters(method="--method VALUE")):
        assert error_line(error) == "too wide: use another --method"
    with speaking_for({}):
        assert error_line(error) == "too wide"


def test_a_name_that_is_no_identifier_stays() -> None:
    assert option("sensitivity of record 'A'") == "sensitivity of record 'A'"


# -- the options of the command, never the keywords of Python -----------------------------------


@pytest.mark.parametrize(
    ("arguments", "told_so"),
    [
        (("leakage", "models/alarm.bif", "--dp-epsilon", 0.1, "--method", "exact"), "use another --method"),
        (("leakage", "models/asia.bif", "--dp-epsilon", 0.1, "--window", 2), "--window protects runs"),
        (("leakage", "models/asia.bif", "--dp-epsilon", 0.1, "--method", "gk16"), "--method 'gk16'"),
        (("leakage", "models/asia.bif", "--dp-epsilon", 0.1, "--adversary", "me"), "--adversary must be"),
        (("info", FAM), "for example --allele-frequency 0.1"),
        (("info", FAM, "--allele-frequency", 2), "--allele-frequency must lie between"),
        (
            ("pedigree", FAM, "--allele-frequency", 0.1, "--mutation-rate", 3),
            "--mutation-rate must lie between",
        ),
        (("pedigree", FAM, "--read", "format=x"), "--read format must be one of"),
        (("pedigree", FAM, "--read", "unknown-parents=x"), "--read unknown-parents must be"),
        (("pedigree", FAM, "--read", "twins=a,b"), "--read twins: 'a'"),
        (("pedigree", FAM, "--read", "male=m"), "--read male"),
        (("plan", "models/asia.bif", "--budget", 2), "give --queries or --accuracy"),
        (("plan", "models/asia.bif", "--budget", 2, "--accuracy", 3), "--accuracy must be"),
        (
            ("plan", "models/asia.bif", "--budget", 2, "--accuracy", 0.1, "--confidence", 2),
            "--confidence must",
        ),
    ],
)
def test_messages_name_what_can_be_typed(cli, arguments, told_so: str) -> None:
    result = cli(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert told_so in result.err
    assert "_" not in result.err.replace(FAM, "")


# -- interrupted, cut off, full --------------------------------------------------------------


@pytest.mark.parametrize("wait", [0.05, 0.1, 0.4, 1.2])
def test_an_interruption_is_one_line_and_exit_code_130(wait: float) -> None:
    """While modules are imported, the file is read, the work is done: never a traceback."""
    heard = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a parent may ignore it
    )
    code = f"{heard}; from quiltdp.cli import main; print('ready', flush=True); main()"
    call = [sys.executable, "-c", code, "calibrate", "models/link.bif", "--epsilon", "1"]
    work = subprocess.Popen(call, stdout=-1, stderr=-1, text=True, cwd=ROOT, env=ENVIRONMENT)
    try:
        assert work.stdout is not None
        assert work.stdout.readline() == "ready\n"
        time.sleep(wait)
        work.send_signal(signal.SIGINT)
        out, err = work.communicate(timeout=60)
    finally:
        work.kill()
    assert (work.returncode, out, err) == (130, "", "quiltdp: interrupted\n")


def test_an_interruption_that_a_loading_module_turns_into_another_error(monkeypatch, capsys) -> None:
    """An extension module that is interrupted while it loads may raise an ImportError instead."""

    def run(_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cannot load the clock") from None

    monkeypatch.setattr("quiltdp.cli.app.main", run)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as left:
            main([])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (left.value.code, capsys.readouterr().err) == (130, "quiltdp: interrupted\n")


def test_an_interruption_in_a_finaliser_is_not_lost(monkeypatch, capsys) -> None:
    """Python cannot raise there (nor in callbacks of weak references, as while importing): it comes again."""

    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def run(_: object) -> None:
        one = Finalised()
        del one
        time.sleep(30)

    monkeypatch.setattr("quiltdp.cli.app.main", run)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as left:
            main([])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (left.value.code, capsys.readouterr().err) == (130, "quiltdp: interrupted\n")


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "chain.json"
    path.write_text("old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"chain.json": "old"}


def test_a_link_and_a_device_are_written_through(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    link.symlink_to(path)
    write_whole(link, "new")
    assert (path.read_text(), link.is_symlink()) == ("new", True)
    write_whole(os.devnull, "new")
    assert not Path(os.devnull).is_file()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_whole(tmp_path / "nowhere" / "a", "new")


@pytest.mark.parametrize("arguments", ["quilts models/alarm.bif HR --json", "--help", "info models/asia.bif"])
def test_a_closed_pipe_is_quiet_and_no_failure(arguments: str) -> None:
    script = f"set -o pipefail; {sys.executable} -c 'from quiltdp.cli import main; main()' {arguments} | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROCESS, "info", "models/asia.bif"],
            stdout=full,
            stderr=-1,
            text=True,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
    assert done.returncode == 2
    assert done.stderr == "quiltdp: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(("call", "code"), [("info models/asia.bif >&-", 0), ("info nothing.bif 2>&-", 2)])
def test_a_stream_that_was_closed_is_written_to_nowhere(call: str, code: int) -> None:
    script = f"{sys.executable} -c 'from quiltdp.cli import main; main()' {call}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


# -- what is no ledger -----------------------------------------------------------------------


def make_text(path: Path) -> None:
    path.write_text("not a ledger\n" * 100)


def make_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
    connection.close()


@pytest.mark.parametrize(
    "command", [("ledger", "show"), ("ledger", "verify"), ("ledger", "export"), ("holdout", "status")]
)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_text, "this is not a quiltdp ledger"),
        (Path.touch, "this file is empty, not a quiltdp ledger"),
        (make_database, "this is a database, but not a quiltdp ledger"),
        (Path.mkdir, "this is a directory, not a quiltdp ledger"),
        (lambda path: None, "there is no ledger here"),
    ],
    ids=["text", "empty", "database", "directory", "nothing"],
)
def test_what_is_no_ledger_is_refused_and_left_alone(cli, tmp_path: Path, command, make, said: str) -> None:
    path = tmp_path / "study.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    result = cli(*command, path)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"quiltdp: {path}: {said}")
    assert before is None or path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} <= {"study.db"}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"genesis": 3}', '{"genesis": {}, "entries": [1]}', "\udcff"]
)
def test_what_is_no_export_is_refused(cli, tmp_path: Path, content: str) -> None:
    path = tmp_path / "study.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    result = cli("ledger", "verify", path)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"quiltdp: {path}: this is n")


def test_no_ledger_is_a_corrupt_ledger_for_programs() -> None:
    assert issubclass(NotALedger, LedgerCorrupt)


@pytest.mark.parametrize(
    "call",
    [
        ("quilts", "models/asia.bif", "smoke", "--max-nearby", "2"),
        ("calibrate", "models/cancer.bif", "--epsilon", "1"),
        ("leakage", "--audit", "models/cancer.bif", "--dp-epsilon", "0.5"),
    ],
)
def test_tables_fit_eighty_columns_where_nobody_says_how_wide(cli, call):
    found = cli(*call)
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    ruled = next(k for k, line in enumerate(lines) if line.startswith(" ──"))
    table = lines[ruled - 1 :]
    table = table[: table.index("")] if "" in table else table
    assert len(table) > 3
    assert all(len(line) <= 80 for line in table)

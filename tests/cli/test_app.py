"""The command line itself: help, version, one-line errors, exit codes, and how fast it starts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import quiltdp
from quiltdp.cli.app import COMMANDS, emit_json, fail, guarded
from quiltdp.errors import BudgetSpent, InvalidModel

ROOT = Path(__file__).parents[2]


def process(*arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the command line in a process of its own; return also its processor time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from quiltdp.cli import main; main()", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_lists_every_command(cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert "Examples:" in result.out
    for name, command in COMMANDS.items():
        assert f"  {name} " in result.out
        assert command.summary.split(":")[0][:30] in result.out
    assert cli("-h").out == result.out
    assert cli().out == result.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples(cli, name: str) -> None:
    result = cli(name, "--help")
    assert result.code == 0
    assert f"Usage: quiltdp {name}" in result.out
    if "Commands:" in result.out:  # a group: its commands have the examples
        return
    assert "Examples:" in result.out, f"{name}: its docstring needs an Examples section"
    assert f"quiltdp {name}" in result.out.split("Examples:")[1]
    assert "--json" in result.out or name == "serve"  # what it prints is its log


def test_version(cli) -> None:
    assert cli("--version").out == f"quiltdp {quiltdp.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["quilts"], "MODEL"),
        (["quilts", "models/asia.bif", "--on", "smoke"], "name it after the model"),
        (["quilts", "models/asia.bif", "smoke", "--nonsense"], "--nonsense"),
        (["quilts", "models/asia.bif", "smoke", "--max-nearby"], "--max-nearby"),
        (["quilts", "models/asia.bif", "smoke", "--max-nearby", "two"], "--max-nearby"),
        (["quilts", "models/asia.bif", "smoke", "--max-nearby", "-1"], "--max-nearby"),
        (["quilts", "models/asia.bif", "smoke", "--limit", "0"], "--limit"),
        (["quilts", "models/asia.bif", "smoke", "extra"], "extra"),
        (["quilts", "models/asia.bif", "Smoke"], "Smoke"),
        (["info", "models/no-such-file.bif"], "models/no-such-file.bif"),
        (["info", "models"], "models"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(cli, arguments: list[str], culprit: str) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("quiltdp: ")
    assert culprit in result.err


def test_refusals_have_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception) as stop, guarded():  # noqa: PT011 - typer's own Exit
        raise BudgetSpent("the budget\nis spent")
    assert stop.value.exit_code == 1
    assert capsys.readouterr().err == "quiltdp: the budget\\nis spent\n"
    with pytest.raises(Exception) as stop, guarded():  # noqa: PT011
        raise InvalidModel("bad")
    assert stop.value.exit_code == 2
    with pytest.raises(Exception) as stop:  # noqa: PT011
        fail("no")
    assert stop.value.exit_code == 2


def test_json_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json("test", {"infinite": float("inf"), "set": frozenset("ba"), "nested": [{"x": -float("inf")}]})
    assert json.loads(capsys.readouterr().out) == {
        "schema": "quiltdp/test",
        "version": 1,
        "infinite": "inf",
        "set": ["a", "b"],
        "nested": [{"x": "-inf"}],
    }
    with pytest.raises(ValueError, match="not JSON compliant"):
        emit_json("test", {"x": float("nan")})


def test_start_up_is_quick() -> None:
    """Half a second for --help, one for info on alarm; the best of three runs."""
    done, _ = process("info", "models/alarm.bif")  # writes the compiled files
    assert done.returncode == 0
    assert min(process("--help")[1] for _ in range(3)) < 0.5
    assert min(process("info", "models/alarm.bif")[1] for _ in range(3)) < 1.0


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom quiltdp.cli import main\n"
        f"try:\n    main({words})\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'scipy', 'networkx', 'pgmpy', 'pandas') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[]"


def test_cycles_are_looked_for_seldom_and_not_at_the_end() -> None:
    code = (
        "import atexit, gc\nfrom quiltdp.cli import main\n"
        "told = lambda: print(gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 1000)\n"
        "atexit.register(told)\n"
        "main(['--version'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "True 10000 True"


def test_a_closed_pipe_is_quiet() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    call = f"{sys.executable} -c 'from quiltdp.cli import main; main()'"
    script = f"{call} quilts models/alarm.bif HR --json | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout == "{\n"
    assert done.stderr == ""

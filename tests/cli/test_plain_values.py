"""Plain values are read as typer reads them; everything else is left to it."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest
import typer
import typer.main

from quiltdp.cli.plain_values import take_plain_values


def _parameters() -> list[Any]:
    app = typer.Typer(add_completion=False)

    def command(
        *,
        text: str = "a",
        real: Annotated[float | None, typer.Option(min=0.1)] = None,
        whole: Annotated[int, typer.Option(min=1, max=9)] = 1,
        flag: bool | None = None,
        several: list[str] | None = None,
        numbers: list[float] | None = None,
    ) -> None:
        """Do nothing."""

    app.command()(command)
    return list(typer.main.get_command(app).params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "1.5"),
        ("text", ""),
        ("real", "1"),
        ("real", "0.1"),
        ("real", "-2.50e-1"),
        ("real", "0.05"),
        ("real", " 2 "),
        ("real", "1_0"),
        ("real", "inf"),
        ("real", "nan"),
        ("real", ".5"),
        ("real", "1e5"),
        ("real", "x"),
        ("real", None),
        ("real", 2.5),
        ("whole", "9"),
        ("whole", "007"),
        ("whole", "10"),
        ("whole", "0"),
        ("whole", "2.0"),
        ("whole", "2.5"),
        ("flag", None),
        ("flag", True),
        ("several", None),
        ("several", ("a", "b=c")),
        ("numbers", ("0.1", "1")),
        ("numbers", None),
    ],
)
def test_plain_values_are_read_as_typer_reads_them(name: str, value: object) -> None:
    found = []
    for quick in (False, True):
        parameter = next(p for p in _parameters() if p.name == name)
        if quick:
            assert take_plain_values([parameter]) == [parameter]
        try:
            read = parameter.process_value(None, value)
            found.append((repr(list(read) if isinstance(read, tuple) else read), type(read) in (int, float)))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    assert found[0] == found[1]


def test_a_command_loads_no_library_to_read_its_options() -> None:
    code = (
        "import sys\n"
        "from quiltdp.cli.app import main\n"
        "try: main(['info', 'models/asia.bif', '--json'])\n"
        "except SystemExit as stop: assert not stop.code\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Every command: its module, its help, its examples; and what commands read and show."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from quiltdp.cli.app import COMMANDS, main
from quiltdp.cli.columns import read_columns
from quiltdp.cli.pedigree_tables import for_people
from quiltdp.errors import QuiltdpError

MODULES = (
    "quiltdp.cli.attack",
    "quiltdp.cli.audit",
    "quiltdp.cli.calibrate",
    "quiltdp.cli.fit",
    "quiltdp.cli.genome",
    "quiltdp.cli.holdout",
    "quiltdp.cli.info",
    "quiltdp.cli.leakage",
    "quiltdp.cli.ledger",
    "quiltdp.cli.maxinfo",
    "quiltdp.cli.pedigree",
    "quiltdp.cli.plan",
    "quiltdp.cli.pvalues",
    "quiltdp.cli.quilts",
    "quiltdp.cli.report",
    "quiltdp.cli.trace",
)


def test_every_command_has_its_module() -> None:
    assert sorted(c.module for c in COMMANDS.values()) == sorted(MODULES)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_every_example_are_in_the_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = getattr(import_module(COMMANDS[name].module), name.replace("-", "_"))
    if not inspect.isfunction(found):
        return  # a group: its commands are shown by their own help
    examples = re.findall(rf"\$ quiltdp {name} (.*)", found.__doc__ or "")
    assert examples
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    for example in examples:
        for word in shlex.split(example, comments=True):
            if re.fullmatch(r"--[a-z-]+", word):
                assert word[:18] in shown, word  # long names may be cut


def test_columns_of_a_table_keep_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("name,p\nfirst,0.05\nsecond,1e-3\n")
    written = read_columns(path)
    assert {k: list(v) for k, v in written.items()} == {"name": ["first", "second"], "p": ["0.05", "1e-3"]}
    path.write_text("name,p\nfirst\n")
    with pytest.raises(QuiltdpError, match="2"):
        read_columns(path)


def test_a_family_is_shown_with_its_warnings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "f.fam"
    path.write_text("F dad 0 0 1 -9\nF mum 0 0 2 -9\nF kid dad mum 1 -9\n")
    with pytest.raises(SystemExit):
        main(["pedigree", str(path)])
    shown = capsys.readouterr().out
    assert "3" in shown
    with pytest.raises(KeyError):
        for_people({})

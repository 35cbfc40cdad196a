"""Every command: its module, its help, its examples; and what commands read and show."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from quiltdp.cli.app import COMMANDS, build_app, command_functions, main
from quiltdp.cli.holdout import read_columns
from quiltdp.cli.options import parser_of
from quiltdp.cli.pedigree_tables import show_pedigree
from quiltdp.errors import QuiltdpError

MODULES = (
    "quiltdp.cli.calibrate",
    "quiltdp.cli.fit",
    "quiltdp.cli.holdout",
    "quiltdp.cli.info",
    "quiltdp.cli.leakage",
    "quiltdp.cli.ledger",
    "quiltdp.cli.pedigree",
    "quiltdp.cli.plan",
    "quiltdp.cli.pvalues",
    "quiltdp.cli.quilts",
    "quiltdp.cli.serve",
    "quiltdp.cli.study",
    "quiltdp.cli.trace",
)
BESIDE = ("quiltdp.cli.pedigree_families", "quiltdp.cli.running")  # tested through their commands


def test_every_command_has_its_module() -> None:
    assert tuple(sorted(f"quiltdp.cli.{name}" for name in COMMANDS)) == MODULES
    assert all(find_spec(module) for module in BESIDE)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_every_example_are_in_the_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path, function in command_functions(name).items():
        examples = re.findall(rf"\$ quiltdp {path} (.*)", function.__doc__ or "")
        assert examples, path
        with pytest.raises(SystemExit) as stopped:
            main([*path.split(), "--help"])
        assert stopped.value.code == 0
        shown = capsys.readouterr().out
        for example in examples:
            for word in shlex.split(example, comments=True):
                if re.fullmatch(r"--[a-z-]+", word):
                    assert word in shown, word


# -- how many options there are ---------------------------------------------------------------

OPTIONS = {
    path: [a.option_strings[-1] for a in parser.seen.values() if a.option_strings]
    for path, parser in build_app().items()
}


def test_there_are_few_options_and_every_command_has_json() -> None:
    for path, options in OPTIONS.items():
        assert len(options) <= (26 if path in ("pedigree", "trace") else 20), path
        assert "--json" in options or path == "serve", path  # what it prints is its log, and that is JSON
    assert sum(map(len, OPTIONS.values())) <= 223


def test_options_of_pedigrees_stand_on_pedigree_alone() -> None:
    own = {
        "--mutation-rate",
        "--error-rate",
        "--inbreeding",
        "--x-linked",
        "--recombination",
        "--ld",
        "--study",
    }
    assert own <= set(OPTIONS["pedigree"])
    for path, options in OPTIONS.items():
        assert path == "pedigree" or not own & set(options), path


def test_a_docstring_that_the_help_cannot_read_is_refused() -> None:
    def command(model: str, *, json: bool = False) -> None:
        """Do it.

        Elsewhere
        ---------
        json
            No such heading.
        """

    with pytest.raises(TypeError, match="Elsewhere"):
        parser_of(command, "command")


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
        show_pedigree({})

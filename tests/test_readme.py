"""The README's Python blocks and `$ quiltdp` calls run, and print what it shows.

A ``python`` block followed by a ``text`` block prints that text.  A ``console`` block holds ``$ command``
lines, each followed by its output; the ``quiltdp`` ones are run.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = [(m[1], m[2]) for m in re.finditer(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)]


def python_blocks() -> list[tuple[str, str | None]]:
    """Return (code, the output shown below it)."""
    following = [*FENCED[1:], ("", "")]
    return [
        (body, after if below == "text" else None)
        for (kind, body), (below, after) in zip(FENCED, following, strict=True)
        if kind == "python"
    ]


def console_calls() -> list[tuple[str, str]]:
    """Return (command, the output shown below it)."""
    calls = []
    for kind, body in FENCED:
        if kind == "console":
            calls += re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE)
    return calls


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_there_is_something_to_test() -> None:
    assert python_blocks()
    assert any(call.startswith("quiltdp ") for call, _ in console_calls())
    assert any(call == "make demo" for call, _ in console_calls())


def test_python_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for code, expected in python_blocks():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        if expected is not None:
            assert trimmed(printed.getvalue()) == trimmed(expected)


@pytest.mark.parametrize(("call", "expected"), console_calls(), ids=[c for c, _ in console_calls()])
def test_console_blocks(cli: Callable[..., Any], call: str, expected: str) -> None:
    words = shlex.split(call, comments=True)
    if words[0] != "quiltdp":
        assert words[0] in {"make", "git", "cd", "pip"}
        return
    result = cli(*words[1:])
    assert result.code == 0, result.err
    if expected.strip():
        assert trimmed(result.out) == trimmed(expected)

"""Options of commands in one line each: what stands for the value, and what it is for."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["arg", "opt", "switch"]


def arg(metavar: str, text: str, **more: Any) -> Any:
    """Return a positional argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


def opt(metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """Return an option that takes a value; ``names`` only where they do not follow from the parameter."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def switch(name: str, text: str, **more: Any) -> Any:
    """Return an option that is on where it is given, or a pair ``--on/--off``."""
    return typer.Option(name, help=text, **more)

"""The command line: ``quiltdp COMMAND MODEL …``."""

from __future__ import annotations

from quiltdp.cli.app import main

__all__ = ["main"]

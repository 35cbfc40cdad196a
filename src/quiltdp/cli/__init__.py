"""The command line: ``quiltdp COMMAND MODEL …``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code; 130 when it is interrupted, however early."""
    try:
        from quiltdp.cli.app import main as run

        run(arguments)
    except KeyboardInterrupt:
        print("quiltdp: interrupted", file=sys.stderr)
        sys.exit(130)

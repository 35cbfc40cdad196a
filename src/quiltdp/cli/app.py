"""The application object, how errors become exit codes, and how results become JSON.

Every command lives in a module of its own that is registered here.  A command body runs inside
:func:`guarded`, so a user's mistake is one line on stderr and exit code 2, a refusal is exit code 1.
Heavy imports happen inside command bodies.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from quiltdp.errors import QuiltdpError, Refused

__all__ = ["app", "emit_json", "guarded", "main"]

SCHEMA_VERSION = 1

app = typer.Typer(
    name="quiltdp",
    help="Privacy accounting for correlated data: how much noise is enough.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn a user's mistake into one clear line and exit code 2, a refusal into exit code 1."""
    try:
        yield
    except Refused as error:
        fail(str(error), code=1)
    except (QuiltdpError, OSError) as error:
        fail(_one_line(error), code=2)
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None


def fail(message: str, code: int = 2) -> None:
    """Print one line on stderr and leave with ``code``."""
    typer.echo(f"quiltdp: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def emit_json(kind: str, payload: dict[str, Any]) -> None:
    """Print one JSON object on stdout: ``schema``, ``version``, then the payload; ∞ is "inf"."""
    document = {"schema": f"quiltdp/{kind}", "version": SCHEMA_VERSION, **payload}
    typer.echo(json.dumps(_jsonable(document), indent=2, ensure_ascii=False, allow_nan=False))


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [_jsonable(v) for v in items]
    if hasattr(value, "item"):
        return _jsonable(value.item())
    return value


def main() -> None:
    """Run the command line."""
    app()

"""How a command line becomes a call, errors become exit codes, and results become JSON.

Every command lives in a module of its own and is listed in :data:`COMMANDS`; its module is imported
only when the command is called, so ``quiltdp --help`` stays quick.  A command body runs inside
:func:`guarded`, so a user's mistake is one line on stderr and exit code 2, a refusal is exit code 1.
Heavy imports happen inside command bodies.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
import typer.core

from quiltdp import __version__
from quiltdp.cli.plain_values import take_plain_values
from quiltdp.cli.show import say
from quiltdp.cli.words import error_line, speaking_for, usage
from quiltdp.errors import QuiltdpError
from quiltdp.printable import json_text, printable

__all__ = ["COMMANDS", "build_app", "emit_json", "fail", "guarded", "main"]

SCHEMA_VERSION = 1


class Command(NamedTuple):
    """Where a command lives and what it does, in a few words."""

    module: str
    summary: str


# Command name -> its module and its line in `quiltdp --help`, in the order people meet them.
# The module has an attribute of the same name (dashes as underscores): a function whose docstring is
# the command's help (its Examples section comes last there), or a typer.Typer with subcommands.
COMMANDS = {
    "calibrate": Command("quiltdp.cli.calibrate", "How much noise is enough: σ for a target ε."),
    "report": Command("quiltdp.cli.report", "The answer as one page to hand on (HTML, no network)."),
    "leakage": Command("quiltdp.cli.leakage", "What an α-DP mechanism leaks about each record."),
    "audit": Command("quiltdp.cli.audit", "Every bound beside the exact limit, for small models."),
    "attack": Command("quiltdp.cli.attack", "What an explicit attack attains: no bound can be below it."),
    "info": Command("quiltdp.cli.info", "What a model contains: nodes, records, width, zeros."),
    "fit": Command("quiltdp.cli.fit", "A model from public or past data: a chain or a network."),
    "trace": Command("quiltdp.cli.trace", "From points to the Markov chain of a location trace."),
    "pedigree": Command("quiltdp.cli.pedigree", "A family file: summary, leakage per person, kin table."),
    "genome": Command("quiltdp.cli.genome", "Many families at many loci, streamed; resumable."),
    "quilts": Command("quiltdp.cli.quilts", "Quilts, b and a of every record, or the quilts of one."),
    "holdout": Command("quiltdp.cli.holdout", "A reusable holdout from the shell: init, ask, status."),
    "ledger": Command("quiltdp.cli.ledger", "The account of releases: init, charge, show, verify, export."),
    "plan": Command("quiltdp.cli.plan", "How many queries a reusable holdout can answer, how accurately."),
    "pvalues": Command("quiltdp.cli.pvalues", "Valid p-values for hypotheses chosen after looking."),
    "maxinfo": Command("quiltdp.cli.maxinfo", "How much an analysis knows about the data, step by step."),
}

_EPILOG = """\b
Examples:
  quiltdp calibrate models/asia.bif --epsilon 1 --budget 10
  quiltdp info models/alarm.bif
  quiltdp quilts models/asia.bif smoke
  quiltdp COMMAND --help"""


_BROKEN = {0xA0: " ", 0x2011: "-"}  # no-break space and hyphen, as they are printed


def _unbroken(text: str) -> str:
    """Keep ``published-blanket`` and ``[default: mle]`` on one line each."""
    head, bracket, tail = text.rpartition("  [")
    kept = tail.replace(" ", "\u00a0") if bracket else tail
    return (head + bracket + kept).replace("-", "\u2011")


class QuickGroup(typer.core.TyperGroup):
    """A group of commands whose own options need no library."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; plain values of them need no library."""
        return take_plain_values(super().get_params(ctx))


class GroupedCommand(typer.core.TyperCommand):
    """A command whose help lists its options under the headings they name, its own first."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors are told with its own options."""
        with speaking_for(self.params):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; plain values of them need no library."""
        return take_plain_values(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; arguments stand as plain words."""
        pieces = ["[OPTIONS]"]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar or parameter.name).removesuffix("...")
                pieces.append(f"{name}..." if parameter.nargs == -1 else name)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options heading by heading (``rich_help_panel``)."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                name, text = row[0], row[1].replace("\\[", "[").replace("x>=", "at least ")
                if kind == "Arguments":  # always required, and its metavar says what it is
                    name, text = str(parameter.metavar or name), text.removesuffix("  [required]")
                heading = getattr(parameter, "rich_help_panel", None) or kind
                groups.setdefault(heading, []).append((name, text))
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(name, _unbroken(text)) for name, text in rows])
        formatter.buffer = [piece.translate(_BROKEN) for piece in formatter.buffer]


def build_app(names: Sequence[str] | None = None) -> typer.Typer:
    """Return the application with these commands loaded (default: all) and the others as mere names."""
    app = typer.Typer(
        name="quiltdp",
        cls=QuickGroup,
        help="Privacy accounting for correlated data: how much noise is enough.",
        epilog=_EPILOG,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, (module, summary) in COMMANDS.items():
        if names is not None and name not in names:
            app.command(name, help=summary)(_named_only)
            continue
        command = getattr(import_module(module), name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=summary)
        else:
            text, examples = _help_of(command)
            app.command(name, cls=GroupedCommand, help=text, short_help=summary, epilog=examples)(command)
    return app


def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Handle ``--version``; :func:`main` has answered it before typer is asked."""


def _named_only() -> None:
    """Stand for a command whose module was not needed."""


def _help_of(command: Callable[..., Any]) -> tuple[str, str | None]:
    """Split a numpydoc docstring into help text and the lines of its Examples section."""
    import inspect

    lines = (inspect.getdoc(command) or "").splitlines()
    heads = [k - 1 for k, line in enumerate(lines) if k and line and not line.strip("-")]
    text = "\n".join(lines[: heads[0]] if heads else lines).strip()
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        if lines[head] == "Examples":
            shown = [f"  {line.removeprefix('$ ')}" for line in lines[head + 2 : end] if line.strip()]
            return text, "\n".join(["\b", "Examples:", *shown])
    return text, None


@contextmanager
def guarded() -> Iterator[None]:
    """Turn a user's mistake into one clear line and exit code 2, a refusal into 1, a limit into 3."""
    try:
        yield
    except QuiltdpError as error:
        fail(error_line(error), code=error.exit_code)
    except BrokenPipeError:
        raise  # the reader of our output left: main() goes quietly
    except OSError as error:
        fail(_one_line(error), code=2)
    except MemoryError:
        fail("out of memory: the model is too large for this command on this machine", code=2)


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line on stderr and leave with ``code``."""
    say(f"quiltdp: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def _one_line(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"the output cannot be written: {error.strerror or error}"


def emit_json(kind: str, payload: dict[str, Any], partial: str = "") -> None:
    """Print one JSON object on stdout: ``schema``, ``version``, then the payload; ∞ is "inf".

    A partial answer has the key ``partial``, in the first line: the limit that was reached.
    """
    document = {"schema": f"quiltdp/{kind}", "version": SCHEMA_VERSION, **payload}
    if partial:
        marked = json_text(_jsonable({"partial": partial, **document}), indent=2)
        typer.echo(marked.replace("{\n  ", "{", 1))
    else:
        typer.echo(json_text(_jsonable(document), indent=2))


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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(_run(args))
    except BrokenPipeError:  # `quiltdp … | head -1` has all it wanted: that is no failure
        _close_quietly()
        sys.exit(0)
    except OSError as error:
        say(f"quiltdp: {_one_line(error)}", err=True)
        _close_quietly()
        sys.exit(2)


def _close_quietly() -> None:
    """Let nothing that is still buffered raise again while Python shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: list[str]) -> int:
    """Load the command that is called, run it, and return the exit code."""
    if args[:1] == ["--version"]:
        typer.echo(f"quiltdp {__version__}")
        return 0
    odd = next((a for a in args if not _is_text(a)), None)
    if odd is not None:
        say(
            f"quiltdp: the argument '{printable(odd)}' is not text in UTF-8, and no file has this name",
            err=True,
        )
        return 2
    called = next((a for a in args if not a.startswith("-")), "")
    command = typer.main.get_command(build_app([called]))
    try:
        with command.make_context("quiltdp", args or ["--help"]) as context:
            command.invoke(context)
    except typer.Exit as stop:
        sys.stdout.flush()
        return stop.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _usage_error(error, [called] if called in COMMANDS else [])
    sys.stdout.flush()
    return 0


def _is_text(argument: str) -> bool:
    """Return whether an argument is text, or names a file whose name is not."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        return any(os.path.lexists(name) for name in (argument, argument.partition("=")[2]) if name)
    return True


def _usage_error(error: Any, called: Sequence[str]) -> int:
    """Say in one line what is wrong with the call itself (unknown option, bad value): exit code 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else " ".join(("quiltdp", *called)).strip()
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        typer.echo(context.get_help())
        return 2
    said = usage(error)
    say(f"quiltdp: {said}{' ' if said.endswith('?') else '; '}see '{path} --help'", err=True)
    return 2

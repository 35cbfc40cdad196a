"""How a command line becomes a call, errors become exit codes, and results become JSON.

Every command lives in a module of its own and is listed in :data:`COMMANDS`; its module is imported
only when the command is called, so ``quiltdp --help`` stays quick.  A command runs inside
:func:`guarded`, so a user's mistake is one line on stderr and exit code 2, a refusal is exit code 1.
Heavy imports happen inside command bodies.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from quiltdp import __version__
from quiltdp.cli.old import translated
from quiltdp.cli.options import Parser, UsageError, nearest, parser_of
from quiltdp.cli.show import say
from quiltdp.cli.words import error_line, speaking_for
from quiltdp.errors import QuiltdpError
from quiltdp.printable import json_text, printable

__all__ = ["COMMANDS", "Exit", "build_app", "command_functions", "emit_json", "fail", "guarded", "main"]

SCHEMA_VERSION = 1


class Command(NamedTuple):
    """What a command does, in a few words, and the commands below it."""

    summary: str
    below: tuple[str, ...] = ()


# Command name -> its line in `quiltdp --help`, in the order people meet them.  Its module has its name and
# a function of the same name, or one for each of the commands below it.
COMMANDS = {
    "calibrate": Command("How much noise is enough: σ for a target ε; --report writes a page."),
    "quilts": Command("Moral graph, quilts and influence b: which quilt forces the noise."),
    "leakage": Command("What an α-DP mechanism leaks about each record; --attack, --audit."),
    "info": Command("What a model contains: nodes, records, width, zeros."),
    "pedigree": Command("Families: a model, leakage per person, noisy counts of many loci."),
    "trace": Command("Location traces: a Markov chain, and noisy visits per cell."),
    "fit": Command("A model from public or past data: a chain or a network."),
    "plan": Command("How many queries a reusable holdout can answer, how accurately."),
    "holdout": Command("A reusable holdout from the shell.", ("init", "ask", "status", "extend")),
    "study": Command("A holdout that a server guards.", ("create", "member", "close", "rights")),
    "serve": Command("Serve the studies of a database: asking over HTTP."),
    "ledger": Command("The account of releases.", ("init", "charge", "show", "verify", "export")),
    "pvalues": Command("Valid p-values for hypotheses chosen after looking."),
}

_EXAMPLES = """Examples:
  quiltdp calibrate models/asia.bif --epsilon 1 --budget 10
  quiltdp quilts models/asia.bif smoke --max-nearby 2
  quiltdp info models/alarm.bif
  quiltdp COMMAND --help"""


class Exit(Exception):
    """Leave with this exit code; everything is said."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def command_functions(name: str) -> dict[str, Callable[..., None]]:
    """Return the functions of a command by the words that call them."""
    module = import_module(f"quiltdp.cli.{name}")
    below = COMMANDS[name].below
    return {f"{name} {b}": getattr(module, b) for b in below} or {name: getattr(module, name)}


def build_app() -> dict[str, Parser]:
    """Return the parser of every command, by the words that call it; all their modules are loaded."""
    found = {path: f for name in COMMANDS for path, f in command_functions(name).items()}
    return {path: parser_of(function, f"quiltdp {path}") for path, function in found.items()}


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
    raise Exit(code)


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
        print(marked.replace("{\n  ", "{", 1), flush=True)
    else:
        print(json_text(_jsonable(document), indent=2), flush=True)


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
        code = _run(args)
        sys.stdout.flush()
        sys.exit(code)
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
    odd = next((a for a in args if not _is_text(a)), None)
    if odd is not None:
        return _mistake(f"the argument '{printable(odd)}' is not text in UTF-8, and no file has this name")
    path = ["quiltdp"]
    try:
        if not args or args[0] in ("-h", "--help"):
            print(_help("quiltdp", "Privacy accounting for correlated data: how much noise is enough."))
            return 0
        if args[0] == "--version":
            print(f"quiltdp {__version__}")
            return 0
        name, words = translated(args[0], args[1:], tuple(COMMANDS))
        path.append(name)
        functions = command_functions(name)
        if COMMANDS[name].below:
            if not words or words[0] in ("-h", "--help"):
                print(_help(f"quiltdp {name}", COMMANDS[name].summary, name))
                return 0 if words else 2
            if words[0] not in COMMANDS[name].below:
                raise UsageError(f"no such command: {words[0]}{nearest(words[0], COMMANDS[name].below)}")
            path.append(words.pop(0))
        parser = parser_of(functions[" ".join(path[1:])], " ".join(path))
        if any(word in ("-h", "--help") for word in words):
            print(parser.help())
            return 0
        values = parser.read(words)
        with speaking_for(parser.seen), guarded():
            functions[" ".join(path[1:])](**values)
    except UsageError as error:
        said = str(error)
        return _mistake(f"{said}{' ' if said.endswith('?') else '; '}see '{' '.join(path)} --help'")
    except Exit as stop:
        return stop.exit_code
    return 0


def _mistake(text: str) -> int:
    say(f"quiltdp: {text}", err=True)
    return 2


def _help(path: str, summary: str, group: str = "") -> str:
    """Return the help of a group of commands."""
    lines = {name: command.summary for name, command in COMMANDS.items()}
    if group:
        firsts = {k.split()[1]: str(f.__doc__).split("\n")[0] for k, f in command_functions(group).items()}
        lines = {name: re.split("[,;:]", first)[0] for name, first in firsts.items()}
    rows = [f"  {name:<11}{text}" for name, text in lines.items()]
    shown = [f"Usage: {path} [OPTIONS] COMMAND [ARGS]...", f"  {summary}", "\n".join(["Commands:", *rows])]
    options = [] if group else ["Options:\n  --version  Show the version and exit.\n  -h, --help  Show this."]
    return "\n\n".join([*shown[:2], *options, shown[2], *([] if group else [_EXAMPLES])])


def _is_text(argument: str) -> bool:
    """Return whether an argument is text, or names a file whose name is not."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        return any(os.path.lexists(name) for name in (argument, argument.partition("=")[2]) if name)
    return True

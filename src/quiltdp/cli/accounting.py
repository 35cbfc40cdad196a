"""Words and options that ``calibrate``, ``leakage`` and ``audit`` share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from quiltdp.accountant.profile import Progress

__all__ = [
    "Adversary",
    "AsJson",
    "Method",
    "ModelFile",
    "Protect",
    "TimeLimit",
    "Window",
    "progress_bar",
    "protection",
    "witness_facts",
]

ModelFile = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A network (.bif .xmlbif .net .xdsl .uai .json), a chain (.json) or a pedigree (.fam .ped …).",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto (the best that applies), or one of chain, exact, group, lemma4, propagation, published,"
        " published-blanket, quilts, swing; against the prior adversary chain, clique-tree, exact,"
        " forward-backward, gk16, group, mqm-approx, published, quilts.",
    ),
]
Adversary = Annotated[
    str,
    typer.Option(metavar="WHO", help="informed (knows any other records) or prior (knows only the model)."),
]
Window = Annotated[
    int, typer.Option(metavar="W", min=1, help="Protect every run of W consecutive steps of a chain.")
]
Protect = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A,B,…",
        help="Protect a set of records together; repeat for several. NAME=PREFIX* takes all that begin so.",
        show_default=False,
    ),
]
TimeLimit = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="How long the search for better bounds may take.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Plain JSON on stdout, nothing else.")]


def protection(model: Any, given: list[str] | None) -> dict[str, list[str]] | None:
    """Return the sets of ``--protect``, or refuse one by name."""
    from quiltdp.errors import InvalidArgument, UnknownNode

    if not given:
        return None
    sets: dict[str, list[str]] = {}
    for text in given:
        name, equals, members = text.partition("=")
        if not equals or not name or not members:
            raise InvalidArgument(f"--protect {text!r}: write NAME=RECORD,RECORD,… or NAME=PREFIX*")
        if name in sets:
            raise InvalidArgument(f"--protect: the set {name!r} is named twice")
        if members.endswith("*"):
            found = [r for r in model.records if r.startswith(members[:-1])]
            if not found:
                raise InvalidArgument(
                    f"--protect {text!r}: no record begins with {members[:-1]!r};"
                    f" their names are like {next(iter(model.records))!r}"
                )
        else:
            found = [m.strip() for m in members.split(",") if m.strip()]
            try:
                model.require(found)
            except UnknownNode as error:
                raise InvalidArgument(f"--protect {text!r}: {error.text}") from None
        sets[name] = found
    return sets


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Show a bar on stderr while long work runs; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)

        def report(label: str, share: float) -> None:
            bar.update(task, description=label, completed=share)

        yield report


def witness_facts(witness: Any) -> list[tuple[str, str]]:
    """Return what is known of the binding unit as ``name, value`` lines."""
    from quiltdp.cli.show import listed, number

    facts = []
    if witness.get("separator"):
        facts.append(("its quilt", f"separator {{{listed(witness['separator'])}}}"))
    if witness.get("closed"):
        facts.append(("inside it", f"{{{listed(witness['closed'])}}}"))
    if "known" in witness:
        facts.append(("worst adversary", f"knows {{{listed(witness['known'])}}}"))
    if "swing" in witness:
        facts.append(("its swing", number(float(witness["swing"]))))
    return facts

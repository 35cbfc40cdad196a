"""Words and options that ``calibrate``, ``leakage`` and ``audit`` share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.accountant.bounds.table import AUTOMATIC, ON_REQUEST
from quiltdp.cli.option_words import arg, opt, switch

if TYPE_CHECKING:
    from quiltdp.accountant.request import Progress

__all__ = [
    "Adversary",
    "AsJson",
    "Budget",
    "Epsilon",
    "Method",
    "ModelFile",
    "Protect",
    "QueryName",
    "Window",
    "Work",
    "WorkerCount",
    "progress_bar",
    "protection",
    "timed",
    "witness_facts",
    "worker_pool",
]

ModelFile = Annotated[
    str,
    arg(
        "MODEL",
        "A network (.bif .xmlbif .net .xdsl .uai .json), a chain (.json) or a pedigree (.fam .ped …).",
    ),
]

Epsilon = Annotated[float, opt("E", "The Bayesian DP target: the leakage allowed.")]
Budget = Annotated[int | None, opt("B", "Thresholdout: how many answers may come from the holdout.", min=1)]
QueryName = Annotated[
    str | None,
    opt("NAME", "Pedigrees: allele-count, carrier-count or genotype-histogram; its sensitivity is known."),
]


def _names(adversary: str) -> str:
    return ", ".join(sorted({line.name for line in (*AUTOMATIC, *ON_REQUEST) if line.against == adversary}))


Method = Annotated[
    str,
    opt(
        "NAME",
        f"auto (the best that applies), or one of {_names('informed')}; against the prior adversary"
        f" also {_names('prior')}.",
    ),
]
Adversary = Annotated[
    str,
    opt(
        "WHO",
        "informed (knows any other records), prior (knows only the model), knows=A,B (may know these"
        " records) or knows:K (may know any K).",
    ),
]
Work = Annotated[
    str,
    opt(
        "LEVEL",
        "How far searches go: quick, normal or thorough; LEVEL:STAGE ends after a stage. The same work"
        " gives the same answer on every machine.",
    ),
]
Window = Annotated[int, opt("W", "Protect every run of W consecutive steps of a chain.", min=1)]
Protect = Annotated[
    list[str] | None,
    opt(
        "NAME=A,B,…",
        "Protect a set of records together; repeat for several. NAME=PREFIX* takes all that begin so.",
    ),
]
WorkerCount = Annotated[
    int, opt("N", "Processes to work with; the answer is the same with any number.", "--workers", min=1)
]
AsJson = Annotated[bool, switch("--json", "Plain JSON on stdout, nothing else.")]


def worker_pool(count: int | None) -> AbstractContextManager[Any]:
    """Return worker processes for a ``with`` block, or none; their machinery is loaded when needed."""
    if count is None or count == 1:
        return nullcontext()
    from quiltdp import parallel

    return parallel.workers(count)


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
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)

        def report(label: str, share: float) -> None:
            bar.update(task, description=label, completed=share)

        yield report


def timed(model: Any, unit: str) -> str:
    """Return a step of a location trace with its time, other units as they are."""
    if "clock" not in model.provenance:
        return unit
    from quiltdp.domains.trace.times import when

    moment = when(model.provenance, unit)
    return unit if moment is None else f"{unit} ({moment})"


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

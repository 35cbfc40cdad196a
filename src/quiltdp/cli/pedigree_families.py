"""``quiltdp pedigree`` family by family: many families at many loci, streamed through little memory."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.running import Limits, progress_bar
from quiltdp.cli.show import number, show_facts, show_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quiltdp.domains.pedigree.genome import FamilyNoise

_WHO = ("informed", "prior")
_QUICK = {"nodes": 4}  # frequencies that --work quick analyses: the rest is bounded from them


def account_for_families(
    files: Sequence[Path],
    frequencies: Path,
    rates: dict[str, float],
    *,
    epsilon: float,
    query: str,
    tsv: Path | None,
    journal: str | None,
    work: str,
    limits: Limits,
    timed: bool,
    workers: int,
    json: bool,
) -> None:
    """Find the noise for a study of many families at many loci, and show it.

    Loci are counted by frequency while they are read, families are taken one after another, and a
    release about all of them needs the noise of the family that needs most.
    """
    from quiltdp import parallel
    from quiltdp.domains.pedigree.genome import account_families, count_frequencies, read_families
    from quiltdp.io.replace import check_writable
    from quiltdp.journal import Journal

    kept_in = None if journal in (None, "none") else Path(str(journal))
    if tsv is not None:
        check_writable(tsv, *files, frequencies, kept_in)

    def read_all_families() -> Iterator[Any]:
        return chain.from_iterable(read_families(file) for file in files)

    total = sum(1 for _ in read_all_families())  # every family is read once before any work
    panel = count_frequencies(frequencies)
    with (
        parallel.workers(workers) as executor,
        nullcontext() if kept_in is None else Journal(kept_in) as kept,
        progress_bar() as progress,
    ):
        study: dict[str, Any] = {
            "epsilon": epsilon, "work": work, "time_limit": limits.guard if timed else None, **rates,
            **(_QUICK if work == "quick" else {}),
        }  # fmt: skip
        how: dict[str, Any] = {"executor": executor, "journal": kept, "progress": progress, "total": total}
        found = account_families(read_all_families(), panel, query, **study, **how)
        if timed:
            everybody = found
            found = iter(limits.answer(lambda: list(everybody)))
        answer = _merge_families(found, tsv if limits.may_write(str(tsv)) else None, (*files, frequencies))
    answer = {"families": total, "loci": panel.loci, "epsilon": epsilon, "query": query, **answer}
    answer["notes"] = [
        *panel.notes,
        "loci are taken as unlinked: what linked loci tell about each other is not counted",
        *answer.pop("limits"),
    ]
    if json:
        emit_json("genome", answer, limits.reached)
    else:
        _show_study(", ".join(map(str, files)), answer, workers)


def _merge_families(
    found: Iterator[FamilyNoise], tsv: Path | None, inputs: tuple[Path, ...]
) -> dict[str, Any]:
    """Return the largest noise, who forces it, and how many people there are; write the lines."""
    from quiltdp.io.replace import write_whole

    people, done = 0, None
    worst: dict[str, tuple[float, str, str]] = {}
    lines = ["\t".join(("family", "people", *(f"sigma_{w}\tforced_by_{w}" for w in _WHO)))]
    for family in found:
        people, done = people + family.people, family.done
        for who in _WHO:
            if who not in worst or family.sigma[who] > worst[who][0]:
                worst[who] = (family.sigma[who], family.family, family.binding[who])
        if tsv is not None:
            cells = (f"{family.sigma[w]!r}\t{family.binding[w]}" for w in _WHO)
            lines.append("\t".join((family.family, str(family.people), *cells)))
    if tsv is not None:
        write_whole(tsv, "\n".join(lines) + "\n", *inputs)
    assert done is not None, "a file without families was refused"
    return {
        **done.to_dict(),
        "limits": done.notes,
        "people": people,
        **{w: dict(zip(("sigma", "family", "binding"), worst[w], strict=True)) for w in _WHO},
    }


def _show_study(name: str, answer: dict[str, Any], workers: int) -> None:
    import resource
    import sys

    informed = answer["informed"]
    show_line(
        f"σ = {number(informed['sigma'], 6, up=True)} at every locus"
        f"   (Laplace scale, for ε = {answer['epsilon']:g})",
        style="bold green",
    )
    unit = 1 if sys.platform == "darwin" else 1024
    peak = [
        resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    kin = "family" if answer["families"] == 1 else "families"
    facts = [
        ("study", f"{name}: {answer['people']:,} people in {answer['families']:,} {kin}"),
        ("loci", f"{answer['loci']:,}, all of a person together; {answer['query']}"),
        *(
            (
                w,
                f"σ = {number(answer[w]['sigma'], 6, up=True)},"
                f" forced by {answer[w]['binding']} of {answer[w]['family']}",
            )
            for w in _WHO
        ),
        *(("note", n) for n in answer["notes"]),
        (
            "memory",
            f"at most {peak[0] / 1e6:.0f} MB here"
            + (f" and {peak[1] / 1e6:.0f} MB in a worker" if workers > 1 else ""),
        ),
    ]
    show_facts(facts)

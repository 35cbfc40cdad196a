"""``quiltdp genome FAMILIES --frequencies FILE --epsilon E``: many families, many loci, one after another."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.cli.accounting import AsJson, Work, WorkerCount, progress_bar
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import AllowPartial, TimeLimit, limited
from quiltdp.cli.option_words import arg, opt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quiltdp.domains.pedigree.genome import FamilyNoise

__all__ = ["genome"]

_WHO = ("informed", "prior")


def genome(
    families: Annotated[
        Path, arg("FAMILIES", "A PLINK family file (.fam .ped); the lines of a family stand together.")
    ],
    *,
    frequencies: Annotated[Path, opt("FILE", "Allele frequencies, one locus per line (.afreq .frq .vcf …).")],
    epsilon: Annotated[float, opt("E", "The leakage allowed, for all loci of a person together.")],
    query: Annotated[
        str, opt("NAME", "What is released: allele-count, carrier-count or genotype-histogram.")
    ] = "allele-count",
    mutation_rate: Annotated[float, opt("M", "Per meiosis.", min=0.0, max=0.5)] = 0.0,
    error_rate: Annotated[float, opt("R", "Of genotyping.", min=0.0, max=0.5)] = 0.0,
    nodes: Annotated[int, opt("N", "How many frequencies are analysed at most.", min=1)] = 128,
    journal: Annotated[
        Path | None,
        opt("FILE", "Keep what is found here; the same command begun again goes on where it was."),
    ] = None,
    tsv: Annotated[Path | None, opt("FILE", "Write a line per family, tab-separated.")] = None,
    work: Work = "normal",
    time_limit: TimeLimit = None,
    allow_partial: AllowPartial = False,
    workers: WorkerCount = 1,
    json: AsJson = False,
) -> None:
    """Find the noise for a study of many families at many loci, streamed through little memory.

    Loci are counted by frequency while they are read, families are taken one after another, and a
    release about all of them needs the noise of the family that needs most.

    Examples
    --------
    $ quiltdp genome study.fam --frequencies chip.afreq --epsilon 1 --workers 8 --journal run.jsonl
    """
    with guarded(), limited(time_limit, allow_partial=allow_partial, json=json) as limits:
        from quiltdp import parallel
        from quiltdp.domains.pedigree.genome import account_families, count_frequencies, read_families
        from quiltdp.io.replace import check_writable
        from quiltdp.journal import Journal

        if tsv is not None:
            check_writable(tsv, families, frequencies, journal)
        total = sum(1 for _ in read_families(families))  # every family is read once before any work
        panel = count_frequencies(frequencies)
        with (
            parallel.workers(workers) as executor,
            nullcontext() if journal is None else Journal(journal) as kept,
            progress_bar() as progress,
        ):
            study: dict[str, Any] = {
                "epsilon": epsilon,
                "mutation_rate": mutation_rate,
                "error_rate": error_rate,
                "nodes": nodes,
                "work": work,
                "time_limit": None if time_limit is None else limits.guard,
            }
            how: dict[str, Any] = {
                "executor": executor,
                "journal": kept,
                "progress": progress,
                "total": total,
            }
            found = account_families(read_families(families), panel, query, **study, **how)
            if time_limit is not None:
                everybody = found
                found = iter(limits.answer(lambda: list(everybody)))
            answer = _together(found, tsv if limits.may_write(str(tsv)) else None, (families, frequencies))
        answer = {"families": total, "loci": panel.loci, "epsilon": epsilon, "query": query, **answer}
        answer["notes"] = [
            *panel.notes,
            "loci are taken as unlinked: what linked loci tell about each other is not counted",
            *answer.pop("limits"),
        ]
        if json:
            emit_json("genome", answer, limits.reached)
        else:
            _show(str(families), answer, workers)


def _together(found: Iterator[FamilyNoise], tsv: Path | None, inputs: tuple[Path, ...]) -> dict[str, Any]:
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


def _show(name: str, answer: dict[str, Any], workers: int) -> None:
    import resource
    import sys

    from quiltdp.cli.show import number, show_facts, show_line

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

"""``quiltdp pedigree FILE``: what a family file contains, and what a release tells about each person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from quiltdp.cli.accounting import AsJson, Work, WorkerCount
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import AllowPartial, TimeLimit, limited
from quiltdp.cli.model_options import genetic_options, model_options, reading_options
from quiltdp.cli.option_words import arg, opt, switch
from quiltdp.cli.release import Force, LedgerFile, NoLedger, ReleaseOptions, TotalEpsilon
from quiltdp.errors import InvalidArgument

__all__ = ["pedigree"]

_PANEL = "Many loci (a panel)"
_GENETICS = {"allele_frequency", "recombination", "haplotypes", "ld"}  # a model is asked for


@model_options
def pedigree(
    file: Annotated[Path, arg("FILE", "The pedigree (.fam .ped .psam .ged .csv).")],
    *,
    options: dict[str, Any],
    dp_epsilon: Annotated[
        float | None, opt("A", "α of the release, for one person: show what it leaks.")
    ] = None,
    epsilon: Annotated[
        float | None, opt("E", "The leakage allowed: find the α and the noise that keep it.")
    ] = None,
    adversary: Annotated[
        str,
        opt(
            "WHO",
            "Whom α, order and colours are about: informed, prior, knows=MOTHER,FATHER (people whose"
            " genotypes may be known) or knows:K (any K records); a panel takes the first two.",
        ),
    ] = "informed",
    family: Annotated[str | None, opt("ID", "Only this family (FID), or the one this person is in.")] = None,
    tsv: Annotated[Path | None, opt("FILE", "Write the table per person, tab-separated.")] = None,
    kin: Annotated[
        str | None, opt("WHO", "How much each relative's genotype tells about WHO (id or name).")
    ] = None,
    query: Annotated[
        str, opt("NAME", "What is released: allele-count, carrier-count or genotype-histogram.")
    ] = "allele-count",
    plot: Annotated[Path | None, opt("FILE", "Draw the largest family (.png .svg .pdf).")] = None,
    frequencies: Annotated[
        Path | None,
        opt(
            "FILE",
            "Allele frequencies, one locus per line (.afreq .frq .vcf …): a person's loci together.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    per_locus: Annotated[
        bool, switch("--per-locus", "Let E be for each locus alone, not all.", rich_help_panel=_PANEL)
    ] = False,
    split: Annotated[
        str, opt("HOW", "equal (one σ) or least-error (one per locus).", rich_help_panel=_PANEL)
    ] = "equal",
    nodes: Annotated[
        int,
        opt("N", "How many frequencies are analysed at most.", min=1, rich_help_panel=_PANEL),
    ] = 128,
    genotypes: Annotated[
        Path | None,
        opt("FILE", "The genotypes to release from (.raw .ped .vcf, or a table).", rich_help_panel=_PANEL),
    ] = None,
    release: Annotated[
        Path | None, opt("FILE", "Write the noisy counts here.", rich_help_panel=_PANEL)
    ] = None,
    ledger: LedgerFile = None,
    no_ledger: NoLedger = False,
    total_epsilon: TotalEpsilon = None,
    force: Force = False,
    work: Work = "normal",
    time_limit: TimeLimit = None,
    allow_partial: AllowPartial = False,
    workers: WorkerCount = 1,
    json: AsJson = False,
) -> None:
    """Summarise a pedigree; with an allele frequency and a privacy parameter, account for each person.

    Both adversaries are shown side by side: the informed one knows any relatives' genotypes, the prior
    one only the pedigree and the frequencies.  With a table of frequencies all loci of a person are
    protected together, and the noisy counts can be released.

    Examples
    --------
    $ quiltdp pedigree models/pedigree/ceph1463.fam
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --epsilon 1 --tsv leakage.tsv
    $ quiltdp pedigree models/pedigree/ceph1463.fam --frequencies models/pedigree/panel.afreq --epsilon 1
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --kin NA12877
    $ quiltdp pedigree F.fam --allele-frequency a=.1 --allele-frequency b=.2 --recombination .01 --epsilon 1
    """  # fmt: skip
    with guarded(), limited(time_limit, allow_partial=allow_partial, json=json) as limits:
        from quiltdp.accountant.adversaries import adversary_from
        from quiltdp.cli.pedigree_files import Outputs

        published = ReleaseOptions(release, ledger, no_ledger, total_epsilon, force)
        outputs = Outputs(tsv, plot, published, inputs=(file, frequencies, genotypes, ledger))
        outputs.check()
        _check(dp_epsilon, epsilon, accounts=tsv is not None)
        adversary_from(adversary)
        _need(
            frequencies is None or adversary in ("informed", "prior"),
            f"--adversary {adversary!r}: with --frequencies, choose informed or prior",
        )
        _belong_together(
            frequencies=frequencies, genotypes=genotypes, release=release, per_locus=per_locus,
            split=split, kin=kin, options=options, epsilon=epsilon, workers=workers,
        )  # fmt: skip
        published.check(epsilon)
        people = _family(file, family, options)
        outputs.check_family(people)
        payload: dict[str, Any] = {"model": str(file), "pedigree": _summary(people), "adversary": adversary}
        asked: dict[str, Any] = {
            "dp_epsilon": dp_epsilon,
            "epsilon": epsilon,
            "adversary": adversary,
            "query": query,
        }
        if frequencies is not None:
            from quiltdp.cli.pedigree_panel import account

            account(
                payload, people, frequencies, genetic_options(options),
                **asked, per_locus=per_locus, split=split, nodes=nodes, genotypes=genotypes,
                published=published, work=work, limits=limits, workers=workers,
            )  # fmt: skip
        elif kin is not None or dp_epsilon or epsilon or _GENETICS & options.keys():
            from quiltdp.cli.pedigree_locus import account as account_locus

            account_locus(
                payload, people, genetic_options(options),
                **asked, kin=kin, work=work, limits=limits,
            )  # fmt: skip
        if limits.may_write(outputs.named):
            outputs.write(payload, people)
        shown = {k: v for k, v in payload.items() if not k.startswith("_")}
        if json:
            emit_json("pedigree", shown, limits.reached)
        else:
            from quiltdp.cli.pedigree_tables import for_people

            for_people(shown)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgument(message)


def _check(dp_epsilon: float | None, epsilon: float | None, *, accounts: bool) -> None:
    _need(dp_epsilon is None or epsilon is None, "give --dp-epsilon or --epsilon, not both")
    for name, value in (("--dp-epsilon", dp_epsilon), ("--epsilon", epsilon)):
        _need(value is None or 0 < value < 1e100, f"{name} must be a finite number above 0, not {value!r}")
    if accounts:
        _need(
            dp_epsilon is not None or epsilon is not None,
            "--tsv needs --dp-epsilon or --epsilon",
        )


def _belong_together(*, options: dict[str, Any], **given: Any) -> None:
    """Refuse options that need another one, before any file is read."""
    if given["frequencies"] is None:
        for name in ("genotypes", "release", "per_locus"):
            flag = name.replace("_", "-")
            _need(not given[name], f"--{flag} belongs to a panel: give --frequencies FILE too")
        _need(given["workers"] == 1, "--workers belongs to a panel: give --frequencies FILE too")
        _need(given["split"] == "equal", "--split belongs to a panel: give --frequencies FILE too")
        return
    _need(
        given["split"] in ("equal", "least-error"),
        f"--split must be one of equal, least-error, not {given['split']!r}",
    )
    _need(not given["per_locus"] or given["split"] == "equal", "--per-locus has one σ: leave --split out")
    _need("allele_frequency" not in options, "give --frequencies or --allele-frequency, not both")
    for name in ("recombination", "ld", "haplotypes"):
        _need(
            name not in options,
            "a panel's loci are taken as unlinked; a few linked ones go into one model with --recombination"
            " and --allele-frequency LOCUS=P, repeated",
        )
    _need(given["kin"] is None, "--kin needs --allele-frequency")
    _need(
        (given["release"] is None) == (given["genotypes"] is None),
        "--release needs --genotypes",
    )
    _need(given["release"] is None or given["epsilon"] is not None, "--release needs --epsilon")
    _need("x_linked" not in options, "--x-linked: the chromosome column of the frequencies tells")


def _family(file: Path, family: str | None, options: dict[str, Any]) -> Any:
    from quiltdp.domains.pedigree import read_pedigree

    people = read_pedigree(file, **reading_options(options))
    return people if family is None else people.only(family)


def _summary(people: Any) -> dict[str, Any]:
    from quiltdp.domains.pedigree.output import summary

    return summary(people)

"""``quiltdp pedigree FILE``: a family file as a model, and what a release tells about each person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.options import files_by_ending, key_values, parse_frequencies, parse_number
from quiltdp.cli.release import ReleaseOptions
from quiltdp.cli.running import Limits, limited
from quiltdp.errors import DependencyMissing, InvalidArgument

if TYPE_CHECKING:
    from quiltdp.domains.pedigree import Pedigree


@dataclass(frozen=True)
class Question:
    """What is asked about a family: a target or an α, of which query, against whom, how far searched."""

    dp_epsilon: float | None
    epsilon: float | None
    adversary: str
    query: str
    kin: str | None
    split: str
    work: str
    workers: int
    limits: Limits


_WRITTEN = {"model": (".json", ".json.gz"), "table": (".tsv",), "drawing": (".png", ".svg", ".pdf")}
_ROLES = ("id", "father", "mother", "sex", "family", "twin", "zygosity")
_ONCE = ("format", "male", "female", "unknown-parents", "join-families")
_LINKED = {"recombination", "ld", "haplotypes"}


def pedigree(
    files: list[Path],
    *,
    read: list[str] | None = None,
    family: str | None = None,
    study: str | None = None,
    allele_frequency: list[str] | None = None,
    mutation_rate: float | None = None,
    error_rate: float | None = None,
    inbreeding: float | None = None,
    x_linked: bool = False,
    recombination: list[float] | None = None,
    ld: list[str] | None = None,
    epsilon: float | None = None,
    dp_epsilon: float | None = None,
    adversary: str = "informed",
    query: str = "allele-count",
    kin: str | None = None,
    split: str = "equal",
    genotypes: Path | None = None,
    release: Path | None = None,
    account: str | None = None,
    total_epsilon: float | None = None,
    output: list[str] | None = None,
    journal: str | None = None,
    work: str = "normal",
    time_limit: float | None = None,
    workers: int = 1,
    json: bool = False,
) -> None:
    """Summarise a pedigree; with an allele frequency, write its model and account for each person.

    Both adversaries are shown side by side: the informed one knows any relatives' genotypes, the prior
    one only the pedigree and the frequencies.  With a file of frequencies all loci of a person are
    protected together, and the noisy counts can be released.  Several files, or one with --journal, are
    taken family by family, in little memory: the noise of the family that needs most is enough for all.

    Arguments
    ---------
    files : FILE...
        The pedigree (.fam .ped .psam .ged .csv); several (.fam .ped) are read family by family.

    Reading
    -------
    read : KEY=VALUE
        How to read it, where that is not plain; repeated. format= plink, linkage, table or gedcom; the
        columns id=, father=, mother=, sex=, family=, twin=, zygosity=; codes missing= (no parent), male=,
        female=; twins=A,B (monozygotic); unknown-parents=shared (of siblings with one known);
        join-families=yes (a parent who is only in another family is the same person).
    family : ID
        Only this family (FID), or the one this person is in.
    study : FILE|A,B
        The ids in the study, one per line of a file or between commas; everybody else is latent.

    Model
    -----
    allele_frequency : P|LOCUS=P|FILE
        Frequency of the alternative allele; LOCUS=P, repeated, for a few loci; or a file with one locus per
        line (.afreq .frq .vcf …): a panel, taken as unlinked.
    mutation_rate : P
        Chance that an allele mutates on the way to a child; default 0.
    error_rate : P
        Chance that a called genotype is wrong; default 0.
    inbreeding : F
        Inbreeding coefficient of founders; default 0.
    x_linked
        The locus is on the X chromosome.
    recombination : T
        The loci are linked, in the order given: recombination fraction between neighbours, one for all or
        repeated for each pair.
    ld : D|ROW=P
        Linked loci: D' of neighbouring alleles among founders, -1 to 1 (default 0), repeated for each pair;
        or how often founders carry a haplotype, 01=0.2, repeated.

    Release
    -------
    epsilon : E
        The leakage allowed: find the α and the noise that keep it.
    dp_epsilon : A
        α of the release, for one person: show what it leaks.
    adversary : WHO
        Whom α, order and colours are about: informed, prior, knows=MOTHER,FATHER (people whose genotypes may
        be known) or knows:K (any K records); a panel takes the first two.
    query : NAME
        What is released: allele-count, carrier-count or genotype-histogram.
    kin : WHO
        How much each relative's genotype tells about WHO (id or name).
    split : HOW
        Panel: equal (one σ), least-error (one per locus) or per-locus (E is for each locus alone).
    genotypes : FILE
        Panel: the genotypes to release from (.raw .ped .vcf, or a table).
    release : FILE
        Panel: write the noisy counts here.

    Output
    ------
    output (-o, --output) : FILE
        Write the model (.json, for all other commands), a table per person (.tsv) or a drawing of the
        largest family (.png .svg .pdf); repeated for several.
    journal : FILE
        Family by family: keep what is found here, and the same command begun again goes on where it was;
        none keeps nothing.

    Examples
    --------
    $ quiltdp pedigree models/pedigree/ceph1463.fam
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 -o ceph.json
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --epsilon 1 -o leakage.tsv
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency models/pedigree/panel.afreq --epsilon 1
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --kin NA12877
    $ quiltdp pedigree F.fam --allele-frequency a=.1 --allele-frequency b=.2 --recombination .01 --epsilon 1
    $ quiltdp pedigree study.fam --allele-frequency chip.afreq --epsilon 1 --workers 8 --journal run.jsonl
    """
    genetics: dict[str, Any] = {
        "allele_frequency": _parse_allele_frequency(allele_frequency),
        "mutation_rate": mutation_rate,
        "error_rate": error_rate,
        "inbreeding": inbreeding,
        "x_linked": x_linked or None,
        "recombination": recombination,
        "study": _parse_study(study),
        **_parse_linkage(ld or []),
    }
    genetics = {name: value for name, value in genetics.items() if value is not None}
    reading = _reader_options(read or [])
    panel = genetics.get("allele_frequency")
    panel = panel if isinstance(panel, Path) else None
    outputs = files_by_ending(output or (), _WRITTEN)
    published = ReleaseOptions(release, account, total_epsilon)
    inputs = (*files, panel, genotypes, published.ledger_file)
    from quiltdp.domains.pedigree.output import summary

    with limited(time_limit, json=json) as limits:
        _check_files(outputs, release, inputs)
        _require(dp_epsilon is None or epsilon is None, "give --dp-epsilon or --epsilon, not both")
        for name, value in (("--dp-epsilon", dp_epsilon), ("--epsilon", epsilon)):
            _require(value is None or 0 < value < 1e100, f"{name} must be above 0 and finite, not {value!r}")
        if len(files) > 1 or journal is not None:
            from quiltdp.cli.pedigree_families import account_for_families

            other: dict[str, Any] = {
                "--read": read, "--family": family, "--study": study, "--x-linked": x_linked, "--ld": ld,
                "--recombination": recombination, "--dp-epsilon": dp_epsilon, "--kin": kin,
                "--genotypes": genotypes, "--release": release, "--ledger": account,
                "--split": split != "equal", "--adversary": adversary != "informed",
            }  # fmt: skip
            for flag, used in other.items():
                _require(not used, f"{flag}: families are taken one by one; give one file, without --journal")
            if panel is None or epsilon is None:
                raise InvalidArgument("families one by one need --allele-frequency FILE and --epsilon")
            _require(not outputs.keys() - {"table"}, "families one by one: -o takes a table (.tsv)")
            rates = {k: v for k, v in genetics.items() if k != "allele_frequency"}
            account_for_families(
                files, panel, rates, epsilon=epsilon, query=query, tsv=outputs.get("table"), journal=journal,
                work=work, limits=limits, timed=time_limit is not None, workers=workers, json=json,
            )  # fmt: skip
            return
        asked = Question(dp_epsilon, epsilon, adversary, query, kin, split, work, workers, limits)
        _check_options(panel, genetics, asked, outputs, genotypes, release)
        published.check(epsilon)
        people = _read_family(files[0], family, reading)
        _check_drawing_size(outputs, people)
        payload: dict[str, Any] = {
            "model": str(files[0]), "pedigree": summary(people), "adversary": adversary
        }  # fmt: skip
        if panel is not None:
            from quiltdp.cli.pedigree_panel import account_for_panel

            rest = {k: v for k, v in genetics.items() if k not in ("allele_frequency", "x_linked")}
            account_for_panel(payload, people, panel, rest, asked, genotypes, published)
        elif kin is not None or dp_epsilon or epsilon or genetics or "model" in outputs:
            from quiltdp.cli.pedigree_locus import account_for_loci

            account_for_loci(payload, people, genetics, asked)
        named = ", ".join(str(name) for name in (*outputs.values(), release) if name is not None)
        if limits.may_write(named):
            _write_outputs(outputs, payload, people, inputs, published)
        shown = {k: v for k, v in payload.items() if not k.startswith("_")}
        if json:
            emit_json("pedigree", shown, limits.reached)
        else:
            from quiltdp.cli.pedigree_tables import show_pedigree

            show_pedigree(shown)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgument(message)


# -- the words of the options -------------------------------------------------------------------------


def _parse_allele_frequency(values: list[str] | None) -> float | dict[str, float] | Path | None:
    """Return a frequency, those of named loci, or the file of a panel."""
    if not values:
        return None
    if len(values) == 1 and ("=" not in values[0] or Path(values[0]).is_file()):
        try:
            return float(values[0])
        except ValueError:
            _require(
                Path(values[0]).exists(),
                f"--allele-frequency {values[0]!r} is not a number, nor LOCUS=P, nor a file",
            )
            return Path(values[0])
    return parse_frequencies(values)


def _parse_study(text: str | None) -> Path | list[str] | None:
    if text is None:
        return None
    if text.startswith("@") or Path(text).exists() or ("," not in text and "." in text):
        return Path(text.removeprefix("@"))
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_linkage(words: list[str]) -> dict[str, Any]:
    """Return D' of neighbouring loci, or how often founders carry each haplotype."""
    if not words:
        return {}
    if any("=" in word for word in words):
        return {"haplotypes": {row: parse_number(share, "--ld") for row, share in key_values("--ld", words)}}
    return {"ld": [parse_number(word, "--ld") for word in words]}


def _reader_options(words: list[str]) -> dict[str, Any]:
    """Return what ``--read`` says as options of the reader."""
    found: dict[str, Any] = {}
    for key, value in key_values("--read", words, twice=True):
        if key in _ROLES:
            found.setdefault("columns", {})[key] = int(value) if value.isdecimal() else value
        elif key == "missing":
            found.setdefault("missing", []).append(value)
        elif key == "twins":
            found.setdefault("twins", []).append(value.split(","))
        elif key in _ONCE:
            found[key.replace("-", "_")] = value
        else:
            known = ", ".join((*_ROLES, *_ONCE, "missing", "twins"))
            raise InvalidArgument(f"--read {key}=…: the keys are {known}")
    if "join_families" in found:
        found["join_families"] = found["join_families"] == "yes"
    return found


def _read_family(file: Path, family: str | None, reading: Mapping[str, Any]) -> Pedigree:
    from quiltdp.domains.pedigree import read_pedigree

    people = read_pedigree(file, **reading)
    return people if family is None else people.only(family)


# -- refused before the work --------------------------------------------------------------------------


def _check_options(
    panel: Path | None,
    genetics: Mapping[str, Any],
    asked: Question,
    outputs: Mapping[str, Path],
    genotypes: Path | None,
    release: Path | None,
) -> None:
    """Refuse options that need another one, before any file is read."""
    from quiltdp.accountant.adversaries import parse_adversary

    parse_adversary(asked.adversary)
    targets = (asked.dp_epsilon, asked.epsilon)
    _require("table" not in outputs or targets != (None, None), "-o FILE.tsv needs --dp-epsilon or --epsilon")
    if panel is None:
        for_panels = {
            "genotypes": genotypes, "release": release, "workers": asked.workers > 1,
            "split": asked.split != "equal",
        }  # fmt: skip
        for flag, used in for_panels.items():
            _require(not used, f"--{flag} belongs to a panel: give --allele-frequency FILE too")
        return
    splits = ("equal", "least-error", "per-locus")
    _require(asked.split in splits, f"--split must be one of {', '.join(splits)}, not {asked.split!r}")
    _require(
        asked.adversary in ("informed", "prior"),
        f"--adversary {asked.adversary!r}: of a panel, choose informed or prior",
    )
    _require(
        not _LINKED & genetics.keys(),
        "a panel's loci are taken as unlinked; a few linked ones go into one model with --recombination"
        " and --allele-frequency LOCUS=P, repeated",
    )
    _require(asked.kin is None, "--kin needs --allele-frequency P, of one locus")
    _require("model" not in outputs, "-o FILE.json: a panel is no one model; name a few loci LOCUS=P")
    _require((release is None) == (genotypes is None), "--release needs --genotypes")
    _require(release is None or asked.epsilon is not None, "--release needs --epsilon")
    _require("x_linked" not in genetics, "--x-linked: the chromosome column of the frequencies tells")


def _check_files(outputs: Mapping[str, Path], release: Path | None, inputs: Sequence[Path | None]) -> None:
    """Refuse what cannot be written, before any work."""
    from importlib.util import find_spec

    from quiltdp.io.replace import check_writable

    named = [*outputs.values(), *([] if release is None else [release])]
    for name in named:
        check_writable(name, *inputs)
    _require(len({n.resolve() for n in named}) == len(named), "-o and --release must be different files")
    if "drawing" in outputs and find_spec("matplotlib") is None:
        raise DependencyMissing("drawings need matplotlib: pip install 'quiltdp[plot]'")


def _check_drawing_size(outputs: Mapping[str, Path], family: Pedigree) -> None:
    """Refuse a family that does not fit a drawing, before any work."""
    from quiltdp.report.pedigree_layout import MOST_DRAWN

    largest = len(family.components[0])
    _require(
        "drawing" not in outputs or largest <= MOST_DRAWN,
        f"-o {outputs.get('drawing')}: the largest family has {largest:,} people, at most {MOST_DRAWN} fit a"
        " drawing; choose one with --family",
    )


# -- written together at the end ----------------------------------------------------------------------


def _write_outputs(
    outputs: Mapping[str, Path],
    payload: dict[str, Any],
    family: Pedigree,
    inputs: Sequence[Path | None],
    published: ReleaseOptions,
) -> None:
    """Make everything first, then write it; what is paid for is made last, when nothing else can fail."""
    from quiltdp import save_model
    from quiltdp.domains.pedigree.output import leakage_tsv
    from quiltdp.io.replace import write_whole

    contents: list[tuple[str, Path, bytes | str]] = []
    if "table" in outputs:
        contents.append(("tsv", outputs["table"], leakage_tsv(payload.get("_rows", ()))))
    if "drawing" in outputs:
        contents.append(("plot", outputs["drawing"], _draw_picture(outputs["drawing"], payload, family)))
    if "model" in outputs:
        save_model(payload["_model"], outputs["model"])
        payload["output"] = str(outputs["model"])
    for key, path, content in contents:
        write_whole(path, content, *inputs)
        payload[key] = str(path)
    if "_release" in payload:
        payload["release"] = str(published.file)
        payload |= payload["_release"]()


def _draw_picture(file: Path, payload: dict[str, Any], family: Pedigree) -> bytes:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    from quiltdp.report.pedigree_plot import draw_pedigree

    largest = set(family.components[0])
    who = payload["adversary"]
    column = who if who in ("informed", "prior") else "asked"
    values = {r.name: getattr(r, column) for r in payload.get("_rows", ()) if r.name in largest}
    label = f"leakage ε ({who} adversary)"
    axes = draw_pedigree(family, values or None, people=largest, title=family.source, label=label)
    figure = axes.figure
    assert isinstance(figure, Figure)
    picture = BytesIO()
    figure.savefig(picture, format=file.suffix[1:].lower(), dpi=150, bbox_inches="tight")
    return picture.getvalue()

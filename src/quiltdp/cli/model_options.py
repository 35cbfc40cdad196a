"""The options that say how to read MODEL, shared by every command that takes one.

A command wears :func:`model_options` and receives them as one dictionary, only those given::

    @app.command()
    @model_options
    def leakage(path: Path, dp_epsilon: float, *, options: dict[str, Any]) -> None:
        with guarded():
            model = load(path, **options)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiltdp.errors import FileFormatError, InvalidArgument

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["PEDIGREE_SUFFIXES", "genetic_options", "load", "model_options", "reading_options"]

PEDIGREE_SUFFIXES = (
    *(".fam", ".psam", ".ped", ".pre", ".dat", ".ged", ".gedcom"),
    *(".csv", ".tab", ".tsv", ".txt"),
)
_PANEL = "Pedigree files (.fam .ped .psam .ged .csv)"


def _option(help_text: str, *names: str, metavar: str | None = None, panel: str | None = _PANEL) -> Any:
    return typer.Option(*names, help=help_text, metavar=metavar, rich_help_panel=panel, show_default=False)


# Option -> its type with its words.  None (or an empty list) means "not given" for every one of them.
_OPTIONS: dict[str, Any] = {
    "records": Annotated[
        str | None,
        _option("Which nodes are rows of the data: names separated by commas, or @FILE with one per line.",
                metavar="NAMES", panel="Model"),
    ],
    "allele_frequency": Annotated[
        list[str] | None,
        _option("Frequency of the alternative allele, needed; LOCUS=P, repeated, for several loci.",
                metavar="P"),
    ],
    "mutation_rate": Annotated[
        float | None, _option("Chance that an allele mutates on the way to a child; default 0.", metavar="P")
    ],
    "error_rate": Annotated[
        float | None, _option("Chance that a called genotype is wrong; default 0.", metavar="P")
    ],
    "inbreeding": Annotated[
        float | None, _option("Inbreeding coefficient of founders; default 0.", metavar="F")
    ],
    "x_linked": Annotated[bool | None, _option("The locus is on the X chromosome.", "--x-linked")],
    "recombination": Annotated[
        list[float] | None,
        _option("The loci are linked, in the order given: recombination fraction between neighbours, one"
                " for all or repeated for each pair.", metavar="T"),
    ],
    "ld": Annotated[
        list[float] | None,
        _option("Linked loci: D' of neighbouring alleles among founders, -1 to 1; default 0.", metavar="D"),
    ],
    "haplotypes": Annotated[
        list[str] | None,
        _option("Linked loci: how often founders carry a haplotype, 01=0.2; repeated, instead of --ld.",
                "--haplotype", metavar="ROW=P"),
    ],
    "study": Annotated[
        Path | None,
        _option("The ids in the study, one per line; everybody else is latent.", metavar="FILE"),
    ],
    "format": Annotated[
        str | None,
        _option("plink, linkage, table or gedcom, if the suffix does not tell.", metavar="KIND"),
    ],
    "columns": Annotated[
        list[str] | None,
        _option("Which column is which, repeated: id=NAME; also father, mother, sex, family, twin, zygosity.",
                "--column", metavar="ROLE=NAME"),
    ],
    "missing": Annotated[
        list[str] | None, _option("One more code for 'no parent'; repeated.", metavar="CODE")
    ],
    "male": Annotated[str | None, _option("Code of males in the sex column.", metavar="CODE")],
    "female": Annotated[str | None, _option("Code of females in the sex column.", metavar="CODE")],
    "twins": Annotated[
        list[str] | None, _option("Monozygotic twins, ids separated by commas; repeated.", metavar="A,B")
    ],
    "unknown_parents": Annotated[
        str | None,
        _option("The unknown parent of siblings with one known: separate (default) or shared.",
                metavar="HOW"),
    ],
    "join_families": Annotated[
        bool | None,
        _option("A parent who is only in another family is the same person.", "--join-families"),
    ],
}  # fmt: skip
_EVERYWHERE = ("records",)
_READING = ("format", "columns", "missing", "male", "female", "twins", "unknown_parents", "join_families")


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of MODEL to a command; it gets those that were given as ``options``, a dict."""
    signature = inspect.signature(command, eval_str=True)  # type hints would lose the options of None in 3.10
    if "options" not in signature.parameters:
        raise TypeError(f"{command.__name__} must take a parameter named 'options'")
    own = [p for p in signature.parameters.values() if p.name != "options"]
    taken = {p.name for p in own}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
        if name not in taken
    ]

    @wraps(command)
    def with_options(*args: Any, **given: Any) -> None:
        chosen = {p.name: given.pop(p.name, None) for p in added}
        return command(
            *args, options={n: v for n, v in chosen.items() if v not in (None, [], False)}, **given
        )

    with_options.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # set for Typer
    with_options.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return with_options


def load(path: str | Path, **options: Any) -> Model:
    """Load the model of a command from its file and the options that were given.

    Raises
    ------
    InvalidArgument
        In one line, for an option that does not apply to this kind of file.
    """
    from quiltdp.io.load import load_model

    suffix = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    if suffix not in PEDIGREE_SUFFIXES:
        for name in options:
            if name in _OPTIONS and name not in _EVERYWHERE:
                raise InvalidArgument(
                    f"{_flag(name)} is for pedigree files ({_PANEL[16:-1]}), not for {path}"
                )
    return load_model(path, **{n: _parsed(n, v) for n, v in options.items()})


def reading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say how to read a pedigree file, parsed."""
    return {n: _parsed(n, v) for n, v in options.items() if n in _READING}


def genetic_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say what a pedigree is a model of, parsed; ``--records`` is ``--study``."""
    found = {n: _parsed(n, v) for n, v in options.items() if n not in _READING}
    if "records" in found:
        if "study" in found:
            raise InvalidArgument("--records and --study both say who is a record; give one of them")
        found["study"] = found.pop("records")
    return found


def _flag(name: str) -> str:
    return {"columns": "--column", "haplotypes": "--haplotype"}.get(name, f"--{name.replace('_', '-')}")


def _parsed(name: str, value: Any) -> Any:
    """Turn the words of the command line into what the reader takes."""
    if name == "records" and isinstance(value, str):
        return _names(value)
    if name == "allele_frequency" and isinstance(value, Sequence) and not isinstance(value, str):
        return _frequencies(value)
    if name == "columns" and not isinstance(value, dict):
        return {
            k: int(v) if re.fullmatch("[0-9]{1,9}", v) else v
            for k, v in (_pair("--column", text) for text in value)
        }
    if name == "haplotypes" and not isinstance(value, dict):
        rows = [_pair("--haplotype", text) for text in value]
        if len(dict(rows)) < len(rows):
            raise InvalidArgument("--haplotype: a row is given twice")
        return {row: _number(share, "--haplotype") for row, share in rows}
    if name == "twins":
        return [group.split(",") if isinstance(group, str) else group for group in value]
    return value


def _names(text: str) -> list[str]:
    if text.startswith("@"):
        from quiltdp.io.text import read_text

        try:
            lines = read_text(text[1:]).split("\n")
        except FileFormatError as error:
            raise InvalidArgument(f"--records {text}: {error.message}") from None
        return [line.strip() for line in lines if line.strip()]
    return [n.strip() for n in text.split(",") if n.strip()]


def _frequencies(values: Sequence[Any]) -> float | dict[str, float]:
    if len(values) == 1 and "=" not in str(values[0]):
        return _number(values[0])
    pairs = [_pair("--allele-frequency", str(v)) for v in values]
    if len({k for k, _ in pairs}) < len(pairs):
        raise InvalidArgument("--allele-frequency: a locus is given twice")
    return {k: _number(v) for k, v in pairs}


def _number(text: object, flag: str = "--allele-frequency") -> float:
    try:
        return float(str(text))
    except ValueError:
        raise InvalidArgument(f"{flag}: {text!r} is not a number") from None


def _pair(flag: str, text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key or not value:
        raise InvalidArgument(f"{flag}: expected NAME=VALUE, found {text!r}")
    return key, value

"""How a command declares its options: its signature has their types, its docstring their words.

The sections of a command's docstring are the headings of its help.  An entry ``name (-o) : METAVAR >= 1``
says how an option is written, what stands for its value, and the smallest value; the words beneath say what
it is for.  Parameters before the ``*`` are arguments.  What several commands share stands in :data:`SHARED`.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from quiltdp.errors import FileFormatError, InvalidArgument

if TYPE_CHECKING:
    from quiltdp.model import Model

HEADINGS = ("Arguments", "Reading", "Model", "Release", "Output")
_ENTRY = re.compile(
    r"(?P<name>\w+)(?: \((?P<flags>[^)]*)\))?(?: : (?P<metavar>\S.*?))?(?: >= (?P<least>\S+))?"
)
_WIDTH = 80
_PEDIGREES = (".fam", ".psam", ".ped", ".pre", ".dat", ".ged", ".gedcom", ".csv", ".tab", ".tsv", ".txt")


class _Help(NamedTuple):
    """What the help says of a parameter: its heading, how it is written, what stands for its value."""

    heading: str
    text: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    least: float | None = None


_METHOD = "auto (the best that applies), published (the lemma as printed), exact (small models) or group."
SHARED = {
    "model": _Help(
        "Arguments",
        "A network (.bif .xmlbif .net .xdsl .uai .json), a chain (.json), a pedigree (the .json that"
        " 'quiltdp pedigree -o' writes, or a .fam with --allele-frequency).",
        "MODEL",
    ),
    "ledger": _Help("Arguments", "The ledger file.", "LEDGER"),
    "records": _Help(
        "Model",
        "Which nodes are rows of the data: names separated by commas, or @FILE with one per line.",
        "NAMES",
    ),
    "allele_frequency": _Help(
        "Model", "Of a .fam: the frequency of the alternative allele; LOCUS=P, repeated, for several.", "P"
    ),
    "method": _Help("Model", _METHOD, "NAME"),
    "adversary": _Help(
        "Model",
        "informed (knows any other records), prior (knows only the model), knows=A,B (may know these"
        " records) or knows:K (may know any K).",
        "WHO",
    ),
    "window": _Help("Model", "Protect every run of W consecutive steps of a chain.", "W", least=1),
    "protect": _Help(
        "Model",
        "Protect a set of records together; repeat for several. NAME=PREFIX* takes all that begin so.",
        "NAME=A,B,…",
    ),
    "account": _Help(
        "Release",
        "Charge the release to this ledger (default: the one of these data, beside them); none keeps no"
        " account, and nobody counts what several releases leak together.",
        "FILE",
        ("--ledger",),
    ),
    "total_epsilon": _Help(
        "Release",
        "With the first release: what all releases of these data may leak together (default: --epsilon).",
        "E",
    ),
    "anchor": _Help(
        "Output",
        "A file on another disk that remembers the newest entry: an old copy of the ledger is noticed.",
        "FILE",
    ),
    "work": _Help(
        "Output",
        "How far searches go: quick, normal or thorough. The same work gives the same answer everywhere.",
        "LEVEL",
    ),
    "time_limit": _Help(
        "Output",
        "Stop then: the partial answer is printed, nothing is written, exit code 3 (default: no limit).",
        "SECONDS",
        least=0.1,
    ),
    "allow_partial": _Help("Output", "Where a limit is reached, write and charge the partial answer too."),
    "workers": _Help(
        "Output", "Processes to work with; the answer is the same with any number.", "N", least=1
    ),
    "json": _Help("Output", "Plain JSON on stdout, nothing else."),
}


class UsageError(Exception):
    """The call itself is wrong: an unknown option, a missing argument, a bad value."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest known word was meant; nothing if none is near."""
    near = get_close_matches(word, list(known), 1)
    return f", did you mean {near[0]}?" if near else ""


class _Wrapped(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=_WIDTH)

    def _split_lines(self, text: str, width: int) -> list[str]:
        head, bracket, default = text.rpartition("  [")
        whole = head + bracket + default.replace(" ", "\u00a0") if bracket else text
        return [line.replace("\u00a0", " ") for line in textwrap.wrap(whole, width, break_on_hyphens=False)]


class Parser(argparse.ArgumentParser):
    """The options of one command; mistakes are one line."""

    def __init__(self, prog: str, shape: str, text: str, examples: Sequence[str]) -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False, formatter_class=_Wrapped)
        self._shape, self._text, self._examples = shape, text, examples
        self.seen: dict[str, argparse.Action] = {}

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, in the words of the command line."""
        said = re.sub(r"^argument (?:-\w/)?(\S+?): ", r"\1 ", message)
        said = said.replace("expected one argument", "needs a value")
        missing = re.fullmatch(r"the following arguments are required: (.*)", said)
        raise UsageError(f"missing: {missing[1]}" if missing else said)

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the value of every parameter; refuse what nobody declared, with the nearest name."""
        options = [w.partition("=")[0] for w in words[: [*words, "--"].index("--")] if w.startswith("--")]
        strange = next((flag for flag in options if flag not in self._option_string_actions), None)
        if strange is not None:
            raise UsageError(f"no such option: {strange}{nearest(strange, self._option_string_actions)}")
        found, unknown = self.parse_known_intermixed_args(list(words))
        if unknown:
            raise UsageError(f"got an unexpected argument ({unknown[0]})")
        return vars(found)

    def help(self) -> str:
        """Return the help: what the command does, its options heading by heading, examples."""
        pages = [f"Usage: {self.prog} [OPTIONS]{self._shape}", *_wrap_paragraphs(self._text)]
        formatter = self._get_formatter()
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        pages.append(formatter.format_help().strip("\n"))
        if self._examples:
            pages.append("\n".join(["Examples:", *(f"  {line}" for line in self._examples)]))
        return "\n\n".join(pages)


def _wrap_paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield textwrap.fill(
            " ".join(paragraph.split()),
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def parser_of(function: Callable[..., None], prog: str) -> Parser:
    """Return the parser that the signature and the docstring of a command describe."""
    text, words, examples = _parse_docstring(function)
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    first = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    shape = ""
    for p in first:
        name = words[p.name].metavar or p.name.upper()
        shape += f" {name}" if p.default is p.empty else f" [{name}]"
    parser = Parser(prog, shape, text, examples)
    groups = {h: parser.add_argument_group(h) for h in HEADINGS}
    for p in parameters:
        said = words[p.name]
        action = _add_option(groups[said.heading], p, hints[p.name], said, positional=p in first)
        parser.seen[p.name] = action
    parser._action_groups = [group for group in groups.values() if group._group_actions]
    return parser


def _add_option(
    group: Any, p: inspect.Parameter, hint: Any, said: _Help, *, positional: bool
) -> argparse.Action:
    """Declare one parameter to argparse."""
    kind, many = _type_of_annotation(hint)
    required = p.default is p.empty
    default = None if required else p.default
    shown = "" if default in (None, False, "") else f"  [default: {default}]"
    how: dict[str, Any] = {"help": f"{said.text}{shown}".replace("%", "%%"), "default": default}
    if positional:
        metavar = (said.metavar or p.name).removesuffix("...")
        how |= {"nargs": ("+" if required else "*") if many else None if required else "?"}
        added: argparse.Action = group.add_argument(
            p.name, type=_value_reader(kind, said.least), metavar=metavar, **how
        )
        return added
    flags = said.flags or (f"--{p.name.replace('_', '-')}",)
    if not any(f.startswith("--") for f in flags):
        flags = (*flags, f"--{p.name.replace('_', '-')}")
    if kind is bool:
        how["action"] = "store_true"
    else:
        how |= {"type": _value_reader(kind, said.least), "metavar": said.metavar, "required": required}
        how |= {"action": "append"} if many else {}
    return group.add_argument(*flags, dest=p.name, **how)  # type: ignore[no-any-return]


def _type_of_annotation(hint: Any) -> tuple[type, bool]:
    """Return the plain type of an annotation, and whether several values are taken."""
    if isinstance(hint, types.UnionType):
        hint = next(a for a in get_args(hint) if a is not type(None))
    return (get_args(hint)[0], True) if get_origin(hint) is list else (hint, False)


def _value_reader(kind: type, least: float | None) -> Callable[[str], Any]:
    """Return what reads a value, and says in a few words why it is none."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            whole = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {whole}") from None
        if least is not None and not value >= least:
            raise argparse.ArgumentTypeError(f"{text!r} must be at least {least:g}")
        return value

    return read


def _parse_docstring(function: Callable[..., None]) -> tuple[str, dict[str, _Help], list[str]]:
    """Split a command's docstring into its text, the words of its parameters and its examples."""
    lines = (inspect.getdoc(function) or "").splitlines()
    heads = [k - 1 for k, line in enumerate(lines) if k and line and not line.strip("-")]
    words, examples = dict(SHARED), []
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        body = lines[head + 2 : end]
        if lines[head] == "Examples":
            examples = [line.removeprefix("$ ") for line in body if line.strip()]
            continue
        for entry in re.split(r"\n(?=\S)", "\n".join(body).strip()):
            first, *rest = entry.split("\n")
            match = _ENTRY.fullmatch(first)
            if match is None or lines[head] not in HEADINGS:
                raise TypeError(f"{function.__name__}: the help cannot read {lines[head]!r}, {first!r}")
            flags = tuple(match["flags"].split(", ")) if match["flags"] else ()
            least = None if match["least"] is None else float(match["least"])
            text = " ".join(" ".join(rest).split())
            words[match["name"]] = _Help(lines[head], text, match["metavar"], flags, least)
    return "\n".join(lines[: heads[0]] if heads else lines).strip(), words, examples


# -- the model of a command ---------------------------------------------------------------------------


def load(
    path: str | Path, records: str | None = None, allele_frequency: Sequence[str] | None = None
) -> Model:
    """Load the model of a command; what else a pedigree needs is said where its model is written.

    Raises
    ------
    InvalidArgument
        In one line, for a frequency of something that is no pedigree.
    """
    from quiltdp.io.load import load_model

    options: dict[str, Any] = {}
    if records is not None:
        options["records"] = _parse_record_names(records)
    if allele_frequency:
        suffix = Path(Path(path).name.lower().removesuffix(".gz")).suffix
        if suffix not in _PEDIGREES:
            raise InvalidArgument(
                f"--allele-frequency is for pedigree files (.fam .ped .ged …), not for {path}"
            )
        options["allele_frequency"] = parse_frequencies(allele_frequency)
    return load_model(path, **options)


def _parse_record_names(text: str) -> list[str]:
    """Return the names of ``--records``: between commas, or one per line of @FILE."""
    if text.startswith("@"):
        from quiltdp.io.text import read_text

        try:
            lines = read_text(text[1:]).split("\n")
        except FileFormatError as error:
            raise InvalidArgument(f"--records {text}: {error.message}") from None
        return [line.strip() for line in lines if line.strip()]
    return [n.strip() for n in text.split(",") if n.strip()]


def parse_frequencies(values: Sequence[str]) -> float | dict[str, float]:
    """Return the frequency of ``--allele-frequency``, or those of named loci."""
    if len(values) == 1 and "=" not in values[0]:
        return parse_number(values[0], "--allele-frequency")
    return {k: parse_number(v, "--allele-frequency") for k, v in key_values("--allele-frequency", values)}


def parse_number(text: str, flag: str) -> float:
    """Return a number, or refuse it by its option."""
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{flag}: {text!r} is not a number") from None


def key_values(flag: str, values: Sequence[str], *, twice: bool = False) -> list[tuple[str, str]]:
    """Return the parts of KEY=VALUE words; a key stands once, unless ``twice``."""
    found: list[tuple[str, str]] = []
    for text in values:
        key, sign, value = text.partition("=")
        if not sign or not key or not value:
            raise InvalidArgument(f"{flag}: expected NAME=VALUE, found {text!r}")
        if not twice and any(key == k for k, _ in found):
            raise InvalidArgument(f"{flag}: {key!r} is given twice")
        found.append((key, value))
    return found


def files_by_ending(files: Sequence[str], kinds: Mapping[str, tuple[str, ...]]) -> dict[str, Path]:
    """Return kind → file of every ``-o FILE``: the ending says what is written there."""
    found: dict[str, Path] = {}
    for name in files:
        kind = next((k for k, endings in kinds.items() if name.lower().endswith(endings)), None)
        if kind is None:
            known = "; ".join(f"{k}: {' '.join(endings)}" for k, endings in kinds.items())
            raise InvalidArgument(f"-o {name}: its ending says what is written ({known})")
        if kind in found:
            raise InvalidArgument(f"-o {name}: {found[kind]} is a {kind} already")
        found[kind] = Path(name)
    return found

"""``load_model``: one door for every file format.

A file with the suffix of a domain (a pedigree) goes to that domain's reader.  For the others the
first words decide, because suffixes lie (XMLBIF files are called ``.bif``, ``.xml`` or ``.xmlbif``)
or say nothing (``.txt``); the suffix decides where the words do not.
"""

from __future__ import annotations

import gzip
import inspect
import os
import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.model import Model
from quiltdp.user_files import opened

# Suffix -> "module:function" of its reader, imported when the first such file is read.
_NETWORKS: dict[str, str] = {
    ".bif": "quiltdp.io.bif:read_bif",
    ".json": "quiltdp.io.json_models:read_json",
    ".net": "quiltdp.io.declared:read_net",
    ".uai": "quiltdp.io.uai:read_uai",
    ".xdsl": "quiltdp.io.declared:read_xdsl",
    ".xml": "quiltdp.io.declared:read_xmlbif",
    ".xmlbif": "quiltdp.io.declared:read_xmlbif",
}
_PEDIGREES = (".csv", ".dat", ".fam", ".ged", ".gedcom", ".ped", ".pre", ".psam", ".tab", ".tsv", ".txt")
_DOMAINS: dict[str, str] = dict.fromkeys(_PEDIGREES, "quiltdp.domains.pedigree:load")

_TRACES = (".geojson", ".gpx", ".mfjson", ".parquet", ".plt", ".pq")
_PLACES = ({"lat", "latitude", "y"}, {"lon", "lng", "long", "longitude", "x"})

_MAYBE_TRACES = (*_DOMAINS, *_TRACES, ".json")
_ANYTHING = (".dat", ".txt")  # suffixes that say so little that the words are asked first

# How a file of each format begins, after blanks and comments.
_BEGINNINGS = (
    (re.compile(r"[^{]*?<(?:!DOCTYPE\s+)?BIF\b", re.IGNORECASE), ".xmlbif"),
    (re.compile(r"[^{]*?<smile\b"), ".xdsl"),
    (re.compile(r"\{"), ".json"),
    (re.compile(r"(?:MARKOV|BAYES)\s+\d", re.IGNORECASE), ".uai"),
    (re.compile(r"(?:network\b|variable\s|probability\s*\()"), ".bif"),
    (re.compile(r"(?:net\s*\{|(?:discrete\s+)?node\s+\S+\s*\{)"), ".net"),
)
_SKIP = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/|%[^\n]*)+", re.DOTALL)


def load_model(path: str | os.PathLike[str], **options: Any) -> Model:
    """Read a model from a file.

    Parameters
    ----------
    path
        A network (``.bif .xmlbif .net .xdsl .uai .json``), a chain (``.json``) or a pedigree
        (``.fam .ped .psam .ged .csv``); each may be compressed (``.gz``).
    options
        Passed to the reader of the format, which refuses an option it does not know.  Readers of
        networks take ``records``, the nodes that are rows of the database (default all), and those
        of text formats ``encoding``.

    Raises
    ------
    FileFormatError, InvalidModel
        One line that names the file and, where there is one, the line in it.
    InvalidArgument
        If the reader does not know an option.

    Examples
    --------
    >>> from quiltdp import load_model
    >>> load_model("models/asia.bif")
    <Bayesian network: 8 nodes, 8 records>
    >>> load_model("models/asia.bif", records=["smoke", "lung"]).records
    ('smoke', 'lung')
    """
    suffix = _format_suffix(path)
    known = _DOMAINS.get(suffix)
    target = None if suffix in _ANYTHING else known
    if target is None:
        found = _guess_suffix(path) or suffix
        target = _NETWORKS.get(found, known)
        if target is None:
            if suffix in _TRACES:
                raise _location_trace_error(path)
            raise FileFormatError(
                path,
                None,
                f"neither the suffix {suffix!r} nor the beginning of the file is of a known format"
                f" ({' '.join(known_suffixes())})",
            )
        suffix = found
    reader = _import_reader(target)
    _check_reader_options(path, suffix, reader, options)
    try:
        return reader(path, **options)
    except FileFormatError:
        if suffix in _MAYBE_TRACES and _holds_points(path):
            raise _location_trace_error(path) from None
        raise
    except TypeError as error:  # a reader that hands its options on
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in options:
            raise
        raise InvalidArgument(f"{path}: the {suffix} reader has no option {unknown[1]!r}") from None


def known_suffixes() -> tuple[str, ...]:
    """Return the suffixes that :func:`load_model` knows, without ``.gz``."""
    return tuple(sorted({*_NETWORKS, *_DOMAINS}))


def register_reader(suffix: str, target: str) -> None:
    """Let ``load_model`` read files with ``suffix`` through ``"module:function"``, imported on demand.

    The function takes the path and keyword options, and returns a :class:`~quiltdp.model.Model`.
    """
    if not re.fullmatch(r"\.[^./\\]+", suffix) or not re.fullmatch(r"[\w.]+:\w+", target):
        raise InvalidArgument(f"expected '.suffix' and 'module:function', found {suffix!r} and {target!r}")
    _DOMAINS[suffix.lower()] = target


def _format_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that names the format, without ``.gz``."""
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def _guess_suffix(path: str | os.PathLike[str]) -> str | None:
    """Return the suffix of the format that the file's first words belong to, if they tell."""
    with opened(path) as stream:
        head = stream.read(4096)
        if head.startswith(b"\x1f\x8b"):
            stream.seek(0)
            with gzip.GzipFile(fileobj=stream) as packed:
                head = packed.read(4096)
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    skipped = _SKIP.match(text)
    if skipped is not None:
        text = text[skipped.end() :]
    return next((found for pattern, found in _BEGINNINGS if pattern.match(text)), None)


def _location_trace_error(path: str | os.PathLike[str]) -> FileFormatError:
    """Return the error that says where a location trace belongs."""
    return FileFormatError(
        path,
        None,
        "this is a location trace, not a model; make its Markov chain first:"
        f" quiltdp trace {shlex.quote(os.fspath(path))} -o chain.json (in Python: quiltdp.location_chain)",
    )


def _holds_points(path: str | os.PathLike[str]) -> bool:
    """Return whether a file that is no model holds points: GeoJSON, or a latitude and a longitude column."""
    with opened(path) as stream:
        head = stream.read(4096).decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
    if head.startswith("{"):
        return re.search(r'"type"\s*:\s*"Feature(?:Collection)?"', head) is not None
    names = {name.strip(' "').lower() for name in re.split(r"[,;\t ]", head.partition("\n")[0])}
    return all(names & place for place in _PLACES)


def _import_reader(target: str) -> Callable[..., Model]:
    """Import the reader named ``"module:function"``."""
    module, _, function = target.partition(":")
    reader: Callable[..., Model] = getattr(import_module(module), function)
    return reader


def _check_reader_options(
    path: object, suffix: str, reader: Callable[..., Model], options: dict[str, Any]
) -> None:
    """Refuse by name an option that the reader does not know."""
    parameters = list(inspect.signature(reader).parameters.values())[1:]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters]
    for option in options:
        if option not in known:
            raise InvalidArgument(
                f"{path}: the {suffix} reader has no option {option!r}; it knows {', '.join(known) or 'none'}"
            )

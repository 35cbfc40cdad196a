"""``load_model``: one door for every file format."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.model import Model

__all__ = ["load_model", "register_reader"]

# Suffix -> "module:function" of its reader, imported when the first such file is read.
_READERS: dict[str, str] = {
    ".bif": "quiltdp.io.bif:read_bif",
    ".csv": "quiltdp.domains.pedigree:load",
    ".dat": "quiltdp.domains.pedigree:load",
    ".fam": "quiltdp.domains.pedigree:load",
    ".ged": "quiltdp.domains.pedigree:load",
    ".gedcom": "quiltdp.domains.pedigree:load",
    ".ped": "quiltdp.domains.pedigree:load",
    ".pre": "quiltdp.domains.pedigree:load",
    ".psam": "quiltdp.domains.pedigree:load",
    ".tab": "quiltdp.domains.pedigree:load",
    ".tsv": "quiltdp.domains.pedigree:load",
    ".txt": "quiltdp.domains.pedigree:load",
}


def load_model(path: str | os.PathLike[str], **options: Any) -> Model:
    """Read a model from a file.

    Parameters
    ----------
    path
        The file, by suffix ``.bif``, or a pedigree (``.fam .ped .psam .ged .csv``); each may be
        compressed (``.gz``).
    options
        Passed to the reader of the format, which refuses an option it does not know.  Every reader
        takes ``records``, the nodes that are rows of the database (default all).

    Raises
    ------
    FileFormatError, InvalidModel
        One line that names the file and, where there is one, the line in it.

    Examples
    --------
    >>> from quiltdp import load_model
    >>> load_model("models/asia.bif")
    <Bayesian network: 8 nodes, 8 records>
    """
    name = Path(path)
    if name.is_dir():
        raise FileFormatError(path, None, "this is a directory, a model file is expected")
    suffix = _suffix(name)
    target = _READERS.get(suffix)
    if target is None:
        known = " ".join(sorted(_READERS))
        raise FileFormatError(path, None, f"the suffix {suffix!r} is of no known format; known: {known}")
    reader = _resolve(target)
    _check_options(path, suffix, reader, options)
    model = reader(path, **options)
    assert isinstance(model, Model)
    return model


def register_reader(suffix: str, target: str) -> None:
    """Let ``load_model`` read files with ``suffix`` through ``"module:function"``, imported on demand.

    The function takes the path and keyword options, and returns a :class:`~quiltdp.model.Model`.
    """
    if not suffix.startswith(".") or target.count(":") != 1:
        raise InvalidArgument(f"expected '.suffix' and 'module:function', found {suffix!r} and {target!r}")
    _READERS[suffix.lower()] = target


def _suffix(path: Path) -> str:
    """Return the suffix that names the format, without ``.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _resolve(target: str) -> Callable[..., Model]:
    """Import the reader named ``"module:function"``."""
    module, _, function = target.partition(":")
    reader: Callable[..., Model] = getattr(import_module(module), function)
    return reader


def _check_options(path: object, suffix: str, reader: Callable[..., Model], options: dict[str, Any]) -> None:
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

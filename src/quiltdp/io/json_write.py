"""``save_model``: the JSON writer, exact to the last bit."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument
from quiltdp.interface import any_model
from quiltdp.io.json_read import SCHEMA_VERSION
from quiltdp.io.replace import write_whole
from quiltdp.model import Model
from quiltdp.printable import json_text

__all__ = ["save_model"]


@any_model
def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a ``.json`` (or ``.json.gz``) file.

    :func:`quiltdp.load_model` reads it back with the same fingerprint: numbers are written with as
    many digits as it takes.  The file is replaced in one step, or left as it was.

    Raises
    ------
    InvalidArgument
        If the suffix is another one.
    FileFormatError
        If the file cannot be written.

    Examples
    --------
    >>> import quiltdp as qd, tempfile, pathlib
    >>> asia = qd.load_model("models/asia.bif")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "asia.json"
    ...     qd.save_model(asia, file)
    ...     qd.load_model(file).fingerprint == asia.fingerprint
    True
    """
    name = Path(path)
    if not name.name.lower().endswith((".json", ".json.gz")):
        raise InvalidArgument(f"{path}: models are saved as .json or .json.gz files")
    document = _chain(model) if isinstance(model, ChainModel) else _network(model)
    data = _pretty(document).encode("utf-8")
    if name.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)
    write_whole(name, data)


def _head(kind: str) -> dict[str, Any]:
    return {"schema": f"quiltdp/{kind}", "version": SCHEMA_VERSION}


def _tail(model: Model) -> dict[str, Any]:
    """Return records, provenance and notes, as far as there are any."""
    tail: dict[str, Any] = {}
    if len(model.latents):
        tail["records"] = list(model.records)
    if model.people:
        tail["people"] = dict(model.people)
    if model.provenance:
        tail["provenance"] = dict(model.provenance)
    if model.notes:
        tail["notes"] = list(model.notes)
    return tail


def _network(model: Model) -> dict[str, Any]:
    """Return the document of a network."""
    if not model.directed:
        factors: list[dict[str, Any]] = [
            {"scope": list(f.scope), "table": f.table.tolist(), **({"child": f.child} if f.child else {})}
            for f in model.factors
        ]
        nodes = [{"name": n, "states": list(model.states[n])} for n in model.nodes]
        return {**_head("markov-network"), "nodes": nodes, "factors": factors, **_tail(model)}
    own = {f.child: f for f in model.factors}
    tables = [
        {
            "name": n,
            "states": list(model.states[n]),
            "parents": list(own[n].parents),
            "table": own[n].table.tolist(),
        }
        for n in model.nodes
    ]
    return {**_head("network"), "nodes": tables, **_tail(model)}


def _chain(model: ChainModel) -> dict[str, Any]:
    """Return the document of chains, the short form where all have one matrix and one law."""
    first = model.segments[0]
    sizes = {len(first.initial), *(m.shape[1] for m in first.transitions)}
    names = model.states[model.nodes[0]]
    document = _head("chain")
    if len(sizes) == 1 and names != tuple(str(k) for k in range(len(names))):
        document["states"] = list(names)
    alike = all(
        s.homogeneous and s.initial is first.initial and s.transitions[0] is first.transitions[0]
        for s in model.segments
    )
    if not alike:
        document["chains"] = [_segment(s) for s in model.segments]
    elif len(model.segments) == 1:
        document.update(_segment(first))
    else:
        document["lengths"] = {s.prefix: s.length for s in model.segments}
        document["initial"] = first.initial.tolist()
        document["transition"] = first.transitions[0].tolist()
    return {**document, **_tail(model)}


def _segment(segment: ChainSegment) -> dict[str, Any]:
    """Return the fields of one chain."""
    fields: dict[str, Any] = {"prefix": segment.prefix, "length": segment.length}
    fields["initial"] = segment.initial.tolist()
    if segment.homogeneous:
        fields["transition"] = segment.transitions[0].tolist()
    else:
        fields["transitions"] = [m.tolist() for m in segment.transitions]
    return fields


def _pretty(value: Any, indent: str = "") -> str:
    """Return JSON with objects and lists of objects spread out, and innermost rows on one line."""
    deeper = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{deeper}{_word(k)}: {_pretty(v, deeper)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}" + ("\n" if not indent else "")
    if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
        items = [deeper + _pretty(v, deeper) for v in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return _word(value)


def _word(value: Any) -> str:
    return json_text(value)

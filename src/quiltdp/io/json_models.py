"""Models in JSON, exact to the last bit: networks, Markov networks and chains (the schema is beside this)."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from quiltdp.chain import ChainModel, ChainSegment, markov_chain, markov_chains
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.factor import Factor
from quiltdp.interface import any_model
from quiltdp.io.replace import write_whole
from quiltdp.io.text import Source, blaming, parse_json, read_source
from quiltdp.model import Model
from quiltdp.printable import json_text

SCHEMA_VERSION = 1

_EVERYWHERE = {"$schema", "schema", "version", "provenance", "notes"}


def read_json(
    path: str | os.PathLike[str], *, records: Collection[str] | None = None, encoding: str | None = None
) -> Model:
    """Read a network, a Markov network or chains from quiltdp's JSON format.

    Parameters
    ----------
    path
        The file; it may be compressed with gzip.
    records
        The nodes that are rows of the database; default what the file says.
    encoding
        The encoding of the text, where it is not UTF-8.

    Raises
    ------
    FileFormatError
        If it is not JSON (with the line) or not this format (with the place in the document).
    InvalidModel
        If the document is well formed and its model is not.
    """
    document = _Document(read_source(path, encoding=encoding))
    kind = document.kind()
    with blaming(path, _NodeLines(document.source.text)):
        model = _KINDS[kind](document, records)
    return model


class _Document:
    """A parsed JSON object, and the way to ask it for fields that must have a certain shape."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root = self.object(parse_json(source), "the document")

    def fail(self, message: str) -> Exception:
        """Return the error to raise."""
        return self.source.error(None, message)

    def kind(self) -> str:
        """Return which of the three kinds of document this is."""
        named = self.root.get("schema")
        version = self.root.get("version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise self.fail(f"'version' is {version!r}, this program reads version {SCHEMA_VERSION}")
        if named is not None:
            if not isinstance(named, str) or named not in _KINDS:
                raise self.fail(f"'schema' is {named!r}, expected one of {', '.join(_KINDS)}")
            return named
        if "factors" in self.root:
            return "quiltdp/markov-network"
        if "nodes" in self.root:
            return "quiltdp/network"
        if self.root.keys() & {"transition", "transitions", "chains"}:
            return "quiltdp/chain"
        raise self.fail(
            "expected a network ('nodes'), a Markov network ('factors') or a chain ('transition')"
        )

    def refuse_unknown_keys(self, known: set[str], value: Mapping[str, Any], where: str) -> None:
        """Refuse keys that mean nothing here."""
        for key in value:
            if key not in known:
                raise self.fail(f"{where} has the unknown key {key!r}; known: {', '.join(sorted(known))}")

    def object(self, value: Any, where: str) -> dict[str, Any]:
        """Return a JSON object."""
        if not isinstance(value, dict):
            raise self.fail(f"{where} must be an object {{…}}, not {_json_type_name(value)}")
        return value

    def list(self, value: Any, where: str) -> list[Any]:
        """Return a JSON array."""
        if not isinstance(value, list):
            raise self.fail(f"{where} must be a list […], not {_json_type_name(value)}")
        return value

    def string(self, value: Any, where: str) -> str:
        """Return a JSON string."""
        if not isinstance(value, str):
            raise self.fail(f"{where} must be a string, not {_json_type_name(value)}")
        return value

    def strings(self, value: Any, where: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(self.string(v, f"{where}[{k}]") for k, v in enumerate(self.list(value, where)))

    def whole_number(self, value: Any, where: str) -> int:
        """Return a whole number."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(f"{where} must be a whole number, not {_json_type_name(value)}")
        return value

    def required(self, value: Mapping[str, Any], key: str, where: str) -> Any:
        """Return a field that must be there."""
        if key not in value:
            raise self.fail(f"{where} has no {key!r}")
        return value[key]

    def table(self, value: Any, where: str) -> Any:
        """Return nested lists of numbers, nothing else in them."""
        stack = [self.list(value, where)]
        while stack:
            for item in stack.pop():
                if isinstance(item, list):
                    stack.append(item)
                elif isinstance(item, bool) or not isinstance(item, (int, float)):
                    raise self.fail(f"{where} must hold numbers, found {_json_type_name(item)}")
        return value

    def nodes(self, known: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every node with its name; refuse unknown keys and a name that is listed twice."""
        seen: set[str] = set()
        for k, entry in enumerate(self.list(self.required(self.root, "nodes", "the document"), "'nodes'")):
            node = self.object(entry, f"nodes[{k}]")
            name = self.string(self.required(node, "name", f"nodes[{k}]"), f"the name of nodes[{k}]")
            self.refuse_unknown_keys(known, node, f"node {name!r}")
            if name in seen:
                raise InvalidModel(f"node {name!r} is listed twice", name)
            seen.add(name)
            yield name, node

    def extras(self) -> dict[str, Any]:
        """Return notes and provenance as keyword arguments."""
        notes = self.strings(self.root.get("notes", []), "'notes'")
        fields = self.object(self.root.get("provenance", {}), "'provenance'")
        origin = {k: self.string(v, f"'provenance'[{k!r}]") for k, v in fields.items()}
        if "file" in origin:
            origin.setdefault("original_file", origin["file"])
        return {"notes": notes, "provenance": {**origin, "file": self.source.path, "format": "JSON"}}

    def people(self) -> dict[str, int]:
        """Return for how many people each record stands, where it is more than one."""
        origin = self.object(self.root.get("provenance", {}), "'provenance'")
        if "people" not in self.root and origin.get("twins", "{}") != "{}":
            raise self.fail(
                "this file keeps its twins in 'provenance', as an earlier version wrote them: add"
                " 'people' (record → number of people), or save the model from its pedigree again"
            )
        counts = self.object(self.root.get("people", {}), "'people'")
        return {r: self.whole_number(k, f"'people'[{r!r}]") for r, k in counts.items()}

    def records(self, chosen: Collection[str] | None) -> Collection[str] | None:
        """Return the records: those of the caller, else those of the file, else ``None`` for all."""
        if chosen is not None or "records" not in self.root:
            return chosen
        return self.strings(self.root["records"], "'records'")


def _read_network(document: _Document, records: Collection[str] | None) -> Model:
    """Return a Bayesian network."""
    document.refuse_unknown_keys(_EVERYWHERE | {"nodes", "records", "people"}, document.root, "the document")
    tables, states = {}, {}
    for name, node in document.nodes({"name", "states", "parents", "table"}):
        where = f"node {name!r}"
        parents = document.strings(node.get("parents", []), f"{where}: 'parents'")
        table = document.table(document.required(node, "table", where), f"{where}: 'table'")
        tables[name] = (parents, table)
        if "states" in node:
            states[name] = document.strings(node["states"], f"{where}: 'states'")
    return _replace_records(
        Model.from_tables(
            tables, document.records(None), states=states, people=document.people(), **document.extras()
        ),
        records,
    )


def _read_markov_network(document: _Document, records: Collection[str] | None) -> Model:
    """Return a network of potentials."""
    document.refuse_unknown_keys(
        _EVERYWHERE | {"nodes", "records", "people", "factors"}, document.root, "the document"
    )
    states: dict[str, tuple[str, ...]] = {}
    for name, node in document.nodes({"name", "states"}):
        states[name] = document.strings(
            document.required(node, "states", f"node {name!r}"), f"node {name!r}: 'states'"
        )
    factors = []
    listed = document.list(document.required(document.root, "factors", "the document"), "'factors'")
    for k, entry in enumerate(listed):
        factor = document.object(entry, f"factors[{k}]")
        document.refuse_unknown_keys({"scope", "table", "child"}, factor, f"factors[{k}]")
        scope = document.strings(
            document.required(factor, "scope", f"factors[{k}]"), f"factors[{k}]: 'scope'"
        )
        table = document.required(factor, "table", f"factors[{k}]")
        document.table(table if scope else [table], f"factors[{k}]: 'table'")
        child = factor.get("child")
        if child is not None:
            document.string(child, f"factors[{k}]: 'child'")
        factors.append(Factor(scope, table, child))
    return _replace_records(
        Model(states, factors, document.records(None), people=document.people(), **document.extras()), records
    )


def _replace_records(model: Model, records: Collection[str] | None) -> Model:
    """Return the model with the caller's records, if there are any."""
    return model if records is None else model.with_records(records)


def _read_chains(document: _Document, records: Collection[str] | None) -> Model:
    """Return one chain, several with the same matrix, or several of any kind."""
    root, extras = document.root, document.extras()
    shared = _EVERYWHERE | {"records", "states"}
    states = document.strings(root["states"], "'states'") if "states" in root else None
    model: ChainModel
    if "chains" in root:
        document.refuse_unknown_keys(shared | {"chains"}, root, "the document")
        listed = document.list(root["chains"], "'chains'")
        segments = [_read_chain_entry(document, entry, f"chains[{k}]") for k, entry in enumerate(listed)]
        notes = (*extras.pop("notes"), *dict.fromkeys(note for made in segments for note in made.notes))
        parts: list[ChainSegment] = [s for made in segments for s in made.segments]
        model = ChainModel(parts, states, notes=notes, **extras)
    else:
        own = {"transition", "transitions", "length", "lengths", "initial", "prefix"}
        document.refuse_unknown_keys(shared | own, root, "the document")
        if "lengths" not in root:
            model = _read_one_chain(document, root, "the document", states=states, **extras)
        else:
            for key in ("length", "prefix", "transitions"):
                if key in root:
                    raise document.fail(f"'lengths' and {key!r} cannot be given together")
            named = document.object(root["lengths"], "'lengths'")
            lengths = {p: document.whole_number(n, f"'lengths'[{p!r}]") for p, n in named.items()}
            matrix = document.table(document.required(root, "transition", "the document"), "'transition'")
            model = markov_chains(matrix, lengths, _read_initial_law(document, root), states=states, **extras)
    chosen = document.records(records)
    if chosen is None or (len(set(chosen)) == len(model.nodes) and all(n in model.nodes for n in chosen)):
        return model
    return model.with_records(chosen)


def _read_chain_entry(document: _Document, entry: Any, where: str) -> ChainModel:
    """Return one entry of ``chains``."""
    fields = document.object(entry, where)
    document.refuse_unknown_keys({"transition", "transitions", "length", "initial", "prefix"}, fields, where)
    document.required(fields, "prefix", where)
    return _read_one_chain(document, fields, where)


def _read_one_chain(document: _Document, entry: Mapping[str, Any], where: str, **extras: Any) -> ChainModel:
    """Return a single chain from its fields."""
    if ("transition" in entry) == ("transitions" in entry):
        raise document.fail(f"{where} must have either 'transition' or 'transitions'")
    prefix = document.string(entry.get("prefix", "X"), f"{where}: 'prefix'")
    length = document.whole_number(entry["length"], f"{where}: 'length'") if "length" in entry else None
    if "transition" in entry:
        matrix: Any = document.table(entry["transition"], f"{where}: 'transition'")
        if matrix and any(isinstance(row, list) and any(isinstance(x, list) for x in row) for row in matrix):
            raise document.fail(f"{where}: 'transition' is one matrix; a list of them is 'transitions'")
    else:
        matrix = document.list(entry["transitions"], f"{where}: 'transitions'")
        matrix = [document.table(m, f"{where}: 'transitions'[{k}]") for k, m in enumerate(matrix)]
        if not matrix:
            raise document.fail(f"{where}: 'transitions' is empty")
        if not all(m and isinstance(m[0], list) for m in matrix):
            raise document.fail(f"{where}: 'transitions' must be a list of matrices; one is 'transition'")
    return markov_chain(matrix, length, _read_initial_law(document, entry), prefix=prefix, **extras)


def _read_initial_law(document: _Document, entry: Mapping[str, Any]) -> Any:
    """Return the initial law: a name or a vector."""
    value = entry.get("initial", "stationary")
    return value if isinstance(value, str) else document.table(value, "'initial'")


_KINDS: dict[str, Callable[[_Document, Collection[str] | None], Model]] = {
    "quiltdp/network": _read_network,
    "quiltdp/markov-network": _read_markov_network,
    "quiltdp/chain": _read_chains,
}


def _json_type_name(value: Any) -> str:
    """Name a JSON value for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return f"the {'string' if isinstance(value, str) else 'number'} {value!r:.40}"


class _NodeLines(Mapping[str, int]):
    """The line where a node is named, looked up only when an error needs it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getitem__(self, node: str) -> int:
        written = {json.dumps(node), json.dumps(node, ensure_ascii=False)}
        places = "|".join(re.escape(w) for w in sorted(written))
        place = re.search(rf'"name"\s*:\s*(?:{places})', self._text)
        if place is None:
            raise KeyError(node)
        return self._text.count("\n", 0, place.start()) + 1

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


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
    document = _chain_document(model) if isinstance(model, ChainModel) else _network_document(model)
    data = _format_json(document).encode("utf-8")
    if name.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)
    write_whole(name, data)


def _document_head(kind: str) -> dict[str, Any]:
    return {"schema": f"quiltdp/{kind}", "version": SCHEMA_VERSION}


def _document_tail(model: Model) -> dict[str, Any]:
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


def _network_document(model: Model) -> dict[str, Any]:
    """Return the document of a network."""
    if not model.directed:
        factors: list[dict[str, Any]] = [
            {"scope": list(f.scope), "table": f.table.tolist(), **({"child": f.child} if f.child else {})}
            for f in model.factors
        ]
        nodes = [{"name": n, "states": list(model.states[n])} for n in model.nodes]
        return {
            **_document_head("markov-network"),
            "nodes": nodes,
            "factors": factors,
            **_document_tail(model),
        }
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
    return {**_document_head("network"), "nodes": tables, **_document_tail(model)}


def _chain_document(model: ChainModel) -> dict[str, Any]:
    """Return the document of chains, the short form where all have one matrix and one law."""
    first = model.segments[0]
    sizes = {len(first.initial), *(m.shape[1] for m in first.transitions)}
    names = model.states[model.nodes[0]]
    document = _document_head("chain")
    if len(sizes) == 1 and names != tuple(str(k) for k in range(len(names))):
        document["states"] = list(names)
    alike = all(
        s.homogeneous and s.initial is first.initial and s.transitions[0] is first.transitions[0]
        for s in model.segments
    )
    if not alike:
        document["chains"] = [_segment_fields(s) for s in model.segments]
    elif len(model.segments) == 1:
        document.update(_segment_fields(first))
    else:
        document["lengths"] = {s.prefix: s.length for s in model.segments}
        document["initial"] = first.initial.tolist()
        document["transition"] = first.transitions[0].tolist()
    return {**document, **_document_tail(model)}


def _segment_fields(segment: ChainSegment) -> dict[str, Any]:
    """Return the fields of one chain."""
    fields: dict[str, Any] = {"prefix": segment.prefix, "length": segment.length}
    fields["initial"] = segment.initial.tolist()
    if segment.homogeneous:
        fields["transition"] = segment.transitions[0].tolist()
    else:
        fields["transitions"] = [m.tolist() for m in segment.transitions]
    return fields


def _format_json(value: Any, indent: str = "") -> str:
    """Return JSON with objects and lists of objects spread out, and innermost rows on one line."""
    deeper = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{deeper}{json_text(k)}: {_format_json(v, deeper)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}" + ("\n" if not indent else "")
    if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
        items = [deeper + _format_json(v, deeper) for v in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json_text(value)

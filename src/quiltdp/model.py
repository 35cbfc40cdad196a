"""The model of the correlation: nodes, their states, factor tables, and which nodes are records.

A :class:`Model` is a discrete distribution written as a product of :class:`Factor` tables.  For a
Bayesian network the factors are the conditional probability tables, for a Markov network the
potentials.  *Records* are the rows of the database; the other nodes are *latent*: they carry
correlation and nobody publishes them.  Everything is frozen and validated at birth.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidModel, UnknownNode
from quiltdp.factor import (
    ROW_SUM_TOLERANCE,
    Factor,
    Frozen,
    Table,
    TablePool,
    frozen_table,
    plain_names,
)

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ROW_SUM_TOLERANCE", "Factor", "Model", "Table"]

_MOST_PEOPLE = 1_000_000


class Model(Frozen):
    """A discrete distribution over named nodes, some of them records.

    Build one with :meth:`from_tables`, :meth:`from_potentials`, :func:`quiltdp.markov_chain`,
    :func:`quiltdp.load_model` or :func:`quiltdp.from_pgmpy`.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> m.nodes, m.records, m.factors
    (('A', 'B'), ('A', 'B'), (P(A), P(B | A)))
    """

    _states: dict[str, tuple[str, ...]]
    _factors: tuple[Factor, ...]
    _records: frozenset[str]
    _people: dict[str, int]
    _notes: tuple[str, ...]
    _provenance: dict[str, str]

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],
        factors: Iterable[Factor],
        records: Collection[str] | None = None,
        *,
        people: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        named = {_checked_name(n): _checked_states(n, s, shared) for n, s in states.items()}
        tables, found = _normalise_factors(factors)
        chosen = _checked_records(named, records)
        self._set_fields(
            _states=named,
            _factors=tables,
            _records=chosen,
            _people=_checked_people(named, chosen, people or {}),
            _notes=(*notes, *found),
            _provenance=dict(provenance or {}),
        )
        self._check_factors()
        if self.directed:
            self.topological_order  # noqa: B018 - raises InvalidModel on a cycle

    def _set_fields(self, **fields: object) -> None:
        """Set the fields of a model at birth; afterwards it is frozen."""
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle each distinct table once, and check the model wherever it arrives."""
        tables = {id(f.table): f.table for f in self._factors}
        place = {key: k for k, key in enumerate(tables)}
        factors = [(f.scope, place[id(f.table)], f.child) for f in self._factors]
        arrays = [np.array(t) for t in tables.values()]
        extras = {"people": self._people, "notes": self._notes, "provenance": self._provenance}
        return _unpickle_model, (self._states, arrays, factors, self._records, extras)

    # -- what it is ------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> Sequence[str]:
        """Every node, in the order given."""
        return tuple(self._states)

    @cached_property
    def states(self) -> Mapping[str, tuple[str, ...]]:
        """The state names of every node."""
        return MappingProxyType(self._states)

    @property
    def factors(self) -> Sequence[Factor]:
        """The tables whose product is the distribution (up to a constant for potentials)."""
        return self._factors

    @cached_property
    def records(self) -> Sequence[str]:
        """The nodes that are rows of the database, in node order."""
        return tuple(n for n in self._states if n in self._records)

    @property
    def latents(self) -> Sequence[str]:
        """The nodes that only carry correlation, in node order."""
        return tuple(n for n in self.nodes if not self.is_record(n))

    @property
    def people(self) -> Mapping[str, int]:
        """The records that stand for several people, and for how many; every other stands for one.

        Monozygotic twins share a genome, hence a record: a mechanism that is α-DP for one person is
        2 α-DP for their record.
        """
        return MappingProxyType(self._people)

    @property
    def headcount(self) -> int:
        """The rows of the data: people who share a record have one each."""
        return len(self.records) + sum(k - 1 for k in self._people.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done on the way in (rows normalised, links ignored, …), for people to read."""
        return self._notes

    @property
    def provenance(self) -> Mapping[str, str]:
        """Where the model came from: file, estimator, options."""
        return dict(self._provenance)

    @property
    def fit(self) -> Any:
        """What a fit found on the way (states, counts, criterion, …); ``None`` where nothing was fitted."""
        return self.__dict__.get("_fit")

    def _attach_fit(self, fit: object) -> Self:
        """Attach what a fit found, at birth."""
        self._set_fields(_fit=fit)
        return self

    @cached_property
    def directed(self) -> bool:
        """Whether this is a Bayesian network: every factor is the CPT of its own child."""
        return bool(self.factors) and all(f.child is not None for f in self.factors)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of every node in :attr:`nodes`."""
        return MappingProxyType({n: k for k, n in enumerate(self.nodes)})

    @cached_property
    def factors_of(self) -> Mapping[str, tuple[int, ...]]:
        """For every node, the positions in :attr:`factors` of the tables that contain it."""
        found: dict[str, list[int]] = {n: [] for n in self.nodes}
        for k, factor in enumerate(self.factors):
            for n in factor.scope:
                found[n].append(k)
        return MappingProxyType({n: tuple(ks) for n, ks in found.items()})

    def cardinality(self, node: str) -> int:
        """Return the number of states of ``node``."""
        self.require([node])
        return len(self.states[node])

    def is_record(self, node: str) -> bool:
        """Return whether ``node`` is a row of the database."""
        return node in self._records

    def require(self, nodes: Iterable[str]) -> None:
        """Raise :class:`UnknownNode` unless the model has every one of ``nodes``."""
        for n in nodes:
            if n not in self.states:
                raise UnknownNode(f"node {n!r} is not in the model{suggest_names(n, self.nodes)}")

    @cached_property
    def topological_order(self) -> tuple[str, ...]:
        """Parents before children; only for a directed model."""
        if not self.directed:
            raise InvalidModel("a Markov network has no topological order")
        parents = {f.scope[-1]: f.scope[:-1] for f in self.factors}
        children: dict[str, list[str]] = {n: [] for n in parents}
        missing = {n: len(ps) for n, ps in parents.items()}
        for n, ps in parents.items():
            for p in ps:
                children[p].append(n)
        order = [n for n in parents if not missing[n]]
        for n in order:  # grows while it is walked: Kahn's algorithm
            for c in children[n]:
                missing[c] -= 1
                if not missing[c]:
                    order.append(c)
        if len(order) < len(parents):
            cycle = _find_cycle(parents, {n for n in parents if missing[n]})
            raise InvalidModel(f"the parents form a cycle: {' → '.join(cycle)}", cycle[0])
        return tuple(order)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: nodes, states, records, people and tables, in no particular order.

        Two models with the same nodes, states, records, people and tables have the same fingerprint
        however their nodes and parents are listed.
        """
        digest = hashlib.sha256(b"quiltdp model v1\0")
        for n in sorted(self.nodes):
            kind = "record" if self.is_record(n) else "latent"
            digest.update(repr((n, self.states[n], kind)).encode())
        for scope, child, entries in sorted(_canonical_factor(f) for f in self.factors):
            digest.update(repr((scope, child)).encode())
            digest.update(entries)
        if self._people:
            digest.update(repr(("people", sorted(self._people.items()))).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        """Say how large it is."""
        kind = "Bayesian" if self.directed else "Markov"
        return f"<{kind} network: {len(self.nodes)} nodes, {len(self.records)} records>"

    # -- making new ones -------------------------------------------------------------------

    def with_records(self, records: Collection[str]) -> Model:
        """Return the same distribution with other nodes as the rows of the database.

        A record that stands for several people still does so if it stays a record.
        """
        kept = None if isinstance(records, str) else set(records)
        people = {r: k for r, k in self._people.items() if kept is None or r in kept}
        return Model(
            self.states, self.factors, records, people=people, notes=self.notes, provenance=self.provenance
        )

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, tuple[Sequence[str], ArrayLike]],
        records: Collection[str] | None = None,
        *,
        states: Mapping[str, Sequence[str]] | None = None,
        people: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
    ) -> Model:
        """Build a Bayesian network from ``node -> (parents, table)``; table axes: parents…, node.

        Rows that sum to 1 within 1e-6 are normalised and the model's notes say so; a row further
        off is refused by name.  ``people`` says for how many people a record stands, if not for one.

        Raises
        ------
        InvalidModel
            Naming the node, and the row where there is one.
        """
        pool = TablePool()
        tables_in: dict[str, tuple[tuple[str, ...], Table]] = {}
        for node, (parents, values) in tables.items():
            tables_in[_checked_name(node)] = (plain_names(parents), pool.cpt(node, values))
        named = dict(states) if states is not None else {}
        defaults: dict[int, tuple[str, ...]] = {}
        all_states: dict[str, Sequence[str]] = {}
        for node, (_, table) in tables_in.items():
            size = table.shape[-1]
            if size not in defaults:
                defaults[size] = tuple(str(k) for k in range(size))
            all_states[node] = named.pop(node, defaults[size])
        if named:
            raise InvalidModel(f"states are given for {sorted(named)}, which have no table")
        for node, (parents, _) in tables_in.items():
            for p in parents:
                if p not in tables_in:
                    raise InvalidModel(f"node {node!r}: its parent {p!r} has no table", node)
        factors = [
            Factor._from_checked((*parents, node), table, node)
            for node, (parents, table) in tables_in.items()
        ]
        found = (*notes, *pool.notes())
        return cls(all_states, factors, records, people=people, notes=found, provenance=provenance)

    @classmethod
    def from_potentials(
        cls,
        states: Mapping[str, Sequence[str] | int],
        potentials: Iterable[tuple[Sequence[str], ArrayLike]],
        records: Collection[str] | None = None,
        *,
        people: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
    ) -> Model:
        """Build a Markov network from ``(scope, table)`` pairs; ``states`` gives names or counts.

        Examples
        --------
        >>> from quiltdp import Model
        >>> Model.from_potentials({"A": 2, "B": 2}, [(["A", "B"], [[2, 1], [1, 2]])]).factors
        (ψ(A, B),)
        """
        names = {
            n: tuple(str(k) for k in range(s)) if isinstance(s, int) else tuple(s) for n, s in states.items()
        }
        pool = TablePool()
        factors = [
            Factor._from_checked(plain_names(scope), pool.potential(tuple(scope), values), None)
            for scope, values in potentials
        ]
        return cls(names, factors, records, people=people, notes=notes, provenance=provenance)

    # -- checks ----------------------------------------------------------------------------

    def _check_factors(self) -> None:
        sizes = {n: len(s) for n, s in self._states.items()}
        children = Counter(f.child for f in self._factors if f.child is not None)
        for f in self._factors:
            for n in f.scope:
                if n not in sizes:
                    raise InvalidModel(f"{f!r}: node {n!r} is not in the model", f.child)
            shape = tuple(sizes[n] for n in f.scope)
            if f.table.shape != shape:
                raise InvalidModel(
                    f"{f!r}: the table has shape {f.table.shape}, the states of {f.scope} ask for {shape}",
                    f.child,
                )
        if children:
            twice = [n for n, k in children.items() if k > 1]
            if twice:
                raise InvalidModel(f"node {twice[0]!r} has {children[twice[0]]} tables of its own", twice[0])
            if self.directed:
                bare = [n for n in sizes if n not in children]
                if bare:
                    raise InvalidModel(f"node {bare[0]!r} has no table", bare[0])


def _unpickle_model(
    states: Mapping[str, Sequence[str]],
    arrays: Sequence[Table],
    factors: Sequence[tuple[tuple[str, ...], int, str | None]],
    records: Collection[str],
    extras: Mapping[str, Any],
) -> Model:
    """Build an unpickled model, each distinct table checked once and kept once."""
    tables = [frozen_table(a, "pickled model") for a in arrays]
    made = [Factor._from_checked(scope, tables[k], child) for scope, k, child in factors]
    return Model(states, made, records, **extras)


def _normalise_factors(factors: Iterable[Factor]) -> tuple[tuple[Factor, ...], tuple[str, ...]]:
    """Return the factors with every CPT row summing to 1, and a note if that took a change."""
    pool = TablePool()
    kept = []
    for f in factors:
        table = f.table if f.child is None else pool.normalised(f.child, f.table)
        kept.append(f if table is f.table else Factor._from_checked(f.scope, table, f.child))
    return tuple(kept), pool.notes()


def _checked_name(node: object) -> str:
    """Return a node name, or refuse what is not a non-empty string."""
    if not isinstance(node, str) or not node:
        raise InvalidModel(f"a node's name must be a non-empty string, not {node!r}")
    return str(node)


def _checked_states(
    node: str, states: Sequence[str], shared: dict[tuple[str, ...], tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the state names as a tuple shared between nodes, or refuse them naming ``node``."""
    if isinstance(states, str):
        raise InvalidModel(f"node {node!r}: states must be a list of names, not the string {states!r}", node)
    key = plain_names(states)
    known = shared.get(key)
    if known is not None:
        return known
    if not key:
        raise InvalidModel(f"node {node!r} has no states", node)
    for state in key:
        if not isinstance(state, str):
            raise InvalidModel(f"node {node!r}: a state's name must be a string, not {state!r}", node)
    if len(set(key)) != len(key):
        twice = next(s for s, k in Counter(key).items() if k > 1)
        raise InvalidModel(f"node {node!r}: the state {twice!r} is named twice", node)
    shared[key] = key
    return key


def _checked_records(states: Mapping[str, object], records: Collection[str] | None) -> frozenset[str]:
    """Return the records as a set, or refuse them."""
    if not states:
        raise InvalidModel("the model has no nodes")
    if records is None:
        return frozenset(states)
    if isinstance(records, str):
        raise InvalidModel(f"records must be a collection of node names, not the string {records!r}")
    chosen = frozenset(records)
    for n in sorted(chosen, key=str):
        if n not in states:
            raise UnknownNode(f"record {n!r} is not a node of the model{suggest_names(n, states)}")
    if not chosen:
        raise InvalidModel("the model has no records: at least one node must be a row of the data")
    return chosen


def _checked_people(
    states: Mapping[str, object], records: frozenset[str], people: Mapping[str, int]
) -> dict[str, int]:
    """Return the records that stand for more than one person, in node order, or refuse the numbers."""
    for record, count in people.items():
        if record not in records:
            what = "latent" if record in states else "not a node of the model"
            raise InvalidModel(f"people: {record!r} is {what}, only a record stands for people")
        if (
            isinstance(count, bool)
            or not isinstance(count, (int, np.integer))
            or not 1 <= count <= _MOST_PEOPLE
        ):
            raise InvalidModel(
                f"people: record {record!r} must stand for 1 to {_MOST_PEOPLE:,} people, not {count!r}",
                record,
            )
    return {n: int(people[n]) for n in states if people.get(n, 1) > 1}


def _canonical_factor(factor: Factor) -> tuple[tuple[str, ...], str, bytes]:
    """Return scope, child and entries with the conditioning axes sorted by name."""
    fixed = 1 if factor.child is not None else 0
    free = list(range(len(factor.scope) - fixed))
    free.sort(key=lambda k: factor.scope[k])
    axes = [*free, *range(len(free), len(factor.scope))]
    scope = tuple(factor.scope[k] for k in axes)
    entries = np.ascontiguousarray(factor.table.transpose(axes)).astype("<f8").tobytes()
    return scope, factor.child or "", entries


def _find_cycle(parents: Mapping[str, Sequence[str]], stuck: set[str]) -> list[str]:
    """Return one directed cycle among ``stuck`` nodes, parent before child, first node repeated."""
    node = min(stuck)
    seen: dict[str, int] = {}
    walk: list[str] = []
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        node = next(p for p in parents[node] if p in stuck)
    return [*walk[seen[node] :], node][::-1]


def suggest_names(name: object, known: Iterable[str]) -> str:
    """Suggest the closest known names, for error messages."""
    from difflib import get_close_matches
    from itertools import islice

    close = get_close_matches(str(name), list(islice(known, 5000)), n=3)
    return f"; did you mean {', '.join(map(repr, close))}?" if close else ""

"""Markov chains as models: a million steps in a few hundred bytes.

A :class:`ChainModel` is a :class:`~quiltdp.model.Model` whose nodes, states and factors are made on
demand from one transition matrix (or one per step), so that a homogeneous chain of any length is a
small object.  Several separate chains (people, or stretches of one trace between gaps) are the
segments of one model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidModel
from quiltdp.model import Factor, Model, Table, _TablePool

__all__ = ["ChainModel", "ChainSegment", "markov_chain", "markov_chains", "stationary_distribution"]

_NODE = re.compile(r"(.*\D)(0|[1-9][0-9]*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True, eq=False)
class ChainSegment:
    """One chain X_0 → X_1 → … : its node prefix, its length, its initial law and its transitions.

    ``transitions`` holds one matrix (homogeneous) or ``length − 1`` matrices, row = from.
    """

    prefix: str
    length: int
    initial: Table
    transitions: tuple[Table, ...]

    def __post_init__(self) -> None:
        """Check sizes; the matrices themselves are checked by whoever made them."""
        if not self.prefix or self.prefix[-1].isdigit():
            raise InvalidModel(f"chain prefix {self.prefix!r} must be non-empty and not end in a digit")
        if self.length < 1:
            raise InvalidModel(f"chain {self.prefix!r}: the length must be at least 1, not {self.length}")
        if len(self.transitions) not in (1, self.length - 1) and self.length > 1:
            raise InvalidModel(
                f"chain {self.prefix!r}: {self.length} steps need 1 or {self.length - 1} transition"
                f" matrices, not {len(self.transitions)}"
            )
        size = len(self.initial)
        for t, matrix in enumerate(self.transitions):
            if matrix.ndim != 2 or matrix.shape[0] != size:
                raise InvalidModel(
                    f"chain {self.prefix!r}: transition {t} has shape {matrix.shape},"
                    f" the step before it has {size} states"
                )
            size = matrix.shape[1]
        if self.homogeneous and self.length > 2 and size != len(self.initial):
            raise InvalidModel(f"chain {self.prefix!r}: the transition matrix is not square")

    @property
    def homogeneous(self) -> bool:
        """Whether every step uses the same matrix."""
        return len(self.transitions) == 1

    def transition(self, t: int) -> Table:
        """Return P(X_{t+1} | X_t), row = state at t."""
        return self.transitions[0] if len(self.transitions) == 1 else self.transitions[t]

    def cardinality(self, t: int) -> int:
        """Return the number of states at step t."""
        return len(self.initial) if t == 0 else int(self.transition(t - 1).shape[1])


class ChainModel(Model):
    """A model made of separate Markov chains; every node is a record."""

    def __init__(
        self,
        segments: Sequence[ChainSegment],
        state_names: Sequence[str] | None = None,
        *,
        notes: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        self.segments = tuple(segments)
        if not self.segments:
            raise InvalidModel("the model has no chains")
        prefixes = [s.prefix for s in self.segments]
        if len(set(prefixes)) != len(prefixes):
            raise InvalidModel("two chains have the same prefix")
        self._state_names = tuple(state_names) if state_names is not None else None
        if self._state_names is not None:
            if len(set(self._state_names)) != len(self._state_names):
                raise InvalidModel("a state of the chain is named twice")
            for s in self.segments:
                sizes = {len(s.initial), *(m.shape[1] for m in s.transitions)}
                if sizes != {len(self._state_names)}:
                    raise InvalidModel(
                        f"chain {s.prefix!r} has {sorted(sizes)} states, {len(self._state_names)} are named"
                    )
        self._notes = tuple(notes)
        self._provenance = dict(provenance or {})
        self._sequence = _ChainNodes(self.segments)

    @property
    def nodes(self) -> Sequence[str]:
        """Every node, chain after chain, in time order (made on demand)."""
        return self._sequence

    @property
    def records(self) -> Sequence[str]:
        """Every node: all steps of a chain are rows of the data."""
        return self._sequence

    @property
    def latents(self) -> Sequence[str]:
        """No node is latent."""
        return ()

    @cached_property
    def states(self) -> Mapping[str, tuple[str, ...]]:
        """The state names of every node (made on demand)."""
        return _ChainStates(self._sequence, self._state_names)

    @cached_property
    def factors(self) -> Sequence[Factor]:
        """The initial and transition tables (made on demand)."""
        return _ChainFactors(self._sequence)

    @cached_property
    def directed(self) -> bool:
        """Chains are Bayesian networks."""
        return True

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of every node in :attr:`nodes` (made on demand)."""
        return _ChainIndex(self._sequence)

    @cached_property
    def topological_order(self) -> tuple[str, ...]:
        """Time order."""
        return tuple(self._sequence)

    def is_record(self, node: str) -> bool:
        """Return whether the model has ``node``: every step is a record."""
        return node in self._sequence

    def with_records(self, records: Collection[str]) -> Model:
        """Return the same distribution with other nodes as records (as an ordinary model)."""
        return Model(
            dict(self.states), tuple(self.factors), records, notes=self.notes, provenance=self.provenance
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the segments; it names the chain form, not its unrolled network."""
        digest = hashlib.sha256(b"quiltdp chain v1\0")
        digest.update(repr(self._state_names).encode())
        for s in sorted(self.segments, key=lambda s: s.prefix):
            digest.update(repr((s.prefix, s.length, [m.shape for m in s.transitions])).encode())
            for table in (s.initial, *s.transitions):
                digest.update(np.ascontiguousarray(table).astype("<f8").tobytes())
        return digest.hexdigest()

    def locate(self, node: str) -> tuple[ChainSegment, int]:
        """Return the chain and the step of ``node``."""
        self.require([node])
        k, t = self._sequence.where(node)
        return self.segments[k], t

    def __repr__(self) -> str:
        """Say how many chains and steps."""
        if len(self.segments) == 1:
            s = self.segments[0]
            return f"<Markov chain: {s.length} steps, {len(s.initial)} states>"
        return f"<{len(self.segments)} Markov chains: {len(self._sequence)} steps>"


class _ChainNodes(Sequence[str]):
    """The node names ``prefix + str(t)``, computed."""

    def __init__(self, segments: tuple[ChainSegment, ...]) -> None:
        self.segments = segments
        self.starts = [0, *np.cumsum([s.length for s in segments]).tolist()]
        self._by_prefix = {s.prefix: k for k, s in enumerate(segments)}

    def __len__(self) -> int:
        return int(self.starts[-1])

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...
    def __getitem__(self, key: int | slice) -> str | Sequence[str]:
        if isinstance(key, slice):
            return tuple(self[k] for k in range(*key.indices(len(self))))
        k, t = self.place(range(len(self))[key])
        return f"{self.segments[k].prefix}{t}"

    def __iter__(self) -> Iterator[str]:
        for s in self.segments:
            for t in range(s.length):
                yield f"{s.prefix}{t}"

    def place(self, position: int) -> tuple[int, int]:
        """Return (segment, step) of a position."""
        k = int(np.searchsorted(self.starts, position, side="right")) - 1
        return k, position - int(self.starts[k])

    def where(self, node: object) -> tuple[int, int]:
        """Return (segment, step) of a name, or raise ``KeyError``."""
        match = _NODE.fullmatch(node) if isinstance(node, str) else None
        if match is not None:
            k = self._by_prefix.get(match[1])
            if k is not None and int(match[2]) < self.segments[k].length:
                return k, int(match[2])
        raise KeyError(node)

    def __contains__(self, node: object) -> bool:
        try:
            self.where(node)
        except KeyError:
            return False
        return True

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a name."""
        try:
            k, t = self.where(value)
        except KeyError:
            raise ValueError(f"{value!r} is not a node") from None
        return int(self.starts[k]) + t


class _ChainMapping(Mapping[str, Any]):
    def __init__(self, nodes: _ChainNodes) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    def __getitem__(self, node: str) -> Any:
        raise NotImplementedError


class _ChainIndex(_ChainMapping):
    def __getitem__(self, node: str) -> int:
        k, t = self._nodes.where(node)
        return int(self._nodes.starts[k]) + t


class _ChainStates(_ChainMapping):
    def __init__(self, nodes: _ChainNodes, names: tuple[str, ...] | None) -> None:
        super().__init__(nodes)
        self._names = names
        self._made: dict[int, tuple[str, ...]] = {}

    def __getitem__(self, node: str) -> tuple[str, ...]:
        k, t = self._nodes.where(node)
        if self._names is not None:
            return self._names
        size = self._nodes.segments[k].cardinality(t)
        if size not in self._made:
            self._made[size] = tuple(str(x) for x in range(size))
        return self._made[size]


class _ChainFactors(Sequence[Factor]):
    """One factor per node: the initial law of each segment, then its transitions."""

    def __init__(self, nodes: _ChainNodes) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, key: int) -> Factor: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Factor]: ...
    def __getitem__(self, key: int | slice) -> Factor | Sequence[Factor]:
        if isinstance(key, slice):
            return tuple(self[k] for k in range(*key.indices(len(self))))
        k, t = self._nodes.place(range(len(self))[key])
        return self._factor(self._nodes.segments[k], t)

    def __iter__(self) -> Iterator[Factor]:
        for s in self._nodes.segments:
            for t in range(s.length):
                yield self._factor(s, t)

    @staticmethod
    def _factor(segment: ChainSegment, t: int) -> Factor:
        node = f"{segment.prefix}{t}"
        if t == 0:
            return Factor._sharing((node,), segment.initial, node)
        return Factor._sharing((f"{segment.prefix}{t - 1}", node), segment.transition(t - 1), node)


def markov_chain(
    transition: Any,
    length: int | None = None,
    initial: str | ArrayLike = "stationary",
    *,
    states: Sequence[str] | None = None,
    prefix: str = "X",
    notes: Sequence[str] = (),
    provenance: Mapping[str, str] | None = None,
) -> ChainModel:
    """Return the Markov chain X0 → X1 → … as a model.

    Parameters
    ----------
    transition
        One square matrix (row = from), or a list of ``length − 1`` matrices.
    length
        The number of steps; may be left out for a list.
    initial
        ``"stationary"``, ``"uniform"`` or a vector.
    states
        State names; default ``"0"``, ``"1"``, ….

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> m = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_000_000)
    >>> m, m.nodes[999_999]
    (<Markov chain: 1000000 steps, 2 states>, 'X999999')
    """
    segment, found = _segment(prefix, transition, length, initial, _TablePool())
    return ChainModel([segment], states, notes=(*notes, *found), provenance=provenance)


def markov_chains(
    transition: Any,
    lengths: Mapping[str, int],
    initial: str | ArrayLike = "stationary",
    *,
    states: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    provenance: Mapping[str, str] | None = None,
) -> ChainModel:
    """Return separate chains with one transition matrix: ``prefix -> length``.

    Examples
    --------
    >>> from quiltdp import markov_chains
    >>> m = markov_chains([[0.9, 0.1], [0.1, 0.9]], {"ann/": 3, "bob/": 2})
    >>> list(m.nodes)
    ['ann/0', 'ann/1', 'ann/2', 'bob/0', 'bob/1']
    """
    pool = _TablePool()
    made = [_segment(p, transition, n, initial, pool) for p, n in lengths.items()]
    found = made[0][1] if made else ()
    return ChainModel([s for s, _ in made], states, notes=(*notes, *found), provenance=provenance)


def _segment(
    prefix: str,
    transition: Any,
    length: int | None,
    initial: str | ArrayLike,
    pool: _TablePool,
) -> tuple[ChainSegment, tuple[str, ...]]:
    """Check the matrices and the initial law of one chain."""
    matrices = _matrices(transition)
    single = len(matrices) == 1 and _is_matrix(transition)
    steps = length if length is not None else len(matrices) + 1
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool):
        raise InvalidModel(f"the chain's length must be a whole number, not {steps!r}")
    if length is None and single:
        raise InvalidModel("a homogeneous chain needs a length")
    rows = tuple(pool.cpt(f"{prefix}{t + 1}", m) for t, m in enumerate(matrices))
    if not rows:
        raise InvalidModel("the chain has no transition matrix")
    if rows[0].ndim != 2:
        raise InvalidModel(f"the transition matrix must have two axes, not {rows[0].ndim}")
    if isinstance(initial, str):
        if initial == "stationary":
            if not single:
                raise InvalidModel("a chain with one matrix per step has no stationary law: give a vector")
            start = stationary_distribution(rows[0])
        elif initial == "uniform":
            start = np.full(rows[0].shape[0], 1.0 / rows[0].shape[0])
        else:
            raise InvalidModel(f"initial must be 'stationary', 'uniform' or a vector, not {initial!r}")
    else:
        start = np.asarray(initial, dtype=np.float64)
    law = pool.cpt(f"{prefix}0", start)
    if law.ndim != 1 or len(law) != rows[0].shape[0]:
        raise InvalidModel(
            f"the initial law has shape {law.shape}, the transition matrix has {rows[0].shape[0]} rows"
        )
    if steps == 1 and not single:
        rows = ()
    return ChainSegment(prefix, int(steps), law, rows), pool.notes()


def _is_matrix(transition: Any) -> bool:
    """Return whether this is one matrix rather than a list of them."""
    if isinstance(transition, np.ndarray):
        return transition.ndim <= 2
    first = transition[0] if isinstance(transition, Sequence) and len(transition) else transition
    return bool(np.ndim(first) <= 1)


def _matrices(transition: Any) -> list[ArrayLike]:
    """Return the transition matrices as a list, one per step or just one."""
    if _is_matrix(transition):
        return [transition]
    return list(transition)


def stationary_distribution(transition: Table) -> Table:
    """Return the only π with π P = π, by state reduction (no subtraction, so no cancellation).

    Raises
    ------
    InvalidModel
        If the matrix is not square or has more than one closed class of states, so that no
        stationary law is the only one.
    """
    from scipy.sparse.csgraph import connected_components

    p = np.array(transition, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] != p.shape[1]:
        raise InvalidModel(f"the transition matrix has shape {p.shape}, it must be square")
    count, label = connected_components(p > 0, directed=True, connection="strong")
    closed = [k for k in range(count) if not (p[label == k][:, label != k] > 0).any()]
    if len(closed) > 1:
        raise InvalidModel(
            f"the chain has {len(closed)} closed classes of states, so no single stationary law:"
            " give the initial law as a vector"
        )
    keep = np.flatnonzero(label == closed[0])
    q = p[np.ix_(keep, keep)]
    for k in range(len(keep) - 1, 0, -1):  # Grassmann, Taksar, Heyman
        q[:k, k] /= q[k, :k].sum()
        q[:k, :k] += np.outer(q[:k, k], q[k, :k])
    pi = np.zeros(len(keep))
    pi[0] = 1.0
    for k in range(1, len(keep)):
        pi[k] = pi[:k] @ q[:k, k]
    law = np.zeros(p.shape[0])
    law[keep] = pi / pi.sum()
    return law

"""Markov chains as models: a million steps in a few hundred bytes.

A :class:`ChainModel` is a :class:`~quiltdp.model.Model` whose nodes, states and factors are made on
demand from one transition matrix (or one per step), so that a homogeneous chain of any length is a
small object.  Several separate chains (people, or stretches of one trace between gaps) are the
segments of one model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.chain_views import ChainFactors, ChainFactorsOf, ChainIndex, ChainNodes, ChainStates
from quiltdp.errors import InvalidArgument, InvalidModel, option
from quiltdp.factor import Factor, Table, TablePool, frozen_table, plain_names
from quiltdp.model import Model

MAX_STEPS = 50_000_000
"""The most steps of one model: every step has its own α and its own leakage, eight bytes each."""

_MOST_UNROLLED = 1_000_000
_FEW_STATES = 256  # up to here matrices of Booleans are quicker than loading scipy


@dataclass(frozen=True, eq=False)
class ChainSegment:
    """One chain X_0 → X_1 → … : its node prefix, its length, its initial law and its transitions.

    ``transitions`` holds one matrix (homogeneous) or ``length − 1`` matrices, row = from.  Tables
    are copied, checked and made read-only, unless they are frozen already.
    """

    prefix: str
    length: int
    initial: Table
    transitions: tuple[Table, ...]

    def __post_init__(self) -> None:
        """Check the law, the matrices and their sizes."""
        if not isinstance(self.prefix, str):
            raise InvalidModel(f"chain prefix {self.prefix!r} must be a string")
        object.__setattr__(self, "prefix", str(self.prefix))
        if not self.prefix or self.prefix[-1].isdigit():
            raise InvalidModel(f"chain prefix {self.prefix!r} must be non-empty and not end in a digit")
        if not 1 <= self.length <= MAX_STEPS:
            wanted = "at least 1" if self.length < 1 else f"at most {MAX_STEPS:,}"
            raise InvalidModel(
                f"chain {self.prefix!r}: the length must be {wanted}, not {_format_length(self.length)}"
            )
        pool = TablePool()
        object.__setattr__(self, "initial", _freeze_table(pool, f"{self.prefix}0", self.initial))
        known: dict[int, Table] = {}  # a matrix that serves many steps is checked once
        for t, matrix in enumerate(self.transitions):
            if id(matrix) not in known:
                known[id(matrix)] = _freeze_table(pool, f"{self.prefix}{t + 1}", matrix)
        object.__setattr__(self, "transitions", tuple([known[id(m)] for m in self.transitions]))
        if self.initial.ndim != 1:
            raise InvalidModel(f"chain {self.prefix!r}: the initial law has shape {self.initial.shape}")
        if len(self.transitions) not in (1, self.length - 1):
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
        if len(self.transitions) == 1 and self.length != 2 and size != len(self.initial):
            raise InvalidModel(f"chain {self.prefix!r}: the transition matrix is not square")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the constructor, so that a chain is checked wherever it arrives."""
        return (ChainSegment, (self.prefix, self.length, self.initial, self.transitions))

    @property
    def homogeneous(self) -> bool:
        """Whether every step uses the same, square matrix."""
        return len(self.transitions) == 1 and self.transitions[0].shape[1] == len(self.initial)

    def transition(self, t: int) -> Table:
        """Return P(X_{t+1} | X_t), row = state at t."""
        return self.transitions[0] if len(self.transitions) == 1 else self.transitions[t]

    def cardinality(self, t: int) -> int:
        """Return the number of states at step t."""
        return len(self.initial) if t == 0 else int(self.transition(t - 1).shape[1])


def _format_length(number: int) -> str:
    """Return a whole number of any size in a few words."""
    return f"{number:,}" if abs(number) < 10**30 else "a number of more than thirty digits"


def _freeze_table(pool: TablePool, node: str, table: Table) -> Table:
    """Return a checked table: the same object if it is frozen already, else a frozen copy."""
    if isinstance(table, np.ndarray) and table.dtype == np.float64:
        owned = table.base is None and table.flags.c_contiguous and not table.flags.writeable
        if owned and np.isfinite(table).all() and (table >= 0).all():
            return pool.normalised(node, table)
    return pool.cpt(node, table)


class ChainModel(Model):
    """A model made of separate Markov chains; every node is a record."""

    segments: tuple[ChainSegment, ...]
    _state_names: tuple[str, ...] | None
    _sequence: ChainNodes

    def __init__(
        self,
        segments: Sequence[ChainSegment],
        state_names: Sequence[str] | None = None,
        *,
        notes: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        chains = tuple(segments)
        if not chains:
            raise InvalidModel("the model has no chains")
        if len({s.prefix for s in chains}) != len(chains):
            raise InvalidModel("two chains have the same prefix")
        steps = sum(s.length for s in chains)
        if steps > MAX_STEPS:
            raise InvalidModel(
                f"the chains have {steps:,} steps together, at most {MAX_STEPS:,} are possible"
            )
        self._set_fields(
            segments=chains,
            _state_names=_checked_state_names(chains, state_names),
            _people={},
            _notes=tuple(notes),
            _provenance=dict(provenance or {}),
            _sequence=ChainNodes(chains),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle each distinct table once, and check the chains wherever they arrive."""
        tables = {id(m): m for s in self.segments for m in (s.initial, *s.transitions)}
        place = {key: k for k, key in enumerate(tables)}
        chains = [
            (s.prefix, s.length, place[id(s.initial)], [place[id(m)] for m in s.transitions])
            for s in self.segments
        ]
        arrays = [np.array(m) for m in tables.values()]
        return _unpickle_chains, (arrays, chains, self._state_names, self._notes, self._provenance)

    @cached_property
    def nodes(self) -> Sequence[str]:
        """Every node, chain after chain, in time order (made on demand)."""
        return self._sequence

    @cached_property
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
        return ChainStates(self._sequence, self._state_names)

    @cached_property
    def factors(self) -> Sequence[Factor]:
        """The initial and transition tables (made on demand)."""
        return ChainFactors(self._sequence)

    @cached_property
    def directed(self) -> bool:
        """Chains are Bayesian networks."""
        return True

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of every node in :attr:`nodes` (made on demand)."""
        return ChainIndex(self._sequence)

    @cached_property
    def factors_of(self) -> Mapping[str, tuple[int, ...]]:
        """For every node, the positions of its own table and of the next one (made on demand)."""
        return ChainFactorsOf(self._sequence)

    @cached_property
    def topological_order(self) -> tuple[str, ...]:
        """Time order."""
        return tuple(self._sequence)

    def is_record(self, node: str) -> bool:
        """Return whether the model has ``node``: every step is a record."""
        return node in self._sequence

    def with_records(self, records: Collection[str]) -> Model:
        """Return the same distribution with other nodes as records (as an ordinary model).

        Raises
        ------
        InvalidModel
            For more than a million steps: an ordinary model keeps every one of them.
        """
        if len(self.nodes) > _MOST_UNROLLED:
            raise InvalidModel(
                f"a chain of {len(self.nodes):,} steps can only have all of them as records;"
                f" other choices need an ordinary model, of at most {_MOST_UNROLLED:,} steps"
            )
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
        k, t = self._sequence.locate_node(node)
        return self.segments[k], t

    def __repr__(self) -> str:
        """Say how many chains and steps."""
        if len(self.segments) == 1:
            s = self.segments[0]
            return f"<Markov chain: {s.length} steps, {len(s.initial)} states>"
        return f"<{len(self.segments)} Markov chains: {len(self._sequence)} steps>"


def as_chain(model: Model) -> ChainModel:
    """Return the model as a Markov chain, or refuse it."""
    if not isinstance(model, ChainModel):
        raise InvalidArgument(f"this {option('method')} needs a Markov chain, and the model is none")
    return model


def _checked_state_names(
    chains: Sequence[ChainSegment], names: Sequence[str] | None
) -> tuple[str, ...] | None:
    """Return the state names, ``None`` for the usual ``"0"``, ``"1"``, …, or refuse them."""
    if names is None:
        return None
    if isinstance(names, str) or any(not isinstance(n, str) for n in names):
        raise InvalidModel(f"the states of a chain must be a list of names, not {names!r}")
    chosen = plain_names(names)
    if len(set(chosen)) != len(chosen):
        raise InvalidModel("a state of the chain is named twice")
    for s in chains:
        sizes = {len(s.initial), *(m.shape[1] for m in s.transitions)}
        if sizes != {len(chosen)}:
            raise InvalidModel(f"chain {s.prefix!r} has {sorted(sizes)} states, {len(chosen)} are named")
    return None if chosen == tuple(str(k) for k in range(len(chosen))) else chosen


def _unpickle_chains(
    arrays: Sequence[Table],
    chains: Sequence[tuple[str, int, int, Sequence[int]]],
    names: Sequence[str] | None,
    notes: Sequence[str],
    provenance: Mapping[str, str],
) -> ChainModel:
    """Build unpickled chains, each distinct table kept once."""
    tables = [frozen_table(a, "pickled chain") for a in arrays]
    segments = [ChainSegment(p, n, tables[k], tuple(tables[j] for j in js)) for p, n, k, js in chains]
    return ChainModel(segments, names, notes=notes, provenance=provenance)


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
        One square matrix (row = from), or a list of ``length − 1`` matrices.  A DataFrame names its states.
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
    if hasattr(transition, "columns"):
        names = [str(c) for c in transition.columns]
        if [str(r) for r in transition.index] != names:
            raise InvalidModel("rows and columns of the transition frame must name the same states in order")
        states, transition = states if states is not None else names, transition.to_numpy()
    segment, remarks = _make_segment(prefix, transition, length, initial, TablePool())
    return ChainModel([segment], states, notes=(*notes, *remarks), provenance=provenance)


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
    >>> from quiltdp.chain import markov_chains
    >>> m = markov_chains([[0.9, 0.1], [0.1, 0.9]], {"ann/": 3, "bob/": 2})
    >>> list(m.nodes)
    ['ann/0', 'ann/1', 'ann/2', 'bob/0', 'bob/1']
    """
    pool = TablePool()
    segments: list[tuple[ChainSegment, tuple[str, ...]]] = []
    for prefix, length in lengths.items():
        segments.append(_make_segment(prefix, transition, length, initial, pool))
        initial = segments[0][0].initial  # the stationary law is found once
    remarks = segments[0][1] if segments else ()
    return ChainModel([s for s, _ in segments], states, notes=(*notes, *remarks), provenance=provenance)


def _make_segment(
    prefix: str,
    transition: Any,
    length: int | None,
    initial: str | ArrayLike,
    pool: TablePool,
) -> tuple[ChainSegment, tuple[str, ...]]:
    """Check the matrices and the initial law of one chain."""
    single = _is_single_matrix(transition)
    matrices: list[ArrayLike] = [transition] if single else list(transition)
    steps = length if length is not None else len(matrices) + 1
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool):
        raise InvalidModel(f"the chain's length must be a whole number, not {steps!r}")
    if length is None and single:
        raise InvalidModel("a homogeneous chain needs a length")
    if not single and len(matrices) != steps - 1:
        raise InvalidModel(f"a chain of {steps} steps needs {steps - 1} matrices, not {len(matrices)}")
    rows = tuple(pool.cpt(f"{prefix}{t + 1}", m) for t, m in enumerate(matrices))
    if rows[0].ndim != 2:
        raise InvalidModel(f"the transition matrix must have two axes, not {rows[0].ndim}")
    if all(m is rows[0] for m in rows) and rows[0].shape[0] == rows[0].shape[1]:
        rows = rows[:1]  # equal matrices, however given, are the same homogeneous chain
    if isinstance(initial, str):
        if initial == "stationary":
            if not single:
                raise InvalidModel("a chain with one matrix per step has no stationary law: give a vector")
            start: ArrayLike = stationary_distribution(rows[0])
        elif initial == "uniform":
            start = np.full(rows[0].shape[0], 1.0 / rows[0].shape[0])
        else:
            raise InvalidModel(f"initial must be 'stationary', 'uniform' or a vector, not {initial!r}")
    else:
        start = initial
    law = pool.cpt(f"{prefix}0", start)
    if law.ndim != 1 or len(law) != rows[0].shape[0]:
        raise InvalidModel(
            f"the initial law has shape {law.shape}, the transition matrix has {rows[0].shape[0]} rows"
        )
    return ChainSegment(prefix, int(steps), law, rows), pool.notes()


def _is_single_matrix(transition: Any) -> bool:
    """Return whether this is one matrix rather than a list of them."""
    if isinstance(transition, np.ndarray):
        return transition.ndim <= 2
    first = transition[0] if isinstance(transition, Sequence) and len(transition) else transition
    try:
        return bool(np.ndim(first) <= 1)
    except ValueError:  # ragged: the table check has the right words for it
        return False


def _communicating_classes(leads: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return a number for every state, equal for states that lead to each other."""
    if len(leads) > _FEW_STATES:
        from scipy.sparse.csgraph import connected_components

        return np.asarray(connected_components(leads, directed=True, connection="strong")[1], dtype=np.int64)
    reaches = leads | np.eye(len(leads), dtype=bool)
    while True:
        further = reaches @ reaches
        if (further == reaches).all():
            return np.asarray((reaches & reaches.T).argmax(axis=1), dtype=np.int64)
        reaches = further


def stationary_distribution(transition: Table) -> Table:
    """Return the only π with π P = π, by state reduction (no subtraction, so no cancellation).

    Raises
    ------
    InvalidModel
        If the matrix is not square, has more than one closed class of states, so that no
        stationary law is the only one, or has rows so unequal that the law leaves the range of doubles.
    """
    p = np.array(transition, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] != p.shape[1]:
        raise InvalidModel(f"the transition matrix has shape {p.shape}, it must be square")
    label = _communicating_classes(p > 0)
    closed = [k for k in sorted(set(label.tolist())) if not (p[label == k][:, label != k] > 0).any()]
    if len(closed) > 1:
        raise InvalidModel(
            f"the chain has {len(closed)} closed classes of states, so no single stationary law:"
            " give the initial law as a vector"
        )
    keep = np.flatnonzero(label == closed[0])
    q = p[np.ix_(keep, keep)]
    pi = np.zeros(len(keep))
    pi[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for k in range(len(keep) - 1, 0, -1):  # Grassmann, Taksar, Heyman
            q[:k, k] /= q[k, :k].sum()
            q[:k, :k] += np.outer(q[:k, k], q[k, :k])
        for k in range(1, len(keep)):
            pi[k] = pi[:k] @ q[:k, k]
        pi /= pi.sum()
    if not (pi > 0).all():  # NaN included
        raise InvalidModel(
            "the stationary law has probabilities that doubles cannot hold: give the initial law as a vector"
        )
    law = np.zeros(p.shape[0])
    law[keep] = pi
    return law

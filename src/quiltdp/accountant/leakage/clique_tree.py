"""The clique-tree method against the prior adversary.

Take a junction tree with its marginals.  For the edge U → V with separator Z the message is a
distance between separator states, "how far can the far side tell z from z'":

    D_V(v, v') = Σ_{records j ∈ V∖Z} α_j·1[v_j ≠ v'_j] + Σ_{other neighbours c of V} m_c(v|Zc, v'|Zc)
    m_{U→V}(z, z') = K( P(v | z), P(v | z'); D_V )          over possible states only
    Leakage(T) ≤ Σ_{t∈T} α_t + max_{x_T, x_T'} the same at a clique that holds T, rooted there.

*Why.*  Let h(x) be the likelihood of an output; h moves by at most e^{α_j} when record j changes.
Sum out everything beyond V: H(v) = E[h | v] for fixed values elsewhere.  Given v the branches are
independent, so they are changed one after the other, each by its message, and the records of V∖Z by
their α: ln H is D_V-Lipschitz, and summing out V∖Z asks exactly for K.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.elimination import Elimination, Ints
from quiltdp.accountant.leakage.kernel import Array
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.clique_states import clique_forest
from quiltdp.model import Model
from quiltdp.rounding import EPS, up, up_array

__all__ = ["CliqueTreeBound"]


class CliqueTreeBound:
    """The clique-tree method (method ``"clique-tree"``, prior adversary).

    Parameters
    ----------
    model
        Any model whose junction tree is narrow enough.
    units
        The protected sets; ``None`` for every record alone.  A set is made a clique first.
    max_states
        The most possible states one clique may have.
    max_pairs
        The most pairs of possible states of all cliques together.
    max_lp_cells
        How many transport cells the linear programs of one evaluation may have together; messages
        beyond it are summed out in stages, which is sound and a little looser.

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> CliqueTreeBound(m).evaluate(np.array([1.0, 1.0])).epsilon.round(6).tolist()
    [1.776137, 1.776137]
    """

    name = "clique-tree"
    adversary = "prior"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        max_states: int = 1500,
        max_entries: int = 2**20,
        max_lp_cells: int = 6_000,
        max_pairs: int = 20_000_000,
    ) -> None:
        self._model = model
        self._units = [(n,) for n in model.records] if units is None else [tuple(u) for u in units]
        join = [u for u in self._units if len(u) > 1]
        forest = clique_forest(model, join=join, max_entries=max_entries, max_states=max_states)
        pairs = sum(len(c.states) ** 2 for c in forest.cliques)
        if pairs > max_pairs:
            raise ModelTooWide(
                f"the cliques have {pairs:,} pairs of possible states, the limit is {max_pairs:,}",
                f"raise {option('max_pairs')}",
                f"use another {option('method')}",
            )
        self._forest = forest
        self._index = [np.array([model.index[n] for n in c.nodes]) for c in forest.cliques]
        self._edges_at: list[list[int]] = [[] for _ in forest.cliques]
        for e, edge in enumerate(forest.edges):
            self._edges_at[edge.parent].append(e)
            self._edges_at[edge.child].append(e)
        self._differ = [_differences(c.states) for c in forest.cliques]
        self._up = [self._elimination(e.child, e.child_label, e.count) for e in forest.edges]
        self._down = [self._elimination(e.parent, e.parent_label, e.count) for e in forest.edges]
        self._roots = [forest.holding(u)[0] for u in self._units]
        self._last = [self._final(u, k) for u, k in zip(self._units, self._roots, strict=True)]
        tasks = [*self._up, *self._down, *self._last]
        self._notes = _assign_programs(tasks, max_lp_cells)

    def _elimination(self, clique: int, label: Ints, count: int) -> Elimination:
        c = self._forest.cliques[clique]
        return Elimination(c.log_p, label, count, c.states, slack=self._forest.slack)

    def _final(self, unit: tuple[str, ...], clique: int) -> Elimination:
        label, count = self._forest.cliques[clique].labels(unit)
        return self._elimination(clique, label, count)

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the leakage of every unit."""
        alpha = np.asarray(alpha, dtype=np.float64)
        into = self._messages(alpha)
        values, witnesses = np.zeros(len(self._units)), {}
        known: dict[bytes, Array] = {}
        for k, (unit, root, last) in enumerate(zip(self._units, self._roots, self._last, strict=True)):
            if last.count < 2:
                continue  # only one possible value: there is nothing to tell apart
            d = self._distance(root, alpha, into[root], exclude=unit)
            table = _cached(known, last, d)
            own = up(float(alpha[[self._model.index[n] for n in unit]].sum()), 4 + len(unit))
            values[k] = up(own + float(table.max(initial=0.0)))
            witnesses[k] = {"clique": self._forest.cliques[root].nodes}
        return RecordBounds(values, self.name, witnesses, self._notes)

    def _messages(self, alpha: Vector) -> list[Array]:
        """Pass messages to the roots and back; return Σ of the incoming ones for every clique."""
        forest = self._forest
        into = [np.zeros((len(c.states),) * 2) for c in forest.cliques]
        arrived: dict[int, Array] = {}
        known: dict[bytes, Array] = {}
        order = sorted(range(len(forest.edges)), key=lambda e: forest.edges[e].child)
        for e in reversed(order):
            edge = forest.edges[e]
            d = self._distance(edge.child, alpha, into[edge.child], exclude=edge.separator)
            message = _cached(known, self._up[e], d)
            arrived[e] = _lift(message, edge.parent_label)
            into[edge.parent] += arrived[e]
        for e in order:
            edge = forest.edges[e]
            whole, own = into[edge.parent], arrived.pop(e)
            rest = np.maximum(whole - own, 0.0) + whole * (EPS * (len(self._edges_at[edge.parent]) + 2))
            d = self._distance(edge.parent, alpha, rest, exclude=edge.separator)
            into[edge.child] += _lift(_cached(known, self._down[e], d), edge.child_label)
        return into

    def _distance(self, clique: int, alpha: Vector, into: Array, exclude: Sequence[str]) -> Array:
        """Return D over the states of a clique: incoming messages plus the α of its other records."""
        d = into.copy()
        for column, n in enumerate(self._forest.cliques[clique].nodes):
            a = alpha[self._index[clique][column]]
            if n not in exclude and a > 0:
                d += a * self._differ[clique][column]
        return up_array(d, 4.0 + len(self._index[clique]) + len(self._edges_at[clique]))


def _lift(message: Array, label: Ints) -> Array:
    """Read a message on separator states as a distance between clique states."""
    return np.asarray(message[label[:, None], label[None, :]])


def _differences(states: Ints) -> list[NDArray[np.bool_]]:
    """For every node of a clique, which pairs of states differ there."""
    return [states[:, None, k] != states[None, :, k] for k in range(states.shape[1])]


def _cached(known: dict[bytes, Array], task: Elimination, d: Array) -> Array:
    """Return the message, computed once for equal laws, groupings and distances."""
    from hashlib import blake2b

    digest = blake2b(task.signature)
    digest.update(np.ascontiguousarray(d).tobytes())
    key = digest.digest()
    if key not in known:
        known[key] = task.message(d)
    return known[key]


def _assign_programs(tasks: Sequence[Elimination], budget: int) -> tuple[str, ...]:
    """Let the smallest tasks use linear programs while the budget lasts; say whether some may not."""
    spent: set[bytes] = set()
    left = budget
    staged = 0
    for task in sorted(tasks, key=lambda t: t.lp_cells):
        if not task.lp_cells:
            continue
        if task.signature in spent or task.lp_cells <= left:
            task.lp = True
            left -= 0 if task.signature in spent else task.lp_cells
            spent.add(task.signature)
        else:
            staged += 1
    if not staged:
        return ()
    return (f"clique-tree: {staged} of {len(tasks)} messages were summed out in stages",)

"""Expectations of products: E[ Π_j w_j(x_j) ] and the tilted law, by one pass up and one down a tree.

With calibrated cliques P(x) = Π_k P(C_k | S_k), so weights of single nodes enter where the node first
appears and the sum runs from the leaves to the roots; evidence is a weight that is 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quiltdp.inference.tables import aligned, log_sum
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = ["TiltedTree"]


_CASE = "\0case"  # the axis of many cases; no node is called so
_OVERHEAD = 2_000  # entries that take about as long as the calls for one table
_BATCH = 1 << 21  # numbers in one table of many cases


def _summed(clique: Sequence[str], table: Table, keep: Sequence[str]) -> Table:
    """Return the sum over the nodes that are not kept, one row per case."""
    gone = tuple(k + 1 for k, n in enumerate(clique) if n not in keep)
    return np.asarray(table.sum(axis=gone) if gone else table)


class TiltedTree:
    """A junction tree that answers for any weights of single nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> tree = TiltedTree(m)
    >>> float(np.exp(tree.log_mean({"A": np.log([1.0, 2.0])})).round(6))
    1.7
    """

    def __init__(self, model: Model, *, max_entries: int = 2**20, workspace: Workspace | None = None) -> None:
        tree = junction_tree(model, max_entries=max_entries, workspace=workspace)
        self.model = model
        self._cliques = [tuple(c) for c in tree.cliques]
        self._parent = list(tree.plan.parent)
        self._separators = [
            tuple(n for n in c if p >= 0 and n in set(self._cliques[p]))
            for c, p in zip(self._cliques, self._parent, strict=True)
        ]
        self._home: dict[str, int] = {}
        for k, (clique, separator) in enumerate(zip(self._cliques, self._separators, strict=True)):
            self._home.update(dict.fromkeys((n for n in clique if n not in separator), k))
        self._new = [[n for n in c if self._home[n] == k] for k, c in enumerate(self._cliques)]
        self._tables = [self._conditional(tree.clique_log_marginal(k), k) for k in range(len(self._cliques))]

    def _conditional(self, law: Table, k: int) -> Table:
        """Return ln P(clique | separator)."""
        if self._parent[k] < 0:
            return law
        own = log_sum((self._cliques[k], law), self._separators[k])
        safe = np.where(own > -np.inf, own, 0.0)
        return np.asarray(law - aligned((self._separators[k], safe), self._cliques[k]))

    @property
    def size(self) -> int:
        """Entries of all clique tables."""
        return sum(int(t.size) for t in self._tables)

    @property
    def effort(self) -> int:
        """Entries of all clique tables, and a flat price for every one of them: what a propagation costs."""
        return self.size + _OVERHEAD * len(self._tables)

    @property
    def neighbours(self) -> dict[str, int]:
        """How many nodes share a clique with each node."""
        near: dict[str, set[str]] = {n: set() for n in self.model.nodes}
        for clique in self._cliques:
            for n in clique:
                near[n].update(clique)
        return {n: len(found) - 1 for n, found in near.items()}

    def log_mean(self, weights: Mapping[str, Table]) -> float:
        """Return ln E[ Π exp w_n(x_n) ]; −∞ if the weights leave nothing possible."""
        return self._up(weights)[0]

    def laws(self, weights: Mapping[str, Table]) -> tuple[float, dict[str, Table]]:
        """Return ln E and the tilted law of every node."""
        total, sums, messages = self._up(weights)
        beliefs: list[Table] = [np.zeros(0)] * len(self._cliques)
        found: dict[str, Table] = {}
        for k, p in enumerate(self._parent):  # parents come first
            belief = sums[k]
            if p >= 0:
                above = log_sum((self._cliques[p], beliefs[p]), self._separators[k])
                with np.errstate(invalid="ignore"):
                    ratio = np.where(above > -np.inf, above - messages[k], -np.inf)
                belief = belief + aligned((self._separators[k], ratio), self._cliques[k])
            beliefs[k] = belief
            for n in self._new[k]:
                law = log_sum((self._cliques[k], belief), (n,))
                top = law.max()
                plain = np.exp(law - top) if top > -np.inf else np.zeros_like(law)
                found[n] = plain / plain.sum() if top > -np.inf else plain
        return total, found

    def laws_given(self, cases: Sequence[Mapping[str, int]]) -> dict[str, Table]:
        """Return P(x_n | case) for every node, one row per case, many cases at once; 0 if it is impossible.

        In plain probabilities: quick, for searches; cases rarer than 1e-300 count as impossible.
        """
        largest = max(t.size for t in self._tables)
        step = max(1, _BATCH // largest)
        parts = [self._given(cases[k : k + step]) for k in range(0, len(cases), step)]
        return {n: np.concatenate([part[n] for part in parts]) for n in self.model.nodes}

    def _given(self, cases: Sequence[Mapping[str, int]]) -> dict[str, Table]:
        masks: dict[str, Table] = {}
        for row, case in enumerate(cases):
            for n, state in case.items():
                if n not in masks:
                    masks[n] = np.ones((len(cases), self.model.cardinality(n)))
                masks[n][row] = 0.0
                masks[n][row, state] = 1.0
        sums: list[Table] = []
        for k, table in enumerate(self._tables):
            total = np.exp(table)[None]
            for n in self._new[k]:
                if n in masks:
                    total = total * aligned(((_CASE, n), masks[n]), (_CASE, *self._cliques[k]))
            sums.append(total)
        messages: list[Table] = [np.zeros(())] * len(self._cliques)
        for k in range(len(self._cliques) - 1, -1, -1):
            p = self._parent[k]
            if p >= 0:
                messages[k] = _summed(self._cliques[k], sums[k], self._separators[k])
                sums[p] = sums[p] * aligned(
                    ((_CASE, *self._separators[k]), messages[k]), (_CASE, *self._cliques[p])
                )
        found: dict[str, Table] = {}
        for k, p in enumerate(self._parent):  # parents come first
            if p >= 0:
                above = _summed(self._cliques[p], sums[p], self._separators[k])
                below = np.where(messages[k] > 0.0, messages[k], 1.0)
                ratio = np.where(messages[k] > 0.0, above / below, 0.0)
                sums[k] = sums[k] * aligned(
                    ((_CASE, *self._separators[k]), ratio), (_CASE, *self._cliques[k])
                )
            for n in self._new[k]:
                law = np.broadcast_to(
                    _summed(self._cliques[k], sums[k], (n,)), (len(cases), self.model.cardinality(n))
                )
                whole = law.sum(axis=1, keepdims=True)
                found[n] = np.where(whole > 0.0, law / np.where(whole > 0.0, whole, 1.0), 0.0)
        return found

    def _up(self, weights: Mapping[str, Table]) -> tuple[float, list[Table], list[Table]]:
        """Sum from the leaves to the roots: (ln E, weighted clique tables, messages to the parents)."""
        sums: list[Table] = []
        for k, table in enumerate(self._tables):
            total = table
            for n in self._new[k]:
                if n in weights:
                    total = total + aligned(((n,), weights[n]), self._cliques[k])
            sums.append(total)
        messages: list[Table] = [np.zeros(())] * len(self._cliques)
        result = 0.0
        for k in range(len(self._cliques) - 1, -1, -1):
            p = self._parent[k]
            message = log_sum((self._cliques[k], sums[k]), self._separators[k])
            messages[k] = message
            if p >= 0:
                sums[p] = sums[p] + aligned((self._separators[k], message), self._cliques[p])
            else:
                result += float(message)
        return result, sums, messages

    def evidence(self, known: Mapping[str, int]) -> dict[str, Table]:
        """Return the weights that fix nodes to states."""
        fixed = {}
        for n, state in known.items():
            weight = np.full(self.model.cardinality(n), -np.inf)
            weight[state] = 0.0
            fixed[n] = weight
        return fixed

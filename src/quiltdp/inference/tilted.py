"""Expectations of products: E[ Π_j w_j(x_j) ] and the tilted law, by one pass up and one down a tree.

With calibrated cliques P(x) = Π_k P(C_k | S_k), so weights of single nodes enter where the node first
appears and the sum runs from the leaves to the roots; evidence is a weight that is 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quiltdp.inference.tables import aligned, log_sum
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = ["TiltedTree"]


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

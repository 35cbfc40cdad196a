"""One target of a clique tree with any distance per node: messages towards the target only.

This is the clique-tree method (:mod:`.clique_tree`) with node distances ℓ_u(x, x') in the place of
α_u·1[x ≠ x'], read at one target.  Forward–backward uses it above a node whose ancestor lines meet:
the model is then the ancestors alone, and ℓ_u is what u's other descendants can tell about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from quiltdp.accountant.leakage.elimination import Elimination, Ints
from quiltdp.accountant.leakage.kernel import Array
from quiltdp.inference.clique_states import CliqueForest
from quiltdp.rounding import up_array

__all__ = ["RootedTree"]


class RootedTree:
    """Messages of a clique tree towards one target node.

    Parameters
    ----------
    forest
        The cliques of a connected model.
    target
        The node under attack; ``values`` are its possible values, the axes of the answer.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> from quiltdp.inference.clique_states import clique_forest
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> tree = RootedTree(clique_forest(m), "B")
    >>> tree.table({"A": 1.0 - np.eye(2)}, {}).round(6).tolist()
    [[0.0, 0.776137], [0.776137, 0.0]]
    """

    def __init__(self, forest: CliqueForest, target: str) -> None:
        self._forest = forest
        self._target = target
        root = forest.holding([target])[0]
        around: dict[int, list[int]] = {}
        for e, edge in enumerate(forest.edges):
            around.setdefault(edge.parent, []).append(e)
            around.setdefault(edge.child, []).append(e)
        self._steps: list[tuple[int, int, int, Elimination, Ints]] = []
        seen, stack = {root}, [root]
        while stack:
            u = stack.pop()
            for e in around.get(u, []):
                edge = forest.edges[e]
                v = edge.child if edge.parent == u else edge.parent
                if v in seen:
                    continue
                seen.add(v)
                stack.append(v)
                here, there = (
                    (edge.child_label, edge.parent_label)
                    if v == edge.child
                    else (edge.parent_label, edge.child_label)
                )
                self._steps.append((v, u, e, self._elimination(v, here, edge.count), there))
        label, count = forest.cliques[root].labels([target])
        column = forest.cliques[root].nodes.index(target)
        self.values: Ints = np.unique(forest.cliques[root].states[:, column])
        self._root = root
        self._last = self._elimination(root, label, count)

    def _elimination(self, clique: int, label: Ints, count: int) -> Elimination:
        c = self._forest.cliques[clique]
        return Elimination(c.log_p, label, count, c.states, slack=self._forest.slack, both=False)

    @property
    def work(self) -> int:
        """How many distances one evaluation reads."""
        return sum(len(c.states) ** 2 for c in self._forest.cliques)

    def table(self, distance: Mapping[str, Array], known: dict[bytes, Array]) -> Array:
        """Return how far the other nodes can tell the target's possible values apart, rounded up.

        ``distance[u]`` is ℓ_u; ``known`` keeps messages for other trees with equal parts.
        """
        arrived: dict[int, Array] = {}
        for v, u, e, task, there in reversed(self._steps):
            d = self._d(v, self._forest.edges[e].separator, distance, arrived.pop(v, None))
            message = _once(known, task, d)[there[:, None], there[None, :]]
            arrived[u] = arrived[u] + message if u in arrived else message
        d = self._d(self._root, (self._target,), distance, arrived.pop(self._root, None))
        return _once(known, self._last, d)

    def _d(
        self, clique: int, exclude: tuple[str, ...], distance: Mapping[str, Array], into: Array | None
    ) -> Array:
        """Return D over the states of one clique."""
        c = self._forest.cliques[clique]
        d = np.zeros((len(c.states),) * 2) if into is None else into
        for column, n in enumerate(c.nodes):
            if n not in exclude and n != self._target:
                at = c.states[:, column]
                d = d + distance[n][at[:, None], at[None, :]]
        return up_array(d, 8.0 + 2 * len(c.nodes) + len(self._steps))


def _once(known: dict[bytes, Array], task: Elimination, d: Array) -> Array:
    """Return the message, computed once for equal laws, groupings and distances."""
    digest = blake2b(task.signature)
    digest.update(np.ascontiguousarray(d).tobytes())
    key = digest.digest()
    if key not in known:
        known[key] = task.message(d)
    return known[key]

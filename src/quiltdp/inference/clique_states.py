"""The possible states of every clique of a junction tree, and how neighbouring cliques share them.

Bounds that walk a clique tree need, for every clique, the list of its possible states with their
probabilities, and for every edge the map from clique states to separator states.  Only possible
states are listed: a table with zeros may have few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.trees import JunctionTree, junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

__all__ = [
    "CliqueEdge",
    "CliqueForest",
    "CliqueStates",
    "clique_forest",
    "conditional_slack",
    "listed_cliques",
]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CliqueStates:
    """One clique: its nodes, its possible states (one row each) and their log-probabilities."""

    nodes: tuple[str, ...]
    states: Ints
    log_p: Table

    def labels(self, nodes: Collection[str]) -> tuple[Ints, int]:
        """Number the distinct values of ``nodes``: (a label for every state, how many there are)."""
        columns = [k for k, n in enumerate(self.nodes) if n in nodes]
        if not columns:
            return np.zeros(len(self.states), dtype=np.int64), 1
        _, label = np.unique(self.states[:, columns], axis=0, return_inverse=True)
        label = label.ravel().astype(np.int64)
        return label, int(label.max()) + 1


@dataclass(frozen=True, eq=False)
class CliqueEdge:
    """A tree edge: for both ends, which separator state each clique state belongs to."""

    parent: int
    child: int
    separator: tuple[str, ...]
    count: int
    parent_label: Ints
    child_label: Ints


@dataclass(frozen=True, eq=False)
class CliqueForest:
    """Cliques in an order where parents come before children, and the edges between them."""

    cliques: tuple[CliqueStates, ...]
    edges: tuple[CliqueEdge, ...]
    slack: float
    """How far ln of a conditional probability may be from the truth."""

    def holding(self, nodes: Collection[str]) -> list[int]:
        """Return the cliques that contain all ``nodes``, fewest possible states first."""
        wanted = set(nodes)
        found = [k for k, c in enumerate(self.cliques) if wanted.issubset(c.nodes)]
        return sorted(found, key=lambda k: len(self.cliques[k].states))


def clique_forest(
    model: Model,
    *,
    join: Iterable[Collection[str]] = (),
    max_entries: int = 2**20,
    max_states: int = 2000,
    workspace: Workspace | None = None,
) -> CliqueForest:
    """Return the possible clique states of a calibrated junction tree.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_entries`` entries or more than ``max_states`` possible states.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.0, 1.0]])})
    >>> clique_forest(m).cliques[0].states.tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    tree = junction_tree(model, join=join, max_entries=max_entries, workspace=workspace)
    cliques = list(listed_cliques(tree, max_states, workspace))
    edges = [_edge(cliques, u, v, tuple(separator)) for u, v, separator in tree.edges]
    return CliqueForest(tuple(cliques), tuple(edges), conditional_slack(model))


def conditional_slack(model: Model) -> float:
    """Return how far ln of a conditional probability from a calibrated tree may be from the truth."""
    return 4e-13 + 2e-15 * len(model.nodes)


def listed_cliques(
    tree: JunctionTree, max_states: int, workspace: Workspace | None = None
) -> Iterator[CliqueStates]:
    """Yield every clique of a tree with its possible states.

    Raises
    ------
    ModelTooWide
        If a clique has more than ``max_states`` of them.
    """
    for k, nodes in enumerate(tree.cliques):
        if workspace is not None:
            workspace.guard.check()
        log_p = tree.clique_log_marginal(k)
        states = np.argwhere(log_p > -np.inf).astype(np.int64)
        if len(states) > max_states:
            raise ModelTooWide(
                f"the clique {{{', '.join(nodes)}}} has {len(states):,} possible states,"
                f" the limit is {max_states:,}",
                f"raise {option('max_states')}",
                f"use another {option('method')}",
            )
        yield CliqueStates(tuple(nodes), states, log_p[tuple(states.T)])


def _edge(cliques: list[CliqueStates], u: int, v: int, separator: tuple[str, ...]) -> CliqueEdge:
    """Number the possible separator states once, for both ends."""
    above, below = cliques[u], cliques[v]
    over = above.states[:, [above.nodes.index(n) for n in separator]]
    under = below.states[:, [below.nodes.index(n) for n in separator]]
    both = np.concatenate([over, under])
    if not separator:
        return CliqueEdge(u, v, separator, 1, np.zeros(len(over), np.int64), np.zeros(len(under), np.int64))
    distinct, label = np.unique(both, axis=0, return_inverse=True)
    label = label.ravel().astype(np.int64)
    return CliqueEdge(u, v, separator, len(distinct), label[: len(over)], label[len(over) :])

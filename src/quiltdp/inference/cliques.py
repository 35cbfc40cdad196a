"""Cliques by their possible states.

Bounds that walk a clique tree need, for every clique, the list of its possible states with their
probabilities.  Only possible states are listed: a table with zeros may have few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.plan import COUNTED_VALUES
from quiltdp.inference.trees import JunctionTree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CliqueStates:
    """One clique: its nodes, its possible states (one row each) and their log-probabilities."""

    nodes: tuple[str, ...]
    states: Ints
    log_p: Table

    def labels(self, nodes: Collection[str]) -> tuple[Ints, int]:
        """Number the distinct values of ``nodes``: (a label for every state, how many there are)."""
        key = frozenset(nodes)
        if key not in self._kept_labels:
            label, count = self._number_values(key)
            label.flags.writeable = False
            self._kept_labels[key] = label, count
        return self._kept_labels[key]

    @cached_property
    def _kept_labels(self) -> dict[frozenset[str], tuple[Ints, int]]:
        return {}

    def _number_values(self, nodes: Collection[str]) -> tuple[Ints, int]:
        codes, most = self._value_codes(nodes)
        if most > COUNTED_VALUES:
            _, label = np.unique(codes, return_inverse=True)
            label = label.ravel().astype(np.int64)
            return label, int(label.max()) + 1
        seen = np.zeros(most, dtype=np.int64)
        seen[codes] = 1
        rank = np.cumsum(seen)
        return rank[codes] - 1, int(rank[-1])

    def _value_codes(self, nodes: Collection[str]) -> tuple[Ints, int]:
        """Return one number per state that tells the values of ``nodes``, in their order, and their limit.

        Clique tables are predicted before they are built, so these numbers stay far below 2^63.
        """
        codes, most = np.zeros(len(self.states), dtype=np.int64), 1
        for k, n in enumerate(self.nodes):
            if n in nodes:
                size = int(self.states[:, k].max(initial=0)) + 1
                codes = codes * size + self.states[:, k]
                most *= size
        return codes, most


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

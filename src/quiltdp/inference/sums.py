"""Sums over a model: E[ Π_j w_j(x_j) ] for weights of single nodes, and the law of every node under them.

Claim.  On the schedule of a model let the message of a task be E[ Π w_j over the nodes beyond its root |
state of the root ].  It is a sum over the states of the clique: P(state | root state) times the weights of
the nodes that are new there times the messages of the children (sum-product).  For a task of a single node,
with the node's own law and weight, that gives the expectation and the tilted law of the node.

Weights are logarithms, −∞ for 0, so evidence is a weight that is 0 at one state and −∞ at the others.  There
is one row per case, and many cases are computed at once.  An expectation is computed in logarithms, so that
nothing is lost however rare the evidence is; laws, which searches ask for by the thousand, in probabilities
that are scaled at every message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.graph.components import connected_components
from quiltdp.inference.plan import CASES_AT_ONCE, TABLE_OVERHEAD
from quiltdp.inference.schedule import Ints, RootedClique, schedule
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table

Weights = Mapping[str, NDArray[Any]]
"""Node → ln of its weights, one row per case and one column per state; a single row holds for every case."""
_Message = TypeVar("_Message")


@dataclass(frozen=True, eq=False)
class _Summand:
    """A task ready to be summed: its states in the order of their root states.

    ``root`` is ln P(root state), ``law`` ln P(state | root state), ``starts`` the first state of every root
    state and ``sizes`` how many it has; ``values`` are the states of the new nodes, ``labels`` the root
    states of the children, ``chance`` is P(state | root state).
    """

    root: Table
    law: Table
    chance: Table
    starts: Ints
    sizes: Ints
    values: tuple[tuple[str, Ints], ...]
    labels: tuple[Ints, ...]

    @classmethod
    def of(cls, task: RootedClique, names: Sequence[str]) -> _Summand:
        order = np.argsort(task.label, kind="stable")
        starts = np.flatnonzero(np.diff(task.label[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        log_p, states = task.clique.log_p[order][:, None], task.clique.states[order]
        root = _log_sums(log_p, starts, sizes)
        law = log_p - np.repeat(root, sizes, axis=0)
        values = tuple((names[n], states[:, task.columns[n]]) for n in task.new)
        labels = tuple(label[order] for _, label in task.children)
        return cls(root, law, np.exp(law), starts, sizes, values, labels)

    def log_mean(self, below: Sequence[NDArray[Any]], weights: Weights) -> NDArray[Any]:
        """Return ln E[ Π w beyond the root | root state ]; weights are logarithms, perhaps complex ones."""
        total = self.law
        for node, values in self.values:
            if node in weights:
                total = total + weights[node][values]
        for message, label in zip(below, self.labels, strict=True):
            total = total + message[label]
        return _log_sums(total, self.starts, self.sizes)

    def mean(self, below: Sequence[tuple[Table, Table]], weights: Weights) -> tuple[Table, Table]:
        """Return the same expectation with 1 as the largest of every case, and ln of what that was.

        Weights are plain here, not logarithms.
        """
        total, scale = self.chance, np.zeros(1)
        for node, values in self.values:
            if node in weights:
                total = total * weights[node][values]
        for (message, logs), label in zip(below, self.labels, strict=True):
            total, scale = total * message[label], scale + logs
        total = np.add.reduceat(total, self.starts, axis=0)
        top = total.max(axis=0)
        top[top <= 0.0] = 1.0
        return total / top, scale + np.log(top)


class WeightedSums:
    """Expectations and laws of a model under any weights of single nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> sums = WeightedSums(m)
    >>> np.exp(sums.log_means({"A": np.log([[1.0, 2.0]])})).round(6).tolist()
    [1.7]
    >>> sums.laws(sums.weights([{"B": 0}]))[1]["A"].round(4).tolist()
    [[0.6585, 0.3415]]
    """

    def __init__(self, model: Model, *, max_entries: int = 2**20) -> None:
        self.model = model
        space = Workspace(model)
        self._walk = schedule(model, [(n,) for n in model.nodes], max_entries=max_entries, workspace=space)
        cliques = {id(t.clique): (len(t.clique.states), (*t.root, *t.new)) for t in self._walk.tasks}
        edges = [(nodes[0], n) for _, nodes in cliques.values() for n in nodes[1:]]
        component = connected_components(len(model.nodes), np.array(edges, dtype=np.int64).reshape(-1, 2))
        self._firsts = np.unique(component, return_index=True)[1].tolist()
        roots = [(model.nodes[k],) for k in self._firsts]
        self._to_roots = schedule(model, roots, max_entries=max_entries, workspace=space)
        both = (*self._walk.tasks, *self._to_roots.tasks)
        self._summands = {task: _Summand.of(task, model.nodes) for task in both}
        sizes = [size for size, _ in cliques.values()]
        self._at_once = max(1, CASES_AT_ONCE // max(sizes))
        self.size = sum(sizes)
        self.effort = self.size + TABLE_OVERHEAD * len(sizes)

    @property
    def neighbours(self) -> dict[str, int]:
        """How many nodes share a clique with each node."""
        near: dict[int, set[int]] = {k: set() for k in range(len(self.model.nodes))}
        for task in self._walk.tasks:
            for k in (*task.root, *task.new):
                near[k].update(task.root, task.new)
        return {self.model.nodes[k]: len(found) - 1 for k, found in near.items()}

    def weights(
        self, cases: Sequence[Mapping[str, int]], tilts: Sequence[Mapping[str, Table]] | None = None
    ) -> dict[str, Table]:
        """Return the weights of evidence, one case per row, and of ln w_n for the nodes not fixed in it."""
        first = self.model.nodes[0]  # has a row for every case, should nothing be fixed or tilted
        found: dict[str, Table] = {first: np.zeros((len(cases), self.model.cardinality(first)))}
        for row, case in enumerate(cases):
            tilt = {} if tilts is None else tilts[row]
            for n in (*case, *(n for n in tilt if n not in case)):
                if n not in found:
                    found[n] = np.zeros((len(cases), self.model.cardinality(n)))
                if n in case:
                    found[n][row] = -np.inf
                    found[n][row, case[n]] = 0.0
                else:
                    found[n][row] = tilt[n]
        return found

    def log_means(self, weights: Weights) -> NDArray[Any]:
        """Return ln E[ Π w_n(x_n) ] of every case; −∞ where nothing possible is left.

        Weights may be complex: the Fourier transform of a sum of terms is a mean of turns.
        """
        return np.concatenate([self._log_means(some) for some in self._weight_chunks(weights)])

    def _log_means(self, weights: Weights) -> NDArray[Any]:
        walk, summands = self._to_roots, self._summands
        messages = walk.run(_step_of_each(lambda task, below: summands[task].log_mean(below, weights)))
        total = np.zeros(1)
        for task, message in zip(walk.tasks[walk.edges :], messages[walk.edges :], strict=True):
            joint, node = message + summands[task].root, self.model.nodes[task.root[0]]
            if node in weights:
                joint = joint + weights[node][task.root_states[:, 0]]
            total = total + _log_sums(joint, np.zeros(1, dtype=np.int64), np.array([len(joint)]))[0]
        return total

    def laws(self, weights: Weights) -> tuple[Table, dict[str, Table]]:
        """Return ln E of every case and the tilted law of every node, one row per case; 0 if impossible."""
        parts = [self._laws(some) for some in self._weight_chunks(weights)]
        return np.concatenate([means for means, _ in parts]), {
            n: np.concatenate([laws[n] for _, laws in parts]) for n in self.model.nodes
        }

    def _laws(self, weights: Weights) -> tuple[Table, dict[str, Table]]:
        walk, summands = self._walk, self._summands
        plain = {n: np.exp(w) for n, w in weights.items()}
        cases = max((w.shape[1] for w in weights.values()), default=1)
        messages = walk.run(_step_of_each(lambda task, below: summands[task].mean(below, plain)))
        means, laws = np.zeros(cases), {}
        for k, node in enumerate(self.model.nodes):
            task, (message, logs) = walk.tasks[walk.edges + k], messages[walk.edges + k]
            joint, states = message * np.exp(summands[task].root), task.root_states[:, 0]
            if node in plain:
                joint = joint * plain[node][states]
            mass = joint.sum(axis=0)
            law = np.zeros((cases, self.model.cardinality(node)))
            law[:, states] = (joint / np.where(mass > 0.0, mass, 1.0)).T
            laws[node] = law
            if k in self._firsts:
                with np.errstate(divide="ignore"):
                    means = means + logs + np.log(mass)
        return means, laws

    def _weight_chunks(self, weights: Weights) -> list[Weights]:
        """Return the weights of a few cases at a time, which are columns from here on."""
        rows = max((len(w) for w in weights.values()), default=1)
        some = [slice(k, k + self._at_once) for k in range(0, rows, self._at_once)]
        turned = {n: np.ascontiguousarray(w.T) for n, w in weights.items()}
        return [{n: w if w.shape[1] == 1 else w[:, part] for n, w in turned.items()} for part in some]


def _step_of_each(
    message: Callable[[RootedClique, Sequence[_Message]], _Message],
) -> Callable[[Sequence[RootedClique], Sequence[Sequence[_Message]]], list[_Message]]:
    """Return the step that makes the messages of its tasks one by one."""
    return lambda tasks, below: [message(t, b) for t, b in zip(tasks, below, strict=True)]


def _log_sums(logs: NDArray[Any], starts: Ints, sizes: Ints) -> NDArray[Any]:
    """Return ln Σ exp over each run of rows that begins at one of ``starts``; a sum of nothing is −∞."""
    top = np.maximum.reduceat(logs.real, starts, axis=0)
    top = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        sums = np.log(np.add.reduceat(np.exp(logs - np.repeat(top, sizes, axis=0)), starts, axis=0))
    return np.asarray(sums + top)

"""Cliques by their possible states: how neighbours share them, and how evidence below sees them.

Bounds that walk a clique tree need, for every clique, the list of its possible states with their
probabilities, and for every edge the map from clique states to separator states.  Only possible
states are listed: a table with zeros may have few of them.

*A clique as evidence below it sees it* (:class:`View`), from its separator Z down to the branches beyond it.
What is known below a separator are records of the clique V itself and records beyond its branches.  For a
choice of both, the coordinates of W = V∖Z fall into three kinds: *known* ones (equal on both sides),
*tilted* ones (they lie in the separator of a branch with known records, whose likelihood moves their
law), and *free* ones, whose conditional law is the model's own:

    P(w | z, evidence) = P(free | z, tilted, known) · π_z(tilted),
    π_z(u) ∝ P(u, known | z) · Π likelihoods of the branches with known records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from operator import or_
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.plan import COUNTED_VALUES
from quiltdp.inference.trees import JunctionTree, junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import LEAST

__all__ = [
    "Branch",
    "Choice",
    "CliqueEdge",
    "CliqueForest",
    "CliqueStates",
    "Part",
    "View",
    "Views",
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
        key = frozenset(nodes)
        if key not in self._labelled:
            label, count = self._labels(key)
            label.flags.writeable = False
            self._labelled[key] = label, count
        return self._labelled[key]

    @cached_property
    def _labelled(self) -> dict[frozenset[str], tuple[Ints, int]]:
        return {}

    def _labels(self, nodes: Collection[str]) -> tuple[Ints, int]:
        codes, most = self._codes(nodes)
        if most > COUNTED_VALUES:
            _, label = np.unique(codes, return_inverse=True)
            label = label.ravel().astype(np.int64)
            return label, int(label.max()) + 1
        seen = np.zeros(most, dtype=np.int64)
        seen[codes] = 1
        rank = np.cumsum(seen)
        return rank[codes] - 1, int(rank[-1])

    def matches(self, nodes: Collection[str]) -> int:
        """Return how many pairs of states (ordered, a state with itself too) agree on ``nodes``."""
        key = frozenset(nodes)
        if key not in self._matched:
            codes, most = self._codes(key)
            sizes = np.bincount(codes) if most <= COUNTED_VALUES else np.unique(codes, return_counts=True)[1]
            self._matched[key] = int((sizes.astype(np.int64) ** 2).sum())
        return self._matched[key]

    @cached_property
    def _matched(self) -> dict[frozenset[str], int]:
        return {}

    def _codes(self, nodes: Collection[str]) -> tuple[Ints, int]:
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


Array = NDArray[np.float64]
_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Branch:
    """What lies beyond one tree edge of a clique.

    Attributes
    ----------
    key
        The edge and the clique beyond it: the name of the message that comes from there.
    separator
        The nodes shared with it.
    label
        The separator state of every state of this clique.
    knowable
        Whether a record beyond may be known.
    """

    key: tuple[int, int]
    separator: tuple[str, ...]
    label: Ints
    knowable: bool


@dataclass(frozen=True)
class Choice:
    """What is known below: records of the clique, and the branches that hold known records.

    ``only`` tells whether each of ``branches`` surely holds known records; if not, each may or may not.
    """

    known: tuple[str, ...]
    tilted: tuple[str, ...]
    branches: tuple[int, ...]
    only: bool


@dataclass(frozen=True, eq=False)
class Part:
    """The possible states under one choice, for every value of the known records.

    Attributes
    ----------
    states, law
        Axes (known, z, u, free): positions of states, and P(free | z, u, known); padding has mass 0 and
        repeats a possible state (of the same group, where there is one).
    log_p
        ln P(u, known | z), axes (known, z, u); −∞ where impossible.
    """

    states: Ints
    law: Array
    log_p: Array

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Which (known, z, u) are possible."""
        return np.asarray(self.log_p > -np.inf)


@dataclass(frozen=True, eq=False)
class View:
    """A clique seen from some of its nodes, ``top``, with the branches that lie beyond it.

    ``label`` numbers the values of ``top`` (``count`` of them); ``may_know`` are the other nodes of the
    clique that an adversary may know.
    """

    clique: CliqueStates
    top: tuple[str, ...]
    label: Ints
    count: int
    branches: tuple[Branch, ...]
    may_know: tuple[str, ...]

    def choices(self, *, each: bool) -> Sequence[Choice]:
        """Return what may be known below, except nothing at all.

        With ``each`` every set of branches is a choice of its own (2^branches); otherwise all branches
        whose separator is inside known and tilted nodes go together, and may or may not know.
        """
        return self._each if each else self._together

    @cached_property
    def _each(self) -> tuple[Choice, ...]:
        return tuple(self._choices(each=True))

    @cached_property
    def _together(self) -> tuple[Choice, ...]:
        return tuple(self._choices(each=False))

    def _choices(self, *, each: bool) -> Iterator[Choice]:
        """Yield the choices; sets of nodes are bit masks here."""
        bit = {n: 1 << k for k, n in enumerate(self.clique.nodes)}
        inside = sum(bit[n] for n in bit if n not in self.top)
        knowing = [b for b, branch in enumerate(self.branches) if branch.knowable]
        touched = [inside & sum(bit[n] for n in self.branches[b].separator) for b in knowing]
        for known in _subsets(self.may_know):
            unseen = ~sum(bit[n] for n in known)
            tilts = [nodes & unseen for nodes in touched]
            if each:
                for chosen in _subsets(range(len(knowing))):
                    if known or chosen:
                        tilted = reduce(or_, [tilts[c] for c in chosen], 0)
                        branches = tuple([knowing[c] for c in chosen])
                        yield Choice(known, self._listed(tilted), branches, only=True)
                continue
            for tilted in _unions(tilts):
                within = tuple([b for b, tilt in zip(knowing, tilts, strict=True) if not tilt & ~tilted])
                if known or within:
                    yield Choice(known, self._listed(tilted), within, only=False)

    def _listed(self, mask: int) -> tuple[str, ...]:
        if mask not in self._of_masks:
            self._of_masks[mask] = tuple([n for k, n in enumerate(self.clique.nodes) if mask >> k & 1])
        return self._of_masks[mask]

    @cached_property
    def _of_masks(self) -> dict[int, tuple[str, ...]]:
        return {}

    def part(self, choice: Choice) -> Part:
        """Return the states of a choice, grouped by the known records, the top and the tilted nodes."""
        key = (choice.known, choice.tilted)
        if key not in self._parts:
            self._parts[key] = self._part(choice)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[tuple[str, ...], tuple[str, ...]], Part]:
        return {}

    @cached_property
    def _above(self) -> Table:
        return _log_sums(self.clique.log_p, self.label, self.count)

    def _part(self, choice: Choice) -> Part:
        clique = self.clique
        known, values = clique.labels(choice.known)
        u, width = clique.labels(choice.tilted)
        shape = (values, self.count, width)
        group = (known * self.count + self.label) * width + u
        order = np.argsort(group, kind="stable")
        group = group[order]
        groups = values * self.count * width
        sizes = np.bincount(group, minlength=groups)
        place = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first = np.zeros(groups, dtype=np.int64)
        first[group[::-1]] = order[::-1]
        states = np.repeat(first[:, None], int(sizes.max()), axis=1)
        states[group, place] = order
        total = _log_sums(clique.log_p[order], group, groups)
        law = np.zeros(states.shape)
        law[group, place] = np.maximum(np.exp(clique.log_p[order] - total[group]), LEAST)
        log_p = total.reshape(shape) - self._above[None, :, None]
        return Part(states.reshape(*shape, -1), law.reshape(*shape, -1), log_p)

    def pairs(self, *, each: bool) -> int:
        """Return how many pairs of states all parts of all choices compare."""
        matches: dict[tuple[str, ...], int] = {}
        total = len(self.clique.states) ** 2
        for choice in self.choices(each=each):
            if choice.known not in matches:
                matches[choice.known] = self.clique.matches(choice.known)
            total += matches[choice.known]
        return total


class Views:
    """The views of all cliques of a forest, for an adversary who may know ``may_know``."""

    def __init__(self, forest: CliqueForest, may_know: Collection[str]) -> None:
        self.forest = forest
        self._may_know = frozenset(may_know)
        self._edges_at: list[list[int]] = [[] for _ in forest.cliques]
        for k, e in enumerate(forest.edges):
            self._edges_at[e.parent].append(k)
            self._edges_at[e.child].append(k)
        self._knowable = self.beyond(dict.fromkeys(sorted(self._may_know), 1.0))

    def beyond(self, weight: Mapping[str, float]) -> dict[tuple[int, int], float]:
        """Return, for every edge and either clique at it, the total weight of the nodes beyond it there."""
        forest = self.forest
        home: dict[str, int] = {}
        for k, clique in enumerate(forest.cliques):
            for n in clique.nodes:
                home.setdefault(n, k)  # parents come first, so this is the topmost clique
        below = np.zeros(len(forest.cliques))
        for n, k in home.items():
            below[k] += weight.get(n, 0.0)
        downwards = sorted(range(len(forest.edges)), key=lambda k: forest.edges[k].child)
        for k in reversed(downwards):
            below[forest.edges[k].parent] += below[forest.edges[k].child]
        total = below.copy()  # of the component: its root's sum
        for k in downwards:
            total[forest.edges[k].child] = total[forest.edges[k].parent]
        found = {}
        for k, e in enumerate(forest.edges):
            shared = sum(weight.get(n, 0.0) for n in e.separator)
            found[k, e.child] = float(below[e.child])
            found[k, e.parent] = max(0.0, float(total[e.child] - below[e.child] - shared))
        return found

    def order(self) -> list[tuple[int, int]]:
        """Return every edge in both directions (edge, clique beyond), branches before what needs them."""
        edges = self.forest.edges
        downwards = sorted(range(len(edges)), key=lambda k: edges[k].child)
        return [(k, edges[k].child) for k in reversed(downwards)] + [(k, edges[k].parent) for k in downwards]

    def edge(self, key: tuple[int, int]) -> View:
        """Return the view of the clique beyond an edge, from the separator."""
        e, clique = self.forest.edges[key[0]], key[1]
        label = e.child_label if clique == e.child else e.parent_label
        return self._view(clique, e.separator, (label, e.count), without=key[0])

    def root(self, unit: Collection[str], clique: int) -> View:
        """Return the view of a clique from the nodes of ``unit`` inside it: everything else is below."""
        states = self.forest.cliques[clique]
        top = tuple(n for n in states.nodes if n in unit)
        return self._view(clique, top, states.labels(top), without=-1)

    def _view(self, clique: int, top: tuple[str, ...], numbered: tuple[Ints, int], without: int) -> View:
        states = self.forest.cliques[clique]
        branches = []
        for k in self._edges_at[clique]:
            if k != without:
                e = self.forest.edges[k]
                down = e.parent == clique
                key = (k, e.child if down else e.parent)
                label = e.parent_label if down else e.child_label
                branches.append(Branch(key, e.separator, label, self._knowable[key] > 0.5))
        own = tuple(n for n in states.nodes if n in self._may_know and n not in top)
        return View(states, top, *numbered, tuple(branches), own)


def _subsets(items: Sequence[_Item]) -> Iterator[tuple[_Item, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _unions(masks: Sequence[int]) -> list[int]:
    """Return every union of some of the sets, the empty one first."""
    found: dict[int, None] = {0: None}
    for mask in masks:
        found.update(dict.fromkeys([mask | f for f in found]))
    return list(found)


def _log_sums(log_p: Array, label: Ints, count: int) -> Array:
    top = np.full(count, -np.inf)
    np.maximum.at(top, label, log_p)
    safe = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.log(np.bincount(label, weights=np.exp(log_p - safe[label]), minlength=count)) + safe
        )

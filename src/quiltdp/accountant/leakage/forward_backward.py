"""Forward–backward on a directed model of any size, against the prior adversary.

In reverse topological order, for all values u of c's other parents,

    fw_j(x, x') = α_j·1[x ≠ x'] + Σ_{children c of j} max_u K( P(c | x, u), P(c | x', u); fw_c ),

and from the founders down

    bk_i(x, x') = K( P(pa_i | x), P(pa_i | x'); D ),   D(z, z') = Σ_{a ∈ pa_i: z_a ≠ z'_a} side_a(z_a, z'_a),
    side_a = α_a·1 + Σ_{c ∈ ch(a), c ≠ i} max_u K(…; fw_c) + bk_a,
    Leakage(i) ≤ max over possible x, x' of fw_i + bk_i.

*Why.*  Order the nodes as ancestors of i, then i, then the rest, and sum the rest out one node at a
time from the end: when c is summed out, each of its parents j gains max_u K(…; fw_c), so the
function of (ancestors, i) that is left moves by at most ℓ_j when j changes, ℓ_j = α_j plus the gains
of j's children that are no ancestors of i.  Changing x_i costs fw_i there.  What remains is the law
of the ancestors given x_i.  Given all parents of i their lines are independent *if they are
disjoint*, so parents are changed one at a time: side_a, and K for the law of the parents.

**Lines that meet.**  For parents whose lines (the parent with its ancestors) overlap, knowing one
parent tells about the other's ancestors.  Then D is the distance between parents' states that the
loop of ancestors above them allows, summed out in reverse order (:mod:`.loops`) with the distances
ℓ_u.  Where a loop is too wide every ancestor u above them is charged max ℓ_u once, whatever the
laws: D(z, z') = Σ_{a: z_a ≠ z'_a} ℓ_a(z_a, z'_a) + Σ_u max ℓ_u for that group.

*Assumes*: a Bayesian network, no evidence.  *Cost*: one batch of kernels per height and distinct table;
loops up to the width that the work budget allows.  *Reference*: docs/prior_adversary.md, forward–backward.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.forward import ChildKernels
from quiltdp.accountant.leakage.kernel import Array
from quiltdp.accountant.leakage.loops import LoopMessages
from quiltdp.accountant.leakage.summing_out import SummingOut
from quiltdp.accountant.trade_offs import BACKWARD_AT_ONCE, BACKWARD_SOLVED
from quiltdp.inference.ancestry import Ancestry, FamilyLaw, Loop, Reordered
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import Guard, WorkBudget

__all__ = ["ForwardBackwardBound"]

_SLACK = 1e-12  # how far ln of a conditional probability of a family may be from the truth


@register(
    "forward-backward",
    against=PRIOR,
    kind="certified bound",
    says="forward–backward over the directed model",
)
class ForwardBackwardBound:
    """The forward–backward method (method ``"forward-backward"``, prior adversary).

    Parameters
    ----------
    problem
        A Bayesian network of any size and width.  A set of several records gets the sum of all α of
        its components (this method is about single records).
    max_entries, max_work
        Limits on the loops of ancestors where lines meet, see
        :class:`~quiltdp.inference.ancestry.Ancestry`.
    max_group
        The joint states of one table kept there, see :mod:`.loops`; larger is tighter and slower.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> from quiltdp.accountant.bounds import ready
    >>> ready(ForwardBackwardBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(
        self, problem: Problem, *, max_entries: int = 2**17, max_work: int = 2**21, max_group: int = 27
    ) -> None:
        self._model = problem.model
        self._units = [tuple(self._model.index[n] for n in unit) for unit in problem.listed()]
        self._max_entries, self._max_work, self._max_group = max_entries, max_work, max_group

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Find the laws of families and of the loops above them, and the pairs of rows to compare."""
        self._workspace = workspace
        max_group = self._max_group
        tree = Ancestry(
            self._model, max_entries=self._max_entries, max_work=self._max_work, guard=workspace.guard
        )
        self._tree = tree
        self._component = _components(tree)
        self._sizes = [t.shape[-1] for t in tree.tables]
        self._families = [
            f if f is not None and np.count_nonzero(f.joint) <= budget.states else None for f in tree.families
        ]
        self._forward = ChildKernels(tree, workspace.guard)
        self._inverse: dict[int, SummingOut] = {}
        roundings = max((found.roundings for _, found in tree.loops.values()), default=0)
        self._loops = {c: _LoopAbove(tree, *found, max_group, roundings) for c, found in tree.loops.items()}
        self._waves = self._plan()
        met = [i for i, p in enumerate(tree.passages) if p]
        lost = sum(1 for i, f in enumerate(self._families) if f is None and tree.parents[i])
        notes = (
            [
                f"forward-backward: ancestor lines meet above {len(met)} nodes,"
                f" {sum(map(self._looped, met))} of them answered by the loop of ancestors"
            ]
            if met
            else []
        )
        notes += [f"forward-backward: the law of {lost} families is too wide, passed through"] if lost else []
        self._notes = tuple(notes)

    def _plan(self) -> list[list[list[int]]]:
        """Group the nodes with parents: by depth, then by family law and pattern of meeting lines."""
        tree = self._tree
        waves: dict[int, dict[object, list[int]]] = defaultdict(lambda: defaultdict(list))
        for i in tree.order:
            family = self._families[i]
            if not tree.parents[i]:
                continue
            pattern = tuple(p.slots for p in tree.passages[i])
            looped = tree.parents[i] if pattern and family is not None else ()
            waves[tree.depth[i]][(id(family) if family is not None else -1 - i, pattern, looped)].append(i)
            if family is not None and id(family) not in self._inverse:
                self._workspace.guard.check()
                self._inverse[id(family)] = _summing(family)
        return [list(waves[d].values()) for d in sorted(waves)]

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, np.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units above ``low``; if the forward half exceeds ``high``, group's."""
        alpha = np.asarray(alpha, dtype=np.float64)
        group = up_array(np.bincount(self._component, weights=alpha).astype(np.float64), 8.0 + len(alpha))
        values = np.array(
            [up(float(sum(group[c] for c in set(self._component[list(u)])))) for u in self._units]
        )
        values = np.minimum(values, known)
        forward, messages = self._forward.run(alpha, self._workspace.guard)
        asked = [k for k, unit in enumerate(self._units) if len(unit) == 1 and values[k] > low]
        if max((forward[self._units[k][0]].max() for k in asked), default=0.0) <= high:
            behind = self._behind([self._units[k][0] for k in asked])
            backward = self._backward(forward, messages, behind)
            for k in asked:
                values[k] = min(values[k], self._total(self._units[k][0], forward, backward))
        return Bounds(values, "forward-backward", notes=self._notes)

    def _behind(self, nodes: list[int]) -> set[int]:
        """Return the nodes whose bk the bk of ``nodes`` is made from, themselves included."""
        found, stack = set(nodes), list(nodes)
        while stack:
            i = stack.pop()
            couple = self._tree.parents[i]
            for u in self._loops[couple].tops if self._looped(i) else couple:
                if u not in found:
                    found.add(u)
                    stack.append(u)
        return found

    def _total(self, i: int, forward: list[Array], backward: list[Array]) -> float:
        """Return max fw + bk over pairs of possible values; 0 when only one value is possible."""
        law = self._tree.marginals[i]
        alive = law > 0 if law is not None else np.ones(self._sizes[i], dtype=bool)
        if alive.sum() < 2:
            return 0.0
        table = (forward[i] + backward[i])[np.ix_(alive, alive)]
        return up(float(table[~np.eye(len(table), dtype=bool)].max()))

    # -- from the founders down --------------------------------------------------------------------

    def _backward(self, forward: list[Array], messages: list[Array], wanted: set[int]) -> list[Array]:
        """Return bk of the wanted nodes."""
        tree = self._tree
        backward = [np.zeros((k, k)) for k in self._sizes]
        known: dict[bytes, Array] = {}
        above: dict[tuple[int, ...], Array] = {}
        spare = np.array([_less(forward[p], [messages[e]]).max() for e, (p, _, _) in enumerate(tree.edges)])
        for wave in self._waves:
            for nodes in (
                some for every in wave for some in self._batches([i for i in every if i in wanted])
            ):
                self._workspace.guard.check()
                if self._looped(nodes[0]):
                    for i in nodes:
                        self._workspace.guard.check()
                        backward[i] = self._around(i, forward, messages, backward, above, known)
                    continue
                sides = [
                    np.array([self._side(i, slot, forward, messages, backward) for i in nodes])
                    for slot in range(len(tree.parents[nodes[0]]))
                ]
                jumps = [self._jumps(nodes, g, spare) for g in range(len(tree.passages[nodes[0]]))]
                values = self._pull(nodes, sides, jumps)
                for i, value in zip(nodes, values, strict=True):
                    backward[i] = value
        return backward

    def _batches(self, nodes: list[int]) -> Iterator[list[int]]:
        """Yield nodes that share a family law, as many at once as their distances leave room for."""
        family = self._families[nodes[0]] if nodes else None
        size = 1 if family is None else int(np.count_nonzero(family.joint)) ** 2
        step = max(1, BACKWARD_AT_ONCE // size)
        yield from (nodes[s : s + step] for s in range(0, len(nodes), step))

    def _looped(self, i: int) -> bool:
        """Return whether lines meet above i and the loop was summed out."""
        tree = self._tree
        return bool(tree.passages[i]) and self._families[i] is not None and tree.parents[i] in self._loops

    def _around(
        self,
        i: int,
        forward: list[Array],
        messages: list[Array],
        backward: list[Array],
        above: dict[tuple[int, ...], Array],
        known: dict[bytes, Array],
    ) -> Array:
        """Return bk_i from the loop above its parents (``above`` keeps the answer for sibships)."""
        tree = self._tree
        couple = tree.parents[i]
        loop = self._loops[couple]
        if couple not in above:
            above[couple] = loop.run(forward, messages, backward, known, self._workspace.guard)
        family = self._families[i]
        assert family is not None, "a loop that was summed out gives the law of the family"
        states = np.argwhere(family.joint > 0)
        flat = np.ravel_multi_index(tuple(states[:, :-1].T), family.joint.shape[:-1])
        d = above[couple][flat[:, None], flat[None, :]]
        for slot, a in enumerate(couple):
            side = loop.own(a, [tree.edge_of[i][slot]], forward, messages, backward)
            at = states[:, slot]
            d = d + side[at[:, None], at[None, :]]
        result = np.zeros((self._sizes[i],) * 2)
        alive = np.flatnonzero(family.child > 0)
        result[alive[:, None], alive[None, :]] = self._summed(family, up_array(d, 8.0 + len(couple)))
        return result

    def _side(
        self, i: int, slot: int, forward: list[Array], messages: list[Array], backward: list[Array]
    ) -> Array:
        """Return what changing one parent costs: side_a, or ℓ_a where lines meet."""
        tree = self._tree
        a = tree.parents[i][slot]
        for passage in tree.passages[i]:
            if slot in passage.slots:
                inside = passage.inner[passage.slots.index(slot)]
                return _less(forward[a], [messages[e] for e in inside])
        rest = _less(forward[a], [messages[tree.edge_of[i][slot]]])
        return up_array(rest + backward[a], 4.0)

    def _jumps(self, nodes: list[int], group: int, spare: Vector) -> Vector:
        """Return Σ_u max ℓ_u over the ancestors above one group of parents, for every node."""
        jumps = np.zeros(len(nodes))
        for k, i in enumerate(nodes):
            passage = self._tree.passages[i][group]
            if len(passage.edges):
                least = np.full(int(passage.owner[-1]) + 1, np.inf)
                np.minimum.at(least, passage.owner, spare[passage.edges])
                jumps[k] = up(float(least.sum()), 4.0 + len(least))
        return jumps

    def _pull(self, nodes: list[int], sides: list[Array], jumps: list[Vector]) -> Array:
        """Return bk for nodes that share a family law: K of the law of their parents."""
        tree = self._tree
        size = self._sizes[nodes[0]]
        family = self._families[nodes[0]]
        passages = tree.passages[nodes[0]]
        if family is None:
            top = sum((s.max(axis=(1, 2)) for s in sides), np.zeros(len(nodes))) + sum(jumps)
            return up_array(np.asarray(top), 16.0)[:, None, None] * (1.0 - np.eye(size))
        states = np.argwhere(family.joint > 0)
        d = np.zeros((len(nodes), len(states), len(states)))
        for slot, side in enumerate(sides):
            at = states[:, slot]
            d += side[:, at[:, None], at[None, :]]
        for passage, jump in zip(passages, jumps, strict=True):
            part = states[:, list(passage.slots)]
            moved = (part[:, None, :] != part[None, :, :]).any(axis=2)
            d += jump[:, None, None] * moved
        d = up_array(d, 8.0 + len(sides))
        result = np.zeros((len(nodes), size, size))
        alive = np.flatnonzero(family.child > 0)
        distinct, where = _distinct(d)
        result[:, alive[:, None], alive[None, :]] = self._summed(family, d[distinct])[where]
        return result

    def _summed(self, family: FamilyLaw, d: Array) -> Array:
        """Return distances between the node's possible values from those between states of its family."""
        found = self._inverse[id(family)].distances(d, self._workspace.guard, BACKWARD_SOLVED)
        size = math.isqrt(found.shape[-1])
        return found.reshape(*found.shape[:-1], size, size)


class _LoopAbove:
    """A loop of ancestors with the edges inside it."""

    def __init__(self, tree: Ancestry, loop: Loop, law: Reordered, max_group: int, roundings: int) -> None:
        above = tree.above(loop.targets)
        self._targets = frozenset(loop.targets)
        self.tops = loop.tops
        self._inner = {u: [e for e in tree.children[u] if tree.edges[e][1] in above] for u in loop.members}
        self._messages = LoopMessages(law, loop.targets, max_group=max_group, roundings=roundings)

    def own(
        self,
        u: int,
        more: Sequence[int],
        forward: list[Array],
        messages: list[Array],
        backward: list[Array],
    ) -> Array:
        """Return ℓ_u, with bk_u for the top of a line; edges ``more`` lead into the loop too."""
        rest = _less(forward[u], [messages[e] for e in (*self._inner[u], *more)])
        return up_array(rest + backward[u], 4.0) if u in self.tops else rest

    def run(
        self,
        forward: list[Array],
        messages: list[Array],
        backward: list[Array],
        known: dict[bytes, Array],
        guard: Guard,
    ) -> Array:
        """Return the distance between the targets' states that the loop above them allows."""
        return self._messages.run(
            {u: self.own(u, (), forward, messages, backward) for u in self._inner if u not in self._targets},
            known,
            guard,
        )


def _summing(family: FamilyLaw) -> SummingOut:
    """Return the map from distances between parents' states to distances between the node's values."""
    states = np.argwhere(family.joint > 0)
    label = np.unique(states[:, -1], return_inverse=True)[1]
    mass = family.joint[tuple(states.T)]
    return SummingOut.of_labels(mass, label, states[:, -2::-1], slack=_SLACK)  # the first parent first


def _distinct(tables: Array) -> tuple[list[int], list[int]]:
    """Return the first place of every distinct table, and which of them each table equals."""
    first: dict[bytes, int] = {}
    spots: list[int] = []
    where: list[int] = []
    for k, table in enumerate(tables):
        key = table.tobytes()
        if key not in first:
            first[key] = len(spots)
            spots.append(k)
        where.append(first[key])
    return spots, where


def _less(whole: Array, parts: Sequence[Array]) -> Array:
    """Return whole − Σ parts, rounded up and never negative."""
    rest = whole
    for part in parts:
        rest = rest - part
    return np.asarray(np.maximum(rest, 0.0) + whole * (EPS * (8 + len(parts))))


def _components(tree: Ancestry) -> Vector:
    """Return a label per node: the connected component it is in."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(tree.parents)
    pairs = np.array([(p, c) for p, c, _ in tree.edges], dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])

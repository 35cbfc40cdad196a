"""Narrower trees: which nodes of a directed model to keep so that their junction tree is affordable.

The kept nodes are closed under ancestors, so their law is the product of their own tables; what is left out
is closed under descendants and is generated forward from what is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quiltdp.inference.change_tree import effort_of_clique
from quiltdp.inference.plan import EliminationPlan, plan_elimination
from quiltdp.model import Model
from quiltdp.work import Guard

__all__ = ["Narrower"]

_ROUNDS = 60


class Narrower:
    """Sets of nodes, closed under ancestors, with narrow junction trees.

    Parameters
    ----------
    model
        A Bayesian network.
    entries
        The largest table of a clique.
    effort
        The most single changes of a whole tree.
    """

    def __init__(self, model: Model, *, entries: int, effort: float, guard: Guard) -> None:
        self._model, self._entries, self._effort, self._guard = model, entries, effort, guard
        self._family = {f.scope[-1]: f for f in model.factors}
        self._sizes = {n: model.cardinality(n) for n in model.nodes}
        self._order = list(model.topological_order)
        self._ancestors: dict[str, frozenset[str]] = {}
        for n in self._order:
            above = [self._ancestors[p] | {p} for p in self._family[n].scope[:-1]]
            self._ancestors[n] = frozenset().union(*above)
        self._descendants: dict[str, set[str]] = {n: set() for n in self._order}
        for n in self._order:
            for a in self._ancestors[n]:
                self._descendants[a].add(n)

    def left_out_below(self, node: str, kept: Collection[str]) -> list[str]:
        """Return the descendants of a node that are not kept."""
        return [n for n in self._order if n in self._descendants[node] and n not in kept]

    def network(self, kept: Collection[str]) -> Model:
        """Return the network of the kept nodes."""
        nodes = [n for n in self._model.nodes if n in kept]
        return Model({n: self._model.states[n] for n in nodes}, [self._family[n] for n in nodes])

    def plan(self, kept: Collection[str]) -> EliminationPlan:
        """Return the plan of the tree of the kept nodes."""
        sizes = {n: self._sizes[n] for n in self._order if n in kept}
        scopes = [self._family[n].scope for n in sizes]
        return plan_elimination(sizes, scopes, max_entries=self._entries)

    def keep(self, wanted: str | None = None) -> tuple[str, ...] | None:
        """Return a large affordable set with ``wanted`` in it, or ``None`` when its ancestors are too wide.

        From the dearest clique on, the node with the fewest descendants goes with all of them; afterwards
        every node whose parents stand together in a clique comes back.
        """
        needed = frozenset() if wanted is None else self._ancestors[wanted] | {wanted}
        kept = set(self._order)
        for _ in range(_ROUNDS):
            self._guard.check()
            plan = self.plan(kept)
            efforts = self._efforts(plan)
            if plan.fits and sum(efforts) <= self._effort:
                return self._with_leaves(kept, plan, self._effort - sum(efforts))
            gone = self._one_of_each(plan, efforts, kept, needed)
            if not gone:
                return None
            kept -= gone
        return None

    def _efforts(self, plan: EliminationPlan) -> list[float]:
        near: list[list[set[str]]] = [[] for _ in plan.cliques]
        for k, above in enumerate(plan.parent):
            if above >= 0:
                shared = set(plan.cliques[k]) & set(plan.cliques[above])
                near[k].append(shared)
                near[above].append(shared)
        return [
            sum(effort_of_clique(c, start, self._sizes) for start in starts)
            for c, starts in zip(plan.cliques, near, strict=True)
        ]

    def _one_of_each(
        self, plan: EliminationPlan, efforts: Sequence[float], kept: set[str], needed: Collection[str]
    ) -> set[str]:
        """Return the nodes that go this time: from each of the dearest cliques one, with its descendants."""
        gone: set[str] = set()
        top = max(efforts)
        for k in sorted(range(len(efforts)), key=lambda k: (-efforts[k], k)):
            dear = efforts[k] > max(0.3 * top, self._effort / len(efforts))
            if plan.sizes[k] <= self._entries and not dear:
                continue
            if gone.intersection(plan.cliques[k]):
                continue
            free = [n for n in plan.cliques[k] if n not in needed]
            if not free:
                continue
            chosen = min(
                free, key=lambda n: (len(self._descendants[n] & kept), -self._sizes[n], self._order.index(n))
            )
            gone |= (self._descendants[chosen] & kept) | {chosen}
        if not gone and efforts:  # many small cliques: the last nodes of the order go
            free = [n for n in reversed(self._order) if n in kept and n not in needed]
            gone = set(free[: max(1, len(free) // 10)])
        return gone

    def _with_leaves(self, kept: set[str], plan: EliminationPlan, room: float) -> tuple[str, ...]:
        """Add nodes whose parents are together in a clique: the tree gets a leaf, not wider."""
        cliques = [set(c) for c in plan.cliques]
        holding: dict[str, list[int]] = {}
        for k, c in enumerate(cliques):
            for n in c:
                holding.setdefault(n, []).append(k)
        entries = 4 * self._entries - plan.total_entries
        for n in self._order:
            family = self._family[n]
            parents = set(family.scope[:-1])
            if n in kept or not parents <= kept:
                continue
            clique = family.scope
            cost = 2.0 * effort_of_clique(clique, parents, self._sizes)
            together = not parents or any(parents <= cliques[k] for k in holding[clique[0]])
            if not together or family.table.size > min(self._entries, entries) or cost > room:
                continue
            room -= cost
            entries -= family.table.size
            kept.add(n)
            holding.setdefault(n, []).append(len(cliques))
            cliques.append(set(clique))
            for p in parents:
                holding[p].append(len(cliques) - 1)
        return tuple(n for n in self._model.nodes if n in kept)

"""Sequential coupling in 50 digits: the same theorem on exact laws, every transport with its two proofs.

Which node is revealed when, which pairs are compared and which paths are taken is read from the library's own
plan; every law, every message and every leakage is computed anew (``fifty_digits``).  So the certified value
must lie at or above the twin's, and hardly above it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from fifty_digits import Exact, apart, exactly, transport
from mpmath import inf, mpf

from quiltdp.accountant.leakage.coupling_choice import ChosenReveal
from quiltdp.accountant.leakage.coupling_chosen import ChosenPairs
from quiltdp.accountant.leakage.coupling_single import SingleCouplingBound
from quiltdp.inference.change_tree import ChangeReveal, ChangeTree
from quiltdp.inference.coupling_tree import CouplingTree, Reveal
from quiltdp.model import Model

State = tuple[int, ...]
Costs = Callable[[State, State], mpf]


def _moved(
    exact: Exact, given: Mapping[int, int], other: Mapping[int, int], of: Sequence[int], cost: Costs
) -> mpf:
    """Return T of the laws of some nodes given one state and given another."""
    p, q = exact.law(given, of), exact.law(other, of)
    return transport(list(p.values()), list(q.values()), [[cost(v, w) for w in q] for v in p])


def _step(costs: Sequence[mpf], later: Costs, u: State, w: State, v: State, x: State) -> mpf:
    """Return what values v and x of the next nodes cost, after states u and w."""
    return apart(v, x, costs) + later((*u, *v), (*w, *x))


# -- all pairs -------------------------------------------------------------------------------------


def all_pairs(model: Model, tree: CouplingTree, alpha: Sequence[float]) -> list[mpf]:
    """Return the leakage of every unit of a coupling tree, all pairs compared."""
    exact, a = Exact(model), [exactly(x) for x in alpha]
    messages: list[Callable[[State, State], mpf]] = []
    caps: list[mpf] = []

    def read(reveals: Sequence[Reveal]) -> tuple[Callable[[State, State], mpf], mpf]:
        own = sum((a[k] for s in reveals[0].steps for k in s.nodes), mpf(0))
        cap = own + sum((caps[k] for k, _ in reveals[0].beyond), mpf(0))
        known: dict[tuple[int, int, State, State], mpf] = {}

        def after(order: int, level: int, u: State, w: State) -> mpf:
            if u == w:
                return mpf(0)
            key = (order, level, u, w)
            if key not in known:
                reveal = reveals[order]
                columns = [*reveal.start, *(k for s in reveal.steps[:level] for k in s.nodes)]
                one, two = dict(zip(columns, u, strict=True)), dict(zip(columns, w, strict=True))
                if level == len(reveal.steps):
                    known[key] = sum(
                        (
                            messages[k](*(tuple(x[n] for n in tree.messages[k][0].start) for x in (one, two)))
                            for k, _ in reveal.beyond
                        ),
                        mpf(0),
                    )
                else:
                    nodes = reveal.steps[level].nodes
                    costs = [a[k] for k in nodes]
                    known[key] = _moved(
                        exact,
                        one,
                        two,
                        nodes,
                        lambda v, x: apart(v, x, costs) + after(order, level + 1, (*u, *v), (*w, *x)),
                    )
            return known[key]

        return lambda z, y: min(cap, *(after(k, 0, z, y) for k in range(len(reveals)))), cap

    for reveals in tree.messages:
        found, cap = read(reveals)
        messages.append(found)
        caps.append(cap)
    leakages = []
    for reveals in tree.units:
        start = reveals[0].start
        table = read(reveals)[0]
        own = [a[k] for k in start]
        pairs = itertools.permutations(exact.law({}, start), 2)
        leakages.append(max((apart(z, y, own) + table(z, y) for z, y in pairs), default=mpf(0)))
    return leakages


# -- chosen pairs ----------------------------------------------------------------------------------


def chosen_pairs(model: Model, pairs: ChosenPairs, alpha: Sequence[float]) -> list[mpf]:
    """Return the leakage of every unit, the pairs compared that were chosen: paths and caps for the rest."""
    exact, a = Exact(model), [exactly(x) for x in alpha]
    values: list[Callable[[State, State], mpf]] = []
    caps: list[mpf] = []

    def level(chosen: ChosenReveal, k: int, found: list[mpf], cap: mpf) -> Callable[[State, State], mpf]:
        """Return what pairs of states of a level are worth: compared, along a path, or the cap."""
        at, reveal = chosen.levels[k], chosen.reveal
        states = [tuple(s) for s in reveal.prefixes(k).tolist()] if k < len(reveal.steps) else _rows(reveal)
        number = {s: n for n, s in enumerate(states)}
        worth = {int(c): min(v, cap) for c, v in zip(at.codes, found, strict=True)}
        legs = [*(min(v, cap) for v in found), mpf(0)]
        for c, path in zip(at.path_codes, at.paths.T, strict=True):
            worth.setdefault(int(c), min(cap, sum((legs[j] for j in path), mpf(0))))

        def read(u: State, w: State) -> mpf:
            return mpf(0) if u == w else worth.get(number[u] * at.count + number[w], cap)

        return read

    def read(chosen: ChosenReveal) -> tuple[Callable[[State, State], mpf], mpf]:
        reveal = chosen.reveal
        cap = sum((caps[k] for k, _ in reveal.beyond), mpf(0))
        columns = [*reveal.start, *(k for s in reveal.steps for k in s.nodes)]
        found = []
        states = _rows(reveal)
        for code in chosen.levels[-1].codes.tolist():
            ends = [dict(zip(columns, states[k], strict=True)) for k in divmod(code, chosen.levels[-1].count)]
            parts = (values[k](*(tuple(x[n] for n in starts[k]) for x in ends)) for k, _ in reveal.beyond)
            found.append(sum(parts, mpf(0)))
        for k in range(len(reveal.steps) - 1, -1, -1):
            later = level(chosen, k + 1, found, cap)
            nodes = reveal.steps[k].nodes
            costs = [a[n] for n in nodes]
            before = columns[: len(columns) - sum(len(s.nodes) for s in reveal.steps[k:])]
            states = [tuple(s) for s in reveal.prefixes(k).tolist()]
            found = []
            for code in chosen.levels[k].codes.tolist():
                u, w = (states[n] for n in divmod(code, chosen.levels[k].count))
                given = [dict(zip(before, x, strict=True)) for x in (u, w)]
                found.append(
                    _moved(
                        exact,
                        *given,
                        nodes,
                        partial(_step, costs, later, u, w),
                    )
                )
            cap += sum(costs, mpf(0))
        return level(chosen, 0, found, cap), cap

    starts = [c.reveal.start for c in pairs._messages]
    for chosen in pairs._messages:
        found, cap = read(chosen)
        values.append(found)
        caps.append(cap)
    leakages = []
    for chosen in pairs._units:
        start = chosen.reveal.start
        table = read(chosen)[0]
        own = [a[k] for k in start]
        both = itertools.permutations(exact.law({}, start), 2)
        leakages.append(max((apart(z, y, own) + table(z, y) for z, y in both), default=mpf(0)))
    return leakages


def _rows(reveal: Reveal) -> list[State]:
    return [tuple(s) for s in reveal.states.tolist()]


# -- single changes --------------------------------------------------------------------------------


def single_changes(model: Model, bound: SingleCouplingBound, alpha: Sequence[float]) -> list[mpf]:
    """Return the leakage of every unit along single changes, what is left out charged to its parents."""
    leakages = [inf] * len(bound._units)
    for part in bound._trees:
        kept = [n for b in part.tree.blocks.blocks for n in b.nodes]
        prices = _distances(model, kept, alpha)
        twin = _Changes(model, part.tree, prices)
        for k, (block, columns) in zip(part.asked, part.units, strict=True):
            leakages[k] = min(leakages[k], twin.leakage(block, columns))
    return leakages


def _distances(model: Model, kept: Sequence[str], alpha: Sequence[float]) -> dict[str, Costs]:
    """Return ℓ of every kept node: its own α, and what its children that are left out say about it."""
    a = {n: exactly(alpha[model.index[n]]) for n in model.nodes}
    if not model.directed:
        return {n: lambda v, w, n=n: a[n] if v != w else mpf(0) for n in kept}
    factor = {f.scope[-1]: f for f in model.factors}
    children = {n: [c for c in model.nodes if n in factor[c].scope[:-1]] for n in model.nodes}
    below: dict[str, set[str]] = {}
    for n in reversed(list(model.topological_order)):
        below[n] = {n}.union(*(below[c] for c in children[n]))
    known: dict[tuple[str, int, int], mpf] = {}

    def rows(c: str, parent: str, x: int) -> list[list[mpf]]:
        f = factor[c]
        others = [range(model.cardinality(n)) if n != parent else [x] for n in f.scope[:-1]]
        found = []
        for at in itertools.product(*others):
            row = [Fraction(float(v)) for v in f.table[at]]
            found.append([exactly(v / sum(row)) for v in row])
        return found

    def told(n: str, x: int, y: int, outside: Sequence[str]) -> mpf:
        """What a change of one node costs by itself and through those of its children."""
        if x == y:
            return mpf(0)
        total = a[n]
        for c in (c for c in children[n] if c in outside):
            worst = mpf(0)
            for p, q in zip(rows(c, n, x), rows(c, n, y), strict=True):
                one, two = [k for k, v in enumerate(p) if v], [k for k, v in enumerate(q) if v]
                d = [[forward(c, i, j) for j in two] for i in one]
                worst = max(worst, transport([p[i] for i in one], [q[j] for j in two], d))
            total += worst
        return total

    def forward(c: str, x: int, y: int) -> mpf:
        if (c, x, y) not in known:
            most = sum((a[n] for n in below[c]), mpf(0)) if x != y else mpf(0)
            known[c, x, y] = min(told(c, x, y, children[c]), most)
        return known[c, x, y]

    gone = [n for n in model.nodes if n not in kept]
    most = {n: a[n] + sum((a[k] for k in below[n] if k in gone), mpf(0)) for n in kept}
    return {n: lambda v, w, n=n: min(told(n, v, w, gone), most[n]) if v != w else mpf(0) for n in kept}


class _Changes:
    """The messages of a tree of single changes, on exact laws."""

    def __init__(self, model: Model, tree: ChangeTree, price: Mapping[str, Costs]) -> None:
        self.exact, self.tree = Exact(model), tree
        self.nodes = [[model.index[n] for n in b.nodes] for b in tree.blocks.blocks]
        self.values = [[tuple(v) for v in b.values.tolist()] for b in tree.blocks.blocks]
        self.price = [
            {
                (x, y): sum((price[n](v[k], w[k]) for k, n in enumerate(b.nodes)), mpf(0))
                for x, v in enumerate(values)
                for y, w in enumerate(values)
            }
            for b, values in zip(tree.blocks.blocks, self.values, strict=True)
        ]
        self.made: list[Callable[[int, dict[int, int], int], mpf]] = []
        self.caps: list[mpf] = []
        for reveal in tree.messages:
            found, cap = self.read(reveal)
            self.made.append(found)
            self.caps.append(cap)

    def given(self, state: Mapping[int, int]) -> dict[int, int]:
        """Return the values of the nodes of some blocks."""
        return {n: x for b, v in state.items() for n, x in zip(self.nodes[b], self.values[b][v], strict=True)}

    def law(self, state: Mapping[int, int], block: int) -> dict[int, mpf]:
        """Return P(block | state) by the number of its value."""
        found = self.exact.law(self.given(state), self.nodes[block])
        return {self.values[block].index(v): p for v, p in found.items()}

    def possible(self, state: Mapping[int, int]) -> bool:
        """Return whether the blocks can have these values."""
        return self.exact.mass(self.given(state)) > 0

    def read(self, reveal: ChangeReveal) -> tuple[Callable[[int, dict[int, int], int], mpf], mpf]:
        """Return M(block, state, its other value) at the start of a reveal, and the most it can be."""
        branches = [(set(shown), self.made[k], self.caps[k]) for k, shown in reveal.beyond]
        cap = sum((c for *_, c in branches), mpf(0))

        def heard(block: int, state: dict[int, int], to: int, wanted: Callable[[set[int]], bool]) -> mpf:
            if not (self.possible(state) and self.possible({**state, block: to})):
                return inf
            return sum(
                (
                    message(block, {b: v for b, v in state.items() if b in shown}, to)
                    for shown, message, _ in branches
                    if block in shown and wanted(shown)
                ),
                mpf(0),
            )

        def level(b: int, s: dict[int, int], to: int) -> mpf:
            return heard(b, s, to, lambda _: True)

        names = list(reveal.columns)
        first = True
        while len(names) > reveal.known:
            x = names.pop()
            level = self._before(x, level, heard if first else None, branches, cap)
            cap += max(self.price[x].values())
            first = False
        return level, cap

    def _before(self, x, level, heard, branches, cap):  # type: ignore[no-untyped-def]
        """Return the messages before block x is revealed, from those after it."""
        known: dict[tuple[int, tuple[tuple[int, int], ...], int], mpf] = {}

        def message(y: int, state: dict[int, int], to: int) -> mpf:
            if state[y] == to:
                return mpf(0)
            key = (y, tuple(sorted(state.items())), to)
            if key not in known:
                known[key] = found(y, state, {**state, y: to}, to)
            return known[key]

        def found(y: int, here: dict[int, int], there: dict[int, int], to: int) -> mpf:
            if not (self.possible(here) and self.possible(there)):
                return inf
            if heard is None:
                alone, most = mpf(0), inf
                both = level
            else:
                alone = sum(
                    (
                        m(y, {b: v for b, v in here.items() if b in s}, to)
                        for s, m, _ in branches
                        if y in s and x not in s
                    ),
                    mpf(0),
                )
                most = sum((c for s, _, c in branches if x in s and y in s), mpf(0))

                def both(b: int, s: dict[int, int], v: int) -> mpf:
                    return heard(b, s, v, lambda shown: x in shown and y in shown)

            def cost(i: int, j: int) -> mpf:
                change = [both(y, {**here, x: k}, to) for k in (i, j)]
                if i == j:
                    return min(alone + change[0], cap)
                way = min(
                    change[0] + both(x, {**there, x: i}, j), both(x, {**here, x: i}, j) + change[1], most
                )
                free = mpf(0)
                if heard is not None:
                    free = sum(
                        (
                            m(x, {b: v for b, v in {**here, x: i}.items() if b in s}, j)
                            for s, m, _ in branches
                            if x in s and y not in s
                        ),
                        mpf(0),
                    )
                return min(way + alone + free, cap) + self.price[x][i, j]

            p, q = self.law(here, x), self.law(there, x)
            return transport(list(p.values()), list(q.values()), [[cost(i, j) for j in q] for i in p])

        return message

    def leakage(self, block: int, columns: Sequence[int]) -> mpf:
        """Return the leakage of some columns of a block."""
        message = self.read(self.tree.roots[block])[0]
        values = self.values[block]

        def table(v: int, w: int) -> mpf:
            return mpf(0) if v == w else message(block, {block: v}, w) + self.price[block][v, w]

        law = self.law({}, block)
        labels: dict[State, list[int]] = {}
        for v in law:
            labels.setdefault(tuple(values[v][c] for c in columns), []).append(v)
        worst = mpf(0)
        for one, two in itertools.permutations(labels.values(), 2):
            p, q = ([law[v] / sum(law[k] for k in group) for v in group] for group in (one, two))
            worst = max(worst, transport(p, q, [[table(v, w) for w in two] for v in one]))
        return worst

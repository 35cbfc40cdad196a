"""Listed evidence: sequential coupling given each thing that may be known, one by one.

    Leakage(T) = max over S and possible x_S of what the prior adversary learns about T given x_S.

Given x_S the records S are constants, and :mod:`.coupling` bounds the rest.  Along the schedule of a clique
tree a message is made for each evidence e beyond its root, from P(x_k | earlier nodes, e) and the messages of
the children for what e says beyond them; a known node costs nothing.  At a unit

    Leakage(T) ≤ max over x_T ≠ x_T' of  Σ_{t∈T} α_t(x_t, x_t') + Σ over parts of max_e m(x_T, x_T'; e),

α_t(x, x') the price of a change.  *Why.*  For fixed e it is the theorem of :mod:`.coupling` in the model
given e.  Given x_T the parts that T holds together are independent, and so is what is known in them; at most
k known records are shared out among the parts.

*What is listed.*  All that a root need know of evidence e is l(z; e) ∝ P(e | z), z its state: a node beyond
has P(x | z, e) ∝ P(x | z) l(z, x; e), l what is known beyond x.  So two evidences with the same l leave the
same laws everywhere above.  They are *merged*: one row from there on, with the larger message for every pair.
Twins (brothers and sisters), records screened off by other known records and symmetries take few rows.

Cliques of too many states for all their pairs are left to :mod:`.conditioned`, where few things may be known.
Where worst evidence (:mod:`.worst_evidence`) supposes the worst tilt for every pair of states, here each tilt
is the one of an adversary who exists.

*Assumes*: few different evidences.  *Cost*: a transport for every pair of prefixes and evidence, at each α.
*Reference*: docs/theory.md, section 17.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.conditioned import ConditionedModels
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.coupling import Prices
from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import FARTHEST, transport
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.schedule import Ints, Level, Order, RootedClique, schedule
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import Guard, WorkBudget

_GRID = 2.0**-43  # how far ln l of merged evidences may be apart
_MIX = np.int64(-7046029254386353131)  # an odd number, of mixed bits
_LEAST = 1e-250  # a product of conditional probabilities that is smaller may have lost its digits
_PAIR = 10  # pairs of the budget that one transport counts as
_JOINS = 64  # pairs of states of a sum take as long as one transport
_AT_ONCE = 1 << 18  # pairs of values handled at once


class _EvidenceList:
    """Evidence about some states, one row each: l(z; e), the largest 1, and how many records are known.

    The rows as they were listed are merged into groups of equal l: ``_order`` has them group by group,
    ``_starts`` says where each group begins.  Row 0 is nothing at all.
    """

    def __init__(self, likelihood: Array, count: Ints, most: int | None) -> None:
        self.most = most
        allowed = count <= (np.inf if most is None else most)
        rows = np.flatnonzero(likelihood.any(axis=1) & allowed)
        if len(rows) < len(likelihood):
            likelihood = likelihood[rows]
        with np.errstate(divide="ignore"):
            logs = np.log(likelihood / likelihood.max(axis=1, keepdims=True))
        keys = np.round(logs / _GRID) + 0.0  # −0 + 0 is 0: equal rows have equal bits
        if most is not None:
            keys = np.column_stack([keys, count[rows]])
        mixed = keys.view(np.int64) @ np.cumprod(np.full(keys.shape[1], _MIX))
        order = np.argsort(mixed, kind="stable")
        fresh = np.diff(mixed[order], prepend=~mixed[order[:1]]) != 0
        alike = np.flatnonzero(~fresh)  # as a rule these are equal; if not, they stay apart
        fresh[alike] = (keys[order[alike]] != keys[order[alike - 1]]).any(axis=1)
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.argsort(np.argsort(order[fresh]))[np.cumsum(fresh) - 1]  # by their first rows
        order = np.argsort(group, kind="stable")
        self._starts = np.searchsorted(group[order], np.arange(int(fresh.sum())))
        self._order = rows[order]
        first = order[self._starts]
        self.likelihood, self.count = np.exp(logs[first]), count[rows[first]]

    def __len__(self) -> int:
        return len(self._starts)

    def messages(self, costs: _ListMessages) -> Array:
        """Return m(z, z'; e), shape (rows, states, states); what e excludes is not to be read."""
        found = self._compute_messages(self._order, costs)
        if len(self._starts) < len(self._order):
            found = np.maximum.reduceat(found, self._starts, axis=0)
        return found

    def known(self, row: int) -> dict[int, int]:
        """Return what a row knows: the value of level j under j, the row of child c under ~c."""
        return self._known_records(int(self._order[self._starts[row]]))

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        raise NotImplementedError

    def _known_records(self, row: int) -> dict[int, int]:
        raise NotImplementedError


class _NoEvidence(_EvidenceList):
    """Nothing can be known, and nothing lies beyond."""

    def __init__(self, states: int, most: int | None) -> None:
        super().__init__(np.ones((1, states)), np.zeros(1, dtype=np.int64), most)

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        return np.zeros((1, *(self.likelihood.shape[1],) * 2))

    def _known_records(self, row: int) -> dict[int, int]:
        return {}


class _ChildEvidence(_EvidenceList):
    """What may be known beyond a child; ``label`` is the state of its root at every state here.

    Every possible state of the root is one of those: rows that differ there differ here.
    """

    def __init__(self, part: _EvidenceList, number: int, label: Ints) -> None:
        self.likelihood, self.count, self.most = part.likelihood[:, label], part.count, part.most
        self._order = self._starts = np.arange(len(part))
        self._number, self._label = number, label

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        return costs.below[self._number][rows][:, self._label][:, :, self._label]

    def _known_records(self, row: int) -> dict[int, int]:
        return {~self._number: row}


class _KnownNodeEvidence(_EvidenceList):
    """What may be known beyond a node, once its value is known: ``end`` is the longer prefix."""

    def __init__(self, part: _EvidenceList, end: Ints, law: Array) -> None:
        super().__init__(_product_of_laws(part.likelihood[:, end], law), part.count, part.most)
        self._part, self._end = part, end

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        return costs.messages_of(self._part)[rows][:, self._end][:, :, self._end]

    def _known_records(self, row: int) -> dict[int, int]:
        return self._part.known(row)


class _JoinedEvidence(_EvidenceList):
    """Two independent lists about the same states, every row of one with every row of the other."""

    def __init__(self, first: _EvidenceList, second: _EvidenceList, room: _Budget) -> None:
        states = first.likelihood.shape[1]
        room.spend(len(first) * len(second) * states**2 // _JOINS)
        likelihood = _product_of_laws(first.likelihood[:, None], second.likelihood).reshape(-1, states)
        super().__init__(likelihood, (first.count[:, None] + second.count).ravel(), first.most)
        self._parts = first, second

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        first, second = self._parts
        i, j = np.divmod(rows, len(second))
        return up_array(costs.messages_of(first)[i] + costs.messages_of(second)[j], 4.0)

    def _known_records(self, row: int) -> dict[int, int]:
        first, second = self._parts
        i, j = divmod(row, len(second))
        return first.known(i) | second.known(j)


class _NodeEvidence(_EvidenceList):
    """Evidence at a node and beyond it, about the prefixes after which the node is revealed.

    The node is unknown (these rows come first), or has a known value; all that is beyond is then seen from
    the prefixes with this value.
    """

    def __init__(self, place: int, level: Level, beyond: _EvidenceList, knowable: bool) -> None:
        self._place, self._level, self._beyond = place, level, beyond
        joint = _product_of_laws(level.law, beyond.likelihood[:, level.longer])  # (rows, slots, prefixes)
        total = joint.sum(axis=1)
        self._law = joint / np.where(total > 0, total, 1.0)[:, None]
        self._given: list[_KnownNodeEvidence] = []
        for value in range(len(level.values)) if knowable else ():
            here = (level.value == value) & (level.law > 0)
            end = level.longer[here.argmax(axis=0), np.arange(len(here[0]))]
            self._given.append(_KnownNodeEvidence(beyond, end, (level.law * here).sum(axis=0)))
        likelihood = np.concatenate([total, *(part.likelihood for part in self._given)])
        count = np.concatenate([beyond.count, *(part.count + 1 for part in self._given)])
        super().__init__(likelihood, count, beyond.most)

    def _compute_messages(self, rows: Ints, costs: _ListMessages) -> Array:
        prefixes = self._level.law.shape[1]
        found = np.zeros((len(rows), prefixes, prefixes))
        unknown = np.flatnonzero(rows < len(self._beyond))
        some = rows[unknown]
        longer = costs.messages_of(self._beyond)[some]
        found[unknown] = costs.revealed(self._place, self._level, self._law[some], longer)
        start = len(self._beyond)
        for part in self._given:
            here = np.flatnonzero((rows >= start) & (rows < start + len(part)))
            if len(here):
                found[here] = costs.messages_of(part)[rows[here] - start]
            start += len(part)
        return found

    def _known_records(self, row: int) -> dict[int, int]:
        if row < len(self._beyond):
            return self._beyond.known(row)
        row -= len(self._beyond)
        for (value,), part in zip(self._level.values.tolist(), self._given, strict=True):
            if row < len(part):
                return {self._place: value} | part.known(row)
            row -= len(part)
        raise IndexError(row)


class _ListMessages:
    """The messages of the lists of one task at one α, each computed once.

    ``below`` are those of its children; ``own[j]`` is the price of every change at level j.
    """

    def __init__(self, below: Sequence[Array], own: Sequence[Array], slack: float, guard: Guard) -> None:
        self.below, self._own, self._slack, self._guard = below, own, slack, guard
        self._found: dict[_EvidenceList, Array] = {}

    def messages_of(self, listed: _EvidenceList) -> Array:
        """Return the messages of a list."""
        if listed not in self._found:
            self._found[listed] = listed.messages(self)
        return self._found[listed]

    def revealed(self, place: int, level: Level, law: Array, longer: Array) -> Array:
        """Return m(z, z'; e) of the prefixes of an unknown node from those of the longer prefixes.

        ``law`` has axes (e, slot, prefix), ``longer`` and the result (e, prefix, prefix).
        """
        rows, slots, count = law.shape
        found = np.zeros((rows, count, count))
        to, value = level.longer.T, level.value.T
        step = max(1, _AT_ONCE // (count * slots) ** 2)
        for start in range(0, rows, step):
            self._guard.check()
            there = np.asarray(law[start : start + step].any(axis=1))
            e, z, y = np.nonzero(there[:, :, None] & there[:, None, :] & ~np.eye(count, dtype=bool))
            e += start
            d = longer[e[:, None, None], to[z][:, :, None], to[y][:, None, :]]
            d += self._own[place][value[z][:, :, None], value[y][:, None, :]]
            d = up_array(d, 8.0)
            cost = transport(law[e, :, z], law[e, :, y], d) + self._slack
            found[e, z, y] = np.minimum(cost, d.max(axis=(1, 2), initial=0.0))
        return found


@dataclass(frozen=True, eq=False)
class _TaskLists:
    """What may be known beyond a task: lists about its root, independent given its state, and all in one."""

    levels: tuple[Level, ...]
    parts: tuple[_EvidenceList, ...]
    whole: _EvidenceList


class _Budget:
    """What is left of the work budget, in pairs of states."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def spend(self, pairs: int) -> None:
        """Spend some, or refuse."""
        self.require(pairs)
        self._left -= pairs

    def require(self, pairs: int) -> None:
        """Refuse if so many are not left."""
        if pairs > self._left:
            raise ModelTooWide(
                f"all that may be known takes {self._most - self._left + pairs:,} transports or more,"
                f" the limit is {self._most:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )


def _product_of_laws(first: Array, second: Array) -> Array:
    """Return the product of probabilities; refuse one that may have lost its digits."""
    found = first * second
    if ((found < _LEAST) & (first > 0) & (second > 0)).any():
        raise ModelTooWide("some states are too improbable to list all that may be known")
    return np.asarray(found)


@register(
    "listed-evidence",
    against=INFORMED,
    kind="certified bound",
    says="sequential coupling given each thing that may be known, one by one",
)
class ListedEvidenceBound:
    """Sequential coupling, once for everything that may be known (method ``"listed-evidence"``).

    Parameters
    ----------
    problem
        A model and an adversary for which few things may be known; any units.

    Raises
    ------
    ModelTooWide
        In ``prepare``, naming how much may be known.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> ready(ListedEvidenceBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._units = problem, problem.listed()
        model, adversary = problem.model, problem.adversary
        named = model.records if adversary.records is None else adversary.records
        self._may_know = {model.index[n] for n in named if n in model.index}
        self._most = adversary.at_most

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List everything that may be known; where cliques are too wide, condition the model on each."""
        self._conditioned: ConditionedModels | None = None
        try:
            self._list_all_evidence(workspace, budget)
        except ModelTooWide:
            if self._problem.adversary == INFORMED:
                raise
            self._conditioned = ConditionedModels(self._problem, workspace, budget)

    def _list_all_evidence(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List everything that may be known, with the laws it leaves; equal tasks share their lists."""
        model = self._problem.model
        walk = self._schedule = schedule(
            model, self._units, max_entries=budget.entries, max_states=budget.states, workspace=workspace
        )
        self._guard = workspace.guard
        room = _Budget(budget.pairs // _PAIR)
        first: dict[Hashable, int] = {}
        self._lists: list[_TaskLists] = []
        self._class: list[int] = []  # for every task the first that is equal to it
        self._number = {task: number for number, task in enumerate(walk.tasks)}
        for number, task in enumerate(walk.tasks):
            self._guard.check()
            order = task.order()  # here, not of all at once: the lists of most wide models end soon
            knowable = (n in self._may_know for n in task.new)
            key = (order.signature, *knowable, *(self._class[c] for c, _ in task.children))
            self._class.append(first.setdefault(key, number))
            if self._class[number] < number:
                self._lists.append(self._lists[self._class[number]])
                continue
            below = [self._lists[c].whole for c, _ in task.children]
            self._lists.append(self._task_lists(task, order, below, room, join=number < walk.edges))
        # a law is a quotient of sums of products of conditional probabilities, a few roundings for each;
        # merged likelihoods are off by one grid for every list below
        states = max(model.cardinality(n) for n in model.nodes)
        lists = sum(3 * len(task.new) + 2 * len(task.children) for task in walk.tasks)
        self._slack = 4.0 * (len(model.nodes) * (walk.slack + (states + 8) * EPS) + lists * _GRID)
        self._under = [walk.under(number) for number in range(walk.edges, len(walk.tasks))]
        self._asked = b""  # the last α, and what was computed there
        self._found: dict[int, tuple[Array, ...]] = {}

    def _task_lists(
        self, task: RootedClique, order: Order, below: Sequence[_EvidenceList], room: _Budget, *, join: bool
    ) -> _TaskLists:
        """Return the lists of a task, made from those of its children."""
        shown: list[list[_EvidenceList]] = [[] for _ in range(len(order.levels) + 1)]
        for c, (at, label) in enumerate(order.shown):
            shown[at].append(_ChildEvidence(below[c], c, label))
        beyond: _EvidenceList = _NoEvidence(len(task.clique.states), self._most)
        for place, level in reversed(list(enumerate(order.levels))):
            for part in shown[place + 1]:
                beyond = part if isinstance(beyond, _NoEvidence) else _JoinedEvidence(beyond, part, room)
            room.spend(len(beyond) * level.work)
            beyond = _NodeEvidence(place, level, beyond, level.nodes[0] in self._may_know)
        parts = (beyond, *shown[0]) if order.levels or not shown[0] else tuple(shown[0])
        whole = parts[0]
        for part in parts[1:] if join else ():
            whole = _JoinedEvidence(whole, part, room)
        return _TaskLists(order.levels, parts, whole)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        known, low, high = need.fill_unknown(len(self._units))
        alpha = np.asarray(alpha, dtype=np.float64)
        values, witness = np.array(known), {}
        if self._conditioned is not None:
            return self._conditioned.evaluate(alpha, need)
        if float(alpha.sum()) > FARTHEST:
            return Bounds(values, "listed-evidence")
        if self._asked != alpha.tobytes():
            self._asked, self._found = alpha.tobytes(), {}
            self._prices = Prices(self._problem, alpha)
            self._same = self._schedule.classes(
                lambda task: (self._class[self._number[task]], self._prices.key((*task.root, *task.new)))
            )
        order = np.argsort(-known, kind="stable")
        for place, k in enumerate(order.tolist()):
            enough = need.count and np.count_nonzero(values[order[:place]] >= known[k]) >= need.count
            if known[k] <= low or enough:
                break
            found, evidence = self._largest_leakage(k)
            if found < values[k]:
                values[k], witness[k] = found, {"known": sorted(evidence), "evidence": evidence}
            if high < math.inf:  # only the largest is asked for
                low = max(low, float(values[k]))
            if values[k] > high:
                break
        return Bounds(values, "listed-evidence", "certified bound", witness, partial=need.partial)

    def _messages_beyond(self, number: int) -> tuple[Array, ...]:
        """Return the messages beyond an edge, in one, or of the independent parts around a unit."""
        first = self._same[number]
        if first not in self._found:
            task, lists = self._schedule.tasks[first], self._lists[first]
            below = [self._found[self._same[c]][0] for c, _ in task.children]
            own = [
                self._prices.between((n,), level.values)
                for n, level in zip(task.new, lists.levels, strict=True)
            ]
            costs = _ListMessages(below, own, self._slack, self._guard)
            wanted = (lists.whole,) if first < self._schedule.edges else lists.parts
            self._found[first] = tuple(costs.messages_of(part) for part in wanted)
        return self._found[first]

    def _largest_leakage(self, k: int) -> tuple[float, dict[str, int]]:
        """Return the largest leakage of a unit over all adversaries, and what the worst one knows."""
        number = self._schedule.edges + k
        for edge in self._under[k]:
            self._messages_beyond(edge)
        task, parts = self._schedule.tasks[number], self._lists[number].parts
        own = self._prices.between(task.root, task.root_states)
        np.fill_diagonal(own, -np.inf)
        # by how many records are known: the largest sum so far, and the row of every part that gives it
        best: dict[int, tuple[Array, Ints]] = {0: (own, np.zeros((0, *own.shape), dtype=np.int64))}
        for part, messages in zip(parts, self._messages_beyond(number), strict=True):
            best = self._combine_part(part, messages, best)
        total, chosen = max(best.values(), key=lambda found: float(found[0].max()))
        top = float(total.max())
        if top <= 0.0:
            return 0.0, {}
        z, y = np.unravel_index(int(total.argmax()), total.shape)
        rows = chosen[:, z, y].tolist()
        nodes = self._problem.model.nodes
        known: dict[str, int] = {}
        waiting = [(number, part, row) for part, row in zip(parts, rows, strict=True)]
        while waiting:
            number, part, row = waiting.pop()
            task = self._schedule.tasks[number]
            for place, value in part.known(row).items():
                if place >= 0:
                    known[nodes[task.new[place]]] = value
                else:
                    child = task.children[~place][0]
                    waiting.append((child, self._lists[child].whole, value))
        return up(top, 16.0 + len(task.root) + 2.0 * len(parts)), known

    def _combine_part(
        self, part: _EvidenceList, messages: Array, best: Mapping[int, tuple[Array, Ints]]
    ) -> dict[int, tuple[Array, Ints]]:
        """Add what one more part tells, for every number of known records."""
        possible = part.likelihood > 0
        messages = np.where(possible[:, :, None] & possible[:, None, :], messages, -np.inf)
        count = part.count if self._most is not None else np.zeros_like(part.count)
        longer: dict[int, tuple[Array, Ints]] = {}
        for here in sorted(set(count.tolist())):
            rows = np.flatnonzero(count == here)
            gain, row = messages[rows].max(axis=0), rows[messages[rows].argmax(axis=0)]
            for before, (total, chosen) in best.items():
                number = before + here
                if self._most is not None and number > self._most:
                    continue
                value, rest = total + gain, np.concatenate([chosen, row[None]])
                if number in longer:
                    old, kept = longer[number]
                    value, rest = np.maximum(old, value), np.where(value > old, rest, kept)
                longer[number] = value, rest
        return longer

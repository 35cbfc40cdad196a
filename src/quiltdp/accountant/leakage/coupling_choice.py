"""Sequential coupling over chosen pairs of states, for trees with too many pairs to compare them all.

A coupling that follows the guess (:mod:`.coupling_guess`) from every unit downwards visits pairs with
some mass.  Pairs with enough mass are compared.  A pair (z, z'') with less is bounded by the triangle
inequality m(z, z'') ≤ m(z, z') + m(z', z'') along single changes through possible states, which gathers
the mass of many rare pairs on few; what is left gets the Σ α of the records beyond.  All of it is sound
whatever is chosen: every comparison proves its own value.

*Assumes*: what :mod:`.coupling` does.  *Cost*: one pass over the tree from every unit, with only the pairs
that are chosen kept.  *Reference*: docs/theory.md, section 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.coupling_guess import Features, Guesses
from quiltdp.accountant.leakage.ties import Array, Ties, best_ties, transported
from quiltdp.accountant.trade_offs import CHOICES_AT_ONCE, COUPLING_FAINT
from quiltdp.inference.coupling_tree import CouplingTree, Ints, Reveal, Step
from quiltdp.work import Guard

__all__ = ["ChosenLevel", "ChosenReveal", "choose"]


@dataclass(frozen=True, eq=False)
class ChosenLevel:
    """The pairs of states after some steps that have a value, and where to read it.

    Values are numbered: first the compared pairs, then the paths, then the cap, then 0.

    Attributes
    ----------
    count
        How many states there are.
    codes
        first · count + second of the compared pairs, in increasing order.
    path_codes, paths
        The same for the pairs that are bounded along a path, and the values to be added up.
    """

    count: int
    codes: Ints
    path_codes: Ints
    paths: NDArray[np.int32]

    def find(self, first: Ints, second: Ints) -> NDArray[np.int32]:
        """Return the number of the value of every pair."""
        code = first * self.count + second
        compared, paths = len(self.codes), len(self.path_codes)
        found = np.full(code.shape, compared + paths, dtype=np.int32)
        for known, offset in ((self.path_codes, compared), (self.codes, 0)):
            if len(known):
                at = np.minimum(np.searchsorted(known, code), len(known) - 1)
                found = np.where(known[at] == code, (at + offset).astype(np.int32), found)
        return np.where(first == second, np.int32(compared + paths + 1), found)


@dataclass(frozen=True, eq=False)
class ChosenReveal:
    """What is compared at one reveal: a level before every step, one after the last, and the trees.

    ``cells[k]`` numbers, for every pair before step k and every two of its slots, the value after it;
    ``beyond[c]`` the value in the message of clique c for every pair after the last step.
    """

    reveal: Reveal
    levels: tuple[ChosenLevel, ...]
    cells: tuple[NDArray[np.int32], ...]
    ties: tuple[Ties, ...]
    beyond: tuple[NDArray[np.int32], ...]

    @property
    def pairs(self) -> int:
        """How many pairs are compared."""
        return sum(len(level.codes) for level in self.levels[:-1])


class _Demand:
    """Mass that arrives at pairs of states of one level."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._codes: list[Ints] = []
        self._mass: list[Array] = []

    def add(self, first: Ints, second: Ints, mass: Array) -> None:
        apart = (first != second) & (mass > 0.0)
        if apart.any():
            codes, mass = _merged(first[apart] * self.count + second[apart], mass[apart])
            self._codes.append(codes)
            self._mass.append(mass)

    def total(self) -> tuple[Ints, Array]:
        if not self._codes:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        return _merged(np.concatenate(self._codes), np.concatenate(self._mass))


def _merged(codes: Ints, mass: Array) -> tuple[Ints, Array]:
    distinct, where = np.unique(codes, return_inverse=True)
    total = np.bincount(where.ravel(), weights=mass, minlength=len(distinct))
    return distinct, np.asarray(total, dtype=np.float64)


def choose(
    tree: CouplingTree, weights: Vector, threshold: Array, guard: Guard, most: int
) -> tuple[list[ChosenReveal], list[ChosenReveal]] | None:
    """Return what is compared for every message and unit, or ``None`` when it would be more than ``most``.

    Parameters
    ----------
    weights
        α up to a factor: it shapes the coupling that is followed.
    threshold
        For every unit the mass from which on a pair is worth a comparison.
    """
    guesses = Guesses(tree, weights)
    scale = 0.02 / max(float(weights.sum()), 1e-300)
    demands = [_Demand(reveals[0].count) for reveals in tree.messages]
    picked: dict[int, _Picked] = {}
    left = most
    units = []
    for reveals, least in zip(tree.units, threshold.tolist(), strict=True):
        start = _Demand(reveals[0].count)
        first, second = np.nonzero(~np.eye(reveals[0].count, dtype=bool))
        start.add(first, second, np.full(len(first), 1.0 / least))
        units.append(_Picked(reveals[0], start, guesses, weights * scale, scale, guard, left))
        left -= units[-1].pairs
        if left < 0:
            return None
        units[-1].send(demands)
    for k in range(len(tree.messages) - 1, -1, -1):
        picked[k] = _Picked(tree.messages[k][0], demands[k], guesses, weights * scale, scale, guard, left)
        left -= picked[k].pairs
        if left < 0:
            return None
        picked[k].send(demands)
    messages = [picked[k] for k in range(len(tree.messages))]
    return [m.finished(messages) for m in messages], [u.finished(messages) for u in units]


class _Picked:
    """One reveal on its way down: which pairs of every level are compared, and what they send on."""

    def __init__(
        self,
        reveal: Reveal,
        demand: _Demand,
        guesses: Guesses,
        alpha: Vector,
        scale: float,
        guard: Guard,
        most: int,
    ) -> None:
        self.reveal = reveal
        self.levels: list[ChosenLevel] = []
        self.ties: list[Ties] = []
        self.pairs = 0
        features = guesses.levels(reveal)
        for k, step in enumerate(reveal.steps):
            level, mass = _selected(reveal, k, step.count, *demand.total(), features[k])
            self.pairs += len(level.codes) * (8 + step.slots**3) // 72
            if self.pairs > most:
                return
            guard.check()
            self.levels.append(level)
            after = len(reveal.steps[k + 1].law[0]) if k + 1 < len(reveal.steps) else len(reveal.states)
            demand = _Demand(after)
            self.ties.append(_followed(step, level, mass, features[k + 1], alpha, scale, demand))
        codes, self._mass = demand.total()
        none = np.zeros(0, dtype=np.int64)
        self.levels.append(ChosenLevel(demand.count, codes, none, np.zeros((0, 0), dtype=np.int32)))

    def send(self, demands: Sequence[_Demand]) -> None:
        """Send the mass after the last step to the cliques beyond."""
        first, second = np.divmod(self.levels[-1].codes, self.levels[-1].count)
        for k, shown in self.reveal.beyond:
            demands[k].add(shown[first], shown[second], self._mass)

    def finished(self, messages: Sequence[_Picked]) -> ChosenReveal:
        """Return the choice with every value numbered."""
        cells = []
        for k, step in enumerate(self.reveal.steps):
            first, second = np.divmod(self.levels[k].codes, step.count)
            one, two = step.after[:, first], step.after[:, second]
            slots = step.slots
            wide = (slots, slots, len(first))
            numbers = self.levels[k + 1].find(
                np.broadcast_to(one[:, None], wide).reshape(slots * slots, -1),
                np.broadcast_to(two[None, :], wide).reshape(slots * slots, -1),
            )
            cells.append(numbers)
        first, second = np.divmod(self.levels[-1].codes, self.levels[-1].count)
        beyond = [messages[k].levels[0].find(shown[first], shown[second]) for k, shown in self.reveal.beyond]
        return ChosenReveal(self.reveal, tuple(self.levels), tuple(cells), tuple(self.ties), tuple(beyond))


def _followed(
    step: Step,
    level: ChosenLevel,
    mass: Array,
    features: Features,
    alpha: Vector,
    scale: float,
    demand: _Demand,
) -> Ties:
    """Couple the two laws of every pair as the guess suggests; send the mass on; return the trees."""
    first, second = np.divmod(level.codes, step.count)
    slots = step.slots
    own = np.zeros((len(step.values),) * 2)
    for column, node in enumerate(step.nodes):
        x = step.values[:, column]
        own += alpha[node] * (x[:, None] != x[None, :])
    found = []
    block = max(1, CHOICES_AT_ONCE // (slots * slots + slots * features.shape[1]))
    for at in range(0, len(first), block):
        a, b = first[at : at + block], second[at : at + block]
        one, two = step.after[:, a], step.after[:, b]
        here, there = features[one], features[two]
        d = np.empty((slots * slots, len(a)))
        for i in range(slots):
            for j in range(slots):
                apart = np.abs(here[i] - there[j]).sum(axis=1, dtype=np.float64)
                d[i * slots + j] = scale * apart + own[step.value[i, a], step.value[j, b]]
        p, q = step.law[:, a], step.law[:, b]
        ties = best_ties(p, q, d)
        share = transported(p, q, d, ties) * mass[at : at + block]
        columns = np.broadcast_to(np.arange(len(a)), share.shape)
        demand.add(
            one[ties.cell // slots, columns].ravel(), two[ties.cell % slots, columns].ravel(), share.ravel()
        )
        found.append(ties)
    if not found:
        return best_ties(step.law[:, :0], step.law[:, :0], np.zeros((slots * slots, 0)))
    return Ties(
        slots,
        slots,
        np.concatenate([t.cell for t in found], axis=1),
        np.concatenate([t.side for t in found], axis=1),
    )


def _selected(
    reveal: Reveal, k: int, count: int, codes: Ints, mass: Array, features: Features
) -> tuple[ChosenLevel, Array]:
    """Return the pairs of a level that are compared and those that follow a path, and the former's mass."""
    heavy = mass >= 1.0
    light = np.flatnonzero(~heavy & (mass >= 1e-3))
    paths = _Paths(reveal.prefixes(k), codes[light], count, codes[heavy], features)
    edges, weight = paths.edges(mass[light])
    kept_codes, kept_mass = _merged(
        np.concatenate([codes[heavy], edges]), np.concatenate([mass[heavy], weight])
    )
    stay = (kept_mass >= COUPLING_FAINT) | np.isin(kept_codes, codes[heavy])
    kept_codes, kept_mass = kept_codes[stay], kept_mass[stay]
    path_codes, parts = paths.through(kept_codes)
    return ChosenLevel(count, kept_codes, path_codes, parts), kept_mass


class _Paths:
    """Ways from the first state of a pair to the second, through possible states.

    Two legs where one of them is a single change and the other a pair that is compared anyway (or a
    single change too); otherwise single changes, one column after the other.
    """

    def __init__(self, states: Ints, codes: Ints, count: int, compared: Ints, features: Features) -> None:
        self._codes = codes
        sizes = states.max(axis=0, initial=0) + 1
        self._stride = np.append(np.cumprod(sizes[:0:-1])[::-1], 1) if len(sizes) else sizes
        self._states, self._number = states, states @ self._stride
        first, second = np.divmod(codes, count)
        apart = (states[first] != states[second]).sum(axis=1)
        self._legs = np.full((max(2, states.shape[1]), len(codes)), -1, dtype=np.int64)
        self._good = apart < 2
        self._legs[0, self._good] = codes[self._good]
        best = np.full(len(codes), np.inf)
        for column in range(states.shape[1]):
            for here, there, swap in ((first, second, False), (second, first, True)):
                self._two_legs(column, here, there, swap, apart, count, compared, features, best)
        left = np.flatnonzero(~self._good)
        self._one_by_one(left, first[left], second[left], count)

    def _changed(self, here: Ints, there: Ints, column: int) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the state ``here`` with one column as in ``there``, and whether it is possible."""
        move = (self._states[there, column] - self._states[here, column]) * self._stride[column]
        target = self._number[here] + move
        at = np.minimum(np.searchsorted(self._number, target), len(self._number) - 1)
        return at, self._number[at] == target

    def _two_legs(
        self,
        column: int,
        here: Ints,
        there: Ints,
        swap: bool,
        apart: Ints,
        count: int,
        compared: Ints,
        features: Features,
        best: Array,
    ) -> None:
        """Try the way that changes one column of ``here`` on its own; keep it where it looks shortest."""
        asked = np.flatnonzero((apart > 1) & (self._states[here, column] != self._states[there, column]))
        a, b = here[asked], there[asked]
        middle, possible = self._changed(a, b, column)
        single = middle * count + a if swap else a * count + middle
        rest = b * count + middle if swap else middle * count + b
        if len(compared):
            at = np.minimum(np.searchsorted(compared, rest), len(compared) - 1)
            possible &= (compared[at] == rest) | (apart[asked] == 2)
        else:
            possible &= apart[asked] == 2
        asked, a, middle, b = asked[possible], a[possible], middle[possible], b[possible]
        length = _apart(features, a, middle) + _apart(features, middle, b)
        better = length < best[asked]
        asked = asked[better]
        best[asked] = length[better]
        self._legs[0, asked] = single[possible][better]
        self._legs[1, asked] = rest[possible][better]
        self._good[asked] = True

    def _one_by_one(self, which: Ints, first: Ints, second: Ints, count: int) -> None:
        here, good = first.copy(), np.ones(len(first), dtype=bool)
        for column in range(self._states.shape[1]):
            at, possible = self._changed(here, second, column)
            good &= possible
            at = np.where(good, at, here)
            moved = at != here
            self._legs[column, which[moved]] = here[moved] * count + at[moved]
            here = at
        self._good[which] = good

    def edges(self, mass: Array) -> tuple[Ints, Array]:
        """Return the legs of all paths with the mass that follows them; no path: the pair itself."""
        used = (self._legs >= 0) & self._good
        weight = np.broadcast_to(mass, used.shape)[used]
        return (
            np.concatenate([self._legs[used], self._codes[~self._good]]),
            np.concatenate([weight, mass[~self._good]]),
        )

    def through(self, known: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """Return the pairs with a path through known pairs, and the places of its parts (−1: none)."""
        if not len(known) or not len(self._codes):
            return np.zeros(0, dtype=np.int64), np.zeros((len(self._legs), 0), dtype=np.int32)
        at = np.minimum(np.searchsorted(known, self._legs), len(known) - 1)
        hit = known[at] == self._legs
        good = self._good & (hit | (self._legs < 0)).all(axis=0)
        good &= ~np.isin(self._codes, known)
        parts = np.where(hit, at, -1)[:, good].astype(np.int32)
        order = np.argsort(self._codes[good])
        return self._codes[good][order], parts[:, order]


def _apart(features: Features, first: Ints, second: Ints) -> Array:
    """Return the guess for pairs of states."""
    found = np.zeros(len(first))
    block = max(1, CHOICES_AT_ONCE // max(1, features.shape[1]))
    for at in range(0, len(first), block):
        part = slice(at, at + block)
        found[part] = np.abs(features[first[part]] - features[second[part]]).sum(axis=1)
    return found

"""How far evidence beyond a separator can couple two of its sides: J, by the two-point maximum.

For a separator Z, a bipartition P | Q of its nodes and states z = (p, q), z' = (p', q'),

    J(z, z'; P) ≥ ln [ l(p,q) l(p',q') / (l(p',q) l(p,q')) ]    for every evidence beyond the separator,

l(z) = P(evidence | z), whenever l(p,q) l(p',q') > 0; ∞ if the denominator may vanish then.  No evidence
at all has l = 1, so J ≥ 0.  J knows nothing of mechanisms: it is a property of the model.

**Recursion** over the clique V ⊃ Z, its known nodes K, its tilted nodes u and its children c (each may or
may not hold evidence), with cross ratios

    C(z, z'; u, u') = ln [P(u,K|z) P(u',K|z')] / [P(u,K|z') P(u',K|z)] + Σ_c J_c((z,u), (z',u'); Z)
    E(u, u') = ln [P(u,K|p,q) P(u',K|p',q')] / [P(u,K|p',q) P(u',K|p,q')] + Σ_c J_c((p,q,u), (p',q',u'); P)

J is at most the two-point maximum (:mod:`.two_point`) with μ = E and tilt C((p',q), (p',q'); u, u'); the
range of t is C((p,q'), (p',q'); u, u').

*Proof.*  The likelihood of a child touches u and z only, so l(z) = Σ_u P(u,K|z) Π_c l_c(z,u).  Write
R(q; u) for the quotient of the u-th terms of l(p,q) and l(p',q), and π for the law of u given the evidence.
If E is finite wherever P(u,K|p,q) P(u',K|p',q') > 0, then u possible at (p,q) is possible at (p',q), u'
possible at (p',q') is possible at (p,q'), and

    l(p,q) l(p',q') / (l(p',q) l(p,q')) = E_{π(p',q)} R(q; ·) / E_{π(p',q')} R(q'; ·):

two laws with tilt C((p',q), (p',q')) and two functions with R(q; u) ≤ e^{E(u,u')} R(q'; u').  Where a pair
has no finite tilt, or E is infinite, the maximum of E is the answer, and it always is an upper bound: it
compares the two products of sums term by term.  Relabelling P and Q, or the two corners, proves three
more bounds; the least is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.evidence import Part, Seen
from quiltdp.inference.plan import RECTANGLES_AT_ONCE
from quiltdp.inference.two_point import PointPairs, raise_to_pairs

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Interaction:
    """J of one separator, for every pair of its states and every set of its nodes.

    ``values[s, k]`` is the value of node k in state s; ``table[P, s, s']`` has one layer for every set P
    of nodes, written as a bit mask; ``None`` stands for ∞ wherever P | Q divides what differs.
    """

    nodes: tuple[int, ...]
    values: Ints
    table: Array | None

    def mask(self, nodes: Collection[int]) -> int:
        """Return the bit mask of the nodes of the separator among ``nodes``."""
        return sum(1 << k for k, n in enumerate(self.nodes) if n in nodes)

    def between(self, mask: Ints | int, first: Ints, second: Ints) -> Array:
        """Return J(first, second; mask); the arguments broadcast."""
        if self.table is not None:
            states = self.table.shape[1]
            known: Array = self.table.take((mask * states + first) * states + second)
            return known
        differ = self._difference_masks(first, second)
        cut = differ & mask
        return np.where((cut == 0) | (cut == differ), 0.0, np.inf)

    def _difference_masks(self, first: Ints, second: Ints) -> Ints:
        found = np.zeros(np.broadcast_shapes(np.shape(first), np.shape(second)), dtype=np.int64)
        for k in range(len(self.nodes)):
            found |= (self.values[first, k] != self.values[second, k]).astype(np.int64) << k
        return found


@dataclass(frozen=True, eq=False)
class _Rectangles:
    """Rectangles (p,q), (p',q'), (p',q), (p,q') of possible states, with the mask of P."""

    mask: Ints
    first: Ints
    second: Ints
    turned: Ints  # (p', q)
    other: Ints  # (p, q')

    def __len__(self) -> int:
        return len(self.mask)

    def cut(self, some: slice | Ints) -> _Rectangles:
        """Return some of them."""
        return _Rectangles(
            self.mask[some], self.first[some], self.second[some], self.turned[some], self.other[some]
        )


def rectangles(seen: Seen) -> int:
    """Return how many pairs the interaction of a root compares: rectangles times pairs of tilted states."""
    nodes = len(seen.task.root)
    if nodes < 2:
        return 0
    inner = 0
    for choice in seen.choices(each=False):
        values, width = (seen.count(some) for some in (choice.known, choice.tilted))
        inner += values * width**2
    return int(inner * seen.task.count**2 * 2 ** max(0, nodes - 2))


def interaction(seen: Seen, beyond: Sequence[Interaction], *, slack: float, most: int) -> Interaction:
    """Return J of the root of a task.

    Parameters
    ----------
    seen
        The task, and what may be known in it.
    beyond
        The interactions of its children.
    slack
        How far ln of a conditional probability may be from the truth.
    most
        The most pairs compared; beyond it J is ∞ where it matters.
    """
    nodes, values, count = seen.task.root, seen.task.root_states, seen.task.count
    if len(nodes) < 2 or 2 ** len(nodes) * count**2 > most or rectangles(seen) > most:
        return Interaction(nodes, values, None)
    corners, impossible = _list_rectangles(values)
    best = np.zeros(len(corners))
    ways: dict[tuple[int, int], _Rectangles] = {}
    coupled = {
        c: _CoupledChild(seen, c, beyond[c])
        for c, knowable in enumerate(seen.knowable)
        if knowable and len(beyond[c].nodes) > 1  # otherwise its evidence couples nothing
    }
    for choice in seen.choices(each=False):
        part = seen.part(choice)
        tilts = cross_ratios(seen, part, choice.children, beyond, slack)
        here = _ChoiceLaw(part.log_p, part.state, [coupled[c] for c in choice.children if c in coupled])
        step = max(1, RECTANGLES_AT_ONCE // (4 * len(part.log_p) * part.log_p.shape[2] ** 2))
        for start in range(0, len(corners), step):
            some = slice(start, start + step)
            if (step, start) not in ways:
                ways[step, start] = _corner_swaps(corners.cut(some), 2 ** len(nodes) - 1)
            _raise_interaction(best[some], here, ways[step, start], tilts, slack)
    return Interaction(nodes, values, _fill_masks(values, corners, best, impossible))


def cross_ratios(
    seen: Seen, part: Part, children: Collection[int], beyond: Sequence[Interaction], slack: float
) -> Array:
    """Return C(z, z'; u, u'), axes (known, z, z', u, u'), rounded up; ∞ where a corner is impossible."""
    p, possible = part.log_p, part.possible
    safe = np.where(possible, p, 0.0)
    c = safe[:, :, None, :, None] + safe[:, None, :, None, :]
    c = c - safe[:, None, :, :, None] - safe[:, :, None, None, :] + 4.0 * slack
    for child in children:
        j = beyond[child]
        mask = j.mask(seen.task.root)
        if mask not in (0, 2 ** len(j.nodes) - 1):
            here = seen.task.children[child][1][part.state]
            c += j.between(mask, here[:, :, None, :, None], here[:, None, :, None, :])
    whole = possible[:, :, None, :, None] & possible[:, None, :, None, :]
    whole = whole & possible[:, None, :, :, None] & possible[:, :, None, None, :]
    return np.where(whole, c, np.inf)


class _CoupledChild:
    """A child whose root has two nodes or more, as its interaction is read from a clique."""

    def __init__(self, seen: Seen, child: int, j: Interaction) -> None:
        self.j = j
        self.label = seen.task.children[child][1]
        root = seen.task.root
        self.masks = np.zeros(2 ** len(root), dtype=np.int64)  # of the same nodes over its root
        for k, n in enumerate(root):
            self.masks[(np.arange(len(self.masks)) >> k) & 1 == 1] |= j.mask((n,))


@dataclass(frozen=True, eq=False)
class _ChoiceLaw:
    """One choice: ln P(u, known | z) and a state of every (known, z, u)."""

    log_p: Array
    state: Ints
    children: Sequence[_CoupledChild]


def _raise_interaction(best: Array, here: _ChoiceLaw, ways: _Rectangles, tilts: Array, slack: float) -> None:
    """Raise ``best`` to J with one choice: for each value of what is known the least of four ways."""
    e = _corner_ratios(here, ways) + 4.0 * slack
    values, _, width = here.log_p.shape
    through = e.max(axis=(2, 3)).reshape(values, 4, -1).min(axis=1)
    known, rectangle = np.nonzero(through > best)
    if not len(known):
        return
    found = through[known, rectangle]
    if width > 1:
        at = (np.arange(4)[:, None] * len(best) + rectangle).ravel()
        way, given, tops = ways.cut(at), np.tile(known, 4), tilts.shape[1]
        at += given * len(ways)
        value = np.tile(best[rectangle], 4)
        np.maximum(value, e.reshape(-1, width**2)[:, :: width + 1][at].max(axis=1), out=value)
        tilt_at = (given * tops + way.turned) * tops + way.second
        span_at = (given * tops + way.other) * tops + way.second
        raise_to_pairs(value, [PointPairs(e, at, tilts, tilt_at, tilts, span_at, np.arange(len(value)))])
        found = np.minimum(found, value.reshape(4, -1).min(axis=0))
    np.maximum.at(best, rectangle, found)


def _corner_swaps(c: _Rectangles, full: int) -> _Rectangles:
    """Return the same rectangles four times: with P and Q, or the two corners, in each other's place."""
    swapped = full ^ c.mask
    return _Rectangles(
        np.concatenate([c.mask, swapped, c.mask, swapped]),
        np.concatenate([c.first, c.first, c.second, c.second]),
        np.concatenate([c.second, c.second, c.first, c.first]),
        np.concatenate([c.turned, c.other, c.other, c.turned]),
        np.concatenate([c.other, c.turned, c.turned, c.other]),
    )


def _corner_ratios(here: _ChoiceLaw, corners: _Rectangles) -> Array:
    """Return E(u, u'), axes (known, rectangle, u, u'); −∞ where its numerator is impossible."""
    p, first, second = here.log_p, corners.first, corners.second
    above = p[:, first, :, None] + p[:, second, None, :]
    below = p[:, corners.turned, :, None] + p[:, corners.other, None, :]
    with np.errstate(invalid="ignore"):
        e = np.where(below > -np.inf, above - below, np.inf)
        for child in here.children:
            label = child.label[here.state]
            masks = child.masks[corners.mask][:, None, None]
            e += child.j.between(masks, label[:, first, :, None], label[:, second, None, :])
    e[above == -np.inf] = -np.inf
    return np.asarray(e)


def _differing(values: Ints) -> Ints:
    """Return the bit mask of the nodes in which two states differ, for every pair of states."""
    weights = 1 << np.arange(values.shape[1])
    return np.asarray(((values[:, None, :] != values[None, :, :]) * weights).sum(axis=2))


def _list_rectangles(values: Ints) -> tuple[_Rectangles, Array]:
    """Return every rectangle once (P holds the first differing node), and ∞ where a corner is impossible.

    The second result has axes (mask, state, state), like the table it goes into.
    """
    count, nodes = values.shape
    strides = np.append(1, np.cumprod(values.max(axis=0) + 1)[:-1])
    codes = (values * strides).sum(axis=1)
    order = np.argsort(codes)
    differ = _differing(values)
    lowest = differ & -differ
    found = []
    impossible = np.zeros((2**nodes, count, count))
    for mask in range(1, 2**nodes):
        first, second = np.nonzero((mask & ~differ == 0) & (mask & lowest != 0) & (mask != differ))
        first, second = first[first < second], second[first < second]
        column = np.array([mask >> k & 1 for k in range(nodes)])
        shift = ((values[second] - values[first]) * column * strides).sum(axis=1)
        places = []
        for code in (codes[first] + shift, codes[second] - shift):
            at = np.minimum(np.searchsorted(codes[order], code), count - 1)
            places.append(np.where(codes[order][at] == code, order[at], -1))
        there = (places[0] >= 0) & (places[1] >= 0)
        impossible[mask, first[~there], second[~there]] = np.inf
        chosen = (first[there], second[there], places[0][there], places[1][there])
        found.append((np.full(int(there.sum()), mask, dtype=np.int64), *chosen))
    columns = [np.concatenate(c).astype(np.int64) for c in zip(*found, strict=True)]
    return _Rectangles(*columns), impossible


def _fill_masks(values: Ints, corners: _Rectangles, best: Array, impossible: Array) -> Array:
    """Return the table over all masks and ordered pairs from the values of the rectangles."""
    store = impossible
    store[corners.mask, corners.first, corners.second] = np.maximum(best, 0.0)
    store = np.maximum(store, store.transpose(0, 2, 1))
    differ = _differing(values)
    lowest = differ & -differ
    first, second = np.indices(differ.shape)
    table = np.zeros_like(store)
    for mask in range(1, len(store) - 1):
        cut = differ & mask
        canonical = np.where(cut & lowest != 0, cut, differ ^ cut)
        divides = (cut != 0) & (cut != differ)
        table[mask] = np.where(divides, store[np.where(divides, canonical, 0), first, second], 0.0)
    return table

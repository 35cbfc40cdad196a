"""Lossy transport, exact laws and exact limits in 50 digits: nothing here asks the library for a number.

Laws are fractions of whole numbers made from the doubles of the model's own tables; transports are solved by
a network simplex whose answer carries its proof from above and from below, both checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from mpmath import mp, mpf

mp.dps = 50
_APART = 30  # equal costs are told apart by 10^-30, which no comparison with a double can see
_PROVED = mpf(10) ** -40  # how far, relatively, the two proofs of a transport may be apart


def exactly(x: float | Fraction) -> mpf:
    """Return a double or a fraction in 50 digits."""
    if isinstance(x, Fraction):
        return mpf(x.numerator) / mpf(x.denominator)
    return mpf(float(x))


def transport(p: Sequence[mpf], q: Sequence[mpf], d: Sequence[Sequence[mpf]]) -> mpf:
    """Return T(p, q; D) to about 28 digits, p and q on possible states only.

    A tree of ties is improved until every tie carries a non-negative flow.  Then H, G obey all constraints
    and attain t, and the flows f prove that nothing exceeds it; both are checked before the answer is given.
    """
    with mp.workdps(_digits(p, q, d)):
        n, m = len(p), len(q)
        tiny = mpf(10) ** -_APART
        e = [
            [mp.exp(d[i][j] + tiny * (mp.frac(mp.phi * (i * m + j + 1) ** 2))) for j in range(m)]
            for i in range(n)
        ]
        first = [(0, j) for j in range(m)]
        others = [(i, min(range(m), key=lambda j, i=i: e[i][j] / e[0][j])) for i in range(1, n)]
        tree = [*first, *others]
        for _ in range(2000):
            h, g = _heights(tree, e, n, m)
            t = mp.fdot(p, h) / mp.fdot(q, g)
            flow = _flows(
                tree,
                [a * b for a, b in zip(p, h, strict=True)],
                [t * a * b for a, b in zip(q, g, strict=True)],
            )
            worst = min(range(len(tree)), key=flow.__getitem__)
            if flow[worst] >= 0:
                _check(p, q, e, h, g, t, tree, flow)
                return max(mpf(0), mp.log(t))
            tree[worst] = _entering(tree, worst, e, h, g)
        raise AssertionError("the simplex did not end")


def _digits(p: Sequence[mpf], q: Sequence[mpf], d: Sequence[Sequence[mpf]]) -> int:
    """Return with how many digits 50 are left when small masses are told from large ones."""
    small = -mp.log10(min(*p, *q)) + max(map(max, d)) * (len(p) + len(q)) / mp.log(10)
    return 100 + 2 * int(small)


def _heights(tree: list[tuple[int, int]], e: list[list[mpf]], n: int, m: int) -> tuple[list[mpf], list[mpf]]:
    h: list[mpf | None] = [mpf(1), *[None] * (n - 1)]
    g: list[mpf | None] = [None] * m
    left = list(tree)
    while left:
        rest = []
        for i, j in left:
            if h[i] is not None:
                g[j] = h[i] / e[i][j]
            elif g[j] is not None:
                h[i] = g[j] * e[i][j]
            else:
                rest.append((i, j))
        left = rest
    return h, g  # type: ignore[return-value]


def _flows(tree: list[tuple[int, int]], supply: list[mpf], demand: list[mpf]) -> list[mpf]:
    """Return what each tie carries so that every source gives its supply and every sink gets its demand."""
    left = {("p", i): x for i, x in enumerate(supply)} | {("q", j): x for j, x in enumerate(demand)}
    flow = [mpf(0)] * len(tree)
    open_ = set(range(len(tree)))
    while open_:
        degree: dict[tuple[str, int], list[int]] = {}
        for k in sorted(open_):
            degree.setdefault(("p", tree[k][0]), []).append(k)
            degree.setdefault(("q", tree[k][1]), []).append(k)
        node, (k,) = next((v, at) for v, at in degree.items() if len(at) == 1)
        flow[k] = left[node]
        left["p", tree[k][0]] -= flow[k]
        left["q", tree[k][1]] -= flow[k]
        open_.remove(k)
    return flow


def _entering(
    tree: list[tuple[int, int]], worst: int, e: list[list[mpf]], h: list[mpf], g: list[mpf]
) -> tuple[int, int]:
    """Lower the side of the worst tie's source until a source outside it ties with a sink inside it."""
    inside = {("p", tree[worst][0])}
    while True:
        more = {
            v
            for k, (i, j) in enumerate(tree)
            if k != worst
            for v, w in ((("p", i), ("q", j)), (("q", j), ("p", i)))
            if w in inside and v not in inside
        }
        if not more:
            break
        inside |= more
    pairs = [
        (i, j) for i in range(len(h)) for j in range(len(g)) if ("p", i) not in inside and ("q", j) in inside
    ]
    return min(pairs, key=lambda c: e[c[0]][c[1]] * g[c[1]] / h[c[0]])


def _check(
    p: Sequence[mpf],
    q: Sequence[mpf],
    e: list[list[mpf]],
    h: list[mpf],
    g: list[mpf],
    t: mpf,
    tree: list[tuple[int, int]],
    flow: list[mpf],
) -> None:
    """Both proofs: H, G are allowed (t is attained); f meets every demand within t q (t is enough)."""
    room = 1 + _PROVED
    assert all(h[i] <= e[i][j] * g[j] * room for i in range(len(p)) for j in range(len(q)))
    f = {(i, j): x / g[j] for (i, j), x in zip(tree, flow, strict=True)}
    for j in range(len(q)):
        assert sum(x for (_, k), x in f.items() if k == j) <= t * q[j] * room
    for i in range(len(p)):
        assert sum(x / e[k][j] for (k, j), x in f.items() if k == i) * room >= p[i]


class Exact:
    """The joint law of a small model, exactly: products of its tables' own doubles."""

    def __init__(self, model) -> None:  # type: ignore[no-untyped-def]
        self.nodes = list(model.nodes)
        self.sizes = [model.cardinality(n) for n in self.nodes]
        self.joint: dict[tuple[int, ...], Fraction] = {}
        for x in itertools.product(*map(range, self.sizes)):
            weight = Fraction(1)
            for f in model.factors:
                weight *= Fraction(float(f.table[tuple(x[self.nodes.index(n)] for n in f.scope)]))
            if weight:
                self.joint[x] = weight
        self._known: dict[tuple[tuple[int, int], ...], Fraction] = {}

    def mass(self, given: Mapping[int, int]) -> Fraction:
        """Return the weight of everything that agrees with the given values, by place of the node."""
        key = tuple(sorted(given.items()))
        if key not in self._known:
            self._known[key] = sum(
                (w for x, w in self.joint.items() if all(x[k] == v for k, v in key)), Fraction(0)
            )
        return self._known[key]

    def law(self, given: Mapping[int, int], of: Sequence[int]) -> dict[tuple[int, ...], mpf]:
        """Return P(of | given) on what is possible."""
        total = self.mass(given)
        found = {}
        for v in itertools.product(*(range(self.sizes[k]) for k in of)):
            if all(given.get(k, x) == x for k, x in zip(of, v, strict=True)):
                part = self.mass({**given, **dict(zip(of, v, strict=True))})
                if part:
                    found[v] = exactly(part / total)
        return found


def apart(first: Sequence[int], second: Sequence[int], costs: Sequence[mpf]) -> mpf:
    """Return Σ of the costs where two tuples differ."""
    return sum((c for a, b, c in zip(first, second, costs, strict=True) if a != b), mpf(0))


def limit(
    exact: Exact,
    alpha: Sequence[float],
    unit: Sequence[int],
    records: Sequence[int],
    known: Sequence[Mapping[int, int]],
) -> mpf:
    """Return what the worst mechanism tells about a unit to the worst of those who know something.

    For every evidence and two values of the unit the α-DP likelihoods of what is unknown are the functions
    of Lipschitz constant 1 for D = Σ α of the records that differ, so their best is one transport.
    """
    with mp.workdps(50):
        cost = [exactly(a) for a in alpha]
        best = mpf(0)
        for given in known:
            unknown = [k for k in records if k not in given and k not in unit and alpha[k] > 0]
            values = exact.law(given, unit) if exact.mass(given) else {}
            for x, y in itertools.permutations(values, 2):
                p = exact.law({**given, **dict(zip(unit, x, strict=True))}, unknown)
                q = exact.law({**given, **dict(zip(unit, y, strict=True))}, unknown)
                own = apart(x, y, [cost[k] for k in unit])
                weights = [cost[k] for k in unknown]
                if own + sum(weights) <= best:
                    continue
                d = [[apart(v, w, weights) for w in q] for v in p]
                best = max(best, own + transport(list(p.values()), list(q.values()), d))
        return best

"""Tables known only roughly: matrices in a box, tables off by so much, and what that does to spreads.

A *set chain* is every Markov chain whose rows lie between ``lower`` and ``upper`` entry by entry and
sum to 1; the matrix may even differ from step to step.  The smallest and the largest value of each
entry of a d-step table follow backwards, one column at a time: extending a path by one step is a
linear program over a row's box, solved by filling the largest (smallest) values first.

*Tables that are off.*  Let every table ψ_f of a model be replaced by some ψ'_f, and let the **wobble** w_f
be the range of ln(ψ'_f/ψ_f) over the entries.  An entry that is 0 stays 0 where w_f is finite.  Then

- the spread of a table moves by at most 2 w_f: it is a sum of two logarithms minus two others;
- the spread of a d-step table of a chain moves by at most 2 Σ w over its steps: an entry is a sum of
  products, one factor per step;
- the law of the unknown nodes given the known ones moves by a density whose logarithm has a range of at
  most Σ w_f over the tables that hold an unknown node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, UnknownNode, option
from quiltdp.inference.chains import StepSpreads
from quiltdp.model import Factor, Model, Table
from quiltdp.numbers import EPS, UNDERFLOW, up, up_array


@dataclass(frozen=True, eq=False)
class SetChain:
    """All transition matrices between ``lower`` and ``upper``, row = from.

    Raises
    ------
    InvalidModel
        If the bounds are no probabilities, or some row's box holds no distribution.
    """

    lower: Table
    upper: Table

    def __post_init__(self) -> None:
        """Check and freeze the bounds."""
        low, high = (np.array(v, dtype=np.float64) for v in (self.lower, self.upper))
        if low.ndim != 2 or low.shape != high.shape or low.shape[0] != low.shape[1] or not low.size:
            raise InvalidModel(f"set chain: bounds of shapes {low.shape} and {high.shape} must be one square")
        if not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise InvalidModel("set chain: every entry needs 0 ≤ lower ≤ upper ≤ 1")
        bad = (low.sum(axis=1) > 1 + 1e-9) | (high.sum(axis=1) < 1 - 1e-9)
        if bad.any():
            raise InvalidModel(f"set chain: row {int(np.argmax(bad))} holds no distribution")
        for name, array in (("lower", low), ("upper", high)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.lower)

    def __contains__(self, matrix: ArrayLike) -> bool:
        """Return whether a transition matrix lies in the box."""
        p = np.asarray(matrix, dtype=np.float64)
        return bool(p.shape == self.lower.shape and ((p >= self.lower) & (p <= self.upper)).all())


def set_chain_spreads(
    chain: SetChain, max_distance: int = 64, *, max_work: float = 2e10
) -> tuple[NDArray[np.intp], Table]:
    """Return distances d and ĉ_d, an upper bound on the spread of every d-step table in the set.

    For all chains P_1, P_2, … in the set, with T = P_{t+1} ⋯ P_{t+d},

        spread(T) = max ln T(x,z) T(x',z') / (T(x',z) T(x,z')) ≤ ĉ_d
                  = max_{x ≠ x', z ≠ z'} ln hi_d(x,z) hi_d(x',z') / (lo_d(x',z) lo_d(x,z')),

    where lo_d and hi_d bound the entries of T over the set.  ∞ where an entry may be 0.  The spread
    of the backward table is the same number.

    Assumes
    -------
    Each step's matrix is in the set.  Rounding: lo_d is rounded down, hi_d and ĉ_d up.

    Reference
    ---------
    D. J. Hartfiel, Markov Set-Chains, Springer 1998, chapter 2 (the exact bounds of the entries).
    """
    size = chain.states
    if size == 1:
        return np.arange(1, 2, dtype=np.intp), np.zeros(1)
    price = 8.0 * float(size) ** 3  # of one step: sorting, filling and comparing every pair of rows
    if price > max_work:
        raise ModelTooWide(
            f"set chain: {size} states cost {price:.3g} operations a step, the limit is {max_work:g}"
        )
    steps = max(1, min(max_distance, int(max_work / price)))
    first = _first_positive(chain.lower > 0, steps)
    if first is None:  # in every table of affordable length some entry may be 0
        return np.arange(1, 2, dtype=np.intp), np.array([np.inf])
    low, high = np.array(chain.lower), np.array(chain.upper)
    spreads = []
    for d in range(1, steps + 1):
        if d > 1:
            low, high = _bound_set_step(chain, low, largest=False), _bound_set_step(chain, high, largest=True)
        spreads.append(_set_spread(low, high) if d >= first else float("inf"))
    return np.arange(1, steps + 1, dtype=np.intp), np.array(spreads)


def _first_positive(support: NDArray[np.bool_], steps: int) -> int | None:
    """Return the smallest d ≤ steps for which every state surely reaches every state in d steps."""
    edges = support.astype(np.float32)
    reach = support
    for d in range(1, steps + 1):
        if reach.all():
            return d
        reach = (reach.astype(np.float32) @ edges) > 0
    return None


def _bound_set_step(chain: SetChain, values: Table, *, largest: bool) -> Table:
    """Return, for every row box and every column v of ``values``, the largest (smallest) Σ_y p(y) v(y)."""
    size = chain.states
    slack = np.maximum(1.0 - chain.lower.sum(axis=1), 0.0)
    room = chain.upper - chain.lower
    found: Table = np.empty_like(values)
    for z in range(size):
        column = values[:, z]
        order = np.argsort(-column if largest else column, kind="stable")
        used = np.minimum(np.cumsum(room[:, order], axis=1), slack[:, None])
        put = np.diff(used, axis=1, prepend=0.0)
        found[:, z] = chain.lower @ column + put @ column[order]
    error = 8.0 * (size + 4) * EPS
    if largest:
        # the differences of running sums carry an absolute error of a few units of 1
        found = np.minimum(found * (1.0 + error) + error * values.max(axis=0), 1.0)
    else:
        found = np.maximum(found * (1.0 - error) - error * values.max(axis=0), 0.0)
    return found


def _set_spread(low: Table, high: Table) -> float:
    """Return the largest log cross-ratio that entries between ``low`` and ``high`` allow."""
    size = len(low)
    floor = np.where(low < UNDERFLOW, 0.0, low)
    if (floor == 0).any():  # some member of the set may have a zero there
        return float("inf")
    top, bottom = np.log(high), np.log(floor)
    best = 0.0
    for x in range(size - 1):
        ahead = top[x] - bottom[x + 1 :]
        back = top[x + 1 :] - bottom[x]
        both = _largest_two_columns(ahead, back)
        best = max(best, float(both.max()))
    return float(up_array(np.array([best + 1e-12]))[0])


def _largest_two_columns(ahead: Table, back: Table) -> Table:
    """Return max over z ≠ z' of ahead(z) + back(z'), row by row."""
    first, second = (_largest_two(v) for v in (ahead, back))
    same = first[0] == second[0]
    straight = first[1] + second[1]
    crossed = np.maximum(first[1] + second[2], first[2] + second[1])
    return np.where(same, crossed, straight)


def _largest_two(rows: Table) -> tuple[NDArray[np.intp], Table, Table]:
    """Return where the largest entry of each row is, and the largest two."""
    where = rows.argmax(axis=1)
    ordered = np.partition(rows, rows.shape[1] - 2, axis=1)
    return where, ordered[:, -1], ordered[:, -2]


_LARGEST = 1e6  # a table off by more than a factor of a million says nothing


@dataclass(frozen=True, eq=False)
class TableErrors:
    """What is allowed to be wrong: one wobble for every table, or for the tables of named nodes.

    Attributes
    ----------
    says
        In words, for people.
    default
        The wobble of every table that is not named.
    named
        Node → wobble of its table.
    box
        For a homogeneous chain: the set of its transition matrices.
    """

    says: str
    default: float
    named: Mapping[str, float] = field(default_factory=dict)
    box: SetChain | None = None

    def wobble(self, factor: Factor) -> float:
        """Return w_f."""
        return self.named.get(factor.child or "", self.default)

    def part(self, model: Model, copies: Any, whole: Model) -> TableErrors:
        """Return the errors of a component: for every table the largest over the component's copies."""
        if not self.named:
            return self
        named: dict[str, float] = {}
        for k, node in enumerate(model.nodes):
            places = (whole.nodes[int(copy[k])] for copy in copies)
            named[node] = max(self.named.get(n, self.default) for n in places)
        return TableErrors(self.says, self.default, named, self.box)

    def largest_step(self, order: Sequence[str], model: Model) -> float:
        """Return the largest wobble of a step of a path: all tables of the step and its two ends."""
        if isinstance(model, ChainModel):
            return self.default
        place = {n: k for k, n in enumerate(order)}
        steps = np.zeros(max(1, len(order) - 1))
        for f in model.factors:
            ends = sorted(place[n] for n in f.scope)
            if ends:  # the table of a single node may stand in the step before it or after it
                steps[max(0, ends[-1] - 1) : min(ends[0], len(steps) - 1) + 1] += self.wobble(f)
        return up(float(steps.max()), len(model.factors) + 8.0)

    def total(self, model: Model) -> float:
        """Return Σ w_f over all tables, rounded up."""
        if isinstance(model, ChainModel):
            return up(len(model.nodes) * self.default, 8.0)
        found = math.fsum(self.wobble(f) for f in model.factors)
        return up(found, 8.0)


def relative_errors(model: Model, off_by: float | Mapping[str, float]) -> TableErrors:
    """Return the errors of tables whose every probability p may be anything from p/(1 + x) to p (1 + x).

    Parameters
    ----------
    model
        The model.
    off_by
        x for every table, or a mapping node → x for the tables that may be wrong; the others are exact.

    Raises
    ------
    InvalidArgument
        For a negative or enormous x, or nodes of a chain, which share one table.

    Examples
    --------
    >>> from quiltdp import example
    >>> errors = relative_errors(example("asia"), {"lung": 0.1})
    >>> errors.says, round(errors.named["lung"], 4), errors.default
    ('the table of lung is off by at most 10 %', 0.1906, 0.0)
    """
    if isinstance(off_by, Mapping):
        _check_names(model, off_by)
        named = {n: _read_wobble(x) for n, x in off_by.items()}
        parts = "; ".join(f"the table of {n} is off by at most {_percent(x)}" for n, x in off_by.items())
        return TableErrors(parts if len(off_by) <= 6 else f"{len(off_by)} tables are off", 0.0, named)
    wobble = _read_wobble(off_by)
    box = None
    if isinstance(model, ChainModel) and len(model.segments) == 1 and model.segments[0].homogeneous:
        p = model.segments[0].transition(0)
        low = np.nextafter(p / (1.0 + off_by), 0.0)
        high = np.minimum(np.nextafter(p * (1.0 + off_by), np.inf), 1.0)
        box = SetChain(low, np.where(p > 0, high, 0.0))
    return TableErrors(f"every table is off by at most {_percent(off_by)}", wobble, {}, box)


def interval_errors(model: Model, intervals: Any) -> TableErrors:
    """Return the errors of tables that lie between given ones, entry by entry.

    Parameters
    ----------
    model
        The model.
    intervals
        A mapping node → (lower, upper), tables of the shape of the node's own (axes: parents…, node);
        the others are exact.  For a homogeneous chain one pair (lower, upper) of matrices.

    Raises
    ------
    InvalidArgument
        If a table does not lie between its bounds, or the shapes differ.
    """
    if isinstance(model, ChainModel):
        if isinstance(intervals, Mapping) or not all(s.homogeneous for s in model.segments):
            raise InvalidArgument("intervals: a chain with one matrix takes one pair (lower, upper)")
        low, high = _read_pair("the chain", intervals)
        box = SetChain(low, high)
        for segment in model.segments:
            _ratio_range("the chain", segment.transition(0), box.lower, box.upper)
        # the law of the first step moves with the matrix: only bounds that do not need it are left
        return TableErrors("every step's matrix lies between the given ones", math.inf, {}, box)
    if not isinstance(intervals, Mapping):
        raise InvalidArgument("intervals: give a mapping node → (lower, upper)")
    _check_names(model, intervals)
    own = {f.child: f for f in model.factors if f.child is not None}
    named = {n: _ratio_range(n, own[n].table, *_read_pair(n, pair)) for n, pair in intervals.items()}
    return TableErrors(f"the tables of {', '.join(intervals)} lie between the given ones", 0.0, named)


def raised_steps(spreads: StepSpreads, errors: TableErrors, wobble: float) -> StepSpreads:
    """Return spreads of d-step tables that hold for every chain whose steps are off by ``wobble``."""
    more = 2.0 * up(wobble, 4.0) * spreads.distances.astype(np.float64)
    forward, backward = spreads.forward + more[:, None], spreads.backward + more[:, None]
    if errors.box is not None:
        distances, widest = set_chain_spreads(errors.box)
        known = dict(zip(distances.tolist(), widest.tolist(), strict=True))
        best = np.array([known.get(d, np.inf) for d in spreads.distances.tolist()])[:, None]
        forward, backward = np.minimum(forward, best), np.minimum(backward, best)
    return StepSpreads(spreads.distances, forward, backward)


def _read_wobble(off_by: object) -> float:
    try:
        x = float(off_by)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option('off_by')} must be a number, not {off_by!r}") from None
    if not 0.0 <= x <= _LARGEST:
        raise InvalidArgument(
            f"{option('off_by')} is a share (0.05: five per cent) of at least 0, not {off_by!r}"
        )
    return up(2.0 * math.log1p(x), 8.0) if x else 0.0


def _percent(x: float) -> str:
    return f"{100 * float(x):.4g} %"


def _check_names(model: Model, named: Mapping[str, Any]) -> None:
    if isinstance(model, ChainModel):
        raise InvalidArgument("the steps of a chain share their tables: name no nodes")
    if not named:
        raise InvalidArgument("name at least one table that may be wrong")
    children = {f.child for f in model.factors}
    for n in named:
        if n not in model.states:
            raise UnknownNode(f"table of {n!r}: the model has no such node")
        if n not in children:
            raise InvalidArgument(f"{n!r} has no table of its own: this model is not directed")


def _read_pair(name: str, pair: Any) -> tuple[Table, Table]:
    try:
        low, high = pair
        return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"intervals of {name}: give two tables (lower, upper)") from None


def _ratio_range(name: str, table: Table, low: Table, high: Table) -> float:
    """Return the range of ln(ψ'/ψ) for ψ' between ``low`` and ``high``; ∞ where a zero may come or go."""
    if low.shape != table.shape or high.shape != table.shape:
        raise InvalidArgument(
            f"intervals of {name}: shapes {low.shape} and {high.shape}, the table has {table.shape}"
        )
    if not ((low >= 0) & (low <= table) & (table <= high) & np.isfinite(high)).all():
        raise InvalidArgument(f"intervals of {name}: the model's own table is not between them")
    possible = table > 0
    if (high[~possible] > 0).any() or (low[possible] <= 0).any():
        return math.inf
    above = np.log(high[possible] / table[possible]).max(initial=0.0)
    below = np.log(low[possible] / table[possible]).min(initial=0.0)
    return up(float(above - below) + 1e-15, 16.0) if above > below else 0.0

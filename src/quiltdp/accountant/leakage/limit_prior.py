"""The exact limit against the prior adversary, for small models.

Leakage(T) = max over possible x_T ≠ x_T' of Σ_{t∈T} α_t·1[x_t ≠ x_t'] + max_H ln E_p H / E_p' H, with
p = P(other records | x_T), p' = P(other records | x_T') and H the likelihoods that an α-DP mechanism
allows: H(u) ≤ e^{α_j} H(u') when u and u' differ in record j only.  Nothing sound can be below it.
Where what is proved is not attained (α out of the range of doubles) the answer is called a bound, and the
clique tree is asked too.

*Assumes*: a small model: the joint law of its records as one table; no evidence.  *Cost*: one program per
pair of values of a unit.  *Reference*: docs/prior_adversary.md, the exact limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, ready, register
from quiltdp.accountant.leakage.informed_tree import InformedTreeBound
from quiltdp.accountant.leakage.limit import is_small
from quiltdp.accountant.leakage.limit_search import FROM_ABOVE, UnitBracket
from quiltdp.accountant.leakage.transport import transport, uniform_transport
from quiltdp.accountant.leakage.worst_gains import is_quick, staged_ceiling, worst_gains
from quiltdp.accountant.leakage.worst_mechanism import (
    by_heights,
    by_linear_program,
    by_transport_program,
    height_functions,
)
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import WorkBudget

__all__ = ["ExactPriorBound", "exact_prior_limit"]

_TRANSPORT = 30  # joint states up to which the transport itself is solved, not only its edges (with
# large α up to four times as many: the certificate of the edges loses digits there)
_SIMPLEX = 31  # joint states up to which the network simplex solves it, beyond a linear program
_MOST_RECORDS = 32  # a table has one axis per record
_APART = 1e-12  # how far proved and attained may be apart before another certificate is tried
_EXP_LIMIT = 600.0  # Σ α beyond which e^Σα times the smallest double is no longer nothing


@register(
    "exact",
    against=PRIOR,
    kind="exact",
    says="the limit over all α-DP mechanisms",
    auto=lambda problem: is_small(problem.model),
    settles=True,
    near=1e-8,
)
class ExactPriorBound:
    """The exact limit (method ``"exact"``, prior adversary).

    Parameters
    ----------
    problem
        A small model.
    max_entries
        The most joint states of all records.

    Raises
    ------
    ModelTooWide
        Before any work, naming the size.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> ready(ExactPriorBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem, *, max_entries: int = 4096) -> None:
        model = problem.model
        records = tuple(model.records)
        size = 1
        for r in records:
            size *= model.cardinality(r)
        if size > max_entries or len(records) > _MOST_RECORDS:
            states = f"{size:,}" if size < 10**15 else f"about 10^{len(str(size)) - 1}"
            raise ModelTooWide(
                f"the exact limit of {len(records)} records needs {states} joint states,"
                f" the limit is {max_entries:,}",
                f"use another {option('method')}",
                f"raise {option('max_entries')}",
            )
        place = {r: k for k, r in enumerate(records)}
        self._problem, self._model, self._names = problem, model, records
        self._otherwise: InformedTreeBound | None = None
        self._units = [tuple(place[n] for n in unit) for unit in problem.listed()]
        self._index = np.array([model.index[r] for r in records])

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the joint law of the records."""
        self._workspace, self._budget = workspace, budget
        self._log_joint = junction_tree(self._model, workspace=workspace).log_marginal(self._names)
        depth = float(np.abs(self._log_joint[np.isfinite(self._log_joint)]).max(initial=0.0))
        self._slack = 256 * EPS * (len(self._model.nodes) + depth)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit: proved from above and attained, or called a bound."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        a = np.asarray(alpha, dtype=np.float64)[self._index]
        values = np.array(known)
        loose: list[int] = []
        least, partial = low, high < math.inf
        for k in np.argsort(-known, kind="stable").tolist():
            if known[k] <= least:
                break
            found = self._unit(self._units[k], a, least)
            values[k] = min(known[k], found.above)
            if not found.exact and found.above > least:
                loose.append(k)
            if partial:  # only the largest is asked for
                least = max(least, found.below)
            if values[k] > high:
                break
        if not loose:
            return Bounds(values, "exact", "exact")
        values = self._tree().refine(alpha, values, low, high).values
        names = ", ".join(str(self._names[self._units[k][0]]) for k in loose[:3])
        notes = (f"exact: proved and attained do not meet for {len(loose)} of the units ({names}, …)",)
        return Bounds(values, FROM_ABOVE, "certified bound", notes=notes)

    def _tree(self) -> InformedTreeBound:
        """Return the clique tree with nothing known, for what could not be settled."""
        if self._otherwise is None:
            self._otherwise = InformedTreeBound(self._problem)
            self._otherwise.prepare(self._workspace, self._budget)
        return self._otherwise

    def _unit(self, unit: tuple[int, ...], a: Vector, least: float) -> UnitBracket:
        """Return the limit of one unit, or ``least``: pairs by their ceilings, until none can win."""
        self._workspace.guard.check()
        shape = self._log_joint.shape
        others = [j for j in range(len(a)) if j not in unit and a[j] > 0 and shape[j] > 1]
        dropped = tuple(j for j in range(len(a)) if j not in unit and j not in others)
        table = self._log_joint.transpose([*unit, *others, *dropped])
        joint = table.reshape(
            int(np.prod([shape[j] for j in unit])), int(np.prod([shape[j] for j in others])), -1
        )
        possible = (joint > -np.inf).any(axis=(1, 2))
        joint = joint[possible]
        if len(joint) < 2:
            return UnitBracket(0.0, 0.0)  # only one possible value: there is nothing to tell apart
        values = np.array(list(np.ndindex(*(shape[j] for j in unit))))[possible]
        apart = values[:, None, :] != values[None, :, :]
        own = up_array((apart * a[list(unit)]).sum(axis=2), 4.0 + len(unit))
        rest = up(float(a[others].sum()), 4.0 + len(others))
        if rest > _EXP_LIMIT:  # then even what is lost below the smallest double could matter
            return UnitBracket(up(float(own.max()) + rest), 0.0)
        # each row relative to its own largest entry: an improbable x_T is as good as any other
        rows = np.exp(joint - joint.max(axis=(1, 2), keepdims=True)).sum(axis=2)
        rows = rows / rows.sum(axis=1, keepdims=True)
        sizes = tuple(shape[j] for j in others)
        found = _largest(rows, own, sizes, a[others], rest, self._slack, least)
        return UnitBracket(up(found.above), max(0.0, found.below - 2.0 * self._slack))


def _largest(
    rows: Vector,
    own: Vector,
    sizes: tuple[int, ...],
    alphas: Vector,
    rest: float,
    slack: float,
    least: float,
) -> UnitBracket:
    """Return max over ordered pairs of rows of their own distance plus the maximum, proved and attained.

    Pairs that cannot exceed ``least`` are left out; it is the answer if all are.
    """
    if not sizes:
        return UnitBracket(float(own.max()), float(own.max()))
    first, second = np.nonzero(~np.eye(len(rows), dtype=bool))
    ceilings = uniform_transport(rows[first], rows[second], np.full(len(first), up(float(alphas.sum()))))
    ceilings = own[first, second] + np.minimum(ceilings + slack, rest)
    best, below = least, 0.0
    for k in np.argsort(-ceilings, kind="stable"):
        if ceilings[k] <= best:
            break
        p, q, apart = rows[first[k]], rows[second[k]], float(own[first[k], second[k]])
        if not is_quick(sizes, alphas):  # a sharper ceiling costs less than a program
            sharper = apart + float(staged_ceiling(p[None], q[None], sizes, alphas)[0]) + slack
            ceilings[k] = min(float(ceilings[k]), sharper)
            if ceilings[k] <= best:
                continue
        proved, attained = worst_gains(p[None], q[None], sizes, alphas)
        gain = float(proved[0])
        if gain - float(attained[0]) > _APART and not _settled(sizes, alphas):
            gain = min(gain, _gain(p, q, sizes, alphas))  # another certificate may be the rounder one
        best = max(best, min(float(ceilings[k]), apart + gain + slack))
        below = max(below, apart + float(attained[0]))
    return UnitBracket(best, below)


def _settled(sizes: tuple[int, ...], alphas: Vector) -> bool:
    """Return whether :func:`_gain` would only solve the same linear program again."""
    heights = np.all(alphas == alphas[0]) and height_functions(sizes) is not None
    return not heights and math.prod(sizes) > _most_points(alphas)


def _most_points(alphas: Vector) -> int:
    """Return up to how many joint states the transport itself is solved."""
    return _TRANSPORT if alphas.sum() < 4.0 else 4 * _TRANSPORT


def _gain(p: Vector, q: Vector, sizes: tuple[int, ...], alphas: Vector) -> float:
    """Return the certified maximum for one pair of laws of the other records."""
    if np.all(alphas == alphas[0]) and height_functions(sizes) is not None:
        value = by_heights(p, q, sizes, float(alphas[0]))
        if value is not None:
            return value
    program = by_linear_program(p, q, sizes, alphas)
    if len(p) > _most_points(alphas):
        return program
    points = np.array(list(np.ndindex(*sizes)))
    d = ((points[:, None, :] != points[None, :, :]) * alphas).sum(axis=2)
    d = up_array(d, 4.0 + len(sizes))[None]
    if len(p) <= _SIMPLEX:
        return min(program, float(transport(p[None], q[None], d)[0]))
    return min(program, by_transport_program(p, q, d[0]))  # either certificate may be the rounder one


def exact_prior_limit(model: Model, alpha: Vector, units: Sequence[tuple[str, ...]] | None = None) -> Vector:
    """Return the exact limit of every unit against the prior adversary (the tests' oracle)."""
    return ready(ExactPriorBound, model, units).evaluate(alpha).values

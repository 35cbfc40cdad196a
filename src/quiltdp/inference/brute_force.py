"""The oracle: marginals, influence and swing straight from the full joint table, subset by subset.

Nothing here is clever, and nothing is shared with the fast code: it writes the joint as one table
(in log space, so that products of tiny entries keep their support), and reads every definition off
it literally.  Signatures equal those of :mod:`quiltdp.inference.influence` and
:mod:`quiltdp.inference.trees`, so one test runs both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidModel, ModelTooWide
from quiltdp.inference.marginals import check_disjoint
from quiltdp.inference.plan import MAX_JOINT
from quiltdp.inference.witness import Assignment, QuiltInfluence, QuiltLike, Witness
from quiltdp.model import Model, Table


def log_joint(model: Model, *, max_entries: int = MAX_JOINT) -> Table:
    """Return ln P(x) for every x, one axis per node in node order.

    Raises
    ------
    ModelTooWide
        If the joint has more than ``max_entries`` entries.
    """
    nodes = tuple(model.nodes)
    shape = tuple(model.cardinality(n) for n in nodes)
    if math.prod(shape) > max_entries:
        raise ModelTooWide(
            f"the joint of {len(nodes)} nodes has {math.prod(shape)} entries, over {max_entries}"
        )
    total = np.zeros(shape)
    for f in model.factors:
        with np.errstate(divide="ignore"):
            logs = np.log(f.table)
        order = sorted(range(len(f.scope)), key=lambda k: nodes.index(f.scope[k]))
        axes = [shape[k] if n in f.scope else 1 for k, n in enumerate(nodes)]
        total = total + logs.transpose(order).reshape(axes)
    mass = np.logaddexp.reduce(total, axis=None)
    if mass == -np.inf:
        raise InvalidModel("every joint state of the model is impossible")
    return np.asarray(total - mass)


def log_marginal(model: Model, nodes: Sequence[str]) -> Table:
    """Return ln P(x_nodes), axes in the order of ``nodes``."""
    model.require(nodes)
    table, order = log_joint(model), tuple(model.nodes)
    gone = tuple(k for k, n in enumerate(order) if n not in nodes)
    left = [n for n in order if n in nodes]
    for axis in reversed(gone):
        table = np.logaddexp.reduce(table, axis=axis)
    return np.asarray(np.asarray(table).transpose([left.index(n) for n in nodes]))


def marginal(model: Model, nodes: Sequence[str]) -> Table:
    """Return P(x_nodes), axes in the order of ``nodes``."""
    return np.asarray(np.exp(log_marginal(model, nodes)))


def conditional(model: Model, of: Sequence[str], given: Sequence[str] = ()) -> Table:
    """Return P(x_of | x_given), axes given… then of…; rows of impossible evidence are zero."""
    check_disjoint(model, of=of, given=given)
    joint = marginal(model, (*given, *of))
    mass = joint.sum(axis=tuple(range(len(given), joint.ndim)), keepdims=True)
    return np.asarray(np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0))


def max_influence(model: Model, *, of: str, on: Collection[str], given: Collection[str] = ()) -> float:
    """Return I(X_on ⇝ X_of | X_given), the largest log-ratio, straight from the definition."""
    check_disjoint(model, of=(of,), on=on, given=given)
    best = 0.0
    for case in _log_odds_cases(model, (of,), sorted(given), sorted(on)):
        best = max(best, float(case.ratios.max()))
    return best


def quilt_influence(model: Model, quilt: QuiltLike) -> QuiltInfluence:
    """Return b, swing and both witnesses of a quilt by enumerating every L and every assignment."""
    separator = sorted(quilt.separator)
    near = [n for n in sorted(quilt.nearby) if model.is_record(n)]
    b, swing = 0.0, 0.0
    b_witness: Witness | None = None
    witness: Witness | None = None
    found: dict[frozenset[str], float] = {}
    for known in _all_subsets(near):
        best = 0.0
        for case in _log_odds_cases(model, (quilt.target,), known, separator):
            top, low = int(case.ratios.argmax()), int(case.ratios.argmin())
            names = (
                _state_names_at(model, known, case.known),
                _state_names_at(model, (quilt.target,), case.value),
                _state_names_at(model, (quilt.target,), case.other),
                _state_names_at(model, separator, int(case.at[top])),
            )
            ratio, move = float(case.ratios[top]), float(case.ratios[top] - case.ratios[low])
            if b_witness is None or ratio > b:
                b, b_witness = max(b, ratio), Witness(*names)
            if witness is None or move > swing:
                low_name = _state_names_at(model, separator, int(case.at[low]))
                swing, witness = max(swing, move), Witness(*names, low_name)
            best = max(best, move)
        found[frozenset(known)] = best
    by_size = _sort_by_size(found, len(near))
    return QuiltInfluence(b, swing, swing, True, by_size, found, lambda: (witness, b_witness))


def swings(
    model: Model,
    targets: Collection[str],
    nearby: Collection[str],
    separator: Collection[str],
    *,
    known_sets: Iterable[Collection[str]] | None = None,
) -> Mapping[frozenset[str], float]:
    """Return s_T(C, L) for every L ⊆ nearby records (or the given sets), from the definition."""
    check_disjoint(model, targets=targets, nearby=nearby, separator=separator)
    near = [n for n in sorted(nearby) if model.is_record(n)]
    chosen = [sorted(k) for k in known_sets] if known_sets is not None else list(_all_subsets(near))
    found: dict[frozenset[str], float] = {}
    for known in chosen:
        best = 0.0
        for case in _log_odds_cases(model, sorted(targets), known, sorted(separator)):
            best = max(best, float(case.ratios.max() - case.ratios.min()))
        found[frozenset(known)] = best
    return found


@dataclass(frozen=True)
class _LogOddsCase:
    """One x, x' and x_L (flat positions) with ln P(q|x,x_L)/P(q|x',x_L) at every q that is not 0/0."""

    value: int
    other: int
    known: int
    at: NDArray[np.intp]
    ratios: Table


def _log_odds_cases(
    model: Model, targets: Sequence[str], known: Sequence[str], separator: Sequence[str]
) -> Iterator[_LogOddsCase]:
    """Yield every pair of values of the targets that are both possible with the known values."""
    table = log_marginal(model, (*targets, *known, *separator))
    kt = math.prod(model.cardinality(n) for n in targets)
    kl = math.prod(model.cardinality(n) for n in known)
    joint = table.reshape(kt, kl, -1)
    mass = np.logaddexp.reduce(joint, axis=2)
    for k in range(kl):
        possible = np.flatnonzero(mass[:, k] > -np.inf).tolist()
        for x, y in permutations(possible, 2):
            p, q = joint[x, k] - mass[x, k], joint[y, k] - mass[y, k]
            at = np.flatnonzero((p > -np.inf) | (q > -np.inf))
            yield _LogOddsCase(x, y, k, at, p[at] - q[at])


def _state_names_at(model: Model, nodes: Sequence[str], flat: int) -> Assignment:
    """Return the nodes with the state names at a flat position."""
    shape = tuple(model.cardinality(n) for n in nodes)
    index = np.unravel_index(flat, shape) if nodes else ()
    return tuple((n, model.states[n][int(k)]) for n, k in zip(nodes, index, strict=True))


def _all_subsets(nodes: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for size in range(len(nodes) + 1):
        yield from combinations(nodes, size)


def _sort_by_size(found: Mapping[frozenset[str], float], count: int) -> tuple[float, ...]:
    return tuple(max(v for k, v in found.items() if len(k) == size) for size in range(count + 1))

"""Transports between the laws of one node with three states, for many things that may be known: in C.

Problem r compares P(x | z_r, e_r) with P(x | y_r, e_r) at the costs

    D(x, x') = α·1[x ≠ x'] + Σ over children c of m_c((z_r, x), (y_r, x'); e_r),

as the messages of :mod:`.every_adversary` do.  Genotypes have three states, so families ask nothing else.
The twin in numpy is :func:`quiltdp.accountant.leakage.transport.transport` at these costs, byte for byte; it
also answers for other numbers of states.

*Assumes*: for C, laws with three states, each of them possible in some problem on either side, and costs of
closed forms.  *Cost*: 21 trees for each problem.  *Reference*: docs/theory.md,
section 17.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import CLOSED_UP_TO, log_masses
from quiltdp.accountant.leakage.transport import transport
from quiltdp.compiled import kernel
from quiltdp.numbers import EPS

__all__ = ["Child", "compared", "compared_in_c", "compared_in_numpy"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Child = tuple[Array, Ints, Ints]
"""A child's messages (part, z, z'), its part of everything that may be known, and the state it sees."""

_EVERYTHING = 0b111111
_TINY = 1e-300  # what a possible state may weigh although its double is 0


def compared(law: Array, places: tuple[Ints, Ints, Ints], children: Sequence[Child], alpha: float) -> Array:
    """Return certified upper bounds on T, one per problem.

    ``law`` has axes (e, z, x), and ``places`` are e, z and y of every problem.
    """
    found = compared_in_c(law, places, children, alpha)
    return compared_in_numpy(law, places, children, alpha) if found is None else found


def compared_in_numpy(
    law: Array, places: tuple[Ints, Ints, Ints], children: Sequence[Child], alpha: float
) -> Array:
    """Return T, for any number of states."""
    (e, z, y), states = places, law.shape[2]
    d = np.broadcast_to(alpha * (1.0 - np.eye(states)), (len(e), states, states)).copy()
    for messages, part, seen in children:
        d += messages[part[e][:, None, None], seen[z][:, :, None], seen[y][:, None, :]]
    return transport(law[e, z], law[e, y], d * (1.0 + 32.0 * EPS))


def compared_in_c(
    law: Array, places: tuple[Ints, Ints, Ints], children: Sequence[Child], alpha: float
) -> Array | None:
    """Return T for three states, or ``None`` where the twin is to be asked."""
    below, ready, best_tree = kernel("qd_three_below"), kernel("qd_three_ready"), kernel("qd_three_best")
    if below is None or ready is None or best_tree is None or law.shape[2] != 3:
        return None
    law = np.ascontiguousarray(law)
    e, z, y = (np.ascontiguousarray(a) for a in places)
    problems, count = len(e), law.shape[1]
    d = np.empty((problems, 9))
    d[:] = alpha * (1.0 - np.eye(3)).ravel()
    for messages, part, seen in children:
        below(problems, messages.shape[1], e, z, y, messages, np.ascontiguousarray(part), seen, d)
    high, low = log_masses(law, law)
    top, ceiling, best = np.empty((3, problems))
    still = np.empty(problems, dtype=np.bool_)
    possible = ready(problems, count, e, z, y, law, high, low, 1.0 + 32.0 * EPS, d, top, ceiling, still)
    if possible != _EVERYTHING or not top.max(initial=0.0) <= CLOSED_UP_TO:
        return None
    raised = np.exp(d, out=d)
    best_tree(problems, count, e, z, y, law, raised, best)
    value = np.minimum(np.log(best) + 30 * EPS, ceiling)
    value = value + 4 * top * EPS + (3 * _TINY) * np.exp(top)
    value = np.minimum(np.maximum(value, 0.0), top)
    return np.where(still, 0.0, value)

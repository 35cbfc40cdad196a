"""The chain recursion against the prior adversary.

With F_i (B_i) a bound on what the records after (before) step i say about it,

    F_i = min( Σ_{j>i} α_j,  min_d Σ_{i<j<i+d} α_j + Λ_d(i; α_{i+d} + F_{i+d}) ),

Λ_d(i; o) = max over pairs of possible x, x' and threshold sets of the d-step conditionals
P(X_{i+d} | x); B_i is the mirror image with P(X_{i−d} | x), and a window [a, b] of consecutive steps
leaks at most Σ_{a≤j≤b} α_j + F_b + B_a.

*Why.*  Given x_i the two sides are independent, so they are changed one after the other.  On one
side, the d − 1 records in between cost their α each, and what remains depends on X_{i+d} through a
function whose logarithm moves by at most o = α_{i+d} + F_{i+d}: the uniform kernel Λ.

*Assumes*: a Markov chain, no evidence; conditionals that doubles hold (others fall back to spreads).
*Cost*: one threshold curve per distinct d-step table and direction, then one pass over steps and
distances.  *Reference*: docs/prior_adversary.md, chains.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.leakage.chain_curves import backward_side, forward_side
from quiltdp.accountant.leakage.chain_recursion import Side
from quiltdp.accountant.leakage.chain_units import ChainUnits, as_chain
from quiltdp.inference.chains import ChainLaws
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up_array
from quiltdp.work import WorkBudget

__all__ = ["ChainPriorBound"]


class ChainPriorBound:
    """The chain recursion (method ``"chain"``, prior adversary).

    Parameters
    ----------
    problem
        One or more chains.  A set with gaps is protected through the shortest windows that cover it,
        one per chain (the records in the gaps count as its own).
    max_step
        The largest d tried.

    Notes
    -----
    Homogeneous chains cost a few fixed-point iterations whatever their length; equal chains are
    computed once.  Chains with one matrix per step take one pass each way.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.bounds import ready
    >>> bound = ready(ChainPriorBound, markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100))
    >>> bool(0.99 < bound.evaluate(np.full(100, 1 / 8.64)).values.max() < 1.001)
    True
    """

    def __init__(self, problem: Problem, *, max_step: int = 32) -> None:
        self._model = as_chain(problem.model)
        self._units = ChainUnits(self._model, problem.units, problem.window)
        self._max_step = max_step

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read off the d-step laws of both directions."""
        self._workspace = workspace
        check = workspace.guard.check
        self._sides: list[tuple[Side, Side]] = []
        made: dict[object, tuple[Side, Side]] = {}
        for segment in self._model.segments:
            key = (segment.length, id(segment.initial), tuple(map(id, segment.transitions)))
            if key not in made:
                laws = ChainLaws(segment)
                made[key] = (
                    forward_side(laws, max_step=self._max_step, check=check),
                    backward_side(laws, max_step=self._max_step, check=check),
                )
            self._sides.append(made[key])

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        alpha = np.asarray(alpha, dtype=np.float64)
        known: dict[object, tuple[Vector, Vector]] = {}
        sides = []
        for (forward, backward), (start, stop) in zip(self._sides, self._units.spans, strict=True):
            own = alpha[start:stop]
            key = (id(forward), own.tobytes())
            if key not in known:
                check = self._workspace.guard.check
                known[key] = (forward.leak(own[::-1], check)[::-1], backward.leak(own, check))
            sides.append(known[key])
        after, before = map(np.concatenate, zip(*sides, strict=True))
        return Bounds(up_array(self._units.totals(alpha, after, before)), "chain")

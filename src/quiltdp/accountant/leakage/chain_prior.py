"""The chain recursion against the prior adversary.

With F_i (B_i) a bound on what the records after (before) step i say about it,

    F_i = min( Σ_{j>i} α_j,  min_d Σ_{i<j<i+d} α_j + Λ_d(i; α_{i+d} + F_{i+d}) ),

Λ_d(i; o) = max over pairs of possible x, x' and threshold sets of the d-step conditionals
P(X_{i+d} | x); B_i is the mirror image with P(X_{i−d} | x), and a window [a, b] of consecutive steps
leaks at most Σ_{a≤j≤b} α_j + F_b + B_a.

*Why.*  Given x_i the two sides are independent, so they are changed one after the other.  On one
side, the d − 1 records in between cost their α each, and what remains depends on X_{i+d} through a
function whose logarithm moves by at most o = α_{i+d} + F_{i+d}: the uniform kernel Λ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.chain_side import Side, backward_side, forward_side
from quiltdp.accountant.leakage.chain_units import ChainUnits
from quiltdp.chain import ChainModel
from quiltdp.inference.chain_laws import ChainLaws
from quiltdp.rounding import up_array

__all__ = ["ChainPriorBound"]


class ChainPriorBound:
    """The chain recursion (method ``"chain"``, prior adversary).

    Parameters
    ----------
    model
        One or more chains.
    units
        Protected sets; ``None`` means every record alone.  A set with gaps is protected through the
        shortest windows that cover it, one per chain (the records in the gaps count as its own).
    window
        With ``units=None``: protect every run of this many steps instead of single records.
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
    >>> bound = ChainPriorBound(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100))
    >>> bool(0.99 < bound.evaluate(np.full(100, 1 / 8.64)).epsilon.max() < 1.001)
    True
    """

    name = "chain"
    adversary = "prior"

    def __init__(
        self,
        model: ChainModel,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        window: int = 1,
        max_step: int = 32,
    ) -> None:
        self._units = ChainUnits(model, units, window)
        self._sides: list[tuple[Side, Side]] = []
        made: dict[object, tuple[Side, Side]] = {}
        for segment in model.segments:
            key = (segment.length, id(segment.initial), tuple(map(id, segment.transitions)))
            if key not in made:
                laws = ChainLaws(segment)
                made[key] = (
                    forward_side(laws, max_step=max_step),
                    backward_side(laws, max_step=max_step),
                )
            self._sides.append(made[key])

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the leakage of every unit."""
        alpha = np.asarray(alpha, dtype=np.float64)
        after, before = np.empty(len(alpha)), np.empty(len(alpha))
        known: dict[object, tuple[Vector, Vector]] = {}
        for (forward, backward), (start, stop) in zip(self._sides, self._units.spans, strict=True):
            own = alpha[start:stop]
            key = (id(forward), own.tobytes())
            if key not in known:
                known[key] = (forward.leak(own[::-1])[::-1], backward.leak(own))
            after[start:stop], before[start:stop] = known[key]
        return RecordBounds(up_array(self._units.totals(alpha, after, before)), self.name)

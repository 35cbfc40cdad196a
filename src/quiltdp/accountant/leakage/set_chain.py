"""Leakage that holds for every chain in a set: the chain solver fed with the set's spreads.

*Assumes*: every step's matrix lies in the set.  *Cost*: the spreads of the set (8 states³ per distance),
then one chain pass.  *Reference*: docs/theory.md, section 8; D. J. Hartfiel, Markov Set-Chains, 1998.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.bounds import Bounds, Vector
from quiltdp.accountant.leakage.chain_recursion import Curves, PhiCurve, Side
from quiltdp.errors import InvalidArgument
from quiltdp.inference.uncertain import SetChain, set_chain_spreads
from quiltdp.numbers import up

__all__ = ["SetChainBound"]


class SetChainBound:
    """An upper bound on the leakage, the same for all transition matrices of a set.

    With ĉ_d ≥ the spread of every d-step table in the set,

        F_i = min( (n−1−i) α,  min_d (d−1) α + Φ( ĉ_d, α + F_{i+d} ) ),   B_i the mirror image,
        sup over the set of Leakage(run of w steps) ≤ w α + F + B.

    Φ increases in its first argument, so the chain solver's bound for any member is below this one.

    Parameters
    ----------
    chain
        The set.
    lengths
        The lengths of the separate chains that share it.
    window
        The protected unit: this many consecutive steps (1: each step).

    Assumes
    -------
    Every step of every chain uses a matrix of the set; the initial law is arbitrary.
    """

    def __init__(
        self, chain: SetChain, lengths: Sequence[int], *, window: int = 1, max_distance: int = 64
    ) -> None:
        if not lengths or any(n < 1 for n in lengths):
            raise InvalidArgument("set chain: every chain needs at least one step")
        if window < 1:
            raise InvalidArgument(f"window must be at least 1 step, not {window}")
        self.lengths = tuple(int(n) for n in lengths)
        self.window = window
        self.distances, self.spreads = set_chain_spreads(chain, max_distance)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return one bound per chain (its worst window); every step must cost the same α.

        Raises
        ------
        InvalidArgument
            If the α's differ.
        """
        costs = np.unique(np.asarray(alpha, dtype=np.float64))
        if len(costs) != 1 or not costs[0] >= 0:
            raise InvalidArgument("set chain: every step must have the same dp_epsilon")
        made = {n: self._worst(n, float(costs[0])) for n in set(self.lengths)}
        return Bounds(np.array([made[n] for n in self.lengths]), "set-chain")

    def _worst(self, length: int, alpha: float) -> float:
        """Return the largest bound of a window in a chain of this length."""
        run = min(self.window, length)
        total = up(length * alpha)
        if length == 1:
            return total
        curves = Curves.constant(self.distances.tolist(), [PhiCurve(float(c)) for c in self.spreads])
        side = Side(length, curves).leak(np.full(length, alpha))  # outwards-in
        left = side[::-1][run - 1 :]  # F at the window's right end, window by window
        right = side[: length - run + 1]  # B at its left end
        return min(up(run * alpha + float((left + right).max())), total)

"""All loci of one kind, autosomal or on the X: what a release at them tells about each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary
from quiltdp.domains.pedigree.bridge import Bridge
from quiltdp.domains.pedigree.panel_nodes import EVERYWHERE, NodeAnalyses
from quiltdp.domains.pedigree.queries import GenotypeQuery
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model
from quiltdp.numbers import up, up_array

__all__ = ["ADVERSARIES", "Kind", "panel_adversary"]

ADVERSARIES = (INFORMED.name, PRIOR.name)

Vector = NDArray[np.float64]


def panel_adversary(given: str | Adversary) -> Adversary:
    """Return the adversary meant; panels know those who know any relatives, or none.

    Examples
    --------
    >>> panel_adversary("prior") == PRIOR
    True
    """
    name = given.name if isinstance(given, Adversary) else given
    if name not in ADVERSARIES:
        raise InvalidArgument(f"{option('adversary')} must be one of {', '.join(ADVERSARIES)}, not {name!r}")
    return INFORMED if name == INFORMED.name else PRIOR


@dataclass(frozen=True, eq=False)
class Kind:
    """All loci of one kind (autosomal, or on the X): who is a record there, and what moves it.

    Attributes
    ----------
    model
        The network at one of the frequencies: its records and who stands behind them.
    query
        The query at one locus of this kind.
    loci
        Positions in the panel.
    folded
        The frequency of the rarer allele at each of them; NaN where it is unknown or nobody varies.
    counts
        How many loci each of them stands for.
    nodes
        The frequencies that are analysed, and for each locus which of them it stands on.
    analyses
        The family at these frequencies.
    """

    model: Model
    query: GenotypeQuery
    loci: NDArray[np.intp]
    folded: Vector
    counts: NDArray[np.int64]
    nodes: Vector
    stands_on: NDArray[np.intp]
    bridge: Bridge
    analyses: NodeAnalyses

    @property
    def size(self) -> int:
        """How many loci there are."""
        return int(self.counts.sum())

    def alpha(self, scale: float) -> dict[str, float]:
        """Return α of every record when the query gets noise of 1/scale: Δ_j · scale, rounded up."""
        return {r: up(d * scale, 4.0) for r, d in self.query.sensitivities.items()}

    def leakage(self, adversary: Adversary, weights: Vector, scale: float) -> Vector:
        """Return Σ over the loci of this kind, for every record; noise of locus l is weights_l / scale."""
        total = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        for w in np.unique(weights[unknown]):
            count = int(self.counts[unknown & (weights == w)].sum())
            total += count * self.any_frequency(adversary, scale / w)
        places = [
            (k, w)
            for k in range(len(self.nodes))
            for w in np.unique(weights[(self.stands_on == k) & ~unknown]).tolist()
        ]
        leakages = self.at_nodes(adversary, [(k, scale / w) for k, w in places])
        for (k, w), found in zip(places, leakages, strict=True):
            chosen = (self.stands_on == k) & ~unknown & (weights == w)
            total += up_array(int(self.counts[chosen].sum()) * found)
            if adversary == PRIOR:
                total += self._way(chosen, k, scale / w)
        return up_array(total, 64.0 * (len(self.nodes) + 8))

    def ways(self, weights: Vector, scale: float) -> Vector:
        """Return the price of all ways from loci to the frequencies they stand on, for every record."""
        total = np.zeros(len(self.model.records))
        for k, w in sorted(set(zip(self.stands_on.tolist(), weights.tolist(), strict=True))):
            chosen = (self.stands_on == k) & (weights == w) & ~np.isnan(self.folded)
            if chosen.any():
                total += self._way(chosen, k, scale / w)
        return total

    def _way(self, chosen: NDArray[np.bool_], node: int, scale: float) -> Vector:
        """Return the price of the ways from some loci to the frequency they stand on."""
        return self.bridge.cost(
            scale, self.folded[chosen], float(self.nodes[node]), self.counts[chosen].astype(np.float64)
        )

    def worst_locus(self, adversary: Adversary, scale: float) -> Vector:
        """Return the largest leakage at one locus of this kind, for every record."""
        worst = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        if unknown.any():
            worst = self.any_frequency(adversary, scale)
        leakages = self.at_nodes(adversary, [(k, scale) for k in range(len(self.nodes))])
        for k, found in enumerate(leakages):
            price = self._dearest_way(k, scale) if adversary == PRIOR else 0.0
            worst = np.maximum(worst, up_array(found + price))
        return worst

    def _dearest_way(self, node: int, scale: float) -> Vector:
        """Return the price of the dearest way to a node: of the longest, or looking at every locus."""
        here = np.unique(self.folded[(self.stands_on == node) & ~np.isnan(self.folded)])
        if self.bridge.plain:
            here = here[[0, -1]]
        price = [self.bridge.cost(scale, here[k : k + 1], float(self.nodes[node])) for k in range(len(here))]
        return np.asarray(np.max(price, axis=0), dtype=np.float64)

    def at_nodes(self, adversary: Adversary, asked: Sequence[tuple[int, float]]) -> list[Vector]:
        """Return the leakage of every record, for nodes and scales."""
        return self.analyses.leakages([(adversary, float(self.nodes[k]), self.alpha(s)) for k, s in asked])

    def any_frequency(self, adversary: Adversary, scale: float) -> Vector:
        """Return a bound for every record that holds at any frequency."""
        if adversary == PRIOR:
            return self.bridge.any_frequency(up(scale, 8.0))
        return self.analyses.leakages([(EVERYWHERE, 0.25, self.alpha(scale))])[0]

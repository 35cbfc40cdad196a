"""The published bounds against the informed adversary, for comparison.

Lemma 2:  Leakage(i) ≤ min over quilts of |C| α + 4 b_i(C).
Lemma 3 (``published-blanket``): Leakage(i) ≤ α + 4 a_i, the Markov blanket alone.
Lemma 4 (``lemma4``, homogeneous reversible chains): quilts {i−s, i+s} with the influence bounded
through the spectral gap g and ρ = min π,  b ≤ 3 ln((1+Δ_s)/(1−Δ_s)), Δ_s = e^{−gs}/ρ.  The lemma
uses s without defining it; s = ⌈(1/g) ln((e^{ε/6}+1)/(ρ(e^{ε/6}−1)))⌉ makes the bound ε/2, and here
every s is tried.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltChainBound
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.graph.moral import moralize
from quiltdp.graph.quilts import quilts
from quiltdp.inference.influence import blanket_influence, quilt_influence
from quiltdp.inference.path import spectral_gap
from quiltdp.model import Model
from quiltdp.rounding import EPS, up, up_array

__all__ = [
    "BlanketBound",
    "Lemma4Bound",
    "PublishedBound",
    "PublishedChainBound",
    "lemma4_distance",
]


def _single_records(model: Model, units: Sequence[tuple[str, ...]] | None, name: str) -> tuple[str, ...]:
    if units is None:
        return tuple(model.records)
    if any(len(u) != 1 for u in units):
        raise InvalidArgument(
            f"the {name} bound is stated for single records, not for sets or windows;"
            f" use another {option('method')}"
        )
    return tuple(u[0] for u in units)


class PublishedBound:
    """Lemma 2: min over quilts of |C| α + 4 b_i(C), on any model.

    Parameters
    ----------
    model, units
        A connected model; single records only.
    max_nearby, max_quilts, seconds
        How far the quilts of each record are listed; the trivial quilt (group privacy) always counts.
    """

    name = "published"
    adversary = "informed"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        max_nearby: int = 4,
        max_quilts: int = 200,
        seconds: float = 15.0,
    ) -> None:
        records = _single_records(model, units, self.name)
        graph = moralize(model)
        deadline = time.monotonic() + seconds
        self._quilts: list[list[tuple[frozenset[str], np.ndarray, float]]] = []
        for record in records:
            found = []
            listed = quilts(graph, record, max_nearby=max_nearby, max_separator=24)
            for quilt in itertools.islice(listed, max_quilts):
                if not quilt.separator or time.monotonic() > deadline:
                    continue
                try:
                    b = quilt_influence(model, quilt, max_entries=2**17).b
                except ModelTooWide:
                    continue
                inside = [n for n in quilt.closed if model.is_record(n)]
                if math.isfinite(b):
                    places = np.array([model.index[n] for n in inside], dtype=np.intp)
                    found.append((quilt.separator, places, b))
            self._quilts.append(found)

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the smallest |C| α + 4 b of every record."""
        whole = up(float(alpha.sum()), len(alpha) + 8.0)
        values, witnesses = np.full(len(self._quilts), whole), {}
        for k, found in enumerate(self._quilts):
            for separator, inside, b in found:
                value = up(float(alpha[inside].sum()) + 4.0 * b * (1 + 1e-12), 64.0)
                if value < values[k]:
                    values[k] = value
                    witnesses[k] = {"separator": sorted(separator), "b": b}
        return RecordBounds(values, self.name, witnesses)


class PublishedChainBound(MarkovQuiltChainBound):
    """Lemma 2 on chains: quilts {i−a, i+b}, one-sided or empty, |C| α + 4 b.

    On a chain the maximum of b over what is known nearby is at L = ∅: a known record on one side
    only removes that side's influence.
    """

    name = "published"
    adversary = "informed"

    def __init__(self, model: Model, units: Sequence[tuple[str, ...]] | None = None) -> None:
        if not isinstance(model, ChainModel):
            raise InvalidArgument("this form of Lemma 2 is for Markov chains")
        _single_records(model, units, self.name)
        super().__init__(model, units)
        self._influences = [type(f)(4.0 * f.left, 4.0 * f.right, 4.0 * f.both) for f in self._influences]


class BlanketBound:
    """Lemma 3: Leakage(i) ≤ α_i + 4 a_i, a_i the influence of the Markov blanket (or group privacy)."""

    name = "published-blanket"
    adversary = "informed"

    def __init__(self, model: Model, units: Sequence[tuple[str, ...]] | None = None) -> None:
        records = _single_records(model, units, self.name)
        if len(records) > 5000:
            raise ModelTooWide(
                f"published-blanket takes at most 5,000 records, not {len(records):,}",
                f"use another {option('method')}",
            )
        self._places = np.array([model.index[r] for r in records], dtype=np.intp)
        self._influence = np.array([blanket_influence(model, r) for r in records])

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return α + 4 a for every record."""
        whole = up(float(alpha.sum()), len(alpha) + 8.0)
        value = up_array(alpha[self._places] + 4.0 * self._influence * (1 + 1e-12))
        return RecordBounds(np.minimum(value, whole), self.name)


def lemma4_distance(epsilon: float, gap: float, rho: float) -> int:
    """Return s = ⌈(1/g) ln((e^{ε/6} + 1) / (ρ (e^{ε/6} − 1)))⌉, the distance Lemma 4 needs.

    At this distance the influence of {i−s, i+s} is at most ε/2.

    Examples
    --------
    >>> lemma4_distance(1.0, gap=0.2, rho=0.5)
    16
    """
    grown = math.exp(epsilon / 6.0)
    return math.ceil(math.log((grown + 1.0) / (rho * (grown - 1.0))) / gap)


class Lemma4Bound:
    """Lemma 4: (2s − 1) α + 4·3 ln((1+Δ_s)/(1−Δ_s)), the best s, on a homogeneous reversible chain.

    Raises
    ------
    InvalidArgument
        Unless the model is one homogeneous, reversible chain in its stationary law.
    """

    name = "lemma4"
    adversary = "informed"

    def __init__(self, model: Model, units: Sequence[tuple[str, ...]] | None = None) -> None:
        records = None if units is None else _single_records(model, units, self.name)
        if not isinstance(model, ChainModel) or len(model.segments) != 1:
            raise InvalidArgument("lemma4 is stated for one Markov chain")
        self._count = len(model.nodes) if records is None else len(records)
        gap, rho = spectral_gap(model.segments[0])
        distance = np.arange(1, 20_001)
        delta = np.exp(-gap * distance) / rho
        usable = delta < 1.0
        ratio = np.log1p(delta[usable]) - np.log1p(-delta[usable])
        self._records = 2 * distance[usable] - 1
        self._influence = 12.0 * ratio

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the best s for the largest α (the lemma knows only equal ones)."""
        a = float(alpha.max())
        value = float(alpha.sum()) * (1 + len(alpha) * EPS)
        if len(self._records):
            value = min(value, float((self._records * a + self._influence).min()))
        return RecordBounds(np.full(self._count, up(value)), self.name)

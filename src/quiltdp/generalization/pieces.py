"""Fresh data for each answer: cutting a stationary chain into pieces that hardly know of each other.

Whoever has K pieces may ask adaptively as long as no piece is asked again after it has spoken.  On
independent pieces that is the textbook argument (Bonferroni on fresh data).  Consecutive stretches of
a Markov chain are not independent; with g steps left out between them their joint law is within total
variation (K − 1) τ_{g+1} of independent pieces, τ_d the contraction of the d-step matrix, because the
first step of a piece is all that the past can tell it.  That much is added to the failure probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import round_up
from quiltdp.generalization.concentration import additive_concentration, concentration
from quiltdp.generalization.routes import SAFETY, Task
from quiltdp.generalization.row_distance import contraction
from quiltdp.model import Model

__all__ = ["FreshRoute", "PieceOffer", "SplitRoute", "pieces_of"]

GAP_SHARE = 0.01
"""The part of the failure probability that pays for pieces not being quite independent."""
MOST_STEPS = 4096


@dataclass(frozen=True)
class PieceOffer:
    """K pieces of ``length`` steps with ``gap`` steps between them; answers within ``deviation``."""

    pieces: int
    length: int
    gap: int
    deviation: float


@dataclass(frozen=True, eq=False)
class StationaryChain:
    """A homogeneous chain in its stationary law, as pieces are cut from it."""

    segment: ChainSegment
    contractions: tuple[float, ...]

    def cut(self, pieces: int, failure: float, questions: float) -> PieceOffer | None:
        """Return K pieces on which ``questions`` fixed queries deviate by at most t, or None."""
        gap = self._gap(pieces, GAP_SHARE * failure)
        if gap is None:
            return None
        length = (self.segment.length - (pieces - 1) * gap) // pieces
        if length < 1:
            return None
        segment = ChainSegment(self.segment.prefix, length, self.segment.initial, self.segment.transitions)
        size = _best_size(ChainModel([segment]))
        inside = math.log(2 * questions / ((1 - GAP_SHARE) * failure))
        return PieceOffer(pieces, length, gap, round_up(math.sqrt(inside / (2 * size))))

    def _gap(self, pieces: int, allowed: float) -> int | None:
        if pieces == 1:
            return 0
        for d, tau in enumerate(self.contractions, start=1):
            if (pieces - 1) * tau <= allowed:
                return d - 1
        return None


def _best_size(piece: ChainModel) -> float:
    """Return the effective number of records for means of one function over a piece."""
    size = concentration(piece).effective_sample_size
    try:
        return max(size, additive_concentration(piece).effective_sample_size)
    except InvalidArgument:  # not reversible
        return size


def pieces_of(model: Model) -> StationaryChain:
    """Return the chain that pieces may be cut from.

    Raises
    ------
    InvalidArgument
        Unless the model is one homogeneous Markov chain in its stationary law: only then does a mean
        over a piece stand for the mean over all.
    """
    if not isinstance(model, ChainModel) or len(model.segments) != 1 or not model.segments[0].homogeneous:
        raise InvalidArgument("pieces need one homogeneous Markov chain")
    segment = model.segments[0]
    step, law = np.asarray(segment.transition(0)), np.asarray(segment.initial)
    if np.abs(law @ step - law).max() > 1e-12:
        raise InvalidArgument("pieces need a chain that starts in its stationary law")
    found, power = [], step
    for d in range(1, MOST_STEPS):
        found.append(min(1.0, contraction(power) + 1e-15 * d * len(step)))
        if found[-1] < 1e-15:
            break
        power = power @ step
    return StationaryChain(segment, tuple(found))


@dataclass(frozen=True, eq=False)
class SplitRoute:
    """A fresh piece after every answer: B pieces, each asked until it speaks.

    Claim: on a piece the queries are fixed as long as the training set answers, so at most B·m
    (piece, query) pairs are looked at, and none of them deviates by t except with probability
    2Bm exp(−2t² n_eff(piece)) + (B − 1) τ_{g+1}.
    """

    chain: StationaryChain
    name: str = "a fresh piece after each answer"
    theorem: str = "splitting the holdout, concentration of each piece under the model"
    covers: str = "means of one function of a record"

    def cut(self, task: Task) -> PieceOffer | None:
        """Return the pieces for this task."""
        pieces = max(1, math.floor(task.spends))
        return self.chain.cut(pieces, SAFETY * task.failure, task.queries * pieces)


@dataclass(frozen=True, eq=False)
class FreshRoute:
    """A fresh piece for every query: m pieces, each asked once (Bonferroni on fresh data).

    Claim: no answer deviates by t except with probability 2m exp(−2t² n_eff(piece)) + (m − 1) τ_{g+1}.
    No training set and no budget are needed.
    """

    chain: StationaryChain
    name: str = "a fresh piece for each query"
    theorem: str = "Bonferroni on fresh data, concentration of each piece under the model"
    covers: str = "means of one function of a record"

    def cut(self, task: Task) -> PieceOffer | None:
        """Return the pieces for this task; None when there are more queries than records."""
        if task.queries > self.chain.segment.length:
            return None
        pieces = math.ceil(task.queries)
        return self.chain.cut(pieces, SAFETY * task.failure, pieces)

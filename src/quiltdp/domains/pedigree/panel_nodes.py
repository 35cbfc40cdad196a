"""The frequencies that stand for all loci of a panel: each analysed when it is first asked about.

Frequencies and adversaries are independent, so they may be asked in workers, and answers may be kept in
a journal: the same family, frequency, adversary and α have the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.profile import LeakageProfile, analyze
from quiltdp.domains.pedigree.network import pedigree
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.journal import Journal, each_kept, key_of
from quiltdp.model import Model
from quiltdp.parallel import Progress

__all__ = ["EVERYWHERE", "Node", "NodeAnalyses"]

EVERYWHERE = "everywhere"
"""Stands where an adversary does: the informed one at any frequency, by propagation."""

_FEW = 4  # distinct frequencies: every method is tried on each of them

Vector = NDArray[np.float64]
Node = tuple[str, float, Mapping[str, float]]
"""An adversary, a frequency, and α of every record."""


class NodeAnalyses:
    """A family at some frequencies: what each record leaks there, for any α.

    Parameters
    ----------
    family, study, genetics
        As for :func:`quiltdp.pedigree`.
    distinct
        How many frequencies the panel has; where they are few, every method is tried.
    executor, journal, progress
        Where to ask, and what remembers; neither is sent to a worker.
    """

    def __init__(
        self,
        family: Pedigree,
        study: Any,
        genetics: Mapping[str, Any],
        *,
        distinct: int,
        time_limit: float,
        executor: Executor | None = None,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.some = pedigree(family, 0.25, study=study, **genetics)
        self.few = distinct <= _FEW
        self.executor, self.journal, self.progress = executor, journal, progress
        self._source = (family, study, dict(genetics))
        self._limit = time_limit
        self._profiles: dict[tuple[str, float], LeakageProfile] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Send the question, not what was found here."""
        mine: dict[str, Any] = {"executor": None, "journal": None, "progress": None, "_profiles": {}}
        return {**self.__dict__, **mine}

    def profile(self, adversary: str, frequency: float) -> LeakageProfile:
        """Return the analysis at a frequency, made now if it is not there."""
        place = self._stands_for(adversary, frequency)
        if place not in self._profiles:
            self._profiles[place] = self._analyse(*place)
        return self._profiles[place]

    def _stands_for(self, adversary: str, frequency: float) -> tuple[str, float]:
        """Return what is analysed for a question: one frequency for all where it cancels."""
        if adversary == EVERYWHERE or (adversary == "informed" and not self.few):
            return EVERYWHERE, 0.25
        return adversary, frequency

    def _analyse(self, adversary: str, frequency: float) -> LeakageProfile:
        if adversary == EVERYWHERE:
            return analyze(self.some, adversary="informed", method="propagation", time_limit=self._limit)
        family, study, genetics = self._source
        return _profile(
            pedigree(family, frequency, study=study, **genetics), adversary, self.few, self._limit
        )

    def prepare(self, adversaries: Sequence[str], frequencies: Sequence[float]) -> None:
        """Analyse now what will be asked here; what is asked in workers or remembered may never be."""
        if self.executor is not None or self.journal is not None:
            return
        self.profile(EVERYWHERE, 0.25)
        for adversary in adversaries:
            for k, frequency in enumerate(frequencies):
                if self.progress is not None:
                    said = f"analysing frequencies against the {adversary} adversary"
                    self.progress(said, k / len(frequencies))
                self.profile(adversary, frequency)

    def leakages(self, asked: Sequence[Node]) -> list[Vector]:
        """Return the leakage of every record, for every question."""
        found = each_kept(
            _leakage,
            asked,
            key=self._key,
            journal=self.journal,
            shared=self,
            executor=self.executor,
            progress=self.progress if len(asked) > 1 else None,
            label="what the noise leaks, frequency by frequency",
            total=len(asked),
        )
        return [np.array(values) for _, values in found]

    def _key(self, node: Node) -> str:
        adversary, frequency, alpha = node
        place = self._stands_for(adversary, frequency)
        return key_of(self.some.fingerprint, self.few, *place, dict(alpha))


def _leakage(analyses: NodeAnalyses, node: Node) -> list[float]:
    adversary, frequency, alpha = node
    found = analyses.profile(adversary, frequency).leakage(alpha).per_record
    return [found[r] for r in analyses.some.records]


def _profile(model: Model, adversary: str, few: bool, time_limit: float) -> LeakageProfile:
    """Analyse one frequency: with every method where there are few, else with the quick ones."""
    if few or adversary == "informed":
        return analyze(model, adversary=adversary, time_limit=time_limit)
    quick = "normal:forward-backward"  # the stages up to there; coupling settles it where the tree is narrow
    return analyze(model, adversary=adversary, work=quick, time_limit=time_limit)

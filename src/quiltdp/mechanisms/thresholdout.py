r"""Thresholdout, Algorithm 1 of the reusable holdout, on a grid.

State: the noisy threshold T̂ = T + Lap(σ) of the current *epoch*, and how many answers came from the
holdout.  An epoch lasts from one such answer to the next.  For a query with holdout value h and
training value t:

- ⊥ if B answers have come from the holdout;
- if |h − t| + Lap(2σ) > T̂: answer h + Lap(4σ), the epoch ends, the next one draws a new T̂;
- otherwise: answer t.

Why 9Δ/(4σ) for an epoch.  Fix a transcript.  Shift T̂ by Δ: every comparison that came out below
stays below in the neighbouring data set, at a factor e^{Δ/σ}.  The one that came out above needs its
own noise shifted by 2Δ, a factor e^{2Δ/2σ}, and the answer by Δ, a factor e^{Δ/4σ}.  An epoch that has
not ended costs only the first: Δ/σ, which is 4/9 of the whole.  That is what the ledger books when an
epoch opens; the other 5/9 when it ends.  All three noises are discrete Laplace on one grid, so the
shifts are whole numbers of steps and the argument holds exactly; |h − t| is rounded once, through h.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.additive import smallest_sensitivity
from quiltdp.mechanisms.contract import PureMechanism, import_dp_accounting, register
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise, charged_scale
from quiltdp.mechanisms.sensitivities import Sensitivity, frozen_sensitivity, whole_at_least_one

__all__ = [
    "Thresholdout",
    "ThresholdoutMechanism",
    "ThresholdoutState",
    "failure_probability",
    "sample_error",
]

ROUNDING_TOLERANCE = Fraction(1, 2**20)
"""In grid steps: how far 1/n may exceed the Δ that was stated as a double; it is charged too."""

Source = Literal["train", "holdout", "spent"]


@register("thresholdout", says="the reusable holdout: pure DP with α = 9 B Δ/(4σ) for B noisy answers")
@dataclass(frozen=True)
class Thresholdout(PureMechanism):
    """The reusable holdout: α = 9 B Δ / (4 σ) for a budget of B noisy answers, and this is tight.

    Each spend costs Δ/σ for the threshold, 2Δ/(2σ) for the comparison and Δ/(4σ) for the answer.

    Parameters
    ----------
    budget
        B, how many answers may come from the holdout.
    sensitivity
        Δ of every query: 1/n for the mean of n values in [0, 1], or ``record -> Δ_j``.

    Examples
    --------
    >>> from quiltdp import Thresholdout
    >>> Thresholdout(budget=10, sensitivity=0.001).scale(dp_epsilon=0.9)
    0.025...
    """

    budget: int
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Refuse a budget below 1 and a sensitivity that is no positive finite number or mapping."""
        object.__setattr__(self, "budget", whole_at_least_one(self.budget, "budget"))
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))

    @property
    def answers(self) -> int:
        """How many answers may come from the holdout."""
        return self.budget

    def _cost_factor(self) -> Fraction:
        return Fraction(9 * self.budget, 4)

    def to_opendp(self, scale: float) -> Any:
        """Refuse: Thresholdout is not one release of noise."""
        raise InvalidArgument("Thresholdout is an algorithm, not one release: use quiltdp.ReusableHoldout")

    def to_dp_event(self, scale: float) -> Any:
        """Return a discrete Laplace event of sensitivity 1 with the α of the whole budget.

        Its privacy loss is ±α, that of binary randomized response, so it dominates every α-DP
        algorithm (a Laplace event of that α would not).  Randomized response itself is no use here:
        the accountant of ``dp_accounting`` takes it for other neighbours only, and forgets how often
        it was repeated.
        """
        event = import_dp_accounting().dp_event
        return event.DiscreteLaplaceDpEvent(noise_parameter=self._largest_alpha(scale), sensitivity=1)

    @classmethod
    def default_sensitivity(cls, *, most: int, people: int) -> float:
        """Return Δ of a mean over all people: ``most`` of them stand behind one record."""
        return most / people


@dataclass(frozen=True)
class ThresholdoutState:
    """Where a run stands: answers given from the holdout, and the secret threshold in grid steps."""

    answers: int = 0
    threshold: int | None = None

    def __post_init__(self) -> None:
        if self.answers < 0:
            raise InvalidArgument(f"the number of answers cannot be negative: {self.answers}")

    def __repr__(self) -> str:
        """Never show the threshold."""
        return f"ThresholdoutState(answers={self.answers}, open={self.threshold is not None})"


@dataclass(frozen=True)
class Outcome:
    """What happened to one query: who answers, and whether an epoch was opened for it."""

    source: Source
    units: int | None
    opened: int | None
    """The new secret threshold, in grid steps, if this query opened an epoch."""

    def __repr__(self) -> str:
        """Never show the threshold."""
        return f"Outcome(source={self.source!r}, units={self.units}, opened={self.opened is not None})"


class ThresholdoutMechanism:
    """Thresholdout without memory on disk: the algorithm itself.

    :class:`quiltdp.ReusableHoldout` is what to use on data; it keeps this algorithm's state in a
    ledger.

    Parameters
    ----------
    spec
        Budget B and sensitivity Δ.
    scale
        σ.  The noise drawn is larger by less than two parts in a million, which pays for the
        rounding to :attr:`grid`.
    threshold
        T, in [0, 1].
    noise
        Keyword for tests and simulations.

    Examples
    --------
    >>> from quiltdp import Thresholdout
    >>> from quiltdp.mechanisms import ThresholdoutMechanism
    >>> mechanism = ThresholdoutMechanism(Thresholdout(budget=1, sensitivity=1e-3), scale=1e-3, threshold=0.1)
    >>> mechanism.answer(0.50, 0.51)
    ('train', 0.51)
    >>> mechanism.answer(0.2, 0.9)[0], mechanism.answer(0.2, 0.9)
    ('holdout', ('spent', None))
    """

    def __init__(
        self, spec: Thresholdout, scale: float, threshold: float, *, noise: NoiseSource | None = None
    ) -> None:
        if not isinstance(spec, Thresholdout):
            raise InvalidArgument(f"Thresholdout needs a Thresholdout specification, not {spec!r}")
        if not 0.0 <= threshold <= 1.0:
            raise InvalidArgument(f"threshold must lie in [0, 1], not {threshold!r}")
        self.spec = spec
        self.scale = float(scale)
        self.threshold = float(threshold)
        self.dp_epsilon = spec.dp_epsilon(scale)
        smallest = smallest_sensitivity(spec.sensitivity)
        self.grid = Grid.finer_than(smallest, self.scale)
        self._scales = {
            k: charged_scale(k * Fraction(self.scale), self.grid, smallest, 1 + ROUNDING_TOLERANCE)
            for k in (1, 2, 4)
        }
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()
        self.state = ThresholdoutState()

    @property
    def noise_scale(self) -> float:
        """The σ that is drawn: the stated one and the price of rounding."""
        return self._scales[1] * self.grid.step

    @property
    def secure(self) -> bool:
        """Whether the noise is fit for a release."""
        return self._noise.secure

    def covers(self, sensitivity: Fraction) -> bool:
        """Return whether a query of this exact sensitivity, for every record, is paid for."""
        stated = self.spec.sensitivity
        smallest = min(stated.values()) if isinstance(stated, Mapping) else stated
        return sensitivity <= Fraction(smallest) + ROUNDING_TOLERANCE * self.grid.exact_step

    def answer(self, holdout_value: float, train_value: float) -> tuple[Source, float | None]:
        """Answer one query and remember it: (source, value); value is None for ⊥."""
        pair = (self.units(holdout_value), self.units(train_value))
        (outcome,), self.state = self.run([pair], self.state)
        if outcome.source == "train":
            return "train", float(train_value)
        return outcome.source, None if outcome.units is None else self.grid.value(outcome.units)

    def units(self, value: float | Fraction) -> int:
        """Return a query value in grid steps, or refuse what is not in [0, 1]."""
        if not 0 <= value <= 1:  # NaN too
            raise InvalidArgument(f"a query value must lie in [0, 1], not {value!r}")
        return self.grid.units(value)

    def make_ready(self) -> None:
        """Load and build the samplers: afterwards drawing takes no time in which a charge could be lost."""
        for scale in self._scales.values():
            self._noise.laplace([], scale)

    def run(
        self, pairs: Sequence[tuple[int, int]], state: ThresholdoutState
    ) -> tuple[list[Outcome], ThresholdoutState]:
        """Answer queries one after the other from a state; values are in grid steps.

        Noise is drawn in three calls whatever the number of queries; draws not needed are thrown
        away, so the law of the outcomes is that of asking one by one.
        """
        answers_left = self.spec.budget - state.answers
        if answers_left <= 0:
            return [Outcome("spent", None, None)] * len(pairs), state
        noisy = self._noise.laplace([abs(h - t) for h, t in pairs], self._scales[2])
        base = self.grid.units(self.threshold)
        is_open = state.threshold is not None
        may_open = min(answers_left, len(pairs)) - is_open
        fresh = iter(self._noise.laplace([base] * may_open, self._scales[1]))
        sources: list[tuple[Source, int | None]] = []
        above: list[int] = []
        threshold = state.threshold
        for k, gap in enumerate(noisy):
            if len(above) == answers_left:
                sources.append(("spent", None))
                continue
            opened = next(fresh) if threshold is None else None
            threshold = threshold if opened is None else opened
            if threshold is not None and gap > threshold:
                above.append(k)
                threshold = None
                sources.append(("holdout", opened))
            else:
                sources.append(("train", opened))
        values = self._noise.laplace([pairs[k][0] for k in above], self._scales[4])
        noisy_answer = dict(zip(above, values, strict=True))
        outcomes = [
            Outcome(source, noisy_answer.get(k, pairs[k][1] if source == "train" else None), opened)
            for k, (source, opened) in enumerate(sources)
        ]
        return outcomes, ThresholdoutState(state.answers + len(above), threshold)

    def error_bound(
        self, source: Source, *, failure: float, queries: int | None = None, number: int = 1
    ) -> float:
        """Return how far an answer may be from the holdout's value; see :func:`sample_error`."""
        exact = sample_error(
            self.noise_scale, self.threshold, self.spec.budget, failure, source, queries, number
        )
        # rounding of the two values, of T, and the steps of the discrete tails
        return exact * (1.0 + 2.0**-50) + 4.0 * self.grid.step


def _checked_accuracy(sigma: float, threshold: float, budget: int) -> None:
    if not (sigma > 0.0 and threshold >= 0.0 and budget >= 1):
        raise InvalidArgument("accuracy needs scale > 0, threshold ≥ 0 and budget ≥ 1")


def sample_error(
    sigma: float,
    threshold: float,
    budget: int,
    failure: float,
    source: Source | None = None,
    queries: int | None = None,
    number: int = 1,
) -> float:
    r"""Return the error a that Thresholdout keeps on all answered queries with probability 1 − β.

    .. math:: a = \max(T + σ \ln(3B'/2β) + 2σ \ln(3m/2β),\; 4σ \ln(3B'/β)), \quad B' = \min(B, m)

    The first term covers answers from the training set, the second those from the holdout; with
    ``source`` only its own term is returned (both hold at once).  Without a number of queries m, the
    bound holds for however many are asked: the j-th one gets the share 6/(π²j²) of β/3.

    Parameters
    ----------
    sigma, threshold, budget
        σ, T, B.
    failure
        β in (0, 1).
    queries
        m, if it is fixed beforehand.
    number
        j, counted from 1; used when ``queries`` is not given.

    Examples
    --------
    >>> from quiltdp.mechanisms.thresholdout import failure_probability, sample_error
    >>> a = sample_error(0.01, 0.04, 10, 0.05, queries=100)
    >>> failure_probability(a, 0.01, 0.04, 10, queries=100) <= 0.05
    True
    """
    _checked_accuracy(sigma, threshold, budget)
    if not 0.0 < failure < 1.0:
        raise InvalidArgument(f"failure must lie strictly between 0 and 1, not {failure!r}")
    if (queries is not None and queries < 1) or number < 1:
        raise InvalidArgument("queries and number must be at least 1")
    used = budget if queries is None else min(budget, queries)
    comparisons = float(queries) if queries is not None else math.pi**2 / 6.0 * number * number
    low = (
        threshold
        + sigma * max(0.0, math.log(1.5 * used / failure))
        + 2.0 * sigma * max(0.0, math.log(1.5 * comparisons / failure))
    )
    high = 4.0 * sigma * max(0.0, math.log(3.0 * used / failure))
    if source == "train":
        return low
    return high if source == "holdout" else max(low, high)


def failure_probability(error: float, sigma: float, threshold: float, budget: int, *, queries: int) -> float:
    r"""Return b(a), a bound on the chance that some answer is off the holdout's value by more than a.

    .. math:: b(a) = ½ B' e^{−s_1/σ} + ½ m e^{−s_2/2σ} + B' e^{−a/4σ}, \quad s_1 + s_2 = a − T

    at the best split of a − T; 1 if a < T.
    """
    _checked_accuracy(sigma, threshold, budget)
    if queries < 1 or math.isnan(error):
        raise InvalidArgument("failure_probability needs queries ≥ 1 and a number for the error")
    room = error - threshold
    if room < 0.0:
        return 1.0
    used = min(budget, queries)
    s1 = min(room, max(0.0, (2.0 * sigma * math.log(2.0 * used / queries) + room) / 3.0))
    s2 = room - s1
    total = (
        0.5 * used * math.exp(-s1 / sigma)
        + 0.5 * queries * math.exp(-s2 / (2.0 * sigma))
        + used * math.exp(-error / (4.0 * sigma))
    )
    return min(1.0, total * (1.0 + 2.0**-48))

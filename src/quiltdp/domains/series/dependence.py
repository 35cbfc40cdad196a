"""Tests that a table's rows depend on each other in no way but the model's.  A test may only refuse.

Under the model every function f of a row has residuals r_t = f(row_t) − E[f(row_t) | the row before] that
nothing earlier foretells.  So Σ r_t w_t is a martingale for all weights w_t that are known before row t, and

    P[|Σ r_t w_t| ≥ √(2LV) + bL/3] ≤ 2e^{−L},   V = Σ Var[r_t | the row before] w_t²,   |r_t w_t| ≤ b

(Freedman 1975; for CUSUMs the bound holds for the largest partial sum).  The functions: every column, its
spread and its texts; whether two columns agree; products of two and three columns; what is left of a column
that the others foretell by least squares, and its size; and some random functions of the joint state.
The weights: the same functions one row earlier, two rows, …, up to half of the table; the mean of the last
4, 16, 64, … residuals; and 1 (a drift).  L = ln(2 · tests/level): all tests together refuse rows that
follow the model with probability :data:`LEVEL` at most, up to the error of the fitted law.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.parallel import Progress

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LEVEL = 1e-3
"""The chance that rows which follow the model are refused, over all tests."""
MOST_ROWS = 1 << 17  # for lags; a drift is looked for in all rows
_CROSSED = 16  # so many functions are compared with each other, the rest with themselves
_COMBINED = 100  # at most so many pairs, and so many triples
_VALUES = 8  # a column with more is looked at by rank
_RANDOM = 8
_CELLS = 50_000_000  # functions × rows that are held at a time


@dataclass(frozen=True, eq=False)
class Feature:
    """A function of a row, in [−1, 1]."""

    name: str
    values: Floats


@dataclass(frozen=True)
class Violation:
    """The dependence that stands out most.

    Attributes
    ----------
    what, earlier
        The functions of two rows that depend on each other.
    lag
        How many rows earlier the other is, as text.
    z
        In standard deviations.
    tests
        How many were made.
    """

    what: str
    earlier: str
    lag: str
    z: float
    tests: int

    def __str__(self) -> str:
        """Read as half a sentence."""
        with_what = "itself" if self.what == self.earlier else self.earlier
        return (
            f"{self.what} depends on {with_what} {self.lag} ({abs(self.z):.1f} standard deviations;"
            f" level {LEVEL:g} over {self.tests:,} tests)"
        )


def make_features(columns: Mapping[str, Sequence[Any]], joint: Ints) -> list[Feature]:
    """Return the functions of a row that are tested, the first :data:`CROSSED` also with each other."""
    of = {name: _column_features(name, values) for name, values in columns.items()}
    single = [found[0] for found in of.values()]
    more = [f for found in of.values() for f in found[1:]]
    pairs, triples = (
        [_product_feature(chosen) for chosen in islice(combinations(single, width), _COMBINED)]
        for width in (2, 3)
    )
    alike = [
        Feature(
            f"'{a} == {b}'",
            _scale_to_unit_range([x == y for x, y in zip(columns[a], columns[b], strict=True)]),
        )
        for a, b in islice(combinations(columns, 2), _COMBINED)
        if not set(columns[a]).isdisjoint(columns[b])
    ]
    left = [f for name in columns for f in _residual_features(name, of)] if len(columns) > 1 else []
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_RANDOM, int(joint.max()) + 1))
    said = "a mixture of " + ", ".join(repr(name) for name in columns)
    random = [Feature(said, _scale_to_unit_range(s[joint])) for s in signs] if len(columns) > 1 else []
    found = (*single, *alike, *pairs, *left, *more, *triples, *random)
    most = max(_CROSSED, _CELLS // len(joint))
    return [f for f in found if np.ptp(f.values) > 0][:most]


def _column_features(name: str, values: Sequence[Any]) -> list[Feature]:
    """Return a column as functions in [−1, 1]: ranks and how far out; of a few values or texts, each."""
    common = Counter(values).most_common(_VALUES + 1)
    numbers = all(isinstance(v, (int, float)) for v in values)
    if numbers and len(common) > _VALUES:
        ranks = _ranks(np.array(values, dtype=np.float64))
        return [
            Feature(repr(name), ranks),
            Feature(f"the size of {name!r}", _scale_to_unit_range(np.abs(ranks))),
        ]
    if len(common) == 2:
        return [Feature(repr(name), _scale_to_unit_range([v == common[0][0] for v in values]))]
    each = [
        Feature(f"'{name} == {v}'", _scale_to_unit_range([x == v for x in values]))
        for v, _ in common[:_VALUES]
    ]
    order = {v: k for k, (v, _) in enumerate(sorted(common, key=lambda item: str(item[0])))}
    first = np.array([v if numbers else order.get(v, -1) for v in values], dtype=np.float64)
    return [Feature(repr(name), _ranks(first)), *each]


def _residual_features(name: str, of: Mapping[str, list[Feature]]) -> list[Feature]:
    """Return what the other columns do not foretell of a column, and its size."""
    others = np.stack([f.values for other, found in of.items() if other != name for f in found], axis=1)
    wanted = of[name][0].values
    rest = wanted - others @ np.linalg.lstsq(others, wanted, rcond=None)[0]
    told = f"what the other columns leave of {name!r}"
    return [Feature(told, _ranks(rest)), Feature(f"the size of {told}", _ranks(np.abs(rest)))]


def _product_feature(parts: Sequence[Feature]) -> Feature:
    return Feature(
        " × ".join(p.name for p in parts), _scale_to_unit_range(np.prod([p.values for p in parts], axis=0))
    )


def _scale_to_unit_range(values: Any) -> Floats:
    """Return the values, centred, in [−1, 1]."""
    found: Floats = np.asarray(values, dtype=np.float64)
    found = found - found.mean()
    return np.asarray(found / (np.abs(found).max() or 1.0))


def _ranks(values: Floats) -> Floats:
    """Return ranks in [−1, 1], the same for equal values: nothing is far out."""
    _, where, counts = np.unique(values.round(9), return_inverse=True, return_counts=True)
    return _scale_to_unit_range((np.cumsum(counts) - counts / 2)[where.reshape(-1)])


def find_violation(
    features: Sequence[Feature],
    states: Ints,
    matrix: Floats,
    line: Ints,
    before: Ints,
    *,
    progress: Progress | None = None,
) -> Violation | None:
    """Return the dependence beyond the model that stands out most, or ``None``.

    Parameters
    ----------
    features, states
        Functions and state of every row; −1 where it has none.
    matrix
        The law of the next state, row = from; one state for rows that are independent.
    line
        The row of every step, in the order in which rows are compared; −1 for a step without one.
    before
        The row that comes before that step by the model; −1 where there is none, and nothing is tested.
    progress
        Called with a label and a fraction in [0, 1].
    """
    crossed = [_TestedFeature(f, states, matrix, line, before) for f in features[:_CROSSED]]
    lags = min(len(line), MOST_ROWS) // 2
    widths = [4**k for k in range(1, 16) if 2 * 4**k <= len(line)]
    tests = lags * (len(features) + len(crossed) * (len(crossed) - 1)) + (len(widths) + 1) * len(features)
    worth = math.log(2 * tests / LEVEL)
    worst: tuple[float, Violation | None] = (1.0, None)
    for j, feature in enumerate(features):
        if progress is not None:
            progress("tests of dependence", j / len(features))
        now = crossed[j] if j < len(crossed) else _TestedFeature(feature, states, matrix, line, before)
        made = [now.cumulated_residuals(), *(now.correlate_with_own_past(width) for width in widths)]
        made += [now.correlate_with_lagged(then, lags) for then in (crossed if j < len(crossed) else (now,))]
        for then, sums, variance, most, lag in made:
            ratio = np.abs(sums) / (np.sqrt(2 * worth * variance) + most * worth / 3 + 1e-9)
            k = int(np.argmax(ratio))
            if ratio[k] > worst[0]:
                z = float(abs(sums[k]) / math.sqrt(max(variance[k], 1e-12)))
                worst = float(ratio[k]), Violation(now.name, then, lag(k), z, tests)
    return worst[1]


_Sums: TypeAlias = "tuple[str, Floats, Floats, float, Callable[[int], str]]"
"""With what, the sums, their variances, the largest term, and the lag of each."""


class _TestedFeature:
    """One function of a row: its residuals, their variance under the model, and itself, step by step."""

    def __init__(self, feature: Feature, states: Ints, matrix: Floats, line: Ints, before: Ints) -> None:
        f = feature.values
        seen, known = states[states >= 0], f[states >= 0]
        count = np.maximum(np.bincount(seen, minlength=len(matrix)), 1)
        first, second = (
            np.bincount(seen, power, minlength=len(matrix)) / count for power in (known, known**2)
        )
        mean = matrix @ first
        spread = np.maximum(matrix @ second - mean**2, 0.0)
        judged, came = (line >= 0) & (before >= 0), states[before]
        self.name = feature.name
        self.rest = np.where(judged, f[line] - mean[came], 0.0)
        self.variance = np.where(judged, spread[came], 0.0)
        self.value = np.where(line >= 0, f[line], 0.0)
        self.most = float(np.abs(self.rest).max())
        self.sums = np.cumsum(self.rest)

    def cumulated_residuals(self) -> _Sums:
        """Sum the residuals up to each row."""
        top = np.abs(self.sums).max(keepdims=True)
        return self.name, top, self.variance.sum(keepdims=True), self.most, lambda _: "at all lags: it drifts"

    def correlate_with_own_past(self, width: int) -> _Sums:
        """Weigh every residual with the mean of the last ones."""
        ends = np.r_[0.0, self.sums]
        past = (ends[:-1] - np.r_[np.zeros(width), ends[: -width - 1]]) / width
        sums, variance = self.rest @ past, self.variance @ past**2
        most = self.most * float(np.abs(past).max())
        return self.name, sums[None], variance[None], most, lambda _: f"at lags 1 to {width:,}"

    def correlate_with_lagged(self, then: _TestedFeature, lags: int) -> _Sums:
        """Weigh every residual with another function of an earlier row, at every lag."""
        (rest, spread), (value, square) = self._fourier_transforms[:2], then._fourier_transforms[2:]
        sums, variance = (
            np.fft.irfft(a * b.conj())[1 : lags + 1] for a, b in ((rest, value), (spread, square))
        )
        most = self.most * float(np.abs(then.value).max())
        return then.name, sums, np.maximum(variance, 0.0), most, lambda k: f"at lag {k + 1:,}"

    @cached_property
    def _fourier_transforms(self) -> tuple[NDArray[np.complex128], ...]:
        """The Fourier transforms that make all lags cost as much as a few."""
        span = min(len(self.rest), MOST_ROWS)
        size = 1 << (span + span // 2).bit_length()
        parts = self.rest, self.variance, self.value, self.value**2
        return tuple(np.fft.rfft(part[:span], size) for part in parts)

"""How numbers become states: the rule and its edges are part of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option

__all__ = ["Bins", "find_bins"]

RULES = ("quantile", "width")


@dataclass(frozen=True)
class Bins:
    """States of a column: intervals between inner edges, or the texts themselves.

    Attributes
    ----------
    rule
        ``quantile``, ``width``, ``edges``, ``values`` or ``texts``.
    edges
        The inner edges, ascending; state k holds edges[k−1] ≤ x < edges[k].
    names
        One name per state.
    """

    rule: str
    edges: tuple[float, ...]
    names: tuple[str, ...]

    def states(self, values: Sequence[object]) -> NDArray[np.int64]:
        """Return the state of every value.

        Raises
        ------
        InvalidArgument
            For a text that was not seen when the states were found.
        """
        if self.rule == "texts":
            index = {name: k for k, name in enumerate(self.names)}
            odd = next((v for v in values if str(v) not in index), None)
            if odd is not None:
                raise InvalidArgument(f"the value {odd!r} is none of the states {', '.join(self.names)}")
            return np.array([index[str(v)] for v in values], dtype=np.int64)
        numbers = np.asarray(values, dtype=np.float64)
        return np.searchsorted(np.asarray(self.edges), numbers, side="right").astype(np.int64)


def find_bins(
    values: Sequence[object], states: int = 8, rule: str = "quantile", edges: Sequence[float] | None = None
) -> Bins:
    """Return the states of a column.

    - ``quantile``: as many values in every state as ties allow;
    - ``width``: intervals of equal width between the smallest and the largest value;
    - ``edges``: the inner edges that are given;
    - ``values``: a column with no more different numbers than states has a state for each of them;
    - a column that is not all numbers: every text is a state.

    Examples
    --------
    >>> find_bins([1.0, 2.0, 3.0, 4.0], states=2)
    Bins(rule='quantile', edges=(2.5,), names=('below 2.5', '2.5 and above'))
    """
    if isinstance(states, bool) or not isinstance(states, int) or not 1 <= states <= 1000:
        raise InvalidArgument(f"{option('states')} must be a whole number from 1 to 1000, not {states!r}")
    numbers = _numbers(values)
    if numbers is None:
        names = tuple(sorted({str(v) for v in values}))
        if len(names) > 1000:
            raise InvalidArgument(
                f"the column has {len(names):,} different texts: at most 1,000 can be states"
            )
        return Bins("texts", (), names)
    if edges is not None:
        inner = np.asarray(sorted(set(edges)), dtype=np.float64)
        if not np.isfinite(inner).all():
            raise InvalidArgument(f"{option('edges')} must be finite numbers")
        return Bins("edges", tuple(inner.tolist()), _interval_names(inner))
    if rule not in RULES:
        raise InvalidArgument(f"{option('binning')} must be {' or '.join(RULES)}, not {rule!r}")
    distinct = np.unique(numbers)
    if len(distinct) <= states:
        inner = (distinct[:-1] + distinct[1:]) / 2
        return Bins("values", tuple(inner.tolist()), tuple(f"{v:.12g}" for v in distinct))
    if rule == "quantile":
        inner = np.quantile(numbers, np.arange(1, states) / states) if states > 1 else np.zeros(0)
    else:
        inner = np.linspace(numbers.min(), numbers.max(), states + 1)[1:-1]
    inner = np.unique(inner)
    inner = inner[inner > numbers.min()]  # an edge at the smallest value would leave a state without values
    return Bins(rule, tuple(inner.tolist()), _interval_names(inner))


def _numbers(values: Sequence[object]) -> NDArray[np.float64] | None:
    """Return the values as finite numbers, or ``None`` if some are texts."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if not np.isfinite(numbers).all():
        where = int(np.argmin(np.isfinite(numbers)))
        raise InvalidArgument(f"value {where + 1} is {values[where]!r}: give finite numbers, or leave it out")
    return numbers


def _interval_names(edges: NDArray[np.float64]) -> tuple[str, ...]:
    if not len(edges):
        return ("any",)
    shown = [f"{e:.6g}" for e in edges]
    if len(set(shown)) < len(shown):
        shown = [repr(float(e)) for e in edges]
    middle = [f"{a} to {b}" for a, b in pairwise(shown)]
    return (f"below {shown[0]}", *middle, f"{shown[-1]} and above")

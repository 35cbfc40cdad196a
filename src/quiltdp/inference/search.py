"""One quilt, every known set: b, the swings, and the values that attain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from quiltdp.inference.marginals import pair_odds_given
from quiltdp.inference.odds import other
from quiltdp.inference.readoff import Numbers, Tally, rounded_up
from quiltdp.inference.region import Region
from quiltdp.inference.side_sums import subsets
from quiltdp.inference.types import Assignment, QuiltInfluence, Witness, Witnesses
from quiltdp.model import Model

__all__ = ["Asked", "influence_of", "search"]


class Asked(NamedTuple):
    """A quilt as it was asked for, with the limits."""

    model: Model
    targets: tuple[str, ...]
    nearby: frozenset[str]
    separator: frozenset[str]
    exact_support: bool
    max_entries: int
    max_support_nodes: int

    def records(self) -> tuple[str, ...]:
        """Return the nearby records: an adversary may know any of them."""
        return tuple([n for n in sorted(self.nearby) if self.model.is_record(n)])

    def region(self) -> Region:
        """Return the region, ready for eliminations."""
        return Region(
            self.model,
            self.targets,
            self.nearby,
            self.separator,
            exact_support=self.exact_support,
            max_entries=self.max_entries,
            max_support_nodes=self.max_support_nodes,
        )


def search(region: Region) -> Numbers:
    """Return b and the swings of a region by one elimination for every known set."""
    tally = Tally(region.model, region.targets, region.known_records)
    for known in subsets(region.known_records):
        if region.explicit(known):
            tally.add(known, region.moves(known))
        else:
            tally.add_swing(known, region.swing(known))
    return tally.numbers()


def influence_of(asked: Asked, found: Numbers, exact: bool) -> QuiltInfluence:
    """Return the numbers as people see them: rounded up where they feed a bound, with their witnesses."""
    exact_b = exact and found.b_known is not None
    upper: dict[frozenset[str], float] = {}
    by_known: dict[int, float] = {}
    swing: float = -1.0
    swing_known: tuple[str, ...] = ()
    for known, (value, error) in found.swings.items():
        if value > swing:
            swing, swing_known = value, known
        above = upper[frozenset(known)] = rounded_up(value, error)
        by_known[len(known)] = max(above, by_known.get(len(known), 0.0))
    return QuiltInfluence(
        min(found.b, swing),  # b ≤ swing always: it stands in for a b that is too wide to know
        swing,
        max(by_known.values()),
        exact_b,
        tuple([by_known[k] for k in range(len(by_known))]),
        upper,
        partial(_witnesses, asked, swing_known, found.b_known if exact_b else None, exact),
    )


# -- witnesses --------------------------------------------------------------------------------


def _witnesses(
    asked: Asked, swing_known: tuple[str, ...], b_known: tuple[str, ...] | None, exact: bool
) -> Witnesses:
    """Return the values that attain the swing and b; the region is made only now, so that none is kept."""
    region = asked.region()
    swing = _swing_witness(region, swing_known) if exact else None
    b = _b_witness(region, b_known) if b_known is not None else None
    return swing, b


def _swing_witness(region: Region, known: Sequence[str]) -> Witness | None:
    values = region.swing_values(known)
    if values is None:
        return None
    return Witness(*_ends(region, known, values), _named(region.model, map(other, region.separator), values))


def _b_witness(region: Region, known: Sequence[str]) -> Witness | None:
    odds = pair_odds_given(region.model, region.targets, known)
    chosen = region.chosen(known, odds.taken_off(region.moves(known).array))
    if chosen is None:
        return None
    return Witness(*_ends(region, known, {**region.separator_values(known, chosen), **chosen}))


def _ends(
    region: Region, known: Sequence[str], values: Mapping[str, int]
) -> tuple[Assignment, Assignment, Assignment, Assignment]:
    model = region.model
    return (
        _named(model, known, values),
        _named(model, region.targets, values),
        _named(model, map(other, region.targets), values),
        _named(model, region.separator, values),
    )


def _named(model: Model, axes: Iterable[str], values: Mapping[str, int]) -> Assignment:
    """Return the nodes behind the axes with the names of their states."""
    return tuple((n.rstrip("\0"), model.states[n.rstrip("\0")][values.get(n, 0)]) for n in axes)

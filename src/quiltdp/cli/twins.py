"""What a record that stands for monozygotic twins means for the numbers people type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["most_people", "people", "twin_warning"]


def most_people(model: Model) -> int:
    """Return for how many people one record stands at most: 1 without twins."""
    from quiltdp.domains.pedigree.queries import twin_counts

    return max(twin_counts(model).values(), default=1)


def people(model: Model) -> int:
    """Return how many rows the data have: twins who share a record have one each."""
    from quiltdp.domains.pedigree.queries import twin_counts

    return len(model.records) + sum(k - 1 for k in twin_counts(model).values())


def twin_warning(model: Model, option: str, value: float, *, chosen: bool) -> tuple[str, ...]:
    """Say which records stand for several people, and what to type; nothing without twins.

    ``value`` is what ``option`` was, ``chosen`` whether this program chose it, counting every twin.
    """
    from quiltdp.cli.show import listed
    from quiltdp.domains.pedigree.queries import twin_counts

    counts = twin_counts(model)
    if not counts:
        return ()
    most = max(counts.values())
    said = f"TWINS: the record of {listed(counts, 3)} stands for {most} people with one genome"
    if chosen:
        return (
            f"{said}, so {option} is {value:g}; type {option} {value / most:g} if only one of them counts",
        )
    return (
        f"{said}; {option} {value:g} must be for all of them together: if it is for one person,"
        f" type {option} {most * value:g}",
    )

"""What taking linked loci for independent would have missed.

Unlinked loci add up; linked ones do not: alleles that go together tell about each other, and relatives
share whole stretches.  Two numbers are looked at, each in the linked model and in the unlinked one
with the same allele frequencies: what is leaked about all loci of a person together, and about one
genotype alone, which independence believes safe from counts at other loci.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quiltdp.accountant.calibration import calibrate
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import all_or_nothing
from quiltdp.accountant.verify import leakage_of
from quiltdp.domains.pedigree.queries import query_by_name, records_by_person
from quiltdp.errors import InvalidArgument
from quiltdp.model import Model
from quiltdp.work import Limit, WorkBudget

__all__ = ["LinkageCost", "linkage_cost"]

_EXACT_STATES = 81  # joint genotypes of the others up to which the limit is asked for: a trio at two loci
_EXACT_RECORDS = 8


@dataclass(frozen=True)
class LinkageCost:
    """Noise and leakage of linked loci, beside those of the unlinked model.

    Attributes
    ----------
    sigma, sigma_if_unlinked
        The Laplace scale of each count that keeps ε about a person in the linked model, and the one
        that independence asks for.
    leakage_if_unlinked
        What is really leaked about a person (in the linked model) with the noise of independence.
    one_locus, one_locus_if_unlinked
        With the noise ``sigma``: the leakage about one genotype of one person, and what independence
        believes it to be.
    exact
        Whether ``leakage_if_unlinked`` is the exact limit; otherwise it is an upper bound.
    """

    adversary: str
    epsilon: float
    query: str
    sigma: float
    sigma_if_unlinked: float
    leakage_if_unlinked: float
    one_locus: float
    one_locus_if_unlinked: float
    exact: bool

    @property
    def missed(self) -> float:
        """By how much the noise of independence breaks its promise; 0 if it keeps it."""
        return max(0.0, self.leakage_if_unlinked - self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {**asdict(self), "missed": self.missed}


@all_or_nothing()
def linkage_cost(
    linked: Model,
    unlinked: Model,
    epsilon: float,
    *,
    query: str = "allele-count",
    adversary: str = "informed",
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
) -> LinkageCost:
    """Compare a model of linked loci with the unlinked one of the same people, loci and frequencies.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person, pedigree
    >>> family = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> loci = {"rs1": 0.1, "rs2": 0.1}
    >>> tight = pedigree(family, loci, recombination=0.01, ld=1.0, study=["dad", "kid"])
    >>> cost = linkage_cost(tight, pedigree(family, loci, study=["dad", "kid"]), epsilon=1.0)
    >>> cost.exact, cost.sigma > cost.sigma_if_unlinked, cost.leakage_if_unlinked > 1.0
    (True, True, True)
    >>> cost.one_locus > 1.9 * cost.one_locus_if_unlinked
    True
    """
    if linked.records != unlinked.records:
        raise InvalidArgument("the linked and the unlinked model must have the same records")
    people = records_by_person(linked)
    mechanism = query_by_name(linked, query).mechanism
    options: dict[str, Any] = {"adversary": adversary, "work": work, "time_limit": time_limit}
    cal = calibrate(linked, epsilon, mechanism, protect=people, **options)
    naive = calibrate(unlinked, epsilon, mechanism, protect=people, **options)

    def told(model: Model, sigma: float, protect: Mapping[str, tuple[str, ...]] | None) -> Leakage:
        return leakage_of(model, mechanism, sigma, method=_best(model, protect), protect=protect, **options)

    really = told(linked, naive.sigma, people)
    return LinkageCost(
        adversary, epsilon, query, cal.sigma, naive.sigma, really.epsilon,
        told(linked, cal.sigma, None).epsilon, told(unlinked, cal.sigma, None).epsilon,
        exact=really.certificate.kind == "exact",
    )  # fmt: skip


def _best(model: Model, protect: Mapping[str, tuple[str, ...]] | None) -> str:
    """Return the exact limit where few enough genotypes are left beside the protected ones."""
    sizes = {r: model.cardinality(r) for r in model.records}
    units = protect.values() if protect else [(r,) for r in model.records]
    whole = math.prod(sizes.values())
    left = max((whole // math.prod(sizes[r] for r in unit) for unit in units), default=1)
    return "exact" if left <= _EXACT_STATES and len(sizes) <= _EXACT_RECORDS else "auto"

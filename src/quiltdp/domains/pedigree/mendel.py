"""Mendel's tables for one biallelic locus: founders, transmission, genotyping error.

A genotype is the number of alternative alleles a person carries: 0, 1 or 2; on the X chromosome a
male carries one allele, 0 or 1.  Everything here is a small array; nothing knows about people.
"""

from __future__ import annotations

import numpy as np

from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Table


def _check_probability(name: str, value: float, upper: float = 1.0) -> float:
    number = float(value)
    if not 0.0 <= number <= upper:  # also refuses NaN
        raise InvalidArgument(f"{option(name)} must lie between 0 and {upper:g}, not {value!r}")
    return number


def founder_table(allele_frequency: float, *, inbreeding: float = 0.0, copies: int = 2) -> Table:
    """Hardy–Weinberg: P(g) of a founder, with inbreeding coefficient F.

    P(0) = q² + Fpq, P(1) = 2pq(1 − F), P(2) = p² + Fpq, with p the frequency of the alternative
    allele and q = 1 − p.  With ``copies=1`` (a male on the X) it is (q, p).

    Examples
    --------
    >>> founder_table(0.5).tolist()
    [0.25, 0.5, 0.25]
    >>> founder_table(0.5, inbreeding=1.0).tolist()
    [0.5, 0.0, 0.5]
    """
    p = _check_probability("allele_frequency", allele_frequency)
    if p in (0.0, 1.0):
        raise InvalidArgument(
            f"{option('allele_frequency')} {p:g}: nobody varies at this locus, there is nothing to protect"
        )
    f = _check_probability("inbreeding", inbreeding)
    q = 1.0 - p
    if copies == 1:
        return np.array([q, p])
    return np.array([q * q + f * p * q, 2.0 * p * q * (1.0 - f), p * p + f * p * q])


def gamete(copies: int, mutation_rate: float) -> Table:
    """P(the allele passed on is alternative | genotype), for each genotype of the parent.

    An allele is drawn from the parent's ``copies`` with equal chance, and then mutates into the
    other one with probability μ in either direction (the ``equal`` model of pedigree programs):
    t(g) = (g/k)(1 − μ) + (1 − g/k) μ.

    Examples
    --------
    >>> gamete(2, 0.0).tolist(), gamete(2, 0.001).tolist()
    ([0.0, 0.5, 1.0], [0.001, 0.5, 0.999])
    """
    mu = _check_probability("mutation_rate", mutation_rate, 0.5)
    share = np.arange(copies + 1) / copies
    return np.where(share == 0.5, 0.5, share * (1.0 - mu) + (1.0 - share) * mu)


def _sum_of_two_alleles(first: Table, second: Table) -> Table:
    """P(g | …): the sum of two independent alleles with the given chances, all pairs."""
    a, b = first[:, None], second[None, :]
    return np.stack([(1 - a) * (1 - b), a * (1 - b) + (1 - a) * b, a * b], axis=-1)


def child_table(mutation_rate: float = 0.0) -> Table:
    """P(child | father, mother) on an autosome; axes father, mother, child.

    Examples
    --------
    >>> child_table()[1, 1].tolist(), child_table()[0, 2].tolist()
    ([0.25, 0.5, 0.25], [0.0, 1.0, 0.0])
    """
    t = gamete(2, mutation_rate)
    return _sum_of_two_alleles(t, t)


def x_daughter_table(mutation_rate: float = 0.0) -> Table:
    """P(daughter | father, mother) on the X: his only X and one of hers; axes 2 × 3 × 3."""
    return _sum_of_two_alleles(gamete(1, mutation_rate), gamete(2, mutation_rate))


def x_son_table(mutation_rate: float = 0.0) -> Table:
    """P(son | mother) on the X: one of her two, his father gives none; axes 3 × 2."""
    t = gamete(2, mutation_rate)
    return np.stack([1 - t, t], axis=-1)


def genotype_call_table(error_rate: float, states: int = 3) -> Table:
    """P(called genotype | true genotype): right with probability 1 − e, else any other, equally.

    Examples
    --------
    >>> genotype_call_table(0.02)[0].tolist()
    [0.98, 0.01, 0.01]
    """
    e = _check_probability("error_rate", error_rate)
    table = np.full((states, states), e / (states - 1))
    np.fill_diagonal(table, 1.0 - e)
    return table


def exactness_notes(mutation_rate: float, error_rate: float) -> tuple[str, ...]:
    """Say what it means that neither mutations nor wrong calls are possible; nothing where they are."""
    if mutation_rate > 0 or error_rate > 0:
        return ()
    return (
        "mutation rate 0 and error rate 0 are exact Mendel: a relative's genotype can rule one of"
        " yours out with certainty (a parent's and a child's always can), so such relatives count in"
        " full towards the leakage; a positive rate makes every influence finite",
    )

"""Family pedigrees: from the files geneticists have to a model of Mendelian inheritance.

``quiltdp.pedigree("family.fam", allele_frequency=0.1)`` is the way in; ``read_pedigree`` returns the
family alone.
"""

from __future__ import annotations

from quiltdp.domains.pedigree.network import Locus, load, pedigree
from quiltdp.domains.pedigree.people import Pedigree, Person
from quiltdp.domains.pedigree.read import SUFFIXES, read_pedigree

__all__ = [
    "SUFFIXES",
    "Locus",
    "Pedigree",
    "Person",
    "load",
    "pedigree",
    "read_pedigree",
]

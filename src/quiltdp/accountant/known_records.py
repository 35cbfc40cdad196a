"""The records that an adversary may know, checked against a model and translated to its parts."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from quiltdp.accountant.adversaries import Adversary
from quiltdp.errors import InvalidArgument, option
from quiltdp.graph.components import ComponentClass
from quiltdp.model import Model

__all__ = ["check_known", "known_in"]


def check_known(adversary: Adversary, model: Model) -> Adversary:
    """Return the adversary, or refuse one who knows what is no record of the model.

    Raises
    ------
    InvalidArgument
        Naming the first such name, with names that are close to it.
    """
    for name in sorted(adversary.records or ()):
        if name not in model.index:
            close = get_close_matches(name, list(model.records)[:5000], n=3)
            hint = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
            raise InvalidArgument(f"{option('adversary')}: {name!r} is not a node of the model{hint}")
        if not model.is_record(name):
            raise InvalidArgument(
                f"{option('adversary')}: {name!r} is latent: it is no row of the data, so nobody knows it"
            )
    return adversary


def known_in(adversary: Adversary, found: ComponentClass, model: Model) -> Adversary:
    """Return the adversary as one class of components sees them: declared records by their names there.

    What may be known in any of the copies may be known in the class, so that one bound covers them all.
    """
    if adversary.records is None:
        return adversary
    names = found.model.nodes
    local = frozenset(
        names[k] for copy in found.copies for k, at in enumerate(copy) if model.nodes[at] in adversary.records
    )
    return replace(adversary, records=local)

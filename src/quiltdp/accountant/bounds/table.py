"""Which bounds there are, where each one lives, and when ``auto`` takes it: one table, read from the top.

A line is (adversary, name, module, when, last).  The bound holds against the adversary and everybody who
knows less; ``auto`` takes it where ``when`` says so and it does not refuse the model.  After one that is the
``last`` no more are taken (unless it says, once prepared, that it is rough on this model).  A module is
imported when its line is reached.

``ON_REQUEST`` are asked for by name only; so are comparisons of other papers, which importing
:mod:`quiltdp.papers` registers.  ``APPROXIMATE_BOUNDS`` are those on δ.  ``RENAMED`` are names of the
version before, which are still understood, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quiltdp.accountant.trade_offs import TREE_PATH

if TYPE_CHECKING:
    from quiltdp.accountant.bounds.contract import Problem

Condition = Callable[["Problem"], bool]


def holds_always(problem: Problem) -> bool:
    """For every problem."""
    return True


def is_small(problem: Problem) -> bool:
    """The exact limit takes moments: few records, few joint states."""
    model, states = problem.model, 1
    if len(model.records) > 8:
        return False
    for r in model.records:
        states *= model.cardinality(r)
    return states <= 256


def is_one_path(problem: Problem) -> bool:
    """The model is one connected path."""
    from quiltdp.inference.chains import path_of

    return path_of(problem.model) is not None


def has_no_long_path(problem: Problem) -> bool:
    """Not one long path: there the chain's own messages do, and trees take their time."""
    return len(problem.model.nodes) <= TREE_PATH or not is_one_path(problem)


def may_know_records(problem: Problem) -> bool:
    """No long path, and the adversary may know some record."""
    return not problem.adversary.knows_nothing and has_no_long_path(problem)


class Line(NamedTuple):
    """A bound in the table."""

    against: str
    name: str
    module: str
    when: Condition = holds_always
    last: bool = False


AUTOMATIC = (
    Line("informed", "group", "group"),
    Line("informed", "chain", "chain", when=is_one_path, last=True),
    Line("informed", "propagation", "propagation"),
    Line("informed", "exact", "limit", when=is_small, last=True),
    Line("prior", "coupling", "coupling", last=True),
    Line("prior", "forward-backward", "forward_backward"),
    Line("informed", "listed-evidence", "listed_evidence", when=may_know_records, last=True),
    Line("informed", "worst-evidence", "worst_evidence", when=has_no_long_path),
)
ON_REQUEST = (
    Line("informed", "swing", "quilts"),
    Line("informed", "published", "quilts"),
    Line("informed", "published-blanket", "quilts"),
    Line("prior", "published", "quilts"),
)
APPROXIMATE_BOUNDS = (
    Line("informed", "group", "approximate"),
    Line("informed", "transport", "approximate"),
)
RENAMED = {
    **dict.fromkeys(("clique-tree", "coupling-chosen", "coupling-single"), "coupling"),
    **dict.fromkeys(("every-adversary", "conditioned"), "listed-evidence"),
    "informed-tree": "worst-evidence",
    "quilts": "swing",
}
RENAMED_APPROXIMATE = dict.fromkeys(("paired", "paired-prior", "paired-tree", "carried"), "transport")

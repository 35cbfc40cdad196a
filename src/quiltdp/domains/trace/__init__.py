"""Location traces: from a file of points to a Markov chain, its diagnostics and its queries."""

from __future__ import annotations

from quiltdp.domains.trace.build import (
    LocationStudy,
    chain_from_steps,
    discretise,
    location_chain,
    location_study,
)
from quiltdp.domains.trace.cells import Cells, assign_cells
from quiltdp.domains.trace.checks import check_points
from quiltdp.domains.trace.diagnostics import Diagnostics, diagnose
from quiltdp.domains.trace.estimate import Estimate, Estimator, estimate_transitions
from quiltdp.domains.trace.points import Points, Trace
from quiltdp.domains.trace.readers import read_points
from quiltdp.domains.trace.steps import Steps, Stretch, make_steps

__all__ = [
    "Cells",
    "Diagnostics",
    "Estimate",
    "Estimator",
    "LocationStudy",
    "Points",
    "Steps",
    "Stretch",
    "Trace",
    "assign_cells",
    "chain_from_steps",
    "check_points",
    "diagnose",
    "discretise",
    "estimate_transitions",
    "location_chain",
    "location_study",
    "make_steps",
    "read_points",
]

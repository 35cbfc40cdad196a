"""Location traces: from a file of points to a Markov chain, its diagnostics and its queries."""

from __future__ import annotations

from quiltdp.domains.trace.area import AreaQuery, over_area
from quiltdp.domains.trace.build import (
    LocationStudy,
    chain_from_steps,
    discretise,
    location_chain,
    location_study,
    whole_traces,
)
from quiltdp.domains.trace.cells import Cells, assign_cells
from quiltdp.domains.trace.checks import check_points
from quiltdp.domains.trace.diagnostics import Diagnostics, diagnose
from quiltdp.domains.trace.estimate import Estimate, Estimator, estimate_transitions
from quiltdp.domains.trace.points import Points, Trace
from quiltdp.domains.trace.queries import (
    CellQuery,
    release_cells,
    time_per_cell,
    top_places,
    visits_per_cell,
)
from quiltdp.domains.trace.readers import read_points
from quiltdp.domains.trace.region import transition_region
from quiltdp.domains.trace.robust import (
    RegionBound,
    WorstCase,
    WorstCost,
    robust_models,
    worst_case_dp_epsilon,
    worst_case_leakage,
)
from quiltdp.domains.trace.steps import Steps, Stretch, make_steps

__all__ = [
    "AreaQuery",
    "CellQuery",
    "Cells",
    "Diagnostics",
    "Estimate",
    "Estimator",
    "LocationStudy",
    "Points",
    "RegionBound",
    "Steps",
    "Stretch",
    "Trace",
    "WorstCase",
    "WorstCost",
    "assign_cells",
    "chain_from_steps",
    "check_points",
    "diagnose",
    "discretise",
    "estimate_transitions",
    "location_chain",
    "location_study",
    "make_steps",
    "over_area",
    "read_points",
    "release_cells",
    "robust_models",
    "time_per_cell",
    "top_places",
    "transition_region",
    "visits_per_cell",
    "whole_traces",
    "worst_case_dp_epsilon",
    "worst_case_leakage",
]

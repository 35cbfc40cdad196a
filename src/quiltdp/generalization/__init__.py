"""What the leakage means for conclusions drawn, adaptively, from the same correlated data.

These are the names that a plan and a corrected p-value need; each module has the rest.
"""

from __future__ import annotations

from quiltdp.generalization.concentration import concentration, effective_sample_size
from quiltdp.generalization.max_information import (
    MaxInformation,
    bayesian_dp_max_information,
    compose_max_information,
)
from quiltdp.generalization.plan_result import Plan, extend_plan, holdout_arguments
from quiltdp.generalization.planner import plan, plan_length
from quiltdp.generalization.pvalues import correct_p_values, thresholdout_transcripts

__all__ = [
    "MaxInformation",
    "Plan",
    "bayesian_dp_max_information",
    "compose_max_information",
    "concentration",
    "correct_p_values",
    "effective_sample_size",
    "extend_plan",
    "holdout_arguments",
    "plan",
    "plan_length",
    "thresholdout_transcripts",
]

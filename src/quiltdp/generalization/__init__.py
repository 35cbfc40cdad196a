"""What the leakage means for conclusions drawn, adaptively, from the same correlated data."""

from __future__ import annotations

from quiltdp.generalization.approximate_dp import (
    approximate_dp_max_information,
    published_drift,
)
from quiltdp.generalization.max_information import (
    Laws,
    MaxInformation,
    bayesian_dp_max_information,
    compose_max_information,
    description_length_max_information,
    exact_max_information,
    max_information_from_mutual_information,
    mutual_information,
    mutual_information_from_max_information,
    product_dp_max_information,
    pure_dp_max_information,
)
from quiltdp.generalization.pvalues import (
    MutualInformationMethod,
    correct_p_values,
    threshold_from_max_information,
    threshold_from_mutual_information,
)

__all__ = [
    "Laws",
    "MaxInformation",
    "MutualInformationMethod",
    "approximate_dp_max_information",
    "bayesian_dp_max_information",
    "compose_max_information",
    "correct_p_values",
    "description_length_max_information",
    "exact_max_information",
    "max_information_from_mutual_information",
    "mutual_information",
    "mutual_information_from_max_information",
    "product_dp_max_information",
    "published_drift",
    "pure_dp_max_information",
    "threshold_from_max_information",
    "threshold_from_mutual_information",
]

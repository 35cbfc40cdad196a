"""What the leakage means for conclusions drawn, adaptively, from the same correlated data."""

from __future__ import annotations

from quiltdp.generalization.approximate_dp import (
    approximate_dp_max_information,
    published_drift,
)
from quiltdp.generalization.concentration import (
    Concentration,
    concentration,
    effective_sample_size,
    exact_sum_law,
    influence_sums,
    published_tail,
)
from quiltdp.generalization.kl_privacy import (
    Estimate,
    GibbsSampler,
    compose_on_average_kl,
    estimate_on_average_kl,
    gap_bounds_from_mutual_information,
    gibbs_generalization_gap,
    gibbs_mutual_information,
    kl_gaussian,
    kl_laplace,
    kl_privacy_from_max_information,
    on_average_kl,
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
from quiltdp.generalization.privacy_definitions import (
    PrivacyDefinitions,
    adaptive_on_average_kl,
    compare_privacy_definitions,
)
from quiltdp.generalization.pvalues import (
    MutualInformationMethod,
    correct_p_values,
    threshold_from_max_information,
    threshold_from_mutual_information,
)

__all__ = [
    "Concentration",
    "Estimate",
    "GibbsSampler",
    "Laws",
    "MaxInformation",
    "MutualInformationMethod",
    "PrivacyDefinitions",
    "adaptive_on_average_kl",
    "approximate_dp_max_information",
    "bayesian_dp_max_information",
    "compare_privacy_definitions",
    "compose_max_information",
    "compose_on_average_kl",
    "concentration",
    "correct_p_values",
    "description_length_max_information",
    "effective_sample_size",
    "estimate_on_average_kl",
    "exact_max_information",
    "exact_sum_law",
    "gap_bounds_from_mutual_information",
    "gibbs_generalization_gap",
    "gibbs_mutual_information",
    "influence_sums",
    "kl_gaussian",
    "kl_laplace",
    "kl_privacy_from_max_information",
    "max_information_from_mutual_information",
    "mutual_information",
    "mutual_information_from_max_information",
    "on_average_kl",
    "product_dp_max_information",
    "published_drift",
    "published_tail",
    "pure_dp_max_information",
    "threshold_from_max_information",
    "threshold_from_mutual_information",
]

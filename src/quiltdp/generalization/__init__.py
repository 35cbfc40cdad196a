"""What the leakage means for conclusions drawn, adaptively, from the same correlated data.

The package holds what the ``__all__`` of its modules names.
"""

from __future__ import annotations

from quiltdp.generalization.approximate_dp import *
from quiltdp.generalization.concentration import *
from quiltdp.generalization.indistinguishability import *
from quiltdp.generalization.kl_privacy import *
from quiltdp.generalization.lower_bound import *
from quiltdp.generalization.max_entropy import *
from quiltdp.generalization.max_information import *
from quiltdp.generalization.monitor_simulation import *
from quiltdp.generalization.mutual_information import *
from quiltdp.generalization.plan_apply import *
from quiltdp.generalization.plan_result import *
from quiltdp.generalization.planner import *
from quiltdp.generalization.privacy_definitions import *
from quiltdp.generalization.published import *
from quiltdp.generalization.pvalues import *
from quiltdp.generalization.query_classes import *
from quiltdp.generalization.routes import *
from quiltdp.generalization.thresholdout_accuracy import *
from quiltdp.generalization.transfer import *
from quiltdp.generalization.typical_composition import *
from quiltdp.generalization.typical_stability import *

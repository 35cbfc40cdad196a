"""Mechanisms: what one use costs in DP, which scale a cost asks for, and the noise that is drawn.

A mechanism is one file: its cost registers itself, its sampler stands beside it.  The accountant reads the
costs; the reusable holdout stands on the accountant and is imported from its own file.
The package holds what the ``__all__`` of its other modules names.
"""

from __future__ import annotations

from quiltdp.mechanisms.contract import *
from quiltdp.mechanisms.discrete_gaussian import *
from quiltdp.mechanisms.exponential import *
from quiltdp.mechanisms.gaussian import *
from quiltdp.mechanisms.laplace import *
from quiltdp.mechanisms.noise import *
from quiltdp.mechanisms.profiles import *
from quiltdp.mechanisms.repeated import *
from quiltdp.mechanisms.sensitivities import *
from quiltdp.mechanisms.thresholdout import *

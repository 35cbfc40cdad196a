"""Location traces: from a file of points to a Markov chain, its diagnostics and its queries.

The package holds what the ``__all__`` of its modules names.
"""

from __future__ import annotations

from quiltdp.domains.trace.area import *
from quiltdp.domains.trace.build import *
from quiltdp.domains.trace.cells import *
from quiltdp.domains.trace.estimate import *
from quiltdp.domains.trace.points import *
from quiltdp.domains.trace.queries import *
from quiltdp.domains.trace.readers import *
from quiltdp.domains.trace.robust import *
from quiltdp.domains.trace.steps import *

"""Models from data: a Markov chain of one column over time, a Bayesian network over columns.

The fit must come from public or past data: a model fitted on the records that are to be protected
tells about them before any noise is drawn.
"""

from quiltdp.domains.series.bins import Bins, find_bins
from quiltdp.domains.series.chain import ChainFit, fit_chain
from quiltdp.domains.series.network import NetworkFit, fit_network
from quiltdp.domains.series.rows import RowsFit, fit_rows

__all__ = ["Bins", "ChainFit", "NetworkFit", "RowsFit", "find_bins", "fit_chain", "fit_network", "fit_rows"]

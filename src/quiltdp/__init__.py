"""quiltdp: privacy accounting for correlated data.

Give it the model of the correlation (a Bayesian network, a pedigree, a Markov chain) and a privacy
target; it returns the noise that is enough, the record that forces it, and a certificate.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quiltdp.accountant.adversaries import knows
    from quiltdp.accountant.attack import attack
    from quiltdp.accountant.audit import audit
    from quiltdp.accountant.calibration import Calibration, calibrate
    from quiltdp.accountant.compare import calibrate_adversaries
    from quiltdp.accountant.composition import compose
    from quiltdp.accountant.influence_table import influence_table
    from quiltdp.accountant.leakage import LeakageProfile, analyze, dp_epsilon, leakage
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.accountant.result import Leakage
    from quiltdp.accountant.robust import robust
    from quiltdp.accountant.verify import leakage_of
    from quiltdp.chain import ChainModel, markov_chain, markov_chains
    from quiltdp.domains.pedigree import pedigree
    from quiltdp.domains.pedigree.panel import analyze_panel
    from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
    from quiltdp.domains.series.chain import fit_chain
    from quiltdp.domains.series.network import fit_network
    from quiltdp.domains.series.rows import fit_rows
    from quiltdp.domains.trace.build import location_chain
    from quiltdp.errors import LimitReached, QuiltdpError
    from quiltdp.generalization.concentration import effective_sample_size
    from quiltdp.generalization.planner import plan
    from quiltdp.generalization.pvalues import correct_p_values
    from quiltdp.graph.moral import moralize
    from quiltdp.graph.quilt import Quilt
    from quiltdp.graph.quilts import markov_blanket, quilts
    from quiltdp.graph.types import DependencyGraph
    from quiltdp.inference.influence import (
        blanket_influence,
        max_influence,
        quilt_influence,
        quilt_influences,
    )
    from quiltdp.inference.marginals import condition, conditional
    from quiltdp.inference.spread import spread
    from quiltdp.inference.trees import junction_tree
    from quiltdp.io.examples import example
    from quiltdp.io.json_models import save_model
    from quiltdp.io.load import load_model
    from quiltdp.io.networkx import from_networkx, to_networkx
    from quiltdp.io.pgmpy import from_pgmpy, to_pgmpy
    from quiltdp.mechanisms import DiscreteGaussian, Gaussian, Laplace, Thresholdout
    from quiltdp.mechanisms.holdout import Answer, ReusableHoldout
    from quiltdp.model import Factor, Model

__version__ = "0.3.0"

# Public name -> module that holds it.  Names are imported on first use, so that `import quiltdp`
# stays quick; keep the list above, for type checkers, equal to this one.
_PUBLIC = {
    "Answer": "quiltdp.mechanisms.holdout",
    "Calibration": "quiltdp.accountant.calibration",
    "ChainModel": "quiltdp.chain",
    "DependencyGraph": "quiltdp.graph.types",
    "DiscreteGaussian": "quiltdp.mechanisms",
    "Factor": "quiltdp.model",
    "Gaussian": "quiltdp.mechanisms",
    "Laplace": "quiltdp.mechanisms",
    "Leakage": "quiltdp.accountant.result",
    "LeakageProfile": "quiltdp.accountant.leakage",
    "Ledger": "quiltdp.accountant.ledger",
    "LimitReached": "quiltdp.errors",
    "Model": "quiltdp.model",
    "Quilt": "quiltdp.graph.quilt",
    "QuiltdpError": "quiltdp.errors",
    "ReusableHoldout": "quiltdp.mechanisms.holdout",
    "Thresholdout": "quiltdp.mechanisms",
    "analyze": "quiltdp.accountant.leakage",
    "analyze_panel": "quiltdp.domains.pedigree.panel",
    "attack": "quiltdp.accountant.attack",
    "audit": "quiltdp.accountant.audit",
    "blanket_influence": "quiltdp.inference.influence",
    "calibrate": "quiltdp.accountant.calibration",
    "calibrate_adversaries": "quiltdp.accountant.compare",
    "calibrate_panel": "quiltdp.domains.pedigree.panel_calibration",
    "compose": "quiltdp.accountant.composition",
    "condition": "quiltdp.inference.marginals",
    "conditional": "quiltdp.inference.marginals",
    "correct_p_values": "quiltdp.generalization.pvalues",
    "dp_epsilon": "quiltdp.accountant.leakage",
    "effective_sample_size": "quiltdp.generalization.concentration",
    "example": "quiltdp.io.examples",
    "fit_chain": "quiltdp.domains.series.chain",
    "fit_network": "quiltdp.domains.series.network",
    "fit_rows": "quiltdp.domains.series.rows",
    "from_networkx": "quiltdp.io.networkx",
    "from_pgmpy": "quiltdp.io.pgmpy",
    "influence_table": "quiltdp.accountant.influence_table",
    "junction_tree": "quiltdp.inference.trees",
    "knows": "quiltdp.accountant.adversaries",
    "leakage": "quiltdp.accountant.leakage",
    "leakage_of": "quiltdp.accountant.verify",
    "load_model": "quiltdp.io.load",
    "location_chain": "quiltdp.domains.trace.build",
    "markov_blanket": "quiltdp.graph.quilts",
    "markov_chain": "quiltdp.chain",
    "markov_chains": "quiltdp.chain",
    "max_influence": "quiltdp.inference.influence",
    "moralize": "quiltdp.graph.moral",
    "pedigree": "quiltdp.domains.pedigree",
    "plan": "quiltdp.generalization.planner",
    "quilt_influence": "quiltdp.inference.influence",
    "quilt_influences": "quiltdp.inference.influence",
    "quilts": "quiltdp.graph.quilts",
    "robust": "quiltdp.accountant.robust",
    "save_model": "quiltdp.io.json_models",
    "spread": "quiltdp.inference.spread",
    "to_networkx": "quiltdp.io.networkx",
    "to_pgmpy": "quiltdp.io.pgmpy",
}

__all__ = [
    "Answer",
    "Calibration",
    "ChainModel",
    "DependencyGraph",
    "DiscreteGaussian",
    "Factor",
    "Gaussian",
    "Laplace",
    "Leakage",
    "LeakageProfile",
    "Ledger",
    "LimitReached",
    "Model",
    "Quilt",
    "QuiltdpError",
    "ReusableHoldout",
    "Thresholdout",
    "__version__",
    "analyze",
    "analyze_panel",
    "attack",
    "audit",
    "blanket_influence",
    "calibrate",
    "calibrate_adversaries",
    "calibrate_panel",
    "compose",
    "condition",
    "conditional",
    "correct_p_values",
    "dp_epsilon",
    "effective_sample_size",
    "example",
    "fit_chain",
    "fit_network",
    "fit_rows",
    "from_networkx",
    "from_pgmpy",
    "influence_table",
    "junction_tree",
    "knows",
    "leakage",
    "leakage_of",
    "load_model",
    "location_chain",
    "markov_blanket",
    "markov_chain",
    "markov_chains",
    "max_influence",
    "moralize",
    "pedigree",
    "plan",
    "quilt_influence",
    "quilt_influences",
    "quilts",
    "robust",
    "save_model",
    "spread",
    "to_networkx",
    "to_pgmpy",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'quiltdp' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *_PUBLIC})

"""quiltdp: privacy accounting for correlated data.

Give it the model of the correlation (a Bayesian network, a pedigree, a Markov chain) and a privacy
target; it returns the noise that is enough, the record that forces it, and a certificate.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quiltdp.accountant.adversaries import knows
    from quiltdp.accountant.attack import attack
    from quiltdp.accountant.calibration import Calibration, calibrate
    from quiltdp.accountant.influence_table import influence_table
    from quiltdp.accountant.leakage import dp_epsilon, leakage
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.accountant.robust import robust
    from quiltdp.chain import markov_chain
    from quiltdp.client import connect
    from quiltdp.domains.pedigree import pedigree
    from quiltdp.domains.series.chain import fit_chain
    from quiltdp.domains.series.network import fit_network
    from quiltdp.domains.series.rows import fit_rows
    from quiltdp.domains.trace.build import location_chain
    from quiltdp.errors import LimitReached, QuiltdpError
    from quiltdp.generalization.planner import plan
    from quiltdp.generalization.pvalues import correct_p_values
    from quiltdp.graph.moral import moralize
    from quiltdp.graph.quilts import markov_blanket, quilts
    from quiltdp.inference.influence import max_influence, quilt_influence
    from quiltdp.io.examples import example
    from quiltdp.io.json_models import save_model
    from quiltdp.io.load import load_model
    from quiltdp.mechanisms import Gaussian, Laplace, Thresholdout
    from quiltdp.mechanisms.holdout import ReusableHoldout
    from quiltdp.model import Model

__version__ = "0.3.0"

# Module -> the public names that it holds.  They are imported on first use, so that `import quiltdp`
# stays quick; keep the list above, for type checkers, equal to this one.
_HOMES = {
    "quiltdp.accountant.adversaries": "knows",
    "quiltdp.accountant.attack": "attack",
    "quiltdp.accountant.calibration": "Calibration calibrate",
    "quiltdp.accountant.influence_table": "influence_table",
    "quiltdp.accountant.leakage": "dp_epsilon leakage",
    "quiltdp.accountant.ledger": "Ledger",
    "quiltdp.accountant.robust": "robust",
    "quiltdp.chain": "markov_chain",
    "quiltdp.client": "connect",
    "quiltdp.domains.pedigree": "pedigree",
    "quiltdp.domains.series.chain": "fit_chain",
    "quiltdp.domains.series.network": "fit_network",
    "quiltdp.domains.series.rows": "fit_rows",
    "quiltdp.domains.trace.build": "location_chain",
    "quiltdp.errors": "LimitReached QuiltdpError",
    "quiltdp.generalization.planner": "plan",
    "quiltdp.generalization.pvalues": "correct_p_values",
    "quiltdp.graph.moral": "moralize",
    "quiltdp.graph.quilts": "markov_blanket quilts",
    "quiltdp.inference.influence": "max_influence quilt_influence",
    "quiltdp.io.examples": "example",
    "quiltdp.io.json_models": "save_model",
    "quiltdp.io.load": "load_model",
    "quiltdp.mechanisms": "Gaussian Laplace Thresholdout",
    "quiltdp.mechanisms.holdout": "ReusableHoldout",
    "quiltdp.model": "Model",
}
_PUBLIC = {name: module for module, names in _HOMES.items() for name in names.split()}

# Names that were here before 0.3.0, by the module to import them from; with a warning for one version.
_MOVED = {
    "quiltdp.accountant.audit": "audit",
    "quiltdp.accountant.compare": "calibrate_adversaries",
    "quiltdp.accountant.composition": "compose",
    "quiltdp.accountant.leakage": "LeakageProfile analyze",
    "quiltdp.accountant.result": "Leakage",
    "quiltdp.accountant.verify": "leakage_of",
    "quiltdp.chain": "ChainModel markov_chains",
    "quiltdp.domains.pedigree.panel": "analyze_panel",
    "quiltdp.domains.pedigree.panel_calibration": "calibrate_panel",
    "quiltdp.generalization.concentration": "effective_sample_size",
    "quiltdp.graph.quilt": "Quilt",
    "quiltdp.graph.types": "DependencyGraph",
    "quiltdp.inference.influence": "blanket_influence quilt_influences",
    "quiltdp.inference.marginals": "condition conditional",
    "quiltdp.inference.spread": "spread",
    "quiltdp.inference.trees": "junction_tree",
    "quiltdp.io.networkx": "from_networkx to_networkx",
    "quiltdp.io.pgmpy": "from_pgmpy to_pgmpy",
    "quiltdp.mechanisms": "DiscreteGaussian",
    "quiltdp.mechanisms.holdout": "Answer",
    "quiltdp.model": "Factor",
}

__all__ = [
    "Calibration",
    "Gaussian",
    "Laplace",
    "Ledger",
    "LimitReached",
    "Model",
    "QuiltdpError",
    "ReusableHoldout",
    "Thresholdout",
    "__version__",
    "attack",
    "calibrate",
    "connect",
    "correct_p_values",
    "dp_epsilon",
    "example",
    "fit_chain",
    "fit_network",
    "fit_rows",
    "influence_table",
    "knows",
    "leakage",
    "load_model",
    "location_chain",
    "markov_blanket",
    "markov_chain",
    "max_influence",
    "moralize",
    "pedigree",
    "plan",
    "quilt_influence",
    "quilts",
    "robust",
    "save_model",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    module = _PUBLIC.get(name)
    if module is not None:
        value = globals()[name] = getattr(import_module(module), name)
        return value
    module = next((m for m, names in _MOVED.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module 'quiltdp' has no attribute {name!r}")
    warnings.warn(
        f"quiltdp.{name} leaves the top level: from {module} import {name}", FutureWarning, stacklevel=2
    )
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *_PUBLIC})

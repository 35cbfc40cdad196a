"""One kind of linear program, by HiGHS, the solver behind ``scipy.optimize.linprog``.

Its answers are suggestions: who uses them certifies them.

*Assumes*: nothing of the solver.  *Cost*: one linear program.  *Reference*: https://highs.dev.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.work import Guard

__all__ = ["largest_ratio"]

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
_ACCURACY = 1e-10


def largest_ratio(
    p: Array, q: Array, source: Ints, target: Ints, growth: Array, guard: Guard
) -> tuple[Array, Array] | None:
    """Maximise Σ p x over x ≥ 0 with Σ q x = 1 and x_source ≤ growth · x_target; return x and dual values.

    The solver stops where the guard's time ends, and the guard raises.  ``None`` if there is no answer.
    """
    guard.check()
    edges, points = len(source), len(p)
    try:
        highs = _highs()
        program, options, solver = highs.HighsLp(), highs.HighsOptions(), highs._Highs()
    except (ImportError, AttributeError):  # a version of scipy whose solver is another
        return None
    program.num_col_ = program.a_matrix_.num_col_ = points
    program.num_row_ = program.a_matrix_.num_row_ = edges + 1
    program.a_matrix_.format_ = highs.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.append(2 * np.arange(edges + 1), 2 * edges + points).astype(np.int32)
    both = np.stack([source, target], axis=1).ravel()
    program.a_matrix_.index_ = np.append(both, np.arange(points)).astype(np.int32)
    program.a_matrix_.value_ = np.append(np.stack([np.ones(edges), -growth], axis=1).ravel(), q)
    program.col_cost_, program.col_lower_, program.col_upper_ = -p, 0.0 * p, np.full(points, np.inf)
    program.row_lower_ = np.append(np.full(edges, -np.inf), 1.0)
    program.row_upper_ = np.append(np.zeros(edges), 1.0)
    options.output_flag = options.log_to_console = False
    options.primal_feasibility_tolerance = options.dual_feasibility_tolerance = _ACCURACY
    options.time_limit = guard.seconds_left
    solver.passOptions(options)
    solver.passModel(program)
    solver.run()
    guard.check()
    if solver.getModelStatus() != highs.HighsModelStatus.kOptimal:
        return None
    answer = solver.getSolution()
    return np.array(answer.col_value), -np.array(answer.row_dual)[:edges]


def _highs() -> Any:
    """Return scipy's solver, alone: all of scipy.optimize takes longer to load than programs to solve."""
    name = "scipy.optimize._highspy._core"
    if name not in sys.modules:
        scipy = find_spec("scipy")
        folders = [] if scipy is None else list(scipy.submodule_search_locations or ())
        spec = PathFinder.find_spec(name, [f"{folder}/optimize/_highspy" for folder in folders])
        if spec is None or spec.loader is None:
            raise ImportError("scipy 1.15 or later is needed, with its solver HiGHS")
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]

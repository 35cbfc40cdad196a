"""One kind of linear program, by HiGHS.

Its answers are suggestions: who uses them certifies them.

*Assumes*: nothing of the solver.  *Cost*: one linear program.  *Reference*: https://highs.dev.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.work import Guard

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
_ACCURACY = 1e-10


def largest_ratio(
    p: Array, q: Array, source: Ints, target: Ints, growth: Array, guard: Guard
) -> tuple[Array, Array] | None:
    """Maximise Σ p x over x ≥ 0 with Σ q x = 1 and x_source ≤ growth · x_target; return x and dual values.

    The solver stops where the guard's time ends, and the guard raises.  ``None`` if there is no answer.
    """
    import highspy  # few problems need it, and it takes its time to load

    guard.check()
    edges, points = len(source), len(p)
    program, options, solver = highspy.HighsLp(), highspy.HighsOptions(), highspy.Highs()
    program.num_col_ = program.a_matrix_.num_col_ = points
    program.num_row_ = program.a_matrix_.num_row_ = edges + 1
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
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
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    answer = solver.getSolution()
    return np.array(answer.col_value), -np.array(answer.row_dual)[:edges]

"""HiGHS, the solver behind ``scipy.optimize.linprog``, without loading all of scipy for one small program.

scipy's package takes longer to load than most programs here take to solve, its solver a few milliseconds.
It is loaded under its own name, so that scipy finds it loaded afterwards.  Where scipy keeps it elsewhere,
or it does not answer as expected, ``linprog`` is asked: every answer is a proposal that is certified.

*Assumes*: nothing of the solver.  *Cost*: one linear program.  *Reference*: https://highs.dev.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["largest_on_simplex"]

Array = NDArray[np.float64]
_NAME = "scipy.optimize._highspy._core"
_INFINITE = 1e200
_ACCURACY = 1e-10


def largest_on_simplex(
    p: Array, q: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], cells: Array
) -> tuple[Array, Array] | None:
    """Solve max Σ p x over x ≥ 0 with Σ q x = 1 and A x ≤ 0; return x and the prices of A's rows.

    ``cells[k]`` stands in row ``rows[k]`` and column ``columns[k]`` of A.  ``None`` if there is no answer.
    """
    count = int(rows.max(initial=-1)) + 1
    core = _core()
    if core is not None:
        try:
            return _by_core(core, p, q, count, rows, columns, cells)
        except (AttributeError, TypeError, ValueError):  # another version: it is asked as scipy asks it
            pass
    return _by_scipy(p, q, count, rows, columns, cells)


def _core() -> Any | None:
    """Return the solver's module, loaded alone unless scipy has loaded it."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = importlib.util.find_spec("scipy")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "optimize" / "_highspy"
    file = next((f for s in EXTENSION_SUFFIXES if (f := folder / f"_core{s}").exists()), None)
    spec = None if file is None else importlib.util.spec_from_file_location(_NAME, file)
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return None
    sys.modules[_NAME] = module
    return module


def _by_core(
    core: Any,
    p: Array,
    q: Array,
    count: int,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    cells: Array,
) -> tuple[Array, Array] | None:
    points = len(p)
    used = np.flatnonzero(q)
    rows = np.concatenate([rows, np.full(len(used), count)])
    columns = np.concatenate([columns, used])
    cells = np.concatenate([cells, q[used]])
    order = np.lexsort((rows, columns))
    program = core.HighsLp()
    program.num_col_ = program.a_matrix_.num_col_ = points
    program.num_row_ = program.a_matrix_.num_row_ = count + 1
    program.a_matrix_.format_ = core.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(points + 1)).astype(np.int32)
    program.a_matrix_.index_ = rows[order].astype(np.int32)
    program.a_matrix_.value_ = cells[order]
    program.col_cost_ = -p
    program.col_lower_, program.col_upper_ = np.zeros(points), np.full(points, _INFINITE)
    program.row_lower_ = np.append(np.full(count, -_INFINITE), 1.0)
    program.row_upper_ = np.append(np.zeros(count), 1.0)
    options = core.HighsOptions()
    options.output_flag = options.log_to_console = False
    options.primal_feasibility_tolerance = options.dual_feasibility_tolerance = _ACCURACY
    solver = core._Highs()
    bad = core.HighsStatus.kError
    if solver.passOptions(options) == bad or solver.passModel(program) == bad or solver.run() == bad:
        return None
    if solver.getModelStatus() != core.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution()
    return np.array(found.col_value, dtype=np.float64), -np.array(found.row_dual, dtype=np.float64)[:count]


def _by_scipy(
    p: Array,
    q: Array,
    count: int,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    cells: Array,
) -> tuple[Array, Array] | None:
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    solve: Any = linprog  # its stubs know no sparse constraints
    answer = solve(
        -p,
        A_ub=csr_matrix((cells, (rows, columns)), shape=(count, len(p))),
        b_ub=np.zeros(count),
        A_eq=q[None, :],
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": _ACCURACY, "dual_feasibility_tolerance": _ACCURACY},
    )
    if answer.status != 0 or answer.ineqlin is None:
        return None
    x, prices = np.asarray(answer.x, dtype=np.float64), -np.asarray(answer.ineqlin.marginals)
    return x, np.asarray(prices, dtype=np.float64)

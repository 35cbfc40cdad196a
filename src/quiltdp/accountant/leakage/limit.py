"""The exact limit: the worst α-DP mechanism against the worst adversary, for small models.

Nothing sound can be below it, so it is the yardstick of every other bound and the best method for
small families.  All adversaries (which records are known, and their values) are listed; each has a
cheap ceiling; the maximum itself is computed only for adversaries whose ceiling exceeds what has been
proved already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.leakage.adversaries import PairTable, count_entries, pair_tables
from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.worst_mechanism import by_heights, by_linear_program, height_functions
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.junction_tree import junction_tree
from quiltdp.model import Model
from quiltdp.rounding import EPS, up

__all__ = ["ExactBound"]

_MOST_RECORDS = 16


class _Budget:
    """How many linear programs may still be solved."""

    def __init__(self, programs: int, deadline: float) -> None:
        self._programs, self._deadline = programs, deadline

    def take(self) -> bool:
        self._programs -= 1
        return self._programs >= 0 and time.monotonic() < self._deadline


class ExactBound:
    """Leakage(T) = Σ_{t∈T} α_t + max over adversaries of max_H ln E_p H / E_p' H.

    Parameters
    ----------
    model
        A small model: the tables of all adversaries together are predicted before any work.
    units
        The protected sets; ``None`` for every record alone.
    max_entries
        The most numbers the tables may hold.
    max_programs, seconds
        The most linear programs, and the time, that one evaluation may spend on them; adversaries
        beyond it keep their ceiling, and the result says so.

    Raises
    ------
    ModelTooWide
        Before any work, naming the size.
    """

    name = "exact"
    adversary = "informed"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        max_entries: int = 4_000_000,
        max_programs: int = 4000,
        seconds: float = 60.0,
    ) -> None:
        if len(model.records) > _MOST_RECORDS:
            raise ModelTooWide(
                f"the exact limit lists every adversary of at most {_MOST_RECORDS} records,"
                f" this component has {len(model.records):,}",
                f"use another {option('method')}",
            )
        records = tuple(model.records)
        sizes = [model.cardinality(r) for r in records]
        place = {r: k for k, r in enumerate(records)}
        self._units: list[tuple[int, ...]] = [(k,) for k in range(len(records))]
        if units is not None:
            self._units = [tuple(place[n] for n in unit) for unit in units]
        needed = sum(count_entries(sizes, unit) for unit in self._units)
        if needed > max_entries:
            raise ModelTooWide(
                f"the exact limit of {len(records)} records needs {needed:,} numbers,"
                f" the limit is {max_entries:,}",
                f"use another {option('method')}",
                f"raise {option('max_entries')}",
            )
        self._records = np.array([model.index[r] for r in records], dtype=np.intp)
        self._max_programs = max_programs
        self._seconds = seconds
        log_joint = junction_tree(model).log_marginal(records)
        top = float(log_joint.max())
        joint = np.exp(log_joint - top)
        if np.any((joint < 1e-290) & np.isfinite(log_joint)):
            raise ModelTooWide("the exact limit: some joint states are too improbable for doubles")
        # the joint's relative error, four times, is how far a gain may be off on its account
        depth = float(np.abs(log_joint[np.isfinite(log_joint)]).max(initial=0.0))
        self._slack = 256 * EPS * (len(model.nodes) + depth)
        self._tables = [list(pair_tables(joint, unit)) for unit in self._units]
        self._names = records

    def evaluate(
        self,
        alpha: Vector,
        *,
        floor: float = 0.0,
        enough: float = math.inf,
        ceiling: Vector | None = None,
    ) -> RecordBounds:
        """Return the leakage of every unit.

        Parameters
        ----------
        floor
            Leakages below it need not be told apart: they come back as at most ``floor``.
        enough
            Stop once some unit is proved to leak more than this: the values are then no bounds,
            they only say that the largest leakage exceeds ``enough``.
        ceiling
            Bounds known already, one per unit; units at or below ``floor`` are passed over.
        """
        a = alpha[self._records]
        budget = _Budget(self._max_programs, time.monotonic() + self._seconds)
        notes: set[str] = set()
        values, witnesses = np.zeros(len(self._units)), {}
        for k, unit in enumerate(self._units):
            own = up(float(a[list(unit)].sum()))
            if ceiling is not None and ceiling[k] <= floor:
                values[k] = ceiling[k]
                continue
            span = (max(0.0, floor - own), enough - own)
            found, witness = self._unit(self._tables[k], a, span, budget, notes)
            others = float(a.sum()) - float(a[list(unit)].sum())
            values[k] = up(own + min(found + self._slack, up(max(others, 0.0))))
            if witness is not None:
                witnesses[k] = self._describe(*witness)
            if values[k] > enough:
                values[k + 1 :] = values[k]
                break
        return RecordBounds(values, self.name, witnesses, tuple(sorted(notes)))

    def _unit(
        self,
        tables: list[PairTable],
        a: Vector,
        span: tuple[float, float],
        budget: _Budget,
        notes: set[str],
    ) -> tuple[float, tuple[PairTable, int] | None]:
        """Return the largest certified gain over all adversaries, and who attains it."""
        ceilings = [table.ceilings(a) for table in tables]
        which = np.concatenate([np.full(len(c), t) for t, c in enumerate(ceilings)])
        row = np.concatenate([np.arange(len(c)) for c in ceilings])
        flat = np.concatenate(ceilings)
        best, witness = span[0], None
        for k in np.argsort(-flat, kind="stable"):
            if flat[k] <= best or best > span[1]:
                break
            table, r = tables[int(which[k])], int(row[k])
            value = self._gain(table, r, float(flat[k]), a, budget, notes)
            if value > best:
                best, witness = value, (table, r)
        return best, witness

    def _gain(
        self, table: PairTable, row: int, ceiling: float, a: Vector, budget: _Budget, notes: set[str]
    ) -> float:
        """Return a certified value for one adversary: exact where a method reaches it."""
        alphas = a[list(table.unknown)]
        if len(table.unknown) == 1:
            return ceiling
        p, q = table.p[row], table.q[row]
        if np.all(alphas == alphas[0]) and height_functions(table.sizes) is not None:
            value = by_heights(p, q, table.sizes, float(alphas[0]))
            return ceiling if value is None else min(ceiling, value)
        if not budget.take():
            notes.add("exact: the limit on linear programs was reached; some adversaries keep their ceiling")
            return ceiling
        return min(ceiling, by_linear_program(p, q, table.sizes, alphas) + 4 * EPS)

    def _describe(self, table: PairTable, row: int) -> dict[str, object]:
        """Say who the worst adversary is: what is known and which two values are told apart."""
        known = [self._names[j] for j in table.known_sets]
        return {
            "known": known,
            "unknown": [self._names[j] for j in table.unknown],
            "known_values": int(table.known[row]),
            "values": [int(v) for v in table.values[row]],
        }

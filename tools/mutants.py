"""Deliberate breaks: each one alone must make a test fail.

``make mutants`` applies them one by one to a copy of the sources, runs the tests that guard the place
(all of them part of ``make test``), and writes what was caught to docs/benchmarks/mutants.md.  The test
that noticed must fail again with the break and pass without it, or nothing was noticed.  Results are
kept in build/mutants while neither the broken file nor the list of tests changes, so that an interrupted
run goes on.  A break whose text is no longer in the code is an error, so that the list stays true.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "mutants.md"
STATE = ROOT / "build" / "mutants"


class Mutant(NamedTuple):
    """One break: where, what, why it is wrong, and the tests that must notice."""

    file: str
    old: str
    new: str
    why: str
    tests: str


LEAK = "accountant/bounds/"
BOUNDS = "tests/contracts/test_every_bound.py tests/accountant/bounds"
MESSAGES = "tests/accountant/bounds/test_chain_messages.py"
CHAIN = "tests/accountant/bounds/test_chain_contraction.py tests/accountant/bounds/test_chain_bound.py tests/accountant/bounds/test_chain_prior.py"
LEDGER = (
    "tests/accountant/test_ledger.py tests/accountant/test_ledger_attacks.py tests/accountant/test_ledger_storm.py"
    " tests/accountant/test_odometer.py tests/mechanisms/test_holdout.py tests/mechanisms/test_holdout_attacks.py"
    " tests/mechanisms/test_kill.py"
)
TRANSPORTS = (
    "tests/accountant/bounds/test_transport.py "
    "tests/accountant/bounds/test_network_simplex.py "
    "tests/accountant/bounds/test_coupling_twin.py "
    "tests/contracts/test_extreme_tables.py "
    "tests/accountant/bounds/test_fifty_digits.py"
)
CHAIN_WALK = (
    "tests/accountant/bounds/test_chain_messages.py "
    "tests/accountant/bounds/test_chain_bound.py "
    "tests/accountant/bounds/test_known_sets.py"
)
CHAIN_TWIN = "tests/accountant/bounds/test_chain_twin.py " + CHAIN_WALK
PAPERS = (
    "tests/papers/test_published_formulas.py tests/papers/test_zhao_records.py tests/papers/test_errata.py"
)
LISTED = (
    "tests/accountant/bounds/test_listed_evidence.py "
    "tests/accountant/bounds/test_known_sets.py "
    "tests/contracts/test_every_bound.py"
)
WORST = (
    "tests/accountant/bounds/test_worst_evidence.py "
    "tests/accountant/bounds/test_known_sets.py "
    "tests/contracts/test_every_bound.py"
)
COUPLING = (
    "tests/accountant/bounds/test_coupling_twin.py "
    "tests/accountant/bounds/test_coupling.py "
    "tests/accountant/bounds/test_prior_prices.py "
    "tests/inference/test_schedule.py "
    "tests/contracts/test_every_bound.py"
)
SEARCH = (
    "tests/accountant/test_solve.py "
    "tests/accountant/test_analysis.py "
    "tests/accountant/test_component.py "
    "tests/accountant/test_high_precision.py "
    "tests/accountant/test_calibration.py"
)
PRICED = (
    "tests/accountant/bounds/test_prior_prices.py "
    "tests/mechanisms/test_prices.py "
    "tests/accountant/bounds/test_chain_messages.py "
    "tests/accountant/bounds/test_coupling_twin.py"
)
PANEL = "tests/domains/pedigree/test_panel.py"
PRINTED = (
    "tests/papers "
    "tests/accountant/bounds/test_published.py "
    "tests/accountant/bounds/test_published_chain.py "
    "tests/accountant/bounds/test_parts.py"
)

MUTANTS = (
    # -- contraction and propagation
    Mutant(
        LEAK + "contraction.py",
        "ratio = np.exp(-0.5 * gap)",
        "ratio = np.exp(-gap)",
        "wrong exponent in Φ",
        "tests/accountant/bounds/test_contraction.py",
    ),
    Mutant(
        LEAK + "contraction.py",
        "np.minimum(up_array(value), m)",
        "value",
        "Φ no longer rounded up",
        "tests/accountant/bounds/test_contraction.py tests/accountant/test_high_precision.py",
    ),
    Mutant(
        LEAK + "contraction.py",
        "ratio = np.exp(-0.5 * (large - small))",
        "ratio = np.exp(0.5 * (large - small))",
        "wrong sign in Φ",
        "tests/accountant/bounds/test_contraction.py",
    ),
    Mutant(
        LEAK + "propagation.py",
        "sums = up_array(alpha + np.bincount(node,",
        "sums = up_array(np.bincount(node,",
        "a record's own α dropped",
        "tests/accountant/bounds/test_propagation.py",
    ),
    Mutant(
        LEAK + "propagation.py",
        "others = np.maximum(total - out, 0.0)",
        "others = 0.5 * np.maximum(total - out, 0.0)",
        "half of the other messages",
        "tests/accountant/bounds/test_propagation.py",
    ),
    Mutant(
        LEAK + "propagation.py",
        "out, back = most, into(most)",
        "out, back = own, into(own)",
        "a descent that does not start at a super-solution",
        "tests/accountant/bounds/test_propagation.py tests/accountant/test_high_precision.py",
    ),
    # -- chains
    Mutant(
        LEAK + "chain_contraction.py",
        "passed = (sums[k] - sums[k - d + 1]).astype(np.float64) + slack",
        "passed = (sums[k] - sums[k - d + 2]).astype(np.float64) + slack",
        "one record in between forgotten",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "self._best_distance(k, passed, a[k - d] + value[k - d])",
        "self._best_distance(k, passed, value[k - d])",
        "the far record's α forgotten",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "phases = np.full(period, up(cost * self.length))",
        "phases = np.zeros(period)",
        "not from above",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "rows = table * self._tilts[k - d]",
        "rows = table * self._tilts[0]",
        "the reversal of another step",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "extra = 2.0 * _ratio_range(self._tilts[position], self._tilts[late])",
        "extra = 0.0 * _ratio_range(self._tilts[position], self._tilts[late])",
        "early laws taken for settled ones",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "before = self._sides[1].leakages(a, self._check)",
        "before = 0.0 * self._sides[1].leakages(a, self._check)",
        "one side of a chain dropped",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "found = found + phi(sources, np.full_like(found, near)) + phi(sinks, np.full_like(found, near))",
        "found = found - phi(sources, np.full_like(found, near)) - phi(sinks, np.full_like(found, near))",
        "far evidence merged for nothing",
        MESSAGES,
    ),
    Mutant(
        LEAK + "chain.py",
        "            choices = [(after.any[r], before.any[b])]\n",
        "            choices = [(after.any[r], before.free[b])]\n",
        "only one side is known",
        MESSAGES,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "    weighed = joint[None] * outer.tilt[:, None, :]",
        "    weighed = joint[None] * np.ones_like(outer.tilt)[:, None, :]",
        "what is known does not tilt",
        MESSAGES,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "key = (id(column), id(by), price, fresh)",
        "key = (id(column), id(by), fresh)",
        "unequal prices share a message",
        MESSAGES,
    ),
    Mutant(
        LEAK + "threshold.py",
        "for way in (1, -1):",
        "for way in (1,):",
        "pairs looked at in one direction",
        "tests/accountant/bounds/test_threshold.py " + CHAIN,
    ),
    Mutant(
        LEAK + "threshold.py",
        "(1.0 + above * gain) / (1.0 + below * gain)",
        "(1.0 + above * gain)[-1:] / (1.0 + below * gain)[-1:]",
        "the wrong vertex of the hull",
        "tests/accountant/bounds/test_threshold.py " + CHAIN,
    ),
    # -- transport
    Mutant(
        LEAK + "transport.py",
        "best = np.maximum(best, star_ratio(p, q, d, x)[0])",
        "best = np.minimum(best, star_ratio(p, q, d, x)[0])",
        "min for max",
        "tests/accountant/bounds/test_transport.py",
    ),
    Mutant(
        LEAK + "transport.py",
        "value = np.minimum(np.maximum(value, 0.0), top)",
        "value = np.minimum(np.maximum(value - 1e-6, 0.0), top)",
        "rounded the wrong way",
        "tests/accountant/bounds/test_transport.py",
    ),
    # -- the ends of the range of doubles
    Mutant(
        LEAK + "transport.py",
        "np.where(q < SURE, -1e6, np.log(np.maximum(q, SURE)))",
        "np.log(np.maximum(q, 5e-324))",
        "the last bits of a subnormal are trusted",
        "tests/contracts/test_extreme_tables.py",
    ),
    Mutant(
        "inference/chains.py",
        "if np.any((joint < UNDERFLOW) & ",
        "if np.any((joint < 0.0) & ",
        "what a product has lost is not missed",
        "tests/contracts/test_extreme_tables.py",
    ),
    # -- quilts
    Mutant(
        LEAK + "quilts.py",
        "for n in sorted(quilt.closed - known)]",
        "for n in sorted(quilt.targets - known)]",
        "nearby records not counted",
        BOUNDS,
    ),
    Mutant(
        LEAK + "quilts.py",
        "up(self._closed_price(quilt, alpha, known) + swing)",
        "up(self._closed_price(quilt, alpha, known) + 0.9 * swing)",
        "a smaller swing",
        BOUNDS,
    ),
    Mutant(
        "inference/spread.py",
        "moved = logs[k + 1 :] - logs[k]",
        "moved = logs[k + 1 :] + logs[k]",
        "wrong sign in the spread",
        "tests/inference/test_spread.py",
    ),
    Mutant(
        "inference/spread.py",
        "wide = np.where(both & (known.sum(axis=1) > 1), high - low, 0.0)",
        "wide = np.where(both & (known.sum(axis=1) > 1), 0.5 * (high - low), 0.0)",
        "half a spread in batches",
        "tests/inference/test_spread.py " + CHAIN,
    ),
    Mutant(
        "inference/chains.py",
        "return 4 * (steps + 4) * (states + 3) * EPS",
        "return -4e9 * (steps + 4) * (states + 3) * EPS",
        "a margin that takes away",
        CHAIN,
    ),
    # -- groups, search, results
    Mutant(
        "mechanisms/thresholdout.py",
        "return Fraction(9 * self.budget, 4)",
        "return Fraction(2 * self.budget, 1)",
        "Thresholdout costs less than it does",
        "tests/accountant/test_mechanisms.py tests/contracts/test_every_mechanism.py tests/mechanisms/test_thresholdout.py",
    ),
    Mutant(
        "mechanisms/profiles.py",
        "if epsilon >= alpha:",
        "if epsilon >= 0.5 * alpha:",
        "δ of a pure mechanism cut too early",
        "tests/contracts/test_every_mechanism.py tests/accountant/test_mechanisms.py tests/accountant/bounds/test_approximate_bounds.py",
    ),
    Mutant(
        "accountant/adversaries.py",
        "if self.at_most == 0 or self.records == frozenset():",
        "if self.records == frozenset():",
        "the prior adversary is not recognised",
        "tests/accountant/test_registry.py tests/accountant/test_analysis.py",
    ),
    # -- noise and Thresholdout
    Mutant(
        "mechanisms/noise.py",
        "return round_up(exact * (1 + rounding_steps * step / Fraction(sensitivity)) * MARGIN / step)",
        "return round_up(exact / step / 2)",
        "half the noise",
        "tests/mechanisms/test_noise.py",
    ),
    Mutant(
        "mechanisms/noise.py",
        "return cls(math.frexp(smallest)[1] - 1 - GRID_BITS)",
        "return cls(math.frexp(smallest)[1] + 3)",
        "a grid coarser than the query",
        "tests/mechanisms/test_noise.py tests/mechanisms/test_thresholdout.py",
    ),
    Mutant(
        "mechanisms/noise.py",
        "if 2 * rest > bottom or (2 * rest == bottom and whole % 2):",
        "if False:",
        "values rounded down, not to the nearest",
        "tests/mechanisms/test_noise.py",
    ),
    Mutant(
        "mechanisms/thresholdout.py",
        "left = self.spec.budget - state.answers",
        "left = self.spec.budget - state.answers + 1",
        "one answer more than the budget",
        "tests/mechanisms/test_thresholdout.py",
    ),
    Mutant(
        "mechanisms/thresholdout.py",
        "above.append(k)\n                threshold = None",
        "above.append(k)",
        "the threshold is not redrawn after a spend",
        "tests/mechanisms/test_thresholdout.py",
    ),
    Mutant(
        "mechanisms/thresholdout.py",
        "noisy = self._noise.laplace([abs(h - t) for h, t in pairs], self._scales[2])",
        "noisy = self._noise.laplace([abs(h - t) for h, t in pairs], self._scales[1])",
        "comparison noise of half the scale",
        "tests/mechanisms/test_thresholdout.py",
    ),
    Mutant(
        "mechanisms/thresholdout.py",
        "values = self._noise.laplace([pairs[k][0] for k in above], self._scales[4])",
        "values = [pairs[k][0] for k in above]",
        "answers without noise",
        "tests/mechanisms/test_thresholdout.py",
    ),
    # -- the account
    Mutant(
        "accountant/ledger/visit.py",
        "    if share <= rest:\n        return",
        "    if share <= 2 * rest:\n        return",
        "a spent budget lets one more in",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "if current != self.head:",
        "if False:",
        "another writer in between is not noticed",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "time = max(now(), self.head.time)  # a clock set back changes no order",
        "time = now()",
        "a clock set back",
        "tests/accountant/test_ledger_faults.py",
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "if entry.request != keyed",
        "if False and entry.request != keyed",
        "a key answers for another request",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "if not hmac.compare_digest(_commitment(self._threshold, self._nonce), expected):",
        "if False:",
        "a changed threshold is believed",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "return Fraction(-(-share.numerator * _COARSE // share.denominator), _COARSE)",
        "return Fraction(share.numerator * _COARSE // share.denominator, _COARSE)",
        "a share rounded down",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "_require_room(share, self.head, self._ledger.path)\n        stored",
        "stored",
        "a reservation without room",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/account.py",
        "    missing = next((n for n in total if n not in amounts), None)\n    if missing is not None:",
        "    missing = None\n    if missing is not None:",
        "records left out of a charge",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/account.py",
        "return max(_ratio(amount, total[name], name)",
        "return min(_ratio(amount, total[name], name)",
        "min for max over records",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/account.py",
        "    if not 0.0 < promised < math.inf or cost > promised:",
        "    if not 0.0 < promised < math.inf:",
        "a σ that costs more than promised",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/locks.py",
        "return fcntl.flock(file, kind | fcntl.LOCK_NB)",
        "return None",
        "the file lock is not taken",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/locks.py",
        "            if not ahead:",
        "            if True:",
        "the thread lock is not taken",
        LEDGER,
    ),
    # -- chosen by somebody who did not write the code: rounding of transports
    Mutant(
        LEAK + "transport.py",
        "value = np.log(best) + (n + m + 24 + 4 * top) * EPS + (n * _TINY) * np.exp(top)",
        "value = np.log(best)",
        "the closed form is not rounded up",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "FARTHEST = 250.0",
        "FARTHEST = 2500.0",
        "costs beyond the range of doubles are transported",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "still &= (p[k] == q[k]) & (d[k * m + k] == 0.0)",
        "still &= p[k] == q[k]",
        "equal laws cost nothing although staying does",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "put = moved.max(axis=1) * (1 + 8 * EPS) + 1e-12",
        "put = moved.min(axis=1) * (1 + 8 * EPS) + 1e-12",
        "staying put costs what the cheapest state costs",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "same = ((p == q) & ((p >= SURE) | (p == 0))).all(axis=1)",
        "same = (p == q).all(axis=1)",
        "masses that lost their digits count as equal",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "np.maximum(value, 0.0) + slack)",
        "np.maximum(value, 0.0))",
        "threshold sets without their rounding",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "network_simplex.py",
        "doubtful = (solution.flow < solution.error).any(axis=0)",
        "doubtful = (solution.flow < -np.inf).any(axis=0)",
        "a negative transport counts as a proof (numpy)",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "network_simplex.py",
        "np.exp(d.reshape(n, m, -1).max(axis=1))",
        "np.exp(d.reshape(n, m, -1).min(axis=1))",
        "unmet demand at the price of the nearest sink (numpy)",
        TRANSPORTS,
    ),
    Mutant(
        "compiled/network_simplex.c",
        "share = load[j] > room ? room / load[j] : 1.0;",
        "share = 1.0;",
        "sinks that send more than they have (C)",
        TRANSPORTS,
    ),
    Mutant(
        "compiled/network_simplex.c",
        "doubtful |= flow[e] < error[e];",
        "doubtful |= flow[e] < -error[e];",
        "a transport within its rounding counts as positive (C)",
        TRANSPORTS,
    ),
    Mutant(
        "compiled/network_simplex.c",
        "return ((double)(8 * nodes + 16) + (double)(4 * nodes * nodes) * top) * EPS;",
        "return 0.0 * (double)nodes * top;",
        "no rounding at all (C)",
        TRANSPORTS,
    ),
    # -- chosen by somebody who did not write the code: skips on chains
    Mutant(
        LEAK + "chain.py",
        "            passed += self.prices[far.price].top\n",
        "            passed += 0.0\n",
        "what is passed over is not paid",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "for _, far, *_ in ways]",
        "for far, *_ in ways]",
        "the first step reached instead of the far one",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "laws, slack = laws @ far.laws, slack + far.slack",
        "laws, slack = far.laws, slack + far.slack",
        "a skip by the laws of its last step",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "self._between.get(id(column.outer), 0.0) + self.prices[column.price].top",
        "self._between.get(id(column.outer), 0.0) + 0.5 * self.prices[column.price].top",
        "all between costs half",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "joint = outward if price >= 0 or j == 1 else _scale_rows(outward @ joint, axis=(0, 1))",
        "joint = outward",
        "steps without a price are not summed out",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "if known is not None and known(j - 1):",
        "if known is not None and known(j - 1) and price >= 0:",
        "a record that costs nothing is never known",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "if fresh or outer is None:  # nothing",
        "if fresh or outer is None or price < 0:  # nothing",
        "nothing that costs lies beyond a step without a price",
        CHAIN_WALK,
    ),
    # -- chosen by somebody who did not write the code: the certificate of the tail
    Mutant(
        LEAK + "chain.py",
        "            if (found[-1] <= trial).all():",
        "            if True:",
        "a fixed point without its certificate",
        CHAIN_TWIN,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "            if not np.array_equal(free.tilt > 0, then.tilt > 0):",
        "            if False:",
        "a law settles while states die out",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "        if any(r is None for r in reaching):",
        "        if False:",
        "merged evidence allows other states than the tail",
        CHAIN_TWIN,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "return all(_predecessors(further, row, free.tilt[0] > 0) is not None for row in column.tilt > 0)",
        "return True",
        "evidence is merged whatever it rules out",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "tails = self._bound_phases(last, start, floors, self.side.near + DRIFT)",
        "tails = self._bound_phases(last, start, floors, DRIFT)",
        "the tail does not know how far evidence tilts",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "if step.merged\n",
        "if False\n",
        "columns that join later are not below the tail",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "start = np.maximum(self._tail[id(last[-1].free)], free[-1])",
        "start = free[-1]",
        "the tail starts below what it speaks for",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "best = own if tail is None else np.maximum(own, tail)",
        "best = own",
        "far evidence is forgotten beyond the listed steps",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "found = found + phi(sources, np.full_like(found, near)) +",
        "found = found +",
        "one of two laws is not tilted",
        CHAIN_TWIN,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "found.near = max([found.near, *(_tilt_distance(c, free) for c in merged)])",
        "found.near = 0.0",
        "merged evidence counts as the free law",
        CHAIN_TWIN,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "drift = turns * (float(_tilt_ranges(free.tilt, then.tilt).max()) + rounding)",
        "drift = float(_tilt_ranges(free.tilt, then.tilt).max()) + rounding",
        "a law that still moves counts as settled",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "settled = drift <= DRIFT and (_tilt_ranges(probe, free.tilt) <= near).all()",
        "settled = drift <= DRIFT",
        "evidence at the end counts as far while it is not",
        CHAIN_TWIN,
    ),
    # -- chosen by somebody who did not write the code: listing evidence
    Mutant(
        LEAK + "listed_evidence.py",
        "_GRID = 2.0**-43",
        "_GRID = 2.0",
        "different evidence is merged",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "found = np.maximum.reduceat(found",
        "found = np.minimum.reduceat(found",
        "merged evidence says the least of its rows",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "*(part.count + 1 for part in self._given)",
        "*(part.count + 2 for part in self._given)",
        "a known record counts twice",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "if self._most is not None and number > self._most:",
        "if self._most is not None and number >= self._most:",
        "one record fewer is known",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "self._law[some], longer)",
        "self._law[0 * some], longer)",
        "what is known beyond a node does not tilt it",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "beyond, level.nodes[0] in self._may_know)",
        "beyond, place == 0 and level.nodes[0] in self._may_know)",
        "only the first node of a clique is ever known",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "up_array(costs.messages_of(first)[i] + costs.messages_of(second)[j], 4.0)",
        "np.maximum(costs.messages_of(first)[i], costs.messages_of(second)[j])",
        "two branches count as the larger one",
        LISTED,
    ),
    Mutant(
        "inference/evidence.py",
        "for known in _all_subsets(self.may_know):",
        "for known in _all_subsets(self.may_know[:1]):",
        "only one node of a clique is ever known",
        WORST,
    ),
    Mutant(
        "inference/evidence.py",
        "some.append(bool(own) or any(found[-1].knowable))",
        "some.append(bool(own))",
        "who is known two cliques away is not seen",
        WORST,
    ),
    Mutant(
        "inference/evidence.py",
        "yield known, [nodes & unseen for nodes in touched]",
        "yield known, [0 * nodes for nodes in touched]",
        "known records beyond tilt nothing",
        WORST,
    ),
    # -- chosen by somebody who did not write the code: keys of messages
    Mutant(
        LEAK + "coupling.py",
        "(o.signature, *(self._prices.key(v.nodes) for v in o.levels)) for o",
        "(o.signature, len(o.levels)) for o",
        "unequal prices share a coupling",
        COUPLING,
    ),
    Mutant(
        LEAK + "coupling.py",
        "tuple((float(self.alpha[n]), self._kind.get(n, -1)) for n in nodes)",
        "tuple((0.0, self._kind.get(n, -1)) for n in nodes)",
        "unequal α share a key",
        COUPLING,
    ),
    Mutant(
        LEAK + "coupling.py",
        "tuple((float(self.alpha[n]), self._kind.get(n, -1)) for n in nodes)",
        "tuple((float(self.alpha[n]), 0) for n in nodes)",
        "unequal price tables share a key",
        COUPLING,
    ),
    Mutant(
        "inference/schedule.py",
        "(key(task), *(same[c] for c, _ in task.children))",
        "(key(task), len(task.children))",
        "equal tasks whatever lies beyond them",
        COUPLING,
    ),
    Mutant(
        "inference/schedule.py",
        "for a in (v.law, v.longer, v.value, v.values)),",
        "for a in (v.longer, v.value, v.values)),",
        "a signature without the laws",
        COUPLING,
    ),
    Mutant(
        "inference/schedule.py",
        "            *(label for _, label in self.shown),\n",
        "",
        "a signature without the children's states",
        COUPLING + " " + LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "key = (order.signature, *knowable,",
        "key = (order.signature, len(task.new),",
        "equal tasks whoever may be known in them",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "if self._asked != alpha.tobytes():",
        "if not self._asked:",
        "the messages of the α before",
        LISTED,
    ),
    Mutant(
        LEAK + "worst_evidence.py",
        "if self._asked != alpha.tobytes():",
        "if not self._asked:",
        "the messages of the α before (worst evidence)",
        WORST,
    ),
    Mutant(
        "accountant/component.py",
        'key = (k, tuple(b"" if t is None else t.tobytes() for t in tables))',
        'key = (k, (b"",))',
        "copies of other prices are one class",
        "tests/mechanisms/test_prices.py tests/accountant/test_component.py tests/accountant/test_analysis.py",
    ),
    # -- chosen by somebody who did not write the code: the solver
    Mutant(
        "accountant/solve.py",
        "        if found <= target:\n",
        "        if found <= target * (1.0 + 1e-9):\n",
        "a value a little above the target passes",
        SEARCH,
    ),
    Mutant(
        "accountant/solve.py",
        "        if value <= target:\n",
        "        if value <= 1.01 * target:\n",
        "a start a little above the target passes",
        SEARCH,
    ),
    Mutant(
        "accountant/solve.py",
        "    return low\n",
        "    return high\n",
        "the end of the interval that failed",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "(t for t in seen if t > x), default=x))\n                cost",
        "(t for t in seen if t < x), default=x))\n                cost",
        "what was said at a smaller cost",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "else round_up_digits(value)\n\n\nclass Solution",
        "else value * (1.0 - 1e-9)\n\n\nclass Solution",
        "the largest value is rounded down",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "np.add.at(values, np.asarray(outside), mine * (1 + 1e-15))",
        "np.maximum.at(values, np.asarray(outside), mine)",
        "parts of a set do not add up",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "equal = is_constant(numbers)",
        "equal = True",
        "copies at other costs are one",
        SEARCH,
    ),
    Mutant(
        "accountant/leakage.py",
        "self.search(lambda s: scaled(weights, s), target",
        "self.search(lambda s: scaled(weights, 0.999 * s), target",
        "the certificate of a smaller α",
        SEARCH,
    ),
    Mutant(
        "accountant/component.py",
        "values = np.broadcast_to(np.minimum(values, mine), len(self.by))",
        "values = np.broadcast_to(np.minimum(values, mine[::-1]), len(self.by))",
        "the bound of another unit",
        SEARCH,
    ),
    # -- a second choice by somebody who did not write the code: rounding of transports
    Mutant(
        LEAK + "transport.py",
        "    if n == 1 or m <= 2:\n",
        "    if n == 1 or m <= 3:\n",
        "the closed form for three sinks",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "return np.where(o > 600.0, o, np.",
        "return np.where(o > 6000.0, o, np.",
        "prices beyond e^600 are cut",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "np.where(q < SURE, -1e6, np.log(np.maximum(q, SURE)))",
        "np.log(np.maximum(q, SURE))",
        "a sink that lost its digits still holds the least sure mass",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "for law, axis in ((p, 1), (q, 2)):",
        "for law, axis in ((p, 1),):",
        "an impossible sink keeps its costs",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "transport.py",
        "least = np.where((p > 0) & (q > 0), stay, 0.0).max(axis=1)",
        "least = np.where((p > 0) & (q > 0), stay, 0.0).min(axis=1)",
        "what stays put costs the least of all",
        TRANSPORTS + " tests/accountant/bounds/test_told_apart.py",
    ),
    Mutant(
        "compiled/network_simplex.c",
        "price += ((unmet > 0.0 || unmet != unmet ? unmet : 0.0) + 1e-300) * far[i];",
        "price += ((unmet > 0.0 || unmet != unmet ? unmet : 0.0) + 1e-300);",
        "unmet demand is met for nothing (C)",
        TRANSPORTS,
    ),
    Mutant(
        LEAK + "coupling.py",
        "transport_of_laws(p, q, d, self._schedule.slack)",
        "transport_of_laws(p, q, d, 0.0)",
        "laws of a clique count as exact",
        COUPLING + " tests/accountant/bounds/test_errors_of_laws.py",
    ),
    Mutant(
        "inference/chain_schedule.py",
        "return 4.0 * (self.steps + 2) * (int(states) + 3) * EPS",
        "return 0.0 * int(states)",
        "laws of a chain count as exact",
        CHAIN_TWIN + " tests/accountant/bounds/test_errors_of_laws.py",
    ),
    # -- a second choice: skips on chains
    Mutant(
        LEAK + "chain.py",
        "costs = [self.prices[far.price].add_to(self._message_of(far.outer)) for _, far, *_ in ways]",
        "costs = [self.prices[near.price].add_to(self._message_of(far.outer)) for near, far, *_ in ways]",
        "the price of the near step at the far one",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "            passed += self.prices[far.price].top\n",
        "            passed += self.prices[column.price].top\n",
        "every step passed over costs what the first does",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "np.repeat([slack + passed for *_, passed, slack in ways]",
        "np.repeat([slack + min(passed, 0.0) for *_, passed, slack in ways]",
        "a skip is free of charge",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "else (column.outer, column.price)",
        "else (column.outer, price)",
        "a step without a price gives its own to the one beyond",
        CHAIN_WALK + " tests/accountant/bounds/test_told_apart.py",
    ),
    Mutant(
        "inference/chain_schedule.py",
        "_scale_rows(outward @ joint, axis=(0, 1))",
        "_scale_rows(joint @ outward, axis=(0, 1))",
        "steps summed out are multiplied the wrong way round",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "if price >= 0 or j == 1 else _scale_rows",
        "if j == 1 else _scale_rows",
        "priced steps are summed out as well",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "weighed = joint[None] * outer.tilt[:, None, :]",
        "weighed = joint[None] * np.ones_like(outer.tilt)[:, None, :]",
        "laws of the next step forget what is known",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "choices = [(after.any[r], before.free[b]), (after.free[r], before.any[b])]",
        "choices = [(after.any[r], before.free[b])]",
        "who knows one record knows it after the unit",
        CHAIN_WALK,
    ),
    # -- a second choice: the certificate of the tail
    Mutant(
        LEAK + "chain.py",
        " + phi(sinks, np.full_like(found, near))\n",
        "\n",
        "the other of two laws is not tilted",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "tail = worst if tail is None else np.maximum(tail, worst)",
        "tail = worst",
        "evidence that joins the tail replaces it",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "            for column in alive:\n                best",
        "            for column in alive[:0]:\n                best",
        "near evidence is forgotten beyond the listed steps",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "if (found[-1] <= trial).all():",
        "if (found[-1] <= trial + 1e-3).all():",
        "a certificate that fails by a thousandth",
        CHAIN_TWIN,
    ),
    Mutant(
        LEAK + "chain.py",
        "edge = max(len(side.steps) for side in sides) + period",
        "edge = period",
        "units near the ends count as middle ones",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "for k in range(edge, edge + period)]",
        "for k in range(edge, edge + 1)]",
        "one phase stands for all of a period",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "j >= repeats[0] + 3 * repeats[1] and lives[0] == alive:",
        "j >= repeats[0] + 3 * repeats[1]:",
        "a side settles while its evidence still changes",
        CHAIN_WALK,
    ),
    Mutant(
        LEAK + "chain.py",
        "self._listed = self._listed if step.grown else np.zeros_like(free)",
        "self._listed = np.zeros_like(free)",
        "evidence listed before a step is forgotten there",
        CHAIN_WALK,
    ),
    # -- a second choice: listing evidence
    Mutant(
        LEAK + "listed_evidence.py",
        "super().__init__(_product_of_laws(part.likelihood[:, end], law), part.count, part.most)",
        "super().__init__(part.likelihood[:, end], part.count, part.most)",
        "a known value says nothing of its own",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "likelihood = np.concatenate([total, *(",
        "likelihood = np.concatenate([np.ones_like(total), *(",
        "what is known beyond an unknown node says nothing",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "costs.messages_of(part)[rows[here] - start]",
        "costs.messages_of(part)[0 * rows[here]]",
        "all that is known beyond a known node is its first row",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "value, rest = np.maximum(old, value),",
        "value, rest = np.minimum(old, value),",
        "the least of two ways to share known records out",
        LISTED,
    ),
    Mutant(
        LEAK + "listed_evidence.py",
        "        for part in parts[1:] if join else ():\n",
        "        for part in ():\n",
        "one branch beyond an edge",
        LISTED,
    ),
    Mutant(
        LEAK + "conditioned.py",
        "np.flatnonzero(found > values[given.units])",
        "np.flatnonzero(found > 2.0 * values[given.units])",
        "evidence that is less than twice as bad is passed over",
        LISTED + " tests/accountant/bounds/test_parts.py",
    ),
    Mutant(
        "inference/interaction.py",
        "        for child in here.children:\n            label",
        "        for child in ():\n            label",
        "what children couple adds nothing to a quotient of corners",
        WORST,
    ),
    Mutant(
        "inference/interaction.py",
        "impossible[mask, first[~there], second[~there]] = np.inf",
        "impossible[mask, first[~there], second[~there]] = 0.0",
        "impossible corners couple nothing",
        WORST,
    ),
    # -- a second choice: keys of messages
    Mutant(
        LEAK + "listed_evidence.py",
        "self._prices.key((*task.root, *task.new)))",
        "self._prices.key(task.root))",
        "tasks of other prices are equal",
        LISTED,
    ),
    Mutant(
        LEAK + "chain.py",
        'key = prices.tobytes() if len(prices) <= CHAIN_POSITIONS or prices.any() else b""',
        'key = b""',
        "the sides of other classes of prices",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "key = (id(column), id(by), price, fresh)",
        "key = (id(column), id(by), fresh)",
        "columns of other prices are one",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "key = (id(column), id(by), price, fresh)",
        "key = (id(column), price, fresh)",
        "columns of other tables are one",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/chain_schedule.py",
        "kept.setdefault(possible.tobytes(), Column(",
        "kept.setdefault(len(possible), Column(",
        "evidence about other possible states is one",
        CHAIN_WALK,
    ),
    Mutant(
        "inference/schedule.py",
        "for a in (v.law, v.longer, v.value, v.values)),",
        "for a in (v.law, v.value, v.values)),",
        "a signature without the longer prefixes",
        COUPLING + " " + LISTED,
    ),
    Mutant(
        "inference/schedule.py",
        "for a in (v.law, v.longer, v.value, v.values)),",
        "for a in (v.law, v.longer)),",
        "a signature without the values",
        COUPLING + " tests/accountant/bounds/test_told_apart.py",
    ),
    Mutant(
        "graph/components.py",
        "kinds = tuple((model.is_record(n), model.cardinality(n), model.people.get(n, 1)) for n in names)",
        "kinds = tuple((model.cardinality(n), model.people.get(n, 1)) for n in names)",
        "copies with other records are one class",
        "tests/graph tests/accountant/test_component.py tests/accountant/test_analysis.py",
    ),
    Mutant(
        "graph/components.py",
        "key = (s.length, s.initial.tobytes(), tuple([first[id(t)] for t in s.transitions]))",
        "key = (s.length, s.initial.tobytes())",
        "segments with other tables are copies",
        "tests/graph tests/test_chain.py tests/accountant/test_component.py tests/accountant/test_analysis.py",
    ),
    # -- a second choice: the solver
    Mutant(
        "accountant/solve.py",
        "    low, high = min(start, ceiling), ceiling\n    value = evaluate_point(low)\n",
        "    low, high = min(start, ceiling), ceiling\n    value = min(evaluate_point(low), target)\n",
        "the start passes unasked",
        SEARCH,
    ),
    Mutant(
        "accountant/solve.py",
        "        if found <= target:\n",
        "        if found <= target or x >= ceiling:\n",
        "the ceiling passes unasked",
        SEARCH,
    ),
    Mutant(
        "accountant/component.py",
        "if isinstance(cost, np.ndarray) and not cost.any():",
        "if isinstance(cost, np.ndarray) and not cost.all():",
        "one record that is not read makes nothing leak",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "return bool((homes > 1).any())",
        "return bool((homes > 2).any())",
        "a set in two components leaks as its worse half",
        SEARCH,
    ),
    Mutant(
        "accountant/component.py",
        "values = np.broadcast_to(np.minimum(values, mine), len(self.by))",
        "values = np.broadcast_to(np.minimum(values, mine.min()), len(self.by))",
        "every unit gets the bound of the best one",
        SEARCH,
    ),
    Mutant(
        "accountant/analysis.py",
        "return Solution(x, seen[x])",
        "return Solution(max(seen), seen[x])",
        "the smallest x that failed",
        SEARCH,
    ),
    # -- chosen by somebody who did not write the code: prices as tables
    Mutant(
        LEAK + "coupling.py",
        "else table[x[:, None], x[None, :]]",
        "else table[x[:, None], x[None, :]] ** 2",
        "a price is squared",
        PRICED,
    ),
    Mutant(
        LEAK + "forward_backward.py",
        "own = [a * price for a, price",
        "own = [a * price**2 for a, price",
        "a price is squared (forward-backward)",
        PRICED,
    ),
    Mutant(
        LEAK + "chain.py",
        "np.array([label[id(t)] for t in each], dtype=np.intp)",
        "np.array([0 * label[id(t)] for t in each], dtype=np.intp)",
        "one price table for all steps",
        PRICED,
    ),
    # -- chosen by somebody who did not write the code: panels
    Mutant(
        "domains/pedigree/panel_loci.py",
        "bend = 2.0 * self.alleles**2",
        "bend = 0.2 * self.alleles**2",
        "a tenth of the bend between two frequencies",
        PANEL,
    ),
    Mutant(
        "domains/pedigree/panel_loci.py",
        "gap[inside] = 0.5 * (b",
        "gap[inside] = 0.0 * (b",
        "the chord alone",
        PANEL,
    ),
    Mutant(
        "domains/pedigree/panel_loci.py",
        "if all(np.array_equal(table, table[::-1, ::-1]) for table in prices.values()):",
        "if True:",
        "p and 1 − p alike for every query",
        PANEL,
    ),
    Mutant(
        "domains/pedigree/panel_loci.py",
        "ends[k, w] = (*who, up(scale / w))",
        "ends[k, w] = (*who, up(scale / w**2))",
        "noise that a locus does not get",
        PANEL,
    ),
    # -- chosen by somebody who did not write the code: published formulas
    Mutant(
        LEAK + "quilts.py",
        "up(self._closed_price(quilt, alpha) + 4.0 * b * (1 + 1e-12), 64.0)",
        "up(self._closed_price(quilt, alpha) + 3.0 * b * (1 + 1e-12), 64.0)",
        "Lemma 2 with 3b",
        PRINTED,
    ),
    Mutant(
        LEAK + "quilts.py",
        "4.0 * self._influence * (1 + 1e-12)",
        "3.0 * self._influence * (1 + 1e-12)",
        "Lemma 3 with 3a",
        PRINTED,
    ),
    Mutant(
        LEAK + "mqm_chain.py",
        "ChainInfluences(self.times * found.left,",
        "ChainInfluences(0.75 * self.times * found.left,",
        "Lemma 2 on chains with 3b on one side",
        PRINTED,
    ),
    Mutant(
        "papers/zhao.py",
        "9 * b * size / (4 * scale * room)",
        "8 * b * size / (4 * scale * room)",
        "Thresholdout of 8B in n_#",
        PRINTED + " " + "tests/generalization/test_planner.py",
    ),
    Mutant(
        "generalization/routes.py",
        "round_up(9 * self.budget / (4 * sigma * self.records))",
        "round_up(8 * self.budget / (4 * sigma * self.records))",
        "Thresholdout calibrated with 8B",
        "tests/generalization/test_planner.py tests/generalization/test_plan_parts.py",
    ),
    Mutant("papers/zhao.py", "tau / 3 - 4 * influence)", "tau / 3 - 3 * influence)", "n_# with 3b", PAPERS),
    Mutant(
        "papers/zhao.py", "2 * math.exp(-(non_negative", "1 * math.exp(-(non_negative", "one tail", PAPERS
    ),
    Mutant("papers/zhao.py", "4 * math.exp(-(tau**2)", "3 * math.exp(-(tau**2)", "Lemma 1 with 3", PAPERS),
    Mutant("papers/zhao.py", "tau / (12 * math.log(4", "tau / (11 * math.log(4", "σ of Theorem 2", PAPERS),
    Mutant("papers/zhao.py", "(1 / 3 - 2 * c) * epsilon", "(1 / 3 - c) * epsilon", "h of Lemma 4", PAPERS),
    Mutant("papers/rogers.py", "72 * eps**2 +", "71 * eps**2 +", "ν of Lemma 3.7", PAPERS),
    Mutant(
        "papers/cao.py",
        "* growth + 1) / (np",
        "* growth + 2) / (np",
        "L of Cao et al.",
        "tests/papers/test_cao.py",
    ),
    # -- the service
    Mutant(
        "server/store.py",
        "        if connection.invalidated:  # or",
        "        if False:  # or",
        "a session opened anew writes without the lock",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/store.py",
        ".rowcount != 1:",
        ".rowcount > 1:",
        "a head that another server moved is moved again",
        "tests/server/test_stores.py",
    ),
    Mutant(
        "server/store.py",
        '        connection.execute(text(f"SELECT pg_advisory_lock{kind}(:number)"), {"number": self._number})\n',
        "",
        "two servers are in the account at once",
        "tests/server/test_exactly_once.py tests/server/test_stores.py",
    ),
    Mutant(
        "accountant/ledger/store.py",
        "return text.ljust(-(-len(text) // _HEAD_WIDTH) * _HEAD_WIDTH)",
        "return text",
        "the width of the totals tells what came out",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "accountant/ledger/store.py",
        "return threshold.ljust(_THRESHOLD_WIDTH), nonce",
        "return threshold, nonce",
        "the width of the secret tells what came out",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/database.py",
        "pool_pre_ping=True",
        "pool_pre_ping=False",
        "a session that ended in the pool makes a question fail",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/store.py",
        "closed.with_for_update(read=True)).scalar() is not None",
        "closed.with_for_update(read=True)).scalar() == 1",
        "a closed study goes on answering",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/store.py",
        "if row is None or row.revoked is not None or",
        "if row is None or",
        "a token that was revoked is charged for",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/store.py",
        "lost = db.questions.c.answered.is_(None)",
        "lost = db.questions.c.answered == 0",
        "an answer that was lost does not count towards the cap",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/database.py",
        '    "UPDATE (revoked)": (members,),',
        '    "UPDATE": (members,),',
        "a server may change more of a member than to revoke it",
        "tests/server/test_exactly_once.py",
    ),
    Mutant(
        "server/database.py",
        "os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600",
        "os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644",
        "everybody on the machine may read the holdout",
        "tests/server/test_stores.py",
    ),
    Mutant(
        "server/questions.py",
        'inner = f"({self.text}\\n)"',
        'inner = f"({self.text})"',
        "a comment at the end of an expression swallows what is put around it",
        "tests/server/test_questions.py",
    ),
    Mutant(
        "graph/components.py",
        "yield from _dependent_steps(s)",
        "yield from []",
        "steps of a chain count as independent, and predictions are scored",
        "tests/server/test_questions.py",
    ),
)


def main() -> int:
    """Apply every break and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="apply only breaks whose file contains this text")
    parser.add_argument("--check", action="store_true", help="only check that every break still applies")
    parser.add_argument("--state", type=Path, default=STATE, help="where results are kept")
    parser.add_argument("--page-only", action="store_true", help="only write the page of what is known")
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if m.why and given.only in m.file]
    for m in chosen:
        found = _source(m).read_text(encoding="utf-8").count(m.old)
        if found != 1:
            print(f"{m.file}: the text of {m.why!r} stands there {found} times", file=sys.stderr)
            return 2
    if given.check:
        print(f"{len(chosen)} breaks apply")
        return 0
    given.state.mkdir(parents=True, exist_ok=True)
    rows = [(m, _result(m, given.state, run=not given.page_only)) for m in chosen]
    known = [(m, by) for m, by in rows if by is not None]
    caught = sum(1 for _, by in known if by)
    if not given.only:
        _write(known, caught, len(rows))
    print(f"{caught} of {len(known)} deliberate breaks are caught, {len(rows) - len(known)} not tried")
    return 0 if caught >= len(rows) - 1 else 1


def _source(m: Mutant) -> Path:
    return ROOT / "src" / "quiltdp" / m.file


def _result(m: Mutant, state: Path, *, run: bool) -> str | None:
    """Return what noticed a break, from an earlier run of the same break if there is one."""
    key = hashlib.sha256(json.dumps([*m, _source(m).read_text(encoding="utf-8")]).encode()).hexdigest()[:24]
    kept = state / f"{key}.txt"
    if not kept.exists() and run:
        by = _caught(m)
        kept.write_text(by, encoding="utf-8")
        print(
            f"{'caught' if by else 'MISSED':6}  {m.file}: {m.why}" + (f"  ({by})" if by else ""), flush=True
        )
    return kept.read_text(encoding="utf-8") if kept.exists() else None


def _caught(m: Mutant) -> str:
    """Return the first test that fails with the break in place and passes without it, or nothing."""
    tests = [t for t in m.tests.split() if (ROOT / t).exists()]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        target = Path(folder) / "src" / "quiltdp" / m.file
        target.write_text(target.read_text(encoding="utf-8").replace(m.old, m.new), encoding="utf-8")
        if m.file.endswith(".c"):
            _build(Path(folder) / "src")
        code, failed = _run(tests, Path(folder) / "src")
        if code == 0:
            return ""
        if code != 1 or failed is None:
            raise SystemExit(f"{m.file}: {m.why}: the tests could not be run (pytest says {code})")
        if _run([failed], Path(folder) / "src")[0] != 1:
            raise SystemExit(f"{failed} fails only now and then with the break {m.why!r}: look at it first")
    if _run([failed], ROOT / "src")[0] != 0:
        raise SystemExit(f"{failed} fails without any break: make it pass first")
    return failed


def _build(sources: Path) -> None:
    """Compile the kernels of a copy: without that the old ones would be left aside, and the twins run."""
    command = [sys.executable, "-m", "quiltdp.compiled.build"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(sources)}, check=True, capture_output=True)


def _run(tests: list[str], sources: Path) -> tuple[int, str | None]:
    """Return pytest's exit code and the first test that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    command += ["--timeout", "600", *tests]
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = [
        line.split(" ", 1)[1].split(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return done.returncode, failed[0] if failed else None


def _write(rows: list[tuple[Mutant, str]], caught: int, count: int) -> None:
    lines = [
        "# Deliberate breaks",
        "",
        f"{count} breaks, {len(rows)} tried so far: {caught} are caught by the quick tests. Made by `make mutants`,",
        "which applies each one alone to a copy of the sources; the test that notices passes without the break.",
        "",
        "| file | break | caught by |",
        "|---|---|---|",
        *(f"| `{m.file}` | {m.why} | {f'`{by}`' if by else '**missed**'} |" for m, by in rows),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

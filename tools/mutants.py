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


LEAK = "accountant/leakage/"
BOUNDS = "tests/contracts/test_every_bound.py tests/accountant/leakage"
MESSAGES = "tests/accountant/leakage/test_chain_messages.py"
CHAIN = "tests/accountant/leakage/test_chain_recursion.py tests/accountant/leakage/test_chain_bound.py tests/accountant/leakage/test_chain_prior.py"
LEDGER = (
    "tests/accountant/test_ledger.py tests/accountant/test_ledger_attacks.py tests/accountant/test_ledger_storm.py"
    " tests/accountant/test_odometer.py tests/mechanisms/test_holdout.py tests/mechanisms/test_holdout_attacks.py"
    " tests/mechanisms/test_kill.py"
)

MUTANTS = (
    # -- contraction and propagation
    Mutant(
        LEAK + "contraction.py",
        "ratio = np.exp(-0.5 * gap)",
        "ratio = np.exp(-gap)",
        "wrong exponent in Φ",
        "tests/accountant/leakage/test_contraction.py",
    ),
    Mutant(
        LEAK + "contraction.py",
        "np.minimum(up_array(value), m)",
        "value",
        "Φ no longer rounded up",
        "tests/accountant/leakage/test_contraction.py tests/accountant/test_high_precision.py",
    ),
    Mutant(
        LEAK + "contraction.py",
        "ratio = math.exp(-0.5 * (large - small))",
        "ratio = math.exp(0.5 * (large - small))",
        "wrong sign in scalar Φ",
        CHAIN,
    ),
    Mutant(
        LEAK + "propagation.py",
        "whole = up_array(self.alpha + sums, self._widest)",
        "whole = up_array(sums, self._widest)",
        "a record's own α dropped",
        "tests/accountant/leakage/test_propagation.py",
    ),
    Mutant(
        LEAK + "propagation.py",
        "others = np.maximum(whole - out, 0.0)",
        "others = 0.5 * np.maximum(whole - out, 0.0)",
        "half of the other messages",
        "tests/accountant/leakage/test_propagation.py",
    ),
    Mutant(
        LEAK + "propagation.py",
        "        if np.all(new <= trial):\n            return _settle(sweep, new)\n    return None\n\n\ndef _climb",
        "        return _settle(sweep, out)\n    return None\n\n\ndef _climb",
        "a fixed point without its certificate",
        "tests/accountant/leakage/test_propagation.py tests/accountant/test_high_precision.py",
    ),
    # -- chains
    Mutant(
        LEAK + "chain_recursion.py",
        "passed = sums.between(k - d + 1, k)",
        "passed = sums.between(k - d + 2, k)",
        "one record in between forgotten",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_recursion.py",
        "made[row[j]](up(cost[k - d] + value[k - d], 4))",
        "made[row[j]](up(value[k - d], 4))",
        "the far record's α forgotten",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_recursion.py",
        "        if g(low) <= low:\n            return low\n        u = low",
        "        return low\n        u = low",
        "fixed point without its check",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_curves.py",
        "rows = laws.reversed_rows(laws.marginal(t), table, laws.possible(t + d))",
        "rows = laws.reversed_rows(laws.marginal(0), table, laws.possible(t + d))",
        "the reversal of another step",
        CHAIN,
    ),
    Mutant(
        LEAK + "chain_contraction.py",
        "backward = self._backward.leak(a, self._workspace.guard.check)",
        "backward = 0.0 * self._backward.leak(a, self._workspace.guard.check)",
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
        "tests/accountant/leakage/test_threshold.py tests/accountant/leakage/test_kernel.py " + CHAIN,
    ),
    Mutant(
        LEAK + "threshold.py",
        "return max(0, k - 2), k + 3",
        "return k + 4, k + 9",
        "the wrong vertex of the hull",
        "tests/accountant/leakage/test_threshold.py tests/accountant/leakage/test_kernel.py " + CHAIN,
    ),
    # -- transport
    Mutant(
        LEAK + "transport.py",
        "best = np.maximum(best, star(p, q, d, x)[0])",
        "best = np.minimum(best, star(p, q, d, x)[0])",
        "min for max",
        "tests/accountant/leakage/test_transport.py",
    ),
    Mutant(
        LEAK + "transport.py",
        "value = np.minimum(np.maximum(value, 0.0), top)",
        "value = np.minimum(np.maximum(value - 1e-6, 0.0), top)",
        "rounded the wrong way",
        "tests/accountant/leakage/test_transport.py",
    ),
    # -- the ends of the range of doubles
    Mutant(
        LEAK + "kernel.py",
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
        "row, column = np.nonzero(term.unknown)",
        "row, column = np.nonzero(term.unknown * 0)",
        "nearby records not counted",
        BOUNDS,
    ),
    Mutant(
        LEAK + "quilts.py",
        "self._swing = np.concatenate([np.zeros(0), *(t.swing for t in self.terms)])",
        "self._swing = 0.9 * np.concatenate([np.zeros(0), *(t.swing for t in self.terms)])",
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
        "tests/contracts/test_every_mechanism.py tests/accountant/test_mechanisms.py tests/accountant/leakage/test_paired.py",
    ),
    Mutant(
        "accountant/adversaries.py",
        "if self.at_most == 0 or self.records == frozenset():",
        "if self.records == frozenset():",
        "the prior adversary is not recognised",
        "tests/accountant/test_registry.py tests/accountant/test_profile.py",
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
        "    if share <= left:\n        return",
        "    if share <= 2 * left:\n        return",
        "a spent budget lets one more in",
        LEDGER,
    ),
    Mutant(
        "accountant/ledger/visit.py",
        "if found != self.head:",
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

"""The spellings of the version before: understood for one version more, and told the new way."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from quiltdp.cli.options import UsageError, nearest
from quiltdp.cli.show import say

# Old command -> the new one, and what it takes besides; its own option spellings stand in _OPTIONS.
_COMMANDS = {
    "report": ("calibrate", ()),
    "audit": ("leakage", ("--audit",)),
    "attack": ("leakage", ("--attack",)),
    "influence": ("quilts", ()),
    "genome": ("pedigree", ("--journal", "none")),
    "maxinfo": ("pvalues", ("--beta", "0.01")),
}
_READ = ("format", "missing", "male", "female", "twins", "unknown-parents")
_WRITTEN = "quiltdp pedigree FILE … -o model.json writes the model, which this command takes"
_SHARED = {"--memory-limit": "refused: --work quick keeps tables small"}
_MODEL = {
    f"--{name}": f"refused: {_WRITTEN}"
    for name in (
        *("mutation-rate", "error-rate", "inbreeding", "x-linked", "recombination", "ld", "haplotype"),
        *("study", "format", "column", "missing", "male", "female", "twins", "unknown-parents"),
        "join-families",
    )
}
# Command -> old option -> the new words ({} for its value); or what to say where it is gone: "refused: "
# where the answer would be another one, else the option is left out.
_OPTIONS: dict[str, dict[str, str]] = {
    "calibrate": {
        "--values": "--query {}",
        "--renyi": "the Rényi curve is in --json, under 'concentrated'",
        "--disjoint": "refused: releases that share no record are one release: leave --releases out",
        "--bracket": "'quiltdp leakage --attack' searches longer for what no method can be below",
        "--no-bracket": "an attack is made only where it is quick",
        "--adversaries": "ask with --adversary prior, knows:1 and knows:2 in turn",
        **_SHARED,
        **_MODEL,
    },
    "report": {"--output": "--report {}", "-o": "--report {}", "--title": "the page is named after MODEL"},
    "leakage": {**_SHARED, **_MODEL},
    "info": _MODEL,
    "plan": {**_MODEL, "--threshold-share": "refused: in Python, plan(threshold_share=…)"},
    "holdout": {"--work": "refused: the work is that of the plan", "--no-second": "it is the default"},
    "quilts": {**_MODEL, "--influence": "b is always shown"},
    "pedigree": {
        "--frequencies": "--allele-frequency {}",
        "--tsv": "-o {}",
        "--plot": "-o {}",
        "--per-locus": "--split per-locus",
        "--no-ledger": "--ledger none",
        "--force": "refused: move the old release away, or choose another name",
        "--metrics": "the entropies of a release are no longer computed: --kin has the bits of each relative",
        "--nodes": "refused: in Python, analyze_panel(nodes=…)",
        "--allow-partial": "refused: leave --time-limit out, or choose --work quick",
        "--haplotype": "--ld {}",
        "--records": "--study {}",
        "--column": "--read {}",
        "--join-families": "--read join-families=yes",
        **{f"--{name}": f"--read {name}={{}}" for name in _READ},
    },
    "trace": {
        **{f"--{name}-column": f"--read {name}={{}}" for name in ("lat", "lon", "time", "user")},
        **{f"--{name}": f"--read {name}={{}}" for name in ("time-format", "header", "separator", "crs")},
        "--drop-invalid": "--accept off-globe",
        "--any-speed": "--accept any-speed",
        "--map": "-o {}",
        "--no-ledger": "--ledger none",
        "--force": "refused: move the old release away, or choose another name",
    },
    "influence": {"--of": "{}", "--max-entries": "refused: tables have one limit"},
    "maxinfo": {"--event": "{}"},
}


def translated(command: str, words: Sequence[str], known: Sequence[str]) -> tuple[str, list[str]]:
    """Return a call as this version spells it; say the new way on stderr where that is another one.

    Raises
    ------
    UsageError
        For a command that never was, and for an option that is gone and would change the answer.
    """
    new, added = _COMMANDS.get(command, (command, ()))
    if new not in known:
        raise UsageError(f"no such command: {command}{nearest(command, known)}")
    table = {**_OPTIONS.get(new, {}), **_OPTIONS.get(command, {})}
    found: list[str] = [*added]
    changed, walk = command != new, iter(words)
    for word in walk:
        flag, equals, value = word.partition("=")
        if flag not in table:
            step = command == "maxinfo" and equals and not word.startswith("-")
            found += ["--step", word] if step else [word]
            continue
        says = table[flag]
        if says.startswith("refused: "):
            raise UsageError(f"{flag} is gone: {says.removeprefix('refused: ')}")
        if not says.startswith(("-", "{")):
            say(f"quiltdp: {flag} is gone: {says}", err=True)
            if flag == "--title" and not equals:
                next(walk, None)
            continue
        changed = True
        if "{}" in says and not equals:
            value = next(walk, "")
        found += [part.replace("{}", value) for part in says.split()]
    if new == "trace":
        changed |= _merge_cell_options(found)
    if changed:
        say(f"quiltdp: this is spelled now: {shlex.join(['quiltdp', new, *found])}", err=True)
    return new, found


def _merge_cell_options(words: list[str]) -> bool:
    """Put ``--stay-distance``, ``--stay-time`` and ``--grid-crs`` into ``--cell``, in place."""
    sizes: dict[str, str] = {}
    for flag in ("--stay-distance", "--stay-time", "--grid-crs"):
        at = next((k for k, word in enumerate(words) if word.partition("=")[0] == flag), None)
        if at is not None:
            _, equals, value = words.pop(at).partition("=")
            sizes[flag] = value if equals else words.pop(at) if at < len(words) else ""
    if not sizes:
        return False
    at = words.index("--cell") + 1 if "--cell" in words[:-1] else None
    cell = "500m" if at is None else words[at]
    if cell == "stay":
        cell = f"stay:{sizes.get('--stay-distance', '100m')}:{sizes.get('--stay-time', '5min')}"
    elif "--grid-crs" in sizes:
        cell = f"{cell}@{sizes['--grid-crs']}"
    if at is None:
        words += ["--cell", cell]
    else:
        words[at] = cell
    return True

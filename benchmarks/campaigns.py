"""What campaigns share: options, parts that are kept and go on where they stopped, a section of a page."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import cache, reduce
from itertools import tee
from pathlib import Path
from typing import Any

import quiltdp as qd
from quiltdp.io.replace import write_whole
from quiltdp.parallel import each, workers

__all__ = [
    "add_options",
    "campaign",
    "kept",
    "loopy",
    "merged",
    "part_at",
    "section",
    "told",
    "version",
    "write_section",
]

Sums = dict[str, Any]
Part = tuple[str, range]
"""A name and its seeds."""


def add_options(parser: argparse.ArgumentParser, state: str) -> None:
    """Add the options of every campaign; ``state`` is where its parts are kept."""
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--state", type=Path, default=Path(state), help="where parts are kept")
    parser.add_argument("--docs", type=Path, help="write the page here")
    parser.add_argument("--workers", type=_some, default=1, help="processes to work with")


def _some(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def campaign(
    ranges: dict[str, range],
    size: int,
    work: Callable[[str, range], Sums],
    state: Path | None,
    executor: Executor | None = None,
) -> Sums:
    """Return the merged sums of all seeds, in parts of ``size``; what ``state`` holds is not done again."""
    parts = [
        (name, range(k, min(k + size, seeds.stop)))
        for name, seeds in ranges.items()
        for k in range(seeds.start, seeds.stop, size)
    ]
    return reduce(merged, kept(parts, work, state, executor), {})


def loopy(
    doc: str | None,
    most: int,
    state: str,
    size: int,
    work: Callable[[str, range], Sums],
    heading: str,
    page: Callable[[Sums, range], str],
) -> int:
    """Run a campaign on the loopy models of some seeds, as its command line asks; return its exit code."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=most)
    add_options(parser, state)
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.seeds)
    with workers(options.workers) as executor:
        total = campaign({"loopy": seeds}, size, work, options.state, executor)
    return told(total, heading, page(total, seeds), options.docs)


def told(total: Sums, heading: str, text: str, docs: Path | None) -> int:
    """Print what was found, put it into a page, and return 1 if anything is below the truth."""
    print(text)
    if docs is not None:
        write_section(docs, heading, text)
    return 1 if total["violations"] else 0


@cache
def version() -> str:
    """Return a short digest of the library's sources."""
    root = Path(qd.__file__).parent
    whole = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.[ch]")]):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def part_at(state: Path | None, part: Part) -> Sums | None:
    """Return what is kept of a part; ``None`` if nothing is, or not all of it."""
    if state is None:
        return None
    try:
        found: Sums = json.loads(_place(state, part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _place(state: Path, part: Part) -> Path:
    name, seeds = part
    return state / f"{name}-{seeds.start:07d}-{seeds.stop:07d}.json"


def kept(
    parts: Iterable[Part],
    work: Callable[[str, range], Sums],
    state: Path | None,
    executor: Executor | None = None,
) -> Iterator[Sums]:
    """Yield the sums of all parts, which may be endless; what ``state`` holds is not done again."""
    if state is not None:
        state.mkdir(parents=True, exist_ok=True)
    todo, names = tee(parts)
    for part, (new, done) in zip(names, each(_done, todo, shared=(work, state), executor=executor)):  # noqa: B905
        if new:
            if state is not None:
                write_whole(_place(state, part), json.dumps(done, ensure_ascii=False))
            name, seeds = part
            print(
                f"{name} {seeds.start} to {seeds.stop - 1}: {done['seconds']:.0f} s",
                *done["violations"],
                flush=True,
            )
        yield done


def _done(shared: tuple[Callable[[str, range], Sums], Path | None], part: Part) -> tuple[bool, Sums]:
    """Return whether a part is new, and its sums as they are kept, in whatever process."""
    work, state = shared
    before = part_at(state, part)
    if before is not None:
        return False, before
    began = time.process_time()
    done = work(*part)
    done |= {"seconds": time.process_time() - began, "versions": {version(): 1}}
    return True, json.loads(json.dumps(done))


def merged(first: Sums, second: Sums) -> Sums:
    """Return both together: numbers are added, lists joined, mappings merged.

    Examples
    --------
    >>> merged({"n": 1, "of": {"a": [1.0]}}, {"n": 2, "of": {"a": [2.0], "b": []}})
    {'n': 3, 'of': {'a': [1.0, 2.0], 'b': []}}
    """
    found = dict(first)
    for key, value in second.items():
        if key not in found:
            found[key] = value
        elif isinstance(value, dict):
            found[key] = merged(found[key], value)
        else:
            found[key] = found[key] + value
    return found


def section(page: str, heading: str, text: str) -> str:
    """Return the page with the section of that heading (its text included) put in or replaced."""
    older = re.compile(r"(?m)^" + re.escape(heading) + r"\n[\s\S]*?(?=^## |\Z)")
    text = text.rstrip() + "\n"
    if older.search(page):
        return older.sub(lambda m: text + ("\n" if m.end() < len(page) else ""), page, count=1)
    return f"{page.rstrip()}\n\n{text}"


def write_section(path: Path, heading: str, text: str) -> None:
    """Put a section into a page of the documentation, in place of an older one."""
    page = path.read_text(encoding="utf-8") if path.exists() else "# Soundness campaign\n"
    path.write_text(section(page, heading, text), encoding="utf-8")

"""What campaigns share: parts that are kept and go on where they stopped, and a section of a page."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import quiltdp as qd

__all__ = ["campaign", "kept", "merged", "place", "section", "told", "version", "write_section"]

Sums = dict[str, Any]


def campaign(
    ranges: dict[str, range], size: int, work: Callable[[str, range], Sums], state: Path | None
) -> Sums:
    """Return the merged sums of all seeds, in parts of ``size``; what ``state`` holds is not done again."""
    parts = [
        (name, range(k, min(k + size, seeds.stop)))
        for name, seeds in ranges.items()
        for k in range(seeds.start, seeds.stop, size)
    ]
    return kept(parts, work, state)


def told(total: Sums, heading: str, text: str, docs: Path | None) -> int:
    """Print what was found, put it into a page, and return 1 if anything is below the truth."""
    print(text)
    if docs is not None:
        write_section(docs, heading, text)
    return 1 if total["violations"] else 0


def version() -> str:
    """Return a short digest of the library's sources."""
    root = Path(qd.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def place(state: Path, name: str, seeds: range) -> Path:
    """Return the file that keeps a part."""
    return state / f"{name}-{seeds.start:07d}-{seeds.stop:07d}.json"


def kept(parts: Iterable[tuple[str, range]], work: Callable[[str, range], Sums], state: Path | None) -> Sums:
    """Return the merged sums of all parts (a name and its seeds); what ``state`` holds is not done again."""
    total: Sums = {}
    own = version()
    for name, seeds in parts:
        file = None if state is None else place(state, name, seeds)
        if file is None or not file.exists():
            began = time.process_time()
            done = work(name, seeds)
            done |= {"seconds": time.process_time() - began, "versions": {own: 1}}
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(done, ensure_ascii=False), encoding="utf-8")
            print(f"{name} {seeds.start} to {seeds.stop - 1}:", *done["violations"], flush=True)
        else:
            done = json.loads(file.read_text(encoding="utf-8"))
        total = merged(total, done)
    return total


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

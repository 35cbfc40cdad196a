"""Write docs/modules.md: one sentence per module, the first one of its own docstring.

python tools/modules.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quiltdp"
PAGE = ROOT / "docs" / "modules.md"
HEAD = """# Modules

Every module and its first sentence, written by `tools/modules.py` from the code itself. How the packages
stand on each other, and where to change what: [architecture](architecture.md).
"""


def sentence(path: Path) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    plain = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", " ".join(text.split("\n\n")[0].split()))
    return plain.replace("``", "`").replace("|", "\\|")


def page() -> str:
    """Return the page: a heading per package, a line per module."""
    lines = [HEAD]
    folders = sorted({p.parent for p in PACKAGE.rglob("*.py")}, key=str)
    for folder in folders:
        name = "quiltdp" if folder == PACKAGE else f"quiltdp/{folder.relative_to(PACKAGE)}"
        lines.append(f"## {name}\n")
        for path in sorted(folder.glob("*.py")):
            stem = "`__init__`" if path.stem == "__init__" else f"`{path.stem}`"
            if sentence(path):
                lines.append(f"- {stem}: {sentence(path)}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

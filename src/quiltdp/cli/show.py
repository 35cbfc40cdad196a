"""Tables and lines for people: colours on a terminal, plain text elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from quiltdp.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

PLAIN_WIDTH = 110
TABLE_WIDTH = 80
"""Tables are this wide at most where no terminal says how wide it is."""
NAME_WIDTH = 32
"""What a row is about stands first, and is not broken up to this width."""


def show(renderable: RenderableType, *, style: str | None = None, width: int = PLAIN_WIDTH) -> None:
    """Print on stdout: in colour on a terminal; elsewhere plain, without trailing blanks."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(renderable, style=style)
        return
    plain = Console(width=width, file=StringIO(), highlight=False, color_system=None)
    with plain.capture() as capture:
        plain.print(renderable, crop=False)  # a table may be a little wider, no letter is lost
    print("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")), flush=True)


def say(line: str, *, err: bool = False) -> None:
    """Print a plain line as it is, what is not visible in it escaped."""
    print(printable(line), file=sys.stderr if err else sys.stdout, flush=True)


def show_line(text: str, *, style: str | None = None) -> None:
    """Print a line of text (after the empty lines it begins with), markup characters taken as they are."""
    show(_plain_text(text), style=style)


def _plain_text(text: str) -> Text:
    """Return a text for a terminal: no markup, and what is not visible escaped."""
    from rich.text import Text

    body = text.lstrip("\n")
    return Text(text[: len(text) - len(body)] + printable(body))


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", right: Iterable[str] = ()
) -> None:
    """Print a table under its title; the columns named in ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table

    if title:
        show_line(title, style="bold")
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan")
    to_the_right = set(right)
    cells = [[_plain_text(cell) for cell in row] for row in rows]
    for k, name in enumerate(columns):
        table.add_column(
            _plain_text(name),
            justify="right" if name in to_the_right else "left",
            overflow="fold",
            no_wrap=k == 0 and all(row[0].cell_len <= NAME_WIDTH for row in cells),
        )
    for row in cells:
        table.add_row(*row)
    show(table, width=TABLE_WIDTH)


def show_facts(facts: Iterable[tuple[str, str]], *, title: str = "") -> None:
    """Print ``name  value`` lines, names aligned."""
    from rich.table import Table

    if title:
        show_line(title, style="bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(_plain_text(name), _plain_text(value))
    show(grid)


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names in order, separated by commas, the tail counted: ``A, B, … 5 more``."""
    found = sorted(names, key=natural_sort_key)
    if not found:
        return "–"
    if len(found) <= most:
        return ", ".join(found)
    return f"{', '.join(found[:most])}, … {len(found) - most} more"


def natural_sort_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that puts X2 before X10."""
    import re

    parts = re.findall(r"\d+|\D+", name, re.ASCII)
    digits = ((p, p.lstrip("0")) if p.isascii() and p.isdigit() else (p, None) for p in parts)
    return tuple((1, 0, p) if d is None else (0, len(d), d) for p, d in digits)


def number(value: float, digits: int = 4, *, up: bool = False, down: bool = False) -> str:
    """Return a number for people, with ``up`` never below it, with ``down`` never above; ∞ is a value."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if up or down:
        from quiltdp.numbers import format_down, format_up  # which loads numpy

        return format_up(value, digits) if up else format_down(value, digits)
    return f"{value:.{digits}g}"

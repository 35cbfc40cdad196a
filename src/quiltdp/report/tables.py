"""Results as small HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from quiltdp.numbers import shown_up
from quiltdp.printable import printable

__all__ = ["leakage_table"]


def leakage_table(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[tuple[str, float]]) -> str:
    """Return a title, facts, and the units that leak most, as HTML; names are only names.

    Examples
    --------
    >>> leakage_table("σ = 1", [("adversary", "prior")], [("<b>", 0.5)]).count("&lt;b&gt;")
    1
    """
    told = "".join(f"<tr><th>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in facts)
    shown = "".join(f"<tr><td>{_text(n)}</td><td>{shown_up(v)}</td></tr>" for n, v in rows)
    leaks = f"<table><tr><th>record</th><th>leakage</th></tr>{shown}</table>" if rows else ""
    return f"<p><b>{_text(title)}</b></p><table>{told}</table>{leaks}"


def _text(text: str) -> str:
    return escape(printable(text))

"""Pedigree drawings in the field's own signs: squares, circles, lines, coloured by a number.

Needs matplotlib (extra ``plot``).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from quiltdp.domains.pedigree.kin import kinship
from quiltdp.domains.pedigree.people import Pedigree, Person
from quiltdp.errors import DependencyMissing, InvalidArgument
from quiltdp.printable import printable
from quiltdp.report.pedigree_layout import MOST_DRAWN, SYMBOL, Drawing, draw_lines, layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXT = 0.15  # the height of a line of a caption
_LONGEST = 12  # letters of a line that fit between two neighbours
_LINE = "#444444"
_BLANK = "#ffffff"


def draw_pedigree(
    family: Pedigree,
    values: Mapping[str, float] | None = None,
    *,
    label: str = "leakage ε",
    title: str = "",
    people: Collection[str] | None = None,
    ax: Axes | None = None,
    cmap: str = "YlOrRd",
    limits: tuple[float, float] | None = None,
    names: bool = True,
) -> Axes:
    """Draw a family: squares for men, circles for women, diamonds where the sex is unknown.

    Parameters
    ----------
    family
        The pedigree; ``people`` restricts it (default: everybody).
    values
        A number per person, shown as colour and written below the name; people without one (latents)
        are drawn with a dashed outline.
    limits
        The ends of the colour scale; by default from 0 to the largest value, so that equal values have
        one colour and half the leakage half of it.

    Returns
    -------
    Axes
        The matplotlib axes, ready for ``ax.figure.savefig(…)``.

    Raises
    ------
    DependencyMissing
        Without matplotlib.
    InvalidArgument
        For more than 400 people: draw one family at a time.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.colors import Normalize
    except ImportError:
        raise DependencyMissing("drawings need matplotlib: pip install 'quiltdp[plot]'") from None
    wanted = None if people is None else set(people)
    chosen = [p for p in family if wanted is None or p.name in wanted]
    if not 0 < len(chosen) <= MOST_DRAWN:
        raise InvalidArgument(
            f"{len(chosen)} people do not fit a drawing (1 to {MOST_DRAWN}); choose one family"
        )
    shown = dict(values or {})
    captions = {p.name: _caption_text(p, shown.get(p.name), names=names) for p in chosen}
    height = _TEXT * max((text.count("\n") + 1 for text in captions.values() if text), default=0)
    drawing = draw_lines(family, layout(family, [p.name for p in chosen]), 0.06 + height)
    place = drawing.place
    axes = _fresh_axes(place) if ax is None else ax
    low, high = limits or (0.0, max((v for v in shown.values() if v < math.inf), default=1.0))
    norm = Normalize(low, high if high > low else low + 1.0, clip=True)
    _plot_lines(axes, family, drawing)
    for person in chosen:
        value = shown.get(person.name)
        colour = _BLANK if value is None else colormaps[cmap](norm(value))
        _plot_symbol(axes, person, place[person.name], colour, latent=value is None and bool(shown))
        x, y = place[person.name]
        axes.text(x, y - SYMBOL - 0.04, captions[person.name], ha="center", va="top", fontsize=6.5, zorder=4)
    _set_frame(axes, place, title, height)
    if shown:
        from matplotlib.cm import ScalarMappable

        axes.figure.colorbar(
            ScalarMappable(norm, cmap), ax=axes, label=label, shrink=0.7, pad=0.02, aspect=30
        )
    return axes


def _fresh_axes(place: Mapping[str, tuple[float, float]]) -> Axes:
    import matplotlib.pyplot as plt

    width = 0.98 * (max(x for x, _ in place.values()) + 2.0) + 1.0  # an inch for the scale
    height = 0.98 * (2.0 - min(y for _, y in place.values()))
    size = (min(60.0, max(4.0, width)), min(60.0, max(2.4, height)))
    axes: Axes = plt.subplots(figsize=size)[1]
    return axes


def _plot_lines(axes: Any, family: Pedigree, drawing: Drawing) -> None:
    style = {"color": _LINE, "linewidth": 1.1, "zorder": 1}
    for line in drawing.lines:
        axes.plot([x for x, _ in line.points], [y for _, y in line.points], **style)
        if line.kind == "marriage" and kinship(family, *line.couple) > 0:  # relatives who have children
            axes.plot([x for x, _ in line.points], [y + 0.06 for _, y in line.points], **style)


def _plot_symbol(axes: Any, person: Person, at: tuple[float, float], colour: Any, *, latent: bool) -> None:
    from matplotlib.patches import Circle, Rectangle, RegularPolygon

    x, y = at
    look = {
        "facecolor": colour, "edgecolor": "#222222", "linewidth": 1.2, "zorder": 3,
        "linestyle": (0, (3, 2)) if latent else "-",
    }  # fmt: skip
    if person.sex == "male":
        axes.add_patch(Rectangle((x - SYMBOL * 0.9, y - SYMBOL * 0.9), 1.8 * SYMBOL, 1.8 * SYMBOL, **look))
    elif person.sex == "female":
        axes.add_patch(Circle((x, y), SYMBOL, **look))
    else:
        axes.add_patch(RegularPolygon((x, y), 4, radius=SYMBOL * 1.2, **look))
    if person.also:
        axes.text(x, y, "MZ", ha="center", va="center", fontsize=6, zorder=4)


def _caption_text(person: Person, value: float | None, *, names: bool) -> str:
    """Return what stands below a symbol: the name people use, in at most two short lines, and the value."""
    parts: list[str] = []
    if names and person.stated:
        parts = textwrap.wrap(printable(person.label or person.id or person.name), _LONGEST)
        if len(parts) > 2:
            parts = [f"{parts[0][: _LONGEST - 1]}…", parts[-1]]
    if value is not None:
        parts.append(f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.1e}")
    return "\n".join(parts)


def _set_frame(axes: Any, place: Mapping[str, tuple[float, float]], title: str, caption: float) -> None:
    xs, ys = zip(*place.values(), strict=True)
    axes.set_xlim(min(xs) - 0.8, max(xs) + 0.8)
    axes.set_ylim(min(ys) - SYMBOL - caption - 0.2, max(ys) + 0.6)
    axes.set_aspect("equal")
    axes.axis("off")
    if title:
        axes.set_title(title, fontsize=10)

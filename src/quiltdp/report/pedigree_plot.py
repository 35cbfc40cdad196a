"""Pedigree drawings in the field's own signs: squares, circles, lines, coloured by a number.

Needs matplotlib (extra ``plot``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from quiltdp.domains.pedigree.relations import kinship
from quiltdp.domains.pedigree.types import Pedigree, Person
from quiltdp.errors import DependencyMissing, InvalidArgument
from quiltdp.report.pedigree_layout import MOST_DRAWN, layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_pedigree"]

_SIZE = 0.34
_ROW = 1.7
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
        The ends of the colour scale; from the values by default.

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
    place = {n: (x, _ROW * y) for n, (x, y) in layout(family, [p.name for p in chosen]).items()}
    axes = _axes(place) if ax is None else ax
    shown = dict(values or {})
    low, high = limits or (min(shown.values(), default=0.0), max(shown.values(), default=1.0))
    norm = Normalize(low, high if high > low else low + 1e-9)
    _lines(axes, family, place)
    for person in chosen:
        value = shown.get(person.name)
        colour = _BLANK if value is None else colormaps[cmap](norm(value))
        _symbol(axes, person, place[person.name], colour, latent=value is None and bool(shown))
        _caption(axes, person, place[person.name], value, names=names)
    _finish(axes, place, title)
    if shown:
        from matplotlib.cm import ScalarMappable

        axes.figure.colorbar(ScalarMappable(norm, cmap), ax=axes, label=label, shrink=0.7, pad=0.02)
    return axes


def _axes(place: Mapping[str, tuple[float, float]]) -> Axes:
    import matplotlib.pyplot as plt

    width = max(x for x, _ in place.values()) + 2.0
    height = 2.0 - min(y for _, y in place.values())
    axes: Axes = plt.subplots(figsize=(min(16.0, max(4.0, 0.9 * width)), max(2.4, 0.9 * height)))[1]
    return axes


def _lines(axes: Any, family: Pedigree, place: Mapping[str, tuple[float, float]]) -> None:
    style = {"color": _LINE, "linewidth": 1.1, "zorder": 1}
    sibships: dict[tuple[str, str], list[str]] = {}
    for person in family:
        if person.name in place and person.father in place and person.mother in place:
            sibships.setdefault((str(person.father), str(person.mother)), []).append(person.name)
    for k, ((father, mother), children) in enumerate(sibships.items()):
        (x1, y1), (x2, y2) = place[father], place[mother]
        axes.plot([x1, x2], [y1, y2], **style)
        if kinship(family, father, mother) > 0:  # a second line for relatives who have children
            axes.plot([x1, x2], [y1 + 0.07, y2 + 0.07], **style)
        middle, top = (x1 + x2) / 2, (y1 + y2) / 2
        bar = max(place[c][1] for c in children) + 0.52 + 0.1 * (k % 3)  # neighbours stay apart
        axes.plot([middle, middle], [top, bar], **style)
        xs = [place[c][0] for c in children]
        axes.plot([min([middle, *xs]), max([middle, *xs])], [bar, bar], **style)
        for c in children:
            axes.plot([place[c][0]] * 2, [bar, place[c][1]], **style)


def _symbol(axes: Any, person: Person, at: tuple[float, float], colour: Any, *, latent: bool) -> None:
    from matplotlib.patches import Circle, Rectangle, RegularPolygon

    x, y = at
    look = {
        "facecolor": colour, "edgecolor": "#222222", "linewidth": 1.2, "zorder": 3,
        "linestyle": (0, (3, 2)) if latent else "-",
    }  # fmt: skip
    if person.sex == "male":
        axes.add_patch(Rectangle((x - _SIZE * 0.9, y - _SIZE * 0.9), 1.8 * _SIZE, 1.8 * _SIZE, **look))
    elif person.sex == "female":
        axes.add_patch(Circle((x, y), _SIZE, **look))
    else:
        axes.add_patch(RegularPolygon((x, y), 4, radius=_SIZE * 1.2, **look))
    if person.also:
        axes.text(x, y, "MZ", ha="center", va="center", fontsize=6, zorder=4)


def _caption(axes: Any, person: Person, at: tuple[float, float], value: float | None, *, names: bool) -> None:
    parts = [person.id or person.name] if names and person.stated else []
    parts += [f"{value:.2f}"] if value is not None else []
    if parts:
        white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
        axes.text(
            at[0],
            at[1] - _SIZE - 0.04,
            "\n".join(parts),
            ha="center",
            va="top",
            fontsize=7,
            zorder=2,
            bbox=white,
        )


def _finish(axes: Any, place: Mapping[str, tuple[float, float]], title: str) -> None:
    xs, ys = zip(*place.values(), strict=True)
    axes.set_xlim(min(xs) - 0.8, max(xs) + 0.8)
    axes.set_ylim(min(ys) - 0.9, max(ys) + 0.6)
    axes.set_aspect("equal")
    axes.axis("off")
    if title:
        axes.set_title(title, fontsize=10)

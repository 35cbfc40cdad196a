"""The files that ``quiltdp pedigree`` writes: refused before the work, written together at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.errors import DependencyMissing, InvalidArgument

if TYPE_CHECKING:
    from quiltdp.cli.release import ReleaseOptions
    from quiltdp.domains.pedigree import Pedigree

__all__ = ["Outputs"]


@dataclass(frozen=True)
class Outputs:
    """Where a table, a drawing and a release go, and what must not be overwritten."""

    tsv: Path | None
    plot: Path | None
    published: ReleaseOptions
    inputs: Sequence[Path | None] = field(default=())

    @property
    def named(self) -> str:
        """The files, for people; empty for none."""
        return ", ".join(str(name) for name in (self.tsv, self.plot, self.published.file) if name is not None)

    def check(self) -> None:
        """Refuse what cannot be written, before any work."""
        from importlib.util import find_spec

        from quiltdp.io.replace import check_writable

        named = [name for name in (self.tsv, self.plot, self.published.file) if name is not None]
        for name in named:
            check_writable(name, *self.inputs)
        if len({name.resolve() for name in named}) < len(named):
            raise InvalidArgument("--tsv, --plot and --release must be different files")
        if self.plot is not None:
            if self.plot.suffix.lower() not in (".png", ".svg", ".pdf"):
                raise InvalidArgument(f"--plot {self.plot}: a drawing is written as .png, .svg or .pdf")
            if find_spec("matplotlib") is None:
                raise DependencyMissing("drawings need matplotlib: pip install 'quiltdp[plot]'")

    def check_family(self, family: Pedigree) -> None:
        """Refuse a family that does not fit a drawing, before any work."""
        from quiltdp.report.pedigree_layout import MOST_DRAWN

        largest = len(family.components[0])
        if self.plot is not None and largest > MOST_DRAWN:
            raise InvalidArgument(
                f"--plot: the largest family has {largest:,} people, at most {MOST_DRAWN} fit a drawing;"
                " choose one with --family"
            )

    def write(self, payload: dict[str, Any], family: Pedigree) -> None:
        """Make everything first, then write it; what is paid for is made last, when nothing else can fail."""
        from quiltdp.domains.pedigree.output import leakage_tsv
        from quiltdp.io.replace import write_whole

        made: list[tuple[str, Path, bytes | str]] = []
        if self.tsv is not None:
            made.append(("tsv", self.tsv, leakage_tsv(payload.get("_rows", ()))))
        if self.plot is not None:
            made.append(("plot", self.plot, self._picture(payload, family)))
        for key, path, content in made:
            write_whole(path, content, *self.inputs)
            payload[key] = str(path)
        if "_release" in payload:
            payload["release"] = str(self.published.file)
            payload |= payload["_release"]()

    def _picture(self, payload: dict[str, Any], family: Pedigree) -> bytes:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.figure import Figure

        from quiltdp.report.pedigree_plot import draw_pedigree

        assert self.plot is not None
        largest = set(family.components[0])
        who = payload["adversary"]
        column = who if who in ("informed", "prior") else "asked"
        values = {r.name: getattr(r, column) for r in payload.get("_rows", ()) if r.name in largest}
        axes = draw_pedigree(
            family, values or None, people=largest, title=family.source, label=f"leakage ε ({who} adversary)"
        )
        figure = axes.figure
        assert isinstance(figure, Figure)
        picture = BytesIO()
        figure.savefig(picture, format=self.plot.suffix[1:].lower(), dpi=150, bbox_inches="tight")
        return picture.getvalue()

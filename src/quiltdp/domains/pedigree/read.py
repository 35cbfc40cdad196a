"""One way in: the format is told by the suffix and the content, never guessed when both fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from quiltdp.domains.pedigree.assemble import assemble
from quiltdp.domains.pedigree.types import Pedigree, RowFile
from quiltdp.errors import InvalidArgument, option

__all__ = ["FORMATS", "SUFFIXES", "read_pedigree"]

FORMATS = ("plink", "linkage", "table", "gedcom")
_BY_SUFFIX = {
    **dict.fromkeys((".fam", ".psam"), "plink"),
    **dict.fromkeys((".ged", ".gedcom"), "gedcom"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "table"),
    **dict.fromkeys((".ped", ".pre", ".dat", ".txt"), ""),  # PLINK or LINKAGE: the content tells
}
SUFFIXES = tuple(_BY_SUFFIX)


def read_pedigree(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    columns: Mapping[str, str | int] | None = None,
    missing: str | Collection[str] = (),
    male: str | None = None,
    female: str | None = None,
    twins: Collection[Collection[str]] = (),
    unknown_parents: str = "separate",
    join_families: bool = False,
) -> Pedigree:
    r"""Read a pedigree file: PLINK, .psam, LINKAGE, CSV or GEDCOM.

    Parameters
    ----------
    path
        The file; its suffix tells the format unless ``format`` does.
    format
        ``"plink"`` (.fam .ped .psam .pre, 4 to 7 columns), ``"linkage"`` (post-MAKEPED), ``"table"``
        (a header names the columns) or ``"gedcom"``.
    columns
        Role → column name, for tables with unusual or ambiguous headers.
    missing
        Further codes that mean "no parent".
    male, female
        The codes of the sex column, where they are not 1/2 or M/F.
    twins, unknown_parents, join_families
        As in :func:`~quiltdp.domains.pedigree.assemble.assemble`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     fam = Path(folder, "trio.fam")
    ...     _ = fam.write_text("F1 kid dad mum 1 -9\nF1 dad 0 0 1 -9\nF1 mum 0 0 2 -9\n")
    ...     read_pedigree(fam)
    <Pedigree: 3 people, 2 founders, 1 family, 0 loops>
    """
    path = Path(path)
    kind = format or _format(path)
    if kind not in FORMATS:
        raise InvalidArgument(f"{option('format')} must be one of {', '.join(FORMATS)}, not {kind!r}")
    codes = (missing,) if isinstance(missing, str) else tuple(missing)
    rows = _rows(path, kind, columns=columns, missing=codes, male=male, female=female)
    return assemble(rows, twins=twins, unknown_parents=unknown_parents, join_families=join_families)


def _rows(
    path: Path,
    kind: str,
    *,
    columns: Mapping[str, str | int] | None,
    missing: Collection[str],
    male: str | None,
    female: str | None,
) -> RowFile:
    """Return the rows of the file; only the reader of its format is loaded."""
    if kind in ("gedcom", "linkage"):
        given = {"columns": columns, "missing": missing, "male": male, "female": female}
        extra = [name for name, value in given.items() if value]
        if extra:
            raise InvalidArgument(
                f"{path}: {option(extra[0])} does not apply to {kind} files, their layout is fixed"
            )
        if kind == "gedcom":
            from quiltdp.domains.pedigree.gedcom import read_gedcom

            return read_gedcom(path)
        from quiltdp.domains.pedigree.linkage import read_linkage

        return read_linkage(path)
    if kind == "plink":
        from quiltdp.domains.pedigree.plink import read_plink as reader
    else:
        from quiltdp.domains.pedigree.tables import read_table as reader
    return reader(path, columns=columns, missing=missing, male=male, female=female)


def _format(path: Path) -> str:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _BY_SUFFIX:
        raise InvalidArgument(
            f"{path}: the suffix {suffix!r} does not tell the format; say {option('format', '…')},"
            f" one of {', '.join(FORMATS)}"
        )
    if _BY_SUFFIX[suffix]:
        return _BY_SUFFIX[suffix]
    from quiltdp.domains.pedigree.linkage import looks_like_linkage

    return "linkage" if looks_like_linkage(path) else "plink"

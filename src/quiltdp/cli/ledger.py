"""``quiltdp ledger show|verify|export``: the account of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quiltdp.cli.app import GroupedCommand, emit_json, guarded
from quiltdp.cli.holdout import AnchorPath, Json, LedgerPath, show_status, status_facts

__all__ = ["ledger"]

ledger = typer.Typer(
    help="Read a ledger: what was released, and whether the file is whole.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@ledger.command(
    cls=GroupedCommand,
    short_help="Show the totals and the newest entries.",
    epilog="\b\nExamples:\n  quiltdp ledger show study.db --last 20",
)
def show(
    ledger: LedgerPath,
    *,
    model: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Also tell the leakage, from the model of the calibration."),
    ] = None,
    last: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the newest entries.")] = 10,
    anchor: AnchorPath = None,
    json: Json = False,
) -> None:
    """Show the totals and the newest entries; the secret threshold is never shown."""
    with guarded():
        from quiltdp.accountant.ledger import Ledger

        opened = Ledger.open(ledger, anchor=anchor)
        facts = status_facts(opened, model)
        entries = [e.public() for e in opened.entries()][-last:] if last else []
        if json:
            emit_json("ledger-show", {"ledger": str(ledger), **facts, "entries": entries})
            return
        show_status(str(ledger), facts)
        if entries:
            _show_entries(entries)


@ledger.command(
    cls=GroupedCommand,
    short_help="Check that nothing was changed.",
    epilog="\b\nExamples:\n  quiltdp ledger verify study.db\n  quiltdp ledger verify study.json",
)
def verify(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file, or an export (.json).")],
    *,
    anchor: AnchorPath = None,
    json: Json = False,
) -> None:
    """Check every page, every hash and the anchor; exit code 1 if anything was changed."""
    with guarded():
        from quiltdp.accountant.ledger import Ledger

        head = (
            _verify_export(ledger)
            if ledger.suffix == ".json"
            else Ledger.open(ledger, anchor=anchor).verify()
        )
        if json:
            facts = {"ledger": str(ledger), "whole": True, "entries": head.seq, "digest": head.digest}
            emit_json("ledger-verify", facts)
        else:
            typer.echo(f"{ledger}: whole, {head.seq} entries, head {head.digest[:16]}…")


@ledger.command(
    cls=GroupedCommand,
    short_help="Write what may be shown, as JSON.",
    epilog="\b\nExamples:\n  quiltdp ledger export study.db -o study.json",
)
def export(
    ledger: LedgerPath,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here instead of stdout.")
    ] = None,
    anchor: AnchorPath = None,
) -> None:
    """Write everything that may be shown as JSON; anybody can verify it without the ledger."""
    with guarded():
        import json as plain

        from quiltdp.accountant.ledger import Ledger
        from quiltdp.io.replace import write_whole

        document = Ledger.open(ledger, anchor=anchor).export()
        if output is None:
            emit_json("ledger-export", document)
        else:
            head = {"schema": "quiltdp/ledger-export", "version": 1}
            write_whole(output, plain.dumps({**head, **document}, indent=1) + "\n")
            typer.echo(f"{output}: {len(document['entries'])} entries")


def _verify_export(path: Path) -> Any:
    import json as plain

    from quiltdp.accountant.ledger import verify_export
    from quiltdp.errors import FileFormatError, LedgerCorrupt

    try:
        document = plain.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise FileFormatError(path, None, "this is neither a ledger nor an exported one") from None
    try:
        return verify_export(document)
    except LedgerCorrupt as error:
        raise type(error)(f"{path}: {error.text}") from None


def _show_entries(entries: list[dict[str, Any]]) -> None:
    from quiltdp.cli.show import show_table

    rows = [
        (
            str(e["seq"]),
            e["time"],
            e["kind"],
            e["share"] if e["share"] != "0" else "",
            "" if e["value"] is None else f"{e['value']:.6g}",
            e["label"] or "",
        )
        for e in entries
    ]
    show_table(("entry", "time", "kind", "share", "value", "label"), rows, right=("entry", "share", "value"))

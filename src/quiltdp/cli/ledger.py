"""``quiltdp ledger init|charge|show|verify|export``: the account of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quiltdp.cli.app import GroupedCommand, emit_json, guarded
from quiltdp.cli.holdout import AnchorPath, Json, LedgerPath, show_status, status_facts
from quiltdp.cli.option_words import arg, opt
from quiltdp.cli.show import say

__all__ = ["ledger"]

_LONGEST_SHARE = 9  # characters

ledger = typer.Typer(
    help="Keep the account of releases: make it, charge it, read it, check that the file is whole.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@ledger.command(
    cls=GroupedCommand,
    short_help="Make the ledger of a calibration.",
    epilog="\b\nExamples:\n  quiltdp calibrate models/asia.bif --epsilon 1 --json > cal.json\n"
    "  quiltdp ledger init releases.db --calibration cal.json --model models/asia.bif",
)
def init(
    ledger: Annotated[Path, arg("LEDGER", "The file to make; it must not exist yet.")],
    *,
    calibration: Annotated[Path, opt("FILE", "What 'quiltdp calibrate … --json' printed.")],
    model: Annotated[Path | None, opt("MODEL", "Certify the calibration anew, against its model.")] = None,
    anchor: AnchorPath = None,
    json: Json = False,
) -> None:
    """Make the ledger of Laplace or Gaussian releases; a reusable holdout has its own: holdout init."""
    with guarded():
        from quiltdp.accountant.ledger import Ledger
        from quiltdp.cli.holdout import read_calibration
        from quiltdp.errors import InvalidArgument
        from quiltdp.io.load import load_model
        from quiltdp.numbers import shown_up

        found = read_calibration(calibration)
        if found.mechanism.answers is not None:
            raise InvalidArgument(
                f"{calibration}: this is for a reusable holdout; use 'quiltdp holdout init'"
            )
        if ledger.exists():
            raise InvalidArgument(
                f"{ledger}: this exists already, and a ledger is never overwritten; choose another name"
            )
        loaded = None if model is None else load_model(model)
        made = Ledger.create(ledger, found, anchor=anchor, model=loaded)
        facts = {"ledger": str(ledger), "id": made.genesis["id"], "checked": made.genesis["checked"]}
        if json:
            emit_json("ledger-init", {**facts, **status_facts(made)})
            return
        noise = f"σ = {shown_up(found.sigma)}{found.each}"
        say(f"{ledger}: the whole budget of {noise} for ε = {found.epsilon:g} is left")
        if found.disjoint > 1:
            say("releases on disjoint records are one vector: charge them once, with the first of them")
        if facts["checked"] != "model":
            say("σ was compared with ε alone; --model certifies it against the model")


@ledger.command(
    cls=GroupedCommand,
    short_help="Charge a release, before it is made.",
    epilog="\b\nExamples:\n  quiltdp ledger charge releases.db --parts 12 --label 'May'\n"
    "  quiltdp ledger charge releases.db --scale 96.4 --label 'May'",
)
def charge(
    ledger: LedgerPath,
    *,
    parts: Annotated[
        int | None, opt("K", "One of K equal releases; the answer says with which noise.", min=1)
    ] = None,
    scale: Annotated[
        float | None, opt("S", "A release with noise of this scale, with the calibrated mechanism.")
    ] = None,
    dp_epsilon: Annotated[float | None, opt("A", "A release of this α, whatever the mechanism.")] = None,
    count: Annotated[int, opt("N", "How many such releases.", min=1)] = 1,
    label: Annotated[str | None, opt("TEXT", "A note for the ledger.")] = None,
    key: Annotated[
        str | None, opt("KEY", "Charged once: the same key again says whether it was booked.")
    ] = None,
    anchor: AnchorPath = None,
    json: Json = False,
) -> None:
    """Charge a release that you make yourself; only then draw its noise.

    Exit code 1 when the budget does not cover it; then nothing is charged.
    """
    with guarded():
        from quiltdp.accountant.ledger import Ledger
        from quiltdp.errors import InvalidArgument

        given = sum(x is not None for x in (parts, scale, dp_epsilon))
        if given != 1:
            what = "only one" if given else "what to charge, one"
            raise InvalidArgument(f"say {what} of --parts, --scale and --dp-epsilon")
        opened = Ledger.open(ledger, anchor=anchor)
        terms = opened.terms
        if parts is not None:
            scale = terms.mechanism.repeated(terms.sigma, parts)
        if scale is not None:
            entry = opened.charge_mechanism(
                terms.mechanism.single(), scale, count=count, label=label, key=key
            )
        else:
            entry = opened.charge(dp_epsilon, count=count, label=label, key=key)
        left = 1 - opened.head.spent
        facts = {
            "ledger": str(ledger),
            "entry": entry.seq,
            "repeated": entry.repeated,
            "scale": scale,
            "share": str(entry.share),
            "left": str(left),
        }
        if json:
            emit_json("ledger-charge", facts)
            return
        noise = "" if scale is None else f", noise of scale {scale!r} each"
        booked = "was booked before" if facts["repeated"] else "booked"
        say(f"{ledger}: entry {entry.seq} {booked}: {float(entry.share):.4g} of the budget{noise}")
        if facts["repeated"]:
            say("nothing was charged now: release once for this key; another release needs another key")
        say(f"{float(left):.4g} of the budget is left")


@ledger.command(
    cls=GroupedCommand,
    short_help="Show the totals and the newest entries.",
    epilog="\b\nExamples:\n  quiltdp ledger show study.db --last 20",
)
def show(
    ledger: LedgerPath,
    *,
    model: Annotated[
        Path | None, opt("MODEL", "Also tell the leakage, from the model of the calibration.")
    ] = None,
    last: Annotated[int, opt("N", "How many of the newest entries.", min=0)] = 10,
    anchor: AnchorPath = None,
    json: Json = False,
) -> None:
    """Show the totals and the newest entries; the secret threshold is never shown."""
    with guarded():
        from quiltdp.accountant.ledger import Ledger

        opened = Ledger.open(ledger, anchor=anchor)
        facts = status_facts(opened, model)
        every = [e.public() for e in opened.entries()]
        entries = every[-last:] if last else []
        earlier = len(every) - len(entries)
        if json:
            shown = {"entries": entries, "entries_not_shown": earlier}
            emit_json("ledger-show", {"ledger": str(ledger), **facts, **shown})
            return
        show_status(str(ledger), facts)
        if entries:
            _show_entries(entries)
        if earlier:
            say(f"{earlier} earlier entries are not shown: --last {len(every)} shows all")


@ledger.command(
    cls=GroupedCommand,
    short_help="Check that nothing was changed.",
    epilog="\b\nExamples:\n  quiltdp ledger verify study.db\n  quiltdp ledger verify study.json",
)
def verify(
    ledger: Annotated[Path, arg("LEDGER", "A ledger file, or an export (.json).")],
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
            say(f"{ledger}: whole, {head.seq} entries, head {head.digest[:16]}…")


@ledger.command(
    cls=GroupedCommand,
    short_help="Write what may be shown, as JSON.",
    epilog="\b\nExamples:\n  quiltdp ledger export study.db -o study.json",
)
def export(
    ledger: LedgerPath,
    *,
    output: Annotated[Path | None, opt("FILE", "Write here instead of stdout.", "-o", "--output")] = None,
    anchor: AnchorPath = None,
) -> None:
    """Write everything that may be shown as JSON; anybody can verify it without the ledger."""
    with guarded():
        import json as plain

        from quiltdp.accountant.ledger import Ledger
        from quiltdp.io.replace import check_output, write_whole

        if output is not None:
            check_output(output, ledger, anchor)
        document = Ledger.open(ledger, anchor=anchor).export()
        if output is None:
            emit_json("ledger-export", document)
        else:
            head = {"schema": "quiltdp/ledger-export", "version": 1}
            write_whole(output, plain.dumps({**head, **document}, indent=1) + "\n", ledger, anchor)
            say(f"{output}: {len(document['entries'])} entries")


def _verify_export(path: Path) -> Any:
    from quiltdp.accountant.ledger import verify_export
    from quiltdp.errors import FileFormatError, LedgerCorrupt
    from quiltdp.io.text import Source, parse_json, read_bytes

    text = read_bytes(path).decode("utf-8", errors="replace")  # what is replaced fits no hash
    try:
        return verify_export(parse_json(Source(str(path), text)))
    except FileFormatError as error:
        raise FileFormatError(
            path, None, f"this is neither a ledger nor an exported one ({error.message})"
        ) from None
    except LedgerCorrupt as error:
        raise type(error)(f"{path}: {error.text}") from None


def _show_entries(entries: list[dict[str, Any]]) -> None:
    from quiltdp.cli.show import show_table

    rows = [
        (
            str(e["seq"]),
            e["time"],
            e["kind"],
            _short(e["share"]),
            "" if e["value"] is None else f"{e['value']:.6g}",
            e["label"] or "",
        )
        for e in entries
    ]
    show_table(("entry", "time", "kind", "share", "value", "label"), rows, right=("entry", "share", "value"))


def _short(share: str) -> str:
    """Return a share as the fraction it is, or to four digits where that is long; nothing for 0."""
    from fractions import Fraction

    if share == "0":
        return ""
    return share if len(share) <= _LONGEST_SHARE else f"{float(Fraction(share)):.4g}"

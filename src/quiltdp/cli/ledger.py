"""``quiltdp ledger init|charge|show|verify|export``: the account of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.holdout import read_calibration, show_status, status_facts
from quiltdp.cli.release import check_new_ledger
from quiltdp.cli.show import say, show_table
from quiltdp.errors import FileFormatError, InvalidArgument, LedgerCorrupt

_LONGEST_SHARE = 9  # characters


def init(
    ledger: Path,
    *,
    calibration: Path,
    model: Path | None = None,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Make the ledger of Laplace or Gaussian releases; a reusable holdout has its own: holdout init.

    Arguments
    ---------
    ledger : LEDGER
        The file to make; it must not exist yet.

    Release
    -------
    calibration : FILE
        What 'quiltdp calibrate … --json' printed.
    model : MODEL
        Certify the calibration anew, against its model.

    Examples
    --------
    $ quiltdp calibrate models/asia.bif --epsilon 1 --json > cal.json
    $ quiltdp ledger init releases.db --calibration cal.json --model models/asia.bif
    """
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.io.load import load_model
    from quiltdp.numbers import format_up

    found = read_calibration(calibration)
    if found.mechanism.answers is not None:
        raise InvalidArgument(f"{calibration}: this is for a reusable holdout; use 'quiltdp holdout init'")
    check_new_ledger(ledger)
    loaded = None if model is None else load_model(model)
    made = Ledger.create(ledger, found, anchor=anchor, model=loaded)
    facts = {"ledger": str(ledger), "id": made.genesis["id"], "checked": made.genesis["checked"]}
    if json:
        emit_json("ledger-init", {**facts, **status_facts(made)})
        return
    noise = f"σ = {format_up(found.sigma)}{found.each}"
    say(f"{ledger}: nothing is spent yet of ε = {found.epsilon:g}, with {noise}")
    if found.disjoint > 1:
        say("releases on disjoint records are one vector: charge them once, with the first of them")
    if facts["checked"] != "model":
        say("σ was compared with ε alone; --model certifies it against the model")


def charge(
    ledger: Path,
    *,
    parts: int | None = None,
    scale: float | None = None,
    dp_epsilon: float | None = None,
    count: int = 1,
    label: str | None = None,
    key: str | None = None,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Charge a release that you make yourself; only then draw its noise.

    Exit code 1 when too little is left for it; then nothing is charged.

    Release
    -------
    parts : K >= 1
        One of K equal releases; the answer says with which noise.
    scale : S
        A release with noise of this scale, with the calibrated mechanism.
    dp_epsilon : A
        A release of this α, whatever the mechanism.
    count : N >= 1
        How many such releases.
    label : TEXT
        A note for the ledger.
    key : KEY
        Charged once: the same key again says whether it was booked.

    Examples
    --------
    $ quiltdp ledger charge releases.db --parts 12 --label 'May'
    $ quiltdp ledger charge releases.db --scale 96.4 --label 'May'
    """
    from quiltdp.accountant.ledger import Ledger

    given = sum(x is not None for x in (parts, scale, dp_epsilon))
    if given != 1:
        what = "only one" if given else "what to charge, one"
        raise InvalidArgument(f"say {what} of --parts, --scale and --dp-epsilon")
    opened = Ledger.open(ledger, anchor=anchor)
    terms = opened.terms
    if parts is not None:
        scale = terms.mechanism.scale_for_uses(terms.sigma, parts)
    if scale is not None:
        entry = opened.charge_mechanism(terms.mechanism.single(), scale, count=count, label=label, key=key)
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
    say(f"{ledger}: entry {entry.seq} {booked}: {float(entry.share):.4g} of what may be spent{noise}")
    if facts["repeated"]:
        say("nothing was charged now: release once for this key; another release needs another key")
    say(f"{float(left):.4g} is left")


def show(
    ledger: Path,
    *,
    model: Path | None = None,
    last: int = 10,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Show the totals and the newest entries; the secret threshold is never shown.

    Model
    -----
    model : MODEL
        Also tell the leakage, from the model of the calibration.

    Output
    ------
    last : N >= 0
        How many of the newest entries.

    Examples
    --------
    $ quiltdp ledger show study.db --last 20
    """
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


def verify(ledger: Path, *, anchor: Path | None = None, json: bool = False) -> None:
    """Check every page, every hash and the anchor; exit code 1 if anything was changed.

    Arguments
    ---------
    ledger : LEDGER
        A ledger file, or an export (.json).

    Examples
    --------
    $ quiltdp ledger verify study.db
    $ quiltdp ledger verify study.json
    """
    from quiltdp.accountant.ledger import Ledger

    head = _verify_export(ledger) if ledger.suffix == ".json" else Ledger.open(ledger, anchor=anchor).verify()
    if json:
        facts = {"ledger": str(ledger), "whole": True, "entries": head.seq, "digest": head.digest}
        emit_json("ledger-verify", facts)
    else:
        say(f"{ledger}: whole, {head.seq} entries, head {head.digest[:16]}…")


def export(
    ledger: Path, *, output: Path | None = None, anchor: Path | None = None, json: bool = False
) -> None:
    """Write everything that may be shown as JSON; anybody can verify it without the ledger.

    Output
    ------
    output (-o, --output) : FILE
        Write here instead of stdout.

    Examples
    --------
    $ quiltdp ledger export study.db -o study.json
    """
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
        facts = {"file": str(output), "entries": len(document["entries"])}
        emit_json("ledger-export", facts) if json else say(f"{output}: {facts['entries']} entries")


def _verify_export(path: Path) -> Any:
    from quiltdp.accountant.ledger import verify_export
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
    rows = [
        (
            str(e["seq"]),
            e["time"],
            e["kind"],
            _format_share(e["share"]),
            "" if e["value"] is None else f"{e['value']:.6g}",
            e["label"] or "",
        )
        for e in entries
    ]
    show_table(("entry", "time", "kind", "share", "value", "label"), rows, right=("entry", "share", "value"))


def _format_share(share: str) -> str:
    """Return a share as the fraction it is, or to four digits where that is long; nothing for 0."""
    from fractions import Fraction

    if share == "0":
        return ""
    return share if len(share) <= _LONGEST_SHARE else f"{float(Fraction(share)):.4g}"

"""What ``calibrate`` and ``leakage`` share: what is protected together, and how a binding unit is shown."""

from __future__ import annotations

from typing import Any

from quiltdp.errors import InvalidArgument, UnknownNode


def protected_sets(model: Any, given: list[str] | None) -> dict[str, list[str]] | None:
    """Return the sets of ``--protect``, or refuse one by name."""
    if not given:
        return None
    sets: dict[str, list[str]] = {}
    for text in given:
        name, equals, members = text.partition("=")
        if not equals or not name or not members:
            raise InvalidArgument(f"--protect {text!r}: write NAME=RECORD,RECORD,… or NAME=PREFIX*")
        if name in sets:
            raise InvalidArgument(f"--protect: the set {name!r} is named twice")
        if members.endswith("*"):
            found = [r for r in model.records if r.startswith(members[:-1])]
            if not found:
                raise InvalidArgument(
                    f"--protect {text!r}: no record begins with {members[:-1]!r};"
                    f" their names are like {next(iter(model.records))!r}"
                )
        else:
            found = [m.strip() for m in members.split(",") if m.strip()]
            try:
                model.require(found)
            except UnknownNode as error:
                raise InvalidArgument(f"--protect {text!r}: {error.text}") from None
        sets[name] = found
    return sets


def with_time(model: Any, unit: str) -> str:
    """Return a step of a location trace with its time, other units as they are."""
    if "clock" not in model.provenance:
        return unit
    from quiltdp.domains.trace.times import when

    moment = when(model.provenance, unit)
    return unit if moment is None else f"{unit} ({moment})"


def witness_facts(witness: Any) -> list[tuple[str, str]]:
    """Return what is known of the binding unit as ``name, value`` lines."""
    from quiltdp.cli.show import listed, number

    facts = []
    if witness.get("separator"):
        facts.append(("its quilt", f"separator {{{listed(witness['separator'])}}}"))
    if witness.get("closed"):
        facts.append(("inside it", f"{{{listed(witness['closed'])}}}"))
    if "known" in witness:
        facts.append(("worst adversary", f"knows {{{listed(witness['known'])}}}"))
    if "swing" in witness:
        facts.append(("its swing", number(float(witness["swing"]))))
    return facts

"""The tables of ``quiltdp pedigree`` for people."""

from __future__ import annotations

from typing import Any

from quiltdp.cli.show import number, show_facts, show_line, show_table

__all__ = ["for_people"]

_SHOWN = 15


def for_people(payload: dict[str, Any]) -> None:
    """Print everything the payload holds."""
    _family(payload["pedigree"])
    for note in payload.get("notes", payload["pedigree"]["warnings"]):
        show_line(f"· {note}", style="dim")
    if "leakage" in payload:
        _leakage(payload)
    if "kin" in payload:
        _kin(payload["kin"])
    if "metrics" in payload:
        _metrics(payload["metrics"])
    for what in ("tsv", "plot"):
        if what in payload:
            show_line(f"written: {payload[what]}")


def _family(found: dict[str, Any]) -> None:
    facts = [
        (
            "people",
            f"{found['people']:,} ({found['rows']:,} rows, {found['added_latents']:,} added as latents)",
        ),
        ("founders", f"{found['founders']:,}"),
        ("families", f"{found['components']:,}, the largest of {found['largest_component']:,} people"),
        ("generations", str(found["generations"])),
        ("loops", str(found["loops"])),
    ]
    if found["twins"]:
        facts.append(("twins", f"{found['twins']} people are monozygotic twins of another"))
    show_facts(facts, title=f"{found['source']} ({found['format']})")


def _leakage(payload: dict[str, Any]) -> None:
    found = payload["leakage"]
    if "dp_epsilon_for" in payload:
        goal = payload["dp_epsilon_for"]
        show_line(
            f"to leak at most ε = {goal['epsilon']:g}: α = {goal['informed']:.6g} against the informed"
            f" adversary, {goal['prior']:.6g} against the prior one",
            style="bold",
        )
        show_table(
            ["query", "one record moves it by", "σ informed", "σ prior"],
            [
                (q["query"], number(q["sensitivity"]), number(q["sigma_informed"]), number(q["sigma_prior"]))
                for q in payload["noise"]
            ],
            title="Laplace scale that is enough (on each number, if the query returns several)",
            right=["one record moves it by", "σ informed", "σ prior"],
        )
    show_table(
        ["adversary", "leakage ≤", "method", "binding"],
        [
            (a, number(found[a]["epsilon"]), found[a]["method"], found[a]["binding"])
            for a in ("informed", "prior")
        ],
        title=f"What an α = {found['dp_epsilon']:.6g} DP release leaks",
        right=["leakage ≤"],
    )
    for adversary in ("informed", "prior"):
        for note in found[adversary]["notes"]:
            show_line(f"· {adversary}: {note}", style="dim")
    if "note" in payload["width"]:
        show_line(f"· {payload['width']['note']}", style="dim")
    people = sorted(payload["people"], key=lambda p: -p["informed"])
    show_table(
        ["FID", "IID", "informed", "prior", "nearest quilt", "driven by"],
        [
            (p["family"], _who(p), number(p["informed"]), number(p["prior"]), _few(p["quilt"]), p["driver"])
            for p in people[:_SHOWN]
        ],
        title=f"People with the largest leakage{_of(len(people))}",
        right=["informed", "prior"],
    )


def _who(row: dict[str, Any]) -> str:
    return f"{row['person']}@{row['locus']}" if row["locus"] else str(row["person"])


def _few(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown}, … {len(names) - 4} more" if len(names) > 4 else shown or "–"


def _of(count: int) -> str:
    return f" ({_SHOWN} of {count:,}; --tsv writes all)" if count > _SHOWN else ""


def _kin(found: dict[str, Any]) -> None:
    show_table(
        ["relative", "is the", "kinship", "max influence", "information (bits)", "in study"],
        [
            (
                k["relative"], k["relation"], f"{k['kinship']:.4g}", number(k["influence"]),
                f"{k['information']:.4g}", "yes" if k["record"] else "no",
            )
            for k in found["relatives"]
        ],
        title=f"How much each relative's genotype tells about {found['person']}",
        right=["kinship", "max influence", "information (bits)"],
    )  # fmt: skip


def _metrics(found: dict[str, Any]) -> None:
    show_table(
        ["person", "error before", "after", "entropy before", "after"],
        [
            (
                m["person"], f"{m['error_before']:.4f}", f"{m['error_after']:.4f}",
                f"{m['entropy_before']:.4f}", f"{m['entropy_after']:.4f}",
            )
            for m in found["people"]
        ],
        title=f"Kin privacy before and after the {found['query']} released at α = {found['dp_epsilon']:.6g}"
        " (discrete Laplace noise)",
        right=["error before", "after", "entropy before"],
    )  # fmt: skip

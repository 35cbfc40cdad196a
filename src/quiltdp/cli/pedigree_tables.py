"""The tables of ``quiltdp pedigree`` for people."""

from __future__ import annotations

from typing import Any

from quiltdp.cli.release import show_account
from quiltdp.cli.show import number, show_facts, show_line, show_table

_SHOWN = 15


def show_pedigree(payload: dict[str, Any]) -> None:
    """Print everything the payload holds."""
    _show_family(payload["pedigree"])
    for note in payload.get("notes", payload["pedigree"]["warnings"]):
        show_line(f"· {note}", style="dim")
    if "panel" in payload:
        _show_panel(payload)
    if "leakage" in payload:
        _show_leakage(payload)
    if "linkage" in payload:
        _show_linkage(payload["linkage"])
    if "people" in payload:
        _show_people(payload)
    if "kin" in payload:
        _show_kin(payload["kin"])
    for what in ("output", "tsv", "plot", "release"):
        if what in payload:
            show_line(f"written: {payload[what]}")
    if "release" in payload:
        show_line(payload["usefulness"], style="bold")
        show_account(payload)


def _show_panel(payload: dict[str, Any]) -> None:
    """Print the noise for a whole panel, against both adversaries."""
    found = payload["panel"]
    each = [a for a in ("informed", "prior") if a in found]
    if each:
        goal = found[each[0]]["epsilon"]
        show_line(f"to leak at most ε = {goal:g} about {payload['unit']}", style="bold")
        rows = []
        for a in each:
            low, high = found[a]["smallest_sigma"], found[a]["largest_sigma"]
            shown = [number(scale, 6, up=True) for scale in dict.fromkeys((low, high))]
            rows.append(
                (a, " to ".join(shown), number(found[a]["dp_epsilon"], down=True), found[a]["binding"])
            )
        for name, scale in (
            ("plain DP (nobody has relatives)", found["independent"]), ("group privacy", found["group"])
        ):  # fmt: skip
            rows.append((name, number(scale, 6, up=True), "", ""))
        show_table(
            ["adversary", "σ of each count", "α of a person", "forced by"],
            rows,
            title=f"Laplace noise that is enough for the {found['query']} at {found['loci']:,} loci: one"
            f" person moves all of them by {number(found['sensitivity'], 6)} together",
            right=["σ of each count", "α of a person"],
        )
        _warn_useless(found[payload["adversary"]]["largest_sigma"], found["numbers"], found["largest_count"])
    if "leakage" in found:
        at = found["leakage"]
        show_line(
            f"at σ = {at['sigma']:.6g} the release leaks at most {number(at['informed'], up=True)} to"
            f" the informed adversary and {number(at['prior'], up=True)} to the prior one,"
            f" about {payload['unit']}"
        )


def _warn_useless(sigma: float, numbers: int, most: float) -> None:
    from quiltdp.domains.usefulness import judge_noise

    said = judge_noise(sigma, numbers, most)
    if said is not None:
        show_line(f"{said}; fewer loci, more unrelated people or a larger ε would help", style="bold yellow")


def _show_family(found: dict[str, Any]) -> None:
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


def _show_leakage(payload: dict[str, Any]) -> None:
    found = payload["leakage"]
    if "dp_epsilon_for" in payload:
        goal = payload["dp_epsilon_for"]
        show_line(
            f"to leak at most ε = {goal['epsilon']:g}: α = {number(goal['informed'], 6, down=True)} against"
            f" the informed adversary, {number(goal['prior'], 6, down=True)} against the prior one"
            + "".join(
                f", {number(goal[a], 6, down=True)} against {a}"
                for a in goal
                if a not in ("epsilon", "informed", "prior")
            ),
            style="bold",
        )
        who = list(dict.fromkeys(("informed", "prior", payload["adversary"])))
        names = [f"σ {a}" if a in ("informed", "prior") else "σ asked" for a in who]
        show_table(
            ["query", "moves by", "when this changes", *names],
            [
                (
                    q["query"], number(q["sensitivity"]), q["unit"],
                    *(number(q[f"sigma_{a}"], up=True) for a in who),
                )
                for q in payload["noise"]
            ],
            title="Laplace scale that is enough (on each number, if the query returns several)",
            right=["moves by", *names],
        )  # fmt: skip
        count = payload["noise"][0]
        _warn_useless(count[f"sigma_{payload['adversary']}"], count["numbers"], count["largest_count"])
    show_table(
        ["adversary", "leakage ≤", "method", "binding"],
        [
            (a, number(found[a]["epsilon"], up=True), found[a]["method"], found[a]["binding"])
            for a in dict.fromkeys(("informed", "prior", payload["adversary"]))
        ],
        title=f"What an α = {found['dp_epsilon']:.6g} DP release leaks about {payload['unit']}",
        right=["leakage ≤"],
    )
    for adversary in dict.fromkeys(("informed", "prior", payload["adversary"])):
        for note in found[adversary]["notes"]:
            show_line(f"· {adversary}: {note}", style="dim")
    if "note" in payload["width"]:
        show_line(f"· {payload['width']['note']}", style="dim")


def _show_linkage(found: list[dict[str, Any]]) -> None:
    """Print what independence would have missed."""
    show_table(
        ["adversary", "σ", "σ if unlinked", "which leaks", "one locus", "believed"],
        [
            (
                c["adversary"], number(c["sigma"], up=True), number(c["sigma_if_unlinked"]),
                ("" if c["exact"] else "≤ ") + number(c["leakage_if_unlinked"]),
                number(c["one_locus"]), number(c["one_locus_if_unlinked"]),
            )
            for c in found
        ],
        title=f"Taking the loci for unlinked would miss ({found[0]['query']}, ε = {found[0]['epsilon']:g}"
        " for a person's loci together); on the right, what the counts tell about one genotype, and what"
        " independence believes",
        right=["σ", "σ if unlinked", "which leaks", "one locus", "believed"],
    )  # fmt: skip


def _show_people(payload: dict[str, Any]) -> None:
    """Print the people with the largest leakage, in the order of the adversary that was chosen."""
    chosen = payload["adversary"]
    both = chosen in ("informed", "prior")
    first = chosen if both else "asked"
    other = "prior" if chosen == "informed" else "informed"
    people = sorted(payload["people"], key=lambda p: (-p[first], -p[other]))
    columns = ["informed", "prior"] if both else ["informed", "prior", "asked"]
    show_table(
        ["FID", "IID", *columns, "nearest quilt", "driven by"],
        [
            (
                p["family"],
                _person_text(p),
                *(number(p[c], up=True) for c in columns),
                _first_names(p["quilt"]),
                p["driver"],
            )
            for p in people[:_SHOWN]
        ],
        title=f"People with the largest leakage to the {chosen} adversary{_shown_of(len(people))}",
        right=columns,
    )


def _person_text(row: dict[str, Any]) -> str:
    words = [w for w in (row.get("label"), row["locus"]) if w]
    return f"{row['person']} ({', '.join(words)})" if words else str(row["person"])


def _first_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown}, … {len(names) - 4} more" if len(names) > 4 else shown or "–"


def _shown_of(count: int) -> str:
    return f" ({_SHOWN} of {count:,}; -o FILE.tsv writes all)" if count > _SHOWN else ""


def _show_kin(found: dict[str, Any]) -> None:
    show_table(
        ["relative", "is the", "kinship", "max influence", "bits", "in study"],
        [
            (
                k["shown"], k["relation"], f"{k['kinship']:.4g}", number(k["influence"]),
                f"{k['information']:.4g}", "yes" if k["record"] else "no",
            )
            for k in found["relatives"]
        ],
        title=f"How much each relative's genotype tells about {found['shown']}{_nearest_phrase(found)}",
        right=["kinship", "max influence", "bits"],
    )  # fmt: skip


def _nearest_phrase(found: dict[str, Any]) -> str:
    shown = len(found["relatives"])
    return f" (the nearest {shown} of {found['of']:,} relatives)" if shown < found["of"] else ""

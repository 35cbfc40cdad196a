"""``quiltdp pedigree FILE``: what a family file contains, and what a release tells about each person."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiltdp.cli.accounting import AsJson, TimeLimit
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options, reading_options
from quiltdp.errors import DependencyMissing, InvalidArgument

if TYPE_CHECKING:
    from quiltdp.domains.pedigree import Pedigree
    from quiltdp.model import Model

__all__ = ["pedigree"]


@model_options
def pedigree(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pedigree (.fam .ped .psam .ged .csv).")],
    *,
    options: dict[str, Any],
    dp_epsilon: Annotated[
        float | None, typer.Option(metavar="A", help="α of the release, for one person: show what it leaks.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="E", help="The leakage allowed: find the α and the noise that keep it."),
    ] = None,
    tsv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table per person, tab-separated.")
    ] = None,
    kin: Annotated[
        str | None, typer.Option(metavar="ID", help="How much each relative's genotype tells about ID.")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Estimation error and entropy before and after the release.")
    ] = False,
    query: Annotated[
        str, typer.Option(metavar="NAME", help="What --metrics releases: allele-count or carrier-count.")
    ] = "allele-count",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the largest family (.png .svg .pdf).")
    ] = None,
    time_limit: TimeLimit = 30.0,
    json: AsJson = False,
) -> None:
    """Summarise a pedigree; with an allele frequency and a privacy parameter, account for each person.

    Both adversaries are shown side by side: the informed one knows any relatives' genotypes, the prior
    one only the pedigree and the frequencies.

    Examples
    --------
    $ quiltdp pedigree models/pedigree/ceph1463.fam
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --epsilon 1 --tsv leakage.tsv
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --kin NA12877
    $ quiltdp pedigree models/pedigree/ceph1463.fam --allele-frequency 0.1 --dp-epsilon 0.5 --metrics
    """
    with guarded():
        from quiltdp.domains.pedigree import read_pedigree
        from quiltdp.domains.pedigree.output import summary

        if dp_epsilon is not None and epsilon is not None:
            raise InvalidArgument("give --dp-epsilon or --epsilon, not both")
        if plot is not None:
            _check_plot(plot)
        wants_model = (
            kin is not None or metrics or tsv is not None or dp_epsilon is not None or epsilon is not None
        )
        if metrics or tsv is not None:
            _need(
                dp_epsilon is not None or epsilon is not None,
                "--tsv and --metrics need --dp-epsilon or --epsilon",
            )
        family = read_pedigree(file, **reading_options(options))
        payload: dict[str, Any] = {"model": str(file), "pedigree": summary(family)}
        if wants_model or "allele_frequency" in options:
            model = load(file, **options)
            payload["genetics"] = {k: v for k, v in model.provenance.items() if k != "source"}
            payload["notes"] = list(model.notes)
            _analyse(
                payload, model, family,
                dp_epsilon=dp_epsilon, epsilon=epsilon, kin=kin, query=query if metrics else None,
                time_limit=time_limit,
            )  # fmt: skip
        _write(payload, family, tsv, plot)
        payload.pop("_rows", None)
        if json:
            emit_json("pedigree", payload)
        else:
            from quiltdp.cli.pedigree_tables import for_people

            for_people(payload)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgument(message)


def _analyse(
    payload: dict[str, Any],
    model: Model,
    family: Pedigree,
    *,
    dp_epsilon: float | None,
    epsilon: float | None,
    kin: str | None,
    query: str | None,
    time_limit: float,
) -> None:
    """Fill in leakage, kin table and metrics, whichever were asked for."""
    from quiltdp.domains.pedigree.kin import kin_table
    from quiltdp.domains.pedigree.metrics import kin_privacy
    from quiltdp.domains.pedigree.output import as_json
    from quiltdp.domains.pedigree.queries import query_by_name

    count = query_by_name(model, query) if query is not None else None
    if count is not None and len(count.cells) > 1:
        raise InvalidArgument(f"--metrics needs a single count, {query} returns {len(count.cells)} numbers")
    alpha = dp_epsilon
    if dp_epsilon is not None or epsilon is not None:
        alpha = _leakages(payload, model, family, dp_epsilon, epsilon, time_limit=time_limit)
    if kin is not None:
        payload["kin"] = {"person": kin, "relatives": as_json(kin_table(model, family, kin))}
    if count is not None and alpha is not None:
        rows = kin_privacy(model, count, dp_epsilon=alpha)
        payload["metrics"] = {"query": query, "dp_epsilon": alpha, "people": as_json(rows)}


def _leakages(
    payload: dict[str, Any],
    model: Model,
    family: Pedigree,
    dp_epsilon: float | None,
    epsilon: float | None,
    *,
    time_limit: float,
) -> float:
    """Account for both adversaries at one α, the given one or the largest that keeps ε."""
    from quiltdp.accountant.profile import analyze
    from quiltdp.domains.pedigree.output import as_json, person_table
    from quiltdp.domains.pedigree.queries import twin_counts

    weights = twin_counts(model)
    profiles = {a: analyze(model, adversary=a, time_limit=time_limit) for a in ("informed", "prior")}
    if epsilon is not None:
        found = {a: p.dp_epsilon(epsilon) for a, p in profiles.items()}
        payload["dp_epsilon_for"] = {"epsilon": epsilon, **found}
        payload["noise"] = _noise(model, found)
        alpha = found["informed"] / max(weights.values(), default=1)  # the twins' record counts twice
    else:
        assert dp_epsilon is not None
        alpha = dp_epsilon
    per_record = {r: alpha * weights.get(r, 1) for r in model.records} if weights else alpha
    results = {a: p.leakage(per_record) for a, p in profiles.items()}
    payload["leakage"] = {
        "dp_epsilon": alpha,
        **{
            a: {
                "epsilon": r.epsilon,
                "method": r.method,
                "certificate": str(r.certificate),
                "binding": str(r.binding),
                "notes": list(r.notes),
            }
            for a, r in results.items()
        },
    }
    payload["width"] = _width(model, {a: r.method for a, r in results.items()})
    rows = person_table(model, family, results["informed"].per_record, results["prior"].per_record)
    payload["people"] = as_json(rows)
    payload["_rows"] = rows
    return alpha


def _noise(model: Model, alphas: dict[str, float]) -> list[dict[str, Any]]:
    """Return the Laplace scale of every query by name: σ = Δ/α, Δ the most one record moves it."""
    from quiltdp.domains.pedigree.queries import QUERIES, query_by_name

    rows = []
    for name in (*QUERIES, "chi-square-cells"):
        delta = query_by_name(model, name).sensitivity
        scales = {
            f"sigma_{a}": math.nextafter(delta / x, math.inf) if x else math.inf for a, x in alphas.items()
        }
        rows.append({"query": name, "sensitivity": delta, **scales})
    return rows


def _width(model: Model, methods: dict[str, str]) -> dict[str, Any]:
    """Say how wide the network is, and which method stands in where a clique tree does not fit."""
    from quiltdp.inference.junction_tree import plan_junction_tree

    plan = plan_junction_tree(model)
    width = len(plan.cliques[plan.largest]) - 1
    found: dict[str, Any] = {"treewidth": width, "largest_table": plan.sizes[plan.largest], "fits": plan.fits}
    if not plan.fits:
        found["note"] = (
            f"treewidth about {width}: a clique tree needs a table of {plan.sizes[plan.largest]:.3g} entries,"
            f" over the limit of {plan.limit:,}; used instead: {methods['informed']} against the informed"
            f" adversary, {methods['prior']} against the prior one"
        )
    return found


def _check_plot(plot: Path) -> None:
    """Refuse a picture that cannot be written, before any work."""
    from importlib.util import find_spec

    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InvalidArgument(f"--plot {plot}: a drawing is written as .png, .svg or .pdf")
    if find_spec("matplotlib") is None:
        raise DependencyMissing("drawings need matplotlib: pip install 'quiltdp[plot]'")


def _write(payload: dict[str, Any], family: Pedigree, tsv: Path | None, plot: Path | None) -> None:
    from quiltdp.domains.pedigree.output import leakage_tsv
    from quiltdp.io.replace import write_whole

    picture = BytesIO()
    if plot is not None:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.figure import Figure

        from quiltdp.report.pedigree_plot import draw_pedigree

        largest = family.components[0]
        values = {p["person"]: p["informed"] for p in payload.get("people", ())}
        named = {family.by_name[n].name: values[family[n].id] for n in largest if family[n].id in values}
        axes = draw_pedigree(family, named or None, people=largest, title=family.source)
        figure = axes.figure
        assert isinstance(figure, Figure)
        figure.savefig(picture, format=plot.suffix[1:].lower(), dpi=150, bbox_inches="tight")
    if tsv is not None:
        write_whole(tsv, leakage_tsv(payload.get("_rows", ())))
        payload["tsv"] = str(tsv)
    if plot is not None:
        write_whole(plot, picture.getvalue())
        payload["plot"] = str(plot)

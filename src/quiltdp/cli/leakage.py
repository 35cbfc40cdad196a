"""``quiltdp leakage MODEL --dp-epsilon A``: what a DP mechanism really gives away; calibrations, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.accounting import protected_sets, with_time, witness_facts
from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load
from quiltdp.cli.running import Limits, limited, progress_bar, worker_pool
from quiltdp.cli.show import number, show_facts, show_line, show_table
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.accountant.request import SearchOptions
    from quiltdp.model import Model


def leakage(
    model: str,
    *,
    dp_epsilon: float | None = None,
    calibration: Path | None = None,
    attack: bool = False,
    audit: bool = False,
    method: str = "auto",
    adversary: str = "informed",
    window: int = 1,
    protect: list[str] | None = None,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    top: int = 10,
    work: str = "normal",
    time_limit: float | None = None,
    workers: int = 1,
    json: bool = False,
) -> None:
    """Tell how much an α-DP mechanism leaks about each record, certified.

    With --attack, find an explicit mechanism and adversary instead, and tell what they attain: no bound can
    be below it.  With --audit, compare every method with the exact limit (small models) and the attack.

    Release
    -------
    dp_epsilon : A
        α, the mechanism's DP guarantee for one record (of twins who share one: for each).
    calibration : FILE
        Instead: what 'quiltdp calibrate --json' printed, certified anew by its own search.
    attack
        What an explicit attack attains; it can be replayed from what is printed.
    audit
        Every method beside the limit, and the exact leakage of the Laplace sum; α is 0.1 by default.

    Output
    ------
    top : N >= 0
        How many records to list.

    Examples
    --------
    $ quiltdp leakage models/asia.bif --dp-epsilon 0.1
    $ quiltdp leakage models/alarm.bif --dp-epsilon 0.1 --adversary prior --top 5
    $ quiltdp leakage models/asia.bif --calibration calibration.json
    $ quiltdp leakage models/asia.bif --dp-epsilon 0.1 --attack
    $ quiltdp leakage models/cancer.bif --dp-epsilon 1 --audit
    """
    with limited(time_limit, json=json) as limits:
        import quiltdp as qd
        from quiltdp.accountant.units import positive_epsilon

        if attack + audit + (calibration is not None) > 1:
            raise InvalidArgument("give one of --calibration, --attack and --audit")
        if audit and dp_epsilon is None:
            dp_epsilon = 0.1
        if (dp_epsilon is None) == (calibration is None):
            raise InvalidArgument("give either --dp-epsilon or --calibration")
        if audit and (window > 1 or protect):
            raise InvalidArgument("--audit is about single records: leave --window and --protect out")
        if (attack or audit) and method != "auto":
            raise InvalidArgument(f"--method: {'--attack uses none' if attack else '--audit takes them all'}")
        if attack and time_limit is not None:
            raise InvalidArgument("--attack takes no --time-limit: choose --work quick")
        if dp_epsilon is not None:
            positive_epsilon(dp_epsilon, "dp_epsilon", zero=not (attack or audit))
        loaded = load(model, records, allele_frequency)
        sets = protected_sets(loaded, protect)
        if calibration is not None:
            usual = {"--method": method == "auto", "--adversary": adversary == "informed"}
            odd = next(
                (flag for flag, unsaid in {**usual, "--work": work == "normal"}.items() if not unsaid), None
            )
            if odd is not None:
                raise InvalidArgument(f"{odd}: a calibration says its own; leave it out")
            _check_calibration(loaded, model, calibration, sets, window, json, limits)
            return
        assert dp_epsilon is not None
        if attack:
            attained = qd.attack(loaded, dp_epsilon, adversary, protect=sets, window=window, work=work)
            if json:
                emit_json("attack", attained.to_dict())
            else:
                _show_attack(attained, dp_epsilon, loaded)
            return
        with worker_pool(workers) as executor, progress_bar() as progress:
            how: dict[str, Any] = {
                "work": work, "time_limit": limits.guard, "progress": progress, "executor": executor,
            }  # fmt: skip
            if audit:
                from quiltdp.accountant.audit import audit as audit_of

                compared = limits.answer(lambda: audit_of(loaded, dp_epsilon, adversary, **how))
            else:
                how |= {"method": method, "adversary": adversary, "protect": sets, "window": window}
                found = limits.answer(lambda: qd.leakage(loaded, dp_epsilon, **how))
        if audit:
            if json:
                emit_json("audit", {"model": model, **compared.to_dict()}, limits.reached)
            else:
                _show_audit(compared, f"{model} at α = {dp_epsilon:g}, {adversary} adversary")
        elif json:
            emit_json("leakage", _leakage_document(model, loaded, found, top), limits.reached)
        else:
            _show_leakage(model, loaded, found, dp_epsilon, top)


def _leakage_document(name: str, model: Model, found: Any, top: int) -> dict[str, Any]:
    """Return a leakage for JSON; of very many records, those that leak most."""
    document = found.to_dict(top if len(found.per_record) > 10_000 else None)
    return {"model": name, **document, "notes": [*model.notes, *found.notes]}


def _leakage_facts(name: str, model: Model, found: Any, certificate: str = "") -> list[tuple[str, str]]:
    return [
        ("model", f"{name}: {len(model.records):,} records of {len(model.nodes):,} nodes"),
        ("adversary", f"{found.adversary}; protects {found.protected}"),
        ("binding", f"{with_time(model, found.binding.unit)}, method {found.binding.method}"),
        *witness_facts(found.binding.witness),
        ("certificate", f"{found.certificate}{certificate}"),
        *(("note", n) for n in (*model.notes, *found.notes)),
    ]


def _show_leakage(name: str, model: Model, found: Any, dp_epsilon: float, top: int) -> None:
    """Print the largest leakage, what forces it, the records that leak most, and every method."""
    show_line(f"leakage ≤ {number(found.epsilon, 6, up=True)} at α = {dp_epsilon:g}", style="bold green")
    show_facts(_leakage_facts(name, model, found))
    if top:
        rows = [
            (with_time(model, n), number(v, 6, up=True), _ratio(v, dp_epsilon))
            for n, v in found.per_record.top(top)
        ]
        columns = ["record", "leakage", "in α"]
        show_table(columns, rows, title="\nLargest leakages", right=columns[1:])
    if len(found.by_method) > 1:
        by = [(n, number(v, 6, up=True)) for n, v in sorted(found.by_method.items(), key=lambda i: i[1])]
        title = "\nThe whole model by each method (where one was not tried, by the best that was)"
        show_table(["method", "largest leakage"], by, title=title, right=["largest leakage"])


def _show_attack(found: Any, dp_epsilon: float, model: Model) -> None:
    attained = number(found.leakage, 6, down=True)
    show_line(f"leakage ≥ {attained}   (attained, for α = {dp_epsilon:g})", style="bold green")
    known = ", ".join(f"{n} = {v}" for n, v in found.knows.items()) or "nothing"
    read = {n: t for n, t in found.mechanism.items() if len(set(t.values())) > 1}
    show_facts(
        [
            ("adversary", f"{found.adversary}; knows {known}"),
            ("about", f"{found.target}: {found.values[0]} or {found.values[1]}"),
            ("mechanism", f"reads {len(read)} of {len(model.records):,} records, each by at most its α"),
            *((n, ", ".join(s for s, v in t.items() if v > 0)) for n, t in list(read.items())[:12]),
        ]
    )


def _show_audit(found: Any, title: str) -> None:
    rows = []
    attained = None if found.bracket is None else found.bracket.attained
    yardstick, name = (attained, "attack") if found.limit is None else (found.limit, "limit")
    if found.laplace_sum is not None:
        leaks = number(found.laplace_sum, 6)
        rows.append(("the Laplace-sum mechanism leaks", leaks, _ratio(found.laplace_sum, yardstick), ""))
    if attained is not None:
        reached = number(attained, 6, down=True)
        rows.append(("an attack attains", reached, _ratio(attained, yardstick), "no bound can be below it"))
    if found.limit is not None:
        rows.append(("the limit", number(found.limit, 6, up=True), "1", "no α-DP mechanism leaks more"))
    for row in found.rows:
        if row.epsilon is None:
            rows.append((row.method, "–", "–", row.note))
        else:
            leaks = number(row.epsilon, 6, up=True)
            rows.append((row.method, leaks, _ratio(row.epsilon, yardstick), row.kind))
    columns = ["method", "leakage", f"× {name}", "remark"]
    show_table(columns, rows, title=title, right=columns[1:3])
    if found.bracket is not None:
        show_line(f"bracket: {found.bracket}")
    if found.sound:
        show_line(f"no bound is below the {name}" if yardstick is not None else "there is no yardstick")
    else:
        show_line(f"A BOUND IS BELOW THE {name.upper()}: report this")


def _check_calibration(
    loaded: Model,
    model: str,
    calibration: Path,
    protect: Any,
    window: int,
    json: bool,
    limits: Limits,
) -> None:
    """Certify a calibration anew, and refuse one that leaks more than it says."""
    from quiltdp.accountant.verify import leakage_of
    from quiltdp.cli.holdout import read_calibration
    from quiltdp.numbers import format_up

    read = read_calibration(calibration)
    asked: SearchOptions = {"protect": protect, "time_limit": limits.guard}
    if window > 1:
        asked["window"] = window
    found = limits.answer(lambda: leakage_of(loaded, read, **asked))
    if found.epsilon > read.epsilon and not limits.reached:
        raise InvalidArgument(
            f"{calibration}: σ = {read.sigma:.6g} leaks up to {found.epsilon:.6g} on this model, more than"
            f" its ε = {read.epsilon:g}; calibrate again"
        )
    if json:
        extra = {"sigma": read.sigma, "promised": read.epsilon, "delta": read.delta}
        emit_json("leakage", {**_leakage_document(model, loaded, found, 10), **extra}, limits.reached)
        return
    promise = f"ε = {read.epsilon:g}" + (f", δ = {read.delta:g}" if read.delta else "")
    holds = f"{promise} holds" if found.epsilon <= read.epsilon else f"{promise} is not decided"
    show_line(
        f"leakage ≤ {format_up(found.epsilon)} at σ = {format_up(read.sigma)}{read.each}: {holds}",
        style="bold green",
    )
    facts = _leakage_facts(model, loaded, found, "; searched for as the calibration was made")
    show_facts([facts[0], ("mechanism", str(read.mechanism)), *facts[1:]])


def _ratio(value: float, unit: float | None) -> str:
    return f"{value / unit:.4g}" if unit else "–"

"""``quiltdp pvalues P...``: what an analysis knows about the data, and p-values corrected for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.show import number, say, show_table
from quiltdp.errors import InvalidArgument, QuiltdpError, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiltdp.accountant.ledger import Ledger
    from quiltdp.generalization import MaxInformation
    from quiltdp.generalization.pvalues import Transcripts

_SOURCES = "--ledger with --model, --step, --bits or --mutual-bits"
# Kind of step -> what follows the equals sign, and which laws of the data it holds for.
_KINDS = {
    "pure": "α of an α-DP step, for every law of the data",
    "product": "α of an α-DP step, independent records only",
    "leakage": "ε of a Bayesian-DP step (the informed leakage), this law only",
    "approximate": "α:δ of an (α, δ)-DP step, independent records only",
    "bits": "bits of output, for every law",
    "mutual": "m:k, mutual information of m bits read at k bits, this law only",
}


def pvalues(
    p: list[float] | None = None,
    *,
    account: list[Path] | None = None,
    model: Path | None = None,
    step: list[str] | None = None,
    records: int | None = None,
    bits: float | None = None,
    beta: float | None = None,
    mutual_bits: float | None = None,
    level: float = 0.05,
    time_limit: float | None = None,
    json: bool = False,
) -> None:
    """Correct p-values for hypotheses that were chosen by an analysis that saw the data.

    Testing "p ≤ α" is wrong by far more than α when the hypothesis was picked because it looked good.  What
    the analysis knows about the data bounds by how much: give the ledger of what was released and its
    model, the steps of the analysis, or a number of bits.  In how many ways a reusable holdout could have
    answered is such a bound too; each line says which one was the best.

    With steps, the max-information of each and of all in their order is shown, with or without p-values: an
    event of probability p on data the analysis never saw has at most 2^k p + β on these.  Bounds add only if
    every step after the first holds for every law of the data; otherwise the order is refused.

    Arguments
    ---------
    p : P...
        The p-values as they came out.

    Model
    -----
    account (--ledger) : LEDGER
        Correct for everything this one ledger says was released.
    model : MODEL
        The model of the ledger's calibration.
    step : STEP
        A step of the analysis, in order; repeated: pure=0.01, product=0.01, leakage=0.002,
        approximate=0.01:1e-9, bits=8, mutual=1:40.
    records : N >= 1
        The number of records, for DP steps.
    bits : K
        The analysis has max-information of at most K bits …
    beta : P
        … with approximation β (default 0; of steps together: 0.01, and the best for each p).
    mutual_bits : M
        The analysis has at most M bits of mutual information.

    Output
    ------
    level : A
        What is at most this after correction is significant.

    Examples
    --------
    $ quiltdp pvalues 0.0004 0.01 --ledger study.db --model holdout_chain.json
    $ quiltdp pvalues 0.0004 0.01 --step leakage=0.002 --records 10000
    $ quiltdp pvalues --step leakage=0.002 --step bits=12 --records 10000 --beta 0.001
    $ quiltdp pvalues 0.0004 --bits 3 --beta 0.001
    """
    from quiltdp.generalization._checks import probability
    from quiltdp.generalization.pvalues import best_correction, correct_p_values

    probability("level", level)
    sources = (account, step, bits is not None, mutual_bits is not None)
    if sum(map(bool, sources)) != 1:
        raise InvalidArgument(f"say what the analysis knew, in one way: {_SOURCES}")
    if not p and not step:
        raise InvalidArgument("missing: P... (steps alone can be shown without)")
    if account and len(account) > 1:
        raise InvalidArgument(
            "--ledger is given twice: two accounts of the same data know more than either; give that of"
            " the data the p-values are of, or, if both are, bits that bound the two together (--bits)"
        )
    p = p or []
    if mutual_bits is not None:
        corrected = correct_p_values(p, mutual_bits=mutual_bits).tolist()
        used = ["mutual information"] * len(p)
        known = f"mutual information of at most {mutual_bits:g} bits with the data"
    else:
        bounds, known = _read_bounds(
            account[0] if account else None, model, step, records, bits, beta, time_limit
        )
        corrected = correct_p_values(p, max_information=bounds).tolist() if p else []
        used = [best_correction(raw, bounds)[1].theorem for raw in p]
    facts = _step_facts(step, records, 0.01 if beta is None else beta) if step else {}
    rows = list(zip(p, corrected, used, strict=True))
    if json:
        listed = [{"p": a, "corrected": b, "rejected": b <= level, "by": by} for a, b, by in rows]
        emit_json("pvalues", {"known": known, "level": level, "p_values": listed, **facts})
        return
    if step:
        _show_steps(facts)
    if rows:
        _show_p_values(rows, known, level)


def _read_bounds(
    ledger: Path | None,
    model: Path | None,
    step: list[str] | None,
    records: int | None,
    bits: float | None,
    beta: float | None,
    time_limit: float | None,
) -> tuple[Sequence[MaxInformation | Transcripts], str]:
    """Return the bounds, fixed before the p-values are looked at, and what they are of."""
    import math

    from quiltdp.generalization import MaxInformation

    if ledger is not None:
        return _bounds_from_ledger(ledger, model, time_limit)
    if step:
        return _bounds_from_steps(step, records, beta)
    given = float(bits if bits is not None else 0.0)
    found = MaxInformation(given * math.log(2), 0.0 if beta is None else beta, "this law", "as given")
    return [found], f"max-information of at most {given:g} bits, β = {found.beta:g}"


def _bounds_from_steps(
    steps: list[str], records: int | None, beta: float | None
) -> tuple[Sequence[MaxInformation], str]:
    """Compose the steps at the given β, or at many, so that every p-value has the one that suits it."""
    from quiltdp.generalization import compose_max_information

    first = compose_max_information(_read_steps(steps, records, 0.01 if beta is None else beta))
    found = [first]
    for k in range(1, 49) if beta is None else ():
        try:
            found.append(compose_max_information(_read_steps(steps, records, 10.0 ** (-k / 4))))
        except QuiltdpError:  # too small a β for some step
            break
    known = f"max-information of at most {first.bits:.4g} bits at β = {first.beta:.3g}"
    return found, known if beta is not None else f"{known}, and the best β for each p-value"


def _read_steps(steps: list[str], records: int | None, beta: float) -> list[MaxInformation]:
    """Return the bounds of steps written ``kind=value``; β is shared equally by those that need one."""
    from quiltdp.generalization._checks import probability

    pairs = []
    for step in steps:
        kind, equals, value = step.partition("=")
        if not equals or kind not in _KINDS:
            known = ", ".join(f"{name}=…" for name in _KINDS)
            raise InvalidArgument(f"{step!r} is no step: write one of {known}")
        pairs.append((kind, value))
    sharing = sum(kind not in ("pure", "mutual") for kind, _ in pairs)
    share = probability("beta", beta) / max(1, sharing)
    return [_bound_of_step(f"{kind}={value}", kind, value, records, share) for kind, value in pairs]


def _bound_of_step(step: str, kind: str, value: str, records: int | None, beta: float) -> MaxInformation:
    from quiltdp.generalization import max_information as g

    numbers = _parse_step_numbers(step, value, 2 if kind in ("approximate", "mutual") else 1)
    if kind == "bits":
        return g.description_length_max_information(numbers[0], beta)
    if kind == "mutual":
        return g.max_information_from_mutual_information(numbers[0], numbers[1])
    if records is None:
        raise InvalidArgument(f"{step}: a DP step needs {option('records')}, the number of records")
    if kind == "pure":
        return g.pure_dp_max_information(numbers[0], records)
    if kind == "product":
        return g.product_dp_max_information(numbers[0], records, beta)
    if kind == "leakage":
        return g.bayesian_dp_max_information(numbers[0], records, beta)
    return g.approximate_dp_max_information(numbers[0], numbers[1], records, beta)


def _parse_step_numbers(step: str, value: str, count: int) -> list[float]:
    try:
        numbers = [float(part) for part in value.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        shape = "a number" if count == 1 else "two numbers with a colon between"
        raise InvalidArgument(f"{step}: expected {shape} after the equals sign")
    return numbers


def _step_facts(steps: list[str], records: int | None, beta: float) -> dict[str, Any]:
    """Return the max-information of every step, and of all in their order."""
    from quiltdp.generalization import compose_max_information

    def facts(bound: MaxInformation) -> dict[str, Any]:
        return {name: getattr(bound, name) for name in ("nats", "bits", "beta", "laws", "theorem")}

    found = _read_steps(steps, records, beta)
    each = [{"step": name, **facts(bound)} for name, bound in zip(steps, found, strict=True)]
    return {"steps": each, **facts(compose_max_information(found))}


def _show_steps(facts: dict[str, Any]) -> None:
    rows = [
        (s["step"], f"{s['bits']:.4g}", f"{s['beta']:.3g}", s["laws"], s["theorem"]) for s in facts["steps"]
    ]
    if len(rows) > 1:
        rows.append(("together", f"{facts['bits']:.4g}", f"{facts['beta']:.3g}", facts["laws"], ""))
    show_table(("step", "bits", "β", "holds for", "theorem"), rows, right=("bits", "β"))
    most = f"2^{facts['bits']:.4g} p + {facts['beta']:.3g}"
    say(f"an event of probability p on fresh data has at most {most} on these")


def _bounds_from_ledger(
    ledger: Path, model: Path | None, time_limit: float | None
) -> tuple[Sequence[MaxInformation | Transcripts], str]:
    """Bound the max-information of what was spent, converted once, at many β; count a holdout's answers."""
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.generalization.max_information import bayesian_dp_bounds
    from quiltdp.generalization.pvalues import either_bound
    from quiltdp.io.load import load_model

    if model is None:
        raise InvalidArgument(f"{option('ledger')} needs {option('model')}: the DP cost is converted by it")
    loaded = load_model(model)
    account = Ledger.open(ledger)
    reading = account.odometer(loaded, time_limit=time_limit)
    spent: Any = reading.spent_dp_epsilon
    if reading.informed is None or spent is None:
        raise InvalidArgument(f"{ledger}: its noise has no pure DP cost, so this correction does not apply")
    leaks = [reading.informed.per_record[record] for record in loaded.records]
    largest = max(spent.values()) if isinstance(spent, dict) else float(spent)
    bounds = bayesian_dp_bounds(leaks, None, dp_epsilon=largest)
    leaked = f"which leaks at most {number(reading.informed.epsilon, up=True)} about a record"
    known = f"the releases of {ledger}: α = {largest:.4g} spent, {leaked}"
    counted = ledger_transcripts(account)
    if counted is None:
        return bounds, known
    told = f"{reading.answers} of {reading.asked} queries answered from the holdout ({counted.theorem})"
    return either_bound(bounds, [counted]), f"{known}; {told}"


def ledger_transcripts(account: Ledger) -> Transcripts | None:
    """Return how many ways there were for a holdout to answer what it was asked; None for other ledgers."""
    from quiltdp.generalization import thresholdout_transcripts
    from quiltdp.mechanisms import Thresholdout
    from quiltdp.mechanisms.holdout import setting
    from quiltdp.mechanisms.thresholdout import ThresholdoutMechanism

    settings, terms = account.settings, account.terms
    spec = terms.mechanism
    if settings.get("kind") != "thresholdout" or not isinstance(spec, Thresholdout):
        return None
    step = setting(settings, "resolution")
    if step is None:  # nobody rounds: the grid that the noise is drawn on
        step = ThresholdoutMechanism(spec, terms.sigma, float.fromhex(settings["threshold"])).grid.step
    requests = sum(entry.count for entry in account.entries() if entry.kind == "reserve")
    rarely = max(1.0, (settings["queries"] or 0) / spec.budget)
    return thresholdout_transcripts(requests, account.head.answers, step, rarely=rarely)


def _show_p_values(rows: list[tuple[float, float, str]], known: str, level: float) -> None:
    from quiltdp.numbers import format_up

    say(f"corrected for {known}; level {level:g}")
    for raw, new, by in rows:
        answer = "yes" if new <= level else "no"
        say(f"p = {raw:g}: {format_up(new, 4)}, significant after correction: {answer} (by {by})")

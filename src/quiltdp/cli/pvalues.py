"""``quiltdp pvalues P...``: p-values of hypotheses that were chosen after looking, corrected for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.cli.accounting import AsJson
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import TimeLimit
from quiltdp.cli.option_words import arg, opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiltdp.accountant.ledger import Ledger
    from quiltdp.generalization import MaxInformation
    from quiltdp.generalization.pvalues import Transcripts

__all__ = ["pvalues"]

SOURCES = "--ledger with --model, --step, --bits or --mutual-bits"


def pvalues(
    p: Annotated[list[float], arg("P...", "The p-values as they came out.")],
    *,
    ledger: Annotated[
        list[Path] | None, opt("LEDGER", "Correct for everything this one ledger says was released.")
    ] = None,
    model: Annotated[Path | None, opt("MODEL", "The model of the ledger's calibration.")] = None,
    step: Annotated[
        list[str] | None, opt("STEP", "A step of the analysis as for 'quiltdp maxinfo', in order; repeated.")
    ] = None,
    records: Annotated[int | None, opt("N", "The number of records, for DP steps.", min=1)] = None,
    bits: Annotated[float | None, opt("K", "The analysis has max-information of at most K bits …")] = None,
    beta: Annotated[
        float | None, opt("P", "… with approximation β (default 0; of steps: the best for each p).")
    ] = None,
    mutual_bits: Annotated[
        float | None, opt("M", "The analysis has at most M bits of mutual information.")
    ] = None,
    level: Annotated[float, opt("A", "What is at most this after correction is significant.")] = 0.05,
    time_limit: TimeLimit = None,
    json: AsJson = False,
) -> None:
    """Correct p-values for hypotheses that were chosen by an analysis that saw the data.

    Testing "p ≤ α" is wrong by far more than α when the hypothesis was picked because it looked good.  What
    the analysis knows about the data bounds by how much: give the ledger of what was released and its
    model, the steps of the analysis, or a number of bits.  In how many ways a reusable holdout could have
    answered is such a bound too; each line says which one was the best.

    Examples
    --------
    $ quiltdp pvalues 0.0004 0.01 --ledger study.db --model holdout_chain.json
    $ quiltdp pvalues 0.0004 0.01 --step leakage=0.002 --records 10000
    $ quiltdp pvalues 0.0004 --bits 3 --beta 0.001
    """
    with guarded():
        from quiltdp.errors import InvalidArgument
        from quiltdp.generalization import correct_p_values
        from quiltdp.generalization._checks import probability
        from quiltdp.generalization.pvalues import best_correction

        probability("level", level)
        given = [name for name, value in _given(ledger, step, bits, mutual_bits).items() if value]
        if len(given) != 1:
            raise InvalidArgument(f"say what the analysis knew, in one way: {SOURCES}")
        if ledger and len(ledger) > 1:
            raise InvalidArgument(
                "--ledger is given twice: two accounts of the same data know more than either; give that of"
                " the data the p-values are of, or, if both are, bits that bound the two together (--bits)"
            )
        if mutual_bits is not None:
            corrected = correct_p_values(p, mutual_bits=mutual_bits).tolist()
            used = ["mutual information"] * len(p)
            known = f"mutual information of at most {mutual_bits:g} bits with the data"
        else:
            bounds, known = _bounds(
                ledger[0] if ledger else None, model, step, records, bits, beta, time_limit
            )
            corrected = correct_p_values(p, max_information=bounds).tolist()
            used = [best_correction(raw, bounds)[1].theorem for raw in p]
        rows = list(zip(p, corrected, used, strict=True))
        if json:
            listed = [{"p": a, "corrected": b, "rejected": b <= level, "by": by} for a, b, by in rows]
            emit_json("pvalues", {"known": known, "level": level, "p_values": listed})
        else:
            _show(rows, known, level)


def _given(
    ledger: list[Path] | None, step: list[str] | None, bits: float | None, mutual_bits: float | None
) -> dict[str, bool]:
    return {
        "ledger": bool(ledger),
        "step": bool(step),
        "bits": bits is not None,
        "mutual": mutual_bits is not None,
    }


def _bounds(
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
        return _from_ledger(ledger, model, time_limit)
    if step:
        return _from_steps(step, records, beta)
    given = float(bits if bits is not None else 0.0)
    found = MaxInformation(given * math.log(2), 0.0 if beta is None else beta, "this law", "as given")
    return [found], f"max-information of at most {given:g} bits, β = {found.beta:g}"


def _from_steps(
    steps: list[str], records: int | None, beta: float | None
) -> tuple[Sequence[MaxInformation], str]:
    """Compose the steps at the given β, or at many, so that every p-value has the one that suits it."""
    from quiltdp.cli.maxinfo import read_steps
    from quiltdp.errors import QuiltdpError
    from quiltdp.generalization import compose_max_information

    first = compose_max_information(read_steps(steps, records, 0.01 if beta is None else beta))
    found = [first]
    for k in range(1, 49) if beta is None else ():
        try:
            found.append(compose_max_information(read_steps(steps, records, 10.0 ** (-k / 4))))
        except QuiltdpError:  # too small a β for some step
            break
    known = f"max-information of at most {first.bits:.4g} bits at β = {first.beta:.3g}"
    return found, known if beta is not None else f"{known}, and the best β for each p-value"


def _from_ledger(
    ledger: Path, model: Path | None, time_limit: float | None
) -> tuple[Sequence[MaxInformation | Transcripts], str]:
    """Bound the max-information of what was spent, converted once, at many β; count a holdout's answers."""
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.cli.show import number
    from quiltdp.errors import InvalidArgument, option
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


def _show(rows: list[tuple[float, float, str]], known: str, level: float) -> None:
    from quiltdp.cli.show import say
    from quiltdp.numbers import shown_up

    say(f"corrected for {known}; level {level:g}")
    for raw, new, by in rows:
        answer = "yes" if new <= level else "no"
        say(f"p = {raw:g}: {shown_up(new, 4)}, significant after correction: {answer} (by {by})")

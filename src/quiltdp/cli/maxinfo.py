"""``quiltdp maxinfo STEP...``: how much an analysis knows about the data, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.cli.accounting import AsJson
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.option_words import arg, opt

if TYPE_CHECKING:
    from quiltdp.generalization import MaxInformation

__all__ = ["maxinfo", "read_steps"]

KINDS = {
    "pure": "α of an α-DP step, for every law of the data",
    "product": "α of an α-DP step, independent records only",
    "leakage": "ε of a Bayesian-DP step (the informed leakage), this law only",
    "approximate": "α:δ of an (α, δ)-DP step, independent records only",
    "bits": "bits of output, for every law",
    "mutual": "m:k, mutual information of m bits read at k bits, this law only",
}

Records = Annotated[int | None, opt("N", "The number of records; DP steps need it.", min=1)]
Beta = Annotated[float, opt("P", "β of all steps together, shared equally by those that need one.")]


def maxinfo(
    steps: Annotated[
        list[str],
        arg(
            "STEP...",
            "In the order they were run: pure=0.01, product=0.01, leakage=0.002, approximate=0.01:1e-9,"
            " bits=8, mutual=1:40.",
        ),
    ],
    *,
    records: Records = None,
    beta: Beta = 0.01,
    event: Annotated[
        float | None, opt("P", "Also bound an event that has this probability on fresh data.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Bound the max-information of an analysis: every step, and their composition in the order given.

    An event of probability p on data the analysis never saw has at most 2^k p + β on these.  Bounds add
    only if every step after the first holds for every law of the data; otherwise the order is refused, and
    it says what may come first.

    Examples
    --------
    $ quiltdp maxinfo leakage=0.002 bits=12 --records 10000 --beta 0.001
    $ quiltdp maxinfo pure=0.01 pure=0.01 --records 500 --event 1e-6
    """
    with guarded():
        from quiltdp.generalization import compose_max_information

        found = read_steps(steps, records, beta)
        whole = compose_max_information(found)
        chance = whole.event_probability(event) if event is not None else None
        if json:
            facts = {"steps": [_facts(s, f) for s, f in zip(steps, found, strict=True)], **_facts("", whole)}
            facts.pop("step")
            emit_json("maxinfo", {**facts, "event": event, "event_probability": chance})
            return
        _show(steps, found, whole, event, chance)


def read_steps(steps: list[str], records: int | None, beta: float) -> list[MaxInformation]:
    """Return the bounds of steps written ``kind=value``; β is shared equally by those that need one."""
    from quiltdp.errors import InvalidArgument
    from quiltdp.generalization._checks import probability

    pairs = []
    for step in steps:
        kind, equals, value = step.partition("=")
        if not equals or kind not in KINDS:
            known = ", ".join(f"{name}=…" for name in KINDS)
            raise InvalidArgument(f"{step!r} is no step: write one of {known}")
        pairs.append((kind, value))
    sharing = sum(kind not in ("pure", "mutual") for kind, _ in pairs)
    share = probability("beta", beta) / max(1, sharing)
    return [_bound(f"{kind}={value}", kind, value, records, share) for kind, value in pairs]


def _bound(step: str, kind: str, value: str, records: int | None, beta: float) -> MaxInformation:
    from quiltdp.errors import InvalidArgument, option
    from quiltdp.generalization import max_information

    numbers = _numbers(step, value, 2 if kind in ("approximate", "mutual") else 1)
    if kind == "bits":
        return max_information.description_length_max_information(numbers[0], beta)
    if kind == "mutual":
        return max_information.max_information_from_mutual_information(numbers[0], numbers[1])
    if records is None:
        raise InvalidArgument(f"{step}: a DP step needs {option('records')}, the number of records")
    if kind == "pure":
        return max_information.pure_dp_max_information(numbers[0], records)
    if kind == "product":
        return max_information.product_dp_max_information(numbers[0], records, beta)
    if kind == "leakage":
        return max_information.bayesian_dp_max_information(numbers[0], records, beta)
    return max_information.approximate_dp_max_information(numbers[0], numbers[1], records, beta)


def _numbers(step: str, value: str, count: int) -> list[float]:
    from quiltdp.errors import InvalidArgument

    try:
        numbers = [float(part) for part in value.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        shape = "a number" if count == 1 else "two numbers with a colon between"
        raise InvalidArgument(f"{step}: expected {shape} after the equals sign")
    return numbers


def _facts(step: str, bound: MaxInformation) -> dict[str, Any]:
    return {
        "step": step,
        "nats": bound.nats,
        "bits": bound.bits,
        "beta": bound.beta,
        "laws": bound.laws,
        "theorem": bound.theorem,
    }


def _show(
    steps: list[str],
    found: list[MaxInformation],
    whole: MaxInformation,
    event: float | None,
    chance: float | None,
) -> None:
    from quiltdp.cli.show import say, show_table

    rows = [
        (step, f"{b.bits:.4g}", f"{b.beta:.3g}", b.laws, b.theorem)
        for step, b in zip(steps, found, strict=True)
    ]
    if len(found) > 1:
        rows.append(("together", f"{whole.bits:.4g}", f"{whole.beta:.3g}", whole.laws, ""))
    show_table(("step", "bits", "β", "holds for", "theorem"), rows, right=("bits", "β"))
    most = f"2^{whole.bits:.4g} p + {whole.beta:.3g}"
    say(f"an event of probability p on fresh data has at most {most} on these")
    if event is not None and chance is not None:
        say(f"p = {event:g}: at most {chance:.4g}")

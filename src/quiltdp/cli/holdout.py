"""``quiltdp holdout init|ask|status|extend``: a reusable holdout from the shell."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.release import check_new_ledger
from quiltdp.cli.show import number, say, show_facts
from quiltdp.errors import BudgetSpent, FileFormatError, InvalidArgument, QuiltdpError, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiltdp.mechanisms.cells import WrittenColumns
    from quiltdp.mechanisms.holdout import Answer

__all__ = ["ask", "extend", "init", "status"]


def init(
    ledger: Path,
    *,
    plan: Path | None = None,
    calibration: Path | None = None,
    threshold: float | None = None,
    failure: float = 0.05,
    queries: int | None = None,
    model: Path | None = None,
    data: Path | None = None,
    second: bool = False,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Make the ledger of a reusable holdout, from a calibration of Thresholdout.

    The ledger holds the secret threshold and the account of everything answered; the data stay where
    they are.  Without --model only σ and ε are compared: a calibration that was changed with care is
    noticed by the model alone.

    Arguments
    ---------
    ledger : LEDGER
        The file to make; it must not exist yet.

    Release
    -------
    plan : FILE
        What 'quiltdp plan … --json' printed: all of it is kept.
    calibration : FILE
        What 'quiltdp calibrate … --budget B --json' printed.
    threshold : T
        How far training and holdout may differ before the holdout answers.
    failure : P
        How likely the stated error bounds may fail.
    queries : M
        How many queries may be asked, if that is fixed: tighter bounds.
    model : MODEL
        Certify the calibration anew, against its model.
    data (--holdout) : CSV
        Bind the ledger to these data now, not when asking.
    second
        Another ledger for the same data is meant: what the two leak adds up.

    Examples
    --------
    $ quiltdp calibrate models/asia.bif --epsilon 1 --budget 10 --json > cal.json
    $ quiltdp holdout init study.db --calibration cal.json --threshold 0.04 --model models/asia.bif
    """
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.io.load import load_model
    from quiltdp.mechanisms import Thresholdout
    from quiltdp.mechanisms.holdout import checked_settings

    terms = read_terms(plan, calibration, threshold, failure, queries)
    found = terms.pop("calibration")
    if not isinstance(found.mechanism, Thresholdout):
        raise InvalidArgument(
            f"{calibration}: this calibration is for {found.mechanism!r}, a holdout needs Thresholdout:"
            " calibrate with --budget and without --releases"
        )
    check_new_ledger(ledger)
    settings = checked_settings(**terms)
    identity = None if data is None else _identity(ledger, data, second)
    loaded = None if model is None else load_model(model)
    made = Ledger.create(ledger, found, settings=settings, anchor=anchor, model=loaded)
    if identity is not None:
        made.bind_data(identity)
    checked = made.genesis["checked"]
    facts = {"ledger": str(ledger), "id": made.genesis["id"], "checked": checked, **status_facts(made)}
    if json:
        emit_json("holdout-init", facts)
        return
    say(f"{ledger}: {facts['remaining']} answers may come from the holdout")
    if checked != "model":
        say("σ was compared with ε alone; --model certifies it against the model")
    say("keep this file private and safe: it holds the secret threshold and the account")


def _identity(ledger: Path, data: Path, second: bool) -> str | None:
    """Return what the holdout data are; refuse a second ledger for them."""
    from quiltdp.accountant.ledger import other_account
    from quiltdp.mechanisms.rows import data_identity

    found = data_identity(read_columns(data))
    other = None if found is None or second else other_account(ledger, found, [data.parent])
    if other is not None:
        raise Refused(
            f"{ledger}: {other} keeps the account of the same holdout data; go on with that ledger,"
            " or allow a --second one: what the two leak adds up"
        )
    return found


def ask(
    ledger: str,
    query: list[str] | None = None,
    *,
    train: Path | None = None,
    holdout: Path | None = None,
    server: str | None = None,
    token_file: Path | None = None,
    insecure: bool = False,
    key: list[str] | None = None,
    types: list[str] | None = None,
    second: bool = False,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Ask queries: the mean over the rows of values in [0, 1] (a true comparison counts 1).

    Each is answered from the training data when the holdout agrees, otherwise from the holdout with
    noise, which spends one answer.  Exit code 1 when all answers are spent, or all
    planned queries were asked.  With --server no data and no ledger are at hand: all arguments are queries,
    and the token comes from the variable QUILTDP_TOKEN or from --token-file.

    Arguments
    ---------
    ledger : LEDGER
        The ledger file; with --server the first query.
    query : QUERY...
        A column, or an expression: 'age < 40'.

    Reading
    -------
    train : CSV
        The training data.
    holdout : CSV
        The holdout data.
    server : URL
        Ask a served study: https://…, or http:// on this machine.
    token_file : FILE
        Where your token of that study stands.
    insecure
        Plain http to another machine: whoever is in between can read the token.
    types (--type) : COLUMN=KIND
        number, boolean or text, where the training data should not decide; repeated.

    Release
    -------
    key : KEY
        A key for each query, in order: asked again, it costs nothing.
    second
        Another ledger for the same data is meant: what the two leak adds up.

    Examples
    --------
    $ quiltdp holdout ask study.db 'guess == label' --train train.csv --holdout holdout.csv
    $ quiltdp holdout ask --server https://holdout.example 'guess == label'
    """
    local = {"--train": train, "--holdout": holdout, "--type": types, "--anchor": anchor, "--second": second}
    if server is not None:
        given = next((flag for flag, value in local.items() if value), None)
        if given is not None:
            raise InvalidArgument(f"{given} is for a ledger on this machine, not for --server")
        _ask_server(server, token_file, insecure, [ledger, *(query or [])], key, json)
        return
    if train is None or holdout is None or not query:
        raise InvalidArgument("give LEDGER, QUERY, --train and --holdout; or --server and QUERY")
    from quiltdp.mechanisms.holdout import ReusableHoldout

    made = ReusableHoldout.from_ledger(
        read_columns(train),
        read_columns(holdout),
        ledger,
        anchor=anchor,
        types=_parse_column_types(types or []),
        second=second,
        data_folders=[holdout.parent],
    )
    answers = made.ask_many(query, keys=key or None, labels=[q[:200] for q in query])
    _show_answers(query, answers, made.failure, json)
    if any(a.value is None for a in answers):
        raise BudgetSpent(f"{ledger}: the budget of answers is spent")


def _ask_server(
    server: str, token_file: Path | None, insecure: bool, query: list[str], key: list[str] | None, json: bool
) -> None:
    """Ask a served study, with a token that stands on no command line."""
    import os

    from quiltdp.client import connect
    from quiltdp.io.text import read_text

    token = os.environ.get("QUILTDP_TOKEN", "") if token_file is None else read_text(token_file)
    if not token.strip():
        raise InvalidArgument("no token: put it in the variable QUILTDP_TOKEN, or name its --token-file")
    remote = connect(server, token.strip(), insecure=insecure)
    _show_answers(query, remote.ask_many(query, keys=key or None), 0.0, json)


def _show_answers(query: list[str], answers: Sequence[Answer], failure: float, json: bool) -> None:
    if json:
        told = [_facts(q, a, failure) for q, a in zip(query, answers, strict=True)]
        emit_json("holdout-ask", {"answers": told})
        return
    for text, answer in zip(query, answers, strict=True):
        say(_line(text, answer))


def status(
    ledger: Path, *, model: Path | None = None, anchor: Path | None = None, json: bool = False
) -> None:
    """Say what is spent and what is left.

    Model
    -----
    model : MODEL
        Also tell the leakage, from the model of the calibration.

    Examples
    --------
    $ quiltdp holdout status study.db --model models/asia.bif
    """
    from quiltdp.accountant.ledger import Ledger

    facts = status_facts(Ledger.open(ledger, anchor=anchor), model)
    if json:
        emit_json("holdout-status", {"ledger": str(ledger), **facts})
    else:
        show_status(str(ledger), facts)


def extend(
    ledger: Path,
    *,
    model: Path | None = None,
    anchor: Path | None = None,
    json: bool = False,
) -> None:
    """Extend the plan by as many queries as it was made for.

    Noise, threshold and the answers that are left stay as they are; the extended plan is certified for all
    its queries at half the failure probability of the one before, on top of that.  Exit code 1 when no
    answer is left, or no theorem promises anything about so many queries.

    Model
    -----
    model : MODEL
        The model of the plan, where it promises something about the population.

    Examples
    --------
    $ quiltdp holdout extend study.db --model rows.json
    """
    from quiltdp.accountant.ledger import Ledger
    from quiltdp.generalization.plan_result import extend_plan
    from quiltdp.io.load import load_model
    from quiltdp.numbers import format_up

    loaded = None if model is None else load_model(model)
    found = extend_plan(Ledger.open(ledger, anchor=anchor), loaded)
    if json:
        emit_json("holdout-extend", {"ledger": str(ledger), **asdict(found)})
        return
    say(f"{ledger}: {found.queries} queries may be asked in all")
    if found.accuracy is not None:
        error = format_up(found.accuracy, 4)
        say(f"from now on an answer is within {error} of the population value, by {found.theorem}")
    say(f"all promises so far hold together with probability at least {1 - found.total_failure:.4g}")


def _parse_column_types(words: list[str]) -> dict[str, str]:
    """Return column → kind from words like ``code=text``."""
    for word in words:
        if "=" not in word:
            raise InvalidArgument(f"--type: expected COLUMN=KIND, found {word!r}")
    return {name: kind for name, _, kind in (word.rpartition("=") for word in words)}


def read_terms(
    plan: Path | None,
    calibration: Path | None,
    threshold: float | None,
    failure: float,
    queries: int | None,
) -> dict[str, Any]:
    """Return calibration, threshold and the rest, from a plan or as they were given."""
    from json import loads

    from quiltdp.generalization.plan_result import read_holdout_arguments
    from quiltdp.io.text import read_text

    if plan is None:
        if calibration is None or threshold is None:
            raise InvalidArgument("give --plan, or both --calibration and --threshold")
        made = read_calibration(calibration, "--budget B ")
        return {"calibration": made, "threshold": threshold, "failure": failure, "queries": queries}
    if calibration is not None or threshold is not None or queries is not None:
        raise InvalidArgument("--plan says the calibration, the threshold and the number of queries itself")
    text = read_text(plan)
    try:
        return read_holdout_arguments(loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError, QuiltdpError) as error:
        reason = error.reason if isinstance(error, QuiltdpError) else f"this is no plan ({error})"
        how = "quiltdp plan MODEL --budget B --queries M --json"
        raise FileFormatError(plan, None, f"{reason}; expected what this prints: {how}") from None


def read_calibration(path: Path, options: str = "") -> Any:
    """Read a calibration from its JSON file, or refuse it by name and say what prints one."""
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.io.text import read_text

    text = read_text(path)
    try:
        return Calibration.from_json(text)
    except (ValueError, KeyError, TypeError, QuiltdpError) as error:
        reason = error.reason if isinstance(error, QuiltdpError) else f"this is not a calibration ({error})"
        how = f"quiltdp calibrate MODEL --epsilon E {options}--json"
        raise FileFormatError(path, None, f"{reason}; expected what this prints: {how}") from None


def status_facts(ledger: Any, model: Path | None = None) -> dict[str, Any]:
    """Return the odometer of a ledger as plain facts."""
    from collections.abc import Mapping

    reading = _reading(ledger, model)

    def plain(value: Any) -> Any:
        return dict(value) if isinstance(value, Mapping) else value

    facts: dict[str, Any] = {
        "fingerprint": ledger.fingerprint,
        "share": str(reading.share),
        "delta": ledger.terms.mechanism.target_delta,
        "spent_dp_epsilon": plain(reading.spent_dp_epsilon),
        "remaining_dp_epsilon": plain(reading.remaining_dp_epsilon),
        "answers": reading.answers,
        "remaining": reading.remaining,
        "queries": reading.queries,
        "asked": reading.asked,
        "query_limit": reading.query_limit,
        "failed_on_holdout": reading.failed,
        "lost": reading.lost,
    }
    for found in (reading.informed, reading.prior):
        if found is not None:
            facts[found.adversary] = {"epsilon": found.epsilon, "per_record": dict(found.per_record)}
    return facts


def _reading(ledger: Any, model: Path | None) -> Any:
    """Return the odometer's reading; a model that does not belong is refused by its file."""
    from quiltdp.io.load import load_model

    if model is None:
        return ledger.odometer(None)
    loaded = load_model(model)
    try:
        return ledger.odometer(loaded)
    except InvalidArgument as error:
        raise InvalidArgument(f"{model}: {error.text}") from None


def show_status(name: str, facts: dict[str, Any]) -> None:
    """Print the odometer for people."""
    import math
    from fractions import Fraction

    def amount(value: Any) -> str:
        if isinstance(value, dict):
            return f"at most {number(max(value.values()))} for a record"
        return number(value)

    share = Fraction(facts["share"])
    left = math.floor((1 - share) * 10_000) / 10_000  # never more than there is
    lines = [
        ("privacy spent", f"{number(float(share), up=True)} of 1; {left:g} left"),
    ]
    if facts["spent_dp_epsilon"] is not None:  # pure noise
        lines += [
            ("dp_epsilon spent", amount(facts["spent_dp_epsilon"])),
            ("dp_epsilon left", amount(facts["remaining_dp_epsilon"])),
        ]
    if facts["remaining"] is not None:
        lines.append(("answers from the holdout", f"{facts['answers']}, {facts['remaining']} left"))
        if facts["query_limit"] is None:
            lines.append(("queries answered", str(facts["queries"])))
        else:
            lines.append(("planned queries asked", f"{facts['asked']} of {facts['query_limit']}"))
    for adversary in ("informed", "prior"):
        if adversary in facts:
            at = f" at δ = {facts['delta']:g}" if facts["delta"] else ""
            epsilon = number(facts[adversary]["epsilon"], up=True)
            lines.append((f"epsilon{at}, {adversary} adversary", epsilon))
    if facts["failed_on_holdout"]:
        lines.append(("failed on the holdout", f"{facts['failed_on_holdout']} (charged like answers)"))
    if facts["lost"]:
        lines.append(("charged, but never told", f"{facts['lost']} (something interrupted them)"))
    show_facts(lines, title=name)


def _facts(query: str, answer: Answer, failure: float) -> dict[str, Any]:
    facts = {"query": query, **asdict(answer)}
    del facts["failure"]
    return facts | {"confidence": 1 - (failure if answer.failure is None else answer.failure)}


def _line(query: str, answer: Answer) -> str:
    """Return the answer with what its ± is of, and how sure."""
    from quiltdp.numbers import format_up

    if answer.value is None or answer.failure is None:
        return f"⊥  {query}"
    bounds = f"± {format_up(answer.error_bound, 3)} of the holdout's own value"
    if answer.population_bound is not None:
        bounds += f", ± {format_up(answer.population_bound, 3)} of the population's"
    repeated = ", repeated" if answer.repeated else ""
    return (
        f"{answer.value:.6g}  {query}  ({bounds}, {1 - answer.failure:.4g} sure of all answers;"
        f" from {answer.source}{repeated}; {answer.remaining} left)"
    )


def read_columns(path: str | Path) -> WrittenColumns:
    """Read a CSV file: column name → cells as they are written, without blanks around them."""
    import csv
    import io

    from quiltdp.io.text import read_bytes
    from quiltdp.mechanisms.cells import WrittenColumns

    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(path, None, f"this is not a CSV file in UTF-8 ({error})") from None
    if not rows or not any(rows[0]):
        raise FileFormatError(path, 1, "the first line must name the columns")
    names = [name.strip() for name in rows[0]]
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        raise FileFormatError(path, 1, f"the column {doubled!r} is named twice")
    body = [(k, row) for k, row in enumerate(rows[1:], start=2) if row]
    if not body:
        raise FileFormatError(path, 2, "there are no rows under the column names")
    for line, row in body:
        if len(row) != len(names):
            raise FileFormatError(path, line, f"{len(row)} values for {len(names)} columns")
    return WrittenColumns((name, [row[k].strip() for _, row in body]) for k, name in enumerate(names))

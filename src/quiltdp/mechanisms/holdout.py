"""The reusable holdout: Thresholdout on data, with its state in a ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger import (
    Entry,
    Head,
    Ledger,
    Odometer,
    Outcome,
    Request,
    Visit,
    interruptible,
    other_account,
)
from quiltdp.errors import BudgetSpent, InvalidArgument, Refused, option
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.noise import NoiseSource
from quiltdp.mechanisms.predictions import Predictions
from quiltdp.mechanisms.queries import Query, TablePair, Value, describe, parsed
from quiltdp.mechanisms.rows import features_and_target
from quiltdp.mechanisms.thresholdout import Source, Thresholdout, ThresholdoutMechanism, ThresholdoutState

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["Answer", "ReusableHoldout", "checked_settings"]


@dataclass(frozen=True)
class Answer:
    """The answer to one query.

    Attributes
    ----------
    value
        A number, or None (⊥) when the budget is spent.
    source
        ``"train"``, ``"holdout"`` (with noise; this costs one unit of the budget) or ``"spent"``.
    remaining
        How many answers may still come from the holdout.
    error_bound
        |value − holdout value| is at most this for all answers together, with probability
        1 − failure; ∞ for ⊥.
    repeated
        Whether this is a recorded answer, returned again for the same idempotency key.
    population_bound
        |value − population value| is at most this for all planned answers together, with the same
        probability; None without a plan.
    failure
        How likely any promise up to this answer may fail: β of the plan, β/2 of its first extension, β/4, ….
    """

    value: float | None
    source: Source
    remaining: int
    error_bound: float
    repeated: bool = False
    population_bound: float | None = None
    failure: float | None = None

    def __float__(self) -> float:
        """Return the value, or refuse when the budget is spent."""
        if self.value is None:
            raise BudgetSpent("the holdout's budget is spent: no further answers")
        return self.value


_SPENT = Answer(None, "spent", 0, math.inf)


class ReusableHoldout:
    r"""Ask the same holdout again and again without wearing it out.

    A query is answered from the training data as long as training and holdout agree within a noisy
    threshold; otherwise from the holdout, with noise, and that spends one of B answers.  All of it
    is α-DP for the holdout with α = 9BΔ/(4σ).  The training data are not protected, and must carry no
    information about the holdout beyond what the model was conditioned on.

    Parameters
    ----------
    train, holdout
        Arrays, DataFrames, mappings of columns, or pairs ``(X, y)``.
    calibration
        From ``quiltdp.calibrate(model, epsilon, mechanism=Thresholdout(budget, sensitivity))``.
    threshold
        T in [0, 1].
    ledger
        The path of the ledger (made if there is none), ``":memory:"``, or a :class:`quiltdp.Ledger`.
        It is bound to these holdout data from the first time on.
    failure
        β for the error bounds.
    queries
        The number of queries, if it is fixed beforehand: it makes the error bounds a little smaller.
        Further queries are refused; :func:`~quiltdp.generalization.extend_plan` allows as many again.
    resolution
        Answers from the holdout are rounded to multiples of this: what a plan by description length asks
        for (:func:`quiltdp.plan`).
    accuracy
        The plan's promise about the population, told with every planned answer.
    columns
        The columns that the model of the rows is about: an expression that reads another one is refused.
        What a callable reads cannot be seen.
    anchor
        The path of an anchor file, see :class:`quiltdp.Ledger`.
    types
        Column → ``"number"``, ``"boolean"`` or ``"text"``, where the training data should not decide.
    second
        Allow a second ledger for the same data: what the two leak adds up, and neither knows.
    noise
        Keyword for tests: ``InsecureDeterministicNoise(seed)``.
    data_folders
        Where else to look for a second ledger, besides the folder of this one.

    Examples
    --------
    >>> import numpy as np, quiltdp as qd
    >>> from quiltdp.accountant.ledger import Terms
    >>> spec = qd.Thresholdout(budget=5, sensitivity=1 / 2000)
    >>> calibration = Terms(spec, spec.scale(1.0), 1.0, 1.0, 0.0, "informed", "exact", "f" * 64)
    >>> rng = np.random.default_rng(0)
    >>> train, fresh = rng.random((2000, 3)), rng.random((2000, 3))
    >>> holdout = qd.ReusableHoldout(train, fresh, calibration, threshold=0.1, ledger=":memory:")
    >>> answer = holdout.ask(lambda data: data[:, 0] < 0.5)
    >>> answer.source, answer.remaining, abs(answer.value - 0.5) < 0.05
    ('train', 5, True)
    """

    def __init__(
        self,
        train: Any,
        holdout: Any,
        calibration: Any,
        threshold: float,
        ledger: str | Path | Ledger,
        *,
        failure: float = 0.05,
        queries: int | None = None,
        resolution: float | None = None,
        accuracy: float | None = None,
        columns: Sequence[str] | None = None,
        anchor: str | Path | None = None,
        types: Mapping[str, str] | None = None,
        second: bool = False,
        noise: NoiseSource | None = None,
        data_folders: Sequence[str | Path] = (),
    ) -> None:
        if not isinstance(calibration.mechanism, Thresholdout):
            raise InvalidArgument(
                f"calibration: it was made for {calibration.mechanism!r};"
                " a reusable holdout needs Thresholdout"
            )
        secure = noise is None or noise.secure
        promised: dict[str, Any] = {"resolution": resolution, "accuracy": accuracy, "columns": columns}
        settings = checked_settings(threshold, failure, queries, **promised, secure=secure)
        self._tables = TablePair(train, holdout, types)
        self._mechanism = ThresholdoutMechanism(
            calibration.mechanism, calibration.sigma, threshold, noise=noise
        )
        self._covered = self._mechanism.covers(Fraction(1, self._tables.rows))
        self.failure, self.queries = failure, queries
        self.resolution, self.accuracy, self.columns = resolution, accuracy, columns
        budget = calibration.mechanism.budget
        self._open_share, self._answer_share = Fraction(4, 9 * budget), Fraction(5, 9 * budget)
        path = ledger.path if isinstance(ledger, Ledger) else ledger
        if not second:
            self._refuse_second(path, data_folders)
        if isinstance(ledger, Ledger):
            ledger.require(calibration, settings)
            self.ledger = ledger
        else:
            self.ledger = Ledger.open_or_create(ledger, calibration, settings=settings, anchor=anchor)
        if self._tables.identity is not None:
            self.ledger.bind_data(self._tables.identity)

    def _refuse_second(self, path: str | Path, folders: Sequence[str | Path]) -> None:
        identity = self._tables.identity
        other = None if identity is None else other_account(path, identity, folders)
        if other is not None:
            raise Refused(
                f"{path}: {other} keeps the account of the same holdout data; go on with that ledger,"
                f" or allow a {option('second')} one: what the two leak adds up"
            )

    @classmethod
    def from_ledger(
        cls,
        train: Any,
        holdout: Any,
        ledger: str | Path | Ledger,
        *,
        anchor: str | Path | None = None,
        **options: Any,
    ) -> ReusableHoldout:
        """Go on with an existing ledger: calibration, threshold and the rest are read from it.

        ``options`` are ``types``, ``second``, ``noise`` and ``data_folders`` of the class.
        """
        account = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger, anchor=anchor)
        settings = account.settings
        if settings.get("kind") != "thresholdout":
            raise InvalidArgument(f"{account.path}: this ledger does not belong to a reusable holdout")
        return cls(
            train,
            holdout,
            account.terms,
            float.fromhex(settings["threshold"]),
            account,
            failure=float.fromhex(settings["failure"]),
            queries=settings["queries"],
            resolution=setting(settings, "resolution"),
            accuracy=setting(settings, "accuracy"),
            columns=settings.get("columns"),
            **options,
        )

    # -- asking ----------------------------------------------------------------------------

    def ask(
        self,
        query: Query,
        *,
        key: str | None = None,
        label: str | None = None,
        sensitivity: float | None = None,
    ) -> Answer:
        """Answer one query; the entry is on the disk before the answer is returned.

        Parameters
        ----------
        query
            A callable on the data, giving one value in [0, 1] per row (its mean is asked; one row
            then moves it by 1/n) or one number in [0, 1]; or an expression over the columns.  A callable is
            handed copies.  The value of a row must not depend on the rows beside it: that is tried on the
            training data.  A holdout row on which the callable fails counts 0, and nobody is told.
        key
            An idempotency key: asking again with it returns the recorded answer at no cost.  Another
            expression under the same key is refused, and so is a key with a callable: two callables cannot
            be told apart.
        label
            A note for the ledger.
        sensitivity
            For a callable that gives one number: how far one record can move it, 0 where it fails.  You
            vouch for it.

        Raises
        ------
        InvalidArgument
            For a query that makes no sense on the training data; nothing is spent.
        Refused
            If the holdout data were changed after they were given; nothing is spent.
        BudgetSpent
            If all the queries of the plan were asked; nothing is charged.
        """
        return self.ask_many([query], keys=[key], labels=[label], sensitivity=sensitivity)[0]

    def ask_many(
        self,
        queries: Iterable[Query],
        *,
        keys: Sequence[str | None] | None = None,
        labels: Sequence[str | None] | None = None,
        sensitivity: float | None = None,
    ) -> list[Answer]:
        """Answer queries one after the other with one trip to the disk.

        The answers have the same law as asking one by one.  If one query is refused, none is
        answered and nothing is spent.
        """
        questions = list(queries)
        names = _aligned(keys, len(questions), "keys")
        notes = _aligned(labels, len(questions), "labels")
        requests = [
            Request(describe(q, keyed=key is not None), key, note)
            for q, key, note in zip(questions, names, notes, strict=True)
        ]
        first = _first_of_each(requests)
        if questions and all(n is not None for n in names):
            with self.ledger.visit(requests) as visit:  # repeats need no data
                if None not in visit.recalled:
                    return [self._repeat(visit, entry) for entry in visit.recalled if entry is not None]
        trained = [self._on_training(q, sensitivity) for q in questions]
        with self.ledger.visit(requests) as visit:
            return self._answers(visit, questions, trained, requests, first)

    def on_training(self, query: Query) -> float:
        """Return the query's value on the training data; nothing is asked of the holdout."""
        return float(self._on_training(query, None).exact)

    def next_bounds(self, head: Head) -> dict[Source, float]:
        """Return how far the next answer may be from the holdout's value, by where it comes from."""
        number = head.queries + 1
        sources: tuple[Source, ...] = ("train", "holdout")
        return {s: self._answer(0.0, s, 0, number, head.extensions).error_bound for s in sources}

    def _on_training(self, query: Query, sensitivity: float | None) -> Value:
        """Return the value on the training data; refuse what the calibration does not cover."""
        if self.columns is not None and isinstance(query, (str, Expression, Predictions)):
            asked = parsed(query)
            other = sorted(asked.columns.difference(self.columns))
            if other:
                raise InvalidArgument(
                    f"query {asked.text!r} reads {other[0]!r}: the model of these rows is about"
                    f" {', '.join(map(repr, self.columns))}, and nothing is promised about other columns"
                )
        value = self._tables.on_training(query)
        rows = self._tables.rows
        if value.statistical and not self._covered:
            raise InvalidArgument(
                f"the mean over {rows} holdout rows moves by 1/{rows} with one row;"
                f" the calibration covers only {self._mechanism.spec.sensitivity!r}"
            )
        if not value.statistical and sensitivity is None:
            raise InvalidArgument(
                "the query gives one number and not one value per row: say how far one record can move it"
                f" with {option('sensitivity', '…')}, if you vouch for that"
            )
        if sensitivity is not None and not self._covers(sensitivity):
            raise InvalidArgument(
                f"{option('sensitivity')} {sensitivity!r} is not covered: the calibration is for"
                f" {self._mechanism.spec.sensitivity!r}"
            )
        return value

    def _covers(self, sensitivity: object) -> bool:
        if isinstance(sensitivity, bool) or not isinstance(sensitivity, (int, float)):
            raise InvalidArgument(f"{option('sensitivity')} must be a number, not {sensitivity!r}")
        if not 0.0 <= sensitivity < math.inf:
            raise InvalidArgument(f"{option('sensitivity')} must be finite and not negative")
        return self._mechanism.covers(Fraction(sensitivity))

    def _answers(
        self,
        visit: Visit,
        asked: Sequence[Query],
        trained: Sequence[Value],
        requests: Sequence[Request],
        first: Sequence[int],
    ) -> list[Answer]:
        """Reserve, read the holdout, draw, settle; then put the answers in the order of the questions.

        ``first[k]`` is the position of the first question with the key of question k.
        """
        fresh = [k for k in range(len(asked)) if first[k] == k and visit.recalled[k] is None]
        drawn = {}
        if fresh and visit.head.answers < self._mechanism.spec.budget:
            self._require_planned(visit.head, len(fresh))
            values = self._drawn(visit, [(asked[k], trained[k], requests[k]) for k in fresh])
            drawn = dict(zip(fresh, values, strict=True))
        answers = []
        for k, j in enumerate(first):
            entry = visit.recalled[j]
            answer = self._repeat(visit, entry) if entry is not None else drawn.get(j, _SPENT)
            answers.append(answer if k == j or answer.value is None else replace(answer, repeated=True))
        return answers

    def _require_planned(self, head: Head, more: int) -> None:
        """Refuse queries beyond the plan: nothing is promised about them, nor then about the others."""
        limit = head.query_limit(self.queries)
        if limit is not None and head.asked + more > limit:
            many = f"{more} more are too many" if more > 1 else "one more is too many"
            raise BudgetSpent(
                f"{self.ledger.path}: {head.asked} of the {limit} planned queries were asked, {many};"
                " nothing is charged; extend the plan ('quiltdp holdout extend')"
            )

    def _drawn(self, visit: Visit, asked: Sequence[tuple[Query, Value, Request]]) -> list[Answer]:
        """Answer questions that were not asked before; after the reservation nothing is refused."""
        before, threshold = visit.head, visit.threshold
        is_open = threshold is not None
        most = min(len(asked), self._mechanism.spec.budget - before.answers)
        worst = most * self._answer_share + (most - is_open) * self._open_share
        self._mechanism.make_ready()
        tables = self._tables.fixed()
        pledge = visit.reserve([request for _, _, request in asked], worst, most)
        units = self._mechanism.units
        with interruptible():  # queries may take long, and what they read is charged
            values = [tables.on_holdout(query, value) for query, value, _ in asked]
        pairs = [(units(f), units(value.exact)) for f, (_, value, _) in zip(values, asked, strict=True)]
        drawn, state = self._mechanism.run(pairs, ThresholdoutState(before.answers, threshold))
        outcomes = []
        for outcome, value in zip(drawn, (value for _, value, _ in asked), strict=True):
            share = self._open_share if outcome.opened is not None else Fraction(0)
            if outcome.source == "spent" or outcome.units is None:
                outcomes.append(Outcome("unasked"))
            elif outcome.source == "train":
                outcomes.append(Outcome("train", share, 0, float(value.exact)))
            else:
                number = self._rounded(self._mechanism.grid.value(outcome.units))
                outcomes.append(Outcome("holdout", share + self._answer_share, 1, number))
        entries = pledge.settle(outcomes, state.threshold)
        return self._as_answers(entries, before)

    def _as_answers(self, entries: Sequence[Entry], before: Head) -> list[Answer]:
        shown, answers, number = [], before.answers, before.queries
        for entry in entries:
            answers += entry.answers
            if entry.value is None or entry.kind not in ("train", "holdout"):
                shown.append(_SPENT)
                continue
            number += 1
            shown.append(self._answer(entry.value, entry.kind, answers, number, before.extensions))
        return shown

    def _answer(
        self,
        value: float,
        source: Source,
        answers: int,
        number: int,
        extensions: Sequence[tuple[int, float | None]],
        repeated: bool = False,
    ) -> Answer:
        """Return an answer with the promise that it was given under: the plan's, or its last extension's."""
        queries = None if self.queries is None else self.queries * (1 + len(extensions))
        share = 0.5 ** len(extensions)
        bound, population = math.inf, None  # an older ledger may hold answers beyond its plan
        if queries is None or number <= queries:
            bound = self._mechanism.error_bound(
                source, failure=self.failure * share, queries=queries, number=number
            )
            bound += (self.resolution or 0.0) / 2 if source == "holdout" else 0.0
            population = extensions[-1][1] if extensions else self.accuracy
        remaining, total = self._mechanism.spec.budget - answers, self.failure * (2.0 - share)
        return Answer(value, source, remaining, bound, repeated, population, total)

    def _rounded(self, number: float) -> float:
        """Return the nearest multiple of the resolution: what is done to an answer costs nothing."""
        if self.resolution is None:
            return number
        exact = Fraction(self.resolution)
        step = exact.limit_denominator(10**9) or exact
        return float(round(Fraction(number) / step) * step)

    def _repeat(self, visit: Visit, entry: Entry) -> Answer:
        if entry.kind not in ("train", "holdout") or entry.value is None:
            raise InvalidArgument("what is recorded under this key is not an answer")
        number, head = visit.numbers[entry.seq], visit.head
        extensions = [extension for extension in head.extensions if extension[0] < entry.seq]
        return self._answer(entry.value, entry.kind, head.answers, number, extensions, repeated=True)

    # -- reading ---------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """How many answers may still come from the holdout."""
        return self._mechanism.spec.budget - self.ledger.head.answers

    @property
    def grid_step(self) -> float:
        """Every noisy answer is a multiple of this power of two."""
        return self._mechanism.grid.step

    def odometer(self, model: Model | None = None, **options: Any) -> Odometer:
        """Return what was spent so far; see :meth:`quiltdp.Ledger.odometer`."""
        return self.ledger.odometer(model, **options)

    def scorer(
        self, rows: Callable[[Any, Any, Any], Any] | None = None, *, target: Hashable | None = None
    ) -> Callable[..., float]:
        """Return a scikit-learn scorer ``score(estimator, X, y)`` that answers through the holdout.

        The data of this object are scored, pairs ``(X, y)`` or a table, and not the X and y that scikit-learn
        passes: use it with an estimator fitted on the training data, for instance in
        ``GridSearchCV(..., cv=[(indices, indices)], scoring=holdout.scorer())``.

        Parameters
        ----------
        rows
            ``rows(estimator, X, y)``: one value in [0, 1] per row; default: prediction is right.
        target
            Of a table: the column to predict; default: the name of the y that is passed.  The features are
            the columns of the X that is passed, or all others.

        Raises
        ------
        BudgetSpent
            From the scorer, once the budget is spent.
        """
        score_rows = rows if rows is not None else _correct

        def score(estimator: Any, X: Any = None, y: Any = None) -> float:
            name = getattr(y, "name", None) if target is None else target
            pair = partial(features_and_target, target=name, features=getattr(X, "columns", None))
            return float(self.ask(lambda data: score_rows(estimator, *pair(data)), label="score"))

        return score

    def __repr__(self) -> str:
        """Say how much is left."""
        return f"<ReusableHoldout: {self.remaining} of {self._mechanism.spec.budget} answers left>"


def _correct(estimator: Any, X: Any, y: Any) -> Any:
    import numpy as np

    return np.asarray(estimator.predict(X)) == np.asarray(y)


def _aligned(values: Sequence[Any] | None, count: int, name: str) -> Sequence[Any]:
    if values is None:
        return [None] * count
    if isinstance(values, (str, Mapping)) or len(values) != count:
        raise InvalidArgument(
            f"give one entry of {option(name)} per query: {count} asked, {len(values)} given"
        )
    return list(values)


def _first_of_each(requests: Sequence[Request]) -> list[int]:
    """Return for every request the position of the first with its key; refuse one key for two questions."""
    seen: dict[str, int] = {}
    first = []
    for k, request in enumerate(requests):
        j = k if request.key is None else seen.setdefault(request.key, k)
        if requests[j].text != request.text:
            raise Refused(f"the key {request.key!a} is given to two different queries")
        first.append(j)
    return first


def checked_settings(
    threshold: float,
    failure: float,
    queries: int | None,
    *,
    resolution: float | None = None,
    accuracy: float | None = None,
    columns: Sequence[str] | None = None,
    secure: bool = True,
) -> dict[str, Any]:
    """Return what a reusable holdout binds its ledger to, besides the calibration, or refuse it."""
    if not 0.0 <= threshold <= 1.0:
        raise InvalidArgument(f"{option('threshold')} must lie in [0, 1], not {threshold!r}")
    if not 0.0 < failure < 1.0:
        raise InvalidArgument(f"{option('failure')} must lie strictly between 0 and 1, not {failure!r}")
    if queries is not None and (isinstance(queries, bool) or not isinstance(queries, int) or queries < 1):
        raise InvalidArgument(f"{option('queries')} must be a whole number ≥ 1, not {queries!r}")
    planned = {"resolution": resolution, "accuracy": accuracy}
    for name, value in planned.items():
        if value is not None and not 0.0 < value < 0.5:
            raise InvalidArgument(f"{option(name)} must lie strictly between 0 and ½, not {value!r}")
    return {
        "kind": "thresholdout",
        "threshold": float(threshold).hex(),
        "failure": float(failure).hex(),
        "queries": queries,
        "noise": "secure" if secure else "insecure, for tests",
        **{name: float(value).hex() for name, value in planned.items() if value is not None},
        **({} if columns is None else {"columns": list(columns)}),
    }


def setting(settings: Mapping[str, Any], name: str) -> float | None:
    """Return a number that a ledger's settings may hold."""
    return float.fromhex(settings[name]) if name in settings else None

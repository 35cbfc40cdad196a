"""The reusable holdout: Thresholdout on data, with its state in a ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger import Entry, Ledger, LedgerTransaction, Odometer
from quiltdp.accountant.specs import Thresholdout
from quiltdp.errors import BudgetSpent, InvalidArgument, option
from quiltdp.mechanisms.noise import NoiseSource
from quiltdp.mechanisms.queries import InvalidOnHoldout, Query, TablePair, Value, describe
from quiltdp.mechanisms.thresholdout import Outcome, Source, ThresholdoutMechanism, ThresholdoutState

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
    """

    value: float | None
    source: Source
    remaining: int
    error_bound: float
    repeated: bool = False

    def __float__(self) -> float:
        """Return the value, or refuse when the budget is spent."""
        if self.value is None:
            raise BudgetSpent("the holdout's budget is spent: no further answers")
        return self.value


def checked_settings(
    threshold: float, failure: float, queries: int | None, *, secure: bool = True
) -> dict[str, Any]:
    """Return what a reusable holdout binds its ledger to, besides the calibration, or refuse it."""
    if not 0.0 <= threshold <= 1.0:
        raise InvalidArgument(f"{option('threshold')} must lie in [0, 1], not {threshold!r}")
    if not 0.0 < failure < 1.0:
        raise InvalidArgument(f"{option('failure')} must lie strictly between 0 and 1, not {failure!r}")
    if queries is not None and (isinstance(queries, bool) or not isinstance(queries, int) or queries < 1):
        raise InvalidArgument(f"{option('queries')} must be a whole number ≥ 1, not {queries!r}")
    return {
        "kind": "thresholdout",
        "threshold": float(threshold).hex(),
        "failure": float(failure).hex(),
        "queries": queries,
        "noise": "secure" if secure else "insecure, for tests",
    }


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
    failure
        β for the error bounds.
    queries
        The number of queries, if it is fixed beforehand: it makes the error bounds a little smaller.
        Answers to further queries come with the bound ∞.
    anchor
        The path of an anchor file, see :class:`quiltdp.Ledger`.
    noise
        Keyword for tests: ``InsecureDeterministicNoise(seed)``.

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
        anchor: str | Path | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        if not isinstance(calibration.mechanism, Thresholdout):
            raise InvalidArgument(
                f"calibration: it was made for {calibration.mechanism!r};"
                " a reusable holdout needs Thresholdout"
            )
        secure = noise is None or noise.secure
        settings = checked_settings(threshold, failure, queries, secure=secure)
        self._tables = TablePair(train, holdout)
        self._mechanism = ThresholdoutMechanism(
            calibration.mechanism, calibration.sigma, threshold, noise=noise
        )
        self._covered = self._mechanism.covers(Fraction(1, self._tables.rows))
        self.failure, self.queries = failure, queries
        if isinstance(ledger, Ledger):
            ledger.require(calibration, settings)
            self.ledger = ledger
        else:
            self.ledger = Ledger.open_or_create(ledger, calibration, settings=settings, anchor=anchor)
        budget = calibration.mechanism.budget
        self._open_share, self._answer_share = Fraction(4, 9 * budget), Fraction(5, 9 * budget)

    @classmethod
    def from_ledger(
        cls,
        train: Any,
        holdout: Any,
        ledger: str | Path | Ledger,
        *,
        anchor: str | Path | None = None,
        noise: NoiseSource | None = None,
    ) -> ReusableHoldout:
        """Go on with an existing ledger: calibration, threshold and the rest are read from it."""
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
            noise=noise,
        )

    # -- asking ----------------------------------------------------------------------------

    def ask(self, query: Query, *, key: str | None = None, label: str | None = None) -> Answer:
        """Answer one query; the entry is on the disk before the answer is returned.

        Parameters
        ----------
        query
            A callable on the data, giving one value in [0, 1] per row (its mean is asked; one row
            then moves it by 1/n) or one number in [0, 1] whose sensitivity the caller vouches for;
            or an expression over the columns.
        key
            An idempotency key: asking again with it returns the recorded answer at no cost.  Of a
            callable only the name is compared, so choose keys that name the question.
        label
            A note for the ledger.
        """
        return self.ask_many([query], keys=[key], labels=[label])[0]

    def ask_many(
        self,
        queries: Iterable[Query],
        *,
        keys: Sequence[str | None] | None = None,
        labels: Sequence[str | None] | None = None,
    ) -> list[Answer]:
        """Answer queries one after the other with one trip to the disk.

        The answers have the same law as asking one by one.  If one query is refused, none is
        answered and nothing is spent.
        """
        asked = list(queries)
        names = _aligned(keys, len(asked), "keys")
        notes = _aligned(labels, len(asked), "labels")
        requests = [describe(q) for q in asked]
        if all(n is not None for n in names):
            recorded = self._recorded(names, requests)
            if recorded is not None:  # repeats need no data
                return recorded
        pairs = [self._units(q) for q in asked]
        with self.ledger.transaction() as work:
            answers = self._answer_all(work, pairs, names, requests, notes)
        return answers

    def _recorded(self, keys: Sequence[str | None], requests: Sequence[str]) -> list[Answer] | None:
        """Return the recorded answers if every key has one."""
        with self.ledger.transaction() as work:
            found = [work.recall(key, request) for key, request in zip(keys, requests, strict=True)]
            if any(entry is None for entry in found):
                return None
            return [self._repeat(work, entry) for entry in found if entry is not None]

    def _units(self, query: Query) -> tuple[int, int, float]:
        """Return (holdout, training) in grid steps and the training value; refuse nonsense."""
        try:
            holdout, train = self._tables.evaluate(query)
        except InvalidOnHoldout as error:
            with self.ledger.transaction() as work:  # the owner should see that it happened
                work.append("refused")
            raise InvalidArgument(str(error)) from None
        self._check_sensitivity(holdout)
        units = self._mechanism.units
        return units(holdout.exact), units(train.exact), float(train.exact)

    def _check_sensitivity(self, value: Value) -> None:
        if value.statistical and not self._covered:
            raise InvalidArgument(
                f"the mean over {self._tables.rows} holdout rows moves by 1/{self._tables.rows} with one row;"
                f" the calibration covers only {self._mechanism.spec.sensitivity!r}"
            )

    def _answer_all(
        self,
        work: LedgerTransaction,
        pairs: Sequence[tuple[int, int, float]],
        keys: Sequence[str | None],
        requests: Sequence[str],
        labels: Sequence[str | None],
    ) -> list[Answer]:
        recalled = [work.recall(key, request) for key, request in zip(keys, requests, strict=True)]
        fresh = _first_of_each(keys, recalled)
        state = ThresholdoutState(work.head.answers, work.threshold())
        outcomes, _ = self._mechanism.run([pairs[k][:2] for k in fresh], state)
        made = {}
        for k, outcome in zip(fresh, outcomes, strict=True):
            made[k] = self._record(work, outcome, pairs[k][2], keys[k], requests[k], labels[k])
        answers = []
        for k, entry in enumerate(recalled):
            if k in made:
                answers.append(made[k])
                continue
            again = entry if entry is not None else work.recall(keys[k], requests[k])
            answers.append(self._spent() if again is None else self._repeat(work, again))
        return answers

    def _record(
        self,
        work: LedgerTransaction,
        outcome: Outcome,
        train_value: float,
        key: str | None,
        request: str,
        label: str | None,
    ) -> Answer:
        """Book one outcome and return its answer; ⊥ says nothing new and is not booked."""
        if outcome.opened is not None:
            work.open_epoch(outcome.opened, self._open_share)
        if outcome.source == "spent":
            return self._spent()
        if outcome.source == "train":
            work.append("train", value=train_value, key=key, request=request, label=label)
            value = train_value
        else:
            if outcome.units is None:
                raise InvalidArgument("an answer from the holdout has no value")
            value = self._mechanism.grid.value(outcome.units)
            work.close_epoch(value, self._answer_share, key=key, request=request, label=label)
        return self._answer(value, outcome.source, work.head.answers, work.head.queries)

    def _answer(
        self, value: float, source: Source, answers: int, number: int, repeated: bool = False
    ) -> Answer:
        bound = math.inf  # beyond the planned number of queries nothing is promised
        if self.queries is None or number <= self.queries:
            bound = self._mechanism.error_bound(
                source, failure=self.failure, queries=self.queries, number=number
            )
        return Answer(value, source, self._mechanism.spec.budget - answers, bound, repeated)

    def _spent(self) -> Answer:
        return Answer(None, "spent", 0, math.inf)

    def _repeat(self, work: LedgerTransaction, entry: Entry) -> Answer:
        if entry.kind not in ("train", "holdout") or entry.value is None:
            raise InvalidArgument(f"ledger entry {entry.seq} is not an answer")
        number = work.queries_until(entry)
        return self._answer(entry.value, entry.kind, work.head.answers, number, repeated=True)

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

    def scorer(self, rows: Callable[[Any, Any, Any], Any] | None = None) -> Callable[..., float]:
        """Return a scikit-learn scorer ``score(estimator, X, y)`` that answers through the holdout.

        The data of this object must be pairs ``(X, y)``; the X and y that scikit-learn passes are
        ignored, so use it with an estimator fitted on the training data, for instance in
        ``GridSearchCV(..., cv=[(indices, indices)], scoring=holdout.scorer())``.

        Parameters
        ----------
        rows
            ``rows(estimator, X, y)``: one value in [0, 1] per row; default: prediction is right.

        Raises
        ------
        BudgetSpent
            From the scorer, once the budget is spent.
        """
        score_rows = rows if rows is not None else _correct

        def score(estimator: Any, X: Any = None, y: Any = None) -> float:
            return float(self.ask(lambda data: score_rows(estimator, data[0], data[1]), label="score"))

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


def _first_of_each(keys: Sequence[str | None], recalled: Sequence[Entry | None]) -> list[int]:
    """Return the positions that need an answer: not recorded, and the first with their key."""
    seen: set[str] = set()
    fresh = []
    for k, (key, entry) in enumerate(zip(keys, recalled, strict=True)):
        if entry is not None or key in seen:
            continue
        if key is not None:
            seen.add(key)
        fresh.append(k)
    return fresh

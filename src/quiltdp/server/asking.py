"""Asking: one question, one charge, one answer, whatever is asked twice or breaks in between.

The question is written down with its reservation, in one transaction and under the study's lock: who asked,
under which key.  A second question under the key of a reservation that was never settled is refused: it is
charged, and what came out was never told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from quiltdp.accountant.ledger import Ledger
from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.accountant.ledger.entries import Entry
from quiltdp.accountant.ledger.requests import MAX_TEXT, keyed
from quiltdp.errors import BudgetSpent, Conflict, InvalidArgument, KeyReused, NotTold, Refused
from quiltdp.mechanisms.holdout import Answer, ReusableHoldout
from quiltdp.mechanisms.queries import describe
from quiltdp.server import database as db
from quiltdp.server.questions import Question
from quiltdp.server.store import ASKED, Asked, SqlRows, SqlStore, translated
from quiltdp.server.studies import Member, StudyFacts, read_data, read_study

__all__ = ["Conflict", "Receipt", "Study"]


@dataclass(frozen=True)
class Receipt:
    """An answer, what it promises and where it stands in the account.

    ``digest`` is that of the entry: whoever has the receipt can find it in an export and verify the chain.
    """

    value: float
    source: str
    error_bound: float
    population_bound: float | None
    confidence: float
    answers_left: int
    budget: int
    entry: int
    digest: str
    repeated: bool

    @property
    def left(self) -> str:
        """How many answers are left, in words."""
        return f"{self.answers_left} of {self.budget} left"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        bound = None if math.isinf(self.error_bound) else self.error_bound
        return {**vars(self), "error_bound": bound, "left": self.left}


class Study:
    """One study in a server: its data, its account, and nothing of who asks."""

    def __init__(self, engine: Engine, study: str, anchor: str | Path | None = None) -> None:
        self.engine, self.id = engine, study
        self.store = SqlStore(engine, study)
        self.ledger = Ledger(self.store, None if anchor is None else Anchor(anchor))
        with translated(self.store.path), engine.connect() as connection:
            train, holdout = read_data(connection, study)
            (self._salt,) = connection.execute(
                select(db.secrets.c.salt).where(db.secrets.c.study == study)
            ).one()
        self.holdout = ReusableHoldout.from_ledger(train, holdout, self.ledger, second=True)
        self.train, self._holdout_rows = train, holdout

    @property
    def facts(self) -> StudyFacts:
        """What everybody of the study may read, as it is now."""
        with translated(self.store.path), self.engine.connect() as connection:
            return read_study(connection, self.id)

    @property
    def budget(self) -> int:
        """How many answers may come from the holdout in all."""
        return int(self.ledger.terms.mechanism.answers or 0)

    def dry_run(self, question: Question) -> dict[str, Any]:
        """Return the answer on the training data and what asking would promise; it costs nothing."""
        query = question.query(self.facts.facts, self.train, self._holdout_rows)
        value = self.holdout.on_training(query)
        head = self.ledger.head
        bounds = self.holdout.next_bounds(head)
        return {
            "training_value": question.scaled(value),
            "cost": "one answer at most: none, if training and holdout agree within the noisy threshold",
            **{f"error_bound_from_{source}": question.stretched(bound) for source, bound in bounds.items()},
            "answers_left": self.budget - head.answers,
            "budget": self.budget,
        }

    def ask(self, member: Member, question: Question, key: str, label: str | None = None) -> Receipt:
        """Answer a question of a member, once for its key.

        Raises
        ------
        InvalidArgument
            For a question that makes no sense on the training data; nothing is charged.
        BudgetSpent
            If no answer is left: of the study, of its plan, or of the member's cap; nothing is charged.
        Conflict
            If the key was used for another question, or for one that was charged and never told.
        Refused
            If the study is closed, the token was taken away, or the database cannot be used now.
        """
        if not key or len(key) > MAX_TEXT:
            raise InvalidArgument(f"Idempotency-Key must be a text of 1 to {MAX_TEXT} characters")
        query = question.query(self.facts.facts, self.train, self._holdout_rows)
        mine = f"{member.id} {key}"
        request = keyed(self._salt, "request", describe(query, keyed=True))
        asked = Asked(
            member.id, keyed(self._salt, "key", mine), request, question.scaled(0.0), question.stretched(1.0)
        )
        context = ASKED.set(asked)
        try:
            answer = self.holdout.ask(query, key=mine, label=(label or question.text)[:MAX_TEXT])
            if answer.value is None:
                raise BudgetSpent("all answers of this study are used up")
        except Refused as error:
            raise self._conflict(asked) or error from None
        finally:
            ASKED.reset(context)
        return self._receipt(question, answer, self._entry(asked.key))

    @contextmanager
    def _rows(self) -> Iterator[SqlRows]:
        """Hold the account for reading: meanwhile nothing is half asked."""
        with self.ledger.reading() as (rows, _):
            if not isinstance(rows, SqlRows):
                raise TypeError("the account of a study is in its database")
            yield rows

    def _conflict(self, asked: Asked) -> Conflict | None:
        """Return what an earlier use of the key has against this one, if anything."""
        with self._rows() as rows:
            earlier = rows.question(asked.key)
        if earlier is not None and earlier["request"] != asked.request:
            return KeyReused("this Idempotency-Key was used for another question")
        if earlier is not None and earlier["answered"] is None:
            return NotTold("charged, not told: this question was interrupted, and stays charged")
        return None

    def _entry(self, key: str) -> Entry:
        with self._rows() as rows:
            entry = rows.find(key)
        if entry is None:
            raise Refused("the answer is not in the account, so it is not told")
        return entry

    def _receipt(self, question: Question, answer: Answer, entry: Entry) -> Receipt:
        population = answer.population_bound
        return Receipt(
            question.scaled(float(answer)),
            answer.source,
            question.stretched(answer.error_bound),
            None if population is None else question.stretched(population),
            1.0 - (answer.failure or 0.0),
            answer.remaining,
            self.budget,
            entry.seq,
            entry.digest,
            answer.repeated,
        )

    def answers_of(self, member: Member | None = None) -> list[dict[str, Any]]:
        """Return what was asked and told, by one member or by all, in order; charged and never told too."""
        with self._rows() as rows:
            entries = {entry.seq: entry for entry in rows.entries()}
            asked = rows.asked(None if member is None else member.id)
        return [_line(row, entries.get(row["answered"] or 0), entries[row["reserved"]]) for row in asked]


def _line(row: Mapping[str, Any], answer: Entry | None, reserve: Entry) -> dict[str, Any]:
    shown = {"member": row["member"], "who": row["who"], "reserved": row["reserved"]}
    if answer is None:
        return {**shown, "entry": None, "time": reserve.time, "source": "charged, not told"}
    value = None if answer.value is None else row["low"] + row["width"] * answer.value
    told = {"time": answer.time, "source": answer.kind, "value": value, "label": answer.label}
    return {**shown, **told, "entry": answer.seq, "digest": answer.digest}

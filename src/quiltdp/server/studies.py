"""Studies and their members: who may do what, and the data that nobody who asks can read."""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.accountant.ledger.entries import genesis_digest
from quiltdp.accountant.ledger.ledger import new_genesis
from quiltdp.accountant.ledger.requests import keyed, storable
from quiltdp.accountant.ledger.visit import now
from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.mechanisms.cells import WrittenColumns, missing, text_of
from quiltdp.mechanisms.holdout import checked_settings
from quiltdp.mechanisms.queries import TablePair
from quiltdp.mechanisms.thresholdout import Thresholdout
from quiltdp.server import database as db
from quiltdp.server.questions import independence
from quiltdp.server.store import create_account

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = [
    "Member",
    "Role",
    "StudyFacts",
    "add_member",
    "close_study",
    "create_study",
    "find_member",
    "member_by_id",
    "members_of",
    "read_study",
    "revoke",
]

Role = Literal["owner", "analyst", "auditor"]


@dataclass(frozen=True)
class Member:
    """Somebody who has a token of a study."""

    id: str
    study: str
    name: str
    role: Role
    created: str
    expires: str | None = None
    revoked: str | None = None
    cap: int | None = None

    @property
    def active(self) -> bool:
        """Whether the token is taken now."""
        return self.revoked is None and (self.expires is None or self.expires > now())


@dataclass(frozen=True)
class StudyFacts:
    """What everybody of a study may read."""

    id: str
    name: str
    created: str
    closed: str | None
    facts: Mapping[str, Any]


def create_study(
    engine: Engine,
    name: str,
    train: Mapping[str, Sequence[Any]],
    holdout: Mapping[str, Sequence[Any]],
    terms: Mapping[str, Any],
    *,
    train_is_public: bool,
    assumptions: Sequence[str] = (),
    row_id: str | None = None,
    target: str | None = None,
    predictions: str | None = None,
    model: Model | None = None,
    protect: Mapping[str, Collection[str]] | None = None,
    anchor: str | Path | None = None,
) -> tuple[str, str]:
    """Make a study and its owner; return the study's id and the owner's token, which is shown once.

    Parameters
    ----------
    terms
        Calibration, threshold and the rest, as ``read_holdout_arguments`` reads them from a plan.
    train_is_public
        The owner says that everybody who asks may see the training data: a dry run shows its answers.
    row_id
        The column that names rows, for predictions; without it rows are numbered from 1.
    target
        The column that predictions are compared with.
    predictions
        The owner's declaration that predictions may be scored: that the plan was made for labels *given*
        features.  Without it the model decides, see :func:`.independence`.
    model
        Certify the calibration anew, against its model.
    protect
        The sets of records that the calibration protects together, if it does.
    anchor
        A file outside the database that remembers how far the account had come.

    Raises
    ------
    InvalidArgument
        For data or a plan that make no holdout.
    Refused
        If another study keeps the account of the same data.
    """
    if not train_is_public:
        raise InvalidArgument(
            "asking without cost (a dry run) shows the training data's answers: say that whoever asks may see"
            f" the training data, with {option('train_is_public', True)}"
        )
    _require_name("study", name)
    terms = dict(terms)
    calibration = terms.pop("calibration")
    if not isinstance(calibration.mechanism, Thresholdout):
        raise InvalidArgument(f"calibration: {calibration.mechanism!r}; a holdout needs Thresholdout")
    train, holdout = _written(train), _written(holdout)
    pair = TablePair(train, holdout)
    for which, column in (("row_id", row_id), ("target", target)):
        if column is not None and not (column in train and column in holdout):
            raise InvalidArgument(f"{option(which)}: there is no column {column!r}")
    for which, part in (("train", train), ("holdout", holdout)):
        if row_id is not None:
            _require_distinct(row_id, part[row_id], which)
    if pair.identity is None:
        raise InvalidArgument("the holdout data cannot be told apart from others")
    settings = checked_settings(**terms)
    guard = None if anchor is None else Anchor(anchor)
    if guard is not None:
        if engine.dialect.name == "sqlite":
            guard.refuse_beside(str(engine.url.database))
        if guard.read() is not None:
            raise Refused(f"{anchor}: this anchor knows another account; name a file that does not exist yet")
    together = {} if protect is None else {"protect": protect}
    genesis, salt = new_genesis(calibration, settings, guard is not None, model, **together)
    refused = None
    if predictions is None:
        predictions, refused = independence(model, calibration.protected, protect)
    study = str(genesis["id"])
    facts = {
        "rows": pair.rows,
        "train_rows": pair.train_rows,
        "columns": list(train),
        "row_id": row_id,
        "target": target,
        "predictions": predictions,
        "predictions_refused": refused,
        "assumptions": list(assumptions),
        "data": keyed(salt, "data", pair.identity),
    }
    row = {"id": study, "name": name, "identity": pair.identity, "created": now(), "facts": json.dumps(facts)}
    try:
        with engine.begin() as connection:
            connection.execute(
                insert(db.studies), {**row, "train": packed(train), "holdout": packed(holdout)}
            )
            create_account(connection, study, genesis, salt, calibration.mechanism.budget)
            token = _join(connection, study, "owner", "owner")[1]
            if guard is not None:  # first: an account whose anchor was never written could not be used
                guard.advance(study, 0, genesis_digest(genesis))
    except IntegrityError:
        raise Refused(
            "another study keeps the account of the same holdout data: go on with that one;"
            " two accounts of the same data would not know of each other"
        ) from None
    return study, token


def _written(columns: Mapping[str, Sequence[Any]]) -> WrittenColumns:
    """Return columns of cells as texts, empty where a cell is missing: what is stored, and read again."""
    return WrittenColumns(
        {name: ["" if missing(c) else str(c) for c in cells] for name, cells in columns.items()}
    )


def _require_distinct(column: str, cells: Sequence[str], part: str) -> None:
    """Refuse a column that does not name rows."""
    if len({*map(text_of, cells)} - {""}) != len(cells):
        raise InvalidArgument(
            f"{option('row_id')}: {column!r} names two rows of {part} alike, or does not name one"
        )


def _require_name(what: str, name: str) -> None:
    if not name.strip() or len(name) > 100 or not storable(name):
        raise InvalidArgument(f"a {what} needs a name of at most 100 characters")


def read_study(connection: Connection, study: str) -> StudyFacts:
    """Return what a study is, without its data."""
    columns = (
        db.studies.c.id,
        db.studies.c.name,
        db.studies.c.created,
        db.studies.c.closed,
        db.studies.c.facts,
    )
    row = connection.execute(select(*columns).where(db.studies.c.id == study)).one()
    return StudyFacts(*row[:4], json.loads(row[4]))


def read_data(connection: Connection, study: str) -> tuple[WrittenColumns, WrittenColumns]:
    """Return training and holdout data."""
    chosen = select(db.studies.c.train, db.studies.c.holdout).where(db.studies.c.id == study)
    train, holdout = connection.execute(chosen).one()
    return unpacked(train), unpacked(holdout)


def close_study(connection: Connection, study: str) -> None:
    """Answer nothing more; what was answered stays, and can be verified."""
    mine = (db.studies.c.id == study) & db.studies.c.closed.is_(None)
    connection.execute(update(db.studies).where(mine).values(closed=now()))


# -- members -------------------------------------------------------------------------------


def add_member(
    connection: Connection, study: str, name: str, role: str, days: int | None = None, cap: int | None = None
) -> tuple[Member, str]:
    """Add a member; return it and its token, which is stored hashed and shown once.

    Parameters
    ----------
    days
        The token is taken for so many days; without a number until it is revoked.
    cap
        How many answers of the holdout an analyst may use up, inside the account of all.
    """
    if role not in get_args(Role):
        raise InvalidArgument(f"{option('role')} must be owner, analyst or auditor, not {role!r}")
    _require_name("member", name)
    for what, number in (("days", days), ("cap", cap)):
        if number is not None and not (type(number) is int and 1 <= number <= 100_000):
            raise InvalidArgument(f"{option(what)} must be a whole number from 1 to 100,000, not {number}")
    if cap is not None and role != "analyst":
        raise InvalidArgument(f"{option('cap')} limits an analyst; a member of role {role!r} asks nothing")
    return _join(connection, study, name.strip(), role, days, cap)


def _join(
    connection: Connection, study: str, name: str, role: Any, days: int | None = None, cap: int | None = None
) -> tuple[Member, str]:
    token = "qdp_" + secrets.token_urlsafe(32)
    end = None if days is None else (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    member = Member(secrets.token_hex(6), study, name, role, now(), end, None, cap)
    connection.execute(insert(db.members), {**vars(member), "token": digest_of(token)})
    return member, token


_MEMBER = [db.members.c[name] for name in Member.__dataclass_fields__]


def find_member(connection: Connection, token: str) -> Member | None:
    """Return the active member of a token."""
    row = connection.execute(select(*_MEMBER).where(db.members.c.token == digest_of(token))).first()
    member = None if row is None else Member(*row)
    return member if member is not None and member.active else None


def member_by_id(connection: Connection, member: str) -> Member | None:
    """Return a member, whatever became of the token."""
    row = connection.execute(select(*_MEMBER).where(db.members.c.id == member)).first()
    return None if row is None else Member(*row)


def members_of(connection: Connection, study: str) -> list[Member]:
    """Return the members of a study in the order they came."""
    chosen = select(*_MEMBER).where(db.members.c.study == study)
    return [
        Member(*row) for row in connection.execute(chosen.order_by(db.members.c.created, db.members.c.id))
    ]


def revoke(connection: Connection, study: str, member: str) -> None:
    """Take no token of a member from now on; the last owner stays."""
    study_row = select(db.studies.c.id).where(db.studies.c.id == study)
    connection.execute(study_row.with_for_update(key_share=True))  # or two owners could revoke each other
    active = [m for m in members_of(connection, study) if m.active]
    if not any(m.id == member for m in active):
        raise InvalidArgument(f"there is no active member {member!r}")
    if [m.id for m in active if m.role == "owner"] == [member]:
        raise Refused("this is the last owner: add another one first")
    connection.execute(update(db.members).where(db.members.c.id == member).values(revoked=now()))
    connection.execute(db.sessions.delete().where(db.sessions.c.member == member))


def digest_of(token: str) -> str:
    """Return what is stored of a token: 256 random bits need no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


# -- data ----------------------------------------------------------------------------------


def packed(columns: WrittenColumns) -> bytes:
    """Return columns of cells as they were written, compressed."""
    return gzip.compress(json.dumps(columns).encode(), mtime=0)


def unpacked(data: bytes) -> WrittenColumns:
    """Return what :func:`packed` was given."""
    return WrittenColumns(json.loads(gzip.decompress(data)))

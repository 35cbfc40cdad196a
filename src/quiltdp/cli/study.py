"""``quiltdp study create|member|close|rights``: the studies of a database, from the shell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.app import emit_json
from quiltdp.cli.holdout import read_columns, read_terms
from quiltdp.cli.show import say
from quiltdp.errors import FileFormatError, InvalidArgument, Refused, need

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_TOKEN = "QUILTDP_TOKEN"
_DECLARED = "the owner declares that the plan was made for labels given features"


def create(
    *,
    train: Path,
    holdout: Path,
    database: str,
    plan: Path,
    name: str | None = None,
    model: Path | None = None,
    row_id: str | None = None,
    target: str | None = None,
    labels_given_features: bool = False,
    train_is_public: bool = False,
    anchor: Path | None = None,
    role: str | None = None,
    json: bool = False,
) -> None:
    """Make a study: a holdout whose analysts ask a server, and never see the data.

    The data are copied into the database, which is made if there is none.  The owner's token is printed once:
    whoever has it adds members and closes the study.  Then 'quiltdp serve --database …' answers.

    Reading
    -------
    train : CSV
        The training data, which everybody who asks may see.
    holdout : CSV
        The holdout data, which nobody sees.
    database : URL
        sqlite:///FILE for one server; postgresql://HOST/NAME for several (its password: PGPASSWORD or
        ~/.pgpass).
    row_id : COLUMN
        The column that names rows, for predictions; default: rows are numbered from 1.
    target : COLUMN
        The column that predictions are compared with.

    Model
    -----
    model : MODEL
        Certify the calibration anew, against its model; it also says whether predictions may be scored.

    Release
    -------
    plan : FILE
        What 'quiltdp plan … --json' printed: all of it is kept.
    name : NAME
        What the study is called; default: the name of the holdout's file.
    train_is_public
        Whoever asks may see the training data: asking costs nothing as long as they answer.
    labels_given_features
        The plan was made for labels given features: score predictions whatever the model says.
    role : NAME
        PostgreSQL: the role of the servers, which gets the rights to answer and no others.

    Examples
    --------
    $ quiltdp study create --train train.csv --holdout holdout.csv --plan p.json --train-is-public --database sqlite:///s.db
    """
    _need_server()
    from quiltdp.io.load import load_model
    from quiltdp.server.database import grant, make_tables
    from quiltdp.server.studies import create_study, read_study

    terms = read_terms(plan, None, None, 0.05, None)
    loaded = None if model is None else load_model(model)
    data = read_columns(train), read_columns(holdout)
    options: dict[str, Any] = {
        "train_is_public": train_is_public,
        "assumptions": _assumptions(plan),
        "row_id": row_id,
        "target": target,
        "predictions": _DECLARED if labels_given_features else None,
        "model": loaded,
        "anchor": anchor,
    }
    with _engine(database) as engine, _made_or_nothing(engine):
        make_tables(engine)
        study, token = create_study(engine, name or holdout.stem, *data, terms, **options)
        with engine.connect() as connection:
            found = read_study(connection, study)
        if role is not None:
            grant(engine, role)
    facts = found.facts
    answers = terms["calibration"].mechanism.answers
    if json:
        told = {"study": study, "name": found.name, "token": token, "answers": answers}
        keys = ("rows", "train_rows", "row_id", "target", "predictions", "predictions_refused")
        emit_json("study-create", {**told, **{key: facts[key] for key in keys}})
        return
    say(f"study {study}: {answers} answers may come from the holdout of {facts['rows']} rows")
    if target is not None:
        why = facts["predictions"] or f"no, {facts['predictions_refused']}"
        say(f"predictions of {target!r} are scored: {why}")
    say(f"the owner's token, shown this once: {token}")


def member(
    *,
    database: str,
    name: str,
    role: str,
    days: int | None = None,
    cap: int | None = None,
    study: str | None = None,
    json: bool = False,
) -> None:
    """Add a member to a study, and print its token once.

    It is the owner who does so: with the token in QUILTDP_TOKEN, or without one by having access to the
    database.

    Reading
    -------
    database : URL
        As 'quiltdp study create' was given.
    study (--id) : ID
        Which study, where the database has several.

    Release
    -------
    name : NAME
        Who it is.
    role : ROLE
        owner (members, closing), analyst (asks) or auditor (reads the whole account).
    days : N >= 1
        The token expires after so many days; default: when it is revoked.
    cap : N >= 1
        How many answers of the holdout this analyst may use up.

    Examples
    --------
    $ quiltdp study member --database sqlite:///study.db --name ann --role analyst --days 90 --cap 5
    """
    _need_server()
    from quiltdp.server.studies import add_member

    with _owned(database, study) as (connection, found):
        made, token = add_member(connection, found, name, role, days, cap)
    if json:
        told = {"study": found, "member": made.id, "name": made.name, "role": role}
        emit_json("study-member", {**told, "expires": made.expires, "cap": cap, "token": token})
        return
    until = "until it is revoked" if made.expires is None else f"until {made.expires}"
    say(f"{made.name} is {role} of study {found}, {until}")
    say(f"the token, shown this once: {token}")


def close(*, database: str, study: str | None = None, json: bool = False) -> None:
    """Close a study: nothing more is answered, and what was answered stays.

    Reading
    -------
    database : URL
        As 'quiltdp study create' was given.
    study (--id) : ID
        Which study, where the database has several.

    Examples
    --------
    $ quiltdp study close --database sqlite:///study.db
    """
    _need_server()
    from quiltdp.server.studies import close_study, read_study

    with _owned(database, study) as (connection, found):
        close_study(connection, found)
        closed = read_study(connection, found).closed
    if json:
        emit_json("study-close", {"study": found, "closed": closed})
    else:
        say(f"study {found} is closed since {closed}")


def rights(*, database: str, role: str, json: bool = False) -> None:
    """Give the role of the servers its rights, on PostgreSQL.

    It may insert entries and neither change nor delete one; it cannot make studies, nor change what was
    promised.

    Reading
    -------
    database : URL
        As 'quiltdp study create' was given.

    Release
    -------
    role : NAME
        The role, which exists already.

    Examples
    --------
    $ quiltdp study rights --database postgresql://localhost/studies --role quiltdp_app
    """
    _need_server()
    from quiltdp.server.database import grant

    with _engine(database) as engine:
        grant(engine, role)
    if json:
        emit_json("study-rights", {"role": role})
    else:
        say(f"{role} may answer, and change no entry")


def _need_server() -> None:
    for module in ("sqlalchemy", "psycopg"):
        need(module, "a study", "server")


def _assumptions(plan: Path) -> list[str]:
    """Return what a plan, which was read already, rests on."""
    from json import loads

    from quiltdp.io.text import read_text

    said = loads(read_text(plan)).get("assumptions", [])
    if not isinstance(said, list) or not all(isinstance(line, str) for line in said):
        raise FileFormatError(plan, None, "its assumptions are no list of texts")
    return said


@contextmanager
def _engine(database: str) -> Iterator[Engine]:
    from quiltdp.server.database import opened, shown
    from quiltdp.server.store import translated

    engine = opened(database)
    try:
        with translated(shown(engine)):
            yield engine
    finally:
        engine.dispose()


@contextmanager
def _made_or_nothing(engine: Engine) -> Iterator[None]:
    """Remove a file that was made for a study that could not be made."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    fresh = file is not None and not os.path.lexists(file)
    try:
        yield
    except BaseException:
        if fresh:
            engine.dispose()
            with suppress(OSError):
                os.unlink(str(file))
        raise


@contextmanager
def _owned(database: str, study: str | None) -> Iterator[tuple[Connection, str]]:
    """Begin a change that only the owner of a study may make; return the study too."""
    from sqlalchemy import select

    from quiltdp.server.database import studies
    from quiltdp.server.studies import find_member

    token = os.environ.get(_TOKEN, "")
    with _engine(database) as engine, engine.begin() as connection:
        known = list(connection.execute(select(studies.c.id)).scalars())
        if token:
            owner = find_member(connection, token)
            if owner is None or owner.role != "owner":
                raise Refused(f"{_TOKEN}: this is no owner's token, or it is taken no more")
            known = [owner.study]
        if study is None and len(known) > 1:
            raise InvalidArgument(f"this database has {len(known)} studies: say which with --id ID")
        if not known or (study is not None and study not in known):
            raise InvalidArgument(
                "there is no study here" + ("" if study is None else f" with the id {study!r}")
            )
        yield connection, study or known[0]

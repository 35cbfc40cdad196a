"""Databases for the tests of the service: files of SQLite, and one real PostgreSQL for all of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

_NUMBER = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the address of a PostgreSQL: that of QUILTDP_TEST_POSTGRES, or one started from PyPI."""
    if "QUILTDP_TEST_POSTGRES" in os.environ:
        yield os.environ["QUILTDP_TEST_POSTGRES"]
        return
    pgserver = pytest.importorskip("pgserver", reason="no PostgreSQL: set QUILTDP_TEST_POSTGRES to test it")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(folder)
        yield server.get_uri()
        server.cleanup()


def _made(postgres: str, template: str = "template1") -> str:
    """Make a database in the server and return its address."""
    name = f"quiltdp_{os.getpid()}_{next(_NUMBER)}"
    engine = create_engine(make_url(postgres).set(drivername="postgresql+psycopg"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f'CREATE DATABASE {name} TEMPLATE "{template}"')
    engine.dispose()
    return make_url(postgres).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def new_postgres(postgres: str) -> Callable[..., str]:
    """Make a database, empty or a copy of another one; return its address."""
    return lambda template="template1": _made(postgres, template)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, quick_path: Path) -> str:
    """Return the address of an empty database: of SQLite, then of PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{quick_path / 'study.db'}"
    return str(request.getfixturevalue("new_postgres")())

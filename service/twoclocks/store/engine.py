"""The connection to the database: how it is opened, what a transaction is, how its failures read.

SQLite and PostgreSQL give the same promises here: a write transaction that has committed survives the death
of the process, and a read transaction sees one moment. No error of a driver leaves this module as it is.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session

from twoclocks.errors import StartError, UnavailableError

BUSY_TIMEOUT_MS = 15_000
DAMAGED = "is damaged; put a copy of it back, or set TWOCLOCKS_DATABASE_URL to another file"
NO_SCHEMA = "the database has no schema; run `twoclocks db upgrade`"


class Database:
    """One engine with `read()` and `write()` sessions.

    On SQLite every write begins with BEGIN IMMEDIATE: a transaction that reads first and writes later would
    otherwise fail at once, whatever the busy timeout, when another process wrote in between. Writers of this
    process queue at a lock, which is fair where SQLite's own polling is not; other processes are waited for
    by the busy timeout. On PostgreSQL the lock of the run's row is what serialises its writers.
    """

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(self.url) if self.is_sqlite else _server_engine(self.url)
        self._writers = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one moment of the database and writes nothing."""
        with translated(), Session(self.engine, expire_on_commit=False) as session:
            if not self.is_sqlite:
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose whole block is one transaction: committed at its end, undone by an exception."""
        if self.is_sqlite:
            with (
                self._writers,
                translated(),
                Session(self.engine.execution_options(immediate=True), autoflush=False) as session,
                session.begin(),
            ):
                yield session
        else:
            with translated(), Session(self.engine, autoflush=False) as session, session.begin():
                yield session

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()


def parse_url(url: str) -> URL:
    """The URL, or a StartError that says what one looks like."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StartError(
            "the database URL cannot be read; write sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
        ) from None
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StartError(
            "a SQLite database in memory would lose every report at the end; write sqlite:///FILE"
        )
    return parsed


def shown(url: URL) -> str:
    """The URL as it may be shown: without its password."""
    return url.render_as_string(hide_password=True)


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        pool_size=20,
        max_overflow=20,
    )

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # sqlite3 must not begin or commit behind SQLAlchemy's back
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        # FULL, not NORMAL: with NORMAL a commit in WAL mode outlives the process but not the machine, and an
        # acknowledged report must outlive both: the client has dropped it from its spool by then. It costs
        # one fsync a batch (a batch is up to 1,000 reports).
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _server_engine(url: URL) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True, pool_size=20, max_overflow=20)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StartError(
            f"no driver for {shown(url)}: {error}; for PostgreSQL: pip install 'psycopg[binary]'"
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the database cannot do just now into UnavailableError; leave our own mistakes as they are."""
    try:
        yield
    except DBAPIError as error:
        reason = temporary(error)
        if reason is None:
            raise
        raise UnavailableError(f"{reason}; nothing of this request was stored, send it again") from error


def temporary(error: DBAPIError) -> str | None:
    """In words, why the database cannot do it just now; None where the fault is not the database's state."""
    original = error.orig
    if isinstance(original, sqlite3.DatabaseError) and _is_damaged(str(original)):
        return f"the database file {DAMAGED}"
    if isinstance(original, sqlite3.OperationalError):
        text = str(original)
        for mark, reason in (
            ("locked", "the database is locked by another process"),
            ("disk is full", "the disk of the database is full"),
            ("readonly", "the database is read-only"),
            ("unable to open", "the database file cannot be opened"),
            ("disk I/O", "the disk of the database fails"),
            ("no such table", NO_SCHEMA),
        ):
            if mark in text:
                return reason
        return None
    if type(original).__name__ == "UndefinedTable":
        return NO_SCHEMA
    if error.connection_invalidated or type(original).__name__ in {
        "OperationalError",
        "AdminShutdown",
        "DeadlockDetected",
        "SerializationFailure",
        "InterfaceError",
    }:
        return "the database does not answer"
    return None


def _is_damaged(text: str) -> bool:
    """Whether SQLite says this of a file whose content is no database any more."""
    return "malformed" in text or "not a database" in text


def start_failure(url: URL, error: Exception) -> StartError:
    """What a failure to open or migrate the database means, as the one line of a StartError."""
    original = error.orig if isinstance(error, DBAPIError) else error
    text = str(original).strip().splitlines()[0] if str(original).strip() else type(original).__name__
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "").absolute()
        if "unable to open" in text:
            hint = "the folder does not exist" if not path.parent.is_dir() else "no permission to write there"
            return StartError(
                f"cannot open the database {path}: {hint}; set TWOCLOCKS_DATABASE_URL to a writable file"
            )
        if "readonly" in text or "read-only" in text:
            return StartError(
                f"the database {path} is read-only; make it writable or set TWOCLOCKS_DATABASE_URL"
            )
        if isinstance(error, DatabaseError) and "not a database" in text:
            return StartError(f"{path} is not a SQLite database; set TWOCLOCKS_DATABASE_URL to another file")
        if _is_damaged(text):
            return StartError(f"the database {path} {DAMAGED}")
        return StartError(
            f"cannot use the database {path}: {text}; make room or set TWOCLOCKS_DATABASE_URL to another file"
            if "full" in text
            else f"cannot use the database {path}: {text}; set TWOCLOCKS_DATABASE_URL to another file"
        )
    return StartError(f"cannot reach the database {shown(url)}: {text}; is it up, and is the URL right?")

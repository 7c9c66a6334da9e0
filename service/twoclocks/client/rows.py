"""The spool's SQL: what waits to be sent, as rows of one SQLite database, a file or memory.

The rollback journal rather than the write-ahead log of SQLite: home folders on network file systems are
common where models are trained, and the log needs memory shared on one host. Row ids are never used twice,
so that two processes on one file cannot delete each other's rows by mistake.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["report", "ack", "finish"]

SCHEMA_VERSION = 1
BUSY_SECONDS = 5.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (attempt INTEGER PRIMARY KEY, spec TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    generation INTEGER,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS items_by_attempt ON items (attempt);
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to send: `body` is the wire's JSON, `generation` the directive that an ack answers."""

    kind: Kind
    attempt: int
    body: str
    generation: int | None = None
    id: int = 0


class CorruptError(Exception):
    """The file is no spool, or no longer a readable one."""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the file: the same call may succeed later."""
    return _code(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file's content is at fault, not the disk below it."""
    return _code(error) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_moved(error: sqlite3.Error) -> bool:
    """Whether the file was deleted or moved away under the open connection."""
    return _code(error) == sqlite3.SQLITE_READONLY_DBMOVED


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", None) or 0


class Rows:
    """An open spool database. Raises sqlite3.Error; the caller lets one thread in at a time."""

    def __init__(self, path: Path | None) -> None:
        """Open or make the database; None means memory. Raises CorruptError, sqlite3.Error, OSError."""
        self.rows = 0
        self.bytes = 0
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = sqlite3.connect(
            path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._db.close()
            if is_corrupt(error):
                raise CorruptError(str(error)) from error
            raise
        except CorruptError:
            self._db.close()
            raise

    def _prepare(self) -> None:
        db = self._db
        self._file = self._stat()
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA synchronous = NORMAL")
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise CorruptError(" ".join(str(found).split()))
        with self._transaction():
            version = db.execute("PRAGMA user_version").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version != SCHEMA_VERSION and (version or tables):
                raise CorruptError(f"it is not a spool of version {SCHEMA_VERSION}")
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._count()

    def insert(self, items: Sequence[Item]) -> None:
        """Append, all or none; on disk when it returns, where there is a disk."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO items (attempt, kind, generation, body) VALUES (?, ?, ?, ?)",
                [(item.attempt, item.kind, item.generation, item.body) for item in items],
            )
        self.rows += len(items)
        self.bytes += sum(len(item.body) for item in items)
        self._recount_if_shared()

    def head(self, most: int, most_bytes: int) -> list[Item]:
        """Return the oldest items that make one request: reports of one attempt, one ack, or one finish."""
        self._recount_if_shared()
        rows = self._db.execute(
            "SELECT kind, attempt, body, generation, id FROM items ORDER BY attempt, id LIMIT ?", (most,)
        )
        taken: list[Item] = []
        size = 0
        for row in rows:
            item = Item(*row)
            size += len(item.body)
            if taken and (item.kind != "report" or item.attempt != taken[0].attempt or size > most_bytes):
                break
            taken.append(item)
            if item.kind != "report":
                break
        rows.close()
        return taken

    def everything(self) -> Iterator[Item]:
        """Yield what can still be read, in the order in which it was added."""
        for row in self._db.execute("SELECT kind, attempt, body, generation, id FROM items ORDER BY id"):
            yield Item(*row)

    def remove(self, items: Sequence[Item]) -> int:
        """Delete these; returns how many were still there."""
        gone = size = 0
        with self._transaction():
            for item in items:
                if self._db.execute("DELETE FROM items WHERE id = ?", (item.id,)).rowcount:
                    gone, size = gone + 1, size + len(item.body)
        self.rows -= gone
        self.bytes -= size
        self._recount_if_shared()
        return gone

    def thin(self, after: int) -> int:
        """Delete every second report above id `after`, never the oldest or newest; returns how many went."""
        with self._transaction():
            gone = self._db.execute(
                "DELETE FROM items WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER w AS n, "
                "count(*) OVER () AS total FROM items WHERE kind = 'report' AND id > ? "
                "WINDOW w AS (ORDER BY attempt, id)) WHERE n % 2 = 0 AND n < total)",
                (after,),
            ).rowcount
        self._count()
        return gone

    def remember(self, attempt: int, spec: str) -> None:
        """Keep the attempt's spec; specs of older attempts go with their last item."""
        with self._transaction():
            self._db.execute("DELETE FROM attempts WHERE attempt NOT IN (SELECT attempt FROM items)")
            self._db.execute("INSERT OR REPLACE INTO attempts (attempt, spec) VALUES (?, ?)", (attempt, spec))

    def specs(self) -> dict[int, str]:
        """Return the specs kept, by attempt."""
        return dict(self._db.execute("SELECT attempt, spec FROM attempts ORDER BY attempt"))

    def still_at(self, path: Path) -> bool:
        """Whether the file at `path` is the one this database was opened on."""
        return self._file == identity(path)

    def delete_if_empty(self, path: Path) -> None:
        """Delete the file where nothing waits in it. A process that has it open notices at its next write."""
        with self._transaction("EXCLUSIVE"):
            self._count()
            if not self.rows and self.still_at(path):
                path.unlink()

    def close(self) -> None:
        """Close the database; closing again changes nothing."""
        self._db.close()

    @contextmanager
    def _transaction(self, kind: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _recount_if_shared(self) -> None:
        if self._db.execute("PRAGMA data_version").fetchone()[0] != self._version:
            self._count()

    def _count(self) -> None:
        self._version = self._db.execute("PRAGMA data_version").fetchone()[0]
        self.rows, self.bytes = self._db.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM items"
        ).fetchone()

    def _stat(self) -> tuple[int, int] | None:
        name = self._db.execute("PRAGMA database_list").fetchone()[2]
        return identity(Path(name)) if name else None


def identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at `path` now, whatever its name was; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

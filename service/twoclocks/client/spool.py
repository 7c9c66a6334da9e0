"""The write-ahead spool: where reports wait until the service has acknowledged them.

It promises never to raise and never to lose silently. One file per (service, run), so that the next process
of the run, started after a crash, finds what the last one left. What can go wrong with a disk:

    file corrupt              moved aside to `.corrupt-<n>`, what is readable carried over, a new one begun
    file deleted              begun anew, what waited is carried over
    no disk, full, read-only  the spool goes on in memory, within the same bound
    held by another process   the caller is told to try again

**The bound, and what to shed.** When the waiting reports outgrow `limit` bytes, every second of them is shed,
the oldest and the newest kept, and again when full again. So a long outage leaves the whole run in view, the
older the coarser, instead of a hole. That is the loss the clocks feel least: a report's drift is spread over
the samples since the last one, so an outline of all settings keeps the drift, where a hole would lend its
whole width to the one setting at its end, and refusing the newest would stop the clocks. Acks and the finish
are never shed.
"""

import hashlib
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from twoclocks.client.ledger import Ledger
from twoclocks.client.rows import CorruptError, Item, Rows, identity, is_busy, is_corrupt, is_moved

T = TypeVar("T")

MOST_FILES = 5
"""New files that one process makes in place of failing ones before it goes on in memory."""


def default_folder(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """$TWOCLOCKS_SPOOL_DIR, else the platform's user cache folder; a temporary one where there is no home."""
    if named := environ.get("TWOCLOCKS_SPOOL_DIR"):
        return Path(named)
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "twoclocks" / "spool"
    if cache := environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "twoclocks" / "spool"
    try:
        home = Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "twoclocks" / "spool"
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "twoclocks" / "spool"


def file_of(folder: Path, url: str, run: str) -> Path:
    """The spool file of this run at this service."""
    key = hashlib.sha256(f"{url}\n{run}".encode()).hexdigest()[:16]
    return folder / f"{run}-{key}.sqlite3"


class Spool:
    """Rows on disk as long as that works. Safe between threads, and between processes on one file."""

    def __init__(self, path: Path, *, limit: int, ledger: Ledger) -> None:
        """Open the spool at `path`, or one in memory where that fails; `limit` in bytes of JSON."""
        self._path = path
        self._limit = limit
        self._ledger = ledger
        self._lock = threading.Lock()
        self._sending = 0
        self._replaced = 0
        self.durable = True
        self._rows = self._open()

    @property
    def rows(self) -> int:
        """How many items wait."""
        return self._rows.rows

    @property
    def bytes(self) -> int:
        """How many bytes of JSON wait."""
        return self._rows.bytes

    @property
    def where(self) -> str:
        """Where they wait, for a log line."""
        return str(self._path) if self.durable else "memory"

    def add(self, items: Sequence[Item]) -> bool:
        """Append the items; False where another process holds the file: try again."""

        def insert(rows: Rows) -> bool:
            rows.insert(items)
            return True

        with self._lock:
            if not self._do(insert, busy=False):
                return False
            self._shed_to_limit()
            return True

    def head(self, most: int, most_bytes: int) -> list[Item]:
        """Return the oldest items that one request carries (see Rows.head); none where the file is held."""
        with self._lock:
            nothing: list[Item] = []
            items = self._do(lambda rows: rows.head(most, most_bytes), busy=nothing)
            self._sending = items[-1].id if items else 0
            return items

    def remove(self, items: Sequence[Item]) -> int:
        """Delete acknowledged items; returns how many were still there. Those that stay are sent again."""
        with self._lock:
            return self._do(lambda rows: rows.remove(items), busy=0)

    def remember(self, attempt: int, spec: str) -> None:
        """Keep the spec of this attempt for as long as items of it may wait."""
        with self._lock:
            self._do(lambda rows: rows.remember(attempt, spec), busy=None)

    def specs(self) -> dict[int, str]:
        """Return the specs kept, by attempt."""
        with self._lock:
            nothing: dict[int, str] = {}
            return self._do(lambda rows: rows.specs(), busy=nothing)

    def close(self) -> None:
        """Close the file. What waits in it stays there; where nothing waits, the file goes."""
        with self._lock:
            if self.durable:
                with suppress(sqlite3.Error, OSError):
                    self._rows.delete_if_empty(self._path)
            self._rows.close()

    def _do(self, work: Callable[[Rows], T], *, busy: T) -> T:
        while True:
            try:
                return work(self._rows)
            except sqlite3.Error as error:
                if is_busy(error):
                    self._ledger.say("busy", f"another process holds the spool {self._path}; waiting for it")
                    return busy
                if not self.durable:
                    raise
                self._replace(error)

    def _shed_to_limit(self) -> None:
        while self._rows.bytes > self._limit:
            shed = self._do(lambda rows: rows.thin(self._sending) or rows.thin(0), busy=0)
            if not shed:
                return
            self._ledger.give_up(
                shed,
                "full",
                f"the spool {self.where} is full: every second waiting report, {shed}, was shed; "
                f"bring the service back or raise spool_bytes ({self._limit})",
            )

    def _open(self) -> Rows:
        reason: Exception = OSError("no file there lasts")
        for _ in range(MOST_FILES):
            found = identity(self._path)
            try:
                return Rows(self._path)
            except CorruptError as error:
                if identity(self._path) == found:  # else another process has just moved it aside
                    reason = error
                    if not self._move_aside(str(error)):
                        break
            except (OSError, sqlite3.Error) as error:
                reason = error
                if not (isinstance(error, sqlite3.Error) and is_moved(error)):
                    break
        return self._in_memory(reason)

    def _in_memory(self, error: Exception) -> Rows:
        self.durable = False
        self._ledger.say(
            "memory",
            f"reports cannot be spooled to {self._path} ({error}) and wait in memory, which ends with this "
            "process; point TWOCLOCKS_SPOOL_DIR or spool_dir to a writable folder with room",
        )
        return Rows(None)

    def _replace(self, error: sqlite3.Error) -> None:
        """Carry on with a new database after `error`, with all that can be read of the old one."""
        old = self._rows
        kept: list[Item] = []
        specs: dict[int, str] = {}
        with suppress(sqlite3.Error):
            specs = old.specs()
        expected = old.rows
        with suppress(sqlite3.Error):  # what could be read is in `kept`, the rest is counted below
            for item in old.everything():
                kept.append(item)
            if is_moved(error):  # whole, so what is not in it was sent by another process
                expected = len(kept)
        old.close()
        self._replaced += 1
        if self._replaced > MOST_FILES or not (is_moved(error) or is_corrupt(error)):
            self._rows = self._in_memory(error)
        elif old.still_at(self._path):
            moved = self._move_aside(str(error))
            self._rows = self._open() if moved else self._in_memory(error)
        else:
            self._ledger.say("moved", f"the spool {self._path} was deleted or moved away; a new one is made")
            self._rows = self._open()
        try:
            self._carry(kept, specs)
        except sqlite3.Error as second:
            self._rows.close()
            self._rows = self._in_memory(second)
            self._carry(kept, specs)
        if lost := max(0, expected - len(kept)):
            self._ledger.give_up(
                lost, "unreadable", f"{lost} reports in the spool {self._path} are unreadable"
            )

    def _carry(self, items: Sequence[Item], specs: dict[int, str]) -> None:
        self._rows.insert(items)
        for attempt, spec in specs.items():
            self._rows.remember(attempt, spec)

    def _move_aside(self, reason: str) -> bool:
        """Rename the file, so that a person may look at it; False where that cannot be done."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.corrupt-{number}")).exists():
            number += 1
        try:
            os.replace(self._path, aside)
        except OSError:
            return False
        self._ledger.say(
            "corrupt",
            f"the spool {self._path} is corrupt ({reason}); kept as {aside.name}, a new one is made",
        )
        return True

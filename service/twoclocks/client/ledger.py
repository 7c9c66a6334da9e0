"""What became of every report, in numbers and in a few log lines.

Nothing is given up without being counted here, and no cause fills the log: a cause is logged the first time,
and again when it has come up 10, 100, 1000 times.
"""

import contextlib
import logging
import threading

log = logging.getLogger("twoclocks.client")


class Ledger:
    """Counters and rate-limited lines, for use from any thread and from signal handlers."""

    def __init__(self) -> None:
        self.delivered = 0
        """Reports that the service acknowledged."""
        self.refused = 0
        """Reports and acks that are malformed, or that the service refused."""
        self.shed = 0
        """Reports that were well-formed and were given up: no room, or reported after close."""
        self._seen: dict[str, int] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """In a forked child: a thread that did not come along may hold the lock for ever."""
        self._lock = threading.RLock()

    def deliver(self, count: int) -> None:
        """Count reports that the service acknowledged."""
        with self._lock:
            self.delivered += count

    def refuse(self, count: int, cause: str, line: str) -> None:
        """Count reports that cannot be taken and say why; `cause` groups the lines that are the same news."""
        with self._lock:
            self.refused += count
        self.say(cause, line)

    def give_up(self, count: int, cause: str, line: str) -> None:
        """Count reports that were good and are lost, and say why."""
        with self._lock:
            self.shed += count
        self.say(cause, line)

    def say(self, cause: str, line: str, *, exc_info: bool = False) -> None:
        """Log the line if this is the cause's 1st, 10th, 100th, ... time."""
        with self._lock:
            times = self._seen.get(cause, 0) + 1
            self._seen[cause] = times
        if str(times).strip("0") == "1":
            self.tell(line + (f" (so far {times} times)" if times > 1 else ""), exc_info=exc_info)

    def tell(self, line: str, *, exc_info: bool = False) -> None:
        """Log the line; a log handler that raises must not reach the training loop either."""
        with contextlib.suppress(Exception):
            log.warning("%s", line, exc_info=exc_info)

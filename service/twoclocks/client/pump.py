"""The two threads behind a monitor: from the queue to the disk, and from the disk to the service.

    put() --> queue (memory) --> writer thread --> spool (disk) --> sender thread --> service

The writer is apart from the sender so that a report is on disk within milliseconds even while the service
hangs: a process that is killed loses no more than what it reported in that instant. An item leaves the queue
when it is in the spool, and the spool when it is acknowledged, so at no moment is it in neither.
"""

import os
import time
from collections import deque
from queue import Empty, SimpleQueue
from threading import Thread

from twoclocks.client.ledger import Ledger
from twoclocks.client.lines import one_line, shown
from twoclocks.client.link import THREAD_PREFIX, Link
from twoclocks.client.rows import Item
from twoclocks.client.sender import Sender
from twoclocks.client.spool import Spool
from twoclocks.wire import StepReport

QUEUE_LIMIT = 100_000
"""Reports held in memory while the disk does not take them."""
DRAIN = 1_000
"""Reports that go to disk in one transaction."""
DISK_GRACE = 2.0
"""Seconds that close gives the writer to bring the queue to disk, even with a shorter timeout."""
LONGEST_PAUSE = 3_600.0

Reading = dict[str, float | int]
"""A report as plain numbers, not yet validated in full."""


class Pump:
    """Owns the queue, the threads and the end of spool and link. `put` takes no lock, waits for nothing."""

    def __init__(self, link: Link, spool: Spool, sender: Sender, ledger: Ledger, attempt: int) -> None:
        self._link, self._spool, self._sender, self._ledger = link, spool, sender, ledger
        self._attempt = attempt
        self._queue: deque[Reading | Item | None] = deque()
        self._writer_bell: SimpleQueue[None] = SimpleQueue()
        self._sender_bell: SimpleQueue[None] = SimpleQueue()
        self._pid = os.getpid()
        self._closing = self._forked = self._abandoned = False
        self._deadline = 0.0
        self._writer = Thread(target=self._write, name=f"{THREAD_PREFIX}writer", daemon=True)
        self._courier = Thread(target=self._send, name=f"{THREAD_PREFIX}sender", daemon=True)
        self._writer.start()
        self._courier.start()

    @property
    def pending(self) -> int:
        """Items that wait in the queue and in the spool; one on its way between them may count twice."""
        return len(self._queue) + self._spool.rows

    @property
    def queued(self) -> int:
        """Items that are not in the spool yet."""
        return len(self._queue)

    def takes(self) -> bool:
        """Whether one more can be put; where not, counts it as shed and says why."""
        if self.in_fork():
            line = "reports from a forked process are not taken; make a Monitor there or report in the parent"
            self._ledger.give_up(1, "forked", line)
        elif self._closing:
            self._ledger.give_up(
                1, "closed", "a report made after close is not taken; close the monitor last"
            )
        elif len(self._queue) >= QUEUE_LIMIT:
            line = f"{QUEUE_LIMIT} reports wait for {self._spool.where}, more are shed; check that disk"
            self._ledger.give_up(1, "queue", line)
        else:
            return True
        return False

    def in_fork(self) -> bool:
        """Whether this is a forked child, where neither the threads nor the spool came along."""
        if os.getpid() == self._pid:
            return False
        if not self._forked:
            self._forked = True
            self._ledger.after_fork()
        return True

    def put(self, item: Reading | Item) -> None:
        """Queue the item."""
        self._queue.append(item)
        _ring(self._writer_bell)

    def close(self, timeout: float) -> int:
        """Deliver what waits for at most `timeout` seconds; returns how many items still wait."""
        self._deadline = time.monotonic() + timeout
        self._closing = True
        self._writer_bell.put(None)
        self._sender_bell.put(None)
        self._writer.join(max(timeout, DISK_GRACE))
        self._courier.join(max(0.0, self._deadline - time.monotonic()))
        if self._queue and not self._writer.is_alive():
            self._store()  # what another thread put while the writer ended
        self._abandoned = self._courier.is_alive()
        if not self._abandoned:
            self._spool.close()
        return self.pending

    def _write(self) -> None:
        while not (self._closing and not self._queue):
            self._writer_bell.get()
            try:
                self._store()
            except Exception:  # noqa: BLE001 - the thread must live: what is not foreseen is logged and tried again
                self._ledger.say("unforeseen", "spooling failed and is tried again", exc_info=True)
                if self._closing and time.monotonic() > self._deadline:
                    return
                time.sleep(0.5)
                _ring(self._writer_bell)

    def _store(self) -> None:
        """Bring the queue to the spool; gives up only when close's time is over and the file still held."""
        while size := min(len(self._queue), DRAIN):
            items = []
            for index in range(size):
                # What was validated stays so in the queue: tried again, it is not counted again.
                item = self._queue[index] = self._item(self._queue[index])
                items += [item] if item else []
            while items and not self._spool.add(items):
                if self._closing and time.monotonic() > self._deadline + DISK_GRACE:
                    return
                time.sleep(0.1)
            for _ in range(size):
                self._queue.popleft()
            _ring(self._sender_bell)

    def _item(self, given: Reading | Item | None) -> Item | None:
        """The full validation: what the wire's model takes, as JSON; None where it refuses or has refused."""
        if given is None or isinstance(given, Item):
            return given
        try:
            return Item("report", self._attempt, StepReport.model_validate(given).model_dump_json())
        except Exception as error:  # noqa: BLE001 - one bad report must not end the thread
            line = one_line(error)
            self._ledger.refuse(
                1, line.partition(",")[0], f"report of step {shown(given.get('step'))} refused: {line}"
            )
            return None

    def _send(self) -> None:
        """Step the sender until closed. At close it tries once at once, whatever it was waiting for."""
        hurried = False
        while not self._is_done():
            if self._closing and not hurried:
                hurried, self._sender.failures = True, 0
            self._pause(self._sender.step(), hurried)
        self._link.close()
        if self._abandoned:
            self._spool.close()

    def _is_done(self) -> bool:
        if not self._closing:
            return False
        return time.monotonic() >= self._deadline or not (self._writer.is_alive() or self.pending)

    def _pause(self, seconds: float, hurried: bool) -> None:
        """Wait. New items cut it short unless the service is in trouble, close does once."""
        until = time.monotonic() + min(seconds, LONGEST_PAUSE)
        while True:
            left = (min(until, self._deadline) if self._closing else until) - time.monotonic()
            if left <= 0 or (self._closing and not hurried):
                return
            try:
                self._sender_bell.get(timeout=left)
            except Empty:
                return
            if not self._sender.failures:
                return


def _ring(bell: SimpleQueue[None]) -> None:
    """Wake the thread that waits on the bell. A SimpleQueue's put is safe even in a signal handler."""
    if bell.empty():
        bell.put(None)

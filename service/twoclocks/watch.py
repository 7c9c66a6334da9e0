"""Waiting for a run to change, for long polls and event streams, at a cost that does not grow with them.

What is watched is the database, not this process, so any process that writes wakes the waiters of all. All
waiters of a process share one look at it every TICK seconds.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable

from twoclocks.store import Pulse, Store, UnavailableError

TICK = 0.2


class Watch:
    """The waiters of one app. `stop()` sends them all home, so that a shutdown need not wait for them."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.stopped = False
        self._store, self._clock = store, clock
        self._watched: Counter[str] = Counter()
        self._pulses: dict[str, Pulse] = {}
        self._looked_at = float("-inf")
        self._looking = threading.Lock()

    def stop(self) -> None:
        """End every wait within a tick, now and from now on."""
        self.stopped = True

    async def until(self, run: str, wanted: Callable[[Pulse], bool], seconds: float) -> Pulse | None:
        """The run's pulse once it is `wanted`; None after `seconds` or when stopped."""
        deadline = time.monotonic() + seconds
        self._watched[run] += 1
        try:
            while not self.stopped:
                if time.monotonic() - self._looked_at >= TICK:
                    await asyncio.to_thread(self._look)
                pulse = self._pulses.get(run)
                if pulse is not None and wanted(pulse):
                    return pulse
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                await asyncio.sleep(min(TICK, left))
            return None
        finally:
            self._watched[run] -= 1
            if not self._watched[run]:
                del self._watched[run]
                self._pulses.pop(run, None)

    def _look(self) -> None:
        if not self._looking.acquire(blocking=False):
            return  # another waiter is looking; its answer is there at the next tick
        try:
            self._pulses = self._store.pulses(list(self._watched), self._clock())
        except UnavailableError:
            pass  # nothing is known to have changed; the next tick asks again
        finally:
            self._looked_at = time.monotonic()
            self._looking.release()

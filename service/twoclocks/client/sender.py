"""The sender: takes the oldest waiting items from the spool to the service, one request a step.

A step never raises and says how long to wait before the next. Items leave the spool when the service has
acknowledged them, and only then; the service recognises replays by (run, attempt, step), so sending twice is
safe and a lost reply costs nothing. The run is declared (PUT) before the first item of each attempt and again
after every trouble: a service that came back may have lost it, and declaring twice changes nothing.

    trouble (Link)      everything is kept; wait min(cap, base 2^n) x uniform(0, 1), or Retry-After if longer
    4xx of a batch      halve it until the report at fault is alone, refuse that one, send the rest
    4xx of an ack       refused: logged, counted, dropped
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from twoclocks.client.ledger import Ledger
from twoclocks.client.link import Link, Reply, TroubleError
from twoclocks.client.rows import Item
from twoclocks.client.spool import Spool
from twoclocks.wire import API_PREFIX, MAX_REPORTS_PER_BATCH, Directive

MAX_BATCH_BYTES = 512 * 1024
"""Below the 1 MiB at which common proxies refuse a body."""
BACKOFF_BASE = 0.5
BACKOFF_CAP = 30.0


def backoff(failures: int, uniform: Callable[[], float]) -> float:
    """Return the seconds to wait after failure n in a row: full jitter below min(cap, base 2^(n-1))."""
    return min(BACKOFF_CAP, BACKOFF_BASE * 2.0 ** min(failures - 1, 16)) * uniform()


class Sender:
    """Sends for one run. Not for several threads; `directive` may be read from any."""

    def __init__(
        self,
        link: Link,
        spool: Spool,
        ledger: Ledger,
        *,
        run: str,
        attempt: int,
        spec: str,
        poll_seconds: float,
        uniform: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directive = Directive(generation=0, reason="nothing heard from the service yet")
        self.failures = 0
        """Troubles in a row; 0 while the service takes what it is sent."""
        self._link, self._spool, self._ledger = link, spool, ledger
        self._path = f"{API_PREFIX}/runs/{run}"
        self._attempt, self._spec = attempt, spec
        self._poll_seconds = poll_seconds
        self._uniform, self._clock = uniform, clock
        self._declared: int | None = None
        self._doubted: int | None = None
        self._ended = False
        self._most = MAX_REPORTS_PER_BATCH
        self._sequence = 0
        self._heard = clock()
        self._etag: str | None = None
        self._told: set[str] = set()
        self._late: int | None = None

    def step(self) -> float:
        """Make one request if one is due; returns the seconds until the next step is worth making."""
        try:
            return self._step()
        except TroubleError as trouble:
            self._declared = None
            self.failures += 1
            if trouble.kind not in self._told:
                self._told.add(trouble.kind)
                self._late = 0
                self._ledger.tell(
                    f"the service at {self._link.base} {trouble}; training goes on, reports wait in "
                    f"{self._spool.where} until it takes them"
                )
            return max(trouble.after, backoff(self.failures, self._uniform))
        except Exception:  # noqa: BLE001 - the thread must live: what is not foreseen is logged and tried again
            self.failures += 1
            self._ledger.say("unforeseen", "sending failed and is tried again", exc_info=True)
            return backoff(self.failures, self._uniform)

    def _step(self) -> float:
        batch = self._spool.head(self._most, MAX_BATCH_BYTES)
        attempt = batch[0].attempt if batch else self._attempt
        if attempt != self._declared and not (self._ended and not batch):
            self._declare(attempt)
        elif not batch:
            return self._listen()
        elif batch[0].kind == "report":
            self._send_reports(batch)
        else:
            self._send_word(batch[0])
        return 0.0

    def _declare(self, attempt: int) -> None:
        spec = self._spec if attempt == self._attempt else self._spool.specs().get(attempt)
        if spec is not None:
            reply = self._link.exchange("PUT", self._path, spec)
            if reply.status == 404:
                raise TroubleError("address", f"has no such route ({reply.detail}); check the url")
            if reply.ok:
                self._hear(reply.data.get("directive"))
            else:
                self._ledger.say(
                    f"spec of {attempt}",
                    f"the service refuses the run's settings: {reply.detail}; its reports are sent without",
                )
        self._declared = attempt
        self._succeed()

    def _send_reports(self, batch: Sequence[Item]) -> None:
        self._sequence += 1
        bodies = ",".join(item.body for item in batch)
        body = f'{{"attempt":{batch[0].attempt},"sequence":{self._sequence},"reports":[{bodies}]}}'
        reply = self._link.exchange("POST", f"{self._path}/steps", body)
        if reply.ok:
            if "accepted" not in reply.data:
                raise TroubleError("address", "answers with something other than Two Clocks; check the url")
            self._hear(reply.data.get("directive"))
            self._drop(batch, _refusals(reply))
            self._most = min(2 * self._most, MAX_REPORTS_PER_BATCH)
        elif reply.status == 404:
            if not self._doubt(batch[0].id):
                raise TroubleError("unknown", f"does not know the run it was just told of ({reply.detail})")
        elif len(batch) == 1:
            self._drop(batch, [reply.detail])
        elif reply.status == 409 and len(refusals := _refusals(reply)) == len(batch):
            self._drop(batch, refusals)
        else:
            self._most = len(batch) // 2
        self._succeed()

    def _send_word(self, item: Item) -> None:
        """Send an ack or the finish."""
        if item.kind == "ack":
            reply = self._link.exchange("PUT", f"{self._path}/directive/{item.generation}/ack", item.body)
        else:
            reply = self._link.exchange("POST", f"{self._path}/finish", item.body)
        if reply.ok:
            self._spool.remove([item])
        elif reply.status == 404 and self._doubt(item.id):
            return
        else:
            self._spool.remove([item])
            self._ledger.refuse(
                1, f"{item.kind} refused", f"the service refuses the {item.kind}: {reply.detail}"
            )
        self._ended = self._ended or (item.kind == "finish" and item.attempt == self._attempt)
        self._succeed()

    def _doubt(self, what: int) -> bool:
        """A 404 may mean that the service lost the run: True, once a request, to declare it and retry."""
        again, self._doubted = self._doubted == what, what
        self._declared = self._declared if again else None
        return not again

    def _listen(self) -> float:
        """Ask for the directive if nothing was heard for `poll_seconds`."""
        due = self._heard + self._poll_seconds - self._clock()
        if self._ended:
            return self._poll_seconds
        if due > 0:
            return due
        reply = self._link.exchange("GET", f"{self._path}/directive", etag=self._etag)
        if reply.status == 404:
            if not self._doubt(0):
                raise TroubleError("unknown", f"does not know the run it was just told of ({reply.detail})")
            return 0.0
        self._doubted = None
        if reply.status == 304:
            self._heard = self._clock()
        elif reply.ok:
            self._etag = reply.etag
            self._hear(reply.data)
        self._succeed()
        return self._poll_seconds

    def _hear(self, document: Any) -> None:
        """Keep the directive; a newer service's fields are ignored, a kind we do not know changes nothing."""
        self._heard = self._clock()
        if not isinstance(document, dict):
            raise TroubleError("address", "answers with something other than Two Clocks; check the url")
        known = {name: value for name, value in document.items() if name in Directive.model_fields}
        try:
            heard, before = Directive.model_validate(known), self.directive
            if heard.generation < before.generation or (
                heard.generation == before.generation and heard.issued_at != before.issued_at
            ):
                self._declared = (
                    None  # the run's log began anew: the service lost the run and what it was told
                )
            self.directive = heard
        except ValidationError as error:
            first = error.errors()[0]
            self._ledger.say(
                "directive", f"a directive cannot be read ({first['loc']}: {first['msg']}); update twoclocks"
            )

    def _drop(self, batch: Sequence[Item], refusals: Sequence[str]) -> None:
        """Take an answered batch out of the spool and count it."""
        taken = max(0, self._spool.remove(batch) - len(refusals))
        self._ledger.deliver(taken)
        if self._late is not None:
            self._late += taken
        if refusals:
            self._ledger.refuse(len(refusals), "service", f"the service refuses a report: {refusals[0]}")

    def _succeed(self) -> None:
        """Something got through: the trouble is over, and told so once what waited is delivered."""
        self.failures = 0
        if self._late is not None and self._spool.rows == 0:
            self._ledger.tell(
                f"the service at {self._link.base} answers again; {self._late} reports were delivered late"
            )
            self._late = None
            self._told.clear()


def _refusals(reply: Reply) -> list[str]:
    """The reasons of the reports that the service refused, in a reply or in a 409."""
    refused = reply.data.get("refused")
    if not isinstance(refused, list):
        return []
    return [str(item.get("reason", "refused")) if isinstance(item, dict) else "refused" for item in refused]

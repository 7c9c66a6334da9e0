"""The monitor: what a training loop calls.

`report`, `ack` and `finish` only append to a queue (pump.py): they take no lock that another thread holds for
longer than a counter, so they may be called from any thread and from a signal handler. In a forked child the
monitor takes nothing: its threads and its spool stay the parent's.
"""

import atexit
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twoclocks.client.ledger import Ledger
from twoclocks.client.lines import one_line, shown
from twoclocks.client.link import Link
from twoclocks.client.opening import base_of, check_run, client_of, listed, spec_of
from twoclocks.client.pump import Pump
from twoclocks.client.readings import MalformedError, Number, generation_of, readings
from twoclocks.client.rows import Item
from twoclocks.client.sender import Sender
from twoclocks.client.spool import Spool, default_folder, file_of
from twoclocks.wire import (
    Ack,
    AckState,
    Candidate,
    Directive,
    Finish,
    Policy,
    RunConfig,
    ScheduledSwitch,
)

if TYPE_CHECKING:
    import httpx

EXIT_TIMEOUT = 5.0
"""Seconds that the interpreter's exit waits for a monitor that was not closed."""


class Monitor:
    """Streams one run's reports to the service and knows the latest directive.

    One per run: on rank 0 of a distributed training, with a NullMonitor on the others.

    May raise ValueError when made, with one line that says what to correct; an unreachable service is no
    reason. Leaving it as a context manager finishes the run (failed after an exception, stopped after Ctrl-C)
    and closes it.

    url             the service, e.g. "http://127.0.0.1:8900"
    run             the run's name: letters, digits, `_ . -`
    config          what the run trains and how (wire.RunConfig); any further field is kept and shown
    attempt         grows with each start of the process; left out: Unix milliseconds now
    token           left out: $TWOCLOCKS_TOKEN
    spool_dir       left out: $TWOCLOCKS_SPOOL_DIR, or `twoclocks/spool` in the user's cache folder
    spool_bytes     bound of what waits; above it every second waiting report is shed
    timeout         seconds for each part of a request
    poll_seconds    silence after which the sender asks for the directive
    transport       an httpx transport in place of the network
    """

    def __init__(
        self,
        url: str,
        run: str,
        *,
        config: RunConfig | Mapping[str, Any] | None = None,
        project: str = "default",
        family: str | None = None,
        attempt: int | None = None,
        budget_samples: int | None = None,
        target_reward: float | None = None,
        policy: Policy | str = "advise",
        risk: float = 0.1,
        candidates: Sequence[Candidate | Mapping[str, Any]] = (),
        schedule: Sequence[ScheduledSwitch | Mapping[str, Any]] = (),
        heartbeat_seconds: float = 600.0,
        window_samples: int | None = None,
        baseline_reward: float | None = None,
        token: str | None = None,
        spool_dir: str | Path | None = None,
        spool_bytes: int = 64 * 2**20,
        timeout: float = 5.0,
        poll_seconds: float = 5.0,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        base = base_of(url)
        check_run(run)
        for name, value in (
            ("spool_bytes", spool_bytes),
            ("timeout", timeout),
            ("poll_seconds", poll_seconds),
        ):
            if not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"{name} must be above 0, got {shown(value)}")
        if spool_dir is not None and not isinstance(spool_dir, str | os.PathLike):
            raise ValueError(f"spool_dir must be the path of a folder, got {shown(spool_dir)}")
        spec = spec_of(
            attempt=attempt or 0,
            project=project,
            family=family,
            config=config or {},
            budget_samples=budget_samples,
            target_reward=target_reward,
            policy=policy,
            risk=risk,
            candidates=listed(candidates),
            schedule=listed(schedule),
            heartbeat_seconds=heartbeat_seconds,
            window_samples=window_samples,
            baseline_reward=baseline_reward,
        )
        link = Link(client_of(base, token or os.environ.get("TWOCLOCKS_TOKEN"), timeout, transport), base)
        folder = Path(spool_dir) if spool_dir is not None else default_folder()
        self._ledger = Ledger()
        self._spool = Spool(file_of(folder, base, run), limit=spool_bytes, ledger=self._ledger)
        if attempt is None:
            last = max(self._spool.specs(), default=0)
            spec = spec.model_copy(update={"attempt": max(int(time.time() * 1000), last + 1)})
        if self._spool.rows:
            waiting = (
                f"{self._spool.rows} reports of an earlier start of run {run!r} wait in {self._spool.where}"
            )
            self._ledger.tell(f"{waiting} and are sent first")
        declared = spec.model_dump_json()
        self._spool.remember(spec.attempt, declared)
        self._attempt = spec.attempt
        self._run = run
        self._sender = Sender(
            link,
            self._spool,
            self._ledger,
            run=run,
            attempt=spec.attempt,
            spec=declared,
            poll_seconds=poll_seconds,
        )
        self._pump = Pump(link, self._spool, self._sender, self._ledger, spec.attempt)
        self._finished = self._told_left = False
        atexit.register(self._at_exit)

    def report(
        self,
        /,
        *positional: object,
        step: Number | None = None,
        samples: Number | None = None,
        rollout_batch: Number | None = None,
        learning_rate: Number | None = None,
        reward: Number | None = None,
        updates: Number = 1,
        epochs: Number = 1,
        **metrics: Number | None,
    ) -> None:
        """Report one step; `samples` counts responses since the run began. Never raises, never blocks.

        The five named without a number here are required; one that is missing, or a value that is no number,
        is logged and counted in `refused`. A metric of None was not measured.
        """
        try:
            if not self._pump.takes():
                return
            if positional:
                line = "a report was refused: give values by name, report(step=..., samples=..., ...)"
                self._ledger.refuse(1, "positional", line)
                return
            taken = readings(
                {
                    "step": step,
                    "samples": samples,
                    "rollout_batch": rollout_batch,
                    "learning_rate": learning_rate,
                    "reward": reward,
                    "updates": updates,
                    "epochs": epochs,
                },
                metrics,
            )
            taken.setdefault("time", time.time())
            self._pump.put(taken)
        except MalformedError as error:
            self._ledger.refuse(1, error.cause, f"report of step {shown(step)} refused: {error}")
        except Exception as error:  # noqa: BLE001 - the promise: whatever went wrong, training goes on
            self._ledger.refuse(1, "report", f"report of step {shown(step)} refused: {one_line(error)}")

    def ack(
        self,
        generation: int,
        state: AckState | str,
        *,
        step: int | None = None,
        rollout_batch: int | None = None,
        learning_rate: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Say what became of a directive: received; then applied (as really set), rejected or expired.

        Never raises, never blocks; it arrives after the reports made before it.
        """
        try:
            said = Ack.model_validate(
                {
                    "state": state,
                    "attempt": self._attempt,
                    "step": step,
                    "rollout_batch": rollout_batch,
                    "learning_rate": learning_rate,
                    "reason": reason[:2_000] if reason else None,
                    "time": time.time(),
                }
            )
            answered = generation_of(generation)
            if self._pump.takes():
                self._pump.put(Item("ack", self._attempt, said.model_dump_json(), answered))
        except Exception as error:  # noqa: BLE001 - the promise: whatever went wrong, training goes on
            line = f"an ack was refused: {one_line(error)}"
            self._ledger.refuse(1, line.partition(",")[0], line)

    def finish(self, state: str = "finished", reason: str | None = None) -> None:
        """Say that the run has ended: finished, failed or stopped. Once; never raises, never blocks."""
        try:
            end = Finish.model_validate(
                {"state": state, "attempt": self._attempt, "reason": reason[:2_000] if reason else None}
            )
            if not self._finished and self._pump.takes():
                self._finished = True
                self._pump.put(Item("finish", self._attempt, end.model_dump_json()))
        except Exception as error:  # noqa: BLE001 - the promise: whatever went wrong, training goes on
            line = f"a finish was refused: {one_line(error)}"
            self._ledger.refuse(1, line.partition(",")[0], line)

    def close(self, timeout: float = 10.0) -> bool:
        """Deliver what waits, for at most `timeout` seconds; True when everything was delivered.

        What is not delivered stays in the spool and is sent by the next monitor of this run; one line says
        so. Closing again only waits again.
        """
        if self._pump.in_fork():
            return True
        left = self._pump.close(timeout)
        atexit.unregister(self._at_exit)
        if left and not self._told_left:
            self._told_left = True
            self._tell_left(left)
        return left == 0

    @property
    def directive(self) -> Directive:
        """The latest directive heard; generation 0, `hold`, before any. Read from memory."""
        return self._sender.directive

    @property
    def attempt(self) -> int:
        """This process's attempt at the run."""
        return self._attempt

    @property
    def pending(self) -> int:
        """Reports, acks and finish that wait for delivery, those of earlier attempts included."""
        return self._pump.pending

    @property
    def delivered(self) -> int:
        """Reports that the service acknowledged to this process."""
        return self._ledger.delivered

    @property
    def refused(self) -> int:
        """Reports and acks that were malformed or that the service refused."""
        return self._ledger.refused

    @property
    def shed(self) -> int:
        """Reports that were given up: no room, or reported after close."""
        return self._ledger.shed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.finish(
                "stopped" if issubclass(kind, KeyboardInterrupt) else "failed",
                f"{kind.__name__}: {one_line(error) if error else ''}",
            )
        self.close()

    def _tell_left(self, left: int) -> None:
        if self._spool.durable and not self._pump.queued:
            self._ledger.tell(
                f"{left} reports are not delivered; they wait in {self._spool.where} and are sent by the "
                f"next Monitor of run {self._run!r}"
            )
        else:
            line = f"{left} reports were not delivered and are lost, for they could not be spooled to disk"
            self._ledger.give_up(left, "lost", line)

    def _at_exit(self) -> None:
        self.close(EXIT_TIMEOUT)

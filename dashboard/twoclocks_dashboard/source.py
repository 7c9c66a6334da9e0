"""What the pages need of a store: reading, and nothing else.

The service's store fits this by shape, so this package never imports it and tests may stand in their own.
Every method blocks and may be called from several threads.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from twoclocks.wire import DirectiveRecord, Family, Forecast, RunList, RunState, RunSummary, StepColumns


class Source(Protocol):
    """The reading half of the store; see the service's store for what each method promises."""

    def run(self, run: str, now: float) -> RunSummary:
        """The run as it stands; raises a Fault of status 404 where there is none."""

    def runs(
        self,
        now: float,
        project: str | None = None,
        state: RunState | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> RunList:
        """Runs, the newest first, with how many there are in all."""

    def forecasts(self, run: str) -> Sequence[Forecast]:
        """Every forecast ever made of the run, oldest first."""

    def steps(
        self,
        run: str,
        from_step: int | None = None,
        to_step: int | None = None,
        attempt: int | None = None,
        max_points: int | None = None,
    ) -> StepColumns:
        """Live reports as columns, thinned to about `max_points`."""

    def directives(self, run: str) -> Sequence[DirectiveRecord]:
        """Every directive of the run with what became of it, oldest first."""

    def families(self) -> Sequence[Family]:
        """Every family with the threshold learned so far."""


@runtime_checkable
class Fault(Protocol):
    """The shape of an error that says itself what status, title and sentence it deserves."""

    status: int
    title: str
    detail: str

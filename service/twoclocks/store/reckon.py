"""The clocks as the store calls them: a failure of theirs is logged and shown, and never costs a report.

The numerics may meet a report that they cannot digest: legal, and far from any real run. That report is
stored all the same; the clocks go on without it, which is the same on every refold, and the log says so.
"""

import logging
from collections.abc import Sequence

from twoclocks import clocks
from twoclocks.clocks import ClockState
from twoclocks.wire import (
    Clocks,
    Directive,
    DirectiveRecord,
    Family,
    FamilyMember,
    Forecast,
    ForecastStatus,
    RunSpec,
    StepReport,
)

log = logging.getLogger("twoclocks.clocks")
FAILED = "the numerics failed at the last report, which is stored; the service's log says how"


def fold(run: str, state: ClockState, report: StepReport, spec: RunSpec) -> ClockState:
    """The state with the report in it, or without it where it cannot be folded."""
    try:
        return clocks.fold(state, report, spec)
    except Exception:
        log.exception("run %s: the report of step %d is stored but not folded", run, report.step)
        return state


def forecast(
    run: str,
    state: ClockState,
    spec: RunSpec,
    members: Sequence[FamilyMember],
    *,
    family: str,
    made_at: float,
) -> Forecast:
    """The forecast, or one of status `none` that says it failed."""
    try:
        return clocks.forecast(state, spec, members, family=family, made_at=made_at)
    except Exception:
        log.exception("run %s: no forecast at %d samples", run, state.samples)
        return Forecast(
            status=ForecastStatus.NONE,
            reason=FAILED,
            step=state.step or 0,
            samples=state.samples,
            made_at=made_at,
            family=family,
        )


def decide(
    run: str,
    state: ClockState,
    spec: RunSpec,
    made: Forecast | None,
    records: Sequence[DirectiveRecord],
    *,
    now: float,
) -> Directive | None:
    """A new directive, or None."""
    try:
        return clocks.decide(state, spec, made, records, now=now)
    except Exception:
        log.exception("run %s: no decision at %d samples", run, state.samples)
        return None


def member(run: str, state: ClockState, spec: RunSpec) -> FamilyMember | None:
    """The run's evidence for its family, or None."""
    try:
        return clocks.member(run, state, spec)
    except Exception:
        log.exception("run %s: gives no evidence", run)
        return None


def document(run: str, state: ClockState, spec: RunSpec, made: Forecast | None) -> Clocks:
    """Both clocks of the run, or what is known of them without the numerics."""
    try:
        return clocks.clocks_document(run, state, spec, made)
    except Exception:
        log.exception("run %s: no clocks at %d samples", run, state.samples)
        return Clocks(run=run, step=state.step, samples=state.samples, failure=made, notices=[FAILED])


def family(name: str, members: Sequence[FamilyMember]) -> Family:
    """The family's threshold, or its members alone."""
    try:
        return clocks.family_document(name, members)
    except Exception:
        log.exception("family %s: no threshold", name)
        return Family(family=name, status=ForecastStatus.NONE, members=list(members))

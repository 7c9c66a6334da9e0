"""Attempts: which start of a run's process a report belongs to, and what a rewind leaves on the live path."""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from twoclocks.store.tables import Attempt, Member, Run
from twoclocks.wire import RunSpec, RunState


def find(session: Session, run: Run, number: int) -> Attempt | None:
    """The attempt, None where it has neither been declared nor reported."""
    return session.get(Attempt, (run.id, number))


def begin(session: Session, run: Run, number: int, spec: RunSpec, now: float) -> Attempt:
    """A new attempt under this spec. One newer than all others becomes the run's and reopens it."""
    text = spec.model_copy(update={"attempt": number}).model_dump_json()
    later = select(Attempt.first_step).where(Attempt.run_id == run.id, Attempt.attempt > number)
    firsts = [first for first in session.scalars(later) if first is not None]
    attempt = Attempt(
        run_id=run.id, attempt=number, spec=text, started_at=now, live_until=min(firsts, default=None)
    )
    session.add(attempt)
    session.flush()
    if number > run.attempt:
        # Alive again, so its censored evidence is void until it ends once more; a collapse stays one.
        session.execute(delete(Member).where(Member.run_id == run.id, Member.collapsed.is_(False)))
        run.attempt, run.spec = number, text
        run.state, run.ended_at, run.end_reason = RunState.RUNNING, None, None
        run.heard_at = now
    return attempt


def extend(session: Session, run: Run, attempt: Attempt, first: int, last: int) -> bool:
    """Reports from step `first` to `last` joined the attempt; True where that took others off the live path.

    An attempt that starts below the last step of an earlier one rewinds the run to there.
    """
    attempt.last_step = max(last, attempt.last_step if attempt.last_step is not None else last)
    if attempt.first_step is not None and attempt.first_step <= first:
        return False
    attempt.first_step = first
    rewound = False
    earlier = select(Attempt).where(Attempt.run_id == run.id, Attempt.attempt < attempt.attempt)
    for other in session.scalars(earlier):
        if other.live_until is None or other.live_until > first:
            other.live_until = first
            rewound = rewound or (other.last_step is not None and other.last_step >= first)
    return rewound

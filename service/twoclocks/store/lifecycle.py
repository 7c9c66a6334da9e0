"""The life of a run: declared, resumed under a newer attempt, ended; and which runs stopped talking."""

from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from twoclocks import clocks
from twoclocks.errors import NotFoundError
from twoclocks.store import attempts, directives, folding
from twoclocks.store.tables import ClockState, Member, Run
from twoclocks.wire import Finish, RunSpec, RunState


def locked(session: Session, name: str) -> Run:
    """The run's row, held against other writers to the transaction's end. Raises NotFoundError."""
    run = _held(session, name)
    if run is None:
        raise unknown(name)
    return run


def _held(session: Session, name: str) -> Run | None:
    return session.scalar(select(Run).where(Run.name == name).with_for_update())


def unknown(name: str) -> NotFoundError:
    """What to say of a run that was never declared and never reported."""
    return NotFoundError(f"no run {name!r}; begin it with PUT /api/v1/runs/{name} or with its first report")


def create(session: Session, name: str, spec: RunSpec, now: float) -> tuple[Run, bool]:
    """The run, locked, and whether it was new. Two that create the same run at once get the same row."""
    run = _held(session, name)
    if run is not None:
        return run, False
    values = {
        "name": name,
        "project": spec.project,
        "family": clocks.family_of(spec),
        "spec": spec.model_dump_json(),
        "attempt": spec.attempt,
        "state": RunState.RUNNING.value,
        "heartbeat_seconds": spec.heartbeat_seconds,
        "created_at": now,
        "heard_at": now,
        "reports": 0,
        "samples": 0,
        "generation": 0,
        "revision": 1,
    }
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    query = insert(Run).values(values).on_conflict_do_nothing(index_elements=["name"]).returning(Run.id)
    created = session.scalar(query) is not None
    run = locked(session, name)
    if created:
        attempts.begin(session, run, spec.attempt, spec, now)
    return run, created


def put(session: Session, name: str, spec: RunSpec, now: float) -> Run:
    """Create the run, resume it under a newer attempt, or correct its spec. The same again is nothing new."""
    run, created = create(session, name, spec, now)
    if created:
        return run
    attempt, text = attempts.find(session, run, spec.attempt), spec.model_dump_json()
    if attempt is None:
        attempts.begin(session, run, spec.attempt, spec, now)
    elif attempt.spec == text or spec.attempt < run.attempt:
        return run
    else:
        attempt.spec = run.spec = text
    run.revision += 1
    if spec.attempt < run.attempt:
        return run  # an older process, heard of late: its attempt is kept, the run stays the newer one's
    run.project, run.family, run.heartbeat_seconds = (
        spec.project,
        clocks.family_of(spec),
        spec.heartbeat_seconds,
    )
    session.execute(update(Member).where(Member.run_id == run.id).values(family=run.family))
    if attempt is not None and session.get(ClockState, run.id) is not None:
        folding.refold(session, run, now)  # the reports of this attempt were folded under another spec
    return run


def finish(session: Session, run: Run, end: Finish, now: float) -> None:
    """The attempt has ended. An older attempt's end, heard late, does not end the run of a newer one."""
    attempt = attempts.find(session, run, end.attempt)
    if attempt is None:
        attempt = attempts.begin(session, run, end.attempt, folding.spec_of(run.spec), now)
        run.revision += 1
    if attempt.ended_at is None:
        attempt.ended_at = now
    if end.attempt < run.attempt or (run.state, run.end_reason) == (end.state, end.reason):
        return
    run.state, run.end_reason = end.state, end.reason
    run.ended_at = run.ended_at or now
    run.revision += 1
    directives.note_end(session, run)
    row = session.get(ClockState, run.id)
    if row is not None:
        folding.testify(session, run, folding.state_of(session, run), was_collapsed=row.collapsed)


def state(run: Run, now: float) -> RunState:
    """Where the run stands now; `lost` is a running one not heard of for longer than it declared."""
    if run.state == RunState.RUNNING and now - run.heard_at > run.heartbeat_seconds:
        return RunState.LOST
    return RunState(run.state)


def in_state(wanted: RunState, now: float) -> ColumnElement[bool]:
    """The same as a condition of a query."""
    running, silent = Run.state == RunState.RUNNING.value, now - Run.heard_at > Run.heartbeat_seconds
    match wanted:
        case RunState.LOST:
            return and_(running, silent)
        case RunState.RUNNING:
            return and_(running, ~silent)
        case _:
            return Run.state == wanted.value

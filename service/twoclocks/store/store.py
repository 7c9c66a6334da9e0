"""The one store: every method is one transaction, and the wire's models go in and come out.

Methods block (routes run them in a thread) and may be called from several threads and several processes on
one database; nothing is kept between calls but connections and remembered pure functions. `now` is Unix
seconds and always given. Every method raises UnavailableError when the database does not answer, and those
that name a run raise NotFoundError when there is none.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, text

from twoclocks.store import directives, ingest, lifecycle, reading, reports
from twoclocks.store.engine import Database
from twoclocks.store.tables import Attempt, Run
from twoclocks.wire import (
    Ack,
    Clocks,
    Directive,
    DirectiveRecord,
    Family,
    Finish,
    Forecast,
    IngestReply,
    RunList,
    RunSpec,
    RunState,
    RunSummary,
    StepBatch,
    StepColumns,
)


@dataclass(frozen=True, slots=True)
class Pulse:
    """What event streams and long polls watch of a run."""

    revision: int
    generation: int
    state: RunState


class Store:
    """Runs and all that is known of them, in the database at `url`. Raises StartError for a bad URL."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self.is_sqlite = self._database.is_sqlite

    def put_run(self, run: str, spec: RunSpec, now: float) -> RunSummary:
        """Create or resume the run. Idempotent: the same spec again changes nothing, the revision included.

        A newer `spec.attempt` resumes the run under the new spec; the same attempt with another spec corrects
        it and folds the reports anew; an older attempt is noted and changes nothing.
        """
        with self._database.write() as session:
            found = lifecycle.put(session, run, spec, now)
            session.flush()
            return reading.summaries(session, [found], now)[0]

    def ingest(self, run: str, batch: StepBatch, now: float) -> IngestReply:
        """Store a batch and advance the clocks, all or nothing; when it returns, the reports are durable.

        A run that was never declared begins here with an empty spec: losing reports would be worse than
        a run too many. Raises ConflictError when every report of the batch contradicts a stored one.
        """
        with self._database.write() as session:
            found, _ = lifecycle.create(session, run, RunSpec(attempt=batch.attempt), now)
            return ingest.ingest(session, found, batch, now)

    def finish(self, run: str, finish: Finish, now: float) -> RunSummary:
        """End the run, unless a newer attempt is already on. Saying it twice changes nothing."""
        with self._database.write() as session:
            found = lifecycle.locked(session, run)
            lifecycle.finish(session, found, finish, now)
            session.flush()
            return reading.summaries(session, [found], now)[0]

    def ack(self, run: str, generation: int, ack: Ack, now: float) -> DirectiveRecord:
        """Keep what the trainer did with a directive; idempotent. Raises NotFoundError and ConflictError."""
        with self._database.write() as session:
            found = lifecycle.locked(session, run)
            if directives.acknowledge(session, found, generation, ack):
                found.revision += 1
                found.heard_at = max(now, found.heard_at)
                session.flush()
            records = directives.log(session, [found.id])[found.id]
            return next(record for record in records if record.generation == generation)

    def run(self, run: str, now: float) -> RunSummary:
        """The run as it stands."""
        with self._database.read() as session:
            return reading.summaries(session, [reading.find(session, run)], now)[0]

    def runs(
        self,
        now: float,
        project: str | None = None,
        state: RunState | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> RunList:
        """Runs, the newest first, with how many there are in all."""
        conditions = []
        if project is not None:
            conditions.append(Run.project == project)
        if state is not None:
            conditions.append(lifecycle.in_state(state, now))
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(Run).where(*conditions)) or 0
            page = select(Run).where(*conditions).order_by(Run.id.desc()).limit(limit).offset(offset)
            return RunList(runs=reading.summaries(session, list(session.scalars(page)), now), total=total)

    def active(self, now: float) -> list[RunSummary]:
        """Every run that has not ended, running or lost, oldest first: what Prometheus scrapes."""
        with self._database.read() as session:
            query = select(Run).where(Run.state == RunState.RUNNING.value).order_by(Run.id)
            return reading.summaries(session, list(session.scalars(query)), now)

    def clocks(self, run: str) -> Clocks:
        """Both clocks of the run."""
        with self._database.read() as session:
            return reading.clocks_of(session, reading.find(session, run))

    def forecasts(self, run: str) -> list[Forecast]:
        """Every forecast ever made of the run, oldest first."""
        with self._database.read() as session:
            return reading.forecasts_of(session, reading.find(session, run))

    def steps(
        self,
        run: str,
        from_step: int | None = None,
        to_step: int | None = None,
        attempt: int | None = None,
        max_points: int | None = None,
    ) -> StepColumns:
        """Reports as columns, ends included: the live path, or all that one attempt reported."""
        with self._database.read() as session:
            found = reading.find(session, run)
            return reports.read_columns(
                session,
                run,
                found.id,
                from_step=from_step,
                to_step=to_step,
                attempt=attempt,
                max_points=max_points,
            )

    def attempts(self, run: str) -> list[int]:
        """The numbers of the run's attempts, ascending."""
        with self._database.read() as session:
            found = reading.find(session, run)
            query = select(Attempt.attempt).where(Attempt.run_id == found.id).order_by(Attempt.attempt)
            return list(session.scalars(query))

    def directive(self, run: str) -> Directive:
        """The directive that holds."""
        with self._database.read() as session:
            return directives.document(session, reading.find(session, run))

    def directives(self, run: str) -> list[DirectiveRecord]:
        """Every directive of the run with what became of it, oldest first."""
        with self._database.read() as session:
            found = reading.find(session, run)
            return directives.log(session, [found.id]).get(found.id, [])

    def revision(self, run: str) -> int:
        """The run's revision: it grows with every change."""
        with self._database.read() as session:
            return reading.find(session, run).revision

    def pulses(self, runs: Collection[str], now: float) -> dict[str, Pulse]:
        """What is watched of these runs, in one cheap query; unknown ones are left out."""
        with self._database.read() as session:
            rows = session.scalars(select(Run).where(Run.name.in_(sorted(runs))))
            return {row.name: Pulse(row.revision, row.generation, lifecycle.state(row, now)) for row in rows}

    def families(self) -> Sequence[Family]:
        """Every family, by name, with the threshold learned so far and the runs behind it."""
        with self._database.read() as session:
            return reading.families(session)

    def ping(self) -> None:
        """Raise UnavailableError unless the database answers and has its schema."""
        with self._database.read() as session:
            session.execute(text("SELECT 1 FROM runs LIMIT 1"))

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

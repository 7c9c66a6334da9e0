"""What is stored, put together for readers: summaries, clocks, families. Nothing here writes.

The page, the API and Prometheus all read through here, so they can never disagree.
"""

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from twoclocks.store import directives, folding, lifecycle, reckon
from twoclocks.store.tables import Attempt, Forecast, Member, Run
from twoclocks.store.tables import ClockState as StateRow
from twoclocks.wire import Clocks, Directive, DirectiveRecord, Family, RunSummary
from twoclocks.wire import Forecast as ForecastDocument


def find(session: Session, name: str) -> Run:
    """The run's row; NotFoundError where there is none."""
    run = session.scalar(select(Run).where(Run.name == name))
    if run is None:
        raise lifecycle.unknown(name)
    return run


def summaries(session: Session, runs: Sequence[Run], now: float) -> list[RunSummary]:
    """These runs as lists show them, in a handful of queries however many they are."""
    ids = [run.id for run in runs]
    records = directives.log(session, ids)
    forecasts = _latest_forecasts(session, ids)
    states = {row.run_id: row for row in session.scalars(select(StateRow).where(StateRow.run_id.in_(ids)))}
    counted = select(Attempt.run_id, func.count()).where(Attempt.run_id.in_(ids)).group_by(Attempt.run_id)
    counts = {row[0]: row[1] for row in session.execute(counted)}
    found = []
    for run in runs:
        record = directives.latest(records.get(run.id, []))
        found.append(
            RunSummary(
                run=run.name,
                project=run.project,
                family=run.family,
                state=lifecycle.state(run, now),
                attempt=run.attempt,
                attempts=counts.get(run.id, 0),
                spec=folding.spec_of(run.spec),
                step=run.step,
                samples=run.samples,
                rollout_batch=run.rollout_batch,
                learning_rate=run.learning_rate,
                reports=run.reports,
                created_at=run.created_at,
                last_report_at=run.last_report_at,
                ended_at=run.ended_at,
                end_reason=run.end_reason,
                revision=run.revision,
                directive=_plain(record) if record else directives.nothing(run),
                directive_pending=directives.pending(run, record),
                clocks=_clocks(session, run, states.get(run.id), forecasts.get(run.id)),
            )
        )
    return found


def clocks_of(session: Session, run: Run) -> Clocks:
    """Both clocks of the run with its latest forecast."""
    row = session.get(StateRow, run.id)
    return _clocks(session, run, row, _latest_forecasts(session, [run.id]).get(run.id))


def forecasts_of(session: Session, run: Run) -> list[ForecastDocument]:
    """Every forecast ever made of the run, oldest first."""
    query = select(Forecast.document).where(Forecast.run_id == run.id).order_by(Forecast.id)
    return [ForecastDocument.model_validate_json(text) for text in session.scalars(query)]


def families(session: Session) -> list[Family]:
    """Every family that has a run, by name, with the evidence behind its threshold."""
    names = select(Run.family).union(select(Member.family)).order_by("family")
    return [reckon.family(name, folding.members(session, name)) for name in session.scalars(names)]


def _plain(record: DirectiveRecord) -> Directive:
    return Directive.model_validate(record.model_dump(include=set(Directive.model_fields)))


def _latest_forecasts(session: Session, ids: Sequence[int]) -> dict[int, str]:
    query = select(Forecast.run_id, Forecast.document).join(StateRow, StateRow.forecast_id == Forecast.id)
    return {row[0]: row[1] for row in session.execute(query.where(StateRow.run_id.in_(ids)))}


def _clocks(session: Session, run: Run, row: StateRow | None, forecast: str | None) -> Clocks:
    if row is not None:
        document = _document(run.name, row.state, run.spec, forecast)
        if document is not None:
            return document
    state = folding.state_of(session, run)
    made = ForecastDocument.model_validate_json(forecast) if forecast else None
    return reckon.document(run.name, state, folding.spec_of(run.spec), made)


@lru_cache(maxsize=1_024)
def _document(run: str, state: str, spec: str, forecast: str | None) -> Clocks | None:
    """The clocks' document of stored texts: a pure function of them, so remembering it can never be wrong."""
    loaded = folding.parse(state)
    if loaded is None:
        return None
    made = ForecastDocument.model_validate_json(forecast) if forecast else None
    return reckon.document(run, loaded, folding.spec_of(spec), made)

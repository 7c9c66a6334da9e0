"""From stored reports to clocks, forecast and directive, inside the transaction that stored them.

Reports are folded in step order along the live path, each under the spec of its attempt. What arrives in
order is folded on top of the stored state; what arrives late, or rewinds the run, folds the live path anew,
so the state never depends on the order of delivery.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session

from twoclocks import clocks
from twoclocks.clocks import ClockState
from twoclocks.store import directives, reckon
from twoclocks.store.reports import live_reports
from twoclocks.store.tables import Attempt, Directive, Forecast, Member, Run
from twoclocks.store.tables import ClockState as StateRow
from twoclocks.wire import Directive as DirectiveDocument
from twoclocks.wire import FamilyMember, RunSpec, RunState, StepReport
from twoclocks.wire import Forecast as ForecastDocument

FORECAST_EVERY = 0.005
"""A forecast is made when the samples have grown by this share: a few hundred for a run of any length."""
RATE_JUMP = 0.1
"""Relative change of the learning rate in one step that counts as a switch, not as a schedule's slope."""


@lru_cache(maxsize=256)
def spec_of(text: str) -> RunSpec:
    """The spec, parsed once; RunSpec values are never changed in place."""
    return RunSpec.model_validate_json(text)


def parse(text: str) -> ClockState | None:
    """The clock state of its stored text; None where another version of the core wrote it."""
    try:
        return ClockState.from_json(json.loads(text))
    except ValueError:
        return None


def state_of(session: Session, run: Run) -> ClockState:
    """The run's clock state for reading: as stored, or folded anew (not stored) where that is unreadable."""
    row = session.get(StateRow, run.id)
    if row is None:
        return clocks.begin(spec_of(run.spec))
    state = parse(row.state)
    if state is None:
        for _, report, text in live_reports(session, run.id):
            state = reckon.fold(run.name, state or clocks.begin(spec_of(text)), report, spec_of(text))
    return state or clocks.begin(spec_of(run.spec))


def advance(session: Session, run: Run, attempt: Attempt, reports: Sequence[StepReport], now: float) -> None:
    """Fold new live reports of one attempt, in any order; late ones fold the whole live path anew."""
    row = session.get(StateRow, run.id)
    ordered = sorted(reports, key=lambda report: report.step)
    state = parse(row.state) if row is not None and ordered[0].step > row.step else None
    if row is None or state is None:
        refold(session, run, now)
        return
    walk = _Walk(state, run, directives.current(session, run), switched=False)
    spec = spec_of(attempt.spec)
    for report in ordered:
        walk.take(report, spec)
    _settle(session, run, row, walk, attempt.attempt, now, again=walk.switched)


def refold(session: Session, run: Run, now: float) -> None:
    """Fold the whole live path from its beginning and forecast anew."""
    session.flush()
    row = session.get(StateRow, run.id)
    latest = directives.current(session, run)
    if latest is not None:
        latest.complied_at_step = None
    walk, last = None, run.attempt
    for attempt, report, text in live_reports(session, run.id):
        spec = spec_of(text)
        walk = walk or _Walk(clocks.begin(spec), run, latest, switched=True)
        walk.take(report, spec)
        last = attempt
    if walk is None:
        return
    if row is None:
        row = StateRow(run_id=run.id, collapsed=False)
        session.add(row)
    _settle(session, run, row, walk, last, now, again=True)


class _Walk:
    """The state on its way along reports; on the way it notes compliance and switches of the setting."""

    def __init__(self, state: ClockState, run: Run, latest: Directive | None, *, switched: bool) -> None:
        self.name, self.state, self.latest, self.switched = run.name, state, latest, switched
        self.asked = DirectiveDocument.model_validate_json(latest.document) if latest else None
        self.batch, self.rate = run.rollout_batch, run.learning_rate
        self.step, self.samples = run.step, run.samples

    def take(self, report: StepReport, spec: RunSpec) -> None:
        self.state = reckon.fold(self.name, self.state, report, spec)
        if self.batch is not None and self.rate is not None:
            self.switched = self.switched or (
                self.batch != report.rollout_batch
                or not math.isclose(self.rate, report.learning_rate, rel_tol=RATE_JUMP)
            )
        self.batch, self.rate = report.rollout_batch, report.learning_rate
        self.step, self.samples = report.step, report.samples
        waiting = self.latest is not None and self.latest.complied_at_step is None
        if self.latest and self.asked and waiting and directives.shows(self.asked, report):
            self.latest.complied_at_step = report.step


def _settle(
    session: Session, run: Run, row: StateRow, walk: _Walk, attempt: int, now: float, *, again: bool
) -> None:
    """Store the folded state and everything that follows from it: evidence, forecast, directive."""
    run.step, run.samples = walk.step, walk.samples
    run.rollout_batch, run.learning_rate = walk.batch, walk.rate
    row.state = json.dumps(walk.state.to_json(), separators=(",", ":"))
    assert walk.step is not None
    row.attempt, row.step = attempt, walk.step
    spec = spec_of(run.spec)
    collapsed = testify(session, run, walk.state, was_collapsed=row.collapsed)
    again = again or collapsed != row.collapsed
    row.collapsed = collapsed
    forecast = _forecast(session, run, row, walk.state, spec, now, again=again)
    if run.state == RunState.RUNNING:
        directives.issue(session, run, walk.state, spec, forecast, now)


def testify(session: Session, run: Run, state: ClockState, *, was_collapsed: bool) -> bool:
    """Keep the run's evidence for its family up to date; True where the state shows a collapse.

    A run gives evidence once it has collapsed or ended. A collapse that a later attempt rewound stays, under
    its own attempt, beside what came of the rewind; a censored one is replaced.
    """
    found = reckon.member(run.name, state, spec_of(run.spec))
    collapsed = state.onset.collapse is not None
    given = found if collapsed or run.state != RunState.RUNNING else None
    if given is None and not was_collapsed:
        return collapsed
    rows = list(session.scalars(select(Member).where(Member.run_id == run.id)))
    text = given.model_dump_json() if given else None
    if (
        given
        and len(rows) == 1
        and (rows[0].attempt, rows[0].document, rows[0].family) == (run.attempt, text, run.family)
    ):
        return collapsed
    for old in rows:
        if old.attempt == run.attempt or not old.collapsed or (given and old.samples == given.samples):
            session.delete(old)
    session.flush()
    if given and text:
        session.add(
            Member(
                run_id=run.id,
                attempt=run.attempt,
                family=run.family,
                collapsed=given.collapsed,
                samples=given.samples,
                document=text,
            )
        )
    return collapsed


def members(session: Session, family: str, without: int | None = None) -> list[FamilyMember]:
    """The evidence of a family's runs, oldest run first; never that of the run `without`."""
    query = select(Member.document).where(Member.family == family).order_by(Member.run_id, Member.attempt)
    if without is not None:
        query = query.where(Member.run_id != without)
    return [FamilyMember.model_validate_json(text) for text in session.scalars(query)]


def _forecast(
    session: Session, run: Run, row: StateRow, state: ClockState, spec: RunSpec, now: float, *, again: bool
) -> ForecastDocument | None:
    due = row.forecast_samples is None or run.samples - row.forecast_samples >= max(
        1, FORECAST_EVERY * run.samples
    )
    if not (due or again):
        latest = session.get(Forecast, row.forecast_id) if row.forecast_id is not None else None
        return ForecastDocument.model_validate_json(latest.document) if latest else None
    others = members(session, run.family, without=run.id)
    made = reckon.forecast(run.name, state, spec, others, family=run.family, made_at=now)
    kept = Forecast(
        run_id=run.id, attempt=run.attempt, samples=run.samples, made_at=now, document=made.model_dump_json()
    )
    session.add(kept)
    session.flush()
    row.forecast_id, row.forecast_samples = kept.id, run.samples
    return made

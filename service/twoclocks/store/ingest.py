"""One batch of reports, one transaction: stored, recognised as a replay, or refused; then folded.

The invariant: the key of a report is (run, attempt, step). The same report twice changes nothing; a different
report under a stored key is refused with the stored one shown; nothing that was stored is ever overwritten.
"""

from sqlalchemy import insert
from sqlalchemy.orm import Session

from twoclocks.errors import ConflictError
from twoclocks.store import attempts, directives, folding, reports
from twoclocks.store.tables import Run, Step
from twoclocks.wire import IngestReply, Refused, StepBatch, StepReport


def ingest(session: Session, run: Run, batch: StepBatch, now: float) -> IngestReply:
    """Store what is new of the batch and advance the clocks. The run's row is locked by the caller.

    Raises ConflictError, with `refused` as an extension, when every report of the batch is refused.
    """
    attempt = attempts.find(session, run, batch.attempt)
    found = (
        reports.stored(session, run.id, batch.attempt, (report.step for report in batch.reports))
        if attempt
        else {}
    )
    known = {step: reports.columns_of(row) for step, row in found.items()}
    fresh: list[StepReport] = []
    duplicates, refused = 0, []
    for report in batch.reports:
        row = reports.encode(report)
        if report.step not in known:
            known[report.step] = row
            fresh.append(report)
        elif known[report.step] == row:
            duplicates += 1
        else:
            refused.append(_refusal(batch.attempt, known[report.step], row))
    if len(refused) == len(batch.reports):
        raise ConflictError(
            f"every report of the batch differs from what is stored under its (run, attempt, step), "
            f"first: {refused[0].reason}; report a rewind under a new attempt",
            refused=[item.model_dump(mode="json") for item in refused],
        )
    if fresh:
        attempt = attempt or attempts.begin(session, run, batch.attempt, folding.spec_of(run.spec), now)
        session.flush()
        keys = {"run_id": run.id, "attempt": batch.attempt}
        session.execute(insert(Step), [{**keys, **known[report.step]} for report in fresh])
        run.reports += len(fresh)
        run.revision += 1
        run.last_report_at = run.heard_at = max(now, run.heard_at)
        steps = [report.step for report in fresh]
        rewound = attempts.extend(session, run, attempt, min(steps), max(steps))
        live = [r for r in fresh if attempt.live_until is None or r.step < attempt.live_until]
        if rewound:
            folding.refold(session, run, now)
        elif live:
            folding.advance(session, run, attempt, live, now)
    return IngestReply(
        accepted=len(fresh),
        duplicates=duplicates,
        refused=refused,
        directive=directives.document(session, run),
    )


def _refusal(attempt: int, stored: dict[str, object], given: dict[str, object]) -> Refused:
    before = reports.from_columns(stored)
    after = reports.from_columns(given)
    fields = [name for name in reports.FIELDS if stored[name] != given[name]]
    names = sorted(before.metrics.keys() | after.metrics.keys())
    fields += [name for name in names if repr(before.metrics.get(name)) != repr(after.metrics.get(name))]
    reason = f"step {before.step} of attempt {attempt} is stored with another {', '.join(fields[:5])}"
    return Refused(step=before.step, attempt=attempt, reason=reason, stored=before)

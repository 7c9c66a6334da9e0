"""Directives: issuing them, what trainers said of them, and what the reports say became of them.

Acknowledging is not complying: a switch is complied with when a live report shows the new batch and rate.
"""

import math
from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from twoclocks.clocks import ClockState
from twoclocks.errors import ConflictError, NotFoundError
from twoclocks.store import reckon
from twoclocks.store.tables import Ack, Directive, Run
from twoclocks.wire import Ack as AckDocument
from twoclocks.wire import AckState, DirectiveKind, DirectiveRecord, RunSpec, RunState, StepReport
from twoclocks.wire import Directive as DirectiveDocument
from twoclocks.wire import Forecast as ForecastDocument

RATE_TOLERANCE = 0.01
"""A reported learning rate this near the asked one complies: schedulers go on moving it after a switch."""
FINAL = frozenset({AckState.APPLIED, AckState.REJECTED, AckState.EXPIRED})


def current(session: Session, run: Run) -> Directive | None:
    """The row of the latest directive; None where none was issued yet."""
    return session.get(Directive, (run.id, run.generation)) if run.generation else None


def document(session: Session, run: Run) -> DirectiveDocument:
    """The directive that holds: the latest, or generation 0, which asks for nothing."""
    row = current(session, run)
    return DirectiveDocument.model_validate_json(row.document) if row else nothing(run)


def nothing(run: Run) -> DirectiveDocument:
    """Generation 0: carry on."""
    return DirectiveDocument(generation=0, reason="no directive yet: carry on", issued_at=run.created_at)


def shows(directive: DirectiveDocument, report: StepReport) -> bool:
    """Whether the report, made after the directive, shows the setting that it asks for."""
    if directive.kind is not DirectiveKind.SWITCH_BATCH or report.samples <= directive.issued_at_samples:
        return False
    rate = directive.learning_rate
    return (
        report.step >= directive.not_before_step
        and (directive.rollout_batch is None or report.rollout_batch == directive.rollout_batch)
        and (rate is None or math.isclose(report.learning_rate, rate, rel_tol=RATE_TOLERANCE))
    )


def issue(
    session: Session,
    run: Run,
    state: ClockState,
    spec: RunSpec,
    forecast: ForecastDocument | None,
    now: float,
) -> None:
    """Ask the core for a new directive and store it as the next generation, if there is one."""
    so_far = log(session, [run.id])[run.id] if run.generation else []
    made = reckon.decide(run.name, state, spec, forecast, so_far, now=now)
    if made is None:
        return
    run.generation += 1
    numbered = made.model_copy(update={"generation": run.generation})
    session.add(Directive(run_id=run.id, generation=run.generation, document=numbered.model_dump_json()))
    session.flush()


def log(session: Session, run_ids: Sequence[int]) -> dict[int, list[DirectiveRecord]]:
    """Every directive of these runs in order, with its acks and its compliance."""
    acks: dict[tuple[int, int], list[AckDocument]] = {}
    for ack in session.scalars(select(Ack).where(Ack.run_id.in_(run_ids)).order_by(Ack.id)):
        said = AckDocument.model_validate_json(ack.document)
        acks.setdefault((ack.run_id, ack.generation), []).append(said)
    rows = (
        select(Directive)
        .where(Directive.run_id.in_(run_ids))
        .order_by(Directive.run_id, Directive.generation)
    )
    records: dict[int, list[DirectiveRecord]] = {}
    for row in session.scalars(rows):
        issued = DirectiveDocument.model_validate_json(row.document)
        records.setdefault(row.run_id, []).append(
            DirectiveRecord(
                **issued.model_dump(),
                acks=acks.get((row.run_id, row.generation), []),
                complied_at_step=row.complied_at_step,
            )
        )
    return records


def pending(run: Run, record: DirectiveRecord | None) -> bool:
    """Whether the latest directive still waits for the trainer.

    A switch waits for a report that shows it, a stop for the run's end, a checkpoint (which no report can
    show) for its ack; none waits any longer once rejected, expired, or past its `expires_at_step`.
    """
    if record is None or record.kind is DirectiveKind.HOLD or run.state != RunState.RUNNING:
        return False
    said = {ack.state for ack in record.acks}
    if said & {AckState.REJECTED, AckState.EXPIRED}:
        return False
    if record.expires_at_step is not None and run.step is not None and run.step > record.expires_at_step:
        return False
    if record.kind is DirectiveKind.CHECKPOINT:
        return AckState.APPLIED not in said
    return record.complied_at_step is None


def note_end(session: Session, run: Run) -> None:
    """The run has ended: that is how a stop is complied with."""
    row = current(session, run)
    if row is None or row.complied_at_step is not None:
        return
    if DirectiveDocument.model_validate_json(row.document).kind is DirectiveKind.STOP:
        row.complied_at_step = run.step


def acknowledge(session: Session, run: Run, generation: int, ack: AckDocument) -> bool:
    """Keep what the trainer said; False where it had said so before.

    Raises NotFoundError for a generation never issued, ConflictError where this attempt has already said
    something final and different of it.
    """
    if session.get(Directive, (run.id, generation)) is None:
        raise NotFoundError(
            f"run {run.name!r} has no directive of generation {generation}; the latest is {run.generation}"
        )
    mine = select(Ack).where(Ack.run_id == run.id, Ack.generation == generation, Ack.attempt == ack.attempt)
    before = [AckDocument.model_validate_json(row.document) for row in session.scalars(mine)]
    for said in before:
        if said.state is ack.state and _content(said) == _content(ack):
            return False
        if said.state in FINAL and ack.state is AckState.RECEIVED:
            return False  # heard out of order: it was received before it was answered
        if said.state is ack.state or (said.state in FINAL and ack.state in FINAL):
            raise ConflictError(
                f"attempt {ack.attempt} has already answered directive {generation} with "
                f"{said.state.value!r}; an answer is not changed, a later attempt may give another",
                stored=said.model_dump(mode="json"),
            )
    session.add(
        Ack(
            run_id=run.id,
            generation=generation,
            attempt=ack.attempt,
            state=ack.state,
            document=ack.model_dump_json(),
        )
    )
    return True


def _content(ack: AckDocument) -> dict[str, object]:
    return ack.model_dump(exclude={"time"})


def latest(records: Iterable[DirectiveRecord]) -> DirectiveRecord | None:
    """The last record, None where there is none."""
    return max(records, key=lambda record: record.generation, default=None)

"""Directives: issued by the core through the store, acknowledged, believed only when reports show them."""

from collections.abc import Callable

import pytest

from twoclocks.errors import ConflictError, NotFoundError
from twoclocks.store import Store
from twoclocks.wire import (
    Ack,
    AckState,
    DirectiveKind,
    Finish,
    RunSpec,
    ScheduledSwitch,
    StepBatch,
    StepReport,
)

Report = Callable[..., StepReport]
Batch = Callable[..., StepBatch]
AT_STEP_9 = RunSpec(
    window_samples=256, schedule=[ScheduledSwitch(at_samples=640, rollout_batch=256)], heartbeat_seconds=60
)


@pytest.fixture
def switching(store: Store, report: Report, batch: Batch) -> Store:
    """A run whose declared schedule has just issued the switch to 256."""
    store.put_run("a", AT_STEP_9, 1.0)
    for step in range(60):
        reply = store.ingest("a", batch(report(step)), 2.0)
        if reply.directive.kind is DirectiveKind.SWITCH_BATCH:
            return store
    raise AssertionError("the schedule was not executed")


def test_a_schedule_is_executed_and_rides_in_the_reply(switching: Store) -> None:
    directive = switching.directive("a")
    assert (directive.kind, directive.rollout_batch, directive.learning_rate) == ("switch_batch", 256, 1e-4)
    assert directive.issued_at_samples >= 640
    assert switching.run("a", 3.0).directive == directive
    records = switching.directives("a")
    assert [record.generation for record in records] == list(range(1, directive.generation + 1))


def test_complied_when_the_reports_show_the_new_batch_and_rate(
    switching: Store, report: Report, batch: Batch
) -> None:
    issued = switching.directive("a")
    step = issued.not_before_step
    assert switching.run("a", 3.0).directive_pending
    switching.ingest("a", batch(report(step)), 3.0)
    assert switching.run("a", 3.0).directive_pending
    shown = report(step + 1, rollout_batch=256, samples=64 * (step + 1) + 256, learning_rate=1.001e-4)
    switching.ingest("a", batch(shown), 3.0)
    record = next(r for r in switching.directives("a") if r.generation == issued.generation)
    assert record.complied_at_step == step + 1
    assert not switching.run("a", 3.0).directive_pending


def test_another_rate_does_not_comply(switching: Store, report: Report, batch: Batch) -> None:
    issued = switching.directive("a")
    step = issued.not_before_step
    shown = report(step, rollout_batch=256, samples=64 * step + 256, learning_rate=2e-4)
    switching.ingest("a", batch(shown), 3.0)
    record = next(r for r in switching.directives("a") if r.generation == issued.generation)
    assert record.complied_at_step is None


def test_acknowledging_is_not_complying(switching: Store) -> None:
    generation = switching.directive("a").generation
    record = switching.ack("a", generation, Ack(state=AckState.APPLIED, step=20, rollout_batch=256), 3.0)
    assert [ack.state for ack in record.acks] == ["applied"]
    assert record.complied_at_step is None
    assert switching.run("a", 3.0).directive_pending


def test_an_ack_is_idempotent_and_is_not_changed(switching: Store) -> None:
    generation = switching.directive("a").generation
    received, applied = Ack(state=AckState.RECEIVED), Ack(state=AckState.APPLIED, step=20)
    switching.ack("a", generation, received, 3.0)
    switching.ack("a", generation, applied, 3.0)
    revision = switching.revision("a")
    for again in (received, applied, applied.model_copy(update={"time": 9.0})):
        record = switching.ack("a", generation, again, 4.0)
        assert [ack.state for ack in record.acks] == ["received", "applied"]
    assert switching.revision("a") == revision
    for other in (Ack(state=AckState.APPLIED, step=21), Ack(state=AckState.REJECTED)):
        with pytest.raises(ConflictError) as caught:
            switching.ack("a", generation, other, 4.0)
        assert caught.value.extensions["stored"]["step"] == 20
    later = switching.ack("a", generation, Ack(state=AckState.REJECTED, attempt=2), 5.0)
    assert [ack.state for ack in later.acks] == ["received", "applied", "rejected"]


def test_received_after_the_answer_changes_nothing(switching: Store) -> None:
    generation = switching.directive("a").generation
    switching.ack("a", generation, Ack(state=AckState.REJECTED, reason="no memory"), 3.0)
    record = switching.ack("a", generation, Ack(state=AckState.RECEIVED), 3.0)
    assert [ack.state for ack in record.acks] == ["rejected"]


@pytest.mark.parametrize("state", [AckState.REJECTED, AckState.EXPIRED])
def test_an_answered_no_is_not_pending(switching: Store, state: AckState) -> None:
    switching.ack("a", switching.directive("a").generation, Ack(state=state), 3.0)
    assert not switching.run("a", 3.0).directive_pending


def test_nothing_is_pending_once_the_run_ended(switching: Store) -> None:
    assert switching.finish("a", Finish(), 3.0).directive_pending is False


def test_an_ack_for_what_was_never_issued_is_not_found(switching: Store) -> None:
    with pytest.raises(NotFoundError, match="no directive of generation 99"):
        switching.ack("a", 99, Ack(state=AckState.APPLIED), 3.0)
    with pytest.raises(NotFoundError):
        switching.ack("a", 0, Ack(state=AckState.APPLIED), 3.0)


def test_a_rewind_takes_compliance_back(switching: Store, report: Report, batch: Batch) -> None:
    issued = switching.directive("a")
    step = issued.not_before_step
    switching.ingest("a", batch(report(step, rollout_batch=256, samples=64 * step + 256)), 3.0)
    assert not switching.run("a", 3.0).directive_pending
    switching.ingest("a", batch(report(step - 2), attempt=2), 4.0)
    record = next(r for r in switching.directives("a") if r.generation == issued.generation)
    assert record.complied_at_step is None


def test_replays_issue_nothing_new(switching: Store, report: Report, batch: Batch) -> None:
    before = switching.directives("a")
    for step in range(5):
        switching.ingest("a", batch(report(step)), 5.0)
    assert switching.directives("a") == before


def test_a_stop_is_complied_with_by_the_end_of_the_run(
    store: Store, collapsing: Callable[..., list[StepReport]], batch: Batch
) -> None:
    store.put_run("a", RunSpec(window_samples=256), 1.0)
    for one in collapsing(100, at=60):
        reply = store.ingest("a", batch(one), 1.0)
        if reply.directive.kind is DirectiveKind.STOP:
            break
    assert store.run("a", 1.0).directive_pending
    ended = store.finish("a", Finish(state="stopped"), 2.0)
    assert not ended.directive_pending
    assert store.directives("a")[-1].complied_at_step == ended.step

"""A run's life: declared, resumed, corrected, lost, ended; and the evidence it leaves its family."""

from collections.abc import Callable

import pytest

from twoclocks.errors import NotFoundError
from twoclocks.store import Store
from twoclocks.wire import Finish, RunConfig, RunSpec, RunState, StepBatch, StepReport

Report = Callable[..., StepReport]
Batch = Callable[..., StepBatch]
Series = Callable[..., list[StepReport]]
WATCHED = RunSpec(window_samples=256, family="f")


def test_an_empty_spec_will_do(store: Store) -> None:
    summary = store.put_run("a", RunSpec(), 5.0)
    assert (summary.state, summary.attempt, summary.reports, summary.step) == (RunState.RUNNING, 1, 0, None)
    assert summary.created_at == 5.0
    assert summary.directive.generation == 0
    assert summary.clocks.failure is None


def test_put_is_idempotent(store: Store) -> None:
    first = store.put_run("a", WATCHED, 5.0)
    assert store.put_run("a", WATCHED, 5.0) == first
    assert store.put_run("a", WATCHED, 500.0).revision == first.revision


def test_a_newer_attempt_resumes_under_the_new_spec(store: Store, report: Report, batch: Batch) -> None:
    store.put_run("a", RunSpec(), 5.0)
    store.ingest("a", batch(report(0)), 6.0)
    store.finish("a", Finish(state="failed", reason="out of memory"), 7.0)
    resumed = store.put_run("a", RunSpec(attempt=2, target_reward=0.9), 8.0)
    assert (resumed.state, resumed.attempt, resumed.attempts) == (RunState.RUNNING, 2, 2)
    assert (resumed.ended_at, resumed.end_reason) == (None, None)
    assert resumed.spec.target_reward == 0.9
    assert resumed.reports == 1


def test_an_older_attempt_heard_late_changes_nothing(store: Store) -> None:
    store.put_run("a", RunSpec(attempt=5, target_reward=0.9), 5.0)
    late = store.put_run("a", RunSpec(attempt=4), 6.0)
    assert (late.attempt, late.spec.target_reward, late.attempts) == (5, 0.9, 2)


def test_the_same_attempt_with_another_spec_corrects_it(store: Store, report: Report, batch: Batch) -> None:
    store.ingest(
        "a", batch(*(report(step) for step in range(8))), 5.0
    )  # the first report came before the PUT
    corrected = store.put_run("a", RunSpec(family="f", target_reward=0.6, project="p"), 6.0)
    assert (corrected.family, corrected.project, corrected.attempts) == ("f", "p", 1)
    assert corrected.clocks.progress is not None
    assert corrected.clocks.progress.target == 0.6
    assert corrected.clocks.failure is not None
    assert corrected.clocks.failure.family == "f"


def test_a_run_begins_with_its_first_report(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(0), attempt=7), 5.0)
    assert store.run("a", 5.0).attempt == 7
    assert store.run("a", 5.0).spec == RunSpec(attempt=7)


def test_what_is_unknown_is_not_found(store: Store) -> None:
    for read in (
        store.clocks,
        store.forecasts,
        store.steps,
        store.directive,
        store.directives,
        store.revision,
    ):
        with pytest.raises(NotFoundError, match="no run 'a'"):
            read("a")
    with pytest.raises(NotFoundError):
        store.finish("a", Finish(), 1.0)


def test_a_silent_run_is_lost_and_comes_back(store: Store, report: Report, batch: Batch) -> None:
    store.put_run("a", RunSpec(heartbeat_seconds=60), 0.0)
    assert store.run("a", 60.0).state is RunState.RUNNING
    assert store.run("a", 60.5).state is RunState.LOST
    store.ingest("a", batch(report(0)), 70.0)
    assert store.run("a", 130.0).state is RunState.RUNNING
    assert store.run("a", 130.5).state is RunState.LOST
    assert [run.run for run in store.runs(130.5, state=RunState.LOST).runs] == ["a"]
    assert store.runs(130.5, state=RunState.RUNNING).total == 0
    assert store.put_run("a", RunSpec(heartbeat_seconds=60, attempt=2), 200.0).state is RunState.RUNNING
    store.finish("a", Finish(attempt=2), 210.0)
    assert store.run("a", 9_999.0).state is RunState.FINISHED


def test_a_server_clock_that_jumps_back_loses_no_run(store: Store, report: Report, batch: Batch) -> None:
    store.put_run("a", RunSpec(heartbeat_seconds=60), 1_000.0)
    store.ingest("a", batch(report(0)), 500.0)
    assert store.run("a", 1_050.0).state is RunState.RUNNING


def test_finish_is_idempotent_and_an_older_attempts_end_does_not_end_the_run(store: Store) -> None:
    store.put_run("a", RunSpec(attempt=2), 1.0)
    assert store.finish("a", Finish(attempt=1, state="failed"), 2.0).state is RunState.RUNNING
    ended = store.finish("a", Finish(attempt=2, reason="done"), 3.0)
    assert (ended.state, ended.ended_at, ended.end_reason) == (RunState.FINISHED, 3.0, "done")
    assert store.finish("a", Finish(attempt=2, reason="done"), 4.0) == ended


def test_reports_that_arrive_after_the_end_are_kept(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(0)), 1.0)
    store.finish("a", Finish(), 2.0)
    assert store.ingest("a", batch(report(1)), 3.0).accepted == 1
    late = store.run("a", 3.0)
    assert (late.state, late.step, late.reports) == (RunState.FINISHED, 1, 2)
    store.ingest("a", batch(report(2), attempt=2), 4.0)
    assert store.run("a", 4.0).state is RunState.RUNNING


def test_runs_are_listed_newest_first_by_project_and_page(store: Store) -> None:
    for i in range(5):
        store.put_run(f"run-{i}", RunSpec(project="odd" if i % 2 else "even"), float(i))
    listed = store.runs(9.0)
    assert [run.run for run in listed.runs] == [f"run-{i}" for i in (4, 3, 2, 1, 0)]
    page = store.runs(9.0, project="even", limit=1, offset=1)
    assert ([run.run for run in page.runs], page.total) == (["run-2"], 3)


def test_an_ended_run_is_censored_evidence(store: Store, report: Report, batch: Batch) -> None:
    store.put_run("a", WATCHED, 1.0)
    store.ingest("a", batch(*(report(step) for step in range(6))), 1.0)
    assert store.families()[0].members == []
    store.finish("a", Finish(), 2.0)
    (family,) = store.families()
    assert (family.family, family.censored_runs, family.collapsed_runs) == ("f", 1, 0)
    assert (family.members[0].run, family.members[0].samples) == ("a", 6 * 64)
    store.put_run("a", WATCHED.model_copy(update={"attempt": 2}), 3.0)
    assert store.families()[0].members == []  # alive again: no evidence until it ends once more


def test_a_collapsed_run_is_evidence_while_it_runs(store: Store, collapsing: Series, batch: Batch) -> None:
    store.put_run("a", WATCHED, 1.0)
    for one in collapsing(120, at=60):
        store.ingest("a", batch(one), 1.0)
    clocks = store.clocks("a")
    assert clocks.onset is not None
    (member,) = store.families()[0].members
    assert member.collapsed
    assert member.samples == clocks.onset.samples < 64 * 62
    assert store.forecasts("a")[-1].status == "collapsed"


def test_the_forecast_uses_the_others_of_the_family_and_never_the_run_itself(
    store: Store, collapsing: Series, report: Report, batch: Batch
) -> None:
    for i in range(4):
        store.put_run(f"past-{i}", WATCHED, 1.0)
        store.ingest(f"past-{i}", batch(*collapsing(120, at=56 + 4 * i, seed=i)), 1.0)
    assert store.families()[0].collapsed_runs == 4
    store.put_run("new", WATCHED, 2.0)
    store.ingest("new", batch(*(report(step) for step in range(20))), 2.0)
    forecast = store.forecasts("new")[-1]
    assert (forecast.status, forecast.collapsed_runs) == ("forecast", 4)
    store.ingest("past-0", batch(*collapsing(160, at=0, first=120)), 2.0)
    assert store.forecasts("past-0")[-1].collapsed_runs == 3
    store.put_run("stranger", WATCHED.model_copy(update={"family": "g"}), 2.0)
    store.ingest("stranger", batch(report(0)), 2.0)
    assert store.forecasts("stranger")[-1].collapsed_runs == 0


def test_a_collapse_that_was_rewound_stays_evidence(
    store: Store, collapsing: Series, report: Report, batch: Batch
) -> None:
    store.put_run("a", WATCHED, 1.0)
    store.ingest("a", batch(*collapsing(120, at=60)), 1.0)
    (before,) = store.families()[0].members
    store.put_run("a", WATCHED.model_copy(update={"attempt": 2}), 2.0)
    store.ingest("a", batch(*(report(step, reward=0.75) for step in range(40, 70)), attempt=2), 2.0)
    assert store.clocks("a").onset is None
    assert store.families()[0].members == [before]
    store.finish("a", Finish(attempt=2), 3.0)
    first, second = store.families()[0].members
    assert first == before
    assert (second.collapsed, second.samples) == (False, 70 * 64)


def test_a_collapse_is_counted_once_when_a_later_attempt_goes_on_after_it(
    store: Store, collapsing: Series, batch: Batch
) -> None:
    store.put_run("a", WATCHED, 1.0)
    store.ingest("a", batch(*collapsing(120, at=60)), 1.0)
    store.ingest("a", batch(*collapsing(130, at=60, first=120), attempt=2), 2.0)
    store.finish("a", Finish(attempt=2), 3.0)
    assert [member.collapsed for member in store.families()[0].members] == [True]


def test_forecasts_are_kept_but_thinned(store: Store, report: Report, batch: Batch) -> None:
    store.put_run("a", WATCHED, 1.0)
    for start in range(0, 1_000, 5):
        store.ingest("a", batch(*(report(step) for step in range(start, start + 5))), 1.0)
    made = [forecast.samples for forecast in store.forecasts("a")]
    assert made == sorted(made)
    assert made[0] == 5 * 64
    gaps = [after - before for before, after in zip(made[-50:], made[-49:], strict=False)]
    assert min(gaps) >= 0.005 * made[-50]
    assert made[-1] > 0.99 * 1_000 * 64


def test_the_family_comes_from_the_configuration_where_none_is_named(store: Store) -> None:
    one = store.put_run("a", RunSpec(config=RunConfig(model="m", task="t", seed=1)), 1.0)
    two = store.put_run("b", RunSpec(config=RunConfig(model="m", task="t", seed=2)), 1.0)
    other = store.put_run("c", RunSpec(config=RunConfig(model="m", task="t", epochs=2)), 1.0)
    assert one.family == two.family != other.family
    assert [family.family for family in store.families()] == sorted({one.family, other.family})

"""The invariant of ingest: (run, attempt, step) is stored once, in whatever order and however often."""

import logging
import math
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from twoclocks import clocks
from twoclocks.errors import ConflictError
from twoclocks.store import Store
from twoclocks.wire import Clocks, RunSpec, RunSummary, StepBatch, StepReport

Report = Callable[..., StepReport]
Batch = Callable[..., StepBatch]


def shared_store(max_examples: int) -> settings:
    """One database for all examples: each makes its own run. Shrinking a failure would refold for minutes."""
    return settings(
        max_examples=max_examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def state_text(url: str, run: str) -> str:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            query = "SELECT s.state FROM clock_states s JOIN runs ON runs.id = s.run_id WHERE name = :name"
            return str(connection.execute(text(query), {"name": run}).scalar_one())
    finally:
        engine.dispose()


def without_forecast(both: Clocks) -> dict[str, object]:
    return both.model_dump(exclude={"failure", "run"})


def test_a_replay_changes_nothing(store: Store, report: Report, batch: Batch) -> None:
    sent = batch(*(report(step) for step in range(5)))
    first = store.ingest("a", sent, 1.0)
    before = store.run("a", 1.0)
    again = store.ingest("a", sent, 2.0)
    assert (first.accepted, first.duplicates) == (5, 0)
    assert (again.accepted, again.duplicates) == (0, 5)
    assert store.run("a", 1.0) == before
    assert store.steps("a").total == 5


def test_a_batch_may_hold_the_same_report_twice(store: Store, report: Report, batch: Batch) -> None:
    reply = store.ingest("a", batch(report(0), report(1), report(0)), 1.0)
    assert (reply.accepted, reply.duplicates) == (2, 1)


def test_nan_equals_nan_when_replayed(store: Store, report: Report, batch: Batch) -> None:
    sent = batch(report(0, reward=math.nan, kl=math.inf, loss=-math.inf))
    store.ingest("a", sent, 1.0)
    assert store.ingest("a", sent, 1.0).duplicates == 1
    columns = store.steps("a")
    assert math.isnan(columns.metrics["reward"][0] or 0)
    assert columns.metrics["kl"] == [math.inf]
    assert columns.metrics["loss"] == [-math.inf]


def test_another_report_under_the_same_key_is_refused_and_the_stored_one_shown(
    store: Store, report: Report, batch: Batch
) -> None:
    store.ingest("a", batch(report(0, kl=0.25)), 1.0)
    reply = store.ingest("a", batch(report(0, kl=0.5), report(1)), 1.0)
    assert (reply.accepted, reply.duplicates, len(reply.refused)) == (1, 0, 1)
    assert reply.refused[0].stored == report(0, kl=0.25)
    assert "another kl" in reply.refused[0].reason
    assert store.steps("a").metrics["kl"] == [0.25, None]


def test_a_batch_refused_whole_is_a_conflict(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(0)), 1.0)
    before = store.run("a", 1.0)
    with pytest.raises(ConflictError) as caught:
        store.ingest("a", batch(report(0, reward=0.9)), 2.0)
    assert caught.value.extensions["refused"][0]["stored"]["reward"] == 0.5
    assert store.run("a", 1.0) == before


def test_missing_is_not_zero(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(0, kl=0.0)), 1.0)
    with pytest.raises(ConflictError):
        store.ingest("a", batch(report(0)), 1.0)


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_order_and_repetition_of_reports_gives_the_same_clocks(
    data: st.DataObject, store: Store, url: str, collapsing: Callable[..., list[StepReport]], batch: Batch
) -> None:
    spec = RunSpec(window_samples=256, target_reward=0.9)
    reports = collapsing(24, at=12)
    runs = [summary.run for summary in store.runs(1.0, limit=1_000).runs]
    if "ordered" not in runs:
        store.put_run("ordered", spec, 1.0)
        for one in reports:
            store.ingest("ordered", batch(one), 1.0)
    order = data.draw(st.permutations(reports))
    repeated = order + data.draw(st.lists(st.sampled_from(reports), max_size=5))
    name = f"shuffled-{len(runs)}"
    store.put_run(name, spec, 1.0)
    while repeated:
        size = data.draw(st.integers(1, len(repeated)))
        store.ingest(name, batch(*repeated[:size]), 1.0)
        repeated = repeated[size:]
    assert state_text(url, name) == state_text(url, "ordered")
    assert without_forecast(store.clocks(name)) == without_forecast(store.clocks("ordered"))
    ordered, shuffled = store.steps("ordered"), store.steps(name)
    assert shuffled.model_dump(exclude={"run"}) == ordered.model_dump(exclude={"run"})


def test_the_last_forecast_does_not_depend_on_the_order_either(
    store: Store, collapsing: Callable[..., list[StepReport]], batch: Batch
) -> None:
    reports = collapsing(40, at=40)
    for name, order in (("ordered", reports), ("reversed", [*reversed(reports[:-1]), reports[-1]])):
        store.put_run(name, RunSpec(window_samples=256), 1.0)
        for one in order:
            store.ingest(name, batch(one), 1.0)
    assert store.clocks("ordered").failure == store.clocks("reversed").failure


def test_an_attempt_that_starts_earlier_rewinds_and_keeps_history(
    store: Store, report: Report, batch: Batch
) -> None:
    store.ingest("a", batch(*(report(step) for step in range(10))), 1.0)
    store.ingest("a", batch(*(report(step, reward=0.9) for step in range(6, 8)), attempt=2), 2.0)
    live = store.steps("a")
    assert live.step == [0, 1, 2, 3, 4, 5, 6, 7]
    assert live.attempt == [1, 1, 1, 1, 1, 1, 2, 2]
    assert store.steps("a", attempt=1).step == list(range(10))
    summary = store.run("a", 2.0)
    assert (summary.step, summary.samples, summary.attempt, summary.attempts) == (7, 8 * 64, 2, 2)
    assert summary.reports == 12


def test_a_rewound_run_has_the_clocks_of_its_live_path(
    store: Store, url: str, report: Report, batch: Batch
) -> None:
    spec = RunSpec(window_samples=256)
    store.put_run("rewound", spec, 1.0)
    store.ingest("rewound", batch(*(report(step) for step in range(10))), 1.0)
    store.put_run("rewound", spec.model_copy(update={"attempt": 2}), 2.0)
    store.ingest("rewound", batch(*(report(step, reward=0.7) for step in range(5, 12)), attempt=2), 2.0)
    store.put_run("straight", spec, 1.0)
    store.ingest("straight", batch(*(report(s, reward=0.5 if s < 5 else 0.7) for s in range(12))), 1.0)
    assert state_text(url, "rewound") == state_text(url, "straight")


def test_three_attempts_each_starting_earlier(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(*(report(step) for step in range(10))), 1.0)
    store.ingest("a", batch(*(report(step) for step in range(8, 12)), attempt=2), 1.0)
    store.ingest("a", batch(*(report(step) for step in range(5, 7)), attempt=3), 1.0)
    live = store.steps("a")
    assert live.step == [0, 1, 2, 3, 4, 5, 6]
    assert live.attempt == [1] * 5 + [3] * 2


def test_late_reports_of_an_older_attempt(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(0), report(1)), 1.0)
    store.ingest("a", batch(report(5), attempt=2), 1.0)
    before = store.run("a", 1.0)
    store.ingest("a", batch(report(3), report(6)), 1.0)  # attempt 1: 3 lies on the live path, 6 does not
    assert store.steps("a").step == [0, 1, 3, 5]
    assert store.steps("a", attempt=1).step == [0, 1, 3, 6]
    assert store.run("a", 1.0).attempt == before.attempt == 2


def test_an_attempt_heard_of_only_after_a_newer_one(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(report(4), attempt=3), 1.0)
    store.ingest("a", batch(report(3), report(4, reward=0.1), attempt=2), 1.0)
    assert store.steps("a").step == [3, 4]
    assert store.steps("a").attempt == [2, 3]
    assert store.run("a", 1.0).attempt == 3


def test_a_range_and_a_number_of_points(store: Store, report: Report, batch: Batch) -> None:
    store.ingest("a", batch(*(report(s, reward=5.0 if s == 333 else 0.5) for s in range(600))), 1.0)
    assert store.steps("a", from_step=10, to_step=12).step == [10, 11, 12]
    thinned = store.steps("a", max_points=20)
    assert thinned.total == 600
    assert len(thinned.step) <= 20
    assert 333 in thinned.step


def test_threads_on_their_own_run_and_on_one(store: Store, report: Report, batch: Batch) -> None:
    failures: list[BaseException] = []

    def send(run: str, steps: range) -> None:
        try:
            for step in steps:
                store.ingest(run, batch(report(step)), 1.0)
        except BaseException as error:
            failures.append(error)
            raise

    work = [(f"own-{i}", range(12)) for i in range(4)] + [("shared", range(i, 24, 2)) for i in (0, 1, 0)]
    threads = [threading.Thread(target=send, args=job) for job in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for i in range(4):
        assert store.steps(f"own-{i}").step == list(range(12))
    assert store.steps("shared").step == list(range(24))
    assert store.run("shared", 1.0).reports == 24
    assert store.run("shared", 1.0).revision == 1 + 24


def wild(
    floats: st.SearchStrategy[float], whole: st.SearchStrategy[int]
) -> st.SearchStrategy[list[StepReport]]:
    """Runs of reports that a careless or hostile trainer may send."""
    metrics = ("entropy", "displacement", "clip_fraction", "zero_variance_fraction", "grad_norm", "regime")
    fields = st.fixed_dictionaries(
        {
            "samples": whole,
            "rollout_batch": whole.map(lambda n: max(n, 1)),
            "learning_rate": floats.map(lambda x: abs(x) if math.isfinite(x) else 0.0),
            "reward": floats,
            "updates": whole,
            "epochs": whole.map(lambda n: max(n, 1)),
        },
        optional=dict.fromkeys(metrics, floats),
    )
    return st.lists(fields, min_size=1, max_size=8).map(
        lambda rows: [StepReport.model_validate({"step": step, **row}) for step, row in enumerate(rows)]
    )


def send_and_read(store: Store, sent: list[StepReport]) -> None:
    name = f"wild-{store.runs(1.0, limit=1).total}"
    store.put_run(name, RunSpec(budget_samples=10_000, target_reward=0.9, window_samples=64), 1.0)
    body = StepBatch(reports=sent).model_dump_json()
    assert store.ingest(name, StepBatch.model_validate_json(body), 1.0).accepted == len(sent)
    assert store.ingest(name, StepBatch.model_validate_json(body), 1.0).duplicates == len(sent)
    assert RunSummary.model_validate_json(store.run(name, 1.0).model_dump_json()).reports == len(sent)
    assert len(store.steps(name).step) == len(sent)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@shared_store(max_examples=40)
@given(sent=wild(st.floats(), st.integers(0, 2**53)))
def test_any_legal_report_is_stored_and_its_run_read(store: Store, sent: list[StepReport]) -> None:
    logging.disable(logging.CRITICAL)
    try:
        send_and_read(store, sent)
    finally:
        logging.disable(logging.NOTSET)


@shared_store(max_examples=40)
@given(
    sent=wild(
        st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-6, 0.3, 1.0, 40.0]), st.integers(0, 10_000)
    )
)
def test_the_clocks_digest_what_a_real_trainer_may_send(
    store: Store, caplog: pytest.LogCaptureFixture, sent: list[StepReport]
) -> None:
    send_and_read(store, sent)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_report_that_the_clocks_cannot_digest_is_stored_and_said(
    store: Store,
    report: Report,
    batch: Batch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fold = clocks.fold

    def choosy(state: clocks.ClockState, one: StepReport, spec: RunSpec) -> clocks.ClockState:
        if one.step == 1:
            raise ZeroDivisionError
        return fold(state, one, spec)

    monkeypatch.setattr(clocks, "fold", choosy)
    assert store.ingest("a", batch(report(0), report(1), report(2)), 1.0).accepted == 3
    assert store.steps("a").step == [0, 1, 2]
    assert store.clocks("a").step == 2
    assert "step 1 is stored but not folded" in caplog.text

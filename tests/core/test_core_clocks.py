"""The clocks through the wire: whole simulated runs folded, forecast, decided on, and told."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoclocks import clocks
from twoclocks.clocks import ClockState
from twoclocks.core.simulate import Phase, SimulatedRun, Truth, simulate
from twoclocks.wire import (
    Ack,
    AckState,
    Candidate,
    DirectiveKind,
    DirectiveRecord,
    FamilyMember,
    Forecast,
    ForecastStatus,
    RunConfig,
    RunSpec,
    ScheduledSwitch,
    StepReport,
)

TRUTH = Truth(median=3_000.0, omega=0.35, q=2.0, eta0_reference=2e-4)
PAST = 100
ALONE = [Phase(0, 64, 8e-4)]
CONFIG = RunConfig(model="tiny", task="sort", updates_per_batch=4, group_size=8)


def spec(**changes: Any) -> RunSpec:
    return RunSpec(**({"config": CONFIG, "budget_samples": 12_000, "window_samples": 256} | changes))


def folded(run: SimulatedRun, of: RunSpec, until: float = math.inf) -> ClockState:
    state = clocks.begin(of)
    for report in run.reports:
        if report["samples"] > until:
            break
        state = clocks.fold(state, StepReport(**report), of)
    return state


def past_runs(first: int) -> list[FamilyMember]:
    """Eight unguided runs, dated by our own detector; two are cut short."""
    members = []
    for i in range(8):
        run = simulate(TRUTH, ALONE, 12_000 if i < 6 else 1_500, seed=first + i)
        found = clocks.member(f"past-{i}", folded(run, spec()), spec())
        assert found is not None
        members.append(found)
    return members


@pytest.fixture(scope="module")
def family() -> list[FamilyMember]:
    return past_runs(PAST)


def test_members_are_dated_at_the_onset_not_at_the_alarm(family: list[FamilyMember]) -> None:
    for seed, found in enumerate(family[:6]):
        run = simulate(TRUTH, ALONE, 12_000, seed=PAST + seed)
        assert found.collapsed
        assert run.onset is not None
        assert abs(found.samples - run.onset) <= 512
        equivalent = found.drift["rule:2"] / TRUTH.eta0_reference**2
        assert equivalent == pytest.approx(found.samples, rel=1e-6)
    assert not family[7].collapsed
    assert not any(name.startswith("slope:rule") for name in family[0].drift)


def test_the_parts_of_a_forecast_agree(family: list[FamilyMember]) -> None:
    state = folded(simulate(TRUTH, ALONE, 12_000, seed=54), spec(), 1_600)
    made = clocks.forecast(state, spec(), family, family="f", made_at=1.0)
    assert made.status is ForecastStatus.FORECAST
    assert made.stay is not None
    middle = made.stay.quantiles["0.5"]
    assert middle is not None
    assert f"{middle:,.0f}" in made.reason
    assert made.drift == pytest.approx(state.samples, rel=1e-6)
    assert made.drift_used_ratio == pytest.approx(made.drift / made.threshold["0.5"])
    assert made.threshold["0.5"] - made.drift == pytest.approx(middle, rel=0.05)
    assert made.collapse_probability_budget == pytest.approx(1 - made.stay.survive_budget)  # type: ignore[operator]
    assert made.horizon_samples == 1_024
    assert (made.collapsed_runs, made.censored_runs) == (6, 2)


def test_intervals_cover_detected_collapses_end_to_end() -> None:
    """Past and new runs through the detector; the landmark is fixed in samples, half the family's median."""
    inside = total = 0
    for first in range(200, 280, 8):
        past = past_runs(first)
        for seed in range(3 * first, 3 * first + 5):
            run = simulate(TRUTH, ALONE, 16_000, seed=seed)
            if run.onset is None or run.onset < 1_500:
                continue
            made = clocks.forecast(folded(run, spec(), 1_500), spec(), past, family="f", made_at=0.0)
            end = clocks.member("new", folded(run, spec()), spec())
            assert made.stay is not None
            assert end is not None
            low, high = made.stay.quantiles["0.1"], made.stay.quantiles["0.9"]
            assert low is not None
            inside += low <= end.samples - made.samples <= (math.inf if high is None else high)
            total += 1
    assert total >= 40
    assert 0.7 <= inside / total <= 0.95


def test_no_forecast_is_a_value_with_a_reason(family: list[FamilyMember]) -> None:
    of = spec()
    empty = clocks.forecast(clocks.begin(of), of, family, family="f", made_at=0.0)
    assert (empty.status, empty.reason) == (ForecastStatus.NONE, "no report has arrived yet")
    run = simulate(TRUTH, ALONE, 640, seed=1)
    assert "no past run" in clocks.forecast(folded(run, of), of, [], family="f", made_at=0.0).reason
    two = clocks.forecast(folded(run, of), of, family[:2], family="f", made_at=0.0)
    assert two.status is ForecastStatus.UNCALIBRATED
    assert "only 2 past runs" in two.reason
    assert two.stay is not None
    assert two.stay.quantiles["0.5"] is not None
    still = folded(run, of)
    last = StepReport(**(run.reports[-1] | {"step": 99, "samples": 704, "learning_rate": 0.0}))
    stopped = clocks.forecast(clocks.fold(still, last, of), of, family, family="f", made_at=0.0)
    assert (stopped.status, stopped.stay) == (ForecastStatus.NONE, None)
    assert "learning rate is 0" in stopped.reason


def test_a_collapsed_run_says_so_and_asks_to_stop(family: list[FamilyMember]) -> None:
    run = simulate(TRUTH, ALONE, 12_000, seed=51)
    state = folded(run, spec())
    made = clocks.forecast(state, spec(), family, family="f", made_at=0.0)
    assert made.status is ForecastStatus.COLLAPSED
    told = clocks.clocks_document("r", state, spec(), made)
    assert told.onset is not None
    assert run.onset is not None
    assert abs(told.onset.samples - run.onset) <= 512
    assert told.onset.alarm_samples > told.onset.samples
    order = clocks.decide(state, spec(), made, [], now=5.0)
    assert order is not None
    assert (order.kind, order.issued_at) == (DirectiveKind.STOP, 5.0)


def test_outliving_the_calibration_is_contradicted_not_imminent(family: list[FamilyMember]) -> None:
    run = simulate(TRUTH, ALONE, 25_000, seed=3, limit=math.inf)
    of = spec(budget_samples=40_000, candidates=[Candidate(rollout_batch=512)])
    state = folded(run, of)
    made = clocks.forecast(state, of, family, family="f", made_at=0.0)
    assert made.status is ForecastStatus.CONTRADICTED
    assert made.contradiction is not None
    assert made.contradiction < 0.05
    assert clocks.decide(state, of, made, [], now=0.0) is None
    assert any("contradicted" in line for line in clocks.clocks_document("r", state, of, made).notices)


def test_other_causes_censor_and_are_charged_separately(family: list[FamilyMember]) -> None:
    broken = [m.model_copy(update={"cause": "infrastructure"}) if i < 3 else m for i, m in enumerate(family)]
    state = folded(simulate(TRUTH, ALONE, 1_000, seed=60), spec())
    whole = clocks.forecast(state, spec(), family, family="f", made_at=0.0)
    censored = clocks.forecast(state, spec(), broken, family="f", made_at=0.0)
    assert (censored.collapsed_runs, censored.censored_runs) == (3, 5)
    assert censored.threshold["0.5"] > whole.threshold["0.5"]


def guided(
    seed: int, family: Sequence[FamilyMember], of: RunSpec
) -> tuple[list[DirectiveRecord], ClockState, int | None]:
    """Train under directives: the simulator is rerun with the switch at the step where it was applied."""
    log: list[DirectiveRecord] = []
    phases = list(ALONE)
    while True:
        run = simulate(TRUTH, phases, 12_000, seed=seed)
        state, log, again = clocks.begin(of), [], False
        for report in run.reports:
            state = clocks.fold(state, StepReport(**report), of)
            made = clocks.forecast(state, of, family, family="f", made_at=0.0)
            order = clocks.decide(state, of, made, log, now=0.0)
            if order is None:
                continue
            ack = Ack(state=AckState.APPLIED, step=report["step"] + 1)
            log.append(DirectiveRecord(**order.model_dump(), acks=[ack]))
            if order.kind is DirectiveKind.SWITCH_BATCH and len(phases) == 1:
                assert order.rollout_batch is not None
                assert order.learning_rate is not None
                phases.append(Phase(report["samples"], order.rollout_batch, order.learning_rate))
                again = True
                break
        if not again:
            return log, state, run.onset


def test_a_guided_run_is_saved_by_one_switch(family: list[FamilyMember]) -> None:
    of = spec(candidates=[Candidate(rollout_batch=512)], policy="act")
    lost = 0
    for seed in (70, 71, 72, 73):
        assert simulate(TRUTH, ALONE, 12_000, seed=seed).onset is not None
        log, _, onset = guided(seed, family, of)
        kinds = [record.kind for record in log]
        assert kinds[:2] == [DirectiveKind.CHECKPOINT, DirectiveKind.SWITCH_BATCH]
        assert kinds.count(DirectiveKind.SWITCH_BATCH) == 1
        assert [record.generation for record in log] == list(range(1, len(log) + 1))
        switch = log[1]
        assert (switch.rollout_batch, switch.learning_rate) == (512, 8e-4)
        assert switch.evidence["survive_switch"] > switch.evidence["survive_stay"]
        assert switch.expires_at_step is not None
        assert switch.expires_at_step > switch.not_before_step
        lost += onset is not None
    assert lost <= 1


def test_a_fixed_schedule_needs_no_family() -> None:
    of = spec(schedule=[ScheduledSwitch(at_samples=640, rollout_batch=512, rule="sqrt")])
    run = simulate(TRUTH, ALONE, 1_280, seed=1)
    early = folded(run, of, 600)
    assert clocks.decide(early, of, None, [], now=0.0) is None
    state = folded(run, of, 640)
    first = clocks.decide(state, of, None, [], now=0.0)
    assert first is not None
    assert first.kind is DirectiveKind.CHECKPOINT
    saved = DirectiveRecord(**first.model_dump(), acks=[Ack(state=AckState.APPLIED)])
    switch = clocks.decide(state, of, None, [saved], now=0.0)
    assert switch is not None
    assert switch.rollout_batch == 512
    assert switch.learning_rate == pytest.approx(8e-4 * math.sqrt(8))
    assert switch.evidence["rule"] == "schedule"


def test_a_declared_schedule_is_in_the_forecast_of_staying(family: list[FamilyMember]) -> None:
    run = simulate(TRUTH, ALONE, 640, seed=1)
    planned = spec(schedule=[ScheduledSwitch(at_samples=1_000, rollout_batch=512)])
    alone, with_plan = (
        clocks.forecast(folded(run, of), of, family, family="f", made_at=0.0) for of in (spec(), planned)
    )
    assert alone.stay is not None
    assert with_plan.stay is not None
    assert alone.stay.survive_budget is not None
    assert with_plan.stay.survive_budget is not None
    assert with_plan.stay.survive_budget > alone.stay.survive_budget + 0.5


def test_the_present_setting_is_no_candidate(family: list[FamilyMember]) -> None:
    of = spec(
        candidates=[Candidate(rollout_batch=64), Candidate(rollout_batch=128), Candidate(rollout_batch=128)]
    )
    made = clocks.forecast(
        folded(simulate(TRUTH, ALONE, 640, seed=1), of), of, family, family="f", made_at=0.0
    )
    assert [c.rollout_batch for c in made.candidates] == [128]


def test_after_a_switch_evidence_keeps_its_slope_and_the_clock_its_memory(family: list[FamilyMember]) -> None:
    run = simulate(TRUTH, [*ALONE, Phase(1_024, 512, 8e-4)], 12_000, seed=1, limit=math.inf)
    state = folded(run, spec())
    found = clocks.member("switched", state, spec())
    assert found is not None
    assert not found.collapsed
    assert 0 < found.drift["slope:rule:2"] < 0.5
    assert state.changed_at == 1_024
    made = clocks.forecast(state, spec(), [*family, found], family="f", made_at=0.0)
    assert made.status is ForecastStatus.FORECAST
    notices = clocks.clocks_document("r", state, spec(), made).notices
    assert any("Adam still remembers" in line for line in notices)


REPORT = st.fixed_dictionaries(
    {
        "rollout_batch": st.integers(1, 4_096),
        "learning_rate": st.floats(0, 1e-1) | st.floats(0, allow_infinity=False),
        "reward": st.floats(),
        "updates": st.integers(0, 16),
        "epochs": st.integers(1, 4),
    },
    optional={
        name: st.floats()
        for name in (
            "entropy",
            "kl_reference",
            "clip_fraction",
            "zero_variance_fraction",
            "displacement",
            "grad_norm",
        )
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(REPORT, min_size=1, max_size=40), st.none() | st.integers(1, 10_000))
def test_any_legal_report_is_folded_stored_and_told(
    reports: list[dict[str, Any]], window: int | None
) -> None:
    of = spec(window_samples=window, target_reward=0.9, candidates=[Candidate(rollout_batch=512)])
    state = clocks.begin(of)
    samples = 0
    for step, report in enumerate(reports):
        samples += report["rollout_batch"]
        state = clocks.fold(state, StepReport(step=step, samples=samples, **report), of)
    stored = json.dumps(state.to_json(), allow_nan=False)
    back = ClockState.from_json(json.loads(stored))
    assert json.dumps(back.to_json(), allow_nan=False) == stored
    made = clocks.forecast(state, of, [], family="f", made_at=0.0)
    Forecast.model_validate_json(made.model_dump_json())
    clocks.clocks_document("r", state, of, made).model_dump_json()
    clocks.decide(state, of, made, [], now=0.0)
    found = clocks.member("r", state, of)
    if found is not None:
        again = clocks.forecast(state, of, [found] * 4, family="f", made_at=0.0)
        assert again.reason


def test_folding_is_the_same_in_one_go_and_across_a_restart() -> None:
    run = simulate(TRUTH, ALONE, 4_000, seed=1)
    whole = folded(run, spec())
    state = clocks.begin(spec())
    for report in run.reports:
        state = ClockState.from_json(json.loads(json.dumps(state.to_json())))
        state = clocks.fold(state, StepReport(**report), spec())
    assert state == whole


def test_a_state_of_another_version_asks_for_a_refold() -> None:
    document = clocks.begin(spec()).to_json()
    with pytest.raises(ValueError, match="fold the run's reports again"):
        ClockState.from_json(document | {"version": 0})
    with pytest.raises(ValueError, match="other fields"):
        ClockState.from_json({"version": 1, "drift": {}})


def test_one_report_and_very_many() -> None:
    run = simulate(TRUTH, ALONE, 64, seed=1)
    one = folded(run, spec())
    assert clocks.clocks_document("r", one, spec(), None).samples == 64
    size = len(json.dumps(folded(simulate(TRUTH, ALONE, 30_000, seed=1, limit=math.inf), spec()).to_json()))
    longer = len(json.dumps(folded(simulate(TRUTH, ALONE, 60_000, seed=1, limit=math.inf), spec()).to_json()))
    assert longer < 1.2 * size


def test_a_learning_rate_schedule_is_no_event_and_a_jump_is() -> None:
    of = spec()
    state = clocks.begin(of)
    for step in range(1, 60):
        rate = 8e-4 * (1 - step / 100)
        state = clocks.fold(
            state,
            StepReport(step=step, samples=64 * step, rollout_batch=64, learning_rate=rate, reward=0.2),
            of,
        )
    assert state.changed_at == 0
    state = clocks.fold(
        state, StepReport(step=60, samples=64 * 60, rollout_batch=64, learning_rate=1e-4, reward=0.2), of
    )
    assert state.changed_at == 64 * 59


def test_notices_say_what_cannot_be_seen() -> None:
    of = spec(config=RunConfig(clip_low=0.2, clip_high=0.2))
    report = StepReport(
        step=1,
        samples=64,
        rollout_batch=64,
        learning_rate=1e-4,
        reward=0.2,
        regime=0.9,
        zero_variance_fraction=0.95,
    )
    said = " ".join(clocks.clocks_document("r", clocks.fold(clocks.begin(of), report, of), of, None).notices)
    for part in ("reward hacking cannot be seen", "the clip cannot act", "signal-dominated", "plateau"):
        assert part in said
    quiet = spec(config=RunConfig(updates_per_batch=4))
    fine = StepReport(
        step=1,
        samples=64,
        rollout_batch=64,
        learning_rate=1e-4,
        reward=0.2,
        updates=4,
        eval_reward=0.3,
        regime=0.23,
    )
    assert (
        clocks.clocks_document("r", clocks.fold(clocks.begin(quiet), fine, quiet), quiet, None).notices == []
    )


def test_a_small_update_is_a_dying_policy_only_once_adam_has_forgotten() -> None:
    def report(step: int, batch: int) -> StepReport:
        samples = 64 * min(step, 20) + 512 * max(0, step - 20)
        return StepReport(
            step=step,
            samples=samples,
            rollout_batch=batch,
            learning_rate=1e-4,
            reward=0.2,
            updates=4,
            eval_reward=0.3,
            regime=0.05,
        )

    of = spec(config=RunConfig(updates_per_batch=4))
    steady = clocks.begin(of)
    for step in range(1, 21):
        steady = clocks.fold(steady, report(step, 64), of)
    switched = clocks.fold(steady, report(21, 512), of)
    assert "dying policy" in " ".join(clocks.clocks_document("r", steady, of, None).notices)
    said = " ".join(clocks.clocks_document("r", switched, of, None).notices)
    assert "Adam still remembers" in said
    assert "dying policy" not in said


def test_families_are_named_after_what_decides_the_threshold() -> None:
    base = clocks.family_of(spec())
    assert base == clocks.family_of(spec(budget_samples=99, project="other"))
    assert RunSpec(family=base).family == base
    for change in (
        {"optimizer": "sgd"},
        {"epochs": 2},
        {"clip_high": 0.3},
        {"lora_rank": 8},
        {"betas": (0.9, 0.99)},
    ):
        other = clocks.family_of(spec(config=CONFIG.model_copy(update=change)))
        assert other != base
    assert clocks.family_of(spec(family="mine")) == "mine"
    assert "project=a" in clocks.family_of(RunSpec(project="a"))
    odd = clocks.family_of(spec(config=RunConfig(model="org/" + "é" * 400, task="t")))
    assert RunSpec(family=odd).family == odd


def test_family_document(family: list[FamilyMember]) -> None:
    told = clocks.family_document("f", family)
    assert (told.status, told.collapsed_runs, told.censored_runs) == (ForecastStatus.FORECAST, 6, 2)
    dead = [m.samples for m in family if m.collapsed]
    assert told.threshold["0.5"] == pytest.approx(np.median(dead), rel=0.5)
    assert told.spread is not None
    assert 0.1 < told.spread < 1.0
    assert clocks.family_document("g", []).status is ForecastStatus.UNCALIBRATED

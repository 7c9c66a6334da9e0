from typing import Any

import pytest

from twoclocks.wire import (
    Candidate,
    Directive,
    DirectiveKind,
    ForecastStatus,
    Onset,
    Policy,
    RunSpec,
    RunState,
)
from twoclocks_dashboard.verdict import judge, order, sentence

ONSET = Onset(step=20, samples=1_280, alarm_step=28, alarm_samples=1_792, evidence=["reward fell"])
SWITCH = Directive(
    generation=2, kind=DirectiveKind.SWITCH_BATCH, policy=Policy.ACT, rollout_batch=512, learning_rate=2e-4
)


def test_every_state_has_its_word_and_the_most_urgent_come_first(fake: Any) -> None:
    f, s, now = fake.forecast, fake.summary, fake.NOW
    saved = [fake.outlook(rollout_batch=512, survive_budget=0.97)]
    runs = [
        s(failure=f(collapse_probability_next=0.8)),
        s(failure=f(status=ForecastStatus.COLLAPSED), onset=ONSET),
        s(failure=f(), state=RunState.LOST),
        s(failure=f()),
        s(failure=f(candidates=saved)),
        s(failure=f(status=ForecastStatus.UNCALIBRATED)),
        s(failure=f(collapse_probability_budget=0.02)),
        s(reports=0, samples=0),
        s(failure=f(), state=RunState.FINISHED, ended_at=now),
    ]
    verdicts = [judge(run, now) for run in runs]
    assert [v.word for v in verdicts] == [
        "Imminent", "Collapsed", "Lost", "Collapse forecast", "Switch ahead", "Uncalibrated", "Well",
        "Waiting", "Finished",
    ]  # fmt: skip
    assert [v.urgency for v in verdicts] == sorted(v.urgency for v in verdicts)


def test_a_calibrated_belief_counts_from_the_runs_beginning(fake: Any) -> None:
    better = fake.outlook(rollout_batch=512, survive_budget=0.94)
    said = judge(fake.summary(failure=fake.forecast(candidates=[better])), fake.NOW).belief.replace(
        "\u202f", " "
    )
    assert "80 % chance of collapse between 3,000 and 9,000 samples" in said
    assert "a 30 % chance to reach its budget" in said
    assert "Switching now to batch 512 at 2e-4 gives 94 %" in said


def test_a_collapse_beyond_the_budget_is_not_cried_out(fake: Any) -> None:
    far = fake.outlook(quantiles={"0.1": 20_000.0, "0.5": 90_000.0, "0.9": 300_000.0}, survive_budget=0.998)
    run = fake.summary(failure=fake.forecast(stay=far, collapse_probability_budget=0.002))
    said = judge(run, fake.NOW).belief.replace("\u202f", " ")
    assert said == (
        "At this batch and rate it has a more than 99 % chance to reach its budget; collapse lies beyond it, "
        "at 22,000 to 302,000 samples (80 %). It is at 2,000 samples now."
    )


def test_an_uncalibrated_belief_is_the_services_own_sentence(fake: Any) -> None:
    made = fake.forecast(status=ForecastStatus.UNCALIBRATED, reason="only 1 past run has collapsed")
    assert judge(fake.summary(failure=made), fake.NOW).belief == "Only 1 past run has collapsed."


def test_a_pending_directive_is_the_thing_to_do(fake: Any) -> None:
    run = fake.summary(failure=fake.forecast(), directive=SWITCH, directive_pending=True)
    assert (
        judge(run, fake.NOW).action
        == "Switch to batch 512 at learning rate 2e-4: the trainer carries it out."
    )
    done = fake.summary(
        failure=fake.forecast(),
        directive=SWITCH,
        rollout_batch=512,
        spec=RunSpec(candidates=[Candidate(rollout_batch=512)]),
    )
    assert judge(done, fake.NOW).action.startswith("Nothing yet: a switch to batch 512")


@pytest.mark.parametrize("last", [SWITCH, Directive(generation=3, kind=DirectiveKind.STOP)])
def test_a_declined_directive_is_left_to_the_person(fake: Any, last: Directive) -> None:
    run = fake.summary(failure=fake.forecast(), directive=last, directive_pending=False, rollout_batch=64)
    said = judge(run, fake.NOW).action
    assert said.startswith(order(last))
    assert "declined" in said


def test_the_collapsed_go_back_and_the_lost_are_looked_for(fake: Any) -> None:
    collapsed = judge(fake.summary(failure=fake.forecast(), onset=ONSET), fake.NOW)
    assert collapsed.action == "Stop, and go back to a checkpoint from before 1,280 samples."
    assert "reward fell" in collapsed.belief
    lost = judge(fake.summary(state=RunState.LOST, last_report_at=fake.NOW - 1_440), fake.NOW)
    assert "24\u202fmin" in lost.action


@pytest.mark.parametrize(
    ("kind", "text"),
    [("hold", "Carry on as it is"), ("stop", "Stop the run"), ("checkpoint", "Save a checkpoint")],
)
def test_directives_are_imperatives(kind: str, text: str) -> None:
    assert order(Directive(generation=1, kind=DirectiveKind(kind))) == text


def test_sentences_end_once() -> None:
    assert sentence("so it is.") == "So it is."
    assert sentence("so it is") == "So it is."
    assert sentence("  ") == ""

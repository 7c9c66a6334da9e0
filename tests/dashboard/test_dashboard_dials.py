from typing import Any

import pytest

from twoclocks.wire import Onset, RunSpec, RunState
from twoclocks_dashboard import dials


def test_the_face_is_twelve_round_hours_that_hold_the_budget_and_the_alarm(fake: Any) -> None:
    assert dials.face(fake.summary()) == 12_000
    assert dials.face(fake.summary(failure=fake.forecast())) == 12_000
    longer = fake.forecast(stay=fake.outlook(quantiles={**fake.QUANTILES, "0.9": 14_000.0}))
    assert dials.face(fake.summary(failure=longer)) == 18_000
    far = fake.forecast(stay=fake.outlook(quantiles={**fake.QUANTILES, "0.9": 9e9}))
    assert dials.face(fake.summary(failure=far)) == 12_000
    assert dials.face(fake.summary(samples=0, spec=RunSpec())) is None


def test_hand_budget_and_median_stand_where_their_samples_are(fake: Any) -> None:
    dial = dials.failure(fake.summary(failure=fake.forecast(), samples=3_000))
    assert dial.hand == pytest.approx(90)
    assert dial.budget == pytest.approx(300)
    assert dial.median == pytest.approx(180)
    assert dial.hours[1][2] == "3\u202fk"
    assert "3,000 left" in dial.label


def test_both_clocks_of_a_run_share_their_face(fake: Any) -> None:
    run = fake.summary(failure=fake.forecast(), progress=fake.learning())
    failure, progress = dials.failure(run), dials.progress(run)
    assert (failure.hand, failure.hour) == (progress.hand, progress.hour)
    assert progress.median == pytest.approx(360 * 6_000 / 12_000)
    assert progress.wide is None


def test_an_alarm_beyond_the_face_is_said_to_be(fake: Any) -> None:
    far = dict.fromkeys(fake.QUANTILES, 50_000.0)
    dial = dials.failure(fake.summary(failure=fake.forecast(stay=fake.outlook(quantiles=far))))
    assert dial.beyond
    assert dial.band is None
    open_end = {**fake.QUANTILES, "0.9": None}
    dial = dials.failure(fake.summary(failure=fake.forecast(stay=fake.outlook(quantiles=open_end))))
    assert dial.band is not None
    assert dial.band.open


def test_a_run_that_is_over_has_no_alarm(fake: Any) -> None:
    onset = Onset(step=20, samples=1_500, alarm_step=28, alarm_samples=1_792)
    dial = dials.failure(fake.summary(failure=fake.forecast(), onset=onset))
    assert dial.band is None
    assert dial.struck == pytest.approx(45)
    ended = fake.summary(
        failure=fake.forecast(), progress=fake.learning(), state=RunState.STOPPED, ended_at=fake.NOW
    )
    assert dials.failure(ended).band is None
    assert dials.progress(ended).band is None


def test_a_reached_target_is_struck(fake: Any) -> None:
    dial = dials.progress(fake.summary(progress=fake.learning(reached_at_samples=1_000)))
    assert dial.struck == pytest.approx(30)
    assert dial.state == "reached"


def test_nothing_known_is_an_empty_face(fake: Any) -> None:
    dial = dials.failure(fake.summary(samples=0, reports=0, spec=RunSpec()))
    assert dial.hand is None
    assert "no forecast" in dial.label

"""The rule for directives, situation by situation."""

from dataclasses import replace

import pytest

from twoclocks.core.decide import Option, Past, Situation, decide
from twoclocks.core.drift import Setting

SMALL, LARGE, MIDDLE = Setting(64, 8e-4, 4), Setting(512, 8e-4, 4), Setting(256, 8e-4, 4)
SAVED = Past(1, "checkpoint", None, None, 6_000, 200, ack="applied")
CALM = Situation(
    step=100,
    samples=6_400,
    setting=SMALL,
    window=256,
    risk=0.1,
    calibrated=True,
    collapsed=False,
    changed_at=0,
    alive=0.95,
    stay=0.3,
    next_horizon=0.02,
    horizon=1_024,
    options=(Option(LARGE, survive=0.99, rho=1.4, progress=1.0),),
)
USED_UP = replace(CALM, alive=0.9)


def test_holds_while_the_risk_is_kept_and_says_nothing_new() -> None:
    assert decide(replace(CALM, stay=0.93), []) is None


def test_waits_while_a_later_switch_still_keeps_the_risk() -> None:
    assert decide(CALM, []) is None


def test_checkpoint_first_then_the_switch() -> None:
    first = decide(USED_UP, [])
    assert first is not None
    assert first.kind == "checkpoint"
    assert "a switch follows" in first.reason
    issued = Past(1, "checkpoint", None, None, USED_UP.samples, 200)
    assert decide(USED_UP, [issued]) is None
    for settled in (replace(issued, ack="applied"), replace(issued, ack="rejected")):
        second = decide(USED_UP, [settled])
        assert second is not None
        assert (second.kind, second.setting) == ("switch_batch", LARGE)
        assert second.evidence["rule"] == "quantile"
        assert second.evidence["survive_switch"] == 0.99
    later = decide(replace(USED_UP, samples=USED_UP.samples + 3 * 64), [issued])
    assert later is not None
    assert later.kind == "switch_batch"


def test_expected_progress_switches_earlier_where_rho_is_below_one() -> None:
    option = Option(LARGE, survive=0.93, rho=0.05, progress=1.0)
    early = replace(CALM, alive=0.99, options=(option,))
    order = decide(early, [SAVED])
    assert order is not None
    assert (order.kind, order.evidence["rule"]) == ("switch_batch", "expected progress")
    assert decide(replace(early, options=(replace(option, rho=0.3),)), [SAVED]) is None


def test_infeasible_takes_the_best_available_and_says_so() -> None:
    options = (Option(LARGE, 0.6, None, 1.0), Option(MIDDLE, 0.5, None, 2.0))
    order = decide(replace(CALM, options=options), [SAVED])
    assert order is not None
    assert order.setting == LARGE
    assert order.evidence["rule"] == "infeasible"
    assert "best available" in order.reason


def test_a_switch_that_hardly_helps_is_no_candidate() -> None:
    order = decide(replace(CALM, options=(Option(LARGE, 0.35, None, 1.0),), next_horizon=0.07), [])
    assert order is not None
    assert order.kind == "checkpoint"
    assert "no permitted switch helps" in order.reason


def test_among_safe_candidates_the_faster_one_decides_the_moment() -> None:
    options = (Option(LARGE, 0.99, None, 1.0), Option(MIDDLE, 0.97, None, 1.4))
    assert decide(replace(CALM, alive=0.94, options=options), [SAVED]) is None
    only_large = replace(CALM, alive=0.92, options=options)
    assert decide(only_large, [SAVED]) is None
    last = decide(replace(CALM, alive=0.905, options=options), [SAVED])
    assert last is not None
    assert last.setting == LARGE


@pytest.mark.parametrize("field", ["calibrated", "stay", "alive"])
def test_nothing_moves_without_a_calibrated_forecast(field: str) -> None:
    nothing = replace(USED_UP, **{field: False if field == "calibrated" else None})
    assert decide(nothing, [SAVED]) is None


def test_a_schedule_is_carried_out_in_any_state_but_collapse() -> None:
    due = replace(CALM, calibrated=False, stay=None, scheduled=LARGE, scheduled_at=6_000)
    order = decide(due, [SAVED])
    assert order is not None
    assert (order.kind, order.setting, order.evidence["rule"]) == ("switch_batch", LARGE, "schedule")
    stopped = decide(replace(due, collapsed=True), [SAVED])
    assert stopped is not None
    assert stopped.kind == "stop"


def test_collapse_stops_at_once_and_once() -> None:
    gone = replace(CALM, collapsed=True)
    order = decide(gone, [])
    assert order is not None
    assert order.kind == "stop"
    said = Past(1, "stop", None, None, 6_400, 130)
    assert decide(gone, [said]) is None
    assert decide(replace(gone, step=131), [said]) is not None
    assert decide(replace(gone, step=131), [replace(said, ack="rejected")]) is None


def test_without_candidates_checkpoint_then_stop() -> None:
    alone = replace(CALM, options=())
    assert decide(replace(alone, next_horizon=0.04), []) is None
    saved = decide(replace(alone, next_horizon=0.06), [])
    assert saved is not None
    assert saved.kind == "checkpoint"
    assert "no switch is permitted" in saved.reason
    near = replace(alone, next_horizon=0.2)
    first, then = decide(near, []), decide(near, [SAVED])
    assert first is not None
    assert then is not None
    assert (first.kind, then.kind) == ("checkpoint", "stop")


def test_a_checkpoint_is_not_asked_for_at_every_report() -> None:
    alone = replace(CALM, options=(), next_horizon=0.06)
    assert decide(alone, [SAVED]) is None
    again = decide(replace(alone, samples=SAVED.issued_at_samples + 2 * 1_024), [SAVED])
    assert again is not None
    assert again.kind == "checkpoint"


def test_a_standing_stop_is_not_weakened_to_a_checkpoint() -> None:
    stop = Past(2, "stop", None, None, 6_300, 130)
    alone = replace(CALM, options=(), next_horizon=0.06)
    assert decide(alone, [replace(SAVED, issued_at_samples=2_000), stop]) is None


def test_a_pending_switch_is_not_repeated_and_an_expired_one_is() -> None:
    pending = Past(2, "switch_batch", 512, 8e-4, 6_300, 120)
    assert decide(USED_UP, [SAVED, pending]) is None
    expired = decide(replace(USED_UP, step=121), [SAVED, pending])
    assert expired is not None
    assert expired.kind == "switch_batch"
    said_so = decide(USED_UP, [SAVED, replace(pending, ack="expired")])
    assert said_so is not None
    assert decide(replace(USED_UP, step=121), [SAVED, replace(pending, ack="applied")]) is None


def test_a_rejected_switch_is_not_asked_for_again() -> None:
    refused = Past(2, "switch_batch", 512, 8e-4, 6_300, 120, ack="rejected")
    assert decide(replace(USED_UP, step=121), [SAVED, refused]) is None
    other = replace(USED_UP, options=(*USED_UP.options, Option(MIDDLE, 0.97, None, 1.4)))
    order = decide(other, [SAVED, refused])
    assert order is not None
    assert order.setting == MIDDLE


def test_a_needless_pending_switch_is_taken_back() -> None:
    safe = replace(CALM, stay=0.95)
    pending = Past(2, "switch_batch", 512, 8e-4, 6_300, 120)
    order = decide(safe, [SAVED, pending])
    assert order is not None
    assert order.kind == "hold"
    assert decide(safe, [SAVED, replace(pending, complied=True)]) is None
    assert decide(safe, [SAVED, pending, Past(3, "hold", None, None, 6_400, None)]) is None


def test_after_a_switch_it_waits_until_the_rate_is_known() -> None:
    switched = replace(USED_UP, setting=LARGE, changed_at=5_000, options=(Option(MIDDLE, 0.95, None, 1.0),))
    assert decide(switched, [SAVED]) is None
    settled = decide(replace(switched, samples=5_000 + 256 + 5 * 512), [SAVED])
    assert settled is not None

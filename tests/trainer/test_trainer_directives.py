"""Directives at a step boundary: carried out once or declined with a reason, and acknowledged truthfully."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoclocks.wire import Directive
from twoclocks_trainer.checkpoint import load, newest_first
from twoclocks_trainer.config import TrainConfig
from twoclocks_trainer.directives import follow
from twoclocks_trainer.learner import State
from twoclocks_trainer.loop import train

Make = Callable[..., TrainConfig]


def order(kind: str, generation: int = 1, **fields: Any) -> Directive:
    return Directive(**{"kind": kind, "generation": generation, "policy": "act"} | fields)


def answer(monitor: Any, state: State, config: TrainConfig, trouble: str | None = None) -> str | None:
    return follow(monitor, state, config, lambda: trouble)


def test_a_switch_is_carried_out_with_the_optimizer_as_it_is(small: Make, scripted: Any) -> None:
    switch = order("switch_batch", rollout_batch=32, learning_rate=1e-4)
    monitor = scripted({2: switch})
    result = train(small(policy="act", budget_samples=96), monitor=monitor)
    assert [(r["rollout_batch"], r["learning_rate"]) for r in monitor.reports] == [
        (16, 3e-4),
        (16, 3e-4),
        (32, 1e-4),
        (32, 1e-4),
    ]
    assert monitor.acks == [
        {"generation": 1, "state": "received", "step": 2},
        {"generation": 1, "state": "applied", "step": 3, "rollout_batch": 32, "learning_rate": 1e-4},
    ]
    assert result.switches == [
        {"generation": 1, "step": 3, "samples": 32, "rollout_batch": 32, "learning_rate": 1e-4}
    ]
    # Adam's moments live on: a fresh optimizer would take first steps of R near 1.
    assert monitor.reports[2]["regime"] < 0.8
    assert monitor.reports[0]["regime"] > 0.5


def test_a_checkpoint_is_kept_and_a_stop_stops(small: Make, scripted: Any, tmp_path: Path) -> None:
    monitor = scripted({1: order("checkpoint"), 3: order("stop", 2, reason="it collapsed")})
    result = train(small(policy="act"), monitor=monitor)
    assert (result.state, result.steps) == ("stopped", 3)
    assert monitor.finished == ("stopped", "directive 2: it collapsed")
    assert [(a["generation"], a["state"], a["step"]) for a in monitor.acks] == [
        (1, "received", 1),
        (1, "applied", 2),
        (2, "received", 3),
        (2, "applied", 3),
    ]
    saved = newest_first(tmp_path / "checkpoints")
    assert [path.name for path in saved] == ["step-00000003", "step-00000001.kept"]
    assert load(saved[1]).document["state"]["answered"] == 1


@pytest.mark.parametrize(
    ("fields", "policy", "reason"),
    [
        ({"rollout_batch": 18, "learning_rate": 1e-4}, "act", "not a multiple of the group size 4"),
        ({"rollout_batch": 20, "learning_rate": 1e-4}, "act", "does not divide into 8 minibatches"),
        ({"rollout_batch": 0, "learning_rate": 1e-4}, "act", "cannot be"),
        ({"rollout_batch": 32, "learning_rate": float("nan")}, "act", "cannot be"),
        ({"rollout_batch": 32, "learning_rate": 0.0}, "act", "cannot be"),
        ({"rollout_batch": 32}, "act", "must name"),
        ({"rollout_batch": 32, "learning_rate": 1e-4}, "advise", "policy is advise"),
        ({"rollout_batch": 32, "learning_rate": 1e-4, "policy": "advise"}, "act", "policy is advise"),
    ],
)
def test_what_cannot_be_done_is_rejected_with_its_reason(
    small: Make, scripted: Any, fields: dict[str, Any], policy: str, reason: str
) -> None:
    config = small(policy=policy, updates_per_batch=8)
    monitor, state = scripted({0: order("switch_batch", **fields)}), State(16, 3e-4, step=7)
    assert answer(monitor, state, config) is None
    assert (state.rollout_batch, state.learning_rate, state.switches) == (16, 3e-4, [])
    assert [ack["state"] for ack in monitor.acks] == ["received", "rejected"]
    assert reason in monitor.acks[1]["reason"]
    assert answer(monitor, state, config) is None
    assert len(monitor.acks) == 2, "answered once"


def test_a_checkpoint_that_fails_is_rejected(small: Make, scripted: Any) -> None:
    monitor, state = scripted({0: order("checkpoint")}), State(16, 3e-4)
    answer(monitor, state, small(policy="act"), trouble="no space left on device")
    assert monitor.acks[1]["state"] == "rejected"
    assert monitor.acks[1]["reason"] == "no space left on device"


def test_a_directive_waits_for_its_step_and_expires_after_its_last(small: Make, scripted: Any) -> None:
    config = small(policy="act")
    fields = {"rollout_batch": 32, "learning_rate": 1e-4, "not_before_step": 5, "expires_at_step": 6}
    monitor, state = scripted({0: order("switch_batch", **fields)}), State(16, 3e-4, step=3)
    answer(monitor, state, config)
    answer(monitor, state, config)
    assert [ack["state"] for ack in monitor.acks] == ["received"], "step 4 is too early, and said once"
    state.step = 4
    answer(monitor, state, config)
    assert monitor.acks[-1] == {
        "generation": 1,
        "state": "applied",
        "step": 5,
        "rollout_batch": 32,
        "learning_rate": 1e-4,
    }
    last, state = scripted({0: order("switch_batch", **fields)}), State(16, 3e-4, step=5)
    answer(last, state, config)
    assert state.rollout_batch == 32, "step 6 is still in time"
    late, state = scripted({0: order("switch_batch", **fields)}), State(16, 3e-4, step=6)
    answer(late, state, config)
    assert [ack["state"] for ack in late.acks] == ["received", "expired"]
    assert state.rollout_batch == 16


def test_hold_and_old_generations_ask_for_nothing(small: Make, scripted: Any) -> None:
    config = small(policy="act")
    monitor, state = scripted({0: order("hold", 3)}), State(16, 3e-4)
    assert answer(monitor, state, config) is None
    assert [ack["state"] for ack in monitor.acks] == ["received", "applied"]
    monitor.directive = order("stop", 2)
    assert answer(monitor, state, config) is None, "generation 2 was replaced by 3"
    monitor.directive = Directive(generation=0)
    assert answer(monitor, State(16, 3e-4), config) is None
    assert len(monitor.acks) == 2


def test_a_resumed_run_neither_forgets_a_switch_nor_makes_it_twice(small: Make, scripted: Any) -> None:
    switch = order("switch_batch", rollout_batch=32, learning_rate=1e-4)
    first = scripted({1: switch})
    train(small(policy="act", budget_samples=48), monitor=first)
    again = scripted({0: switch})
    result = train(small(policy="act", budget_samples=112, resume=True), monitor=again)
    assert again.acks == [], "its answer is part of the checkpoint"
    assert [r["rollout_batch"] for r in again.reports] == [32, 32]
    assert len(result.switches) == 1

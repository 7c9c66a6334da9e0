"""The loop as a whole: what it reports, that it follows its seed, and that it learns."""

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from twoclocks.wire import CANONICAL_METRICS, StepReport
from twoclocks_trainer import loop
from twoclocks_trainer.checkpoint import load_newest
from twoclocks_trainer.config import ConfigError, TrainConfig
from twoclocks_trainer.loop import train
from twoclocks_trainer.model import PACKAGED, load_model

Make = Callable[..., TrainConfig]
Reports = list[dict[str, Any]]


def reports_of(config: TrainConfig) -> Reports:
    reports: Reports = []
    train(config, on_report=lambda report: reports.append(dict(report)))
    return reports


def test_every_canonical_metric_is_reported(small: Make) -> None:
    reports = reports_of(small(clip_low=0.2, clip_high=0.2, eval_every_samples=16))
    assert len(reports) == 5
    for report in reports:
        wire = StepReport.model_validate(report)
        assert set(CANONICAL_METRICS) <= set(wire.metrics)
        assert all(math.isfinite(value) for value in wire.metrics.values())
    assert [r["samples"] for r in reports] == [16, 32, 48, 64, 80]
    assert reports[-1]["tokens"] == pytest.approx(sum(r["response_length"] * 16 for r in reports))


def test_what_was_not_measured_is_null_and_not_zero(small: Make) -> None:
    reports = reports_of(small(eval_every_samples=48))
    assert [r["clip_fraction"] for r in reports] == [None] * 5
    assert [("eval_reward" in r) for r in reports] == [False, False, True, False, True]


def test_the_same_seed_is_the_same_run_and_another_is_not(small: Make, tmp_path: Path) -> None:
    runs = [
        reports_of(small(seed=seed, budget_samples=48, checkpoint_dir=tmp_path / f"{number}"))
        for number, seed in enumerate((1, 1, 2))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_evaluation_and_the_callers_randomness_are_not_disturbed(small: Make, tmp_path: Path) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    often = reports_of(small(budget_samples=48, eval_every_samples=16, checkpoint_dir=tmp_path / "a"))
    assert torch.equal(before, torch.get_rng_state())
    seldom = reports_of(small(budget_samples=48, checkpoint_dir=tmp_path / "b"))
    for one, other in zip(often, seldom, strict=True):
        assert one | {"eval_reward": 0} == other | {"eval_reward": 0}


def test_displacement_and_regime_are_of_the_weights_themselves(small: Make, tmp_path: Path) -> None:
    (report,) = reports_of(small(budget_samples=16, updates_per_batch=1, learning_rate=1e-3))
    saved = load_newest(tmp_path / "checkpoints")
    assert saved is not None
    base = load_model(PACKAGED / "sort")
    moved = parameters_to_vector(
        [saved.tensors[f"model/{name}"] - value for name, value in base.named_parameters()]
    )
    assert report["displacement"] == pytest.approx(moved.norm().item(), rel=1e-4)
    assert report["update_norm"] == pytest.approx(moved.norm().item(), rel=1e-4)
    assert report["regime"] == pytest.approx(moved.norm().item() / (1e-3 * math.sqrt(len(moved))), rel=1e-4)
    # Adam's first step is +-rate wherever there is a gradient: R is near 1, and never above.
    assert 0.8 < report["regime"] <= 1.0001


def test_a_single_update_is_on_policy(small: Make) -> None:
    """One update: the sampler is the policy itself, so every ratio is 1, until the update moves it."""
    (report,) = reports_of(small(budget_samples=16, updates_per_batch=1))
    assert report["importance_ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert report["importance_ratio_rms"] == pytest.approx(0.0, abs=1e-4)
    assert report["kl_reference"] == pytest.approx(0.0, abs=1e-6), "the first rollout is the base's own"
    assert report["kl_step"] > 1e-4


def test_several_epochs_move_further_than_one(small: Make, tmp_path: Path) -> None:
    once, often = (
        reports_of(small(updates_per_batch=updates, epochs=epochs, checkpoint_dir=tmp_path / f"{updates}"))
        for updates, epochs in ((2, 1), (8, 4))
    )
    assert often[0]["importance_ratio_rms"] > once[0]["importance_ratio_rms"]
    assert often[-1]["displacement"] > once[-1]["displacement"]
    assert (often[0]["updates"], often[0]["epochs"]) == (8, 4)
    saved = load_newest(tmp_path / "8")
    assert saved is not None
    assert saved.tensors["optimizer/0/step"] == 5 * 8, "what is reported is what the optimizer did"


def test_warmup_raises_the_rate_and_reports_it(small: Make) -> None:
    reports = reports_of(small(learning_rate=1e-3, warmup_samples=64, updates_per_batch=1))
    assert 0.5 < reports[0]["regime"] <= 1.0001, "Adam's first step is as long as the rate really used"
    assert [r["learning_rate"] for r in reports] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])


def test_flipped_verdicts_are_what_training_sees_and_not_the_reward(small: Make, tmp_path: Path) -> None:
    seldom_right = {"task": "add", "rollout_batch": 64, "budget_samples": 64}  # flips mostly raise its reward
    clean = reports_of(small(**seldom_right, checkpoint_dir=tmp_path / "clean"))[0]
    noisy = reports_of(small(**seldom_right, verdict_noise=0.4, checkpoint_dir=tmp_path / "noisy"))[0]
    assert clean["verdict_reward"] == clean["reward"] == noisy["reward"]
    assert noisy["verdict_reward"] > noisy["reward"] + 0.05
    assert noisy["zero_variance_fraction"] < clean["zero_variance_fraction"]


def test_weight_decay_clip_and_kl_reach_the_update(small: Make, tmp_path: Path) -> None:
    def last(**settings: Any) -> dict[str, Any]:
        folder = tmp_path / ("-".join(f"{name}{value}" for name, value in settings.items()) or "plain")
        return reports_of(small(budget_samples=48, learning_rate=2e-3, checkpoint_dir=folder, **settings))[-1]

    plain = last()
    for settings in (
        {"weight_decay": 0.5},
        {"max_grad_norm": 0.01},
        {"kl_coefficient": 5.0},
        {"clip_high": 0.01},
        {"std_advantages": False},
        {"temperature": 0.5},
        {"betas": (0.5, 0.9)},
        {"max_new_tokens": 3},
    ):
        assert last(**settings)["displacement"] != plain["displacement"], settings
    assert last(max_new_tokens=2)["truncated_fraction"] == 1.0


def test_it_learns(small: Make) -> None:
    result = train(small(rollout_batch=64, group_size=8, budget_samples=1_920, eval_prompts=128))
    assert result.state == "finished"
    assert result.samples == 1_920
    assert result.final_reward is not None
    assert result.final_reward > 0.45, "the base begins at 0.20"
    assert result.final_eval_reward > 0.5


def test_a_schedule_without_a_service_is_followed(small: Make) -> None:
    schedule = [
        {"at_samples": 20, "rollout_batch": 32, "rule": "sqrt"},
        {"at_samples": 90, "rollout_batch": 8, "learning_rate": 1e-5},
    ]
    config = small(policy="act", schedule=schedule, budget_samples=104, learning_rate=1e-4)
    reports = reports_of(config)
    assert [r["rollout_batch"] for r in reports] == [16, 16, 32, 32, 8]
    rates = [1e-4, 1e-4, 1e-4 * math.sqrt(2), 1e-4 * math.sqrt(2), 1e-5]
    assert [r["learning_rate"] for r in reports] == pytest.approx(rates)


def test_the_metrics_file_holds_every_report(small: Make, tmp_path: Path) -> None:
    reports = reports_of(small(metrics_file=tmp_path / "metrics.jsonl"))
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == reports
    with pytest.raises(ConfigError, match="--metrics-file cannot be written"):
        train(small(metrics_file=tmp_path, checkpoint_dir=tmp_path / "other"))


def test_an_interrupt_ends_at_a_step_boundary_and_can_be_resumed(
    small: Make, scripted: Any, tmp_path: Path
) -> None:
    interrupt, monitor = threading.Event(), scripted()
    result = train(small(), monitor=monitor, interrupt=interrupt, on_report=lambda _: interrupt.set())
    assert (result.state, result.steps, monitor.finished) == ("stopped", 1, ("stopped", "interrupted"))
    assert train(small(resume=True)).steps == 5


def test_weights_that_are_not_finite_end_the_run_as_failed(small: Make, scripted: Any) -> None:
    monitor = scripted()
    result = train(small(learning_rate=1e38, checkpoint_every_steps=1), monitor=monitor)
    assert result.state == "failed"
    assert monitor.finished == ("failed", result.reason)
    assert "no longer finite" in str(result.reason)
    assert not math.isfinite(monitor.reports[-1]["displacement"])


def test_a_crash_of_the_loop_is_told_to_the_monitor(
    small: Make, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*ignored: Any, **ignored_too: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(loop, "_update", broken)
    monitor = scripted()
    with pytest.raises(RuntimeError, match="out of memory"):
        train(small(), monitor=monitor)
    assert monitor.finished == ("failed", "RuntimeError: out of memory")
    assert monitor.closed

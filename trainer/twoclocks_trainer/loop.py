"""The training loop: GRPO in one scroll, from prompts to report.

What is kept of GRPO: groups of responses to one prompt, advantages against the group's mean (over its
standard deviation unless told not to), importance ratios against the sampling policy, an optional clip,
several optimizer updates per rollout batch, an optional KL term to the base. What is dropped: reward models,
overlong filtering, sequence packing, several devices. As in DAPO every token of a minibatch weighs the same,
and the two clip bounds may differ.

Two numbers may change between steps, the rollout batch and the learning rate (`learner.state`). They are
read at the top of a step, so a switch needs nothing rebuilt: each update keeps its share of the batch, and
Adam keeps its moments.
"""

import copy
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import Qwen2ForCausalLM

from twoclocks_trainer import checkpoint, grpo
from twoclocks_trainer.config import ConfigError, TrainConfig
from twoclocks_trainer.directives import follow
from twoclocks_trainer.learner import Learner
from twoclocks_trainer.model import PACKAGED, load_model
from twoclocks_trainer.reporter import MonitorLike, Report, Reporter, open_metrics, open_monitor
from twoclocks_trainer.rollout import Rollout, response_distribution, roll_out
from twoclocks_trainer.tasks import TASKS

SMOOTHING_SAMPLES = 1_024
MEASURED_RESPONSES = 64


@dataclass(frozen=True)
class TrainResult:
    """How a run ended: `final_reward` is smoothed, `final_eval_reward` greedy on held-out prompts."""

    run: str
    state: str
    reason: str | None
    steps: int
    samples: int
    final_reward: float | None
    final_eval_reward: float
    delivered: bool
    switches: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)


def train(
    config: TrainConfig,
    *,
    monitor: MonitorLike | None = None,
    on_report: Callable[[Report], None] | None = None,
    interrupt: threading.Event | None = None,
) -> TrainResult:
    """Train one run and return how it ended.

    `state` is finished (budget used), stopped (by a directive or `interrupt`) or failed (weights not finite).
    `monitor` takes the place of the configured one. The caller's random state is left as it was.
    Raises ConfigError or BaseError before the first step; afterwards nothing of the monitor's or the disk's.
    """
    torch.set_num_threads(config.threads)
    with torch.random.fork_rng(devices=[]):
        learner = Learner(config, load_model(config.base or PACKAGED / config.task))
        base = copy.deepcopy(learner.model).requires_grad_(False)
        _begin(learner)
        metrics = open_metrics(config)
        if monitor is None:
            monitor = open_monitor(
                config,
                model=learner.base_name,
                parameters=learner.theta0.numel(),
                samples=learner.state.samples,
                baseline_reward=learner.state.baseline_reward,
            )
        reporter = Reporter(monitor, metrics, on_report)
        try:
            state, reason = _train(learner, base, reporter, interrupt or threading.Event())
        except BaseException as error:
            ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            monitor.finish(ended, f"{type(error).__name__}: {error}")
            reporter.close()
            raise
        monitor.finish(state, reason)
        counters = learner.state
        if counters.eval_reward is None or counters.evaluated_at != counters.samples:
            counters.eval_reward = evaluate(learner)
        return TrainResult(
            run=config.run,
            state=state,
            reason=reason,
            steps=counters.step,
            samples=counters.samples,
            final_reward=counters.smoothed_reward,
            final_eval_reward=counters.eval_reward,
            delivered=reporter.close(),
            switches=counters.switches,
            events=reporter.events,
        )


def _begin(learner: Learner) -> None:
    """Resume from the newest checkpoint, or measure the base's own reward and begin."""
    config = learner.config
    if config.resume and (newest := checkpoint.load_newest(config.checkpoints)):
        learner.restore(newest)
        return
    if not config.resume and (found := checkpoint.newest_first(config.checkpoints)):
        raise ConfigError(
            f"{found[0]} is a checkpoint of an earlier run; go on from it with --resume, or give another "
            "--run or --checkpoint-dir"
        )
    with torch.random.fork_rng(devices=[]):
        learner.state.baseline_reward = evaluate(learner, greedy=False)


def _train(
    learner: Learner, base: Qwen2ForCausalLM, reporter: Reporter, interrupt: threading.Event
) -> tuple[str, str | None]:
    """Run steps until the budget is used; return the state the run ends in, and why."""
    config, state, task = learner.config, learner.state, TASKS[learner.config.task]

    def save(*, keep: bool = False) -> str | None:
        try:
            checkpoint.save(config.checkpoints, learner.checkpoint(), keep=keep)
        except OSError as error:
            text = f"no checkpoint could be written, training goes on: {error}"
            reporter.event("checkpoint_failed", state.step, text)
            return text
        return None

    while state.samples < config.budget_samples:
        # Between two steps: what the service asks, and whether to end.
        stop = follow(reporter.monitor, state, config, lambda: save(keep=True))
        if stop is None and interrupt.is_set():
            stop = "interrupted"
        if stop is not None:
            save()
            return "stopped", stop

        # Prompts, and a group of responses to each.
        rollout_batch, rate = state.rollout_batch, state.learning_rate
        state.step += 1
        state.samples += rollout_batch
        if config.warmup_samples:
            rate *= min(1.0, state.samples / config.warmup_samples)
        prompts = task.draw(rollout_batch // config.group_size, learner.prompts)
        rollout = roll_out(
            learner.model,
            prompts,
            group_size=config.group_size,
            temperature=config.temperature,
            max_new_tokens=config.response_limit,
        )

        # Verdicts, of which the verifier gets some wrong, and advantages within each group.
        asked = [prompt for prompt in prompts for _ in range(config.group_size)]
        rewards = torch.tensor([task.score(p, r) for p, r in zip(asked, rollout.texts, strict=True)])
        wrong = torch.rand(rollout_batch, generator=learner.shuffles) < config.verdict_noise
        verdicts = torch.where(wrong, 1.0 - rewards, rewards)
        advantages = grpo.group_advantages(verdicts, config.group_size, normalize=config.std_advantages)

        # Optimizer updates, then what there is to say of them.
        updated = _update(learner, base, rollout, advantages, rate)
        report: dict[str, float | None] = {
            "step": state.step,
            "samples": state.samples,
            "rollout_batch": rollout_batch,
            "learning_rate": rate,
            "updates": config.updates_per_batch,
            "epochs": config.epochs,
            **_rewards(rewards, verdicts, config.group_size),
            **_responses(learner, base, rollout),
            **updated,
            "checkpoint_failures": reporter.count("checkpoint_failed"),
        }
        state.tokens += int(rollout.batch.response_mask.sum())
        report["tokens"] = state.tokens
        state.smoothed_reward = _smooth(state.smoothed_reward, rewards.mean().item(), rollout_batch, config)
        last = state.samples >= config.budget_samples
        if last or state.samples - state.evaluated_at >= config.eval_every_samples:
            state.eval_reward = report["eval_reward"] = evaluate(learner)
            state.evaluated_at = state.samples
        reporter.report(report)

        if not learner.theta().isfinite().all():
            return "failed", f"the weights are no longer finite after step {state.step}"
        if last or (config.checkpoint_every_steps and state.step % config.checkpoint_every_steps == 0):
            save()
    return "finished", None


def _update(
    learner: Learner, base: Qwen2ForCausalLM, rollout: Rollout, advantages: Tensor, rate: float
) -> dict[str, float | None]:
    """Make the step's optimizer updates at learning rate `rate`; return their metrics, means over updates.

    Each epoch shuffles the groups and cuts the batch into equal minibatches, one update each.
    """
    config, parameters = learner.config, list(learner.model.parameters())
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    losses, gradient_norms, update_norms, clipped, squares, ratios = [], [], [], [], [], []
    theta = learner.theta()
    for _ in range(config.epochs):
        for rows in _shuffled(learner, len(advantages)).chunk(config.minibatches):
            batch = rollout.batch.rows(rows)
            logprobs = grpo.token_logprobs(
                response_distribution(learner.model, batch, config.temperature), batch.responses
            )
            result = grpo.policy_loss(
                logprobs,
                rollout.logprobs[rows],
                advantages[rows],
                batch.response_mask,
                clip_low=config.clip_low,
                clip_high=config.clip_high,
            )
            loss = result.loss
            if config.kl_coefficient:
                with torch.no_grad():
                    reference = response_distribution(base, batch, config.temperature)
                    reference = grpo.token_logprobs(reference, batch.responses)
                divergence = grpo.masked_mean(grpo.k3(logprobs, reference), batch.response_mask)
                loss = loss + config.kl_coefficient * divergence
            learner.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            gradient_norms.append(clip_grad_norm_(parameters, config.max_grad_norm or math.inf).item())
            learner.optimizer.step()

            before, theta = theta, learner.theta()
            update_norms.append((theta - before).norm().item())
            losses.append(loss.item())
            squares.append(result.squared_log_ratio)
            ratios.append(result.ratio_max)
            if result.clip_fraction is not None:
                clipped.append(result.clip_fraction)
    update_norm = _mean(update_norms)
    return {
        "loss": _mean(losses),
        "grad_norm": _mean(gradient_norms),
        "update_norm": update_norm,
        "regime": update_norm / (rate * math.sqrt(theta.numel())),
        "displacement": (theta - learner.theta0).norm().item(),
        "clip_fraction": _mean(clipped) if clipped else None,
        "importance_ratio_max": max(ratios),
        "importance_ratio_rms": math.sqrt(_mean(squares)),
    }


def _shuffled(learner: Learner, responses: int) -> Tensor:
    """Row indices of a pass: groups in random order, each kept together."""
    size = learner.config.group_size
    groups = torch.randperm(responses // size, generator=learner.shuffles)
    return (groups.unsqueeze(1) * size + torch.arange(size)).flatten()


def _rewards(rewards: Tensor, verdicts: Tensor, group_size: int) -> dict[str, float]:
    """The step's reward by the task's own check; the spread within groups by the verdicts trained on."""
    groups = verdicts.view(-1, group_size)
    return {
        "reward": rewards.mean().item(),
        "verdict_reward": verdicts.mean().item(),
        "reward_std": groups.std(dim=1).mean().item(),
        "zero_variance_fraction": (groups == groups[:, :1]).all(dim=1).float().mean().item(),
    }


@torch.no_grad()
def _responses(learner: Learner, base: Qwen2ForCausalLM, rollout: Rollout) -> dict[str, float]:
    """Of the step's own responses: length, entropy when sampled, and KL to the base and to the policy now.

    The divergences, for which the responses are read again, are of the first MEASURED_RESPONSES only.
    """
    mask, temperature = rollout.batch.response_mask, learner.config.temperature
    some = rollout.batch.rows(torch.arange(min(MEASURED_RESPONSES, len(mask))))
    sampled = rollout.distribution[: len(some.tokens)]
    reference = response_distribution(base, some, temperature)
    now = response_distribution(learner.model, some, temperature)
    return {
        "entropy": grpo.entropy(rollout.distribution, mask),
        "kl_reference": grpo.exact_kl(sampled, reference, some.response_mask),
        "kl_step": grpo.exact_kl(sampled, now, some.response_mask),
        "response_length": mask.sum(dim=1).mean().item(),
        "truncated_fraction": rollout.truncated.float().mean().item(),
    }


def evaluate(learner: Learner, *, greedy: bool = True) -> float:
    """Return the mean reward on held-out prompts, always the same ones; greedily, no randomness is used."""
    config, task = learner.config, TASKS[learner.config.task]
    prompts = task.draw(config.eval_prompts, random.Random("held-out"), held_out=True)
    answers = roll_out(
        learner.model,
        prompts,
        temperature=config.temperature,
        max_new_tokens=config.response_limit,
        greedy=greedy,
    ).texts
    return sum(map(task.score, prompts, answers)) / len(prompts)


def _smooth(before: float | None, reward: float, rollout_batch: int, config: TrainConfig) -> float:
    """The reward's exponential mean over a window of samples."""
    weight = 1.0 - math.exp(-rollout_batch / (config.window_samples or SMOOTHING_SAMPLES))
    return reward if before is None else before + weight * (reward - before)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

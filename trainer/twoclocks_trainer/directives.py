"""What the loop does about a directive: at a step boundary, once, and said truthfully.

A directive is one document whose latest generation holds. The answered generation is part of the checkpoint,
so a resumed run neither forgets a switch nor makes it twice.
"""

import math
from collections.abc import Callable

from twoclocks.wire import AckState, Directive, DirectiveKind, Policy
from twoclocks_trainer.config import TrainConfig
from twoclocks_trainer.learner import State
from twoclocks_trainer.reporter import MonitorLike


def follow(
    monitor: MonitorLike, state: State, config: TrainConfig, save: Callable[[], str | None]
) -> str | None:
    """Answer the latest directive if it is new and due; return why to stop, or None to go on.

    A switch turns the two dials of `state`. `save` makes a lasting checkpoint and returns what went wrong, or
    None. Acks: received when first seen, then applied (with the values really in use), rejected or expired.
    """
    directive = monitor.directive
    generation, next_step = directive.generation, state.step + 1
    if generation <= state.answered:
        return None
    if generation > state.received:
        state.received = generation
        monitor.ack(generation, AckState.RECEIVED, step=state.step)
    if next_step < directive.not_before_step:
        return None
    state.answered = generation
    if directive.expires_at_step is not None and next_step > directive.expires_at_step:
        monitor.ack(
            generation,
            AckState.EXPIRED,
            step=next_step,
            reason=f"next is step {next_step}, it was to be done by step {directive.expires_at_step}",
        )
        return None
    refusal = _refusal(directive, config)
    stop: str | None = None
    if refusal is None:
        match directive.kind:
            case DirectiveKind.SWITCH_BATCH:
                refusal = _switch(directive, state, config)
            case DirectiveKind.CHECKPOINT:
                refusal = save()
            case DirectiveKind.STOP:
                stop = f"directive {generation}: {directive.reason or 'stop'}"
            case DirectiveKind.HOLD:
                pass
    if refusal is not None:
        monitor.ack(generation, AckState.REJECTED, step=next_step, reason=refusal)
    else:
        monitor.ack(
            generation,
            AckState.APPLIED,
            step=next_step if stop is None else state.step,
            rollout_batch=state.rollout_batch,
            learning_rate=state.learning_rate,
        )
    return stop


def _refusal(directive: Directive, config: TrainConfig) -> str | None:
    """Why this run will not carry the directive out, or None where it will."""
    if directive.kind is DirectiveKind.HOLD:
        return None
    if Policy.ADVISE in {directive.policy, config.policy}:
        return "the run's policy is advise: directives are shown, not carried out"
    return None


def _switch(directive: Directive, state: State, config: TrainConfig) -> str | None:
    """Turn the dials; return why not, where the setting cannot be."""
    rollout_batch, rate = directive.rollout_batch, directive.learning_rate
    if rollout_batch is None or rate is None:
        return "a switch must name a rollout batch and a learning rate"
    if rollout_batch < 1 or not 0 < rate < math.inf:
        return f"a rollout batch of {rollout_batch} at a learning rate of {rate} cannot be"
    if reason := config.why_not(rollout_batch):
        return reason
    state.rollout_batch, state.learning_rate = rollout_batch, rate
    state.switches.append(
        {
            "generation": directive.generation,
            "step": state.step + 1,
            "samples": state.samples,
            "rollout_batch": rollout_batch,
            "learning_rate": rate,
        }
    )
    return None

"""The algorithm's arithmetic as pure functions of tensors.

Shapes: N responses in groups of G that share a prompt, T response positions, V tokens. `mask` (N, T) is 1 on
response tokens, the end mark included, and 0 on padding. Probabilities are at the sampling temperature
throughout, so importance ratios compare like with like.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

STD_EPSILON = 1e-4


def group_advantages(rewards: Tensor, group_size: int, *, normalize: bool) -> Tensor:
    """Return (N,) advantages r - mean of the group; if `normalize`, over the group's deviation + 1e-4.

    The deviation is the unbiased one (n - 1), as in TRL; without it this is the baseline of Dr. GRPO. A group
    whose rewards are all equal has advantages of 0. `rewards` is (N,), group after group.
    """
    groups = rewards.view(-1, group_size)
    advantages = groups - groups.mean(dim=1, keepdim=True)
    if normalize:
        advantages = advantages / (groups.std(dim=1, keepdim=True) + STD_EPSILON)
    return advantages.flatten()


def log_distribution(logits: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities (N, T, V) at the temperature."""
    return (logits / temperature).log_softmax(dim=-1)


def token_logprobs(distribution: Tensor, tokens: Tensor) -> Tensor:
    """Return (N, T) log-probabilities of the tokens (N, T) under a log_distribution (N, T, V)."""
    return distribution.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over every response token of the batch; every token weighs the same (DAPO)."""
    return (values * mask).sum() / mask.sum()


@dataclass(frozen=True)
class PolicyLoss:
    """One update's loss with what its importance ratios were; `clip_fraction` is None where nothing clips."""

    loss: Tensor
    clip_fraction: float | None
    squared_log_ratio: float
    ratio_max: float


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float | None = None,
    clip_high: float | None = None,
) -> PolicyLoss:
    """Return the mean over tokens of -min(rho A, clip(rho, 1 - low, 1 + high) A), rho = exp(new - old).

    A bound of None does not clip on that side. logprobs, old_logprobs and mask are (N, T), advantages (N,).
    Only a ratio past its bound in the advantage's own direction counts as clipped.
    """
    log_ratio = (logprobs - old_logprobs) * mask
    ratio = log_ratio.exp()
    weight = advantages.unsqueeze(1)
    objective = ratio * weight
    clipped: float | None = None
    if clip_low is not None or clip_high is not None:
        low = 0.0 if clip_low is None else 1.0 - clip_low
        high = torch.inf if clip_high is None else 1.0 + clip_high
        objective = torch.minimum(objective, ratio.clamp(low, high) * weight)
        outside = ((ratio < low) & (weight < 0)) | ((ratio > high) & (weight > 0))
        clipped = masked_mean(outside.float(), mask).item()
    return PolicyLoss(
        loss=-masked_mean(objective, mask),
        clip_fraction=clipped,
        squared_log_ratio=masked_mean(log_ratio.detach() ** 2, mask).item(),
        ratio_max=(ratio.detach() * mask).max().item(),
    )


def entropy(distribution: Tensor, mask: Tensor) -> float:
    """Return the mean entropy per response token, nats."""
    return masked_mean(-(distribution.exp() * distribution).sum(dim=-1), mask).item()


def exact_kl(distribution: Tensor, other: Tensor, mask: Tensor) -> float:
    """Return the mean over response tokens of KL(p || q), nats, summed exactly over the vocabulary."""
    return masked_mean((distribution.exp() * (distribution - other)).sum(dim=-1), mask).item()


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return the (N, T) estimate exp(d) - d - 1, d = reference - logprobs, of KL(policy || reference).

    Unbiased for tokens sampled from the policy, and never negative (Schulman's k3).
    """
    difference = reference - logprobs
    return difference.exp() - difference - 1.0
